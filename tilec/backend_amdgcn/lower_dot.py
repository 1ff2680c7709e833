"""Lowering of dot: the MFMA instructions of one wave, on operands as their fragments hold them.

The layouts pass chose the instruction and the operand layouts (`fragments.operand`): the items of one instruction's operand are
consecutive dwords. A swapped dot feeds b to the instruction's A and a to its B, and so computes the transposed tile.
k is the outer loop: accumulators take turns, so that no instruction waits for the one before it, and operands read from LDS are
asked for one k step ahead of their use, so that few of them are in registers and none is waited for at once.
"""

from __future__ import annotations

from collections.abc import Callable

from tilec.backend_amdgcn.fragment import Fragment, Stored, joined
from tilec.backend_amdgcn.lowering import Lowering
from tilec.ir import tile
from tilec.ir.core import Op
from tilec.ir.layout import Layout
from tilec.ir.machine import Immediate, Operand, Ref

READ_AHEAD = 1      # k steps


def _dot(context: Lowering, op: tile.Dot) -> None:
    b = context.b
    mfma = context.target.mfma(op.instruction, op.a.type.dtype.name, op.b.type.dtype.name)
    rows, columns = (mfma.n, mfma.m) if op.swapped else (mfma.m, mfma.n)
    a_dwords, b_dwords = (mfma.b_dwords, mfma.a_dwords) if op.swapped else (mfma.a_dwords, mfma.b_dwords)
    left, right = context.fragment(op.a), context.fragment(op.b)
    left_places = _places(op.a.type.layout, left, a_dwords, free=0)
    right_places = _places(op.b.type.layout, right, b_dwords, free=1)
    steps = len(next(iter(left_places.values())))

    accumulator, layout = context.fragment(op.accumulator), op.result.type.layout
    size = mfma.cd_dwords
    per_item = max(1, op.result.type.dtype.bits // 32)
    firsts = range(0, accumulator.dwords, size)
    current = [_accumulator(context, [accumulator.dword(first + i) for i in range(size)]) for first in firsts]
    offsets = [layout.item_offset(first // per_item) for first in firsts]
    fetched: dict[tuple[str, int, int], Ref] = {}

    def fetch(step: int) -> None:
        for name, fragment, places, count in (("a", left, left_places, a_dwords), ("b", right, right_places, b_dwords)):
            for free, starts in places.items():
                dwords = [_register(context, fragment.dword(starts[step] + i)) for i in range(count)]
                fetched[name, free, step] = joined(b, dwords)

    for step in range(min(READ_AHEAD, steps)):
        fetch(step)
    for step in range(steps):
        if step + READ_AHEAD < steps:
            fetch(step + READ_AHEAD)
        for index, (row, column) in enumerate(offsets):
            first, second = fetched["a", row // rows * rows, step], fetched["b", column // columns * columns, step]
            result = b.register("va", size, op.result.name)
            b.emit(mfma.mnemonic, [result], [second, first, current[index]] if op.swapped else [first, second, current[index]])
            current[index] = result
    context.values[op.result] = Stored(b, op.result.type, [ref[i] for ref in current for i in range(size)])


def _places(layout: Layout, fragment: Fragment, count: int, free: int) -> dict[int, list[int]]:
    """First dword of each instruction operand (`count` dwords): by its offset along the free axis, in order of k."""
    items = count * 32 // fragment.bits
    places: dict[int, list[int]] = {}
    for first in range(0, layout.items, items):
        places.setdefault(layout.item_offset(first)[free], []).append(first * fragment.bits // 32)
    return places


def _register(context: Lowering, operand: Operand) -> Operand:
    return operand if isinstance(operand, Ref) and operand.kind != "s" else context.b.vector(operand)


def _accumulator(context: Lowering, dwords: list[Operand]) -> Operand:
    """C of an instruction: an inline zero, or a tuple."""
    if all(isinstance(d, Immediate) and d.value == 0 for d in dwords):
        return Immediate(0)
    return joined(context.b, [_register(context, d) for d in dwords])


RULES: dict[type[Op], Callable] = {tile.Dot: _dot}
