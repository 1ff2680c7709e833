"""Copies through new registers, so that every operand can stand where its instruction wants it.

Four misfits are mended: an operand in the wrong file (an AGPR where VALU reads), a part of a tuple at an odd place
that no placement of the whole can make even, a destination tied to a source that is another register, a literal on its
way to an AGPR (`v_accvgpr_write_b32` takes inline constants only). Programs that fit, most of them, are returned as
they are.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NoReturn

from tilec.backend_amdgcn.budget import FILE_NAMES
from tilec.backend_amdgcn.isa import Row, Spec, is_inline
from tilec.backend_amdgcn.liveness import NOTHING, Scan
from tilec.errors import InternalError, TilecError
from tilec.ir.machine import EXEC, Immediate, Instruction, Operand, Physical, Program, Ref, Register

Files = dict[Register, str]
"""The hardware file of each register: 's', 'v' or 'a'."""

_CLOSELY = 32
"""For how many instructions a copy of an operand is kept: shared copies are few moves, but registers too."""

ACCEPTS = {"v": "v", "x": "vs", "a": "a", "w": "va", "f": "va", "s": "s", "c": "s", "m": "s"}
"""Files that an operand code of isa.py takes."""


@dataclass(frozen=True)
class Demand:
    """Where a register must start: at `residue` modulo `modulus`."""

    modulus: int
    residue: int


def demands(scan: Scan, files: Files) -> tuple[dict[Register, Demand], set[int]]:
    """Where each register must start for its tuple operands to be aligned, and the operands for which it then is not.

