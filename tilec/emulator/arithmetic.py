"""IEEE arithmetic the way a wave does it: one rounding in the mode's direction, denormals by mode, NaN payloads kept.

Every operation has a nearest-even path in numpy's own arithmetic, taken almost always, and a directed path that
computes in float64 rounded to odd (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", IEEE TC 2008),
which makes the second rounding harmless. A NaN result is the first NaN among the sources, quieted; without one, the
default quiet NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from tilec.emulator.mode import DOWNWARD, NEAREST, TOWARD_ZERO, UPWARD, Mode

Array = np.ndarray[Any, Any]


class Float:
    """One binary format that numpy computes in: its types, its masks, and the MODE fields that govern it."""

    def __init__(self, name: str, dtype: type, bits: type, signed: type, mantissa: int, exponent: int):
        self.name, self.dtype, self.bits, self.signed = name, dtype, bits, signed
        self.mantissa, self.exponent = mantissa, exponent
        self.bias = (1 << exponent - 1) - 1
        self.sign = bits(1 << mantissa + exponent)
        self.magnitude = bits((1 << mantissa + exponent) - 1)
        self.quiet_bit = bits(1 << mantissa - 1)
        self.infinity = bits(((1 << exponent) - 1) << mantissa)
        self.default_nan = bits(self.infinity | self.quiet_bit)
        self.smallest_normal = dtype(2.0 ** (1 - self.bias))

    def denormals(self, mode: Mode) -> int:
        return mode.denorm32 if self is F32 else mode.denorm64

    def rounding(self, mode: Mode) -> int:
        return mode.round32 if self is F32 else mode.round64

    def flush(self, x: Array) -> Array:
        """x with denormals replaced by zeros of the same sign."""
        tiny = np.abs(x) < self.smallest_normal
        if not tiny.any():
            return x
        bits = x.view(self.bits)
        return np.where(tiny, bits & self.sign, bits).view(self.dtype)

    def is_signaling(self, x: Array) -> Array:
        return np.isnan(x) & (x.view(self.bits) & self.quiet_bit == 0)

    def quieted(self, x: Array) -> Array:
        """x with the quiet bit set; meant for lanes that hold NaN."""
        return (x.view(self.bits) | self.quiet_bit).view(self.dtype)

    def with_nans(self, result: Array, sources: tuple[Array, ...]) -> Array:
        """The result with its NaN lanes replaced by the first NaN source, quieted, or by the default NaN."""
        nan = np.isnan(result)
        if not nan.any():
            return result
        bits = np.full(result.shape, self.default_nan, self.bits)
        for source in reversed(sources):
            source = np.broadcast_to(source, result.shape)
            bits = np.where(np.isnan(source), source.view(self.bits) | self.quiet_bit, bits)
        return np.where(nan, bits, result.view(self.bits)).view(self.dtype)

    def largest_for(self, result: Array, sources: tuple[Array, ...]) -> Array:
        """FP16_OVFL: an overflow becomes the largest number; an infinity that came in stays one."""
        overflow = np.isinf(result)
        for source in sources:
            overflow &= ~np.isinf(source)
        largest = (self.infinity - self.bits(1)).view(self.dtype)
        return np.where(overflow, np.copysign(largest, result), result)

    def finished(self, mode: Mode, result: Array, sources: tuple[Array, ...]) -> Array:
        """A rounded result with its NaNs, FP16_OVFL and the flushing of denormals."""
        result = self.with_nans(result, sources)
        if self is F16 and mode.fp16_ovfl:
            result = self.largest_for(result, sources)
        return result if self.denormals(mode) & 2 else self.flush(result)


F16 = Float("f16", np.float16, np.uint16, np.int16, 10, 5)
F32 = Float("f32", np.float32, np.uint32, np.int32, 23, 8)
F64 = Float("f64", np.float64, np.uint64, np.int64, 52, 11)
FLOATS = (F16, F32, F64)


def narrow(x: Array, to: Float, rounding: int) -> Array:
    """float64 (exact, or rounded to odd) to f16 or f32 in the given direction."""
    nearest = x.astype(to.dtype)
    if rounding == NEAREST:
        return nearest
    back = nearest.astype(np.float64)
    if rounding == UPWARD:
        return np.where(back < x, np.nextafter(nearest, to.dtype(np.inf)), nearest)
    if rounding == DOWNWARD:
        return np.where(back > x, np.nextafter(nearest, to.dtype(-np.inf)), nearest)
    return np.where(np.abs(back) > np.abs(x), np.nextafter(nearest, to.dtype(0)), nearest)


def _scale64_scalar(x: float, n: int, rounding: int) -> float:
    if x == 0 or not math.isfinite(x):
        return x
    return round_fraction(Fraction(x) * Fraction(2) ** int(n), rounding)


_scale64_elementwise = np.frompyfunc(_scale64_scalar, 3, 1)


def scaled(form: Float, x: Array, n: Array | int, rounding: int = NEAREST) -> Array:
    """x * 2**n rounded once; n beyond the format's range acts like its end."""
    n = np.clip(n, -4200, 4200).astype(np.int32) if isinstance(n, np.ndarray) else n
    if form is F64:
        if rounding == NEAREST:
            return np.ldexp(x, n)
        return np.asarray(_scale64_elementwise(x, n, rounding), np.float64)
    limited = np.clip(n, -600, 600)  # keeps float64 exact: a tiny result is still far below half the smallest denormal
    return narrow(np.ldexp(x.astype(np.float64), limited), form, rounding)


