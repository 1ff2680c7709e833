"""Dots: an accumulator is taken as an operand as it is, where only the order of k differs; axes that are combined stay
within waves."""

import numpy as np
import pytest

import tilec as tc
from kernels.gemm import gemm
from tests.unit.tile_programs import Kernel
from tilec.dtypes import dtype
from tilec.ir import tile
from tilec.ir.core import Program
from tilec.passes import dots
from tilec.target import target


def a_dot(m: int, n: int, k: int, element: str = "bf16") -> tile.Dot:
    kernel = Kernel("k")
    a, b = kernel.constant(1.0, (m, k), dtype(element)), kernel.constant(1.0, (k, n), dtype(element))
    kernel.dot(a, b, kernel.constant(0.0, (m, n), dtype("f32")))
    program: Program = kernel.program()
    return next(op for op in program.walk() if isinstance(op, tile.Dot))


CASES = [(arch, *grid, *sizes) for arch in ("gfx942", "gfx950") for grid in ((1, 32), (4, 128), (8, 128), (8, 256))
         for sizes in ((64, 64), (64, 128), (32, 32), (128, 64))]


@pytest.mark.parametrize("arch, waves, rows, keys, depth", CASES)
def test_scores_become_an_operand_without_a_move(arch, waves, rows, keys, depth):
    hardware = target(arch)
    scores = dots.plan(a_dot(rows, keys, depth), waves, hardware, True, whole=frozenset({1}))
    assert scores.wave_grid == (waves, 1)
    values = a_dot(rows, depth, keys)
    plan = dots.plan(values, waves, hardware, True, held=(scores.accumulator, None))
    assert sorted(plan.a.item) == sorted(scores.accumulator.item)
    assert (plan.a.lane, plan.a.wave) == (scores.accumulator.lane, scores.accumulator.wave)
    assert plan.a.covers() and plan.b.covers()
    items = plan.mfma.a_dwords * 2          # of one instruction: they multiply the same k, lane group by lane group
    k_of_a, k_of_b = plan.a.enumerate()[1, 0], plan.b.enumerate()[0, 0]
    for first in range(0, keys // plan.mfma.k * items, items):
        for lane in range(0, 64, plan.mfma.m):
            assert np.array_equal(k_of_a[lane, first:first + items], k_of_b[lane, first:first + items])


def test_k_order():
    scores = dots.plan(a_dot(32, 64, 64), 1, target("gfx950"), True, whole=frozenset({1}))
    wide = dots.plan(a_dot(32, 64, 64), 1, target("gfx950"), True, rows_wanted=32)
    assert dots.k_order(wide.a, scores.accumulator, 1) == {1: 1, 2: 2, 4: 8, 8: 4, 16: 16, 32: 32}
    assert dots.k_order(wide.a, wide.a, 1) == {bit: bit for bit in (1, 2, 4, 8, 16, 32)}
    unswapped = dots.plan(a_dot(32, 64, 64), 1, target("gfx950"), False, rows_wanted=32)
    assert dots.k_order(wide.a, unswapped.accumulator, 1) is None       # lanes run along k there


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
@pytest.mark.parametrize("output", [tc.spec("bf16", (512, 512)), tc.spec("bf16", (512, 512), strides=(1, 512))],
                         ids=["rows", "columns"])
def test_both_loops_of_a_sum_hold_it_as_its_store_wants_it(output, arch):
    spec = tc.spec("bf16", (512, 512))
    laid_out = gemm.compile(spec, spec, output, arch=arch, BM=128, BN=128).stages["layouts"]
    assert isinstance(laid_out, Program)
    both = [op for op in laid_out.walk() if isinstance(op, tile.Dot)]
    assert len(both) == 2 and both[0].result.layout == both[1].result.layout
    assert both[0].swapped == both[1].swapped == (output.strides[1] == 2)
    written = [op.value.dtype.name for op in laid_out.walk() if isinstance(op, tile.SharedWrite)]
    assert "f32" not in written, "the sum stays in registers"


@pytest.mark.parametrize("columns, repeat, waves", [
    ([16], 1, 1), ([32], 1, 4), ([256], 1, 4), ([257], 1, 8),
    ([256], 3, 4),                      # one accumulator for all three
    ([64, 128], 1, 4), ([64, 256], 1, 8)])
def test_waves_follow_from_the_results_that_stand_side_by_side(columns, repeat, waves):
    kernel, rows = Kernel("k"), 128 if max(columns) > 32 else max(columns)
    for n in columns:
        result = kernel.constant(0.0, (rows, n), dtype("f32"))
        for _ in range(repeat):
            a, b = kernel.constant(1.0, (rows, 16), dtype("bf16")), kernel.constant(1.0, (16, n), dtype("bf16"))
            result = kernel.dot(a, b, result)
    assert dots.suggested_waves(kernel.program()) == waves
