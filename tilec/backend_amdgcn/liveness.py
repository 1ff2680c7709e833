"""Where each dword of each register is live, exactly.

Instruction i (blocks in order) has two points: it reads at 2i and writes at 2i+1. A dword is live at a point when what
it holds may still be read and may have been written; a written dword is live at its write point even if nobody reads
it. An early-clobber destination is live at 2i too. So two dwords may share a hardware register exactly when their masks
(ints, bit p = point p) are disjoint. Dwords that every operand names together form one *atom*, the unit of the
bookkeeping. A Physical operand of the virtual program (what arrives at entry) counts as a register that is pinned to
where it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache

from tilec.backend_amdgcn.exec_mask import ALL_LANES, State, covers, lanes_of, reads_all_lanes
from tilec.backend_amdgcn.isa import Row, rows
from tilec.ir.machine import Instruction, Operand, Physical, Program, Ref, Register, successors

NOTHING = -1
"""Operand number of what takes no register of the three files: immediates, labels, tokens, VCC, EXEC, SCC, M0."""

Access = tuple[Instruction, Row, tuple[int, ...], tuple[int, ...]]
"""An instruction with its row and the operand numbers of its destinations and sources."""


@dataclass
class Scan:
    """The operands of a program, numbered. `depths`: loops around each instruction. `uses` maps (operand number, spec
    code) to the greatest loop depth of such a use; code '' is a `copy`. `fixed` holds the stand-in of each hardware
    register that the program names."""

    program: Program
    accesses: list[Access] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)
    operands: list[Ref | Physical] = field(default_factory=list)
    uses: dict[tuple[int, str], int] = field(default_factory=dict)
    fixed: dict[tuple[str, int], Register] = field(default_factory=dict)
    registers: list[Register] = field(default_factory=list)

    def parts(self, number: int) -> tuple[Ref, ...]:
        """The operand as runs of registers: one, or one per dword of a Physical."""
        operand = self.operands[number]
        if isinstance(operand, Ref):
            return (operand,)
        return tuple(Ref(self.fixed[operand.file, operand.index + i]) for i in range(operand.size))


@dataclass
class Liveness:
    """`first[r]` is the number of register r's first atom, `starts[r]` where its atoms start. `masks` and `segments`
    (inclusive ranges of points) are per atom. `points` counts the program's points."""

    scan: Scan
    points: int
    starts: dict[Register, tuple[int, ...]]
    first: dict[Register, int]
    masks: list[int]
    segments: list[list[tuple[int, int]]]

    def dword_masks(self, register: Register) -> list[int]:
        """The live points of each dword of a register."""
        first, starts = self.first[register], (*self.starts[register], register.size)
        result: list[int] = []
        for k, (start, end) in enumerate(zip(starts, starts[1:])):
            result += [self.masks[first + k]] * (end - start)
        return result

    def runs(self, register: Register) -> Iterator[tuple[int, list[tuple[int, int]]]]:
        """Dwords and live segments of each atom of a register."""
        first, starts = self.first[register], (*self.starts[register], register.size)
        for k in range(len(starts) - 1):
            yield starts[k + 1] - starts[k], self.segments[first + k]


def scan_operands(program: Program) -> Scan:
    """Numbers every operand that needs a register."""
    scan = Scan(program)
    table, operands, uses = rows(program.arch), scan.operands, scan.uses
    number_of: dict[Operand, int] = {}

    def number(operand: Operand) -> int:
        found = number_of.get(operand)
        if found is None:
            found = NOTHING
            if isinstance(operand, (Ref, Physical)) and operand.kind in ("s", "v", "a", "va"):
                found = len(operands)
                operands.append(operand)
            number_of[operand] = found
        return found

    for block in program.blocks:
        depth = block.depth
        scan.depths += [depth] * len(block.instructions)
        for instruction in block.instructions:
            row = table[instruction.op]
            dst, src = tuple(map(number, instruction.dst)), tuple(map(number, instruction.src))
            scan.accesses.append((instruction, row, dst, src))
            codes = _codes(row)
            for key in zip((*dst, *src), codes if len(dst) == len(row.dst) else _padded(row, len(dst), len(src))):
                if uses.get(key, -1) < depth:
                    uses[key] = depth
    uses = {key: depth for key, depth in uses.items() if key[0] != NOTHING}
    scan.uses = uses
    for operand in operands:
        if isinstance(operand, Physical):
            for i in range(operand.index, operand.index + operand.size):
                place = operand.file, i
                scan.fixed.setdefault(place, Register(operand.file, 1, f"{operand.file}{i}", None, place))
    named = [operand.register for operand in operands if isinstance(operand, Ref)]
    scan.registers = list(dict.fromkeys([*named, *scan.fixed.values()]))
    return scan


