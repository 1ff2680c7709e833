"""split_tails: claims hold for every extent, whole tiles run without bounds, other loops are left alone."""

from collections import Counter

import numpy as np
import pytest

from tests.unit.tile_programs import Kernel, gemm
from tilec.dtypes import bf16, f32, i32
from tilec.ir import interp, tile
from tilec.ir.core import Program, Value
from tilec.ir.text import print_program
from tilec.ir.verify import verify
from tilec.passes.simplify import simplify
from tilec.passes.split_tails import split_tails


def loops(program: Program) -> list[tile.For]:
    return [op for op in program.walk() if isinstance(op, tile.For)]


def split(program: Program) -> Program:
    result = split_tails(program)
    verify(result)
    verify(simplify(result))
    return result


def claims(program: Program) -> list[tuple[bool, ...]]:
    return [op.inside for op in program.walk() if isinstance(op, (tile.Load, tile.Store))]


def executed(program: Program, arguments: dict, program_ids=None) -> Counter[tuple[bool, ...]]:
    """How often loads with each claim ran."""
    counts: Counter[tuple[bool, ...]] = Counter()

    def observe(where, op, results):
        if isinstance(op, tile.Load):
            counts[op.inside] += 1
    interp.run(program, arguments, program_ids, observe)
    return counts


def test_gemm_is_split_in_whole_tiles_and_the_rest():
    text = print_program(simplify(split(simplify(gemm(32, 32, 16)))))
    main, rest = text.split("for ")[1:]
    assert "%a: tile<32x16, bf16> = load %A, [%pid, %k] inside=(false, true)" in main
    assert "%b: tile<32x16, bf16> = load %B, [%pid.1, %k] inside=(false, true)" in main
    assert "%a.1: tile<32x16, bf16> = load %A, [%pid, %k.1]\n" in rest
    assert "%b.1: tile<32x16, bf16> = load %B, [%pid.1, %k.1]\n" in rest
    assert rest.startswith("%full, ") and main.partition(", %full,")[1]


@pytest.mark.parametrize(("ka", "kb"), [(0, 0), (1, 1), (15, 15), (16, 16), (17, 17), (80, 80), (90, 90), (90, 16),
                                        (16, 90), (90, 0), (48, 95)])
