"""Which file each register goes to, and the copies that make every operand fit its instruction.

Ordinary VALU instructions cannot name AGPRs; matrix instructions take A and B from either file, C and D from one; memory
instructions take data of either. 'va' registers go to VGPRs while these suffice, since the two files share one budget. Over 256,
accumulators and the like move to AGPRs in clusters that are linked by matrix instructions and copies. A cluster that would need
`v_accvgpr` moves is cut at copies and VALU uses outside all loops first, then one loop further in at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tilec.backend_amdgcn.isa import is_inline
from tilec.backend_amdgcn.liveness import NOTHING, Liveness, Scan
from tilec.errors import InternalError, TilecError
from tilec.ir.machine import Immediate, Instruction, Operand, Physical, Program, Ref, Register

Files = dict[Register, str]

_ONLY = {"v": "v", "x": "v", "a": "a"}
"""Spec codes that a vector register must meet with one file."""
_ACCEPTS = {"v": "v", "x": "vs", "a": "a", "w": "va", "f": "va", "s": "s", "c": "s", "m": "s"}
"""Files that a spec code takes."""


@dataclass(frozen=True)
class Demand:
    """Where a register must start: at `residue` modulo `modulus`."""

    modulus: int
    residue: int


def choose_files(scan: Scan, live: Liveness, limit_v: int, limit_total: int, limit_a: int) -> Iterator[Files]:
    """Choices of file, the best first. Registers of kind 'va' move to AGPRs only where the VGPRs can't hold the peak."""
    choice = _Choice(scan, live)
    yield choice.files(set())
    if limit_total <= limit_v:                              # AGPRs count against the same total: nothing to gain
        return
    deepest = max(scan.depths, default=0)
    for level in range(deepest + 2):
        moved: set[Register] = set()
        clusters = choice.clusters(level)
        for cluster in clusters:
            files = choice.files(moved | cluster)
            if choice.peak(files, "a") > limit_a:
                continue
            moved |= cluster
            if choice.peak(files, "v") <= limit_v:
                yield files


class _Choice:
    def __init__(self, scan: Scan, live: Liveness):
        self.scan, self.live = scan, live
        self.valu_depth: dict[Register, int] = {}           # deepest use that can't name an AGPR
        forced: Files = {}
        for (number, code), depth in scan.uses.items():
            only = _ONLY.get(code)
            operand = scan.operands[number]
            if only is None or not isinstance(operand, Ref) or operand.register.kind != "va":
                continue
            if only == "v":
                self.valu_depth[operand.register] = max(depth, self.valu_depth.get(operand.register, -1))
            else:
                forced[operand.register] = "a"
        for register in scan.registers:
            if register.pin and register.kind == "va":
                forced[register] = register.pin[0]
        self.matrix = [(d, s) for d, s in _accumulators(scan)]
        changed = True
        while changed:                                      # C and D of a matrix instruction share a file
            changed = False
            for d, s in self.matrix:
                for one, other in ((d, s), (s, d)):
                    file = forced.get(one) if one.kind == "va" else one.kind
                    if other.kind == "va" and file and other not in forced:
                        forced[other] = file
                        changed = True
        self.forced = forced

    def files(self, moved: set[Register]) -> Files:
        return {r: "a" if r in moved else self.forced.get(r, "v") if r.kind == "va" else r.kind for r in self.scan.registers}

    def clusters(self, level: int) -> list[set[Register]]:
        """Sets of registers that may move to AGPRs with moves in less than `level` loops only; those that relieve most first."""
        leader: dict[Register, Register] = {}

        def find(register: Register) -> Register:
            while register in leader:
                register = leader[register]
            return register

        def join(a: Register, b: Register) -> None:
            if find(a) is not find(b):
                leader[find(a)] = find(b)

        stuck = {r for r, depth in self.valu_depth.items() if depth >= level} | {r for r in self.forced if self.forced[r] == "v"}
        for d, s in self.matrix:
            join(d, s)
        for (_, row, dst, src), depth in zip(self.scan.accesses, self.scan.depths):
            if row.unit == "pseudo" and depth >= level and dst and dst[0] != NOTHING and src[0] != NOTHING:
                d, s = self.scan.operands[dst[0]], self.scan.operands[src[0]]
                if isinstance(d, Ref) and isinstance(s, Ref) and "s" not in (d.kind, s.kind):
                    join(d.register, s.register)
        found: dict[Register, set[Register]] = {}
        for register in self.scan.registers:
            if register.kind in ("v", "va"):
                found.setdefault(find(register), set()).add(register)
        movable = [members for members in found.values()
                   if all(r.kind == "va" and r not in stuck and self.forced.get(r) != "a" for r in members)]
        return sorted(movable, key=lambda members: -sum(map(self._dword_points, members)))

    def _dword_points(self, register: Register) -> int:
        first, starts = self.live.first[register], (*self.live.starts[register], register.size)
        return sum((end - start) * self.live.masks[first + k].bit_count() for k, (start, end) in enumerate(zip(starts, starts[1:])))

    def peak(self, files: Files, file: str) -> int:
        return max(pressure(self.live, (r for r in self.scan.registers if files[r] == file)), default=0)


