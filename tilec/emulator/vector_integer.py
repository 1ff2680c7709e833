"""Integer, bitwise and move rows (CDNA3 and CDNA4 ISA guides, chapter 12).

Arithmetic wraps at the width of the kind. Rows with an integer clamp carry a second function that saturates instead;
both come from one exact formula. Shift counts use the low bits that the width needs, as hardware does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilec.emulator.mode import Mode
from tilec.emulator.vector_row import KINDS, VectorRow

Array = np.ndarray[Any, Any]
LANES = np.arange(64, dtype=np.uint64)


def _plain(formula: Callable[..., Any]) -> Callable[..., Any]:
    """A row function from a formula that no mode bit changes."""

    def function(mode: Mode, *sources: Array) -> Any:
        return formula(*sources)

    return function


def _saturating(formula: Callable[..., Array], kind: str) -> Callable[..., Array]:
    """The formula evaluated in int64 (sources of at most 32 bits) and clamped to the kind's range."""
    dtype = KINDS[kind].dtype
    limits = np.iinfo(dtype)

    def function(mode: Mode, *sources: Array) -> Array:
        exact = formula(*(x.astype(np.int64) for x in sources))
        return np.clip(exact, limits.min, limits.max).astype(dtype)

    return function


def _row(name: str, dst: str, src: str, formula: Callable[..., Any], **options: Any) -> VectorRow:
    return VectorRow(name, tuple(dst.split()), tuple(src.split()), _plain(formula), **options)


def _clamping(name: str, kind: str, count: int, formula: Callable[..., Array]) -> VectorRow:
    return _row(name, kind, " ".join([kind] * count), formula, saturate=_saturating(formula, kind))


def _add(a: Array, b: Array) -> Array:
    return a + b


def _subtract(a: Array, b: Array) -> Array:
    return a - b


def _reverse_subtract(a: Array, b: Array) -> Array:
    return b - a


def _multiply(a: Array, b: Array) -> Array:
    return a * b


def _multiply_add(a: Array, b: Array, c: Array) -> Array:
    return a * b + c


def _shift_left(count: Array, value: Array) -> Array:
    return value << (count & (value.dtype.itemsize * 8 - 1)).astype(value.dtype)


def _shift_right(count: Array, value: Array) -> Array:
    return value >> (count & (value.dtype.itemsize * 8 - 1)).astype(value.dtype)


def _minimum3(a: Array, b: Array, c: Array) -> Array:
    return np.minimum(np.minimum(a, b), c)


def _maximum3(a: Array, b: Array, c: Array) -> Array:
    return np.maximum(np.maximum(a, b), c)


def _median3(a: Array, b: Array, c: Array) -> Array:
    return np.maximum(np.minimum(a, b), np.minimum(np.maximum(a, b), c))


def signed24(x: Array) -> Array:
    return (x.astype(np.int32) << 8) >> 8


def _unsigned24(x: Array) -> Array:
    return x & np.uint32(0xFFFFFF)


def _carry_add(a: Array, b: Array, carry: Array | int = 0) -> tuple[Array, Array]:
    total = a.astype(np.uint64) + b + np.asarray(carry, np.uint64)
    return total.astype(np.uint32), total >> 32 != 0


def _borrow_subtract(a: Array, b: Array, borrow: Array | int = 0) -> tuple[Array, Array]:
    difference = a.astype(np.int64) - b.astype(np.int64) - np.asarray(borrow, np.int64)
    return difference.astype(np.uint32), difference < 0


def _borrow_reverse(a: Array, b: Array, borrow: Array | int = 0) -> tuple[Array, Array]:
    return _borrow_subtract(b, a, borrow)


def _mad_u64_u32(a: Array, b: Array, c: Array) -> tuple[Array, Array]:
    result = a.astype(np.uint64) * b.astype(np.uint64) + c
    return result, result < c


def _mad_i64_i32(a: Array, b: Array, c: Array) -> tuple[Array, Array]:
    product = a.astype(np.int64) * b.astype(np.int64)
    result = product + c
    # Bit 64 of the 65-bit sum of sign-extended terms.
    overflow = ((product ^ result) & (c ^ result)) < 0
    return result, (result < 0) ^ overflow


def _bfe_u32(value: Array, offset: Array, width: Array) -> Array:
    return (value >> (offset & 31)) & ((np.uint32(1) << (width & 31)) - np.uint32(1))


