"""Narrow formats over all their codes, all 16-bit inputs and all ties, against ml_dtypes and exact rationals."""

from __future__ import annotations

import random
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from tilec.emulator import formats
from tilec.emulator.formats import Format

TWINS = {
    "f16": (formats.F16, np.float16),
    "bf16": (formats.BF16, ml_dtypes.bfloat16),
    "fp8 ocp": (formats.FP8_OCP, ml_dtypes.float8_e4m3fn),
    "bf8 ocp": (formats.BF8_OCP, ml_dtypes.float8_e5m2),
    "fp8 fnuz": (formats.FP8_FNUZ, ml_dtypes.float8_e4m3fnuz),
    "bf8 fnuz": (formats.BF8_FNUZ, ml_dtypes.float8_e5m2fnuz),
    "fp6": (formats.FP6, ml_dtypes.float6_e2m3fn),
    "bf6": (formats.BF6, ml_dtypes.float6_e3m2fn),
    "fp4": (formats.FP4, ml_dtypes.float4_e2m1fn),
}
EVERY = pytest.mark.parametrize("name", TWINS)


def codes_of(form: Format) -> np.ndarray:
    return np.arange(1 << form.bits).astype(form.dtype)


def finite_values(form: Format) -> list[Fraction]:
    """Distinct finite values in ascending order."""
    return sorted({Fraction(float(v)) for v in form.values if np.isfinite(v)})


def nearest(form: Format, x: Fraction) -> Fraction | None:
    """The value that nearest-even rounding gives, None beyond the largest; by search among all values."""
    values = finite_values(form)
    top = values[-1]
    unit = top - values[-2]
    if abs(x) >= top + unit / 2:
        return None
    if abs(x) > top:
        return top if x > 0 else -top
    index = next(i for i, v in enumerate(values) if v >= x)
    if values[index] == x:
        return x
    low, high = values[index - 1], values[index]
    if x - low != high - x:
        return low if x - low < high - x else high
    return min((low, high), key=lambda v: int(form.encode(np.array([float(v)]))[0]) & 1)


