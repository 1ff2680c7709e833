"""Conversion rows without a scale: between integers and floats, between float widths, to and from fp8.

Integers saturate and NaN becomes 0. fp8 and bf8 mean the flavours of the mode's architecture. Narrow results overflow
to infinity or NaN, or to the largest number under FP16_OVFL.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilec.emulator.arithmetic import F16, F32, F64, Array, Float, narrow
from tilec.emulator.formats import BF16, FORMATS, bf16_to_f32, f32_to_bf16
from tilec.emulator.formats import F16 as F16_CODES
from tilec.emulator.mode import NEAREST, TOWARD_ZERO, Mode
from tilec.emulator.vector_row import KINDS, RowBuilder, VectorRow

GFX950: dict[str, Any] = {"architectures": ("gfx950",)}
KEEPS: dict[str, Any] = {"keeps": True}

# Integers


def _to_integer(kind: str, form: Float, rounding: Callable[[Array], Array] = np.trunc) -> Callable[..., Array]:
    dtype = KINDS[kind].dtype
    limits = np.iinfo(dtype)

    def function(mode: Mode, x: Array) -> Array:
        whole = rounding(x).astype(np.float64)
        whole = np.where(np.isnan(whole), 0.0, np.clip(whole, float(limits.min), float(limits.max)))
        return whole.astype(np.int64).astype(dtype)

    return function


def _from_integer(form: Float) -> Callable[..., Array]:
    def function(mode: Mode, x: Array) -> Array:
        if form is F64:
            return x.astype(np.float64)
        return narrow(x.astype(np.float64), form, form.rounding(mode))

    return function


def _from_byte(byte: int) -> Callable[..., Array]:
    return lambda mode, x: (x >> np.uint32(8 * byte) & np.uint32(0xFF)).astype(np.float32)


def _round_to(x: Array, rounding: int) -> Array:
    return (np.rint, np.ceil, np.floor, np.trunc)[rounding](x)


def _to_byte(mode: Mode, x: Array) -> Array:
    whole = _round_to(x, mode.round32)
    return np.where(np.isnan(whole), np.float32(0), np.clip(whole, 0, 255)).astype(np.uint32)


def _pack_byte(mode: Mode, x: Array, position: Array, old: Array) -> Array:
    shift = (position & np.uint32(3)) * np.uint32(8)
    return (old & ~(np.uint32(0xFF) << shift)) | _to_byte(mode, x) << shift


def _normalised(kind: str) -> Callable[[Array], Array]:
    """[-1, 1] or [0, 1] to the whole range of a 16-bit integer, nearest even."""
    dtype = KINDS[kind].dtype
    top = float(np.iinfo(dtype).max)
    low = -1.0 if kind == "i16" else 0.0

    def formula(x: Array) -> Array:
        wide = x.astype(np.float64)
        wide = np.where(np.isnan(wide), 0.0, np.clip(wide, low, 1.0))
        return np.rint(wide * top).astype(np.int64).astype(dtype)

    return formula


def _pair(formula: Callable[[Array], Array]) -> Callable[..., Array]:
    return lambda mode, a, b: np.stack(np.broadcast_arrays(formula(a), formula(b)))


def _saturated(kind: str) -> Callable[[Array], Array]:
    dtype = KINDS[kind].dtype
    limits = np.iinfo(dtype)
    return lambda x: np.clip(x, limits.min, limits.max).astype(dtype)


# Floats of other widths


def _shifted_nan(x: Array, source: Float, to: Float) -> Array:
    """The bits of quiet NaNs carried from one format to another: sign and the upper payload bits stay."""
    bits = x.view(source.bits).astype(np.uint64)
    sign = bits >> np.uint64(source.mantissa + source.exponent) << np.uint64(to.mantissa + to.exponent)
    payload = bits & np.uint64((1 << source.mantissa) - 1)
    shift = to.mantissa - source.mantissa
    payload = payload << np.uint64(shift) if shift >= 0 else payload >> np.uint64(-shift)
    return (sign | np.uint64(to.infinity) | np.uint64(to.quiet_bit) | payload).astype(to.bits).view(to.dtype)


def convert(mode: Mode, x: Array, source: Float, to: Float, rounding: int | None = None) -> Array:
    """One float format to another, rounded in the destination's direction unless one is given."""
    if not source.denormals(mode) & 1:
        x = source.flush(x)
    if to.mantissa >= source.mantissa:
        result = x.astype(to.dtype)
    else:
        result = narrow(x.astype(np.float64), to, to.rounding(mode) if rounding is None else rounding)
    nan = np.isnan(x)
    if nan.any():
        result = np.where(nan, _shifted_nan(x, source, to), result)
    if to is F16 and mode.fp16_ovfl:
        result = F16.largest_for(result, (x,))
    return result if to.denormals(mode) & 2 else to.flush(result)


def _converted(source: Float, to: Float) -> Callable[..., Array]:
    return lambda mode, x: convert(mode, x, source, to)


def _half_pair(rounding: int) -> Callable[..., Array]:
    def function(mode: Mode, a: Array, b: Array) -> Array:
        halves = (convert(mode, x, F32, F16, rounding) for x in (a, b))
        return np.stack(np.broadcast_arrays(*halves))

    return function


def _brain_pair(mode: Mode, a: Array, b: Array) -> Array:
    result = np.empty((2, *np.broadcast_shapes(a.shape, b.shape)), np.uint16)
    result[0], result[1] = f32_to_bf16(a), f32_to_bf16(b)
    return result


