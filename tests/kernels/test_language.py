"""Kernels that use the rest of the language: elements by index, atomics, conditions, carried values, views, scalars,
three axes. Each gives the same numbers at every stage, and an object that equals clang's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilec as tc
from tests.support.clang import compare_with_clang
from tests.support.numbers import integers
from tests.support.placing import PLACES, columns, dense, every_third, odd_rows, placed
from tests.support.proving import prove_chain
from tilec.emulator.trace import Event, EventSink
from tilec.frontend.jit import Kernel, launch_values
from tilec.ir import tile
from tilec.runtime import emulated

Arrays = dict[str, np.ndarray]


def check(kernel: Kernel, arguments: dict[str, Any], arch: str, expected: Arrays, **options: Any) -> None:
    prove_chain(kernel, arguments, arch, expected, **options)
    consts = {name: value for name, value in options.items() if name.isupper()}
    compiled = kernel.compile(**arguments, arch=arch, verify=True, **consts)
    compare_with_clang(compiled.asm, arch, compiled.object)
    assert compiled.resources.scratch == 0


# -- elements by index

@tc.kernel
def histogram(X: tc.Tensor, H: tc.Tensor, BN: tc.Const = 256):
    """H[x] += 1; what lies outside H is not counted."""
    i = tc.program_id(X.tiles(BN).grid[0])
    H.atomic_add(X.tiles(BN, fill=-1)[i].to(tc.i32), value=1)


@pytest.mark.parametrize("h_type", ["i32", "u32", "f32", "i64", "u64", "f64"])
@pytest.mark.parametrize("length, bins", [(1000, 7), (1, 1), (513, 300)])
def test_histogram(h_type, length, bins, arch):                          # BL-73
    x = integers((length,), "i32", 3, high=bins + 2)
    h = integers((bins,), h_type, 4)
    expected = h + np.bincount(x[(x >= 0) & (x < bins)], minlength=bins).astype(h.dtype)
    check(histogram, {"X": placed(x), "H": placed(h)}, arch, {"H": expected})


@tc.kernel
def permute_rows(X: tc.Tensor, P: tc.Tensor, Y: tc.Tensor, Z: tc.Tensor, BM: tc.Const = 16, BN: tc.Const = 32):
    """Y[r] = X[P[r]], Z[P[r]] = X[r]; rows that P sends outside are 5 and are dropped."""
    i, j = tc.program_id(Y.tiles(BM, BN).grid)
    rows = P.tiles(BM, fill=-1)[i]
    columns = tc.iota(BN) + j * BN
    Y.tiles(BM, BN)[i, j] = X.gather(rows[:, None], columns[None, :], fill=5)
    Z.scatter(rows[:, None], columns[None, :], value=X.tiles(BM, BN)[i, j])


@pytest.mark.parametrize("dtype", ["f32", "bf16", "i8", "f64", "i64"])
@pytest.mark.parametrize("m, n", [(33, 40), (16, 32), (1, 1), (50, 3)])
def test_gather_and_scatter(dtype, m, n, arch):
    x = integers((m, n), dtype, 3, high=100)
    p = np.random.default_rng(m).permutation(m).astype(np.int32)
    p[m // 2] = m + 3
    inside = p < m
    y, z = np.full_like(x, 5), integers((m, n), dtype, 4)
    arguments = {"X": placed(x, odd_rows), "P": placed(p), "Y": placed(y * 0), "Z": placed(z, every_third)}
    y[inside], expected_z = x[p[inside]], z.copy()
    expected_z[p[inside]] = x[inside]
    check(permute_rows, arguments, arch, {"Y": y, "Z": expected_z})


@tc.kernel
def pick_row(X: tc.Tensor, I: tc.Tensor, Y: tc.Tensor, offset: tc.i32, BN: tc.Const = 64):
    """Y = X[I[offset]]: a row chosen by a number in memory; the row and columns may lie outside."""
    j = tc.program_id(Y.tiles(BN).grid[0])
    Y.tiles(BN)[j] = X[I.at[offset]].tiles(BN)[j]


@pytest.mark.parametrize("offset", [0, 1, 2, 3, 99])
@pytest.mark.parametrize("place", ["dense", "odd_rows", "columns", "backwards"])
def test_a_row_chosen_by_memory(offset, place, arch):
    x = integers((7, 100), "bf16", 3)
    where = np.array([6, 2, -1, 7], np.int64)
    row = where[offset] if offset < 4 else 0
    y = x[row].astype(x.dtype) if 0 <= row < 7 else np.zeros(100, x.dtype)
    arguments = {"X": placed(x, PLACES[place]), "I": placed(where), "Y": placed(np.ones_like(y)), "offset": offset}
    check(pick_row, arguments, arch, {"Y": y})


# -- control

@tc.kernel
def running_sum(X: tc.Tensor, Y: tc.Tensor, S: tc.Tensor, limit: tc.f32, BM: tc.Const = 8, BN: tc.Const = 16):
    """Y[m, j] = sum of X[m, :j tiles], until the total of the tile rows passes `limit`; S counts tiles added."""
    Xt, Yt = X.tiles(BM, BN), Y.tiles(BM, BN)
    i = tc.program_id(Xt.grid[0])
    acc, total, count = tc.zeros(BM, BN), tc.scalar(0.0), tc.scalar(0)
    for j in tc.range(Xt.grid[1]):
        with tc.when(total <= limit):
            x = Xt[i, j].to(tc.f32)
            acc = acc + x
            total = total + x.sum()
            count = count + 1
        Yt[i, j] = acc
    with tc.when(count % 2 == 1):
        S.tiles(1)[i] = tc.full((1,), count)


@pytest.mark.parametrize("m, n", [(20, 70), (8, 16), (3, 1), (5, 0)])
@pytest.mark.parametrize("limit", [-1.0, 0.0, 60.0, 1e9])
def test_carried_scalars_and_tiles(m, n, limit, arch):
    x = integers((m, n), "f32", 8)
    padded = np.zeros((-(-m // 8) * 8, -(-n // 16) * 16), np.float32)
    padded[:m, :n] = x
    y, s = np.zeros_like(padded), np.full(-(-m // 8), -7, np.int32)
    for i in range(len(s)):
        acc, total, count = np.zeros((8, 16), np.float32), 0.0, 0
        for j in range(-(-n // 16)):
            if total <= limit:
                tile = padded[8 * i:8 * i + 8, 16 * j:16 * j + 16]
                acc, total, count = acc + tile, total + tile.sum(), count + 1
            y[8 * i:8 * i + 8, 16 * j:16 * j + 16] = acc
        s[i] = count if count % 2 else s[i]
    outputs = {"Y": placed(np.ones_like(x)), "S": placed(np.full_like(s, -7))}
    check(running_sum, {"X": placed(x, odd_rows), **outputs, "limit": limit}, arch, {"Y": y[:m, :n], "S": s})


@tc.kernel
def triangle(X: tc.Tensor, Y: tc.Tensor, BM: tc.Const = 16):
    """The lower triangle by blocks: loops whose bounds depend on the program's id, and selection by coordinates."""
    i = tc.program_id(Y.tiles(BM, BM).grid[0])
    Xt, Yt = X.tiles(BM, BM), Y.tiles(BM, BM)
    for j in tc.range(i):
        Yt[i, j] = Xt[i, j]
    rows, cols = tc.iota(BM, BM, axis=0), tc.iota(BM, BM, axis=1)
    Yt[i, i] = tc.where(rows >= cols, Xt[i, i], 0)


