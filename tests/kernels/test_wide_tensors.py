"""Tensors beyond 2 and 4 GiB, in sparse memory: byte offsets past 2**31 and 2**32 in every kind of access.

Two classes of the type system: tensors whose rows lie less than 512 KiB apart (a descriptor for each tile), and those
with larger or negative strides (an address for each lane).
"""

from __future__ import annotations

import itertools
import mmap
from typing import Any

import numpy as np
import pytest

import tilec as tc
from kernels.gemm import gemm
from kernels.transpose import transpose
from tests.support.numbers import integers
from tests.support.placing import MARGIN, POISON, placed
from tests.support.proving import difference
from tilec.dtypes import DTYPES
from tilec.emulator import grid
from tilec.emulator.memory import Memory
from tilec.runtime.arguments import pack
from tilec.runtime.tensors import view

GIB = 1 << 30
NEAR = (1 << 19) - 1024          # bytes from row to row: the last class that has a descriptor for each tile
ROWS = 4 * GIB // NEAR + 70      # so many of them reach past 2**32 bytes
FAR = 700 * (1 << 20) + 6        # 8 rows reach past 2**32 bytes


def sparse(data: np.ndarray, strides: tuple[int, ...]) -> np.ndarray:
    """`data` at these strides (in bytes), poison around its rows, in memory of which only the rows exist."""
    reach = [(n - 1) * s for n, s in zip(data.shape, strides)]
    low, high = sum(r for r in reach if r < 0), sum(r for r in reach if r > 0)
    pages = mmap.mmap(-1, high - low + 2 * MARGIN + 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)
    assert abs(strides[-1]) == data.itemsize
    array = np.ndarray(data.shape, data.dtype, pages, MARGIN - low, strides)
    _rows(array)[...] = POISON
    array[...] = data
    return array


def _rows(array: np.ndarray) -> np.ndarray:
    """The bytes of a sparse tensor's rows, with the margins before and behind each."""
    length, start = array.shape[-1] * array.itemsize, view(array).address
    if array.strides[-1] < 0:
        start -= length - array.itemsize
    base = np.frombuffer(array.base, np.uint8)
    first = start - MARGIN - base.ctypes.data
    return np.ndarray((*array.shape[:-1], length + 2 * MARGIN), np.uint8, array.base, first, (*array.strides[:-1], 1))


def intact(array: np.ndarray) -> bool:
    rows = _rows(array)
    return bool((rows[..., :MARGIN] == POISON).all() and (rows[..., -MARGIN:] == POISON).all())


def check(compiled: Any, arguments: dict[str, Any], expected: dict[str, np.ndarray]) -> None:
    before = {name: value.copy() for name, value in arguments.items() if isinstance(value, np.ndarray)}
    findings = compiled.run(**arguments)
    assert not findings, "\n".join(map(str, findings))
    for name in before:
        fault = difference(arguments[name], expected.get(name, before[name]))
        assert not fault, f"{name}: {fault}"
        if isinstance(arguments[name].base, mmap.mmap):
            assert intact(arguments[name]), f"{name} is written beside its rows"


@tc.kernel
def copy_some(X: tc.Tensor, Y: tc.Tensor, first: tc.i32, count: tc.i32, BM: tc.Const = 16, BN: tc.Const = 64):
    """Tiles of rows first, first + 1, ... of X to the same place in Y."""
    Xt, Yt = X.tiles(BM, BN, fill=9), Y.tiles(BM, BN)
    i, j = tc.program_id((count, Xt.grid[1]))
    Yt[first + i, j] = Xt[first + i, j]


def rows_of(dtype: str, columns: int, step: int) -> tuple[np.ndarray, int]:
    """Numbers for rows that reach past 2**32 bytes, and the stride in bytes that is a multiple of the type's size."""
    unit = 16 if step == NEAR else DTYPES[dtype].numpy().itemsize
    stride = step // unit * unit
    count = ROWS if step == NEAR else 4 * GIB // step + 3
    return integers((count, columns), dtype, 5, high=100), stride


