"""The rewrites of `simplify`: for one op, an equal value that exists already or an equal op that is cheaper.

Each rule holds bit for bit for every input that its dtype can hold, NaN, infinities, -0 and wrapping included; where it
holds only for integers it says so. A rule sees its operands simplified, and may add ops through `facts.emit`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from tilec.dtypes import DType
from tilec.ir import numerics, tile
from tilec.ir.core import Op, ScalarType, TileType, Value

Number = int | float | bool


class Facts(Protocol):
    """What is known of values, and a way to add an op."""

    def op(self, value: Value) -> Op | None: ...
    def number(self, value: Value) -> Number | None: ...
    def emit(self, op: Op) -> Value: ...


_RULES: dict[type[Op], Callable[[Any, Facts], Value | Op | None]] = {}


def rewrite(op: Op, facts: Facts) -> Value | Op:
    """The op, or what may stand in its place."""
    rule = _RULES.get(type(op))
    while rule is not None:
        new = rule(op, facts)
        if new is None:
            return op
        if isinstance(new, Value):
            return new
        op, rule = new, _RULES.get(type(new))
    return op


def _rule(op_class: type[Op]) -> Callable[[Any], Any]:
    def register(function: Any) -> Any:
        _RULES[op_class] = function
        return function
    return register


def _constant(number: Any, like: Op) -> tile.Constant:
    """A constant in place of `like`'s result."""
    return tile.Constant(np.asarray(number).item(), results=like.results, where=like.where)


def _scalar(op: Op, value: Value, facts: Facts) -> Value | None:
    """The scalar that every element of a tile is: the source of a broadcast, or a new constant."""
    if isinstance(value.type, ScalarType):
        return value
    made, number = facts.op(value), facts.number(value)
    if number is not None:
        return facts.emit(tile.Constant(number, results=(Value(ScalarType(value.dtype)),), where=op.where))
    if isinstance(made, tile.Broadcast) and isinstance(made.source.type, ScalarType):
        return made.source
    return None


# -- elementwise -----------------------------------------------------------------------------------------------------

COMMUTATIVE = ("add", "mul", "and", "or", "xor", "minimum", "maximum", "eq", "ne")


@_rule(tile.Elementwise)
def _elementwise(op: tile.Elementwise, facts: Facts) -> Value | Op | None:
    numbers = [facts.number(a) for a in op.arguments]
    if None not in numbers:
        return _fold(op, numbers)
    if op.function in COMMUTATIVE and numbers[0] is not None:
        return op.replace(arguments=op.arguments[::-1])
    if op.function == "where":
        return _where(op, numbers)
    if len(op.arguments) == 1:
        return _unary(op, facts)
    if len(op.arguments) == 2:
        if op.arguments[0] is op.arguments[1] and (same := _of_equals(op)):
            return same
        if numbers[1] is not None and (simpler := _with_number(op, numbers[1], facts)):
            return simpler
    return _of_broadcasts(op, facts)


def _fold(op: tile.Elementwise, numbers: list[Number | None]) -> Op:
    held = tuple(numerics.constant(n, a.dtype) for n, a in zip(numbers, op.arguments))  # type: ignore[arg-type]
    return _constant(numerics.elementwise(op.function, held, op.arguments[-1].dtype, op.result.dtype), op)


def _where(op: tile.Elementwise, numbers: list[Number | None]) -> Value | None:
    flag, yes, no = op.arguments
    if numbers[0] is not None:
        return yes if numbers[0] else no
    if yes is no:
        return yes
    if yes.dtype.kind == "bool" and (numbers[1], numbers[2]) == (True, False):
        return flag
    return None


def _unary(op: tile.Elementwise, facts: Facts) -> Value | Op | None:
    inner = facts.op(op.arguments[0])
    if isinstance(inner, tile.Elementwise):
        if op.function == inner.function and op.function in ("neg", "not"):
            return inner.arguments[0]
        if op.function == inner.function and op.function in ("abs", "floor", "ceil"):
            return op.arguments[0]
        if (op.function, inner.function) == ("abs", "neg"):
            return op.replace(arguments=inner.arguments)
    return _of_broadcasts(op, facts)


