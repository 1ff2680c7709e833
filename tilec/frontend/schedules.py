"""Builders of `ir.schedule`: the named schedules, and the language of `@kernel.schedule`.

A custom schedule is a function of one argument that stands for the kernel's body: `s.acc` is the tile of that name,
`s.acc.split(m=2, n=2)` its parts, `s.memory(...)` and `s.compute(...)` append clusters in order. It only records; the
result is a `Schedule`, plain data, that knows nothing of how it was written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from tilec.errors import TilecError
from tilec.ir.schedule import ClusterPlan, GridOrder, Part, Pin, Schedule, Split, Step, named


def simple(order: GridOrder | None = None) -> Schedule:
    """One wave stream, copies issued where the loop stands."""
    return named("simple", order)


def pingpong(buffers: int = 2, mfma: int = 16, order: GridOrder | None = None) -> Schedule:
    """8 waves, two per SIMD: one half computes while the other moves data. `mfma`: rows of the matrix instruction, 16
    or 32."""
    return named("pingpong", order, buffers=buffers, mfma=mfma)


def interleave(buffers: int = 2, mfma: int = 16, order: GridOrder | None = None) -> Schedule:
    """4 waves, one per SIMD, memory instructions spread between matrix instructions."""
    return named("interleave", order, buffers=buffers, mfma=mfma)


def rows() -> GridOrder:
    """Row by row."""
    return GridOrder()


def grouped(window: int) -> GridOrder:
    """Columns first within groups of `window` rows."""
    return GridOrder("grouped", window)


def chiplet(window: int, chunk: int, chiplets: int | None = None) -> GridOrder:
    """Runs of `chunk` tiles stay on one chiplet, in windows of `window` rows. `chiplets`: how many share the launch,
    where the GPU is partitioned; else those of the architecture."""
    return GridOrder("chiplet", window, chunk, chiplets)


class Registers:
    """`tc.agpr[0:128]`, `tc.vgpr[64:96]`: a range of registers to pin a tile to."""

    def __init__(self, file: str):
        self.file = file

    def __getitem__(self, item: slice) -> RegisterRange:
        if (
            not isinstance(item, slice)
            or item.step is not None
            or not isinstance(item.start, int)
            or not isinstance(item.stop, int)
            or not 0 <= item.start < item.stop <= 256
        ):
            raise TilecError(
                f"{self.file}gpr[...] takes a range of registers",
                limit="0 <= first < end <= 256",
                fix=f"tc.{self.file}gpr[0:128]",
            )
        return RegisterRange(self.file, item.start, item.stop - item.start)


@dataclass(frozen=True)
class RegisterRange:
    file: str
    first: int
    count: int


vgpr, agpr = Registers("v"), Registers("a")


@dataclass(frozen=True)
class TileRef:
    """A tile of the kernel's body, or a part of it, in a schedule."""

    builder: ScheduleBuilder
    part: Part

    @property
    def read(self) -> Step:
        """Its read from LDS."""
        return Step(self.part, "read")

    @property
    def copy(self) -> Step:
        """Its copy to LDS."""
        return Step(self.part, "copy")

    def split(self, **counts: int) -> TileParts:
        """Cuts the tile into equal parts: `split(m=2, n=2)`."""
        if not counts or any(not isinstance(c, int) or c < 1 for c in counts.values()):
            raise TilecError(
                f"{self.part}.split({', '.join(f'{k}={v!r}' for k, v in counts.items())})",
                limit="counts are integers from 1 up",
            )
        if strangers := [axis for axis in counts if axis not in ("m", "n", "k")]:
            raise TilecError(f"{self.part}.split({strangers[0]}=...)", limit="a dot has the axes m, n and k")
        if any(s.tile == self.part.tile for s in self.builder.splits):
            raise TilecError(f"{self.part} is split twice")
        self.builder.splits.append(Split(self.part.tile, tuple(counts), tuple(counts.values())))
        return TileParts(self, tuple(counts.values()))

    def ahead(self, trips: int) -> None:
        """Runs the op that makes this tile so many trips before the loop's own."""
        self.builder.leads.append((self.part.tile, trips))


