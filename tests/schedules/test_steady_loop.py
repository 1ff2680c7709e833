"""The GEMM's steady loop at 256 x 256 x 64, cell by cell, from the disassembly of the object.

Published counts of others, per wave and K tile, for the same loops (HipKittens' code and compilers' output, counted by
us from the disassembly): ping-pong on gfx950 150 to 179 instructions, with 32x32x16 126; on gfx942 152 to 249.
"""

from __future__ import annotations

import inspect
from collections import Counter
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest

import tilec as tc
from kernels.gemm import gemm
from tests.schedules.cases import problem
from tests.schedules.steady import Steady


@dataclass(frozen=True)
class Cell:
    """What one trip of the loop, for one K tile of 64, must hold. `round`: K tiles per pass of the unrolled loop;
    `in_flight`: copies of a wave that each publishing wait leaves (None: loads pass through registers, and each is
    waited for where it is written to LDS)."""

    arch: str
    schedule: str
    waves: int
    mfma: str
    exactly: dict[str, int]
    at_most: int
    round: int
    in_flight: int | None

    def __str__(self) -> str:
        return f"{self.arch}-{self.schedule}"


DIRECT = {"ds_read_b128": 24, "buffer_load_dwordx4": 8}
THROUGH = {"ds_read_b128": 24, "buffer_load_dwordx4": 8, "ds_write_b128": 8}
PINGPONG = [
    Cell("gfx950", "pingpong", 8, "16x16x32", {"mfma": 64, **DIRECT}, 130, 2, 6),
    Cell("gfx950", "pingpong(mfma=32)", 8, "32x32x16", {"mfma": 32, **DIRECT}, 100, 2, 6),
    Cell("gfx942", "pingpong", 8, "16x16x16", {"mfma": 128, **THROUGH}, 235, 1, None),
    Cell("gfx942", "pingpong(mfma=32)", 8, "32x32x8", {"mfma": 64, **THROUGH}, 145, 1, None),
]
MOVED = {"ds_read_b128": 32, "buffer_load_dwordx4": 16}
INTERLEAVE = [
    Cell("gfx950", "interleave", 4, "16x16x32", {"mfma": 128, **MOVED}, 200, 2, 1),
    Cell("gfx942", "interleave", 4, "16x16x16", {"mfma": 256, **MOVED, "ds_write_b128": 16}, 345, 1, None),
]
FORBIDDEN = ("s_nop", "v_accvgpr", "scratch_", "ds_read_u16", "ds_read_b64", "v_mov", "s_sleep")
CLUSTERS = 4

per_cell = pytest.mark.parametrize("cell", PINGPONG, ids=str)
per_type = pytest.mark.parametrize("dtype", ["bf16", "f16"])


@cache
def steady(cell_text: str, dtype: str) -> Steady:
    cell = next(c for c in (*PINGPONG, *INTERLEAVE) if str(c) == cell_text)
    specs = [tc.spec(dtype, (1024, 1024)) for _ in range(3)]
    return Steady(gemm.compile(*specs, arch=cell.arch, schedule=cell.schedule, verify=True))


def arguments(cell: Cell, dtype: str, k: int) -> dict[str, np.ndarray]:
    made, _ = problem(256, 256, k, dtype)
    return made | {"C": made["C"].astype(made["A"].dtype)}


def assert_counts(cell: Cell, loop: Steady, dtype: str) -> None:
    counts = Counter("mfma" if "mfma" in name else name for name in loop.names)
    assert {name: counts[name] for name in cell.exactly} == {name: cell.round * n for name, n in cell.exactly.items()}
    assert {name for name in loop.names if "mfma" in name} == {f"v_mfma_f32_{cell.mfma}_{dtype}"}
    if cell.in_flight is not None:                      # every load goes straight to LDS
        assert all(i.text.endswith(" lds") for i in loop.instructions if i.text.startswith("buffer_load"))
    assert sum(counts.values()) == loop.loop.instructions <= cell.round * cell.at_most
    assert [name for name in loop.names if name.startswith(FORBIDDEN)] == []


