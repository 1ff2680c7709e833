"""MFMA fragments: which lane and item hold which element of A, B and C/D, from one rule for every dense instruction.

The rule (AMD's ISA manuals, chapter on matrix instructions; AMD's matrix instruction calculator; the f8f6f4 forms as
public sources agree): lanes run over the free index, then the blocks, then groups of k; a lane's items run over its own
k. C/D has rows in runs of 4 (1 for f64) items, columns over lanes, the rest of the rows over the remaining lanes and
then over items. Both are an order of index bits, so the layout of a whole tile is the same order with repeats and waves
put in.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilec.dtypes import DTYPES
from tilec.errors import InternalError, TilecError
from tilec.ir.blocked import LayoutBuilder
from tilec.ir.layout import Layout
from tilec.target import Mfma

ROLES = ("a", "b", "c")
_BLOCK, _ROW, _COLUMN = 0, 1, 2


def fragment(mfma: Mfma, role: str, wave_size: int = 64) -> Layout:
    """One instruction's operand as a layout of shape (blocks, rows, columns): A is (b, i, k), B (b, k, j), C and D (b,
    i, j)."""
    if role == "c":
        tile = LayoutBuilder((mfma.blocks, mfma.m, mfma.n))
        _take_result(tile, mfma, _ROW, _COLUMN, wave_size)
        tile.take("item", _BLOCK, mfma.blocks)
    else:
        free, contracted = (_ROW, _COLUMN) if role == "a" else (_COLUMN, _ROW)
        tile = LayoutBuilder((mfma.blocks, mfma.m, mfma.k) if role == "a" else (mfma.blocks, mfma.k, mfma.n))
        _take_operand(tile, mfma, role, free, contracted, 0, wave_size)
    return tile.build()


def operand(mfma: Mfma, role: str, tile_shape: Sequence[int], wave_grid: Sequence[int] = (1, 1), *, swap: bool = False,
            k_vector: int = 0, wave_tile: Sequence[int] = (0, 0), wave_size: int = 64) -> Layout:
    """The layout of a whole operand tile of a dot whose work `wave_grid` = (waves along M, waves along N) shares out.

    `role` is a (tile M x K), b (K x N) or c (M x N). Waves count along N first: wave = m_wave * waves_n + n_wave for
    powers of two. Items: those of one instruction are consecutive, then k steps, then repeats along the free axis (for
    c along N, then M). An operand is replicated over the waves along the axis that it lacks.

    `swap` computes the transposed dot (D^T = B^T A^T): the instruction's A is fed from b and its B from a, so that a
    lane of c holds consecutive columns. `k_vector`: consecutive k that a lane holds, at least an instruction's own run;
    with two or more runs, one wide LDS read feeds several instructions. Since any order of k serves if both operands
    share it, a and b must be built with the same value. `wave_tile` = (rows, columns) that a wave owns before the next
    wave's begin; 0 gives each wave one contiguous part. Raises TilecError when the tile does not divide.
    """
    if role not in ROLES or mfma.blocks != 1:
        raise InternalError(f"no tile layout for operand {role!r} of {mfma.mnemonic} ({mfma.blocks} blocks)")
    axes = {"a": ("m", "k"), "b": ("k", "n"), "c": ("m", "n")}[role]
    position = {name: index for index, name in enumerate(axes)}
    sizes = {"m": mfma.n, "n": mfma.m, "k": mfma.k} if swap else {"m": mfma.m, "n": mfma.n, "k": mfma.k}
    waves, owned = dict(zip("mn", wave_grid, strict=True)), dict(zip("mn", wave_tile, strict=True))
    _check(mfma, role, dict(zip(axes, tile_shape, strict=True)), sizes, waves, owned)
    tile = LayoutBuilder(tile_shape)
    if role == "c":
        row, column = ("n", "m") if swap else ("m", "n")
        _take_result(tile, mfma, position[row], position[column], wave_size)
    else:
        own = role if not swap else "b" if role == "a" else "a"
        free = axes[0] if role == "a" else axes[1]
        _take_operand(tile, mfma, own, position[free], position["k"], k_vector, wave_size)
        tile.take("item", position["k"], tile.left(position["k"]))
    for name in ("n", "m"):
        if name not in position:
            tile.replicate("wave", waves[name])
            continue
        axis = position[name]
        inner = owned[name] // sizes[name] if owned[name] else tile.left(axis) // waves[name]
        tile.take("item", axis, inner)
        tile.take("wave", axis, waves[name])
        tile.take("item", axis, tile.left(axis))
    return tile.build()


def _take_operand(tile: LayoutBuilder, mfma: Mfma, own: str, free: int, contracted: int, k_vector: int,
                  wave_size: int) -> None:
    """The rule of A and B, the items of one instruction first: A[b,i,k] is in lane i + M * (b + blocks * group of
    k)."""
    extent = mfma.m if own == "a" else mfma.n
    groups = wave_size // (extent * mfma.blocks)
    held = mfma.k // groups
    run = _run(mfma, own, held)
    if k_vector and k_vector != run:
        other = _run(mfma, "b" if own == "a" else "a", held)
        if k_vector % run or run != other:
            raise TilecError(f"{mfma.mnemonic} can't take {k_vector} consecutive k per lane",
                             limit=f"its operands hold runs of {run} and {other} k", fix="leave k_vector out")
        run = k_vector
    tile.take("item", contracted, run)
    tile.take("lane", free, extent)
    if mfma.blocks > 1:
        tile.take("lane", _BLOCK, mfma.blocks)
    tile.take("lane", contracted, groups)
    if held > run:
        tile.take("item", contracted, held // run)


def _run(mfma: Mfma, own: str, held: int) -> int:
    """Consecutive k of a lane: all that it holds, but f8f6f4 splits an 8-bit operand into two halves of 16 bytes whose
    k are half the instruction's K apart."""
    bits = DTYPES["f32" if (name := mfma.a if own == "a" else mfma.b) == "xf32" else name].bits
    return held // 2 if mfma.is_f8f6f4 and bits == 8 else held


def _take_result(tile: LayoutBuilder, mfma: Mfma, row: int, column: int, wave_size: int) -> None:
    """The rule of C and D: `height` rows in items, columns over lanes, then blocks and rows share the lanes that are
    left as in A and B; what rows remain go to items."""
    height = 1 if mfma.cd == "f64" else 4
    tile.take("item", row, height)
    lanes = wave_size // tile.take("lane", column, mfma.n)
    rows = min(mfma.m // height, lanes)
    if lanes > rows:
        tile.take("lane", _BLOCK, lanes // rows)
    tile.take("lane", row, rows)
    tile.take("item", row, mfma.m // (height * rows))


def _check(mfma: Mfma, role: str, tile: dict[str, int], sizes: dict[str, int], waves: dict[str, int],
           owned: dict[str, int]) -> None:
    for name, size in tile.items():
        over, part = waves.get(name, 1), owned.get(name, 0) or sizes[name]
        if size % (part * over) or part % sizes[name]:
            raise TilecError(
                f"operand {role} of {mfma.mnemonic}: {size} along {name} can't be shared out",
                limit=f"along {name} an instruction takes {sizes[name]}, a wave owns parts of {part}, waves: {over}",
                fix=f"choose a tile with {name} a multiple of {sizes[name] * over}")
