"""How a dot is shared out: the MFMA, the grid of waves over its result, and the layouts of its operands.

Of the instructions for its types, the fastest that divides the tile; of the grids of waves, the one in which a wave reads the
fewest rows of a and columns of b. Waves beyond what the tile can feed hold replicas.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilec.errors import TilecError
from tilec.ir import tile
from tilec.ir.core import Program
from tilec.ir.fragments import operand
from tilec.ir.layout import Layout
from tilec.target import Mfma, Target


@dataclass(frozen=True)
class DotPlan:
    """Layouts of a (M x K), b (K x N) and accumulator (M x N); `swapped`: computed as the transposed product."""

    mfma: Mfma
    wave_grid: tuple[int, int]
    swapped: bool
    a: Layout
    b: Layout
    accumulator: Layout


def plan(op: tile.Dot, waves: int, target: Target, swapped: bool, rows_wanted: int = 0) -> DotPlan:
    """The plan of a dot; of instructions that fit, one of `rows_wanted` rows if there is one. Raises TilecError where no
    instruction fits its types or sizes."""
    (m, k), n = op.a.type.shape, op.b.type.shape[1]
    types = op.a.type.dtype, op.b.type.dtype, op.accumulator.type.dtype
    rows = target.mfmas_for(*types)
    if not rows:
        raise TilecError(f"{target.name} has no matrix instruction for {types[0]} x {types[1]} -> {types[2]}", where=op.where,
                         fix="use operands of one type (f16, bf16, f32, f64, i8) and an accumulator of f32 (f64: f64, i8: i32)")
    fitting = [row for row in rows if k % row.k == 0 and m % (row.n if swapped else row.m) == 0 and n % (row.m if swapped else row.n) == 0]
    if not fitting:
        sizes = sorted({(row.n, row.m, row.k) if swapped else (row.m, row.n, row.k) for row in rows})
        raise TilecError(f"dot of {m}x{k} by {k}x{n} in {types[0]} does not divide into matrix instructions", where=op.where,
                         limit="M, N, K must be multiples of " + " or of ".join(", ".join(map(str, size)) for size in sizes),
                         fix="choose larger tile sizes; elements outside a tensor load as 0")
    mfma = next((row for row in fitting if row.m == rows_wanted), fitting[0])
    grid = _wave_grid(m // (mfma.n if swapped else mfma.m), n // (mfma.m if swapped else mfma.n), waves)
    run = _shared_run(mfma, types[0].bits, k)
    layouts = [operand(mfma, role, shape, grid, swap=swapped, k_vector=run if role != "c" else 0, wave_size=target.wave_size)
               for role, shape in (("a", (m, k)), ("b", (k, n)), ("c", (m, n)))]
    spare = (waves // (grid[0] * grid[1])).bit_length() - 1
    a, b, accumulator = (replace(layout, wave=layout.wave + ((0, 0),) * spare) for layout in layouts)
    return DotPlan(mfma, grid, swapped, a, b, accumulator)


def suggested_waves(program: Program) -> int:
    """Waves of a workgroup where the user names none: 8 (two per SIMD) for dots whose result would take more than half of the
    registers of 4, fewer than 4 where there is less than an instruction's tile for each."""
    results = [op.result.type for op in program.walk() if isinstance(op, tile.Dot)]
    if not results:
        return 4
    elements = max(type.shape[0] * type.shape[1] for type in results)
    return 8 if elements > 256 * 128 else 4 if elements >= 32 * 32 else 2 if elements > 16 * 16 else 1


def _wave_grid(rows: int, columns: int, waves: int) -> tuple[int, int]:
    """Waves along M and N for a result of `rows` x `columns` instruction tiles."""
    grids = [(r, c) for r in range(1, waves + 1) for c in range(1, waves + 1)
             if r * c <= waves and waves % (r * c) == 0 and (waves // (r * c)) & (waves // (r * c) - 1) == 0
             and rows % r == 0 and columns % c == 0]
    return max(grids, key=lambda g: (g[0] * g[1], -(rows / g[0] + columns / g[1]), -g[0]))


def _shared_run(mfma: Mfma, bits: int, k: int) -> int:
    """Consecutive k per lane: 16 bytes where the tile is deep enough, so that one wide LDS read feeds several instructions."""
    groups = 64 // (mfma.m * mfma.blocks)
    held = mfma.k // groups
    wide = 128 // bits
    return wide if held < wide and wide % held == 0 and k % (mfma.k * wide // held) == 0 and not mfma.is_f8f6f4 else 0
