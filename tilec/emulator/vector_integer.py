"""Integer arithmetic rows: sums, products, carries, extremes, absolute differences, dot products.

Arithmetic wraps at the width of the kind (CDNA3 and CDNA4 ISA guides, chapter 12). Rows with an integer clamp carry a
second function that saturates instead; both come from one exact formula.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilec.emulator.mode import Mode
from tilec.emulator.vector_row import KINDS, VectorRow, row_of

Array = np.ndarray[Any, Any]


def _saturating(formula: Callable[..., Array], kind: str) -> Callable[..., Array]:
    """The formula evaluated in int64 (sources of at most 32 bits) and clamped to the kind's range."""
    dtype = KINDS[kind].dtype
    limits = np.iinfo(dtype)

    def function(mode: Mode, *sources: Array) -> Array:
        exact = formula(*(x.astype(np.int64) for x in sources))
        return np.clip(exact, limits.min, limits.max).astype(dtype)

    return function


def _clamping(name: str, kind: str, count: int, formula: Callable[..., Array]) -> VectorRow:
    return row_of(name, kind, " ".join([kind] * count), formula, saturate=_saturating(formula, kind))


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


def _saturate_pack(x: Array) -> Array:
    low, high = np.clip(x, 0, 255).astype(np.uint16)
    return low | high << np.uint16(8)


