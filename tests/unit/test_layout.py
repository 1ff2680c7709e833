"""Layout and its builders against plain enumeration: every answer is recomputed from a dictionary of all elements."""

import itertools
import math

import numpy as np
import pytest

from tilec.errors import InternalError, TilecError
from tilec.ir.blocked import LayoutBuilder, blocked
from tilec.ir.layout import Digit, Field, Layout, bit_fields

ROW = Layout((4, 16), item=((0, 1), (0, 2)), lane=((0, 4), (0, 8), (1, 0), (2, 0)), wave=())


def random_layout(seed: int) -> Layout:
    """A layout that hands a random tile's elements to items, lanes and waves in random portions, some replicated;
    every third one with a lane bit that also moves along another axis (as under a swizzle)."""
    rng = np.random.default_rng(seed)
    shape = tuple(int(rng.choice([1, 2, 3, 4, 8, 12, 16, 24])) for _ in range(rng.integers(1, 4)))
    tile = LayoutBuilder(shape)
    for _ in range(12):
        axis = int(rng.integers(len(shape)))
        part = str(rng.choice(["item", "lane", "wave"]))
        if tile.left(axis) > 1 and rng.random() < 0.8:
            tile.take(part, axis, int(rng.choice([2, 4, tile.left(axis)])), odd=part != "lane")
        elif rng.random() < 0.3:
            tile.replicate(part, 2 if part == "lane" else int(rng.choice([2, 3])))
    for axis in range(len(shape)):
        tile.take("item", axis, tile.left(axis))
    layout = tile.build()
    if seed % 3 == 0 and len(shape) > 1 and layout.lane and shape[0] & -shape[0] > 1:
        lane = list(layout.lane)
        if any(lane[-1][1:]):
            lane[-1] = (lane[-1][0] ^ 1, *lane[-1][1:])
            changed = Layout(shape, layout.item, tuple(lane), layout.wave, layout.item_grid, layout.wave_grid)
            layout = changed if changed.covers() else layout
    return layout


LAYOUTS = [layout for layout in map(random_layout, range(90)) if layout.enumerate()[:1].size <= 2048][:60]


def elements(layout: Layout) -> dict[tuple[int, int, int], tuple[int, ...]]:
    """(item, lane, wave) -> coordinates by the definition: XOR of bases of set bits, then digits add their steps."""
    def part(index, bases, grid, start):
        result = list(start)
        for bit, basis in enumerate(bases):
            if index >> bit & 1:
                result = [a ^ b for a, b in zip(result, basis, strict=True)]
        index >>= len(bases)
        added = [0] * layout.rank
        for count, step in grid:
            added = [a + index % count * b for a, b in zip(added, step, strict=True)]
            index //= count
        return result, added

    result = {}
    for item, lane, wave in itertools.product(range(layout.items), range(layout.wave_size), range(layout.waves)):
        linear, added = part(item, layout.item, layout.item_grid, (0,) * layout.rank)
        linear, _ = part(lane, layout.lane, (), linear)
        linear, more = part(wave, layout.wave, layout.wave_grid, linear)
        result[item, lane, wave] = tuple(a + b + c for a, b, c in zip(linear, added, more, strict=True))
    return result


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: str(layout.shape))
def test_random_layouts(layout):
    truth = elements(layout)
    table = layout.enumerate()
    assert all(tuple(table[:, wave, lane, item]) == point for (item, lane, wave), point in truth.items())
    assert layout.covers()
    assert set(truth.values()) == set(itertools.product(*map(range, layout.shape)))
    assert Layout.parse(str(layout)) == layout and hash(Layout.parse(str(layout))) == hash(layout)
    assert all(layout.item_offset(item) == truth[item, 0, 0] for item in range(layout.items))
    assert all(layout.wave_offset(wave) == truth[0, 0, wave] for wave in range(layout.waves))
    sums = all(point == tuple(map(sum, zip(truth[item, 0, 0], truth[0, lane, 0], truth[0, 0, wave], strict=True)))
               for (item, lane, wave), point in truth.items())
    assert sums or not layout.additive

    kept = layout.replication()
    mask = kept.lanes(layout.wave_size)
    lanes = [lane for lane in range(layout.wave_size) if mask >> lane & 1]
    chosen = [truth[key] for key in itertools.product(kept.items, lanes, kept.waves)]
    assert len(chosen) == len(set(chosen)) == math.prod(layout.shape)

    for axis in range(layout.rank):
        width = layout.vector_width(axis)
        assert all(truth[item + j, lane, wave] == along(truth[item, lane, wave], axis, j)
                   for (item, lane, wave) in truth if item % width == 0 for j in range(width))
        for lane in range(layout.wave_size):
            assert truth[0, lane, 0][axis] == apply(layout.fields("lane", axis), lane)


