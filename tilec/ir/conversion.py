"""What it takes to get a tile from one layout into another, to meet an operand, or to reduce along an axis.

Answers are found by enumeration over the elements a wave holds and are therefore exact; waves are only compared one by
one where the two layouts treat them differently. The cheapest kind that works is given: nothing, a renaming of
registers, moves between lanes of a wave, a trip through LDS.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from tilec.errors import InternalError
from tilec.ir.layout import Layout, ravel


@dataclass(frozen=True, eq=False)
class Conversion:
    """How `dst` is filled from `src`.

    `kind` is `identity` (item i is item i), `registers` (item i is item items[i] of the same lane), `lanes` (item i of
    lane l is item source_items[i, l] of lane source_lanes[i, l] of the same wave, the same for all waves) or `lds`
    (elements cross waves, or the map differs between waves). `lane_masks` lists, for kind `lanes`, the distinct l ^
    source_lanes[i, l].
    """

    kind: str
    items: tuple[int, ...] = ()
    source_items: np.ndarray | None = None
    source_lanes: np.ndarray | None = None
    lane_masks: tuple[int, ...] = ()


@lru_cache(maxsize=4096)
def conversion(src: Layout, dst: Layout) -> Conversion:
    """How a tile held in layout `src` gets into layout `dst` (same shape, wave size and number of waves)."""
    if (src.shape, src.wave_size, src.waves) != (dst.shape, dst.wave_size, dst.waves):
        raise InternalError(f"no conversion between {src} and {dst}: they differ in shape or in waves")
    if src == dst:
        return Conversion("identity", tuple(range(src.items)))
    items = matching_items(dst, src)
    if items is not None:
        return Conversion("identity" if items == tuple(range(src.items)) else "registers", items)
    return _within_waves(src, dst) or Conversion("lds")


def matching_items(full: Layout, part: Layout) -> tuple[int, ...] | None:
    """For each item of `full`, the item of `part` that the same lane of the same wave holds at the same coordinates
    (axes of size 1 in `part` are broadcast); None where some lane lacks one, or where lanes would need different
    items."""
    wanted, have = _points(full, part.shape), _points(part, part.shape)
    chosen: list[int] = []
    if part.additive and full.additive and np.array_equal(wanted[..., 0], have[..., 0]):
        index = {offset: item for item, offset in reversed(list(enumerate(have[0, 0])))}
        found = [index.get(offset) for offset in wanted[0, 0]]
        return None if None in found else tuple(item for item in found if item is not None)
    for item in range(full.items):
        same = (have == wanted[..., item, None]).all(axis=(0, 1))
        if not same.any():
            return None
        chosen.append(int(same.argmax()))
    return tuple(chosen)


def _points(layout: Layout, shape: tuple[int, ...]) -> np.ndarray:
    """Row-major index of each element in a tile of `shape`, axes of size 1 ignored: (waves, lanes, items)."""
    points = layout.enumerate()
    keep = np.array([size > 1 for size in shape], bool).reshape(-1, 1, 1, 1)
    return np.broadcast_to(ravel(points * keep, shape), points.shape[1:])


def _within_waves(src: Layout, dst: Layout) -> Conversion | None:
    """The map between lanes, where one serves all waves: each element from the nearest lane (by XOR) that holds it."""
    have, wanted = _points(src, src.shape), _points(dst, dst.shape)
    same_waves = (src.wave, src.wave_grid) == (dst.wave, dst.wave_grid) and src.additive and dst.additive
    lanes = np.arange(src.wave_size)
    elements, index = np.unique(have[0], return_inverse=True)
    place = np.searchsorted(elements, wanted[0]).clip(max=elements.size - 1)
    if (elements[place] != wanted[0]).any():
        return None
    holder = np.full((src.wave_size, elements.size), -1, np.int64)  # the item of each lane that holds an element
    for item in reversed(range(src.items)):
        holder[lanes, index.reshape(have[0].shape)[:, item]] = item
    source_items, source_lanes = np.full(wanted[0].shape, -1), np.zeros(wanted[0].shape, np.int64)
    for mask in range(src.wave_size):
        candidate = holder[(lanes ^ mask)[:, None], place]
        take = (source_items < 0) & (candidate >= 0)
        source_items[take] = candidate[take]
        source_lanes[take] = np.broadcast_to((lanes ^ mask)[:, None], take.shape)[take]
        if (source_items >= 0).all():
            break
    waves = () if same_waves else range(1, src.waves)
    if any((have[wave][source_lanes, source_items] != wanted[wave]).any() for wave in waves):
        return None
    masks = tuple(int(mask) for mask in np.unique(source_lanes ^ lanes[:, None]))
    return Conversion("lanes", (), source_items.T, source_lanes.T, masks)


@dataclass(frozen=True)
class Reduction:
    """How to reduce along an axis, in this order. `result` is the layout of the result.

    Within a lane, the items in `distinct_items` (the others are replicas) are combined, i into item item_of[i] of the
    result. Within a wave, each lane is then combined with lane ^ mask, one of `lane_masks` after the other. Last,
    through LDS, wave w combines what the waves of wave_partners[w] hold; needed only where `crosses_waves`.
    """

    result: Layout
    item_of: tuple[int, ...]
    distinct_items: tuple[int, ...]
    lane_masks: tuple[int, ...]
    wave_partners: tuple[tuple[int, ...], ...]

    @property
    def crosses_waves(self) -> bool:
        return any(len(partners) > 1 for partners in self.wave_partners)


@lru_cache(maxsize=1024)
def reduction(layout: Layout, axis: int) -> Reduction | None:
    """The plan of a reduction along `axis`; None where a basis moves along this axis and another at once, so that
    elements can't be combined bit by bit (convert first; no layout that a builder makes is of this kind)."""
    bases = (*layout.item, *layout.lane, *layout.wave)
    steps = tuple(digit.step for digit in (*layout.item_grid, *layout.wave_grid))
    if any(basis[axis] and any(_drop(basis, axis)) for basis in (*bases, *steps)):
        return None
    result, kept = layout.project(axis), layout.replication()
    index = {result.item_offset(item): item for item in reversed(range(result.items))}
    item_of = tuple(index[_drop(layout.item_offset(item), axis)] for item in range(layout.items))
    lane_masks = tuple(1 << bit for bit, basis in enumerate(layout.lane)
                       if basis[axis] and not kept.lane_mask >> bit & 1)
    groups: dict[tuple[int, ...], list[int]] = {}
    for wave in kept.waves:
        groups.setdefault(_drop(layout.wave_offset(wave), axis), []).append(wave)
    partners = tuple(tuple(groups[_drop(layout.wave_offset(wave), axis)]) for wave in range(layout.waves))
    return Reduction(result, item_of, kept.items, lane_masks, partners)


def _drop(offset: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return offset[:axis] + offset[axis + 1:]
