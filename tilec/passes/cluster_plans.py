"""Which op of a loop runs in which cluster, and how many trips early: what the named schedules stand for, and custom
lists.

A trip of the loop is a list of clusters. An op that runs `ahead` trips early works for the tile of a later trip. Where
copies may stand follows from the ring: its slot is free again when the read of the tile `slots` before is behind a
barrier (`cluster.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from tilec.errors import TilecError
from tilec.ir import tile
from tilec.ir.core import Op, Value
from tilec.ir.schedule import Schedule
from tilec.passes.loop_ops import LoopOps


@dataclass(frozen=True, eq=False)
class Placed:
    """An op of the trip, run for the tile `ahead` trips later."""

    op: Op
    ahead: int = 0


@dataclass(eq=False)
class Cluster:
    """Ops in order. `kind` memory, compute, or mixed (both). `barrier`: all waves meet at its end."""

    kind: str
    name: str
    items: list[Placed] = field(default_factory=list)
    priority: int = 0
    barrier: bool = True


@dataclass(frozen=True)
class Shape:
    """What constrains a plan: slots of every ring, and by how many clusters the trailing half is behind."""

    slots: int
    stagger: int


def pingpong(ops: LoopOps, shape: Shape, dots_ahead: bool = True) -> list[Cluster]:
    """A memory and a compute cluster for each dot: what the dot needs is read just before it; one fill is issued per
    memory cluster. A dot whose result another one needs runs a trip ahead, beside what is made of its last result."""
    clusters: list[Cluster] = []
    seen: set[Value] = set()
    leads = _leads(ops, None if dots_ahead else {})
    for dot in ops.dots:
        wanted = _reads_of(ops, dot, seen)
        seen.update(r.results[0] for r in wanted)
        # The smaller operand first: it is free again first, while the larger is still on its way.
        wanted = sorted(wanted, key=lambda r: r.results[0].layout.items)
        clusters.append(Cluster("memory", f"read for {dot.result.name}", [Placed(r, leads[r]) for r in wanted]))
        clusters.append(Cluster("compute", dot.result.name, [Placed(dot, leads[dot])], priority=1))
    _place_others(ops, clusters, leads)
    _place_fills(ops, clusters, shape)
    return clusters


def interleave(ops: LoopOps, shape: Shape, dots_ahead: bool = True) -> list[Cluster]:
    """A cluster per dot; operands are read in the clusters before it, one tile per cluster, and fills are spread over
    the trip. Waves meet twice a trip."""
    count = len(ops.dots)
    leads = _leads(ops, None if dots_ahead else {})
    clusters = [Cluster("mixed", dot.result.name, barrier=False) for dot in ops.dots]
    first_use: dict[tile.SharedRead, int] = {}
    last_use: dict[tile.SharedRead, int] = {}
    for position, dot in enumerate(ops.dots):
        for read in _reads_of(ops, dot, set()):
            first_use.setdefault(read, position)
            last_use[read] = position
    taken: set[int] = set()
    # What is needed first is read in the cluster right before; of two that are needed at once, the one whose registers
    # are free longer (its last use is earlier) is read earlier.
    for read in sorted(first_use, key=lambda r: (first_use[r], -last_use[r])):
        place = first_use[read] - 1
        while place in taken and place > last_use[read] - count:
            place -= 1
        taken.add(place)
        clusters[place % count].items.append(Placed(read, leads[read] + (0 if place >= 0 else 1)))
    for position, (dot, cluster) in enumerate(zip(ops.dots, clusters)):
        cluster.items.append(Placed(dot, leads[dot]))
        cluster.barrier = position % max(1, count // 2) == max(1, count // 2) - 1
    _place_others(ops, clusters, leads)
    _place_fills(ops, clusters, shape)
    return clusters


def _leads(ops: LoopOps, dots: Mapping[Op, int] | None = None) -> dict[Op, int]:
    """Trips that each op runs ahead: a dot one more than those that need its result (or as `dots` says), and with it
    what it needs and what is made of its result alone. What depends on the trip before stays in its trip."""
    order = [op for op in ops.loop.body.ops if isinstance(op, (tile.SharedRead, tile.Dot)) or op in ops.others]
    late: set[Value] = set(ops.loop.body.params[1:])
    for op in order:
        if late.intersection(op.operands):
            late.update(op.results)
    leads: dict[Op, int] = {}
    needed: dict[Value, int] = {}       # one more than the lead of the dots that a value reaches
    for op in reversed(order):
        behind = max((needed.get(r, 0) for r in op.results), default=0)
        lead = behind if isinstance(op, tile.Dot) else max(0, behind - 1)
        leads[op] = 0 if late.intersection(op.results) else lead
        if isinstance(op, tile.Dot):
            leads[op] = leads[op] if dots is None else dots.get(op, 0)
            behind = leads[op] + 1
        for value in op.operands:
            needed[value] = max(needed.get(value, 0), behind)
    made = {r: op for op in order for r in op.results}
    for op in order:
        makers = [leads[made[v]] for v in op.operands if v in made]
        if op in ops.others and makers and not late.intersection(op.results):
            leads[op] = max(leads[op], min(makers))
    return leads


_NOUNS = {"read": "read", "compute": "dot", "copy": "copy"}


def custom(ops: LoopOps, shape: Shape, schedule: Schedule) -> list[Cluster]:
    """The clusters of a schedule spelled out. Raises TilecError where a step names nothing, or an op is left out or
    placed twice."""
    _check_rings(ops, schedule)
    steps: dict[str, dict[str, Op]] = {
        "read": {_name(op.results[0].name): op for op in ops.reads},
        "compute": {_name(op.results[0].name): op for op in ops.dots},
        "copy": {_name(_filled(ops, f).name): f for f in (ops.copies or ops.loads)},
    }
    clusters: list[Cluster] = []
    done: dict[Op, int] = {}
    leads = dict(schedule.ahead)
    for number, planned in enumerate(schedule.clusters):
        cluster = Cluster(planned.kind, planned.name or f"{planned.kind} {number}", [], planned.priority)
        for step in planned.steps:
            op = steps[step.action].get(_name(str(step.part)))
            if op is None:
                raise TilecError(
                    f"schedule {schedule.name}: cluster {number} names the {_NOUNS[step.action]} of {step.part}, "
                    "which the loop does not have",
                    where=ops.loop.where,
                    limit=f"it has the {_NOUNS[step.action]} of {', '.join(_spelled(steps[step.action]))}",
                    fix="name a tile of the kernel's loop, split as the schedule splits it",
                )
            if op in done:
                raise TilecError(
                    f"schedule {schedule.name} places the {_NOUNS[step.action]} of {step.part} twice",
                    where=ops.loop.where,
                    limit=f"in clusters {done[op]} and {number}",
                    fix="give each op one place in the trip",
                )
            done[op] = number
            if step.action != "copy":
                cluster.items.append(Placed(op, leads.get(step.part.tile, 0)))
        clusters.append(cluster)
    for kind, of_kind in (("read", ops.reads), ("dot", ops.dots)):
        if missing := [op for op in of_kind if op not in done]:
            raise TilecError(
                f"schedule {schedule.name} leaves out the {kind} of {', '.join(op.results[0].name for op in missing)}",
                where=ops.loop.where,
                limit=f"the loop has {len(ops.reads)} reads and {len(ops.dots)} dots",
                fix="give each a place in a cluster",
            )
    _place_others(ops, clusters, _leads(ops, {i.op: i.ahead for c in clusters for i in c.items}))
    budget = [planned.copies for planned in schedule.clusters]
    _place_fills(ops, clusters, shape, budget if any(budget) else None, done)
    return clusters


def _check_rings(ops: LoopOps, schedule: Schedule) -> None:
    """The rings that a schedule asks for are those of tiles that the loop reads, all of one depth."""
    tiles = list(dict.fromkeys(read.results[0].name.partition("[")[0] for read in ops.reads))
    asked = dict(schedule.rings)
    if strangers := [name for name in asked if name not in tiles]:
        raise TilecError(
            f"schedule {schedule.name} asks for a ring of {strangers[0]}, which the loop does not read from LDS",
            where=ops.loop.where,
            limit=f"it reads {', '.join(tiles)}",
        )
    if len(set(asked.values())) > 1:
        raise TilecError(
            f"schedule {schedule.name} asks for rings of different depth",
            where=ops.loop.where,
            limit=f"{', '.join(f'{name}={depth}' for name, depth in asked.items())}; "
            "the trip's number says which slot, alike for all tiles of a loop",
            fix="give every tile the same number of buffers",
        )


def _spelled(table: dict[str, Op]) -> list[str]:
    return sorted(name.replace(",", ", ") for name in table)


def _name(text: str) -> str:
    return text.replace(" ", "")


def _filled(ops: LoopOps, fill: Op) -> Value:
    ring = fill.buffer if isinstance(fill, tile.AsyncCopy) else ops.write(fill).buffer
    return next(r.results[0] for r in ops.reads if r.buffer is ring)


def _reads_of(ops: LoopOps, dot: tile.Dot, seen: set[Value]) -> list[tile.SharedRead]:
    wanted = {dot.a, dot.b, *dot.scales}
    for op in reversed(ops.others):  # operands may come through conversions
        if set(op.results) & wanted:
            wanted |= set(op.operands)
    return [r for r in ops.reads if r.results[0] in wanted and r.results[0] not in seen]


def _place_others(ops: LoopOps, clusters: list[Cluster], leads: Mapping[Op, int]) -> None:
    """Ops without LDS, each in the first cluster that computes where its operands are there. What is only accumulated
    on stays with its dot."""
    count = len(clusters)
    hosts = [i for i, c in enumerate(clusters) if c.kind != "memory"] or [count - 1]
    homes = {item.op: place for place, c in enumerate(clusters) for item in c.items}
    leads = {**leads, **{item.op: item.ahead for c in clusters for item in c.items}}
    made = {r: op for op in (*homes, *ops.others) for r in op.results}
    homes |= {op: homes[dot] for op, dot in _accumulated_only(ops).items()}
    for op in ops.others:
        if op not in homes:
            makers = [made[v] for v in op.operands if v in made]
            # A read is complete in the cluster behind it, and so is a dot that has other work beside it.
            behind = [isinstance(m, tile.SharedRead) or isinstance(m, tile.Dot) and leads[m] > 0 for m in makers]
            ready = [homes[m] - leads[m] * count + later for m, later in zip(makers, behind)]
            earliest = max([0, *(place + leads[op] * count for place in ready)])
            homes[op] = next((host for host in hosts if host >= earliest), hosts[-1])
    for op in reversed(ops.others):     # in program order; before the dots that need it, else behind them
        items = clusters[homes[op]].items
        dots = 1 + max((n for n, i in enumerate(items) if isinstance(i.op, tile.Dot)), default=-1)
        users = [n for n, i in enumerate(items) if i.ahead == leads[op] and set(op.results) & set(i.op.operands)]
        span = range(dots) if users and users[0] < dots else range(dots, len(items))
        place = next((n for n in span if n in users or items[n].op in ops.others), span.stop)
        items.insert(place, Placed(op, leads[op]))


def _accumulated_only(ops: LoopOps) -> dict[Op, tile.Dot]:
    """Ops whose results only go into one dot's accumulator."""
    users: dict[Value, set[tile.Dot | None]] = {v: {None} for v in ops.loop.body.yields}
    for dot in ops.dots:
        users.setdefault(dot.accumulator, set()).add(dot)
        for value in (dot.a, dot.b, *dot.scales):
            users.setdefault(value, set()).add(None)
    found: dict[Op, tile.Dot] = {}
    for op in reversed(ops.others):
        (dot, *more) = set.union(*(users.get(r, {None}) for r in op.results))
        if dot is not None and not more:
            found[op] = dot
        for value in op.operands:
            users.setdefault(value, set()).add(None if more else dot)
    return found


