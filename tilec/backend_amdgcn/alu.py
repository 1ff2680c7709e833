"""Arithmetic as instruction sequences: one function per element class, on operands in compute form.

`vector(b, function, dtype, arguments)` gives a VGPR (pair), or a lane mask for comparisons; `scalar` the same in SGPRs.
f32 covers f16 and bf16 (fragment.py rounds afterwards); integers below 32 bits work in 32. Results equal ir/numerics.py
bit for bit, except for exp2, exp, log2, log, rsqrt, sqrt, sin, cos (within a few units in the last place; denormal
results of exp2 may be 0). Integer division follows the float reciprocal with two corrections; floor semantics come from
signs and remainder.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import TypeVar

from tilec.backend_amdgcn.builder import Builder
from tilec.dtypes import DType
from tilec.errors import TilecError
from tilec.ir.machine import VCC, Immediate, Operand, Ref
from tilec.ir.numerics import constant

T = TypeVar("T")

# f32, and int / uint of up to 32 bits: functions that are one instruction on the arguments as they are.
_DIRECT = {
    "f32": {
        "add": "v_add_f32",
        "sub": "v_sub_f32",
        "mul": "v_mul_f32",
        "minimum": "v_min_f32",
        "maximum": "v_max_f32",
        "fma": "v_fma_f32",
        "floor": "v_floor_f32",
        "ceil": "v_ceil_f32",
        "exp2": "v_exp_f32",
    },
    "f64": {
        "add": "v_add_f64",
        "mul": "v_mul_f64",
        "minimum": "v_min_f64",
        "maximum": "v_max_f64",
        "fma": "v_fma_f64",
        "floor": "v_floor_f64",
        "ceil": "v_ceil_f64",
    },
    "i32": {
        "add": "v_add_u32",
        "sub": "v_sub_u32",
        "mul": "v_mul_lo_u32",
        "minimum": "v_min_i32",
        "maximum": "v_max_i32",
    },
    "u32": {
        "add": "v_add_u32",
        "sub": "v_sub_u32",
        "mul": "v_mul_lo_u32",
        "minimum": "v_min_u32",
        "maximum": "v_max_u32",
    },
}
_PAIRS = {"add": "v_pk_add_f32", "mul": "v_pk_mul_f32", "fma": "v_pk_fma_f32"}
_THREE = {("maximum", "f32"): "v_max3_f32", ("minimum", "f32"): "v_min3_f32"}
_LOGIC = {"and": "v_and_b32", "or": "v_or_b32", "xor": "v_xor_b32"}
_COMPARE = {"lt": "lt", "le": "le", "gt": "gt", "ge": "ge", "eq": "eq", "ne": "ne"}
_SCALAR = {
    "add": "s_add_i32",
    "sub": "s_sub_i32",
    "mul": "s_mul_i32",
    "and": "s_and_b32",
    "or": "s_or_b32",
    "xor": "s_xor_b32",
}
_MASK_LOGIC = {"and": "s_and_b64", "or": "s_or_b64", "xor": "s_xor_b64", "ne": "s_xor_b64"}
F32_LOG2E, F32_LN2 = 0x3FB8AA3B, 0x3F317218


def element_class(dtype: DType) -> str:
    """The arithmetic that a dtype computes in: f32 f64 i32 u32 i64 u64 or bool."""
    if dtype.kind == "bool":
        return "bool"
    if dtype.is_float:
        return "f64" if dtype.bits == 64 else "f32"
    return ("i" if dtype.kind == "int" else "u") + ("64" if dtype.bits == 64 else "32")


def bits_of(value: int | float | bool, dtype: DType) -> int:
    """A constant's compute form as an unsigned bit pattern (bool: 1 or 0)."""
    kind = element_class(dtype)
    if kind == "bool":
        return int(bool(value))
    if kind == "f64":
        return struct.unpack("<Q", struct.pack("<d", float(value)))[0]
    if kind == "f32":
        return struct.unpack("<I", struct.pack("<f", float(constant(value, dtype))))[0]
    return int(constant(value, dtype)) & (0xFFFFFFFF if kind in ("i32", "u32") else 0xFFFFFFFFFFFFFFFF)


def wide_immediate(b: Builder, value: int, *, bits: int) -> Operand:
    """A constant operand of 32 or 64 bits."""
    return Immediate(value) if bits == 32 else b.pair(value & 0xFFFFFFFF, value >> 32)


# -- vectors ---------------------------------------------------------------------------------------------------------