def along(point, axis, distance):
    return tuple(value + distance * (other == axis) for other, value in enumerate(point))


def apply(fields, number):
    result = 0
    for field in fields:
        result ^= (number >> field.bit & ((1 << field.width) - 1)) << field.shift
    return result


@pytest.mark.parametrize("layout", LAYOUTS[:40], ids=lambda layout: str(layout.shape))
def test_derived_layouts(layout):
    truth = elements(layout)
    axes = tuple(reversed(range(layout.rank)))
    assert elements(layout.permute(axes)) == {key: tuple(point[a] for a in axes) for key, point in truth.items()}
    assert layout.permute(axes).permute(axes) == layout
    for axis in range(layout.rank):
        small = layout.project(axis)
        assert small.covers() and small.waves == layout.waves
        held = {(lane, wave, point) for (_, lane, wave), point in elements(small).items()}
        assert held == {(lane, wave, point[:axis] + point[axis + 1:]) for (_, lane, wave), point in truth.items()}
        narrow = tuple(1 if a == axis else size for a, size in enumerate(layout.shape))
        assert layout.narrow(narrow) == small.expand(axis)
        assert layout.expand(axis).shape == (*layout.shape[:axis], 1, *layout.shape[axis:])
    assert layout.narrow(layout.shape) == layout or layout.replication().items != tuple(range(layout.items))


