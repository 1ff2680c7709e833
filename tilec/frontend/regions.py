"""Regions of a trace, the bodies of `tc.range` and `tc.when`: what changes in them, by comparing the caller's names.

A body is traced once. Before it, every cell (Number) that the caller's names reach gets a provisional value: a block
parameter for a loop, itself for a `when`. After it, a name whose cell changed is *moved*. A moved name that is live
(the syntax tree says that its old value may be read in the body, or its new one after) becomes a carried value, and its
new cell stands for the loop's result from then on. Cells that no name moved get back what they held, and their
parameters become aliases of it. Whatever can't be told apart that way is refused with the fix.
"""

from __future__ import annotations

import ast
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any, NoReturn

from tilec.errors import Location, TilecError
from tilec.frontend import source
from tilec.frontend.source import Source
from tilec.frontend.tracer import Scope, Tracer
from tilec.frontend.values import Number
from tilec.ir.core import Builder, Value

Path = tuple[Any, ...]  # a local name, then keys into containers


class Attribute(str):
    """The key of an object's attribute in a path."""


# -- the caller's names ------------------------------------------------------------------------------------------------


def snapshot(frame: FrameType) -> dict[Path, Any]:
    """What the names of a frame reach: leaves by path. Lists, tuples, dicts and objects of the user's classes are
    walked as trees, so that a number kept in one is seen to change."""
    leaves: dict[Path, Any] = {}

    def walk(path: Path, item: Any, above: tuple[int, ...]) -> None:
        children: Iterator[tuple[Any, Any]] | None = None
        if isinstance(item, (list, tuple)):
            children = iter(enumerate(item))
        elif isinstance(item, dict):
            children = iter(item.items())
        elif hasattr(item, "__dict__") and not isinstance(item, _OPAQUE) and _users_own(type(item)):
            children = ((Attribute(key), child) for key, child in vars(item).items())
        if children is None or id(item) in above or len(above) > 8:
            leaves[path] = item
            return
        leaves[(*path, len)] = len(item) if isinstance(item, (list, tuple, dict)) else 0
        for key, child in children:
            walk((*path, key), child, (*above, id(item)))

    found, code = dict(frame.f_locals), frame.f_code
    for name in dict.fromkeys((*code.co_varnames, *code.co_cellvars, *code.co_freevars)):  # under a tracer, the
        if name in found:  # dictionary's own order may depend on the past
            walk((name,), found[name], ())
    return leaves


_OPAQUE = (type, types.ModuleType, types.FunctionType, types.MethodType, Number)
_LIBRARIES = sys.stdlib_module_names | {"numpy", "torch", "ml_dtypes", "tilec"}


def _users_own(kind: type) -> bool:
    return kind.__module__.partition(".")[0] not in _LIBRARIES or kind in (types.SimpleNamespace,)


def spell(path: Path) -> str:
    """A path as the user writes it."""
    keys = (f".{key}" if isinstance(key, Attribute) else f"[{key!r}]" for key in path[1:] if key is not len)
    return path[0] + "".join(keys)


def hint(path: Path) -> str:
    return "_".join(str(key) for key in path)


def same(old: Any, new: Any) -> bool:
    """Whether a leaf that is no Number stayed what it was."""
    if old is new:
        return True
    plain = (bool, int, float, str, bytes, complex, type(None))
    return type(old) is type(new) and isinstance(old, plain) and (old == new or (old != old and new != new))


# -- a region ----------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Region:
    """An open region: the statement that opened it, where the caller's names stood, and its provisional parameters."""

    tracer: Tracer
    frame: FrameType
    source: Source
    statement: ast.For | ast.With
    scope: Scope
    before: dict[Path, Any]
    params: dict[Number, tuple[Value, Value]]  # cell -> (value before, value in the body)

    @property
    def kind(self) -> str:
        return self.scope.kind

    @property
    def word(self) -> str:
        return "loop" if self.kind == "loop" else "`when` block"


@dataclass(frozen=True)
class Moved:
    """A name that the region rebinds from one cell to another."""

    path: Path
    old: Number
    new: Number