def vector(b: Builder, function: str, dtype: DType, arguments: Sequence[Operand]) -> Operand:
    """One elementwise function on one item. For comparisons and `where`, `dtype` is that of the compared or chosen
    values."""
    kind = element_class(dtype)
    if function == "where":
        return select(b, arguments[0], arguments[1], arguments[2])
    if kind == "bool":
        return _mask(b, function, arguments)
    if function in _COMPARE:
        name = "neq" if function == "ne" and kind[0] == "f" else function
        return b.value(f"v_cmp_{name}_{kind}", *arguments, kind="s", size=2)
    if function in _DIRECT.get(kind, {}):
        return b.value(_DIRECT[kind][function], *arguments, size=2 if kind == "f64" else 1)
    rule = _RULES.get((kind, function)) or _RULES.get((kind[1:], function)) or _RULES.get((kind[0], function))
    if rule is None:
        raise TilecError(
            f"{function} of {dtype} is not supported", where=b.where, fix="cast to f32 first, or use another type"
        )
    return rule(b, dtype, *arguments)


def comes_in_pairs(function: str, dtype: DType) -> bool:
    """Whether one instruction applies a function to two items side by side."""
    return function in _PAIRS and dtype.name == "f32"


def pair(b: Builder, function: str, arguments: Sequence[Ref]) -> Ref:
    """A function that `comes_in_pairs` on two items each: VGPR pairs."""
    return b.value(_PAIRS[function], *arguments, size=2)


def fills_pairs(function: str, dtype: DType) -> bool:
    """Whether a function is one instruction, whose results may as well stand side by side."""
    return dtype.name == "f32" and function in _DIRECT["f32"]


def fill_pair(b: Builder, function: str, halves: Sequence[Sequence[Operand]]) -> Ref:
    """A function that `fills_pairs` on the arguments of two items."""
    result = b.register("v", 2)
    for place, arguments in enumerate(halves):
        b.emit(_DIRECT["f32"][function], [result[place]], arguments)
    return result


def combined(b: Builder, function: str, dtype: DType, items: Sequence[Operand]) -> Operand:
    """An associative function of all items."""
    three = _THREE.get((function, dtype.name), "")

    def step(group: list[Operand]) -> Operand:
        return b.value(three, *group) if len(group) == 3 else vector(b, function, dtype, group)

    return tree(items, 3 if three else 2, step)


def tree(items: Sequence[T], width: int, step: Callable[[list[T]], T]) -> T:
    """`step` on groups of up to `width` items until one is left: the chain of dependent instructions is short, and
    about log(n) partial results live beside the items."""
    items = list(items)
    while len(items) > 1:
        groups = [items[i : i + width] for i in range(0, len(items), width)]
        items = [step(group) if len(group) > 1 else group[0] for group in groups]
    return items[0]


def select(b: Builder, mask: Operand, yes: Operand, no: Operand) -> Operand:
    """yes where the mask's bit is set, else no; 32 or 64 bits, or masks."""
    if _size(yes) == 1 and _size(no) == 1:
        return b.value("v_cndmask_b32", no, yes, mask)
    result = b.register("v", 2)
    for i in range(2):
        b.emit("v_cndmask_b32", [result[i]], [half(no, i), half(yes, i), mask])
    return result


def select_mask(b: Builder, mask: Operand, yes: Operand, no: Operand) -> Operand:
    kept = b.value("s_andn2_b64", no, mask, kind="s", size=2)
    return b.value("s_or_b64", b.value("s_and_b64", yes, mask, kind="s", size=2), kept, kind="s", size=2)


def _size(operand: Operand) -> int:
    return 1 if isinstance(operand, Immediate) else operand.size


def half(operand: Operand, index: int) -> Operand:
    if isinstance(operand, Immediate):
        return Immediate(operand.value >> 32 * index & 0xFFFFFFFF)
    return operand[index]


def _mask(b: Builder, function: str, arguments: Sequence[Operand]) -> Operand:
    if function == "not":
        return b.value("s_not_b64", arguments[0], kind="s", size=2)
    if function == "eq":
        return b.value("s_not_b64", b.value("s_xor_b64", *arguments, kind="s", size=2), kind="s", size=2)
    if function in _MASK_LOGIC:
        return b.value(_MASK_LOGIC[function], *arguments, kind="s", size=2)
    raise TilecError(f"{function} of bool is not supported", where=b.where, fix="cast to i32 first")


def _divide_f32(b: Builder, _: DType, x: Operand, y: Operand) -> Operand:
    """The correctly rounded quotient: scale, reciprocal with Newton steps in fma, v_div_fmas and v_div_fixup (manual,
    VOP3)."""
    scaled_y, _unused = _two(b, "v_div_scale_f32", [y, y, x])
    scaled_x = b.register("v")
    b.emit("v_div_scale_f32", [scaled_x, VCC], [x, y, x])
    r = b.value("v_rcp_f32", scaled_y)
    minus = b.value("v_xor_b32", 0x80000000, scaled_y)
    r = b.value("v_fma_f32", b.value("v_fma_f32", minus, r, 0x3F800000), r, r)
    q = b.value("v_mul_f32", scaled_x, r)
    q = b.value("v_fma_f32", b.value("v_fma_f32", minus, q, scaled_x), r, q)
    rest = b.value("v_fma_f32", minus, q, scaled_x)
    return b.value("v_div_fixup_f32", b.value("v_div_fmas_f32", rest, r, q), y, x)


