"""Numbers of a kernel while it is traced: `Scalar` (one for the workgroup) and `Tile`, with Python's operators.

A Number is a cell that holds a value of the program. Two names for one cell are one number; every expression makes a
new cell, and `+x` is a new cell with the same value. Python numbers are weak: they take the other side's type
(`dtypes.promote`, the only rule). Shapes follow numpy's broadcasting. Nothing here knows loops or memory.
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from tilec import dtypes
from tilec.dtypes import DType
from tilec.errors import TilecError
from tilec.frontend import source
from tilec.frontend.tracer import Tracer, current
from tilec.ir.core import ScalarType, TileType, Value
from tilec.ir.tile import Broadcast, Cast, Elementwise, ExpandDims, Permute, Reduce

PythonNumber = bool | int | float


class Number:
    """Base of Scalar and Tile."""

    __slots__ = ("_cell",)
    __array_ufunc__ = None  # numpy leaves `array op number` to us

    def __init__(self, value: Value):
        self._cell = value

    @property
    def _type(self) -> ScalarType | TileType:
        assert isinstance(self._cell.type, (ScalarType, TileType))
        return self._cell.type

    @property
    def dtype(self) -> DType:
        return self._type.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self._type.shape if isinstance(self._type, TileType) else ()

    def to(self, dtype: Any, saturate: bool = False) -> Any:
        """The same numbers as another element type. Floats round to nearest even; float to integer truncates and
        clamps; `saturate`: what overflows a narrower float becomes its largest finite number instead of infinity."""
        element = current().require(dtypes.dtype(dtype))
        return wrap(cast(current(), read(self), element, saturate, named=True))

    # -- operators

    # fmt: off
    def __add__(self, other: Any) -> Any: return arithmetic("add", self, other)
    def __radd__(self, other: Any) -> Any: return arithmetic("add", other, self)
    def __sub__(self, other: Any) -> Any: return arithmetic("sub", self, other)
    def __rsub__(self, other: Any) -> Any: return arithmetic("sub", other, self)
    def __mul__(self, other: Any) -> Any: return arithmetic("mul", self, other)
    def __rmul__(self, other: Any) -> Any: return arithmetic("mul", other, self)
    def __truediv__(self, other: Any) -> Any: return arithmetic("div", self, other)
    def __rtruediv__(self, other: Any) -> Any: return arithmetic("div", other, self)
    def __floordiv__(self, other: Any) -> Any: return arithmetic("floordiv", self, other)
    def __rfloordiv__(self, other: Any) -> Any: return arithmetic("floordiv", other, self)
    def __mod__(self, other: Any) -> Any: return arithmetic("mod", self, other)
    def __rmod__(self, other: Any) -> Any: return arithmetic("mod", other, self)
    def __and__(self, other: Any) -> Any: return arithmetic("and", self, other)
    def __rand__(self, other: Any) -> Any: return arithmetic("and", other, self)
    def __or__(self, other: Any) -> Any: return arithmetic("or", self, other)
    def __ror__(self, other: Any) -> Any: return arithmetic("or", other, self)
    def __xor__(self, other: Any) -> Any: return arithmetic("xor", self, other)
    def __rxor__(self, other: Any) -> Any: return arithmetic("xor", other, self)
    def __lshift__(self, other: Any) -> Any: return arithmetic("shl", self, other)
    def __rlshift__(self, other: Any) -> Any: return arithmetic("shl", other, self)
    def __rshift__(self, other: Any) -> Any: return arithmetic("shr", self, other)
    def __rrshift__(self, other: Any) -> Any: return arithmetic("shr", other, self)
    def __lt__(self, other: Any) -> Any: return arithmetic("lt", self, other)
    def __le__(self, other: Any) -> Any: return arithmetic("le", self, other)
    def __gt__(self, other: Any) -> Any: return arithmetic("gt", self, other)
    def __ge__(self, other: Any) -> Any: return arithmetic("ge", self, other)
    def __eq__(self, other: Any) -> Any: return arithmetic("eq", self, other)
    def __ne__(self, other: Any) -> Any: return arithmetic("ne", self, other)
    def __neg__(self) -> Any: return unary("neg", self)
    def __abs__(self) -> Any: return unary("abs", self)
    def __invert__(self) -> Any: return unary("not", self)
    # fmt: on
    def __pos__(self) -> Any:
        return wrap(read(self))

    __hash__ = object.__hash__

    # -- what a number of the running kernel can't be asked while it is traced

    def __bool__(self) -> NoReturn:
        frame = source.user_frame()
        tree = source.source_of(frame.f_code)
        construct = source.truth_test(tree, source.span_of(frame)) if tree else ""
        asks = construct and (f": {construct} asks for it" if " " in construct else f": `{construct}` asks for it")
        fix = _TRUTH_FIXES.get(construct, "choose with tc.where, run statements under tc.when, or make it a tc.Const")
        raise TilecError(f"{self._noun()} has no truth value while the kernel is traced{asks}", fix=fix)

    def __index__(self) -> NoReturn:
        raise TilecError(
            f"{self._noun()} can't be used as a Python integer",
            fix="loop with tc.range; make it a tc.Const where the number must be known at compile time",
        )

    def _no_python_number(self) -> NoReturn:
        raise TilecError(
            f"{self._noun()} can't become a Python number", fix="use tilec's functions (tc.exp, tc.sqrt, ...) on it"
        )

    def __int__(self) -> NoReturn:
        self._no_python_number()

    def __float__(self) -> NoReturn:
        self._no_python_number()

    def __iter__(self) -> NoReturn:
        raise TilecError(f"{self._noun()} can't be taken apart into Python objects",
                         fix="functions on tiles work on all elements at once; tc.range loops over tiles")

    def _noun(self) -> str:
        name = f" `{self._cell.name}`" if self._cell.name else ""
        return f"the run-time {'tile' if isinstance(self, Tile) else 'scalar'}{name} ({self._describe()})"

    def _describe(self) -> str:
        return f"{self.dtype}{list(self.shape) if self.shape else ''}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({' '.join(filter(None, (self._cell.name, self._describe())))})"


_TRUTH_FIXES = {
    "if": "tc.where(c, a, b) chooses values, `with tc.when(c):` runs statements, a tc.Const decides at compile time",
    "while": "loop with tc.range and choose with tc.where",
    "and": "a & b",
    "or": "a | b",
    "not": "~a",
    "max": "tc.maximum(a, b)",
    "min": "tc.minimum(a, b)",
    "a chained comparison": "write (a <= b) & (b < c)",
}


class Scalar(Number):
    """One number, the same for the whole workgroup."""

    __slots__ = ()


class Tile(Number):
    """A tile of numbers, distributed over the workgroup's registers."""

    __slots__ = ()

    @property
    def T(self) -> Tile:
        """The tile with its axes reversed."""
        return self.permute(*reversed(builtin_range(len(self.shape))))

    def permute(self, *axes: int) -> Tile:
        """Axis i of the result is axis `axes[i]` of this tile."""
        if sorted(axes) != list(builtin_range(len(self.shape))):
            raise TilecError(
                f"permute({', '.join(map(str, axes))}) of a tile of rank {len(self.shape)}", fix="name each axis once"
            )
        shape = tuple(self.shape[a] for a in axes)
        return Tile(
            current().emit(Permute, TileType(shape, self.dtype), named=True, source=read(self), axes=tuple(axes))
        )

    def sum(self, axis: int | None = None, keepdims: bool = False) -> Any:
        """Adds up along an axis (None: along all). Integers below 32 bits and bool are added as i32 or u32."""
        element = self.dtype
        if element.bits < 32 and not element.is_float:
            return self.to(dtypes.u32 if element.kind == "uint" else dtypes.i32)._reduce("sum", axis, keepdims)
        return self._reduce("sum", axis, keepdims)

    def max(self, axis: int | None = None, keepdims: bool = False) -> Any:
        """The largest along an axis (None: of all). NaN is ignored where there is a number."""
        return self._reduce("max", axis, keepdims)

    def min(self, axis: int | None = None, keepdims: bool = False) -> Any:
        """The smallest along an axis (None: of all). NaN is ignored where there is a number."""
        return self._reduce("min", axis, keepdims)

    def _reduce(self, kind: str, axis: int | None, keepdims: bool) -> Any:
        if axis is None:
            axes = list(reversed(builtin_range(len(self.shape))))
        else:
            axes = [normalise_axis(axis, len(self.shape))]
        tracer, value, kept = current(), read(self), self.shape
        for place, a in enumerate(axes):
            kept = kept[:a] + kept[a + 1 :]
            last = place == len(axes) - 1 and not keepdims
            type = TileType(kept, self.dtype) if kept else ScalarType(self.dtype)
            value = tracer.emit(Reduce, type, named=last, source=value, axis=a, kind=kind)
        if keepdims:
            full = tuple(1 if d in axes else n for d, n in enumerate(self.shape))
            if isinstance(value.type, ScalarType):
                value = tracer.emit(Broadcast, TileType(full, self.dtype), named=True, source=value)
            else:
                value = tracer.emit(ExpandDims, TileType(full, self.dtype), named=True, source=value, axis=axes[0])
        return wrap(value)

    def __getitem__(self, items: Any) -> Tile:
        """Only `:` and None: `x[:, None]` inserts an axis of size 1."""
        items = items if isinstance(items, tuple) else (items,)
        if not all(item is None or is_whole(item) for item in items) or sum(i is not None for i in items) != len(
            self.shape
        ):
            raise TilecError(
                f"a tile of rank {len(self.shape)} can be indexed only with one `:` for each and None for new axes",
                fix="load another tile, or choose elements with tc.where on tc.iota",
            )
        tracer, value, shape = current(), read(self), list(self.shape)
        for axis, item in enumerate(items):
            if item is None:
                shape.insert(axis, 1)
                value = tracer.emit(
                    ExpandDims,
                    tracer.tile_type(shape, self.dtype),
                    named=None not in items[axis + 1 :],
                    source=value,
                    axis=axis,
                )
        return Tile(value)

    def __setitem__(self, items: Any, value: Any) -> NoReturn:
        raise TilecError("the elements of a tile can't be assigned", fix="make a new tile with tc.where")


