"""transpose: every shape, place and element size; what is moved is compared bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

import tilec as tc
from kernels.transpose import transpose
from tests.support.numbers import integers
from tests.support.placing import PLACES, dense, odd_rows, placed, repeated_rows
from tests.support.proving import prove, prove_chain, run_and_compare
from tilec.dtypes import DTYPES

SMALL = {"BM": 32, "BN": 32}
Arrays = dict[str, np.ndarray]


def problem(m: int, n: int, dtype: str = "bf16", places: tuple[str, str] = ("odd_rows", "odd_rows"),
            offset: int = 0) -> tuple[Arrays, Arrays]:
    a = integers((m, n), dtype, m + n, high=1 if dtype == "bool" else 100)
    b = np.zeros((n, m), DTYPES[dtype].numpy())
    arguments = {"A": placed(a, PLACES[places[0]], offset), "B": placed(b, PLACES[places[1]], offset)}
    return arguments, {"B": a.T}


@pytest.mark.parametrize("m, n", [(1, 1), (0, 5), (5, 0), (1, 100), (100, 1), (31, 33), (32, 32), (33, 31), (64, 65),
                                  (100, 3), (97, 130)])
def test_shapes(m, n, arch):                                             # BL-41, BL-67
    arguments, expected = problem(m, n)
    prove_chain(transpose, arguments, arch, expected, **SMALL)


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16", "i8", "i16", "i32", "i64", "u8", "u64", "bool"])
def test_types(dtype, arch):
    arguments, expected = problem(50, 70, dtype, ("dense", "dense"))
    prove_chain(transpose, arguments, arch, expected, **SMALL)


@pytest.mark.parametrize("source", PLACES)
@pytest.mark.parametrize("target", PLACES)
def test_places(source, target, arch):                                   # BL-76
    arguments, expected = problem(35, 70, places=(source, target))
    prove(transpose, arguments, arch, expected, **SMALL)


@pytest.mark.parametrize("offset", [1, 2, 4, 7])
@pytest.mark.parametrize("dtype", ["i8", "bf16", "f32"])
def test_odd_starts(offset, dtype, arch):                                # BL-38
    arguments, expected = problem(50, 33, dtype, offset=offset)
    prove(transpose, arguments, arch, expected, **SMALL)


@pytest.mark.parametrize("m, n", [(1, 40), (40, 1), (1, 1)])
@pytest.mark.parametrize("place", ["dense", "backwards", "columns"])
def test_axes_of_size_1_with_odd_strides(m, n, place, arch):             # BL-76
    arguments, expected = problem(m, n, places=(place, place))
    prove(transpose, arguments, arch, expected, **SMALL)


def test_repeated_rows(arch):                                            # BL-76
    a = np.repeat(integers((1, 70), "bf16"), 40, axis=0)
    arguments = {"A": placed(a, repeated_rows), "B": placed(np.zeros((70, 40), a.dtype), dense)}
    prove(transpose, arguments, arch, {"B": a.T}, **SMALL)


def test_one_object_serves_all_shapes(arch):                             # BL-32
    compiled = transpose.compile(*[tc.spec("bf16", (99, 99), align=2)] * 2, arch=arch, verify=True)
    for m, n in [(1, 1), (64, 64), (65, 63), (2, 300), (300, 2), (0, 9), (100, 100), (129, 191)]:
        arguments, expected = problem(m, n, offset=m % 5)
        run_and_compare(compiled, arguments, expected)


@pytest.mark.parametrize("waves", [1, 2, 4, 8])
@pytest.mark.parametrize("bm, bn", [(64, 64), (16, 64), (128, 32)])
def test_waves_and_tiles(waves, bm, bn, arch):                           # BL-39
    arguments, expected = problem(bm + 1, 2 * bn + 3)
    prove(tc.kernel(transpose.function, waves=waves), arguments, arch, expected, BM=bm, BN=bn)


@pytest.mark.parametrize("landing", ["early", "random"])
@pytest.mark.parametrize("seed", range(3))
def test_any_order_of_waves_and_landings(landing, seed, arch):           # BL-05
    arguments = {"A": placed(integers((100, 90), "bf16"), odd_rows), "B": placed(np.zeros((90, 100), np.float16))}
    arguments["B"] = placed(np.zeros((90, 100), arguments["A"].dtype))
    prove(transpose, arguments, arch, {"B": arguments["A"].T}, seed=seed, landing=landing, **SMALL)
