"""Binds vector instructions: registers to the kinds of a row, source modifiers, DPP, SDWA, op_sel, clamp and omod,
results back.

The table says what an instruction means (vector.py); here is only how operands reach it. `compute` is pure: it
returns the values that would be written, which lets the definedness check run it again on altered registers. gfx9
rules: a 16-bit result clears the upper half unless the row keeps it; inline constants are read through the operand's
kind.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tilec.emulator.instruction import Instruction
from tilec.emulator.operands import EXEC, SGPR, VCC, Operand, Register
from tilec.emulator.vector_row import KINDS, VectorRow
from tilec.emulator.vector_sources import FLOATS, SELECT, dpp_writes, flag_of, operand_source, plain_source

if TYPE_CHECKING:
    from tilec.emulator.decode import Binder
    from tilec.emulator.wave import Batch

Array = np.ndarray[Any, Any]
Result = tuple[int, Array]
"""Register id and its new value: uint32 [wave, lane]; bool [wave, lane] for the SGPR pair of a lane mask."""

_HALVES = {"u16", "i16", "f16", "bf16"}


def bind_vector(binder: Binder, instruction: Instruction, row: VectorRow) -> None:
    """Fill in the instruction's functions and register roles."""
    operands = list(instruction.parsed.operands)
    destinations = operands[: len(row.dst)]
    sources = operands[len(row.dst) :]
    if row.name == "v_swap_b32":
        sources = [operands[1]]
    printed = len(sources)
    fetches = [
        operand_source(binder, instruction, row, operand, kind, i)
        for i, (operand, kind) in enumerate(zip(sources, row.src, strict=False))
    ]
    extra: list[Operand] = []
    if row.reads_vcc:
        extra.append(Operand(Register(VCC, 2)))
    if row.accumulates:
        extra.append(destinations[0])
    for operand, kind in zip(
        extra, (("mask",) if row.reads_vcc else ()) + ((row.dst[0],) if row.accumulates else ()), strict=True
    ):
        fetches.append(plain_source(binder, operand, kind))
    merge = _merger(binder, instruction, row, destinations[0], printed) if row.dst[0] != "mask" else None
    write_lanes = dpp_writes(binder, instruction, sources) if instruction.parsed.suffix == "dpp" else None
    several = len(row.dst) > 1  # results may be views of registers that an earlier result overwrites (v_swap)
    keywords = {name: instruction.parsed.modifiers.get(name, 0) for name in row.modifiers}
    function = row.function
    finish = _finisher(row, instruction)
    if "clamp" in instruction.parsed.modifiers and row.saturate is not None:
        function = row.saturate
    packers = [_packer(binder, operand, kind) for operand, kind in zip(destinations, row.dst, strict=True)]

    def compute(batch: Batch, flip: Array | None = None) -> list[Result]:
        """The results; lanes of `flip` (bool) have all bits of the raw result inverted, to show which final bits it
        reaches.
        """
        values = function(batch.mode, *[fetch(batch) for fetch in fetches], **keywords)
        results: list[Result] = []
        for n, value in enumerate(values if isinstance(values, tuple) else (values,)):
            value = np.array(value) if several else np.asarray(value)
            if finish is not None and n == 0:
                value = finish(batch, value)
            if flip is not None:
                value = _flipped(value, flip)
            results += packers[n](batch, value)
        if merge is not None:
            results[0] = (results[0][0], merge(batch, results[0][1]))
        if write_lanes is not None:
            enabled = write_lanes(batch)
            if enabled is not None:
                results = [
                    (register, np.where(enabled, value, batch.v[binder.row(register)]))
                    if register < SGPR
                    else (register, value)
                    for register, value in results
                ]
        return results

    writes_exec = row.writes_exec
    only_vector = all(kind != "mask" for kind in row.dst)

    def execute(batch: Batch) -> None:
        for register, value in compute(batch):
            if only_vector or register < SGPR:
                batch.write_vector(binder.rows[register], value)
            else:
                value = np.broadcast_to(value, (len(batch.waves), 64))
                selected = value if batch.mask is None else value & batch.active
                batch.write_lane_mask(register, selected)
                if register == EXEC:
                    batch.exec_changed()
                if writes_exec:
                    batch.write_lane_mask(EXEC, selected)
                    batch.exec_changed()

    instruction.unit, instruction.row, instruction.execute = "valu", row, execute
    instruction.compute, instruction.fetches = compute, tuple(fetches)
    instruction.results = tuple(operand.ids for operand in destinations)
    instruction.sources = tuple(operand.ids for operand in (*sources, *extra))
    instruction.writes = frozenset(i for span in instruction.results for i in span) | (
        frozenset((EXEC, EXEC + 1)) if writes_exec else frozenset()
    )
    reads = {i for span in instruction.sources for i in span}
    if (merge is not None or write_lanes is not None) and row.dst[0] != "mask":
        reads |= set(destinations[0].ids)
    instruction.reads = frozenset(reads)