@pytest.mark.parametrize("layout", LAYOUTS[:40], ids=lambda layout: str(layout.shape))
def test_reshape(layout):
    size = math.prod(layout.shape)
    for shape in [(size,), (1, size), (size, 1)] + [(a, size // a) for a in (2, 3, 4, 8) if size % a == 0]:
        reshaped = layout.reshape(shape)
        keys, points = zip(*elements(layout).items(), strict=True)
        moved = np.unravel_index(np.ravel_multi_index(tuple(np.array(points).T), layout.shape), shape)
        expected = dict(zip(keys, zip(*(axis.tolist() for axis in moved), strict=True), strict=True))
        assert reshaped is None or elements(reshaped) == expected
        powers = all(v & (v - 1) == 0 for v in (*layout.shape, *shape))
        assert reshaped is not None or not powers  # with powers of two a reshape never moves data


def test_reshape_of_odd_sizes_that_stay_linear():
    layout = blocked((96, 64), (1, 0), 4, 2)
    assert layout.reshape((96, 8, 8)) is not None and layout.reshape((3, 32, 64)) is not None
    with pytest.raises(InternalError, match="changes the number of elements"):
        layout.reshape((96, 63))


def test_equal_maps_are_equal():
    bits = Layout((64,), ((1,), (2,)), ((4,), (8,)), ((16,), (32,)))
    digits = Layout((64,), (), ((4,), (8,)), (), (Digit(4, (1,)),), (Digit(2, (16,)), Digit(2, (32,))))
    assert bits == digits and hash(bits) == hash(digits)
    six = Layout((96,), (), ((1,), (2,)), (), (Digit(4, (4,)),), (Digit(6, (16,)),))
    assert six.wave == ((16,),) and six.wave_grid == (Digit(3, (32,)),)
    overlapping = Layout((8,), (), ((1,), (2,)), (), (Digit(2, (1,)), Digit(2, (4,))))  # 1 + 1 is not 1 ^ 1
    assert overlapping.item == () and overlapping.item_grid[0] == Digit(2, (1,))
    assert elements(overlapping)[1, 1, 0] == (2,)
    twice = Layout((3,), (), (), (), (Digit(2, (1,)), Digit(2, (1,))))
    assert twice.item == ((1,),) and elements(twice)[3, 0, 0] == (2,)


def test_text():
    assert str(ROW) == "layout(4x16; item 0,1 0,2; lane 0,4 0,8 1,0 2,0; wave)"
    text = "layout(192x8; item 0,1 *3:64,0; lane 1,0 - 0,2; wave 8,0 *5:-)"
    assert str(Layout.parse(text)) == text
    assert Layout.parse(str(ROW.project(0).project(0))).shape == ()
    for bad in ("layout(4x4; item 1; lane; wave)", "layout 4x4", "layout(4x4; item; wave)"):
        with pytest.raises(TilecError):
            Layout.parse(bad)


def test_ranks_must_agree():
    with pytest.raises(InternalError, match="rank 2 has a basis of another rank"):
        Layout((4, 4), ((1,),), ())


def test_fields():
    layout = Layout((64, 64), (), ((0, 8), (0, 16), (0, 32), (1, 8), (2, 16), (4, 0)))
    assert layout.fields("lane", 0) == (Field(3, 3, 0),)
    assert layout.fields("lane", 1) == (Field(0, 3, 3), Field(3, 2, 3))
    assert bit_fields([0, 3, 0]) == (Field(1, 1, 0), Field(1, 1, 1))


@pytest.mark.parametrize("shape,order,vector,waves", [
    ((256, 64), (1, 0), 8, 8), ((64, 256), (0, 1), 4, 4), ((192, 256), (1, 0), 4, 6), ((96, 96), (1, 0), 8, 4),
    ((4096,), (0,), 4, 4), ((100,), (0,), 4, 4), ((8,), (0,), 4, 4), ((1, 1024), (1, 0), 8, 2),
    ((64, 64, 3), (1, 0, 2), 4, 6), ((1,), (0,), 1, 1),
    ((2, 3, 5), (2, 1, 0), 4, 3), ((128, 24), (1, 0), 8, 12), ((384, 32), (1, 0), 8, 3)])
@pytest.mark.parametrize("waves_outermost", [False, True])
def test_blocked_covers_any_shape(shape, order, vector, waves, waves_outermost):
    layout = blocked(shape, order, vector, waves, waves_outermost=waves_outermost)
    assert layout.covers() and layout.additive and layout.waves == waves and layout.wave_size == 64
    kept = layout.replication()
    held = len(kept.items) * kept.lanes(64).bit_count() * len(kept.waves)
    assert held == math.prod(shape)
    assert layout.vector_width(order[0]) >= math.gcd(vector, shape[order[0]])


def test_blocked_order_of_waves_and_repeats():
    assert str(blocked((256, 64), (1, 0), 8, 8)) == (
        "layout(256x64; item 0,1 0,2 0,4 64,0 128,0; lane 0,8 0,16 0,32 1,0 2,0 4,0; wave 8,0 16,0 32,0)")
    assert str(blocked((256, 64), (1, 0), 8, 8, waves_outermost=True)) == (
        "layout(256x64; item 0,1 0,2 0,4 8,0 16,0; lane 0,8 0,16 0,32 1,0 2,0 4,0; wave 32,0 64,0 128,0)")
    assert str(blocked((256, 64), (1, 0), 8, (4, 2), lanes=(64, 4))) == (
        "layout(256x64; item 0,1 0,2 0,4 64,0 128,0; lane 0,8 0,16 1,0 2,0 4,0 8,0; wave 0,32 16,0 32,0)")
    with pytest.raises(TilecError) as error:
        blocked((64, 64), (1, 0), 8, (16, 1))
    assert str(error.value) == ("a tile of 64x64 has no 16 parts for waves on axis 0\n"
                                "  limit: 8 positions are left for waves after lanes and vectors\n"
                                "  try: choose a larger tile or fewer waves")


@pytest.mark.parametrize("layout", [
    blocked((256, 64), (1, 0), 8, 8), blocked((64, 96), (1, 0), 8, 2), blocked((4096,), (0,), 4, 4),
    blocked((64, 64), (0, 1), 4, 4), blocked((8, 8), (1, 0), 4, 1)], ids=str)
@pytest.mark.parametrize("bits", [8, 16, 32])
def test_coalescing(layout, bits):
    for axis in range(layout.rank):
        found = layout.coalescing(axis, bits)
        vector = min(layout.vector_width(axis), 128 // bits)
        touched = {tuple(layout.coordinates(item, lane)) for item in range(vector) for lane in range(64)}
        starts = [point for point in touched if along(point, axis, -1) not in touched]
        runs = [next(n for n in itertools.count(1) if along(start, axis, n) not in touched) for start in starts]
        assert found.vector == vector and found.bytes_per_lane == vector * bits // 8
        assert (found.segments, found.run_bytes) == (len(starts), min(runs) * bits // 8)


def test_coalescing_of_a_gemm_tile():
    assert blocked((256, 64), (1, 0), 8, 8).coalescing(1, 16) == (8, 16, 128, 8)
    assert blocked((64, 256), (0, 1), 1, 4).coalescing(1, 16) == (1, 2, 2, 64)
