"""The memory instructions as data: what each moves, how wide, into which part of a register, and which counter it
holds.

One row per mnemonic of MUBUF, FLAT, GLOBAL, SCRATCH, DS and SMEM (CDNA3 ISA guide, sections 9 to 11; CDNA4 for the
transposed and wide LDS forms). Address arithmetic is in memory_ops.py, the landing of data in access.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class MemoryRow:
    """`space`: buffer, global, flat, scratch, lds or scalar. `op`: load, store, atomic, dma (global to LDS), permute,
    cache.

    `size`: bytes per lane and element. `elements`: 2 for ds_read2/write2, whose offsets count `stride` bytes.
    `signed`: sign-extend to a dword. `half`: '' moves whole dwords, 'low'/'high' that half of the register (d16); a
    d16 load clears the other half, since registers have ECC. `returns`: the old value. `by_lane`: the address is M0
    plus the lane's place (addtid).
    """

    name: str
    space: str
    op: str
    size: int = 4
    elements: int = 1
    stride: int = 0
    signed: bool = False
    half: str = ""
    atomic: str = ""
    returns: bool = False
    transpose: int = 0  # bits per element of a transposed LDS read
    by_lane: bool = False
    architectures: tuple[str, ...] = ("gfx942", "gfx950")

    @property
    def dwords(self) -> int:
        return (self.size + 3) // 4

    def in_order(self, counter: str) -> bool:
        """Does it fall in order in this counter? Scalar loads don't, nor does FLAT, which may go to LDS or memory."""
        return self.space == "lds" if counter == "lgkm" else self.space != "flat"


@dataclass(frozen=True)
class AtomicRow:
    """`apply(old, data)` is the new value. `combine` merges the data of equal addresses when no old value is wanted."""

    kind: type
    apply: Callable[..., Array]
    combine: np.ufunc | None = None
    compares: bool = False  # data is (new, compare)
    items: int = 1  # packed items per element


MEMORY: dict[str, MemoryRow] = {}
ATOMIC: dict[str, AtomicRow] = {}


def _inc(old: Array, data: Array) -> Array:
    return np.where(old >= data, old.dtype.type(0), old + old.dtype.type(1))


def _dec(old: Array, data: Array) -> Array:
    return np.where((old == 0) | (old > data), data, old - old.dtype.type(1))


def _cmpswap(old: Array, data: Array, compare: Array) -> Array:
    return np.where(old == compare, data, old)


def _add_bf16(old: Array, data: Array) -> Array:
    """bf16 sums, rounded to nearest even."""
    total = (old.astype(np.uint32) << 16).view(np.float32) + (data.astype(np.uint32) << 16).view(np.float32)
    bits = total.view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1)) >> np.uint32(16)
    return np.where(np.isnan(total), bits >> np.uint32(16) | np.uint32(0x40), rounded).astype(np.uint16)


for _suffix, _u, _i in (("", np.uint32, np.int32), ("_x2", np.uint64, np.int64)):
    ATOMIC.update(
        {
            "swap" + _suffix: AtomicRow(_u, lambda old, data: data),
            "cmpswap" + _suffix: AtomicRow(_u, _cmpswap, compares=True),
            "add" + _suffix: AtomicRow(_u, np.add, np.add),
            "sub" + _suffix: AtomicRow(_u, np.subtract, np.add),
            "rsub" + _suffix: AtomicRow(_u, lambda old, data: data - old),
            "smin" + _suffix: AtomicRow(_i, np.minimum, np.minimum),
            "umin" + _suffix: AtomicRow(_u, np.minimum, np.minimum),
            "smax" + _suffix: AtomicRow(_i, np.maximum, np.maximum),
            "umax" + _suffix: AtomicRow(_u, np.maximum, np.maximum),
            "and" + _suffix: AtomicRow(_u, np.bitwise_and, np.bitwise_and),
            "or" + _suffix: AtomicRow(_u, np.bitwise_or, np.bitwise_or),
            "xor" + _suffix: AtomicRow(_u, np.bitwise_xor, np.bitwise_xor),
            "mskor" + _suffix: AtomicRow(_u, lambda old, data, mask: old & ~mask | data, compares=True),
            "inc" + _suffix: AtomicRow(_u, _inc),
            "dec" + _suffix: AtomicRow(_u, _dec),
        }
    )
for _name, _kind in (("f32", np.float32), ("f64", np.float64)):
    ATOMIC[f"add_{_name}"] = AtomicRow(_kind, np.add, np.add)
    ATOMIC[f"min_{_name}"] = AtomicRow(_kind, np.fmin, np.fmin)
    ATOMIC[f"max_{_name}"] = AtomicRow(_kind, np.fmax, np.fmax)
    ATOMIC[f"cmpswap_{_name}"] = AtomicRow(_kind, _cmpswap, compares=True)
