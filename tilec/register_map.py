"""Which tile lives in which vector registers, and when: `compiled.register_map()`, `tilec registers FILE:KERNEL`.

Rows are registers, columns are regions of the program: what stands between two loops; in a loop, between two barriers
or awaits. A cell names the tile that the register holds there, the one that lives longest where there are
several. Everything is read from the allocation and the exact live ranges that it was made with; the few copies that the
allocator adds itself are not drawn. What only makes addresses is no tile, whatever its name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from string import ascii_letters

from tilec.backend_amdgcn.isa import Row
from tilec.backend_amdgcn.liveness import Access, Scan, analyse, scan_operands
from tilec.backend_amdgcn.regalloc import allocate
from tilec.ir.machine import Instruction, Operand, Program, Ref, Register, Resources

OTHER = "addresses and single values"
"""What stands for all that is no tile."""

_LETTERS = ascii_letters + "0123456789"
_BREAKS = ("s_barrier", "await")
_OWN_NAMES = ("thread", "lane", "outside")
"""Registers that the compiler names for itself."""


@dataclass(frozen=True)
class Region:
    """A stretch of the program: its points [first, end) of liveness, the loops around it, its (first) block, what it
    does, its instructions (without the copies that allocation may remove)."""

    first: int
    end: int
    depth: int
    block: str
    title: str
    instructions: int


@dataclass(frozen=True)
class Life:
    """A tile in registers [index, index + count) of a file, at the points [first, end)."""

    tile: str
    file: str
    index: int
    count: int
    first: int
    end: int


@dataclass(frozen=True)
class RegisterMap:
    """The picture of one allocation. `lives` are in order of the file, the register and time."""

    kernel: str
    arch: str
    resources: Resources
    regions: tuple[Region, ...]
    lives: tuple[Life, ...]
    tiles: tuple[str, ...] = field(default=())

    def cell(self, file: str, index: int, region: Region) -> tuple[str, ...]:
        """The tiles that a register holds in a region, the longest there first."""
        return self._cells.get((file, index, region), ())

    def __post_init__(self) -> None:
        lengths: dict[tuple[str, int, Region], Counter[str]] = {}
        for life in self.lives:
            for region in self.regions:
                points = min(life.end, region.end) - max(life.first, region.first)
                if points > 0:
                    for index in range(life.index, life.index + life.count):
                        lengths.setdefault((life.file, index, region), Counter())[life.tile] += points
        object.__setattr__(self, "_cells", {
            key: tuple(tile for tile, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0])))
            for key, counts in lengths.items()})

    _cells: dict[tuple[str, int, Region], tuple[str, ...]] = field(init=False, repr=False, compare=False)

    def rows(self) -> Iterator[tuple[str, int, int, tuple[tuple[str, ...], ...]]]:
        """Runs of registers that hold the same tiles in every region: file, first, count, tiles per region."""
        used = {"v": self.resources.vgpr, "a": self.resources.agpr}
        for file, count in used.items():
            lines = [tuple(self.cell(file, index, region) for region in self.regions) for index in range(count)]
            first = 0
            for cells, same in groupby(lines):
                size = len(list(same))
                yield file, first, size, cells
                first += size

    def places(self, tile: str) -> list[tuple[str, int, int]]:
        """The runs of registers that a tile ever lies in: file, first, count."""
        found = sorted({(life.file, index) for life in self.lives if life.tile == tile
                        for index in range(life.index, life.index + life.count)})
        runs: list[tuple[str, int, int]] = []
        for file, index in found:
            if runs and runs[-1][0] == file and sum(runs[-1][1:]) == index:
                runs[-1] = (file, runs[-1][1], runs[-1][2] + 1)
            else:
                runs.append((file, index, 1))
        return runs

    # -- as text and as JSON

    def __str__(self) -> str:
        used = self.resources
        letters = dict(zip(self.tiles, _LETTERS)) | {OTHER: "-"}

        def cell(tiles: tuple[str, ...]) -> str:
            several = "+" if len(set(tiles) - {OTHER}) > 1 else " "
            return letters.get(tiles[0], "#") + several if tiles else ". "

        lines = [f"{self.kernel} for {self.arch}: {used.vgpr} VGPR, {used.agpr} AGPR, {used.waves_per_simd} waves on a "
                 "SIMD", "", *self._heads()]
        rows = ((file, first, count, "".join(map(cell, cells))) for file, first, count, cells in self.rows())
        for (file, shown), same in groupby(rows, key=lambda row: (row[0], row[3])):
            runs = list(same)
            count = sum(row[2] for row in runs)
            lines.append(f"{run_text(file, runs[0][1], count):>11} {count:>4}  {shown}".rstrip())
        lines += ["", f"tiles (+: more than one in the region; .: free; -: {OTHER})"]
        lines += [f"  {letters.get(tile, '#')}  {tile}: {', '.join(run_text(*run) for run in self.places(tile))}"
                  for tile in self.tiles]
        lines += ["", "regions (=: in a loop)"]
        lines += [f"  {number:>2}  {'  ' * region.depth}{region.block}: {region.instructions} instructions"
                  + (f": {region.title}" if region.title else "") for number, region in enumerate(self.regions)]
        return "\n".join(lines)

    def _heads(self) -> list[str]:
        """Column numbers downward, with the columns of loops marked."""
        numbers = [f"{number:>2}" for number in range(len(self.regions))]
        rows = ["".join(number[place] + " " for number in numbers) for place in range(2)]
        loops = "".join("= " if region.depth else "  " for region in self.regions)
        return [f"{name:>16}  {row}".rstrip() for name, row in zip(("regions", "", "loops"), (*rows, loops))]

    def as_json(self) -> dict[str, object]:
        return {
            "kernel": self.kernel, "arch": self.arch, "vgpr": self.resources.vgpr, "agpr": self.resources.agpr,
            "regions": [{"block": r.block, "title": r.title, "depth": r.depth, "instructions": r.instructions}
                        for r in self.regions],
            "tiles": {tile: [run_text(*run) for run in self.places(tile)] for tile in self.tiles},
            "rows": [{"registers": run_text(file, first, count), "tiles": [list(cell) for cell in cells]}
                     for file, first, count, cells in self.rows()],
        }


def run_text(file: str, first: int, count: int) -> str:
    return f"{file}{first}" if count == 1 else f"{file}[{first}:{first + count - 1}]"


def register_map(virtual: Program) -> RegisterMap:
    """The map of a machine program in form virtual, allocated as the compiler does."""
    allocation = allocate(virtual)
    scan = scan_operands(virtual)
    live = analyse(scan)
    addresses = _addresses(scan)
    regions = tuple(_regions(scan))
    lives: list[Life] = []
    weight: Counter[str] = Counter()
    for register in scan.registers:
        place = allocation.assignment.get(register)
        if place is None or place.file == "s":
            continue
        is_tile = register.name and register.name not in _OWN_NAMES and register not in addresses
        tile = register.name.removesuffix(" copied") if is_tile else OTHER
        start = place.index
        for size, segments in live.runs(register):
            for first, last in segments:
                lives.append(Life(tile, place.file, start, size, first, last + 1))
                weight[tile] += size * (last + 1 - first)
            start += size
    tiles = tuple(tile for tile, _ in weight.most_common() if tile != OTHER)
    lives.sort(key=lambda life: (life.file != "v", life.index, life.first))
    return RegisterMap(virtual.name, virtual.arch, allocation.program.resources, regions, tuple(_joined(lives)), tiles)


def _joined(lives: Sequence[Life]) -> Iterator[Life]:
    """Neighbouring registers that hold a tile for the same time, as one."""
    for _, same in groupby(sorted(lives, key=lambda x: (x.file != "v", x.tile, x.first, x.end, x.index)),
                           key=lambda x: (x.file, x.tile, x.first, x.end)):
        known: Life | None = None
        for life in same:
            if known and life.index <= known.index + known.count:
                count = max(known.count, life.index + life.count - known.index)
                known = Life(known.tile, known.file, known.index, count, known.first, known.end)
                continue
            if known:
                yield known
            known = life
        if known:
            yield known


# -- what is an address ----------------------------------------------------------------------------------------------


def _addresses(scan: Scan) -> set[Register]:
    """Registers that only addresses, masks and lane numbers come of."""
    made_of: dict[Register, set[Register | None]] = {}
    for access in scan.accesses:
        instruction, row, _, _ = access
        made: set[Register | None] = {o.register for o in instruction.dst if isinstance(o, Ref) and o.kind != "t"}
        for operand, is_data in _sources(instruction, row):
            if isinstance(operand, Ref) and operand.kind in ("v", "va", "a"):
                uses = made_of.setdefault(operand.register, set())
                if is_data:
                    uses.add(None)
                elif row.unit not in ("vmem", "lds"):
                    uses.update(made)
    filled = {o.register for instruction, row, _, _ in scan.accesses if row.unit in ("vmem", "lds", "mfma")
              for o in instruction.dst if isinstance(o, Ref)}
    found = {r for r in scan.registers if r.kind != "s" and r not in filled and r in made_of}
    while True:
        kept = {r for r in found if all(user and (user in found or user.kind == "s") for user in made_of[r])}
        if kept == found:
            return found | {r for r in scan.registers if r.kind != "s" and r not in filled and r not in made_of}
        found = kept


def _sources(instruction: Instruction, row: Row) -> Iterator[tuple[Operand, bool]]:
    """Operands that are read, each with whether it is a tile's data: of stores, writes and matrix instructions."""
    for place, operand in enumerate(instruction.src):
        code = row.src[place].code if place < len(row.src) else "t"
        yield operand, row.unit == "mfma" or row.unit in ("vmem", "lds") and code in ("w", "a")


