"""gemm on both architectures: every shape, place, type, wave grid; exact on integers, within a derived bound else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilec as tc
from kernels.gemm import gemm
from tests.support.numbers import dot_bound, integers, normal
from tests.support.placing import PLACES, backwards, columns, dense, every_third, odd_rows, placed, repeated_rows
from tests.support.proving import prove, prove_chain, run_and_compare
from tilec.dtypes import DTYPES
from tilec.errors import TilecError
from tilec.ir import tile

SMALL = {"BM": 64, "BN": 64, "BK": 32}


def problem(m: int, n: int, k: int, a_type: str = "bf16", c_type: str = "f32", places: tuple[Any, ...] = (dense,) * 3,
            offset: int = 0, high: int = 4) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Arguments in poisoned memory and the exact result, on integers whose products and sums are exact in any order."""
    a, b = integers((m, k), a_type, 1, high), integers((n, k), a_type, 2, high)
    exact = a.astype(np.int64) @ b.astype(np.int64).T
    c = np.zeros((m, n), DTYPES[c_type].numpy())
    arguments = {name: placed(data, place, offset) for name, data, place in zip("ABC", (a, b, c), places)}
    return arguments, {"C": exact.astype(np.float64) if DTYPES[c_type].is_float else exact}


# -- shapes

@pytest.mark.parametrize("m, n, k", [
    (64, 64, 64), (1, 1, 1), (63, 64, 64), (64, 65, 64), (64, 64, 33), (65, 63, 31), (129, 1, 5), (1, 129, 97),
    (130, 190, 100), (2, 2, 2), (64, 64, 1), (128, 64, 32)])
def test_tails_in_every_dimension(m, n, k, arch):                        # BL-31, BL-41, BL-67
    arguments, expected = problem(m, n, k, places=(odd_rows, odd_rows, odd_rows))
    prove_chain(gemm, arguments, arch, expected, **SMALL)


@pytest.mark.parametrize("k", [*range(1, 12), *range(30, 36), 63, 64, 65, 95, 96, 97, 128, 129, 160, 192, 256, 257])
def test_every_number_of_k_tiles_and_every_tail(k, arch):                # BL-04, BL-31, BL-35, BL-38
    arguments, expected = problem(65, 3, k, places=(odd_rows, dense, dense))
    prove(gemm, arguments, arch, expected, **SMALL)


@pytest.mark.parametrize("m, n, k", [(0, 64, 64), (64, 0, 64), (0, 0, 0), (0, 5, 0)])
def test_nothing_to_do(m, n, k, arch):
    arguments, expected = problem(m, n, k)
    prove(gemm, arguments, arch, expected, **SMALL)


def test_an_empty_sum_is_zero(arch):
    arguments, _ = problem(65, 66, 0)
    arguments["C"][...] = 7
    prove_chain(gemm, arguments, arch, {"C": np.zeros((65, 66))}, **SMALL)


MANY_SHAPES = [(1, 1, 1), (1, 1, 300), (1, 300, 1), (300, 1, 1), (64, 64, 32), (65, 64, 33), (64, 65, 31), (2, 640, 40),
               (640, 2, 40), (0, 7, 9), (7, 9, 0), (127, 129, 64), (128, 128, 96), (3, 5, 7), (100, 200, 50),
               (200, 100, 50), (33, 34, 35), (63, 63, 63), (66, 66, 66), (257, 63, 1)]


