"""Float rows beyond plain arithmetic: transcendentals, dot products, mixed precision, legacy forms, cube maps.

Transcendentals are computed in float64 and rounded once, within the manual's error (1 ulp; 2**29 ulp for rcp, rsq and
sqrt_f64). The f32 ones flush denormals in and out whatever the mode (LLVM's expansions of division and square root rely
on it), the f16 ones follow the mode. Invalid arguments give the negative quiet NaN, as the manual's examples do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from tilec.emulator.arithmetic import ADD, F16, F32, F64, FMA, MULTIPLY, Array, Float, narrow
from tilec.emulator.formats import bf16_to_f32
from tilec.emulator.mode import Mode
from tilec.emulator.vector_row import RowBuilder, VectorRow

# Transcendentals


def _transcendental(form: Float, formula: Callable[[Array], Array]) -> Callable[..., Array]:
    """A function evaluated in float64 and rounded once; invalid arguments give the negative quiet NaN."""
    invalid = form.bits(form.sign | form.default_nan)

    def function(mode: Mode, x: Array) -> Array:
        if form is F32 or not form.denormals(mode) & 1:
            x = form.flush(x)
        result = formula(x.astype(np.float64)).astype(form.dtype)
        nan = np.isnan(result)
        if nan.any():
            bits = np.where(np.isnan(x), x.view(form.bits) | form.quiet_bit, invalid)
            result = np.where(nan, bits, result.view(form.bits)).view(form.dtype)
        if form is F16 and mode.fp16_ovfl:
            result = np.where(x == 0, result, form.largest_for(result, (x,)))  # a pole is no overflow
        return form.flush(result) if form is F32 or not form.denormals(mode) & 2 else result

    return function


def _turns(function: Callable[[Array], Array], outside: float) -> Callable[[Array], Array]:
    """sin or cos of x turns; the manual's domain is [-256, 256], beyond it the result is a constant."""

    def formula(x: Array) -> Array:
        reduced = x - np.rint(x)  # exact, and keeps the argument small
        result = np.where(reduced == 0, np.where(outside == 0.0, x * 0, 1.0), function(reduced * (2 * np.pi)))
        return np.where(np.abs(x) > 256, np.where(np.isinf(x), np.nan, outside), result)

    return formula


_TRANSCENDENTALS: dict[str, Callable[[Array], Array]] = {
    "exp": np.exp2,
    "log": np.log2,
    "rcp": lambda x: 1 / x,
    "rsq": lambda x: 1 / np.sqrt(x),
    "sqrt": np.sqrt,
    "sin": _turns(np.sin, 0.0),
    "cos": _turns(np.cos, 1.0),
}


@cache
def _two_over_pi() -> int:
    """The first 1201 bits of 2 / pi after the binary point, by Machin's formula."""
    bits = 1300

    def inverse_arctangent(n: int) -> int:
        total, term, k = 0, (1 << bits) // n, 1
        while term:
            total += term // k if k % 4 == 1 else -(term // k)
            term //= n * n
            k += 2
        return total

    pi = 4 * (4 * inverse_arctangent(5) - inverse_arctangent(239))
    return (2 << 1201 + bits) // pi


def _pick_two_over_pi(exponent: int, segment: int) -> float:
    """53 bits of 2 / pi at the segment that a reduction of an argument with this biased exponent needs."""
    shift = segment * 53 + max(exponent - 1077, 0)
    window = (_two_over_pi() << shift) >> 1201 - 53 & (1 << 53) - 1
    return float(np.ldexp(float(window), -53 - shift + (128 if exponent >= 1968 else 0)))


_pick_elementwise = np.frompyfunc(_pick_two_over_pi, 2, 1)


def _trig_preop(mode: Mode, x: Array, segment: Array) -> Array:
    exponent = (x.view(np.uint64) >> np.uint64(52) & np.uint64(0x7FF)).astype(np.int64)
    return np.asarray(_pick_elementwise(exponent, (segment & np.uint32(31)).astype(np.int64)), np.float64)


# Special products


def _legacy_multiply(mode: Mode, a: Array, b: Array) -> Array:
    """DirectX 9 rules: 0 times anything is 0."""
    product = MULTIPLY[F32](mode, a, b)
    if not mode.denorm32 & 1:
        a, b = F32.flush(a), F32.flush(b)
    return np.where((a == 0) | (b == 0), np.float32(0), product)


def _unfused(mode: Mode, a: Array, b: Array, c: Array) -> Array:
    """v_mad_f16: product and sum rounded separately, denormals flushed (it has no denormal support)."""
    flat = replace(mode, denorm64=0)
    return ADD[F16](flat, MULTIPLY[F16](flat, a, b), c)


