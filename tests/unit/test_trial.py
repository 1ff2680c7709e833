"""Data and comparison of trial runs."""

from __future__ import annotations

import numpy as np
import pytest

from tilec.dtypes import DTYPES
from tilec.errors import TilecError
from tilec.runtime.tensors import spec
from tilec.trial import DATA, compare, fill


@pytest.mark.parametrize("kind", DATA)
@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16", "i8", "u8", "i32", "u32", "i64", "bool", "fp8_e4m3fn"])
def test_fill(dtype: str, kind: str):
    tensor = spec(dtype, (37, 53), strides=(60, 1))
    array = fill(tensor, kind, np.random.default_rng(0))
    assert (array.shape, array.dtype, array.strides) == ((37, 53), DTYPES[dtype].numpy(), tensor.strides)
    values = array.astype(np.float64)
    assert len(np.unique(values)) > 1 and np.isfinite(values).all()
    if kind == "integers":
        assert (values == np.round(values)).all() and np.abs(values).max() <= 4
    elif DTYPES[dtype].is_float:
        assert 0.9 < values.std() < 1.1 and (values != np.round(values)).any()
    assert (array == fill(tensor, kind, np.random.default_rng(0))).all()
    assert not (array == fill(tensor, kind, np.random.default_rng(1))).all()


def test_fill_of_nothing():
    assert fill(spec("f32", (0, 5)), "normal", np.random.default_rng(0)).shape == (0, 5)


BF16 = DTYPES["bf16"]


def test_a_rounded_result_matches():
    want = np.random.default_rng(0).standard_normal((40, 50)) * 30
    result = compare("C", want.astype(BF16.numpy()), want, BF16)
    assert result.wrong == 0 and result.first is None and 0 < result.error < 0.5
    assert str(result) == f"C: 2000 elements match, error {result.error:.3g} (largest element {result.largest:.3g})"


@pytest.mark.parametrize("dtype, change", [("bf16", 2.0**-6), ("f16", 2.0**-9), ("f32", 2.0**-14), ("f64", 2.0**-40)])
def test_an_element_that_is_off_is_found(dtype: str, change: float):
    element = DTYPES[dtype]
    want = np.linspace(-1, 1, 1000)
    got = want.astype(element.numpy())
    assert compare("x", got, want, element).wrong == 0
    got[1] = want[1] * (1 + change)
    result = compare("x", got, want, element)
    assert result.wrong == 1 and result.first is not None and result.first[0] == (1,)


def test_integers_match_exactly():
    want = np.arange(12, dtype=np.int64).reshape(3, 4)
    got = want.astype(np.int32)
    assert compare("x", got, want, DTYPES["i32"]).wrong == 0
    got[2, 1] += 1
    assert str(compare("x", got, want, DTYPES["i32"])) == (
        "x: 1 of 12 elements are wrong, the first at [2, 1]: 10 instead of 9")


def test_special_values():
    want = np.array([np.nan, np.inf, -np.inf, 1e6, 1.0])
    f16 = DTYPES["f16"]
    with np.errstate(over="ignore"):
        got = want.astype(np.float16)                           # 1e6 overflows to infinity, as it should
    assert compare("x", got, want, f16).wrong == 0
    for wrong in (0.0, 1.0, np.inf):
        other = got.copy()
        other[0] = wrong
        assert compare("x", other, want, f16).wrong == 1
    other = got.copy()
    other[4] = np.nan
    assert compare("x", other, want, f16).wrong == 1
    other = got.copy()
    other[1] = -np.inf
    assert compare("x", other, want, f16).wrong == 1


def test_a_reference_of_another_shape():
    with pytest.raises(TilecError) as error:
        compare("C", np.zeros((2, 3)), np.zeros(6), DTYPES["f64"])
    assert str(error.value) == ("the reference of C has shape (6,), the tensor (2, 3)\n"
                                "  try: return an array of the tensor's own shape")
