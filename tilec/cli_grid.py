"""`tilec grid`: the order in which workgroups take the tiles of a GEMM, drawn, and the cache hit rates it would give.

The picture is by tile rows and columns of C. The rates are of `cache_model`: a simulation, nothing measured.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    import numpy as np

    from tilec.cache_model import Caches, Gemm, Traffic
    from tilec.ir.schedule import GridOrder

SHOWN = (64, 120)               # rows and characters of a picture at most
PICTURES = ("round", "chiplets", "numbers")
POSITIVE = click.IntRange(min=1)


@click.command()
@click.option("--m", required=True, type=POSITIVE, help="Rows of C.")
@click.option("--n", required=True, type=POSITIVE, help="Columns of C.")
@click.option("--k", type=POSITIVE, help="The contracted size (default: the larger of m and n).")
@click.option("--batch", default=1, show_default=True, type=POSITIVE, help="So many products in one launch.")
@click.option("--bm", default=256, show_default=True, type=POSITIVE, help="Rows of a tile.")
@click.option("--bn", default=256, show_default=True, type=POSITIVE, help="Columns of a tile.")
@click.option("--bk", default=64, show_default=True, type=POSITIVE, help="Depth of a K step.")
@click.option("--dtype", default="bf16", show_default=True, help="Of A and B.")
@click.option("--order", "kind", type=click.Choice(("rows", "grouped", "chiplet")), default="chiplet",
              show_default=True)
@click.option("--window", default=8, show_default=True, help="Rows of a window (grouped, chiplet).")
@click.option("--chunk", default=64, show_default=True, help="Consecutive tiles of a chiplet (chiplet).")
@click.option("--xcds", type=click.IntRange(1, 64), help="Chiplets that share the launch (default: all of the GPU).")
@click.option("--arch", default="gfx950", show_default=True, help="Whose caches and compute units to take.")
@click.option("--drift", default=0, show_default=True, type=click.IntRange(min=0),
              help="Let workgroups lag by up to so many K steps, at random.")
@click.option("--show", type=click.Choice(PICTURES), default="round", show_default=True,
              help="Which chiplet takes the tiles of one round; of all tiles; or each tile's number in the order.")
@click.option("--round", "shown", default=0, show_default=True, type=click.IntRange(min=0), help="Which round to show.")
@click.option("--json", "json_output", is_flag=True, help="Print one JSON value instead of text.")
def grid(m: int, n: int, k: int | None, batch: int, bm: int, bn: int, bk: int, dtype: str, kind: str, window: int,
         chunk: int, xcds: int | None, arch: str, drift: int, show: str, shown: int, json_output: bool) -> None:
    """Draw the grid order of a GEMM's tiles and simulate its L2 and last-level hit rates.

    The rates come from a model: chiplets in lockstep, each with an L2, under one last-level cache, all LRU
    (docs/grid-order.md). They compare orders; they are no measurement.

    \b
      tilec grid --m 14592 --n 14592 --bm 192 --window 8 --chunk 64
      tilec grid --m 1024 --n 1024 --bm 128 --bn 128 --window 4 --chunk 2 --show numbers
    """
    from tilec import dtypes
    from tilec.cache_model import Caches, Gemm, simulate
    from tilec.ir.grid_order import tiles
    from tilec.ir.schedule import ORDERS, GridOrder
    from tilec.target import target

    caches = Caches.of(target(arch), xcds)
    numbers = {"window": window, "chunk": chunk, "chiplets": caches.chiplets}
    order = GridOrder(kind, **{name: numbers[name] for name in ORDERS[kind]})
    gemm = Gemm(m, n, k or max(m, n), bm, bn, bk, batch, dtypes.dtype(dtype).bits)
    taken = tiles(order, gemm.grid, caches.chiplets)
    report = GridReport(gemm, order, caches, taken, simulate(gemm, taken, caches, drift))
    click.echo(json.dumps(report.as_json()) if json_output else report.as_text(show, shown))


@dataclass(frozen=True)
class GridReport:
    """What `tilec grid` says: workgroup i takes `tiles[i]`."""

    gemm: Gemm
    order: GridOrder
    caches: Caches
    tiles: np.ndarray
    traffic: Traffic

    def as_json(self) -> dict[str, Any]:
        from tilec.cache_model import footprint

        traffic = self.traffic
        rows, columns = footprint(self.gemm, self.tiles, self.caches)
        return {
            "grid": list(self.gemm.grid), "steps": self.gemm.steps, "order": str(self.order),
            "chiplets": self.caches.chiplets, "workgroups_per_chiplet": self.caches.workgroups,
            "rounds": traffic.rounds, "rounds_simulated": traffic.simulated,
            "tile_rows_per_chiplet": rows, "tile_columns_per_chiplet": columns,
            "l2_hit_rate": traffic.l2_hit_rate, "last_level_hit_rate": traffic.last_level_hit_rate,
            "requested_bytes": traffic.requested, "l2_missed_bytes": traffic.l2_missed,
            "hbm_bytes": traffic.last_level_missed, "operand_bytes": self.gemm.operand_bytes,
            "tiles": self.tiles.tolist(),
        }

    def as_text(self, show: str, shown: int) -> str:
        from tilec.cache_model import footprint

        gemm, caches, traffic = self.gemm, self.caches, self.traffic
        rows, columns = footprint(gemm, self.tiles, caches)
        part = "" if traffic.simulated == traffic.rounds else f" (the first {traffic.simulated} simulated)"
        return "\n".join([
            f"{' x '.join(map(str, gemm.grid))} tiles of {gemm.bm} x {gemm.bn}, {gemm.steps} K steps, "
            f"order {self.order}",
            f"{len(self.tiles)} workgroups on {caches.chiplets} chiplets of {caches.workgroups} compute units: "
            f"{traffic.rounds} round{'s' * (traffic.rounds != 1)}{part}",
            *self.picture(show, shown),
            f"a chiplet works on {rows:.1f} tile rows and {columns:.1f} tile columns at a time (round 0)",
            f"simulated L2 hit rate          {100 * traffic.l2_hit_rate:5.1f} %",
            f"simulated last-level hit rate  {100 * traffic.last_level_hit_rate:5.1f} % of what misses L2",
            f"read from HBM{_size(traffic.last_level_missed):>24}{part}; A and B are {_size(gemm.operand_bytes)}",
        ])

    def picture(self, show: str, shown: int) -> list[str]:
        """Tile rows down, tile columns across, the first of a batch; a blank line on both ends."""
        resident = self.caches.chiplets * self.caches.workgroups
        cells = [["."] * self.gemm.columns for _ in range(self.gemm.rows)]
        for number, (*batch, row, column) in enumerate(self.tiles.tolist()):
            if any(batch) or show == "round" and number // resident != shown:
                continue
            cells[row][column] = str(number) if show == "numbers" else _digit(number % self.caches.chiplets)
        taken = [row for row, line in enumerate(cells) if any(cell != "." for cell in line)]
        first, last = (taken[0], taken[-1]) if taken else (0, -1)
        width, space = (len(str(len(self.tiles) - 1)), " ") if show == "numbers" else (1, "")
        last = min(last, first + SHOWN[0] - 1)
        columns = min(self.gemm.columns, SHOWN[1] // (width + len(space)))
        title = {"round": f"the chiplet of each tile of round {shown}, . for other rounds",
                 "chiplets": "the chiplet of each tile", "numbers": "the number of each tile in the order"}[show]
        title += ", product 0 of the batch" * (self.gemm.batch > 1)
        if (last - first + 1, columns) != (self.gemm.rows, self.gemm.columns):
            title += f"; rows {first} to {last}, columns 0 to {columns - 1}"
        lines = [space.join(cell.rjust(width) for cell in row[:columns]) for row in cells[first:last + 1]]
        return ["", title, *lines, ""]


def _digit(number: int) -> str:
    return "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ+-"[number]


def _size(size: int) -> str:
    return f"{size / 1e9:.2f} GB" if size >= 1e9 else f"{size / 1e6:.2f} MB"
