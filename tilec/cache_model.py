"""A cache model of one GEMM on a chiplet GPU: which L2 and last-level hit rates an order of its tiles gives.

The model, whole. Workgroup i runs on chiplet i mod `chiplets`, one to a compute unit, in rounds: all workgroups of a
round start together, and the next round starts when they are done. In lockstep each takes one K step at a time and
reads its panel of A (tile rows x step) and of B (tile columns x step) through its chiplet's L2. A panel that several
workgroups of a chiplet read in one step is fetched once. L2s are fully associative, LRU by panel step; what misses goes
to the one last-level cache, likewise; what misses there comes from HBM. C is not counted. `drift` lets each workgroup
lag by a random number of steps, for studies: real ones do not keep in step. Nothing is timed, nothing was measured.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tilec.errors import TilecError
from tilec.target import Target

ACCESSES = 4_000_000        # L2 accesses simulated before the model stops at the end of a round: some seconds


@dataclass(frozen=True)
class Caches:
    """Sizes in bytes. `last_level_bytes` are shared by all chiplets."""

    chiplets: int
    workgroups: int         # resident on a chiplet at a time
    l2_bytes: int
    last_level_bytes: int

    @staticmethod
    def of(target: Target, chiplets: int | None = None) -> Caches:
        """Those of an architecture with one workgroup per compute unit; `chiplets` of it, if it is partitioned."""
        return Caches(chiplets or target.chiplets, target.compute_units // target.chiplets, target.l2_bytes,
                      target.last_level_bytes)


@dataclass(frozen=True)
class Gemm:
    """C (M x N) = A (M x K) B (K x N), `batch` times, in tiles of bm x bn and steps of bk."""

    m: int
    n: int
    k: int
    bm: int = 256
    bn: int = 256
    bk: int = 64
    batch: int = 1
    element_bits: int = 16

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value < 1:
                raise TilecError(f"a GEMM with {name}={value}", limit="sizes are 1 or more")

    @property
    def rows(self) -> int:
        return -(-self.m // self.bm)

    @property
    def columns(self) -> int:
        return -(-self.n // self.bn)

    @property
    def steps(self) -> int:
        return -(-self.k // self.bk)

    @property
    def grid(self) -> tuple[int, ...]:
        """As a kernel would give it to program_id."""
        return (self.rows, self.columns) if self.batch == 1 else (self.batch, self.rows, self.columns)

    @property
    def operand_bytes(self) -> int:
        """A and B, once."""
        return self.batch * (self.m + self.n) * self.k * self.element_bits // 8


@dataclass(frozen=True)
class Traffic:
    """Bytes asked of L2, of the last level (what missed L2) and of HBM (what missed there), in `simulated` of `rounds`
    rounds."""

    requested: int
    l2_missed: int
    last_level_missed: int
    rounds: int
    simulated: int

    @property
    def l2_hit_rate(self) -> float:
        return 1 - self.l2_missed / max(1, self.requested)

    @property
    def last_level_hit_rate(self) -> float:
        """Of what missed L2."""
        return 1 - self.last_level_missed / max(1, self.l2_missed)


def simulate(gemm: Gemm, tiles: np.ndarray, caches: Caches, drift: int = 0, seed: int = 0) -> Traffic:
    """Traffic when workgroup i takes tile `tiles[i]`, an index of the gemm's grid (as `grid_order.tiles` gives
    them)."""
    l2s = [_Lru(caches.l2_bytes) for _ in range(caches.chiplets)]
    last_level = _Lru(caches.last_level_bytes)
    steps, resident = gemm.steps, caches.chiplets * caches.workgroups
    depth = [min(gemm.bk, gemm.k - step * gemm.bk) * gemm.element_bits for step in range(steps)]
    random = np.random.default_rng(seed)
    requested = l2_missed = last_missed = accesses = simulated = 0
    for first in range(0, len(tiles), resident):
        if accesses > ACCESSES:
            break
        round_ = tiles[first:first + resident]
        lag = random.integers(0, drift + 1, len(round_))
        reads = [list(_panels(gemm, round_[c::caches.chiplets], lag[c::caches.chiplets]))
                 for c in range(caches.chiplets)]
        accesses += steps * sum(map(len, reads))
        simulated += 1
        for time in range(steps + drift):
            for l2, panels in zip(l2s, reads):
                for panel, extent, late, readers in panels:
                    step = time - late
                    if not 0 <= step < steps:
                        continue
                    size = extent * depth[step] // 8
                    requested += readers * size
                    if not l2.holds(panel * steps + step, size):
                        l2_missed += size
                        if not last_level.holds(panel * steps + step, size):
                            last_missed += size
    return Traffic(requested, l2_missed, last_missed, -(-len(tiles) // resident), simulated)


def footprint(gemm: Gemm, tiles: np.ndarray, caches: Caches) -> tuple[float, float]:
    """Tile rows and tile columns that a chiplet works on at a time, on average over the chiplets in the first round."""
    round_ = tiles[:caches.chiplets * caches.workgroups]
    parts = [part for c in range(caches.chiplets) if len(part := round_[c::caches.chiplets])]
    rows, columns = np.mean([[len(np.unique(p)) for p in _panel_numbers(gemm, part)] for part in parts], axis=0)
    return float(rows), float(columns)


def _panel_numbers(gemm: Gemm, tiles: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The panel of A and that of B of each tile; a batch has its own."""
    batch = tiles[:, 0] if gemm.batch > 1 else np.zeros(len(tiles), np.int64)
    return batch * gemm.rows + tiles[:, -2], batch * gemm.columns + tiles[:, -1]


def _panels(gemm: Gemm, tiles: np.ndarray, lag: np.ndarray) -> Iterator[tuple[int, int, int, int]]:
    """What the workgroups of a chiplet read: (panel, its rows or columns, lag, readers at the same time)."""
    a, b = _panel_numbers(gemm, tiles)
    sides = (a, 0, gemm.rows, gemm.bm, gemm.m), (b, gemm.batch * gemm.rows, gemm.columns, gemm.bn, gemm.n)
    for numbers, first, per_batch, extent, size in sides:
        pairs, readers = np.unique(np.stack([numbers, lag], axis=1), axis=0, return_counts=True)
        for (number, late), count in zip(pairs.tolist(), readers.tolist()):
            yield first + number, min(extent, size - number % per_batch * extent), late, count


class _Lru:
    """A fully associative cache of panel steps."""

    def __init__(self, capacity: int):
        self.capacity, self.used = capacity, 0
        self.sizes: OrderedDict[int, int] = OrderedDict()

    def holds(self, key: int, size: int) -> bool:
        """Whether it is there; it is afterwards."""
        if key in self.sizes:
            self.sizes.move_to_end(key)
            return True
        self.sizes[key] = size
        self.used += size
        while self.used > self.capacity:
            self.used -= self.sizes.popitem(last=False)[1]
        return False
