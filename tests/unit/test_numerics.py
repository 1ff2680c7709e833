"""numerics: formats and casts against ml_dtypes, rounding against exact rationals, documented edge cases one by one."""

from fractions import Fraction

import numpy as np
import pytest

from tilec import dtypes
from tilec.dtypes import DTYPES, bf16, f16, f32, f64, i8, i32, i64, u8, u32, u64
from tilec.ir import numerics

SMALL = [t for t in DTYPES.values() if t.is_float and t.bits <= 16]
TABLED = [t for t in SMALL if t.bits <= 8]
INF, NAN = np.inf, np.nan


def edge_floats() -> np.ndarray:
    """Every bf16 value, some f32 neighbours of ties, and random f32 bit patterns."""
    rng = np.random.default_rng(7)
    all_bf16 = (np.arange(1 << 16, dtype=np.uint32) << 16)
    near_ties = [all_bf16 + offset for offset in (0, 0x7FFF, 0x8000, 0x8001)]
    bits = np.concatenate([*near_ties, rng.integers(0, 1 << 32, 20000, np.uint32)])
    return bits.astype(np.uint32).view(np.float32)


def same(a, b) -> bool:
    a, b = np.asarray(a), np.asarray(b)
    equal = (a == b) & (np.signbit(a) == np.signbit(b)) | (np.isnan(a) & np.isnan(b))
    return a.dtype == b.dtype and bool(equal.all())


@pytest.mark.parametrize("element", SMALL, ids=str)
def test_every_code_decodes_as_in_ml_dtypes_and_encodes_back(element):
    codes = np.arange(1 << element.bits).astype(np.uint8 if element.bits <= 8 else np.uint16)
    values = numerics.decode(codes.view(numerics.storage_of(element)), element)
    assert same(values.astype(np.float32), codes.view(element.numpy()).astype(np.float32))
    number = ~np.isnan(values)
    assert np.array_equal(numerics.encode(values, element).view(codes.dtype)[number], codes[number])
    assert np.isnan(numerics.decode(numerics.encode(values, element), element)[~number]).all()


@pytest.mark.parametrize("element", [t for t in SMALL if t.specials not in ("scale", "finite")], ids=str)
def test_rounding_is_that_of_ml_dtypes(element):  # BL-58, BL-59
    values = edge_floats()
    with np.errstate(all="ignore"):
        expected = values.astype(element.numpy()).astype(np.float32)
    assert same(numerics.round_to(values, element).astype(np.float32), expected)


@pytest.mark.parametrize("element", [t for t in SMALL if t.specials == "finite"], ids=str)
def test_types_without_infinity_saturate(element):
    values = edge_floats()
    rounded = numerics.round_to(values, element)
    inside = np.abs(values) <= element.limits[1]
    assert same(rounded[inside], values[inside].astype(element.numpy()).astype(np.float32))
    assert (np.abs(rounded[~inside]) == element.limits[1]).all()


def test_scales_round_to_powers_of_two():
    assert numerics.round_to(np.float32([1, 3, 2.0**-127, 5, -1, NAN, INF]), dtypes.e8m0) == pytest.approx(
        [1, 2, 2.0**-127, 4, NAN, NAN, NAN], nan_ok=True)


@pytest.mark.parametrize("element", SMALL, ids=str)
def test_saturation_keeps_finite_values_finite(element):
    values = np.float64([1e300, -1e300, INF, 1.0])
    low, high = element.limits
    result = numerics.round_to(values, element, saturate=True).astype(np.float64)
    if element.is_signed:
        assert result[1] == low
    assert result[0] == high and result[3] == 1
    assert not np.isfinite(result[2]) or element.specials == "finite"


def test_f64_to_16_bits_goes_through_f32():
    just_above_tie = 1 + 2.0**-8 + 2.0**-40      # in f32 this is the tie, which goes to even
    assert numerics.round_to(np.float64(just_above_tie), bf16) == 1


@pytest.mark.parametrize(("value", "target", "expected"), [
    (2.9, i32, 2), (-2.9, i32, -2), (NAN, i32, 0), (INF, i32, 2**31 - 1), (-INF, i32, -(2**31)), (3e9, i32, 2**31 - 1),
    (-1.5, u8, 0), (300.0, u8, 255), (-129.0, i8, -128), (2.0**63, i64, 2**63 - 1), (-(2.0**63), i64, -(2**63)),
    (2.0**64, u64, 2**64 - 1),
    (2.0**62, i64, 2**62), (4294967295.0, u32, 2**32 - 1)])
def test_float_to_integer_truncates_and_clamps(value, target, expected):
    result = numerics.cast(np.float64([value]), f64, target)
    assert result.dtype == target.numpy() and result[0] == expected
    assert numerics.cast(np.float64(value), f64, target) == expected


def test_integer_casts_wrap_and_bool_is_not_zero():
    assert numerics.cast(np.int32([-1, 256, 200]), i32, u8).tolist() == [255, 0, 200]
    assert numerics.cast(np.float32([0.0, -0.0, NAN, 0.5]), f32, dtypes.bool_).tolist() == [False, False, True, True]
    assert numerics.cast(np.bool_(True), dtypes.bool_, f32) == 1
    assert numerics.cast(np.int32([2049, 65520]), i32, f16).tolist() == [2048.0, INF]
    assert [int(numerics.constant(v, t)) for v, t in ((-1, u32), (2**63, u64), (-128, i8))] == [2**32 - 1, 2**63, -128]