@cache
def _codes(row: Row) -> tuple[str, ...]:
    return tuple(spec.code for spec in (*row.dst, *row.src)) if row.unit != "pseudo" else ("", "")


def _padded(row: Row, dst: int, src: int) -> tuple[str, ...]:
    """The codes of an instruction whose tokens follow its destinations."""
    codes = [spec.code for spec in row.dst] + ["t"] * (dst - len(row.dst)) + [spec.code for spec in row.src]
    return (*codes, *["t"] * (dst + src - len(codes)))


def analyse(scan: Scan) -> Liveness:
    """Live ranges of every atom, by the usual backward dataflow over blocks, cut down to what a write can reach."""
    program = scan.program
    starts = _atoms(scan)
    first: dict[Register, int] = {}
    count = 0
    for register, cuts in starts.items():
        first[register] = count
        count += len(cuts)
    spans = [_span(scan, number, starts, first) for number in range(len(scan.operands))]
    reads, writes, keeps = _accesses(scan, spans)

    bounds = _block_bounds(program)
    labels = [block.label for block in program.blocks]
    index = {label: i for i, label in enumerate(labels)}
    following = [[index[label] for label in after] for after in successors(program).values()]
    entry = 0
    for register in scan.fixed.values():
        entry |= 1 << first[register]
    live_out, live_in = _dataflow(bounds, following, reads, writes, keeps, entry)

    segments: list[list[tuple[int, int]]] = [[] for _ in range(count)]
    end = [-1] * count
    for b in range(len(labels) - 1, -1, -1):
        low, high = bounds[b]
        if low == high:
            continue
        for atom in _bits(live_out[b]):
            end[atom] = 2 * high - 1
        for i in range(high - 1, low - 1, -1):
            kept, early = keeps[i], scan.accesses[i][1].flags
            point = 2 * i + 1
            for atom in writes[i]:
                last = end[atom]
                if not kept or atom not in kept:
                    segments[atom].append((point - 1 if "early" in early else point, last if last > 0 else point))
                    end[atom] = -1
                elif last < 0:
                    end[atom] = point
            for atom in reads[i]:
                if end[atom] < 0:
                    end[atom] = point - 1
            for atom in kept:
                if end[atom] < 0:
                    end[atom] = point - 1
        for b_atom in range(count):
            if end[b_atom] >= 0:
                if live_in[b] >> b_atom & 1:
                    segments[b_atom].append((2 * low, end[b_atom]))
                end[b_atom] = -1
    masks = [_mask(runs) for runs in segments]
    return Liveness(scan, 2 * len(scan.accesses), starts, first, masks, segments)


def pressure_steps(live: Liveness, registers: Iterable[Register]) -> list[int]:
    """By how much the number of live dwords of these registers changes at each point; accumulated, their pressure."""
    steps = [0] * (live.points + 1)
    add_steps(steps, live, registers)
    return steps


def add_steps(steps: list[int], live: Liveness, registers: Iterable[Register], sign: int = 1) -> None:
    for register in registers:
        for size, runs in live.runs(register):
            for begin, last in runs:
                steps[begin] += sign * size
                steps[last + 1] -= sign * size


def _atoms(scan: Scan) -> dict[Register, tuple[int, ...]]:
    """Where the atoms of each register start: wherever an operand starts or ends."""
    cuts: dict[Register, set[int]] = {register: {0} for register in scan.registers}
    for operand in scan.operands:
        if isinstance(operand, Ref):
            cuts[operand.register] |= {operand.start, operand.start + operand.size}
    return {register: tuple(sorted(found - {register.size})) for register, found in cuts.items()}


def _span(scan: Scan, number: int, starts: dict[Register, tuple[int, ...]],
          first: dict[Register, int]) -> tuple[int, ...]:
    """The atoms of an operand."""
    atoms: list[int] = []
    for part in scan.parts(number):
        begin, end = part.start, part.start + part.size
        atoms += [first[part.register] + k for k, s in enumerate(starts[part.register]) if begin <= s < end]
    return tuple(atoms)


