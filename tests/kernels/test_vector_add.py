"""vector_add: lengths, types, starts, steps, one object for all lengths."""

from __future__ import annotations

import numpy as np
import pytest

import tilec as tc
from kernels.vector_add import reference, vector_add
from tests.support.numbers import integers, normal
from tests.support.placing import PLACES, placed
from tests.support.proving import prove, prove_chain, run_and_compare
from tilec.dtypes import DTYPES

TYPES = ("f64", "f32", "f16", "bf16", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")


def problem(length: int, dtype: str, place: str = "dense", offset: int = 0) -> tuple[dict[str, np.ndarray], ...]:
    element = DTYPES[dtype]
    data = [normal((length,), dtype, 1), normal((length,), dtype, 2)] if element.is_float else \
        [integers((length,), dtype, seed, high=100) for seed in (1, 2)]
    data.append(np.zeros(length, element.numpy()))
    arguments = {name: placed(array, PLACES[place], offset) for name, array in zip("ABC", data)}
    with np.errstate(over="ignore"):
        return arguments, {"C": data[0] + data[1]}       # one rounding to nearest, on either side: bit for bit


@pytest.mark.parametrize("length", [0, 1, 2, 3, 255, 256, 257, 511, 1023, 1024, 1025, 5000])
def test_lengths(length, arch):                                          # BL-41, BL-67
    arguments, expected = problem(length, "f32")
    prove_chain(vector_add, arguments, arch, expected, BN=256)


@pytest.mark.parametrize("dtype", TYPES)
def test_types(dtype, arch):                                             # BL-58
    arguments, expected = problem(700, dtype)
    prove_chain(vector_add, arguments, arch, expected, BN=512)


@pytest.mark.parametrize("place", ["every_third", "backwards"])
@pytest.mark.parametrize("dtype", ["f32", "bf16", "i8", "f64"])
def test_steps(place, dtype, arch):                                      # BL-76
    arguments, expected = problem(300, dtype, place)
    prove(vector_add, arguments, arch, expected, BN=256)


@pytest.mark.parametrize("offset", [1, 2, 3, 5, 8, 15])
@pytest.mark.parametrize("dtype", ["f32", "bf16", "i8"])
def test_odd_starts(offset, dtype, arch):                                # BL-38
    arguments, expected = problem(299, dtype, offset=offset)
    prove(vector_add, arguments, arch, expected, BN=128)


def test_one_object_serves_all_lengths(arch):                            # BL-32
    compiled = vector_add.compile(*[tc.spec("bf16", (100,), align=2)] * 3, arch=arch, verify=True)
    for length in [0, 1, 2, 63, 64, 65, 1000, 1023, 1024, 1025, 2047, 2049, 10_000]:
        arguments, expected = problem(length, "bf16", offset=length % 9)
        run_and_compare(compiled, arguments, expected)


def test_in_place_and_from_one_tensor(arch):
    arguments, _ = problem(1000, "f32")
    arguments["B"] = arguments["C"] = arguments["A"]
    prove(vector_add, arguments, arch, dict.fromkeys("ABC", 2 * arguments["A"]), BN=256)


def test_repeated_element(arch):                                         # BL-76
    arguments, _ = problem(400, "f32")
    arguments["B"] = placed(np.full(400, 3, np.float32), lambda shape: (0,))
    prove(vector_add, arguments, arch, {"C": arguments["A"] + np.float32(3)}, BN=256)


def test_what_a_float_can_hold(arch):                                    # BL-59
    edges = np.array([0.0, -0.0, 1e-45, -1e-45, 1.1e-38, -1e-39, 3.4e38, -3.4e38, np.inf, -np.inf, np.nan, 1, -1, 1e-7],
                     np.float32)
    a, b = (m.ravel() for m in np.meshgrid(edges, edges))
    arguments = {"A": placed(a), "B": placed(b), "C": placed(np.zeros_like(a))}
    with np.errstate(over="ignore", invalid="ignore"):
        prove_chain(vector_add, arguments, arch, {"C": a + b}, BN=256)


@pytest.mark.parametrize("waves", [1, 2, 4, 8, 16])
def test_waves(waves, arch):
    arguments, expected = problem(1500, "f32")
    prove(tc.kernel(vector_add.function, waves=waves), arguments, arch, expected)


def test_the_reference_of_the_file_agrees():
    arguments, expected = problem(100, "f32")
    assert np.allclose(reference(**arguments)["C"], expected["C"], rtol=1e-6)