def _bfe_i32(value: Array, offset: Array, width: Array) -> Array:
    width = width & 31
    field = (value >> (offset & 31).astype(np.int32)).astype(np.uint32) & ((np.uint32(1) << width) - np.uint32(1))
    top = np.where(width == 0, np.uint32(0), np.uint32(1) << ((width - np.uint32(1)) & 31))
    return ((field ^ top) - top).astype(np.int32)


def _joined(high: Array, low: Array) -> Array:
    return high.astype(np.uint64) << np.uint64(32) | low


def _align_bit(a: Array, b: Array, count: Array) -> Array:
    return (_joined(a, b) >> (count & 31).astype(np.uint64)).astype(np.uint32)


def _align_byte(a: Array, b: Array, count: Array) -> Array:
    return (_joined(a, b) >> ((count & 3) * 8).astype(np.uint64)).astype(np.uint32)


def _permute_bytes(a: Array, b: Array, selector: Array) -> Array:
    """Each selector byte picks from {a, b}: 0-7 that byte, 8-11 the sign of byte 1, 3, 5, 7, 12 zero, above it 0xff."""
    if selector.size == 1 and all(choice < 8 for choice in int(selector.flat[0]).to_bytes(4, "little")):
        return _permute_uniformly(a, b, int(selector.flat[0]))
    joined = _joined(a, b)
    result: Array = np.zeros(np.broadcast_shapes(a.shape, b.shape, selector.shape), np.uint32)
    for byte in range(4):
        choice = selector >> np.uint32(8 * byte) & np.uint32(0xFF)
        index = np.where(choice < 8, choice * 8, ((choice & 3) * 2 + 1) * 8).astype(np.uint64)
        picked = (joined >> index).astype(np.uint32) & np.uint32(0xFF)
        if (choice >= 8).any():
            sign = (picked >> np.uint32(7)) * np.uint32(0xFF)
            constant = np.where(choice == 12, np.uint32(0), np.uint32(0xFF))
            picked = np.where(choice < 8, picked, np.where(choice < 12, sign, constant))
        result |= picked << np.uint32(8 * byte)
    return result


def _permute_uniformly(a: Array, b: Array, selector: int) -> Array:
    """The same for one selector of plain bytes: a shift and a mask for each distance that bytes of a source move."""
    masks: dict[tuple[bool, int], int] = {}
    for byte, choice in enumerate(selector.to_bytes(4, "little")):
        move = choice >= 4, 8 * (byte - choice % 4)
        masks[move] = masks.get(move, 0) | 0xFF << 8 * byte
    result: Any = np.uint32(0)
    for (from_a, left), mask in masks.items():
        source = a if from_a else b
        moved = source << np.uint32(left) if left >= 0 else source >> np.uint32(-left)
        result = result | moved & np.uint32(mask)
    return result


def _bit_operation(mode: Mode, a: Array, b: Array, c: Array, *, bitop3: int = 0) -> Array:
    """The truth table bitop3, indexed by the bits 4 * a + 2 * b + c."""
    result: Array = np.zeros(np.broadcast_shapes(a.shape, b.shape, c.shape), a.dtype)
    for index in range(8):
        if bitop3 >> index & 1:
            result |= (a if index & 4 else ~a) & (b if index & 2 else ~b) & (c if index & 1 else ~c)
    return result


def _reverse_bits(x: Array) -> Array:
    for shift, mask in ((1, 0x55555555), (2, 0x33333333), (4, 0x0F0F0F0F), (8, 0x00FF00FF), (16, 0x0000FFFF)):
        x = (x >> np.uint32(shift) & np.uint32(mask)) | (x & np.uint32(mask)) << np.uint32(shift)
    return x


def _first_high_u32(x: Array) -> Array:
    """Leading zeros, -1 for 0; the float64 exponent of a 32-bit integer is exact."""
    _, exponent = np.frexp(x.astype(np.float64))
    return np.where(x == 0, -1, 32 - exponent).astype(np.int32)


def _first_high_i32(x: Array) -> Array:
    return _first_high_u32((x ^ (x >> 31)).astype(np.uint32))


def _first_low_b32(x: Array) -> Array:
    lowest = x & (~x + np.uint32(1))
    _, exponent = np.frexp(lowest.astype(np.float64))
    return np.where(x == 0, -1, exponent - 1).astype(np.int32)


