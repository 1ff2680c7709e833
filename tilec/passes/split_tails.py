"""Split tails: a loop over tiles becomes a loop over whole tiles, whose accesses need no bounds and whose masks are all
true, and a short one for the rest.

needs    traced
gives    traced
promise  Memory after the program is the same for any extents and trip counts; `inside` is claimed only where it holds.
method   An access whose index along an axis is the counter of an innermost loop from >= 0 by 1 is inside while the
         counter is below extent // block. A comparison of affine values (`ranges`) that the counter makes false in the
         end is true while the counter is below a bound. The first loop runs to the least of these, the second does the
         rest. Before that, accesses at constant places in constant extents are claimed inside.
check    The interpreter raises where a claim does not hold; before == after on random programs and on every kernel.
"""

from __future__ import annotations

from typing import Any

from tilec.dtypes import bool_, i32
from tilec.ir import tile
from tilec.ir.core import (
    Block,
    Builder,
    Op,
    Program,
    ScalarType,
    Substitution,
    TileType,
    Value,
    clone_block,
    definitions,
)
from tilec.passes.ranges import Mask, mask_of

Access = tile.Load | tile.Store
I32, BOOL = ScalarType(i32), ScalarType(bool_)
Bound = tuple[Value, int, int]      # tensor, axis, block: inside while the counter is below extent // block


def split_tails(program: Program) -> Program:
    """The program with each innermost loop over tiles split in two."""
    defining = definitions(program.body)
    constants = {v: op.value for v, op in defining.items() if isinstance(op, tile.Constant)}

    def rebuild(block: Block) -> Block:
        builder = Builder()
        for op in block.ops:
            op = op.map_regions(rebuild)
            if isinstance(op, Access):
                op = _claimed(op, constants, defining)
            if isinstance(op, tile.For) and constants.get(op.lower, -1) >= 0 and constants.get(op.step) == 1:
                bounds, masks = _bounds(op), _masks(op, defining)
                if bounds or masks:
                    _split(op, bounds, masks, builder)
                    continue
            builder.emit(op)
        return builder.block(block.params, block.yields)

    return program.replace(body=rebuild(program.body))


def _claimed(access: Access, constants: dict[Value, Any], defining: dict[Value, Op]) -> Access:
    """The access with claims for axes whose index and extent are constants. That a view may be empty because another
    axis was indexed outside of its tensor does not matter where a further axis is not claimed, or claimed by a loop
    that then makes no trip."""
    view = defining.get(access.tensor)
    if not isinstance(view, tile.View):
        return access
    claims = list(access.inside or (False,) * len(access.indices))
    for axis, size in enumerate(_shape(access)):
        index, extent = (constants.get(v, -1) for v in (access.indices[axis], view.extents[view.axes[axis]]))
        claims[axis] = claims[axis] or index >= 0 and (index + 1) * size <= extent
    sure = len(view.axes) == len(view.extents) or not all(claims)
    return access.replace(inside=tuple(claims)) if any(claims) and sure else access


def _shape(access: Access) -> tuple[int, ...]:
    return access.value.shape if isinstance(access, tile.Store) else access.result.shape


def _bounds(loop: tile.For) -> list[Bound]:
    """What the counter must stay below, each once; nothing for a loop that holds another."""
    inner = list(loop.body.walk())
    if any(isinstance(op, tile.For) for op in inner):
        return []
    made_inside = {result for op in inner for result in op.results}
    found = [(op.tensor, axis, block) for op in inner if isinstance(op, Access) and op.tensor not in made_inside
             for axis, block in _counted_axes(op, loop.body.params[0])]
    return list(dict.fromkeys(found))


def _counted_axes(access: Access, counter: Value) -> list[tuple[int, int]]:
    """(axis, block) of each axis that the counter indexes and that is not known to be inside."""
    shape = _shape(access)
    return [(axis, shape[axis]) for axis, index in enumerate(access.indices)
            if index is counter and not (access.inside and access.inside[axis])]


