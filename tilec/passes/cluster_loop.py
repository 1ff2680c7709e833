"""One loop rebuilt as its clusters: first copies and reads, the trip, what is carried around it, and the barriers.

Each op has a cluster and a number of trips that it runs ahead. Trips are unrolled by the slots of the rings, so that
slots are constants. Past the last tile the copies fetch it again, and nobody reads that: so no trip is special.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilec.dtypes import dtype
from tilec.errors import TilecError
from tilec.ir import tile
from tilec.ir.core import Block, Builder, Op, ScalarType, Substitution, TokenType, Value, clone_op
from tilec.passes.cluster_plans import Cluster, Shape
from tilec.passes.loop_ops import LoopOps

I32, BOOL = ScalarType(dtype("i32")), ScalarType(dtype("bool"))
Key = tuple[Value, int]  # a value of the loop body, for the tile so many trips after the current one
Early = tuple[Op, int]  # an op that runs before the loop, for that tile


@dataclass(frozen=True, eq=False)
class LoopPlan:
    """A loop, its clusters, and the rings with their slots by the buffers that they replace."""

    ops: LoopOps
    clusters: list[Cluster]
    shape: Shape
    rings: dict[Value, Value]


@dataclass(frozen=True)
class _Awaited:
    """A completion that a barrier awaits: the token of `op` for the tile `rel` trips ahead, and why."""

    token: Value
    rel: int
    reason: str


class ClusteredLoop:
    """One loop, rebuilt. `names` maps a value of the body, for a tile relative to the trip, to its new value."""

    def __init__(self, plan: LoopPlan):
        self.plan, self.ops_, self.clusters = plan, plan.ops, plan.clusters
        self.count, self.slots = len(plan.clusters), plan.shape.slots
        self.place = {item.op: (number, item.ahead) for number, c in enumerate(plan.clusters) for item in c.items}
        self.maker = {r: op for op in self.place for r in op.results}
        self.awaited = self._derive_barriers()
        self.names: dict[Key, Value] = {}
        self.carried: list[Value] = []
        self.indices: dict[int, Value] = {}
        self._check_order()

    # -- what barriers must await ------------------------------------------------------------------------------------

    def _position(self, op: Op) -> int:
        """The cluster in which an op runs for tile 0, counted from the first cluster of trip 0."""
        number, ahead = self.place[op]
        return number - ahead * self.count

    def _filler(self, read: tile.SharedRead) -> tile.AsyncCopy | tile.SharedWrite:
        return next(op for op in (*self.ops_.copies, *self.ops_.writes) if op.buffer is read.buffer)

    def _reads(self, fill: Op) -> list[tile.SharedRead]:
        """The reads of what a copy or write fills."""
        filled = fill.buffer if isinstance(fill, (tile.AsyncCopy, tile.SharedWrite)) else None
        return [read for read in self.ops_.reads if read.buffer is filled]

    def _derive_barriers(self) -> dict[int, list[_Awaited]]:
        """For every cluster: what the barrier at its end awaits."""
        found: dict[int, list[_Awaited]] = {}
        for read in self.ops_.reads:
            filler = self._filler(read)
            write, use = self._position(filler), self._position(read)
            self._await(found, filler.results[-1], write, use, "publish", filler, read)
            overwrite = write + self.slots * self.count
            self._await(found, read.results[-1], use, overwrite, "hand over", read, filler)
        return found

    def _await(
        self, found: dict[int, list[_Awaited]], token: Value, done: int, used: int, reason: str, first: Op, second: Op
    ) -> None:
        """The last barrier at or after `done` that the slower half meets before the faster one reaches `used`."""
        last = used - 1 - self.plan.shape.stagger
        place = next((p for p in range(last, done - 1, -1) if self.clusters[p % self.count].barrier), None)
        if place is None:
            trips = used // self.count - done // self.count
            later = f" {trips} trip{'s' if trips > 1 else ''} later" if trips > 0 else ""
            raise TilecError(
                f"the clusters leave no barrier between {_named(first)} and {_named(second)}",
                where=self.ops_.loop.where,
                limit=f"they run in cluster {done % self.count} and in cluster {used % self.count}{later}, "
                f"of {self.count}; waves are up to {self.plan.shape.stagger} clusters apart",
                fix=f"move {_named(first)} to an earlier cluster, or {_named(second)} to a later one",
            )
        found.setdefault(place % self.count, []).append(_Awaited(token, -(place // self.count), reason))

    def _check_order(self) -> None:
        """Within a tile, what an op needs runs before it."""
        order = {
            op: (self._position(op), place) for c in self.clusters for place, op in enumerate(i.op for i in c.items)
        }
        params = self.ops_.loop.body.params[1:]
        for op, when in order.items():
            for value in _needs(op):
                if value in params and self.place[op][1]:
                    raise TilecError(
                        f"{_named(op)} can't run ahead of the trip: it depends on the one before",
                        where=self.ops_.loop.where,
                        fix="run ahead what does not depend on carried values",
                    )
                if value in self.maker and order[self.maker[value]] >= when:
                    raise TilecError(
                        f"the clusters run {_named(op)} before {_named(self.maker[value])}, which it needs",
                        where=self.ops_.loop.where,
                        fix="order the clusters as the data flows",
                    )

    # -- what is carried around the loop -----------------------------------------------------------------------------

    def _kept(self) -> list[Key]:
        """Values that a trip needs and an earlier trip made."""
        made = {(r, item.ahead) for c in self.clusters for item in c.items for r in item.op.results}
        needed: set[Key] = set()
        done: set[Key] = set()
        inside = {r for r, _ in made}
        for number, c in enumerate(self.clusters):
            for item in c.items:
                uses_here = [(v, item.ahead) for v in _needs(item.op) if v in inside]
                needed |= {key for key in uses_here if key not in done}
                done |= {(r, item.ahead) for r in item.op.results}
            uses = [(a.token, a.rel) for a in self.awaited.get(number, [])] + self._operand_tokens(c)
            needed |= {key for key in uses if key not in done}
        yields = [(v, 0) for v in self.ops_.loop.body.yields if v in inside]
        needed |= {key for key in yields if key not in done}
        while True:
            more = {(v, rel + 1) for v, rel in needed if (v, rel + 1) not in made} - needed
            more = {(v, rel) for v, rel in more if rel <= self.place[self.maker[v]][1]}
            if not more:
                break
            needed |= more
        order = {r: (self._position(op), i) for op in self.place for i, r in enumerate(op.results)}
        return sorted(needed, key=lambda key: (order[key[0]], key[1]))

    def _operand_tokens(self, c: Cluster) -> list[Key]:
        """Completions of the reads that a cluster's dots use."""
        tokens = {read.results[0]: read.results[-1] for read in self.ops_.reads if len(read.results) > 1}
        dots = [item for item in c.items if isinstance(item.op, tile.Dot)]
        return [(tokens[v], item.ahead) for item in dots for v in item.op.operands if v in tokens]

    # -- building ----------------------------------------------------------------------------------------------------

    def ops(self) -> list[Op]:
        loop = self.ops_.loop
        out, b = Builder(), Builder()
        some = out.emit(tile.Elementwise((loop.lower, loop.upper), "lt", results=(Value(BOOL),)))
        self.one = b.emit(tile.Constant(1, results=(Value(I32),)))
        self.last = b.emit(tile.Elementwise((loop.upper, self.one), "sub", results=(Value(I32, "last"),)))
        self.slot_values = [b.emit(tile.Constant(slot, results=(Value(I32),))) for slot in range(self.slots)]
        self.carried = list(loop.inits)
        for op in self.ops_.constant:
            b.emit(op)
        self._prologue(b)
        kept = self._kept()
        spare = next(iter(self.names[key] for key in self.names if isinstance(key[0].type, TokenType)))
        state = [*self.carried, *(self.names.get(key, spare) for key in kept)]
        slots = b.emit(tile.Constant(self.slots, results=(Value(I32),)))
        trips = b.emit(tile.Elementwise((loop.upper, loop.lower), "sub", results=(Value(I32, "trips"),)))
        rest = b.emit(tile.Elementwise((trips, slots), "mod", results=(Value(I32, "rest"),)))
        whole = b.emit(tile.Elementwise((loop.upper, rest), "sub", results=(Value(I32, "whole"),)))
        state = self._loop(b, kept, state, loop.lower, whole, slots)
        if self.slots > 1:
            state = self._trip_if(b, kept, state, whole, 0)
        results = tuple(state[: len(loop.inits)])
        self.names = dict(zip(kept, state[len(loop.inits) :]))
        if self.plan.shape.stagger:
            b.emit(tile.Barrier((), "phase", "leading", where=loop.where))
        pending = tuple(dict.fromkeys(v for (old, _), v in self.names.items() if isinstance(old.type, TokenType)))
        b.emit(tile.Barrier(pending, "hand over", where=loop.where))
        out.emit(
            tile.If(
                some,
                Block((), tuple(b.ops), results),
                Block((), (), loop.inits),
                results=loop.results,
                where=loop.where,
            )
        )
        return out.ops

    def _plus(self, b: Builder, value: Value, number: int) -> Value:
        constant = b.emit(tile.Constant(number, results=(Value(I32),)))
        return b.emit(tile.Elementwise((value, constant), "add", results=(Value(I32),)))

    def _loop(
        self, b: Builder, kept: list[Key], state: list[Value], lower: Value, upper: Value, step: Value
    ) -> list[Value]:
        """A loop of one trip per slot a round, over the carried values and what is kept from trip to trip."""
        loop = self.ops_.loop
        counter = loop.body.params[0].like()
        params = [v.like() for v in state]
        inner = Builder()
        self._enter(kept, params)
        for slot in range(self.slots):
            self._trip(inner, counter, slot, slot)
        body = inner.block((counter, *params), self._state(kept))
        made = tile.For(
            lower, upper, step, tuple(state), body, True, results=tuple(v.like() for v in state), where=loop.where
        )
        b.emit(made)
        return list(made.results)

    def _trip_if(self, b: Builder, kept: list[Key], state: list[Value], whole: Value, slot: int) -> list[Value]:
        """One more trip, if there is a tile left, and in it the next: who does not take this one takes none."""
        counter = self._plus(b, whole, slot) if slot else whole
        more = b.emit(tile.Elementwise((counter, self.ops_.loop.upper), "lt", results=(Value(BOOL),)))
        inner = Builder()
        self._enter(kept, state)
        self._trip(inner, counter, 0, slot)
        after = self._state(kept)
        if slot + 2 < self.slots:
            after = self._trip_if(inner, kept, after, whole, slot + 1)
        made = tile.If(
            more,
            inner.block((), after),
            Block((), (), tuple(state)),
            True,
            results=tuple(v.like() for v in state),
            where=self.ops_.loop.where,
        )
        b.emit(made)
        return list(made.results)

    def _enter(self, kept: list[Key], state: list[Value]) -> None:
        count = len(self.ops_.loop.inits)
        self.carried, self.names, self.indices = list(state[:count]), dict(zip(kept, state[count:])), {}

    def _state(self, kept: list[Key]) -> list[Value]:
        return [*self.carried, *(self.names[key] for key in kept)]

    def _prologue(self, b: Builder) -> None:
        """What the first trip expects of those before it: fills, a barrier, reads, the distance between the halves."""
        loop = self.ops_.loop
        early = [
            (self._position(item.op) + t * self.count, place, item, t)
            for c in self.clusters
            for place, item in enumerate(c.items)
            for t in range(item.ahead)
        ]
        self.indices = {}
        early.sort(key=lambda e: e[:2])
        rounds = self._rounds([(item.op, t) for _, _, item, t in early])
        for number, (fills, rest) in enumerate(rounds):
            if number:
                overwritten = [(read.results[-1], t - self.slots) for op, t in fills for read in self._reads(op)]
                self._barrier(b, {"hand over": overwritten})
            for op, t in fills:
                self._run(b, op, t, loop.lower, t, t % self.slots)
            published = self._before_first_trip("publish") if number == len(rounds) - 1 else []
            published += [(self._filler(op).results[-1], t) for op, t in rest if isinstance(op, tile.SharedRead)]
            handed_over = [] if rest or number < len(rounds) - 1 else self._before_first_trip("hand over")
            self._barrier(b, {"publish": published, "hand over": handed_over})
            for op, t in rest:
                self._run(b, op, t, loop.lower, t, t % self.slots)
        if rounds[-1][1]:
            self._barrier(b, {"hand over": self._before_first_trip("hand over")})
        if self.plan.shape.stagger:
            b.emit(tile.Barrier((), "phase", "trailing", where=loop.where))

    def _rounds(self, early: list[Early]) -> list[tuple[list[Early], list[Early]]]:
        """What runs before the first trip, cut where a slot is filled that has been read before: in each round first
        the fills, then the rest."""
        number: dict[Early, int] = {}
        for op, t in early:
            before = [number.get((maker, t), 0) for v in _needs(op) if (maker := self.maker.get(v)) is not None]
            if isinstance(op, tile.SharedRead):
                before.append(number.get((self._filler(op), t), 0))
            if isinstance(op, (tile.AsyncCopy, tile.SharedWrite)):
                before += [1 + number[read, t - self.slots] for read in self._reads(op) if t >= self.slots]
            number[op, t] = max(before, default=0)
        filling = (tile.AsyncCopy, tile.Load, tile.SharedWrite)
        rounds: list[tuple[list[Early], list[Early]]] = [([], []) for _ in range(max(number.values(), default=0) + 1)]
        for key in early:
            rounds[number[key]][not isinstance(key[0], filling)].append(key)
        return rounds

    def _barrier(self, b: Builder, awaited: dict[str, list[Key]]) -> None:
        """One barrier for all that is there to be awaited, by reason."""
        found = {
            reason: [self.names[key] for key in keys if key in self.names] for reason, keys in awaited.items()
        }
        tokens = tuple(dict.fromkeys(token for some in found.values() for token in some))
        if tokens:
            reason = " and ".join(reason for reason, some in found.items() if some)
            b.emit(tile.Barrier(tokens, reason, where=self.ops_.loop.where))

    def _before_first_trip(self, reason: str) -> list[Key]:
        """Completions that barriers of trips before the first would have awaited."""
        # In trip -n the barrier awaits tile rel - n; tiles from 0 on exist.
        return [
            (awaited.token, number)
            for group in self.awaited.values()
            for awaited in group
            if awaited.reason == reason
            for number in range(max(0, awaited.rel))
        ]

    def _trip(self, b: Builder, counter: Value, number: int, slot: int) -> None:
        """One trip: its clusters; then every name moves one trip back."""
        where = self.ops_.loop.where
        for place, c in enumerate(self.clusters):
            tokens = tuple(dict.fromkeys(self.names[key] for key in self._operand_tokens(c) if key in self.names))
            if tokens:
                b.emit(tile.Await(tokens, where=where))
            b.emit(tile.ClusterBegin(c.name, c.kind, c.priority, where=where))
            for item in c.items:
                self._run(b, item.op, item.ahead, counter, number + item.ahead, (slot + item.ahead) % self.slots)
            b.emit(tile.ClusterEnd(where=where))
            if c.barrier:
                awaited = [a for a in self.awaited.get(place, []) if (a.token, a.rel) in self.names]
                reasons = " and ".join(dict.fromkeys(a.reason for a in awaited)) or "phase"
                b.emit(
                    tile.Barrier(
                        tuple(dict.fromkeys(self.names[a.token, a.rel] for a in awaited)), reasons, where=where
                    )
                )
        self.carried = [self._look(v, 0) for v in self.ops_.loop.body.yields]
        self.names = {(v, rel - 1): new for (v, rel), new in self.names.items()}

    def _look(self, value: Value, rel: int) -> Value:
        params = self.ops_.loop.body.params
        if value in params[1:]:
            return self.carried[params.index(value) - 1]
        return self.names.get((value, rel), value)

    def _run(self, b: Builder, op: Op, rel: int, counter: Value, distance: int, slot: int) -> None:
        """An op for the tile `rel` trips ahead, which is `distance` tiles after `counter`."""
        names = _Names(self, rel)
        if isinstance(op, (tile.AsyncCopy, tile.Load)):
            names.map[self.ops_.loop.body.params[0]] = self._tile_index(b, counter, distance)
            for index_op in self.ops_.index:
                b.emit(clone_op(index_op, names))
        else:
            names.map[self.ops_.loop.body.params[0]] = self._plus(b, counter, distance) if distance else counter
        new = clone_op(op, names)
        if isinstance(op, (tile.AsyncCopy, tile.SharedWrite, tile.SharedRead)) and op.buffer in self.plan.rings:
            new = new.replace(
                buffer=self.plan.rings[op.buffer], slot=self.slot_values[slot] if self.slots > 1 else None
            )
        b.emit(new)
        self.names.update({(old, rel): made for old, made in zip(op.results, new.results)})

    def _tile_index(self, b: Builder, counter: Value, distance: int) -> Value:
        """The tile that a fill fetches: `distance` after the counter, but none beyond the last."""
        if distance not in self.indices:
            ahead = self._plus(b, counter, distance) if distance else counter
            self.indices[distance] = (
                b.emit(tile.Elementwise((ahead, self.last), "minimum", results=(Value(I32),))) if distance else ahead
            )
        return self.indices[distance]


class _Names(Substitution):
    """Looks up values of the loop body for one tile."""

    def __init__(self, loop: ClusteredLoop, rel: int):
        super().__init__()
        self.loop, self.rel = loop, rel

    def __call__(self, value: Value) -> Value:
        return self.map[value] if value in self.map else self.loop._look(value, self.rel)


def _needs(op: Op) -> tuple[Value, ...]:
    """What an op takes from the trip; copies and loads compute their indices themselves."""
    return () if isinstance(op, (tile.AsyncCopy, tile.Load)) else op.operands


def _named(op: Op) -> str:
    kind = {
        tile.AsyncCopy: "copy",
        tile.Load: "load",
        tile.SharedWrite: "write",
        tile.SharedRead: "read",
        tile.Dot: "dot",
    }.get(type(op), op.mnemonic)
    value = op.buffer if isinstance(op, (tile.AsyncCopy, tile.SharedWrite)) else op.results[0]
    return f"the {kind} of {value.name.removesuffix('_lds') or '?'}"
