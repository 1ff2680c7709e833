"""MFMA fragments: every dense instruction entry by entry against published tables; whole tiles by simulated dots."""

import json
from pathlib import Path

import numpy as np
import pytest

from tilec.errors import InternalError, TilecError
from tilec.ir.fragments import fragment, operand
from tilec.target import TARGETS, target

DATA = np.load(Path(__file__).parents[1] / "data" / "mfma_layouts.npz")
PUBLISHED = json.loads(str(DATA["index"]))["layouts"]
CHAPTER = {"gfx942": "cdna3", "gfx950": "cdna4"}
OPERANDS = [("a", "A"), ("b", "B"), ("c", "CD")]
ROWS = [(arch, row) for arch, t in TARGETS.items() for row in t.mfmas]


def published(arch, row):
    return next(entry for entry in PUBLISHED[CHAPTER[arch]][row.mnemonic]
                if not row.is_f8f6f4 or (entry["cbsz"], entry["blgp"]) == (row.cbsz, row.blgp))


@pytest.mark.parametrize("arch,row", ROWS, ids=lambda value: getattr(value, "mnemonic", value))
def test_every_element_of_every_dense_instruction(arch, row):
    entry = published(arch, row)
    for role, key in OPERANDS:
        layout = fragment(row, role)
        expected = DATA[f"map{entry[key]}"]  # lane, item, (row, column, block)
        rows, columns, blocks = np.moveaxis(expected.astype(np.int64), -1, 0)
        np.testing.assert_array_equal(layout.enumerate()[:, 0], np.stack([blocks, rows, columns]))
        assert layout.covers() and layout.replication().lane_mask == 0
        dwords = {"a": row.a_dwords, "b": row.b_dwords, "c": row.cd_dwords}[role]
        assert layout.items * entry[f"{key}_bits"] == 32 * dwords  # items are packed without gaps


def test_no_published_dense_instruction_is_left_out():
    for arch, t in TARGETS.items():
        names = {name for name in PUBLISHED[CHAPTER[arch]] if name.startswith("v_mfma")}
        assert names == {row.mnemonic for row in t.mfmas}
        assert sum(len(PUBLISHED[CHAPTER[arch]][name]) for name in names) == len(t.mfmas)


def dot_by_instructions(row, shape, wave_grid, **how):
    """C = A B with operands and result held as `operand` says, one matrix instruction of one wave at a time: it takes
    its operands' items from registers and its own fragments say which matrix elements these are."""
    m, n, k = shape
    rng = np.random.default_rng(0)
    tiles = {"a": rng.integers(-8, 8, (m, k)), "b": rng.integers(-8, 8, (k, n))}
    swap, steps = how.get("swap", False), k // row.k
    layouts = {role: operand(row, role, tile.shape, wave_grid, **how) for role, tile in tiles.items()}
    result = operand(row, "c", (m, n), wave_grid, **{name: value for name, value in how.items() if name != "k_vector"})
    assert all(layout.covers() and layout.waves == result.waves for layout in (*layouts.values(), result))
    got = np.full((m, n), -1 << 40)
    own = {role: fragment(row, role) for role in "abc"}
    for wave in range(result.waves):
        for first in range(0, result.items, own["c"].items):
            points = result.enumerate()[:, wave, :, first:first + own["c"].items]
            total = np.zeros((row.m, row.n), np.int64)
            for side, fed in (("a", "b" if swap else "a"), ("b", "a" if swap else "b")):
                free = 0 if fed == "a" else 1  # the axis that a (its rows) or b (its columns) shares with the result
                layout, held = layouts[fed], own[side].items
                starts = layout.enumerate()[free, wave, 0, ::held * steps]
                start = int(np.flatnonzero(starts == points[free, 0, 0])[0]) * held * steps
                registers = tiles[fed][tuple(layout.enumerate()[:, wave])]
                blocks = np.zeros((steps, *own[side].shape[1:]), np.int64)
                for step in range(steps):
                    items = slice(start + step * held, start + (step + 1) * held)
                    blocks[step][tuple(own[side].enumerate()[1:, 0])] = registers[:, items]
                if side == "a":
                    left = blocks
                else:
                    total += sum(x @ y for x, y in zip(left, blocks, strict=True))
            got[tuple(points)] = total[tuple(own["c"].enumerate()[1:, 0])]
    np.testing.assert_array_equal(got, tiles["a"] @ tiles["b"])


GFX942, GFX950 = target("gfx942"), target("gfx950")