@pytest.mark.parametrize("size", [1, 16, 37, 64])
@pytest.mark.parametrize("dtype", ["f32", "f16", "i8", "i32"])
def test_loops_that_depend_on_the_program(size, dtype, arch):
    x = integers((size, size), dtype, 8)
    check(triangle, {"X": placed(x, odd_rows), "Y": placed(np.zeros_like(x), odd_rows)}, arch, {"Y": np.tril(x)})


@tc.kernel
def swap_loop(A: tc.Tensor, B: tc.Tensor, n: tc.i32, BN: tc.Const = 64):
    """Two tiles change places n times."""
    a, b = A.tiles(BN)[0], B.tiles(BN)[0]
    for _ in tc.range(n):
        a, b = b, a + 1
    A.tiles(BN)[0], B.tiles(BN)[0] = a, b


@pytest.mark.parametrize("n", [0, 1, 2, 5])
@pytest.mark.parametrize("dtype", ["f32", "bf16", "f64", "i8"])
def test_swapped_tiles(n, dtype, arch):                                  # BL-24
    a, b = integers((60,), dtype, 1), integers((60,), dtype, 2)
    x, y = a, b
    for _ in range(n):
        x, y = y, (x + 1).astype(x.dtype)
    check(swap_loop, {"A": placed(a), "B": placed(b), "n": n}, arch, {"A": x, "B": y})


# -- views, axes, layouts

