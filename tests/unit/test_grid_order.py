"""Grid orders: both steps of Algorithm 1 are permutations; the pass, the interpreter and the object follow them.

The exhaustive sweeps (every block count with every chunk, every grid with every window) are marked slow; the suite runs
a sample of each. BL-45: a remap that drops or doubles tiles where the count is no multiple of 8. BL-46: a remap that
went by the grid of the compilation while the launch had another.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilec as tc
from tests.unit.tile_programs import Kernel
from tilec.dtypes import i32
from tilec.frontend.jit import launch_values
from tilec.ir import grid_order, interp, tile
from tilec.ir.core import ScalarType, TileType
from tilec.ir.schedule import GridOrder, Schedule, parse_schedule
from tilec.ir.verify import verify
from tilec.passes.grid_order import order_grid
from tilec.passes.simplify import simplify
from tilec.runtime import emulated

COUNTS = 4096
CHUNKS = 512
SIZE, WINDOWS = 64, 32


def is_permutation(numbers: np.ndarray) -> bool:
    """Of 0 .. len - 1: so many numbers, all in range, hit so many places."""
    if numbers.min(initial=0) < 0 or numbers.max(initial=0) >= max(1, len(numbers)):
        return False
    hit = np.zeros(len(numbers), bool)
    hit[numbers] = True
    return bool(hit.all())


# -- the paper's text ------------------------------------------------------------------------------------------------

def algorithm_1(block: int, rows: int, columns: int, window: int, chunk: int, chiplets: int) -> tuple[int, int]:
    """As printed, with the condition `<=`."""
    cycle = chiplets * chunk
    limit = rows * columns // cycle * cycle
    xy = block
    if xy <= limit:
        local = xy // chiplets
        xy = local // chunk * cycle + xy % chiplets * chunk + local % chunk
    per_window = window * columns
    first = xy // per_window * window
    height = min(rows - first, window)
    return first + xy % per_window % height, xy % per_window // height


@pytest.mark.parametrize("rows, columns", [(1, 1), (7, 5), (48, 36), (13, 64), (57, 19)])
@pytest.mark.parametrize("window, chunk, chiplets", [(1, 1, 8), (8, 64, 8), (5, 25, 8), (3, 2, 4), (9, 4, 1),
                                                     (99, 999, 8)])
def test_chiplet_order_is_algorithm_1(rows: int, columns: int, window: int, chunk: int, chiplets: int):
    expected = [algorithm_1(block, rows, columns, window, chunk, chiplets) for block in range(rows * columns)]
    got = grid_order.tiles(GridOrder("chiplet", window, chunk, chiplets), (rows, columns), 8)
    assert got.tolist() == [list(place) for place in expected]


@pytest.mark.parametrize("chunk, chiplets", list(itertools.product((1, 2, 7, 64), (1, 4, 8))))
def test_the_first_number_of_the_tail_maps_to_itself(chunk: int, chiplets: int):
    """So the paper's `xy <= limit` and our `xy < limit` are one map."""
    cycle = chunk * chiplets
    for total in range(1, 3 * cycle):
        limit = total // cycle * cycle
        local, chiplet = divmod(limit, chiplets)
        assert local // chunk * cycle + chiplet * chunk + local % chunk == limit
        if limit < total:
            assert grid_order.chunk_step(limit, total, chunk, chiplets) == limit


# -- the steps are permutations --------------------------------------------------------------------------------------

def chunk_faults(counts: range | list[int], chunk: int, chiplets: int) -> list[tuple[int, int, int]]:
    """Counts whose chunk step is no permutation."""
    number = np.arange(max(counts), dtype=np.int32)
    return [(count, chunk, chiplets) for count in counts
            if not is_permutation(grid_order.chunk_step(number[:count], count, chunk, chiplets))]


def test_the_chunk_step_is_a_permutation_where_counts_and_chunks_are_drawn():
    random = np.random.default_rng(0)
    for chunk in (1, 2, 3, 8, 64, *random.integers(1, CHUNKS + 1, 12).tolist()):
        counts = sorted({1, chunk, 8 * chunk, 8 * chunk - 1, *random.integers(1, COUNTS + 1, 40).tolist()})
        for chiplets in (1, 4, 8):
            assert not chunk_faults(counts, chunk, chiplets)


