"""What arithmetic means, in numpy: the one definition that the interpreter, constant folding and the tests share.

Floats of 16 bits and fewer are computed in f32 and rounded once to their type, nearest even; f32 and f64 in their own
precision, fma with one rounding. exp2, log, sin, ... are computed in f64 and rounded. Integers wrap. A floor division
or remainder by zero is 0; a shift takes its amount modulo the width. minimum and maximum ignore NaN, and -0 is below
+0. Types that numpy lacks are held as f32 values that the type can represent; `decode` and `encode` translate memory.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache, wraps
from typing import Any

import numpy as np

from tilec.dtypes import DType

Array = Any  # a numpy array, or a numpy scalar where a scalar is meant

_WORDS = {8: np.dtype(np.uint8), 16: np.dtype(np.uint16)}


def _quiet(function: Callable[..., Any]) -> Callable[..., Any]:
    """Overflow, NaN and division by zero are results here, not warnings."""
    @wraps(function)
    def run(*arguments: Any, **options: Any) -> Any:
        with np.errstate(all="ignore"):
            return function(*arguments, **options)
    return run


# -- representation --------------------------------------------------------------------------------------------------

@cache
def held_as(element: DType) -> np.dtype:
    """The numpy type that holds values of `element` between ops."""
    if element.is_float and element.name not in ("f64", "f32", "f16"):
        return np.dtype(np.float32)
    return element.numpy()


def storage_of(element: DType) -> np.dtype:
    """The numpy type of one element in memory: raw unsigned integers where numpy has no such type (sub-byte: a byte
    each)."""
    if held_as(element) == element.numpy():
        return element.numpy()
    return _WORDS[max(8, element.bits)]


@_quiet
def decode(raw: Array, element: DType) -> Array:
    """Values of elements as they lie in memory (`storage_of`)."""
    if element.name == "bf16":
        return np.left_shift(np.asarray(raw, np.uint16), np.uint32(16), dtype=np.uint32).view(np.float32)
    if held_as(element) != element.numpy():
        return _codes(element)[raw]
    return raw.astype(held_as(element))


@_quiet
def encode(values: Array, element: DType) -> Array:
    """The bits in memory of values that `element` can represent."""
    if element.name == "bf16":
        bits = np.asarray(values, np.float32).view(np.uint32)
        return np.where(np.isnan(values), (bits >> 16) | 0x40, bits >> 16).astype(np.uint16)
    if held_as(element) != element.numpy():
        codes = _codes(element)
        order = np.argsort(codes)                         # NaNs come last
        found = order[np.searchsorted(codes, values, sorter=order)]
        if element.is_signed and element.specials != "fnuz":     # both zeros sort alike; the sign decides
            found = np.where(values == 0, np.where(np.signbit(values), 1 << (element.bits - 1), 0), found)
        return found.astype(storage_of(element))
    return np.asarray(values, element.numpy())


@cache
def _codes(element: DType) -> np.ndarray:
    """The value of every bit pattern of a float of at most 8 bits, by the format's own definition."""
    values = np.empty(1 << element.bits, np.float32)
    for code in range(1 << element.bits):
        sign = -1.0 if element.is_signed and code >> (element.bits - 1) else 1.0
        exponent = code >> element.mantissa & (1 << element.exponent) - 1
        fraction = code & (1 << element.mantissa) - 1
        top = exponent == (1 << element.exponent) - 1
        if element.specials == "ieee" and top:
            value = np.nan if fraction else np.inf
        elif element.specials in ("fn", "scale") and top and fraction == (1 << element.mantissa) - 1:
            value = np.nan
        elif element.specials == "fnuz" and sign < 0 and not exponent and not fraction:
            value = np.nan
        elif exponent or element.specials == "scale":
            value = (1 + fraction / (1 << element.mantissa)) * 2.0 ** (exponent - element.bias)
        else:
            value = fraction / (1 << element.mantissa) * 2.0 ** (1 - element.bias)
        values[code] = sign * value
    values.setflags(write=False)
    return values


# -- rounding and casts ----------------------------------------------------------------------------------------------

