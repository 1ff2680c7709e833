"""MFMA accumulation in the order of CDNA3 hardware, bit for bit (the model of MMA-Sim, arXiv 2511.10909).

f32 and f64 inputs: one fused multiply-add per k, ascending. Narrower inputs: groups of k, whose exact products are cut
at 24 fractional bits below the largest product exponent and summed; the sum, cut at 31 bits, and C, cut at 24 bits, are
added and rounded to nearest even. The exponent of a product is that of its factors, so denormal factors count as larger
than they are. gfx950 has no public model; its own shapes use the same rules, f8f6f4 those of fp8 with the scales in the
exponents.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilec.emulator.arithmetic import F32, F64, FMA, Array
from tilec.emulator.formats import FORMATS
from tilec.emulator.mode import Mode

_NONE = -4000  # the exponent of a zero: below every other
_WAVES = 16  # waves at a time, to bound the memory of [waves, blocks, k, m, n] products


@dataclass(frozen=True)
class Factor:
    """One operand [W, blocks, k, rows]: float64 values and the exponents that hardware aligns by."""

    values: Array
    exponents: Array

    def waves(self, part: slice) -> Factor:
        return Factor(self.values[part], self.exponents[part])

    def at(self, k: int | slice) -> Factor:
        return Factor(self.values[..., k, :], self.exponents[..., k, :])


def factor(form: str, values: Array, mode: Mode, scale: Array | None = None) -> Factor:
    """The factor of decoded values; scale, broadcastable to them, holds powers of two or NaN."""
    lowest = -126 if form == "xf32" else 1 - FORMATS[mode.architecture][form].bias
    wide = values.astype(np.float64)
    exponents = np.maximum(np.frexp(wide)[1] - 1, lowest)
    if scale is not None:
        wide = wide * scale
        exponents = exponents + np.frexp(scale)[1] - 1
    return Factor(wide, np.where(wide == 0, _NONE, exponents))


def sequential(form: str, a: Array, b: Array, c: Array) -> Array:
    """C + A B for f32 or f64 values a [W, blocks, k, m], b [W, blocks, k, n] and c [W, blocks, m, n]."""
    fused = FMA[F64 if form == "f64" else F32]
    keep = Mode()  # C and D are never flushed; A and B already are, where the mode says so
    for k in range(a.shape[-2]):
        c = fused(keep, a[..., k, :, None], b[..., k, None, :], c)
    return c


def grouped(form: str, a: Factor, b: Factor, c: Array) -> Array:
    """C + A B by groups of k for narrow factors; c float32 [W, blocks, m, n]."""
    k = a.values.shape[-2]
    eight_bit = form not in ("f16", "bf16", "xf32")
    size = 16 if eight_bit else 4 if form == "xf32" else min(8, k)
    result = np.empty_like(c)
    for start in range(0, c.shape[0], _WAVES):
        part = slice(start, start + _WAVES)
        left, right, total = a.waves(part), b.waves(part), c[part]
        for first in range(0, k, size):
            group = slice(first, first + size)
            total = _fused_group(left.at(group), right.at(group), total, eight_bit)
        result[part] = total
    return result


def _fused_group(a: Factor, b: Factor, c: Array, eight_bit: bool) -> Array:
    products = a.values[..., :, :, None] * b.values[..., :, None, :]
    exponents = a.exponents[..., :, :, None] + b.exponents[..., :, None, :]
    plain = products.sum(axis=-3) + c
    infinite = np.where(np.abs(products) >= 2.0**128, np.copysign(np.inf, products), 0.0).sum(axis=-3)
    wide_c = c.astype(np.float64)
    exponent_c = np.where(c == 0, _NONE, np.maximum(np.frexp(wide_c)[1] - 1, -126))
    if eight_bit:
        total, exponent = _even_and_odd(products, exponents)
    else:
        total, exponent = _cut_sum(products, exponents)
    top = np.maximum(exponent, exponent_c)
    kept = _floor_at(total, top - 31) + np.where(
        np.logical_and(eight_bit, exponent_c < top - 25), 0.0, _floor_at(wide_c, top - 24)
    )
    result = np.where(infinite != 0, infinite, kept).astype(np.float32)
    special = ~np.isfinite(plain)
    result = np.where(special, plain.astype(np.float32), result)
    return np.where(np.isnan(result), F32.default_nan.view(np.float32), result)


def _cut_sum(products: Array, exponents: Array) -> tuple[Array, Array]:
    """The sum over k of products cut toward zero at 24 bits below the largest exponent, and that exponent."""
    top = exponents.max(axis=-3)
    place = np.maximum(top, _NONE // 4)[..., None, :, :] - 24
    return np.ldexp(np.trunc(np.ldexp(products, -place)), place).sum(axis=-3), top


def _even_and_odd(products: Array, exponents: Array) -> tuple[Array, Array]:
    even, exponent_even = _cut_sum(products[..., 0::2, :, :], exponents[..., 0::2, :, :])
    odd, exponent_odd = _cut_sum(products[..., 1::2, :, :], exponents[..., 1::2, :, :])
    top = np.maximum(exponent_even, exponent_odd)
    return _floor_at(even, top - 24) + _floor_at(odd, top - 24), top


def _floor_at(x: Array, place: Array) -> Array:
    """x rounded down to a multiple of 2**place."""
    place = np.maximum(place, _NONE // 4)
    return np.ldexp(np.floor(np.ldexp(x, -place)), place)


def distance_bound(k: int, a: Factor, b: Factor, c: Array) -> Array:
    """How far a float32 product in any order of summation, plus C, may be from `grouped`.

    With N the sum of 2**exponents-sized products (at least |A| |B|), the hardware order errs by less than 1.4 k + 3
    units of 2**-24 (N + |C|): one for each product cut, up to five cuts and a rounding per group. Any float32 order
    errs by k + 1.
    """
    sizes = [np.maximum(np.abs(x.values), np.where(x.values == 0, 0.0, np.ldexp(1.0, x.exponents))) for x in (a, b)]
    nominal = np.matmul(sizes[0].swapaxes(-1, -2), sizes[1])
    return (1.25 * k + 2) * (2.0**-23 * (nominal + np.abs(c)) + 2.0**-149)
