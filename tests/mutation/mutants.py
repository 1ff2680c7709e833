"""Breaks the synchronisation of a finished machine program in one place: waits, barriers, priorities, wait states.

Each mutant is a program that a static checker, or the emulator where none of them can know, must refuse. The engine
only edits; it knows nothing of why an instruction stands where it does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tilec.backend_amdgcn import clustercheck, hazardcheck, waitcheck
from tilec.backend_amdgcn.isa import Row, dwords, rows
from tilec.ir.core import Program as TileProgram
from tilec.ir.machine import Immediate, Instruction, Operand, Physical, Program, Target

Body = tuple[Instruction, ...]
Changes = Iterator[tuple[str, Body]]
EXCHANGED = {"s_cmp_ge_u32": "s_cmp_lt_u32", "s_cmp_lt_u32": "s_cmp_ge_u32"}
COUNTERS = {"vmcnt": "vm", "lgkmcnt": "lgkm"}


@dataclass(frozen=True)
class Mutant:
    """`kind` is 'wait deleted', 'wait weakened', 'wait moved', 'barrier deleted', 'barrier before its wait', 'barrier
    moved', 'halves exchanged', 'priority deleted', 'wait states deleted' or 'wait states shortened'; `instruction` is
    the one that was changed. `apart`: half of the waves may be behind there; `repeated`: a barrier stands behind it,
    with no access to LDS between."""

    kind: str
    instruction: Instruction
    block: str
    program: Program
    apart: bool
    repeated: bool

    def __str__(self) -> str:
        counts = " ".join(f"{name}({value})" for name, value in self.instruction.modifiers)
        return f"{self.kind}: {self.instruction.op} {counts} in {self.block} ({self.instruction.note})"


def mutants(program: Program) -> Iterator[Mutant]:
    """All mutants of a program in form final."""
    table = rows(program.arch)
    staggered = any(instruction.modifier("half") for instruction in program.instructions())
    apart = False                       # each half's own barrier turns this over: one before a loop, one behind it
    for at, block in enumerate(program.blocks):
        after = program.blocks[at + 1].instructions if at + 1 < len(program.blocks) else ()
        for place, instruction in enumerate(block.instructions):
            repeated = _meets_barrier(block.instructions[place + 1:])
            for kind, body in _changes(block.instructions, place, after, table, staggered):
                blocks = (*program.blocks[:at], block.replace(instructions=body), *program.blocks[at + 1:])
                yield Mutant(kind, instruction, block.label, program.replace(blocks=blocks), apart, repeated)
        apart ^= any(instruction.modifier("half") for instruction in block.instructions)


def refusal(mutant: Mutant, clustered: TileProgram | None = None) -> str:
    """The name of the static checker that finds the fault, '' where none does. (Each takes tens of milliseconds.)
    `clustered`: the tile program, for what only the structure of its clusters tells."""
    checkers: list[tuple[str, Callable[[Program], Iterator[waitcheck.Fault]]]] = [("waitcheck", waitcheck.faults)]
    if mutant.instruction.op == "s_nop":
        checkers = [("hazardcheck", hazardcheck.faults)]
    elif clustered is not None:
        checkers.append(("clustercheck", lambda program: clustercheck.faults(clustered, program)))
    return next((name for name, faults in checkers if next(faults(mutant.program), None) is not None), "")


def _changes(body: Body, place: int, following: Body, table: Mapping[str, Row], staggered: bool) -> Changes:
    """Changes of the instruction at `place`, with the body that results. `following` is the next block's body. Where no
    waves run behind, a barrier may as well stand on the other side of an access to a buffer that it does not guard."""
    instruction, before, after = body[place], body[:place], body[place + 1:]
    match instruction.op:
        case "s_waitcnt":
            yield from _of_wait(before, instruction, after, table)
        case "s_barrier":
            yield "barrier deleted", before + after
            if staggered and not instruction.modifier("half"):
                yield from _of_place(before, instruction, after, table)
        case "s_setprio":
            yield "priority deleted", before + after
        case "s_nop":
            yield "wait states deleted", before + after
            count = instruction.src[0]
            assert isinstance(count, Immediate)
            if count.value:
                yield "wait states shortened", (*before, instruction.replace(src=(Immediate(count.value - 1),)), *after)
        case op if op in EXCHANGED and following and following[0].modifier("half"):
            yield "halves exchanged", (*before, instruction.replace(op=EXCHANGED[op]), *after)


def _meets_barrier(body: Body) -> bool:
    """A barrier comes before any access to LDS."""
    return next((i.op == "s_barrier" for i in body if i.op == "s_barrier" or i.shared is not None), False)


def _of_wait(before: Body, wait: Instruction, after: Body, table: Mapping[str, Row]) -> Changes:
    yield "wait deleted", before + after
    for name, count in wait.modifiers:
        others = tuple(m for m in wait.modifiers if m[0] != name)
        yield "wait weakened", (*before, wait.replace(modifiers=(*others, (name, count + 1))), *after)
        if others:
            yield "wait weakened", (*before, wait.replace(modifiers=others), *after)
    if after and after[0].op == "s_barrier":
        yield "barrier before its wait", (*before, after[0], wait, *after[1:])
    elif (behind := _behind_consumer(before, wait, after, table)) is not None:
        yield "wait moved", (*before, *after[:behind], wait, *after[behind:])


def _behind_consumer(before: Body, wait: Instruction, after: Body, table: Mapping[str, Row]) -> int | None:
    """Where the first instruction ends that uses what a wait has completed; None where that leaves the block, or what
    it completes was issued in another one."""
    delivered: set[int] = set()
    for name, count in wait.modifiers:
        issued: list[Instruction] = []
        for instruction in before:
            if instruction.op == "s_waitcnt" and instruction.modifier(name) is not None:
                issued = issued[len(issued) - instruction.modifier(name):] if instruction.modifier(name) else []
            elif table[instruction.op].counter == COUNTERS[name]:
                issued.append(instruction)
        for instruction in issued[:len(issued) - count]:
            delivered |= _registers(instruction.dst)
    for place, instruction in enumerate(after):
        if delivered & (_registers(instruction.src) | _registers(instruction.dst)):
            return None if any(isinstance(o, Target) for o in instruction.src) else place + 1
    return None


def _registers(operands: Sequence[Operand]) -> set[int]:
    return {dword for operand in operands if isinstance(operand, Physical) for dword in dwords(operand)}


def _of_place(before: Body, barrier: Instruction, after: Body, table: Mapping[str, Row]) -> Changes:
    """The barrier behind the next access to LDS or matrix instruction, and before the last one."""
    def matters(instruction: Instruction) -> bool:
        return instruction.shared is not None or table[instruction.op].unit == "mfma"

    down = next((i for i, other in enumerate(after) if matters(other)), None)
    if down is not None and not any(table[other.op].unit in ("barrier", "branch") for other in after[:down]):
        yield "barrier moved", (*before, *after[:down + 1], barrier, *after[down + 1:])
    up = next((i for i in reversed(range(len(before))) if matters(before[i])), None)
    if up is not None and not any(other.op in ("s_waitcnt", "s_barrier") for other in before[up:]):
        yield "barrier moved", (*before[:up], barrier, *before[up:], *after)


__all__ = ["Mutant", "mutants", "refusal"]
