"""Proves that waits and barriers suffice, independently of how they were placed.

Takes any machine program with waits. From each access it walks forward over all paths until the access is known to be
complete, counting what was issued behind it; on the way nothing may touch its registers or name its token. Accesses to
LDS are followed on, past their completion, to a barrier: until then no conflicting access may come.
Assumptions: all waves of a workgroup run this program and pass each barrier together, but for waves that run behind:
they alone pass barriers with the modifier half="late", the others alone those with half="early". vmcnt counts down in
order; lgkmcnt in order among LDS instructions, which the hardware keeps in order within a wave, so that a lone wave
needs no waits between them (copies to LDS keep no order with them); scalar loads come in any order. `SharedAccess`
bounds each access. Two writes of one kind are parts of one tile: races among them, and ring slots that are known at
run time only, are for the emulator to find.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tilec.backend_amdgcn.isa import Row, dwords, rows
from tilec.errors import Location
from tilec.ir.machine import Instruction, Operand, Physical, Program, Ref, Register, Target
from tilec.target import target

_SPELLED = {"vm": "vmcnt", "lgkm": "lgkmcnt"}

Key = int | Register
State = Any
"""Hashable: what a walk has found out so far."""
Step = Callable[[int, State, int], tuple[State, int] | None]
"""(place, state, distance) to (state, distance) behind the instruction there."""


@dataclass(frozen=True)
class Fault:
    """What is wrong, at which instruction, and what it collides with."""

    what: str
    instruction: Instruction
    other: Instruction | None = None

    @property
    def where(self) -> Location | None:
        return self.instruction.where

    def __str__(self) -> str:
        return f"{self.where}: {self.what}" if self.where else self.what


def check(program: Program) -> list[Fault]:
    """All faults, in the order of the program; none for a program that is safe under the assumptions above."""
    return list(dict.fromkeys(faults(program)))


def faults(program: Program) -> Iterator[Fault]:
    """The same, one by one, some twice."""
    flow = Flow(program)
    for place, instruction in enumerate(flow.instructions):
        row = flow.rows[place]
        if row.counter and (keys := _keys(instruction.dst)):
            yield from _completion(flow, place, frozenset(keys))
        if instruction.shared:
            yield from _discipline(flow, place, program.waves > 1)
        if instruction.op == "s_endpgm" and flow.lag[place]:
            yield Fault(f"waves that run behind pass {flow.lag[place]:+} barriers by the end", instruction)


class Flow:
    """The program as one list of instructions with the places that may follow each."""

    def __init__(self, program: Program):
        table, machine = rows(program.arch), target(program.arch)
        self.limits = {"vm": machine.vmcnt_max, "lgkm": machine.lgkmcnt_max}
        self.instructions = list(program.instructions())
        self.rows: list[Row] = [table[i.op] for i in self.instructions]
        self.depths: list[int] = []
        starts: dict[str, int] = {}
        for block in program.blocks:
            starts[block.label] = len(self.depths)
            self.depths += [block.depth] * len(block.instructions)
        self.following: list[tuple[int, ...]] = []
        for place, instruction in enumerate(self.instructions):
            after = [starts[o.label] for o in instruction.src if isinstance(o, Target)]
            if instruction.op not in ("s_branch", "s_endpgm"):
                after.append(place + 1)
            self.following.append(tuple(p for p in dict.fromkeys(after) if p < len(self.depths)))
        # A branch back to where its path came from closes a loop: who leaves there has made one more trip, too.
        self.closes = self._closing()
        self.lag = self._lag()
        self.rings: dict[str, tuple[int, int]] = {}         # depth of the loop that turns it, and its slots
        for instruction, depth in zip(self.instructions, self.depths):
            if shared := instruction.shared:
                deepest, slots = self.rings.get(shared.buffer, (0, 1))
                self.rings[shared.buffer] = max(depth, deepest), max(shared.slots, slots)

    def _closing(self) -> list[bool]:
        """Whether each instruction may go back to one on the path that led to it (depth first; the flow is reducible,
        so that any path will do)."""
        closes, visited, path = [False] * len(self.following), set[int](), set[int]()
        work = [(0, False)] if self.following else []
        while work:
            place, done = work.pop()
            if done:
                path.discard(place)
            elif place not in visited:
                visited.add(place)
                path.add(place)
                closes[place] = any(p in path for p in self.following[place])
                work += [(place, True), *((p, False) for p in self.following[place])]
        return closes

    def _lag(self) -> list[int]:
        """By how many barriers some waves may be behind others at each place."""
        passed = {half: [0] * len(self.instructions) for half in ("late", "early")}
        for half, counts in passed.items():
            for place, instruction in enumerate(self.instructions):
                count = counts[place] + (instruction.modifier("half") == half)
                for successor in self.following[place]:
                    if successor > place:
                        counts[successor] = max(counts[successor], count)
        return [late - early for late, early in zip(passed["late"], passed["early"])]

    def walk(self, start: int, state: State, step: Step) -> None:
        """Follows all paths behind an instruction. `step` gives the state after an instruction, None to end the path.
        Of two visits in one state only the one with the smaller distance counts: it proves less."""
        best: dict[tuple[int, State], int] = {}
        work = [(place, state, 0) for place in self.following[start]]
        while work:
            place, state, distance = work.pop()
            if best.get((place, state), distance + 1) <= distance:
                continue
            best[place, state] = distance
            after = step(place, state, distance)
            if after is not None:
                work += [(place, *after) for place in self.following[place]]

    def behind(self, start: int, place: int, distance: int) -> int:
        """The distance after one more instruction: how many accesses of its kind stand behind the one at `start`."""
        own, row = self.rows[start], self.rows[place]
        counts = row.counter == own.counter and row.unit == own.unit
        return min(distance + counts, self.limits[own.counter]) if own.counter else 0

    def completes(self, start: int, place: int, distance: int) -> bool:
        """Whether the wait at `place` proves the access at `start` complete. A counter stops at its maximum, so that
        waiting for that says nothing."""
        own = self.rows[start]
        count = self.instructions[place].modifier(_SPELLED[own.counter]) if own.counter else None
        if count is None or own.counter is None:
            return False
        return count <= distance and count < self.limits[own.counter] if _ordered(own) else count == 0


def _ordered(row: Row) -> bool:
    return row.unit in ("vmem", "lds")


def _completion(flow: Flow, start: int, keys: frozenset[Key]) -> list[Fault]:
    """Instructions that touch what an access delivers, or name its token, before it is complete."""
    access, own = flow.instructions[start], flow.rows[start]
    counter = own.counter or ""
    found: list[Fault] = []

    def step(place: int, pending: frozenset[Key], distance: int) -> tuple[frozenset[Key], int] | None:
        instruction, row = flow.instructions[place], flow.rows[place]
        if instruction.op == "s_waitcnt":
            return None if flow.completes(start, place, distance) else (pending, distance)
        sources, results = _keys(instruction.src), _keys(instruction.dst)
        if row.unit == "pseudo":
            single = len(results) == len(sources)       # one for one; else every source goes to every result
            moved = {result for i, result in enumerate(results)
                     if not pending.isdisjoint(sources[i:i + 1] if single else sources)}
            pending = pending - set(results) | moved
            return (pending, distance) if pending else None
        in_order = row.counter == own.counter and row.unit == own.unit and _ordered(own)
        overwritten = [key for key in results if key in pending and isinstance(key, int)]
        reads = not pending.isdisjoint(sources)
        if reads or overwritten and not in_order:
            verb = "waits for" if row.unit == "barrier" else "reads" if reads else "overwrites"
            found.append(Fault(f"{instruction.op} {verb} what {_name(access)} has yet to deliver: {_SPELLED[counter]}"
                               f"({distance if _ordered(own) else 0}) is missing", instruction, access))
            return None
        pending = pending - set(results)
        return (pending, flow.behind(start, place, distance)) if pending else None

    flow.walk(start, keys, step)
    return found


def _discipline(flow: Flow, start: int, many_waves: bool) -> list[Fault]:
    """Conflicting accesses to the same bytes of LDS that come before one is complete and, with several waves, before
    a barrier has passed; where waves run behind others, as many more barriers as they are behind."""
    access, own = flow.instructions[start], flow.rows[start]
    assert access.shared
    ring_depth, slots = flow.rings[access.shared.buffer]
    found: list[Fault] = []

    def step(place: int, state: State, distance: int) -> tuple[State, int] | None:
        complete, barriers, trips = state
        instruction, row = flow.instructions[place], flow.rows[place]
        if instruction.op == "s_waitcnt":
            if not complete and flow.completes(start, place, distance):
                complete, barriers = True, None
                if not many_waves:
                    return None
        elif row.unit == "barrier" and complete and instruction.modifier("half") != "late":
            barriers = flow.lag[place] if barriers is None else barriers - 1
            if barriers <= 0:
                return None
        elif instruction.shared and _conflict(access, own, instruction, row, trips, many_waves):
            then = "overwrites" if _writes(instruction, row) else "reads"
            first = "writes" if _writes(access, own) else "reads"
            missing = "a barrier" if complete else "a wait and a barrier" if many_waves else "a wait"
            found.append(Fault(f"{_name(instruction)} {then} bytes of LDS that {_name(access)} {first}, "
                               f"without {missing} between", instruction, access))
            return None
        if flow.closes[place] and flow.depths[place] <= ring_depth and trips is not None:
            trips = (trips + 1) % slots if flow.depths[place] == ring_depth else None
        return (complete, barriers, trips), flow.behind(start, place, distance)

    # Behind a slot by its number, trips count from the ring's loop on; within the loop the number says nothing.
    within = access.shared.slots == 1 and flow.depths[start] >= ring_depth
    flow.walk(start, (False, None, None if within else 0), step)
    return found


def _writes(instruction: Instruction, row: Row) -> bool:
    return row.unit == "vmem" or not any(isinstance(o, Physical) for o in instruction.dst)


def _conflict(first: Instruction, row: Row, second: Instruction, other: Row, trips: int | None, many: bool) -> bool:
    """Whether two accesses, `trips` of the ring's loop apart, must be kept apart."""
    a, b = first.shared, second.shared
    assert a and b
    writes = _writes(first, row), _writes(second, other)
    if not any(writes) or row.unit == other.unit and (all(writes) or not many):
        return False
    if a.first >= b.end or b.first >= a.end:
        return False
    if a.buffer != b.buffer or b.slots == 1 or trips is None:
        return True                                 # the slot that the first one took does not matter, or is lost
    if a.slots > 1 and (a.slot is None or b.slot is None):
        return False
    ring = b.slots
    taken = a.slot if a.slots > 1 else (a.first - b.first) * ring // (b.end - b.first)
    return b.slot is None or taken is None or (taken - b.slot - trips) % ring == 0


def _keys(operands: Iterable[Operand]) -> list[Key]:
    result: list[Key] = []
    for operand in operands:
        if isinstance(operand, Physical):
            result += dwords(operand)
        elif isinstance(operand, Ref):
            result.append(operand.register)
    return result


def _name(access: Instruction) -> str:
    """`ds_read_b128 v[0:3] (a)`"""
    register = next((f" {o}" for o in access.dst if isinstance(o, Physical)), "")
    return access.op + register + (f" ({access.shared.buffer})" if access.shared else "")