# Narrow formats, shared with vector_scaled.py

_MANTISSA = {"f32": 23, "f16": 10, "bf16": 7}


def narrowed(mode: Mode, name: str, x: Array, source: str, random: Array | None = None) -> Array:
    """Codes of a narrow format; stochastic rounding uses as many top random bits as the source has more mantissa."""
    form = FORMATS[mode.architecture][name]
    bits = _MANTISSA[source] - form.mantissa
    return form.encode(x, saturate=mode.fp16_ovfl, random=random, random_bits=bits)


def join_bytes(low: Array, high: Array) -> Array:
    return low.astype(np.uint16) | high.astype(np.uint16) << np.uint16(8)


def split_bytes(codes: Array) -> Array:
    """The two bytes of uint16 codes on a new first axis."""
    return np.stack([codes & np.uint16(0xFF), codes >> np.uint16(8)])


# fp8


def _to_pair(name: str) -> Callable[..., Array]:
    def function(mode: Mode, a: Array, b: Array) -> Array:
        return join_bytes(*(narrowed(mode, name, x, "f32") for x in (a, b)))

    return function


def _to_one(name: str) -> Callable[..., Array]:
    return lambda mode, x, random: narrowed(mode, name, x, "f32", random)


def _from_pair(name: str) -> Callable[..., Array]:
    return lambda mode, codes: FORMATS[mode.architecture][name].decode(split_bytes(codes))


def _from_one(name: str) -> Callable[..., Array]:
    return lambda mode, code: FORMATS[mode.architecture][name].decode(code)


def _narrow_rows() -> list[VectorRow]:
    row = RowBuilder()
    for name in ("fp8", "bf8"):
        row(f"v_cvt_pk_{name}_f32", "u16", "f32 f32", _to_pair(name), keeps=True)
        row(f"v_cvt_sr_{name}_f32", "u8", "f32 u32", _to_one(name), keeps=True)
        row(f"v_cvt_f32_{name}", "f32", "u8", _from_one(name))
        row(f"v_cvt_pk_f32_{name}", "v2f32", "u16", _from_pair(name))
    return row.rows


def _plain_rows() -> list[VectorRow]:
    row = RowBuilder()
    for form in (F32, F64):
        for kind in ("i32", "u32"):
            row(f"v_cvt_{kind}_{form.name}", kind, form.name, _to_integer(kind, form))
            row(f"v_cvt_{form.name}_{kind}", form.name, kind, _from_integer(form))
    for kind in ("i16", "u16"):
        row(f"v_cvt_{kind}_f16", kind, "f16", _to_integer(kind, F16))
        row(f"v_cvt_f16_{kind}", "f16", kind, _from_integer(F16))
        norm = _normalised(kind)
        row(f"v_cvt_norm_{kind}_f16", kind, "f16", lambda mode, x, norm=norm: norm(x))
        for source in ("f16", "f32"):
            row(f"v_cvt_pknorm_{kind}_{source}", f"v2{kind}", f"{source} {source}", _pair(norm))
        wide = kind.replace("16", "32")
        row(f"v_cvt_pk_{kind}_{wide}", f"v2{kind}", f"{wide} {wide}", _pair(_saturated(kind)))
    half = np.float32(0.5)
    row("v_cvt_rpi_i32_f32", "i32", "f32", _to_integer("i32", F32, lambda x: np.floor(x + half)))
    row("v_cvt_flr_i32_f32", "i32", "f32", _to_integer("i32", F32, np.floor))
    row("v_cvt_off_f32_i4", "f32", "u32", lambda mode, x: ((x.astype(np.int32) << 28) >> 28).astype(np.float32) / 16)
    for byte in range(4):
        row(f"v_cvt_f32_ubyte{byte}", "f32", "u32", _from_byte(byte))
    row("v_cvt_pk_u8_f32", "u32", "f32 u32 u32", _pack_byte)
    row("v_cvt_pkaccum_u8_f32", "u32", "f32 u32 u32", _pack_byte, accumulates=True)
    row("v_cvt_f16_f32", "f16", "f32", _converted(F32, F16))
    row("v_cvt_f32_f16", "f32", "f16", _converted(F16, F32))
    row("v_cvt_f32_f64", "f32", "f64", _converted(F64, F32))
    row("v_cvt_f64_f32", "f64", "f32", _converted(F32, F64))
    row("v_cvt_pkrtz_f16_f32", "v2f16", "f32 f32", _half_pair(TOWARD_ZERO))
    row("v_cvt_pk_f16_f32", "v2f16", "f32 f32", _half_pair(NEAREST), **GFX950)
    row("v_cvt_pk_bf16_f32", "v2bf16", "f32 f32", _brain_pair, **GFX950)
    row("v_cvt_f32_bf16", "f32", "bf16", lambda mode, x: bf16_to_f32(x), **GFX950)
    for form in (F16_CODES, BF16):

        def stochastic(mode: Mode, x: Array, random: Array, form: Any = form) -> Array:
            codes = form.encode(x, saturate=False, random=random, random_bits=23 - form.mantissa)
            return codes.view(KINDS[form.name].dtype)

        row(f"v_cvt_sr_{form.name}_f32", form.name, "f32 u32", stochastic, **KEEPS, **GFX950)
    return row.rows


ROWS: tuple[VectorRow, ...] = (*_plain_rows(), *_narrow_rows())
