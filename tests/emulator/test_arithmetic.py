"""Sums, products and fma against exact rationals: every rounding direction and denormal setting, NaN payloads, ties."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from tests.emulator import reference
from tilec.emulator import arithmetic
from tilec.emulator.mode import Mode

FORMS = {"f16": arithmetic.F16, "f32": arithmetic.F32, "f64": arithmetic.F64}


def edge_bits(form: reference.Binary) -> list[int]:
    """Zeros, denormals, powers, neighbours of one, the largest, infinity, quiet and signaling NaNs, in both signs."""
    one, least = form.bias << form.mantissa, 1 << form.mantissa
    sizes = [
        0, 1, 2, 3, least - 1, least, least + 1, one - least, one - 1, one, one + 1, one + 2, one + least + 1,
        (form.bias + form.mantissa << form.mantissa) + 1, form.infinity - 1, form.infinity, form.nan, form.nan + 5,
        form.infinity + 1,
    ]  # fmt: skip
    return [size | sign for size in sizes for sign in (0, form.sign_bit)]


def random_bits(form: reference.Binary, rng: random.Random, near: int | None = None) -> int:
    """Random bits; with `near`, an exponent close to that of the given number."""
    bits = rng.getrandbits(form.width)
    if near is not None:
        field = min(max(form.field(near) + rng.randint(-form.mantissa - 3, form.mantissa + 3), 0), 2 * form.bias)
        bits = bits & ~form.infinity | field << form.mantissa
    if rng.random() < 0.3:  # few significant bits, to hit ties
        keep = rng.randint(1, 4)
        bits &= ~((1 << form.mantissa - keep) - 1)
    return bits


def triples(form: reference.Binary, count: int, seed: int) -> list[tuple[int, int, int]]:
    """Edge values in all combinations of two, and random triples whose product and addend overlap."""
    rng = random.Random(seed)
    edges = edge_bits(form)
    result = [(a, b, rng.choice(edges)) for a, b in itertools.product(edges, edges)]
    one = form.bias << form.mantissa
    for _ in range(count):
        a = random_bits(form, rng, one)
        b = random_bits(form, rng, one)
        product = reference.multiply(form, a, b) if form.is_finite(a) and form.is_finite(b) else a
        if rng.random() < 0.2 and form.is_finite(product):  # almost cancelling, or half a unit away
            result.append((a, b, product ^ form.sign_bit))
        result.append((a, b, random_bits(form, rng, product)))
        result.append((random_bits(form, rng), random_bits(form, rng), random_bits(form, rng)))
    return result


def columns(form: arithmetic.Float, cases: list[tuple[int, ...]]) -> list[np.ndarray]:
    return [np.array(column, form.bits).view(form.dtype) for column in zip(*cases)]


def expected(
    form: reference.Binary, operation: str, mode: Mode, keep: int, rounding: int, sources: tuple[int, ...]
) -> int:
    nan = reference.first_nan(form, *sources)
    if nan is not None:
        return nan
    sources = tuple(form.flushed(bits, keep & 1) for bits in sources)
    compute = {"add": reference.add, "multiply": reference.multiply, "fma": reference.fused}[operation]
    return form.flushed(compute(form, *sources, rounding), keep & 2)


TABLES = {"add": (arithmetic.ADD, 2), "multiply": (arithmetic.MULTIPLY, 2), "fma": (arithmetic.FMA, 3)}


@pytest.mark.parametrize("operation", TABLES)
@pytest.mark.parametrize("name", FORMS)
def test_one_rounding_in_every_direction(name: str, operation: str) -> None:
    form, model = FORMS[name], reference.FORMATS[name]
    table, arity = TABLES[operation]
    cases = [case[:arity] for case in triples(model, 1500, seed=len(name) + arity)]
    sources = columns(form, cases)
    for rounding, denormals in ((0, 3), (1, 3), (2, 3), (3, 3), (0, 0), (0, 1), (0, 2), (2, 0)):
        mode = Mode(round32=rounding, round64=rounding, denorm32=denormals, denorm64=denormals)
        with np.errstate(all="ignore"):
            result = table[form](mode, *sources).view(form.bits)
        for case, bits in zip(cases, result.tolist()):
            want = expected(model, operation, mode, denormals, rounding, case)
            assert bits == want, (rounding, denormals, [hex(x) for x in case], hex(bits), hex(want))


def test_f32_fma_rounds_once_where_float64_would_round_twice() -> None:
    """(1 + 2**-20) (1 - 2**-20) 2**-24 is 2**-64 short of half a unit; float64 loses that and makes a tie of it."""
    a, b = np.float32([1 + 2.0**-20]), np.float32([2.0**-24 * (1 - 2.0**-20)])
    c = np.float32([1 + 2.0**-23])
    for sign in (1, -1):
        result = arithmetic.FMA[arithmetic.F32](Mode(), a, np.float32(sign) * b, np.float32(sign) * c)
        assert result[0] == sign * c[0]


def test_mode_register_fields() -> None:
    mode = Mode.from_register(0b10_0000_0000 | 1 | 2 << 2 | 1 << 4 | 2 << 6 | 1 << 23, "gfx942")
    assert (mode.round32, mode.round64, mode.denorm32, mode.denorm64) == (1, 2, 1, 2)
    assert (mode.ieee, mode.dx10_clamp, mode.fp16_ovfl, mode.architecture) == (True, False, True, "gfx942")


def test_fp16_overflow_bit_clamps_f16_but_keeps_true_infinities() -> None:
    big = np.array([60000, -60000, np.inf], np.float16)
    with np.errstate(all="ignore"):
        result = arithmetic.ADD[arithmetic.F16](Mode(fp16_ovfl=True), big, big)
    assert result.tolist() == [65504, -65504, np.inf]


@pytest.mark.parametrize("name", FORMS)
def test_default_nan_is_positive_and_quiet(name: str) -> None:
    form = FORMS[name]
    infinity = np.array([np.inf], form.dtype)
    with np.errstate(all="ignore"):
        result = arithmetic.ADD[form](Mode(), infinity, -infinity)
    assert int(result.view(form.bits)[0]) == reference.FORMATS[name].nan