def test_any_extents_give_the_same_and_only_whole_tiles_are_claimed(ka, kb):  # BL-31, BL-35, BL-41
    rng = np.random.default_rng(ka)
    around = [np.full((40, 100), np.nan, bf16.numpy()) for _ in range(2)]
    a, b = around[0][:33, :ka], around[1][:20, :kb]
    for x in (a, b):
        x[...] = rng.integers(-4, 5, x.shape)
    whole, split_up = gemm(32, 32, 16), split(gemm(32, 32, 16))
    arguments = {"A": a, "B": b, "C": np.full((33, 20), -1, np.float32)}
    assert interp.first_difference({"": whole, "split": split_up}, arguments) == ""
    counts = executed(split_up, arguments, [(1, 0)])
    shared = min(ka, kb)
    assert np.array_equal(arguments["C"][32:], a[32:, :shared].astype(np.float32) @ b[:, :shared].astype(np.float32).T)
    assert counts[(False, True)] == 2 * (shared // 16) and counts[()] == 2 * (-(-ka // 16) - shared // 16)


def counted(build, lower=0, upper=None, step=1, extent=100) -> tuple[Program, Program, dict]:
    """A loop `for k in range(lower, upper, step): build(kernel, x, out, k)`, before and after, with its arguments."""
    k = Kernel("k")
    x, out, n = k.tensor("x", i32, 1), k.tensor("out", i32, 1), k.scalar_parameter("n", i32)

    def body(counter, *carried):
        return build(k, x, out, counter, *carried) or ()
    start = n if lower is None else k.number(lower)
    k.loop(start, k.tiles_along(x, 0, 8) if upper is None else k.number(upper), k.number(step), [], body)
    program = k.program()
    arguments = {"x": np.arange(extent, dtype=np.int32) + 1, "out": np.zeros(extent, np.int32), "n": 0}
    after = split(program)
    assert interp.first_difference({"": program, "split": after}, arguments) == ""
    return program, after, arguments


def copy(k: Kernel, x: Value, out: Value, counter: Value) -> None:
    k.store(out, [counter], k.map("neg", k.load(x, [counter], (8,))))


@pytest.mark.parametrize("extent", [0, 1, 7, 8, 9, 64, 65])
@pytest.mark.parametrize(("lower", "upper"), [(0, None), (1, None), (3, 5), (5, 3), (0, 20), (0, 1)])
def test_stores_loads_and_any_bounds(lower, upper, extent):
    _, after, arguments = counted(copy, lower, upper, extent=extent)
    assert claims(after) == [(True,), (True,), (), ()]
    trips = range(lower, -(-extent // 8) if upper is None else upper)
    assert executed(after, arguments, [()])[(True,)] == sum(k < extent // 8 for k in trips)


@pytest.mark.parametrize("options", [{"step": 2}, {"lower": -1}, {"lower": None}], ids=str)
def test_loops_whose_counters_are_not_known_are_left_alone(options):
    before, after, _ = counted(copy, **options)
    assert print_program(after) == print_program(before)


def test_other_indices_and_blocks():
    def build(k, x, out, counter):
        other = k.map("add", counter, k.number(0))
        one, two = k.load(x, [counter], (8,), fill=k.number(-5)), k.load(x, [other], (8,))
        wide = k.load(x, [counter], (16,))
        k.store(out, [other], k.map("add", one, two))
        k.store(out, [counter], wide)
    _, after, arguments = counted(build, extent=100)
    assert claims(after) == [(True,), (), (True,), (), (True,), *[()] * 5]
    assert executed(after, arguments, [()]) == {(True,): 2 * 6, (): 6 + 3 * 7}      # 100 // 16 trips of 13


def test_what_is_inside_already_stays_and_needs_no_split():
    def build(k, x, out, counter):
        k.store(out, [k.number(0)], k.load(x, [counter], (8,), inside=(True,)))
    before, after, _ = counted(build, upper=5)
    assert print_program(after) == print_program(before)


def test_accesses_under_a_condition_are_marked():
    def build(k, x, out, counter):
        k.branch(k.map("lt", counter, k.number(3)), lambda: copy(k, x, out, counter), lambda: None)
    _, after, _ = counted(build)
    assert claims(after) == [(True,), (True,), (), ()]


def test_only_innermost_loops_are_split_and_carried_values_pass_through_both():
    k = Kernel("k")
    x, out = k.tensor("x", i32, 2), k.tensor("out", i32, 1)
    zero, one = k.number(0), k.number(1)

    def outer(row, total, last):
        def inner(column, part, seen):
            return k.map("add", part, k.reduce("sum", k.load(x, [row, column], (4, 8)), 1)), column
        return k.loop(zero, k.tiles_along(x, 1, 8), one, [total, last], inner, counter="column")
    total, last = k.loop(zero, k.tiles_along(x, 0, 4), one, [k.constant(5, (4,)), k.number(-1)], outer, counter="row")
    k.store(out, [zero], total)
    k.store(out, [one], k.broadcast(last, (4,)))
    after = split(k.program())
    assert [loop.body.params[0].name for loop in loops(after)] == ["row", "column", "column"]
    data = np.arange(10 * 21, dtype=np.int32).reshape(10, 21)
    result = np.zeros(8, np.int32)
    interp.run(after, {"x": data, "out": result}, [()])
    padded = np.zeros((12, 24), np.int32)
    padded[:10, :21] = data
    assert result.tolist() == [*(5 + padded.reshape(3, 4, 24).sum((0, 2))), 2, 2, 2, 2]


@pytest.mark.parametrize("row", [-1, 0, 2, 3])
def test_a_view_made_before_the_loop_is_bounded_by_its_own_extent_even_when_empty(row):
    k = Kernel("k")
    x, out, r = k.tensor("x", f32, 2), k.tensor("out", f32, 1), k.scalar_parameter("r", i32)
    zero, one = k.number(0), k.number(1)
    window = k.view(x, [r, one], [one, k.number(19)], (1,))

    def body(counter):
        k.store(out, [counter], k.load(window, [counter], (8,)))
        inner = k.view(x, [zero, zero], [one, one], (0, 1))
        k.store(out, [counter], k.map("add", k.load(out, [counter], (8,)),
                                      k.broadcast(k.load_scalar(inner, [zero, zero]), (8,))))
        return ()
    k.loop(zero, k.number(3), one, [], body)
    before, after = k.program(), split(k.program())
    arguments = {"x": np.arange(60, dtype=np.float32).reshape(3, 20) + 1, "out": np.zeros(24, np.float32), "r": row}
    assert interp.first_difference({"": before, "split": after}, arguments) == ""
    assert executed(after, arguments, [()])[(True,)] == (2 * 2 if 0 <= row < 3 else 0)


def test_a_view_made_in_the_loop_bounds_nothing():
    def build(k, x, out, counter):
        k.store(out, [k.number(0)], k.load(k.view(x, [k.number(1)], [k.number(9)], (0,)), [counter], (8,)))
    before, after, _ = counted(build)
    assert print_program(after) == print_program(before)
