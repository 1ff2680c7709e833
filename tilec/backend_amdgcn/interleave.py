"""Spreads the memory instructions of a mixed cluster between its matrix instructions.

Needs two streams that do not depend on each other: the dots use what earlier clusters read. Each keeps its order;
memory instructions come evenly between MFMAs, the scalar instructions that one needs (M0, say) one MFMA earlier, where
they fill the slots that the hardware wants between them.
"""

from __future__ import annotations

from tilec.backend_amdgcn.builder import Builder
from tilec.ir import tile
from tilec.ir.core import Op
from tilec.ir.machine import Instruction, Ref, Register

_MEMORY = (tile.SharedRead, tile.SharedWrite, tile.AsyncCopy, tile.Load)


class Streams:
    """Collects a cluster's instructions as its ops are lowered; `close` puts them back merged."""

    def __init__(self, builder: Builder):
        self.builder, self.start = builder, builder.mark()
        self.memory: list[Instruction] = []
        self.compute: list[Instruction] = []
        self.pending: list[Instruction] = []

    def take(self, op: Op) -> None:
        """The instructions that an op has just emitted. What scalar ops emitted goes with the op that follows."""
        self.pending += self.builder.since(self.start)
        if isinstance(op, _MEMORY):
            self.memory += self.pending
            self.pending = []
        elif isinstance(op, tile.Dot):
            self.compute += self.pending
            self.pending = []

    def close(self) -> None:
        rest = self.pending + self.builder.since(self.start)
        self.builder.append([*merge(self.memory, self.compute, self.builder), *rest])


def merge(memory: list[Instruction], compute: list[Instruction], builder: Builder) -> list[Instruction]:
    """Both streams in one: the n-th of m memory instructions follows c * n / m of c matrix instructions."""
    accesses = [i for i in memory if builder.rows[i.op].unit in ("vmem", "lds")]
    if not accesses or not compute:
        return memory + compute
    slots: list[list[Instruction]] = [[] for _ in range(len(compute) + 1)]
    written: dict[Register, int] = {}  # the slot of what the memory stream itself writes
    done, spacing = 0, len(compute) / len(accesses)
    for instruction in memory:
        place = int(done * spacing)
        if builder.rows[instruction.op].unit in ("vmem", "lds"):
            done += 1
        else:
            place = max(0, place - 1)
        registers = [o.register for o in (*instruction.src, *instruction.dst) if isinstance(o, Ref)]
        place = max([place, *(written[register] for register in registers if register in written)])
        written.update({o.register: place for o in instruction.dst if isinstance(o, Ref)})
        slots[place].append(instruction)
    merged: list[Instruction] = []
    for place, instruction in enumerate(compute):
        merged += [*slots[place], instruction]
    return merged + slots[-1]
