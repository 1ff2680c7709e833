"""The words of the language beside tensors and operators: making numbers, functions on them, dot, the grid."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilec import dtypes
from tilec.errors import TilecError
from tilec.frontend import source
from tilec.frontend.control import Range as range
from tilec.frontend.control import When as when
from tilec.frontend.tensors import scalar_index, tile_shape
from tilec.frontend.tracer import Tracer, current, fit
from tilec.frontend.values import (
    Number,
    Scalar,
    Tile,
    arithmetic,
    broadcast,
    choose,
    materialise,
    operand_of,
    python_number,
    read,
    unary,
)
from tilec.ir.core import Op, ScalarType, Value
from tilec.ir.tile import Cast, Constant, Dim, Dot, Elementwise, Iota, ProgramId, Require, View

__all__ = [
    "abs",
    "cdiv",
    "ceil",
    "cos",
    "dot",
    "exp",
    "exp2",
    "floor",
    "fma",
    "full",
    "iota",
    "log",
    "log2",
    "maximum",
    "minimum",
    "program_id",
    "range",
    "reciprocal",
    "require",
    "rsqrt",
    "scalar",
    "sin",
    "sqrt",
    "when",
    "where",
    "zeros",
]


# -- making numbers ----------------------------------------------------------------------------------------------------


def zeros(*shape: Any, dtype: Any = dtypes.f32) -> Tile:
    """A tile of zeros: `zeros(M, N)` or `zeros((M, N))`."""
    return full(_flat(shape), 0, dtype)


def full(shape: Any, value: Any, dtype: Any = None) -> Tile:
    """A tile whose elements all are `value` (a Python number or a run-time scalar). The default element type is the
    value's own: i32 or f32 for a Python number."""
    tracer = current()
    sizes = tile_shape(_flat((shape,)), None, "full")
    item = operand_of(value, "full")
    if isinstance(item, Tile):
        raise TilecError("full takes one number, not a tile")
    element = (
        dtypes.dtype(dtype)
        if dtype is not None
        else item.dtype
        if isinstance(item, Number)
        else dtypes.default_of(item)
    )
    type = tracer.tile_type(sizes, element)
    if not isinstance(item, Number):
        return Tile(tracer.emit(Constant, type, named=True, value=fit(item, element)))
    return Tile(broadcast(tracer, materialise(tracer, item, element, ()), sizes, named=True))


def iota(*shape: Any, axis: int = 0, dtype: Any = dtypes.i32) -> Tile:
    """A tile whose elements hold their own coordinate along `axis`: `iota(n)` is 0, 1, ..., n - 1."""
    tracer = current()
    sizes = tile_shape(_flat(shape), None, "iota")
    element = dtypes.dtype(dtype)
    if not element.is_integer:
        raise TilecError(f"iota of {element}", limit="coordinates are integers", fix=f"iota(...).to(tc.{element})")
    if not 0 <= axis < len(sizes):
        raise TilecError(f"iota along axis {axis} of a tile of rank {len(sizes)}")
    return Tile(tracer.emit(Iota, tracer.tile_type(sizes, element), named=True, axis=axis))


def scalar(value: Any, dtype: Any = None) -> Scalar:
    """A run-time scalar from a Python number: what a loop may change."""
    item = operand_of(value, "scalar")
    if isinstance(item, Tile):
        raise TilecError("scalar takes one number, not a tile", fix="x.sum(), x.max() and x.min() give scalars")
    if isinstance(item, Number):
        return item.to(dtype) if dtype is not None else +item
    element = dtypes.dtype(dtype) if dtype is not None else dtypes.default_of(item)
    tracer = current()
    return Scalar(tracer.emit(Constant, ScalarType(element), named=True, value=fit(item, tracer.require(element))))