@tc.kernel
def batched(A: tc.Tensor, B: tc.Tensor, C: tc.Tensor, BM: tc.Const = 32, BN: tc.Const = 32, BK: tc.Const = 32):
    """C[b] = A[b] B[b], B is K x N."""
    b, m, n = tc.program_id((A.shape[0], *C[0].tiles(BM, BN).grid))
    At, Bt = A[b].tiles(BM, BK), B[b].tiles(BK, BN)
    acc = tc.zeros(BM, BN)
    for k in tc.range(At.grid[1]):
        acc = tc.dot(At[m, k], Bt[k, n], acc)
    C[b].tiles(BM, BN)[m, n] = acc.to(C.dtype)


@pytest.mark.parametrize("batch, m, n, k", [(3, 33, 40, 50), (1, 32, 32, 32), (2, 5, 70, 7), (0, 4, 4, 4)])
@pytest.mark.parametrize("place", ["dense", "columns", "odd_rows", "wide_rows"])
def test_batched_matrices(batch, m, n, k, place, arch):                  # BL-76
    a, b = integers((batch, m, k), "bf16", 1), integers((batch, k, n), "bf16", 2)
    arguments = {"A": placed(a, PLACES[place]), "B": placed(b, PLACES[place]),
                 "C": placed(np.zeros((batch, m, n), np.float32), PLACES[place])}
    check(batched, arguments, arch, {"C": a.astype(np.float32) @ b.astype(np.float32)})


@tc.kernel
def turn(X: tc.Tensor, Y: tc.Tensor, BL: tc.Const = 4, BM: tc.Const = 8, BN: tc.Const = 16):
    """Y[n, l, m] = X[l, m, n]."""
    i, j, k = tc.program_id(X.tiles(BL, BM, BN).grid)
    Y.tiles(BN, BL, BM)[k, i, j] = X.tiles(BL, BM, BN)[i, j, k].permute(2, 0, 1)


@pytest.mark.parametrize("shape", [(3, 5, 7), (4, 8, 16), (9, 17, 33), (1, 1, 1), (5, 1, 20)])
@pytest.mark.parametrize("dtype", ["f32", "bf16", "i8"])
def test_three_axes(shape, dtype, arch):
    x = integers(shape, dtype, 5, high=100)
    y = np.zeros((shape[2], shape[0], shape[1]), x.dtype)
    check(turn, {"X": placed(x, odd_rows), "Y": placed(y, odd_rows)}, arch, {"Y": x.transpose(2, 0, 1)})


@tc.kernel
def ragged(X: tc.Tensor, S: tc.Tensor, Y: tc.Tensor, BM: tc.Const = 16, BN: tc.Const = 32):
    """Y[s] = row sums of the rows from S[s] to S[s + 1] of X, as column sums: segments of any length."""
    s = tc.program_id(Y.shape[0])
    part = X[S.at[s]:S.at[s + 1]]
    acc = tc.zeros(BN, dtype=tc.f32)
    for i in tc.range(part.tiles(BM, BN).grid[0]):
        acc = acc + part.tiles(BM, BN)[i, 0].to(tc.f32).sum(axis=0)
    Y[s].tiles(BN)[0] = acc


@pytest.mark.parametrize("cuts", [(0, 3, 3, 50), (5, 40), (0, 16, 32), (10, 2, 60)])
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_windows_of_any_length(cuts, dtype, arch):                       # BL-49
    x = integers((50, 31), dtype, 5)
    y = np.stack([x[a:b].astype(np.float32).sum(axis=0) for a, b in zip(cuts, cuts[1:])])
    arguments = {"X": placed(x, odd_rows), "S": placed(np.array(cuts, np.int32)), "Y": placed(y * 0)}
    check(ragged, arguments, arch, {"Y": y})


@tc.kernel
def mix(X: tc.Tensor, Y: tc.Tensor, Z: tc.Tensor, BM: tc.Const = 32, BN: tc.Const = 32, fill: tc.Const = 3):
    """Z = 2 X + Y, where the two lie differently in memory; outside both are `fill`."""
    Xt, Yt, Zt = X.tiles(BM, BN, fill=fill), Y.tiles(BM, BN, fill=fill), Z.tiles(BM, BN)
    i, j = tc.program_id(Zt.grid)
    Zt[i, j] = Xt[i, j] * 2 + Yt[i, j]