builtin_range = range  # `lang` exports a `range` of its own; modules here say which one they mean


# -- cells to values ---------------------------------------------------------------------------------------------------


def wrap(value: Value) -> Any:
    return Tile(value) if isinstance(value.type, TileType) else Scalar(value)


def read(number: Number) -> Value:
    return current().read(number._cell)


def python_number(item: Any) -> PythonNumber | None:
    """A Python or numpy number as a Python number; None for anything else."""
    if isinstance(item, (bool, int, float)):
        return item
    if isinstance(item, (np.bool_, np.integer, np.floating)):
        return item.item()
    return None


def operand_of(item: Any, function: str) -> Number | PythonNumber:
    """An operand of an operation: a Number or a Python number."""
    if isinstance(item, Number):
        return item
    if (number := python_number(item)) is None:
        hint = (
            "load a tile of it first: x = A.tiles(...)[...]"
            if hasattr(item, "tiles") or hasattr(item, "__array__")
            else ""
        )
        raise TilecError(
            f"{function} of {_noun_of(item)}", limit="operands are tiles, run-time scalars and Python numbers", fix=hint
        )
    return number


def _noun_of(item: Any) -> str:
    return repr(item) if item is None or isinstance(item, (str, tuple)) else f"a {type(item).__name__}"


def is_whole(item: Any) -> bool:
    """Whether an index is a bare `:`."""
    return isinstance(item, slice) and item.start is None and item.stop is None and item.step is None


