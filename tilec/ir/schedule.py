"""A wave schedule as plain data: what the schedule says beside the algorithm. Hashable, with a text form.

A *named* schedule (`simple`, `pingpong(buffers=2)`, `interleave(buffers=2)`) holds its options and leaves the clusters
to the passes, which fill them in for the kernel's own loop. A *custom* one spells them out. Names of tiles are those of
the kernel's source; whether they exist is checked when a program meets the schedule. Waits and barriers are never part
of it: they are derived.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field, fields
from enum import IntEnum
from typing import Any

from tilec.errors import TilecError

ORDERS: dict[str, tuple[str, ...]] = {"rows": (), "grouped": ("window",), "chiplet": ("window", "chunk", "chiplets")}
"""grid order: the numbers it goes by."""

_LARGEST = {"window": 1 << 24, "chunk": 1 << 24, "chiplets": 64}    # chunk * chiplets stays below 2**31


class Overlap(IntEnum):
    """How much of a loop runs beside the rest of it, each step with all before it."""

    NOTHING = 0
    COPIES = 1      # of the next trip (`passes/pipeline.py`)
    CLUSTERS = 2    # those of a wave schedule (`passes/cluster.py`)
    DOTS = 3        # in clusters, a dot that another one waits for runs a trip ahead


@dataclass(frozen=True)
class GridOrder:
    """The order in which workgroups take tiles. `kind` is 'rows', 'grouped' (columns within groups of `window` rows) or
    'chiplet' (runs of `chunk` consecutive tiles on one chiplet, windows of `window` rows). `chiplets` of None are those
    of the architecture. The numbers are run-time arguments: an object is compiled for a kind."""

    kind: str = "rows"
    window: int = 1
    chunk: int = 1
    chiplets: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in ORDERS:
            raise TilecError(f"no grid order is called {self.kind!r}", limit=f"there are {', '.join(ORDERS)}")
        for name, largest in _LARGEST.items():
            value = getattr(self, name)
            if name == "chiplets" and value is None:
                continue
            if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= largest:
                raise TilecError(f"grid order {self.kind}: {name}={value!r}",
                                 limit=f"{name} is an integer from 1 to {largest}")

    def __str__(self) -> str:
        numbers = [f"{name}={value}" for name in ORDERS[self.kind] if (value := getattr(self, name)) is not None]
        return self.kind + (f"({', '.join(numbers)})" if numbers else "")


@dataclass(frozen=True)
class Part:
    """A tile of the kernel by its name, or one part of it where a Split has cut it."""

    tile: str
    index: tuple[int, ...] = ()

    def __str__(self) -> str:
        return self.tile + (f"[{', '.join(map(str, self.index))}]" if self.index else "")


@dataclass(frozen=True)
class Split:
    """A tile cut into equal parts along its axes: `counts` says into how many along each of `axes`, named by the
    kernel's axes of dot (m, n, k)."""

    tile: str
    axes: tuple[str, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True)
class Step:
    """One op of a cluster: what happens to a part. `action` is 'read' (from LDS), 'copy' (to LDS) or 'compute'."""

    part: Part
    action: str


@dataclass(frozen=True)
class ClusterPlan:
    """An ordered list of steps between two phases. `kind` is 'memory' or 'compute'; `copies` says how many of the
    loop's copies of a later tile are issued here, in order; `priority` is the wave priority inside."""

    kind: str
    steps: tuple[Step, ...] = ()
    copies: int = 0
    priority: int = 0
    name: str = ""


@dataclass(frozen=True)
class Pin:
    """Registers that hold a part: `count` registers of file 'v' or 'a' from `first` on."""

    part: Part
    file: str
    first: int
    count: int


@dataclass(frozen=True)
class Schedule:
    """One schedule. `waves` of None is the kernel's own number. `rings` are LDS buffers per tile, `ahead` the trips
    that an op runs before the loop's own, `stagger` the number of groups of waves that run one cluster behind each
    other."""

    name: str = "simple"
    waves: int | None = None
    options: tuple[tuple[str, int | str | bool], ...] = ()
    order: GridOrder = field(default_factory=GridOrder)
    splits: tuple[Split, ...] = ()
    rings: tuple[tuple[str, int], ...] = ()
    ahead: tuple[tuple[str, int], ...] = ()
    stagger: int = 1
    clusters: tuple[ClusterPlan, ...] = ()
    pins: tuple[Pin, ...] = ()

    def option(self, name: str, default: Any = None) -> Any:
        return dict(self.options).get(name, default)

    @property
    def is_named(self) -> bool:
        """Whether the passes fill in the clusters; tiles may be pinned all the same."""
        return self.name in NAMED and not (self.splits or self.rings or self.ahead or self.clusters)

    def __str__(self) -> str:
        """`pingpong(buffers=2)` for a named schedule, the full record for a custom one; `parse_schedule` reads both."""
        if not self.is_named or self != named(self.name, None, **dict(self.options)):
            return repr(self)
        return self.name + (f"({', '.join(f'{k}={v!r}' for k, v in self.options)})" if self.options else "")


# name -> (waves, options with their defaults): `buffers` LDS buffers per tile; `mfma`: rows of the matrix instructions
NAMED: dict[str, tuple[int | None, dict[str, int]]] = {
    "simple": (None, {}),
    "pingpong": (8, {"buffers": 2, "mfma": 16}),
    "interleave": (4, {"buffers": 2, "mfma": 16}),
}
_RECORDS = {c.__name__: c for c in (GridOrder, Part, Split, Step, ClusterPlan, Pin, Schedule)}


def named(name: str, order: GridOrder | None = None, **options: Any) -> Schedule:
    """A named schedule with its defaults filled in."""
    if name not in NAMED:
        raise TilecError(f"no schedule is called {name!r}", limit=f"there are {', '.join(NAMED)}")
    waves, defaults = NAMED[name]
    for option, value in options.items():
        if option not in defaults:
            raise TilecError(
                f"schedule {name!r} has no option {option!r}", limit=f"its options are {', '.join(defaults) or 'none'}"
            )
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise TilecError(f"schedule {name}: {option}={value!r}", limit=f"{option} is an integer from 1 up")
    return Schedule(name, waves, tuple((defaults | options).items()), order or GridOrder())


def parse_schedule(text: str) -> Schedule:
    """A schedule from its text: `pingpong`, `pingpong(buffers=3)`, or the full record that `str` prints."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError:
        raise TilecError(
            f"{text!r} is no schedule", fix="write one as simple, pingpong or pingpong(buffers=2)"
        ) from None
    if isinstance(tree, ast.Name):
        return named(tree.id)
    found = _build(tree, text)
    if not isinstance(found, Schedule):
        raise TilecError(f"{text!r} is no schedule", fix="write one as simple, pingpong or pingpong(buffers=2)")
    return found


def _build(node: ast.expr, text: str) -> Any:
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and not node.args
        and all(k.arg for k in node.keywords)
    ):
        values: dict[str, Any] = {str(k.arg): _build(k.value, text) for k in node.keywords}
        record = _RECORDS.get(node.func.id)
        if record is None:
            return named(node.func.id, **values)
        if unknown := set(values) - {f.name for f in fields(record)}:
            raise TilecError(f"{node.func.id} has no field {sorted(unknown)[0]!r}")
        return record(**values)
    if isinstance(node, ast.Tuple):
        return tuple(_build(element, text) for element in node.elts)
    if isinstance(node, ast.Constant):
        return node.value
    raise TilecError(f"{text!r} is no schedule", fix="write one as simple, pingpong or pingpong(buffers=2)")
