"""Register allocation: form virtual to form allocated.

Needs: virtual registers with tuples, `copy` pseudos. Gives: Physical operands in the three files, moves instead of the copies that
could not be removed, `resources`. Promise: the same values at every read, no scratch, files, alignment and pins as asked, the same
result for the same input. Method: exact live ranges per dword (liveness.py), groups of registers joined by copies (coalesce.py),
placed first fit, the widest first, in the file that register_files.py chose. Checked by regcheck.py, which shares nothing with it.
There is no spilling: a kernel over budget is refused with the tiles that are live at the peak.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from tilec.backend_amdgcn.coalesce import Group, Home, Wish, alignment, coalesce
from tilec.backend_amdgcn.liveness import NOTHING, Liveness, Scan, analyse, scan_operands
from tilec.backend_amdgcn.moves import expand_copy, parallel_copy
from tilec.backend_amdgcn.register_files import Files, choose_files, demands, fit_operands, pressure
from tilec.errors import InternalError, TilecError
from tilec.ir.machine import Block, Instruction, Operand, Physical, Program, Ref, Register, Resources
from tilec.target import Target, target

_ATTEMPTS = 16
"""How often a packing is tried again with the group that found no room placed first."""


@dataclass(frozen=True)
class Allocation:
    """The allocated program, and where each register of the virtual one lies (also those pinned or never read)."""

    program: Program
    assignment: dict[Register, Physical]


@dataclass(frozen=True)
class Budget:
    """Registers that a wave may take, by what the waves of its workgroup that share a SIMD leave each other."""

    target: Target
    waves: int

    @property
    def waves_per_simd(self) -> int:
        return max(1, -(-self.waves // self.target.simds))

    @property
    def vector(self) -> int:
        """VGPRs and AGPRs together."""
        granule = self.target.vgpr_granule
        return self.target.registers_per_lane // self.waves_per_simd // granule * granule

    def limit(self, file: str, agprs: int = 0) -> int:
        """Registers of a file, if so many AGPRs are taken besides."""
        if file == "s":
            return self.target.sgprs
        if file == "a":
            return min(self.target.agprs, self.vector)
        granule = self.target.accum_offset_granule
        return min(self.target.vgprs, (self.vector - agprs) // granule * granule)


def allocate(program: Program) -> Allocation:
    """Gives every register of a virtual program its place. Raises TilecError over budget and for pins that can't be honoured."""
    if program.form != "virtual":
        raise InternalError(f"registers are allocated in form 'virtual', not {program.form!r}", where=program.where)
    budget = Budget(target(program.arch), program.waves)
    scan = scan_operands(program)
    live = analyse(scan)
    failed: tuple[Scan, Liveness, Files, str] | None = None
    for files in choose_files(scan, live, budget.limit("v"), budget.vector, budget.limit("a")):
        fitted, all_files = fit_operands(scan, files)
        fitted_scan, fitted_live = (scan, live) if fitted is program else _analysed(fitted)
        files = {r: all_files.get(r, r.kind) for r in fitted_scan.registers}
        placed = _place(fitted_scan, fitted_live, files, budget)
        if isinstance(placed, str):
            failed = failed or (fitted_scan, fitted_live, files, placed)
            continue
        return _finish(fitted_scan, placed, budget)
    assert failed
    raise _over_budget(*failed, budget)


def _analysed(program: Program) -> tuple[Scan, Liveness]:
    scan = scan_operands(program)
    return scan, analyse(scan)


# -- placing ----------------------------------------------------------------------------------------------------------------