def normalise_axis(axis: int, rank: int) -> int:
    if not isinstance(axis, int) or not -rank <= axis < rank:
        raise TilecError(f"axis {axis} of a tile of rank {rank}", limit=f"axes are 0 to {rank - 1}, or -{rank} to -1")
    return axis % rank


# -- types and shapes --------------------------------------------------------------------------------------------------


def cast(tracer: Tracer, value: Value, element: DType, saturate: bool = False, named: bool = False) -> Value:
    type = value.type
    assert isinstance(type, (ScalarType, TileType))
    if type.dtype == element:
        return value
    new = TileType(type.shape, element) if isinstance(type, TileType) else ScalarType(element)
    return tracer.emit(Cast, new, named=named, source=value, saturate=saturate)


def broadcast(tracer: Tracer, value: Value, shape: tuple[int, ...], named: bool = False) -> Value:
    """A scalar or tile repeated to a shape that it fits (`joint_shape` has said so)."""
    type = value.type
    assert isinstance(type, (ScalarType, TileType))
    own = type.shape if isinstance(type, TileType) else ()
    if own == shape:
        return value
    full = tracer.tile_type(shape, type.dtype)
    if not own:
        return tracer.emit(Broadcast, full, named=named, source=value)
    while len(own) < len(shape):
        own = (1, *own)
        value = tracer.emit(ExpandDims, TileType(own, type.dtype), named=named and own == shape, source=value, axis=0)
    return value if own == shape else tracer.emit(Broadcast, full, named=named, source=value)


def joint_shape(shapes: list[tuple[int, ...]], function: str) -> tuple[int, ...]:
    """numpy's broadcasting rule, told in tilec's words where it fails."""
    rank = max(map(len, shapes))
    result = []
    for axis in builtin_range(-rank, 0):
        sizes = {shape[axis] for shape in shapes if len(shape) >= -axis} - {1}
        if len(sizes) > 1:
            listed = " and ".join(str(list(shape)) for shape in shapes if shape)
            raise TilecError(
                f"{function}: shapes {listed} do not fit together",
                limit=f"axis {axis} is {' against '.join(str(s) for s in sorted(sizes))}; sizes must be equal, or 1",
                fix="insert axes with [:, None] or [None, :], or load tiles of equal size",
            )
        result.append(sizes.pop() if sizes else 1)
    return tuple(result)


