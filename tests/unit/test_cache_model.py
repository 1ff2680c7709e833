"""The cache model: by hand on small caches, its laws, the published table; `tilec grid`.

The published rates are Table 4 of the HipKittens paper (arXiv 2511.08083), measured by its authors on an MI355X. What
the model says of the same rows is written in docs/grid-order.md, with the reasons; the page is compared with the model
here, so that neither moves alone.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import tilec as tc
from tests.unit.test_cli import tilec
from tilec import cache_model
from tilec.cache_model import Caches, Gemm, Traffic, footprint, simulate
from tilec.ir.grid_order import tiles
from tilec.ir.schedule import GridOrder
from tilec.target import target

MI355X = Caches.of(target("gfx950"))
PAGE = Path(__file__).resolve().parents[2] / "docs" / "grid-order.md"


def model(gemm: Gemm, order: GridOrder, caches: Caches = MI355X, drift: int = 0) -> Traffic:
    return simulate(gemm, tiles(order, gemm.grid, caches.chiplets), caches, drift)


def percent(traffic: Traffic) -> tuple[int, int]:
    return round(100 * traffic.l2_hit_rate), round(100 * traffic.last_level_hit_rate)


# -- by hand ---------------------------------------------------------------------------------------------------------

def test_workgroups_of_a_chiplet_share_a_step():
    """2 x 2 tiles, each 4 x 4, in 3 steps of 8 bytes' depth: a panel step is 4 * 4 * 2 = 32 bytes."""
    gemm = Gemm(8, 8, 12, 4, 4, 4)
    one = model(gemm, GridOrder(), Caches(chiplets=1, workgroups=4, l2_bytes=32, last_level_bytes=32))
    # 4 workgroups x 2 panels x 3 steps asked for; 2 panels of A and 2 of B fetched per step
    assert one == Traffic(24 * 32, 12 * 32, 12 * 32, rounds=1, simulated=1)
    two = model(gemm, GridOrder(), Caches(chiplets=2, workgroups=2, l2_bytes=32, last_level_bytes=1 << 20))
    # a chiplet has a column of tiles: 2 panels of A, 1 of B per step; the second finds those of A in the last level
    assert two == Traffic(24 * 32, 18 * 32, 12 * 32, rounds=1, simulated=1)


@pytest.mark.parametrize("panels, missed", [(1, 12), (2, 12), (4, 12), (8, 12), (11, 12), (12, 6)])
def test_rounds_share_what_the_last_level_still_holds(panels: int, missed: int):
    """A row of 2 tiles, one at a time, 6 steps, a panel step of 32 bytes. The second tile reads the row's 6 panel steps
    of A again, in the same order, after 12 others were read: LRU keeps them in 12 panel steps, and none in 11."""
    gemm = Gemm(4, 8, 24, 4, 4, 4)
    caches = Caches(chiplets=1, workgroups=1, l2_bytes=32, last_level_bytes=32 * panels)
    traffic = model(gemm, GridOrder(), caches)
    assert (traffic.rounds, traffic.l2_missed) == (2, 24 * 32)
    assert traffic.last_level_missed == (12 + missed) * 32


def test_edges_are_counted_as_they_are():
    gemm = Gemm(10, 7, 9, 4, 4, 4)
    traffic = model(gemm, GridOrder(), Caches(1, 1, 1, 1))
    asked = sum((min(4, 10 - 4 * r) + min(4, 7 - 4 * c)) * 9 * 2 for r in range(3) for c in range(2))
    assert traffic.requested == asked == traffic.l2_missed == traffic.last_level_missed


# -- laws ------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("order", [GridOrder(), GridOrder("grouped", 3), GridOrder("chiplet", 2, 3)])
def test_laws(order: GridOrder, batch: int):
    gemm = Gemm(1000, 777, 300, 64, 64, 32, batch)
    small, large = Caches(8, 4, 1 << 14, 1 << 16), Caches(8, 4, 1 << 14, 1 << 30)
    a, b = model(gemm, order, small), model(gemm, order, large)
    assert a.requested == b.requested == batch * (1000 * 13 + 777 * 16) * 300 * 2
    assert a.requested > a.l2_missed == b.l2_missed > a.last_level_missed > b.last_level_missed
    assert b.last_level_missed == gemm.operand_bytes                # what fits is read once
    everywhere = model(gemm, order, Caches(1, 1000, 1 << 30, 1 << 30))
    assert everywhere.l2_missed == gemm.operand_bytes


