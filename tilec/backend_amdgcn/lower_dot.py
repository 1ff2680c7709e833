"""Lowering of dot: the MFMA instructions of one wave, k innermost, on operands as their fragments hold them.

The layouts pass chose the instruction and the operand layouts (`fragments.operand`): the items of one instruction's operand are
consecutive dwords. A swapped dot feeds b to the instruction's A and a to its B, and so computes the transposed tile.
"""

from __future__ import annotations

from collections.abc import Callable

from tilec.backend_amdgcn.fragment import Stored, joined
from tilec.backend_amdgcn.lowering import Lowering
from tilec.ir import tile
from tilec.ir.core import Op, Value
from tilec.ir.layout import Layout
from tilec.ir.machine import Immediate, Operand, Ref
from tilec.target import Mfma


def _dot(context: Lowering, op: tile.Dot) -> None:
    b = context.b
    mfma = context.target.mfma(op.instruction, op.a.type.dtype.name, op.b.type.dtype.name)
    left, right = _operand_tuples(context, op.a, 0, 1, mfma, op.swapped), _operand_tuples(context, op.b, 1, 0, mfma, not op.swapped)
    accumulator = context.fragment(op.accumulator)
    layout = op.result.type.layout
    per_item = max(1, op.result.type.dtype.bits // 32)
    size = mfma.cd_dwords
    dwords: list[Operand] = []
    for first in range(0, layout.items * per_item, size):
        row, column = layout.item_offset(first // per_item)
        current = _accumulator_tuple(context, [accumulator.dword(first + i) for i in range(size)])
        for step in sorted(k for free, k in left if free == _block(row, left, context, mfma, op.swapped)):
            result = b.register("va", size, op.result.name)
            a, bb = left[_block(row, left, context, mfma, op.swapped), step], right[_block(column, right, context, mfma, not op.swapped), step]
            b.emit(mfma.mnemonic, [result], [bb, a, current] if op.swapped else [a, bb, current])
            current = result
        dwords += [current[i] for i in range(size)]
    context.values[op.result] = Stored(b, op.result.type, dwords)


def _block(coordinate: int, tuples: dict, context: Lowering, mfma: Mfma, swapped: bool) -> int:
    extent = mfma.n if swapped else mfma.m
    return coordinate // extent * extent


def _operand_tuples(context: Lowering, value: Value, free_axis: int, k_axis: int, mfma: Mfma, as_b: bool) -> dict[tuple[int, int], Ref]:
    """The instruction operands in a fragment, by (offset along the free axis, number of the k step)."""
    fragment, layout = context.fragment(value), value.type.layout
    size = mfma.b_dwords if as_b else mfma.a_dwords
    items = size * 32 // fragment.bits
    found: dict[tuple[int, int], Ref] = {}
    steps: dict[int, int] = {}
    for first in range(0, layout.items, items):
        free = layout.item_offset(first)[free_axis]
        step = steps.get(free, 0)
        steps[free] = step + 1
        start = first * fragment.bits // 32
        found[free, step] = joined(context.b, [_register(context, fragment.dword(i)) for i in range(start, start + size)])
    return found


def _register(context: Lowering, operand: Operand) -> Operand:
    return operand if isinstance(operand, Ref) and operand.kind != "s" else context.b.vector(operand)


def _accumulator_tuple(context: Lowering, dwords: list[Operand]) -> Operand:
    """C of an instruction: an inline zero, or a tuple."""
    if all(isinstance(d, Immediate) and d.value == 0 for d in dwords):
        return Immediate(0)
    return joined(context.b, dwords)


RULES: dict[type[Op], Callable] = {tile.Dot: _dot}

__all__ = ["Layout", "RULES"]