def sum_to_odd(a: Array, b: Array) -> Array:
    """a + b in float64 rounded to odd: the last bit is set whenever the sum is inexact."""
    s = a + b
    t = s - a
    error = (a - (s - t)) + (b - t)  # Knuth's two-sum: exact unless s overflows
    inexact = (error != 0) & np.isfinite(s)
    even = s.view(np.uint64) & np.uint64(1) == 0
    toward = np.where(error > 0, np.inf, -np.inf)
    return np.where(inexact & even, np.nextafter(s, toward), s)


def round_fraction(value: Fraction, rounding: int) -> float:
    """An exact non-zero rational to float64 in the given direction."""
    magnitude = abs(value)
    exponent = max(magnitude.numerator.bit_length() - magnitude.denominator.bit_length() - 1, -1023)
    while magnitude >= Fraction(2) ** (exponent + 1):
        exponent += 1
    unit = Fraction(2) ** (max(exponent, -1022) - 52)
    count, rest = divmod(magnitude, unit)
    away = {UPWARD: value > 0, DOWNWARD: value < 0, TOWARD_ZERO: False}.get(rounding)
    if away is None:
        away = rest * 2 > unit or (rest * 2 == unit and count % 2 == 1)
    count += 1 if away and rest else 0
    if count * unit >= Fraction(2) ** 1024:
        overflows = rounding == NEAREST or (rounding == UPWARD) == (value > 0) and rounding != TOWARD_ZERO
        result = math.inf if overflows else math.nextafter(math.inf, 0)
    else:
        result = math.ldexp(int(count), max(exponent, -1022) - 52)
    return result if value > 0 else -result


def fma64_scalar(a: float, b: float, c: float, rounding: int, shift: int = 0) -> float:
    """(a * b + c) * 2**shift by rationals, rounded once; NaN sources are the caller's business."""
    if not (math.isfinite(a) and math.isfinite(b)):
        return a * b + c
    if not math.isfinite(c):
        return c  # however large the product is
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact:
        return round_fraction(exact * Fraction(2) ** int(shift), rounding)
    if (a == 0 or b == 0) and c == 0:
        product = math.copysign(1, a) * math.copysign(1, b)
        if product == math.copysign(1, c):
            return c
    return -0.0 if rounding == DOWNWARD else 0.0


fma64_elementwise = np.frompyfunc(fma64_scalar, 5, 1)


