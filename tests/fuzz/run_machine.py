"""Runs a machine program, virtual or allocated, on made-up values: an instruction computes a checksum of what it reads.

Two programs that hand the same values to the same instructions leave the same trace. Moves, EXEC and branches mean what
they mean on the hardware, on a wave of four lanes; all else is opaque.
"""

from __future__ import annotations

import zlib

from tilec.backend_amdgcn.isa import Row, rows
from tilec.ir.machine import (
    EXEC,
    Immediate,
    Instruction,
    Operand,
    Physical,
    Program,
    Ref,
    Register,
    Target,
    successors,
)

LANES = 4
FULL = (1 << LANES) - 1
MOVES = {"copy", "s_mov_b32", "s_mov_b64",
         "v_mov_b32", "v_accvgpr_read_b32", "v_accvgpr_write_b32", "v_accvgpr_mov_b32"}

_GARBAGE = (0xBAD,) * LANES

Name = tuple[Register | str, int]
Lanes = tuple[int, ...]
"""The value of a dword in each lane; of a scalar, the same number in all."""


def trace(program: Program, steps: int = 600) -> list[tuple[str, tuple[object, ...]]]:
    """What each instruction that is no move read, in order, for at most so many of them."""
    return _Machine(program).run(steps)


def checksum(*parts: object) -> int:
    return zlib.crc32(repr(parts).encode())


class _Machine:
    def __init__(self, program: Program):
        self.program = program
        self.table = rows(program.arch)
        self.values: dict[Name, Lanes] = {("s", k): (checksum(k),) * LANES for k in range(3)}
        self.values["v", 0] = tuple(range(LANES))
        self.exec = FULL
        self.log: list[tuple[str, tuple[object, ...]]] = []

    def run(self, steps: int) -> list[tuple[str, tuple[object, ...]]]:
        blocks = {block.label: block for block in self.program.blocks}
        following = successors(self.program)
        label = self.program.blocks[0].label
        while len(self.log) < steps:
            goto = None
            for instruction in blocks[label].instructions:
                if instruction.op == "s_endpgm":
                    return self.log
                goto = self.step(instruction)
                if goto:
                    break
            label = goto or following[label][-1]
        return self.log

    def step(self, instruction: Instruction) -> str | None:
        row = self.table[instruction.op]
        if instruction.op in MOVES:
            self.move(instruction)
        elif row.unit == "branch":
            return self.branch(instruction)
        elif instruction.op == "s_mov_exec":
            self.exec = self.read(instruction.src[0])[0][0] & FULL
        elif instruction.op == "s_and_saveexec_b64":
            mask = self.read(instruction.src[0])[0][0]
            self.write(instruction.dst[0], [(self.exec,) * LANES, (0,) * LANES], FULL)
            self.exec &= mask
        else:
            self.compute(instruction, row)
        return None

    def branch(self, instruction: Instruction) -> str | None:
        target = next(o.label for o in instruction.src if isinstance(o, Target))
        scc = self.values.get(("scc", 0), (0,))[0] & 1
        taken = {"s_branch": True, "s_cbranch_scc0": not scc, "s_cbranch_scc1": scc,
                 "s_cbranch_execz": not self.exec}[instruction.op]
        return target if taken else None

    def move(self, instruction: Instruction) -> None:
        dst, src = instruction.dst[0], instruction.src[0]
        assert isinstance(dst, (Ref, Physical))
        if isinstance(src, Immediate):
            values = [(src.value & 0xFFFFFFFF,) * LANES] * dst.size
        else:
            values = self.read(src)
        self.write(dst, values, self.exec)

    def compute(self, instruction: Instruction, row: Row) -> None:
        """Each lane sees its own dwords of vectors, and scalars; a matrix instruction sees all lanes."""
        everything = row.unit == "mfma"
        lanes = FULL if everything else self.exec
        kept = instruction.dst if "keeps" in row.flags else ()
        seen: list[list[object]] = [[instruction.modifiers] for _ in range(LANES)]
        for operand in (*instruction.src, *kept, *(r for r in row.implicit_reads if r != EXEC)):
            for value in self.read(operand):
                for lane in range(LANES):
                    seen[lane].append(value if everything else value[lane])
        active = [s for lane, s in enumerate(seen) if lanes >> lane & 1]
        self.log.append((instruction.op, tuple(map(repr, active))))
        for n, operand in enumerate((*instruction.dst, *row.implicit_writes)):
            if operand == EXEC:
                continue
            vector = self.is_vector(operand)
            for k, name in enumerate(self.names(operand)):
                results = tuple(checksum(instruction.op, n, k, s if vector else active) for s in seen)
                self.write_dword(name, results, lanes if vector else FULL)

    def is_vector(self, operand: Operand) -> bool:
        return isinstance(operand, (Ref, Physical)) and operand.kind in ("v", "a", "va")

    def names(self, operand: Operand) -> list[Name]:
        assert isinstance(operand, (Ref, Physical))
        owner, first = (operand.register, operand.start) if isinstance(operand, Ref) else (operand.file, operand.index)
        return [(owner, first + k) for k in range(operand.size)]

    def read(self, operand: Operand) -> list[Lanes]:
        if isinstance(operand, Immediate):
            return [(operand.value,) * LANES]
        return [self.values.get(name, _GARBAGE) for name in self.names(operand)]

    def write(self, operand: Operand, values: list[Lanes], lanes: int) -> None:
        for name, value in zip(self.names(operand), values, strict=True):
            self.write_dword(name, value, lanes if self.is_vector(operand) else FULL)

    def write_dword(self, name: Name, value: Lanes, lanes: int) -> None:
        old = self.values.get(name, _GARBAGE)
        self.values[name] = tuple(v if lanes >> i & 1 else o for i, (v, o) in enumerate(zip(value, old)))
