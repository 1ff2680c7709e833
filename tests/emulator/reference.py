"""Scalar reference arithmetic on bit patterns, with exact rationals and integers, to compare the emulator with.

Nothing here uses numpy or the emulator. A float is its bits as an int; `Binary` knows the format.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

NEAREST, UPWARD, DOWNWARD, TOWARD_ZERO = range(4)


def floor_log2(size: Fraction) -> int:
    """The exponent e with 2**e <= size < 2**(e + 1), for size > 0."""
    guess = size.numerator.bit_length() - size.denominator.bit_length()
    return guess if size.numerator << max(-guess, 0) >= size.denominator << max(guess, 0) else guess - 1


@dataclass(frozen=True)
class Binary:
    """An IEEE format with `mantissa` stored bits and `exponent` bits."""

    mantissa: int
    exponent: int

    @property
    def width(self) -> int:
        return 1 + self.mantissa + self.exponent

    @property
    def sign_bit(self) -> int:
        return 1 << self.width - 1

    @property
    def bias(self) -> int:
        return (1 << self.exponent - 1) - 1

    @property
    def infinity(self) -> int:
        return (1 << self.exponent) - 1 << self.mantissa

    @property
    def quiet_bit(self) -> int:
        return 1 << self.mantissa - 1

    @property
    def nan(self) -> int:
        return self.infinity | self.quiet_bit

    def magnitude(self, bits: int) -> int:
        return bits & self.sign_bit - 1

    def sign(self, bits: int) -> int:
        return bits >> self.width - 1

    def is_nan(self, bits: int) -> bool:
        return self.magnitude(bits) > self.infinity

    def is_signaling(self, bits: int) -> bool:
        return self.is_nan(bits) and not bits & self.quiet_bit

    def is_infinite(self, bits: int) -> bool:
        return self.magnitude(bits) == self.infinity

    def is_finite(self, bits: int) -> bool:
        return self.magnitude(bits) < self.infinity

    def is_zero(self, bits: int) -> bool:
        return self.magnitude(bits) == 0

    def is_denormal(self, bits: int) -> bool:
        return 0 < self.magnitude(bits) < 1 << self.mantissa

    def field(self, bits: int) -> int:
        return self.magnitude(bits) >> self.mantissa

    def flushed(self, bits: int, keep: int) -> int:
        return bits if keep or not self.is_denormal(bits) else bits & self.sign_bit

    def value(self, bits: int) -> Fraction:
        """The exact value of finite bits."""
        field, fraction = self.field(bits), bits & (1 << self.mantissa) - 1
        significand = fraction + (1 << self.mantissa if field else 0)
        power = max(field, 1) - self.bias - self.mantissa
        size = Fraction(significand) * (Fraction(2) ** power)
        return -size if self.sign(bits) else size

    def round(self, value: Fraction, mode: int = NEAREST, zero_sign: int = 0) -> int:
        """Bits of an exact value: integer division by the unit of its binade, then the rule of the mode."""
        sign = int(value < 0) if value else zero_sign
        size = abs(value)
        lowest = 1 - self.bias - self.mantissa
        power = max(floor_log2(size) - self.mantissa, lowest) if size else lowest
        numerator, denominator = size.numerator, size.denominator
        if power >= 0:
            denominator <<= power
        else:
            numerator <<= -power
        count, rest = divmod(numerator, denominator)
        if rest:
            if mode == NEAREST:
                up = 2 * rest > denominator or (2 * rest == denominator and count & 1)
            else:
                up = (mode == UPWARD and not sign) or (mode == DOWNWARD and sign)
            count += bool(up)
        # count has at most mantissa + 1 bits or is one step above: adding it to the exponent carries correctly.
        magnitude = (power - lowest << self.mantissa) + count
        if magnitude >= self.infinity:
            down = mode == TOWARD_ZERO or (mode == UPWARD and sign) or (mode == DOWNWARD and not sign)
            magnitude = self.infinity - 1 if down else self.infinity
        return sign * self.sign_bit | magnitude


F16, F32, F64 = Binary(10, 5), Binary(23, 8), Binary(52, 11)
FORMATS = {"f16": F16, "f32": F32, "f64": F64, "bf16": Binary(7, 8)}


def first_nan(form: Binary, *sources: int) -> int | None:
    """The first NaN source, quieted."""
    for bits in sources:
        if form.is_nan(bits):
            return bits | form.quiet_bit
    return None


def fused(form: Binary, a: int, b: int, c: int, mode: int = NEAREST) -> int:
    """a * b + c of finite or infinite bits (no NaN), rounded once."""
    product_sign = form.sign(a) ^ form.sign(b)
    if form.is_infinite(a) or form.is_infinite(b):
        if form.is_zero(a) or form.is_zero(b):
            return form.nan
        if form.is_infinite(c) and form.sign(c) != product_sign:
            return form.nan
        return product_sign * form.sign_bit | form.infinity
    if form.is_infinite(c):
        return c
    product, addend = form.value(a) * form.value(b), form.value(c)
    if product + addend == 0:
        same = product == 0 and addend == 0 and product_sign == form.sign(c)
        return form.round(Fraction(0), mode, product_sign if same else int(mode == DOWNWARD))
    return form.round(product + addend, mode)


def add(form: Binary, a: int, b: int, mode: int = NEAREST) -> int:
    one = form.bias << form.mantissa
    return fused(form, a, one, b, mode)


def multiply(form: Binary, a: int, b: int, mode: int = NEAREST) -> int:
    if form.is_finite(a) and form.is_finite(b):
        return form.round(form.value(a) * form.value(b), mode, form.sign(a) ^ form.sign(b))
    if form.is_zero(a) or form.is_zero(b):
        return form.nan
    return (form.sign(a) ^ form.sign(b)) * form.sign_bit | form.infinity


@dataclass(frozen=True)
class Narrow:
    """A storage format of at most 8 bits. `special`: what the topmost codes mean, as OCP and FNUZ define them."""

    mantissa: int
    exponent: int
    bias: int
    special: str

    @property
    def sign_bit(self) -> int:
        return 1 << self.mantissa + self.exponent

    @property
    def largest(self) -> int:
        return {
            "ieee": self.sign_bit - (1 << self.mantissa) - 1,
            "fn": self.sign_bit - 2,
            "fnuz": self.sign_bit - 1,
            "finite": self.sign_bit - 1,
        }[self.special]

    def not_a_number(self, sign: int) -> int:
        if self.special == "fnuz":
            return self.sign_bit
        quiet = {"ieee": self.largest + 1 + (1 << self.mantissa - 1), "fn": self.sign_bit - 1, "finite": self.largest}
        return quiet[self.special] | sign * self.sign_bit

    def beyond(self, sign: int, saturate: bool) -> int:
        if saturate or self.special == "finite":
            return self.largest | sign * self.sign_bit
        if self.special == "ieee":
            return self.largest + 1 | sign * self.sign_bit
        return self.not_a_number(sign)

    def encode(self, value: Fraction, sign: int, saturate: bool, noise: Fraction | None = None) -> int:
        """Nearest even, or the floor after adding `noise` units of the last place."""
        size = abs(value)
        lowest = 1 - self.bias - self.mantissa
        power = max(floor_log2(size) - self.mantissa, lowest) if size else lowest
        count = size / Fraction(2) ** power
        whole = round(count) if noise is None else (count + noise).__floor__()
        code = (power - lowest << self.mantissa) + whole
        if code > self.largest:
            return self.beyond(sign, saturate)
        if self.special == "fnuz" and code == 0:
            return 0
        return code | sign * self.sign_bit

    def decode(self, code: int) -> Fraction | str:
        """The value, or "nan", "inf", "-inf"."""
        magnitude = code & self.sign_bit - 1
        if self.special == "fnuz" and code == self.sign_bit:
            return "nan"
        if magnitude > self.largest:
            infinite = self.special == "ieee" and magnitude == self.largest + 1
            return ("-inf" if code & self.sign_bit else "inf") if infinite else "nan"
        field, fraction = magnitude >> self.mantissa, magnitude & (1 << self.mantissa) - 1
        significand = fraction + (1 << self.mantissa if field else 0)
        value = Fraction(significand) * Fraction(2) ** (max(field, 1) - self.bias - self.mantissa)
        return -value if code & self.sign_bit else value


_SHARED = {"fp6": Narrow(3, 2, 1, "finite"), "bf6": Narrow(2, 3, 3, "finite"), "fp4": Narrow(1, 2, 1, "finite")}
NARROW = {
    "gfx942": _SHARED | {"fp8": Narrow(3, 4, 8, "fnuz"), "bf8": Narrow(2, 5, 16, "fnuz")},
    "gfx950": _SHARED | {"fp8": Narrow(3, 4, 7, "fn"), "bf8": Narrow(2, 5, 15, "ieee")},
}
