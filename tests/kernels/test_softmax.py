"""softmax: rows of any length that fits, within a derived bound; what lies behind a row never enters its sum."""

from __future__ import annotations

import numpy as np
import pytest

import tilec as tc
from kernels.softmax import reference, softmax
from tests.support.numbers import normal, softmax_bound
from tests.support.placing import PLACES, odd_rows, placed, repeated_rows
from tests.support.proving import prove, prove_chain, run_and_compare
from tilec.dtypes import DTYPES

SMALL = {"BM": 4, "BN": 128}
Arrays = dict[str, np.ndarray]


def problem(m: int, n: int, x_type: str = "f32", y_type: str = "f32", places: tuple[str, str] = ("odd_rows",) * 2,
            scale: float = 1.0, offset: int = 0) -> tuple[Arrays, Arrays, Arrays]:
    """Arguments, results, bounds."""
    x = (normal((m, n), x_type, m + n).astype(np.float64) * scale).astype(DTYPES[x_type].numpy())
    y = np.zeros((m, n), DTYPES[y_type].numpy())
    bound = softmax_bound(x, DTYPES[y_type]) if x.size else np.zeros((m, n))
    arguments = {"X": placed(x, PLACES[places[0]], offset), "Y": placed(y, PLACES[places[1]], offset)}
    return arguments, reference(x, y), {"Y": bound}


@pytest.mark.parametrize("m, n", [(1, 1), (0, 5), (5, 0), (3, 2), (4, 127), (5, 128), (9, 64), (1, 65), (13, 100)])
def test_shapes(m, n, arch):                                             # BL-42, BL-49, BL-53
    arguments, expected, bounds = problem(m, n)
    prove_chain(softmax, arguments, arch, expected, bounds=bounds, **SMALL)


@pytest.mark.parametrize("x_type, y_type", [("bf16", "bf16"), ("f16", "f16"), ("f32", "bf16"), ("bf16", "f32")])
def test_types(x_type, y_type, arch):
    arguments, expected, bounds = problem(7, 99, x_type, y_type)
    prove_chain(softmax, arguments, arch, expected, bounds=bounds, **SMALL)


@pytest.mark.parametrize("scale", [1e-3, 30.0, 1e4])
def test_flat_and_steep_rows(scale, arch):
    arguments, expected, bounds = problem(6, 120, scale=scale)
    prove(softmax, arguments, arch, expected, bounds=bounds, **SMALL)


@pytest.mark.parametrize("place", PLACES)
def test_places(place, arch):                                            # BL-76
    for places in ((place, "dense"), ("dense", place)):
        arguments, expected, bounds = problem(6, 77, "bf16", "bf16", places)
        prove(softmax, arguments, arch, expected, bounds=bounds, **SMALL)


@pytest.mark.parametrize("offset", [1, 2, 3])
def test_odd_starts(offset, arch):
    arguments, expected, bounds = problem(6, 77, "bf16", "bf16", offset=offset)
    prove(softmax, arguments, arch, expected, bounds=bounds, **SMALL)


def test_repeated_rows(arch):                                            # BL-76
    arguments, expected, bounds = problem(1, 77)
    many = placed(np.repeat(arguments["X"], 6, axis=0), repeated_rows)
    arguments = {"X": many, "Y": placed(np.zeros((6, 77), np.float32), odd_rows)}
    prove(softmax, arguments, arch, {"Y": np.repeat(expected["Y"], 6, 0)}, bounds={"Y": np.repeat(bounds["Y"], 6, 0)},
          **SMALL)


@pytest.mark.parametrize("m, n", [(1, 40), (6, 1), (1, 1)])
@pytest.mark.parametrize("place", ["dense", "columns", "backwards"])
def test_axes_of_size_1_with_odd_strides(m, n, place, arch):             # BL-76
    arguments, expected, bounds = problem(m, n, places=(place, place))
    prove(softmax, arguments, arch, expected, bounds=bounds, **SMALL)


@pytest.mark.parametrize("bm, bn", [(1, 64), (1, 1024), (2, 96), (4, 48), (8, 192), (16, 320), (3, 64), (5, 40)])
@pytest.mark.parametrize("waves", [1, 4, 8])
def test_tiles_and_waves(bm, bn, waves, arch):                           # BL-39, BL-42
    arguments, expected, bounds = problem(2 * bm + 1, bn - 5)
    prove(tc.kernel(softmax.function, waves=waves), arguments, arch, expected, bounds=bounds, BM=bm, BN=bn)


def test_one_object_serves_all_shapes(arch):                             # BL-32, BL-42
    compiled = softmax.compile(*[tc.spec("bf16", (9, 9), align=2)] * 2, arch=arch, verify=True, **SMALL)
    for m, n in [(1, 1), (0, 3), (3, 0), (4, 128), (5, 127), (2, 2), (17, 65), (40, 33), (1, 128), (128, 1)]:
        arguments, expected, bounds = problem(m, n, "bf16", "bf16", offset=m % 4)
        run_and_compare(compiled, arguments, expected, bounds=bounds)


@pytest.mark.slow
@pytest.mark.parametrize("n", range(1, 129))
def test_every_length(n, arch):                                          # BL-42
    arguments, expected, bounds = problem(5, n)
    prove(softmax, arguments, arch, expected, bounds=bounds, **SMALL)


def test_infinities_of_a_row(arch):
    arguments, _, _ = problem(4, 50)
    arguments["X"][0, 3] = -np.inf                 # has no weight
    arguments["X"][1, 7] = np.nan                  # spoils its row, and no other
    with np.errstate(invalid="ignore"):
        expected = reference(arguments["X"], arguments["Y"])
        bounds = {"Y": np.nan_to_num(softmax_bound(arguments["X"], DTYPES["f32"]), nan=1e-6)}
    assert expected["Y"][0, 3] == 0 and np.isnan(expected["Y"][1]).all() and np.isfinite(expected["Y"][2:]).all()
    prove(softmax, arguments, arch, expected, bounds=bounds, **SMALL)


def test_the_bound_is_tight_enough_to_see_one_more_element():
    """A padded element that enters the sum as 0, not as -infinity, shows in every row."""
    x = normal((6, 120), "f32")
    e = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    right, wrong = e / e.sum(axis=1, keepdims=True), e / (e.sum(axis=1, keepdims=True) + np.exp(-x.max(1))[:, None])
    assert (np.abs(right - wrong) > softmax_bound(x, DTYPES["f32"])).all()