def _flipped(value: Array, flip: Array) -> Array:
    lanes = np.asarray(flip.any(axis=0)) if flip.ndim > value.ndim else flip
    if value.dtype == np.bool_:
        return np.asarray(value ^ lanes)
    value = np.ascontiguousarray(np.broadcast_to(value, np.broadcast_shapes(value.shape, lanes.shape)))
    bits = value.view({1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[value.dtype.itemsize])
    return np.where(lanes, ~bits, bits).view(value.dtype)


# ---- results
def _finisher(row: VectorRow, instruction: Instruction) -> Callable[[Batch, Array], Array] | None:
    """omod, then clamp to [0, 1], of float results (NaN clamps to 0 under DX10_CLAMP)."""
    modifiers = instruction.parsed.modifiers
    if row.dst[0] not in FLOATS:
        return None
    scale = float(modifiers.get("mul", 1)) / float(modifiers.get("div", 1))  # type: ignore[arg-type]
    clamp = "clamp" in modifiers and row.saturate is None
    if scale == 1 and not clamp:
        return None

    def finish(batch: Batch, value: Array) -> Array:
        if scale != 1:
            value = value * value.dtype.type(scale)
        if clamp:
            limited = np.minimum(np.maximum(value, value.dtype.type(0)), value.dtype.type(1))
            value = np.where(np.isnan(value), value.dtype.type(0), limited) if batch.mode.dx10_clamp else limited
        return value

    return finish


def _packer(binder: Binder, operand: Operand, kind: str) -> Callable[[Batch, Array], list[Result]]:
    """Turns a result of the kind into the dwords of its registers."""
    first, shape = operand.register.first, KINDS[kind]
    size = np.dtype(shape.dtype).itemsize
    if kind == "mask":
        return lambda batch, value: [(first, value)]
    if shape.items == 1 and shape.dwords == 1:
        if size == 4:
            return lambda batch, value: [(first, value.view(np.uint32))]
        narrow: Any = np.uint8 if size == 1 else np.uint16
        return lambda batch, value: [(first, value.view(narrow).astype(np.uint32))]
    if shape.items == 1:

        def wide(batch: Batch, value: Array) -> list[Result]:
            bits = value.view(np.uint64)
            return [(first, bits.astype(np.uint32)), (first + 1, (bits >> np.uint64(32)).astype(np.uint32))]

        return wide
    if size == 4:
        return lambda batch, value: [(first + i, word) for i, word in enumerate(value.view(np.uint32))]

    def packed(batch: Batch, value: Array) -> list[Result]:
        halves = value.view(np.uint16).astype(np.uint32)
        return [(first + i, halves[2 * i] | halves[2 * i + 1] << np.uint32(16)) for i in range(shape.dwords)]

    return packed


def _merger(
    binder: Binder, instruction: Instruction, row: VectorRow, destination: Operand, printed: int
) -> Callable[[Batch, Array], Array] | None:
    """Where a narrow result goes within its register, and what becomes of the rest; None: it is the whole register."""
    modifiers = instruction.parsed.modifiers
    kind = row.dst[0]
    register = binder.row(destination.register.first)
    if instruction.parsed.suffix == "sdwa":
        shift, width = SELECT[str(modifiers.get("dst_sel", "DWORD"))]
        if width == 32:
            return None
        field, unused = np.uint32((1 << width) - 1 << shift), str(modifiers.get("dst_unused", "UNUSED_PAD"))

        def place(batch: Batch, value: Array) -> Array:
            moved = value << np.uint32(shift) & field
            if unused == "UNUSED_PRESERVE":
                return batch.v[register] & ~field | moved
            if unused == "UNUSED_SEXT":
                signed: Array = moved << np.uint32(32 - width - shift)
                upper = (signed.view(np.int32) >> np.int32(32 - width - shift)).view(np.uint32)
                return upper & ~np.uint32((1 << shift) - 1)
            return moved

        return place
    narrow = kind in _HALVES or kind == "u8"
    if not narrow:
        return None
    width = 8 if kind == "u8" else 16
    if kind == "u8":
        position = flag_of(instruction, "op_sel", 2) + 2 * flag_of(instruction, "op_sel", 3)
    else:
        position = int(row.high_result or flag_of(instruction, "op_sel", printed))
    if not row.keeps and not position:
        return None
    shift = width * position
    field = np.uint32((1 << width) - 1 << shift)

    def merge(batch: Batch, value: Array) -> Array:
        moved = value << np.uint32(shift) & field
        return batch.v[register] & ~field | moved

    return merge
