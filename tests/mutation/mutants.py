"""Breaks the synchronisation of a finished machine program in one place: waits, barriers, priorities, wait states.

Each mutant is a program that a static checker, or the emulator where none of them can know, must refuse. The engine
only edits; it knows nothing of why an instruction stands where it does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tilec.backend_amdgcn import clustercheck, hazardcheck, waitcheck
from tilec.backend_amdgcn.isa import rows
from tilec.ir.core import Program as TileProgram
from tilec.ir.machine import Block, Immediate, Instruction, Program, Target

Body = tuple[Instruction, ...]
EXCHANGED = {"s_cmp_ge_u32": "s_cmp_lt_u32", "s_cmp_lt_u32": "s_cmp_ge_u32"}
WORK = ("vmem", "lds", "mfma", "smem")
"""Units between whose instructions it matters where a barrier or a wait stands."""


@dataclass(frozen=True)
class Mutant:
    """`kind` is 'wait deleted', 'wait weakened', 'wait moved', 'barrier deleted', 'barrier before its wait', 'barrier
    moved', 'halves exchanged', 'priority deleted', 'wait states deleted' or 'wait states shortened'; `instruction` is
    the one that was changed."""

    kind: str
    instruction: Instruction
    block: str
    program: Program

    def __str__(self) -> str:
        counts = " ".join(f"{name}({value})" for name, value in self.instruction.modifiers)
        return f"{self.kind}: {self.instruction.op} {counts} in {self.block} ({self.instruction.note})"


def mutants(program: Program) -> Iterator[Mutant]:
    """All mutants of a program in form final."""
    units = {name: row.unit for name, row in rows(program.arch).items()}
    for at, block in enumerate(program.blocks):
        after = program.blocks[at + 1].instructions if at + 1 < len(program.blocks) else ()
        for place, instruction in enumerate(block.instructions):
            for kind, body in _changes(block.instructions, place, after, units):
                blocks = (*program.blocks[:at], block.replace(instructions=body), *program.blocks[at + 1:])
                yield Mutant(kind, instruction, block.label, program.replace(blocks=blocks))


def refusal(mutant: Mutant, clustered: TileProgram | None = None) -> str:
    """The name of the static checker that finds the fault, '' where none does. (Each takes tens of milliseconds.)
    `clustered`: the tile program, for what only the structure of its clusters tells."""
    checkers: list[tuple[str, Callable[[Program], Iterator[waitcheck.Fault]]]] = [("waitcheck", waitcheck.faults)]
    if mutant.instruction.op == "s_nop":
        checkers = [("hazardcheck", hazardcheck.faults)]
    elif clustered is not None:
        checkers.append(("clustercheck", lambda program: clustercheck.faults(clustered, program)))
    return next((name for name, faults in checkers if next(faults(mutant.program), None) is not None), "")


def _changes(body: Body, place: int, following: Body, units: dict[str, str]) -> Iterator[tuple[str, Body]]:
    """Changes of the instruction at `place`, with the body that results. `following` is the next block's body."""
    instruction, before, after = body[place], body[:place], body[place + 1:]
    if instruction.op == "s_waitcnt":
        yield "wait deleted", before + after
        for name, count in instruction.modifiers:
            others = tuple(m for m in instruction.modifiers if m[0] != name)
            weaker = instruction.replace(modifiers=(*others, (name, count + 1)))
            yield "wait weakened", (*before, weaker, *after)
            if others:
                yield "wait weakened", (*before, instruction.replace(modifiers=others), *after)
        if after and after[0].op == "s_barrier":
            yield "barrier before its wait", (*before, after[0], instruction, *after[1:])
        elif (behind := _behind_consumer(after, units)) is not None:
            yield "wait moved", (*before, *after[:behind], instruction, *after[behind:])
    elif instruction.op == "s_barrier":
        yield "barrier deleted", before + after
        if instruction.modifier("half"):
            return
        down = next((i for i, other in enumerate(after) if units[other.op] in WORK), None)
        if down is not None and not any(units[other.op] in ("barrier", "branch") for other in after[:down]):
            yield "barrier moved", (*before, *after[:down + 1], instruction, *after[down + 1:])
        up = next((i for i in range(place - 1, -1, -1) if units[body[i].op] in WORK), None)
        if up is not None and not any(other.op in ("s_waitcnt", "s_barrier") for other in body[up:place]):
            yield "barrier moved", (*body[:up], instruction, *body[up:place], *after)
    elif instruction.op in EXCHANGED and following and following[0].modifier("half"):
        yield "halves exchanged", (*before, instruction.replace(op=EXCHANGED[instruction.op]), *after)
    elif instruction.op == "s_setprio":
        yield "priority deleted", before + after
    elif instruction.op == "s_nop":
        yield "wait states deleted", before + after
        count = instruction.src[0]
        assert isinstance(count, Immediate)
        if count.value:
            yield "wait states shortened", (*before, instruction.replace(src=(Immediate(count.value - 1),)), *after)


def _behind_consumer(after: Body, units: dict[str, str]) -> int | None:
    """Where the first instruction that a wait can guard ends; None where that leaves the block."""
    for place, instruction in enumerate(after):
        if units[instruction.op] not in ("wait", "pseudo"):
            return None if any(isinstance(o, Target) for o in instruction.src) else place + 1
    return None


__all__ = ["Mutant", "mutants", "refusal"]