def open_region(
    tracer: Tracer, kind: str, frame: FrameType, tree: Source, statement: ast.For | ast.With, where: Location
) -> Region:
    before = snapshot(frame)
    scope = Scope(kind, Builder(), where)
    params: dict[Number, tuple[Value, Value]] = {}
    for path, leaf in before.items():
        if isinstance(leaf, Number) and leaf not in params and tracer.is_readable(leaf._cell):
            outer = tracer.resolve(leaf._cell)
            inner = tracer.define(outer.like(name=hint(path)), scope) if kind == "loop" else outer
            params[leaf] = (outer, inner)
            leaf._cell = inner
    tracer.scopes.append(scope)
    return Region(tracer, frame, tree, statement, scope, before, params)


def close_region(region: Region) -> tuple[list[Moved], list[Value]]:
    """Ends the body: the moved names that become results, and what the body yields for them. Cells hold what they held
    before; the caller puts the results into the new cells (`Moved.new`)."""
    after = snapshot(region.frame)
    tracer = region.tracer
    moved = _carried(region, after)
    yields = [tracer.read(m.new._cell) for m in moved]
    tracer.scopes.pop()
    for cell, (outer, inner) in region.params.items():
        cell._cell = outer
        if inner is not outer and not any(m.old is cell for m in moved):
            tracer.alias[inner] = outer
    return moved, yields


def _carried(region: Region, after: dict[Path, Any]) -> list[Moved]:
    own = source.names_bound_by(region.statement.target) if isinstance(region.statement, ast.For) else set()
    candidates: list[Moved] = []
    for path in dict.fromkeys([*region.before, *after]):
        if path[0] in own or path[:1] not in _roots(region.before):
            continue  # the loop's own counter, or a name that the body makes
        missing = object()
        old, new = region.before.get(path, missing), after.get(path, missing)
        if isinstance(old, Number) and isinstance(new, Number):
            if old is not new and old in region.params:
                candidates.append(Moved(path, old, new))
        elif not same(old, new) and _is_live(region, path[0]):
            _refuse_change(region, path, old, new, missing)
    live = [m for m in candidates if _is_live(region, m.path[0])]
    live += [m for m in candidates if m not in live and _read_otherwise(region, m, live)]
    _refuse_aliases(region, live, after)
    result: list[Moved] = []
    for m in live:
        if not any(m.old is other.old and m.new is other.new for other in result):
            result.append(m)
    for m in result:
        old, new = region.params[m.old][0].type, m.new._type
        if old != new:
            raise TilecError(
                f"`{spell(m.path)}` changes its type in the {region.word}",
                where=_assignment(region, m.path),
                limit=f"{m.old._describe()} before, {m.new._describe()} after",
                fix=f"keep one type: cast the new value with .to(tc.{m.old.dtype})"
                if m.old.shape == m.new.shape
                else "keep one shape, or use another name in the body",
            )
    return result


def _roots(leaves: dict[Path, Any]) -> set[Path]:
    return {path[:1] for path in leaves}


def _is_live(region: Region, name: str) -> bool:
    statement, code = region.statement, region.frame.f_code
    if name in code.co_cellvars or name in code.co_freevars:
        return True  # functions inside or outside of this one may read it
    in_body = region.kind == "loop" and source.reads_first(statement.body, name)
    return in_body or source.read_after(region.source, statement, name)


def _read_otherwise(region: Region, m: Moved, live: list[Moved]) -> bool:
    """Whether a body reads a cell although the tree shows no live name for it (through a closure, say)."""
    if region.kind != "loop" or any(other.old is m.old for other in live):
        return False
    inner, resolve = region.params[m.old][1], region.tracer.resolve
    block = region.scope.builder.block()
    return any(
        resolve(v) is inner for op in block.walk() for v in (*op.operands, *(y for b in op.regions for y in b.yields))
    )


def _assignment(region: Region, path: Path) -> Location:
    node = source.last_assignment(region.statement.body, path[0])
    return region.source.where(node or region.statement)