def _of_equals(op: tile.Elementwise) -> Value | Op | None:
    """f(x, x)."""
    if op.function in ("and", "or", "minimum", "maximum"):
        return op.arguments[0]
    if op.arguments[0].dtype.is_float:
        return None                             # x - x and x == x are not known where x may be infinite or NaN
    if op.function in ("sub", "xor"):
        return _constant(False if op.result.dtype.kind == "bool" else 0, op)
    if op.function in ("eq", "le", "ge"):
        return _constant(True, op)
    if op.function in ("ne", "lt", "gt"):
        return _constant(False, op)
    return None


# (function, number) that leaves the first argument as it is. x + 0.0 is not among them (-0.0 + 0.0 is 0.0), nor is x *
# 0.0.
_NEUTRAL: dict[str, Callable[[Number, DType], bool]] = {
    "add": lambda n, t: n == 0 and (not t.is_float or math.copysign(1, n) < 0),
    "sub": lambda n, t: n == 0 and (not t.is_float or math.copysign(1, n) > 0),
    "mul": lambda n, t: n == 1, "div": lambda n, t: n == 1, "floordiv": lambda n, t: n == 1,
    "or": lambda n, t: n == 0, "xor": lambda n, t: n == 0, "shl": lambda n, t: n == 0, "shr": lambda n, t: n == 0,
    "and": lambda n, t: n == (True if t.kind == "bool" else -1 if t.kind == "int" else t.limits[1]),
    "minimum": lambda n, t: not t.is_float and n == t.limits[1],
    "maximum": lambda n, t: not t.is_float and n == t.limits[0],
}


def _with_number(op: tile.Elementwise, number: Number, facts: Facts) -> Value | Op | None:
    """f(x, number)."""
    x, dtype = op.arguments[0], op.arguments[0].dtype
    if op.function in _NEUTRAL and _NEUTRAL[op.function](number, dtype):
        return x
    if op.function == "div":
        inverse = _exact_inverse(number, dtype)
        if inverse is None:
            return None
        factor = facts.emit(tile.Constant(inverse, results=(Value(x.type),), where=op.where))
        return op.replace(arguments=(x, factor), function="mul")
    if dtype.is_float:
        return None
    if number == 0 and op.function in ("mul", "and", "floordiv", "mod") or number == 1 and op.function == "mod":
        return _constant(False if dtype.kind == "bool" else 0, op)
    if op.function == "sub":
        return op.replace(arguments=(x, _computed("neg", (number,), op, facts)), function="add")
    inner = facts.op(x)
    if isinstance(inner, tile.Elementwise) and inner.function == op.function in ("add", "mul", "and", "or", "xor"):
        other = facts.number(inner.arguments[1])
        if other is not None:                   # integers: (x + 1) + 2 is x + 3
            return op.replace(arguments=(inner.arguments[0], _computed(op.function, (other, number), op, facts)))
    return None


def _computed(function: str, numbers: tuple[Number, ...], op: Op, facts: Facts) -> Value:
    """A new constant like the result of `op`: the function of these numbers."""
    dtype = op.result.dtype
    held = numerics.elementwise(function, tuple(numerics.constant(n, dtype) for n in numbers), dtype, dtype)
    return facts.emit(tile.Constant(held.item(), results=(Value(op.result.type),), where=op.where))


def _exact_inverse(number: Number, dtype: DType) -> float | None:
    """1 / number, if that is a power of two and normal in the type: then x / number is x * inverse, rounding
    included."""
    if not number or not math.isfinite(number) or abs(math.frexp(number)[0]) != 0.5:
        return None
    inverse = 1.0 / number
    least = 2.0 ** (1 - dtype.bias)
    return inverse if least <= abs(inverse) <= dtype.limits[1] and abs(number) >= least else None