@pytest.mark.parametrize("step", [NEAR, FAR], ids=["near", "far"])
@pytest.mark.parametrize("dtype, columns", [("bf16", 64), ("bf16", 37), ("f32", 65), ("i8", 129), ("f64", 5)])
def test_loads_and_stores(dtype, columns, step, arch):                   # BL-69, BL-71
    data, stride = rows_of(dtype, columns, step)
    x, y = sparse(data, (stride, data.itemsize)), sparse(np.zeros_like(data), (stride, data.itemsize))
    compiled = copy_some.compile(x, y, arch=arch, verify=True)
    (_, kind), *_ = compiled.specialisation.types
    assert kind.wide and kind.far == (step == FAR)
    expected = np.zeros_like(data)
    for row in sorted({0, 2 * GIB // stride, 4 * GIB // stride, len(data) - 1}):     # tiles that hold these rows
        tile = row // 16
        check(compiled, {"X": x, "Y": y, "first": tile, "count": 1}, {"Y": _copied(expected, data, tile)})


def _copied(expected: np.ndarray, data: np.ndarray, tile: int) -> np.ndarray:
    expected[16 * tile:16 * tile + 16] = data[16 * tile:16 * tile + 16]
    return expected


@pytest.mark.parametrize("step", [NEAR, FAR], ids=["near", "far"])
def test_gemm(step, arch):                                               # BL-66, BL-69, BL-71
    a, stride = rows_of("bf16", 40, step)
    b = integers((5, 40), "bf16", 6)
    c, c_stride = rows_of("f32", 5, step)
    a[...] = a.astype(np.float32) % 5 - 2
    arguments = {"A": sparse(a, (stride, 2)), "B": placed(b), "C": sparse(c * 0, (c_stride, 4))}
    compiled = gemm.compile(**arguments, arch=arch, verify=True, BM=256, BN=16, BK=32)
    check(compiled, arguments, {"C": a.astype(np.float64) @ b.astype(np.float64).T})


@pytest.mark.parametrize("m, n", [(7, 70), (9, 33)])
def test_rows_that_run_backwards(m, n, arch):                            # BL-76
    a = integers((m, n), "f32", 3, high=100)
    for strides in ((-FAR // 8 * 8, 4), (FAR // 8 * 8, -4), (-FAR // 8 * 8, -4)):
        arguments = {"A": sparse(a, strides), "B": sparse(np.zeros((n, m), np.float32), (4096 + 4, 4))}
        check(transpose.compile(**arguments, arch=arch, verify=True, BM=16, BN=32), arguments, {"B": a.T})


@tc.kernel
def pick(X: tc.Tensor, R: tc.Tensor, C: tc.Tensor, Y: tc.Tensor, S: tc.Tensor, BN: tc.Const = 64):
    """Y = X[R, C] (7 outside), S[R, C] += 1, and the element at (R[0], C[0]) behind them."""
    i = tc.program_id(Y.tiles(BN).grid[0])
    r, c = R.tiles(BN, fill=-1)[i], C.tiles(BN, fill=-1)[i]
    x = X.gather(r, c, fill=7)
    Y.tiles(BN)[i] = x
    S.atomic_add(r, c, value=1.0)
    S.scatter(r, c + S.shape[1] // 2, value=x + X.at[R.at[0], C.at[0]])


@pytest.mark.parametrize("step", [NEAR, FAR], ids=["near", "far"])
def test_single_elements(step, arch):                                    # BL-69, BL-73
    data, stride = rows_of("f32", 6, step)
    rows = np.array([0, 1, 2 * GIB // stride, 2 * GIB // stride + 1, 4 * GIB // stride, 4 * GIB // stride + 1,
                     len(data) - 1, len(data), -1, 1 << 30], np.int32)
    r, c = (np.array(list(m), np.int32) for m in zip(*itertools.product(rows, (0, 5, 6, -1))))
    inside = (r >= 0) & (r < len(data)) & (c >= 0) & (c < 6)
    x, s = sparse(data, (stride, 4)), sparse(np.zeros((len(data), 12), np.float32), (stride, 4))
    expected_s = np.zeros((len(data), 12), np.float32)
    expected_s[r[inside], c[inside]] = 1
    high = (r >= 0) & (r < len(data)) & (c + 6 < 12)             # column -1 + 6 is one, and is written once
    taken = np.where(inside, data[np.where(inside, r, 0), np.where(inside, c, 0)], np.float32(7))
    expected_s[r[high], c[high] + 6] = taken[high] + data[r[0], c[0]]
    # column -1 of the gather is outside (7), column 5 + 6 = 11 is inside; c = 6 gives 12, outside
    arguments = {"X": x, "R": placed(r), "C": placed(c), "Y": placed(np.zeros(len(r), np.float32)), "S": s}
    compiled = pick.compile(**arguments, arch=arch, verify=True)
    check(compiled, arguments, {"Y": taken, "S": expected_s})


@tc.kernel
def copy_run(X: tc.Tensor, Y: tc.Tensor, first: tc.i32, count: tc.i32, BN: tc.Const = 512):
    i = tc.program_id(count)
    Y.tiles(BN)[first + i] = X.tiles(BN)[first + i]


@pytest.mark.parametrize("dtype, length", [("f32", 3 * GIB // 2), ("i8", 2 * GIB - 5), ("bf16", 2 * GIB - 513)])
def test_long_vectors(dtype, length, arch):                              # BL-69, BL-70, BL-73: the last bytes too
    """Vectors without a gap: only the tiles looked at exist, in the emulator's own sparse memory."""
    kind, size = DTYPES[dtype].numpy(), DTYPES[dtype].numpy().itemsize
    spec = tc.spec(dtype, (length,))
    compiled = copy_run.compile(spec, spec, arch=arch, verify=True)
    for tile in sorted({0, (2 * GIB - 1) // size // 512, min(4 * GIB // size, length - 1) // 512, (length - 1) // 512}):
        memory = Memory()
        places = {name: memory.place(length * size, name=name) for name in "XY"}
        start = tile * 512
        held = min(512, length - start)
        data = integers((held,), dtype, tile % 97, high=100)
        memory.write(places["X"] + start * size, data.view(np.uint8))
        values = dict.fromkeys("XY", spec) | {"first": tile, "count": 1}
        run = grid.run(compiled.executable.code, "copy_run", grid=(1, 1, 1), block=(compiled.executable.threads, 1, 1),
                       arguments=pack(compiled.traced, values, places), memory=memory)
        assert not run.findings, "\n".join(map(str, run.findings))
        got = memory.read(places["Y"] + start * size, held * size).view(kind)
        assert not difference(got, data), f"tile {tile}"


def test_the_sparse_tensors_are_what_they_claim():
    data = integers((9, 6), "f32")
    for strides in ((FAR // 4 * 4, 4), (-FAR // 4 * 4, -4)):
        array = sparse(data, strides)
        assert view(array).span > 4 * GIB and (array == data).all() and intact(array)
        behind = np.lib.stride_tricks.as_strided(array[4], (7,), strides[1:])
        assert np.isnan(behind[6])
        behind[6] = 0
        assert not intact(array)
