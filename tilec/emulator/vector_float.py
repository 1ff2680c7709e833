"""Float rows: arithmetic, minima and maxima, rounding to integers, division helpers, transcendentals, dot products.

Formulas follow the pseudocode of the CDNA3/CDNA4 ISA guides, chapter 12. Transcendentals are computed in float64 and rounded
once, which is within the manual's error (1 ulp; 2**29 ulp for rcp/rsq/sqrt_f64); the f32 ones flush denormals in and out
whatever the mode (LLVM's expansions of division and square root rely on it), the f16 ones keep them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilec.emulator.arithmetic import ADD, F16, F32, F64, FLOATS, FMA, MULTIPLY, Array, Float, narrow
from tilec.emulator.mode import Mode
from tilec.emulator.vector_row import VectorRow

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
        denormals = form.denormals(mode)
        if not denormals & 1:
            x = form.flush(x)
        result = form.with_nans(formula(x), (x,))
        return result if denormals & 2 else form.flush(result)

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
        denormals, rounding = form.denormals(mode), form.rounding(mode)
        if not denormals & 1:
            x = form.flush(x)
        result = scaled(form, x, n, rounding)
        result = form.with_nans(result, (x,))
        return result if denormals & 2 else form.flush(result)

    return function


def scaled(form: Float, x: Array, n: Array | int, rounding: int = 0) -> Array:
    """x * 2**n rounded once; n beyond the format's range acts like its end."""
    n = np.clip(n, -4200, 4200).astype(np.int32) if isinstance(n, np.ndarray) else n
    if form is F64:
        return np.ldexp(x, n)
    limited = np.clip(n, -600, 600)  # keeps float64 exact: a tiny result is still far below half the smallest denormal
    return narrow(np.ldexp(x.astype(np.float64), limited), form, rounding)


# Division


def _division_scale(form: Float) -> Callable[..., tuple[Array, Array]]:
    """v_div_scale: moves numerator (source 2) or denominator (source 1) away from over- and underflow.

    Returns source 0, which repeats one of them, scaled, and the mask that makes v_div_fmas undo it.
    """
    step, far, tiny = (64, 96, 23) if form is F32 else (128, 768, 53)

    def exponent(x: Array) -> Array:
        return (x.view(form.bits) & form.magnitude) >> form.bits(form.mantissa)

    def function(mode: Mode, value: Array, denominator: Array, numerator: Array) -> tuple[Array, Array]:
        value, denominator, numerator = np.broadcast_arrays(value, denominator, numerator)
        size_d, size_n = np.abs(denominator).astype(np.float64), np.abs(numerator).astype(np.float64)
        normal = float(form.smallest_normal)
        spread = exponent(numerator).astype(np.int64) - exponent(denominator).astype(np.int64)
        huge_ratio = spread >= far
        tiny_denominator = (size_d < normal) & (size_d > 0)
        tiny_inverse = (1 / size_d < normal) & (1 / size_d > 0)
        tiny_ratio = (size_n / size_d < normal) & (size_n > 0) & np.isfinite(size_d)
        is_denominator, is_numerator = value == denominator, value == numerator
        cases = [
            huge_ratio, tiny_denominator, tiny_inverse & tiny_ratio, tiny_inverse, tiny_ratio,
            exponent(numerator) <= tiny,
        ]  # fmt: skip
        shift = np.select(
            cases,
            [np.where(is_denominator, step, 0), step, np.where(is_denominator, -step, 0), -step,
             np.where(is_numerator, step, 0), step],
            0,
        )  # fmt: skip
        flag = np.select(cases, [True, False, True, False, True, False], False)
        result = scaled(form, value, shift)
        zero = (denominator == 0) | (numerator == 0)
        result = np.where(zero, form.default_nan.view(form.dtype), result)
        return form.with_nans(result, (value,)), flag & ~zero

    return function


def _division_fma(form: Float) -> Callable[..., Array]:
    """v_div_fmas: fma, then the scale of v_div_scale undone where its mask is set.

    The quotient estimate (source 2) tells which way: above 1 the denominator was scaled up, else the numerator.
    """
    step = 64 if form is F32 else 128

    def function(mode: Mode, a: Array, b: Array, c: Array, mask: Array) -> Array:
        plain = FMA[form](mode, a, b, c)
        if not mask.any():
            return plain
        shift = np.where(np.abs(c) >= 2, step, -step)
        wide = scaled(form, plain, shift)
        return np.where(mask, form.with_nans(wide, (a, b, c)), plain)

    return function


