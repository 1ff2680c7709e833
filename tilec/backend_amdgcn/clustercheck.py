"""Proves that staggered waves keep their distance: on every path each cluster of the schedule ends at one barrier.

Takes the final machine program and the clustered tile program, which lists the clusters of a trip. Between the branch
around the barrier that only the trailing half passes (half="late") and that of the leading half ("early"), every path
must go through the trips' clusters in order with one barrier behind each: matrix instructions only where the cluster
holds dots, accesses to memory only where it holds any, both under the cluster's priority, barriers under none. So the
halves are never in one kind of cluster at once, and a phase barrier, whose loss breaks no data, is missed here. How
barriers were derived, their reasons and what they await is not looked at. Branches must be uniform in the workgroup.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilec.backend_amdgcn.waitcheck import Fault, Flow
from tilec.ir import tile
from tilec.ir.core import Block, Op
from tilec.ir.core import Program as TileProgram
from tilec.ir.machine import Immediate, Program

_MEMORY = (tile.AsyncCopy, tile.SharedRead, tile.SharedWrite, tile.Load, tile.Store)


@dataclass(frozen=True)
class Phase:
    """What one cluster may do until its barrier."""

    name: str
    dots: bool
    memory: bool
    priority: int


Trip = tuple[Phase, ...]


def check(clustered: TileProgram, program: Program) -> list[Fault]:
    """All faults; none where the schedule has no waves that run behind."""
    return list(dict.fromkeys(faults(clustered, program)))


def faults(clustered: TileProgram, program: Program) -> Iterator[Fault]:
    """The same, one by one."""
    return _Walk(list(trips(clustered.body)), program).faults()


def trips(block: Block) -> Iterator[Trip]:
    """The clusters of one trip of each staggered loop, in program order."""
    behind = False
    for op in block.ops:
        if isinstance(op, tile.Barrier) and op.half:
            behind = op.half == "trailing"
        elif isinstance(op, tile.For) and behind:
            yield _period(list(_phases(op.body.ops)))
        else:
            for inner in op.regions:
                yield from trips(inner)


def _phases(ops: Sequence[Op]) -> Iterator[Phase]:
    start = 0
    for place, op in enumerate(ops):
        if isinstance(op, tile.ClusterBegin):
            start = place
        elif isinstance(op, tile.ClusterEnd):
            begin, inside = ops[start], ops[start + 1:place]
            assert isinstance(begin, tile.ClusterBegin)
            yield Phase(begin.name, any(isinstance(o, tile.Dot) for o in inside),
                        any(isinstance(o, _MEMORY) for o in inside), begin.priority)


def _period(phases: list[Phase]) -> Trip:
    """A round of the rings is some equal trips."""
    count = len(phases)
    length = next(n for n in range(1, count + 1) if count % n == 0 and phases[:n] * (count // n) == phases)
    return tuple(phases[:length])


@dataclass(frozen=True)
class _State:
    """Where a path stands: inside the n-th staggered loop (-1: none), in which cluster, whether it has computed there,
    and the priority."""

    loop: int = -1
    cluster: int = 0
    computed: bool = False
    priority: int = 0


class _Walk:
    def __init__(self, trips: list[Trip], program: Program):
        self.trips, self.flow = trips, Flow(program)
        self.starts: dict[int, int] = {}            # place of each instruction's block
        self.halves: dict[int, list[int]] = {}      # by block: places of barriers that half of the waves pass
        place = 0
        for block in program.blocks:
            start = place
            for instruction in block.instructions:
                self.starts[place] = start
                if instruction.op == "s_barrier" and instruction.modifier("half"):
                    self.halves.setdefault(start, []).append(place)
                place += 1
        self.late = [p for places in self.halves.values() for p in places if self._half(p) == "late"]

    def _half(self, place: int) -> str:
        return self.flow.instructions[place].modifier("half", "")

    def faults(self) -> Iterator[Fault]:
        flow = self.flow
        if len(self.late) != len(self.trips):
            yield Fault(f"waves fall behind in {len(self.late)} places, and {len(self.trips)} loops are staggered",
                        flow.instructions[0])
            return
        seen: set[tuple[int, _State]] = set()
        work = [(0, _State())]
        while work:
            place, state = work.pop()
            if (place, state) in seen:
                continue
            seen.add((place, state))
            fault = self._fault(place, state)
            if fault is not None:
                yield fault
                continue
            after = self._after(place, state)
            crossing = [p for successor in flow.following[place] for p in self.halves.get(successor, [])
                        if self.starts[p] == successor and len(flow.following[place]) > 1]
            if crossing:                             # half of the waves pass a barrier, the others go around it
                fault, after = self._cross(crossing, after)
                if fault is not None:
                    yield fault
                    continue
            work += [(successor, after) for successor in flow.following[place]]

    def _phase(self, state: _State) -> Phase | None:
        return self.trips[state.loop][state.cluster] if state.loop >= 0 else None

    def _fault(self, place: int, state: _State) -> Fault | None:
        instruction, row, phase = self.flow.instructions[place], self.flow.rows[place], self._phase(state)
        if phase is None:
            return None
        cluster = f"cluster {state.cluster} ({phase.name})"
        if row.unit == "mfma" and not phase.dots or row.reaches_memory and not phase.memory:
            kind = "dot" if row.unit == "mfma" else "access to memory"
            return Fault(f"{instruction.op} stands in {cluster}, which has no {kind}: "
                         "a barrier is missing or misplaced", instruction)
        if (row.unit == "mfma" or row.reaches_memory) and state.priority != phase.priority:
            return Fault(f"{instruction.op} runs at priority {state.priority}, {cluster} at {phase.priority}",
                         instruction)
        if row.unit == "barrier" and phase.dots and not state.computed and not instruction.modifier("half"):
            return Fault(f"a barrier ends {cluster} before its dots", instruction)
        if row.unit == "barrier" and state.priority:
            return Fault(f"waves meet behind {cluster} at priority {state.priority}", instruction)
        if instruction.op == "s_endpgm":
            return Fault("waves end while half of them is behind", instruction)
        return None

    def _after(self, place: int, state: _State) -> _State:
        instruction, row = self.flow.instructions[place], self.flow.rows[place]
        if instruction.op == "s_setprio":
            level = instruction.src[0]
            assert isinstance(level, Immediate)
            return _State(state.loop, state.cluster, state.computed, level.value)
        if state.loop < 0:
            return state
        if row.unit == "mfma":
            return _State(state.loop, state.cluster, True, state.priority)
        if row.unit == "barrier" and not instruction.modifier("half"):
            return _State(state.loop, (state.cluster + 1) % len(self.trips[state.loop]), False, state.priority)
        return state

    def _cross(self, places: list[int], state: _State) -> tuple[Fault | None, _State]:
        instruction, half = self.flow.instructions[places[0]], self._half(places[0])
        if len(places) > 1:
            return Fault(f"half of the waves passes {len(places)} barriers more", instruction), state
        if half == "late":
            if state.loop >= 0:
                return Fault("waves fall behind that are behind already", instruction), state
            return None, _State(self.late.index(places[0]), 0, False, state.priority)
        if state.loop < 0:
            return Fault("waves catch up that are not behind", instruction), state
        if state.cluster or state.computed:
            return Fault(f"waves catch up in cluster {state.cluster} of a trip", instruction), state
        return None, _State(priority=state.priority)


__all__ = ["Phase", "check", "faults", "trips"]