# -- regions ---------------------------------------------------------------------------------------------------------


def _regions(scan: Scan) -> Iterator[Region]:
    """What stands between loops is one region; in loops, what stands between barriers and awaits and does one thing."""
    pieces: list[tuple[int, int, int, str, str]] = []       # first and end instruction, depth, block, title
    number = 0
    for block in scan.program.blocks:
        accesses = scan.accesses[number:number + len(block.instructions)]
        cuts = [0, *(i for i, (instruction, _, _, _) in enumerate(accesses)
                     if block.depth and i and instruction.op in _BREAKS), len(accesses)]
        for first, end in zip(cuts, cuts[1:]):
            title, last = _title(accesses[first:end]), pieces[-1] if pieces else None
            if last and (block.depth == last[2] == 0 or block.label == last[3] and title in ("", last[4])):
                pieces[-1] = (last[0], number + end, *last[2:])
            elif first < end:
                pieces.append((number + first, number + end, block.depth, block.label, title))
        number += len(accesses)
    for first, end, depth, block, title in pieces:
        inside = scan.accesses[first:end]
        real = sum(row.unit != "pseudo" for _, row, _, _ in inside)
        yield Region(2 * first, 2 * end, depth, block, title if depth else _title(inside), real)


def _title(accesses: Sequence[Access]) -> str:
    """What a stretch does: multiplies, reads from LDS, copies to it, loads, stores; the tiles it does so with."""
    done: dict[str, dict[str, None]] = {}
    for instruction, row, _, _ in accesses:
        names = {o.register.name.removesuffix(" copied"): None for o in instruction.dst
                 if isinstance(o, Ref) and (o.kind == "t") == ("_lds" in row.name)}
        what = ""
        if row.unit == "mfma":
            what = "dot"
        elif row.unit == "lds":
            what = "read" if names else "write"
        elif row.unit == "vmem":
            what = "copy" if "_lds" in row.name else "load" if names else "store"
        if what:
            done.setdefault(what, {}).update(names)
    return "; ".join(f"{what} {', '.join(_whole_tiles(names))}".strip() for what, names in done.items())


def _whole_tiles(names: Iterable[str]) -> list[str]:
    """The names, parts of one tile under one name where there are more than two."""
    parts = Counter(name.partition("[")[0] for name in names if name)
    return list(dict.fromkeys(tile if parts[tile := name.partition("[")[0]] > 2 else name for name in names if name))


__all__ = ["OTHER", "Life", "Region", "RegisterMap", "register_map", "run_text"]
