"""Bank conflicts of LDS accesses: extra cycles of one instruction, from the phases in which lanes are served and the
banks.

Lanes of one phase are served together; lanes of different phases never conflict. A bank serves one dword a cycle,
equal dwords at once. gfx950 reads: measured on MI355X (HipKittens, arXiv 2511.08083, table 5) for b64, b96, b128 and
64-bit writes. gfx942 (32 banks, 128 bytes a cycle) serves 12- and 16-byte reads in the order that AMD's engineers give
(Triton pull request 11365); the other sizes are inferred from the documented width, and reports should say so.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def _runs(length: int) -> list[list[int]]:
    """Consecutive lanes, `length` to a phase."""
    return [list(range(start, start + length)) for start in range(0, 64, length)]


def _doubled(phases: list[list[int]]) -> list[list[int]]:
    """The phases of lanes 0 to 31, and the same 32 lanes later."""
    return phases + [[lane + 32 for lane in phase] for phase in phases]


_GFX950_READ: dict[int, tuple[int, list[list[int]]]] = {  # bytes per lane: (banks, phases)
    4: (64, _runs(64)),
    8: (64, _runs(32)),
    12: (
        32,
        _doubled(
            [
                [0, 1, 2, 3, 20, 21, 22, 23],
                [4, 5, 6, 7, 16, 17, 18, 19],
                [8, 9, 10, 11, 28, 29, 30, 31],
                [12, 13, 14, 15, 24, 25, 26, 27],
            ]
        ),
    ),
    16: (
        64,
        _doubled(
            [
                [0, 1, 2, 3, 12, 13, 14, 15, 20, 21, 22, 23, 24, 25, 26, 27],
                [4, 5, 6, 7, 8, 9, 10, 11, 16, 17, 18, 19, 28, 29, 30, 31],
            ]
        ),
    ),
}
_NARROW = {4: (32, _runs(32)), 8: (32, _runs(16)), 12: (32, _runs(8)), 16: (32, _runs(8))}
_GFX942_READ = {**_NARROW, 12: _GFX950_READ[12], 16: _GFX950_READ[12]}  # 8 lanes at a time, in that order, as AMD says


@cache
def phases(arch: str, write: bool, size: int) -> tuple[int, tuple[tuple[int, ...], ...]]:
    """(banks, phases) of an access of `size` bytes per lane."""
    table = _NARROW if write else _GFX950_READ if arch == "gfx950" else _GFX942_READ
    banks, groups = table[max(size, 4)]
    return banks, tuple(map(tuple, groups))


def measured(arch: str, write: bool, size: int) -> bool:
    """Was this case measured on hardware, rather than inferred from documents?"""
    return arch == "gfx950" and (size in (8, 12, 16) if not write else size == 8)


def extra_cycles(arch: str, write: bool, size: int, address: Array, active: Array) -> Array:
    """Cycles beyond one per phase, per wave: int64 [wave]. `address`: LDS bytes, `active`: bool, both [wave, lane]."""
    banks, groups = phases(arch, write, size)
    waves = len(address)
    total = np.zeros(waves, np.int64)
    words = np.arange(max(size, 4) // 4)
    row = np.arange(waves)[:, None]
    for group in groups:
        lanes = list(group)
        dwords = (address[:, lanes, None] // 4 + words).reshape(waves, -1)
        used = np.repeat(active[:, lanes], len(words), axis=1)
        order = np.argsort(np.where(used, dwords, -1), axis=1, kind="stable")
        dwords, used = np.take_along_axis(dwords, order, 1), np.take_along_axis(used, order, 1)
        fresh = used.copy()
        fresh[:, 1:] &= (dwords[:, 1:] != dwords[:, :-1]) | ~used[:, :-1]
        load = np.zeros((waves, banks), np.int64)
        np.add.at(load, (np.broadcast_to(row, dwords.shape), dwords % banks), fresh)
        total += np.maximum(load.max(axis=1) - 1, 0)
    return total
