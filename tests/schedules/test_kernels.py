"""Other loops than the GEMM's under the wave schedules: two in a kernel, conditions around one, ops between dots."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilec as tc
from kernels.gemm import gemm
from tests.schedules.cases import ARCHITECTURES
from tests.support.numbers import integers
from tests.support.placing import placed, wide_rows
from tests.support.proving import difference, interpreted, run_and_compare, tile_stages
from tilec.backend_amdgcn import clustercheck
from tilec.ir import tile
from tilec.ir.core import definitions
from tilec.passes import cluster_plans
from tilec.passes.loop_ops import loop_ops

SCHEDULES = ("pingpong", "interleave")
SPEC = tc.spec("bf16", (1024, 1024))
OUT = tc.spec("f32", (1024, 1024))

per_schedule = pytest.mark.parametrize("schedule", SCHEDULES)
per_arch = pytest.mark.parametrize("arch", ARCHITECTURES)


@tc.kernel
def two_loops(A: tc.Tensor, B: tc.Tensor, D: tc.Tensor, E: tc.Tensor, C: tc.Tensor):
    """A B^T + D E^T: two loops, of different trip counts."""
    At, Bt, Dt, Et, Ct = A.tiles(128, 64), B.tiles(128, 64), D.tiles(128, 64), E.tiles(128, 64), C.tiles(128, 128)
    m, n = tc.program_id(Ct.grid)
    acc = tc.zeros(128, 128)
    for k in tc.range(At.grid[1]):
        a, b = At[m, k], Bt[n, k]
        acc = tc.dot(a, b.T, acc)
    for j in tc.range(Dt.grid[1]):
        d, e = Dt[m, j], Et[n, j]
        acc = tc.dot(d, e.T, acc)
    Ct[m, n] = acc


@tc.kernel
def on_condition(A: tc.Tensor, B: tc.Tensor, C: tc.Tensor, chosen: tc.i32):
    """A B^T in the tile rows below `chosen`, zero in the others: a loop that some workgroups skip."""
    At, Bt, Ct = A.tiles(128, 64), B.tiles(128, 64), C.tiles(128, 128)
    m, n = tc.program_id(Ct.grid)
    acc = tc.zeros(128, 128)
    with tc.when(m < chosen):
        for k in tc.range(At.grid[1]):
            a, b = At[m, k], Bt[n, k]
            acc = tc.dot(a, b.T, acc)
    Ct[m, n] = acc


@tc.kernel
def two_dots(A: tc.Tensor, B: tc.Tensor, E: tc.Tensor, C: tc.Tensor, D: tc.Tensor):
    """A B^T and A E^T in one loop: two dots that share an operand."""
    At, Bt, Et, Ct, Dt = A.tiles(128, 64), B.tiles(128, 64), E.tiles(128, 64), C.tiles(128, 128), D.tiles(128, 128)
    m, n = tc.program_id(Ct.grid)
    acc, other = tc.zeros(128, 128), tc.zeros(128, 128)
    for k in tc.range(At.grid[1]):
        a, b, e = At[m, k], Bt[n, k], Et[n, k]
        acc = tc.dot(a, b.T, acc)
        other = tc.dot(a, e.T, other)
    Ct[m, n] = acc
    Dt[m, n] = other


@tc.kernel
def in_another_loop(A: tc.Tensor, B: tc.Tensor, C: tc.Tensor, times: tc.i32):
    """times A B^T, the loop over k run again and again within another."""
    At, Bt, Ct = A.tiles(128, 64), B.tiles(128, 64), C.tiles(128, 128)
    m, n = tc.program_id(Ct.grid)
    acc = tc.zeros(128, 128)
    for _ in tc.range(times):
        for k in tc.range(At.grid[1]):
            a, b = At[m, k], Bt[n, k]
            acc = tc.dot(a, b.T, acc)
    Ct[m, n] = acc


@tc.kernel
def chain(A: tc.Tensor, B: tc.Tensor, D: tc.Tensor, E: tc.Tensor, C: tc.Tensor):
    """The sum over tiles of 64 rows, from the last to the first, of ((A B_k^T) D_k^T) E_k^T + k: dots that wait for
    each other, and a number that copies and arithmetic both need."""
    Bt, Dt, Et = B.tiles(64, 64), D.tiles(64, 64), E.tiles(64, 64)
    a, acc, count = A.tiles(128, 64)[0, 0], tc.zeros(128, 64), Bt.grid[0]
    for step in tc.range(count):
        k = count - 1 - step
        b, d, e = Bt[k, 0], Dt[k, 0], Et[k, 0]
        x = tc.dot(a, b.T)
        y = tc.dot(x.to(tc.bf16), d.T)
        acc = tc.dot(y.to(tc.bf16), e.T, acc + k.to(tc.f32))
    C.tiles(128, 64)[0, 0] = acc


@tc.kernel
def what_is_carried(A: tc.Tensor, B: tc.Tensor, D: tc.Tensor, C: tc.Tensor, L: tc.Tensor, S: tc.Tensor,
                    BM: tc.Const = 128):
    """The sum over every second tile of A B_i^T D_i; of the last of them the scores, their maxima, and its index."""
    Bt, Dt = B.tiles(64, 64), D.tiles(64, 64)
    a, acc = A.tiles(BM, 64)[0, 0], tc.zeros(BM, 64)
    scores, largest, at = tc.zeros(BM, 64), tc.zeros(BM), tc.scalar(0)
    for j in tc.range(Bt.grid[0] // 2):
        at = j * 2
        b, d = Bt[at, 0], Dt[at, 0]
        scores = tc.dot(a, b.T)
        largest = scores.max(axis=1)
        acc = tc.dot(scores.to(tc.bf16), d, acc)
    C.tiles(BM, 64)[0, 0] = acc
    S.tiles(BM, 64)[0, 0] = scores
    L.tiles(BM)[0] = largest + at.to(tc.f32)


@tc.kernel
def also_elsewhere(A: tc.Tensor, B: tc.Tensor, C: tc.Tensor, D: tc.Tensor, E: tc.Tensor):
    """Tiles of B are multiplied as they are, in halves, whole and transposed, and without what is negative in them."""
    Bt, acc, squares, positive = B.tiles(128, 32), tc.zeros(128, 128), tc.zeros(32, 32), tc.zeros(128, 128)
    a = A.tiles(128, 32)[0, 0]
    for k in tc.range(Bt.grid[0]):
        b = Bt[k, 0]
        acc = tc.dot(a, b.T, acc)
        squares = tc.dot(b.T, b, squares)
        positive = tc.dot(a, tc.maximum(b, 0).T, positive)
    C.tiles(128, 128)[0, 0] = acc
    D.tiles(32, 32)[0, 0] = squares
    E.tiles(128, 128)[0, 0] = positive


@tc.kernel
def largest(A: tc.Tensor, B: tc.Tensor, C: tc.Tensor, D: tc.Tensor):
    """The largest element of each row of A B^T and, as D, A^T A."""
    At, Bt, top, acc = A.tiles(128, 64), B.tiles(64, 64), tc.full(128, -1e9), tc.zeros(64, 64)
    for k in tc.range(At.grid[1]):
        a, b = At[0, k], Bt[0, k]
        top = tc.maximum(top, tc.dot(a, b.T).max(axis=1))
        acc = tc.dot(a.T, a, acc)
    C.tiles(128)[0] = top
    D.tiles(64, 64)[0, 0] = acc


def operands(**shapes: tuple[int, int]) -> dict[str, np.ndarray]:
    return {name: placed(integers(shape, "bf16", seed), wide_rows) for seed, (name, shape) in enumerate(shapes.items())}


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a.astype(np.float64) @ b.astype(np.float64).T


def out(m: int, n: int) -> np.ndarray:
    return placed(np.full((m, n), 7, np.float32), wide_rows)


def prove(kernel: Any, arguments: dict[str, Any], expected: dict[str, np.ndarray], seed: int) -> None:
    """On the emulator with all checks, and in the interpreter behind the passes that rebuild loops."""
    for stage, program in tile_stages(kernel).items():
        if stage not in ("split", "cluster", "pipeline"):
            continue
        results = interpreted(program, arguments)
        for name, want in expected.items():
            fault = difference(results[name].astype(np.float64), want)
            assert not fault, f"after {stage}: {name}: {fault}"
    run_and_compare(kernel, arguments, expected, seed=seed, landing=("late", "early", "random")[seed % 3])


@per_schedule
@per_arch
def test_two_loops(arch, schedule):                                                 # BL-06
    kernel = two_loops.compile(SPEC, SPEC, SPEC, SPEC, OUT, arch=arch, schedule=schedule, verify=True)
    for seed, (k, j) in enumerate(((0, 64), (64, 0), (128, 192), (200, 70), (320, 64))):
        arguments = operands(A=(128, k), B=(100, k), D=(128, j), E=(100, j))
        expected = product(arguments["A"], arguments["B"]) + product(arguments["D"], arguments["E"])
        prove(kernel, arguments | {"C": out(128, 100)}, {"C": expected}, seed)


@per_schedule
@per_arch
def test_a_loop_that_some_workgroups_skip(arch, schedule):
    kernel = on_condition.compile(SPEC, SPEC, OUT, arch=arch, schedule=schedule, verify=True)
    for seed, (k, chosen) in enumerate(((64, 1), (192, 0), (200, 1), (128, 2))):
        arguments = operands(A=(200, k), B=(128, k))
        expected = product(arguments["A"], arguments["B"])
        expected[128 * chosen:] = 0
        prove(kernel, arguments | {"C": out(200, 128), "chosen": chosen}, {"C": expected}, seed)


@per_schedule
@per_arch
def test_two_dots_that_share_an_operand(arch, schedule):
    kernel = two_dots.compile(SPEC, SPEC, SPEC, OUT, OUT, arch=arch, schedule=schedule, verify=True)
    for seed, k in enumerate((0, 64, 128, 250)):
        arguments = operands(A=(128, k), B=(128, k), E=(128, k))
        expected = {"C": product(arguments["A"], arguments["B"]), "D": product(arguments["A"], arguments["E"])}
        prove(kernel, arguments | {"C": out(128, 128), "D": out(128, 128)}, expected, seed)


@per_schedule
@per_arch
def test_a_loop_within_a_loop(arch, schedule):
    kernel = in_another_loop.compile(SPEC, SPEC, OUT, arch=arch, schedule=schedule, verify=True)
    for seed, (k, times) in enumerate(((0, 2), (64, 0), (64, 3), (192, 2), (130, 2))):
        arguments = operands(A=(128, k), B=(128, k))
        expected = times * product(arguments["A"], arguments["B"])
        prove(kernel, arguments | {"C": out(128, 128), "times": times}, {"C": expected}, seed)


@per_schedule
@per_arch
def test_tiles_that_are_wanted_elsewhere_too(arch, schedule):
    kernel = also_elsewhere.compile(SPEC, SPEC, OUT, OUT, OUT, arch=arch, schedule=schedule, verify=True)
    for seed, rows in enumerate((0, 128, 200, 512)):
        arguments = operands(A=(128, 32), B=(rows, 32))
        a, b = (x.astype(np.float64) for x in arguments.values())
        parts = np.split(np.concatenate([b, np.zeros((-rows % 128, 32))]), -(-rows // 128)) if rows else ()
        expected = {"C": sum((a @ p.T for p in parts), np.zeros((128, 128))), "D": b.T @ b,
                    "E": sum((a @ np.maximum(p, 0).T for p in parts), np.zeros((128, 128)))}
        prove(kernel, arguments | {"C": out(128, 128), "D": out(32, 32), "E": out(128, 128)}, expected, seed)


@per_arch
def test_a_reduction_across_waves_has_barriers_of_its_own(arch):
    specs = SPEC, SPEC, tc.spec("f32", (128,)), OUT
    kernel = largest.compile(*specs, arch=arch, schedule="pingpong(mfma=32)", verify=True)
    assert any(isinstance(op, tile.Reduce) and op.scratch for op in kernel.stages["layouts"].walk())
    for seed, count in enumerate((0, 1, 2, 5)):
        arguments = operands(A=(128, 64 * count), B=(64, 64 * count))
        a, b = (x.astype(np.float64).reshape(len(x), count, 64) for x in arguments.values())
        products = np.einsum("mtk,ntk->mtn", a, b).max(axis=(1, 2), initial=-1e9)
        results = {"C": placed(np.zeros(128, np.float32)), "D": out(64, 64)}
        prove(kernel, arguments | results, {"C": products, "D": np.einsum("mti,mtj->ij", a, a)}, seed)


def permutations(count: int, seed: int) -> np.ndarray:
    """So many 64 x 64 permutations, one below the other."""
    draw = np.random.default_rng(seed)
    return np.concatenate([np.zeros((0, 64)), *(draw.permutation(np.eye(64)) for _ in range(count))])


@per_schedule
@per_arch
def test_dots_that_wait_for_each_other(arch, schedule):
    kernel = chain.compile(SPEC, SPEC, SPEC, SPEC, OUT, arch=arch, schedule=schedule, verify=True)
    assert kernel.compromises == ()
    for count in range(8):
        arguments = operands(A=(128, 64), B=(64 * count, 64), D=(64 * count, 64), E=(64 * count, 64))
        arguments["B"][:], arguments["D"][:] = permutations(count, 1), permutations(count, 2)
        a, *others = (x.astype(np.float64) for x in arguments.values())
        tiles = zip(*(np.split(x, count) for x in others)) if count else ()
        expected = sum((a @ b.T @ d.T @ e.T + k for k, (b, d, e) in enumerate(tiles)), np.zeros((128, 64)))
        prove(kernel, arguments | {"C": out(128, 64)}, {"C": expected}, count)


@per_schedule
def test_each_of_them_runs_a_trip_ahead_of_the_next(schedule):
    program = chain.compile(SPEC, SPEC, SPEC, SPEC, OUT, arch="gfx950", schedule=schedule).stages["layouts"]
    loop = next(op for op in program.walk() if isinstance(op, tile.For))
    ops = loop_ops(loop, definitions(program.body))
    assert ops is not None
    placed = [i for c in getattr(cluster_plans, schedule)(ops, cluster_plans.Shape(2, 0)) for i in c.items]
    assert {i.op.results[0].name: i.ahead for i in placed if i.op in ops.dots} == {"x": 2, "y": 1, "acc": 0}
    casts = [i.ahead for i in placed if isinstance(i.op, tile.Cast) and i.op.result.dtype.name == "bf16"]
    assert sorted(casts) == [1, 2]


@per_schedule
@per_arch
def test_what_is_made_ahead_and_carried(arch, schedule):
    specs = [SPEC, SPEC, SPEC, OUT, tc.spec("f32", (1024,)), OUT]
    kernel = what_is_carried.compile(*specs, arch=arch, schedule=schedule, verify=True)
    assert arch == "gfx942" or kernel.compromises == ()
    for count in (0, 1, 2, 3, 4, 6, 9, 10):
        arguments = operands(A=(128, 64), B=(64 * count, 64), D=(64 * count, 64))
        arguments["B"][:] = permutations(count, 1)
        a, b, d = (x.astype(np.float64) for x in arguments.values())
        terms = [(a @ b[64 * i:64 * i + 64].T, d[64 * i:64 * i + 64]) for i in range(0, count - 1, 2)]
        scores = terms[-1][0] if terms else np.zeros((128, 64))
        expected = {"C": sum((s @ d for s, d in terms), np.zeros((128, 64))), "S": scores,
                    "L": scores.max(axis=1) + max(0, 2 * (count // 2) - 2)}
        empty = {"C": out(128, 64), "L": placed(np.ones(128, np.float32)), "S": out(128, 64)}
        prove(kernel, arguments | empty, expected, count)


@per_arch
def test_each_loop_is_staggered_by_itself(arch):
    kernel = two_loops.compile(SPEC, SPEC, SPEC, SPEC, OUT, arch=arch, schedule="pingpong")
    assert len(list(clustercheck.trips(kernel.stages["barriers"].body))) == 2


@pytest.mark.parametrize("option, parts", [("", 4), ("(mfma=32)", 1)])
def test_halves_leave_every_wave_an_instruction(option, parts):
    """Of 128 x 64 a quarter is 8 results of 16 x 16 for 8 waves, but 2 of 32 x 32, which waves would compute again."""
    kernel = gemm.compile(SPEC, SPEC, OUT, arch="gfx950", schedule=f"pingpong{option}", BM=128, BN=64, BK=64)
    dots = [op for loop in kernel.stages["split"].walk() if isinstance(loop, tile.For)
            for op in loop.body.ops if isinstance(op, tile.Dot)]
    assert len(dots) == parts