def _place_fills(
    ops: LoopOps,
    clusters: list[Cluster],
    shape: Shape,
    budget: list[int] | None = None,
    fixed: Mapping[Op, int] = MappingProxyType({}),
) -> None:
    """Fills in the order in which their rings become free, each in its cluster of `fixed`, or in the first one with
    room (of `budget` a trip). A copy stands where its slot is free: the trip's read of the ring lies `1 + stagger`
    clusters (with barriers between) back; beyond the end of the trip: in the next trip. Of copies through registers
    the write to LDS stands there, late in the trip if it can, and the load in the trip up to it."""
    count = len(clusters)
    fillers = ops.copies or ops.loads
    free_to_place = [fill for fill in fillers if fill not in fixed]
    hosts = [i for i, c in enumerate(clusters) if c.kind != "compute"]
    if budget is None:
        share = -(-len(free_to_place) // max(1, len(hosts)))
        budget = [share if i in hosts else 0 for i in range(count)]
    last_read: dict[Value, int] = {}
    for position, cluster in enumerate(clusters):
        for item in cluster.items:
            if isinstance(item.op, tile.SharedRead):
                read = position - item.ahead * count
                last_read[item.op.buffer] = max(read, last_read.get(item.op.buffer, read))
    queue = sorted(last_read, key=lambda ring: last_read[ring])
    room = list(budget)
    writes: list[tuple[int, Placed]] = []
    for ring in queue:
        fill = ops.fill(ring)
        first = _free_from(clusters, last_read[ring], shape.stagger)
        if not ops.direct:
            trip = last_read[ring] // count * count
            first = max(first, trip) if shape.slots == 1 else trip
            written = _late_host(hosts, first, trip, count)
            writes.append((written % count, Placed(ops.write(fill), 1 - written // count)))
            first = written - count + 1
        if fill in fixed:
            place = next(p for p in range(first, first + count) if p % count == fixed[fill])
        else:
            place = next((p for p in range(first, first + count) if room[p % count] > 0), None)
            if place is None:
                raise TilecError(
                    f"no cluster has room for the copy of {ring.name.removesuffix('_lds')}",
                    where=ops.loop.where,
                    limit=f"{len(free_to_place)} copies without a place of their own, room for {sum(budget)} in a trip",
                    fix="raise next_copy of a memory cluster, or place the copy",
                )
            room[place % count] -= 1
        trips, cluster = divmod(place, count)
        clusters[cluster].items.append(Placed(fill, (shape.slots if ops.direct else 1) - trips))
    for cluster, write in writes:
        clusters[cluster].items.append(write)


def _late_host(hosts: list[int], first: int, trip: int, count: int) -> int:
    """The last memory cluster from `first` on in the trip that starts at `trip`, or the first one after it."""
    within = [trip + host for host in hosts if trip + host >= first]
    return within[-1] if within else next(p for p in range(first, first + count) if p % count in hosts)


def _free_from(clusters: list[Cluster], read: int, stagger: int) -> int:
    """The first cluster position at which what was read at `read` may be overwritten: a barrier that the slower half
    meets after its read must lie before."""
    count = len(clusters)
    barrier = next(p for p in range(read, read + 2 * count) if clusters[p % count].barrier)
    return barrier + 1 + stagger