def _division_fixup(form: Float) -> Callable[..., Array]:
    """v_div_fixup: the special cases of numerator / denominator, else the quotient with the right sign."""
    invalid = form.bits(form.sign | form.default_nan)

    def function(mode: Mode, quotient: Array, denominator: Array, numerator: Array) -> Array:
        quotient, denominator, numerator = np.broadcast_arrays(quotient, denominator, numerator)
        bits_d, bits_n = denominator.view(form.bits), numerator.view(form.bits)
        sign = (bits_d ^ bits_n) & form.sign
        infinite_d, infinite_n = np.isinf(denominator), np.isinf(numerator)
        zero_d, zero_n = denominator == 0, numerator == 0
        exponents = [((x & form.magnitude) >> form.bits(form.mantissa)).astype(np.int64) for x in (bits_n, bits_d)]
        vanishing = exponents[0] - exponents[1] < {F32: -150, F64: -1075, F16: -(1 << 20)}[form]
        cases = [
            np.isnan(numerator), np.isnan(denominator), (zero_d & zero_n) | (infinite_d & infinite_n),
            zero_d | infinite_n, infinite_d | zero_n | vanishing,
        ]  # fmt: skip
        quiet = form.quiet_bit
        result = np.select(
            cases,
            [bits_n | quiet, bits_d | quiet, np.full_like(bits_d, invalid), sign | form.infinity, sign],
            sign | (quotient.view(form.bits) & form.magnitude),
        )
        return result.astype(form.bits).view(form.dtype)

    return function


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


# Special products


def _legacy_multiply(mode: Mode, a: Array, b: Array) -> Array:
    """DirectX 9 rules: 0 times anything is 0."""
    product = MULTIPLY[F32](mode, a, b)
    if not mode.denorm32 & 1:
        a, b = F32.flush(a), F32.flush(b)
    return np.where((a == 0) | (b == 0), np.float32(0), product)


def _unfused(mode: Mode, a: Array, b: Array, c: Array) -> Array:
    """v_mad_f16: product and sum rounded separately, denormals flushed (no denormal support, LLVM's VOP2/VOP3 notes)."""
    flat = Mode(mode.round32, mode.round64, mode.denorm32, 0, ieee=mode.ieee, architecture=mode.architecture)
    return ADD[F16](flat, MULTIPLY[F16](flat, a, b), c)