@pytest.mark.parametrize("fill", [0, 3])
@pytest.mark.parametrize("dtype", ["bf16", "i8", "f32", "f64", "f16", "u8"])
@pytest.mark.parametrize("places", [(dense, columns), (columns, dense), (every_third, columns)])
def test_operands_that_lie_differently(fill, dtype, places, arch):       # BL-53, BL-67
    x, y = integers((35, 37), dtype, 1), integers((36, 33), dtype, 2)
    z = np.full((40, 39), 0, np.float64)
    wide = [np.full(z.shape, fill, np.float64) for _ in range(2)]
    wide[0][:35, :37], wide[1][:36, :33] = x, y
    arguments = {"X": placed(x, places[0]), "Y": placed(y, places[1]), "Z": placed(z.astype(x.dtype))}
    check(mix, arguments, arch, {"Z": (wide[0] * 2 + wide[1]).astype(x.dtype)}, fill=fill)


@tc.kernel
def statistics(X: tc.Tensor, Y: tc.Tensor, BM: tc.Const = 12, BN: tc.Const = 48, axis: tc.Const = 0):
    """Y[0], Y[1], Y[2] = sum, max, min along an axis, of tiles whose sizes are no powers of two."""
    x = X.tiles(BM, BN)[0, 0]
    n = BN if axis == 0 else BM
    for place, value in enumerate((x.sum(axis=axis), x.max(axis=axis), x.min(axis=axis))):
        Y[place].tiles(n)[0] = value.to(Y.dtype)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("bm, bn", [(12, 48), (1, 64), (64, 1), (24, 96), (16, 16), (3, 40)])
@pytest.mark.parametrize("dtype", ["f32", "bf16", "i32"])
def test_reductions(axis, bm, bn, dtype, arch):
    x = integers((bm, bn), dtype, 7)
    wide = x.astype(np.float64)
    y = np.stack([wide.sum(axis=axis), wide.max(axis=axis), wide.min(axis=axis)])
    arguments = {"X": placed(x, odd_rows), "Y": placed(np.zeros_like(y).astype(np.float32))}
    check(statistics, arguments, arch, {"Y": y}, BM=bm, BN=bn, axis=axis)