def _count_bits(x: Array, base: Array) -> Array:
    return np.bitwise_count(x).astype(np.uint32) + base


def _count_below_low(x: Array, base: Array) -> Array:
    below = ((np.uint64(1) << LANES) - np.uint64(1)).astype(np.uint32)
    return _count_bits(x & below, base)


def _count_below_high(x: Array, base: Array) -> Array:
    below = (((np.uint64(1) << LANES) - np.uint64(1)) >> np.uint64(32)).astype(np.uint32)
    return _count_bits(x & below, base)


def fields(x: Array, bits: int, signed: bool) -> list[Array]:
    """The 32 / bits fields of each dword, low first, as int64."""
    result = []
    for position in range(0, 32, bits):
        field = (x >> np.uint32(position)).astype(np.int64) & ((1 << bits) - 1)
        result.append(field - ((field >> bits - 1) << bits) if signed else field)
    return result


def _dot(name: str, bits: int, signed: bool, accumulates: bool = False) -> VectorRow:
    """Integer dot products over packed fields; the sum is exact before it wraps or saturates."""
    kind = "i32" if signed else "u32"
    dtype = KINDS[kind].dtype
    limits = np.iinfo(dtype)

    def exact(a: Array, b: Array, c: Array) -> Array:
        pairs = zip(fields(a, bits, signed), fields(b, bits, signed), strict=True)
        return sum((x * y for x, y in pairs), c.astype(np.int64))

    def wrapped(mode: Mode, a: Array, b: Array, c: Array) -> Array:
        return exact(a, b, c).astype(dtype)

    def saturated(mode: Mode, a: Array, b: Array, c: Array) -> Array:
        return np.clip(exact(a, b, c), limits.min, limits.max).astype(dtype)

    return VectorRow(name, (kind,), ("u32", "u32", kind), wrapped, accumulates=accumulates, saturate=saturated)


def _absolute_differences(x: Array, y: Array, bits: int, masked: bool = False) -> Array:
    total = np.zeros(np.broadcast_shapes(x.shape, y.shape), np.int64)
    for left, right in zip(fields(x, bits, False), fields(y, bits, False), strict=True):
        total = total + np.abs(left - right) * ((right != 0) if masked else 1)
    return total.astype(np.uint32)


def _quad_differences(masked: bool, packed: bool) -> Callable[..., Array]:
    """Four sums of absolute differences of the dwords at byte offsets 0 to 3 of a 64-bit source against one dword."""

    def formula(a: Array, b: Array, c: Array) -> Array:
        windows = [(a >> np.uint64(8 * i)).astype(np.uint32) for i in range(4)]
        sums = [_absolute_differences(window, b, 8, masked) for window in windows]
        if not packed:
            return np.stack([s + c[i] for i, s in enumerate(sums)])
        result: Array = np.zeros(np.broadcast_shapes(a.shape, b.shape, c.shape), np.uint64)
        for i, s in enumerate(sums):
            total = (s + (c >> np.uint64(16 * i))).astype(np.uint64) & np.uint64(0xFFFF)
            result |= total << np.uint64(16 * i)
        return result

    return formula


def _lerp_u8(a: Array, b: Array, c: Array) -> Array:
    parts = zip(fields(a, 8, False), fields(b, 8, False), fields(c, 8, False), strict=True)
    means = [((x + y + (z & 1)) >> 1) << 8 * i for i, (x, y, z) in enumerate(parts)]
    return np.add.reduce(means).astype(np.uint32)


def _shifted_pack(low: int, high: int) -> Callable[..., Array]:
    def formula(a: Array, b: Array, count: Array) -> Array:
        shift = (count & 31).astype(np.int32)
        first, second = (np.clip(x >> shift, low, high).astype(np.uint16) & np.uint16(0xFF) for x in (a, b))
        return first | second << np.uint16(8)

    return formula


def _saturate_pack(x: Array) -> Array:
    low, high = np.clip(x, 0, 255).astype(np.uint16)
    return low | high << np.uint16(8)


def random_step(x: Array) -> Array:
    """One step of the hardware's pseudo-random register: x**31's feedback polynomial 0xC5."""
    return (x << np.uint32(1)) ^ (x >> np.uint32(31)) * np.uint32(197)


