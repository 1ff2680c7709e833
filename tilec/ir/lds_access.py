"""How a tile moves between registers and LDS: the widest instruction that fits, lanes' addresses, bank conflicts.

An access is an answer to a question about two maps, a register Layout and a SharedLayout. Its addresses are `pad((XOR
of the lane's and wave's masks ^ xor) * scale) + offset`: code computes one base per distinct `xor` and leaves the rest
to the instruction's immediate. Every function here is checked in the tests against plain enumeration of both maps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from tilec.ir.layout import Coordinates, Digit, Layout
from tilec.ir.shared_layout import SharedLayout
from tilec.target import LdsInstruction, Target


class LdsPart(NamedTuple):
    """One instruction of an access: it moves the bits from `bit` on of the lane's packed items; see LdsAccess for its
    address."""

    bit: int
    xor: int
    offset: int


@dataclass(frozen=True)
class LdsAccess:
    """A tile's trip between registers and LDS. `lane` and `wave` hold a mask per bit of the lane and wave number, in
    units of `scale` bytes; `wave_grid` the bytes that a step of each digit above the wave bits adds. `parts` are in
    item order."""

    instruction: LdsInstruction
    lane: tuple[int, ...]
    wave: tuple[int, ...]
    wave_grid: tuple[tuple[int, int], ...]
    parts: tuple[LdsPart, ...]
    scale: int = 1
    pad_interval: int = 0
    pad_bytes: int = 0

    @property
    def bases(self) -> tuple[int, ...]:
        """The distinct `xor` values: as many address registers as the access needs."""
        return tuple(dict.fromkeys(part.xor for part in self.parts))

    def base(self, lane: np.ndarray | int, wave: np.ndarray | int = 0, xor: int = 0) -> np.ndarray:
        """Byte address before `offset`, for lane and wave numbers (broadcast)."""
        lane, wave = np.asarray(lane, np.int64), np.asarray(wave, np.int64)
        result = np.full(np.broadcast_shapes(lane.shape, wave.shape), xor, np.int64)
        for bit, mask in enumerate(self.lane):
            result ^= (lane >> bit & 1) * mask
        for bit, mask in enumerate(self.wave):
            result ^= (wave >> bit & 1) * mask
        result *= self.scale
        if self.pad_interval:
            result += result // self.pad_interval * self.pad_bytes
        wave = wave >> len(self.wave)
        for count, step in self.wave_grid:
            result += wave % count * step
            wave = wave // count
        return result

    def addresses(self, wave: int = 0) -> np.ndarray:
        """Byte address of each part and lane: shape (parts, wave size)."""
        lanes = np.arange(1 << len(self.lane))
        bases = {xor: self.base(lanes, wave, xor) for xor in self.bases}
        return np.stack([bases[part.xor] + part.offset for part in self.parts])

    def extra_cycles(self, wave: int = 0) -> np.ndarray:
        """Cycles that bank conflicts add to each part."""
        return extra_cycles(self.instruction, self.addresses(wave))


def extra_cycles(instruction: LdsInstruction, addresses: np.ndarray, active: np.ndarray | None = None) -> np.ndarray:
    """Cycles that bank conflicts add to an instruction whose lanes have these byte addresses (last axis: lanes).

    In each phase a bank gives one 4-byte word per cycle; lanes that want the same word share it. `active` leaves lanes
    out.
    """
    addresses = np.asarray(addresses, np.int64)
    flat = addresses.reshape(-1, addresses.shape[-1])
    lanes_on = np.broadcast_to(True if active is None else active, addresses.shape).reshape(flat.shape)
    words = flat[..., None] // 4 + np.arange(max(1, instruction.bytes // 4))
    total = np.zeros(flat.shape[0], np.int64)
    for phase in instruction.phases:
        lanes = list(phase)
        wanted = np.where(lanes_on[:, lanes, None], words[:, lanes], -1).reshape(flat.shape[0], -1)
        wanted.sort(axis=1)
        fresh = wanted >= 0
        fresh[:, 1:] &= wanted[:, 1:] != wanted[:, :-1]
        row, column = np.nonzero(fresh)
        banks = wanted[row, column] % instruction.banks
        counts = np.bincount(row * instruction.banks + banks, minlength=flat.shape[0] * instruction.banks)
        total += np.maximum(counts.reshape(flat.shape[0], -1).max(axis=1) - 1, 0)
    return total.reshape(addresses.shape[:-1])


def lds_access(register: Layout, shared: SharedLayout, target: Target, writes: bool,
               widest: int = 0) -> LdsAccess | None:
    """The access with the widest instruction of at most `widest` bytes (0: a granule, which is what the map's conflicts
    were counted for); None where the maps don't compose linearly."""
    widest = widest or shared.granule_bytes
    options = [row for row in target.lds_instructions if row.writes == writes and row.bytes <= widest]
    for instruction in sorted((row for row in options if not row.is_transposed), key=lambda row: -row.bytes):
        items, rest = divmod(8 * instruction.bytes, shared.element_bits)
        if rest or not items or items & (items - 1):
            items = shared.granule  # several instructions move one granule: 24 bytes of fp6 as 3 x 8
        plan = _plan(register, shared, instruction, register.lane, items.bit_length() - 1)
        if plan is not None:
            return plan
    return None