def _of_broadcasts(op: tile.Elementwise, facts: Facts) -> Op | None:
    """f(broadcast a, broadcast b) is broadcast f(a, b) of scalars."""
    if not isinstance(op.result.type, TileType):
        return None
    if not any(isinstance(facts.op(a), tile.Broadcast) for a in op.arguments):
        return None
    if any(facts.number(a) is None and _scalar(op, a, facts) is None for a in op.arguments):
        return None
    scalars = tuple(_scalar(op, a, facts) for a in op.arguments)
    return _broadcast_of(op.replace(arguments=scalars), op, facts)


def _broadcast_of(scalar: Op, op: Op, facts: Facts) -> tile.Broadcast:
    """`op`'s tile as the broadcast of what `scalar`, the same op on scalars, computes."""
    result = Value(ScalarType(op.result.dtype), op.result.name)
    return tile.Broadcast(facts.emit(scalar.replace(results=(result,))), results=op.results, where=op.where)


# -- casts and shapes ------------------------------------------------------------------------------------------------

@_rule(tile.Cast)
def _cast(op: tile.Cast, facts: Facts) -> Value | Op | None:
    source, target = op.source.dtype, op.result.dtype
    if source == target:
        return op.source
    number = facts.number(op.source)
    if number is not None:
        return _constant(numerics.cast(numerics.constant(number, source), source, target, op.saturate), op)
    inner = facts.op(op.source)
    if isinstance(inner, tile.Cast):
        first = inner.source.dtype
        if _keeps(first, source) and (first.is_float == source.is_float or target.is_float or target.kind == "bool"):
            return op.replace(source=inner.source)
    scalar = _scalar(op, op.source, facts) if isinstance(op.result.type, TileType) else None
    return None if scalar is None else _broadcast_of(op.replace(source=scalar), op, facts)


def _keeps(first: DType, second: DType) -> bool:
    """Whether a cast from `first` to `second` keeps every value (so that what follows may start from `first`)."""
    if first.kind == "bool":
        return True
    if second.kind == "bool" or first.is_float and not second.is_float or "scale" in (first.specials, second.specials):
        return False
    if first.is_float:
        same_range = first.exponent <= second.exponent and first.bias <= second.bias
        return same_range and first.mantissa <= second.mantissa and second.specials == "ieee"
    if second.is_float:
        return first.bits - (first.kind == "int") <= second.mantissa + 1
    return second.limits[0] <= first.limits[0] and first.limits[1] <= second.limits[1]


@_rule(tile.Permute)
def _permute(op: tile.Permute, facts: Facts) -> Value | Op | None:
    if op.axes == tuple(range(len(op.axes))):
        return op.source
    inner = facts.op(op.source)
    if isinstance(inner, tile.Permute):
        return op.replace(source=inner.source, axes=tuple(inner.axes[a] for a in op.axes))
    return _of_one_scalar(op, facts)


@_rule(tile.ExpandDims)
def _expand_dims(op: tile.ExpandDims, facts: Facts) -> Op | None:
    return _of_one_scalar(op, facts)


@_rule(tile.Broadcast)
def _broadcast(op: tile.Broadcast, facts: Facts) -> Value | Op | None:
    if op.source.type == op.result.type:
        return op.source
    inner = facts.op(op.source)
    if isinstance(inner, tile.Broadcast):
        return op.replace(source=inner.source)
    return _of_one_scalar(op, facts)


def _of_one_scalar(op: tile.Permute | tile.ExpandDims | tile.Broadcast, facts: Facts) -> Op | None:
    """Moving the elements of a tile that are all the same number, or the same scalar."""
    number, inner = facts.number(op.source), facts.op(op.source)
    if number is not None:
        return _constant(number, op)
    if isinstance(inner, tile.Broadcast) and isinstance(inner.source.type, ScalarType):
        return tile.Broadcast(inner.source, results=op.results, where=op.where)
    return None


@_rule(tile.Dim)
def _dim(op: tile.Dim, facts: Facts) -> Value | None:
    view = facts.op(op.tensor)
    if isinstance(view, tile.View) and len(view.axes) == len(view.extents):     # else it may be empty
        return view.extents[view.axes[op.axis]]
    return None