@_quiet
def round_to(values: Array, element: DType, saturate: bool = False) -> Array:
    """f64 or f32 values rounded to a float type, nearest even. What rounds beyond the largest finite value becomes
    infinity, NaN in a type without infinity, the largest in a type without either; with `saturate` it is the largest in
    every type, and only infinity itself follows the rule before."""
    if saturate:
        high = element.limits[1]
        values = np.where(np.isfinite(values), np.clip(values, -high, high), values)
    if element.name in ("f64", "f32"):
        return values.astype(held_as(element))
    values = values.astype(np.float32)
    if element.name == "f16":
        return values.astype(np.float16)
    if element.name == "bf16":
        bits = np.asarray(values).view(np.uint32)
        rounded = (bits + (np.uint32(0x7FFF) + (bits >> 16 & 1))) & np.uint32(0xFFFF0000)
        return np.where(np.isnan(values), values, rounded.view(np.float32))[()]
    return _round_to_table(values, element)


def _round_to_table(values: Array, element: DType) -> Array:
    codes = _codes(element)
    positive = codes[: (1 << (element.bits - 1)) if element.is_signed else 1 << element.bits]
    positive = positive[np.isfinite(positive)].astype(np.float64)
    high = positive[-1]
    step = high if element.mantissa == 0 else high - positive[-2]
    ladder = np.append(positive, high + step)             # where the next value would be: rounding there is overflow
    size = np.abs(values).astype(np.float64)
    upper = np.clip(np.searchsorted(ladder, size), 1, len(ladder) - 1)
    below, above = size - ladder[upper - 1], ladder[upper] - size
    take_upper = (above < below) | ((above == below) & (upper % 2 == 0))
    index = np.where(take_upper, upper, upper - 1)
    beyond = (index == len(ladder) - 1) | np.isinf(values)
    overflow = {"ieee": np.inf, "finite": high}.get(element.specials, np.nan)
    result = np.copysign(np.where(beyond, overflow, ladder[index]), values)
    result = np.where(np.isnan(values), high if element.specials == "finite" else np.nan, result)
    if element.specials == "scale":
        result = np.where(values < 0, np.nan, result)
    if element.specials == "fnuz":
        result = np.where(result == 0, 0.0, result)
    return result.astype(np.float32)[()]


