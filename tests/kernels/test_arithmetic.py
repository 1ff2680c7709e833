"""Arithmetic of compiled kernels against numerics, operand by operand, on the numbers where it goes wrong: every cast,
division of tiles and of scalars with Python's floor semantics, every elementwise function of every type."""

from __future__ import annotations

import operator

import numpy as np
import pytest

import tilec as tc
from tilec.dtypes import DTYPES, DType
from tilec.ir import numerics
from tilec.ir.tile import ELEMENTWISE, accepts

TYPES = ("f64", "f32", "f16", "bf16", "i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "bool")
# Instructions within a few units in the last place of the correctly rounded result; denormal results may be 0.
APPROXIMATE = {"exp2": 4, "exp": 4, "log2": 8, "log": 8, "sqrt": 2, "rsqrt": 2, "sin": 0, "cos": 0}


@tc.kernel(waves=1)
def cast(A: tc.Tensor, B: tc.Tensor, N: tc.Const = 256):
    i = tc.program_id(B.tiles(N).grid[0])
    B.tiles(N)[i] = A.tiles(N)[i].to(B.dtype)


@tc.kernel(waves=1)
def divide(A: tc.Tensor, B: tc.Tensor, Q: tc.Tensor, R: tc.Tensor, N: tc.Const = 256):
    i = tc.program_id(A.tiles(N).grid[0])
    a, b = A.tiles(N)[i], B.tiles(N)[i]
    Q.tiles(N)[i] = a // b
    R.tiles(N)[i] = a % b


@tc.kernel(waves=1)
def divide_scalars(A: tc.Tensor, B: tc.Tensor, Q: tc.Tensor, R: tc.Tensor):
    tc.program_id(tc.scalar(1))
    for i in tc.range(A.shape[0]):
        a, b = A.at[i], B.at[i]
        Q.tiles(1)[i] = tc.full(1, value=a // b, dtype=Q.dtype)
        R.tiles(1)[i] = tc.full(1, value=a % b, dtype=R.dtype)


OPERATORS = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "neg": operator.neg,
    "not": operator.invert,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "eq": operator.eq,
    "ne": operator.ne,
}


@tc.kernel(waves=1)
def apply(A: tc.Tensor, B: tc.Tensor, C: tc.Tensor, function: tc.Const = "add", count: tc.Const = 2, N: tc.Const = 256):
    i = tc.program_id(C.tiles(N).grid[0])
    arguments = [A.tiles(N)[i], B.tiles(N)[i]][:count]
    C.tiles(N)[i] = (OPERATORS.get(function) or getattr(tc, function))(*arguments)


def edges(dtype: DType, random: int = 40) -> np.ndarray:
    """Numbers at the borders of a type and of the types beside it, ties, and random ones of all sizes."""
    chosen = np.random.default_rng(7)
    if dtype.kind == "bool":
        return np.array([True, False] * 8)
    if dtype.is_float:
        special = [
            0,
            -0.0,
            1,
            -1,
            0.5,
            1.5,
            2.5,
            127.5,
            128,
            255.9,
            -128.7,
            65504,
            65519,
            65520,
            1e5,
            2.0**31,
            -(2.0**31) - 1,
            2.0**32,
            2.0**53,
            2.0**63,
            2.0**64,
            -(2.0**63),
            1e30,
            -1e30,
            3.4e38,
            1e39,
            np.inf,
            -np.inf,
            np.nan,
            1e-40,
            6e-8,
            1.0039,
        ]
        spread = chosen.standard_normal(random) * 10.0 ** chosen.integers(-8, 20, random)
        with np.errstate(all="ignore"):
            return np.concatenate([special, spread]).astype(dtype.numpy())
    low, high = (int(v) for v in dtype.limits)
    half = 1 << dtype.bits // 2
    special = [
        0,
        1,
        2,
        3,
        7,
        -1,
        -2,
        -7,
        high,
        high - 1,
        low,
        low + 1,
        high // 2,
        high // 3,
        half,
        half - 1,
        2**24 + 1,
        2**53 + 1,
        2**62 + 2**38 + 1,
        2**62 + 2**38,
    ]
    spread = [int(v) >> int(s) for v, s in zip(chosen.integers(0, 2**63, random), chosen.integers(0, 63, random))]
    wrapped = np.array([v % 2**64 for v in (*special, *spread)], np.uint64)
    return wrapped.astype(dtype.numpy())


def raw(array: np.ndarray) -> np.ndarray:
    """bf16 as its bits, the others as they are."""
    return array.view(np.uint16) if array.dtype.name == "bfloat16" else array


def same(got: np.ndarray, wanted: np.ndarray, dtype: DType) -> np.ndarray:
    """Equal bits, any NaN for a NaN."""
    equal = got == wanted
    if dtype.is_float:
        values = [numerics.decode(a, dtype).astype(np.float64) for a in (got, wanted)]
        equal = (equal & (np.signbit(values[0]) == np.signbit(values[1]))) | np.isnan(values[0]) & np.isnan(values[1])
    return equal


@pytest.mark.parametrize("source", TYPES)
def test_casts(source, arch):  # BL-58, BL-59
    a = edges(DTYPES[source])
    for target in TYPES:
        b = np.zeros(len(a), DTYPES[target].numpy())
        assert not cast.run(a, b, arch=arch)
        wanted = numerics.encode(
            numerics.cast(numerics.decode(raw(a), DTYPES[source]), DTYPES[source], DTYPES[target]), DTYPES[target]
        )
        wrong = np.flatnonzero(~same(raw(b), wanted, DTYPES[target]))
        assert not len(wrong), (target, a[wrong[:3]], b[wrong[:3]], wanted[wrong[:3]])


def pairs(dtype: str, random: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    numbers = edges(DTYPES[dtype], random)
    a, b = (np.ascontiguousarray(x.reshape(-1)) for x in np.meshgrid(numbers, numbers))
    with np.errstate(all="ignore"):
        safe = np.where(b == 0, np.ones_like(b), b)
        return a, b, np.where(b == 0, 0, a // safe).astype(a.dtype), np.where(b == 0, 0, a % safe).astype(a.dtype)


@pytest.mark.parametrize("dtype", [t for t in TYPES if t[0] in "iu"])
def test_floor_division_of_tiles(dtype, arch):
    a, b, quotients, remainders = pairs(dtype, 20)
    q, r = np.zeros_like(a), np.zeros_like(a)
    assert not divide.run(a, b, q, r, arch=arch)
    np.testing.assert_array_equal(q, quotients)
    np.testing.assert_array_equal(r, remainders)


@pytest.mark.parametrize("dtype", ("i32", "u32", "i64", "u64"))
def test_floor_division_of_scalars(dtype, arch):
    a, b, quotients, remainders = pairs(dtype, 2)
    q, r = np.zeros_like(a), np.zeros_like(a)
    assert not divide_scalars.run(a, b, q, r, arch=arch)
    np.testing.assert_array_equal(q, quotients)
    np.testing.assert_array_equal(r, remainders)


def cases() -> list[tuple[str, str]]:
    """Every elementwise function of numbers that takes two arguments or one, with every type it accepts."""
    skipped = {"floordiv", "mod", "where", "fma", "shl", "shr"}  # tested above, or below in the random programs
    floats = ("div", "reciprocal")  # of integers, Python's / is a float
    return [
        (f, t)
        for f, (count, _) in ELEMENTWISE.items()
        if f not in skipped and count <= 2
        for t in TYPES
        if accepts(f, DTYPES[t])
        and DTYPES[t].kind != "bool"
        and (DTYPES[t].is_float or f not in floats)
        and (t != "f64" or f not in APPROXIMATE)
    ]


@pytest.mark.parametrize(("function", "dtype"), cases())
def test_elementwise(function, dtype, arch):  # BL-58
    count, kind = ELEMENTWISE[function]
    element = DTYPES[dtype]
    numbers = edges(element, 20)
    a, b = (np.ascontiguousarray(x.reshape(-1)[:2048]) for x in np.meshgrid(numbers, numbers))
    result = DTYPES["bool"] if kind == "bool" else element
    c = np.zeros(len(a), result.numpy())
    assert not apply.run(a, b, c, function=function, count=count, arch=arch)
    held = [numerics.decode(raw(x), element) for x in (a, b)][:count]
    wanted = numerics.elementwise(function, tuple(held), element, result)
    if function in APPROXIMATE:
        close(numerics.decode(raw(c), element), wanted, element, APPROXIMATE[function], function, held[0])
        return
    wrong = np.flatnonzero(~same(raw(c), numerics.encode(wanted, result), result))
    assert not len(wrong), [(a[w], b[w], c[w], wanted[w]) for w in wrong[:3]]


def close(got: np.ndarray, wanted: np.ndarray, element: DType, units: int, function: str, x: np.ndarray) -> None:
    """Within `units` in the last place; denormal results may be 0; sine and cosine lose what their argument in turns
    loses."""
    got, wanted, x = (np.asarray(v, np.float64) for v in (got, wanted, x))
    known = np.isfinite(wanted)
    np.testing.assert_array_equal(np.isnan(got[~known]), np.isnan(wanted[~known]))
    step = 2.0 ** -min(element.mantissa, 23)
    least = 2.0**-126
    allowed = (
        step * np.abs(wanted) * max(units, 1)
        + least
        + (2.0 ** (1 - element.bias - element.mantissa) if element.bits < 32 else 0)
    )
    if function in ("sin", "cos"):
        small = known & (np.abs(x) < 1e4)  # beyond, the reduction to turns says little
        known, allowed = small, allowed + 4 * 2.0**-23 * np.maximum(1, np.abs(x))
    if function in ("log", "log2"):
        allowed = allowed + 2.0**-22
    with np.errstate(invalid="ignore"):
        wrong = known & ~(np.abs(got - wanted) <= allowed)
    assert not wrong.any(), [(x[i], got[i], wanted[i]) for i in np.flatnonzero(wrong)[:3]]
