"""Registers that the user, or the hardware at entry, put in one place.

Two pinned registers may share hardware registers when they are never live together. Every other pin that can't be kept
is refused with what stands against it.
"""

from __future__ import annotations

from collections.abc import Iterable

from tilec.backend_amdgcn.budget import FILE_NAMES, Budget
from tilec.backend_amdgcn.coalesce import Home, Wish
from tilec.backend_amdgcn.liveness import Scan
from tilec.errors import TilecError
from tilec.ir.machine import Physical, Register


def place_pinned(
    scan: Scan, home: dict[Register, Home], wishes: Iterable[Wish], budget: Budget
) -> dict[str, list[int]]:
    """Fixes the groups of pinned registers. Per file, the live points of each hardware register that they occupy."""
    occupied = {file: [0] * budget.limit(file) for file in "sva"}
    fixed, excused = set(scan.fixed.values()), _excused(wishes)
    placed: list[Register] = []
    for register in sorted((r for r in scan.registers if r.pin), key=lambda r: r not in fixed):
        group, _ = home[register]
        places = pinned_to(register)
        _check_pin(register, places, group.file, group.modulus, group.residue, len(occupied[places.file]))
        group.base = places.index
        for k, mask in enumerate(group.busy, places.index):
            if occupied[places.file][k] & mask:
                for other in placed:
                    start = pinned_to(other).index
                    if pinned_to(other).file == places.file and 0 <= k - start < other.size:
                        both = home[other][0].busy[k - start] & mask
                        if both & ~excused.get((register, other, k), 0):
                            raise _conflict(register, other, k)
            occupied[places.file][k] |= mask
        placed.append(register)
    return occupied


def _excused(wishes: Iterable[Wish]) -> dict[tuple[Register, Register, int], int]:
    """Points at which two registers may both be live in one hardware register: an accumulator and the result that takes
    its place."""
    points: dict[tuple[Register, Register, int], int] = {}
    for wish in wishes:
        if wish.excused and wish.dst.pin and wish.src.pin:
            first = pinned_to(wish.dst).index + wish.dst_start
            if first == pinned_to(wish.src).index + wish.src_start:
                for k in range(first, first + wish.size):
                    for key in ((wish.dst, wish.src, k), (wish.src, wish.dst, k)):
                        points[key] = points.get(key, 0) | wish.excused
    return points


def pinned_to(register: Register) -> Physical:
    assert register.pin
    return Physical(*register.pin, register.size)


def _check_pin(register: Register, places: Physical, file: str, modulus: int, residue: int, end: int) -> None:
    def refuse(why: str, limit: str, fix: str) -> TilecError:
        return TilecError(f"{register.name or 'this tile'} is pinned to {places}, {why}", where=register.where,
                          limit=limit, fix=fix)

    if places.file != file:
        raise refuse(f"but it must be in {FILE_NAMES[file]}", f"its instructions take {FILE_NAMES[file]} there",
                     f"pin it to {FILE_NAMES[file]}, or leave the choice to the compiler")
    if places.index < 0 or places.index + places.size > end:
        raise refuse("which is not in the file", f"it takes {places.size} registers, and the last is {file}{end - 1}",
                     f"pin it to {file}{max(0, end - places.size)} or below")
    if (places.index - residue) % modulus:
        raise refuse("where its tuples are misaligned", f"the first must be {residue} modulo {modulus}",
                     f"pin it to {file}{places.index + (residue - places.index) % modulus}")


def _conflict(register: Register, other: Register, index: int) -> TilecError:
    name, other_name = register.name or "this tile", other.name or "another tile"
    place, where = Physical(pinned_to(register).file, index), register.where or other.where
    if name == other_name and pinned_to(register) == pinned_to(other):
        return TilecError(f"{name} is pinned to {pinned_to(register)}, and its old content is read after the new one "
                          f"is there", where=where, limit=f"both are alive in {place}",
                          fix="leave the pin out, or give one of the two another name in the kernel")
    return TilecError(f"{name} and {other_name} are both pinned to {place} and live together", where=where,
                      limit=f"{name} takes {pinned_to(register)}, {other_name} takes {pinned_to(other)}",
                      fix="pin one of them elsewhere")