def _bitwise() -> list[VectorRow]:
    return [
        _row("v_mov_b32", "u32", "u32", lambda x: x),
        _row("v_mov_b64", "u64", "u64", lambda x: x),
        _row("v_pk_mov_b32", "v2u32", "v2u32 v2u32", lambda a, b: np.stack(np.broadcast_arrays(a[0], b[0]))),
        _row("v_accvgpr_read_b32", "u32", "u32", lambda x: x),
        _row("v_accvgpr_write_b32", "u32", "u32", lambda x: x),
        _row("v_accvgpr_mov_b32", "u32", "u32", lambda x: x),
        _row("v_swap_b32", "u32 u32", "u32 u32", lambda source, old: (source, old), accumulates=True),
        # f32, since its sources take neg and abs
        _row("v_cndmask_b32", "f32", "f32 f32 mask", lambda a, b, mask: np.where(mask, b, a)),
        _row("v_not_b32", "u32", "u32", lambda x: ~x),
        _row("v_and_b32", "u32", "u32 u32", lambda a, b: a & b),
        _row("v_or_b32", "u32", "u32 u32", lambda a, b: a | b),
        _row("v_xor_b32", "u32", "u32 u32", lambda a, b: a ^ b),
        _row("v_xnor_b32", "u32", "u32 u32", lambda a, b: ~(a ^ b)),
        _row("v_and_or_b32", "u32", "u32 u32 u32", lambda a, b, c: (a & b) | c),
        _row("v_or3_b32", "u32", "u32 u32 u32", lambda a, b, c: a | b | c),
        _row("v_xad_u32", "u32", "u32 u32 u32", lambda a, b, c: (a ^ b) + c),
        _row("v_bfi_b32", "u32", "u32 u32 u32", lambda a, b, c: (a & b) | (~a & c)),
        _row("v_bfm_b32", "u32", "u32 u32", lambda a, b: ((np.uint32(1) << (a & 31)) - np.uint32(1)) << (b & 31)),
        _row("v_bfe_u32", "u32", "u32 u32 u32", _bfe_u32),
        _row("v_bfe_i32", "i32", "i32 u32 u32", _bfe_i32),
        _row("v_bfrev_b32", "u32", "u32", _reverse_bits),
        _row("v_ffbh_u32", "i32", "u32", _first_high_u32),
        _row("v_ffbh_i32", "i32", "i32", _first_high_i32),
        _row("v_ffbl_b32", "i32", "u32", _first_low_b32),
        _row("v_bcnt_u32_b32", "u32", "u32 u32", _count_bits),
        _row("v_mbcnt_lo_u32_b32", "u32", "u32 u32", _count_below_low),
        _row("v_mbcnt_hi_u32_b32", "u32", "u32 u32", _count_below_high),
        _row("v_alignbit_b32", "u32", "u32 u32 u32", _align_bit),
        _row("v_alignbyte_b32", "u32", "u32 u32 u32", _align_byte),
        _row("v_perm_b32", "u32", "u32 u32 u32", _permute_bytes),
        _row("v_pack_b32_f16", "v2u16", "u16 u16", lambda a, b: np.stack(np.broadcast_arrays(a, b))),
        _row("v_prng_b32", "u32", "u32", random_step, architectures=("gfx950",)),
        VectorRow("v_bitop3_b32", ("u32",), ("u32",) * 3, _bit_operation,
                  modifiers=("bitop3",), architectures=("gfx950",)),
        VectorRow("v_bitop3_b16", ("u16",), ("u16",) * 3, _bit_operation,
                  modifiers=("bitop3",), architectures=("gfx950",)),
    ]  # fmt: skip


