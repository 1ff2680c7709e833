"""Binds the vector instructions that move values between lanes, or between lanes and scalars, and MFMA.

v_readfirstlane, v_readlane, v_writelane and v_permlane*_swap look at whole waves; MFMA ignores EXEC and writes every
lane. What they compute is in lanes.py and matrix.py.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tilec.emulator import lanes, matrix
from tilec.emulator.instruction import Instruction
from tilec.emulator.matrix import MatrixRow
from tilec.emulator.operands import SGPR, Constant, Operand

if TYPE_CHECKING:
    from tilec.emulator.decode import Binder
    from tilec.emulator.wave import Batch

Array = np.ndarray[Any, Any]
LANE_OPS = (
    "v_readfirstlane_b32",
    "v_readlane_b32",
    "v_writelane_b32",
    "v_permlane16_swap_b32",
    "v_permlane32_swap_b32",
)


def bind_lanes(binder: Binder, instruction: Instruction) -> None:
    """v_readfirstlane_b32 sdst, v; v_readlane_b32 sdst, v, lane; v_writelane_b32 v, value, lane; v_permlane*_swap v,
    v.
    """
    operands, name = instruction.parsed.operands, instruction.name
    instruction.unit, instruction.row = "valu", name
    target = operands[0].register
    instruction.writes = frozenset(target.ids)
    instruction.results = (target.ids,)
    instruction.sources = tuple(operand.ids for operand in operands[1:])
    instruction.reads = frozenset(i for operand in operands[1:] for i in operand.ids)
    if name.startswith("v_permlane"):
        width = 16 if "16" in name else 32
        both = operands[0].register.first, operands[1].register.first
        first, second = binder.row(both[0]), binder.row(both[1])
        instruction.writes = instruction.reads = frozenset(both)
        instruction.results = (range(both[0], both[0] + 1), range(both[1], both[1] + 1))
        instruction.sources = instruction.results

        def swap(batch: Batch) -> None:
            for row, value in zip(
                (first, second), lanes.permlane_swap(width, batch.v[first], batch.v[second]), strict=True
            ):
                batch.write_vector(row, value)

        def spread_swap(batch: Batch) -> dict[int, Array]:
            shape = (len(batch.waves), 64)
            bits = [batch.undefined.get(register, np.zeros(shape, np.uint32)) for register in both]
            return dict(zip(both, lanes.permlane_swap(width, *bits), strict=True))

        instruction.execute, instruction.spread = swap, spread_swap
    elif name == "v_writelane_b32":
        row, value, lane = binder.row(target.first), _scalar(operands[1]), _scalar(operands[2])
        instruction.reads |= frozenset(target.ids)

        def write(batch: Batch) -> None:
            batch.v[row] = lanes.write_lane(batch.v[row], lane(batch), value(batch))

        def spread_write(batch: Batch) -> dict[int, Array]:
            old = batch.undefined.get(target.first, np.zeros((len(batch.waves), 64), np.uint32))
            none = np.zeros(len(batch.waves), np.uint32)
            new = batch.undefined.get(operands[1].register.first, none) if operands[1].ids else none
            return {target.first: lanes.write_lane(old, lane(batch), new)}

        instruction.execute, instruction.spread = write, spread_write
    else:
        source, destination = operands[1].register.first, target.first - SGPR
        row = binder.row(source)
        lane = _scalar(operands[2]) if name == "v_readlane_b32" else None

        def chosen(batch: Batch) -> Array:
            return lanes.first_lane(batch.active) if lane is None else lane(batch)

        def read(batch: Batch) -> None:
            if lane is None and batch.mask is None:
                batch.s[destination] = batch.v[row, :, 0]
            else:
                batch.s[destination] = lanes.read_lane(batch.v[row], chosen(batch))

        def spread_read(batch: Batch) -> dict[int, Array]:
            bits = batch.undefined.get(source)
            return {} if bits is None else {target.first: lanes.read_lane(bits, chosen(batch))}

        instruction.execute, instruction.spread = read, spread_read


def _scalar(operand: Operand) -> Any:
    """A 32-bit scalar operand per wave."""
    if isinstance(operand.value, Constant):
        number = np.uint32(operand.value.bits("u32"))
        return lambda batch: np.full(len(batch.waves), number)
    index = operand.register.first - SGPR
    return lambda batch: batch.s[index]


def bind_matrix(binder: Binder, instruction: Instruction, row: MatrixRow) -> None:
    """D, A, B, C [, scale A, scale B]: registers read as blocks [dword, wave, lane]; D written in all lanes."""
    operands, modifiers = instruction.parsed.operands, instruction.parsed.modifiers
    d, a, b, c = operands[:4]
    scales = operands[4:]

    def block(operand: Operand, count: int, kind: str) -> Any:
        if isinstance(operand.value, Constant):
            bits = operand.value.bits(kind)
            words = np.array(
                [bits >> 32 * (i % (2 if kind == "f64" else 1)) & 0xFFFFFFFF for i in range(count)], np.uint32
            )
            return lambda batch: np.ascontiguousarray(
                np.broadcast_to(words[:, None, None], (count, len(batch.waves), 64))
            )
        start = binder.row(operand.register.first)
        return lambda batch: batch.v[start : start + operand.register.count]

    def code(name: str) -> int:
        value = modifiers.get(name, 0)
        return value if isinstance(value, int) else 0

    options: dict[str, Any] = {
        "cbsz": code("cbsz"),
        "abid": code("abid"),
        "blgp": code("blgp"),
        "clamp": "clamp" in modifiers,
    }
    negate = modifiers.get("neg")
    if isinstance(negate, tuple):
        options["blgp"] = sum(bit << i for i, bit in enumerate(negate))
    fetch_a, fetch_b = block(a, 0, "u32"), block(b, 0, "u32")
    fetch_c = block(c, d.register.count, row.cd)
    scale_a, scale_b = (
        (_scale(binder, operand, modifiers, i) for i, operand in enumerate(scales)) if scales else (None, None)
    )
    start = binder.row(d.register.first)
    span = slice(start, start + d.register.count)

    # `fast` takes whole xf32 operands: within 2^-9 of the sum of |a||b| of `exact`, which cuts them as hardware does
    unrounded = replace(row, a="f32", b="f32") if row.a == "xf32" else row

    def product(batch: Batch, x: Array, y: Array, z: Array) -> Array:
        used = unrounded if batch.machine.numerics == "fast" else row
        return matrix.execute(
            used,
            x,
            y,
            z,
            numerics=batch.machine.numerics,
            mode=batch.mode,
            **options,
            scale_a=None if scale_a is None else scale_a(batch),
            scale_b=None if scale_b is None else scale_b(batch),
        )

    def execute(batch: Batch) -> None:
        batch.v[span] = product(batch, fetch_a(batch), fetch_b(batch), fetch_c(batch))

    def spread(batch: Batch) -> dict[int, Array]:
        return spread_matrix(batch, instruction, row)

    instruction.unit, instruction.row, instruction.execute, instruction.spread = "mfma", row, execute, spread
    instruction.results = (d.ids,)
    instruction.sources = tuple(operand.ids for operand in operands[1:])
    instruction.writes = frozenset(d.ids)
    instruction.reads = frozenset(i for span_ids in instruction.sources for i in span_ids)


def _scale(binder: Binder, operand: Operand, modifiers: dict[str, Any], i: int) -> Any:
    """The E8M0 byte of each lane: uint8 [wave, lane]; op_sel and op_sel_hi choose it."""
    low: tuple[int, ...] = modifiers.get("op_sel", (0, 0, 0))
    high: tuple[int, ...] = modifiers.get("op_sel_hi", (1, 1, 1))
    shift = np.uint32(8 * (low[i] + 2 * high[i]))
    if isinstance(operand.value, Constant):
        number = np.uint8(operand.value.bits("f32") >> int(shift) & 0xFF)
        return lambda batch: np.full((len(batch.waves), 64), number)
    if operand.register.is_scalar:
        index = operand.register.first - SGPR
        return lambda batch: np.repeat((batch.s[index] >> shift).astype(np.uint8)[:, None], 64, axis=1)
    row = binder.row(operand.register.first)
    return lambda batch: (batch.v[row] >> shift).astype(np.uint8)


def spread_matrix(batch: Batch, instruction: Instruction, row: MatrixRow) -> dict[int, Array]:
    """Undefined outputs: rows of A, columns of B (and their scales) with an undefined bit anywhere in k, elements of C.

    Which lanes and registers hold row i or column j of D comes from the layout of the result itself.
    """
    shape = (len(batch.waves), 64)
    d = instruction.results[0]
    a, b, c, *scales = instruction.sources
    lane, item = np.arange(64)[None, :], np.arange(len(d))[:, None]
    per = 2 if row.cd == "f64" else 1
    d_block, d_row, d_column = (
        np.broadcast_to(x, (len(d) // per, 64)) for x in matrix.result_index(row, lane, item[: len(d) // per])
    )
    spoiled = np.zeros((len(d) // per, *shape), bool)
    for n, (span, size, axis) in enumerate(((a, row.m, d_row), (b, row.n, d_column))):
        bad = np.zeros(shape, bool)
        for register in (*span, *(scales[n] if scales else ())):
            if register in batch.undefined:
                bits = batch.undefined[register] != 0
                bad |= bits if bits.ndim == 2 else bits[:, None]
        if bad.any():  # lane l of an operand holds row (or column) l % size of block l / size
            per_block = size * row.blocks
            held = np.zeros((shape[0], per_block), bool)
            for start in range(0, 64, per_block):
                held |= bad[:, start : start + per_block]
            spoiled |= np.moveaxis(held[:, d_block * size + axis], 0, 1)
    result = {}
    for i, register in enumerate(d):
        bits = np.where(spoiled[i // per], np.uint32(0xFFFFFFFF), np.uint32(0))
        old = batch.undefined.get(c[i]) if len(c) else None
        if old is not None:
            bits |= np.where(old != 0, np.uint32(0xFFFFFFFF), np.uint32(0))
        result[register] = bits
    return result
