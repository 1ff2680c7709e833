"""Races in LDS between the waves of a workgroup, by byte, from happens-before over barriers.

Barriers cut a workgroup's life into generations. An access belongs to every generation from its issue to the barrier
after its completion (its wait). Two accesses of different waves, one a write, in one generation and on one byte are
unordered: a race, whatever order this run took. Accesses only mark planes [wave, byte]; the proof is one sweep per
barrier.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tilec.emulator.access import Access, Part
from tilec.emulator.instruction import Instruction
from tilec.emulator.memory import ZERO_PAGE, Space

if TYPE_CHECKING:
    from tilec.emulator.machine import Machine
    from tilec.emulator.wave import Batch

Array = np.ndarray[Any, Any]
LOG = 256
"""Accesses remembered per generation, to name both instructions of a race."""


@dataclass(frozen=True)
class Mark:
    """An access as it was marked: whose, where, of which generation. `kind`: read, write or atomic."""

    instruction: Instruction
    waves: Array
    generation: Array
    part: Part
    kind: str


class LdsRaces:
    """`granule`: bytes per mark, the widest power of two that divides every access so far."""

    def __init__(self, machine: Machine, found: Callable[..., None]):
        self.machine, self.found = machine, found
        self.granule = 16
        self.waves = machine.waves_per_group
        self.size = len(machine.lds.bytes)
        self.reads = np.zeros((self.waves, self.size // 16), np.uint8)
        self.writes = np.zeros_like(self.reads)
        self.written = np.zeros(self.size // 16, np.uint8)  # ever, by anyone: the granule is defined
        self.atomics = np.zeros_like(self.reads)
        self.differs = np.zeros(self.size // 16, np.uint8)  # this generation: two unlike values were written
        self.values: Space | None = None  # the last values issued to be written
        self.copying = np.zeros_like(self.reads)  # by a copy of this wave that is in flight
        self.copies = 0  # waves times copies in flight
        self.carried: list[tuple[Array, Access]] = []  # in flight at a barrier: (waves, access)
        self.log: deque[Mark] = deque(maxlen=LOG)

    # ---- marking
    def _granules(self, part: Part) -> Array:
        """First granule of each lane; refines the granule when the access is not aligned to it."""
        unit = part.unit
        if unit < self.granule:
            times = self.granule // unit
            self.reads, self.writes, self.atomics, self.copying = (
                np.repeat(p, times, axis=1) for p in (self.reads, self.writes, self.atomics, self.copying)
            )
            self.written, self.differs = np.repeat(self.written, times), np.repeat(self.differs, times)
            self.granule = unit
        return part.index >> self.granule.bit_length() - 1

    def _mark(self, plane: Array, waves: Array, part: Part, value: int = 1) -> None:
        first = self._granules(part)
        flat = plane.reshape(-1)
        base = (self.machine.wave_in_group[waves] * plane.shape[1])[:, None]
        at = first + base if part.lanes is None else (first + base)[part.lanes]
        for i in range(part.size // self.granule):
            flat[at + i if i else at] = value

    def access(self, batch: Batch, access: Access) -> None:
        """Mark at issue. A copy in flight also marks `copying`, and an access to what its own wave is copying is
        reported.
        """
        kind = _kind(access)
        for part in self._parts(access):
            self._granules(part)  # may refine the planes: before they are taken
            if self.copies and access.target is None:
                self._check_own_copy(batch, access.instruction, part)
            if self.waves > 1:
                if kind == "write":
                    self._compare(part, access)
                self._enter(access.instruction, batch.waves, part, kind)
            if access.target is not None:
                self._mark(self.copying, batch.waves, part)
                self.copies += len(batch.waves)

    def _parts(self, access: Access) -> list[Part]:
        return (
            [access.target] if access.target is not None else [p for p in access.parts if p.space is self.machine.lds]
        )

    def _enter(self, instruction: Instruction, waves: Array, part: Part, kind: str) -> None:
        """Mark the plane of the access's kind, and remember it for the report."""
        self._granules(part)
        self._mark({"read": self.reads, "write": self.writes, "atomic": self.atomics}[kind], waves, part)
        self.log.append(Mark(instruction, waves, self.machine.generation[self.machine.slot[waves]], part, kind))

    def _compare(self, part: Part, access: Access) -> None:
        """Waves that write equal values to one byte don't race: compilers store replicated data so. Note where values
        differ.
        """
        first = self._granules(part)
        count = part.size // self.granule
        if access.data is None:  # a copy: its values are not known yet
            unlike = np.ones(part.index.shape, bool)
        else:
            if self.values is None:
                self.values = Space(np.zeros(self.size, np.uint8))
            words = -(-part.size // 4)
            data = access.data[part.dword : part.dword + words]
            if access.row.half == "high":
                data = data >> np.uint32(16)
            if part.size < 4:
                data = data & np.uint32((1 << 8 * part.size) - 1)
            before = self.values.load(part.index, part.size)
            index, lanes = part.effective()
            self.values.store(index, data.reshape(words, -1) if lanes is None else data[:, lanes], part.size)
            after = self.values.load(part.index, part.size)
            earlier = np.zeros(part.index.shape, bool)
            for i in range(count):
                earlier |= self._any_writer(first + i)
            unlike = (after != data).any(axis=0) | earlier & (before != data).any(axis=0)
        if part.lanes is not None:
            unlike &= part.lanes
        if unlike.any():
            for i in range(count):
                self.differs[first[unlike] + i] = 1

    def _any_writer(self, granules: Array) -> Array:
        """Has any wave written the granules in this generation?"""
        hit = self.writes[0][granules]
        for plane in self.writes[1:]:
            hit = hit | plane[granules]
        return hit != 0

    def completed(self, batch: Batch, access: Access) -> None:
        """The wave has waited for the access."""
        if access.target is not None:
            self._granules(access.target)
            self._mark(self.copying, batch.waves, access.target, 0)
            self.copies -= len(batch.waves)
            for pending in batch.queues["vm"]:  # another copy to the same place may still be in flight
                if pending.target is not None:
                    self._mark(self.copying, batch.waves, pending.target)

    def _check_own_copy(self, batch: Batch, instruction: Instruction, part: Part) -> None:
        first = self._granules(part)
        flat = self.copying.reshape(-1)
        at = first + (self.machine.wave_in_group[batch.waves] * self.copying.shape[1])[:, None]
        hit = flat[at]
        for i in range(1, part.size // self.granule):
            hit = hit | flat[at + i]
        if part.lanes is not None:
            hit = hit * part.lanes
        if not hit.any():
            return
        wave, lane = (int(x) for x in np.argwhere(hit)[0])
        byte = int(part.index[wave, lane])
        other = None
        for pending in batch.queues["vm"]:
            if pending.target is not None and _covers(pending.target, wave, byte, part.size):
                other = pending.instruction
        if other is not None:
            self.found(
                "lds_races",
                "touches LDS bytes that a copy of the same wave, not waited for, is writing",
                instruction,
                other,
                wave=int(batch.waves[wave]),
                lane=lane,
                byte=self._address(byte),
            )

    def mark_written(self, part: Part) -> None:
        first = self._granules(part)
        at = first if part.lanes is None else first[part.lanes]
        for i in range(part.size // self.granule):
            self.written[at + i] = 1

    def unwritten(self, part: Part) -> Array | None:
        """bool [granules per lane, wave, lane]: never written; None when all was."""
        first = self._granules(part)
        fresh = [self.written[first + i] == 0 for i in range(part.size // self.granule)]
        stacked = np.stack(fresh)
        if part.lanes is not None:
            stacked &= part.lanes
        return stacked if stacked.any() else None

    # ---- barriers
    def arrived(self, batch: Batch) -> None:
        """What is in flight when a wave arrives is carried into the next generation."""
        if self.waves == 1:
            return
        for access in dict.fromkeys(a for queue in batch.queues.values() for a in queue):
            if self._parts(access):
                self.carried.append((batch.waves, access))

    def opens(self, slots: Array) -> None:
        """A generation ends for these workgroups: prove it free of races, and start the next."""
        if self.waves == 1:
            return
        self.sweep(slots)
        per = self.machine.lds_stride // self.granule
        start = ZERO_PAGE // self.granule
        planes = (self.reads, self.writes, self.atomics, self.differs)
        if len(slots) == len(self.machine.groups):
            for plane in planes:
                plane[...] = 0
            self.log.clear()
        else:
            for slot in slots:
                for plane in planes:
                    plane[..., start + slot * per : start + (slot + 1) * per] = 0

    def opened(self, slots: Array) -> None:
        """The next generation has begun: what was in flight at the barrier belongs to it too."""
        opened = np.zeros(len(self.machine.groups), bool)
        opened[slots] = True
        carried, self.carried = self.carried, []
        for waves, access in carried:
            now = opened[self.machine.slot[waves]]
            rows = np.flatnonzero(now)
            if not now.all():
                left = np.flatnonzero(~now)
                self.carried.append((waves[left], access.take(left)))
            for part in self._parts(access) if len(rows) else []:
                kept = part if now.all() else part.take(rows)
                if access.row.op != "load":
                    self.differs[self._granules(kept)] = 1
                self._enter(access.instruction, waves[rows], kept, _kind(access))

    def sweep(self, slots: Array) -> None:
        """Report bytes that one wave wrote and another touched in the generation that ends."""
        if self.waves == 1 or not (self.writes.any() or self.atomics.any()):
            return
        writers = np.add.reduce(self.writes, axis=0, dtype=np.uint8)
        racing = (writers > 1) & (self.differs != 0)
        reads_or_changes = self.reads | self.atomics
        if reads_or_changes.any():
            touched = np.add.reduce(reads_or_changes | self.writes, axis=0, dtype=np.uint8)
            changed = (writers > 0) & reads_or_changes.any(axis=0) | self.atomics.any(axis=0) & self.reads.any(axis=0)
            racing |= changed & (touched > 1)
        if not racing.any():
            return
        per = self.machine.lds_stride // self.granule
        granules = np.flatnonzero(racing)
        granules = granules[np.isin((granules - ZERO_PAGE // self.granule) // per, slots)]
        for granule in (
            granules[np.linspace(0, len(granules) - 1, min(len(granules), 32)).astype(int)] if len(granules) else ()
        ):
            self._report(int(granule) * self.granule)

    def _report(self, index: int) -> None:
        touching: list[tuple[Mark, int, int]] = []
        for mark in self.log:
            part = mark.part
            hit = (part.index < index + self.granule) & (index < part.index + part.size)
            hit &= (mark.generation == self.machine.generation[self.machine.slot[mark.waves]])[:, None]
            if part.lanes is not None:
                hit &= part.lanes
            rows = np.flatnonzero(hit.any(axis=1))
            touching += [(mark, int(mark.waves[row]), int(hit[row].argmax())) for row in rows]
        pasts = {"read": "read", "write": "written", "atomic": "changed atomically"}
        verbs = {"read": "reads", "write": "writes", "atomic": "changes atomically"}
        for at, (mark, wave, lane) in enumerate(touching):
            for other, other_wave, _ in touching[:at]:
                kinds = {mark.kind, other.kind}
                if wave != other_wave and kinds not in ({"read"}, {"atomic"}):
                    self.found(
                        "lds_races",
                        f"{verbs[mark.kind]} an LDS byte {pasts[other.kind]} by wave "
                        f"{self.machine.wave_in_group[other_wave]} with no barrier and wait between",
                        mark.instruction,
                        other.instruction,
                        wave=wave,
                        lane=lane,
                        byte=self._address(index),
                    )
                    return

    def _address(self, index: int) -> int:
        return (index - ZERO_PAGE) % self.machine.lds_stride


def _kind(access: Access) -> str:
    return {"load": "read", "atomic": "atomic"}.get(access.row.op, "write")


def _covers(part: Part, wave: int, byte: int, size: int) -> bool:
    starts = part.index[wave]
    hit = (starts < byte + size) & (byte < starts + part.size)
    return bool((hit if part.lanes is None else hit & part.lanes[wave]).any())