def _place(scan: Scan, live: Liveness, files: Files, budget: Budget) -> dict[Register, Physical] | str:
    """A place for every register, or the file that has no room."""
    for file in "sva":
        if max(pressure(live, (r for r in scan.registers if files[r] == file)), default=0) > budget.limit(file):
            return file
    full = ""
    for wishes in _wish_lists(scan, files):
        home = {r: (Group(files[r], live.dword_masks(r), [(r, 0)]), 0) for r in scan.registers}
        _demand(scan, files, home)
        pinned = _pin(scan, home, budget)
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
    """What should lie together: all that copies and accumulators ask for; if that packs badly, only what loops ask for; nothing."""
    wishes: list[Wish] = []
    for i, ((instruction, row, dst, src), depth) in enumerate(zip(scan.accesses, scan.depths)):
        if row.unit == "pseudo" and dst and dst[0] != NOTHING and src[0] != NOTHING:
            d, s, excused = instruction.dst[0], instruction.src[0], 0
        elif row.unit == "mfma" and dst[0] != src[2] != NOTHING:
            d, s, excused = instruction.dst[0], instruction.src[2], 1 << 2 * i
        else:
            continue
        if isinstance(d, Ref) and isinstance(s, Ref) and d.register is not s.register and files[d.register] == files[s.register]:
            wishes.append(Wish(d.register, d.start, s.register, s.start, d.size, depth, excused))
    yield wishes
    deep = [wish for wish in wishes if wish.depth > 0]
    if len(deep) < len(wishes):
        yield deep
    if deep:
        yield []


def _demand(scan: Scan, files: Files, home: dict[Register, Home]) -> None:
    wanted, refused = demands(scan, files)
    assert not refused
    for register, demand in wanted.items():
        alignment(home[register][0], demand.modulus, demand.residue)


def _hint(scan: Scan, home: dict[Register, Home]) -> None:
    """Copies from and to hardware registers that the program names would vanish at these indices."""
    for instruction, row, _, _ in scan.accesses:
        if row.unit == "pseudo":
            pair = (*instruction.dst, *instruction.src)
            for one, other in (pair, pair[::-1]):
                if isinstance(one, Ref) and isinstance(other, Physical) and one.register in home:
                    group, offset = home[one.register]
                    if group.file == other.file:
                        group.hints.append(other.index - offset - one.start)


def _pin(scan: Scan, home: dict[Register, Home], budget: Budget) -> dict[str, list[int]]:
    """Fixes pinned registers; the live points of each hardware register of each file so far."""
    limits = {"s": budget.target.sgprs, "v": budget.target.vgprs, "a": budget.target.agprs}
    occupied = {file: [0] * limit for file, limit in limits.items()}
    owners: list[Register] = []
    for register in sorted((r for r in scan.registers if r.pin), key=lambda r: r not in scan.fixed.values()):
        assert register.pin
        file, index = register.pin
        group = home[register][0]
        name = register.name or "this tile"
        places = Physical(file, index, register.size)
        if file != group.file:
            raise TilecError(f"{name} is pinned to {places}, but it must be in {_NAMES[group.file]}", where=register.where,
                             limit=f"its instructions take {_NAMES[group.file]} there", fix="pin it to the other file")
        if index < 0 or index + register.size > limits[file]:
            raise TilecError(f"{name} is pinned to {places}, past the end of its file", where=register.where,
                             limit=f"{name} takes {register.size} registers, and the file ends with {file}{limits[file] - 1}",
                             fix="pin it further down")
        if (index - group.residue) % group.modulus:
            raise TilecError(f"{name} is pinned to {places}, where its tuples are misaligned", where=register.where,
                             limit=f"they must start at a multiple of {group.modulus}", fix=f"pin it to {file}{index + 1}")
        group.base = index
        for k, mask in enumerate(group.busy, index):
            if occupied[file][k] & mask:
                other = next(o for o in owners if o.pin and o.pin[0] == file and o.pin[1] <= k < o.pin[1] + o.size
                             and home[o][0].busy[k - o.pin[1]] & mask)
                raise TilecError(f"{name} and {other.name or 'another tile'} are both pinned to {file}{k} and live together",
                                 where=register.where or other.where,
                                 limit=f"{name} is pinned to {places}, {other.name or 'the other'} to "
                                       f"{Physical(file, (other.pin or (file, 0))[1], other.size)}",
                                 fix="pin one of them elsewhere")
            occupied[file][k] |= mask
        owners.append(register)
    return occupied


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
    for base in (*hints, *range(group.residue, last + 1, group.modulus)):
        for k, mask in enumerate(busy, base):
            if occupied[k] & mask:
                break
        else:
            for k, mask in enumerate(busy, base):
                occupied[k] |= mask
            group.base = base
            return True
    return False