def _refuse_change(region: Region, path: Path, old: Any, new: Any, missing: object) -> NoReturn:
    where, name = _assignment(region, path), f"`{spell(path)}`"
    if old is missing or new is missing or path[-1] is len:
        raise TilecError(
            f"{name} changes its length in the {region.word}",
            where=where,
            limit="a body is traced once, so containers keep their shape",
            fix="build the container before, and assign its elements in the body",
        )
    if isinstance(old, Number) or isinstance(new, Number):

        def what(x: Any) -> str:
            return x._describe() if isinstance(x, Number) else f"the Python value {x!r}"

        fix = (
            f"start it as a run-time value: {spell(path)} = tc.scalar({old!r})"
            if isinstance(old, (int, float))
            else "keep one type, or use another name in the body"
        )
        raise TilecError(
            f"{name} changes its type in the {region.word}",
            where=where,
            limit=f"{what(old)} before, {what(new)} after",
            fix=fix,
        )
    if isinstance(old, (int, float)):
        in_loop = f"{old!r} in every trip, and {new!r} after the last"
        outcome = in_loop if region.kind == "loop" else f"{new!r} whether the condition holds or not"
        raise TilecError(
            f"the Python number {name} changes in the {region.word}",
            where=where,
            limit=f"a body is traced once: {name} would be {outcome}",
            fix=f"make it a run-time value: {spell(path)} = tc.scalar({old!r})",
        )
    raise TilecError(
        f"{name} is bound to another object in the {region.word}",
        where=where,
        limit="only tiles and run-time scalars can change from trip to trip",
        fix="use another name in the body",
    )


def _refuse_aliases(region: Region, live: list[Moved], after: dict[Path, Any]) -> None:
    """One cell, several names: fine while they move together. Refused where the program could mean two things."""
    for m in live:
        for path, leaf in region.before.items():  # names that shared the old cell, and went elsewhere
            if leaf is m.old and after.get(path) is not m.new and region.kind == "loop" and _is_live(region, path[0]):
                raise TilecError(
                    f"`{spell(path)}` and `{spell(m.path)}` are two names for one value, and the {region.word} changes "
                    f"`{spell(m.path)}` alone",
                    where=_assignment(region, m.path),
                    fix=f"make two values of it before the {region.word}: {spell(path)} = +{spell(m.path)}",
                )
        for path, leaf in after.items():  # names that share the new cell, and came from elsewhere
            if (
                leaf is m.new
                and path in region.before
                and region.before[path] is not m.old
                and _is_live(region, path[0])
            ):
                raise TilecError(
                    f"`{spell(m.path)}` becomes another name for `{spell(path)}` in the {region.word}",
                    where=_assignment(region, m.path),
                    fix=f"make a value of its own: {spell(m.path)} = +{spell(path)}",
                )
        if m.new in region.params and _held_by_callers(region, m.new):
            raise TilecError(
                f"`{spell(m.path)}` becomes another name for a value of the calling function in the {region.word}",
                where=_assignment(region, m.path),
                fix="make a value of its own with a leading +",
            )
    for path, leaf in after.items():  # names that the body bound to a cell from before, which has moved on since
        if (
            isinstance(leaf, Number)
            and leaf in region.params
            and region.before.get(path) is not leaf
            and region.kind == "loop"
            and any(m.old is leaf for m in live)
            and not any(m.path == path for m in live)
            and source.read_after(region.source, region.statement, path[0])
        ):
            raise TilecError(
                f"`{spell(path)}` is read after the {region.word}, but bound only inside it",
                where=_assignment(region, path),
                limit=f"the {region.word} may run zero times, then `{spell(path)}` does not exist",
                fix=f"give `{spell(path)}` a value of the same type before the {region.word}",
            )


def _held_by_callers(region: Region, cell: Number) -> bool:
    """Whether a function of the kernel that called this one has a name for the cell."""
    frame = region.frame.f_back
    while frame is not None and source.is_user_code(frame.f_code):  # the kernel itself is called by tilec
        if any(leaf is cell for leaf in snapshot(frame).values()):
            return True
        frame = frame.f_back
    return False