def _divide_f64(b: Builder, _: DType, x: Operand, y: Operand) -> Operand:
    def fma(*a: Operand) -> Ref:
        return b.value("v_fma_f64", *a, size=2)

    scaled_y, _unused = _two(b, "v_div_scale_f64", [y, y, x], size=2)
    scaled_x = b.register("v", 2)
    b.emit("v_div_scale_f64", [scaled_x, VCC], [x, y, x])
    one = b.pair(0, 0x3FF00000)
    minus = _negate_f64(b, None, scaled_y)
    r = b.value("v_rcp_f64", scaled_y, size=2)
    for _step in range(2):
        r = fma(fma(minus, r, one), r, r)
    q = b.value("v_mul_f64", scaled_x, r, size=2)
    rest = fma(minus, q, scaled_x)
    return b.value("v_div_fixup_f64", b.value("v_div_fmas_f64", rest, r, q, size=2), y, x, size=2)


def _two(b: Builder, op: str, sources: list[Operand], size: int = 1) -> tuple[Ref, Ref]:
    first, second = b.register("v", size), b.register("s", 2)
    b.emit(op, [first, second], sources)
    return first, second


def _negate_f64(b: Builder, _: DType | None, x: Operand) -> Ref:
    result = b.register("v", 2)
    b.emit("v_mov_b32", [result[0]], [half(x, 0)])
    b.emit("v_xor_b32", [result[1]], [0x80000000, half(x, 1)])
    return result


def _abs_f64(b: Builder, _: DType, x: Operand) -> Ref:
    result = b.register("v", 2)
    b.emit("v_mov_b32", [result[0]], [half(x, 0)])
    b.emit("v_and_b32", [result[1]], [0x7FFFFFFF, half(x, 1)])
    return result


def _sqrt_f64(b: Builder, _: DType, x: Operand) -> Operand:
    """Goldschmidt steps on v_rsq_f64; zero and infinity are their own roots. Denormal inputs lose bits."""

    def fma(*a: Operand) -> Ref:
        return b.value("v_fma_f64", *a, size=2)

    half = b.pair(0, 0x3FE00000)
    y = b.value("v_rsq_f64", x, size=2)
    root, h = b.value("v_mul_f64", x, y, size=2), b.value("v_mul_f64", y, half, size=2)
    for _step in range(2):
        r = fma(_negate_f64(b, None, h), root, half)
        root, h = fma(root, r, root), fma(h, r, h)
    d = fma(_negate_f64(b, None, root), root, x)
    root = fma(d, h, root)
    # x == 2x
    special = b.value("v_cmp_eq_f64", x, b.value("v_mul_f64", x, b.pair(0, 0x40000000), size=2), kind="s", size=2)
    return select(b, special, x, root)


def _exp_f32(b: Builder, _: DType, x: Operand) -> Operand:
    """2 to the x log2(e), the product formed in two parts so that large x keep their accuracy."""
    high = b.value("v_mul_f32", F32_LOG2E, x)
    low = b.value("v_fma_f32", x, F32_LOG2E, b.value("v_xor_b32", 0x80000000, high))
    low = b.value("v_fma_f32", x, 0x32A57060, low)  # log2(e) - f32(log2(e))
    whole = b.value("v_rndne_f32", high)
    part = b.value("v_add_f32", b.value("v_sub_f32", high, whole), low)
    scaled = b.value("v_ldexp_f32", b.value("v_exp_f32", part), b.value("v_cvt_i32_f32", whole))
    # Beyond the range the parts may be inf - inf; NaN stays NaN (both compares false).
    # x < -105
    scaled = b.value("v_cndmask_b32", scaled, 0, b.value("v_cmp_gt_f32", 0xC2D20000, x, kind="s", size=2))
    # x > 90
    return b.value("v_cndmask_b32", scaled, 0x7F800000, b.value("v_cmp_lt_f32", 0x42B40000, x, kind="s", size=2))


def _log2_f32(b: Builder, _: DType, x: Operand) -> Operand:
    """v_log_f32 takes denormals for zero: scale them up by 2**32 and subtract 32."""
    tiny = b.value("v_cmp_gt_f32", 0x00800000, x, kind="s", size=2)
    scaled = b.value("v_ldexp_f32", x, b.value("v_cndmask_b32", 0, 32, tiny))
    offset = b.value("v_cndmask_b32", 0, 0x42000000, tiny)
    return b.value("v_sub_f32", b.value("v_log_f32", scaled), offset)


def _root(op: str, half_exponent: int) -> Callable[[Builder, DType, Operand], Operand]:
    """A root instruction, which takes denormals for zero: scale them up by 2**32 and the result by half of that."""

    def apply(b: Builder, _: DType, x: Operand) -> Operand:
        tiny = b.value("v_cmp_gt_f32", 0x00800000, x, kind="s", size=2)
        root = b.value(op, b.value("v_ldexp_f32", x, b.value("v_cndmask_b32", 0, 32, tiny)))
        return b.value("v_ldexp_f32", root, b.value("v_cndmask_b32", 0, half_exponent & 0xFFFFFFFF, tiny))

    return apply


