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
        ends = [(*home[wish.dst], wish.dst_start), (*home[wish.src], wish.src_start)]
        if ends[0][0] is ends[1][0]:
            continue
        ends.sort(key=lambda end: (end[0].base is None, -end[0].size))
        (target, target_offset, target_start), (joining, offset, start) = ends
        meeting = target_offset + target_start
        delta = meeting - offset - start
        excused = range(meeting, meeting + wish.size), wish.excused
        if joining.base is not None or not _compatible(target, joining, delta, excused):
            continue
        if _room(target, joining, delta, occupied):
            if target.base is not None:
                for k, mask in enumerate(joining.busy, target.base + delta):
                    occupied[target.file][k] |= mask
            _merge(home, target, joining, delta)


def _compatible(target: Group, joining: Group, delta: int, excused: tuple[range, int]) -> bool:
    """Whether file, alignment and lives agree if dword 0 of the joining group lies on dword `delta` of the target."""
    if target.file != joining.file or (joining.residue - delta - target.residue) % min(target.modulus, joining.modulus):
        return False
    if target.base is not None and (target.base + delta - joining.residue) % joining.modulus:
        return False
    where, points = excused
    seen_a = seen_b = None
    for k in range(max(0, delta), min(target.size, joining.size + delta)):
        a, b = target.busy[k], joining.busy[k - delta]
        if a is not seen_a or b is not seen_b or k not in where:    # dwords of one atom share one mask
            if (both := a & b) and (k not in where or both & ~points):
                return False
            seen_a, seen_b = a, b
    return True


def _room(target: Group, joining: Group, delta: int, occupied: dict[str, list[int]]) -> bool:
    """Whether other pinned registers leave room around a pinned target. Its own dwords have been compared already."""
    if target.base is None:
        return True
    places, first = occupied[target.file], target.base + delta
    if first < 0 or first + joining.size > len(places):
        return False
    for k, mask in enumerate(joining.busy):
        own = target.busy[k + delta] if 0 <= k + delta < target.size else 0
        if places[first + k] & ~own & mask:
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
