"""Layouts by construction: a builder that hands out a tile's elements, and the layout for coalesced memory access."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilec.errors import TilecError
from tilec.ir.layout import Coordinates, Digit, Layout


class LayoutBuilder:
    """Hands out the elements of a tile to index bits and digits, inner extents first, so that parts never overlap.

    `take(part, axis, count)` gives the next `count` (or the largest divisor of it that fits) positions along `axis` to
    `part` (item, lane, wave) and returns how many it gave. The powers of two of an axis lie below its odd factor, so
    that everything but that factor is linear."""

    def __init__(self, shape: Sequence[int]):
        self.shape = tuple(shape)
        self.twos = [size & -size for size in self.shape]  # what is left of each axis' power of two
        self.odds = [size // (size & -size) for size in self.shape]
        self.parts: dict[str, tuple[list[Digit], list[Digit]]] = {name: ([], []) for name in ("item", "lane", "wave")}

    def left(self, axis: int) -> int:
        return self.twos[axis] * self.odds[axis]

    def take(self, part: str, axis: int, count: int, odd: bool = True) -> int:
        """Powers of two become bits, an odd factor (unless `odd` is false) a digit above all bits of the part."""
        size = self.shape[axis]
        twos = math.gcd(count, self.twos[axis])
        odds = math.gcd(count, self.odds[axis]) if odd else 1
        self.parts[part][0].append(Digit(twos, self._unit(axis, (size & -size) // self.twos[axis])))
        self.twos[axis] //= twos
        self.parts[part][1].append(Digit(odds, self._unit(axis, size // self.odds[axis])))
        self.odds[axis] //= odds
        return twos * odds

    def replicate(self, part: str, count: int) -> None:
        """Fills `count` values of a part's index with replicas."""
        twos = count & -count
        self.parts[part][0].append(Digit(twos, (0,) * len(self.shape)))
        self.parts[part][1].append(Digit(count // twos, (0,) * len(self.shape)))

    def build(self) -> Layout:
        bits = {name: tuple(tuple(value << bit for value in step)
                            for count, step in twos for bit in range(count.bit_length() - 1))
                for name, (twos, _) in self.parts.items()}
        grid = {name: tuple(digit for digit in odds if digit.radix > 1) for name, (_, odds) in self.parts.items()}
        return Layout(self.shape, bits["item"], bits["lane"], bits["wave"], grid["item"], grid["wave"])

    def _unit(self, axis: int, value: int) -> Coordinates:
        return tuple(value if other == axis else 0 for other in range(len(self.shape)))


def blocked(shape: Sequence[int], order: Sequence[int], vector: int, waves: int | Sequence[int], wave_size: int = 64,
            lanes: Sequence[int] | None = None, waves_outermost: bool = False) -> Layout:
    """A layout for coalesced access: each lane takes `vector` items along order[0] (the contiguous axis), lanes go on
    along the axes in `order`, then waves, then each lane repeats with further items.

    `waves` is a number, spread along `order` after the lanes, or one count per axis; `lanes` may cap the lanes per
    axis. With `waves_outermost` the repeats come before the waves, so that what one wave touches is contiguous. A tile
    too small for all lanes or waves is replicated over the rest. Raises TilecError when counts per axis do not divide
    the tile.
    """
    tile = LayoutBuilder(shape)
    tile.take("item", order[0], vector, odd=False)
    budget = wave_size
    for axis in order:
        budget //= tile.take("lane", axis, min(budget, lanes[axis]) if lanes else budget, odd=False)
    tile.replicate("lane", budget)
    spread = isinstance(waves, int)
    counts, rest = ([1] * len(tile.shape), waves) if isinstance(waves, int) else (list(waves), 1)
    for axis in (reversed(order) if waves_outermost else order):
        if spread:
            counts[axis] = math.gcd(rest, tile.left(axis))
            rest //= counts[axis]
        elif tile.left(axis) % counts[axis]:
            tile_text = "x".join(map(str, shape))
            raise TilecError(f"a tile of {tile_text} has no {counts[axis]} parts for waves on axis {axis}",
                             limit=f"{tile.left(axis)} positions are left for waves after lanes and vectors",
                             fix="choose a larger tile or fewer waves")
    if waves_outermost:
        for axis in order:
            tile.take("item", axis, tile.left(axis) // counts[axis])
    for axis in order:
        tile.take("wave", axis, counts[axis])
    tile.replicate("wave", rest)
    for axis in order:
        tile.take("item", axis, tile.left(axis))
    return tile.build()
