"""Register allocation: form virtual to form allocated.

Needs: virtual registers with tuples, `copy` pseudos. Gives: Physical operands in the three files, moves instead of the
copies that could not be removed, `resources`. Promise: the same values at every read, no scratch, files, alignment and
pins as asked, the same result for the same input. Method: exact live ranges per dword (liveness.py), groups of
registers joined by copies (coalesce.py), placed first fit, the widest first, in the file that register_files.py chose.
Checked by regcheck.py, which shares nothing with it. There is no spilling: a kernel over budget is refused with the
tiles that are live at the peak.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, chain

from tilec.backend_amdgcn.budget import Budget, over_budget
from tilec.backend_amdgcn.coalesce import Group, Home, Wish, coalesce
from tilec.backend_amdgcn.fit_operands import Demand, Files, demands, fit_operands
from tilec.backend_amdgcn.liveness import NOTHING, Liveness, Scan, analyse, pressure_steps, scan_operands
from tilec.backend_amdgcn.moves import expand_copy, parallel_copy
from tilec.backend_amdgcn.pins import place_pinned
from tilec.backend_amdgcn.register_files import choose_files
from tilec.errors import InternalError
from tilec.ir.machine import Instruction, Operand, Physical, Program, Ref, Register, Resources
from tilec.target import target

_ATTEMPTS = 16
"""How often a packing is tried again with the group that found no room placed first."""


@dataclass(frozen=True)
class Allocation:
    """The allocated program, and where each register that the virtual one names lies (tokens lie nowhere)."""

    program: Program
    assignment: dict[Register, Physical]


def allocate(program: Program) -> Allocation:
    """Gives every register of a virtual program its place. Raises TilecError over budget and for pins that can't be
    honoured."""
    if program.form != "virtual":
        raise InternalError(f"registers are allocated in form 'virtual', not {program.form!r}", where=program.where)
    budget = Budget(target(program.arch), program.waves)
    scan = scan_operands(program)
    live = analyse(scan)
    fixed = set(scan.fixed.values())
    failed: tuple[Liveness, Files, str] | None = None
    for files in choose_files(scan, live, budget.limit("v"), budget.vector, budget.limit("a")):
        fitted, all_files = fit_operands(scan, files)
        fitted_scan, fitted_live = (scan, live) if fitted is program else _analysed(fitted)
        files = {r: all_files.get(r, r.kind) for r in fitted_scan.registers}
        placed = _place(fitted_scan, fitted_live, files, budget)
        if isinstance(placed, str):
            failed = failed or (fitted_live, files, placed)
            continue
        return Allocation(_finish(fitted_scan, placed, budget),
                          {r: placed[r] for r in scan.registers if r not in fixed})
    assert failed
    raise over_budget(*failed, budget)


def _analysed(program: Program) -> tuple[Scan, Liveness]:
    scan = scan_operands(program)
    return scan, analyse(scan)


def _place(scan: Scan, live: Liveness, files: Files, budget: Budget) -> dict[Register, Physical] | str:
    """A place for every register, or the file that has no room."""
    for file in "sva":
        if max(accumulate(pressure_steps(live, (r for r in scan.registers if files[r] == file)))) > budget.limit(file):
            return file
    full = ""
    wanted, _ = demands(scan, files)
    for wishes in _wish_lists(scan, files):
        home: dict[Register, Home] = {}
        for register in scan.registers:
            demand = wanted.get(register, Demand(1, 0))
            group = Group(files[register], live.dword_masks(register), [(register, 0)], demand.modulus, demand.residue)
            home[register] = group, 0
        pinned = place_pinned(scan, home, wishes, budget)
        coalesce(home, wishes, pinned)
        _hint(scan, home)
        groups: dict[str, list[Group]] = {"s": [], "a": [], "v": []}
        for group in dict.fromkeys(group for group, _ in home.values()):
            groups[group.file].append(group)
        agprs = 0
        full = ""
        for file in "sav":                                  # AGPRs before VGPRs, which take what is left of the total
            if not _pack(groups[file], pinned[file], budget.limit(file, agprs)):
                full = file
                break
            if file == "a":
                agprs = max((g.base + g.size for g in groups["a"] if g.base is not None), default=0)
        if not full:
            return {r: Physical(group.file, (group.base or 0) + offset, r.size) for r, (group, offset) in home.items()}
    return full


def _wish_lists(scan: Scan, files: Files) -> Iterator[list[Wish]]:
    """What should lie together: all that copies and accumulators ask for; if that packs badly, only what loops ask for;
    nothing."""
    wishes: list[Wish] = []
    for i, ((instruction, row, dst, src), depth) in enumerate(zip(scan.accesses, scan.depths)):
        if row.name == "copy" and dst[0] != NOTHING and src[0] != NOTHING:
            d, s, excused = instruction.dst[0], instruction.src[0], 0
        elif row.unit == "mfma" and src[2] not in (NOTHING, dst[0]):
            d, s = instruction.dst[0], instruction.src[2]
            excused = 0 if _shares(s, instruction.src[:2]) else 1 << 2 * i
        else:
            continue
        if not isinstance(d, Ref) or not isinstance(s, Ref) or d.register is s.register:
            continue
        if files[d.register] == files[s.register]:
            wishes.append(Wish(d.register, d.start, s.register, s.start, d.size, depth, excused))
    yield wishes
    deep = [wish for wish in wishes if wish.depth > 0]
    if len(deep) < len(wishes):
        yield deep
    if deep:
        yield []


def _shares(operand: Operand, others: tuple[Operand, ...]) -> bool:
    return isinstance(operand, Ref) and any(isinstance(o, Ref) and o.register is operand.register for o in others)


def _hint(scan: Scan, home: dict[Register, Home]) -> None:
    """Copies from and to hardware registers that the program names would vanish at these indices."""
    for instruction, row, _, _ in scan.accesses:
        if row.name == "copy":
            pair = (*instruction.dst, *instruction.src)
            for one, other in (pair, pair[::-1]):
                if isinstance(one, Ref) and isinstance(other, Physical) and one.register in home:
                    group, offset = home[one.register]
                    if group.file == other.file:
                        group.hints.append(other.index - offset - one.start)


def _pack(groups: list[Group], pinned: list[int], limit: int) -> bool:
    """Gives every group of a file its base, first fit; False if no order that is tried fits."""
    if any(g.base is not None and g.base + g.size > limit for g in groups):
        return False
    free = [g for g in groups if g.base is None]
    length = {g: sum({id(mask): mask.bit_count() for mask in g.busy}.values()) for g in free}
    first = {g: min((mask & -mask).bit_length() for mask in g.busy) for g in free}
    orders = (sorted(free, key=lambda g: (not g.hints, -g.size, -length[g])), sorted(free, key=lambda g: first[g]))
    for order in orders:
        for _ in range(_ATTEMPTS):
            occupied = pinned[:limit]
            stuck = next((g for g in order if not _first_fit(g, occupied)), None)
            if stuck is None:
                return True
            if order[0] is stuck:
                break
            order.remove(stuck)
            order.insert(0, stuck)
    for group in free:
        group.base = None
    return False


def _first_fit(group: Group, occupied: list[int]) -> bool:
    busy, size = group.busy, group.size
    last = len(occupied) - size
    hints = [h for h in group.hints if 0 <= h <= last and (h - group.residue) % group.modulus == 0]
    lowest = busy[0]
    for base in chain(hints, range(group.residue, last + 1, group.modulus)):
        if occupied[base] & lowest:                         # most places are ruled out by this alone
            continue
        for k, mask in enumerate(busy, base):
            if occupied[k] & mask:
                break
        else:
            for k, mask in enumerate(busy, base):
                occupied[k] |= mask
            group.base = base
            return True
    return False


def _finish(scan: Scan, placed: dict[Register, Physical], budget: Budget) -> Program:
    """The program over hardware registers. Copies whose two ends fell together are gone."""
    physical: list[Physical] = []
    for operand in scan.operands:
        if isinstance(operand, Ref):
            place = placed[operand.register]
            operand = Physical(place.file, place.index + operand.start, operand.size)
        physical.append(operand)

    def rewritten(number: int) -> list[Instruction]:
        old, row, dst, src = scan.accesses[number]
        new_dst: list[Operand] = [physical[n] if n >= 0 else o for n, o in zip(dst, old.dst)]
        new_src: list[Operand] = [physical[n] if n >= 0 else o for n, o in zip(src, old.src)]
        if row.name == "copy" and dst[0] >= 0:
            return expand_copy(old, physical[dst[0]], new_src[0])
        op = "token" if row.name == "copy" else old.op
        return [Instruction(op, tuple(new_dst), tuple(new_src), old.modifiers, old.where, old.note, old.shared)]

    blocks, number = [], 0
    for block in scan.program.blocks:
        end = number + len(block.instructions)
        blocks.append(block.replace(instructions=tuple([i for n in range(number, end) for i in rewritten(n)])))
        number = end
    used = {file: max((p.index + p.size for p in physical if p.file == file), default=0) for file in "sva"}
    waves = budget.target.occupancy(used["v"], used["a"], scan.program.lds_bytes, scan.program.waves)
    resources = Resources(used["v"], used["a"], used["s"], scan.program.lds_bytes, 0, waves)
    return scan.program.replace(blocks=tuple(blocks), form="allocated", resources=resources)


__all__ = ["Allocation", "allocate", "parallel_copy"]
