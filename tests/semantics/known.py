"""What the generator knows of each value: bounds on its elements, so that floats stay exact integers."""

from __future__ import annotations

from dataclasses import dataclass

from tilec.dtypes import DType
from tilec.ir.core import ScalarType, TileType, Type, Value


@dataclass(frozen=True)
class Known:
    """A value and bounds that hold for all of its elements."""

    value: Value
    low: int
    high: int

    @property
    def dtype(self) -> DType:
        return self.value.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    def within(self, low: int, high: int) -> bool:
        return low <= self.low and self.high <= high


def typed(dtype: DType, shape: tuple[int, ...]) -> Type:
    return TileType(shape, dtype) if shape else ScalarType(dtype)


def limits(dtype: DType) -> tuple[int, int]:
    """The range in which values of the type may lie: all of it for integers, the exactly held integers of a float."""
    return (-(2 << dtype.mantissa), 2 << dtype.mantissa) if dtype.is_float else dtype.limits


def roomy(dtype: DType) -> tuple[int, int]:
    """Bounds for a loop-carried value: all integers, or a quarter of a float's exact range."""
    low, high = limits(dtype)
    return (low // 4, high // 4) if dtype.is_float else (low, high)


def bounds(function: str, data: list[Known], dtype: DType) -> tuple[int, int]:
    """Interval arithmetic; the whole range of the type where it is not worth the trouble."""
    lows, highs = [k.low for k in data], [k.high for k in data]
    match function:
        case "add":
            return lows[0] + lows[1], highs[0] + highs[1]
        case "sub":
            return lows[0] - highs[1], highs[0] - lows[1]
        case "mul" | "fma":
            corners = [a * b for a in (lows[0], highs[0]) for b in (lows[1], highs[1])]
            more = (lows[2], highs[2]) if function == "fma" else (0, 0)
            return min(corners) + more[0], max(corners) + more[1]
        case "minimum" | "maximum" | "where" | "floor" | "ceil":
            return min(lows), max(highs)
        case "neg" | "abs":
            bound = max(abs(lows[0]), abs(highs[0]))
            return -bound, bound
        case "mod" if lows[1] > 0:
            return 0, highs[1] - 1
        case "lt" | "le" | "gt" | "ge" | "eq" | "ne":
            return 0, 1
    return limits(dtype)