def _log_f32(b: Builder, dtype: DType, x: Operand) -> Operand:
    return b.value("v_mul_f32", F32_LN2, _log2_f32(b, dtype, x))


def _turns(op: str) -> Callable[[Builder, DType, Operand], Operand]:
    def apply(b: Builder, _: DType, x: Operand) -> Operand:
        turns = b.value("v_mul_f32", 0x3E22F983, x)  # 1 / (2 pi): sine and cosine take full turns
        return b.value(op, b.value("v_fract_f32", turns))

    return apply


def _narrow_amount(b: Builder, dtype: DType, amount: Operand) -> Operand:
    """A shift amount modulo the type's width; the instructions themselves take it modulo 32 or 64."""
    return b.value("v_and_b32", dtype.bits - 1, amount) if dtype.bits < 32 else amount


def _shift(op: str) -> Callable[[Builder, DType, Operand, Operand], Operand]:
    return lambda b, dtype, x, amount: b.value(op, _narrow_amount(b, dtype, amount), x)


def _shift64(op: str) -> Callable[[Builder, DType, Operand, Operand], Operand]:
    return lambda b, dtype, x, amount: b.value(op, half(amount, 0), x, size=2)


def _pairwise(op: str) -> Callable[[Builder, DType, Operand, Operand], Operand]:
    def apply(b: Builder, _: DType, x: Operand, y: Operand) -> Operand:
        result = b.register("v", 2)
        for i in range(2):
            b.emit(op, [result[i]], [half(x, i), half(y, i)])
        return result

    return apply


def _not64(b: Builder, _: DType, x: Operand) -> Operand:
    result = b.register("v", 2)
    for i in range(2):
        b.emit("v_not_b32", [result[i]], [half(x, i)])
    return result


def _add64(b: Builder, _: DType, x: Operand, y: Operand) -> Operand:
    return b.value("v_lshl_add_u64", x, 0, y, size=2)


def _sub64(b: Builder, _: DType, x: Operand, y: Operand) -> Operand:
    result, borrow, unused = b.register("v", 2), b.register("s", 2), b.register("s", 2)
    b.emit("v_sub_co_u32", [result[0], borrow], [half(x, 0), half(y, 0)])
    b.emit("v_subb_co_u32", [result[1], unused], [b.vector(half(x, 1)), b.vector(half(y, 1)), borrow])
    return result


def _mul64(b: Builder, _: DType, x: Operand, y: Operand) -> Operand:
    low = multiply_wide(b, half(x, 0), half(y, 0))
    cross = b.value(
        "v_add_u32", b.value("v_mul_lo_u32", half(x, 1), half(y, 0)), b.value("v_mul_lo_u32", half(x, 0), half(y, 1))
    )
    result = b.register("v", 2)
    b.emit("v_mov_b32", [result[0]], [low[0]])
    b.emit("v_add_u32", [result[1]], [low[1], cross])
    return result


def multiply_wide(b: Builder, x: Operand, y: Operand, addend: Operand | None = None) -> Ref:
    """Unsigned 32 x 32 product plus a 64-bit addend."""
    result, unused = b.register("v", 2), b.register("s", 2)
    b.emit("v_mad_u64_u32", [result, unused], [x, y, Immediate(0) if addend is None else addend])
    return result


def _pick64(comparison: str) -> Callable[[Builder, DType, Operand, Operand], Operand]:
    return lambda b, dtype, x, y: select(b, vector(b, comparison, dtype, [x, y]), x, y)


def _plain(op: str) -> Callable[[Builder, DType, Operand, Operand], Operand]:
    return lambda b, _, x, y: b.value(op, x, y)


def _negate(b: Builder, dtype: DType, x: Operand) -> Operand:
    return b.value("v_sub_u32", 0, x)


def _negate64(b: Builder, dtype: DType, x: Operand) -> Operand:
    return _sub64(b, dtype, b.pair(0, 0), x)


# -- integer division ------------------------------------------------------------------------------------------------


class _VectorAlu:
    """32-bit integer steps on the VALU, so that one text of the division serves both units."""

    names = {
        "add": "v_add_u32",
        "sub": "v_sub_u32",
        "mul": "v_mul_lo_u32",
        "high": "v_mul_hi_u32",
        "xor": "v_xor_b32",
        "and": "v_and_b32",
    }

    def __init__(self, b: Builder):
        self.b = b

    def __call__(self, function: str, x: Operand | int, y: Operand | int) -> Operand:
        return self.b.value(self.names[function], x, y)

    def sign(self, x: Operand) -> Operand:
        return self.b.value("v_ashrrev_i32", 31, x)

    def choose(
        self, comparison: str, x: Operand | int, y: Operand | int, yes: Operand | int, no: Operand | int
    ) -> Operand:
        mask = self.b.value(f"v_cmp_{comparison}_u32", x, y, kind="s", size=2)
        return self.b.value("v_cndmask_b32", no, yes, mask)

    def reciprocal(self, x: Operand) -> Operand:
        guess = self.b.value("v_rcp_iflag_f32", self.b.value("v_cvt_f32_u32", x))
        return self.b.value("v_cvt_u32_f32", self.b.value("v_mul_f32", 0x4F7FFFFE, guess))  # just below 2**32


