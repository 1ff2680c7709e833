"""Grid order: program ids become arithmetic on the one number of the workgroup.

needs    traced
gives    traced
promise  The same workgroups run, each tile once, in the schedule's order; its numbers are parameters of the kernel,
         so that a launch may choose others. Row-major order changes nothing: the backend counts that way by itself.
method   `ir.grid_order` on scalars that emit ops; the grid becomes 1-D. u32, whose division is the cheap one.
check    Interpreter against the arithmetic on numbers; the arithmetic is proven a permutation (tests/unit).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilec import dtypes
from tilec.errors import InternalError, Location
from tilec.ir import grid_order, interp, tile
from tilec.ir.core import Block, Builder, Op, Program, ScalarType, Substitution, Value
from tilec.ir.schedule import ORDERS, GridOrder

I32, U32, BOOL = ScalarType(dtypes.i32), ScalarType(dtypes.u32), ScalarType(dtypes.bool_)


def declare(program: Program, order: GridOrder) -> Program:
    """The program with a parameter for each number that the order goes by, behind its own parameters."""
    known = {p.name for p in program.params}
    names = (grid_order.PARAMETERS[name] for name in ORDERS[order.kind])
    return program.replace(params=(*program.params, *(Value(I32, name) for name in names if name not in known)))


def order_grid(program: Program, order: GridOrder) -> Program:
    """The program whose workgroups take their tiles in this order."""
    if program.form != "traced":
        raise InternalError(f"grid_order needs form traced, not {program.form}")
    program = declare(program, order)
    if order.kind == "rows" or not program.grid:
        return program
    params = {p.name: p for p in program.params}
    grid_ops = interp.grid_ops(program)
    known = set(grid_ops)
    emitter = _Emitter(Builder(), next((op.where for op in program.walk() if isinstance(op, tile.ProgramId)), None))
    grid = [emitter.unsigned(extent) for extent in program.grid]
    numbers = {name: emitter.unsigned(params[grid_order.PARAMETERS[name]]) for name in ORDERS[order.kind]}
    total = grid[0]
    for extent in grid[1:]:
        total = total * extent
    workgroup = emitter.unsigned(emitter.emit(tile.ProgramId(axis=0, results=(Value(I32, "workgroup"),))))
    index = grid_order.place(order.kind, workgroup, grid, numbers, emitter.where, emitter.minimum)
    signed = [emitter.cast(number.value, I32) for number in (*index, total)]
    substitution = Substitution()
    rest = _without_ids(Block((), tuple(op for op in program.body.ops if op not in known)), signed, substitution)
    return program.replace(body=Block((), (*grid_ops, *emitter.builder.ops, *rest.ops)), grid=(signed[-1],))


def _without_ids(block: Block, index: list[Value], substitution: Substitution) -> Block:
    """The block with program ids replaced by the values of `index`."""
    ops: list[Op] = []
    for op in block.ops:
        if isinstance(op, tile.ProgramId):
            substitution[op.result] = index[op.axis]
        else:
            op = op.map_operands(substitution)
            ops.append(op.map_regions(lambda inner: _without_ids(inner, index, substitution)))
    return Block(block.params, tuple(ops), tuple(map(substitution, block.yields)))


@dataclass(frozen=True)
class _Emitter:
    builder: Builder
    at: Location | None

    def emit(self, op: Op) -> Value:
        return self.builder.emit(op.replace(where=self.at))

    def cast(self, value: Value, type: ScalarType) -> Value:
        return self.emit(tile.Cast(value, results=(Value(type, value.name),)))

    def unsigned(self, value: Value) -> _Number:
        return _Number(self, self.cast(value, U32))

    def map(self, function: str, *arguments: _Number, type: ScalarType = U32) -> _Number:
        values = tuple(a.value for a in arguments)
        return _Number(self, self.emit(tile.Elementwise(values, function, results=(Value(type),))))

    def where(self, condition: _Number, yes: _Number, no: _Number) -> _Number:
        return self.map("where", condition, yes, no)

    def minimum(self, a: _Number, b: _Number) -> _Number:
        return self.map("minimum", a, b)


@dataclass(frozen=True)
class _Number:
    """A scalar of the program under construction, to calculate with."""

    emitter: _Emitter
    value: Value

    def __add__(self, other: _Number) -> _Number:
        return self.emitter.map("add", self, other)

    def __sub__(self, other: _Number) -> _Number:
        return self.emitter.map("sub", self, other)

    def __mul__(self, other: _Number) -> _Number:
        return self.emitter.map("mul", self, other)

    def __floordiv__(self, other: _Number) -> _Number:
        return self.emitter.map("floordiv", self, other)

    def __le__(self, other: Any) -> _Number:
        return self.emitter.map("le", self, other, type=BOOL)