@pytest.mark.slow
@pytest.mark.parametrize("chiplets", [1, 4, 8])
def test_the_chunk_step_is_a_permutation_for_every_count_and_chunk(chiplets: int):
    for chunk in range(1, CHUNKS + 1):
        assert not chunk_faults(range(1, COUNTS + 1), chunk, chiplets)


def window_faults(shapes: Any, windows: Any) -> list[tuple[int, int, int]]:
    """(rows, columns, window) whose window step is no permutation."""
    faults = []
    for (rows, columns), window in itertools.product(shapes, windows):
        row, column = grid_order.window_step(np.arange(rows * columns), rows, columns, window)
        inside = (row >= 0).all() and (row < rows).all() and (column >= 0).all() and (column < columns).all()
        if not inside or not is_permutation(row * columns + column):
            faults.append((rows, columns, window))
    return faults


def test_the_window_step_is_a_permutation_of_drawn_grids():
    random = np.random.default_rng(1)
    shapes = [(1, 1), (1, SIZE), (SIZE, 1), (SIZE, SIZE), *map(tuple, random.integers(1, SIZE + 1, (40, 2)).tolist())]
    assert not window_faults(shapes, range(1, WINDOWS + 1))


@pytest.mark.slow
def test_the_window_step_is_a_permutation_of_every_grid_for_every_window():
    sizes = range(1, SIZE + 1)
    assert not window_faults(itertools.product(sizes, sizes), range(1, WINDOWS + 1))