def _shifts() -> list[VectorRow]:
    rows = [
        _row("v_lshl_add_u32", "u32", "u32 u32 u32", lambda a, b, c: (a << (b & 31)) + c),
        _row("v_add_lshl_u32", "u32", "u32 u32 u32", lambda a, b, c: (a + b) << (c & 31)),
        _row("v_lshl_or_b32", "u32", "u32 u32 u32", lambda a, b, c: (a << (b & 31)) | c),
        _row("v_lshl_add_u64", "u64", "u64 u32 u64", lambda a, b, c: (a << (b & 7).astype(np.uint64)) + c),
    ]
    for name, formula, kinds in (
        ("lshlrev_b", _shift_left, ("u16", "u32", "u64")),
        ("lshrrev_b", _shift_right, ("u16", "u32", "u64")),
        ("ashrrev_i", _shift_right, ("i16", "i32", "i64")),
    ):
        for kind in kinds:
            count = "u16" if kind[1:] == "16" else "u32"
            rows.append(_row(f"v_{name}{kind[1:]}", kind, f"{count} {kind}", formula))
        rows.append(_row(f"v_pk_{name}16", f"v2{kinds[0]}", f"v2u16 v2{kinds[0]}", formula))
    for name, low, high in (("i8", -128, 127), ("u8", 0, 255)):
        formula = _shifted_pack(low, high)
        rows.append(_row(f"v_ashr_pk_{name}_i32", "u16", "i32 i32 u32", formula, architectures=("gfx950",)))
    return rows


