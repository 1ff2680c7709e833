"""Spreads what a cluster does beside its matrix instructions evenly between them.

A cluster with dots may also hold other work that does not wait for them: reads and copies for a later dot, the softmax
of the tile before. Matrix instructions keep their order, so does all the rest, and neither passes what it depends on;
within that the rest comes in equal portions. Scalar instructions (M0, say) come one matrix instruction early, where
they fill the slots that the hardware wants before what uses them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tilec.backend_amdgcn.builder import Builder
from tilec.backend_amdgcn.isa import Row
from tilec.ir.machine import Instruction, Operand, Ref, Register
from tilec.ir.tile import ClusterBegin

_CYCLES = {"vmem": 4, "lds": 4, "valu": 4, "trans": 16}
"""Issue cycles of a wave's instruction, from LLVM's scheduling model of gfx942 and gfx950. AMD claims twice the rate of
transcendentals for gfx950, which LLVM does not follow; nothing but the spacing depends on it."""


class OpenCluster:
    """A cluster that is being lowered; `close` spreads its instructions (behind its last branch)."""

    def __init__(self, begin: ClusterBegin, builder: Builder):
        self.begin, self.builder = begin, builder
        self.block, self.start = builder.block, builder.mark()

    def close(self) -> None:
        within = self.builder.block is self.block
        self.builder.append(spread(self.builder.since(self.start if within else 0), self.builder.rows))


def spread(instructions: Sequence[Instruction], rows: Mapping[str, Row]) -> list[Instruction]:
    """The same instructions, those that are no matrix instructions spread between them."""
    matrix = [i for i in instructions if rows[i.op].unit == "mfma"]
    rest = [i for i in instructions if rows[i.op].unit != "mfma"]
    if not matrix or not rest:
        return list(instructions)
    first, last = _bounds(instructions, rows)
    cycles = [_CYCLES.get(rows[i.op].unit, 0) for i in rest]
    slots: list[list[Instruction]] = [[] for _ in range(len(matrix) + 1)]
    done, place, total = 0, 0, max(1, sum(cycles))
    for number, instruction in enumerate(rest):
        early = 0 if cycles[number] else 1
        wanted = done * len(matrix) // total - early
        place = min(max(place, wanted, first[number]), last[number])
        slots[place].append(instruction)
        done += cycles[number]
    merged: list[Instruction] = []
    for slot, instruction in zip(slots, matrix):
        merged += [*slot, instruction]
    return merged + slots[-1]


def _bounds(instructions: Sequence[Instruction], rows: Mapping[str, Row]) -> tuple[list[int], list[int]]:
    """For each of the rest: behind how many matrix instructions it must stand, and behind how many it may."""
    first: list[int] = []
    needed: list[int] = []                      # the first matrix instruction that needs it; -1: none
    writes: dict[Register, int] = {}            # the last matrix instruction, as a count, that writes a register
    uses: dict[Register, int] = {}              # or reads or writes it
    written: dict[Register, int] = {}           # the last of the rest that writes a register
    used: dict[Register, int] = {}
    count = 0
    for instruction in instructions:
        sources, results = set(_registers(instruction.src)), set(_registers(instruction.dst))
        if rows[instruction.op].unit == "mfma":
            for number in {*(written.get(r, -1) for r in sources), *(used.get(r, -1) for r in results)} - {-1}:
                needed[number] = count if needed[number] < 0 else needed[number]
            count += 1
            writes.update(dict.fromkeys(results, count))
            uses.update(dict.fromkeys(sources | results, count))
        else:
            first.append(max([0, *(writes.get(r, 0) for r in sources), *(uses.get(r, 0) for r in results)]))
            written.update(dict.fromkeys(results, len(needed)))
            used.update(dict.fromkeys(sources | results, len(needed)))
            needed.append(-1)
    last = [number if number >= 0 else count for number in needed]
    for number in reversed(range(len(last) - 1)):       # the rest keeps its order
        last[number] = min(last[number], last[number + 1])
    return first, last


def _registers(operands: Iterable[Operand]) -> Iterable[Register]:
    return (o.register for o in operands if isinstance(o, Ref))
