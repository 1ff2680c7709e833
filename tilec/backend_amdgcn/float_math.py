"""Float arithmetic that takes more than one instruction: division, roots, exponentials, logarithms, sine and cosine.

Division is correctly rounded; the others are within a few units in the last place of their instruction. v_exp, v_log
and the roots take denormals for zero (AMD's ISA manuals, VOP1): arguments are scaled where that matters.
"""

from __future__ import annotations

from collections.abc import Callable

from tilec.backend_amdgcn.builder import Builder
from tilec.backend_amdgcn.operands import half, select, with_mask
from tilec.dtypes import DType
from tilec.ir.machine import VCC, Operand, Ref

LOG2E, LN2 = 0x3FB8AA3B, 0x3F317218


def divide_f32(b: Builder, _: DType, x: Operand, y: Operand) -> Operand:
    """The correctly rounded quotient: scale, reciprocal with Newton steps in fma, v_div_fmas and v_div_fixup (manual,
    VOP3)."""
    scaled_y, _unused = with_mask(b, "v_div_scale_f32", [y, y, x])
    scaled_x = b.register("v")
    b.emit("v_div_scale_f32", [scaled_x, VCC], [x, y, x])
    r = b.value("v_rcp_f32", scaled_y)
    minus = b.value("v_xor_b32", 0x80000000, scaled_y)
    r = b.value("v_fma_f32", b.value("v_fma_f32", minus, r, 0x3F800000), r, r)
    q = b.value("v_mul_f32", scaled_x, r)
    q = b.value("v_fma_f32", b.value("v_fma_f32", minus, q, scaled_x), r, q)
    rest = b.value("v_fma_f32", minus, q, scaled_x)
    return b.value("v_div_fixup_f32", b.value("v_div_fmas_f32", rest, r, q), y, x)


def divide_f64(b: Builder, _: DType, x: Operand, y: Operand) -> Operand:
    def fma(*a: Operand) -> Ref:
        return b.value("v_fma_f64", *a, size=2)

    scaled_y, _unused = with_mask(b, "v_div_scale_f64", [y, y, x], size=2)
    scaled_x = b.register("v", 2)
    b.emit("v_div_scale_f64", [scaled_x, VCC], [x, y, x])
    one = b.pair(0, 0x3FF00000)
    minus = negate_f64(b, None, scaled_y)
    r = b.value("v_rcp_f64", scaled_y, size=2)
    for _step in range(2):
        r = fma(fma(minus, r, one), r, r)
    q = b.value("v_mul_f64", scaled_x, r, size=2)
    rest = fma(minus, q, scaled_x)
    return b.value("v_div_fixup_f64", b.value("v_div_fmas_f64", rest, r, q, size=2), y, x, size=2)


def negate_f64(b: Builder, _: DType | None, x: Operand) -> Ref:
    result = b.register("v", 2)
    b.emit("v_mov_b32", [result[0]], [half(x, 0)])
    b.emit("v_xor_b32", [result[1]], [0x80000000, half(x, 1)])
    return result


def abs_f64(b: Builder, _: DType | None, x: Operand) -> Ref:
    result = b.register("v", 2)
    b.emit("v_mov_b32", [result[0]], [half(x, 0)])
    b.emit("v_and_b32", [result[1]], [0x7FFFFFFF, half(x, 1)])
    return result


def sqrt_f64(b: Builder, _: DType, x: Operand) -> Operand:
    """Goldschmidt steps on v_rsq_f64; zero and infinity are their own roots. Denormal inputs lose bits."""

    def fma(*a: Operand) -> Ref:
        return b.value("v_fma_f64", *a, size=2)

    half = b.pair(0, 0x3FE00000)
    y = b.value("v_rsq_f64", x, size=2)
    root, h = b.value("v_mul_f64", x, y, size=2), b.value("v_mul_f64", y, half, size=2)
    for _step in range(2):
        r = fma(negate_f64(b, None, h), root, half)
        root, h = fma(root, r, root), fma(h, r, h)
    d = fma(negate_f64(b, None, root), root, x)
    root = fma(d, h, root)
    # x == 2x
    special = b.value("v_cmp_eq_f64", x, b.value("v_mul_f64", x, b.pair(0, 0x40000000), size=2), kind="s", size=2)
    return select(b, special, x, root)


def exp_f32(b: Builder, _: DType, x: Operand) -> Operand:
    """2 to the x log2(e), the product formed in two parts so that large x keep their accuracy."""
    high = b.value("v_mul_f32", LOG2E, x)
    low = b.value("v_fma_f32", x, LOG2E, b.value("v_xor_b32", 0x80000000, high))
    low = b.value("v_fma_f32", x, 0x32A57060, low)  # log2(e) - f32(log2(e))
    whole = b.value("v_rndne_f32", high)
    part = b.value("v_add_f32", b.value("v_sub_f32", high, whole), low)
    scaled = b.value("v_ldexp_f32", b.value("v_exp_f32", part), b.value("v_cvt_i32_f32", whole))
    # Beyond the range the parts may be inf - inf; NaN stays NaN (both compares false).
    # x < -105
    scaled = b.value("v_cndmask_b32", scaled, 0, b.value("v_cmp_gt_f32", 0xC2D20000, x, kind="s", size=2))
    # x > 90
    return b.value("v_cndmask_b32", scaled, 0x7F800000, b.value("v_cmp_lt_f32", 0x42B40000, x, kind="s", size=2))


def log2_f32(b: Builder, _: DType, x: Operand) -> Operand:
    """v_log_f32 takes denormals for zero: scale them up by 2**32 and subtract 32."""
    tiny = b.value("v_cmp_gt_f32", 0x00800000, x, kind="s", size=2)
    scaled = b.value("v_ldexp_f32", x, b.value("v_cndmask_b32", 0, 32, tiny))
    offset = b.value("v_cndmask_b32", 0, 0x42000000, tiny)
    return b.value("v_sub_f32", b.value("v_log_f32", scaled), offset)


def root(op: str, half_exponent: int) -> Callable[[Builder, DType, Operand], Operand]:
    """A root instruction, which takes denormals for zero: scale them up by 2**32 and the result by half of that."""

    def apply(b: Builder, _: DType, x: Operand) -> Operand:
        tiny = b.value("v_cmp_gt_f32", 0x00800000, x, kind="s", size=2)
        root = b.value(op, b.value("v_ldexp_f32", x, b.value("v_cndmask_b32", 0, 32, tiny)))
        return b.value("v_ldexp_f32", root, b.value("v_cndmask_b32", 0, half_exponent & 0xFFFFFFFF, tiny))

    return apply


def log_f32(b: Builder, dtype: DType, x: Operand) -> Operand:
    return b.value("v_mul_f32", LN2, log2_f32(b, dtype, x))


def turns(op: str) -> Callable[[Builder, DType, Operand], Operand]:
    def apply(b: Builder, _: DType, x: Operand) -> Operand:
        turns = b.value("v_mul_f32", 0x3E22F983, x)  # 1 / (2 pi): sine and cosine take full turns
        return b.value(op, b.value("v_fract_f32", turns))

    return apply