def grouped(register: Layout, order: Sequence[int]) -> Layout:
    """The layout of a tile on its way to LDS: a lane's items renumbered so that those along the axis that LDS runs
    along first come first. A tile that was loaded along another axis is so transposed within lanes."""
    along = sorted((basis for basis in register.item if basis[order[0]]), key=lambda basis: basis[order[0]])
    return replace(register, item=(*along, *(basis for basis in register.item if not basis[order[0]])))


def read_access(register: Layout, shared: SharedLayout, target: Target) -> LdsAccess | None:
    """The read with the widest instruction, transposing ones included; None where no instruction fits."""
    plain = lds_access(register, shared, target, writes=False)
    transposed = transposed_access(register, shared, target)
    if plain is None or transposed is None:
        return plain or transposed
    return transposed if transposed.instruction.bytes > plain.instruction.bytes else plain


def transposed_access(register: Layout, shared: SharedLayout, target: Target) -> LdsAccess | None:
    """A read by gfx950's transposing instructions, for a layout whose lanes, not items, run along the contiguous axis
    of LDS.

    Among 16 lanes, item j of lane l comes from element l % E of the E contiguous elements at the address of lane (16 /
    E) * j + l // E (E elements per lane). So a lane's address is that of item lane // (16 / E) of lane E * (lane % (16
    / E)): the address bits of the upper lane bits and of the low item bits change places with the lane bits below them.
    """
    for instruction in target.lds_instructions:
        if not instruction.is_transposed or instruction.element_bits != shared.element_bits:
            continue
        low = instruction.elements.bit_length() - 1
        if len(register.item) < low or any(
                _address(shared, basis) != shared.element_bits << bit for bit, basis in enumerate(register.lane[:low])):
            continue
        lanes = (*register.lane[low:4], *register.item[:low], *register.lane[4:])
        plan = _plan(register, shared, instruction, lanes, low)
        if plan is not None:
            return plan
    return None