VGPR and AGPR tuples start even; SGPR pairs start even, longer ones at a multiple of four (as LLVM's assembler
demands).
    """
    wanted: dict[int, int] = {}
    for (number, code), depth in scan.uses.items():
        operand = scan.operands[number]
        if code and operand.size > 1 and isinstance(operand, Ref):
            wanted[number] = max(wanted.get(number, 0), depth)
    result: dict[Register, Demand] = {}
    refused: set[int] = set()
    for number in sorted(wanted, key=lambda n: (-wanted[n], -scan.operands[n].size)):
        operand = scan.operands[number]
        assert isinstance(operand, Ref)
        register = operand.register
        modulus = 4 if files[register] == "s" and operand.size > 2 else 2
        demand, known = Demand(modulus, -operand.start % modulus), result.get(register)
        if known and not _agree(known, demand):
            refused.add(number)
        elif known is None or modulus > known.modulus:
            result[register] = demand
    return result, refused


def _agree(a: Demand, b: Demand) -> bool:
    return (a.residue - b.residue) % min(a.modulus, b.modulus) == 0


def ties(row: Row) -> range:
    """The destinations that must be the same registers as the source at their place."""
    return range(1 if "tied" in row.flags else 2 if "swap" in row.flags else 0)


def fit_operands(scan: Scan, files: Files) -> tuple[Program, Files]:
    """The program with its misfits mended, and the files with those of the new registers. Raises TilecError where a pin
    would cost moves in a loop, InternalError where no copy helps."""
    _, misaligned = demands(scan, files)
    misfits: set[tuple[int, str]] = set()
    for (number, code), depth in scan.uses.items():
        operand = scan.operands[number]
        if code in ("", "t") or not isinstance(operand, Ref):
            continue
        file, accepted = files[operand.register], ACCEPTS.get(code, "")
        if file not in accepted:
            if not accepted or file != "s" and accepted == "s":
                raise InternalError(f"{operand.register.name or 'a register'} of kind {operand.kind!r} stands where "
                                    f"{code!r} is asked for", where=operand.register.where)
            if operand.register.pin and depth > 0:
                _refuse_pin(scan, operand.register, operand.register)
            misfits.add((number, code))
        elif number in misaligned:
            misfits.add((number, code))
    _check_pinned_copies(scan, files)
    fitter = _Fitter(scan, dict(files), misfits)
    unfit = {i for i in range(len(scan.accesses)) if fitter.concerns(i)}
    if not unfit:
        return scan.program, files
    blocks, number = [], 0
    for block in scan.program.blocks:
        instructions: list[Instruction] = []
        for instruction in block.instructions:
            instructions += fitter.fit(number) if number in unfit else (instruction,)
            fitter.forget(number)
            number += 1
        blocks.append(block.replace(instructions=tuple(instructions)))
        fitter.stand_ins.clear()
    return scan.program.replace(blocks=tuple(blocks)), fitter.files


def _check_pinned_copies(scan: Scan, files: Files) -> None:
    """Refuses a pin for which a copy in a loop would move between the files."""
    for (instruction, row, _, _), depth in zip(scan.accesses, scan.depths):
        if row.name == "copy" and depth:
            ends = [o.register for o in (*instruction.dst, *instruction.src) if isinstance(o, Ref)]
            for register, other in (ends, ends[::-1]) if len(ends) == 2 else ():
                if register.pin and register.kind == "va" and {files[register], files[other]} == {"v", "a"}:
                    _refuse_pin(scan, register, other)


def _refuse_pin(scan: Scan, register: Register, user: Register) -> NoReturn:
    """`user` is what stands in the instruction that can't name the pin's file: the pinned register, or one that it is
    copied from or to."""
    assert register.pin
    name, file = register.name or "this tile", FILE_NAMES[register.pin[0]]
    instruction = next((i for (i, row, _, _), depth in zip(scan.accesses, scan.depths) if depth and row.name != "copy"
                        for o, spec in (*zip(i.dst, row.dst), *zip(i.src, row.src)) if isinstance(o, Ref)
                        and o.register is user and register.pin[0] not in ACCEPTS[spec.code]), None)
    if instruction is None:
        raise TilecError(f"{name} is pinned to {file}, and a loop copies it from or to {user.name or 'another tile'}, "
                         f"which is in the other file", where=register.where,
                         limit="no loop moves tiles between VGPRs and AGPRs", fix="pin both to one file, or neither")
    raise TilecError(f"{name} is pinned to {file}, which {instruction.op} in a loop cannot name",
                     where=instruction.where or register.where,
                     limit="ordinary vector instructions read and write VGPRs only",
                     fix="pin it to VGPRs, or leave the choice to the compiler")


@dataclass
class _Fitter:
    """Mends single instructions; `files` grows by the new registers. `stand_ins` holds the copy of an operand in a
    file, with the instruction that it was made for: those that follow closely read it too."""

    scan: Scan
    files: Files
    misfits: set[tuple[int, str]]
    stand_ins: dict[tuple[Operand, str], tuple[Ref, int]] = field(default_factory=dict)

    def concerns(self, number: int) -> bool:
        instruction, row, dst, src = self.scan.accesses[number]
        if row.name == "copy":
            return self._needs_carrier(instruction)
        if self.misfits:
            for n, spec in (*zip(dst, row.dst), *zip(src, row.src)):
                if (n, spec.code) in self.misfits:
                    return True
        if row.unit == "mfma":
            return src[2] not in (NOTHING, dst[0]) and self._file(instruction.src[2]) != self._file(instruction.dst[0])
        return bool(row.flags) and any(dst[k] != src[k] for k in ties(row))

    def fit(self, number: int) -> list[Instruction]:
        instruction, row, dst, src = self.scan.accesses[number]
        if row.name == "copy":
            return self._carry(instruction)
        destinations, sources = list(instruction.dst), list(instruction.src)
        before: list[Instruction] = []
        after: list[Instruction] = []

        def copy(to: Operand, source: Operand) -> Instruction:
            return Instruction("copy", (to,), (source,), where=instruction.where, note=instruction.note)

        for k, spec in enumerate(row.src):
            operand = sources[k]
            file = self._file_for(operand, spec) if (src[k], spec.code) in self.misfits else ""
            if row.unit == "mfma" and k == 2 and self._file(operand) not in ("", self._file(destinations[0])):
                file = self._file(destinations[0])          # C goes where D is
            if file:
                known, made = self.stand_ins.get((operand, file), (None, number))
                if known is None or number - made > _CLOSELY:
                    known = self._new(operand, file)
                    self.stand_ins[operand, file] = known, number
                    before.append(copy(known, operand))
                sources[k] = known
        for k, spec in enumerate(row.dst):
            operand = destinations[k]
            tied = k in ties(row)
            if (dst[k], spec.code) in self.misfits or tied and destinations[k] != sources[k]:
                destinations[k] = self._new(operand, self._file_for(operand, spec))
                if tied:
                    before.append(copy(destinations[k], sources[k]))
                    sources[k] = destinations[k]
                elif "keeps" in row.flags:
                    before.append(copy(destinations[k], operand))
                after.append(copy(operand, destinations[k]))
        return [*before, instruction.replace(dst=tuple(destinations), src=tuple(sources)), *after]

    def forget(self, number: int) -> None:
        """Drops the stand-ins that an instruction makes stale: of what it writes; all, if it changes EXEC, since they
        were copied for the lanes of before."""
        if self.stand_ins:
            instruction, row, _, _ = self.scan.accesses[number]
            written = {o.register for o in instruction.dst if isinstance(o, Ref)}
            everything = EXEC in row.implicit_writes
            self.stand_ins = {key: made for key, made in self.stand_ins.items() if not everything
                              and not (isinstance(key[0], Ref) and key[0].register in written)}

    def _new(self, operand: Operand, file: str) -> Ref:
        """A register to stand in for an operand."""
        assert isinstance(operand, (Ref, Physical))
        origin = operand.register if isinstance(operand, Ref) else Register(file)
        register = Register(file, operand.size, origin.name, origin.where)
        self.files[register] = file
        return Ref(register, 0, operand.size)

    def _file_for(self, operand: Operand, spec: Spec) -> str:
        """The file of a stand-in: the operand's own if it may stand there."""
        own, accepted = self._file(operand), ACCEPTS[spec.code]
        return own if own and own in accepted else accepted[0]

    def _file(self, operand: Operand) -> str:
        if isinstance(operand, Ref):
            return self.files[operand.register]
        return operand.file if isinstance(operand, Physical) else ""

    def _needs_carrier(self, copy: Instruction) -> bool:
        source = copy.src[0]
        return isinstance(source, Immediate) and not is_inline(source.value) and self._file(copy.dst[0]) == "a"

    def _carry(self, copy: Instruction) -> list[Instruction]:
        """A literal through a VGPR to every dword of an AGPR tuple."""
        target = copy.dst[0]
        assert isinstance(target, Ref)
        carrier = self._new(target[0], "v")
        dwords = [copy.replace(dst=(target[k],), src=(carrier,)) for k in range(target.size)]
        return [copy.replace(dst=(carrier,)), *dwords]