@pytest.mark.parametrize("row,shape,grid,how", [
    (GFX950.mfma("v_mfma_f32_16x16x32_bf16"), (64, 64, 64), (2, 2), {}),
    (GFX950.mfma("v_mfma_f32_16x16x32_bf16"), (64, 64, 64), (2, 2), {"swap": True}),
    (GFX950.mfma("v_mfma_f32_16x16x32_bf16"), (128, 128, 32), (2, 4), {"wave_tile": (32, 16)}),
    (GFX950.mfma("v_mfma_f32_32x32x16_bf16"), (64, 128, 32), (1, 4), {"swap": True}),
    (GFX942.mfma("v_mfma_f32_16x16x16_bf16"), (32, 64, 64), (1, 2), {"k_vector": 8}),
    (GFX942.mfma("v_mfma_f32_16x16x16_bf16"), (32, 64, 64), (2, 1), {"k_vector": 16, "swap": True}),
    (GFX942.mfma("v_mfma_f32_32x32x8_f16"), (64, 32, 48), (2, 1), {}),
    (GFX942.mfma("v_mfma_f32_16x16x4_f32"), (48, 32, 16), (3, 2), {}),
    (GFX942.mfma("v_mfma_f32_16x16x4_f32"), (32, 48, 12), (2, 3), {"swap": True}),
    (GFX942.mfma("v_mfma_f64_16x16x4_f64"), (32, 32, 8), (1, 2), {}),
    (GFX942.mfma("v_mfma_i32_32x32x16_i8"), (64, 64, 64), (2, 2), {"k_vector": 16}),
    (GFX950.mfma("v_mfma_f32_16x16x128_f8f6f4", "fp8_e4m3fn", "fp4_e2m1"), (32, 32, 256), (1, 1), {}),
    (GFX950.mfma("v_mfma_f32_32x32x64_f8f6f4", "fp8_e5m2", "fp8_e4m3fn"), (64, 64, 128), (2, 1), {"k_vector": 32}),
], ids=str)
def test_dot_of_whole_tiles(row, shape, grid, how):
    dot_by_instructions(row, shape, grid, **how)


def test_swapped_results_hold_consecutive_columns():
    row = GFX950.mfma("v_mfma_f32_16x16x32_bf16")
    plain, swapped = (operand(row, "c", (256, 256), (2, 4), swap=swap) for swap in (False, True))
    assert (plain.vector_width(0), plain.vector_width(1)) == (4, 1)
    assert (swapped.vector_width(0), swapped.vector_width(1)) == (1, 4)


def test_order_of_items_and_waves():
    row = GFX950.mfma("v_mfma_f32_16x16x32_bf16")
    assert str(operand(row, "a", (256, 64), (2, 4))) == (
        "layout(256x64; item 0,1 0,2 0,4 0,32 16,0 32,0 64,0; lane 1,0 2,0 4,0 8,0 0,8 0,16; wave - - 128,0)")
    assert str(operand(row, "c", (256, 256), (2, 4), wave_tile=(64, 32))) == (
        "layout(256x256; item 1,0 2,0 0,16 0,128 16,0 32,0 128,0; lane 0,1 0,2 0,4 0,8 4,0 8,0; wave 0,32 0,64 64,0)")


def test_refusals():
    row = GFX950.mfma("v_mfma_f32_16x16x32_bf16")
    with pytest.raises(TilecError) as error:
        operand(row, "a", (250, 64), (2, 4))
    assert str(error.value) == (
        "operand a of v_mfma_f32_16x16x32_bf16: 250 along m can't be shared out\n"
        "  limit: along m an instruction takes 16, a wave owns parts of 16, waves: 2\n"
        "  try: choose a tile with m a multiple of 32")
    with pytest.raises(TilecError, match="48 along k"):
        operand(row, "b", (48, 64), (1, 1))
    mixed = GFX950.mfma("v_mfma_f32_16x16x128_f8f6f4", "fp8_e4m3fn", "fp4_e2m1")
    with pytest.raises(TilecError) as error:
        operand(mixed, "a", (32, 256), (1, 1), k_vector=32)
    assert str(error.value) == ("v_mfma_f32_16x16x128_f8f6f4 can't take 32 consecutive k per lane\n"
                                "  limit: its operands hold runs of 16 and 32 k\n  try: leave k_vector out")
    with pytest.raises(InternalError, match="16 blocks"):
        operand(GFX942.mfma("v_mfma_f32_4x4x4_16b_f16"), "a", (64, 64), (1, 1))