def _dot2(widen: Callable[[Array], Array]) -> Callable[..., Array]:
    """c + a0 * b0 + a1 * b1: each exact product is added with one rounding, low half first; denormals are kept."""
    keep = Mode()

    def function(mode: Mode, a: Array, b: Array, c: Array) -> Array:
        wide_a, wide_b = widen(a), widen(b)
        fma = FMA[F32]
        return fma(keep, wide_a[1], wide_b[1], fma(keep, wide_a[0], wide_b[0], c))

    return function


def _mixed(mode: Mode, a: Array, b: Array, c: Array) -> Array:
    return FMA[F32](mode, a, b, c)


def _mixed_half(mode: Mode, a: Array, b: Array, c: Array) -> Array:
    """The f32 fma rounded to f16: two roundings, as the pseudocode says."""
    return narrow(FMA[F32](mode, a, b, c).astype(np.float64), F16, mode.round64)


# Cube maps


def _cube(choose: Callable[[Array, Array, Array], tuple[Array, Array, Array]]) -> Callable[..., Array]:
    """A cube-map helper: one value if z is the major axis, one if y is, else one for x."""

    def function(mode: Mode, x: Array, y: Array, z: Array) -> Array:
        size_x, size_y, size_z = np.abs(x), np.abs(y), np.abs(z)
        on_z, on_y, on_x = choose(x, y, z)
        major_z = (size_z >= size_x) & (size_z >= size_y)
        return np.where(major_z, on_z, np.where(size_y >= size_x, on_y, on_x)).astype(np.float32)

    return function


def _rows() -> list[VectorRow]:
    row = RowBuilder()
    for form in (F16, F32):
        for name, formula in _TRANSCENDENTALS.items():
            row(f"v_{name}_{form.name}", form.name, form.name, _transcendental(form, formula))
    for name in ("rcp", "rsq", "sqrt"):
        row(f"v_{name}_f64", "f64", "f64", _transcendental(F64, _TRANSCENDENTALS[name]))
    row("v_rcp_iflag_f32", "f32", "f32", _transcendental(F32, _TRANSCENDENTALS["rcp"]))
    row("v_exp_legacy_f32", "f32", "f32", _transcendental(F32, np.exp2))
    row("v_log_legacy_f32", "f32", "f32", _transcendental(F32, np.log2))
    row("v_trig_preop_f64", "f64", "f64 u32", _trig_preop)
    row("v_mul_legacy_f32", "f32", "f32 f32", _legacy_multiply)
    row("v_mad_f16", "f16", "f16 f16 f16", _unfused, keeps=True)
    row("v_mad_legacy_f16", "f16", "f16 f16 f16", _unfused)
    row("v_mac_f16", "f16", "f16 f16 f16", _unfused, accumulates=True)
    row("v_madmk_f16", "f16", "f16 f16 f16", _unfused)
    row("v_madak_f16", "f16", "f16 f16 f16", _unfused)
    row("v_fma_mix_f32", "f32", "mix mix mix", _mixed)
    row("v_fma_mixlo_f16", "f16", "mix mix mix", _mixed_half, keeps=True)
    row("v_fma_mixhi_f16", "f16", "mix mix mix", _mixed_half, high_result=True, keeps=True)
    half, brain = _dot2(lambda x: x.astype(np.float32)), _dot2(bf16_to_f32)
    new: dict[str, Any] = {"architectures": ("gfx950",)}
    row("v_dot2_f32_f16", "f32", "v2f16 v2f16 f32", half)
    row("v_dot2c_f32_f16", "f32", "v2f16 v2f16 f32", half, accumulates=True)
    row("v_dot2_f32_bf16", "f32", "v2bf16 v2bf16 f32", brain, **new)
    row("v_dot2c_f32_bf16", "f32", "v2bf16 v2bf16 f32", brain, accumulates=True, **new)
    three = "f32 f32 f32"
    row("v_cubeid_f32", "f32", three, _cube(lambda x, y, z: (4.0 + (z < 0), 2.0 + (y < 0), 0.0 + (x < 0))))
    row("v_cubesc_f32", "f32", three, _cube(lambda x, y, z: (np.where(z < 0, -x, x), x, np.where(x < 0, z, -z))))
    row("v_cubetc_f32", "f32", three, _cube(lambda x, y, z: (-y, np.where(y < 0, -z, z), -y)))
    row("v_cubema_f32", "f32", three, _cube(lambda x, y, z: (z * 2, y * 2, x * 2)))
    return row.rows


ROWS: tuple[VectorRow, ...] = tuple(_rows())