ATOMIC["wrap"] = AtomicRow(np.uint32, lambda old, up, down: np.where(old >= down, old - down, old + up), compares=True)
ATOMIC["pk_add_f16"] = AtomicRow(np.float16, np.add, items=2)
ATOMIC["pk_add_bf16"] = AtomicRow(np.uint16, _add_bf16, items=2)


def _add(row: MemoryRow) -> None:
    MEMORY[row.name] = row


_LOADS: dict[str, dict[str, Any]] = {
    "ubyte": {"size": 1},
    "sbyte": {"size": 1, "signed": True},
    "ushort": {"size": 2},
    "sshort": {"size": 2, "signed": True},
    "dword": {"size": 4},
    "dwordx2": {"size": 8},
    "dwordx3": {"size": 12},
    "dwordx4": {"size": 16},
    "ubyte_d16": {"size": 1, "half": "low"},
    "ubyte_d16_hi": {"size": 1, "half": "high"},
    "sbyte_d16": {"size": 1, "signed": True, "half": "low"},
    "sbyte_d16_hi": {"size": 1, "signed": True, "half": "high"},
    "short_d16": {"size": 2, "half": "low"},
    "short_d16_hi": {"size": 2, "half": "high"},
}
_STORES: dict[str, dict[str, Any]] = {
    "byte": {"size": 1},
    "byte_d16_hi": {"size": 1, "half": "high"},
    "short": {"size": 2},
    "short_d16_hi": {"size": 2, "half": "high"},
    "dword": {"size": 4},
    "dwordx2": {"size": 8},
    "dwordx3": {"size": 12},
    "dwordx4": {"size": 16},
}
_LDS_ONLY = ("rsub", "mskor", "wrap", "cmpswap_f", "min_f32", "max_f32")
_MEMORY_ATOMICS = [name for name in ATOMIC if not name.startswith(_LDS_ONLY)]

for _space in ("buffer", "global", "flat", "scratch"):
    for _name, _fields in _LOADS.items():
        _add(MemoryRow(f"{_space}_load_{_name}", _space, "load", **_fields))
    for _name, _fields in _STORES.items():
        _add(MemoryRow(f"{_space}_store_{_name}", _space, "store", **_fields))
    if _space != "scratch":
        for _name in _MEMORY_ATOMICS:
            _wide = ATOMIC[_name].kind in (np.uint64, np.int64, np.float64)
            _archs = ("gfx950",) if _space == "buffer" and _name == "pk_add_bf16" else ("gfx942", "gfx950")
            _add(
                MemoryRow(
                    f"{_space}_atomic_{_name}", _space, "atomic", 8 if _wide else 4, atomic=_name, architectures=_archs
                )
            )
for _name, _size in (
    ("dword", 4),
    ("dwordx3", 12),
    ("dwordx4", 16),
    ("ubyte", 1),
    ("sbyte", 1),
    ("ushort", 2),
    ("sshort", 2),
):
    _archs = ("gfx942", "gfx950") if _size <= 4 else ("gfx950",)
    for _space in ("global", "scratch") if _size <= 4 else ("global",):
        _row = MemoryRow(f"{_space}_load_lds_{_name}", _space, "dma", _size, architectures=_archs)
        _add(replace(_row, signed=_name[0] == "s"))
for _name in ("buffer_inv", "buffer_wbl2"):
    _add(MemoryRow(_name, "buffer", "cache", 0))

# ---- LDS
for _name, _fields in {
    "b32": {"size": 4},
    "b64": {"size": 8},
    "b96": {"size": 12},
    "b128": {"size": 16},
    "u8": {"size": 1},
    "i8": {"size": 1, "signed": True},
    "u16": {"size": 2},
    "i16": {"size": 2, "signed": True},
    "u8_d16": {"size": 1, "half": "low"},
    "u8_d16_hi": {"size": 1, "half": "high"},
    "i8_d16": {"size": 1, "signed": True, "half": "low"},
    "i8_d16_hi": {"size": 1, "signed": True, "half": "high"},
    "u16_d16": {"size": 2, "half": "low"},
    "u16_d16_hi": {"size": 2, "half": "high"},
}.items():
    _add(MemoryRow(f"ds_read_{_name}", "lds", "load", **_fields))