def fma64(a: Array, b: Array, c: Array, rounding: int = NEAREST) -> Array:
    """a * b + c in float64 with one rounding: error-free transforms where they stay in range, else rationals."""
    product = a * b
    size_a, size_b, size_p = np.abs(a), np.abs(b), np.abs(product)
    safe = (size_a < 2.0**990) & (size_b < 2.0**990) & (np.abs(c) < 2.0**1000) & (size_p < 2.0**1000)
    safe &= (size_p > 2.0**-900) | (a == 0) | (b == 0)
    if rounding != NEAREST or not safe.all():
        a, b, c = np.broadcast_arrays(a, b, c)
        rough = np.ones_like(safe) if rounding != NEAREST else ~safe
        result = fma64(np.where(rough, 1.0, a), np.where(rough, 1.0, b), np.where(rough, 1.0, c))
        result[rough] = fma64_elementwise(a[rough], b[rough], c[rough], rounding, 0)
        return result
    splitter = 134217729.0  # 2**27 + 1 (Veltkamp)
    a_high = a * splitter - (a * splitter - a)
    b_high = b * splitter - (b * splitter - b)
    a_low, b_low = a - a_high, b - b_high
    product_low = a_low * b_low - (((product - a_high * b_high) - a_low * b_high) - a_high * b_low)
    high, low = two_sum(c, product_low)
    high, middle = two_sum(product, high)
    result = high + sum_to_odd(low, middle)
    return np.where(result == 0, product + c, result)  # an exact zero: the plain sum has its sign


def two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """The rounded sum and its exact error (Knuth)."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def _signed_zero(s: Array, a: Array, b: Array, rounding: int) -> Array:
    """An exact zero sum is -0 when rounding down, unless both terms are +0 (IEEE 754, 6.3)."""
    if rounding != DOWNWARD:
        return s
    return np.where((s == 0) & (np.signbit(a) | np.signbit(b)), -0.0, s)


def _add_nearest(a: Array, b: Array) -> Array:
    return a + b


def _add_odd(rounding: int, a: Array, b: Array) -> Array:
    return _signed_zero(sum_to_odd(a, b), a, b, rounding)


def _multiply_nearest(a: Array, b: Array) -> Array:
    return a * b


def _multiply_odd(rounding: int, a: Array, b: Array) -> Array:
    return a * b  # exact: at most 48 significant bits, no underflow


def _fma_nearest(a: Array, b: Array, c: Array) -> Array:
    if a.dtype == np.float64:
        return fma64(a, b, c)
    product = np.multiply(a, b, dtype=np.float64)  # exact
    shape = np.broadcast_shapes(product.shape, c.shape)
    s = np.add(product, c, out=product) if product.shape == shape else product + c
    result = s.astype(a.dtype)
    if (
        a.dtype == np.float16
    ):  # a 22-bit product plus an 11-bit term: float64 is exact wherever the result is near a tie
        return result
    # Two roundings differ from one only where the first landed on a tie of the second, or the second was to a denormal.
    doubtful = s.view(np.uint32)[..., ::2] & np.uint32(0x1FFFFFFF) == np.uint32(0x10000000)  # low dwords
    doubtful |= (np.abs(result) < F32.smallest_normal) & (s != 0)
    if doubtful.any():
        few = [np.broadcast_to(x, shape)[doubtful].astype(np.float64) for x in (a, b, c)]
        result[doubtful] = sum_to_odd(few[0] * few[1], few[2]).astype(np.float32)
    return result


def _fma_odd(rounding: int, a: Array, b: Array, c: Array) -> Array:
    product = a * b
    return _signed_zero(sum_to_odd(product, c), product, c, rounding)


def _add64(a: Array, b: Array, rounding: int) -> Array:
    return fma64(a, np.ones_like(a), b, rounding)


def _multiply64(a: Array, b: Array, rounding: int) -> Array:
    return np.copysign(fma64(a, b, np.zeros_like(a), rounding), a * b)  # a zero takes the sign of the product


Operation = Callable[..., Array]


def rounded(form: Float, nearest: Operation, odd: Operation, directed64: Operation) -> Callable[..., Array]:
    """The row function of an operation: sources and result flushed as the mode says, one rounding in its direction."""

    def function(mode: Mode, *sources: Array) -> Array:
        denormals, rounding = form.denormals(mode), form.rounding(mode)
        if not denormals & 1:
            sources = tuple(form.flush(x) for x in sources)
        if rounding == NEAREST:
            result = nearest(*sources)
        elif form is F64:
            result = directed64(*sources, rounding)
        else:
            result = narrow(odd(rounding, *(x.astype(np.float64) for x in sources)), form, rounding)
        return form.finished(mode, result, sources)

    return function


ADD = {form: rounded(form, _add_nearest, _add_odd, _add64) for form in FLOATS}
MULTIPLY = {form: rounded(form, _multiply_nearest, _multiply_odd, _multiply64) for form in FLOATS}
FMA = {form: rounded(form, _fma_nearest, _fma_odd, fma64) for form in FLOATS}