@dataclass(frozen=True)
class TileParts:
    """The parts of a split tile, indexed like an array."""

    whole: TileRef
    counts: tuple[int, ...]

    def __getitem__(self, index: int | tuple[int, ...]) -> TileRef:
        place = index if isinstance(index, tuple) else (index,)
        if len(place) != len(self.counts) or not all(
            isinstance(i, int) and 0 <= i < n for i, n in zip(place, self.counts)
        ):
            raise TilecError(
                f"{self.whole.part} has no part {list(place)}", limit=f"it is split into {list(self.counts)}"
            )
        return TileRef(self.whole.builder, Part(self.whole.part.tile, place))

    def __iter__(self) -> Iterator[TileRef]:
        return (self[place] for place in product(*map(range, self.counts)))


class ScheduleBuilder:
    """The argument of a schedule function. Attributes are the kernel's tiles by name."""

    def __init__(self) -> None:
        self.splits: list[Split] = []
        self.leads: list[tuple[str, int]] = []
        self._rings: list[tuple[str, int]] = []
        self._clusters: list[ClusterPlan] = []
        self._pins: list[Pin] = []
        self._stagger = 1

    def __getattr__(self, name: str) -> TileRef:
        if name.startswith("_"):
            raise AttributeError(name)
        return TileRef(self, Part(name))

    def tile(self, name: str) -> TileRef:
        """The tile of this name, where a method of the builder hides it."""
        return TileRef(self, Part(name))

    def ring(self, **slots: int) -> None:
        """LDS buffers per tile: `ring(a=2, b=3)`."""
        for name, count in slots.items():
            if not isinstance(count, int) or count < 1:
                raise TilecError(f"ring({name}={count!r})", limit="a ring has 1 buffer or more")
            self._rings.append((name, count))

    def stagger(self, halves: int) -> None:
        """Two halves of the workgroup's waves, the second one cluster behind the first."""
        if halves not in (1, 2):
            raise TilecError(f"stagger(halves={halves!r})", limit="waves run together (1) or in two halves (2)")
        self._stagger = halves

    def memory(self, *steps: Step, next_copy: int = 0, name: str = "") -> None:
        """A cluster of LDS reads and copies; `next_copy`: so many copies of a later tile are issued in it."""
        if wrong := [s for s in steps if not isinstance(s, Step)]:
            raise TilecError(
                f"a memory cluster takes reads and copies, not {wrong[0]!r}", fix="s.a.read, s.b[0].read, s.a.copy"
            )
        self._clusters.append(ClusterPlan("memory", steps, next_copy, 0, name))

    def compute(self, *parts: TileRef | TileParts, prio: int = 0, name: str = "") -> None:
        """A cluster that computes these tiles or parts, under a wave priority."""
        refs = [ref for p in parts for ref in (p if isinstance(p, TileParts) else (p,))]
        self._clusters.append(ClusterPlan("compute", tuple(Step(ref.part, "compute") for ref in refs), 0, prio, name))

    def pin(self, tile: TileRef | TileParts, registers: RegisterRange) -> None:
        """Keeps a tile or part in these registers."""
        part = tile.whole.part if isinstance(tile, TileParts) else tile.part
        self._pins.append(Pin(part, registers.file, registers.first, registers.count))

    def build(self, name: str, waves: int | None, order: GridOrder | None) -> Schedule:
        return Schedule(
            name,
            waves,
            (),
            order or GridOrder(),
            tuple(self.splits),
            tuple(self._rings),
            tuple(self.leads),
            self._stagger,
            tuple(self._clusters),
            tuple(self._pins),
        )


def build(function: Callable[[Any], None], waves: int | None, order: GridOrder | None) -> Schedule:
    """The schedule that a schedule function records."""
    builder = ScheduleBuilder()
    function(builder)
    return builder.build(function.__name__, waves, order)
