"""A tensor's place in memory for a generated case: any axis order, padded rows, poison around every element."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np

from tilec.dtypes import DType
from tilec.ir import numerics

POISON = 0xFF        # in every byte: NaN for each float type, -1 or the highest number for integers


@dataclass(frozen=True)
class Memory:
    """`strides` and `offset` count elements; `contiguous` and `alignment` are what a TensorType may claim of it."""

    dtype: DType
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    contiguous: int | None
    alignment: int
    data: np.ndarray

    @staticmethod
    def random(choose: random.Random, dtype: DType, extents: tuple[int, ...], low: int, high: int) -> Memory:
        """Memory of a random shape that holds integers between `low` and `high`."""
        size = dtype.bits // 8
        aligned = choose.random() < 0.5
        unit = 16 // size if aligned else 1
        step = 1 if aligned or choose.random() < 0.8 else 2
        order = list(range(len(extents)))
        choose.shuffle(order)
        strides, stride = [0] * len(extents), step
        for axis in order:
            strides[axis] = stride
            stride = -(-(stride * max(1, extents[axis]) + choose.choice((0, 0, 1, 5))) // unit) * unit
        numbers = np.random.default_rng(choose.getrandbits(32)).integers(low, high, extents, endpoint=True,
                                                                         dtype=np.uint64 if low >= 0 else np.int64)
        held = numbers.astype(numerics.held_as(dtype))
        return Memory(dtype, extents, tuple(strides), choose.randrange(3) * unit, order[0] if step == 1 else None,
                      16 if aligned else size, numerics.encode(held, dtype))

    def allocate(self) -> np.ndarray:
        """A new array in memory of its own, whose elements are `data` and whose surroundings are poison."""
        kind = numerics.storage_of(self.dtype)
        elements = self.offset + sum(s * e for s, e in zip(self.strides, self.extents)) + 64
        raw = np.full(elements * kind.itemsize + 64, POISON, np.uint8)
        start = -raw.ctypes.data % 64 + self.offset * kind.itemsize
        array = np.ndarray(self.extents, kind, raw, start, tuple(s * kind.itemsize for s in self.strides))
        array[...] = self.data
        return array

    @staticmethod
    def surroundings_intact(array: np.ndarray) -> bool:
        """Whether all bytes around the elements of an array made by `allocate` are still poison."""
        raw, kept = array.base, array.copy()
        array.view(np.uint8 if array.dtype == bool else f"u{array.itemsize}")[...] = np.iinfo(f"u{array.itemsize}").max
        intact = bool((raw == POISON).all())
        array[...] = kept
        return intact