def _arithmetic() -> list[VectorRow]:
    rows = [
        _clamping("v_add_i32", "i32", 2, _add),
        _clamping("v_sub_i32", "i32", 2, _subtract),
        _row("v_add3_u32", "u32", "u32 u32 u32", lambda a, b, c: a + b + c),
        _row("v_mul_lo_u32", "u32", "u32 u32", _multiply),
        _row("v_mul_lo_i32", "u32", "u32 u32", _multiply),
        _row("v_mul_hi_u32", "u32", "u32 u32",
             lambda a, b: (a.astype(np.uint64) * b.astype(np.uint64) >> np.uint64(32)).astype(np.uint32)),
        _row("v_mul_hi_i32", "i32", "i32 i32",
             lambda a, b: (a.astype(np.int64) * b.astype(np.int64) >> 32).astype(np.int32)),
        _row("v_mul_i32_i24", "i32", "i32 i32", lambda a, b: signed24(a) * signed24(b)),
        _row("v_mul_hi_i32_i24", "i32", "i32 i32",
             lambda a, b: (signed24(a).astype(np.int64) * signed24(b) >> 32).astype(np.int32)),
        _row("v_mul_u32_u24", "u32", "u32 u32", lambda a, b: _unsigned24(a) * _unsigned24(b)),
        _row("v_mul_hi_u32_u24", "u32", "u32 u32",
             lambda a, b: (_unsigned24(a).astype(np.uint64) * _unsigned24(b) >> np.uint64(32)).astype(np.uint32)),
        _row("v_mad_i32_i24", "i32", "i32 i32 i32", lambda a, b, c: signed24(a) * signed24(b) + c,
             saturate=_saturating(lambda a, b, c: signed24(a).astype(np.int64) * signed24(b) + c, "i32")),
        _row("v_mad_u32_u24", "u32", "u32 u32 u32", lambda a, b, c: _unsigned24(a) * _unsigned24(b) + c,
             saturate=_saturating(lambda a, b, c: (a & 0xFFFFFF) * (b & 0xFFFFFF) + c, "u32")),
        _row("v_mad_u32_u16", "u32", "u16 u16 u32", lambda a, b, c: a.astype(np.uint32) * b + c,
             saturate=_saturating(_multiply_add, "u32")),
        _row("v_mad_i32_i16", "i32", "i16 i16 i32", lambda a, b, c: a.astype(np.int32) * b + c,
             saturate=_saturating(_multiply_add, "i32")),
        _row("v_add_co_u32", "u32 mask", "u32 u32", _carry_add),
        _row("v_sub_co_u32", "u32 mask", "u32 u32", _borrow_subtract),
        _row("v_subrev_co_u32", "u32 mask", "u32 u32", _borrow_reverse),
        _row("v_addc_co_u32", "u32 mask", "u32 u32 mask", _carry_add),
        _row("v_subb_co_u32", "u32 mask", "u32 u32 mask", _borrow_subtract),
        _row("v_subbrev_co_u32", "u32 mask", "u32 u32 mask", _borrow_reverse),
        _row("v_mad_u64_u32", "u64 mask", "u32 u32 u64", _mad_u64_u32),
        _row("v_mad_i64_i32", "i64 mask", "i32 i32 i64", _mad_i64_i32),
        _row("v_sad_u8", "u32", "u32 u32 u32", lambda a, b, c: _absolute_differences(a, b, 8) + c),
        _row("v_sad_hi_u8", "u32", "u32 u32 u32",
             lambda a, b, c: (_absolute_differences(a, b, 8) << np.uint32(16)) + c),
        _row("v_sad_u16", "u32", "u32 u32 u32", lambda a, b, c: _absolute_differences(a, b, 16) + c),
        _row("v_sad_u32", "u32", "u32 u32 u32", lambda a, b, c: np.where(a > b, a - b, b - a) + c),
        _row("v_msad_u8", "u32", "u32 u32 u32", lambda a, b, c: _absolute_differences(a, b, 8, masked=True) + c),
        _row("v_qsad_pk_u16_u8", "u64", "u64 u32 u64", _quad_differences(masked=False, packed=True)),
        _row("v_mqsad_pk_u16_u8", "u64", "u64 u32 u64", _quad_differences(masked=True, packed=True)),
        _row("v_mqsad_u32_u8", "v4u32", "u64 u32 v4u32", _quad_differences(masked=True, packed=False)),
        _row("v_lerp_u8", "u32", "u32 u32 u32", _lerp_u8),
        _row("v_sat_pk_u8_i16", "u16", "v2i16", _saturate_pack),
        _dot("v_dot2_i32_i16", 16, signed=True),
        _dot("v_dot2_u32_u16", 16, signed=False),
        _dot("v_dot4_i32_i8", 8, signed=True),
        _dot("v_dot4_u32_u8", 8, signed=False),
        _dot("v_dot8_i32_i4", 4, signed=True),
        _dot("v_dot8_u32_u4", 4, signed=False),
        _dot("v_dot2c_i32_i16", 16, signed=True, accumulates=True),
        _dot("v_dot4c_i32_i8", 8, signed=True, accumulates=True),
        _dot("v_dot8c_i32_i4", 4, signed=True, accumulates=True),
    ]  # fmt: skip
    for kind in ("u16", "u32"):
        rows.append(_clamping(f"v_add_{kind}", kind, 2, _add))
        rows.append(_clamping(f"v_sub_{kind}", kind, 2, _subtract))
        rows.append(_clamping(f"v_subrev_{kind}", kind, 2, _reverse_subtract))
    rows.append(_row("v_mul_lo_u16", "u16", "u16 u16", _multiply))
    rows.append(_row("v_pk_mul_lo_u16", "v2u16", "v2u16 v2u16", _multiply))
    # On gfx9 the three-operand 16-bit forms and v_add_i16 keep the other half, the others clear it (LLVM,
    # GCNSubtarget::zeroesHigh16BitsOfDest).
    keep: dict[str, Any] = {"keeps": True}
    for name, formula in (("add", _add), ("sub", _subtract)):
        rows.append(_row(f"v_{name}_i16", "i16", "i16 i16", formula, saturate=_saturating(formula, "i16"), **keep))
        for kind in ("i16", "u16"):
            rows.append(_clamping(f"v_pk_{name}_{kind}", f"v2{kind}", 2, formula))
    for kind in ("i16", "u16"):
        three = f"{kind} {kind} {kind}"
        rows.append(
            _row(f"v_mad_{kind}", kind, three, _multiply_add, saturate=_saturating(_multiply_add, kind), **keep)
        )
        rows.append(_clamping(f"v_mad_legacy_{kind}", kind, 3, _multiply_add))
        rows.append(_clamping(f"v_pk_mad_{kind}", f"v2{kind}", 3, _multiply_add))
    for name, two, three in (("min", np.minimum, _minimum3), ("max", np.maximum, _maximum3)):
        for kind in ("i16", "u16", "i32", "u32"):
            rows.append(_row(f"v_{name}_{kind}", kind, f"{kind} {kind}", two))
            options = keep if kind.endswith("16") else {}
            rows.append(_row(f"v_{name}3_{kind}", kind, f"{kind} {kind} {kind}", three, **options))
        for kind in ("i16", "u16"):
            rows.append(_row(f"v_pk_{name}_{kind}", f"v2{kind}", f"v2{kind} v2{kind}", two))
    for kind in ("i16", "u16", "i32", "u32"):
        options = keep if kind.endswith("16") else {}
        rows.append(_row(f"v_med3_{kind}", kind, f"{kind} {kind} {kind}", _median3, **options))
    return rows


ROWS: tuple[VectorRow, ...] = (*_bitwise(), *_shifts(), *_arithmetic())
