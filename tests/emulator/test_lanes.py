"""Lane maps against their definitions, lane by lane."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tilec.emulator import lanes
from tilec.errors import TilecError


def dpp_source(control: str, argument: int, lane: int) -> int | None:
    """The manual's definition; None where the source is outside the row or the wave."""
    row, place = lane // 16 * 16, lane % 16
    match control:
        case "row_shl":
            return row + place + argument if place + argument < 16 else None
        case "row_shr":
            return row + place - argument if place >= argument else None
        case "row_ror":
            return row + (place - argument) % 16
        case "wave_shl":
            return lane + 1 if lane < 63 else None
        case "wave_shr":
            return lane - 1 if lane else None
        case "wave_rol":
            return (lane + 1) % 64
        case "wave_ror":
            return (lane - 1) % 64
        case "row_mirror":
            return row + 15 - place
        case "row_half_mirror":
            return row + place // 8 * 8 + 7 - place % 8
        case "row_newbcast":
            return row + argument
    if argument == 15:
        return row - 1 if row else None
    return 31 if lane >= 32 else None


CONTROLS = (
    [(name, n) for name in ("row_shl", "row_shr", "row_ror") for n in range(1, 16)]
    + [("row_newbcast", n) for n in range(16)]
    + [(name, 1) for name in ("wave_shl", "wave_shr", "wave_rol", "wave_ror")]
    + [("row_mirror", 0), ("row_half_mirror", 0), ("row_bcast", 15), ("row_bcast", 31)]
)


@pytest.mark.parametrize(("control", "argument"), CONTROLS)
def test_dpp(control: str, argument: int) -> None:
    source, exists = lanes.dpp(control, argument)
    for lane in range(64):
        want = dpp_source(control, argument, lane)
        assert exists[lane] == (want is not None)
        if want is not None:
            assert source[lane] == want
    assert source.min() >= 0 and source.max() < 64  # an index even where nothing exists


def test_quad_permutations() -> None:
    for order in itertools.product(range(4), repeat=4):
        source, exists = lanes.dpp("quad_perm", order)
        assert exists.all()
        assert source.tolist() == [lane - lane % 4 + order[lane % 4] for lane in range(64)]


def test_unknown_dpp_control_is_refused() -> None:
    with pytest.raises(TilecError, match="row_share"):
        lanes.dpp("row_share", 3)


def test_dpp_masks() -> None:
    for row_mask, bank_mask in itertools.product(range(16), range(16)):
        want = [bool(row_mask >> lane // 16 & 1 and bank_mask >> lane % 16 // 4 & 1) for lane in range(64)]
        assert lanes.dpp_masks(row_mask, bank_mask).tolist() == want


@pytest.mark.parametrize("offset", [*range(0, 0x8000, 37), 0x001F, 0x041F, 0x7C1F, 0x03E0, 0x7FFF])
def test_ds_swizzle_bit_masks(offset: int) -> None:
    got = lanes.ds_swizzle(offset).tolist()
    for lane in range(64):
        low = (lane % 32 & offset & 31 | offset >> 5 & 31) ^ offset >> 10 & 31
        assert got[lane] == lane // 32 * 32 + low


def test_ds_swizzle_quads() -> None:
    for order in itertools.product(range(4), repeat=4):
        offset = 0x8000 | sum(lane << 2 * i for i, lane in enumerate(order))
        assert lanes.ds_swizzle(offset).tolist() == [lane - lane % 4 + order[lane % 4] for lane in range(64)]


@pytest.mark.parametrize("width", [16, 32])
def test_permlane_swaps(width: int) -> None:
    """The manual's loop: source lane l and destination lane l + width trade places, l in the lower rows."""
    destination, source = np.arange(64), 100 + np.arange(64)
    want_d, want_s = destination.tolist(), source.tolist()
    for base in range(0, 64, 2 * width):
        for lane in range(base, base + width):
            want_s[lane], want_d[lane + width] = want_d[lane + width], want_s[lane]
    got_d, got_s = lanes.permlane_swap(width, destination[None], source[None])
    assert got_d[0].tolist() == want_d and got_s[0].tolist() == want_s


def test_read_write_and_first_lane() -> None:
    values = np.arange(3 * 64).reshape(3, 64)
    assert lanes.read_lane(values, 70).tolist() == [6, 70, 134]  # the lane number wraps at 64
    assert lanes.read_lane(values, [0, 63, 5]).tolist() == [0, 127, 133]
    written = lanes.write_lane(values, [1, 2, 3], np.array([-1, -2, -3]))
    changed = np.argwhere(written != values).tolist()
    assert changed == [[0, 1], [1, 2], [2, 3]] and written[2, 3] == -3
    active = np.zeros((3, 64), bool)
    active[0, 5] = active[0, 9] = active[1, 63] = True
    assert lanes.first_lane(active).tolist() == [5, 63, 0]
