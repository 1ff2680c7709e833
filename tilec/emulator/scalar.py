"""The scalar arithmetic instructions: one row each, with its meaning as a pure function over waves.

Sources arrive as numpy arrays [wave] of the row's kinds; a row's function returns the result, or (result, scc). `scc`
says what becomes of SCC: 'keep', 'nonzero' (result != 0) or 'given' (second value). Rows of kind 'cmp' return SCC
only. (CDNA3 ISA guide, chapter 12.1-12.4.) Control flow, waits, EXEC and hardware registers are in control.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class ScalarRow:
    """`dst` is the kind of the result ('' for compares). `reads_scc`: SCC (uint32 0/1) is the last source;
    `reads_dst`: the destination's old value is the first source (s_addk, s_bitset).
    """

    name: str
    dst: str
    src: tuple[str, ...]
    function: Callable[..., Any]
    scc: str = "keep"
    reads_scc: bool = False
    reads_dst: bool = False


SCALAR: dict[str, ScalarRow] = {}


def _row(name: str, dst: str, src: str, function: Callable[..., Any], scc: str = "keep", **flags: bool) -> None:
    SCALAR[name] = ScalarRow(name, dst, tuple(src.split()), function, scc, **flags)


_U64 = np.uint64
_I64 = np.int64


def _wide(x: Array) -> Array:
    return x.astype(np.int64)


def _add(a: Array, b: Array) -> tuple[Array, Array]:
    total = a.astype(_U64) + b
    return total.astype(np.uint32), total >> _U64(32) != 0


def _addc(a: Array, b: Array, c: Array) -> tuple[Array, Array]:
    total = a.astype(_U64) + b + c
    return total.astype(np.uint32), total >> _U64(32) != 0


def _subb(a: Array, b: Array, c: Array) -> tuple[Array, Array]:
    difference = _wide(a) - b - c
    return difference.astype(np.uint32), difference < 0


def _signed(function: Callable[[Array, Array], Array]) -> Callable[[Array, Array], tuple[Array, Array]]:
    def compute(a: Array, b: Array) -> tuple[Array, Array]:
        exact = function(_wide(a), _wide(b))
        result = exact.astype(np.int32)
        return result, result != exact

    return compute


def _shift_add(n: int) -> Callable[[Array, Array], tuple[Array, Array]]:
    def compute(a: Array, b: Array) -> tuple[Array, Array]:
        total = (a.astype(_U64) << _U64(n)) + b
        return total.astype(np.uint32), total >> _U64(32) != 0

    return compute


def _field(x: Array, control: Array, bits: int) -> Array:
    """s_bfe: bits [offset, offset + width) of x, for unsigned or signed x (arithmetic shifts)."""
    kind = x.dtype.type
    offset = (control & (bits - 1)).astype(kind)
    width = (control >> 16 & 0x7F).astype(np.int64)
    if np.issubdtype(kind, np.unsignedinteger):
        kept = np.where(width >= bits, ~kind(0), (kind(1) << np.minimum(width, bits - 1).astype(kind)) - kind(1))
        return (x >> offset) & kept
    up = np.clip(bits - width - offset.astype(np.int64), 0, bits - 1).astype(kind)
    down = np.clip(bits - width, 0, bits - 1).astype(kind)
    whole = (x << up) >> down
    return np.where(width == 0, kind(0), np.where(width + offset >= bits, x >> offset, whole)).astype(kind)


def _reverse(x: Array, bits: int) -> Array:
    out = np.zeros_like(x)
    one = x.dtype.type(1)
    for i in range(bits):
        out |= (x >> x.dtype.type(i) & one) << x.dtype.type(bits - 1 - i)
    return out


def _count(x: Array) -> Array:
    return np.bitwise_count(x).astype(np.uint32)


def _first_one(x: Array, bits: int) -> Array:
    """Index of the lowest one, -1 when there is none."""
    lowest = x & (~x + x.dtype.type(1))
    return np.where(x == 0, -1, np.bitwise_count(lowest - x.dtype.type(1)).astype(np.int32)).astype(np.int32)


def _leading(x: Array, bits: int) -> Array:
    """Zeros before the highest one, -1 when there is none (s_flbit)."""
    y = x.copy()
    shift = 1
    while shift < bits:
        y |= y >> x.dtype.type(shift)
        shift *= 2
    return np.where(x == 0, -1, bits - np.bitwise_count(y).astype(np.int32)).astype(np.int32)


def _leading_sign(x: Array, bits: int) -> Array:
    """Leading bits equal to the sign (s_flbit_i32), -1 for 0 and -1."""
    flipped = np.where(x < 0, ~x, x)
    return _leading(flipped.view(np.uint32 if bits == 32 else np.uint64), bits)


def _quad(x: Array, whole: bool) -> Array:
    """s_wqm: each quad with an active lane becomes all ones; s_quadmask: one bit per quad."""
    bits = x.dtype.itemsize * 8
    out = np.zeros_like(x)
    kind = x.dtype.type
    for quad in range(bits // 4):
        any_lane = (x >> kind(4 * quad) & kind(15)) != 0
        out |= np.where(any_lane, kind(15 << 4 * quad) if whole else kind(1 << quad), kind(0))
    return out


def _replicate(x: Array) -> Array:
    out = np.zeros(x.shape, _U64)
    for i in range(32):
        out |= (x >> np.uint32(i) & np.uint32(1)).astype(_U64) * _U64(3) << _U64(2 * i)
    return out


def _same(x: Array) -> Array:
    return x


# ---- moves, bit counting and bit fiddling
for _bits, _kind in (("b32", "u32"), ("b64", "u64")):
    _n = int(_bits[1:])
    _row(f"s_mov_{_bits}", _kind, _kind, _same)
    _row(f"s_not_{_bits}", _kind, _kind, lambda a: ~a, "nonzero")
    _row(f"s_wqm_{_bits}", _kind, _kind, lambda a: _quad(a, True), "nonzero")
    _row(f"s_quadmask_{_bits}", _kind, _kind, lambda a: _quad(a, False), "nonzero")
    _row(f"s_brev_{_bits}", _kind, _kind, lambda a, n=_n: _reverse(a, n))
    _row(f"s_bcnt1_i32_{_bits}", "u32", _kind, _count, "nonzero")
    _row(f"s_bcnt0_i32_{_bits}", "u32", _kind, lambda a: _count(~a), "nonzero")
    _row(f"s_ff1_i32_{_bits}", "i32", _kind, lambda a, n=_n: _first_one(a, n))
    _row(f"s_ff0_i32_{_bits}", "i32", _kind, lambda a, n=_n: _first_one(~a, n))
    _row(f"s_flbit_i32_{_bits}", "i32", _kind, lambda a, n=_n: _leading(a, n))
    _row(f"s_cselect_{_bits}", _kind, f"{_kind} {_kind}", lambda a, b, c: np.where(c != 0, a, b), reads_scc=True)
    _row(f"s_cmov_{_bits}", _kind, _kind, lambda d, a, c: np.where(c != 0, a, d), reads_scc=True, reads_dst=True)
    _row(
        f"s_bitset0_{_bits}",
        _kind,
        "u32",
        lambda d, a: d & ~(d.dtype.type(1) << (a & (d.itemsize * 8 - 1)).astype(d.dtype)),
        reads_dst=True,
    )
    _row(
        f"s_bitset1_{_bits}",
        _kind,
        "u32",
        lambda d, a: d | d.dtype.type(1) << (a & (d.itemsize * 8 - 1)).astype(d.dtype),
        reads_dst=True,
    )
    _row(
        f"s_lshl_{_bits}",
        _kind,
        f"{_kind} u32",
        lambda a, b: a << (b & (a.itemsize * 8 - 1)).astype(a.dtype),
        "nonzero",
    )
    _row(
        f"s_lshr_{_bits}",
        _kind,
        f"{_kind} u32",
        lambda a, b: a >> (b & (a.itemsize * 8 - 1)).astype(a.dtype),
        "nonzero",
    )
    _row(
        f"s_ashr_i{_n}", f"i{_n}", f"i{_n} u32", lambda a, b: a >> (b & (a.itemsize * 8 - 1)).astype(a.dtype), "nonzero"
    )
    _row(
        f"s_bfm_{_bits}",
        _kind,
        "u32 u32",
        lambda a, b, n=_n, t=(np.uint32 if _n == 32 else _U64): (
            ((t(1) << (a & (n - 1)).astype(t)) - t(1)) << (b & (n - 1)).astype(t)
        ),
    )
    _row(f"s_bfe_u{_n}", f"u{_n}", f"u{_n} u32", lambda a, b, n=_n: _field(a, b, n), "nonzero")
    _row(f"s_bfe_i{_n}", f"i{_n}", f"i{_n} u32", lambda a, b, n=_n: _field(a, b, n), "nonzero")
    for _name, _function in {
        "and": lambda a, b: a & b,
        "or": lambda a, b: a | b,
        "xor": lambda a, b: a ^ b,
        "andn2": lambda a, b: a & ~b,
        "orn2": lambda a, b: a | ~b,
        "nand": lambda a, b: ~(a & b),
        "nor": lambda a, b: ~(a | b),
        "xnor": lambda a, b: ~(a ^ b),
    }.items():
        _row(f"s_{_name}_{_bits}", _kind, f"{_kind} {_kind}", _function, "nonzero")
    for _bit in (0, 1):
        _row(
            f"s_bitcmp{_bit}_{_bits}",
            "",
            f"{_kind} u32",
            lambda a, b, v=_bit: (a >> (b & (a.itemsize * 8 - 1)).astype(a.dtype) & a.dtype.type(1)) == v,
            "given",
        )

_row("s_flbit_i32", "i32", "i32", lambda a: _leading_sign(a, 32))
_row("s_flbit_i32_i64", "i32", "i64", lambda a: _leading_sign(a, 64))
_row("s_sext_i32_i8", "i32", "u32", lambda a: a.astype(np.uint8).view(np.int8).astype(np.int32))
_row("s_sext_i32_i16", "i32", "u32", lambda a: a.astype(np.uint16).view(np.int16).astype(np.int32))
_row("s_abs_i32", "i32", "i32", np.abs, "nonzero")
_row("s_bitreplicate_b64_b32", "u64", "u32", _replicate)

# ---- arithmetic
_row("s_add_u32", "u32", "u32 u32", _add, "given")
_row("s_sub_u32", "u32", "u32 u32", lambda a, b: (a - b, a < b), "given")
_row("s_addc_u32", "u32", "u32 u32", _addc, "given", reads_scc=True)
_row("s_subb_u32", "u32", "u32 u32", _subb, "given", reads_scc=True)
_row("s_add_i32", "i32", "i32 i32", _signed(lambda a, b: a + b), "given")
_row("s_sub_i32", "i32", "i32 i32", _signed(lambda a, b: a - b), "given")
_row("s_mul_i32", "u32", "u32 u32", lambda a, b: a * b)
_row("s_mul_hi_u32", "u32", "u32 u32", lambda a, b: (a.astype(_U64) * b >> _U64(32)).astype(np.uint32))
_row("s_mul_hi_i32", "i32", "i32 i32", lambda a, b: (_wide(a) * _wide(b) >> 32).astype(np.int32))
_row("s_absdiff_i32", "u32", "i32 i32", lambda a, b: np.abs(_wide(a) - _wide(b)).astype(np.uint32), "nonzero")
for _kind in ("i32", "u32"):
    _row(f"s_min_{_kind}", _kind, f"{_kind} {_kind}", lambda a, b: (np.minimum(a, b), a < b), "given")
    _row(f"s_max_{_kind}", _kind, f"{_kind} {_kind}", lambda a, b: (np.maximum(a, b), a > b), "given")
for _shift in (1, 2, 3, 4):
    _row(f"s_lshl{_shift}_add_u32", "u32", "u32 u32", _shift_add(_shift), "given")
_row("s_pack_ll_b32_b16", "u32", "u32 u32", lambda a, b: a & 0xFFFF | b << 16)
_row("s_pack_lh_b32_b16", "u32", "u32 u32", lambda a, b: a & 0xFFFF | b & 0xFFFF0000)
_row("s_pack_hh_b32_b16", "u32", "u32 u32", lambda a, b: a >> 16 | b & 0xFFFF0000)

# ---- 16-bit immediates, sign-extended (s_cmpk_*_u32: zero-extended; the binder reads the kind 'k16' or 'ku16')
_row("s_movk_i32", "i32", "k16", _same)
_row("s_cmovk_i32", "i32", "k16", lambda d, a, c: np.where(c != 0, a, d), reads_scc=True, reads_dst=True)
_row("s_addk_i32", "i32", "k16", _signed(lambda a, b: a + b), "given", reads_dst=True)
_row("s_mulk_i32", "i32", "k16", lambda a, b: a * b, reads_dst=True)

# ---- compares
_COMPARE: dict[str, Callable[[Array, Array], Array]] = {
    "eq": lambda a, b: a == b,
    "lg": lambda a, b: a != b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
}
for _name, _function in _COMPARE.items():
    for _kind in ("i32", "u32"):
        _row(f"s_cmp_{_name}_{_kind}", "", f"{_kind} {_kind}", _function, "given")
        _row(f"s_cmpk_{_name}_{_kind}", "", f"{_kind} {'k16' if _kind == 'i32' else 'ku16'}", _function, "given")
_row("s_cmp_eq_u64", "", "u64 u64", _COMPARE["eq"], "given")
_row("s_cmp_lg_u64", "", "u64 u64", _COMPARE["lg"], "given")

# ---- EXEC updates: the destination takes the old EXEC, EXEC the function of (source, EXEC)
SAVE_EXEC: dict[str, Callable[[Array, Array], Array]] = {
    "and": lambda a, e: a & e,
    "or": lambda a, e: a | e,
    "xor": lambda a, e: a ^ e,
    "andn2": lambda a, e: a & ~e,
    "orn2": lambda a, e: a | ~e,
    "nand": lambda a, e: ~(a & e),
    "nor": lambda a, e: ~(a | e),
    "xnor": lambda a, e: ~(a ^ e),
    "andn1": lambda a, e: ~a & e,
    "orn1": lambda a, e: ~a | e,
}
WRITE_EXEC: dict[str, Callable[[Array, Array], Array]] = {"andn1": lambda a, e: ~a & e, "andn2": lambda a, e: a & ~e}
"""s_andn?_wrexec_b64: destination and EXEC both take the result."""
