"""Groups of registers that are placed together, at fixed distances, so that the copies between them vanish.

A copy of dwords d[i:i+n] <- s[j:j+n] asks that the group of s lies so that both runs fall on the same hardware
registers. Two groups are merged if they want the same file, their alignments agree, neither pin is contradicted, and no
dword of the one is live together with the dword of the other that it would lie upon. Copies of deeper loops are served
first. An accumulator (MFMA C and D) is a wish of the same kind; there, C may die where an early-clobber D is born.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tilec.ir.machine import Register


@dataclass(eq=False)
class Group:
    """`busy[k]`: the live points of dword k. The first dword's index must be `residue` modulo `modulus`; it is `base`
    if pinned. `hints` are indices at which a copy from a named hardware register would vanish."""

    file: str
    busy: list[int]
    members: list[tuple[Register, int]]
    modulus: int = 1
    residue: int = 0
    base: int | None = None
    weight: int = 0
    hints: list[int] = field(default_factory=list)

    @property
    def size(self) -> int:
        return len(self.busy)


@dataclass(frozen=True)
class Wish:
    """That `size` dwords of `dst` from `dst_start` lie on those of `src` from `src_start`. `excused`: points at which
    both may be live all the same. `depth`: loops around the copy."""

    dst: Register
    dst_start: int
    src: Register
    src_start: int
    size: int
    depth: int
    excused: int = 0


Home = tuple[Group, int]
"""A register's group, and the offset of its first dword in it."""


def coalesce(home: dict[Register, Home], wishes: Iterable[Wish], occupied: dict[str, list[int]]) -> None:
    """Merges groups in place (`home` is updated). `occupied[file][index]` holds the live points of pinned dwords, which
    a register that joins a pinned group must respect."""
    for wish in sorted(wishes, key=lambda w: (-w.depth, -w.size)):
        (target, target_offset), (joining, joining_offset) = home[wish.dst], home[wish.src]
        delta = target_offset + wish.dst_start - joining_offset - wish.src_start
        if target is joining:
            continue
        if joining.base is not None and target.base is None or joining.size > target.size and target.base is None:
            target, joining, delta = joining, target, -delta
        if joining.base is not None or not _compatible(target, joining, delta, wish.excused):
            continue
        if target.base is not None and not _pinned_room(target, joining, delta, occupied[target.file], wish.excused):
            continue
        if target.base is not None:
            for k, mask in enumerate(joining.busy, target.base + delta):
                occupied[target.file][k] |= mask
        _merge(home, target, joining, delta)


def alignment(group: Group, modulus: int, residue: int) -> bool:
    """Adds a demand on the group's base; False, and no change, if it contradicts those there are or the pin."""
    low = min(modulus, group.modulus)
    if (residue - group.residue) % low or group.base is not None and (group.base - residue) % modulus:
        return False
    if modulus > group.modulus:
        group.modulus, group.residue = modulus, residue % modulus
    return True


def _compatible(target: Group, joining: Group, delta: int, excused: int) -> bool:
    if target.file != joining.file or (joining.residue - delta - target.residue) % min(target.modulus, joining.modulus):
        return False
    if target.base is not None and (target.base + delta - joining.residue) % joining.modulus:
        return False
    low, high = max(0, delta), min(target.size, joining.size + delta)
    seen_a = seen_b = None
    for k in range(low, high):
        a, b = target.busy[k], joining.busy[k - delta]
        if a is not seen_a or b is not seen_b:              # dwords of one atom share one mask
            if a & b & ~excused:
                return False
            seen_a, seen_b = a, b
    return True


def _pinned_room(target: Group, joining: Group, delta: int, occupied: list[int], excused: int) -> bool:
    """Whether the joining dwords are free where the pinned group is. Its own dwords there have been compared
    already."""
    assert target.base is not None
    first = target.base + delta
    if first < 0 or first + joining.size > len(occupied):
        return False
    for k, mask in enumerate(joining.busy):
        place = k + delta
        own = target.busy[place] if 0 <= place < target.size else 0
        if occupied[first + k] & ~own & mask:
            return False
    return True


def _merge(home: dict[Register, Home], target: Group, joining: Group, delta: int) -> None:
    shift = max(0, -delta)                                  # the joining group sticks out below by so much
    low, high = min(0, delta), max(target.size, joining.size + delta)
    busy: list[int] = [0] * shift + target.busy + [0] * (high - low - shift - target.size)
    old_a, old_b, both = -1, -1, 0
    for k, mask in enumerate(joining.busy, delta + shift):
        if busy[k] is not old_a or mask is not old_b:       # equal dwords go on sharing one int
            old_a, old_b, both = busy[k], mask, busy[k] | mask
        busy[k] = both
    if shift:
        target.members = [(register, offset + shift) for register, offset in target.members]
        target.residue = (target.residue - shift) % target.modulus
        target.hints = [hint - shift for hint in target.hints]
        if target.base is not None:
            target.base -= shift
        for register, offset in target.members:
            home[register] = (target, offset)
    delta += shift
    target.busy = busy
    if joining.modulus > target.modulus:
        target.modulus, target.residue = joining.modulus, (joining.residue - delta) % joining.modulus
    target.weight += joining.weight
    target.hints += [hint - delta for hint in joining.hints]
    for register, offset in joining.members:
        home[register] = (target, offset + delta)
        target.members.append((register, offset + delta))
