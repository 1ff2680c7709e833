"""How an operand of a vector instruction becomes the array that its row's function sees.

Registers, constants and hardware values are read as dwords, moved between lanes (DPP), cut to a byte or half (SDWA,
op_sel), viewed as the operand's kind, and given their sign modifiers. gfx9 rules: inline constants are read through
the kind; a DPP lane whose source is missing or inactive reads 0, or is not written when bound_ctrl is off.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tilec.emulator import lanes
from tilec.emulator.instruction import Instruction
from tilec.emulator.memory import PRIVATE_APERTURE, SHARED_APERTURE
from tilec.emulator.operands import EXEC, SGPR, VCC, Constant, Operand, Special
from tilec.emulator.vector_row import KINDS, VectorRow

if TYPE_CHECKING:
    from tilec.emulator.decode import Binder
    from tilec.emulator.wave import Batch

Array = np.ndarray[Any, Any]
Fetch = Callable[["Batch"], Array]

FLOATS = {"f16", "bf16", "f32", "f64", "mix", "v2f16", "v2bf16", "v2f32"}
SELECT = {
    "BYTE_0": (0, 8),
    "BYTE_1": (8, 8),
    "BYTE_2": (16, 8),
    "BYTE_3": (24, 8),
    "WORD_0": (0, 16),
    "WORD_1": (16, 16),
    "DWORD": (0, 32),
}
_DPP = (
    "quad_perm",
    "row_shl",
    "row_shr",
    "row_ror",
    "wave_shl",
    "wave_rol",
    "wave_shr",
    "wave_ror",
    "row_mirror",
    "row_half_mirror",
    "row_bcast",
    "row_newbcast",
)


def planes_of(binder: Binder, operand: Operand, count: int, kind: str) -> Fetch:
    """The operand's dwords: uint32 [wave or 1, lane or 1] for one, [count, wave or 1, lane or 1] for more."""
    value = operand.value
    if isinstance(value, Constant):
        bits = value.bits(kind)
        words = np.array([bits >> 32 * i & 0xFFFFFFFF for i in range(count)], np.uint32).reshape(count, 1, 1)
        constant = words[0] if count == 1 else words
        return lambda batch: constant
    if isinstance(value, Special):
        return special_value(value.name, count)
    if value.is_scalar:
        start = value.first - SGPR
        if count == 1:
            return lambda batch: batch.s[start][:, None]
        return lambda batch: batch.s[start : start + count][..., None]
    start = binder.row(value.first)
    if count == 1:
        return lambda batch: batch.v[start]
    return lambda batch: batch.v[start : start + count]


def special_value(name: str, count: int) -> Fetch:
    """Hardware values that can be read as an operand."""
    apertures = {
        "src_shared_base": SHARED_APERTURE,
        "src_private_base": PRIVATE_APERTURE,
        "src_shared_limit": SHARED_APERTURE + 0xFFFFFFFF,
        "src_private_limit": PRIVATE_APERTURE + 0xFFFFFFFF,
    }
    if name in apertures:
        bits = apertures[name]
        words = np.array([bits & 0xFFFFFFFF, bits >> 32], np.uint32).reshape(2, 1, 1)
        constant = words[1] if count == 1 else words
        return lambda batch: constant
    if name in ("src_vccz", "src_execz", "vccz", "execz"):
        first = (VCC if "vcc" in name else EXEC) - SGPR

        def zero(batch: Batch) -> Array:
            flag = ((batch.s[first] | batch.s[first + 1]) == 0).astype(np.uint32)[:, None]
            return flag if count == 1 else np.stack([flag, np.zeros_like(flag)])

        return zero
    raise ValueError(f"operand {name!r} is not supported")


def plain_source(binder: Binder, operand: Operand, kind: str) -> Fetch:
    """An operand without modifiers, as its kind."""
    if kind == "mask":
        register = operand.value
        if isinstance(register, Constant):
            bits = int(register.value)
            lanes_of = np.array([[bits >> lane & 1 != 0 for lane in range(64)]])
            return lambda batch: lanes_of
        first = operand.register.first
        return lambda batch: batch.lane_mask(first)
    shape = KINDS[kind]
    planes = planes_of(binder, operand, shape.dwords, kind)
    return as_kind(planes, kind)


def as_kind(planes: Fetch, kind: str, low: int = 0, high: int = 1, byte: int = 0) -> Fetch:
    """Dwords viewed as the kind; `low`/`high`: the halves (16-bit) or dwords (v2f32) that become items 0 and 1."""
    shape = KINDS[kind]
    dtype, size = shape.dtype, np.dtype(shape.dtype).itemsize
    if kind == "u8":
        shift = np.uint32(8 * byte)
        return lambda batch: (planes(batch) >> shift).astype(np.uint8)
    if shape.items == 1 and shape.dwords == 1:
        if size == 4:
            if dtype is np.uint32:
                return planes
            return lambda batch: planes(batch).view(dtype)
        if low:
            return lambda batch: (planes(batch) >> np.uint32(16)).astype(np.uint16).view(dtype)
        return lambda batch: planes(batch).astype(np.uint16).view(dtype)
    if shape.items == 1:

        def wide(batch: Batch) -> Array:
            words = planes(batch)
            both: Array = words[1].astype(np.uint64) << np.uint64(32) | words[0]
            return both.view(dtype)

        return wide
    if shape.dwords == 1:

        def halves(batch: Batch) -> Array:
            word = planes(batch)
            pieces = [
                (word >> np.uint32(16)).astype(np.uint16) if which else word.astype(np.uint16) for which in (low, high)
            ]
            return np.stack(pieces).view(dtype)

        return halves
    if size == 4:
        if shape.items == 2 and (low, high) != (0, 1):

            def chosen(batch: Batch) -> Array:
                words = planes(batch)
                return np.stack([words[low], words[high]]).view(dtype)

            return chosen
        return lambda batch: planes(batch).view(dtype)

    def packed(batch: Batch) -> Array:
        words = planes(batch)
        items = np.ascontiguousarray(words).view(np.uint16).reshape(*words.shape, 2)
        return np.ascontiguousarray(np.moveaxis(items, -1, 1)).reshape(-1, *words.shape[1:]).view(dtype)

    return packed