@EVERY
def test_decoding_every_code(name: str) -> None:
    form, twin = TWINS[name]
    codes = codes_of(form)
    want = codes.view(twin).astype(np.float32)
    got = form.decode(codes)
    assert np.array_equal(got, want, equal_nan=True)
    assert np.array_equal(np.signbit(got[~np.isnan(got)]), np.signbit(want[~np.isnan(want)]))
    pairs = form.decode(np.ascontiguousarray(codes[: len(codes) // 2 * 2].reshape(-1, 2)))
    assert np.array_equal(pairs.ravel(), want, equal_nan=True)


@EVERY
def test_every_number_encodes_to_its_code(name: str) -> None:
    form, _ = TWINS[name]
    codes = codes_of(form)
    numbers = ~np.isnan(form.values)
    assert np.array_equal(form.encode(form.values)[numbers], codes[numbers])
    assert np.isnan(form.decode(form.encode(np.float32([np.nan, -np.nan])))).all() == (form.special != "finite")


@EVERY
@pytest.mark.parametrize("source", ["f16", "bf16"])
def test_all_65536_inputs_round_as_ml_dtypes(name: str, source: str) -> None:
    form, twin = TWINS[name]
    x = codes_of(TWINS[source][0]).view(TWINS[source][1]).astype(np.float32)
    x = x[~np.isnan(x)]
    with np.errstate(over="ignore"):
        want = x.astype(twin).view(form.dtype)
    if form.special == "finite":  # ml_dtypes gives the largest number, as these formats must
        assert (np.abs(form.decode(want)[np.abs(x) > 1e4]) == form.values.max()).all()
    assert np.array_equal(form.encode(x), want)


@EVERY
def test_ties_and_their_neighbours(name: str) -> None:
    """Halfway between any two neighbouring values, and a hair to either side: the even code, or the nearer value."""
    form, _ = TWINS[name]
    if form.bits == 16:
        rng = random.Random(3)
        values = finite_values(form)
        picked = [rng.randrange(len(values) - 1) for _ in range(400)]
    else:
        values = finite_values(form)
        picked = range(len(values) - 1)
    for i in picked:
        low, high = values[i], values[i + 1]
        middle = (low + high) / 2
        hair = (high - low) / 2**20
        codes = form.encode(np.array([float(middle - hair), float(middle), float(middle + hair)]))
        got = [Fraction(float(v)) for v in form.decode(codes)]
        assert got[0] == low and got[2] == high
        assert got[1] in (low, high) and int(codes[1]) % 2 == 0


@pytest.mark.parametrize("name", [n for n, (f, _) in TWINS.items() if f.bits <= 8])
def test_search_among_all_values_agrees(name: str) -> None:
    form, _ = TWINS[name]
    rng = random.Random(5)
    top = float(finite_values(form)[-1])
    for _ in range(200):
        x = rng.choice([1, -1]) * top * 2.0 ** rng.uniform(-20, 0.2)
        want = nearest(form, Fraction(x))
        got = float(form.decode(form.encode(np.array([x])))[0])
        if want is None:
            assert abs(got) == top if form.special == "finite" else not np.isfinite(got)
        else:
            assert Fraction(got) == want


@EVERY
def test_overflow(name: str) -> None:
    """Without saturation infinity, NaN, or the largest where there is neither; with it always the largest."""
    form, _ = TWINS[name]
    top = form.values[np.isfinite(form.values)].max().astype(np.float64)
    x = np.array([top * 1.5, np.inf, -np.inf])
    plain = form.decode(form.encode(x))
    saturated = form.decode(form.encode(x, saturate=True))
    assert saturated.tolist() == [top, top, -top]
    if form.special == "ieee":
        assert plain.tolist() == [np.inf, np.inf, -np.inf]
    elif form.special == "finite":
        assert plain.tolist() == [top, top, -top]
    else:
        assert np.isnan(plain).all()


def test_fnuz_has_one_zero_and_one_nan() -> None:
    for form in (formats.FP8_FNUZ, formats.BF8_FNUZ):
        assert form.encode(np.float32([-0.0, -1e-30, np.nan, -np.nan])).tolist() == [0, 0, 0x80, 0x80]


def test_nan_codes() -> None:
    nans = np.float32([np.nan, -np.nan])
    assert formats.FP8_OCP.encode(nans).tolist() == [0x7F, 0xFF]
    assert formats.BF8_OCP.encode(nans).tolist() == [0x7E, 0xFE]
    assert formats.F16.encode(nans).tolist() == [0x7E00, 0xFE00]


def stochastic(form: Format, bits: int, noise: int, noise_bits: int) -> int:
    """Bit by bit on an f32: align the significand to the format's last place, add the noise below it, cut."""
    sign, exponent, significand = bits >> 31, bits >> 23 & 255, bits & 0x7FFFFF
    significand |= 0x800000 if exponent else 0
    exponent = max(exponent, 1) - 127
    lowest = 1 - form.bias
    dropped = 23 - form.mantissa + max(lowest - exponent, 0)
    # Noise counts as a fraction of the last place; both fractions on a common denominator.
    fine = max(dropped, noise_bits)
    total = (significand << fine - dropped) + (noise << fine - noise_bits)
    count = total >> fine
    code = (max(exponent, lowest) - lowest << form.mantissa) + count
    if code > form.largest_code:
        code = form.largest_code if form.special == "finite" else form.infinity_code
    if form.special == "fnuz" and code in (0, form.sign):
        return code
    return code | sign * form.sign


@pytest.mark.parametrize("name", [n for n in TWINS if n not in ("f16", "bf16")] + ["f16", "bf16"])
def test_stochastic_rounding_bit_by_bit(name: str) -> None:
    form, _ = TWINS[name]
    rng = random.Random(7)
    noise_bits = 23 - form.mantissa
    spread = 3 << form.exponent
    patterns, noises = [], []
    for _ in range(3000):
        exponent = min(max(127 + rng.randint(-spread, spread), 0), 254)
        patterns.append(rng.getrandbits(1) << 31 | exponent << 23 | rng.getrandbits(23))
        noises.append(rng.choice([0, 0xFFFFFFFF, rng.getrandbits(32)]))
    x = np.array(patterns, np.uint32).view(np.float32)
    got = form.encode(x, random=np.array(noises, np.uint32), random_bits=noise_bits)
    want = [stochastic(form, p, n >> 32 - noise_bits, noise_bits) for p, n in zip(patterns, noises)]
    assert got.tolist() == want


def test_stochastic_rounding_is_unbiased_over_all_noise() -> None:
    """Over all values of the top bits the mean is the input: 5 / 8 of the way up rounds up 5 times in 8."""
    x = np.full(8, np.float32(1 + 0.125 * 5 / 8))
    noise = (np.arange(8, dtype=np.uint32) << np.uint32(29)).astype(np.uint32)
    values = formats.FP8_OCP.decode(formats.FP8_OCP.encode(x, random=noise, random_bits=20))
    assert sorted(values.tolist()) == [1.0] * 3 + [1.125] * 5


def test_e8m0() -> None:
    want = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e8m0fnu).astype(np.float64)
    assert np.array_equal(formats.E8M0_VALUES, want, equal_nan=True)


def test_bf16_of_every_upper_half_with_every_kind_of_lower_half() -> None:
    upper = np.arange(1 << 16, dtype=np.uint32) << np.uint32(16)
    for lower in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF):
        x = (upper | np.uint32(lower)).view(np.float32)
        got = formats.f32_to_bf16(x)
        numbers = ~np.isnan(x)
        assert np.array_equal(got[numbers], x[numbers].astype(ml_dtypes.bfloat16).view(np.uint16))
        assert np.array_equal(got[~numbers], (upper[~numbers] >> np.uint32(16) | np.uint32(0x40)).astype(np.uint16))
    assert np.array_equal(formats.bf16_to_f32(np.arange(1 << 16).astype(np.uint16)).view(np.uint32), upper)


def test_f16_bits_to_f32_over_all_codes() -> None:
    codes = np.arange(1 << 16, dtype=np.uint32)
    got = formats.f16_bits_to_f32(codes << np.uint32(16))
    want = codes.astype(np.uint16).view(np.float16).astype(np.float32)
    assert np.array_equal(got, want, equal_nan=True)
    numbers = ~np.isnan(want)
    assert np.array_equal(np.signbit(got)[numbers], np.signbit(want)[numbers])


@pytest.mark.parametrize("bits", [4, 6, 8, 16])
def test_unpack_and_pack_are_the_bits_of_one_long_integer(bits: int) -> None:
    rng = random.Random(bits)
    words = [[[rng.getrandbits(32) for _ in range(64)] for _ in range(2)] for _ in range(6)]
    dwords = np.array(words, np.uint32)
    codes = formats.unpack(dwords, bits)
    assert codes.shape == (2, 6 * 32 // bits, 64)
    for wave in range(2):
        for lane in (0, 17, 63):
            whole = sum(words[i][wave][lane] << 32 * i for i in range(6))
            want = [whole >> bits * item & (1 << bits) - 1 for item in range(6 * 32 // bits)]
            assert codes[wave, :, lane].tolist() == want
    assert np.array_equal(formats.pack(codes.swapaxes(0, 1), bits), dwords)
