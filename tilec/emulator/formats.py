"""Storage formats: bit codes to values and back, for everything narrower than f32.

Decoding is a table (or a shift for 16 bits) and exact. Encoding rounds to nearest even, or stochastically by given
random bits, and on overflow saturates, or gives infinity or NaN, whichever the format has. fp6 and fp4 have neither and
always saturate. gfx942 uses the FNUZ fp8 flavours, gfx950 the OCP ones, under the same mnemonics (facts: CDNA3 and
CDNA4 ISA guides, OCP 8-bit floating point 1.0 and microscaling formats 1.0).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Format:
    """A sign, `exponent` and `mantissa` bits with `bias`. `special` says what the topmost codes mean.

    ieee: infinities and NaNs in the last exponent · fn: only all-ones is NaN · fnuz: the code of -0 is the one NaN ·
    finite: all codes are numbers.
    """

    name: str
    exponent: int
    mantissa: int
    bias: int
    special: str

    @property
    def bits(self) -> int:
        return 1 + self.exponent + self.mantissa

    @property
    def sign(self) -> int:
        return 1 << self.exponent + self.mantissa

    @property
    def largest_code(self) -> int:
        """The magnitude code of the largest finite number."""
        return self.sign - {"ieee": (1 << self.mantissa) + 1, "fn": 2, "fnuz": 1, "finite": 1}[self.special]

    @property
    def infinity_code(self) -> int:
        """What a magnitude beyond the largest becomes without saturation: infinity if there is one, else NaN."""
        return self.largest_code + 1 if self.special == "ieee" else self.nan_code

    @property
    def nan_code(self) -> int:
        """The NaN that encoding makes of any NaN (a finite format makes its largest number)."""
        ieee = self.largest_code + 1 + (1 << self.mantissa - 1)
        return {"ieee": ieee, "fn": self.sign - 1, "fnuz": self.sign, "finite": self.largest_code}[self.special]

    @property
    def dtype(self) -> type:
        return np.uint8 if self.bits <= 8 else np.uint16

    @cached_property
    def values(self) -> Array:
        """float32 value of each code (all formats fit exactly)."""
        code = np.arange(1 << self.bits, dtype=np.int64)
        magnitude = code & self.sign - 1
        exponent = magnitude >> self.mantissa
        fraction = magnitude & (1 << self.mantissa) - 1
        significand = np.where(exponent > 0, fraction + (1 << self.mantissa), fraction).astype(np.float64)
        value = np.ldexp(significand, np.maximum(exponent, 1) - self.bias - self.mantissa)
        if self.special == "ieee":
            value = np.where(magnitude == self.largest_code + 1, np.inf, value)
            value = np.where(magnitude > self.largest_code + 1, np.nan, value)
        elif self.special == "fn":
            value = np.where(magnitude > self.largest_code, np.nan, value)
        value = np.where(code & self.sign, -value, value)
        if self.special == "fnuz":
            value = np.where(code == self.sign, np.nan, value)
        return value.astype(np.float32)

    @cached_property
    def _value_pairs(self) -> Array:
        """Two neighbouring codes at a time, as one uint64 of two float32: halves the look-ups."""
        pairs = np.arange(1 << 16)
        both = np.stack(
            [self.values[(pairs & 0xFF) % len(self.values)], self.values[(pairs >> 8) % len(self.values)]], 1
        )
        return np.ascontiguousarray(both).view(np.uint64)[:, 0]

    def decode(self, codes: Array) -> Array:
        """float32 values of codes; bits beyond the format must be zero."""
        if codes.dtype == np.uint8 and codes.shape[-1] % 2 == 0 and codes.flags.c_contiguous:
            return self._value_pairs[codes.view(np.uint16)].view(np.float32)
        return self.values[codes]

    def encode(self, x: Array, *, saturate: bool = False, random: Array | None = None, random_bits: int = 0) -> Array:
        """Codes of float32 or float64 values, rounded once.

        Nearest even, or, with `random` (uint32, of which the top `random_bits` count), truncated after adding that
        fraction of the last place. Infinity saturates with `saturate`, NaN never does unless the format lacks one.
        """
        x = x if x.dtype == np.float64 else x.astype(np.float32, copy=False)
        if random is not None:
            x = np.ascontiguousarray(np.broadcast_to(x, np.broadcast_shapes(x.shape, random.shape)))
        unsigned, mantissa, bias = (np.uint32, 23, 127) if x.dtype == np.float32 else (np.uint64, 52, 1023)
        bits = x.view(unsigned)
        magnitude = bits & unsigned((1 << 8 * x.dtype.itemsize - 1) - 1)
        drop = mantissa - self.mantissa
        noise = None if random is None else random >> np.uint32(32 - random_bits)
        if noise is None:
            increment = (magnitude >> unsigned(drop) & unsigned(1)) + unsigned((1 << drop - 1) - 1)
        else:
            increment = noise.astype(unsigned) << unsigned(drop - random_bits)
        codes = ((magnitude + increment) >> unsigned(drop)).astype(np.int32) - np.int32(
            bias - self.bias << self.mantissa
        )
        small = np.abs(x) < 2.0 ** (1 - self.bias)  # below the normal numbers the unit stays the same
        if small.any():
            count = np.ldexp(np.abs(x[small], dtype=np.float64), self.mantissa + self.bias - 1)
            if noise is None:
                count = np.rint(count)
            else:
                noise = np.broadcast_to(noise, x.shape)[small]
                count = np.floor(count + np.ldexp(noise.astype(np.float64), -random_bits))
            codes[small] = count.astype(np.int32)
        overflow = codes > self.largest_code
        if overflow.any():  # infinity and NaN are among them
            beyond = self.largest_code if saturate or self.special == "finite" else self.infinity_code
            codes[overflow] = np.where(np.isnan(x[overflow]), self.nan_code, beyond)
        sign = (bits >> unsigned(8 * x.dtype.itemsize - self.bits)).astype(np.int32) & np.int32(self.sign)
        if self.special == "fnuz":
            sign = np.where(codes == 0, np.int32(0), sign)
        return (codes | sign).astype(self.dtype)


F16 = Format("f16", 5, 10, 15, "ieee")
BF16 = Format("bf16", 8, 7, 127, "ieee")
FP8_OCP = Format("fp8", 4, 3, 7, "fn")
BF8_OCP = Format("bf8", 5, 2, 15, "ieee")
FP8_FNUZ = Format("fp8", 4, 3, 8, "fnuz")
BF8_FNUZ = Format("bf8", 5, 2, 16, "fnuz")
FP6 = Format("fp6", 2, 3, 1, "finite")  # e2m3
BF6 = Format("bf6", 3, 2, 3, "finite")  # e3m2
FP4 = Format("fp4", 2, 1, 1, "finite")  # e2m1

_COMMON = {"f16": F16, "bf16": BF16, "fp6": FP6, "bf6": BF6, "fp4": FP4}
FORMATS: dict[str, dict[str, Format]] = {
    "gfx942": _COMMON | {"fp8": FP8_FNUZ, "bf8": BF8_FNUZ},
    "gfx950": _COMMON | {"fp8": FP8_OCP, "bf8": BF8_OCP},
}

# E8M0: a power of two without sign, bias 127, 255 is NaN.
E8M0_VALUES: Array = np.ldexp(1.0, np.arange(256) - 127).astype(np.float64)
E8M0_VALUES[255] = np.nan


def f16_bits_to_f32(widened: Array) -> Array:
    """float32 of f16 codes that stand in the upper halves of uint32; the argument is overwritten.

    Shifting the exponent into place and multiplying by 2**112 is exact, denormals included; infinities and NaNs are
    mended.
    """
    signed = widened.view(np.int32)
    signed >>= 3
    widened &= np.uint32(0x8FFFFFFF)
    values = widened.view(np.float32)
    values *= np.float32(2.0**112)
    if values.size and max(values.max(), -values.min()) >= 65536:
        special = np.abs(values) >= 65536
        values[special] = np.where(np.abs(values[special]) == 65536, np.copysign(np.inf, values[special]), np.nan)
    return values


def bf16_to_f32(codes: Array) -> Array:
    """float32 of raw bf16 codes (uint16), every NaN payload kept."""
    return (codes.astype(np.uint32) << np.uint32(16)).view(np.float32)


def f32_to_bf16(x: Array) -> Array:
    """Raw bf16 codes (uint16) of float32, nearest even; a NaN keeps its upper payload and becomes quiet."""
    bits = x.view(np.uint32)
    rounded = (bits + (np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1)))) >> np.uint32(16)
    nan = x != x
    if nan.any():
        rounded = np.where(nan, bits >> np.uint32(16) | np.uint32(0x40), rounded)
    return rounded.astype(np.uint16)


def unpack(dwords: Array, bits: int) -> Array:
    """The little-endian fields of `bits` (4, 6, 8 or 16) in dwords [n, W, 64], as codes [W, 32 n / bits, 64]."""
    dtype = np.uint16 if bits == 16 else np.uint8
    units = dwords.view(dtype).reshape(*dwords.shape, -1).transpose(1, 0, 3, 2)
    units = np.ascontiguousarray(units).reshape(dwords.shape[1], -1, dwords.shape[2])
    if bits in (8, 16):
        return units
    codes = np.empty((units.shape[0], units.shape[1] * 8 // bits, units.shape[2]), np.uint8)
    if bits == 4:
        np.bitwise_and(units, np.uint8(15), out=codes[:, 0::2])
        np.right_shift(units, np.uint8(4), out=codes[:, 1::2])
        return codes
    first, second, third = (units[:, i::3] for i in range(3))  # four 6-bit fields in three bytes
    mask = np.uint8(63)
    codes[:, 0::4] = first & mask
    codes[:, 1::4] = (first >> np.uint8(6) | second << np.uint8(2)) & mask
    codes[:, 2::4] = (second >> np.uint8(4) | third << np.uint8(4)) & mask
    codes[:, 3::4] = third >> np.uint8(2)
    return codes


def pack(codes: Array, bits: int) -> Array:
    """Codes [items, ...] as little-endian fields of dwords [ceil(items * bits / 32), ...]."""
    items = codes.shape[0]
    dwords = np.zeros(((items * bits + 31) // 32, *codes.shape[1:]), np.uint32)
    for item in range(items):
        dword, shift = divmod(item * bits, 32)
        field = codes[item].astype(np.uint32)
        dwords[dword] |= field << np.uint32(shift)
        if shift + bits > 32:
            dwords[dword + 1] |= field >> np.uint32(32 - shift)
    return dwords