def materialise(tracer: Tracer, item: Number | PythonNumber, element: DType, shape: tuple[int, ...]) -> Value:
    """An operand as a value of the given element type and shape."""
    if isinstance(item, Number):
        return broadcast(tracer, cast(tracer, read(item), element), shape)
    return tracer.constant(item, tracer.tile_type(shape, element) if shape else ScalarType(element))


# -- operations --------------------------------------------------------------------------------------------------------

_COMPARISONS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
_INTEGER_ONLY = {"floordiv": "//", "mod": "%", "shl": "<<", "shr": ">>"}
_BITWISE = {"and": "&", "or": "|", "xor": "^"}
_SYMBOLS = (
    {"add": "+", "sub": "-", "mul": "*", "div": "/", "neg": "-", "not": "~"} | _COMPARISONS | _INTEGER_ONLY | _BITWISE
)
_FLOAT_ONLY = frozenset(
    {"div", "exp2", "exp", "log2", "log", "sqrt", "rsqrt", "reciprocal", "sin", "cos", "floor", "ceil"}
)
_NUMBERS_ONLY = frozenset(
    {"add", "sub", "mul", "neg", "abs", "fma", "minimum", "maximum", *_COMPARISONS}
)  # bool counts as i32


def arithmetic(function: str, *items: Any) -> Any:
    """An elementwise operation on operands of a common type and shape."""
    symbol = _SYMBOLS.get(function, function)
    operands = [operand_of(item, symbol) for item in items]
    tracer = current()
    element = common_type(operands)
    _check_type(function, symbol, element)
    if element.kind == "bool" and function in _NUMBERS_ONLY:
        element = dtypes.i32
    shape = joint_shape([o.shape if isinstance(o, Number) else () for o in operands], symbol)
    arguments = tuple(materialise(tracer, o, element, shape) for o in operands)
    result = dtypes.bool_ if function in _COMPARISONS else element
    return wrap(tracer.emit(Elementwise, _like(shape, result), named=True, arguments=arguments, function=function))


def unary(function: str, item: Any) -> Any:
    return arithmetic(function, item)


def choose(condition: Any, left: Any, right: Any, rare: bool = False) -> Any:
    """`where`: the elements of `left` where the condition holds, else those of `right`."""
    tracer = current()
    flag = operand_of(condition, "where")
    if (flag.dtype.kind != "bool") if isinstance(flag, Number) else not isinstance(flag, bool):
        raise TilecError(
            f"where: the condition is {flag.dtype.name if isinstance(flag, Number) else repr(flag)}, not bool",
            fix="compare it: x != 0",
        )
    data = [operand_of(item, "where") for item in (left, right)]
    element = common_type(data)
    shape = joint_shape([o.shape if isinstance(o, Number) else () for o in (flag, *data)], "where")
    arguments = (
        materialise(tracer, flag, dtypes.bool_, shape),
        *(materialise(tracer, o, element, shape) for o in data),
    )
    like = _like(shape, element)
    return wrap(
        tracer.emit(Elementwise, like, named=True, arguments=arguments, function="where", rare=rare and bool(shape))
    )


def common_type(operands: list[Number | PythonNumber]) -> DType:
    """The one type that all operands are brought to; Python numbers are weak against typed operands."""
    typed = [o.dtype for o in operands if isinstance(o, Number)]
    weak = [o for o in operands if not isinstance(o, Number)]
    result: DType | PythonNumber = typed[0] if typed else weak.pop()
    for other in typed[1:] + weak:
        result = dtypes.promote(result, other)
    return result if isinstance(result, DType) else dtypes.default_of(result)


def _like(shape: tuple[int, ...], element: DType) -> ScalarType | TileType:
    return TileType(shape, element) if shape else ScalarType(element)


def _check_type(function: str, symbol: str, element: DType) -> None:
    if element.is_float and element.bits < 16:
        raise TilecError(
            f"{symbol} of {element}", limit=f"{element} is for storage and dot only", fix="cast it first: x.to(tc.f32)"
        )
    if function in _FLOAT_ONLY and not element.is_float:
        fix = (
            "// for floor division, or cast first: x.to(tc.f32)" if function == "div" else "cast it first: x.to(tc.f32)"
        )
        raise TilecError(f"{symbol} of {element}", limit=f"{symbol} takes floats", fix=fix)
    if function in _INTEGER_ONLY and not element.is_integer:
        fix = "tc.floor(a / b)" if function == "floordiv" and element.is_float else "cast it first: x.to(tc.i32)"
        raise TilecError(f"{symbol} of {element}", limit=f"{symbol} takes integers", fix=fix)
    if (function in _BITWISE or function == "not") and element.is_float:
        raise TilecError(
            f"{symbol} of {element}", limit=f"{symbol} takes integers and bool", fix="combine comparisons, not numbers"
        )
