"""Tensors placed in memory as users place them, in surroundings of poison.

A place is a function from a shape to strides (in elements; 0 repeats an axis, negative runs backwards). Every byte
that no element covers, before, between and behind them, is POISON: NaN in each float type, -1 or the highest integer,
so that whatever a kernel reads beyond a tensor shows in its results, and whatever it writes there shows in `intact`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

POISON = 0xFF
MARGIN = 512            # bytes before and behind, beyond every access that a lane might make past a row's end

Place = Callable[[Sequence[int]], tuple[int, ...]]


def dense(shape: Sequence[int], order: Sequence[int] | None = None, step: int = 1, pad: int = 0) -> tuple[int, ...]:
    """Strides with the axes in `order`, slowest first (default: as they come): `step` elements from one to the next
    along the last of them, and `pad` elements between its rows."""
    strides, stride = [0] * len(shape), step
    for place, axis in enumerate(reversed(order or range(len(shape)))):
        strides[axis] = stride
        stride = stride * max(1, shape[axis]) + (0 if place else pad)
    return tuple(strides)


def columns(shape: Sequence[int]) -> tuple[int, ...]:
    """The first axis is the contiguous one: the transposed view of a dense array."""
    return dense(shape, order=tuple(reversed(range(len(shape)))))


def odd_rows(shape: Sequence[int]) -> tuple[int, ...]:
    """A row pitch that is odd."""
    return dense(shape, pad=1 + (shape[-1] + 1) % 2 + 4)


def odd_columns(shape: Sequence[int]) -> tuple[int, ...]:
    return dense(shape, order=tuple(reversed(range(len(shape)))), pad=1 + (shape[0] + 1) % 2 + 4)


def wide_rows(shape: Sequence[int]) -> tuple[int, ...]:
    """Rows of a larger matrix, each aligned to 64 elements."""
    return dense(shape, pad=-shape[-1] % 64 + 64)


def every_third(shape: Sequence[int]) -> tuple[int, ...]:
    """Every third element of a larger matrix: no axis is contiguous."""
    return dense(shape, step=3, pad=2)


def repeated_rows(shape: Sequence[int]) -> tuple[int, ...]:
    """One row, seen again and again: stride 0. For inputs whose rows are equal."""
    return (0, *dense(shape[1:]))


def backwards(shape: Sequence[int]) -> tuple[int, ...]:
    """Both axes run towards lower addresses."""
    return tuple(-stride for stride in dense(shape, pad=3))


PLACES: dict[str, Place] = {place.__name__: place for place in (
    dense, columns, odd_rows, odd_columns, wide_rows, every_third, backwards)}
ODD_STRIDE = 12_347     # of axes of size 1, where it can't matter


def placed(data: np.ndarray, place: Place = dense, offset: int = 0) -> np.ndarray:
    """`data` in memory of its own. The lowest element lies `offset` elements behind a multiple of 256 bytes."""
    size = data.itemsize
    strides = [s if n > 1 else ODD_STRIDE for s, n in zip(place(data.shape), data.shape)]
    reach = [(n - 1) * s if n > 1 else 0 for s, n in zip(strides, data.shape)]
    low, high = sum(r for r in reach if r < 0), sum(r for r in reach if r > 0)
    raw = np.full((high - low + 1 + offset) * size + 2 * MARGIN + 256, POISON, np.uint8)
    base = MARGIN + -(raw.ctypes.data + MARGIN) % 256
    start = base + (offset - low) * size
    array = np.ndarray(data.shape, data.dtype, raw, start if data.size else base, tuple(s * size for s in strides))
    array[...] = data
    return array


def intact(array: np.ndarray) -> bool:
    """Whether all bytes around the elements of a `placed` array are still poison."""
    raw, kept = array.base, array.copy()
    array.view(f"u{array.itemsize}")[...] = np.iinfo(f"u{array.itemsize}").max
    whole = bool((raw == POISON).all())
    array[...] = kept
    return whole
