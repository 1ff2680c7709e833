"""Split tails: a loop over tiles becomes a loop over whole tiles, whose accesses need no bounds, and a short one for
the rest.

needs    traced
gives    traced
promise  Memory after the program is the same for any extents and trip counts; `inside` is claimed only where it holds.
method   An access whose index along an axis is the counter of an innermost loop from >= 0 by 1 is inside while the
         counter is below extent // block. The first loop runs to the least of these, the second does the rest.
check    The interpreter raises where a claim does not hold; before == after on random programs and on every kernel.
"""

from __future__ import annotations

from tilec.dtypes import i32
from tilec.ir import tile
from tilec.ir.core import Block, Builder, Op, Program, ScalarType, Substitution, Value, clone_block, definitions

Access = tile.Load | tile.Store
Bound = tuple[Value, int, int]      # tensor, axis, block: inside while the counter is below extent // block


def split_tails(program: Program) -> Program:
    """The program with each innermost loop over tiles split in two."""
    constants = {v: op.value for v, op in definitions(program.body).items() if isinstance(op, tile.Constant)}

    def rebuild(block: Block) -> Block:
        builder = Builder()
        for op in block.ops:
            op = op.map_regions(rebuild)
            splits = isinstance(op, tile.For) and constants.get(op.lower, -1) >= 0 and constants.get(op.step) == 1
            bounds = _bounds(op) if splits else []
            if bounds:
                _split(op, bounds, builder)
            else:
                builder.emit(op)
        return builder.block(block.params, block.yields)

    return program.replace(body=rebuild(program.body))


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
    shape = access.value.shape if isinstance(access, tile.Store) else access.result.shape
    return [(axis, shape[axis]) for axis, index in enumerate(access.indices)
            if index is counter and not (access.inside and access.inside[axis])]


def _split(loop: tile.For, bounds: list[Bound], builder: Builder) -> None:
    def scalar(op_class: type[Op], *fields: object, name: str = "") -> Value:
        return builder.emit(op_class(*fields, results=(Value(ScalarType(i32), name),), where=loop.where))

    full = loop.upper
    for tensor, axis, block in bounds:
        extent, size = scalar(tile.Dim, tensor, axis), scalar(tile.Constant, block)
        whole = scalar(tile.Elementwise, (extent, size), "floordiv")
        full = scalar(tile.Elementwise, (full, whole), "minimum")
    full = scalar(tile.Elementwise, (full, loop.lower), "maximum", name="full")
    # An upper bound below the lower one leaves [lower, lower) and [lower, upper), both empty.
    rest = clone_block(loop.body, Substitution())
    carried = tuple(value.like() for value in loop.results)
    builder.emit(loop.replace(upper=full, body=_mark(loop.body, loop.body.params[0], set(bounds)), results=carried))
    builder.emit(loop.replace(lower=full, inits=carried, body=rest))


def _mark(block: Block, counter: Value, bounds: set[Bound]) -> Block:
    """The block with the bounded axes of its accesses marked inside."""
    def mark(op: Op) -> Op:
        op = op.map_regions(lambda inner: _mark(inner, counter, bounds))
        if not isinstance(op, Access):
            return op
        claims = list(op.inside or (False,) * len(op.indices))
        for axis, size in _counted_axes(op, counter):
            claims[axis] = (op.tensor, axis, size) in bounds
        return op.replace(inside=tuple(claims)) if any(claims) else op

    return Block(block.params, tuple(mark(op) for op in block.ops), block.yields)