def bf16_to_f32(x: Array) -> Array:
    return (x.astype(np.uint32) << np.uint32(16)).view(np.float32)


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
    rows: list[VectorRow] = []

    def row(name: str, dst: str, src: str, function: Callable[..., Any], **options: Any) -> None:
        rows.append(VectorRow(name, tuple(dst.split()), tuple(src.split()), function, **options))

    for form in (F16, F32):
        kind = form.name
        add = ADD[form]
        row(f"v_sub_{kind}", kind, f"{kind} {kind}", lambda mode, a, b, add=add: add(mode, a, -b))
        row(f"v_subrev_{kind}", kind, f"{kind} {kind}", lambda mode, a, b, add=add: add(mode, -a, b))
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
        row(f"v_div_fixup_{kind}", kind, three, _division_fixup(form), **keep)
        names = ("rcp", "rsq", "sqrt") if form is F64 else _TRANSCENDENTALS
        for name in names:
            row(f"v_{name}_{kind}", kind, kind, _transcendental(form, _TRANSCENDENTALS[name]))
    for form in (F16, F32):
        kind, keep = form.name, KEEPS if form is F16 else {}
        three = f"{kind} {kind} {kind}"
        row(f"v_min3_{kind}", kind, three, _three(MINIMUM[form]), **keep)
        row(f"v_max3_{kind}", kind, three, _three(MAXIMUM[form]), **keep)
        row(f"v_med3_{kind}", kind, three, _median(form), **keep)
    for form in (F32, F64):
        kind = form.name
        three = f"{kind} {kind} {kind}"
        row(f"v_fmac_{kind}", kind, three, FMA[form], accumulates=True)
        row(f"v_div_scale_{kind}", f"{kind} mask", three, _division_scale(form))
        row(f"v_div_fmas_{kind}", kind, f"{three} mask", _division_fma(form), reads_vcc=True)
    for name in ("fmamk", "fmaak"):
        row(f"v_{name}_f32", "f32", "f32 f32 f32", FMA[F32])
    for form in (F16, F32):
        packed = f"v2{form.name}"
        row(f"v_pk_add_{form.name}", packed, f"{packed} {packed}", ADD[form])
        row(f"v_pk_mul_{form.name}", packed, f"{packed} {packed}", MULTIPLY[form])
        row(f"v_pk_fma_{form.name}", packed, f"{packed} {packed} {packed}", FMA[form])
    row("v_pk_fmac_f16", "v2f16", "v2f16 v2f16 v2f16", FMA[F16], accumulates=True)
    row("v_pk_min_f16", "v2f16", "v2f16 v2f16", MINIMUM[F16])
    row("v_pk_max_f16", "v2f16", "v2f16 v2f16", MAXIMUM[F16])
    for name, largest in (("minimum3", False), ("maximum3", True)):
        row(f"v_{name}_f32", "f32", "f32 f32 f32", _propagating(F32, largest), architectures=("gfx950",))
        row(f"v_pk_{name}_f16", "v2f16", "v2f16 v2f16 v2f16", _propagating(F16, largest), architectures=("gfx950",))
    row("v_rcp_iflag_f32", "f32", "f32", _transcendental(F32, _TRANSCENDENTALS["rcp"]))
    row("v_exp_legacy_f32", "f32", "f32", _transcendental(F32, np.exp2))
    row("v_log_legacy_f32", "f32", "f32", _transcendental(F32, np.log2))
    row("v_mul_legacy_f32", "f32", "f32 f32", _legacy_multiply)
    row("v_fma_legacy_f16", "f16", "f16 f16 f16", FMA[F16])
    row("v_div_fixup_legacy_f16", "f16", "f16 f16 f16", _division_fixup(F16))
    row("v_mad_f16", "f16", "f16 f16 f16", _unfused, **KEEPS)
    row("v_mad_legacy_f16", "f16", "f16 f16 f16", _unfused)
    row("v_mac_f16", "f16", "f16 f16 f16", _unfused, accumulates=True)
    row("v_madmk_f16", "f16", "f16 f16 f16", _unfused)
    row("v_madak_f16", "f16", "f16 f16 f16", _unfused)
    row("v_fma_mix_f32", "f32", "mix mix mix", _mixed)
    row("v_fma_mixlo_f16", "f16", "mix mix mix", _mixed_half, **KEEPS)
    row("v_fma_mixhi_f16", "f16", "mix mix mix", _mixed_half, high_result=True, **KEEPS)
    half = _dot2(lambda x: x.astype(np.float32))
    brain = _dot2(bf16_to_f32)
    row("v_dot2_f32_f16", "f32", "v2f16 v2f16 f32", half)
    row("v_dot2c_f32_f16", "f32", "v2f16 v2f16 f32", half, accumulates=True)
    row("v_dot2_f32_bf16", "f32", "v2bf16 v2bf16 f32", brain, architectures=("gfx950",))
    row("v_dot2c_f32_bf16", "f32", "v2bf16 v2bf16 f32", brain, accumulates=True, architectures=("gfx950",))
    three = "f32 f32 f32"
    row("v_cubeid_f32", "f32", three, _cube(lambda x, y, z: (4.0 + (z < 0), 2.0 + (y < 0), 0.0 + (x < 0))))
    row("v_cubesc_f32", "f32", three, _cube(lambda x, y, z: (np.where(z < 0, -x, x), x, np.where(x < 0, z, -z))))
    row("v_cubetc_f32", "f32", three, _cube(lambda x, y, z: (-y, np.where(y < 0, -z, z), -y)))
    row("v_cubema_f32", "f32", three, _cube(lambda x, y, z: (z * 2, y * 2, x * 2)))
    return rows


ROWS: tuple[VectorRow, ...] = tuple(_rows())