def _arithmetic() -> list[VectorRow]:
    rows = [
        _clamping("v_add_i32", "i32", 2, _add),
        _clamping("v_sub_i32", "i32", 2, _subtract),
        row_of("v_add3_u32", "u32", "u32 u32 u32", lambda a, b, c: a + b + c),
        row_of("v_mul_lo_u32", "u32", "u32 u32", _multiply),
        row_of("v_mul_lo_i32", "u32", "u32 u32", _multiply),
        row_of("v_mul_hi_u32", "u32", "u32 u32",
             lambda a, b: (a.astype(np.uint64) * b.astype(np.uint64) >> np.uint64(32)).astype(np.uint32)),
        row_of("v_mul_hi_i32", "i32", "i32 i32",
             lambda a, b: (a.astype(np.int64) * b.astype(np.int64) >> 32).astype(np.int32)),
        row_of("v_mul_i32_i24", "i32", "i32 i32", lambda a, b: signed24(a) * signed24(b)),
        row_of("v_mul_hi_i32_i24", "i32", "i32 i32",
             lambda a, b: (signed24(a).astype(np.int64) * signed24(b) >> 32).astype(np.int32)),
        row_of("v_mul_u32_u24", "u32", "u32 u32", lambda a, b: _unsigned24(a) * _unsigned24(b)),
        row_of("v_mul_hi_u32_u24", "u32", "u32 u32",
             lambda a, b: (_unsigned24(a).astype(np.uint64) * _unsigned24(b) >> np.uint64(32)).astype(np.uint32)),
        row_of("v_mad_i32_i24", "i32", "i32 i32 i32", lambda a, b, c: signed24(a) * signed24(b) + c,
             saturate=_saturating(lambda a, b, c: signed24(a).astype(np.int64) * signed24(b) + c, "i32")),
        row_of("v_mad_u32_u24", "u32", "u32 u32 u32", lambda a, b, c: _unsigned24(a) * _unsigned24(b) + c,
             saturate=_saturating(lambda a, b, c: (a & 0xFFFFFF) * (b & 0xFFFFFF) + c, "u32")),
        row_of("v_mad_u32_u16", "u32", "u16 u16 u32", lambda a, b, c: a.astype(np.uint32) * b + c,
             saturate=_saturating(_multiply_add, "u32")),
        row_of("v_mad_i32_i16", "i32", "i16 i16 i32", lambda a, b, c: a.astype(np.int32) * b + c,
             saturate=_saturating(_multiply_add, "i32")),
        row_of("v_add_co_u32", "u32 mask", "u32 u32", _carry_add),
        row_of("v_sub_co_u32", "u32 mask", "u32 u32", _borrow_subtract),
        row_of("v_subrev_co_u32", "u32 mask", "u32 u32", _borrow_reverse),
        row_of("v_addc_co_u32", "u32 mask", "u32 u32 mask", _carry_add),
        row_of("v_subb_co_u32", "u32 mask", "u32 u32 mask", _borrow_subtract),
        row_of("v_subbrev_co_u32", "u32 mask", "u32 u32 mask", _borrow_reverse),
        row_of("v_mad_u64_u32", "u64 mask", "u32 u32 u64", _mad_u64_u32),
        row_of("v_mad_i64_i32", "i64 mask", "i32 i32 i64", _mad_i64_i32),
        row_of("v_sad_u8", "u32", "u32 u32 u32", lambda a, b, c: _absolute_differences(a, b, 8) + c),
        row_of("v_sad_hi_u8", "u32", "u32 u32 u32",
             lambda a, b, c: (_absolute_differences(a, b, 8) << np.uint32(16)) + c),
        row_of("v_sad_u16", "u32", "u32 u32 u32", lambda a, b, c: _absolute_differences(a, b, 16) + c),
        row_of("v_sad_u32", "u32", "u32 u32 u32", lambda a, b, c: np.where(a > b, a - b, b - a) + c),
        row_of("v_msad_u8", "u32", "u32 u32 u32", lambda a, b, c: _absolute_differences(a, b, 8, masked=True) + c),
        row_of("v_qsad_pk_u16_u8", "u64", "u64 u32 u64", _quad_differences(masked=False, packed=True)),
        row_of("v_mqsad_pk_u16_u8", "u64", "u64 u32 u64", _quad_differences(masked=True, packed=True)),
        row_of("v_mqsad_u32_u8", "v4u32", "u64 u32 v4u32", _quad_differences(masked=True, packed=False)),
        row_of("v_lerp_u8", "u32", "u32 u32 u32", _lerp_u8),
        row_of("v_sat_pk_u8_i16", "u16", "v2i16", _saturate_pack),
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
    rows.append(row_of("v_mul_lo_u16", "u16", "u16 u16", _multiply))
    rows.append(row_of("v_pk_mul_lo_u16", "v2u16", "v2u16 v2u16", _multiply))
    # On gfx9 the three-operand 16-bit forms and v_add_i16 keep the other half, the others clear it (LLVM,
    # GCNSubtarget::zeroesHigh16BitsOfDest).
    keep: dict[str, Any] = {"keeps": True}
    for name, formula in (("add", _add), ("sub", _subtract)):
        rows.append(row_of(f"v_{name}_i16", "i16", "i16 i16", formula, saturate=_saturating(formula, "i16"), **keep))
        for kind in ("i16", "u16"):
            rows.append(_clamping(f"v_pk_{name}_{kind}", f"v2{kind}", 2, formula))
    for kind in ("i16", "u16"):
        three = f"{kind} {kind} {kind}"
        rows.append(
            row_of(f"v_mad_{kind}", kind, three, _multiply_add, saturate=_saturating(_multiply_add, kind), **keep)
        )
        rows.append(_clamping(f"v_mad_legacy_{kind}", kind, 3, _multiply_add))
        rows.append(_clamping(f"v_pk_mad_{kind}", f"v2{kind}", 3, _multiply_add))
    for name, two, three in (("min", np.minimum, _minimum3), ("max", np.maximum, _maximum3)):
        for kind in ("i16", "u16", "i32", "u32"):
            rows.append(row_of(f"v_{name}_{kind}", kind, f"{kind} {kind}", two))
            options = keep if kind.endswith("16") else {}
            rows.append(row_of(f"v_{name}3_{kind}", kind, f"{kind} {kind} {kind}", three, **options))
        for kind in ("i16", "u16"):
            rows.append(row_of(f"v_pk_{name}_{kind}", f"v2{kind}", f"v2{kind} v2{kind}", two))
    for kind in ("i16", "u16", "i32", "u32"):
        options = keep if kind.endswith("16") else {}
        rows.append(row_of(f"v_med3_{kind}", kind, f"{kind} {kind} {kind}", _median3, **options))
    return rows


ROWS: tuple[VectorRow, ...] = tuple(_arithmetic())
