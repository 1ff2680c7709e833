"""Lowering of dot: the MFMA instructions of one wave, on operands as their fragments hold them.

The layouts pass chose the instruction and the operand layouts (`fragments.operand`): the items of one instruction's
operand are consecutive dwords. A swapped dot feeds b to the instruction's A and a to its B, and so computes the
transposed tile. k is the outer loop, in chunks of the steps that one LDS read feeds; within a chunk the rows follow
each other. A row's operand for the next chunk is read when the row is done, the columns' in the last row: reads spread
between the MFMAs, and few registers hold them. Where there is one row, so that a column's operand is used once, no more
columns are read at a time than keep the reads ahead; and sums that start at 0 take their registers one by one, as
operands that are all read become free.
"""

from __future__ import annotations

from collections.abc import Callable

from tilec.backend_amdgcn.fragment import Fragment, Stored, joined
from tilec.backend_amdgcn.lowering import Lowering
from tilec.ir import tile
from tilec.ir.core import Op, Value
from tilec.ir.layout import Layout
from tilec.ir.machine import Immediate, Operand, Ref, registers

_COLUMN_REGISTERS = 32
"""Registers of column operands that are read while as many are multiplied, where each is used once."""


def _dot(context: Lowering, op: tile.Dot) -> None:
    b = context.b
    mfma = context.target.mfma(op.instruction, op.a.dtype.name, op.b.dtype.name)
    rows, columns = (mfma.n, mfma.m) if op.swapped else (mfma.m, mfma.n)
    a_dwords, b_dwords = (mfma.b_dwords, mfma.a_dwords) if op.swapped else (mfma.a_dwords, mfma.b_dwords)
    left = _Operand(context, op.a, a_dwords, 0)
    right = _Operand(context, op.b, b_dwords, 1)
    accumulator, layout = context.fragment(op.accumulator), op.result.layout
    size, per_item = mfma.cd_dwords, max(1, op.result.dtype.bits // 32)
    current: dict[tuple[int, int], Operand] = {}
    starts: dict[tuple[int, int], int] = {}
    home = context.pinned(op.result)
    for first in range(0, accumulator.dwords, size):
        row, column = layout.item_offset(first // per_item)
        starts[row // rows * rows, column // columns * columns] = first

    chunk = max(left.steps_per_read, right.steps_per_read)
    row_list, column_list = list(left.places), list(right.places)
    at_once = len(column_list)
    if len(row_list) == 1 and isinstance(right.fragment, Stored) and context.is_zero(op.accumulator):
        # Two steps of one sum, then of the next: by then operands of the first have left as many registers.
        chunk, at_once = 2 * chunk, 1
    elif len(row_list) == 1:
        at_once = max(1, _COLUMN_REGISTERS // (b_dwords * chunk))
    chunks = [range(start, min(start + chunk, left.steps)) for start in range(0, left.steps, chunk)]
    groups = [column_list[start:start + at_once] for start in range(0, len(column_list), at_once)]
    stages = [(steps, group) for steps in chunks for group in groups]
    left.fetch(row_list, chunks[0])
    right.fetch(groups[0], chunks[0])
    for (steps, group), (next_steps, next_group) in zip(stages, [*stages[1:], (range(0), [])]):
        for index, row in enumerate(row_list):
            if index:
                left.fetch([row_list[index - 1]], next_steps)
            if row == row_list[-1]:
                right.fetch(next_group, next_steps)
            for step in steps:
                for column in reversed(group):  # the column read last first: one wait covers the step
                    first, second = left.at(row, step), right.at(column, step)
                    start = starts[row, column]
                    if (row, column) not in current:
                        current[row, column] = _accumulator(
                            context, [accumulator.dword(start + i) for i in range(size)]
                        )
                    result = home[start:start + size] if home else b.register("va", size, op.result.name)
                    b.emit(
                        mfma.mnemonic,
                        [result],
                        [*((second, first) if op.swapped else (first, second)), current[row, column]],
                    )
                    current[row, column] = result
        left.fetch(row_list[-1:], next_steps)
    results = [registers(current[place])[i] for place in starts for i in range(size)]
    context.values[op.result] = Stored(b, op.result.tile_type, results)


class _Operand:
    """One side of a dot: the instruction operands in its fragment, by their offset along the free axis and the number
    of the k step."""

    def __init__(self, context: Lowering, value: Value, dwords: int, free_axis: int):
        self.context, self.fragment, self.dwords = context, context.fragment(value), dwords
        self.places = _places(value.layout, self.fragment, dwords, free_axis)
        self.steps = len(next(iter(self.places.values())))
        self.steps_per_read = max(1, self.fragment.dwords_per_read // dwords)
        self.known: dict[tuple[int, int], Ref] = {}

    def fetch(self, free: list[int], steps: range) -> None:
        """Has the operands of these rows or columns in registers."""
        for place in free:
            for step in steps:
                self.at(place, step)

    def at(self, free: int, step: int) -> Ref:
        if (free, step) not in self.known:
            start = self.places[free][step]
            dwords = [self.context.b.vector(self.fragment.dword(start + i)) for i in range(self.dwords)]
            self.known[free, step] = joined(self.context.b, dwords)
        return self.known[free, step]


def _places(layout: Layout, fragment: Fragment, count: int, free: int) -> dict[int, list[int]]:
    """First dword of each instruction operand (`count` dwords): by its offset along the free axis, in order of k."""
    items = count * 32 // fragment.bits
    places: dict[int, list[int]] = {}
    for first in range(0, layout.items, items):
        places.setdefault(layout.item_offset(first)[free], []).append(first * fragment.bits // 32)
    return places


def _accumulator(context: Lowering, dwords: list[Operand]) -> Operand:
    """C of an instruction: an inline zero, or a tuple."""
    if all(isinstance(d, Immediate) and d.value == 0 for d in dwords):
        return Immediate(0)
    return joined(context.b, [context.b.vector(d) for d in dwords])


RULES: dict[type[Op], Callable] = {tile.Dot: _dot}
