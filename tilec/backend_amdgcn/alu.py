"""Arithmetic as instruction sequences: one function per element class, on operands in compute form.

`vector(b, function, dtype, arguments)` gives a VGPR (pair), or a lane mask for comparisons; `scalar` the same in SGPRs.
f32 covers f16 and bf16 (fragment.py rounds afterwards); integers below 32 bits work in 32. Results equal ir/numerics.py
bit for bit, except for exp2, exp, log2, log, rsqrt, sqrt, sin, cos (within a few units in the last place; denormal
results of exp2 may be 0). What takes more than one instruction is in float_math.py and integer_math.py.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import TypeVar

from tilec.backend_amdgcn.builder import Builder
from tilec.backend_amdgcn.float_math import (
    abs_f64,
    divide_f32,
    divide_f64,
    exp_f32,
    log2_f32,
    log_f32,
    negate_f64,
    root,
    sqrt_f64,
    turns,
)
from tilec.backend_amdgcn.integer_math import (
    ScalarAlu,
    add64,
    floor_division,
    floor_division64,
    multiply64,
    negate,
    not64,
    pairwise,
    plain,
    shift,
    shift64,
    vector_add64,
    vector_division,
    vector_mul64,
    vector_negate64,
    vector_sub64,
)
from tilec.backend_amdgcn.operands import select, size_of
from tilec.dtypes import DType
from tilec.errors import TilecError
from tilec.ir.machine import Immediate, Operand, Ref, registers
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


def _mask(b: Builder, function: str, arguments: Sequence[Operand]) -> Operand:
    if function == "not":
        return b.value("s_not_b64", arguments[0], kind="s", size=2)
    if function == "eq":
        return b.value("s_not_b64", b.value("s_xor_b64", *arguments, kind="s", size=2), kind="s", size=2)
    if function in _MASK_LOGIC:
        return b.value(_MASK_LOGIC[function], *arguments, kind="s", size=2)
    raise TilecError(f"{function} of bool is not supported", where=b.where, fix="cast to i32 first")


def _pick64(comparison: str) -> Callable[[Builder, DType, Operand, Operand], Operand]:
    return lambda b, dtype, x, y: select(b, vector(b, comparison, dtype, [x, y]), x, y)


# (class, width or kind of class, function) -> rule; looked up by class first, then by width ('32', '64'), then by
# letter.
_RULES: dict[tuple[str, str], Callable[..., Operand]] = {
    ("f32", "div"): divide_f32,
    ("f64", "div"): divide_f64,
    ("f32", "reciprocal"): lambda b, dtype, x: divide_f32(b, dtype, Immediate(0x3F800000), x),
    ("f64", "reciprocal"): lambda b, dtype, x: divide_f64(b, dtype, b.pair(0, 0x3FF00000), x),
    ("f32", "neg"): lambda b, _, x: b.value("v_xor_b32", 0x80000000, x),
    ("f64", "neg"): negate_f64,
    ("f32", "abs"): lambda b, _, x: b.value("v_and_b32", 0x7FFFFFFF, x),
    ("f64", "abs"): abs_f64,
    ("f64", "sub"): lambda b, _, x, y: b.value("v_add_f64", x, negate_f64(b, None, y), size=2),
    ("f64", "sqrt"): sqrt_f64,
    ("f32", "sqrt"): root("v_sqrt_f32", -16),
    ("f32", "rsqrt"): root("v_rsq_f32", 16),
    ("f32", "exp"): exp_f32,
    ("f32", "log2"): log2_f32,
    ("f32", "log"): log_f32,
    ("f32", "sin"): turns("v_sin_f32"),
    ("f32", "cos"): turns("v_cos_f32"),
    **{("32", name): plain(op) for name, op in _LOGIC.items()},
    **{("64", name): pairwise(op) for name, op in _LOGIC.items()},
    ("32", "not"): lambda b, _, x: b.value("v_not_b32", x),
    ("64", "not"): not64,
    ("32", "shl"): shift("v_lshlrev_b32"),
    ("64", "shl"): shift64("v_lshlrev_b64"),
    ("i32", "shr"): shift("v_ashrrev_i32"),
    ("u32", "shr"): shift("v_lshrrev_b32"),
    ("i64", "shr"): shift64("v_ashrrev_i64"),
    ("u64", "shr"): shift64("v_lshrrev_b64"),
    ("32", "neg"): negate,
    ("64", "neg"): vector_negate64,
    ("i32", "abs"): lambda b, dtype, x: b.value("v_max_i32", x, negate(b, dtype, x)),
    ("u", "abs"): lambda b, _, x: x,
    ("i64", "abs"): lambda b, dtype, x: select(
        b, vector(b, "lt", dtype, [x, b.pair(0, 0)]), vector_negate64(b, dtype, x), x
    ),
    ("64", "add"): vector_add64,
    ("64", "sub"): vector_sub64,
    ("64", "mul"): vector_mul64,
    ("64", "minimum"): _pick64("lt"),
    ("64", "maximum"): _pick64("gt"),
    ("64", "floordiv"): floor_division64("floordiv"),
    ("64", "mod"): floor_division64("mod"),
    ("32", "floordiv"): vector_division("floordiv"),
    ("32", "mod"): vector_division("mod"),
    ("32", "fma"): lambda b, _, x, y, z: b.value("v_add_u32", b.value("v_mul_lo_u32", x, y), z),
    ("64", "fma"): lambda b, dtype, x, y, z: vector_add64(b, dtype, vector_mul64(b, dtype, x, y), z),
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
                (f"s_cselect_b{32 * size_of(yes)}", (yes, no), {}),
            ],
            kind="s",
            size=size_of(yes),
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
            return floor_division(ScalarAlu(b), kind == "i32", arguments[0], arguments[1], function)
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
    if isinstance(value, Immediate) or registers(value).kind == "s":
        return value
    if narrow is not None:
        value = b.value("v_bfe_i32" if narrow.kind == "int" else "v_bfe_u32", value, 0, narrow.bits)
    held = registers(value)
    result = b.register("s", held.size)
    for i in range(held.size):
        b.emit("v_readfirstlane_b32", [result[i]], [held[i]])
    return result


def _scalar_compare(b: Builder, kind: str, function: str, arguments: Sequence[Operand]) -> Operand:
    name = "lg" if function == "ne" else function
    return b.pure_sequence(
        [(f"s_cmp_{name}_{kind}", tuple(arguments), {"dst": None}), ("s_cselect_b32", (1, 0), {})], kind="s"
    )
