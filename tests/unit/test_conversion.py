"""Conversions and reductions carried out on arrays as the plans say, compared with what the layouts mean."""

import numpy as np
import pytest

from tilec.errors import InternalError
from tilec.ir.blocked import blocked
from tilec.ir.conversion import conversion, matching_items, reduction
from tilec.ir.fragments import operand
from tilec.ir.layout import Layout
from tilec.target import target

GFX950 = target("gfx950")
M16 = GFX950.mfma("v_mfma_f32_16x16x32_bf16")
M32 = GFX950.mfma("v_mfma_f32_32x32x16_bf16")


def hold(layout: Layout, tile: np.ndarray) -> np.ndarray:
    """What registers hold: (waves, lanes, items)."""
    return tile[tuple(layout.enumerate())]


def convert(src: Layout, dst: Layout, registers: np.ndarray) -> np.ndarray:
    plan = conversion(src, dst)
    if plan.kind in ("identity", "registers"):
        return registers[..., list(plan.items)]
    assert plan.kind == "lanes"
    return registers[:, plan.source_lanes.T, plan.source_items.T]



C16, C16T = operand(M16, "c", (64, 64), (2, 2)), operand(M16, "c", (64, 64), (2, 2), swap=True)
ROWS, COLUMNS = blocked((64, 64), (1, 0), 4, 4), blocked((64, 64), (0, 1), 4, 4)
REORDERED = Layout(C16.shape, C16.item[::-1], C16.lane, C16.wave)
REPLICATED = C16.narrow((64, 1))
PAIRS = {
    "same": (C16, C16, "identity"),
    "items reordered": (C16, REORDERED, "registers"),
    "transposed accumulator": (C16, C16T, "lanes"),
    "probabilities to operand": (
        operand(M32, "c", (64, 64), (1, 1), swap=True), operand(M32, "a", (64, 64), (1, 1)), "lanes"),
    "waves exchanged": (C16, Layout(C16.shape, C16.item, C16.lane, C16.wave[::-1]), "lds"),
    "accumulator to rows": (C16, ROWS, "lds"),
    "replicas dropped": (REPLICATED, REPLICATED, "identity"),
    "one wave": (blocked((16, 64), (1, 0), 4, 1), blocked((16, 64), (0, 1), 4, 1), "lanes"),
    "odd sizes": (blocked((48, 32), (1, 0), 2, 2), Layout.parse(
        "layout(48x32; item 16,0 0,1 *3:8,0; lane 0,2 0,4 0,8 0,16 1,0 2,0; wave 4,0)"), "registers"),
}


@pytest.mark.parametrize("src,dst,kind", PAIRS.values(), ids=PAIRS)
def test_conversion(src, dst, kind):
    plan = conversion(src, dst)
    assert plan.kind == kind
    if kind != "lds":
        tile = np.random.default_rng(1).permutation(int(np.prod(src.shape))).reshape(src.shape)
        np.testing.assert_array_equal(convert(src, dst, hold(src, tile)), hold(dst, tile))
    else:  # no smaller kind is possible: some wave lacks an element that it needs
        tile = np.arange(int(np.prod(src.shape))).reshape(src.shape)
        have, want = hold(src, tile), hold(dst, tile)
        assert any(not set(want[wave].ravel()) <= set(have[wave].ravel()) for wave in range(src.waves))


def test_lane_moves_are_short():
    """S^T of a 32x32 accumulator becomes an operand by exchanging halves of the wave only (v_permlane32_swap)."""
    src, dst, _ = PAIRS["probabilities to operand"]
    assert conversion(src, dst).lane_masks == (0, 32)


@pytest.mark.parametrize("seed", range(20))
def test_random_permutations_of_index_bits(seed):
    rng = np.random.default_rng(seed)
    pool = [(1 << i, 0) for i in range(4)] + [(0, 1 << i) for i in range(4)]

    def build(wave):
        rest = [pool[i] for i in rng.permutation(8) if pool[i] not in wave]
        lanes = int(rng.integers(2, 5))
        return Layout((16, 16), tuple(rest[lanes:]), tuple(rest[:lanes]) + ((0, 0),) * (5 - lanes), wave)

    wave = (pool[int(rng.integers(8))],)
    src, dst = build(wave), build(wave)
    tile = rng.permutation(256).reshape(16, 16)
    np.testing.assert_array_equal(convert(src, dst, hold(src, tile)), hold(dst, tile))


def test_shapes_must_agree():
    with pytest.raises(InternalError, match="differ in shape or in waves"):
        conversion(C16, blocked((64, 64), (1, 0), 4, 8))


@pytest.mark.parametrize("full,shape", [(C16, (64, 1)), (C16, (1, 64)), (C16T, (64, 1)), (ROWS, (1, 64)), (C16, (1, 1)),
                                        (blocked((48, 32), (1, 0), 2, 2), (48, 1))])
def test_broadcast_operands(full, shape):
    part = full.narrow(shape)
    tile = np.random.default_rng(2).permutation(int(np.prod(shape))).reshape(shape)
    items = matching_items(full, part)
    assert items is not None
    got = hold(part, tile)[..., list(items)]
    np.testing.assert_array_equal(got, hold(full, np.broadcast_to(tile, full.shape)))
    assert matching_items(C16, COLUMNS) is None


def reduce(layout: Layout, axis: int, tile: np.ndarray) -> tuple[np.ndarray, Layout]:
    """The sum along an axis done on registers, step by step as the plan says."""
    plan = reduction(layout, axis)
    registers = hold(layout, tile)
    partial = np.zeros((*registers.shape[:2], plan.result.items), np.int64)
    for item in plan.distinct_items:
        partial[..., plan.item_of[item]] += registers[..., item]
    lanes = np.arange(layout.wave_size)
    for mask in plan.lane_masks:
        partial = partial + partial[:, lanes ^ mask]
    return np.stack([partial[list(partners)].sum(axis=0) for partners in plan.wave_partners]), plan.result


@pytest.mark.parametrize("layout", [
    C16, C16T, ROWS, COLUMNS, blocked((1, 4096), (1, 0), 4, 4), blocked((96, 24), (1, 0), 8, 6),
    blocked((8,), (0,), 4, 4), blocked((4, 8, 16), (2, 1, 0), 2, 2), blocked((192, 32), (1, 0), 4, 6),
    operand(M16, "a", (64, 64), (2, 2)),
    Layout((8,), ((1,), (2,)), ((1,), (4,), (2,)), ((4,),)), Layout((8,), ((0,), (1,), (1,)), ((2,), (4,)))], ids=str)
def test_reduction(layout):
    tile = np.random.default_rng(3).integers(-100, 100, layout.shape)
    for axis in range(layout.rank):
        got, result = reduce(layout, axis, tile)
        np.testing.assert_array_equal(got, hold(result, tile.sum(axis=axis)))


def test_reduction_that_stays_in_the_wave():
    plan = reduction(blocked((64, 256), (1, 0), 4, (4, 1)), 1)
    assert plan.lane_masks == (1, 2, 4, 8, 16, 32) and not plan.crosses_waves
    assert reduction(operand(M16, "c", (64, 64), (1, 4)), 1).crosses_waves
    assert reduction(operand(M16, "c", (64, 64), (4, 1)), 1).lane_masks == (1, 2, 4, 8)
    assert reduction(Layout((4, 4), ((0, 1), (0, 2)), ((1, 1), (2, 2))), 1) is None  # lanes move diagonally