def flag_of(instruction: Instruction, name: str, i: int, default: int = 0) -> int:
    values = instruction.parsed.modifiers.get(name)
    return values[i] if isinstance(values, tuple) and i < len(values) else default


def operand_source(
    binder: Binder, instruction: Instruction, row: VectorRow, operand: Operand, kind: str, i: int
) -> Fetch:
    """Source i with every modifier of the text applied."""
    if kind == "mask":
        return plain_source(binder, operand, kind)
    parsed = instruction.parsed
    low, high = flag_of(instruction, "op_sel", i), flag_of(instruction, "op_sel_hi", i, 1)
    byte = flag_of(instruction, "op_sel", 0) + 2 * flag_of(instruction, "op_sel", 1) if kind == "u8" else 0
    if kind == "mix":
        half = flag_of(instruction, "op_sel_hi", i, 0)
        base = planes_of(binder, operand, 1, "f16" if half else "f32")
        fetch: Fetch = as_kind(base, "f16", low) if half else as_kind(base, "f32")
        if half:
            narrow = fetch
            fetch = lambda batch: narrow(batch).astype(np.float32)  # noqa: E731
    else:
        planes = planes_of(binder, operand, KINDS[kind].dwords, kind)
        if parsed.suffix == "sdwa":
            planes = _sdwa_source(planes, parsed.modifiers.get(f"src{i}_sel", "DWORD"), operand.sign_extend)
        elif parsed.suffix == "dpp" and i == 0:
            planes = _dpp_source(planes, instruction)
        fetch = as_kind(planes, kind, low, high, byte)
    if kind in FLOATS:
        negate_low = operand.negate ^ bool(flag_of(instruction, "neg_lo", i))
        negate_high = operand.negate ^ bool(flag_of(instruction, "neg_hi", i)) if KINDS[kind].items == 2 else negate_low
        fetch = _signs(fetch, kind, negate_low, negate_high, operand.absolute)
    return fetch


def _signs(fetch: Fetch, kind: str, negate: bool, negate_high: bool, absolute: bool) -> Fetch:
    dtype = np.dtype(KINDS[kind].dtype)
    bits = {2: np.uint16, 4: np.uint32, 8: np.uint64}[dtype.itemsize]
    sign = bits(1 << 8 * dtype.itemsize - 1)
    if KINDS[kind].items == 2 and (negate or negate_high):
        signs = np.array([sign if negate else 0, sign if negate_high else 0], bits).reshape(2, 1, 1)
        return lambda batch: (fetch(batch).view(bits) ^ signs).view(dtype)
    if absolute and negate:
        return lambda batch: (fetch(batch).view(bits) | sign).view(dtype)
    if absolute:
        return lambda batch: (fetch(batch).view(bits) & ~sign).view(dtype)
    if negate:
        return lambda batch: (fetch(batch).view(bits) ^ sign).view(dtype)
    return fetch


def _sdwa_source(planes: Fetch, select: Any, sign_extend: bool) -> Fetch:
    shift, width = SELECT[str(select)]
    if width == 32:
        return planes
    if sign_extend:
        up, down = np.int32(32 - width - shift), np.int32(32 - width)
        return lambda batch: (planes(batch).view(np.int32) << up >> down).view(np.uint32)
    keep = np.uint32((1 << width) - 1)
    return lambda batch: planes(batch) >> np.uint32(shift) & keep


def _dpp_map(instruction: Instruction) -> tuple[Array, Array]:
    for name in _DPP:
        if name in instruction.parsed.modifiers:
            value = instruction.parsed.modifiers[name]
            return lanes.dpp(name, 0 if value is True else value)  # type: ignore[arg-type]
    raise ValueError(f"no DPP control in {instruction.text!r}")


def _dpp_valid(batch: Batch, source: Array, exists: Array) -> Array | None:
    """Lanes whose source lane exists and is active (None: all)."""
    if batch.mask is None:
        return None if exists.all() else np.broadcast_to(exists, (len(batch.waves), 64))
    return batch.active[:, source] & exists


def _dpp_source(planes: Fetch, instruction: Instruction) -> Fetch:
    """Source 0 moved between lanes; an invalid source reads 0 (with bound_ctrl off the lane is not written at all)."""
    source, exists = _dpp_map(instruction)

    def moved(batch: Batch) -> Array:
        words = planes(batch)[..., source]
        valid = _dpp_valid(batch, source, exists)
        return words if valid is None else np.where(valid, words, np.uint32(0))

    return moved


def dpp_writes(binder: Binder, instruction: Instruction, sources: list[Operand]) -> Callable[[Batch], Array | None]:
    """Lanes that DPP allows to write (None: all): row and bank masks, and validity where bound_ctrl is off."""
    source, exists = _dpp_map(instruction)
    modifiers = instruction.parsed.modifiers
    allowed = lanes.dpp_masks(int(modifiers.get("row_mask", 15)), int(modifiers.get("bank_mask", 15)))  # type: ignore[arg-type]
    zero_fill = bool(modifiers.get("bound_ctrl", 0))

    def writes(batch: Batch) -> Array | None:
        valid = None if zero_fill else _dpp_valid(batch, source, exists)
        if valid is None:
            return None if allowed.all() else np.broadcast_to(allowed, (len(batch.waves), 64))
        return valid & allowed

    return writes