def _masks(loop: tile.For, defining: dict[Value, Op]) -> list[Mask]:
    """The comparisons that are true up to some trip; nothing for a loop that holds another."""
    inner = list(loop.body.walk())
    if any(isinstance(op, tile.For) for op in inner):
        return []
    counter = loop.body.params[0]
    made_inside = {result for op in inner for result in op.results} | set(loop.body.params)
    found = [mask_of(op, counter, defining, made_inside) for op in inner]
    return [m for m in found if m is not None and m.margin.coefficient < 0 and isinstance(m.op.result.type, TileType)]


class _Scalars:
    """Emits i32 arithmetic."""

    def __init__(self, builder: Builder, loop: tile.For):
        self.builder, self.where = builder, loop.where

    def make(self, op_class: type[Op], *fields: object, name: str = "", type: ScalarType = I32) -> Value:
        return self.builder.emit(op_class(*fields, results=(Value(type, name),), where=self.where))

    def number(self, value: int) -> Value:
        return self.make(tile.Constant, value)

    def map(self, function: str, *arguments: Value, name: str = "") -> Value:
        type = BOOL if function in ("le", "and") else I32
        return self.make(tile.Elementwise, arguments, function, name=name, type=type)


def _split(loop: tile.For, bounds: list[Bound], masks: list[Mask], builder: Builder) -> None:
    scalars = _Scalars(builder, loop)
    full = loop.upper
    for tensor, axis, block in bounds:
        whole = scalars.map("floordiv", scalars.make(tile.Dim, tensor, axis), scalars.number(block))
        full = scalars.map("minimum", full, whole)
    for mask in masks:
        full = scalars.map("minimum", full, _true_below(mask, scalars))
    full = scalars.map("maximum", full, loop.lower, name="full")
    # An upper bound below the lower one leaves [lower, lower) and [lower, upper), both empty.
    rest = clone_block(loop.body, Substitution())
    carried = tuple(value.like() for value in loop.results)
    body = _mark(loop.body, loop.body.params[0], set(bounds), {mask.op for mask in masks})
    builder.emit(loop.replace(upper=full, body=body, results=carried))
    builder.emit(loop.replace(lower=full, inits=carried, body=rest))


def _true_below(mask: Mask, scalars: _Scalars) -> Value:
    """The counter below which all elements of a mask are true: at most (scalars + low) // -coefficient + 1; 0 where i32
    might have wrapped on the way."""
    margin = mask.margin
    offset, safe = scalars.number(margin.low), None
    limit = margin.scalar_limit
    for value, factor in margin.scalars:
        scaled = scalars.map("mul", value, scalars.number(factor))
        offset = scalars.map("add", offset, scaled)
        for fits in (scalars.map("le", scalars.number(-limit), value), scalars.map("le", value, scalars.number(limit))):
            safe = fits if safe is None else scalars.map("and", safe, fits)
    below = scalars.map("floordiv", offset, scalars.number(-margin.coefficient))
    below = scalars.map("add", below, scalars.number(1))
    below = scalars.map("minimum", below, scalars.number(margin.counter_limit))
    return below if safe is None else scalars.map("where", safe, below, scalars.number(0))


def _mark(block: Block, counter: Value, bounds: set[Bound], masks: set[tile.Elementwise]) -> Block:
    """The block with the bounded axes of its accesses marked inside, and the masks true."""
    def mark(op: Op) -> Op:
        if op in masks:
            return tile.Constant(True, results=op.results, where=op.where)
        op = op.map_regions(lambda inner: _mark(inner, counter, bounds, masks))
        if not isinstance(op, Access):
            return op
        claims = list(op.inside or (False,) * len(op.indices))
        for axis, size in _counted_axes(op, counter):
            claims[axis] = (op.tensor, axis, size) in bounds
        return op.replace(inside=tuple(claims)) if any(claims) else op

    return Block(block.params, tuple(mark(op) for op in block.ops), block.yields)
