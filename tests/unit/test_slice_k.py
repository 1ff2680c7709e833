"""slice_k: the same results for any extents; loops of dots stay one loop; what can't be cut is left alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilec as tc
from kernels.gemm import gemm as shipped
from tests.support.numbers import integers
from tests.unit.tile_programs import Kernel, gemm
from tilec.dtypes import bf16, f32
from tilec.errors import OverBudget
from tilec.ir import interp, tile
from tilec.ir.core import Program, Value
from tilec.ir.verify import verify
from tilec.passes.simplify import simplify
from tilec.passes.slice_k import slice_k
from tilec.passes.split_tails import split_tails
from tilec.target import target

ARCHITECTURES = ("gfx942", "gfx950")
TARGET = target("gfx950")


def cut(program: Program, count: int) -> Program:
    result = slice_k(simplify(program), TARGET, count)
    verify(result)
    return simplify(result)


def ops(program: Program, op_class: type) -> list[Any]:
    return [op for op in program.walk() if isinstance(op, op_class)]


def shapes(program: Program) -> list[tuple[int, ...]]:
    return [op.result.shape for op in ops(program, tile.Load)]


def arguments(m: int, n: int, k: int, other_k: int | None = None) -> dict[str, np.ndarray]:
    """A (m x k), B (n x other_k) in the midst of NaN, and C."""
    found = {}
    for name, rows, columns in (("A", m, k), ("B", n, k if other_k is None else other_k)):
        around = np.full((rows + 20, columns + 300), np.nan, bf16.numpy())
        around[:rows, :columns] = integers((rows, columns), "bf16", rows)
        found[name] = around[:rows, :columns]
    return found | {"C": np.full((m, n), -1, np.float32)}


def built(body: Callable[[Kernel, Value, Value, Value], Value], m: int = 32, n: int = 32) -> Program:
    """C[0, 0] = body(kernel, A, B, zeros)."""
    kernel = Kernel("k")
    a, b, c = (kernel.tensor(name, t, 2, contiguous=1, alignment=16) for name, t in zip("ABC", (bf16, bf16, f32)))
    zero = kernel.number(0)
    kernel.store(c, [zero, zero], body(kernel, a, b, kernel.constant(0.0, (m, n), f32)))
    return kernel.program()


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize(("ka", "kb"), [(0, 0), (1, 1), (63, 63), (64, 64), (65, 65), (130, 130), (300, 70), (33, 256)])
def test_a_loop_of_dots_counts_slices(ka, kb, count):
    whole = gemm(32, 32, 128)
    sliced = cut(whole, count)
    assert len(ops(sliced, tile.For)) == 1 and shapes(sliced) == [(32, 128 // count)] * 2
    values = arguments(33, 20, ka, kb)
    assert interp.first_difference({"": whole, "sliced": sliced, "split": split_tails(sliced)}, values) == ""


def test_the_loop_is_then_split_in_whole_slices_and_the_rest():
    split = simplify(split_tails(cut(gemm(32, 32, 64), 2)))
    assert [op.inside for op in ops(split, tile.Load)] == [(False, True)] * 2 + [()] * 2


def test_several_sums_in_one_loop_share_it():
    def body(kernel: Kernel, a: Value, b: Value, zeros: Value) -> Value:
        def trip(k: Value, first: Value, second: Value) -> tuple[Value, ...]:
            x, y = (kernel.load(t, [kernel_zero, k], (32, 64)) for t in (a, b))
            turned = kernel.permute(y, (1, 0))
            return kernel.dot(x, turned, first), kernel.dot(y, kernel.permute(x, (1, 0)), second)
        kernel_zero = kernel.number(0)
        sums = kernel.loop(kernel_zero, kernel.tiles_along(a, 1, 64), kernel.number(1), [zeros, zeros], trip)
        return kernel.map("add", *sums)
    sliced = cut(built(body), 2)
    assert len(ops(sliced, tile.For)) == 1 and set(shapes(sliced)) == {(32, 32)}
    assert interp.first_difference({"": built(body), "sliced": sliced}, arguments(32, 32, 150)) == ""


def computed_beside(kernel: Kernel, a: Value, b: Value, zeros: Value) -> Value:
    """The loop does more than the dot."""
    def trip(k: Value, total: Value) -> tuple[Value, ...]:
        x, y = kernel.load(a, [zero, k], (32, 64)), kernel.permute(kernel.load(b, [zero, k], (32, 64)), (1, 0))
        return kernel.map("minimum", kernel.dot(x, y, total), kernel.constant(50.0, (32, 32), f32)),
    zero = kernel.number(0)
    return kernel.loop(zero, kernel.tiles_along(a, 1, 64), kernel.number(1), [zeros], trip)[0]


def no_loop(kernel: Kernel, a: Value, b: Value, zeros: Value) -> Value:
    zero = kernel.number(0)
    x, y = kernel.load(a, [zero, kernel.number(1)], (32, 64)), kernel.load(b, [zero, zero], (32, 64))
    return kernel.dot(x, kernel.permute(y, (1, 0)), zeros)


def squared(kernel: Kernel, a: Value, b: Value, zeros: Value) -> Value:
    x = kernel.load(a, [kernel.number(0), kernel.number(0)], (32, 64))
    return kernel.dot(x, kernel.permute(x, (1, 0)), zeros)


def by_two(kernel: Kernel, a: Value, b: Value, zeros: Value) -> Value:
    """A loop over every second tile."""
    def trip(k: Value, total: Value) -> tuple[Value, ...]:
        x, y = kernel.load(a, [zero, k], (32, 64)), kernel.load(b, [zero, k], (32, 64))
        return kernel.dot(x, kernel.permute(y, (1, 0)), total),
    zero = kernel.number(0)
    return kernel.loop(zero, kernel.tiles_along(a, 1, 64), kernel.number(2), [zeros], trip)[0]


def along_rows(kernel: Kernel, a: Value, b: Value, zeros: Value) -> Value:
    """The counter names rows, not k."""
    def trip(k: Value, total: Value) -> tuple[Value, ...]:
        x, y = kernel.load(a, [k, zero], (32, 64)), kernel.load(b, [zero, zero], (32, 64))
        return kernel.dot(x, kernel.permute(y, (1, 0)), total),
    zero = kernel.number(0)
    return kernel.loop(zero, kernel.tiles_along(a, 0, 32), kernel.number(1), [zeros], trip)[0]


@pytest.mark.parametrize("body", [computed_beside, no_loop, squared, by_two, along_rows])
@pytest.mark.parametrize("k", [0, 30, 64, 100, 260])
def test_any_other_dot_becomes_a_loop_of_its_own(body, k):
    whole = built(body)
    sliced = cut(whole, 2)
    assert len(ops(sliced, tile.For)) == 1 + len(ops(whole, tile.For)) and set(shapes(sliced)) == {(32, 32)}
    assert interp.first_difference({"": whole, "sliced": sliced}, arguments(70, 32, k)) == ""


def loaded_outside(kernel: Kernel, a: Value, b: Value, zeros: Value) -> Value:
    def trip(k: Value, total: Value) -> tuple[Value, ...]:
        return kernel.dot(x, kernel.permute(kernel.load(b, [k, zero], (32, 64)), (1, 0)), total),
    zero = kernel.number(0)
    x = kernel.load(a, [zero, zero], (32, 64))
    return kernel.loop(zero, kernel.number(3), kernel.number(1), [zeros], trip)[0]


def written_between(kernel: Kernel, a: Value, b: Value, zeros: Value) -> Value:
    zero = kernel.number(0)
    x, y = kernel.load(a, [zero, zero], (32, 64)), kernel.load(b, [zero, zero], (32, 64))
    kernel.store(a, [zero, zero], kernel.constant(1.0, (32, 32), bf16))
    return kernel.dot(x, kernel.permute(y, (1, 0)), zeros)


def arithmetic(kernel: Kernel, a: Value, b: Value, zeros: Value) -> Value:
    zero = kernel.number(0)
    x, y = kernel.load(a, [zero, zero], (32, 64)), kernel.load(b, [zero, zero], (32, 64))
    return kernel.dot(kernel.map("neg", x), kernel.permute(y, (1, 0)), zeros)


@pytest.mark.parametrize("body", [loaded_outside, written_between, arithmetic])
def test_what_can_not_be_cut_is_left_alone(body):
    program = simplify(built(body))
    assert slice_k(program, TARGET, 2) is program


def test_slices_are_not_thinner_than_wide_reads_and_instructions():
    for depth, count in ((64, 4), (96, 4), (96, 2)):
        program = simplify(gemm(32, 32, depth))
        assert (slice_k(program, TARGET, count) is program) == (count == 4)


# -- in the compiler

def shipped_for(dtype: str, **options: Any) -> Any:
    spec = tc.spec(dtype, (512, 512))
    return shipped.compile(spec, spec, tc.spec("f32", (512, 512)), **options)


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize(("dtype", "depth"), [("bf16", 64), ("f32", 32)])
def test_slices_are_as_few_as_fit(dtype, depth, arch):
    stages = shipped_for(dtype, arch=arch).stages
    split = stages["split"]
    assert isinstance(split, Program) and set(shapes(split)) == {(256, depth)}
    assert len(ops(split, tile.For)) == 1
    steady = ops(stages["pipeline"], tile.For)[0]
    copies = [op for op in steady.body.ops if isinstance(op, (tile.AsyncCopy, tile.Load))]
    assert [op.indices[1].name for op in copies] == ["k_next"] * 2


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_what_fits_in_no_slices_is_refused_as_it_was_written(arch):
    with pytest.raises(OverBudget, match="b: 4096x32 f32 = 524288 bytes"):
        shipped_for("f32", arch=arch, BM=16, BN=4096, BK=32)


def test_a_sum_that_fills_the_registers_is_refused_at_once():
    program = shipped.trace(*[tc.spec("f32", (512, 512))] * 3, arch="gfx950")
    for waves, refused in ((1, True), (2, True), (4, False), (8, False)):
        simple = simplify(program.replace(waves=waves))
        assert (slice_k(simple, TARGET, 2) is simple) == refused


def test_a_schedule_that_says_its_tiles_is_not_given_others():
    @shipped.schedule(waves=8)
    def own(s: Any) -> None:
        s.ring(a=2, b=2)
        s.memory(s.a.read, s.b.read, next_copy=2)
        s.compute(s.acc)
    with pytest.raises(tc.TilecError, match="LDS|registers"):
        shipped_for("f32", arch="gfx942", schedule=own)
