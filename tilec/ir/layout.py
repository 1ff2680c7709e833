"""Layouts: where each element of a tile lives. One class for registers; questions to it, never a table of named cases.

A layout maps (item, lane, wave) to tile coordinates; item counts elements within a lane (packing into registers is the
dtype's). It is linear over GF(2): every bit of an index has a basis, the coordinates that are XORed in when the bit is
set; a zero basis replicates. Sizes that are no power of two are grids of such maps: above its bits an index has
mixed-radix digits that *add* a step each.

Built by blocked.py (coalesced access) and fragments.py (matrix operands); moved by conversion.py; met with LDS by
lds_access.py.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np

from tilec.errors import InternalError, TilecError

Coordinates = tuple[int, ...]


class Digit(NamedTuple):
    """A digit of an index: value d (0 <= d < radix) adds d * step to the coordinates."""

    radix: int
    step: Coordinates


class Field(NamedTuple):
    """Bits [bit, bit + width) of an index are XORed into the coordinate at [shift, shift + width)."""

    bit: int
    width: int
    shift: int


class Replication(NamedTuple):
    """One representative of each element: these items, in lanes with no bit of `lane_mask` set, in these waves."""

    items: tuple[int, ...]
    lane_mask: int
    waves: tuple[int, ...]

    def lanes(self, wave_size: int) -> int:
        """The representative lanes as an EXEC mask."""
        return sum(1 << lane for lane in range(wave_size) if not lane & self.lane_mask)


class Coalescing(NamedTuple):
    """How one memory instruction of a wave touches a tensor: `vector` items per lane make `bytes_per_lane` contiguous
    bytes, the wave's lanes together make `segments` contiguous runs, the shortest of `run_bytes`."""

    vector: int
    bytes_per_lane: int
    run_bytes: int
    segments: int