def pressure(live: Liveness, registers: Iterator[Register]) -> list[int]:
    """Live dwords of these registers at every point."""
    change = [0] * (live.points + 1)
    for register in registers:
        first, starts = live.first[register], (*live.starts[register], register.size)
        for k in range(len(starts) - 1):
            size = starts[k + 1] - starts[k]
            for begin, last in live.segments[first + k]:
                change[begin] += size
                change[last + 1] -= size
    total, result = 0, []
    for step in change[:-1]:
        total += step
        result.append(total)
    return result


def _accumulators(scan: Scan) -> Iterator[tuple[Register, Register]]:
    """D and C of every matrix instruction, where both are registers of the program."""
    for _, row, dst, src in scan.accesses:
        if row.unit == "mfma" and dst[0] != NOTHING and src[2] != NOTHING:
            d, c = scan.operands[dst[0]], scan.operands[src[2]]
            if isinstance(d, Ref) and isinstance(c, Ref) and d.register is not c.register:
                yield d.register, c.register


def demands(scan: Scan, files: Files) -> tuple[dict[Register, Demand], set[int]]:
    """Where each register must start for its tuple operands to be aligned, and the operands that can't be satisfied so.

    VGPR and AGPR tuples start even; SGPR pairs start even, longer ones at a multiple of four (tried with LLVM's assembler).
    """
    wanted: dict[int, int] = {}
    for (number, code), depth in scan.uses.items():
        operand = scan.operands[number]
        if code and isinstance(operand, Ref) and operand.size > 1:
            wanted[number] = max(wanted.get(number, 0), depth)
    result: dict[Register, Demand] = {}
    refused: set[int] = set()
    for number in sorted(wanted, key=lambda n: (-wanted[n], -scan.operands[n].size)):
        operand = scan.operands[number]
        assert isinstance(operand, Ref)
        register = operand.register
        modulus = 4 if files[register] == "s" and operand.size > 2 else 2
        residue = -operand.start % modulus
        known = result.get(register)
        if register.pin and (register.pin[1] - residue) % modulus or known and (residue - known.residue) % min(modulus, known.modulus):
            refused.add(number)
        elif known is None or modulus > known.modulus:
            result[register] = Demand(modulus, residue)
    return result, refused


def fit_operands(scan: Scan, files: Files) -> tuple[Program, Files]:
    """The program with copies to and from new registers where an operand does not fit its instruction: a tie between different
    registers, an AGPR where a VGPR must stand, a misaligned part of a tuple, a literal on its way to an AGPR. Raises TilecError
    where a pin is at fault in a loop, InternalError where nothing helps. The same program if all fits."""
    _, misaligned = demands(scan, files)
    unfit: set[tuple[int, str]] = set()
    for (number, code), depth in scan.uses.items():
        operand = scan.operands[number]
        if isinstance(operand, Ref) and code and code != "t":
            if number in misaligned:
                unfit.add((number, code))
            elif files[operand.register] not in _ACCEPTS.get(code, ""):
                _check_movable(operand.register, files[operand.register], code, depth, scan)
                unfit.add((number, code))
    fitter = _Fitter(scan, files, unfit)
    needy = [i for i, access in enumerate(scan.accesses) if fitter.concerns(access)]
    if not needy:
        return scan.program, files
    concerned, number, blocks = set(needy), 0, []
    for block in scan.program.blocks:
        instructions: list[Instruction] = []
        for instruction in block.instructions:
            instructions += fitter.fit(number) if number in concerned else (instruction,)
            number += 1
        blocks.append(block.replace(instructions=tuple(instructions)))
    return scan.program.replace(blocks=tuple(blocks)), fitter.files


def _check_movable(register: Register, file: str, code: str, depth: int, scan: Scan) -> None:
    """A pin may cost moves outside loops; in a loop it is refused."""
    accepted = _ACCEPTS.get(code, "")
    if not accepted or file != "s" and accepted == "s":
        raise InternalError(f"{register.name or 'a register'} of kind {register.kind!r} stands where {code!r} is asked for",
                            where=register.where)
    if register.pin and depth > 0:
        op = next((i.op for i, row, dst, src in scan.accesses for o in (*i.dst, *i.src)
                   if isinstance(o, Ref) and o.register is register and row.unit in ("valu", "trans")), "an instruction")
        raise TilecError(f"{register.name or 'this tile'} is pinned to {_FILE_NAMES[file]}, which {op} cannot name",
                         where=register.where, limit="ordinary vector instructions read and write VGPRs only",
                         fix="pin it to VGPRs, or leave the choice to the compiler")


_FILE_NAMES = {"v": "VGPRs", "a": "AGPRs", "s": "SGPRs"}


