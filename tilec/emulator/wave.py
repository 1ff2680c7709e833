"""A batch: waves at one program counter, executed together as numpy arrays.

A batch owns its state, so that a register is one contiguous [wave, lane] block and the common case needs no index.
When waves part, the batch splits into smaller ones (a copy); when batches meet in like state, they join. Vector
registers are uint32 [register, wave, lane]; scalar registers uint32 [register, wave]; EXEC is kept there and,
expanded, as `mask`. Memory operations stay in the batch's queues from issue until a wait retires them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilec.emulator.mode import Mode
from tilec.emulator.operands import EXEC, SGPR

if TYPE_CHECKING:
    from tilec.emulator.access import Access
    from tilec.emulator.grid import Machine
    from tilec.emulator.instruction import Instruction

Array = np.ndarray[Any, Any]
LANES = 64
SCALARS = 130
_LANE = np.arange(LANES, dtype=np.uint64)
FULL = np.uint32(0xFFFFFFFF)


class Batch:
    """Waves that execute together. `waves` are indices into the machine's per-wave tables."""

    def __init__(self, machine: Machine, waves: Array, v: Array, s: Array, pc: int, mode: Mode, mode_bits: int):
        self.machine, self.waves, self.v, self.s, self.pc = machine, waves, v, s, pc
        self.mode, self.mode_bits = mode, mode_bits
        self.queues: dict[str, list[Access]] = {"vm": [], "lgkm": []}
        self.in_flight: dict[int, Access] = {}  # register id -> the access that will write it
        self.undefined: dict[int, Array] = {}  # register id -> mask of undefined bits; absent: defined
        self.histories: frozenset[tuple[Instruction, ...]] = frozenset({()})  # paths by which the waves came
        self.age = 0
        self.relative_to: int | None = None  # the M0 that it was parted from others for, until its next block has run
        self.stop = ""  # why the last block ended: '', end, barrier, parted
        self.barrier: Instruction | None = None  # the barrier that the waves wait at
        self.parts: list[Batch] = []  # parted: the batches that go on in place of this one
        self.exec_changed()

    # ---- EXEC
    def exec_changed(self) -> None:
        """Recompute what depends on EXEC. Called after every write to it."""
        low, high = self.s[EXEC - SGPR], self.s[EXEC + 1 - SGPR]
        self._active: Array | None = None
        if (low == FULL).all() and (high == FULL).all():
            self.mask: Array | None = None
        else:
            self.mask = expand_bits(low, high)

    @property
    def active(self) -> Array:
        """EXEC as bool [wave, lane]."""
        active = self._active
        if active is None:
            active = np.ones((len(self.waves), LANES), bool) if self.mask is None else np.asarray(self.mask != 0)
            self._active = active
        return active

    # ---- registers
    def write_vector(self, row: int, value: Array) -> None:
        """Write uint32 [wave, lane] (or broadcastable) to a vector register, in active lanes."""
        target = self.v[row]
        if self.mask is None:
            target[...] = value
        else:
            target ^= (target ^ value) & self.mask

    def lane_mask(self, scalar: int) -> Array:
        """The SGPR pair at id `scalar` as bool [wave, lane]."""
        return expand_bits(self.s[scalar - SGPR], self.s[scalar + 1 - SGPR]) != 0

    def write_lane_mask(self, scalar: int, lanes: Array) -> None:
        """Pack bool [wave, lane] into the SGPR pair at id `scalar`."""
        words = np.packbits(lanes, axis=-1, bitorder="little").view(np.uint32)
        self.s[scalar - SGPR] = words[:, 0]
        self.s[scalar + 1 - SGPR] = words[:, 1]

    def set_mode(self, bits: int) -> None:
        self.mode_bits = bits
        self.mode = Mode.from_register(bits, self.machine.arch)

    # ---- splitting and joining
    def take(self, rows: Array) -> Batch:
        """A new batch of some of the waves (a copy), with the same history."""
        batch = Batch(
            self.machine, self.waves[rows], self.v[:, rows], self.s[:, rows], self.pc, self.mode, self.mode_bits
        )
        copies: dict[int, Access] = {}
        for name, queue in self.queues.items():
            batch.queues[name] = [copies.setdefault(id(access), access.take(rows)) for access in queue]
        batch.in_flight = {register: copies[id(access)] for register, access in self.in_flight.items()}
        batch.undefined = {register: mask[rows] for register, mask in self.undefined.items()}
        batch.undefined = {register: mask for register, mask in batch.undefined.items() if mask.any()}
        batch.histories, batch.age, batch.barrier = self.histories, self.age, self.barrier
        return batch

    def part(self, keys: Array) -> Iterator[tuple[int, Batch]]:
        """Stop here and go on as one batch per distinct key (per wave): yields each key with its batch, to be told
        apart.
        """
        self.stop = "parted"
        for key in np.unique(keys):
            batch = self.take(np.flatnonzero(keys == key))
            self.parts.append(batch)
            yield int(key), batch

    @property
    def signature(self) -> tuple[Any, ...]:
        """Batches join only when these agree: place, mode, and what is in flight."""
        in_flight = (tuple(access.layout for access in queue) for queue in self.queues.values())
        return (self.pc, self.mode_bits, self.relative_to, *in_flight)


def join(batches: Sequence[Batch]) -> Batch:
    """One batch of all waves. The batches have equal signatures."""
    first = batches[0]
    whole = Batch(
        first.machine,
        np.concatenate([b.waves for b in batches]),
        np.concatenate([b.v for b in batches], axis=1),
        np.concatenate([b.s for b in batches], axis=1),
        first.pc,
        first.mode,
        first.mode_bits,
    )
    joined: dict[int, Access] = {}
    for name in first.queues:
        for parts in zip(*(b.queues[name] for b in batches), strict=True):
            access = joined.get(id(parts[0]))
            if access is None:
                access = joined[id(parts[0])] = parts[0].join(parts)
            whole.queues[name].append(access)
    whole.in_flight = {register: joined[id(access)] for register, access in first.in_flight.items()}
    for register in {r for b in batches for r in b.undefined}:
        shape = first.s.shape[2:] if register >= SGPR else (LANES,)
        whole.undefined[register] = np.concatenate(
            [b.undefined.get(register, np.zeros((len(b.waves), *shape), np.uint32)) for b in batches]
        )
    whole.histories = frozenset().union(*(b.histories for b in batches))
    whole.age, whole.relative_to = max(b.age for b in batches), first.relative_to
    return whole


def expand_bits(low: Array, high: Array) -> Array:
    """Two uint32 [wave] to uint32 [wave, lane] of 0 or 0xffffffff."""
    both = low.astype(np.uint64) | high.astype(np.uint64) << np.uint64(32)
    bits = (both[:, None] >> _LANE & np.uint64(1)).astype(np.uint32)
    return np.uint32(0) - bits
