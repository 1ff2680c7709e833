"""How a dot is shared out: the MFMA, the grid of waves over its result, and the layouts of its operands.

Of the instructions for its types, the fastest that divides the tile; of the grids of waves, the one in which a wave
reads the fewest rows of a and columns of b. Waves beyond what the tile can feed hold replicas. Two things come first:
an axis of the result that is combined later (reduced, or contracted by the next dot) stays within waves; and an operand
that was computed is taken as its lanes hold it, if that is the instruction's layout but for the order of k, which is
free as long as both operands share it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilec.errors import TilecError
from tilec.ir import tile
from tilec.ir.core import Block, Program
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


def plan(
    op: tile.Dot,
    waves: int,
    target: Target,
    swapped: bool,
    rows_wanted: int = 0,
    whole: frozenset[int] = frozenset(),
    held: tuple[Layout | None, Layout | None] = (None, None),
    followers: Sequence[tile.Dot] = (),
) -> DotPlan:
    """The plan of a dot. `rows_wanted`: of instructions that fit, those of so many rows if there are some; `whole`:
    axes of the result that are combined later; `held`: the layouts in which a and b already are; `followers`:
    the dots that take the result as an operand, which they can as it is only with instructions of as many rows. Raises
    TilecError where no instruction fits its types or sizes."""
    fitting = _fitting(op, target, swapped)
    fitting = [row for row in fitting if row.m == rows_wanted] or fitting
    m, n = op.accumulator.shape
    alike = {row.m for row in fitting}
    alike = alike.intersection(*({row.m for row in _fitting(follower, target, swapped)} for follower in followers))
    choices = []
    for speed, mfma in enumerate(fitting):
        rows, columns = m // (mfma.n if swapped else mfma.m), n // (mfma.m if swapped else mfma.n)
        for grid in _wave_grids(rows, columns, waves):
            used, reads = grid[0] * grid[1], rows / grid[0] + columns / grid[1]
            crossed = sum(grid[axis] > 1 for axis in whole)
            # Of equally fast instructions the large one leaves fewer lanes to combine.
            first = (used, -crossed, mfma.m in alike, mfma.flops_per_cycle, mfma.m * mfma.n) if whole else ()
            choices.append(((*first, -speed, used, -reads, -grid[0]), mfma, grid))
    if not choices:
        raise TilecError(
            f"dot of {m}x{n} can't be shared by {waves} waves",
            where=op.where,
            limit=f"{fitting[0].m}x{fitting[0].n} is what one wave takes at least, and all take alike",
            fix="choose a power of two of waves, or tile sizes that its factors divide",
        )
    choices.sort(key=lambda choice: choice[0], reverse=True)
    if any(held):
        plans = (_plan(op, mfma, grid, waves, swapped, target) for _, mfma, grid in choices)
        adopted = next((a for p in plans for a in [_adopting(p, held)] if a is not None), None)
        if adopted is not None:
            return adopted
    return _plan(op, choices[0][1], choices[0][2], waves, swapped, target)


def _fitting(op: tile.Dot, target: Target, swapped: bool) -> list[Mfma]:
    """The instructions that divide the dot, the fastest first."""
    (m, k), n = op.a.shape, op.b.shape[1]
    types = op.a.dtype, op.b.dtype, op.accumulator.dtype
    rows = target.mfmas_for(*types)
    if not rows:
        raise TilecError(
            f"{target.name} has no matrix instruction for {types[0]} x {types[1]} -> {types[2]}",
            where=op.where,
            fix="use operands of one type (f16, bf16, f32, f64, i8) and an accumulator of f32 (f64: f64, i8: i32)",
        )
    fitting = [
        row
        for row in rows
        if k % row.k == 0 and m % (row.n if swapped else row.m) == 0 and n % (row.m if swapped else row.n) == 0
    ]
    if not fitting:
        sizes = sorted({(row.n, row.m, row.k) if swapped else (row.m, row.n, row.k) for row in rows})
        raise TilecError(
            f"dot of {m}x{k} by {k}x{n} in {types[0]} does not divide into matrix instructions",
            where=op.where,
            limit="M, N, K must be multiples of " + " or of ".join(", ".join(map(str, size)) for size in sizes),
            fix="choose larger tile sizes; elements outside a tensor load as 0",
        )
    return fitting


def _plan(op: tile.Dot, mfma: Mfma, grid: tuple[int, int], waves: int, swapped: bool, target: Target) -> DotPlan:
    (m, k), n = op.a.shape, op.b.shape[1]
    run = _shared_run(mfma, op.a.dtype.bits, k)
    layouts = [
        operand(mfma, role, shape, grid, swap=swapped, k_vector=run if role != "c" else 0, wave_size=target.wave_size)
        for role, shape in (("a", (m, k)), ("b", (k, n)), ("c", (m, n)))
    ]
    spare = (waves // (grid[0] * grid[1])).bit_length() - 1
    a, b, accumulator = (replace(layout, wave=layout.wave + ((0, 0),) * spare) for layout in layouts)
    return DotPlan(mfma, grid, swapped, a, b, accumulator)


def _adopting(plan: DotPlan, held: tuple[Layout | None, Layout | None]) -> DotPlan | None:
    """The plan with k in the order in which an operand already holds it."""
    for layout, wanted, axis in ((held[0], plan.a, 1), (held[1], plan.b, 0)):
        order = k_order(wanted, layout, axis) if layout is not None else None
        if order is not None:
            return replace(plan, a=_reordered(plan.a, 1, order), b=_reordered(plan.b, 0, order))
    return None


def k_order(wanted: Layout, held: Layout, axis: int) -> dict[int, int] | None:
    """The map of the bits of k (the coordinate along `axis`) that makes `held` of `wanted`, but for the numbering of
    items; None where there is none. Lanes and waves must split k from the free axis alike, and lanes hold as many
    bits of k."""
    grids = [(layout.wave, layout.wave_grid, layout.item_grid) for layout in (wanted, held)]
    if grids[0] != grids[1] or any(digit.step[axis] for digit in held.item_grid):
        return None  # sizes of k that are no power of two keep their order
    if any(all(basis) for layout in (wanted, held) for basis in (*layout.item, *layout.lane)):
        return None
    (ours, our_free), (theirs, their_free) = (_items_along(layout, axis) for layout in (wanted, held))
    if len(ours) != len(theirs) or sorted(our_free) != sorted(their_free):
        return None
    order = dict(zip(ours, theirs))
    for our, their in zip(wanted.lane, held.lane, strict=True):
        if our[1 - axis] != their[1 - axis] or bool(our[axis]) != bool(their[axis]):
            return None
        if our[axis]:
            order[our[axis]] = their[axis]
    return order if sorted(order.values()) == sorted(order) else None


def _items_along(layout: Layout, axis: int) -> tuple[list[int], list[tuple[int, ...]]]:
    """The bits of k among the items of a lane, and the other bases of items."""
    return [basis[axis] for basis in layout.item if basis[axis]], [basis for basis in layout.item if not basis[axis]]


def _reordered(layout: Layout, axis: int, order: dict[int, int]) -> Layout:
    """The layout with the bits of a coordinate exchanged."""

    def moved(basis: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(order.get(value, value) if other == axis else value for other, value in enumerate(basis))

    return replace(layout, item=tuple(map(moved, layout.item)), lane=tuple(map(moved, layout.lane)))


def suggested_waves(program: Program) -> int:
    """Waves of a workgroup where the user names none: 8 (two per SIMD) where the results of dots that stand side by
    side would take more than half of the registers of 4, fewer than 4 where there is less than an instruction's tile
    for each."""
    blocks = [program.body, *(block for op in program.walk() for block in op.regions)]
    beside = [_result_sizes(block) for block in blocks]
    if not any(beside):
        return 4
    together, largest = max(map(sum, beside)), max(size for sizes in beside for size in sizes)
    return 8 if together > 256 * 128 else 4 if largest >= 32 * 32 else 2 if largest > 16 * 16 else 1


def _result_sizes(block: Block) -> list[int]:
    """Elements of the results of a block's dots, but for those that another of them accumulates into."""
    dots = [op for op in block.ops if isinstance(op, tile.Dot)]
    passed_on = {op.accumulator for op in dots}
    return [op.result.shape[0] * op.result.shape[1] for op in dots if op.result not in passed_on]


def _wave_grids(rows: int, columns: int, waves: int) -> list[tuple[int, int]]:
    """Waves along M and N that can share out `rows` x `columns` instruction tiles, a power of two of them spare."""
    return [
        (r, c)
        for r in range(1, waves + 1)
        for c in range(1, waves + 1)
        if r * c <= waves
        and waves % (r * c) == 0
        and (waves // (r * c)) & (waves // (r * c) - 1) == 0
        and rows % r == 0
        and columns % c == 0
    ]


def _shared_run(mfma: Mfma, bits: int, k: int) -> int:
    """Consecutive k per lane: 16 bytes where the tile is deep enough, so that one wide LDS read feeds several
    instructions."""
    groups = 64 // (mfma.m * mfma.blocks)
    held = mfma.k // groups
    wide = 128 // bits
    return wide if held < wide and wide % held == 0 and k % (mfma.k * wide // held) == 0 and not mfma.is_f8f6f4 else 0
