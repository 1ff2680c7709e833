"""Affine ranges of index arithmetic: what a value's elements are, seen from inside a loop.

Every i32 value made of the loop's counter, constants, iotas and scalars that do not change in the loop by adding,
subtracting, negating, scaling by a constant, and repeating is `coefficient * counter + scalars + [low, high]`. This is
true of integers without end; `scalar_limit` and `counter_limit` say where it is true of i32.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilec.ir import tile
from tilec.ir.core import Op, ScalarType, Value

COMPARISONS = {"le": (1, 0), "lt": (1, 1), "ge": (-1, 0), "gt": (-1, 1)}    # f(a, b): sign * (b - a) >= number


LIMIT = 2**29


@dataclass(frozen=True)
class Affine:
    """coefficient * counter + sum of value * factor over `scalars` + what lies between low and high. No partial result
    on the way there is larger than slope * counter + weight * the largest scalar + size: scalars that cancel stay on
    the list, for they must not wrap either."""

    coefficient: int = 0
    scalars: tuple[tuple[Value, int], ...] = ()
    low: int = 0
    high: int = 0
    slope: int = 0
    weight: int = 0
    size: int = 0

    def plus(self, other: Affine) -> Affine:
        factors = dict(self.scalars)
        for value, factor in other.scalars:
            factors[value] = factors.get(value, 0) + factor
        return Affine(self.coefficient + other.coefficient, tuple(factors.items()),
                      self.low + other.low, self.high + other.high,
                      self.slope + other.slope, self.weight + other.weight, self.size + other.size)

    def times(self, factor: int) -> Affine:
        low, high = sorted((self.low * factor, self.high * factor))
        grown = max(1, abs(factor))
        return Affine(self.coefficient * factor, tuple((v, f * factor) for v, f in self.scalars), low, high,
                      self.slope * grown, self.weight * grown, self.size * grown)

    @property
    def scalar_limit(self) -> int:
        """Scalars of at most this magnitude, and counters below `counter_limit`, keep every partial sum in i32."""
        return max(0, LIMIT - self.size) // max(1, self.weight)

    @property
    def counter_limit(self) -> int:
        return 2 * LIMIT // max(1, self.slope)


@dataclass(frozen=True)
class Mask:
    """A comparison that holds for all elements while `margin` >= 0 for each of them."""

    op: tile.Elementwise
    margin: Affine


def mask_of(op: Op, counter: Value, defining: Mapping[Value, Op], inside: set[Value]) -> Mask | None:
    """A comparison of affine values as a mask; None for other ops. `inside` are the values made in the loop."""
    if not isinstance(op, tile.Elementwise) or op.function not in COMPARISONS or op.arguments[0].dtype.name != "i32":
        return None
    left, right = (affine(a, counter, defining, inside) for a in op.arguments)
    if left is None or right is None:
        return None
    sign, number = COMPARISONS[op.function]
    margin = right.plus(left.times(-1)).times(sign).plus(Affine(low=-number, high=-number, size=number))
    return Mask(op, margin) if max(margin.slope, margin.weight, margin.size) <= LIMIT else None


def affine(value: Value, counter: Value, defining: Mapping[Value, Op], inside: set[Value]) -> Affine | None:
    """The range of a value, or None where it is no such sum."""
    if value is counter:
        return Affine(1, slope=1)
    op = defining.get(value)
    if isinstance(value.type, ScalarType) and value not in inside and not isinstance(op, tile.Constant):
        return Affine(scalars=((value, 1),), weight=1)
    match op:
        case tile.Constant() if isinstance(op.value, int):
            return Affine(low=op.value, high=op.value, size=abs(op.value))
        case tile.Iota():
            last = op.result.shape[op.axis] - 1
            return Affine(low=0, high=last, size=last)
        case tile.Broadcast() | tile.ExpandDims() | tile.Permute():
            return affine(op.source, counter, defining, inside)
        case tile.Elementwise(function="add" | "sub" | "mul" | "neg"):
            parts = [affine(a, counter, defining, inside) for a in op.arguments]
            return _combined(op.function, [p for p in parts if p is not None]) if None not in parts else None
    return None


def _combined(function: str, parts: list[Affine]) -> Affine | None:
    match function:
        case "add":
            return parts[0].plus(parts[1])
        case "sub":
            return parts[0].plus(parts[1].times(-1))
        case "neg":
            return parts[0].times(-1)
    for one, other in (parts, reversed(parts)):
        if not other.coefficient and not other.scalars and other.low == other.high:
            return one.times(other.low)
    return None

