"""Proves that wait states suffice on all paths, independently of how they were inserted.

Takes any machine program. From each producer of the hazard table it walks forward over every path, counting the states
that pass, and asks the table about each instruction that it meets before the producer's reach ends. Instructions count
as one state, `s_nop N` as N + 1, what emits nothing as none. From memory instructions it looks back over the clause.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilec.backend_amdgcn.hazard_table import CLAUSE_UNITS, Effects, effects, required
from tilec.backend_amdgcn.waitcheck import Fault, Flow
from tilec.ir.machine import Immediate, Program


def check(program: Program) -> list[Fault]:
    """All pairs of instructions that stand too close, in the order of the program."""
    return list(faults(program))


def faults(program: Program) -> Iterator[Fault]:
    """The same, one by one."""
    flow = Flow(program)
    seen = [effects(instruction, program.arch) for instruction in flow.instructions]
    lasts = [_states(flow, place) for place in range(len(seen))]
    for place, producer in enumerate(seen):
        if producer.shape.reach:
            yield from _too_close(flow, place, producer, seen, lasts)
        if producer.unit in CLAUSE_UNITS:
            yield from _clause(place, seen)


def _clause(place: int, seen: list[Effects]) -> Iterator[Fault]:
    """Whether an instruction may not be in one clause with those directly before it. (A branch into the middle of a
    clause has ended the one before it.)"""
    last = seen[place]
    reads, writes = last.uses()
    for earlier in reversed(seen[:place]):
        if earlier.unit == "pseudo":
            continue
        if earlier.unit != last.unit:
            return
        other_reads, other_writes = earlier.uses()
        reads, writes = reads | other_reads, writes | other_writes
        if reads & writes or other_writes and last.shape.stores:
            yield Fault(f"{last.instruction.op} is in one clause with {earlier.instruction.op}, and could not be "
                        "replayed", last.instruction, earlier.instruction)
            return


def _states(flow: Flow, place: int) -> int:
    instruction, row = flow.instructions[place], flow.rows[place]
    if instruction.op == "s_nop":
        count = instruction.src[0]
        assert isinstance(count, Immediate)
        return count.value + 1
    return 0 if row.unit == "pseudo" else 1


def _too_close(flow: Flow, start: int, producer: Effects, seen: list[Effects], lasts: list[int]) -> list[Fault]:
    found: list[Fault] = []

    def step(place: int, state: None, states: int) -> tuple[None, int] | None:
        needed, rule = required(producer, seen[place])
        if needed > states:
            found.append(Fault(f"{flow.instructions[place].op} comes {states} wait states after "
                               f"{flow.instructions[start].op}, and needs {needed} ({rule})",
                               flow.instructions[place], flow.instructions[start]))
        states += lasts[place]
        return (None, states) if states < producer.shape.reach else None

    flow.walk(start, None, step)
    return found
