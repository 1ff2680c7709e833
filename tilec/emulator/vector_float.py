"""Float rows of plain arithmetic: sums, products, fma, minima and maxima, rounding to integral values, frexp and ldexp.

Formulas follow the pseudocode of the CDNA3 and CDNA4 ISA guides, chapter 12. A packed row is the scalar function on a
leading axis. Rows that keep the other half of a 16-bit destination are those of LLVM's
GCNSubtarget::zeroesHigh16BitsOfDest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilec.emulator.arithmetic import ADD, F16, F32, FLOATS, FMA, MULTIPLY, Array, Float, scaled
from tilec.emulator.mode import Mode
from tilec.emulator.vector_row import RowBuilder, VectorRow

KEEPS: dict[str, Any] = {"keeps": True}


# Minima and maxima


def _extreme2(form: Float, largest: bool) -> Callable[..., Array]:
    """v_min and v_max: a number beats a NaN, -0 < +0; in IEEE mode a signaling NaN wins, quieted."""
    pick = np.maximum if largest else np.minimum

    def function(mode: Mode, a: Array, b: Array) -> Array:
        denormals = form.denormals(mode)
        if not denormals & 1:
            a, b = form.flush(a), form.flush(b)
        result = pick(a, b)
        special = ~(np.abs(result) > 0)
        if special.any():
            a, b = (x[special] for x in np.broadcast_arrays(a, b))
            result[special] = _special_extreme(form, largest, mode.ieee, a, b, result[special])
        return result if denormals & 2 else form.flush(result)

    return function


def _special_extreme(form: Float, largest: bool, ieee: bool, a: Array, b: Array, result: Array) -> Array:
    """The lanes where the result is a zero, whose sign needs care, or where a source is NaN."""
    bits_a, bits_b = a.view(form.bits), b.view(form.bits)
    zero = bits_a & bits_b if largest else bits_a | bits_b
    zero = np.where((a == 0) & (b == 0), zero, result.view(form.bits))
    picked = np.where(np.isnan(a), bits_b, np.where(np.isnan(b), bits_a, zero))
    if ieee:
        signaling_a, signaling_b = form.is_signaling(a), form.is_signaling(b)
        picked = np.where(signaling_b, bits_b | form.quiet_bit, picked)
        picked = np.where(signaling_a, bits_a | form.quiet_bit, picked)
    return picked.view(form.dtype)


MINIMUM = {form: _extreme2(form, largest=False) for form in FLOATS}
MAXIMUM = {form: _extreme2(form, largest=True) for form in FLOATS}


def _three(two: Callable[..., Array]) -> Callable[..., Array]:
    return lambda mode, a, b, c: two(mode, two(mode, a, b), c)


def _median(form: Float) -> Callable[..., Array]:
    low, high = MINIMUM[form], MAXIMUM[form]

    def function(mode: Mode, a: Array, b: Array, c: Array) -> Array:
        top = high(mode, high(mode, a, b), c)
        middle = np.where(top == a, high(mode, b, c), np.where(top == b, high(mode, a, c), high(mode, a, b)))
        nan = np.isnan(a) | np.isnan(b) | np.isnan(c)
        return np.where(nan, low(mode, low(mode, a, b), c), middle) if nan.any() else middle

    return function


def _propagating(form: Float, largest: bool) -> Callable[..., Array]:
    """IEEE 754-2019 minimum and maximum of three: any NaN wins (quieted), -0 < +0."""
    two = (MAXIMUM if largest else MINIMUM)[form]

    def function(mode: Mode, a: Array, b: Array, c: Array) -> Array:
        result = two(mode, two(mode, a, b), c)
        nan = np.isnan(a) | np.isnan(b) | np.isnan(c)
        return form.with_nans(np.where(nan, form.dtype(np.nan), result), (a, b, c))

    return function


# Rounding to integral values, exponent and mantissa


def _unary(form: Float, formula: Callable[[Array], Array]) -> Callable[..., Array]:
    """A function of one float that needs no rounding direction: flushed by mode, NaN quieted."""

    def function(mode: Mode, x: Array) -> Array:
        if not form.denormals(mode) & 1:
            x = form.flush(x)
        return form.finished(mode, formula(x), (x,))

    return function


def _fraction(form: Float) -> Callable[[Array], Array]:
    below_one = np.nextafter(form.dtype(1), form.dtype(0))
    return lambda x: np.minimum(x - np.floor(x), below_one)  # tiny negative x would round up to 1


def _mantissa(x: Array) -> Array:
    return np.where(np.isinf(x), x, np.frexp(x)[0])


def _exponent(form: Float) -> Callable[..., Array]:
    dtype = np.int16 if form is F16 else np.int32

    def function(mode: Mode, x: Array) -> Array:
        if not form.denormals(mode) & 1:
            x = form.flush(x)
        return np.where(np.isfinite(x), np.frexp(x)[1], 0).astype(dtype)

    return function


def _load_exponent(form: Float) -> Callable[..., Array]:
    """x * 2**n with one rounding."""

    def function(mode: Mode, x: Array, n: Array) -> Array:
        if not form.denormals(mode) & 1:
            x = form.flush(x)
        return form.finished(mode, scaled(form, x, n, form.rounding(mode)), (x,))

    return function


def _rows() -> list[VectorRow]:
    row = RowBuilder()
    for form in FLOATS:
        kind = form.name
        two, three = f"{kind} {kind}", f"{kind} {kind} {kind}"
        keep = KEEPS if form is F16 else {}
        row(f"v_add_{kind}", kind, two, ADD[form])
        row(f"v_mul_{kind}", kind, two, MULTIPLY[form])
        row(f"v_fma_{kind}", kind, three, FMA[form], **keep)
        row(f"v_min_{kind}", kind, two, MINIMUM[form])
        row(f"v_max_{kind}", kind, two, MAXIMUM[form])
        row(f"v_trunc_{kind}", kind, kind, _unary(form, np.trunc))
        row(f"v_ceil_{kind}", kind, kind, _unary(form, np.ceil))
        row(f"v_floor_{kind}", kind, kind, _unary(form, np.floor))
        row(f"v_rndne_{kind}", kind, kind, _unary(form, np.rint))
        row(f"v_fract_{kind}", kind, kind, _unary(form, _fraction(form)))
        row(f"v_frexp_mant_{kind}", kind, kind, _unary(form, _mantissa))
        integer = "i16" if form is F16 else "i32"
        row(f"v_frexp_exp_{integer}_{kind}", integer, kind, _exponent(form))
        row(f"v_ldexp_{kind}", kind, f"{kind} {integer}", _load_exponent(form))
        if kind != "f64":
            add = ADD[form]
            row(f"v_sub_{kind}", kind, two, lambda mode, a, b, add=add: add(mode, a, -b))
            row(f"v_subrev_{kind}", kind, two, lambda mode, a, b, add=add: add(mode, -a, b))
            row(f"v_min3_{kind}", kind, three, _three(MINIMUM[form]), **keep)
            row(f"v_max3_{kind}", kind, three, _three(MAXIMUM[form]), **keep)
            row(f"v_med3_{kind}", kind, three, _median(form), **keep)
            packed = f"v2{kind}"
            row(f"v_pk_add_{kind}", packed, f"{packed} {packed}", ADD[form])
            row(f"v_pk_mul_{kind}", packed, f"{packed} {packed}", MULTIPLY[form])
            row(f"v_pk_fma_{kind}", packed, f"{packed} {packed} {packed}", FMA[form])
        if kind != "f16":
            row(f"v_fmac_{kind}", kind, three, FMA[form], accumulates=True)
    row("v_fmamk_f32", "f32", "f32 f32 f32", FMA[F32])
    row("v_fmaak_f32", "f32", "f32 f32 f32", FMA[F32])
    row("v_fma_legacy_f16", "f16", "f16 f16 f16", FMA[F16])
    row("v_pk_fmac_f16", "v2f16", "v2f16 v2f16 v2f16", FMA[F16], accumulates=True)
    row("v_pk_min_f16", "v2f16", "v2f16 v2f16", MINIMUM[F16])
    row("v_pk_max_f16", "v2f16", "v2f16 v2f16", MAXIMUM[F16])
    for name, largest in (("minimum3", False), ("maximum3", True)):
        row(f"v_{name}_f32", "f32", "f32 f32 f32", _propagating(F32, largest), architectures=("gfx950",))
        row(f"v_pk_{name}_f16", "v2f16", "v2f16 v2f16 v2f16", _propagating(F16, largest), architectures=("gfx950",))
    return row.rows


ROWS: tuple[VectorRow, ...] = tuple(_rows())