@dataclass(frozen=True)
class Layout:
    """(item, lane, wave) -> coordinates in a tile of `shape`. `item`, `lane`, `wave` hold one basis per index bit,
    lowest first; `item_grid` and `wave_grid` the digits above these bits. Construction brings equal maps to one form (a
    leading digit whose count has a power of two becomes bits), so that == compares maps built in different ways."""

    shape: tuple[int, ...]
    item: tuple[Coordinates, ...]
    lane: tuple[Coordinates, ...]
    wave: tuple[Coordinates, ...] = ()
    item_grid: tuple[Digit, ...] = ()
    wave_grid: tuple[Digit, ...] = ()

    def __post_init__(self) -> None:
        bases = (*self.item, *self.lane, *self.wave, *(digit[1] for digit in (*self.item_grid, *self.wave_grid)))
        if any(len(basis) != self.rank for basis in bases):
            raise InternalError(f"a layout of rank {self.rank} has a basis of another rank: {bases}")
        for name in ("item", "wave"):
            bits, grid = self._canonical(name)
            object.__setattr__(self, name, bits)
            object.__setattr__(self, f"{name}_grid", grid)

    def _canonical(self, name: str) -> tuple[tuple[Coordinates, ...], tuple[Digit, ...]]:
        bits, grid = list(getattr(self, name)), list(getattr(self, f"{name}_grid"))
        used = self._used_bits()
        while grid and all(step & (step - 1) == 0 for step in grid[0].step):
            count, step = grid.pop(0)
            twos = count & -count
            if any((twos - 1) * value & taken for value, taken in zip(step, used, strict=True)):
                grid.insert(0, Digit(count, step))
                break
            bits += [tuple(value << bit for value in step) for bit in range(twos.bit_length() - 1)]
            used = [taken | (twos - 1) * value for value, taken in zip(step, used, strict=True)]
            if count > twos:
                grid.insert(0, Digit(count // twos, tuple(value * twos for value in step)))
                break
        return tuple(bits), tuple(Digit(*digit) for digit in grid)

    def _used_bits(self) -> list[int]:
        """Per axis, the coordinate bits that bases occupy."""
        bases = (*self.item, *self.lane, *self.wave)
        return [_union(basis[axis] for basis in bases) for axis in range(self.rank)]

    # ------------------------------------------------------------------------------------------------------- the map
    @property
    def rank(self) -> int:
        return len(self.shape)

    @cached_property
    def items(self) -> int:
        """Elements that each lane holds, replicas included."""
        return math.prod((1 << len(self.item), *(digit.radix for digit in self.item_grid)))

    @property
    def wave_size(self) -> int:
        return 1 << len(self.lane)

    @cached_property
    def waves(self) -> int:
        return math.prod((1 << len(self.wave), *(digit.radix for digit in self.wave_grid)))

    def coordinates(self, item: np.ndarray | int, lane: np.ndarray | int, wave: np.ndarray | int = 0) -> np.ndarray:
        """Coordinates of elements, axis first: shape (rank, *broadcast of the arguments)."""
        shape = np.broadcast_shapes(np.shape(item), np.shape(lane), np.shape(wave))
        result = np.zeros((self.rank, *shape), np.int64)
        for axis in range(self.rank):
            linear = _linear(item, self.item, axis) ^ _linear(lane, self.lane, axis) ^ _linear(wave, self.wave, axis)
            result[axis] = (linear + _digits(item, len(self.item), self.item_grid, axis)
                            + _digits(wave, len(self.wave), self.wave_grid, axis))
        return result

    def enumerate(self) -> np.ndarray:
        """Coordinates of every element, shape (rank, waves, wave_size, items). Cached; read-only."""
        return _enumerate(self)

    def item_offset(self, item: int) -> Coordinates:
        """Coordinates of `item` in lane 0 of wave 0: what an item adds to its lane's coordinates where `additive`
        holds."""
        return _offset(item, self.item, self.item_grid, self.rank)

    def wave_offset(self, wave: int) -> Coordinates:
        """Coordinates of item 0 of lane 0 of `wave`."""
        return _offset(wave, self.wave, self.wave_grid, self.rank)

    @cached_property
    def additive(self) -> bool:
        """Whether the parts of item, lane and wave occupy different coordinate bits, so that coordinates are plain
        sums."""
        for axis in range(self.rank):
            parts = [_union(basis[axis] for basis in bases) for bases in (self.item, self.lane, self.wave)]
            if parts[0] & parts[1] or parts[0] & parts[2] or parts[1] & parts[2]:
                return False
        return True

    def fields(self, part: str, axis: int) -> tuple[Field, ...]:
        """How the bits of a `lane` or `wave` number make up a coordinate, as runs of bits (XOR them where they
        overlap). The digits of `wave_grid` come on top: digit d of wave // 2**len(self.wave) adds d * step."""
        return bit_fields([basis[axis] for basis in getattr(self, part)])

    # ------------------------------------------------------------------------------------------------- new layouts
    def _mapped(self, shape: Iterable[int], change: Callable[[Coordinates], Coordinates],
                drop_items: bool = False) -> Layout:
        """This layout with `change` applied to every basis; `drop_items` leaves out items that become replicas."""
        item = [change(basis) for basis in self.item]
        grid = [Digit(count, change(step)) for count, step in self.item_grid]
        if drop_items:
            item = [basis for basis in item if any(basis)]
            grid = [digit for digit in grid if any(digit.step)]
        return Layout(tuple(shape), tuple(item), tuple(map(change, self.lane)), tuple(map(change, self.wave)),
                      tuple(grid), tuple(Digit(count, change(step)) for count, step in self.wave_grid))

    def permute(self, axes: Sequence[int]) -> Layout:
        """The layout of the transposed tile whose axis i is this tile's axis axes[i]: no data moves."""
        return self._mapped((self.shape[axis] for axis in axes), lambda basis: tuple(basis[axis] for axis in axes))

    def project(self, axis: int) -> Layout:
        """The layout without `axis`: that of a reduction's result. Lanes and waves that moved along it hold replicas,
        items that did are gone."""
        return self._mapped(_without(self.shape, axis), lambda basis: _without(basis, axis), drop_items=True)

    def expand(self, axis: int) -> Layout:
        """The layout with a new axis of size 1 at `axis`: that of x[:, None]."""
        shape = (*self.shape[:axis], 1, *self.shape[axis:])
        return self._mapped(shape, lambda basis: (*basis[:axis], 0, *basis[axis:]))

    def narrow(self, shape: Sequence[int]) -> Layout:
        """The layout in which an operand of `shape` (this shape with some axes 1) meets a value of this layout with no
        move."""
        if any(narrow not in (1, full) for narrow, full in zip(shape, self.shape, strict=True)):
            raise InternalError(f"a tile of shape {tuple(shape)} does not broadcast to {self.shape}")
        keep = tuple(narrow == full for narrow, full in zip(shape, self.shape, strict=True))
        return self._mapped(shape, lambda basis: tuple(map(operator.mul, basis, keep)), drop_items=True)

    def reshape(self, shape: Sequence[int]) -> Layout | None:
        """The layout of the tile reshaped in row-major order, where no data has to move; None where that map is not a
        layout."""
        if math.prod(shape) != math.prod(self.shape):
            raise InternalError(f"reshape of {self.shape} to {tuple(shape)} changes the number of elements")
        result = self._mapped(shape, lambda basis: unravel(ravel(basis, self.shape), shape))
        wanted = unravel(ravel(self.enumerate(), self.shape), shape)
        return result if all(map(np.array_equal, wanted, result.enumerate())) else None

    # ------------------------------------------------------------------------------------------------------- questions
    def covers(self) -> bool:
        """Whether every element of the tile is held somewhere and none outside of it (by enumeration)."""
        points = self.enumerate().reshape(self.rank, self.waves * self.wave_size * self.items)
        if any(axis.max(initial=0) >= size for axis, size in zip(points, self.shape, strict=True)):
            return False
        return np.unique(ravel(points, self.shape)).size == math.prod(self.shape)

    def replication(self) -> Replication:
        """One representative of each element. Bits are kept in the order items, lanes, waves; a bit whose basis the
        kept ones generate is redundant, as is a digit whose step is zero."""
        space = Span()
        item_mask = sum(1 << bit for bit, basis in enumerate(self.item) if not space.add(_pack(basis)))
        lane_mask = sum(1 << bit for bit, basis in enumerate(self.lane) if not space.add(_pack(basis)))
        wave_mask = sum(1 << bit for bit, basis in enumerate(self.wave) if not space.add(_pack(basis)))
        return Replication(_representatives(self.items, item_mask, len(self.item), self.item_grid), lane_mask,
                           _representatives(self.waves, wave_mask, len(self.wave), self.wave_grid))

    def vector_width(self, axis: int) -> int:
        """How many consecutive items, from item 0 and from each multiple of the answer, are consecutive along
        `axis`."""
        width = 1
        for basis in self.item:
            if basis != tuple(width if other == axis else 0 for other in range(self.rank)):
                break
            width *= 2
        return width

    def coalescing(self, axis: int, element_bits: int, max_bytes: int = 16) -> Coalescing:
        """How one instruction of a wave that moves up to `max_bytes` per lane touches a tensor that is contiguous along
        `axis`."""
        vector = min(self.vector_width(axis), max(1, max_bytes * 8 // element_bits))
        last = (*_without(tuple(range(self.rank)), axis), axis)
        points = self.coordinates(0, np.arange(self.wave_size))
        index = ravel([points[other] for other in last], [self.shape[other] for other in last])
        index = np.array(sorted(set(index.tolist())))
        near = (np.diff(index) == vector) & (index[1:] % self.shape[axis] != 0)
        starts = np.concatenate(([0], np.flatnonzero(~near) + 1, [index.size]))
        shortest = int(np.diff(starts).min()) * vector
        return Coalescing(vector, vector * element_bits // 8, shortest * element_bits // 8, len(starts) - 1)

    # ------------------------------------------------------------------------------------------------------- text
    def __str__(self) -> str:
        def part(bases: tuple[Coordinates, ...], grid: tuple[Digit, ...]) -> str:
            words = [_basis_text(basis) for basis in bases] + [f"*{count}:{_basis_text(step)}" for count, step in grid]
            return "".join(f" {word}" for word in words)

        shape = "x".join(map(str, self.shape)) or "scalar"
        return (f"layout({shape}; item{part(self.item, self.item_grid)}; lane{part(self.lane, ())};"
                f" wave{part(self.wave, self.wave_grid)})")

    @classmethod
    def parse(cls, text: str) -> Layout:
        """The inverse of str(). Raises TilecError for other text."""
        match = re.fullmatch(r"\s*layout\(([\dx]+|scalar);\s*item([^;]*);\s*lane([^;]*);\s*wave([^;)]*)\)\s*", text)
        if not match:
            raise TilecError(f"not a layout: {text!r}", fix="write layout(SHAPE; item BASES; lane BASES; wave BASES)")
        shape = () if match[1] == "scalar" else tuple(map(int, match[1].split("x")))

        def basis(word: str) -> Coordinates:
            result = (0,) * len(shape) if word == "-" else tuple(map(int, word.split(",")))
            if len(result) != len(shape):
                raise TilecError(f"basis {word} in a layout of rank {len(shape)}: {text!r}")
            return result

        def part(words: str) -> tuple[tuple[Coordinates, ...], tuple[Digit, ...]]:
            bits = tuple(basis(word) for word in words.split() if not word.startswith("*"))
            grid = [word[1:].split(":") for word in words.split() if word.startswith("*")]
            return bits, tuple(Digit(int(count), basis(step)) for count, step in grid)

        (item, item_grid), (lane, _), (wave, wave_grid) = part(match[2]), part(match[3]), part(match[4])
        return cls(shape, item, lane, wave, item_grid, wave_grid)


# ----------------------------------------------------------------------------------------------------- GF(2) and digits
class Span:
    """A subspace over GF(2) of integers as bit vectors."""

    def __init__(self) -> None:
        self.rows: dict[int, int] = {}

    def add(self, vector: int) -> bool:
        """Adds a vector; false if the span held it already."""
        while vector:
            top = vector.bit_length()
            if top not in self.rows:
                self.rows[top] = vector
                return True
            vector ^= self.rows[top]
        return False


def _linear(index: np.ndarray | int, bases: tuple[Coordinates, ...], axis: int) -> np.ndarray:
    index = np.asarray(index, np.int64)
    result = np.zeros_like(index)
    for bit, basis in enumerate(bases):
        if basis[axis]:
            result ^= (index >> bit & 1) * basis[axis]
    return result


def _digits(index: np.ndarray | int, bits: int, grid: tuple[Digit, ...], axis: int) -> np.ndarray:
    index = np.asarray(index, np.int64) >> bits
    result = np.zeros_like(index)
    for count, step in grid:
        result += index % count * step[axis]
        index = index // count
    return result


def _offset(index: int, bases: tuple[Coordinates, ...], grid: tuple[Digit, ...], rank: int) -> Coordinates:
    result = [0] * rank
    for basis in bases:
        if index & 1:
            result = [old ^ new for old, new in zip(result, basis, strict=True)]
        index >>= 1
    for count, step in grid:
        index, digit = divmod(index, count)
        result = [old + digit * new for old, new in zip(result, step, strict=True)]
    return tuple(result)


@lru_cache(maxsize=512)
def _enumerate(layout: Layout) -> np.ndarray:
    items, lanes = np.arange(layout.items), np.arange(layout.wave_size)
    result = layout.coordinates(items, lanes[:, None], np.arange(layout.waves)[:, None, None])
    result.flags.writeable = False
    return result


def _representatives(total: int, redundant: int, bits: int, grid: tuple[Digit, ...]) -> tuple[int, ...]:
    def kept(index: int) -> bool:
        if index & redundant:
            return False
        index >>= bits
        for count, step in grid:
            index, digit = divmod(index, count)
            if digit and not any(step):
                return False
        return True

    return tuple(index for index in range(total) if kept(index))


def _union(values: Iterable[int]) -> int:
    result = 0
    for value in values:
        result |= value
    return result


def _pack(basis: Coordinates) -> int:
    """A basis as one bit vector, the axes side by side."""
    return sum(value << (32 * axis) for axis, value in enumerate(basis))


def _without(values: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return values[:axis] + values[axis + 1:]


def bit_fields(masks: Sequence[int]) -> tuple[Field, ...]:
    """The linear map that XORs masks[i] where bit i of a number is set, as runs of bits to extract, shift and XOR."""
    pairs = [(bit, shift) for bit, mask in enumerate(masks) for shift in range(mask.bit_length()) if mask >> shift & 1]
    runs: list[Field] = []
    for bit, shift in sorted(pairs, key=lambda pair: (pair[1] - pair[0], pair[0])):
        if runs and runs[-1].bit + runs[-1].width == bit and runs[-1].shift + runs[-1].width == shift:
            runs[-1] = runs[-1]._replace(width=runs[-1].width + 1)
        else:
            runs.append(Field(bit, 1, shift))
    return tuple(sorted(runs))


def ravel(coordinates: Any, shape: Sequence[int]) -> Any:
    """Row-major index of coordinates (ints or arrays, axis first) in a tile of `shape`."""
    index = 0
    for value, size in zip(coordinates, shape, strict=True):
        index = index * size + value
    return index


def unravel(index: Any, shape: Sequence[int]) -> tuple[Any, ...]:
    """Inverse of `ravel`."""
    result = []
    for size in reversed(shape):
        index, value = index // size, index % size
        result.append(value)
    return tuple(reversed(result))


def _basis_text(basis: Coordinates) -> str:
    return ",".join(map(str, basis)) if any(basis) else "-"
