"""Breaks the synchronisation of a finished machine program in one place: waits, barriers, wait states.

Each mutant is a program that the static checkers or the emulator must refuse. `survivors` runs the static checkers;
what they can't decide (accesses to LDS whose slot is known at run time only) the caller leaves to the emulator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tilec.backend_amdgcn import hazardcheck, waitcheck
from tilec.ir.machine import Block, Immediate, Instruction, Program, Target

Detector = Callable[[Program], bool]


@dataclass(frozen=True)
class Mutant:
    """`kind` is 'wait deleted', 'wait weakened', 'wait moved', 'barrier deleted', 'barrier before its wait',
    'wait states deleted' or 'wait states shortened'; `instruction` is the one that was changed."""

    kind: str
    instruction: Instruction
    block: str
    program: Program

    def __str__(self) -> str:
        counts = " ".join(f"{name}({value})" for name, value in self.instruction.modifiers)
        return f"{self.kind}: {self.instruction.op} {counts} in {self.block} ({self.instruction.note})"


def mutants(program: Program) -> Iterator[Mutant]:
    """All mutants of a program in form final."""
    for at, block in enumerate(program.blocks):
        for place, instruction in enumerate(block.instructions):
            for kind, body in _changes(block, place):
                blocks = (*program.blocks[:at], block.replace(instructions=body), *program.blocks[at + 1:])
                yield Mutant(kind, instruction, block.label, program.replace(blocks=blocks))


def survivors(program: Program, detects: Detector | None = None) -> tuple[int, list[Mutant]]:
    """How many mutants there are, and those that neither the static checkers nor `detects` refuse."""
    found = list(mutants(program))
    return len(found), [m for m in found if not (refused(m) or detects and detects(m.program))]


def refused(mutant: Mutant) -> bool:
    """Whether the static checker in charge of such a fault finds it. (Each check takes tens of milliseconds.)"""
    checker = hazardcheck if mutant.instruction.op == "s_nop" else waitcheck
    return next(checker.faults(mutant.program), None) is not None


def _behind_consumer(after: tuple[Instruction, ...]) -> int | None:
    """Where the first instruction that a wait can guard ends; None where that leaves the block."""
    for place, instruction in enumerate(after):
        if instruction.op not in ("s_nop", "token"):
            return None if any(isinstance(o, Target) for o in instruction.src) else place + 1
    return None


def _changes(block: Block, place: int) -> Iterator[tuple[str, tuple[Instruction, ...]]]:
    body, instruction = block.instructions, block.instructions[place]
    before, after = body[:place], body[place + 1:]
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
        elif (behind := _behind_consumer(after)) is not None:
            yield "wait moved", (*before, *after[:behind], instruction, *after[behind:])
    elif instruction.op == "s_barrier":
        yield "barrier deleted", before + after
    elif instruction.op == "s_nop":
        yield "wait states deleted", before + after
        count = instruction.src[0]
        assert isinstance(count, Immediate)
        if count.value:
            yield "wait states shortened", (*before, instruction.replace(src=(Immediate(count.value - 1),)), *after)
