"""What the waves of a resident set share: memories, barriers, counters in flight, hardware registers.

A resident set is a number of whole workgroups that run together. Each has a slot, which fixes its part of the LDS
store and its barrier state; each wave has an index into the per-wave tables here. Memory operations pass through
`issue` and `retire`, the one place that knows when an access lands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tilec.emulator.access import Access, Part
from tilec.emulator.instruction import Instruction
from tilec.emulator.memory import BASE, ZERO_PAGE, Memory, Space
from tilec.emulator.wave import Batch
from tilec.errors import TilecError

if TYPE_CHECKING:
    from tilec.emulator.checks import Checker

Array = np.ndarray[Any, Any]
LIMITS = {"vm": 63, "lgkm": 15}
"""Largest counts of vmcnt and lgkmcnt; an issue beyond them stalls until an operation is complete."""

LDS_BYTES = {"gfx942": 65536, "gfx950": 163840}
XCDS, CUS_PER_XCD, SIMDS = 8, 32, 4
_LANE = np.arange(64, dtype=np.int64)[None]


class Machine:
    """The state behind a resident set of workgroups. `groups`: their linear ids; `waves_per_group`: waves of each."""

    def __init__(
        self,
        arch: str,
        memory: Memory,
        rows: list[int],
        groups: Array,
        waves_per_group: int,
        lds_bytes: int,
        scratch_bytes: int,
        *,
        landing: str,
        numerics: str,
        random: np.random.Generator,
    ):
        self.arch, self.memory, self.rows, self.numerics, self.landing, self.random = (
            arch,
            memory,
            rows,
            numerics,
            landing,
            random,
        )
        self.groups, self.waves_per_group = groups, waves_per_group
        count = len(groups) * waves_per_group
        self.slot = np.repeat(np.arange(len(groups)), waves_per_group)  # per wave
        self.wave_in_group = np.tile(np.arange(waves_per_group), len(groups))  # per wave
        self.lds_bytes, self.lds_stride = lds_bytes, max(16, -(-lds_bytes // 16) * 16)
        self.lds = Space(np.zeros(ZERO_PAGE + self.lds_stride * len(groups), np.uint8))
        self.scratch_bytes, self.scratch_stride = scratch_bytes, -(-scratch_bytes // 16) * 16
        self.scratch = Space(np.zeros(ZERO_PAGE + self.scratch_stride * 64 * count, np.uint8))
        self.alive = np.full(len(groups), waves_per_group)  # per slot
        self.arrived = np.zeros(len(groups), np.int64)  # per slot, at the current barrier
        self.generation = np.zeros(len(groups), np.int64)  # per slot, barriers passed
        self.awaited = np.zeros(count, np.int64)  # per wave: the generation that lets it go on
        self.checker: Checker | None = None
        self.permuted: dict[int, Array] | None = None  # undefined bits on the way into a permute
        self.last_issued: Access | None = None  # for event sinks
        self.ticks = 0

    # ---- places
    def lds_part(self, batch: Batch, address: Array, lanes: Array | None, size: int, dword: int) -> Part:
        """The part of an access at workgroup-relative LDS addresses (int64 [wave, lane]); out of range reads 0,
        writes nothing.
        """
        inside = address + size <= self.lds_bytes
        if not inside.all():
            if self.checker is not None:
                self.checker.lds_bounds(batch, address, inside if lanes is None else inside | ~lanes, size)
            lanes = inside if lanes is None else lanes & inside
        index = address + (ZERO_PAGE + self.slot[batch.waves] * self.lds_stride)[:, None]
        return Part(self.lds, index if lanes is None else index * lanes, lanes, dword, size)

    def scratch_part(self, batch: Batch, address: Array, lanes: Array | None, size: int) -> Part:
        """The part of an access to scratch, private to each lane."""
        inside = (address >= 0) & (address + size <= self.scratch_bytes)
        if not inside.all():
            if self.checker is not None:
                self.checker.scratch_bounds(batch, address, inside if lanes is None else inside | ~lanes, size)
            lanes = inside if lanes is None else lanes & inside
        index = address + (batch.waves.astype(np.int64)[:, None] * 64 + _LANE) * self.scratch_stride + ZERO_PAGE
        return Part(self.scratch, index if lanes is None else index * lanes, lanes, 0, size)

    def require_legal(
        self, batch: Batch, instruction: Instruction, index: Array, lanes: Array | None, size: int, write: bool
    ) -> tuple[Array, Array | None]:
        """Judge global accesses at offsets `index` from BASE; the index with idle lanes at 0, and the lanes that take
        part.

        One look-up when all lanes fall into one allocation, which is nearly always. Illegal lanes are reported, and
        read 0.
        """
        if lanes is None:
            low, high = int(index.min()), int(index.max())
        else:
            kept = index * lanes
            high = int(kept.max())
            low = self.memory.capacity - int(((self.memory.capacity - index) * lanes).max())
            if not lanes.any():
                return kept, lanes
            index = kept
        found = self.memory.find(low + BASE)
        if (
            found is not None
            and high + size + BASE <= (found.end if write else found.readable_end)
            and not (write and found.readonly)
        ):
            return index, lanes
        legal = self.memory.legal(index + BASE, size, write=write)
        fine = legal if lanes is None else legal | ~lanes
        if fine.all():
            return index, lanes
        if self.checker is None or not self.checker.bounds:
            wave, *lane = (int(i[0]) for i in np.nonzero(~fine))
            where = int(index[(wave, *lane)]) + BASE
            raise TilecError(
                f"illegal access of {size} bytes at {where:#x} by {instruction}",
                limit=f"wave {int(batch.waves[wave])}{f', lane {lane[0]}' if lane else ''}; {self.describe(where)}",
                fix="run with the check 'bounds' on to go on after it",
            )
        self.checker.global_bounds(batch, instruction, index + BASE, fine, size, write)
        lanes = legal if lanes is None else lanes & legal
        return index * lanes, lanes

    def describe(self, address: int) -> str:
        """An address in terms of the allocation that it is in or beyond."""
        near = self.memory.nearest(address)
        if near is None:
            return "no allocation lies below it"
        past = address - near.end
        where = f"{past} bytes past the end of" if past >= 0 else "inside of"
        return f"{where} {near.name} [{near.start:#x}, {near.end:#x}){' (read-only)' if near.readonly else ''}"

    # ---- operations in flight
    def issue(self, batch: Batch, access: Access) -> None:
        """Put an access in flight; a full counter first completes its oldest, if its operations are all in order (else
        another may have been completed).
        """
        self.last_issued = access
        if self.checker is not None:
            self.checker.issued(batch, access)
        for counter in access.instruction.counters:
            queue = batch.queues[counter]
            queue.append(access)
            while len(queue) > LIMITS[counter] and all(other.row.in_order(counter) for other in queue):
                self._complete(batch, queue.pop(0))
        for register in access.registers:
            batch.in_flight[register] = access
        if self.landing == "early":
            access.land(batch)
        elif self.landing == "random":
            self._land_some(batch)

    def _land_some(self, batch: Batch) -> None:
        """Land a random number of the oldest operations of each counter, in order."""
        for queue in batch.queues.values():
            for access in queue[: int(self.random.integers(0, len(queue) + 1))]:
                access.land(batch)

    def retire(self, batch: Batch, counter: str, count: int) -> None:
        """s_waitcnt: complete what a counter value of at most `count` guarantees.

        Only 0 says anything of scalar loads and FLAT, which return out of order. The others stay in order, and those
        may be what is still counted.
        """
        queue = batch.queues[counter]
        if len(queue) <= count:
            return
        ordered = [access for access in queue if access.row.in_order(counter)]
        done = ordered[: max(0, len(ordered) - count)] if count else list(queue)
        for access in done:
            queue.remove(access)
            self._complete(batch, access)

    def _complete(self, batch: Batch, access: Access) -> None:
        if any(access in queue for queue in batch.queues.values()):
            return  # FLAT: the other counter still holds it
        access.land(batch)
        for register in access.registers:
            if batch.in_flight.get(register) is access:
                del batch.in_flight[register]
        if self.checker is not None:
            self.checker.completed(batch, access)

    def finish(self, batch: Batch) -> None:
        """s_endpgm: outstanding stores still take effect."""
        for queue in batch.queues.values():
            while queue:
                self._complete(batch, queue.pop(0))
        self.alive -= np.bincount(self.slot[batch.waves], minlength=len(self.alive))

    # ---- barriers
    def arrive(self, batch: Batch) -> None:
        slots = self.slot[batch.waves]
        self.awaited[batch.waves] = self.generation[slots] + 1
        self.arrived += np.bincount(slots, minlength=len(self.arrived))
        if self.checker is not None:
            self.checker.arrived(batch)

    def open_barriers(self) -> None:
        """Let go the workgroups whose living waves have all arrived."""
        complete = (self.arrived > 0) & (self.arrived >= self.alive)
        if complete.any():
            if self.checker is not None:
                self.checker.barrier_opens(np.flatnonzero(complete))
            self.generation += complete
            self.arrived[complete] = 0
            if self.checker is not None:
                self.checker.barrier_opened(np.flatnonzero(complete))

    def may_go(self, batch: Batch) -> Array:
        """bool per wave of the batch: has the barrier that it waits at opened?"""
        return self.generation[self.slot[batch.waves]] >= self.awaited[batch.waves]

    # ---- registers of the hardware
    def hardware_register(self, batch: Batch, number: int) -> Array:
        """s_getreg: MODE, HW_ID and XCC_ID are modelled, others read 0. uint32 [wave]."""
        group = self.groups[self.slot[batch.waves]]
        wave = self.wave_in_group[batch.waves]
        if number == 1:
            return np.full(len(batch.waves), batch.mode_bits, np.uint32)
        if number == 4:  # WAVE 3:0, SIMD 5:4, CU 11:8, SE 15:13
            within = group // XCDS % CUS_PER_XCD
            return (wave // SIMDS % 16 | wave % SIMDS << 4 | within % 10 << 8 | within // 10 % 8 << 13).astype(
                np.uint32
            )
        if number == 20:
            return (group % XCDS).astype(np.uint32)
        return np.zeros(len(batch.waves), np.uint32)

    def clock(self, batch: Batch) -> Array:
        """s_memtime: a count that only grows. uint32 [2, wave]."""
        self.ticks += 64
        return np.repeat(np.array([[self.ticks & 0xFFFFFFFF], [self.ticks >> 32]], np.uint32), len(batch.waves), axis=1)