def test_drift_costs_hits_where_it_is_beyond_the_l2():
    gemm, order = Gemm(9216, 9216, 2048, 192, 256, 64), GridOrder("chiplet", 7, 216)
    rates = [model(gemm, order, drift=drift).l2_hit_rate for drift in (0, 4, 16)]
    assert rates[0] == pytest.approx(rates[1], abs=0.01) and rates[2] < rates[1] - 0.1


def test_the_model_stops_after_whole_rounds(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cache_model, "ACCESSES", 1)
    traffic = model(Gemm(2048, 2048, 256, 64, 64, 64), GridOrder(), Caches(8, 16, 1 << 20, 1 << 24))
    assert (traffic.rounds, traffic.simulated) == (8, 1)


def test_footprint():
    gemm = Gemm(1024, 1024, 64, 64, 64)                     # 16 x 16 tiles, 8 chiplets
    assert footprint(gemm, tiles(GridOrder(), gemm.grid, 8), Caches(8, 16, 1, 1)) == (8, 2)
    assert footprint(gemm, tiles(GridOrder("chiplet", 4, 16), gemm.grid, 8), Caches(8, 16, 1, 1)) == (4, 4)


@pytest.mark.parametrize("sizes, message", [({"m": 0}, "a GEMM with m=0\n  limit: sizes are 1 or more"),
                                            ({"bk": -1}, "a GEMM with bk=-1\n  limit: sizes are 1 or more")])
def test_refused_sizes(sizes: dict[str, int], message: str):
    with pytest.raises(tc.TilecError) as caught:
        Gemm(**({"m": 64, "n": 64, "k": 64} | sizes))
    assert str(caught.value) == message


# -- the published table ---------------------------------------------------------------------------------------------

# (size, order, published L2 %, published last-level %); tiles of 192 x 256, steps of 64
TABLE_4 = (
    (9216, GridOrder(), 55, 95),
    (9216, GridOrder("chiplet", 7, 216), 79, 24),
    (9216, GridOrder("chiplet", 5, 25), 75, 93),
    (14592, GridOrder(), 36, 76),
    (14592, GridOrder("chiplet", 8, 542), 79, 7),
    (14592, GridOrder("chiplet", 8, 64), 78, 55),
)


def square(size: int) -> Gemm:
    return Gemm(size, size, size, 192, 256, 64)


@cache
def simulated(size: int, order: GridOrder) -> tuple[int, int]:
    return percent(model(square(size), order))


def test_the_page_says_what_the_model_says():
    rows = re.findall(r"^\| (\d+) \| ([^|]+?) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|", PAGE.read_text(), re.MULTILINE)
    expected = []
    for size, order, l2, last_level in TABLE_4:
        rates = simulated(size, order)
        name = "row-major" if order.kind == "rows" else f"W{order.window}/C{order.chunk}"
        expected.append((str(size), name, *map(str, (l2, rates[0], last_level, rates[1]))))
    assert rows == expected


def test_four_rows_agree_within_six_points():
    for size, order, *published in TABLE_4:
        off = [abs(a - b) for a, b in zip(simulated(size, order), published)]
        if (size, order) not in ((9216, GridOrder()), (14592, GridOrder("chiplet", 8, 542))):
            assert max(off) <= 6, (size, str(order), off)


def test_W8_C542_is_row_major_under_windows_by_the_printed_rule():
    """4332 tiles are less than one round of 8 * 542, so that all of them are tail and keep their order."""
    grid = square(14592).grid
    assert grid == (76, 57)
    assert (tiles(GridOrder("chiplet", 8, 542), grid, 8) == tiles(GridOrder("grouped", 8), grid, 8)).all()