class _ScalarAlu(_VectorAlu):
    names = {
        "add": "s_add_i32",
        "sub": "s_sub_i32",
        "mul": "s_mul_i32",
        "high": "s_mul_hi_u32",
        "xor": "s_xor_b32",
        "and": "s_and_b32",
    }

    def __call__(self, function: str, x: Operand | int, y: Operand | int) -> Operand:
        return self.b.pure(self.names[function], x, y, kind="s")

    def sign(self, x: Operand) -> Operand:
        return self.b.pure("s_ashr_i32", x, 31, kind="s")

    def choose(
        self, comparison: str, x: Operand | int, y: Operand | int, yes: Operand | int, no: Operand | int
    ) -> Operand:
        name = {"ne": "lg"}.get(comparison, comparison)
        return self.b.pure_sequence(
            [(f"s_cmp_{name}_u32", (x, y), {"dst": None}), ("s_cselect_b32", (yes, no), {})], kind="s"
        )

    def reciprocal(self, x: Operand) -> Operand:
        guess = self.b.pure("v_rcp_iflag_f32", self.b.pure("v_cvt_f32_u32", x))
        guess = self.b.pure("v_cvt_u32_f32", self.b.pure("v_mul_f32", 0x4F7FFFFE, guess))
        return self.b.pure("v_readfirstlane_b32", guess, kind="s")


def _unsigned_division(alu: _VectorAlu, x: Operand, y: Operand) -> tuple[Operand, Operand]:
    """Quotient and remainder. One Newton step on the scaled reciprocal leaves the quotient at most 2 too small."""
    z = alu.reciprocal(y)
    z = alu("add", z, alu("high", z, alu("mul", alu("sub", Immediate(0), y), z)))
    quotient = alu("high", x, z)
    rest = alu("sub", x, alu("mul", quotient, y))
    for _step in range(2):
        more, less = alu("add", quotient, Immediate(1)), alu("sub", rest, y)
        quotient, rest = alu.choose("ge", rest, y, more, quotient), alu.choose("ge", rest, y, less, rest)
    return quotient, rest


def _floor_division(alu: _VectorAlu, signed: bool, x: Operand, y: Operand, want: str) -> Operand:
    """Python's floor division (`want` = 'floordiv') or remainder ('mod'); 0 for a zero divisor."""
    zero = Immediate(0)
    if isinstance(y, Immediate):
        divisor = y.value if not signed or y.value < 1 << 31 else y.value - (1 << 32)
        if divisor > 0 and divisor & (divisor - 1) == 0:
            if want == "mod":
                return alu("and", x, Immediate(divisor - 1))
            return _shift_right(alu, signed, x, divisor.bit_length() - 1)
    if not signed:
        quotient, rest = _unsigned_division(alu, x, y)
        return alu.choose("eq", y, zero, zero, quotient if want == "floordiv" else rest)
    sign_x, sign_y = alu.sign(x), alu.sign(y)
    size_x, size_y = (alu("sub", alu("xor", v, s), s) for v, s in ((x, sign_x), (y, sign_y)))
    quotient, rest = _unsigned_division(alu, size_x, size_y)
    sign = alu("xor", sign_x, sign_y)
    # Truncated results by sign; where the signs differ and something remains, one step further down.
    step = alu.choose("eq", rest, zero, zero, sign)
    if want == "floordiv":
        result = alu("add", alu("sub", alu("xor", quotient, sign), sign), step)
    else:
        result = alu("add", alu("sub", alu("xor", rest, sign_x), sign_x), alu("and", step, y))
    return alu.choose("eq", y, zero, zero, result)


def _shift_right(alu: _VectorAlu, signed: bool, x: Operand, amount: int) -> Operand:
    if isinstance(alu, _ScalarAlu):
        return alu.b.pure("s_ashr_i32" if signed else "s_lshr_b32", x, amount, kind="s")
    return alu.b.value("v_ashrrev_i32" if signed else "v_lshrrev_b32", amount, x)


def _vector_division(want: str) -> Callable[[Builder, DType, Operand, Operand], Operand]:
    return lambda b, dtype, x, y: _floor_division(_VectorAlu(b), dtype.kind == "int", x, y, want)


def _to_f64(b: Builder, x: Operand) -> Ref:
    """An unsigned 64-bit integer rounded to f64."""
    high = b.value("v_ldexp_f64", b.value("v_cvt_f64_u32", half(x, 1), size=2), 32, size=2)
    return b.value("v_add_f64", high, b.value("v_cvt_f64_u32", half(x, 0), size=2), size=2)


