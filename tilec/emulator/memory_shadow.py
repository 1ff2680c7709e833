"""Definedness of LDS and scratch: which bits in memory are undefined, and how loads bring them back into registers.

Scratch starts undefined. LDS knows by granule what was ever written (races.py keeps that) and, only if undefined bits
were ever stored, by bit. Global memory is taken to be defined: storing undefined bits there is reported, and buffers
have contents.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tilec.emulator.access import Access, Part, transpose
from tilec.emulator.memory import ZERO_PAGE, Space

if TYPE_CHECKING:
    from tilec.emulator.machine import Machine
    from tilec.emulator.races import LdsRaces
    from tilec.emulator.wave import Batch

Array = np.ndarray[Any, Any]


def data_bits(batch: Batch, access: Access) -> dict[int, Array] | None:
    """Undefined bits of the stored dwords, by position in the access's data."""
    operands = [span for span in access.instruction.sources if access.instruction.data.issuperset(span) and len(span)]
    registers = [r for span in operands[: len(operands)] for r in span][
        : 0 if access.data is None else len(access.data)
    ]
    found = {i: batch.undefined[r].copy() for i, r in enumerate(registers) if r in batch.undefined}
    return found or None


class MemoryShadow:
    """The undefined bits of a resident set's LDS and scratch."""

    def __init__(self, machine: Machine, races: LdsRaces | None):
        self.machine, self.races = machine, races
        self.lds: Space | None = None
        self.scratch = Space(np.full(len(machine.scratch.bytes), 255, np.uint8)) if machine.scratch_bytes else None
        if self.scratch is not None:
            self.scratch.bytes[:ZERO_PAGE] = 0

    def landing(self, batch: Batch, access: Access) -> None:
        """Before an access takes effect: what it stores becomes as defined as its data, what it loads as the memory."""
        row = access.row
        if access.target is not None and self.races is not None:
            self.races.mark_written(access.target)
            self._store_shadow(access.target, None, 0)
        elif row.op in ("store", "atomic"):
            for part in access.parts:
                if part.space is self.machine.lds and self.races is not None:
                    self.races.mark_written(part)
                if part.space in (self.machine.lds, self.machine.scratch):
                    self._store_shadow(part, access.shadow, 16 if row.half == "high" else 0)
        if access.registers and row.space != "scalar":
            self._load_shadow(batch, access)
        elif access.registers:
            for register in access.registers:
                batch.undefined.pop(register, None)

    def _memory_shadow(self, space: Space, create: bool) -> Space | None:
        if space is self.machine.scratch:
            return self.scratch
        if self.lds is None and create:
            self.lds = Space(np.zeros(len(self.machine.lds.bytes), np.uint8))
        return self.lds

    def _store_shadow(self, part: Part, bits: dict[int, Array] | None, shift: int) -> None:
        count = -(-part.size // 4)
        moved = {i: bits[part.dword + i] >> np.uint32(shift) for i in range(count) if bits and part.dword + i in bits}
        memory = self._memory_shadow(part.space, bool(moved))
        if memory is None:
            return
        data = np.zeros((count, *part.index.shape), np.uint32)
        for i, value in moved.items():
            data[i] = value
        index, lanes = part.effective()
        memory.store(index, data.reshape(count, -1) if lanes is None else data[:, lanes], part.size)

    def _load_shadow(self, batch: Batch, access: Access) -> None:
        """The destination registers become as defined as what is loaded."""
        row = access.row
        bits: dict[int, Array] = {}
        if row.op == "permute":
            bits = dict(access.shadow or {})
        else:
            for part in access.parts:
                memory = (
                    self._memory_shadow(part.space, False)
                    if part.space in (self.machine.lds, self.machine.scratch)
                    else None
                )
                count = -(-part.size // 4)
                loaded = memory.load(part.index, part.size) if memory is not None else None
                fresh = (
                    self.races.unwritten(part) if part.space is self.machine.lds and self.races is not None else None
                )
                if fresh is not None:
                    loaded = np.zeros((count, *part.index.shape), np.uint32) if loaded is None else loaded.copy()
                    self._add_unwritten(loaded, fresh, part.size)
                if loaded is not None and loaded.any():
                    bits |= {part.dword + i: loaded[i] for i in range(count) if loaded[i].any()}
        if row.transpose and bits:
            count = len(access.registers)
            data = np.zeros((count, *access.parts[0].index.shape), np.uint32)
            for i, value in bits.items():
                data[i] = value
            bits = dict(enumerate(transpose(data, row.transpose)))
        for i, register in enumerate(access.registers):
            self._set_register(batch, register, bits.get(i), access)

    def _add_unwritten(self, loaded: Array, fresh: Array, size: int) -> None:
        assert self.races is not None
        granule = self.races.granule
        for i in range(len(fresh)):
            if granule >= 4:
                for word in range(granule // 4):
                    loaded[i * granule // 4 + word] |= np.where(fresh[i], np.uint32(0xFFFFFFFF), np.uint32(0))
            else:
                field = ((1 << 8 * granule) - 1) << 8 * (i * granule % 4)
                loaded[i * granule // 4] |= np.where(fresh[i], np.uint32(field), np.uint32(0))

    def _set_register(self, batch: Batch, register: int, bits: Array | None, access: Access) -> None:
        old, row = batch.undefined.get(register), access.row
        if bits is None and old is None and not row.half:
            return
        new = np.zeros((len(batch.waves), 64), np.uint32) if bits is None else bits
        if row.size < 4 and row.signed and bits is not None:
            new = np.where(bits != 0, np.uint32(0xFFFFFFFF), np.uint32(0))
        if row.half:
            low = np.uint32(0xFFFF)  # with ECC nothing is promised of the other half
            new = new & low | ~low if row.half == "low" else new << np.uint32(16) | low
        if access.mask is not None:
            new = (np.uint32(0) if old is None else old & ~access.mask) | new & access.mask
        if new.any():
            batch.undefined[register] = np.ascontiguousarray(new)
        else:
            batch.undefined.pop(register, None)
