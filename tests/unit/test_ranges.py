"""Affine ranges: a loop split where its masks end computes the same; no mask is claimed that is false somewhere."""

import random

import numpy as np
import pytest

from tests.unit.tile_programs import Kernel
from tilec.dtypes import i32
from tilec.ir import interp, tile
from tilec.ir.core import Op, Program, TileType, Value, definitions
from tilec.ir.text import print_program
from tilec.ir.verify import verify
from tilec.passes.ranges import affine
from tilec.passes.simplify import simplify
from tilec.passes.split_tails import split_tails

COMPARISONS = ("le", "lt", "ge", "gt")


def counting(compare, trips: int = 12, lower: int = 0) -> Program:
    """Adds up where a mask is true, trip by trip; `compare(kernel, counter, n)` builds the mask, of shape (8,)."""
    k = Kernel("k")
    out, n = k.tensor("out", i32, 1), k.scalar_parameter("n", i32)

    def body(counter: Value, total: Value) -> tuple[Value, ...]:
        weight = k.broadcast(k.map("add", counter, k.number(1)), (8,))
        mask = compare(k, counter, n)
        return (k.map("add", total, k.map("where", mask, weight, k.constant(0, (8,)))),)

    total, = k.loop(k.number(lower), k.number(trips), k.number(1), [k.constant(0, (8,))], body)
    k.store(out, [k.number(0)], total)
    return k.program()


def results(program: Program, n: int) -> np.ndarray:
    out = np.zeros(8, np.int32)
    interp.run(program, {"out": out, "n": n}, [()])
    return out


def masks(program: Program) -> list[int]:
    """Comparisons of tiles in each loop."""
    loops = [op for op in program.walk() if isinstance(op, tile.For)]
    return [sum(map(is_mask, loop.body.walk())) for loop in loops]


def is_mask(op: Op) -> bool:
    return isinstance(op, tile.Elementwise) and op.function in COMPARISONS and isinstance(op.result.type, TileType)


def column(k: Kernel, counter: Value) -> Value:
    return k.map("add", k.broadcast(k.map("mul", counter, k.number(8)), (8,)), k.iota((8,), 0))


@pytest.mark.parametrize("lower", [0, 3])
@pytest.mark.parametrize("function, turned", [("le", False), ("lt", False), ("ge", True), ("gt", True)])
def test_a_bound_splits_the_loop(function, turned, lower):
    def compare(k, counter, n):
        sides = [column(k, counter), k.broadcast(n, (8,))]
        return k.map(function, *(reversed(sides) if turned else sides))
    before = counting(compare, lower=lower)
    after = simplify(split_tails(before))
    assert masks(after) == [0, 1]
    for n in (-9, -1, 0, 1, 7, 8, 9, 23, 24, 25, 64, 96, 97, 1000, 2**28, 2**31 - 1, -2**31):
        assert np.array_equal(results(before, n), results(after, n))




@pytest.mark.parametrize("n, steady", [(-1, 0), (6, 0), (7, 1), (8, 1), (14, 1), (15, 2), (95, 12), (1000, 12)])
def test_all_tiles_that_the_mask_does_not_cut_are_steady(n, steady):
    after = simplify(split_tails(counting(lambda k, counter, n: k.map("le", column(k, counter), k.broadcast(n, (8,))))))
    seen = []

    def observe(where, op, made):
        if is_mask(op):
            seen.append(op)
    interp.run(after, {"out": np.zeros(8, np.int32), "n": n}, [()], observe)
    assert len(seen) == 12 - steady


@pytest.mark.parametrize("compare", [
    lambda k, counter, n: k.map("le", k.broadcast(n, (8,)), column(k, counter)),                 # true in the end only
    lambda k, counter, n: k.map("eq", column(k, counter), k.broadcast(n, (8,))),
    lambda k, counter, n: k.map("lt", k.map("mul", column(k, counter), column(k, counter)), k.broadcast(n, (8,))),
    lambda k, counter, n: k.map("lt", k.iota((8,), 0), k.broadcast(n, (8,)))], ids=range(4))
def test_other_masks_are_left_alone(compare):
    program = counting(compare)
    assert print_program(split_tails(program)) == print_program(program)


def random_value(rng: random.Random, k: Kernel, counter: Value, n: Value, depth: int) -> Value:
    if depth == 0:
        return rng.choice([lambda: k.iota((8,), 0), lambda: k.broadcast(counter, (8,)), lambda: k.broadcast(n, (8,)),
                           lambda: k.constant(rng.choice([0, 1, -3, 100, 2**27, -2**31]), (8,))])()
    function = rng.choice(["add", "add", "sub", "neg", "mul"])
    one = random_value(rng, k, counter, n, depth - 1)
    if function == "neg":
        return k.map("neg", one)
    other = (k.constant(rng.choice([1, 2, -1, 3, 64, 2**20]), (8,)) if function == "mul" else
             random_value(rng, k, counter, n, depth - 1))
    return k.map(function, one, other)


@pytest.mark.parametrize("seed", range(120))
def test_random_masks(seed):
    """Wrapping numbers included: before == after for every n, wherever the loop is split."""
    rng = random.Random(seed)

    def compare(k, counter, n):
        sides = [random_value(rng, k, counter, n, rng.choice([1, 2, 3])) for _ in range(2)]
        return k.map(rng.choice(COMPARISONS), *sides)
    before = counting(compare, trips=9)
    after = split_tails(before)
    verify(after)
    after = simplify(after)
    with np.errstate(over="ignore"):
        for n in (0, 1, -1, 5, 8, 63, 64, 65, 700, 2**20, 2**26, 2**30, 2**31 - 1, -2**31, -2**20):
            assert np.array_equal(results(before, n), results(after, n)), n


def test_ranges():
    k = Kernel("k")
    n, counter = k.scalar_parameter("n", i32), k.scalar_parameter("counter", i32)
    value = k.map("sub", column(k, counter), k.map("mul", k.constant(3, (8,)), k.broadcast(n, (8,))))
    defining = definitions(k.program().body)
    found = affine(value, counter, defining, {counter, *defining})
    assert found is not None
    assert (found.coefficient, found.scalars, found.low, found.high) == (8, ((n, -3),), 0, 7)
    assert found.slope == 8 and found.weight == 3
