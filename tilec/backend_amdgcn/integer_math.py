"""Integer arithmetic that takes more than one instruction: 64-bit operations, division with Python's floor semantics,
conversions.

32-bit division follows the float reciprocal with two corrections, written once for the VALU and the SALU; 64-bit
division estimates in f64. Floor semantics come from the signs and the remainder; a zero divisor gives 0.
"""

from __future__ import annotations

from collections.abc import Callable

from tilec.backend_amdgcn.builder import Builder
from tilec.backend_amdgcn.float_math import abs_f64, negate_f64
from tilec.backend_amdgcn.operands import half, select
from tilec.dtypes import DType
from tilec.ir.machine import Immediate, Operand, Ref


def narrow_amount(b: Builder, dtype: DType, amount: Operand) -> Operand:
    """A shift amount modulo the type's width; the instructions themselves take it modulo 32 or 64."""
    return b.value("v_and_b32", dtype.bits - 1, amount) if dtype.bits < 32 else amount


def shift(op: str) -> Callable[[Builder, DType, Operand, Operand], Operand]:
    return lambda b, dtype, x, amount: b.value(op, narrow_amount(b, dtype, amount), x)


def shift64(op: str) -> Callable[[Builder, DType, Operand, Operand], Operand]:
    return lambda b, dtype, x, amount: b.value(op, half(amount, 0), x, size=2)


def pairwise(op: str) -> Callable[[Builder, DType, Operand, Operand], Operand]:
    def apply(b: Builder, _: DType, x: Operand, y: Operand) -> Operand:
        result = b.register("v", 2)
        for i in range(2):
            b.emit(op, [result[i]], [half(x, i), half(y, i)])
        return result

    return apply


def not64(b: Builder, _: DType, x: Operand) -> Operand:
    result = b.register("v", 2)
    for i in range(2):
        b.emit("v_not_b32", [result[i]], [half(x, i)])
    return result


def vector_add64(b: Builder, _: DType, x: Operand, y: Operand) -> Operand:
    return b.value("v_lshl_add_u64", x, 0, y, size=2)


def vector_sub64(b: Builder, _: DType, x: Operand, y: Operand) -> Operand:
    result, borrow, unused = b.register("v", 2), b.register("s", 2), b.register("s", 2)
    b.emit("v_sub_co_u32", [result[0], borrow], [half(x, 0), half(y, 0)])
    b.emit("v_subb_co_u32", [result[1], unused], [b.vector(half(x, 1)), b.vector(half(y, 1)), borrow])
    return result


def vector_mul64(b: Builder, _: DType, x: Operand, y: Operand) -> Operand:
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


def plain(op: str) -> Callable[[Builder, DType, Operand, Operand], Operand]:
    return lambda b, _, x, y: b.value(op, x, y)


def negate(b: Builder, dtype: DType, x: Operand) -> Operand:
    return b.value("v_sub_u32", 0, x)


def vector_negate64(b: Builder, dtype: DType, x: Operand) -> Operand:
    return vector_sub64(b, dtype, b.pair(0, 0), x)


class VectorAlu:
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


class ScalarAlu(VectorAlu):
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


def _unsigned_division(alu: VectorAlu, x: Operand, y: Operand) -> tuple[Operand, Operand]:
    """Quotient and remainder. One Newton step on the scaled reciprocal leaves the quotient at most 2 too small."""
    z = alu.reciprocal(y)
    z = alu("add", z, alu("high", z, alu("mul", alu("sub", Immediate(0), y), z)))
    quotient = alu("high", x, z)
    rest = alu("sub", x, alu("mul", quotient, y))
    for _step in range(2):
        more, less = alu("add", quotient, Immediate(1)), alu("sub", rest, y)
        quotient, rest = alu.choose("ge", rest, y, more, quotient), alu.choose("ge", rest, y, less, rest)
    return quotient, rest


def floor_division(alu: VectorAlu, signed: bool, x: Operand, y: Operand, want: str) -> Operand:
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


