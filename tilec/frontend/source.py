"""The user's source: where a running frame stands, what its expressions are called, which names are read later.

Positions come from the code object (`co_positions`), the rest from the syntax tree of the file. The tree is used for
checks, names and liveness only; nothing is compiled from it. Liveness errs to "read": a name is dead only where every
path overwrites it, or leaves the function, before reading it.
"""

from __future__ import annotations

import ast
import linecache
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import CodeType, FrameType, TracebackType
from typing import Any

from tilec.errors import Location

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep

Span = tuple[int, int, int, int]  # line, column, end line, end column; lines from 1, columns in UTF-8 bytes from 0


# -- frames and positions ----------------------------------------------------------------------------------------------


def is_user_code(code: CodeType) -> bool:
    return not code.co_filename.startswith(PACKAGE)


def user_frame() -> FrameType:
    """The innermost running frame that is not tilec's own."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_user_code(frame.f_code):
        frame = frame.f_back
    assert frame is not None
    return frame


@lru_cache(maxsize=256)
def _spans(code: CodeType, _filename: str, _linetable: bytes) -> tuple[Span | None, ...]:
    """The span of each instruction; None where the interpreter knows only the line (or nothing)."""
    found: list[Span | None] = []
    for line, end_line, column, end_column in code.co_positions():
        if line is None:
            found.append(None)
        elif end_line is None or column is None or end_column is None:
            found.append((line, 0, line, 0))
        else:
            found.append((line, column, end_line, end_column))
    return tuple(found)


def span_at(code: CodeType, instruction: int) -> Span:
    """The span of the instruction at byte offset `instruction`."""
    span = _spans(code, code.co_filename, code.co_linetable)[instruction // 2] if instruction >= 0 else None
    return span or (code.co_firstlineno, 0, code.co_firstlineno, 0)


def span_of(frame: FrameType) -> Span:
    return span_at(frame.f_code, frame.f_lasti)


def iterated(code: CodeType, span: Span) -> Span:
    """The span of what a `for` iterates over, where the interpreter gives the whole statement (before CPython 3.13)."""
    tree = source_of(code)
    for node in tree.by_span.get(span, ()) if tree else ():
        if isinstance(node, ast.For):
            return node_span(node.iter)
    return span


def locate(file: str, span: Span) -> Location:
    """The first line of a span, as a Location; columns counted in characters."""
    line, column, end_line, end_column = span
    text = linecache.getline(file, line).rstrip("\n").encode()
    end = end_column if end_line == line and end_column else len(text.rstrip())
    if end_column == 0:  # only the line is known
        column = len(text) - len(text.lstrip())
    return Location(
        file,
        line,
        len(text[:column].decode(errors="replace")) + 1,
        max(1, len(text[column:end].decode(errors="replace"))),
    )


def here() -> Location:
    """Where the user's code stands now."""
    frame = user_frame()
    return locate(frame.f_code.co_filename, span_of(frame))


def raised_at(traceback: TracebackType | None) -> tuple[Location | None, bool]:
    """The innermost user position on a traceback, and whether the exception was raised in user code itself."""
    found: Location | None = None
    own = False
    while traceback is not None:
        code = traceback.tb_frame.f_code
        own = is_user_code(code)
        if own:
            found = locate(code.co_filename, iterated(code, span_at(code, traceback.tb_lasti)))
        traceback = traceback.tb_next
    return found, own