def _plan(register: Layout, shared: SharedLayout, instruction: LdsInstruction, lanes: tuple[Coordinates, ...],
          low: int) -> LdsAccess | None:
    """The access whose instructions take runs of 2**low items; None if these are not contiguous or not aligned in
    LDS."""
    bits = shared.element_bits
    run = (bits << low) // 8
    if low > len(register.item) or (bits << low) % 8 or run % instruction.bytes or not _composes(register, shared):
        return None
    transposed = instruction.is_transposed
    if not transposed and any(_address(shared, basis) != bits << bit for bit, basis in enumerate(register.item[:low])):
        return None
    scale = 1 if shared.granule_bytes & (shared.granule_bytes - 1) == 0 else shared.granule_bytes
    places = [_address(shared, basis) for basis in (*lanes, *register.wave, *register.item[low:])]
    unit = 8 * (scale if scale > 1 else instruction.alignment if transposed else run)
    if any(place % unit for place in places) or (run > instruction.bytes and instruction.bytes % instruction.alignment):
        return None
    if shared.pad_bytes % instruction.alignment or (shared.pad_interval and shared.pad_interval % run):
        return None
    masks = [place // (8 * scale) for place in places]
    lane, wave, item = (tuple(masks[:len(lanes)]), tuple(masks[len(lanes):len(lanes) + len(register.wave)]),
                        masks[len(lanes) + len(register.wave):])
    varying = 0
    for mask in (*lane, *wave):
        varying |= mask
    parts = []
    for index in range(0, register.items, 1 << low):
        mask, rest = 0, index >> low
        for bit_mask in item:
            mask, rest = mask ^ (rest & 1) * bit_mask, rest >> 1
        offset = int(shared.byte_address(_grid_offset(rest, register.item_grid, len(shared.shape))))
        offset += int(_padded((mask & ~varying) * scale, shared))
        parts += [LdsPart(index * bits + 8 * step, mask & varying, offset + step)
                  for step in range(0, run, instruction.bytes)]
    grid = tuple((count, int(shared.byte_address(step))) for count, step in register.wave_grid)
    return LdsAccess(instruction, lane, wave, grid, tuple(parts), scale, shared.pad_interval, shared.pad_bytes)


def _composes(register: Layout, shared: SharedLayout) -> bool:
    """Whether bases stay within a block of LDS and digits step over whole blocks, so that the maps compose bit by
    bit."""
    bases = (*register.item, *register.lane, *register.wave)
    steps = [digit.step for digit in (*register.item_grid, *register.wave_grid)]
    return (all(value < size for basis in bases for value, size in zip(basis, shared.twos, strict=True))
            and all(value % size == 0 for step in steps for value, size in zip(step, shared.twos, strict=True))
            and not (shared.pad_interval and steps and shared.block_bytes % shared.pad_interval))


def _address(shared: SharedLayout, basis: Coordinates) -> int:
    """Address in bits of a basis within a block, before padding."""
    place, element = shared.place(basis)
    return 8 * place * shared.granule_bytes + element * shared.element_bits


def _padded(address: int, shared: SharedLayout) -> int:
    return address + address // shared.pad_interval * shared.pad_bytes if shared.pad_interval else address


def _grid_offset(index: int, grid: Sequence[Digit], rank: int) -> Coordinates:
    result = [0] * rank
    for count, step in grid:
        index, digit = divmod(index, count)
        result = [old + digit * new for old, new in zip(result, step, strict=True)]
    return tuple(result)


def copy_layout(shared: SharedLayout, copy_bytes: int, waves: int, wave_size: int = 64,
                waves_outermost: bool = False) -> Layout | None:
    """Which elements each lane must fetch when a buffer is filled by copies straight from global memory.

    A copy writes `copy_bytes` per lane to consecutive places (4 bytes apart, 16 for wider copies): no swizzle is
    possible there, so each lane fetches what belongs at its place. Item, lane and wave bits are address bits of LDS:
    items within a copy, then lanes, then waves, then further copies (with `waves_outermost` copies come before waves,
    so that a wave's copies are contiguous in LDS). A buffer smaller than all waves' lanes is replicated: issue
    representatives only. None where the granule does not fit the copy or the padding cuts a wave's copy.
    """
    stride = 4 if copy_bytes == 4 else 16
    items, rest = divmod(8 * copy_bytes, shared.element_bits)
    if rest or items & (items - 1) or shared.granule % items or shared.granule_bytes % stride:
        return None
    if shared.granule // items * stride != shared.granule_bytes:
        return None
    if shared.pad_interval and shared.pad_interval % (stride * wave_size):
        return None
    per_granule = shared.granule // items

    def bases(first: int, count: int) -> tuple[Coordinates, ...]:
        """Coordinates of the bits from `first` of a place, counted in copies of one lane; zero beyond a block."""
        places = [1 << bit for bit in range(first, first + count)]
        inside = [divmod(place, per_granule) for place in places if place * items < shared.block]
        return (*(shared.coordinates(granule, part * items) for granule, part in inside),
                *((0,) * len(shared.shape),) * (count - len(inside)))

    item = tuple(shared.coordinates(0, 1 << bit) for bit in range(items.bit_length() - 1))
    lane_bits = wave_size.bit_length() - 1
    wave_bits = (waves & -waves).bit_length() - 1
    place_bits = (shared.block // items).bit_length() - 1
    copy_bits = max(0, place_bits - lane_bits - wave_bits)
    wave_first = lane_bits + copy_bits if waves_outermost else lane_bits
    copy_first = lane_bits if waves_outermost else lane_bits + wave_bits
    spare, wave_grid, copy_grid = waves >> wave_bits, [], []
    for axis in shared.order:
        odd, unit = shared.shape[axis] // shared.twos[axis], shared.twos[axis]
        taken = math.gcd(spare, odd)
        spare //= taken
        step = tuple(unit if other == axis else 0 for other in range(len(shared.shape)))
        wave_grid.append(Digit(taken, step))
        copy_grid.append(Digit(odd // taken, tuple(value * taken for value in step)))
    wave_grid.append(Digit(spare, (0,) * len(shared.shape)))
    return Layout(shared.shape, item + bases(copy_first, copy_bits), bases(0, lane_bits), bases(wave_first, wave_bits),
                  tuple(copy_grid), tuple(wave_grid))
