"""Lane shuffles as index maps: for each lane the lane that it reads, and whether that source exists.

DPP controls, ds_swizzle patterns and the permlane swaps of gfx950 (CDNA3 and CDNA4 ISA guides: DPP in the VALU chapter,
DS_SWIZZLE_B32 in the data share chapter). A map never looks at data; EXEC, bound_ctrl and masks are applied by the
caller.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from tilec.errors import TilecError

Array = np.ndarray[Any, Any]
LANE: Array = np.arange(64)
_ROW, _IN_ROW = LANE & ~15, LANE & 15


def _within_row(position: Array) -> tuple[Array, Array]:
    """Lanes of the same row of 16 at `position`, valid where that is inside the row."""
    valid = (position >= 0) & (position < 16)
    return _ROW + np.clip(position, 0, 15), valid


@cache
def dpp(control: str, argument: int | tuple[int, ...] = 0) -> tuple[Array, Array]:
    """(source lane, exists) of a DPP control by its assembly name.

    quad_perm takes four lanes of a quad, row_shl/shr/ror/newbcast a count or lane, the others nothing.
    """
    everywhere = np.ones(64, np.bool_)
    if control == "quad_perm":
        assert isinstance(argument, tuple)
        return (LANE & ~3) + np.array(argument)[LANE & 3], everywhere
    assert isinstance(argument, int)
    match control:
        case "row_shl":
            return _within_row(_IN_ROW + argument)
        case "row_shr":
            return _within_row(_IN_ROW - argument)
        case "row_ror":
            return _ROW + (_IN_ROW - argument) % 16, everywhere
        case "wave_shl":
            return np.minimum(LANE + 1, 63), LANE < 63
        case "wave_rol":
            return (LANE + 1) % 64, everywhere
        case "wave_shr":
            return np.maximum(LANE - 1, 0), LANE > 0
        case "wave_ror":
            return (LANE - 1) % 64, everywhere
        case "row_mirror":
            return _ROW + 15 - _IN_ROW, everywhere
        case "row_half_mirror":
            return LANE ^ 7, everywhere
        case "row_bcast":
            if argument == 15:  # the last lane of each row to the whole next row
                return np.maximum(_ROW - 1, 0), LANE >= 16
            return np.full(64, 31), LANE >= 32  # row_bcast:31: lane 31 to the upper half
        case "row_newbcast":
            return _ROW + argument, everywhere
    raise TilecError(f"DPP control {control} is unknown", fix="gfx942 and gfx950 have quad_perm, row_*, wave_*")


def dpp_masks(row_mask: int, bank_mask: int) -> Array:
    """Lanes that DPP may write: row_mask has a bit per row of 16, bank_mask one per bank of 4 within each row."""
    return (row_mask >> (LANE >> 4) & 1 != 0) & (bank_mask >> (LANE >> 2 & 3) & 1 != 0)


@cache
def ds_swizzle(offset: int) -> Array:
    """The lane that each lane reads under ds_swizzle_b32 with this 16-bit offset."""
    if offset & 0x8000:  # quad permutation
        return (LANE & ~3) + (offset >> (2 * (LANE & 3)) & 3)
    and_mask, or_mask, xor_mask = offset & 31, offset >> 5 & 31, offset >> 10 & 31
    return (LANE & ~31) | (((LANE & 31 & and_mask) | or_mask) ^ xor_mask)


def permlane_swap(width: int, destination: Array, source: Array) -> tuple[Array, Array]:
    """v_permlane16_swap / v_permlane32_swap: (new destination, new source) of arrays [..., 64].

    The upper half of each 2 * width lanes of the destination trades places with the lower half of the source.
    """
    lower = LANE & width == 0
    new_destination = np.where(lower, destination, source[..., LANE ^ width])
    new_source = np.where(lower, destination[..., LANE ^ width], source)
    return new_destination, new_source


def first_lane(active: Array) -> Array:
    """The lane that v_readfirstlane reads per wave (EXEC as bool [W, 64]); lane 0 when none is active."""
    return np.argmax(active, axis=-1)


def read_lane(values: Array, lane: Array | Sequence[int] | int) -> Array:
    """values[w, lane[w] % 64] per wave."""
    chosen = np.broadcast_to(np.asarray(lane) & 63, values.shape[:1])
    return values[np.arange(values.shape[0]), chosen]


def write_lane(values: Array, lane: Array | Sequence[int] | int, new: Array) -> Array:
    """A copy of values with values[w, lane[w] % 64] = new[w]."""
    result = values.copy()
    chosen = np.broadcast_to(np.asarray(lane) & 63, values.shape[:1])
    result[np.arange(values.shape[0]), chosen] = new
    return result
