"""The three helpers of division: v_div_scale, v_div_fmas, v_div_fixup.

With v_rcp and fma steps between them (LLVM's expansion of fdiv) they give correctly rounded quotients; the tests run
that sequence. Where the manual's pseudocode can't (it scales by the wrong sign in one case, tests an impossible one in
another), these follow what the sequence needs, and say so.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilec.emulator.arithmetic import (
    F16,
    F32,
    F64,
    FLOATS,
    FMA,
    Array,
    Float,
    fma64_elementwise,
    narrow,
    scaled,
    sum_to_odd,
)
from tilec.emulator.mode import Mode
from tilec.emulator.vector_row import RowBuilder, VectorRow


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
        # In the third case the manual scales a denominator above 2**126 up, out of range; down undoes the underflow.
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
    """v_div_fmas: fma, and where the mask is set the scale of v_div_scale undone, in one rounding.

    The quotient estimate (source 2) tells which way: above 2 the denominator was scaled up, else the numerator.
    """
    step = 64 if form is F32 else 128

    def function(mode: Mode, a: Array, b: Array, c: Array, mask: Array) -> Array:
        result = FMA[form](mode, a, b, c)
        if not mask.any():
            return result
        a, b, c, mask, result = np.broadcast_arrays(a, b, c, mask, result)
        result = result.copy()
        a, b, c = a[mask], b[mask], c[mask]
        if not form.denormals(mode) & 1:
            a, b, c = form.flush(a), form.flush(b), form.flush(c)
        shift = np.where(np.abs(c) >= 2, step, -step)
        rounding = form.rounding(mode)
        if form is F64:
            few = np.asarray(fma64_elementwise(a, b, c, rounding, shift), np.float64)
        else:
            odd = sum_to_odd(a.astype(np.float64) * b, c.astype(np.float64))
            few = narrow(np.ldexp(odd, shift), form, rounding)
        result[mask] = form.finished(mode, few, (a, b, c))
        return result

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
        # The manual prints exponent(S1) == 255 here, which is already excluded; an overflowed quotient is meant.
        overflowed = ~np.isfinite(quotient)
        cases = [
            np.isnan(numerator), np.isnan(denominator), (zero_d & zero_n) | (infinite_d & infinite_n),
            zero_d | infinite_n, infinite_d | zero_n | vanishing, overflowed,
        ]  # fmt: skip
        quiet = form.quiet_bit
        result = np.select(
            cases,
            [
                bits_n | quiet,
                bits_d | quiet,
                np.full_like(bits_d, invalid),
                sign | form.infinity,
                sign,
                sign | form.infinity,
            ],
            sign | (quotient.view(form.bits) & form.magnitude),
        )
        return result.astype(form.bits).view(form.dtype)

    return function


def _rows() -> list[VectorRow]:
    row = RowBuilder()
    for form in FLOATS:
        kind = form.name
        three = f"{kind} {kind} {kind}"
        row(f"v_div_fixup_{kind}", kind, three, _division_fixup(form), keeps=form is F16)
        if form is not F16:
            row(f"v_div_scale_{kind}", f"{kind} mask", three, _division_scale(form))
            row(f"v_div_fmas_{kind}", kind, f"{three} mask", _division_fma(form), reads_vcc=True)
    row("v_div_fixup_legacy_f16", "f16", "f16 f16 f16", _division_fixup(F16))
    return row.rows


ROWS: tuple[VectorRow, ...] = tuple(_rows())
