"""Binds vector instructions: registers to the kinds of a row, source modifiers, DPP, SDWA, op_sel, clamp and omod, results back.

The table says what an instruction means (vector.py); here is only how operands reach it. `compute` is pure: it returns the values
that would be written, which lets the definedness check run it again on altered registers. gfx9 rules: a 16-bit result clears
the upper half unless the row keeps it; inline constants are read through the operand's kind.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tilec.emulator import lanes
from tilec.emulator.instruction import Instruction
from tilec.emulator.memory import PRIVATE_APERTURE, SHARED_APERTURE
from tilec.emulator.operands import EXEC, SGPR, VCC, Constant, Operand, Register, Special
from tilec.emulator.vector_row import KINDS, VectorRow

if TYPE_CHECKING:
    from tilec.emulator.decode import Binder
    from tilec.emulator.wave import Batch

Array = np.ndarray[Any, Any]
Fetch = Callable[["Batch"], Array]
Result = tuple[int, Array]
"""Register id and its new value: uint32 [wave, lane]; bool [wave, lane] for the SGPR pair of a lane mask."""

_FLOATS = {"f16", "bf16", "f32", "f64", "mix", "v2f16", "v2bf16", "v2f32"}
_HALVES = {"u16", "i16", "f16", "bf16"}
_SELECT = {
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


def bind_vector(binder: Binder, instruction: Instruction, row: VectorRow) -> None:
    """Fill in the instruction's functions and register roles."""
    operands = list(instruction.parsed.operands)
    destinations = operands[: len(row.dst)]
    sources = operands[len(row.dst) :]
    if row.name == "v_swap_b32":
        sources = [operands[1]]
    printed = len(sources)
    fetches = [
        _fetch(binder, instruction, row, operand, kind, i)
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
        fetches.append(_plain(binder, operand, kind))
    merge = _merger(binder, instruction, row, destinations[0], printed) if row.dst[0] != "mask" else None
    write_lanes = _dpp_writes(binder, instruction, sources) if instruction.parsed.suffix == "dpp" else None
    keywords = {name: instruction.parsed.modifiers.get(name, 0) for name in row.modifiers}
    function = row.function
    finish = _finisher(row, instruction)
    if "clamp" in instruction.parsed.modifiers and row.saturate is not None:
        function = row.saturate
    packers = [_packer(binder, operand, kind) for operand, kind in zip(destinations, row.dst, strict=True)]

    def compute(batch: Batch, flip: Array | None = None) -> list[Result]:
        """The results; lanes of `flip` (bool) have all bits of the raw result inverted, to show which final bits it reaches."""
        values = function(batch.mode, *[fetch(batch) for fetch in fetches], **keywords)
        results: list[Result] = []
        for n, value in enumerate(values if isinstance(values, tuple) else (values,)):
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
    if value.dtype == np.bool_:
        return value ^ (flip.any(axis=0) if flip.ndim > 2 else flip)
    if flip.ndim > value.ndim:
        flip = flip.any(axis=0)
    value = np.ascontiguousarray(np.broadcast_to(value, np.broadcast_shapes(value.shape, flip.shape)))
    bits = value.view({1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[value.dtype.itemsize])
    return np.where(flip, ~bits, bits).view(value.dtype)


# ---- sources
def _planes(binder: Binder, operand: Operand, count: int, kind: str) -> Fetch:
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


def _plain(binder: Binder, operand: Operand, kind: str) -> Fetch:
    """An operand without modifiers, as its kind."""
    if kind == "mask":
        register = operand.value
        if isinstance(register, Constant):
            lanes_of = np.array([[register.value & 0xFFFFFFFFFFFFFFFF >> lane & 1 != 0 for lane in range(64)]])
            return lambda batch: lanes_of
        first = operand.register.first
        return lambda batch: batch.lane_mask(first)
    shape = KINDS[kind]
    planes = _planes(binder, operand, shape.dwords, kind)
    return _as_kind(planes, kind)


def _as_kind(planes: Fetch, kind: str, low: int = 0, high: int = 1, byte: int = 0) -> Fetch:
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


def _flag(instruction: Instruction, name: str, i: int, default: int = 0) -> int:
    values = instruction.parsed.modifiers.get(name)
    return values[i] if isinstance(values, tuple) and i < len(values) else default


def _fetch(binder: Binder, instruction: Instruction, row: VectorRow, operand: Operand, kind: str, i: int) -> Fetch:
    """Source i with every modifier of the text applied."""
    if kind == "mask":
        return _plain(binder, operand, kind)
    parsed = instruction.parsed
    low, high = _flag(instruction, "op_sel", i), _flag(instruction, "op_sel_hi", i, 1)
    byte = _flag(instruction, "op_sel", 0) + 2 * _flag(instruction, "op_sel", 1) if kind == "u8" else 0
    if kind == "mix":
        half = _flag(instruction, "op_sel_hi", i, 0)
        base = _planes(binder, operand, 1, "f16" if half else "f32")
        fetch: Fetch = _as_kind(base, "f16", low) if half else _as_kind(base, "f32")
        if half:
            narrow = fetch
            fetch = lambda batch: narrow(batch).astype(np.float32)  # noqa: E731
    else:
        planes = _planes(binder, operand, KINDS[kind].dwords, kind)
        if parsed.suffix == "sdwa":
            planes = _sdwa_source(planes, parsed.modifiers.get(f"src{i}_sel", "DWORD"), operand.sign_extend)
        elif parsed.suffix == "dpp" and i == 0:
            planes = _dpp_source(planes, instruction)
        fetch = _as_kind(planes, kind, low, high, byte)
    if kind in _FLOATS:
        negate_low = operand.negate ^ bool(_flag(instruction, "neg_lo", i))
        negate_high = operand.negate ^ bool(_flag(instruction, "neg_hi", i)) if KINDS[kind].items == 2 else negate_low
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
    shift, width = _SELECT[str(select)]
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


def _dpp_writes(binder: Binder, instruction: Instruction, sources: list[Operand]) -> Callable[[Batch], Array | None]:
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


# ---- results
def _finisher(row: VectorRow, instruction: Instruction) -> Callable[[Batch, Array], Array] | None:
    """omod, then clamp to [0, 1], of float results (NaN clamps to 0 under DX10_CLAMP)."""
    modifiers = instruction.parsed.modifiers
    if row.dst[0] not in _FLOATS:
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
        shift, width = _SELECT[str(modifiers.get("dst_sel", "DWORD"))]
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
        position = _flag(instruction, "op_sel", 2) + 2 * _flag(instruction, "op_sel", 3)
    else:
        position = int(row.high_result or _flag(instruction, "op_sel", printed))
    if not row.keeps and not position:
        return None
    shift = width * position
    field = np.uint32((1 << width) - 1 << shift)

    def merge(batch: Batch, value: Array) -> Array:
        moved = value << np.uint32(shift) & field
        return batch.v[register] & ~field | moved

    return merge