def _from_f64(b: Builder, x: Ref) -> Ref:
    """A non-negative f64 below 2**64 cut to an unsigned integer."""
    whole = b.value("v_trunc_f64", x, size=2)
    high = b.value("v_floor_f64", b.value("v_ldexp_f64", whole, 0xFFFFFFE0, size=2), size=2)
    low = b.value("v_fma_f64", high, b.pair(0, 0xC1F00000), whole, size=2)  # - 2**32
    result = b.register("v", 2)
    b.emit("v_cvt_u32_f64", [result[0]], [low])
    b.emit("v_cvt_u32_f64", [result[1]], [high])
    return result


def _unsigned_division64(b: Builder, dtype: DType, x: Operand, y: Operand) -> tuple[Operand, Operand]:
    """Quotient and remainder. A quotient estimated a little too small in f64 leaves a remainder of at most about 2**15
    divisors; a second estimate of that leaves less than three, which are taken off one by one."""
    divisor = _to_f64(b, y)
    r = b.value("v_rcp_f64", divisor, size=2)
    one, below = b.pair(0, 0x3FF00000), b.pair(0xFFFFFFF0, 0x3FEFFFFF)  # 1 - 2**-49
    for _step in range(2):
        r = b.value("v_fma_f64", b.value("v_fma_f64", _negate_f64(b, None, divisor), r, one, size=2), r, r, size=2)
    r = b.value("v_mul_f64", r, below, size=2)
    quotient, rest = None, x
    for _step in range(2):
        part = _from_f64(b, b.value("v_mul_f64", _to_f64(b, rest), r, size=2))
        rest = _sub64(b, dtype, rest, _mul64(b, dtype, part, y))
        quotient = part if quotient is None else _add64(b, dtype, quotient, part)
    for _step in range(2):
        more = b.value("v_cmp_ge_u64", rest, y, kind="s", size=2)
        quotient = select(b, more, _add64(b, dtype, quotient, b.pair(1, 0)), quotient)
        rest = select(b, more, _sub64(b, dtype, rest, y), rest)
    return quotient, rest


def integer_to_f64(b: Builder, dtype: DType, x: Operand) -> Ref:
    """A 64-bit integer rounded to f64 (the high part is exact, so there is one rounding)."""
    if dtype.kind == "uint":
        return _to_f64(b, x)
    high = b.value("v_ldexp_f64", b.value("v_cvt_f64_i32", half(x, 1), size=2), 32, size=2)
    return b.value("v_add_f64", high, b.value("v_cvt_f64_u32", half(x, 0), size=2), size=2)


def integer_to_f32(b: Builder, dtype: DType, x: Operand) -> Ref:
    """A 64-bit integer rounded to f32, once: what f64 could not hold is first folded into one sticky bit far below
    f32's last."""
    top = b.value("v_ashrrev_i32", 21, half(x, 1)) if dtype.kind == "int" else b.value("v_lshrrev_b32", 21, half(x, 1))
    small = b.value("v_cmp_gt_u32", 2, b.value("v_add_u32", 1, top), kind="s", size=2)  # -2**53 <= x < 2**53
    rest = b.value("v_cmp_ne_u32", 0, b.value("v_and_b32", 0xFFF, half(x, 0)), kind="s", size=2)
    sticky = b.value("v_cndmask_b32", 0, 0x1000, rest)
    folded = b.value("v_and_or_b32", half(x, 0), b.vector(Immediate(0xFFFFF000)), sticky)
    low = b.value("v_cndmask_b32", folded, half(x, 0), small)
    exact = b.register("v", 2)
    b.emit("v_mov_b32", [exact[0]], [low])
    b.emit("v_mov_b32", [exact[1]], [half(x, 1)])
    return b.value("v_cvt_f32_f64", integer_to_f64(b, dtype, exact))


def f64_to_integer(b: Builder, dtype: DType, x: Operand) -> Operand:
    """An f64 cut to a 64-bit integer, clamped to its range; NaN is 0."""
    limit = b.pair(0, 0x43E00000 if dtype.kind == "int" else 0x43F00000)  # 2**63, 2**64
    size = _abs_f64(b, None, x) if dtype.kind == "int" else b.value("v_max_f64", x, b.pair(0, 0), size=2)
    beyond = b.value("v_cmp_ge_f64", size, limit, kind="s", size=2)
    known = b.value("v_cmp_o_f64", x, x, kind="s", size=2)
    result = select(b, known, _from_f64(b, size), b.pair(0, 0))
    if dtype.kind == "uint":
        return select(b, beyond, b.pair(0xFFFFFFFF, 0xFFFFFFFF), result)
    negative = b.value("v_cmp_lt_f64", x, b.pair(0, 0), kind="s", size=2)
    result = select(b, negative, _negate64(b, dtype, result), result)
    bound = select(b, negative, b.pair(0, 0x80000000), b.pair(0xFFFFFFFF, 0x7FFFFFFF))
    return select(b, beyond, bound, result)