for _name, _fields in {
    "b8": {"size": 1},
    "b8_d16_hi": {"size": 1, "half": "high"},
    "b16": {"size": 2},
    "b16_d16_hi": {"size": 2, "half": "high"},
    "b32": {"size": 4},
    "b64": {"size": 8},
    "b96": {"size": 12},
    "b128": {"size": 16},
}.items():
    _add(MemoryRow(f"ds_write_{_name}", "lds", "store", **_fields))
for _bits, _size in (("b32", 4), ("b64", 8)):
    for _st, _scale in (("", 1), ("st64", 64)):
        _add(MemoryRow(f"ds_read2{_st}_{_bits}", "lds", "load", _size, 2, _size * _scale))
        _add(MemoryRow(f"ds_write2{_st}_{_bits}", "lds", "store", _size, 2, _size * _scale))
        _add(
            MemoryRow(
                f"ds_wrxchg2{_st}_rtn_{_bits}",
                "lds",
                "atomic",
                _size,
                2,
                _size * _scale,
                atomic="swap" if _size == 4 else "swap_x2",
                returns=True,
            )
        )
for _bits in (4, 8, 16):
    _add(MemoryRow(f"ds_read_b64_tr_b{_bits}", "lds", "load", 8, transpose=_bits, architectures=("gfx950",)))
_add(MemoryRow("ds_read_b96_tr_b6", "lds", "load", 12, transpose=6, architectures=("gfx950",)))

_DS_ATOMICS = {  # DS name: atomic
    "add_u": "add",
    "sub_u": "sub",
    "rsub_u": "rsub",
    "inc_u": "inc",
    "dec_u": "dec",
    "min_i": "smin",
    "min_u": "umin",
    "max_i": "smax",
    "max_u": "umax",
    "and_b": "and",
    "or_b": "or",
    "xor_b": "xor",
    "mskor_b": "mskor",
    "cmpst_b": "cmpswap",
    "wrxchg_rtn_b": "swap",
}
for _name, _atomic in _DS_ATOMICS.items():
    for _bits, _suffix in ((32, ""), (64, "_x2")):
        if "_rtn_" in _name:
            _add(MemoryRow(f"ds_{_name}{_bits}", "lds", "atomic", _bits // 8, atomic=_atomic + _suffix, returns=True))
            continue
        _stem, _type = _name.rsplit("_", 1)
        _add(MemoryRow(f"ds_{_stem}_{_type}{_bits}", "lds", "atomic", _bits // 8, atomic=_atomic + _suffix))
        _add(
            MemoryRow(
                f"ds_{_stem}_rtn_{_type}{_bits}", "lds", "atomic", _bits // 8, atomic=_atomic + _suffix, returns=True
            )
        )
for _name in ("add", "min", "max", "cmpst"):
    for _type, _size in (("f32", 4), ("f64", 8)):
        _atomic = f"{'cmpswap' if _name == 'cmpst' else _name}_{_type}"
        _add(MemoryRow(f"ds_{_name}_{_type}", "lds", "atomic", _size, atomic=_atomic))
        _add(MemoryRow(f"ds_{_name}_rtn_{_type}", "lds", "atomic", _size, atomic=_atomic, returns=True))
for _type in ("f16", "bf16"):
    _add(MemoryRow(f"ds_pk_add_{_type}", "lds", "atomic", 4, atomic=f"pk_add_{_type}"))
    _add(MemoryRow(f"ds_pk_add_rtn_{_type}", "lds", "atomic", 4, atomic=f"pk_add_{_type}", returns=True))
_add(MemoryRow("ds_wrap_rtn_b32", "lds", "atomic", atomic="wrap", returns=True))
_add(MemoryRow("ds_read_addtid_b32", "lds", "load", by_lane=True))
_add(MemoryRow("ds_write_addtid_b32", "lds", "store", by_lane=True))
_add(MemoryRow("ds_nop", "lds", "cache", 0))
for _name in ("ds_bpermute_b32", "ds_permute_b32", "ds_swizzle_b32"):
    _add(MemoryRow(_name, "lds", "permute"))

# ---- scalar memory
for _count in (1, 2, 4, 8, 16):
    _suffix = "" if _count == 1 else f"x{_count}"
    _add(MemoryRow(f"s_load_dword{_suffix}", "scalar", "load", 4 * _count))
    _add(MemoryRow(f"s_buffer_load_dword{_suffix}", "scalar", "load", 4 * _count))
for _name in ("s_memtime", "s_memrealtime"):
    _add(MemoryRow(_name, "scalar", "clock", 8))
for _name in ("s_dcache_inv", "s_dcache_wb", "s_dcache_inv_vol", "s_dcache_wb_vol"):
    _add(MemoryRow(_name, "scalar", "cache", 0))
