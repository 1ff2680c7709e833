"""A schedule never changes a result: every trip count and tail, every order of waves and landings, stage by stage."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilec as tc
from kernels.gemm import gemm
from tests.schedules.cases import (
    ARCHITECTURES,
    ATTENTION,
    ROWS,
    SCHEDULES,
    WAVE_SCHEDULES,
    attention_launch,
    compiled,
    launch,
    problem,
)
from tests.support.proving import LANDINGS, difference, interpreted, run_and_compare, same_under, tile_stages
from tilec.frontend import schedules
from tilec.frontend.jit import CompiledKernel
from tilec.ir import tile

SHAPES = [
    *((128, 128, 64 * trips) for trips in range(7)),                     # 0 to 6 trips, nothing left over
    (1, 1, 1), (129, 127, 64 + 33), (3, 130, 128 + 63), (130, 3, 192 + 8), (127, 129, 256 + 1), (65, 128, 320 + 40),
    (128, 63, 384 + 17), (128, 128, 13 * 64), (2, 2, 12 * 64 + 5), (0, 5, 64), (5, 0, 64), (300, 200, 200),
]


def mfma(kernel: CompiledKernel) -> set[str]:
    return {i.op for i in kernel.machine.instructions() if "mfma" in i.op}


def is_clustered(kernel: CompiledKernel) -> bool:
    return any(isinstance(op, tile.ClusterBegin) for op in kernel.stages["cluster"].walk())


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_one_object_serves_every_trip_count_and_tail(arch, schedule):               # BL-04, BL-31, BL-32
    kernel = compiled(schedule, arch)
    assert is_clustered(kernel) == (schedule in WAVE_SCHEDULES)
    for number, (m, n, k) in enumerate(SHAPES):
        arguments, expected = problem(m, n, k)
        run_and_compare(kernel, arguments, expected, seed=number, landing=LANDINGS[number % 3])


@pytest.mark.parametrize("arch, schedule", [
    ("gfx950", "pingpong(buffers=3)"), ("gfx950", "pingpong(buffers=4)"), ("gfx950", "interleave(buffers=3)")])
def test_any_depth_of_ring(arch, schedule):
    kernel = compiled(schedule, arch)
    assert is_clustered(kernel)
    for number, k in enumerate((0, 1, 64, 128, 192, 256, 320, 384, 448, 490)):
        arguments, expected = problem(127, 128, k)
        run_and_compare(kernel, arguments, expected, seed=number, landing=LANDINGS[number % 3])


def test_one_slot_read_in_the_last_cluster():
    """On gfx942 tiles pass through one slot: what the last cluster reads is written in the next trip."""
    def custom(s: Any) -> None:
        s.ring(a=1, b=1)
        s.memory(s.b.read, next_copy=1)
        s.memory(s.a.read, next_copy=1)
        s.compute(s.acc)
    specs = [tc.spec("bf16", (ROWS, ROWS))] * 2 + [tc.spec("f32", (ROWS, ROWS))]
    kernel = gemm.compile(*specs, arch="gfx942", schedule=schedules.build(custom, 8, None), BM=128, BN=128, BK=64,
                          verify=True)
    assert is_clustered(kernel)
    for number, k in enumerate((0, 1, 64, 128, 192, 256, 330)):
        arguments, expected = problem(127, 128, k)
        run_and_compare(kernel, arguments, expected, seed=number, landing=LANDINGS[number % 3])


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_all_schedules_agree_bit_for_bit(arch, dtype):
    """On data that rounds in every step: for one MFMA opcode the order of summation is the same."""
    kernels = {schedule: compiled(schedule, arch, dtype) for schedule in SCHEDULES}
    assert len(set.union(*map(mfma, kernels.values()))) == 1
    for k in (64, 200, 384, 450):
        results = {}
        for schedule, kernel in kernels.items():
            arguments, expected = problem(128, 100, k, dtype, random=True)
            assert kernel.run(**arguments) == ()
            results[schedule] = arguments["C"].copy()
        assert np.abs(results["simple"] - expected["C"]).max() < 1e-3
        assert (results["simple"].astype(np.float64) != expected["C"]).any()        # there is rounding to agree on
        for schedule in WAVE_SCHEDULES:
            assert not difference(results[schedule], results["simple"]), f"{schedule}, K = {k}"


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_seeds_and_landings(arch, schedule):                                        # BL-01, BL-02, BL-07
    same_under(launch(schedule, arch), range(5))


@pytest.mark.parametrize("sizes", [(32, 32, 64), (64, 32, 64), (16, 16, 128)], ids=str)
@pytest.mark.parametrize("schedule", ["interleave", "pingpong"])
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_more_copies_than_matrix_instructions(arch, schedule, sizes):
    specs = [tc.spec(dtype, (ROWS, ROWS)) for dtype in ("bf16", "bf16", "f32")]
    kernel = gemm.compile(*specs, arch=arch, schedule=schedule, verify=True, **dict(zip(("BM", "BN", "BK"), sizes)))
    arguments, expected = problem(67, 66, 5 * sizes[2] + 9)
    assert kernel.run(**arguments) == ()
    assert not difference(arguments["C"].astype(np.float64), expected["C"])


@pytest.mark.slow
@pytest.mark.parametrize("size", [128, 256])
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_many_seeds_and_landings(arch, schedule, size):
    if schedule == "halves" and arch == "gfx942" and size == 256:
        pytest.skip("two buffers of four tiles of 16 KiB do not fit 64 KiB of LDS")
    same_under(launch(schedule, arch, size), range(50))


@pytest.mark.parametrize("schedule", ATTENTION)
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_seeds_and_landings_of_attention(arch, schedule):                           # BL-01, BL-02, BL-07
    same_under(attention_launch(arch, 64, True, schedule), range(5))


@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("depth", [64, 128])
@pytest.mark.parametrize("schedule", ATTENTION)
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_many_seeds_and_landings_of_attention(arch, schedule, depth, causal):
    same_under(attention_launch(arch, depth, causal, schedule), range(50))


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_seeds_and_landings_of_lazy_attention(arch):
    same_under(attention_launch(arch, 64, True, "pingpong(mfma=32)", lazy=8), range(2))


@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_many_seeds_and_landings_of_lazy_attention(arch, causal):
    same_under(attention_launch(arch, 64, causal, "pingpong(mfma=32)", lazy=8), range(50))


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_no_pass_changes_what_the_interpreter_gives(arch, schedule):
    """Before and after each tile pass: split, cluster and pipeline among them."""
    stages = tile_stages(compiled(schedule, arch))
    assert {"traced", "split", "cluster", "pipeline", "barriers"} <= set(stages)
    for m, n, k in ((128, 128, 0), (1, 127, 64), (128, 2, 128), (3, 128, 200), (128, 5, 320)):
        arguments, expected = problem(m, n, k)
        for name, program in stages.items():
            fault = difference(interpreted(program, arguments)["C"].astype(np.float64), expected["C"])
            assert not fault, f"after {name}, {m}x{n}x{k}: {fault}"
