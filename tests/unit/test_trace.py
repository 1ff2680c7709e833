"""Tracing: what a kernel's Python means as a program, checked by interpreting the program against numpy."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tilec as tc
from tilec.ir import interp
from tilec.ir.core import Program, TensorType
from tilec.ir.text import parse_program, print_program
from tilec.ir.tile import Dot, For, If, Load, LoadScalar, View
from tilec.ir.verify import verify


def run(kernel: tc.Kernel, *args: Any, **consts: Any) -> Program:
    """Traces for these numpy arguments, verifies, and interprets in place."""
    program = kernel.trace(*args, arch="gfx950", **consts)
    verify(program)
    assert print_program(parse_program(print_program(program))) == print_program(program)
    interp.run(program, dict(zip((p.name for p in program.params), args)))
    return program


def ops(program: Program, kind: type) -> list[Any]:
    return [op for op in program.walk() if isinstance(op, kind)]


def vector(n: int = 300) -> np.ndarray:
    return (np.arange(n) % 17 - 5).astype(np.float32)


# -- loops -------------------------------------------------------------------------------------------------------------

@tc.kernel
def row_sums(A: tc.Tensor, Out: tc.Tensor, BN: tc.Const = 32):
    At, Ot = A.tiles(1, BN), Out.tiles(1)
    r = tc.program_id(Ot.grid[0])
    total, largest = tc.zeros(1), tc.full((1,), -math.inf)
    for c in tc.range(At.grid[1]):
        x = At[r, c]
        total += x.sum(axis=1)
        largest = tc.maximum(largest, At.load(r, c, fill=-math.inf).max(axis=1))
    Ot[r] = total + largest


@pytest.mark.parametrize("columns", [1, 31, 32, 33, 100])
def test_a_loop_carries_what_changes(columns: int):
    a = vector(5 * columns).reshape(5, columns)
    out = np.zeros(5, np.float32)
    program = run(row_sums, a, out)
    np.testing.assert_array_equal(out, a.sum(1) + a.max(1))
    (loop,) = ops(program, For)
    assert [v.name for v in loop.results] == ["total", "largest"]
    assert [p.name for p in loop.body.params] == ["c", "total", "largest"]


def test_a_loop_without_trips_leaves_the_values_before():
    out = np.zeros(5, np.float32)
    run(row_sums, np.zeros((5, 0), np.float32), out)
    assert (out == -math.inf).all()


@tc.kernel
def unchanged_names(A: tc.Tensor, B: tc.Tensor):
    At, Bt = A.tiles(16), B.tiles(16)
    scale, x = tc.scalar(2.0), At[0]
    for k in tc.range(3):
        same = +scale
        Bt[k] = x * scale + same
    Bt[3] = x * scale


def test_names_that_do_not_change_are_not_carried():
    a, b = vector(64), np.zeros(64, np.float32)
    program = run(unchanged_names, a, b)
    assert ops(program, For)[0].results == ()
    np.testing.assert_array_equal(b.reshape(4, 16), np.stack([a[:16] * 2 + 2] * 3 + [a[:16] * 2]))


@tc.kernel
def fibonacci(Out: tc.Tensor, n: tc.i32):
    a, b = tc.scalar(0), tc.scalar(1)
    for _ in tc.range(n):
        a, b = b, a + b
    Out.scatter(0, value=a)


@pytest.mark.parametrize("n, expected", [(0, 0), (1, 1), (2, 1), (10, 55)])
def test_names_that_hand_values_to_each_other(n: int, expected: int):
    out = np.zeros(1, np.int32)
    program = fibonacci.trace(out, n, arch="gfx950")
    interp.run(program, {"Out": out, "n": n})
    assert out[0] == expected


@tc.kernel
def delayed(A: tc.Tensor, B: tc.Tensor):
    At, Bt = A.tiles(8), B.tiles(8)
    previous, current = At[0], At[1]
    for k in tc.range(2, At.grid[0]):
        Bt[k] = previous
        previous = current
        current = At[k]
    Bt[0], Bt[1] = previous, current


def test_a_value_of_the_trip_before():
    a, b = vector(48), np.zeros(48, np.float32)
    run(delayed, a, b)
    t = a.reshape(6, 8)
    np.testing.assert_array_equal(b.reshape(6, 8), np.stack([t[4], t[5], t[0], t[1], t[2], t[3]]))


@tc.kernel
def nested(A: tc.Tensor, Out: tc.Tensor):
    At = A.tiles(4, 4)
    total, count = tc.zeros(4, 4), tc.scalar(0)
    for i in tc.range(At.grid[0]):
        row = tc.zeros(4, 4)
        for j in tc.range(0, At.grid[1], 2):
            row = row + At[i, j]
            count += 1
        total = total + row * (i + 1).to(tc.f32)
    Out.tiles(4, 4)[0, 0] = total + count.to(tc.f32)


def test_nested_loops():
    a, out = vector(8 * 20).reshape(8, 20), np.zeros((4, 4), np.float32)
    program = run(nested, a, out)
    t = a.reshape(2, 4, 5, 4).transpose(0, 2, 1, 3)
    expected = sum((i + 1) * sum(t[i, j] for j in (0, 2, 4)) for i in range(2)) + 6
    np.testing.assert_array_equal(out, expected)
    outer, inner = ops(program, For)
    assert [v.name for v in outer.results] == ["total", "count"]
    assert {v.name for v in inner.results} == {"row", "count"}


@tc.kernel
def containers(A: tc.Tensor, Out: tc.Tensor, parts: tc.Const = 3):
    At, Ot = A.tiles(8), Out.tiles(8)
    accumulators = [tc.zeros(8) for _ in range(parts)]
    state = SimpleNamespace(count=tc.scalar(0), limits={"low": tc.zeros(8)})
    for k in tc.range(4):
        for p in range(parts):
            accumulators[p] = accumulators[p] + At[k] * float(p)
        state.count += 1
        state.limits["low"] = tc.minimum(state.limits["low"], At[k])
    for p in range(parts):
        Ot[p] = accumulators[p]
    Ot[parts] = state.limits["low"] + state.count.to(tc.f32)


def test_containers_are_walked_as_trees():
    a, out = vector(32), np.zeros(32, np.float32)
    run(containers, a, out)
    t = a.reshape(4, 8)
    expected = [t.sum(0) * p for p in range(3)] + [np.minimum(t.min(0), 0) + 4]
    np.testing.assert_array_equal(out.reshape(4, 8), np.stack(expected))


def _accumulate(x: Any, tiles: Any, n: Any) -> Any:
    for k in tc.range(n):
        x = x + tiles[k]
    return x


@tc.kernel
def through_a_helper(A: tc.Tensor, Out: tc.Tensor):
    At, Ot = A.tiles(8), Out.tiles(8)
    start = At[0]
    Ot[0] = _accumulate(start, At, At.grid[0])
    Ot[1] = start


def test_a_loop_in_a_helper_leaves_the_callers_names_alone():
    a, out = vector(32), np.zeros(16, np.float32)
    run(through_a_helper, a, out)
    np.testing.assert_array_equal(out.reshape(2, 8), np.stack([a.reshape(4, 8).sum(0) + a[:8], a[:8]]))


@tc.kernel
def through_a_closure(A: tc.Tensor, Out: tc.Tensor):
    At = A.tiles(8)
    total = tc.zeros(8)

    def add(k: Any) -> None:
        nonlocal total
        total = total + At[k]

    for k in tc.range(4):
        add(k)
    Out.tiles(8)[0] = total


def test_a_name_changed_by_a_closure_is_carried():
    a, out = vector(32), np.zeros(8, np.float32)
    run(through_a_closure, a, out)
    np.testing.assert_array_equal(out, a.reshape(4, 8).sum(0))


@tc.kernel
def temporaries(A: tc.Tensor, Out: tc.Tensor):
    At, A2, Ot = A.tiles(8), A.tiles(16), Out.tiles(8)
    total = tc.zeros(8)
    i = 7
    for k in tc.range(4):
        x = At[k]
        old = total
        total = old + x
        for i in range(2):      # a Python number that is written before it is read
            total = total + float(i)
    for k in tc.range(2):
        x = A2[k].max()         # the same name for another type: dead before
        new = total + x
        total = new
    for i in range(2):
        Ot[i] = total + float(i)


def test_dead_names_may_change_as_they_like():
    a, out = vector(32), np.zeros(16, np.float32)
    program = run(temporaries, a, out)
    total = a.reshape(4, 8).sum(0) + 4 + a[:16].max() + a[16:].max()
    np.testing.assert_array_equal(out.reshape(2, 8), np.stack([total, total + 1]))
    assert [[v.name for v in loop.results] for loop in ops(program, For)] == [["total"], ["total"]]


@tc.kernel
def last_value(A: tc.Tensor, Out: tc.Tensor, n: tc.i32):
    At = A.tiles(8)
    x = At[0]
    for k in tc.range(n):
        x = At[k] * 10
    Out.tiles(8)[0] = x


@pytest.mark.parametrize("n", [0, 1, 3])
def test_a_name_that_is_only_read_afterwards(n: int):
    a, out = vector(32), np.zeros(8, np.float32)
    interp.run(last_value.trace(a, out, n, arch="gfx950"), {"A": a, "Out": out, "n": n})
    np.testing.assert_array_equal(out, a[:8] if n == 0 else a.reshape(4, 8)[n - 1] * 10)


@tc.kernel
def shape_entry_changes(A: tc.Tensor, Out: tc.Tensor):
    left = A.shape[0]
    for _ in tc.range(3):
        left = left - A.shape[0]
    Out.scatter(0, value=left)


def test_a_shape_is_a_new_number_each_time():
    out = np.zeros(1, np.int32)
    run(shape_entry_changes, vector(10), out)
    assert out[0] == -20


# -- when --------------------------------------------------------------------------------------------------------------

@tc.kernel
def conditional(A: tc.Tensor, Out: tc.Tensor, n: tc.i32):
    At = A.tiles(8)
    x, y = At[0], At[1]
    with tc.when(n > 2):
        z = x + y
        x = z * 2
        with tc.when(n > 4):
            x = x + 1
    Out.tiles(8)[0] = x
    with tc.when(n == 3):
        Out.tiles(8)[1] = y


@pytest.mark.parametrize("n", [1, 3, 5])
def test_when(n: int):
    a, out = vector(16), np.zeros(16, np.float32)
    program = conditional.trace(a, out, n, arch="gfx950")
    verify(program)
    interp.run(program, {"A": a, "Out": out, "n": n})
    x, y = a.reshape(2, 8)
    np.testing.assert_array_equal(out[:8], x if n <= 2 else (x + y) * 2 + (n > 4))
    np.testing.assert_array_equal(out[8:], y if n == 3 else 0)
    assert [[v.name for v in op.results] for op in ops(program, If)] == [["x"], ["x"], []]


@tc.kernel
def when_in_a_loop(A: tc.Tensor, Out: tc.Tensor):
    At = A.tiles(8)
    total = tc.zeros(8)
    for k in tc.range(4):
        with tc.when(k % 2 == 1):
            total = total + At[k]
    Out.tiles(8)[0] = total


def test_when_in_a_loop():
    a, out = vector(32), np.zeros(8, np.float32)
    run(when_in_a_loop, a, out)
    np.testing.assert_array_equal(out, a[8:16] + a[24:])


# -- views -------------------------------------------------------------------------------------------------------------

@tc.kernel
def copy_window(A: tc.Tensor, B: tc.Tensor, lo: tc.i32, hi: tc.i32):
    Bt, Wt = B.tiles(8), A[lo:hi].tiles(8)
    for k in tc.range(Wt.grid[0]):
        Bt[k] = Wt.load(k, fill=-1)


@pytest.mark.parametrize("lo, hi", [(0, 30), (3, 20), (20, 3), (5, 5), (-4, 12), (25, 99), (99, 100)])
def test_a_run_time_slice_is_clamped(lo: int, hi: int):
    a, b = vector(30), np.zeros(40, np.float32)
    interp.run(copy_window.trace(a, b, lo, hi, arch="gfx950"), {"A": a, "B": b, "lo": lo, "hi": hi})
    window = a[max(lo, 0):max(hi, 0)]
    tiles = -(-len(window) // 8)
    padded = np.full(tiles * 8, -1, np.float32)
    padded[:len(window)] = window
    np.testing.assert_array_equal(b, np.concatenate([padded, np.zeros(40 - len(padded), np.float32)]))


SLICES = [slice(None), slice(3, None), slice(None, 7), slice(-5, None), slice(None, -4), slice(2, -2), slice(9, 4),
          slice(50), slice(-50, 3)]


@pytest.mark.parametrize("window", SLICES)
def test_a_constant_slice_is_pythons(window: slice):
    @tc.kernel
    def copy(A: tc.Tensor, B: tc.Tensor):
        B.tiles(16)[0] = A[window].tiles(16)[0]

    a, b = vector(12) + 6, np.ones(16, np.float32)
    run(copy, a, b)
    np.testing.assert_array_equal(b, np.pad(a[window], (0, 16 - len(a[window]))))


@tc.kernel
def pick(A: tc.Tensor, B: tc.Tensor, h: tc.i32):
    head = A[-1, :, h]
    B.tiles(8, 4)[0, 0] = head.T.tiles(8, 4)[0, 0]
    B.tiles(8, 4)[0, 1] = A[0, ..., 0].tiles(4, 8)[0, 0].T


@pytest.mark.parametrize("h", [0, 2])
def test_indices_drop_axes(h: int):
    a, b = vector(2 * 4 * 3 * 8).reshape(2, 4, 3, 8), np.zeros((8, 8), np.float32)
    program = pick.trace(a, b, h, arch="gfx950")
    interp.run(program, {"A": a, "B": b, "h": h})
    np.testing.assert_array_equal(b[:, :4], a[-1, :, h].T)
    np.testing.assert_array_equal(b[:3, 4:], a[0, :, :, 0].T)
    types = [op.result.type for op in ops(program, View)]
    assert types[0] == TensorType(tc.f32, 2, 1, 16) and types[1].contiguous == 0 and types[2].contiguous is None


@pytest.mark.parametrize("index", [3, -1, 100])
def test_an_index_outside_gives_an_empty_view(index: int):
    @tc.kernel
    def read_row(A: tc.Tensor, B: tc.Tensor, i: tc.i32):
        B.tiles(8)[0] = A[i].tiles(8).load(0, fill=7)
        A[i].tiles(8)[0] = 1

    a, b = vector(24).reshape(3, 8).copy(), np.zeros(8, np.float32)
    before = a.copy()
    interp.run(read_row.trace(a, b, index, arch="gfx950"), {"A": a, "B": b, "i": index})
    assert (b == 7).all() and (a == before).all()


@pytest.mark.parametrize("start, alignment", [(0, 16), (4, 16), (1, 4), (2, 4)])
def test_a_view_knows_its_alignment(start: int, alignment: int):
    @tc.kernel
    def shift(A: tc.Tensor, B: tc.Tensor):
        B.tiles(4)[0] = A[start:].tiles(4)[0]

    (view,) = ops(shift.trace(tc.spec("f32", (100,)), tc.spec("f32", (4,)), arch="gfx950"), View)
    assert view.result.type.alignment == alignment


# -- tiles and elements ------------------------------------------------------------------------------------------------

@tc.kernel
def last_tiles(A: tc.Tensor, B: tc.Tensor):
    B.tiles(8)[-1] = A.tiles(8, fill=3)[-2] + A.tiles(8, fill=3)[-1]


def test_negative_tile_indices_count_from_the_end():
    a, b = vector(20), np.zeros(16, np.float32)
    run(last_tiles, a, b)
    np.testing.assert_array_equal(b[8:], a[8:16] + np.pad(a[16:], (0, 4), constant_values=3))


@tc.kernel
def permute_rows(A: tc.Tensor, Index: tc.Tensor, B: tc.Tensor):
    rows = Index.tiles(8)[0]
    columns = tc.iota(4)
    x = A.gather(rows[:, None], columns[None, :], fill=-1)
    B.scatter(rows[:, None], columns + 4, value=x)
    B.tiles(8, 4)[0, 0] = x


@pytest.mark.parametrize("index", ["int32", "int64", "uint32"])
def test_gather_and_scatter(index: str):
    a, b = vector(24).reshape(6, 4), np.zeros((8, 8), np.float32)
    rows = np.array([5, 0, 3, 3, 1, 2, 4, 7], index)
    if index == "int64":
        rows[7] = (1 << 32) + 1      # outside, and must stay outside as i32
    run(permute_rows, a, rows, b)
    x = np.where((rows < 6)[:, None], a[np.where(rows < 6, rows, 0)], np.float32(-1))
    np.testing.assert_array_equal(b[:, :4], x)
    expected = np.zeros((8, 4), np.float32)
    for row, values in zip(rows, x):
        if row < 8:
            expected[row] = values
    np.testing.assert_array_equal(b[:, 4:], expected)


@tc.kernel
def histogram(X: tc.Tensor, Counts: tc.Tensor):
    Xt = X.tiles(64)
    i = tc.program_id(Xt.grid[0])
    Counts.atomic_add(Xt.load(i, fill=-1), value=1)


def test_atomic_add():
    x, counts = (np.arange(200) * 7 % 10).astype(np.int32), np.zeros(10, np.int32)
    run(histogram, x, counts)
    np.testing.assert_array_equal(counts, np.bincount(x))


@tc.kernel
def lengths(Offsets: tc.Tensor, A: tc.Tensor, Out: tc.Tensor):
    b = tc.program_id(Out.shape[0])
    lo, hi = Offsets.at[b], Offsets.at[b + 1]
    part = A[lo:hi].tiles(32)[0]
    Out.scatter(b, value=part.sum() + Offsets.at[-1].to(tc.f32))


def test_offsets_in_a_tensor():
    a, out, offsets = vector(50), np.zeros(3, np.float32), np.array([0, 20, 20, 50], np.int32)
    program = run(lengths, offsets, a, out)
    np.testing.assert_array_equal(out, [a[:20].sum() + 50, 50, a[20:].sum() + 50])
    assert len(ops(program, LoadScalar)) == 3


# -- arithmetic --------------------------------------------------------------------------------------------------------

EDGES = [0, 1, -1, 2, -2, 7, -7, 8, -8, 2**31 - 1, -(2**31)]


@pytest.mark.parametrize("divisor", [1, -1, 3, -3, 8, 2**31 - 1, -(2**31)])
def test_scalar_division_has_pythons_floor(divisor: int):
    @tc.kernel
    def divide(Out: tc.Tensor, n: tc.i32, d: tc.i32):
        Out.scatter(0, value=n // d)
        Out.scatter(1, value=n % d)
        Out.scatter(2, value=tc.cdiv(n, 8))

    for n in EDGES:
        if (n, divisor) == (-(2**31), -1):
            continue        # overflows
        out = np.zeros(3, np.int32)
        interp.run(divide.trace(out, n, divisor, arch="gfx950"), {"Out": out, "n": n, "d": divisor})
        assert (out[0], out[1]) == (n // divisor, n % divisor)
        if n > 0:
            assert out[2] == -(-n // 8)


@tc.kernel
def expressions(A: tc.Tensor, Out: tc.Tensor):
    x = A.tiles(8)[0]
    Ot, f = Out.tiles(8), tc.f32
    n = tc.iota(8)
    results = [
        x + 1, 2 - x, x * 0.5, 1 / (tc.abs(x) + 1), -x, abs(x), n.to(f) + x, (n // 3).to(f), (n % 3 << 2).to(f),
        (~n & 6 | 1).to(f), tc.where(x > 0, x, 0), tc.where((n > 2) & (n != 5), 1, x), tc.maximum(x, 2),
        tc.minimum(1.5, x), tc.exp2(x), tc.sqrt(tc.abs(x)), tc.full((8,), x.sum()), x - x.max(), tc.floor(x * 0.3),
        tc.fma(x, x, 1), (x > 0).to(f), ((x > 0) + (x > 1)).to(f), tc.full((8,), (x > 0).sum()).to(f),
        n.to(tc.i8).sum().to(f) + x, np.float32(2) * x, (x < tc.scalar(1)).to(f), 5 - n.to(f),
    ]
    for i, result in enumerate(results):
        Ot[i] = result


def test_expressions_mean_what_numpy_means():
    x = np.array([-3, -1.5, 0, 0.25, 1, 1.75, 4, 2], np.float32)
    out = np.zeros(27 * 8, np.float32)
    run(expressions, x, out)
    n = np.arange(8)
    expected = [
        x + 1, 2 - x, x * 0.5, 1 / (abs(x) + 1), -x, abs(x), n + x, n // 3, n % 3 << 2,
        ~n & 6 | 1, np.where(x > 0, x, 0), np.where((n > 2) & (n != 5), 1, x), np.maximum(x, 2),
        np.minimum(1.5, x), np.exp2(x), np.sqrt(abs(x)), np.full(8, x.sum()), x - x.max(),
        np.floor(x * np.float32(0.3)), x * x + 1, x > 0, (x > 0) * 1 + (x > 1), np.full(8, (x > 0).sum()),
        n.sum() + x, 2 * x, x < 1, 5 - n,
    ]
    np.testing.assert_allclose(out.reshape(27, 8), np.array([np.asarray(e, np.float64) for e in expected]), rtol=1e-6)


@tc.kernel
def broadcasts(A: tc.Tensor, Out: tc.Tensor):
    x = A.tiles(4, 8)[0, 0]
    rows, columns = x.sum(axis=1), x.max(axis=0)
    y = x + rows[:, None] * columns[None, :] - columns + x.min(axis=-1, keepdims=True) + x.sum() + x.max(keepdims=True)
    Out.tiles(4, 8)[0, 0] = y


def test_broadcasting_is_numpys():
    x, out = vector(32).reshape(4, 8), np.zeros((4, 8), np.float32)
    run(broadcasts, x, out)
    expected = x + x.sum(1)[:, None] * x.max(0)[None, :] - x.max(0) + x.min(-1, keepdims=True) + x.sum() + x.max()
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("element, accumulator", [
    ("f16", "f32"), ("bf16", "f32"), ("f32", "f32"), ("f64", "f64"), ("i8", "i32")])
def test_dot_accumulates_wide(element: str, accumulator: str):
    @tc.kernel
    def multiply(A: tc.Tensor, B: tc.Tensor, C: tc.Tensor):
        C.tiles(16, 16)[0, 0] = tc.dot(A.tiles(16, 32)[0, 0], B.tiles(16, 32)[0, 0].T)

    kind = getattr(tc, element).numpy()
    a, b = (np.arange(512).reshape(16, 32) % 7 - 3).astype(kind), (np.arange(512).reshape(16, 32) % 5 - 2).astype(kind)
    c = np.zeros((16, 16), getattr(tc, accumulator).numpy())
    program = run(multiply, a, b, c)
    np.testing.assert_array_equal(c.astype(np.float64), a.astype(np.float64) @ b.astype(np.float64).T)
    assert ops(program, Dot)[0].result.type.dtype.name == accumulator


# -- names, places, the grid -------------------------------------------------------------------------------------------

@tc.kernel
def named(A: tc.Tensor):
    At = A.tiles(8)
    a, b = At[0], At[1]
    acc = a + b * 2
    acc += 1
    if (c := acc * acc) is not None:
        At[0] = c


def test_values_are_called_what_the_user_calls_them():
    program = named.trace(tc.spec("f32", (100,)), arch="gfx950")
    names = [op.result.name for op in program.body.ops if op.results and op.result.name]
    assert names == ["a", "b", "acc", "acc", "c"]


def test_ops_know_the_users_line_and_expression():
    program = named.trace(tc.spec("f32", (100,)), arch="gfx950")
    first, second = ops(program, Load)
    assert first.where.excerpt().splitlines() == ["    a, b = At[0], At[1]", "           ^^^^^"]
    assert second.where.column == first.where.column + 7
    assert program.where.excerpt().splitlines() == ["    def named(A: tc.Tensor):", "        ^^^^^"]


def test_the_grid_is_in_order_slowest_first():
    @tc.kernel
    def three(A: tc.Tensor, n: tc.i32):
        i, j, k = tc.program_id((A.tiles(4, 8).grid[0], n * 2, 3))
        A.tiles(4, 8)[i, j] = k.to(tc.f32)

    a = np.zeros((9, 100), np.float32)
    program = three.trace(a, 5, arch="gfx950")
    assert interp.evaluate_grid(program, {"A": a, "n": 5}) == (3, 10, 3)


def test_a_tile_count_does_not_overflow():
    program = named_grid.trace(tc.spec("i8", (2**31 - 1,)), arch="gfx950")
    assert interp.evaluate_grid(program, {"A": tc.spec("i8", (2**31 - 1,))}) == (-(-(2**31 - 1) // 1024),)
    assert interp.evaluate_grid(program, {"A": tc.spec("i8", (0,))}) == (0,)


@tc.kernel
def named_grid(A: tc.Tensor):
    At = A.tiles(1024)
    At[tc.program_id(At.grid[0])] = 1


def test_tile_operations_need_a_trace():
    with pytest.raises(tc.TilecError, match="only while a kernel is traced"):
        tc.zeros(3)


def test_a_failed_trace_leaves_no_trace_behind():
    @tc.kernel
    def broken(A: tc.Tensor):
        raise ValueError("the user's own")

    with pytest.raises(ValueError, match="the user's own"):
        broken.trace(tc.spec("f32", (3,)), arch="gfx950")
    with pytest.raises(tc.TilecError, match="only while a kernel is traced"):
        tc.zeros(3)