def _floor_division64(want: str) -> Callable[[Builder, DType, Operand, Operand], Operand]:
    def apply(b: Builder, dtype: DType, x: Operand, y: Operand) -> Operand:
        zero = b.pair(0, 0)
        by_zero = b.value("v_cmp_eq_u64", y, zero, kind="s", size=2)
        if dtype.kind == "uint":
            return select(b, by_zero, zero, _unsigned_division64(b, dtype, x, y)[want == "mod"])
        minus_x, minus_y = (b.value("v_cmp_lt_i64", v, zero, kind="s", size=2) for v in (x, y))
        size_x, size_y = select(b, minus_x, _negate64(b, dtype, x), x), select(b, minus_y, _negate64(b, dtype, y), y)
        quotient, rest = _unsigned_division64(b, dtype, size_x, size_y)
        opposite = b.value("s_xor_b64", minus_x, minus_y, kind="s", size=2)
        uneven = b.value("s_and_b64", opposite, b.value("v_cmp_ne_u64", rest, zero, kind="s", size=2), kind="s", size=2)
        if want == "floordiv":  # -(q + 1) where the signs differ and something remains
            larger = select(b, uneven, _add64(b, dtype, quotient, b.pair(1, 0)), quotient)
            result = select(b, opposite, _negate64(b, dtype, larger), larger)
        else:
            result = select(b, minus_x, _negate64(b, dtype, rest), rest)
            result = select(b, uneven, _add64(b, dtype, result, y), result)
        return select(b, by_zero, zero, result)

    return apply


# (class, width or kind of class, function) -> rule; looked up by class first, then by width ('32', '64'), then by
# letter.
_RULES: dict[tuple[str, str], Callable[..., Operand]] = {
    ("f32", "div"): _divide_f32,
    ("f64", "div"): _divide_f64,
    ("f32", "reciprocal"): lambda b, dtype, x: _divide_f32(b, dtype, Immediate(0x3F800000), x),
    ("f64", "reciprocal"): lambda b, dtype, x: _divide_f64(b, dtype, b.pair(0, 0x3FF00000), x),
    ("f32", "neg"): lambda b, _, x: b.value("v_xor_b32", 0x80000000, x),
    ("f64", "neg"): _negate_f64,
    ("f32", "abs"): lambda b, _, x: b.value("v_and_b32", 0x7FFFFFFF, x),
    ("f64", "abs"): _abs_f64,
    ("f64", "sub"): lambda b, _, x, y: b.value("v_add_f64", x, _negate_f64(b, None, y), size=2),
    ("f64", "sqrt"): _sqrt_f64,
    ("f32", "sqrt"): _root("v_sqrt_f32", -16),
    ("f32", "rsqrt"): _root("v_rsq_f32", 16),
    ("f32", "exp"): _exp_f32,
    ("f32", "log2"): _log2_f32,
    ("f32", "log"): _log_f32,
    ("f32", "sin"): _turns("v_sin_f32"),
    ("f32", "cos"): _turns("v_cos_f32"),
    **{("32", name): _plain(op) for name, op in _LOGIC.items()},
    **{("64", name): _pairwise(op) for name, op in _LOGIC.items()},
    ("32", "not"): lambda b, _, x: b.value("v_not_b32", x),
    ("64", "not"): _not64,
    ("32", "shl"): _shift("v_lshlrev_b32"),
    ("64", "shl"): _shift64("v_lshlrev_b64"),
    ("i32", "shr"): _shift("v_ashrrev_i32"),
    ("u32", "shr"): _shift("v_lshrrev_b32"),
    ("i64", "shr"): _shift64("v_ashrrev_i64"),
    ("u64", "shr"): _shift64("v_lshrrev_b64"),
    ("32", "neg"): _negate,
    ("64", "neg"): _negate64,
    ("i32", "abs"): lambda b, dtype, x: b.value("v_max_i32", x, _negate(b, dtype, x)),
    ("u", "abs"): lambda b, _, x: x,
    ("i64", "abs"): lambda b, dtype, x: select(b, vector(b, "lt", dtype, [x, b.pair(0, 0)]), _negate64(b, dtype, x), x),
    ("64", "add"): _add64,
    ("64", "sub"): _sub64,
    ("64", "mul"): _mul64,
    ("64", "minimum"): _pick64("lt"),
    ("64", "maximum"): _pick64("gt"),
    ("64", "floordiv"): _floor_division64("floordiv"),
    ("64", "mod"): _floor_division64("mod"),
    ("32", "floordiv"): _vector_division("floordiv"),
    ("32", "mod"): _vector_division("mod"),
    ("32", "fma"): lambda b, _, x, y, z: b.value("v_add_u32", b.value("v_mul_lo_u32", x, y), z),
    ("64", "fma"): lambda b, dtype, x, y, z: _add64(b, dtype, _mul64(b, dtype, x, y), z),
    **{(kind, name): (lambda b, _, x: x) for kind in ("i", "u") for name in ("floor", "ceil")},
}


