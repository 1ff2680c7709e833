"""Element types: formats against ml_dtypes bit by bit, twins, promotion against numpy's rules, errors in full."""

import itertools
import math
import pickle
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

from tilec import dtypes
from tilec.dtypes import DTYPES, default_of, dtype, promote
from tilec.errors import TilecError

SMALL_FLOATS = [t for t in DTYPES.values() if t.is_float and t.bits <= 16]


def decode(t: dtypes.DType, bits: int) -> float:
    """The value of a bit pattern by the format's own fields, written independently of any conversion in tilec."""
    if t.specials == "scale":
        return math.nan if bits == 0xFF else 2.0 ** (bits - t.bias)
    sign = -1.0 if bits >> (t.bits - 1) else 1.0
    exponent, mantissa = bits >> t.mantissa & ((1 << t.exponent) - 1), bits & ((1 << t.mantissa) - 1)
    ones = exponent == (1 << t.exponent) - 1
    if t.specials == "ieee" and ones:
        return math.nan if mantissa else sign * math.inf
    if t.specials == "fn" and ones and mantissa == (1 << t.mantissa) - 1:
        return math.nan
    if t.specials == "fnuz" and sign < 0 and not exponent and not mantissa:
        return math.nan
    if not exponent:
        return sign * mantissa * 2.0 ** (1 - t.bias - t.mantissa)
    return sign * (1 + mantissa / (1 << t.mantissa)) * 2.0 ** (exponent - t.bias)


@pytest.mark.parametrize("t", SMALL_FLOATS, ids=str)
def test_bit_format_is_that_of_ml_dtypes(t):
    patterns = np.arange(1 << t.bits, dtype=np.uint32)
    stored = patterns.astype(np.uint16 if t.bits == 16 else np.uint8).view(t.numpy())
    with np.errstate(invalid="ignore"):  # signalling NaNs among the patterns
        expected = stored.astype(np.float64)
    got = np.array([decode(t, int(bits)) for bits in patterns])
    np.testing.assert_array_equal(got, expected)
    finite = got[np.isfinite(got)]
    assert (finite.min(), finite.max()) == t.limits


@pytest.mark.parametrize("t", list(DTYPES.values()), ids=str)
def test_twins_and_identity(t):
    assert dtype(t.name) is t and dtype(t) is t and pickle.loads(pickle.dumps(t)) is t
    assert dtype(t.numpy()) is t
    assert t.bits in (8 * t.numpy().itemsize, 6, 4)
    low, high = t.limits
    if t.is_integer:
        assert (low, high) == (np.iinfo(t.numpy()).min, np.iinfo(t.numpy()).max)
    elif t.is_float:
        assert high == float(ml_dtypes.finfo(t.numpy()).max)
    assert t.is_signed == (low < 0)


def test_names_of_other_libraries():
    class TorchLike:
        def __repr__(self):
            return "torch.float8_e4m3fnuz"

    assert dtype(TorchLike()) is dtypes.fp8_e4m3fnuz
    assert dtype("torch.bfloat16".removeprefix("torch.")) is dtypes.bf16
    assert dtype(np.float32) is dtypes.f32 and dtype(np.dtype("uint16")) is dtypes.u16
    assert (dtype(bool), dtype(int), dtype(float)) == (dtypes.bool_, dtypes.i32, dtypes.f32)
    assert dtypes.bf16.torch_name == "bfloat16" and dtypes.fp6_e2m3.torch_name == ""
    assert dtypes.fp4_e2m1.torch_name == "float4_e2m1fn_x2"


def test_unknown_name():
    with pytest.raises(TilecError) as error:
        dtype("float31")
    assert str(error.value) == f"no element type 'float31'\n  try: use one of {', '.join(DTYPES)}"


def test_import_does_not_load_torch_or_ml_dtypes():
    code = "import sys, tilec.dtypes; print([m for m in ('torch', 'ml_dtypes') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_packing():
    assert dtypes.fp6_e3m2.dwords_of(32) == 6 and dtypes.fp6_e3m2.bytes_of(3) == 3
    assert dtypes.bf16.dwords_of(3) == 2 and dtypes.fp4_e2m1.bytes_of(5) == 3 and dtypes.f64.dwords_of(1) == 2


INTEGERS = [t for t in DTYPES.values() if not t.is_float]


@pytest.mark.parametrize("left,right", list(itertools.product(INTEGERS, INTEGERS)), ids=str)
def test_integers_promote_as_in_numpy(left, right):
    expected = np.promote_types(left.numpy(), right.numpy())
    if expected.kind == "f":  # u64 with a signed type: numpy falls to float64, we refuse
        with pytest.raises(TilecError) as error:
            promote(left, right)
        assert str(error.value) == (f"no integer type holds both {left} and {right}\n"
                                    "  try: cast one side with .to(...)")
    else:
        assert promote(left, right) is dtype(expected)


def test_floats():
    d = dtypes
    assert promote(d.f16, d.bf16) is d.f32 and promote(d.bf16, d.f64) is d.f64 and promote(d.fp8_e5m2, d.bf16) is d.bf16
    assert promote(d.i64, d.f16) is d.f16 and promote(d.bool_, d.fp8_e4m3fn) is d.fp8_e4m3fn
    assert promote(d.fp8_e5m2, d.fp8_e5m2) is d.fp8_e5m2
    for left, right in ((d.fp8_e5m2, d.fp8_e4m3fn), (d.fp4_e2m1, d.fp8_e4m3fn), (d.fp6_e2m3, d.fp6_e3m2)):
        with pytest.raises(TilecError, match="no common type"):
            promote(left, right)
    with pytest.raises(TilecError) as error:
        promote(d.e8m0, 2.0)
    assert str(error.value) == "e8m0 is a scale, not a number: it has no arithmetic\n  try: cast it to f32 first"


def test_python_numbers_are_weak():
    d = dtypes
    assert promote(d.bf16, 2.5) is d.bf16 and promote(3, d.f16) is d.f16 and promote(d.u8, 255) is d.u8
    assert promote(d.i32, 2.5) is d.f32 and promote(d.bool_, 7) is d.i32 and promote(True, d.i8) is d.i8
    assert promote(1, 2.0) is d.f32 and promote(1 << 40, 1) is d.i64
    with pytest.raises(TilecError) as error:
        promote(d.u8, 256)
    assert str(error.value) == ("the integer 256 does not fit u8\n  limit: u8 holds 0 to 255\n"
                                "  try: cast the u8 side to a wider type first")
    for left, right in itertools.product(DTYPES.values(), (True, 1, 1.5)):
        if left is not d.e8m0:
            assert promote(left, right) is promote(right, left)


def test_defaults():
    expected = [dtypes.bool_, dtypes.i32, dtypes.i64, dtypes.u64, dtypes.f32]
    assert [default_of(value) for value in (True, 5, 1 << 31, 1 << 63, 1.0)] == expected
    with pytest.raises(TilecError, match="fits no element type"):
        default_of(1 << 64)
