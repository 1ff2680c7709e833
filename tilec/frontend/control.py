"""`tc.range` and `tc.when`.

Each finds its own statement in the syntax tree, refuses what would leave its body early, and opens a region (`regions`)
whose moved names become the results of a For or an If.
"""

from __future__ import annotations

import ast
from types import FrameType
from typing import Any

from tilec import dtypes
from tilec.errors import Location, TilecError
from tilec.frontend import source
from tilec.frontend.regions import Region, close_region, hint, open_region
from tilec.frontend.source import Source
from tilec.frontend.tensors import index_value
from tilec.frontend.tracer import Tracer, current
from tilec.frontend.values import Number, Scalar, Tile, operand_of, read
from tilec.ir.core import Builder, ScalarType, Value
from tilec.ir.tile import For, If


class Range:
    """`for k in tc.range(n)`, `tc.range(lo, n)`, `tc.range(lo, n, step)`: a loop of the kernel.

    The bounds may be run-time scalars, the step is positive. Names that the body changes are carried from trip to trip.
    """

    def __init__(self, *bounds: Any):
        tracer, self._frame = current(), source.user_frame()
        self._tree, statement, self._where = _statement(self._frame, ast.For)
        self._statement = statement
        if not isinstance(statement.target, ast.Name):
            raise TilecError("tc.range gives one counter", where=self._tree.where(statement.target),
                             fix="for k in tc.range(n): ...")
        self._counter_name = statement.target.id
        if not 1 <= len(bounds) <= 3:
            raise TilecError(f"tc.range takes 1 to 3 arguments, not {len(bounds)}")
        lower, upper, step = (0, *bounds, 1) if len(bounds) == 1 else (*bounds, 1)[:3]
        if not isinstance(step, Number) and (not isinstance(step, int) or step < 1):
            raise TilecError(f"tc.range with step {step!r}", limit="the step is a positive integer",
                             fix="count up, and compute n - 1 - k")
        if any(isinstance(b, Tile) for b in (lower, upper, step)):
            raise TilecError("tc.range over a tile", limit="bounds are integers or run-time scalars")
        self._bounds = [index_value(tracer, operand_of(b, "tc.range")) for b in (lower, upper, step)]
        self._region: Region | None = None

    def __iter__(self) -> Range:
        return self

    def __next__(self) -> Scalar:
        tracer = current()
        if self._region is not None:
            self._close(tracer, self._region)
            del self._frame, self._region
            raise StopIteration
        self._region = open_region(tracer, "loop", self._frame, self._tree, self._statement, self._where)
        self._counter = tracer.define(Value(ScalarType(dtypes.i32), self._counter_name))
        return Scalar(self._counter)

    def _close(self, tracer: Tracer, region: Region) -> None:
        moved, yields = close_region(region)
        inits, params = [], []
        for m in moved:
            outer, inner = region.params[m.old]
            inits.append(outer)
            params.append(inner if inner not in params else inner.like())  # moved twice: nothing reads the old value
        results = tuple(tracer.define(Value(m.new._type, hint(m.path))) for m in moved)
        body = region.scope.builder.block((self._counter, *params), yields)
        lower, upper, step = self._bounds
        tracer.add(For(lower=lower, upper=upper, step=step, inits=tuple(inits), body=body, results=results,
                       where=self._where))
        for m, result in zip(moved, results):
            m.new._cell = result


class When:
    """`with tc.when(condition):` runs a block where a run-time scalar bool holds. Elsewhere the names that it changes
    keep their old values."""

    def __init__(self, condition: Any):
        tracer, self._frame = current(), source.user_frame()
        self._tree, self._statement, self._where = _statement(self._frame, ast.With)
        item = operand_of(condition, "tc.when")
        element = item.dtype.kind if isinstance(item, Number) else type(item).__name__
        if isinstance(item, Tile) or element != "bool":
            raise TilecError(f"tc.when of {item._describe() if isinstance(item, Number) else repr(item)}",
                             limit="the condition is one bool, the same for the whole workgroup",
                             fix="tc.where chooses by element" if isinstance(item, Tile) else "compare it: n != 0")
        self._condition = read(item) if isinstance(item, Number) else tracer.constant(item, ScalarType(dtypes.bool_))

    def __enter__(self) -> None:
        self._region = open_region(current(), "when", self._frame, self._tree, self._statement, self._where)

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        if kind is not None:
            return
        tracer, region = current(), self._region
        moved, yields = close_region(region)
        results = tuple(tracer.define(Value(m.new._type, hint(m.path))) for m in moved)
        then = region.scope.builder.block((), yields)
        otherwise = Builder().block((), [region.params[m.old][0] for m in moved])
        tracer.add(If(condition=self._condition, then=then, otherwise=otherwise, results=results, where=self._where))
        for m, result in zip(moved, results):
            m.new._cell = result
        del self._frame, self._region


# -- the statement -----------------------------------------------------------------------------------------------------

_WORDS = {ast.For: "range", ast.With: "when"}
_HEADS = {
    ast.For: ("must be what a `for` statement iterates over", "for k in tc.range(n): ..."),
    ast.With: ("must be the head of a `with` statement", "with tc.when(condition): ..."),
}
_INSTEAD = {
    ("range", "break"): "end the loop by its bound, or run the rest under `with tc.when(...)`",
    ("range", "continue"): "run the rest of the body under `with tc.when(...)`",
    ("range", "return"): "return after the loop",
    ("when", "break"): "end the loop by its bound",
    ("when", "continue"): "run the rest of the body under the opposite condition",
    ("when", "return"): "return after the block",
}


def _statement(frame: FrameType, kind: type[ast.For] | type[ast.With]) -> tuple[Source, Any, Location]:
    """The `for` or `with` whose head is the call that the frame makes now, with the tree and the call's place."""
    word, span = _WORDS[kind], source.span_of(frame)
    tree = source.source_of(frame.f_code)
    if tree is None or not tree.by_span.get(span):
        raise TilecError(f"tc.{word}: the source of {frame.f_code.co_name!r} can't be read",
                         limit="its syntax tree is needed for checks", fix="put the kernel into a file")
    for call in tree.nodes(span, ast.Call):
        statement = _head_of(tree, call)
        if isinstance(statement, kind):
            for node, escape in source.escapes(statement.body, loop=True):
                raise TilecError(f"`{escape}` inside tc.{word}", where=tree.where(node),
                                 limit="the body is traced once and must run to its end",
                                 fix=_INSTEAD.get((word, escape), "a kernel is no generator"))
            return tree, statement, source.locate(tree.file, span)
    what, fix = _HEADS[kind]
    raise TilecError(f"tc.{word} {what}", fix=fix)


def _head_of(tree: Source, call: ast.AST) -> ast.AST | None:
    """The `for` over a call, or the `with` that has it as its only item."""
    parent = tree.parents.get(call)
    if isinstance(parent, ast.For) and parent.iter is call:
        return parent
    if isinstance(parent, ast.withitem):
        statement = tree.parents.get(parent)
        return statement if isinstance(statement, ast.With) and len(statement.items) == 1 else None
    return None
