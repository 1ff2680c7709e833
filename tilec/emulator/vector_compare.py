"""Compares: v_cmp and v_cmpx of every type and condition, and the class tests (CDNA3 ISA guide, 12.9).

A compare returns one bit per lane; v_cmpx makes it the new EXEC as well. Float conditions with n are the negations of
the ordered ones, so that they hold for NaN. Inputs that are denormal count as zero where the mode flushes them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilec.emulator.arithmetic import FLOATS, Array, Float
from tilec.emulator.mode import Mode
from tilec.emulator.vector_row import VectorRow


def _never(a: Array, b: Array) -> Array:
    return np.zeros(np.broadcast_shapes(a.shape, b.shape), np.bool_)


def _always(a: Array, b: Array) -> Array:
    return ~_never(a, b)


def _ordered(a: Array, b: Array) -> Array:
    return (a == a) & (b == b)


def _less_or_greater(a: Array, b: Array) -> Array:
    return (a < b) | (a > b)


def _negated(condition: Callable[..., Array]) -> Callable[..., Array]:
    return lambda a, b: ~condition(a, b)


INTEGER_CONDITIONS: dict[str, Callable[..., Any]] = {
    "f": _never, "lt": np.less, "eq": np.equal, "le": np.less_equal,
    "gt": np.greater, "ne": np.not_equal, "ge": np.greater_equal, "t": _always,
}  # fmt: skip
_ORDERED: dict[str, Callable[..., Any]] = {
    "lt": np.less, "eq": np.equal, "le": np.less_equal,
    "gt": np.greater, "lg": _less_or_greater, "ge": np.greater_equal,
}  # fmt: skip
FLOAT_CONDITIONS: dict[str, Callable[..., Any]] = (
    {"f": _never, "o": _ordered, "u": _negated(_ordered), "tru": _always}
    | _ORDERED
    | {f"n{name}": _negated(condition) for name, condition in _ORDERED.items()}
)


def _integer(condition: Callable[..., Any]) -> Callable[..., Array]:
    return lambda mode, a, b: condition(a, b)


def _float(form: Float, condition: Callable[..., Any]) -> Callable[..., Array]:
    def function(mode: Mode, a: Array, b: Array) -> Array:
        if not form.denormals(mode) & 1:
            a, b = form.flush(a), form.flush(b)
        return condition(a, b)

    return function


def _class(form: Float) -> Callable[..., Array]:
    """Mask bits: signaling NaN, quiet NaN, -inf, -normal, -denormal, -0, +0, +denormal, +normal, +inf."""

    def function(mode: Mode, x: Array, mask: Array) -> Array:
        bits = x.view(form.bits)
        magnitude, negative = bits & form.magnitude, bits & form.sign != 0
        number = np.select(
            [magnitude > form.infinity, magnitude == form.infinity, magnitude >> form.bits(form.mantissa) != 0,
             magnitude != 0],
            [np.where(magnitude & form.quiet_bit, 1, 0), np.where(negative, 2, 9), np.where(negative, 3, 8),
             np.where(negative, 4, 7)],
            np.where(negative, 5, 6),
        )  # fmt: skip
        return mask.astype(np.uint32) >> number.astype(np.uint32) & np.uint32(1) != 0

    return function


def _both(suffix: str, src: tuple[str, ...], function: Callable[..., Array]) -> list[VectorRow]:
    return [
        VectorRow(f"v_cmp_{suffix}", ("mask",), src, function),
        VectorRow(f"v_cmpx_{suffix}", ("mask",), src, function, writes_exec=True),
    ]


def _rows() -> list[VectorRow]:
    rows: list[VectorRow] = []
    for kind in ("i16", "u16", "i32", "u32", "i64", "u64"):
        for name, condition in INTEGER_CONDITIONS.items():
            rows += _both(f"{name}_{kind}", (kind, kind), _integer(condition))
    for form in FLOATS:
        for name, condition in FLOAT_CONDITIONS.items():
            rows += _both(f"{name}_{form.name}", (form.name, form.name), _float(form, condition))
        rows += _both(f"class_{form.name}", (form.name, "u16" if form.name == "f16" else "u32"), _class(form))
    return rows


ROWS: tuple[VectorRow, ...] = tuple(_rows())