# -- the syntax tree ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Source:
    """The syntax tree of one file, with the way up from each node and the nodes at each span."""

    file: str
    tree: ast.Module
    parents: dict[ast.AST, ast.AST] = field(default_factory=dict)
    by_span: dict[Span, list[ast.AST]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for node in ast.walk(self.tree):
            if isinstance(node, (ast.expr, ast.stmt)):
                self.by_span.setdefault(node_span(node), []).append(node)
            for child in ast.iter_child_nodes(node):
                self.parents[child] = node

    def where(self, node: ast.AST) -> Location:
        return locate(self.file, node_span(node))

    def nodes(self, span: Span, kind: type[ast.AST] | tuple[type[ast.AST], ...]) -> Iterator[ast.AST]:
        return (node for node in self.by_span.get(span, ()) if isinstance(node, kind))

    def function(self, code: CodeType) -> ast.FunctionDef | None:
        """The definition that a code object was compiled from."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef) and node.name == code.co_name:
                first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
                if first == code.co_firstlineno:
                    return node
        return None


def node_span(node: Any) -> Span:
    """The span of an expression, statement or parameter."""
    return node.lineno, node.col_offset, node.end_lineno or node.lineno, node.end_col_offset or node.col_offset + 1


@lru_cache(maxsize=32)
def _parse(file: str, text: str) -> Source | None:
    try:
        return Source(file, ast.parse(text))
    except SyntaxError:
        return None


def source_of(code: CodeType) -> Source | None:
    """The tree of the file that holds a code object; None where its text can't be had (exec, a plain prompt)."""
    lines = linecache.getlines(code.co_filename)
    return _parse(code.co_filename, "".join(lines)) if lines else None


def names_at(source: Source, span: Span) -> tuple[str, ...]:
    """The names that the expression at a span is bound to: `a` in `a = f(x)`, `m, n` in `m, n = f(x)`."""
    for node in source.by_span.get(span, ()):
        if isinstance(node, ast.AugAssign):
            return _target_names(node.target)
        parent = source.parents.get(node)
        if isinstance(parent, ast.Assign) and node is parent.value:
            return _target_names(parent.targets[0])
        if isinstance(parent, (ast.AnnAssign, ast.NamedExpr)) and node is parent.value:
            return _target_names(parent.target)
        if isinstance(parent, ast.Tuple):
            assign = source.parents.get(parent)
            if isinstance(assign, ast.Assign) and isinstance(target := assign.targets[0], (ast.Tuple, ast.List)):
                if len(target.elts) == len(parent.elts):
                    return _target_names(target.elts[parent.elts.index(node)])  # type: ignore[arg-type]
    return ()


def _target_names(target: ast.expr) -> tuple[str, ...]:
    if isinstance(target, ast.Name):
        return (target.id,)
    if isinstance(target, (ast.Tuple, ast.List)):
        return tuple(element.id if isinstance(element, ast.Name) else "" for element in target.elts)
    return ()


def names_bound_by(target: ast.expr) -> set[str]:
    return {node.id for node in ast.walk(target) if isinstance(node, ast.Name)}


def last_assignment(block: Sequence[ast.stmt], name: str) -> ast.AST | None:
    """The last statement of a block (at any depth) that binds a name, or changes a container of that name."""
    found: ast.AST | None = None
    for statement in block:
        for node in ast.walk(statement):
            if isinstance(node, ast.Assign):
                targets: list[ast.expr] = node.targets
            elif isinstance(node, (ast.AugAssign, ast.AnnAssign, ast.NamedExpr, ast.For)):
                targets = [node.target]
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):  # names.append(...)
                targets = [node.func.value]
            else:
                continue
            if any(name in names_bound_by(target) for target in targets):
                if found is None or node_span(node) > node_span(found):
                    found = node
    return found


# -- leaving a block early ---------------------------------------------------------------------------------------------


def escapes(block: Iterable[ast.stmt], loop: bool) -> Iterator[tuple[ast.AST, str]]:
    """Statements that leave a block before its end: (node, 'break' | 'continue' | 'return' | 'yield'). `loop`: the
    block is the body of a loop, or stands for one; those of loops and functions inside it are their own."""
    for statement in block:
        yield from _escapes(statement, loop)


def _escapes(node: ast.AST, loop: bool) -> Iterator[tuple[ast.AST, str]]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
        return
    if isinstance(node, ast.Return):
        yield node, "return"
    elif isinstance(node, (ast.Yield, ast.YieldFrom)):
        yield node, "yield"
    elif loop and isinstance(node, (ast.Break, ast.Continue)):
        yield node, type(node).__name__.lower()
    inner_loop = isinstance(node, (ast.For, ast.While))
    for child in ast.iter_child_nodes(node):
        own = inner_loop and child not in node.orelse  # type: ignore[attr-defined]
        yield from _escapes(child, loop and not own)


# -- liveness ----------------------------------------------------------------------------------------------------------

_SCOPES = (
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.Lambda,
    ast.ClassDef,
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
    ast.GeneratorExp,
)