class _Fitter:
    """Rewrites single instructions; `files` grows by the new registers."""

    def __init__(self, scan: Scan, files: Files, unfit: set[tuple[int, str]]):
        self.scan, self.unfit, self.files = scan, unfit, dict(files)

    def concerns(self, access: tuple) -> bool:
        instruction, row, dst, src = access
        if row.unit == "pseudo":
            return bool(dst) and dst[0] != NOTHING and self._needs_carrier(instruction)
        if self.unfit and any((n, spec.code) in self.unfit for n, spec in (*zip(dst, row.dst), *zip(src, row.src))):
            return True
        if row.unit == "mfma":
            return dst[0] != src[2] != NOTHING and self._file(instruction.dst[0]) != self._file(instruction.src[2])
        return any(d != s for d, s in _ties(row.flags, dst, src))

    def fit(self, number: int) -> list[Instruction]:
        instruction, row, dst, src = self.scan.accesses[number]
        if row.unit == "pseudo":
            return self._carry(instruction)
        before: list[Instruction] = []
        after: list[Instruction] = []
        new: dict[Operand, Ref] = {}

        def copy(to: Operand, source: Operand) -> Instruction:
            return Instruction("copy", (to,), (source,), where=instruction.where, note=instruction.note)

        def stand_in(operand: Operand, file: str) -> Ref:
            assert isinstance(operand, (Ref, Physical))
            if operand not in new:
                origin = operand.register if isinstance(operand, Ref) else Register(file)
                new[operand] = Ref(self.register(file, operand.size, origin), 0, operand.size)
            return new[operand]

        sources, destinations = list(instruction.src), list(instruction.dst)
        for k, spec in enumerate(row.src):
            if (src[k], spec.code) in self.unfit:
                operand = sources[k]
                sources[k] = stand_in(operand, self._wanted(operand, spec.code))
                before.append(copy(sources[k], operand))
        for k, spec in enumerate(row.dst):
            if (dst[k], spec.code) in self.unfit:
                operand = destinations[k]
                destinations[k] = stand_in(operand, self._wanted(operand, spec.code))
                if "keeps" in row.flags:
                    before.append(copy(destinations[k], operand))
                after.append(copy(operand, destinations[k]))
        if row.unit == "mfma" and isinstance(sources[2], (Ref, Physical)):
            file = self._file(destinations[0])
            if file != self._file(sources[2]):
                held = stand_in(sources[2], file)
                before.append(copy(held, sources[2]))
                sources[2] = held
        if any(d != s for d, s in _ties(row.flags, destinations, sources)):
            self._tie(row.flags, destinations, sources, before, after, copy)
        return [*before, instruction.replace(dst=tuple(destinations), src=tuple(sources)), *after]

    def _tie(self, flags: frozenset[str], destinations: list[Operand], sources: list[Operand], before: list[Instruction],
             after: list[Instruction], copy: object) -> None:
        """Ties through new registers, so that neither source is lost nor another operand overwritten."""
        assert callable(copy)
        for k, (d, s) in enumerate(_ties(flags, destinations, sources)):
            if d != s:
                assert isinstance(d, (Ref, Physical))
                origin = d.register if isinstance(d, Ref) else Register(d.file)
                held = Ref(self.register(self._file(d), d.size, origin), 0, d.size)
                before.append(copy(held, s))
                after.append(copy(d, held))
                destinations[k] = sources[k] = held

    def register(self, file: str, size: int, origin: Register) -> Register:
        result = Register(file, size, origin.name, origin.where)
        self.files[result] = file
        return result

    def _file(self, operand: Operand) -> str:
        return self.files[operand.register] if isinstance(operand, Ref) else operand.file if isinstance(operand, Physical) else ""

    def _wanted(self, operand: Operand, code: str) -> str:
        """The file of a stand-in: the operand's own if the code takes it."""
        own = self._file(operand)
        return own if own in _ACCEPTS[code] else _ACCEPTS[code][0]

    def _needs_carrier(self, copy: Instruction) -> bool:
        source = copy.src[0]
        return isinstance(source, Immediate) and not is_inline(source.value) and self._file(copy.dst[0]) == "a"

    def _carry(self, copy: Instruction) -> list[Instruction]:
        """v_accvgpr_write takes no literal: it goes through a VGPR."""
        dst = copy.dst[0]
        assert isinstance(dst, (Ref, Physical))
        carrier = Ref(self.register("v", 1, dst.register if isinstance(dst, Ref) else Register("v")))
        result = [copy.replace(dst=(carrier,))]
        return result + [copy.replace(dst=(dst[k:k + 1],), src=(carrier,)) for k in range(dst.size)]


def _ties(flags: frozenset[str], dst: object, src: object) -> list[tuple]:
    """Pairs (destination, source) that must be the same registers."""
    count = 1 if "tied" in flags else 2 if "swap" in flags else 0
    return list(zip(dst, src))[:count] if count else []  # type: ignore[call-overload]