# -- rewriting --------------------------------------------------------------------------------------------------------------


def _finish(scan: Scan, placed: dict[Register, Physical], budget: Budget) -> Allocation:
    """The program over hardware registers. Copies whose two ends fell together are gone."""
    physical: list[Physical] = []
    for operand in scan.operands:
        if isinstance(operand, Ref):
            place = placed[operand.register]
            operand = Physical(place.file, place.index + operand.start, operand.size)
        physical.append(operand)
    blocks: list[Block] = []
    number = 0
    for block in scan.program.blocks:
        instructions: list[Instruction] = []
        for old in block.instructions:
            _, row, dst, src = scan.accesses[number]
            number += 1
            new_dst: tuple[Operand, ...] = tuple([physical[n] if n >= 0 else o for n, o in zip(dst, old.dst)])
            new_src: tuple[Operand, ...] = tuple([physical[n] if n >= 0 else o for n, o in zip(src, old.src)])
            if row.unit == "pseudo":
                if dst and dst[0] >= 0:
                    instructions += expand_copy(old, physical[dst[0]], new_src[0])
                else:                                       # of tokens
                    instructions.append(Instruction("token", new_dst, new_src, old.modifiers, old.where, old.note, old.shared))
                continue
            instructions.append(Instruction(old.op, new_dst, new_src, old.modifiers, old.where, old.note, old.shared))
        blocks.append(block.replace(instructions=tuple(instructions)))
    used = {file: max((p.index + p.size for p in physical if p.file == file), default=0) for file in "sva"}
    waves = budget.target.waves_per_simd(used["v"], used["a"])
    resources = Resources(used["v"], used["a"], used["s"], scan.program.lds_bytes, 0, waves)
    fixed = set(scan.fixed.values())
    return Allocation(scan.program.replace(blocks=tuple(blocks), form="allocated", resources=resources),
                      {register: place for register, place in placed.items() if register not in fixed})


# -- refusing ---------------------------------------------------------------------------------------------------------------

_NAMES = {"v": "VGPRs", "a": "AGPRs", "s": "SGPRs"}
_LISTED = 6


def _over_budget(scan: Scan, live: Liveness, files: Files, file: str, budget: Budget) -> TilecError:
    """What is live at the peak, the largest first, in the terms of the user's program."""
    scalar = file == "s"
    registers = [r for r in scan.registers if (files[r] == "s") == scalar]
    levels = pressure(live, iter(registers))
    peak = max(levels)
    point = levels.index(peak)
    sizes: Counter[str] = Counter()
    origin: dict[str, Register] = {}
    for register in registers:
        dwords = sum(mask >> point & 1 for mask in live.dword_masks(register))
        name = register.name or "unnamed values"
        if dwords:
            sizes[name] += dwords
            origin.setdefault(name, register)
    largest = sizes.most_common(_LISTED)
    names = [f"{name} {size}" + (f" ({where})" if (where := origin[name].where) else "") for name, size in largest]
    rest = peak - sum(size for _, size in largest)
    listing = ", ".join(names + ([f"others {rest}"] if rest else []))
    if scalar:
        what, room = f"{peak} SGPRs", f"a wave has {budget.target.sgprs}"
        fix = "pass fewer tensors, or compute scalars where they are used"
    else:
        what = f"{peak} vector registers"
        room = (f"{budget.vector} per lane with {budget.waves} waves in a workgroup ({budget.waves_per_simd} on each SIMD; "
                f"at most {budget.target.vgprs} VGPRs and {budget.target.agprs} AGPRs)")
        fewer = ", fewer waves" if budget.waves_per_simd > 1 else ", more waves to share the tile"
        fix = f"a smaller {largest[0][0]}{fewer}, or fewer copies in flight"
    where = scan.accesses[point // 2][0].where or origin[largest[0][0]].where or scan.program.where
    return TilecError(f"{scan.program.name} needs {what} at once", where=where, limit=f"{room}; live here: {listing}", fix=fix)


__all__ = ["Allocation", "Budget", "allocate", "parallel_copy"]