@tc.kernel
def scalars(Y: tc.Tensor, a: tc.i32, b: tc.i64, c: tc.u32, x: tc.f32, y: tc.f64, flag: bool):
    """Scalar arguments of every size, one between others, and arithmetic on them."""
    Yt = Y.tiles(1)
    Yt[0] = tc.full((1,), (a // 7).to(tc.f64))
    Yt[1] = tc.full((1,), (a % 7).to(tc.f64))
    Yt[2] = tc.full((1,), (b // 1000).to(tc.f64))
    Yt[3] = tc.full((1,), (c >> 3).to(tc.f64))
    Yt[4] = tc.full((1,), (x * 2 + 1).to(tc.f64))
    Yt[5] = tc.full((1,), y + 0.5)
    Yt[6] = tc.full((1,), tc.where(flag, 1, 2).to(tc.f64))


@pytest.mark.parametrize("a", [-15, -7, -1, 0, 6, 7, 2**31 - 1, -2**31])
def test_scalar_arguments(a, arch):                                      # BL-79
    b, c, x, y, flag = 12345678901234 * (1 if a > 0 else -1), 4_000_000_000, 1.25, -1e300, a > 0
    expected = np.array([a // 7, a % 7, b // 1000, c >> 3, 3.5, y + 0.5, 1 if flag else 2], np.float64)
    arguments = {"Y": placed(np.zeros(7)), "a": a, "b": b, "c": c, "x": x, "y": y, "flag": flag}
    check(scalars, arguments, arch, {"Y": expected})


# -- what is seldom wanted

@tc.kernel
def seldom(X: tc.Tensor, Y: tc.Tensor, Z: tc.Tensor, BM: tc.Const = 64, BN: tc.Const = 64):
    """Y doubles rows that hold a value above 50; Z is 3 X + 1 where X is above 55 and else X + Y. What is computed for
    a rare choice is partly wanted elsewhere, too."""
    Xt = X.tiles(BM, BN)
    i, j = tc.program_id(Xt.grid)
    x = Xt[i, j]
    three = x * 3
    y = tc.where((x.max(axis=1) > 50)[:, None], x + x, x, rare=True)
    z = tc.where(x > 55, three + 1, x + y, rare=True)
    Y.tiles(BM, BN)[i, j] = y
    Z.tiles(BM, BN)[i, j] = tc.where(x == 7, three, z, rare=True)


@pytest.mark.parametrize("largest", [40, 60])
@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16", "i32", "u8", "f64", "i64"])
@pytest.mark.parametrize("bm, bn", [(64, 64), (16, 16), (12, 48), (1, 64)])
def test_what_is_seldom_wanted(bm, bn, dtype, largest, arch):
    x = integers((2 * bm - 1, bn + 3), dtype, 3, high=largest)
    # A row's maximum is that of its tile, and elements beyond the edge are 0.
    edges = [slice(0, bn), slice(bn, None)]
    grown = np.concatenate([np.repeat(x[:, e].max(axis=1, keepdims=True) > 50, x[:, e].shape[1], 1) for e in edges], 1)
    wide = x.astype(np.int64)
    y = np.where(grown, 2 * wide, wide)
    z = np.where(wide == 7, 3 * wide, np.where(wide > 55, 3 * wide + 1, wide + y))
    arguments = {"X": placed(x), "Y": placed(x * 0), "Z": placed(x * 0)}
    check(seldom, arguments, arch, {"Y": y.astype(x.dtype), "Z": z.astype(x.dtype)}, BM=bm, BN=bn)


@tc.kernel(waves=1)
def seldom_on_one_wave(X: tc.Tensor, Y: tc.Tensor):
    x = X.tiles(64, 64)[0, 0]
    Y.tiles(64, 64)[0, 0] = tc.where(x > 2, x * 2, x, rare=True)


def test_a_rare_choice_of_more_items_than_sgprs(arch):
    x = integers((64, 64), "f32", 1)
    check(seldom_on_one_wave, {"X": placed(x), "Y": placed(x * 0)}, arch, {"Y": np.where(x > 2, x * 2, x)})


@tc.kernel(waves=4)
def around_a_branch(X: tc.Tensor, Z: tc.Tensor, Y: tc.Tensor, n: tc.i32):
    """Masks, and a tile that is chosen, from outside of a branch: wanted in it and after it."""
    x, z = X.tiles(16, 64)[0, 0], Z.tiles(16, 64)[0, 0]
    both, high, y = x & z, (tc.iota(16) > n)[:, None], +z.to(tc.f32)
    with tc.when(n > 2):
        y = tc.where(both, y + 1, tc.where(high, y * 4, y, rare=True), rare=True)
    again = tc.where(high, y + 2, y, rare=True)
    Y.tiles(16, 64)[0, 0] = tc.where(x, tc.where(both, again + 1, again, rare=True), 7)


@pytest.mark.parametrize("n", [1, 5, 20])
def test_masks_from_outside_of_a_branch(n, arch):
    x, z = (integers((16, 64), "bool", seed) for seed in (1, 2))
    high, y = (np.arange(16) > n)[:, None], z.astype(np.float32)
    if n > 2:
        y = np.where(x & z, y + 1, np.where(high, y * 4, y))
    again = np.where(high, y + 2, y)
    expected = np.where(x, np.where(x & z, again + 1, again), 7)
    arguments = {"X": placed(x), "Z": placed(z), "Y": placed(np.zeros((16, 64), np.float32)), "n": n}
    check(around_a_branch, arguments, arch, {"Y": expected})


@tc.kernel(waves=4)
def scaled_rows(X: tc.Tensor, F: tc.Tensor, Y: tc.Tensor):
    x, f = X.tiles(64, 64)[0, 0], F.tiles(64)[0]
    Y.tiles(64, 64)[0, 0] = tc.where(f[:, None] != 1, x * f[:, None], x, rare=True)


@pytest.mark.parametrize("rows", [[], [3], [0, 1, 63], list(range(64))])
def test_waves_go_around_what_they_do_not_want(rows, arch):
    """Only a wave that holds a row with another factor than 1 computes products."""
    x, f = integers((64, 64), "f32", 1), np.ones(64, np.float32)
    f[rows] = 2
    arguments = {"X": placed(x), "F": placed(f), "Y": placed(x * 0)}
    kernel = scaled_rows.compile(**arguments, arch=arch, verify=True)
    sink = _Multiplying()
    binding = kernel.kernel.signature.bind((), arguments)
    assert emulated.run(kernel.executable, launch_values(binding, kernel.order, arch), sink=sink).findings == ()
    assert np.array_equal(arguments["Y"], x * f[:, None])
    layout = next(op.result.tile_type.layout for op in kernel.stages["layouts"].walk()
                  if isinstance(op, tile.Elementwise) and op.rare)
    held = layout.enumerate()[0]
    assert len(held) == 4
    assert sink.waves == {wave for wave in range(4) if set(held[wave].ravel().tolist()) & set(rows)}


class _Multiplying(EventSink):
    """The waves that execute a multiplication."""

    def __init__(self) -> None:
        self.waves: set[int] = set()

    def event(self, event: Event) -> None:
        if "v_pk_mul_f32" in event.instruction.text or "v_mul_f32" in event.instruction.text:
            self.waves |= set(event.waves.tolist())