@pytest.mark.parametrize("c_type", ["bf16", "f32"])
def test_one_object_serves_all_shapes(c_type, arch):                     # BL-32, BL-46
    specs = [tc.spec(dtype, (100, 101), align=DTYPES[dtype].bits // 8) for dtype in ("bf16", "bf16", c_type)]
    compiled = gemm.compile(*specs, arch=arch, verify=True, **SMALL)
    for m, n, k in MANY_SHAPES:
        arguments, expected = problem(m, n, k, c_type=c_type, places=(odd_rows, dense, odd_rows), offset=1)
        run_and_compare(compiled, arguments, expected)


def test_an_aligned_object_serves_all_aligned_shapes(arch):
    spec = tc.spec("bf16", (128, 128))
    compiled = gemm.compile(spec, spec, tc.spec("f32", (128, 128)), arch=arch, verify=True, **SMALL)
    for m, n, k in [(1, 4, 8), (64, 64, 64), (65, 68, 40), (130, 132, 200), (300, 4, 16)]:
        arguments, expected = problem(m, n, k)
        run_and_compare(compiled, arguments, expected)


# -- places

@pytest.mark.parametrize("name", PLACES)
def test_inputs_anywhere(name, arch):                                    # BL-76
    for places in ((PLACES[name], dense, dense), (dense, PLACES[name], dense), (PLACES[name],) * 2 + (dense,)):
        arguments, expected = problem(70, 67, 45, places=places)
        prove(gemm, arguments, arch, expected, **SMALL)


@pytest.mark.parametrize("name", PLACES)
@pytest.mark.parametrize("c_type", ["f32", "bf16"])
def test_outputs_anywhere(name, c_type, arch):                           # BL-76
    arguments, expected = problem(70, 67, 45, c_type=c_type, places=(dense, dense, PLACES[name]))
    prove(gemm, arguments, arch, expected, **SMALL)


@pytest.mark.parametrize("offset", [1, 2, 3, 4, 5, 8])
def test_odd_starts(offset, arch):
    arguments, expected = problem(66, 70, 40, c_type="bf16", offset=offset)
    prove(gemm, arguments, arch, expected, **SMALL)


def test_repeated_rows(arch):                                            # BL-76
    arguments, _ = problem(70, 67, 45)
    for name in "AB":
        arguments[name] = placed(np.repeat(arguments[name][:1], len(arguments[name]), axis=0), repeated_rows)
        assert arguments[name].strides[0] == 0
    expected = {"C": arguments["A"].astype(np.float64) @ arguments["B"].astype(np.float64).T}
    prove(gemm, arguments, arch, expected, **SMALL)


@pytest.mark.parametrize("m, n, k", [(1, 70, 40), (70, 1, 40), (70, 70, 1), (1, 1, 40), (1, 1, 1)])
def test_axes_of_size_1_with_odd_strides(m, n, k, arch):                 # BL-76
    for place in (dense, backwards):
        arguments, expected = problem(m, n, k, places=(place,) * 3)
        prove(gemm, arguments, arch, expected, **SMALL)


@pytest.mark.parametrize("name", PLACES)
def test_the_sum_stays_in_registers_wherever_it_goes(name, arch):        # BL-22
    """The loop over whole tiles and that over the rest compute one accumulator in one layout."""
    arguments, _ = problem(70, 67, 45, places=(dense, dense, PLACES[name]))
    laid_out = gemm.compile(**arguments, arch=arch, **SMALL).stages["layouts"]
    loops = [op for op in laid_out.walk() if isinstance(op, tile.For)]
    assert len(loops) == 2
    written = {op.value.dtype.name for loop in loops for op in loop.body.walk() if isinstance(op, tile.SharedWrite)}
    assert written <= {"bf16"}


# -- types

OUTPUTS = ("f64", "f32", "f16", "bf16", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")


@pytest.mark.parametrize("c_type", OUTPUTS)
@pytest.mark.parametrize("a_type", ["bf16", "f16", "f32", "i8"])
def test_every_input_and_output_type(a_type, c_type, arch):
    arguments, expected = problem(66, 34, 35, a_type, c_type, places=(odd_rows, dense, dense), high=1)
    if c_type.startswith("u"):                      # what is negative has no place there
        arguments["A"][...], arguments["B"][...] = abs(arguments["A"]), abs(arguments["B"])
        expected = {"C": arguments["A"].astype(np.int64) @ arguments["B"].astype(np.int64).T}
    prove_chain(gemm, arguments, arch, expected, BM=32, BN=32, BK=32)


def test_i8_sums_wrap_nowhere_but_at_32_bits(arch):
    arguments, _ = problem(64, 64, 300, "i8", "i32")
    arguments["A"][...], arguments["B"][...] = -128, np.where(np.arange(64) % 2, 127, -128)[:, None]
    expected = {"C": arguments["A"].astype(np.int64) @ arguments["B"].astype(np.int64).T}
    prove(gemm, arguments, arch, expected, **SMALL)


@pytest.mark.parametrize("a_type, c_type", [("bf16", "f32"), ("bf16", "bf16"), ("f16", "f16"), ("f32", "f32")])
def test_random_data_within_the_bound(a_type, c_type, arch):
    a, b = normal((70, 333), a_type, 1), normal((90, 333), a_type, 2)
    arguments = {"A": placed(a, odd_rows), "B": placed(b, odd_rows), "C": placed(np.zeros((70, 90), a.dtype), dense)}
    arguments["C"] = placed(np.zeros((70, 90), DTYPES[c_type].numpy()))
    exact = a.astype(np.float64) @ b.astype(np.float64).T
    prove(gemm, arguments, arch, {"C": exact}, bounds={"C": dot_bound(a, b, DTYPES[c_type])}, **SMALL)


def test_the_bound_is_tight_enough_to_see_one_lost_term(arch):
    a, b = normal((70, 333), "bf16", 1), normal((90, 333), "bf16", 2)
    short = a[:, :-1].astype(np.float64) @ b[:, :-1].astype(np.float64).T
    exact = a.astype(np.float64) @ b.astype(np.float64).T
    assert (np.abs(short - exact) > dot_bound(a, b, DTYPES["f32"])).mean() > 0.95


def test_infinities_and_nans_stay_in_their_rows_and_columns(arch):       # BL-49
    arguments, expected = problem(66, 66, 40)
    arguments["A"][3, 39], arguments["B"][65, 0] = np.nan, np.inf
    with np.errstate(invalid="ignore"):
        expected = {"C": arguments["A"].astype(np.float64) @ arguments["B"].astype(np.float64).T}
    assert np.isfinite(np.delete(np.delete(expected["C"], 3, 0), 65, 1)).all()
    prove(gemm, arguments, arch, expected, **SMALL)


# -- waves and tiles

@pytest.mark.parametrize("waves", [1, 2, 4, 8])
@pytest.mark.parametrize("bm, bn, bk", [
    (64, 64, 32), (32, 128, 64), *(pytest.param(*sizes, marks=pytest.mark.slow) for sizes in (
        (128, 32, 32), (16, 64, 64), (64, 16, 32)))])
def test_every_grid_of_waves(waves, bm, bn, bk, arch):                   # BL-39
    kernel = tc.kernel(gemm.function, waves=waves)
    arguments, expected = problem(bm + 3, bn + 5, 2 * bk + 3, c_type="bf16", places=(odd_rows, dense, dense))
    prove(kernel, arguments, arch, expected, BM=bm, BN=bn, BK=bk)
    for k in (bk, 3 * bk, 4 * bk + 8):                               # rows that are copied straight to LDS
        arguments, expected = problem(bm + 3, bn + 5, k)
        prove(kernel, arguments, arch, expected, BM=bm, BN=bn, BK=bk)


@pytest.mark.parametrize("landing", ["early", "late", "random"])
@pytest.mark.parametrize("seed", [1, 2])
def test_any_order_of_waves_and_landings(landing, seed, arch):           # BL-05
    arguments, expected = problem(100, 90, 133)
    prove(gemm, arguments, arch, expected, seed=seed, landing=landing, **SMALL)


@pytest.mark.parametrize("m, n, k, a_type, c_type", [
    (256, 256, 128, "bf16", "bf16"), (257, 255, 66, "bf16", "f32"), (300, 20, 200, "f16", "f16"),
    (257, 255, 65, "bf16", "f32")])
def test_the_shipped_tile_size(m, n, k, a_type, c_type, arch):
    arguments, expected = problem(m, n, k, a_type, c_type)
    prove(gemm, arguments, arch, expected)


@pytest.mark.parametrize("m, n, k, a_type, c_type, place", [
    (256, 256, 128, "f32", "f32", dense), (257, 255, 97, "f32", "f32", odd_rows), (70, 3, 33, "f32", "f32", columns),
    (257, 20, 200, "bf16", "bf16", columns), (70, 260, 65, "bf16", "f64", dense)])
def test_the_shipped_tile_size_where_whole_tiles_do_not_fit(m, n, k, a_type, c_type, place, arch):
    arguments, expected = problem(m, n, k, a_type, c_type, places=(place, dense, place))
    prove(gemm, arguments, arch, expected)


def test_each_item_of_a_wide_output_is_computed_once(arch):
    spec = tc.spec("bf16", (64, 64))
    compiled = gemm.compile(spec, spec, tc.spec("f64", (64, 64)), arch=arch, **SMALL)
    assert compiled.asm.count("v_cvt_f64_f32") == 64 * 64 // (64 * compiled.waves)


@pytest.mark.parametrize("waves, ahead", [(1, False), (2, True)])
def test_nothing_is_copied_ahead_where_registers_run_out(waves, ahead):
    """A sum that takes half of them leaves room for what one trip loads, not for the next trip's too."""
    arguments, expected = problem(65, 2, 40, "f32", "f32", places=(every_third, every_third, dense))
    kernel = tc.kernel(gemm.function, waves=waves)
    compiled = prove(kernel, arguments, "gfx950", expected, BM=64, BN=256, BK=16)
    assert (compiled.stages["pipeline"] is not compiled.stages["cluster"]) == ahead


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(150))
def test_random_problems(seed, arch):                                    # BL-32, BL-41
    random = np.random.default_rng(seed)
    m, n, k = (int(random.choice((1, 2, 31, 64, 65, 100, 128, 190, 257))) for _ in range(3))
    a_type = str(random.choice(("bf16", "f16", "f32", "i8")))
    c_type = "i32" if a_type == "i8" else str(random.choice(("bf16", "f16", "f32")))
    places = tuple(PLACES[str(random.choice(list(PLACES)))] for _ in range(3))
    sizes = {"BM": int(random.choice((16, 32, 64, 128))), "BN": int(random.choice((16, 32, 64, 128))),
             "BK": int(random.choice((32, 64)))}
    arguments, expected = problem(m, n, k, a_type, c_type, places, offset=int(random.integers(0, 9)))
    waves = int(random.choice((1, 2, 4, 8)))
    try:
        prove(tc.kernel(gemm.function, waves=waves), arguments, arch, expected, **sizes)
    except TilecError as error:
        if "vector registers at once" not in str(error) or (sizes["BM"], sizes["BN"], waves) != (128, 128, 1):
            raise
        pytest.skip("the sum of 128 x 128 takes half of all registers of one wave, a and b may take more than the rest")


@pytest.mark.slow
@pytest.mark.parametrize("m, n, k", [(511, 513, 1000), (64, 2049, 64), (4097, 64, 40)])
def test_larger_problems(m, n, k, arch):                                 # BL-66
    arguments, expected = problem(m, n, k, c_type="f32", places=(odd_rows, odd_rows, odd_rows))
    prove(gemm, arguments, arch, expected)


@pytest.mark.parametrize("m, n, k", [(40, 33, 64), (40, 32, 65), (41, 32, 64)])
def test_shapes_that_do_not_belong_together_are_refused(m, n, k):
    arguments = [np.zeros(shape, np.float32) for shape in ((40, 64), (32, k), (m, n))]
    with pytest.raises(TilecError, match="C must be A B"):
        gemm(*arguments, BM=32, BN=32, BK=16)