def test_W8_C542_comes_from_a_map_that_drops_tiles():
    """542 is 4332 / 8 rounded up. A contiguous run of 542 for each chiplet, number i % 8 * 542 + i / 8, gives the
    published rates, and numbers three workgroups beyond the grid (BL-45)."""
    gemm, count = square(14592), np.arange(4332)
    number = count % 8 * 542 + count // 8
    assert (number >= 4332).sum() == 3 == len(set(range(4332)) - set(number.tolist()))
    order = tiles(GridOrder("grouped", 8), gemm.grid, 8)[np.minimum(number, 4331)]
    l2, last_level = percent(simulate(gemm, order, MI355X))
    assert abs(l2 - 79) <= 1 and abs(last_level - 7) <= 1


# -- tilec grid ------------------------------------------------------------------------------------------------------

SMALL = ("grid", "--m", 1000, "--n", 700, "--k", 512, "--bm", 128, "--bn", 128)


def test_grid_draws_numbers():
    result = tilec(*SMALL, "--window", 4, "--chunk", 2, "--show", "numbers")
    assert result.exit_code == 0
    assert result.stdout == """\
8 x 6 tiles of 128 x 128, 8 K steps, order chiplet(window=4, chunk=2, chiplets=8)
48 workgroups on 8 chiplets of 32 compute units: 1 round

the number of each tile in the order
 0  2  4  6 16 18
 8 10 12 14 24 26
 1  3  5  7 17 19
 9 11 13 15 25 27
20 22 32 34 36 38
28 30 40 42 44 46
21 23 33 35 37 39
29 31 41 43 45 47

a chiplet works on 4.0 tile rows and 3.0 tile columns at a time (round 0)
simulated L2 hit rate           41.4 %
simulated last-level hit rate   75.0 % of what misses L2
read from HBM                 1.74 MB; A and B are 1.74 MB
"""


def test_grid_draws_chiplets():
    drawn = tilec(*SMALL, "--order", "rows", "--show", "chiplets").stdout.splitlines()
    assert drawn[3:12] == ["the chiplet of each tile", "012345", "670123", "456701", "234567"] + drawn[8:12]
    assert tilec(*SMALL, "--order", "rows", "--xcds", 1, "--show", "chiplets").stdout.splitlines()[4] == "000000"


def test_grid_draws_a_round():
    drawn = tilec("grid", "--m", 9216, "--n", 9216, "--k", 64, "--bm", 192, "--order", "rows", "--round", 6).stdout
    lines = drawn.splitlines()
    assert lines[3] == "the chiplet of each tile of round 6, . for other rounds; rows 42 to 47, columns 0 to 35"
    assert lines[4] == 24 * "." + "012345670123" and lines[9] == "456701234567012345670123456701234567"
    assert not lines[10]


def test_grid_as_json():
    value = json.loads(tilec(*SMALL, "--batch", 2, "--order", "grouped", "--window", 3, "--xcds", 4, "--json").stdout)
    assert value["grid"] == [2, 8, 6] and value["order"] == "grouped(window=3)" and value["chiplets"] == 4
    assert value["tiles"] == tiles(GridOrder("grouped", 3), (2, 8, 6), 4).tolist()
    assert value["hbm_bytes"] == value["operand_bytes"] == 2 * 1700 * 512 * 2
    assert 0 < value["l2_hit_rate"] < 1 and 0 < value["last_level_hit_rate"] < 1
    assert value["rounds"] == value["rounds_simulated"] == 1


@pytest.mark.parametrize("option, message", [
    (("--window", 0), "grid order chiplet: window=0\n  limit: window is an integer from 1 to 16777216"),
    (("--arch", "gfx90a"), "unknown architecture 'gfx90a'"),
    (("--dtype", "f7"), "f7"),
])
def test_grid_faults(option: tuple[object, ...], message: str):
    result = tilec(*SMALL, *option)
    assert result.exit_code == 2 and not result.stdout and message in result.stderr


def test_the_page_shows_what_the_command_prints():
    (example,) = re.findall(r"^\$ tilec (grid .*)\n((?:.*\n)*?)```", PAGE.read_text(), re.MULTILINE)
    assert tilec(*example[0].split()).stdout == example[1]