def _shift_right(alu: VectorAlu, signed: bool, x: Operand, amount: int) -> Operand:
    if isinstance(alu, ScalarAlu):
        return alu.b.pure("s_ashr_i32" if signed else "s_lshr_b32", x, amount, kind="s")
    return alu.b.value("v_ashrrev_i32" if signed else "v_lshrrev_b32", amount, x)


def vector_division(want: str) -> Callable[[Builder, DType, Operand, Operand], Operand]:
    return lambda b, dtype, x, y: floor_division(VectorAlu(b), dtype.kind == "int", x, y, want)


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
        r = b.value("v_fma_f64", b.value("v_fma_f64", negate_f64(b, None, divisor), r, one, size=2), r, r, size=2)
    r = b.value("v_mul_f64", r, below, size=2)

    def divided(x: Operand) -> tuple[Operand, Operand]:
        part = _from_f64(b, b.value("v_mul_f64", _to_f64(b, x), r, size=2))
        return part, vector_sub64(b, dtype, x, vector_mul64(b, dtype, part, y))

    first, rest = divided(x)
    second, rest = divided(rest)
    quotient = vector_add64(b, dtype, first, second)
    for _step in range(2):
        more = b.value("v_cmp_ge_u64", rest, y, kind="s", size=2)
        quotient = select(b, more, vector_add64(b, dtype, quotient, b.pair(1, 0)), quotient)
        rest = select(b, more, vector_sub64(b, dtype, rest, y), rest)
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
    size = abs_f64(b, None, x) if dtype.kind == "int" else b.value("v_max_f64", x, b.pair(0, 0), size=2)
    beyond = b.value("v_cmp_ge_f64", size, limit, kind="s", size=2)
    known = b.value("v_cmp_o_f64", x, x, kind="s", size=2)
    result = select(b, known, _from_f64(b, size), b.pair(0, 0))
    if dtype.kind == "uint":
        return select(b, beyond, b.pair(0xFFFFFFFF, 0xFFFFFFFF), result)
    negative = b.value("v_cmp_lt_f64", x, b.pair(0, 0), kind="s", size=2)
    result = select(b, negative, vector_negate64(b, dtype, result), result)
    bound = select(b, negative, b.pair(0, 0x80000000), b.pair(0xFFFFFFFF, 0x7FFFFFFF))
    return select(b, beyond, bound, result)


def floor_division64(want: str) -> Callable[[Builder, DType, Operand, Operand], Operand]:
    def apply(b: Builder, dtype: DType, x: Operand, y: Operand) -> Operand:
        zero = b.pair(0, 0)
        by_zero = b.value("v_cmp_eq_u64", y, zero, kind="s", size=2)
        if dtype.kind == "uint":
            return select(b, by_zero, zero, _unsigned_division64(b, dtype, x, y)[want == "mod"])
        minus_x, minus_y = (b.value("v_cmp_lt_i64", v, zero, kind="s", size=2) for v in (x, y))
        size_x, size_y = (
            select(b, minus_x, vector_negate64(b, dtype, x), x),
            select(b, minus_y, vector_negate64(b, dtype, y), y),
        )
        quotient, rest = _unsigned_division64(b, dtype, size_x, size_y)
        opposite = b.value("s_xor_b64", minus_x, minus_y, kind="s", size=2)
        uneven = b.value("s_and_b64", opposite, b.value("v_cmp_ne_u64", rest, zero, kind="s", size=2), kind="s", size=2)
        if want == "floordiv":  # -(q + 1) where the signs differ and something remains
            larger = select(b, uneven, vector_add64(b, dtype, quotient, b.pair(1, 0)), quotient)
            result = select(b, opposite, vector_negate64(b, dtype, larger), larger)
        else:
            result = select(b, minus_x, vector_negate64(b, dtype, rest), rest)
            result = select(b, uneven, vector_add64(b, dtype, result, y), result)
        return select(b, by_zero, zero, result)

    return apply


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