# -- scalars ---------------------------------------------------------------------------------------------------------


def scalar(b: Builder, function: str, dtype: DType, arguments: Sequence[Operand]) -> Operand:
    """One elementwise function on uniform values: on the SALU where it has the instructions, else on the VALU and read
    back. A scalar bool is 0 or 1 in one SGPR."""
    kind = element_class(dtype)
    wrapped = dtype.bits < 32 and dtype.kind != "bool"
    if function == "where":
        condition, yes, no = arguments
        return b.pure_sequence(
            [
                ("s_cmp_lg_u32", (condition, Immediate(0)), {"dst": None}),
                (f"s_cselect_b{32 * _size(yes)}", (yes, no), {}),
            ],
            kind="s",
            size=_size(yes),
        )
    if kind == "bool":
        if function == "not":
            return b.pure("s_xor_b32", arguments[0], 1, kind="s")
        if function in ("and", "or", "xor"):
            return b.pure(_SCALAR[function], *arguments, kind="s")
        if function in ("eq", "ne"):
            return _scalar_compare(b, "u32", function, arguments)
    if kind in ("i32", "u32") and not (wrapped and function not in _COMPARE):
        if function in _COMPARE:
            return _scalar_compare(b, kind, function, arguments)
        if function in _SCALAR:
            return b.pure(_SCALAR[function], *arguments, kind="s")
        if function in ("minimum", "maximum"):
            return b.pure(f"s_{function[:3]}_{kind}", *arguments, kind="s")
        if function in ("floordiv", "mod"):
            return _floor_division(_ScalarAlu(b), kind == "i32", arguments[0], arguments[1], function)
        if function == "neg":
            return b.pure("s_sub_i32", 0, arguments[0], kind="s")
        if function in ("shl", "shr"):
            return b.pure(
                "s_lshl_b32" if function == "shl" else "s_ashr_i32" if kind == "i32" else "s_lshr_b32",
                *arguments,
                kind="s",
            )
    if kind in ("i64", "u64") and function in ("add", "sub"):
        return add64(b, arguments[0], arguments[1], subtract=function == "sub")
    if kind in ("i64", "u64") and function == "mul":
        return multiply64(b, arguments[0], arguments[1])
    result = vector(b, function, dtype, arguments)
    if function in _COMPARE or kind == "bool":
        return b.pure_sequence(
            [("s_cmp_lg_u64", (result, Immediate(0)), {"dst": None}), ("s_cselect_b32", (1, 0), {})], kind="s"
        )
    return uniform(b, result, dtype if wrapped and dtype.is_integer else None)


def uniform(b: Builder, value: Operand, narrow: DType | None = None) -> Operand:
    """A uniform VGPR value in SGPRs; `narrow` wraps it to a small integer type first."""
    if isinstance(value, Immediate) or value.kind == "s":
        return value
    if narrow is not None:
        value = b.value("v_bfe_i32" if narrow.kind == "int" else "v_bfe_u32", value, 0, narrow.bits)
    result = b.register("s", value.size)
    for i in range(value.size):
        b.emit("v_readfirstlane_b32", [result[i]], [value[i]])
    return result


def _scalar_compare(b: Builder, kind: str, function: str, arguments: Sequence[Operand]) -> Operand:
    name = "lg" if function == "ne" else function
    return b.pure_sequence(
        [(f"s_cmp_{name}_{kind}", tuple(arguments), {"dst": None}), ("s_cselect_b32", (1, 0), {})], kind="s"
    )


def add64(b: Builder, x: Operand, y: Operand, subtract: bool = False) -> Ref:
    """64-bit scalar sum or difference."""
    low, high = ("s_sub_u32", "s_subb_u32") if subtract else ("s_add_u32", "s_addc_u32")
    return b.pure_sequence(
        [(low, (half(x, 0), half(y, 0)), {"dst": 0}), (high, (half(x, 1), half(y, 1)), {"dst": 1})], kind="s", size=2
    )


def multiply64(b: Builder, x: Operand, y: Operand) -> Ref:
    """The low 64 bits of a product of 64-bit scalars."""
    high = b.pure("s_mul_hi_u32", half(x, 0), half(y, 0), kind="s")
    for i in (0, 1):
        high = b.pure("s_add_i32", high, b.pure("s_mul_i32", half(x, i), half(y, 1 - i), kind="s"), kind="s")
    return b.pair(b.pure("s_mul_i32", half(x, 0), half(y, 0), kind="s"), high)


def widen(b: Builder, x: Operand, signed: bool = True) -> Operand:
    """A 32-bit scalar extended to 64 bits."""
    if isinstance(x, Immediate):
        return b.pair(x.value & 0xFFFFFFFF, 0xFFFFFFFF if signed and x.value & 0x80000000 else 0)
    return b.pair(x, b.pure("s_ashr_i32", x, 31, kind="s") if signed else 0)