def test_integer_division_floors_and_never_traps():
    numbers = [0, 1, -1, 2, -2, 7, -7, 2**31 - 1, -(2**31)]
    for a in numbers:
        for b in numbers:
            got = [int(numerics.elementwise(f, (np.int32(a), np.int32(b)), i32, i32)) for f in ("floordiv", "mod")]
            wrapped = (a // b + 2**31) % 2**32 - 2**31 if b else 0
            assert got == [wrapped, a % b if b else 0], (a, b)


def test_minimum_and_maximum_ignore_nan_and_order_zeros():
    a, b = np.float32([NAN, 1, 0.0, -0.0, NAN]), np.float32([2, NAN, -0.0, 0.0, NAN])
    assert same(numerics.elementwise("minimum", (a, b), f32, f32), np.float32([2, 1, -0.0, -0.0, NAN]))
    assert same(numerics.elementwise("maximum", (a, b), f32, f32), np.float32([2, 1, 0.0, 0.0, NAN]))


def test_shifts_take_their_amount_modulo_the_width():
    shifted = numerics.elementwise("shl", (np.int32([1, 1, 3]), np.int32([31, 33, -1])), i32, i32)
    assert shifted.tolist() == [-(2**31), 2, -(2**31)]
    assert numerics.elementwise("shr", (np.int32(-8), np.int32(1)), i32, i32) == -4
    assert numerics.elementwise("shr", (np.uint32(2**32 - 8), np.uint32(1)), u32, u32) == 2**31 - 4


def exact_f32(value: Fraction) -> np.float32:
    """The f32 nearest to a rational, by comparing neighbours."""
    guess = np.float32(float(value))
    near = [c for c in (guess, *(np.nextafter(guess, np.float32(d)) for d in (-INF, INF))) if np.isfinite(c)]
    return min(near, key=lambda c: (abs(Fraction(float(c)) - value), int(c.view(np.int32)) & 1))


def test_fma_rounds_once():
    rng = np.random.default_rng(3)
    a = rng.integers(1, 1 << 24, 4000).astype(np.float32)
    b = rng.integers(1, 1 << 24, 4000).astype(np.float32)
    nearly = (1 + rng.integers(-3, 4, 4000) * 2.0**-23) * 2.0 ** rng.integers(-30, 1, 4000)
    c = (-a.astype(np.float64) * b * nearly).astype(np.float32)
    got = numerics.elementwise("fma", (a, b, c), f32, f32)
    numbers = zip(a.tolist(), b.tolist(), c.tolist())
    expected = [exact_f32(Fraction(x) * Fraction(y) + Fraction(z)) for x, y, z in numbers]
    assert np.array_equal(got, expected)
    tie = (np.float32(1 + 2.0**-23), np.float32(1 + 2.0**-23), np.float32(2.0**-60))     # f64 alone would lose 2^-60
    assert numerics.elementwise("fma", tie, f32, f32) == exact_f32(Fraction(float(tie[0])) ** 2 + Fraction(2) ** -60)
    assert numerics.elementwise("fma", (1 + 2.0**-52, 1 - 2.0**-52, -1.0), f64, f64) == -(2.0**-104)


def test_sixteen_bit_arithmetic_rounds_once_from_f32():
    assert numerics.elementwise("add", (np.float32(1), np.float32(2.0**-8)), bf16, bf16) == 1
    assert numerics.elementwise("add", (np.float32(1), np.float32(3 * 2.0**-8)), bf16, bf16) == 1 + 2.0**-6
    assert numerics.elementwise("mul", (np.float16(300), np.float16(300)), f16, f16) == INF
    exp = numerics.elementwise("exp2", (np.float16([0.5]),), f16, f16)
    assert exp.dtype == np.float16 and exp[0] == np.float16(2**0.5)


def test_reduce():
    values = np.array([[1, NAN, -0.0], [3, NAN, 0.0]], np.float32)
    assert same(numerics.reduce("max", values, 0, f32), np.float32([3, NAN, 0.0]))
    assert same(numerics.reduce("min", values, 0, f32), np.float32([1, NAN, -0.0]))
    assert numerics.reduce("sum", np.full(3, 100, np.int8), 0, i8) == 300 - 256
    assert numerics.reduce("sum", np.full(4096, 1.0, np.float16), 0, f16) == 4096
    assert numerics.reduce("max", np.int32([[1, 5, 2, 4, 3]]), 1, i32).tolist() == [5]


def test_dot():
    rng = np.random.default_rng(5)
    a, b = rng.integers(-128, 128, (16, 40)).astype(np.int8), rng.integers(-128, 128, (40, 8)).astype(np.int8)
    start = np.full((16, 8), 2**31 - 1, np.int32)
    assert np.array_equal(numerics.dot(a, b, start, i32), start + a.astype(np.int32) @ b.astype(np.int32))
    wide = np.full((1, 2), 2**30, np.int32)
    assert numerics.dot(wide, wide.T, np.zeros((1, 1), np.int32), i32) == 0
    assert numerics.dot(np.float32([[1e8, 1, -1e8]]), np.float32([[1], [1], [1]]), np.float32([[0]]), f32) == 1
