"""Where each element of a tile lies in LDS: a linear map to granules, an XOR swizzle of their index, perhaps padding.

Elements are numbered along `order` (the fastest axis first); the powers of two of all axes make up a block, odd factors
count blocks, so that within a block every map is linear over GF(2). A granule is a run of elements that stays
contiguous: what the widest access moves at once. The swizzle XORs a mask into the granule index for each of its bits
that is set; a mask only has lower bits, so the map is a permutation of each block and easy to invert. Padding inserts
bytes after each interval of what comes out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tilec.errors import InternalError, TilecError
from tilec.ir.layout import Coordinates


@dataclass(frozen=True)
class SharedLayout:
    """Coordinates in a tile of `shape` -> byte address from the start of a buffer.

    `granule` elements (a power of two; 0: up to 16 bytes) lie in each `granule_bytes`; normally they fill it, but 16
    elements of fp6 (12 bytes) may lie 16 bytes apart, as gfx950's 12-byte copies leave them. `swizzle[i]` is XORed into
    the granule index where its bit i is set. `pad_bytes` are inserted after every `pad_interval` bytes (a power of two;
    0: none).
    """

    shape: tuple[int, ...]
    element_bits: int
    order: tuple[int, ...]
    granule: int = 0
    granule_bytes: int = 0
    swizzle: tuple[int, ...] = ()
    pad_interval: int = 0
    pad_bytes: int = 0

    def __post_init__(self) -> None:
        if not self.granule:
            widest = 32 if self.element_bits == 6 else max(1, 128 // self.element_bits)
            object.__setattr__(self, "granule", min(widest, self.block))
        object.__setattr__(self, "granule_bytes", self.granule_bytes or self.granule * self.element_bits // 8)
        swizzle = self.swizzle
        while swizzle and not swizzle[-1]:
            swizzle = swizzle[:-1]
        object.__setattr__(self, "swizzle", swizzle)
        if sorted(self.order) != list(range(len(self.shape))):
            raise InternalError(f"order {self.order} of a shared layout of shape {self.shape}")
        if self.granule & (self.granule - 1) or self.granule * self.element_bits > 8 * self.granule_bytes:
            raise InternalError(f"{self.granule} elements of {self.element_bits} bits in {self.granule_bytes} bytes")
        if self.block % self.granule or any(mask >> bit for bit, mask in enumerate(swizzle)):
            raise InternalError(f"swizzle {swizzle}, granules of {self.granule} elements, a block of {self.block}")
        if len(swizzle) > (self.block // self.granule).bit_length() - 1:
            raise InternalError(f"swizzle {swizzle} reaches over a block of {self.block // self.granule} granules")
        if self.pad_interval & (self.pad_interval - 1) or (self.pad_interval == 0) != (self.pad_bytes == 0):
            raise InternalError(f"padding of {self.pad_bytes} bytes every {self.pad_interval}")
        if self.pad_bytes and (self.pad_interval % self.granule_bytes or self.pad_bytes < 0):
            raise InternalError(f"{self.pad_bytes} bytes of padding every {self.pad_interval} cut granules of "
                                f"{self.granule_bytes} bytes")

    @cached_property
    def twos(self) -> tuple[int, ...]:
        """The power of two in each axis: the shape of a block."""
        return tuple(size & -size for size in self.shape)

    @cached_property
    def block(self) -> int:
        """Elements of a block."""
        return math.prod(self.twos)

    @property
    def block_bytes(self) -> int:
        """Size of a block before padding."""
        return self.block // self.granule * self.granule_bytes

    @cached_property
    def bytes(self) -> int:
        """Size of the buffer, up to the last byte of the last granule."""
        granules = math.prod(self.shape) // self.granule
        return self._pad(self.granule_bytes * (granules - 1)) + self.granule_bytes

    # ------------------------------------------------------------------------------------------------------- the map
    def bit_address(self, coordinates: np.ndarray | Sequence[Any]) -> Any:
        """Address in bits of elements given axis first (arrays or ints)."""
        granule, element = divmod(self._index(coordinates), self.granule)
        return 8 * self._pad(self._swizzled(granule) * self.granule_bytes) + element * self.element_bits

    def byte_address(self, coordinates: np.ndarray | Sequence[Any]) -> Any:
        """Byte that holds an element's first bit."""
        return self.bit_address(coordinates) // 8

    def place(self, coordinates: Coordinates) -> tuple[int, int]:
        """(place of its granule: address / granule_bytes before padding, element within the granule). Both are linear
        over GF(2) within a block, and blocks add to the place."""
        granule, element = divmod(self._index(coordinates), self.granule)
        return self._swizzled(granule), element

    def coordinates(self, granule: np.ndarray | int, element: int = 0) -> tuple[Any, ...]:
        """Inverse of `place`: the coordinates of an element of the granule at a place."""
        for bit in reversed(range(len(self.swizzle))):
            granule = granule ^ (granule >> bit & 1) * self.swizzle[bit]
        index = granule * self.granule + element
        result: list[Any] = [0] * len(self.shape)
        for axis in self.order:
            result[axis], index = index % self.twos[axis], index // self.twos[axis]
        for axis in self.order:
            size = self.shape[axis] // self.twos[axis]
            result[axis], index = result[axis] + index % size * self.twos[axis], index // size
        return tuple(result)

    def _index(self, coordinates: Any) -> Any:
        """Number of an element in memory order before the swizzle."""
        index, scale = 0, 1
        for axis in self.order:
            index = index + coordinates[axis] % self.twos[axis] * scale
            scale *= self.twos[axis]
        for axis in self.order:
            index = index + coordinates[axis] // self.twos[axis] * scale
            scale *= self.shape[axis] // self.twos[axis]
        return index

    def _swizzled(self, granule: Any) -> Any:
        for bit, mask in enumerate(self.swizzle):
            if mask:
                granule = granule ^ (granule >> bit & 1) * mask
        return granule

    def _pad(self, address: Any) -> Any:
        return address + address // self.pad_interval * self.pad_bytes if self.pad_interval else address

    def __str__(self) -> str:
        shape, order = "x".join(map(str, self.shape)), ",".join(map(str, self.order))
        text = f"shared({shape}; {self.element_bits} bits; order {order}; "
        text += f"granule {self.granule} in {self.granule_bytes} bytes"
        masks = " ".join(f"{bit}^{mask}" for bit, mask in enumerate(self.swizzle) if mask)
        text += f"; swizzle {masks}" if masks else ""
        return text + (f"; pad {self.pad_bytes} every {self.pad_interval}" if self.pad_interval else "") + ")"

    @classmethod
    def parse(cls, text: str) -> SharedLayout:
        """The inverse of str(). Raises TilecError for other text."""
        match = re.fullmatch(r"shared\(([\dx]+); (\d+) bits; order ([\d,]+); granule (\d+) in (\d+) bytes"
                             r"(?:; swizzle ([\d^ ]+))?(?:; pad (\d+) every (\d+))?\)", text.strip())
        if not match:
            raise TilecError(f"not a shared layout: {text!r}",
                             fix="write shared(SHAPE; N bits; order AXES; granule N in N bytes; ...)")
        masks = {int(bit): int(mask) for bit, _, mask in (word.partition("^") for word in (match[6] or "").split())}
        swizzle = tuple(masks.get(bit, 0) for bit in range(max(masks, default=-1) + 1))
        return cls(tuple(map(int, match[1].split("x"))), int(match[2]), tuple(map(int, match[3].split(","))),
                   int(match[4]), int(match[5]), swizzle, int(match[8] or 0), int(match[7] or 0))