def _flat(shape: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape


# -- functions ---------------------------------------------------------------------------------------------------------


def where(condition: Any, left: Any, right: Any, *, rare: bool = False) -> Any:
    """Element by element: `left` where the condition holds, else `right`. `rare` says that it seldom holds: a wave in
    which it holds for no element goes around what only `left` needs. The result is the same."""
    if not isinstance(rare, bool):
        raise TilecError(f"where(rare={rare!r})", limit="rare is True or False, known when the kernel is traced")
    return choose(condition, left, right, rare)


def minimum(left: Any, right: Any) -> Any:
    """The smaller; of a number and NaN the number."""
    return arithmetic("minimum", left, right)


def maximum(left: Any, right: Any) -> Any:
    """The larger; of a number and NaN the number."""
    return arithmetic("maximum", left, right)


def fma(a: Any, b: Any, c: Any) -> Any:
    """a * b + c, rounded once."""
    return arithmetic("fma", a, b, c)


# fmt: off
def abs(x: Any) -> Any: return unary("abs", x)
def exp(x: Any) -> Any: return unary("exp", x)
def exp2(x: Any) -> Any: return unary("exp2", x)
def log(x: Any) -> Any: return unary("log", x)
def log2(x: Any) -> Any: return unary("log2", x)
def sqrt(x: Any) -> Any: return unary("sqrt", x)
def rsqrt(x: Any) -> Any: return unary("rsqrt", x)
def reciprocal(x: Any) -> Any: return unary("reciprocal", x)
def sin(x: Any) -> Any: return unary("sin", x)
def cos(x: Any) -> Any: return unary("cos", x)
def floor(x: Any) -> Any: return unary("floor", x)
def ceil(x: Any) -> Any: return unary("ceil", x)
# fmt: on


def cdiv(n: Any, size: Any) -> Any:
    """ceil(n / size) for n >= 0 and size > 0, Python integers or run-time scalars."""
    if python_number(n) is not None and python_number(size) is not None:
        return -(-n // size)
    return (n - 1) // size + 1


# -- dot ---------------------------------------------------------------------------------------------------------------

_ACCUMULATES = {"f64": dtypes.f64, "f32": dtypes.f32, "f16": dtypes.f32, "bf16": dtypes.f32, "i8": dtypes.i32}


def dot(a: Tile, b: Tile, accumulator: Tile | None = None) -> Tile:
    """a (M x K) times b (K x N) plus the accumulator (M x N; default zero). f16, bf16 and f32 accumulate in f32, f64 in
    f64, i8 in i32."""
    tracer = current()
    for operand, side in ((a, "left"), (b, "right")):
        if not isinstance(operand, Tile) or len(operand.shape) != 2:
            given = f"{operand._describe()}" if isinstance(operand, Number) else f"a {type(operand).__name__}"
            raise TilecError(f"dot: the {side} operand is {given}", limit="dot multiplies tiles of two axes")
    if a.dtype != b.dtype:
        raise TilecError(f"dot of {a.dtype} with {b.dtype}", fix="cast one of them so that both have one element type")
    if a.dtype.name not in _ACCUMULATES:
        raise TilecError(
            f"dot of {a.dtype}", limit=f"dot multiplies {', '.join(_ACCUMULATES)}", fix="cast the operands"
        )
    (m, k), (k2, n) = a.shape, b.shape
    if k != k2:
        fix = (
            "transpose the right operand: b.T" if k == n else "the left operand's columns are the right operand's rows"
        )
        raise TilecError(
            f"dot of [{m}, {k}] with [{k2}, {n}]",
            limit=f"the contracted axis is {k} on the left, {k2} on the right",
            fix=fix,
        )
    element = _ACCUMULATES[a.dtype.name]
    if accumulator is None:
        accumulator_value = tracer.constant(0, tracer.tile_type((m, n), element))
    elif not isinstance(accumulator, Tile) or accumulator.shape != (m, n) or accumulator.dtype != element:
        given = accumulator._describe() if isinstance(accumulator, Number) else f"a {type(accumulator).__name__}"
        raise TilecError(
            f"dot: the accumulator is {given}",
            limit=f"{a.dtype}[{m}, {k}] times {b.dtype}[{k}, {n}] adds to {element}[{m}, {n}]",
            fix=f"start it as tc.zeros({m}, {n}, dtype=tc.{element})",
        )
    else:
        accumulator_value = read(accumulator)
    return Tile(
        tracer.emit(Dot, accumulator_value.type, named=True, a=read(a), b=read(b), accumulator=accumulator_value)
    )


# -- the grid ----------------------------------------------------------------------------------------------------------

HOST_OPS = (Constant, Elementwise, Cast, View, Dim)  # what the host can evaluate from the arguments


def program_id(grid: Any) -> Any:
    """This workgroup's place in the grid: a tuple for a tuple of extents (slowest axis first), a scalar for one extent.
    One kernel has one grid; the host evaluates it from the arguments, so it can't depend on what the kernel loads."""
    tracer = current()
    extents = grid if isinstance(grid, (tuple, list)) else (grid,)
    if not 1 <= len(extents) <= 5:
        raise TilecError(f"a grid of rank {len(extents)}", limit="grids have 1 to 5 axes")
    if len(tracer.scopes) > 1:
        raise TilecError(f"program_id inside a {tracer.scopes[-1].kind}", fix="call it at the top of the kernel")
    values = tuple(tracer.resolve(scalar_index(tracer, extent)) for extent in extents)
    defined = {r: op for op in tracer.scopes[0].builder.ops for r in op.results}
    for value in values:
        _require_host_value(value, defined, "the grid")
    if tracer.grid is None:
        tracer.grid, tracer.grid_where = values, source.here()
        frame = source.user_frame()
        tree = source.source_of(frame.f_code)
        names = source.names_at(tree, source.span_of(frame)) if tree else ()
        names = names if len(names) == len(values) else ("",) * len(values)
        tracer.program_ids = tuple(_program_id(tracer, axis, name) for axis, name in enumerate(names))
    elif [_expression(v, defined) for v in values] != [_expression(v, defined) for v in tracer.grid]:
        raise TilecError(
            "program_id with another grid than before",
            limit=f"the grid was given at line {tracer.grid_where.line}" if tracer.grid_where else "",
            fix="give the whole grid once: m, n = tc.program_id(Ct.grid)",
        )
    ids = tuple(Scalar(value) for value in tracer.program_ids)
    return ids if isinstance(grid, (tuple, list)) else ids[0]


def _program_id(tracer: Tracer, axis: int, name: str) -> Value:
    result = tracer.define(Value(ScalarType(dtypes.i32), name))
    tracer.scopes[0].builder.emit(ProgramId(axis=axis, results=(result,), where=source.here()))
    return result


def _expression(value: Value, defined: dict[Value, Op]) -> Any:
    """A value as the tree of operations that make it, for comparing."""
    op = defined.get(value)
    return (
        value
        if op is None
        else (type(op), *op.attributes.values(), value.type, *(_expression(v, defined) for v in op.operands))
    )


def require(condition: Any, text: str) -> None:
    """What a launch must satisfy: where the condition, on shapes and scalar arguments, is false, the launch is refused
    with `text` and the numbers. A condition on Consts is decided when the kernel is compiled."""
    tracer = current()
    if not isinstance(text, str):
        raise TilecError(f"require with {text!r}", fix="say what must hold: tc.require(n <= 8, 'n must be at most 8')")
    if isinstance(condition, (bool, np.bool_)):
        if not condition:
            raise TilecError(text)
        return
    if not isinstance(condition, Scalar) or condition.dtype.kind != "bool":
        given = condition._describe() if isinstance(condition, Number) else f"a {type(condition).__name__}"
        raise TilecError(f"require of {given}", fix="compare scalars: tc.require(X.shape[1] <= BN, '...')")
    if len(tracer.scopes) > 1:
        raise TilecError(f"require inside a {tracer.scopes[-1].kind}", fix="call it at the top of the kernel")
    value = tracer.resolve(read(condition))
    defined = {r: op for op in tracer.scopes[0].builder.ops for r in op.results}
    _require_host_value(value, defined, "what is required")
    tracer.effect(Require, condition=value, text=text)


def _require_host_value(value: Value, defined: dict[Value, Op], what: str) -> None:
    op = defined.get(value)
    if op is None or isinstance(op, Dim):
        return
    if not isinstance(op, HOST_OPS):
        raise TilecError(
            f"{what} depends on {op.mnemonic}",
            limit=f"the host evaluates {what} before the launch, from shapes and scalar arguments",
            fix="pass the number as an argument",
        )
    for operand in op.operands:
        _require_host_value(operand, defined, what)