def test_the_proof_sees_a_broken_step(monkeypatch: pytest.MonkeyPatch):
    """The map of the older kernels, i % 8 * (n / 8) + i / 8, is a permutation for multiples of 8 only (BL-45)."""
    def older(number: Any, total: Any, chunk: Any, chiplets: Any) -> Any:
        return np.minimum(number % chiplets * (total // chiplets) + number // chiplets, total - 1)

    monkeypatch.setattr(grid_order, "chunk_step", older)
    assert [count for count, *_ in chunk_faults(range(1, 33), 1, 8)] == [c for c in range(2, 33) if c % 8]


# -- whole orders ----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("chiplets", [1, 4, 8])
@pytest.mark.parametrize("window, chunk", [(1, 1), (3, 5), (8, 64)])
def test_BL_45_every_tile_once_for_counts_up_to_300(chiplets: int, window: int, chunk: int):
    order = GridOrder("chiplet", window, chunk, chiplets)
    for count in range(1, 301):
        for rows in {1, count, *(r for r in range(2, 20) if count % r == 0)}:
            columns = count // rows
            tiles = grid_order.tiles(order, (rows, columns), 8)
            assert is_permutation(tiles[:, 0] * columns + tiles[:, 1])
        assert is_permutation(grid_order.tiles(order, (count,), 8)[:, 0])


@pytest.mark.parametrize("grid", [(3, 7, 5), (1, 9, 9), (4, 1, 6), (2, 3, 5, 7)])
@pytest.mark.parametrize("order", [GridOrder(), GridOrder("grouped", 3), GridOrder("chiplet", 4, 3),
                                   GridOrder("chiplet", 2, 5, 4)])
def test_batched_grids(grid: tuple[int, ...], order: GridOrder):
    tiles = grid_order.tiles(order, grid, 8)
    assert is_permutation(np.ravel_multi_index(tuple(tiles.T), grid))
    if order.kind != "chiplet":              # the batch is outermost, and each of its members like a grid of its own
        size = grid[-2] * grid[-1]
        expected = grid_order.tiles(order, grid[-2:], 8)
        for start in range(0, len(tiles), size):
            assert (tiles[start:start + size, -2:] == expected).all()
            assert len(np.unique(tiles[start:start + size, :-2], axis=0)) == 1


def test_runs_of_a_chunk_stay_on_a_chiplet():
    step = grid_order.chunk_step(np.arange(8 * 16 * 3), 8 * 16 * 3, 16, 8)
    for chiplet in range(8):
        mine = step[chiplet::8]              # in the order in which the chiplet gets them
        assert (np.diff(mine).reshape(-1)[np.arange(47) % 16 != 15] == 1).all()


def test_orders_that_are_the_same():
    for grid in ((5, 7), (48, 36), (2, 6, 9)):
        rows = grid_order.tiles(GridOrder(), grid, 8)
        assert (rows == np.stack(np.unravel_index(np.arange(int(np.prod(grid))), grid), 1)).all()
        assert (rows == grid_order.tiles(GridOrder("grouped", 1), grid, 8)).all()
        assert (rows == grid_order.tiles(GridOrder("chiplet", 1, 1), grid, 8)).all()
        grouped = grid_order.tiles(GridOrder("grouped", 4), grid, 8)
        assert (grouped == grid_order.tiles(GridOrder("chiplet", 4, 7, 1), grid, 8)).all()       # one chiplet


def test_an_empty_grid_has_no_tiles():
    assert grid_order.tiles(GridOrder("chiplet", 8, 64), (0, 5), 8).shape == (0, 2)
    with pytest.raises(tc.TilecError, match="a grid of"):
        grid_order.tiles(GridOrder(), (), 8)


@pytest.mark.parametrize("kind, numbers, message", [
    ("spiral", {}, "no grid order is called 'spiral'\n  limit: there are rows, grouped, chiplet"),
    ("grouped", {"window": 0}, "grid order grouped: window=0\n  limit: window is an integer from 1 to 16777216"),
    ("chiplet", {"chunk": 2.0}, "grid order chiplet: chunk=2.0\n  limit: chunk is an integer from 1 to 16777216"),
    ("chiplet", {"chiplets": 65}, "grid order chiplet: chiplets=65\n  limit: chiplets is an integer from 1 to 64"),
])
def test_refused_orders(kind: str, numbers: dict[str, Any], message: str):
    with pytest.raises(tc.TilecError) as caught:
        GridOrder(kind, **numbers)
    assert str(caught.value) == message


def test_orders_in_the_text_of_a_schedule():
    for order in (tc.grouped(4), tc.chiplet(8, 64), tc.chiplet(8, 64, chiplets=4)):
        assert parse_schedule(str(Schedule(order=order))).order == order
    assert [str(o) for o in (tc.rows(), tc.grouped(4), tc.chiplet(8, 64), tc.chiplet(8, 64, 1))] == [
        "rows", "grouped(window=4)", "chiplet(window=8, chunk=64)", "chiplet(window=8, chunk=64, chiplets=1)"]


# -- the pass --------------------------------------------------------------------------------------------------------

def counting(rank: int) -> Any:
    """A program over a grid of `rank` run-time extents whose workgroups add one to their element of `out`."""
    k = Kernel("counting")
    out = k.tensor("out", i32, rank)
    extents = [k.scalar_parameter(f"n{axis}", i32) for axis in range(rank)]
    ids = k.program_id(*extents)
    ids = ids if isinstance(ids, list) else [ids]
    old = k.make(tile.LoadScalar, out, tuple(ids), type=ScalarType(i32))
    shape = (1,) * rank
    one = k.make(tile.Elementwise, (old, k.number(1)), "add", type=ScalarType(i32))
    k.emit(tile.Store(out, tuple(ids), k.make(tile.Broadcast, one, type=TileType(shape, i32))))
    return k.program()


def visited(program: Any, grid: tuple[int, ...], numbers: dict[str, int]) -> list[tuple[int, ...]]:
    """The tiles that the program's workgroups take, in order; each must be taken once."""
    out = np.zeros(grid, np.int32)
    places: list[tuple[int, ...]] = []

    def observe(_: tuple[int, ...], op: Any, results: tuple[Any, ...]) -> None:
        if isinstance(op, tile.Store):
            places.append(tuple(map(int, np.argwhere(out - before).ravel())))
            before[...] = out

    before = out.copy()
    arguments = {"out": out, **{f"n{axis}": size for axis, size in enumerate(grid)}, **numbers}
    interp.run(program, arguments, observe=observe)
    assert (out == 1).all()
    return places


ORDERS = [GridOrder(), GridOrder("grouped", 3), GridOrder("chiplet", 2, 3, 4), GridOrder("chiplet", 8, 64),
          GridOrder("chiplet", 5, 2)]


@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize("rank", [1, 2, 3, 4])
def test_the_pass_computes_the_order(rank: int, order: GridOrder):
    traced = counting(rank)
    ordered = order_grid(traced, order)
    verify(ordered)
    shorter = simplify(ordered)
    random = np.random.default_rng(rank)
    for _ in range(4):
        grid = tuple(map(int, random.integers(1, {1: 80, 2: 12, 3: 6, 4: 4}[rank], rank)))
        numbers = grid_order.arguments(order, 8)
        expected = [tuple(t) for t in grid_order.tiles(order, grid, 8).tolist()]
        assert visited(ordered, grid, numbers) == expected
        assert visited(shorter, grid, numbers) == expected


def test_numbers_are_arguments_of_the_same_program():
    ordered = order_grid(counting(2), GridOrder("chiplet"))
    assert [p.name for p in ordered.params] == ["out", "n0", "n1", "order_window", "order_chunk", "order_chiplets"]
    for numbers in ((1, 1, 1), (3, 2, 4), (1 << 24, 1 << 24, 64)):
        order = GridOrder("chiplet", *numbers)
        expected = [tuple(t) for t in grid_order.tiles(order, (7, 9), 8).tolist()]
        assert visited(ordered, (7, 9), grid_order.arguments(order, 8)) == expected


def test_rows_change_nothing():
    traced = counting(2)
    ordered = order_grid(traced, GridOrder())
    assert ordered.body is traced.body and ordered.grid == traced.grid and ordered.params == traced.params


def test_the_host_counts_the_same_workgroups():
    for rank, grid in ((1, (7,)), (2, (3, 5)), (3, (2, 3, 4))):
        ordered = order_grid(counting(rank), GridOrder("grouped", 2))
        arguments = {"out": np.zeros(grid), **{f"n{a}": n for a, n in enumerate(grid)}, "order_window": 2}
        assert interp.evaluate_grid(ordered, arguments) == (int(np.prod(grid)),)


def test_program_ids_inside_regions_and_before_their_grid():
    """What a front end does not write, but the form allows."""
    k = Kernel("early")
    out = k.tensor("out", i32, 2)
    i, j = (k.make(tile.ProgramId, axis, type=ScalarType(i32)) for axis in range(2))
    n, m = k.dim(out, 0), k.dim(out, 1)
    k.grid = (n, m)
    k.emit(tile.Store(out, (i, j), k.constant(1, (1, 1))))
    order = GridOrder("chiplet", 2, 2, 4)
    ordered = order_grid(k.program(), order)
    verify(ordered)
    array = np.zeros((5, 6), np.int32)
    interp.run(ordered, {"out": array, **grid_order.arguments(order, 8)})
    assert (array == 1).all()


# -- compiled --------------------------------------------------------------------------------------------------------

@pytest.fixture
def own_disk_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEC_CACHE", str(tmp_path))


@tc.kernel(waves=1)
def count(C: tc.Tensor, done: tc.Tensor, BM: tc.Const = 8, BN: tc.Const = 8):
    Ct = C.tiles(BM, BN)
    m, n = tc.program_id(Ct.grid)
    done.atomic_add(m, n, value=1)
    Ct[m, n] = tc.full((BM, BN), m * 1000 + n)


@tc.kernel(waves=1)
def count_batches(C: tc.Tensor, done: tc.Tensor, BM: tc.Const = 8, BN: tc.Const = 8):
    Ct = C.tiles(1, BM, BN)
    b, m, n = tc.program_id(Ct.grid)
    done.atomic_add(b, m, n, value=1)
    Ct[b, m, n] = tc.full((1, BM, BN), (b * 1000 + m) * 1000 + n)


def arrays(*grid: int) -> tuple[np.ndarray, np.ndarray]:
    *batch, rows, columns = grid
    return np.full((*batch, 8 * rows, 8 * columns), -1, np.int32), np.zeros(grid, np.int32)


def check(c: np.ndarray, done: np.ndarray) -> None:
    assert (done == 1).all()
    numbers = np.zeros(done.shape, np.int64)
    for axis in np.indices(done.shape):
        numbers = numbers * 1000 + axis
    assert (c == np.repeat(np.repeat(numbers, 8, -1), 8, -2)).all()


@pytest.mark.usefixtures("own_disk_cache")
@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_BL_46_one_object_for_every_grid_and_every_number(arch: str):
    """Shapes change between launches of one object, and so do the order's numbers; every tile is done once."""
    kernel = count.compile(*arrays(3, 3), arch=arch, order=tc.chiplet(2, 2), verify=True)
    for grid in ((3, 3), (1, 1), (5, 7), (13, 3), (1, 29)):
        for numbers in ((2, 2), (1, 1), (3, 4, 4), (8, 64), (5, 2, 1)):
            c, done = arrays(*grid)
            assert kernel.run(c, done, order=tc.chiplet(*numbers)) == ()
            check(c, done)


@pytest.mark.usefixtures("own_disk_cache")
def test_a_batched_grid_runs():
    for order in (tc.grouped(2), tc.chiplet(2, 3, chiplets=4)):
        c, done = arrays(3, 5, 4)
        assert count_batches.run(c, done, arch="gfx950", order=order) == ()
        check(c, done)


@tc.kernel(waves=1)
def mark(C: tc.Tensor):
    m, n = tc.program_id(C.tiles(1, 1).grid)
    C.tiles(1, 1)[m, n] = tc.full((1, 1), 1)


class Stores:
    """Which byte each workgroup stores to."""

    def __init__(self) -> None:
        self.address: dict[int, int] = {}

    def before(self, batch: Any, instruction: Any) -> None:
        batch.machine.last_issued = None

    def after(self, batch: Any, instruction: Any) -> None:
        access = batch.machine.last_issued
        if instruction.name.startswith("buffer_store"):
            (part,) = access.parts
            lanes = np.broadcast_to(part.lanes, part.index.shape)
            groups = batch.machine.groups[batch.machine.slot[batch.waves]]
            for group, addresses, active in zip(groups, part.index, lanes):
                assert int(group) not in self.address and active.sum() == 1
                self.address[int(group)] = int(addresses[active][0])


@pytest.mark.usefixtures("own_disk_cache")
@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_workgroup_i_takes_tile_i_of_the_order(arch: str):
    """Not only each tile once, but in this order."""
    c = np.zeros((13, 11), np.int32)
    kernel = mark.compile(c, arch=arch, order=tc.chiplet(1, 1))
    for order in (tc.chiplet(3, 2, chiplets=4), tc.chiplet(5, 3), tc.chiplet(4, 1, chiplets=1)):
        stores = Stores()
        values = launch_values(kernel.kernel.signature.bind((c,), {}), order, arch)
        emulated.run(kernel.executable, values, sink=stores)
        first = min(stores.address.values())
        element = [(stores.address[group] - first) // 4 for group in range(c.size)]
        expected = grid_order.tiles(order, c.shape, 8)
        assert element == np.ravel_multi_index(tuple(expected.T), c.shape).tolist()


@pytest.mark.usefixtures("own_disk_cache")
def test_numbers_do_not_specialise_and_kinds_do():
    a, b = arrays(3, 3)
    first = count.compile(a, b, arch="gfx950", order=tc.chiplet(2, 2))
    second = count.compile(a, b, arch="gfx950", order=tc.chiplet(4, 8, chiplets=4))
    assert first.object is second.object and (first.order, second.order) == (tc.chiplet(2, 2), tc.chiplet(4, 8, 4))
    assert count.compile(a, b, arch="gfx950", order=tc.chiplet(2, 2)).object is first.object
    assert count.compile(a, b, arch="gfx950", schedule=tc.simple(tc.chiplet(7, 7))).object is first.object
    rows = count.compile(a, b, arch="gfx950")
    assert rows.object != first.object
    with pytest.raises(tc.TilecError) as caught:
        rows.run(a, b, order=tc.grouped(4))
    assert str(caught.value) == ("kernel count launched in grid order grouped(window=4)\n"
                                 "  limit: it was compiled for order 'rows'; its numbers may change, its kind can't\n"
                                 "  try: compile it with this order, or call the kernel itself")


def test_row_major_costs_nothing():
    """No parameters, and no division more than the backend's own."""
    a, b = arrays(3, 3)
    kernel = count.compile(a, b, arch="gfx950")
    assert "order_" not in kernel.asm
    assert kernel.asm.count("v_rcp_iflag_f32") == 1
    assert count.compile(a, b, arch="gfx950", order=tc.chiplet(2, 2)).asm.count("v_rcp_iflag_f32") == 4


def test_parameters_of_the_order_are_no_names_for_arguments():
    with pytest.raises(tc.TilecError, match="a kernel argument named 'order_window'"):
        @tc.kernel
        def k(A: tc.Tensor, order_window: int): ...
