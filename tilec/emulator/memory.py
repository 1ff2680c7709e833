"""Byte-addressed stores: sparse global memory with its allocation table, and the flat space that LDS and scratch
share with it.

A Space answers gathers and scatters by byte index; the instructions compute indices, the checks judge them, neither
lives here. Global memory is one anonymous mapping without reserve, so that a tensor of any size costs only the pages
it touches; addresses are `BASE + offset`. Offset 0 of every space is a page of zeros: a lane that must read 0 reads
there, and nobody writes there. Between allocations lies a guard gap, so that an access past the end of a tensor never
falls into its neighbour.
"""

from __future__ import annotations

import bisect
import mmap
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilec.errors import TilecError

BASE = 1 << 44
"""Address of offset 0. Above 32 bits, so that truncated pointers fault; below 48 bits, so that buffer descriptors
hold it.
"""

GUARD = 1 << 16
ZERO_PAGE = 4096
SHARED_APERTURE, PRIVATE_APERTURE = 1 << 48, 2 << 48
"""FLAT addresses with these high bits go to LDS and to scratch (SH_MEM_BASES as the Linux driver sets it)."""

Array = np.ndarray[Any, Any]


class Space:
    """`size` bytes that can be gathered from and scattered to by arrays of byte indices."""

    def __init__(self, storage: Array):
        size = len(storage) & ~15
        self.bytes = storage[:size]
        self.views = {
            2: self.bytes.view(np.uint16),
            4: self.bytes.view(np.uint32),
            8: self.bytes.view(np.uint64),
            16: self.bytes.view(np.complex128),
        }

    def load(self, index: Array, size: int, unit: int = 0) -> Array:
        """`size` bytes (1, 2, 4, 8, 12, 16) at each byte index: uint32 [dwords, *index.shape], zero-extended.

        `unit`: the alignment of the indices where the caller knows it.
        """
        unit = unit or alignment(index, size)
        if unit == size or unit >= 4:
            return self._load_units(index, size, unit)
        raw = self.bytes[index[..., None] + np.arange(size)]
        if size < 4:
            raw = np.concatenate([raw, np.zeros((*index.shape, 4 - size), np.uint8)], axis=-1)
        return np.moveaxis(np.ascontiguousarray(raw).view(np.uint32), -1, 0)

    def _load_units(self, index: Array, size: int, unit: int) -> Array:
        if unit == 1:
            return self.bytes[index].astype(np.uint32)[None]
        view, position = self.views[unit], index >> unit.bit_length() - 1
        if unit == 2:
            return view[position].astype(np.uint32)[None]
        if unit == 4:
            return np.stack([view[position + i] if i else view[position] for i in range(size // 4)])
        pieces = [view[position + i] if i else view[position] for i in range(size // unit)]
        out = np.empty((size // 4, *index.shape), np.uint32)
        for i, piece in enumerate(pieces):
            words = piece.view(np.uint32).reshape(*index.shape, unit // 4)
            for j in range(unit // 4):
                out[i * unit // 4 + j] = words[..., j]
        return out

    def store(self, index: Array, data: Array, size: int, unit: int = 0) -> None:
        """Write the low `size` bytes of `data` (uint32 [dwords, n]) at each of n byte indices; the last of equals
        wins.
        """
        unit = unit or alignment(index, size)
        if unit == size == 1:
            self.bytes[index] = data[0].astype(np.uint8)
        elif unit == size == 2:
            self.views[2][index >> 1] = data[0].astype(np.uint16)
        elif unit >= 8:
            words = np.stack([data[i] for i in range(size // 4)], axis=-1)
            units = words.view(np.complex128 if unit == 16 else np.uint64)
            for i in range(size // unit):
                self.views[unit][(index >> unit.bit_length() - 1) + i] = units[..., i]
        elif unit == 4:
            for i in range(size // 4):
                self.views[4][(index >> 2) + i] = data[i]
        else:
            raw = np.ascontiguousarray(np.moveaxis(data, 0, -1)).view(np.uint8)[..., :size]
            self.bytes[index[..., None] + np.arange(size)] = raw


def sparse(size: int) -> Array:
    """`size` zero bytes that cost memory only where touched. Raises OSError when there is no address space for them."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0x4000)
    return np.frombuffer(mmap.mmap(-1, max(size, 1), flags=flags), np.uint8)


def alignment(index: Array, size: int) -> int:
    """The widest power of two, up to 16, that divides every index and the size."""
    low = int(np.bitwise_or.reduce(index, axis=None)) | size | 16 if index.size else size
    return low & -low


@dataclass(frozen=True)
class Allocation:
    """Bytes [start, end) that a program may touch; a dword that holds the last byte may be read whole."""

    start: int
    end: int
    name: str
    readonly: bool

    @property
    def readable_end(self) -> int:
        return self.end + 3 & ~3


class Memory:
    """Sparse global memory. Addresses are BASE + offset into one lazily committed mapping of `capacity` bytes, or of
    what the system grants: address space may be limited.
    """

    def __init__(self, capacity: int = 1 << 38):
        storage = None
        while storage is None:
            try:
                storage = sparse(capacity)
            except OSError as error:
                capacity //= 4
                if capacity < 1 << 26:
                    raise TilecError("no address space for the emulated memory", limit=str(error)) from error
        self.capacity = capacity
        self.space = Space(storage)
        self.allocations: list[Allocation] = []
        self._starts: list[int] = []
        self._top = BASE + GUARD

    def place(
        self,
        content: Array | bytes | int,
        *,
        name: str = "",
        align: int = 256,
        readonly: bool = False,
        address: int | None = None,
    ) -> int:
        """Allocate room for a copy of `content` (array, bytes, or a number of zero bytes); the address of its first
        byte.

        `address` asks for a place; raises TilecError when it overlaps another allocation or lies outside of the
        mapping.
        """
        if isinstance(content, int):
            data, size = None, content
        else:
            data = np.frombuffer(content, np.uint8) if isinstance(content, bytes) else _raw(content)
            size = len(data)
        if address is None:
            address = -(-self._top // align) * align
        end = address + size
        where = bisect.bisect(self._starts, address)
        neighbours = self.allocations[max(where - 1, 0) : where + 1]
        if (
            address < BASE + ZERO_PAGE
            or end > BASE + self.capacity
            or any(a.start < end and address < a.end for a in neighbours)
        ):
            raise TilecError(
                f"no room for {size} bytes of {name or 'memory'} at {address:#x}",
                limit=f"global memory lies at [{BASE + ZERO_PAGE:#x}, {BASE + self.capacity:#x})",
                fix="leave the address to the emulator, or place it apart from other allocations",
            )
        self.allocations.insert(where, Allocation(address, end, name or f"allocation {len(self._starts)}", readonly))
        self._starts.insert(where, address)
        self._top = max(self._top, end + GUARD)
        if data is not None and size:
            self.space.bytes[address - BASE : end - BASE] = data
        return address

    def remove(self, address: int) -> None:
        """Forget the allocation that starts at `address`; its bytes become illegal to touch."""
        where = self._starts.index(address)
        del self.allocations[where], self._starts[where]

    def read(self, address: int, size: int) -> Array:
        """A copy of `size` bytes as uint8. Raises TilecError outside of an allocation."""
        self._require(address, size)
        return self.space.bytes[address - BASE : address - BASE + size].copy()

    def write(self, address: int, content: Array | bytes) -> None:
        """Overwrite bytes. Raises TilecError outside of an allocation."""
        data = np.frombuffer(content, np.uint8) if isinstance(content, bytes) else _raw(content)
        self._require(address, len(data))
        self.space.bytes[address - BASE : address - BASE + len(data)] = data

    def find(self, address: int) -> Allocation | None:
        """The allocation that holds the address."""
        where = bisect.bisect(self._starts, address) - 1
        if where >= 0 and address < self.allocations[where].end:
            return self.allocations[where]
        return None

    def nearest(self, address: int) -> Allocation | None:
        """The last allocation that starts at or before the address: the one that an overrun came from."""
        where = bisect.bisect(self._starts, address) - 1
        return self.allocations[where] if where >= 0 else None

    def legal(self, addresses: Array, size: int, *, write: bool) -> Array:
        """bool of addresses.shape: may `size` bytes be accessed there, under the last-dword rule for reads?"""
        if not self._starts:
            return np.zeros(addresses.shape, bool)
        where = np.searchsorted(np.array(self._starts), addresses, side="right") - 1
        ends = np.array([a.end if write else a.readable_end for a in self.allocations])
        allowed = (where >= 0) & (addresses + size <= ends[where])
        if write:
            allowed &= ~np.array([a.readonly for a in self.allocations])[where]
        return allowed

    def _require(self, address: int, size: int) -> None:
        found = self.find(address)
        if size and (found is None or address + size > found.end):
            raise TilecError(f"[{address:#x}, {address + size:#x}) is not inside of an allocation")


def _raw(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