def reads_first(block: Sequence[ast.AST], name: str) -> bool:
    """Whether a block may read a name's value from before it."""
    return _first_use(block, name) == "read"


def read_after(source: Source, statement: ast.AST, name: str) -> bool:
    """Whether, once a statement is done, its function may read the name before binding it anew."""
    node = statement
    while (parent := source.parents.get(node)) is not None:
        for _, block in ast.iter_fields(parent):
            if isinstance(block, list) and node in block:
                use = _first_use(block[block.index(node) + 1 :], name)
                if use:
                    return use == "read"
        if isinstance(parent, ast.Try) and node not in parent.finalbody:
            then = [*parent.orelse, *parent.finalbody] if node in parent.body else parent.finalbody
            if use := _first_use(then, name):
                return use == "read"
        if isinstance(parent, (ast.For, ast.While)) and node in parent.body:  # around again
            again = [parent.target, *parent.body] if isinstance(parent, ast.For) else [parent.test, *parent.body]
            if _first_use(again, name) == "read":
                return True
        if isinstance(parent, _SCOPES):
            return False
        node = parent
    return False


def _first_use(nodes: Iterable[ast.AST | None], name: str) -> str:
    """'read' or 'write', whichever comes first in order of evaluation on some or every path; '' where it stays open."""
    for node in nodes:
        if node is not None and (use := _use(node, name)):
            return use
    return ""


def _use(node: ast.AST, name: str) -> str:
    if isinstance(node, ast.Name):
        return "" if node.id != name else "read" if isinstance(node.ctx, ast.Load) else "write"
    if isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return _first_use([node.value, *targets], name)
    if isinstance(node, ast.AugAssign):
        if isinstance(node.target, ast.Name) and node.target.id == name:
            return "read"
        return _first_use([node.value, node.target], name)
    if isinstance(node, ast.Return):
        return _first_use([node.value], name) or "write"  # nothing of this function runs after it
    if isinstance(node, (ast.If, ast.IfExp)):
        return _use(node.test, name) or _either(node.body, node.orelse, name)
    if isinstance(node, ast.For):
        return _use(node.iter, name) or _perhaps([node.target, *node.body], name) or _first_use(node.orelse, name)
    if isinstance(node, ast.While):
        return _use(node.test, name) or _perhaps(node.body, name) or _first_use(node.orelse, name)
    if isinstance(node, ast.With):  # the body of `with tc.when(...)` is conditional
        return _first_use([i.context_expr for i in node.items], name) or _perhaps(node.body, name)
    if isinstance(node, (ast.Try, ast.Match)) or isinstance(node, _SCOPES):
        return (
            "read"
            if any(isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load) for n in ast.walk(node))
            else ""
        )
    return _first_use(ast.iter_child_nodes(node), name)


def _perhaps(block: Sequence[ast.AST], name: str) -> str:
    return "read" if _first_use(block, name) == "read" else ""


def _either(left: ast.AST | list[ast.stmt], right: ast.AST | list[ast.stmt], name: str) -> str:
    uses = [_first_use(side if isinstance(side, list) else [side], name) for side in (left, right)]
    return "read" if "read" in uses else "write" if uses == ["write", "write"] else ""


# -- truth tests -------------------------------------------------------------------------------------------------------


def truth_test(source: Source, span: Span) -> str:
    """The construct that asks whether the expression at a span is true: 'if', 'while', 'and', 'or', 'not', 'assert', a
    chained comparison, or '' where there is none to be seen."""
    for node in source.by_span.get(span, ()):
        if isinstance(node, ast.Compare) and len(node.ops) > 1:
            return "a chained comparison"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return node.func.id
        while isinstance(node, ast.expr):
            parent = source.parents.get(node)
            if isinstance(node, ast.BoolOp):
                return "and" if isinstance(node.op, ast.And) else "or"
            if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
                return "not"
            if isinstance(parent, (ast.If, ast.While, ast.IfExp, ast.Assert)) and node is parent.test:
                return {ast.If: "if", ast.While: "while", ast.IfExp: "if", ast.Assert: "assert"}[type(parent)]
            if not isinstance(parent, (ast.BoolOp, ast.UnaryOp)):
                break
            node = parent
    return ""