Atoms = list[tuple[int, ...]]


def _accesses(scan: Scan, spans: Atoms) -> tuple[Atoms, Atoms, Atoms]:
    """Atoms that each instruction reads, writes, and writes in part (so that the old content matters)."""
    reads: Atoms = []
    writes: Atoms = []
    keeps: Atoms = []
    lookup = [*spans, ()]                               # NOTHING, -1, finds the last
    partial = _written_in_part(scan, spans)
    for i, (_, row, dst, src) in enumerate(scan.accesses):
        written = lookup[dst[0]] if len(dst) == 1 else tuple(a for n in dst for a in lookup[n])
        writes.append(written)
        reads.append(lookup[src[0]] if len(src) == 1 else tuple(a for n in src for a in lookup[n]))
        if "keeps" in row.flags:
            keeps.append(written)
        else:
            keeps.append(partial[i] if partial else ())
    return reads, writes, keeps


def _written_in_part(scan: Scan, spans: Atoms) -> Atoms | None:
    """Per instruction, the atoms of which a narrowed EXEC leaves lanes as they were, where someone may look at those
    lanes."""
    lanes = lanes_of(scan.program)
    if lanes is None:
        return None
    lookup = [*spans, ()]
    vector = {first for n, first in enumerate(spans) if scan.operands[n].kind != "s"}
    readers: dict[int, set[State]] = {}
    for (instruction, row, _, src), state in zip(scan.accesses, lanes):
        seen = ALL_LANES if reads_all_lanes(instruction.op, row.unit) else state
        for atoms in map(lookup.__getitem__, src):
            if atoms in vector:
                for atom in atoms:
                    readers.setdefault(atom, set()).add(seen)
    result: Atoms = []
    for (_, row, dst, _), state in zip(scan.accesses, lanes):
        result.append(() if state == ALL_LANES or row.unit == "mfma" else tuple(
            atom for atoms in map(lookup.__getitem__, dst) if atoms in vector for atom in atoms
            if not all(covers(state, reader) for reader in readers.get(atom, ()))))
    return result


def _dataflow(bounds: list[tuple[int, int]], following: list[list[int]], reads: Atoms, writes: Atoms, keeps: Atoms,
              entry: int) -> tuple[list[int], list[int]]:
    """Live-out and live-in sets (bit = atom) of each block. `entry` holds the atoms that have a value when the program
    starts."""
    blocks = range(len(bounds))
    used, killed, written = [0] * len(bounds), [0] * len(bounds), [0] * len(bounds)
    for b in blocks:
        use = kill = write = 0
        for i in range(*bounds[b]):
            for atom in reads[i]:
                if not kill >> atom & 1:
                    use |= 1 << atom
            kept = keeps[i]
            for atom in writes[i]:
                bit = 1 << atom
                write |= bit
                if atom not in kept:
                    kill |= bit
                elif not kill & bit:
                    use |= bit
        used[b], killed[b], written[b] = use, kill, write
    live_in, live_out = used[:], [0] * len(bounds)
    reached = [0] * len(bounds)
    reached[0] = entry
    changed = True
    while changed:
        changed = False
        for b in reversed(blocks):
            out = 0
            for after in following[b]:
                out |= live_in[after]
            if out != live_out[b]:
                live_out[b] = out
                live_in[b] = used[b] | out & ~killed[b]
                changed = True
    changed = True
    while changed:
        changed = False
        for b in blocks:
            out = reached[b] | written[b]
            for after in following[b]:
                if out & ~reached[after]:
                    reached[after] |= out
                    changed = True
    return ([live & (reached[b] | written[b]) for b, live in enumerate(live_out)],
            [live & reached[b] for b, live in enumerate(live_in)])


def _block_bounds(program: Program) -> list[tuple[int, int]]:
    """First instruction number and the one past the last, per block."""
    bounds, low = [], 0
    for block in program.blocks:
        bounds.append((low, low + len(block.instructions)))
        low += len(block.instructions)
    return bounds


def _bits(word: int) -> list[int]:
    result = []
    while word:
        low = word & -word
        result.append(low.bit_length() - 1)
        word ^= low
    return result


def _mask(segments: list[tuple[int, int]]) -> int:
    result = 0
    for first, last in segments:
        result |= ((1 << last - first + 1) - 1) << first
    return result