@_quiet
def cast(values: Array, source: DType, target: DType, saturate: bool = False) -> Array:
    """Conversion of held values. To a float of 16 bits or fewer through f32; float to integer truncates and clamps, NaN
    gives 0; integer to integer wraps; to bool: is it not zero."""
    if target.kind == "bool":
        return values != 0
    if target.is_float:
        if not source.is_float:
            values = np.asarray(values).astype(np.float64 if target.name == "f64" else np.float32)[()]
        return round_to(values, target, saturate)
    if source.is_float:
        low, high = target.limits
        whole = np.trunc(np.nan_to_num(np.asarray(values, np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf))
        inside = (whole > low) & (whole < high)           # for 64 bits `high` compares as 2.0**63, which is just beyond
        clamped = np.where(inside, whole, 0).astype(held_as(target))
        return np.where(inside, clamped, np.where(whole > 0, held_as(target).type(high), held_as(target).type(low)))[()]
    return np.asarray(values).astype(held_as(target))[()]


def constant(value: int | float | bool, element: DType) -> Array:
    """A Python number as a held scalar; integers wrap."""
    if element.is_float:
        return round_to(np.float64(value), element)
    if element.kind == "bool":
        return np.bool_(value)
    return np.uint64(int(value) & (1 << 64) - 1).astype(held_as(element))


# -- elementwise functions -------------------------------------------------------------------------------------------

def _ordered(pick: Callable[..., Array], zero_sign: Callable[..., Array]) -> Callable[[Array, Array], Array]:
    """fmin or fmax with -0 below +0, as v_min_f32 and v_max_f32 define it."""
    def apply(a: Array, b: Array) -> Array:
        chosen = pick(a, b)
        if np.asarray(a).dtype.kind != "f":
            return chosen
        zero = np.where(zero_sign(np.signbit(a), np.signbit(b)), -0.0, 0.0).astype(np.asarray(a).dtype)
        return np.where((a == 0) & (b == 0), zero, chosen)
    return apply


def _fma(a: Array, b: Array, c: Array) -> Array:
    kind = np.asarray(a).dtype
    if kind.kind != "f":
        return a * b + c
    if kind == np.float64:
        return np.vectorize(_fma64, otypes=[np.float64])(a, b, c)
    product, addend = np.asarray(a, np.float64) * b, np.asarray(c, np.float64)     # the product is exact in f64
    total = product + addend
    part = total - product
    error = (product - (total - part)) + (addend - part)                           # Knuth's two-sum: exact
    even = total.view(np.int64) & 1 == 0
    odd = np.where(np.isfinite(total) & (error != 0) & even, np.nextafter(total, np.copysign(np.inf, error)), total)
    return odd.astype(np.float32)        # a sum rounded to odd in f64 rounds once more without harm


def _fma64(a: float, b: float, c: float) -> float:
    if not np.isfinite([a, b, c]).all() or a == 0 or b == 0:
        return a * b + c
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    try:
        return float(exact) if exact else float(a * b + c)
    except OverflowError:
        return np.inf if exact > 0 else -np.inf


def _in_f64(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    return lambda a: function(np.asarray(a, np.float64)).astype(np.asarray(a).dtype)


def _amount(value: Array, by: Array) -> Array:
    kind = np.asarray(value).dtype
    return by & kind.type(kind.itemsize * 8 - 1)


def _to_floor(whole: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    """numpy's integer floor functions with 0 for a division by zero, and no trap for the lowest number over -1."""
    def apply(a: Array, b: Array) -> Array:
        return np.where(b == 0, np.zeros_like(a), whole(a, np.where(b == 0, np.ones_like(b), b)))
    return apply


FUNCTIONS: dict[str, Callable[..., Array]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide,
    "floordiv": _to_floor(np.floor_divide), "mod": _to_floor(np.remainder),
    "minimum": _ordered(np.fmin, np.logical_or), "maximum": _ordered(np.fmax, np.logical_and),
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "shl": lambda a, b: np.left_shift(a, _amount(a, b)), "shr": lambda a, b: np.right_shift(a, _amount(a, b)),
    "fma": _fma, "neg": np.negative, "abs": np.abs, "not": np.invert,
    "exp2": _in_f64(np.exp2), "exp": _in_f64(np.exp), "log2": _in_f64(np.log2), "log": _in_f64(np.log),
    "sqrt": np.sqrt, "rsqrt": _in_f64(lambda a: 1 / np.sqrt(a)), "reciprocal": np.reciprocal, "sin": _in_f64(np.sin),
    "cos": _in_f64(np.cos), "floor": np.floor, "ceil": np.ceil,
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal,
    "where": np.where,
}


def work_type(element: DType) -> np.dtype:
    """The precision in which arithmetic on `element` is done."""
    return np.dtype(np.float32) if element.is_float and element.bits < 32 else held_as(element)


@_quiet
def elementwise(function: str, arguments: tuple[Array, ...], operand: DType, result: DType) -> Array:
    """`function` of tile.ELEMENTWISE on held values of type `operand` (of `where`: that of its last two arguments)."""
    if function == "where":
        return np.where(*arguments)[()]
    work = work_type(operand)
    value = FUNCTIONS[function](*(np.asarray(a, work)[()] for a in arguments))
    if result.is_float and result.bits < 32:
        return round_to(value, result)
    return np.asarray(value, held_as(result))[()]


# -- reductions and products -----------------------------------------------------------------------------------------

@_quiet
def reduce(kind: str, values: Array, axis: int, element: DType) -> Array:
    """A tile combined along an axis. Sums of floats are formed in f64 and rounded once to f32, then to 16 bits: the
    order that a kernel takes is its own choice, and small integers come out exact in any."""
    if kind == "sum":
        if element.is_float:
            return round_to(values.astype(np.float64).sum(axis=axis), element)
        return values.sum(axis=axis, dtype=held_as(element))
    combine = FUNCTIONS["maximum" if kind == "max" else "minimum"]
    values = np.moveaxis(values, axis, 0)
    while len(values) > 1:                                # a tree: the order does not matter, and log2(n) calls suffice
        half = len(values) // 2
        values = np.concatenate([combine(values[:half], values[half:2 * half]), values[2 * half:]])
    return values[0].astype(held_as(element))


@_quiet
def dot(a: Array, b: Array, accumulator: Array, element: DType) -> Array:
    """accumulator + a @ b. Floats: exact products, added in f64 and rounded once; integers modulo 2^32, exactly."""
    if element.is_float:
        return round_to(accumulator.astype(np.float64) + a.astype(np.float64) @ b.astype(np.float64), element)
    if max(a.dtype.itemsize, b.dtype.itemsize) <= 2:      # exact in f64 up to 2^21 products, and far faster
        product = (a.astype(np.float64) @ b.astype(np.float64)).astype(np.int64)
    else:
        product = a.astype(np.int64) @ b.astype(np.int64)
    return (accumulator.astype(np.int64) + product).astype(held_as(element))
