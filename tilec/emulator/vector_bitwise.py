"""Moves, bitwise operations, shifts and bit fields (CDNA3 and CDNA4 ISA guides, chapter 12).

Shift counts use the low bits that the width needs, as hardware does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilec.emulator.arithmetic import Array
from tilec.emulator.mode import Mode
from tilec.emulator.vector_row import VectorRow, row_of

LANES = np.arange(64, dtype=np.uint64)


def _shift_left(count: Array, value: Array) -> Array:
    return value << (count & (value.dtype.itemsize * 8 - 1)).astype(value.dtype)


def _shift_right(count: Array, value: Array) -> Array:
    return value >> (count & (value.dtype.itemsize * 8 - 1)).astype(value.dtype)


def _bfe_u32(value: Array, offset: Array, width: Array) -> Array:
    return (value >> (offset & 31)) & ((np.uint32(1) << (width & 31)) - np.uint32(1))


def _bfe_i32(value: Array, offset: Array, width: Array) -> Array:
    width = width & 31
    field = (value >> (offset & 31).astype(np.int32)).astype(np.uint32) & ((np.uint32(1) << width) - np.uint32(1))
    top = np.where(width == 0, np.uint32(0), np.uint32(1) << ((width - np.uint32(1)) & 31))
    return ((field ^ top) - top).astype(np.int32)


def _joined(high: Array, low: Array) -> Array:
    return high.astype(np.uint64) << np.uint64(32) | low


def _align_bit(a: Array, b: Array, count: Array) -> Array:
    return (_joined(a, b) >> (count & 31).astype(np.uint64)).astype(np.uint32)


def _align_byte(a: Array, b: Array, count: Array) -> Array:
    return (_joined(a, b) >> ((count & 3) * 8).astype(np.uint64)).astype(np.uint32)


def _permute_bytes(a: Array, b: Array, selector: Array) -> Array:
    """Each selector byte picks from {a, b}: 0-7 that byte, 8-11 the sign of byte 1, 3, 5, 7, 12 zero, above it 0xff."""
    if selector.size == 1 and all(choice < 8 for choice in int(selector.flat[0]).to_bytes(4, "little")):
        return _permute_uniformly(a, b, int(selector.flat[0]))
    joined = _joined(a, b)
    result: Array = np.zeros(np.broadcast_shapes(a.shape, b.shape, selector.shape), np.uint32)
    for byte in range(4):
        choice = selector >> np.uint32(8 * byte) & np.uint32(0xFF)
        index = np.where(choice < 8, choice * 8, ((choice & 3) * 2 + 1) * 8).astype(np.uint64)
        picked = (joined >> index).astype(np.uint32) & np.uint32(0xFF)
        if (choice >= 8).any():
            sign = (picked >> np.uint32(7)) * np.uint32(0xFF)
            constant = np.where(choice == 12, np.uint32(0), np.uint32(0xFF))
            picked = np.where(choice < 8, picked, np.where(choice < 12, sign, constant))
        result |= picked << np.uint32(8 * byte)
    return result


def _permute_uniformly(a: Array, b: Array, selector: int) -> Array:
    """The same for one selector of plain bytes: a shift and a mask for each distance that bytes of a source move."""
    masks: dict[tuple[bool, int], int] = {}
    for byte, choice in enumerate(selector.to_bytes(4, "little")):
        move = choice >= 4, 8 * (byte - choice % 4)
        masks[move] = masks.get(move, 0) | 0xFF << 8 * byte
    result: Any = np.uint32(0)
    for (from_a, left), mask in masks.items():
        source = a if from_a else b
        moved = source << np.uint32(left) if left >= 0 else source >> np.uint32(-left)
        result = result | moved & np.uint32(mask)
    return result


def _bit_operation(mode: Mode, a: Array, b: Array, c: Array, *, bitop3: int = 0) -> Array:
    """The truth table bitop3, indexed by the bits 4 * a + 2 * b + c."""
    result: Array = np.zeros(np.broadcast_shapes(a.shape, b.shape, c.shape), a.dtype)
    for index in range(8):
        if bitop3 >> index & 1:
            result |= (a if index & 4 else ~a) & (b if index & 2 else ~b) & (c if index & 1 else ~c)
    return result


def _reverse_bits(x: Array) -> Array:
    for shift, mask in ((1, 0x55555555), (2, 0x33333333), (4, 0x0F0F0F0F), (8, 0x00FF00FF), (16, 0x0000FFFF)):
        x = (x >> np.uint32(shift) & np.uint32(mask)) | (x & np.uint32(mask)) << np.uint32(shift)
    return x


def _first_high_u32(x: Array) -> Array:
    """Leading zeros, -1 for 0; the float64 exponent of a 32-bit integer is exact."""
    _, exponent = np.frexp(x.astype(np.float64))
    return np.where(x == 0, -1, 32 - exponent).astype(np.int32)


def _first_high_i32(x: Array) -> Array:
    return _first_high_u32((x ^ (x >> 31)).astype(np.uint32))


def _first_low_b32(x: Array) -> Array:
    lowest = x & (~x + np.uint32(1))
    _, exponent = np.frexp(lowest.astype(np.float64))
    return np.where(x == 0, -1, exponent - 1).astype(np.int32)


def _count_bits(x: Array, base: Array) -> Array:
    return np.bitwise_count(x).astype(np.uint32) + base


def _count_below_low(x: Array, base: Array) -> Array:
    below = ((np.uint64(1) << LANES) - np.uint64(1)).astype(np.uint32)
    return _count_bits(x & below, base)


def _count_below_high(x: Array, base: Array) -> Array:
    below = (((np.uint64(1) << LANES) - np.uint64(1)) >> np.uint64(32)).astype(np.uint32)
    return _count_bits(x & below, base)


def _shifted_pack(low: int, high: int) -> Callable[..., Array]:
    def formula(a: Array, b: Array, count: Array) -> Array:
        shift = (count & 31).astype(np.int32)
        first, second = (np.clip(x >> shift, low, high).astype(np.uint16) & np.uint16(0xFF) for x in (a, b))
        return first | second << np.uint16(8)

    return formula


def random_step(x: Array) -> Array:
    """One step of the hardware's pseudo-random register: x**31's feedback polynomial 0xC5."""
    return (x << np.uint32(1)) ^ (x >> np.uint32(31)) * np.uint32(197)


def _bitwise() -> list[VectorRow]:
    return [
        row_of("v_mov_b32", "u32", "u32", lambda x: x),
        row_of("v_mov_b64", "u64", "u64", lambda x: x),
        row_of("v_pk_mov_b32", "v2u32", "v2u32 v2u32", lambda a, b: np.stack(np.broadcast_arrays(a[0], b[0]))),
        row_of("v_accvgpr_read_b32", "u32", "u32", lambda x: x),
        row_of("v_accvgpr_write_b32", "u32", "u32", lambda x: x),
        row_of("v_accvgpr_mov_b32", "u32", "u32", lambda x: x),
        row_of("v_swap_b32", "u32 u32", "u32 u32", lambda source, old: (source, old), accumulates=True),
        # f32, since its sources take neg and abs
        row_of("v_cndmask_b32", "f32", "f32 f32 mask", lambda a, b, mask: np.where(mask, b, a)),
        row_of("v_not_b32", "u32", "u32", lambda x: ~x),
        row_of("v_and_b32", "u32", "u32 u32", lambda a, b: a & b),
        row_of("v_or_b32", "u32", "u32 u32", lambda a, b: a | b),
        row_of("v_xor_b32", "u32", "u32 u32", lambda a, b: a ^ b),
        row_of("v_xnor_b32", "u32", "u32 u32", lambda a, b: ~(a ^ b)),
        row_of("v_and_or_b32", "u32", "u32 u32 u32", lambda a, b, c: (a & b) | c),
        row_of("v_or3_b32", "u32", "u32 u32 u32", lambda a, b, c: a | b | c),
        row_of("v_xad_u32", "u32", "u32 u32 u32", lambda a, b, c: (a ^ b) + c),
        row_of("v_bfi_b32", "u32", "u32 u32 u32", lambda a, b, c: (a & b) | (~a & c)),
        row_of("v_bfm_b32", "u32", "u32 u32", lambda a, b: ((np.uint32(1) << (a & 31)) - np.uint32(1)) << (b & 31)),
        row_of("v_bfe_u32", "u32", "u32 u32 u32", _bfe_u32),
        row_of("v_bfe_i32", "i32", "i32 u32 u32", _bfe_i32),
        row_of("v_bfrev_b32", "u32", "u32", _reverse_bits),
        row_of("v_ffbh_u32", "i32", "u32", _first_high_u32),
        row_of("v_ffbh_i32", "i32", "i32", _first_high_i32),
        row_of("v_ffbl_b32", "i32", "u32", _first_low_b32),
        row_of("v_bcnt_u32_b32", "u32", "u32 u32", _count_bits),
        row_of("v_mbcnt_lo_u32_b32", "u32", "u32 u32", _count_below_low),
        row_of("v_mbcnt_hi_u32_b32", "u32", "u32 u32", _count_below_high),
        row_of("v_alignbit_b32", "u32", "u32 u32 u32", _align_bit),
        row_of("v_alignbyte_b32", "u32", "u32 u32 u32", _align_byte),
        row_of("v_perm_b32", "u32", "u32 u32 u32", _permute_bytes),
        row_of("v_pack_b32_f16", "v2u16", "u16 u16", lambda a, b: np.stack(np.broadcast_arrays(a, b))),
        row_of("v_prng_b32", "u32", "u32", random_step, architectures=("gfx950",)),
        VectorRow("v_bitop3_b32", ("u32",), ("u32",) * 3, _bit_operation,
                  modifiers=("bitop3",), architectures=("gfx950",)),
        VectorRow("v_bitop3_b16", ("u16",), ("u16",) * 3, _bit_operation,
                  modifiers=("bitop3",), architectures=("gfx950",)),
    ]  # fmt: skip


def _shifts() -> list[VectorRow]:
    rows = [
        row_of("v_lshl_add_u32", "u32", "u32 u32 u32", lambda a, b, c: (a << (b & 31)) + c),
        row_of("v_add_lshl_u32", "u32", "u32 u32 u32", lambda a, b, c: (a + b) << (c & 31)),
        row_of("v_lshl_or_b32", "u32", "u32 u32 u32", lambda a, b, c: (a << (b & 31)) | c),
        row_of("v_lshl_add_u64", "u64", "u64 u32 u64", lambda a, b, c: (a << (b & 7).astype(np.uint64)) + c),
    ]
    for name, formula, kinds in (
        ("lshlrev_b", _shift_left, ("u16", "u32", "u64")),
        ("lshrrev_b", _shift_right, ("u16", "u32", "u64")),
        ("ashrrev_i", _shift_right, ("i16", "i32", "i64")),
    ):
        for kind in kinds:
            count = "u16" if kind[1:] == "16" else "u32"
            rows.append(row_of(f"v_{name}{kind[1:]}", kind, f"{count} {kind}", formula))
        rows.append(row_of(f"v_pk_{name}16", f"v2{kinds[0]}", f"v2u16 v2{kinds[0]}", formula))
    for name, low, high in (("i8", -128, 127), ("u8", 0, 255)):
        formula = _shifted_pack(low, high)
        rows.append(row_of(f"v_ashr_pk_{name}_i32", "u16", "i32 i32 u32", formula, architectures=("gfx950",)))
    return rows


ROWS: tuple[VectorRow, ...] = (*_bitwise(), *_shifts())