@per_type
@per_cell
def test_counts(cell, dtype):
    assert_counts(cell, steady(str(cell), dtype), dtype)


@per_type
@per_cell
def test_resources(cell, dtype):
    resources = steady(str(cell), dtype).report.resources
    assert resources["scratch"] == 0 and resources["vgpr"] + resources["agpr"] <= 256
    assert resources["waves_per_simd"] == 2                              # both halves of the workgroup on each SIMD
    assert resources["lds"] == (128 if cell.in_flight else 64) * 1024


@per_type
@per_cell
def test_four_compute_clusters_each_in_one_pair_of_setprio(cell, dtype):
    loop = steady(str(cell), dtype)
    clusters = list(loop.compute_clusters())
    assert len(clusters) == cell.round * CLUSTERS
    for inside in clusters:
        assert len(inside) == cell.exactly["mfma"] // CLUSTERS and all("mfma" in name for name in inside)
    assert loop.loop.histogram["s_barrier"] == 2 * cell.round * CLUSTERS


@per_type
@per_cell
def test_waits_leave_copies_in_flight(cell, dtype):
    loop = steady(str(cell), dtype)
    if cell.in_flight is None:
        assert loop.publishing() == []
        return
    assert len(loop.publishing()) >= 2 * cell.round and min(loop.publishing()) >= cell.in_flight
    assert all(wait.counters.get("vmcnt", 63) > 0 for wait in loop.loop.waits)


@per_cell
def test_no_bank_conflict(cell):
    found = steady(str(cell), "bf16").conflict_cycles(arguments(cell, "bf16", 256))
    assert set(found) == set(cell.exactly) - {"mfma"} - ({"buffer_load_dwordx4"} if cell.in_flight is None else set())
    assert not any(found.values())


@per_cell
def test_the_second_half_runs_one_cluster_behind(cell):
    """In every interval between barriers the trailing waves do what the leading ones did in the one before: no two
    halves are ever in one cluster, nor both in compute clusters."""
    loop = steady(str(cell), "bf16")
    waves = loop.clusters_by_epoch(arguments(cell, "bf16", 6 * 64))
    leading, trailing = waves[0], waves[4]
    assert all(waves[w] == leading for w in range(4)) and all(waves[w] == trailing for w in range(4, 8))
    busy = [epoch for epoch, addresses in enumerate(leading) if addresses]
    assert len(busy) >= 6 * 2 * CLUSTERS and busy == list(range(busy[0], busy[-1] + 1))
    assert [trailing[epoch + 1] for epoch in busy] == [leading[epoch] for epoch in busy] and not trailing[busy[0]]
    dots = {i.address for i, name in zip(loop.instructions, loop.names) if "mfma" in name}
    assert not any(leading[epoch] & dots and trailing[epoch] & dots for epoch in busy)


# -- four waves

per_interleaved = pytest.mark.parametrize("cell", INTERLEAVE, ids=str)


@per_type
@per_interleaved
def test_interleave(cell, dtype):
    loop = steady(str(cell), dtype)
    assert_counts(cell, loop, dtype)
    resources = loop.report.resources
    assert resources["scratch"] == 0 and resources["vgpr"] + resources["agpr"] <= 512
    assert loop.loop.histogram.get("s_barrier", 0) <= 2 * cell.round
    if cell.in_flight is not None:
        assert all(wait.counters.get("vmcnt", 63) > 0 for wait in loop.loop.waits)
    memory_or_dot = [name for name in loop.names if name.startswith(("ds_", "buffer_")) or "mfma" in name]
    pairs = [pair for pair in zip(memory_or_dot, memory_or_dot[1:]) if not any("mfma" in name for name in pair)]
    assert pairs == []


@per_interleaved
def test_interleave_has_no_bank_conflict(cell):
    assert not any(steady(str(cell), "bf16").conflict_cycles(arguments(cell, "bf16", 256)).values())


# -- what the user writes

def test_the_kernel_is_about_eight_lines():
    source = inspect.getsource(gemm.function).splitlines()
    body = source[next(n for n, line in enumerate(source) if line.startswith("def ")) + 1:]
    assert 1 <= len([line for line in body if line.strip()]) <= 8
