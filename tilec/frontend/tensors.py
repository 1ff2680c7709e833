"""Tensors of a kernel while it is traced: views, arrays of tiles, access by element.

`A.tiles(BM, BN)` is an array of tiles: indexing loads a tile, assignment stores one; nothing outside the tensor is ever
touched. `A[lo:hi]`, `A[b]` and `A.T` are views, tensors in their own right, whose offsets and extents may be run-time
scalars. Constant indices and bounds follow Python (negative ones count from the end); run-time bounds are clamped to
the tensor, a run-time index outside it gives an empty view. Element access takes index tiles (`gather`, `scatter`,
`atomic_add`) or scalars (`A.at[i, j]`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NoReturn

from tilec import dtypes
from tilec.dtypes import DType
from tilec.errors import TilecError
from tilec.frontend.tracer import Tracer, current
from tilec.frontend.values import (
    Number,
    PythonNumber,
    Scalar,
    Tile,
    broadcast,
    builtin_range,
    cast,
    is_whole,
    joint_shape,
    materialise,
    operand_of,
    python_number,
    read,
)
from tilec.ir.core import ScalarType, TensorType, Value
from tilec.ir.tile import (
    AtomicAdd,
    Elementwise,
    Gather,
    Load,
    LoadScalar,
    Scatter,
    Store,
    View,
)

I32 = ScalarType(dtypes.i32)
ATOMIC_TYPES = (dtypes.f32, dtypes.f64, dtypes.i32, dtypes.u32, dtypes.i64, dtypes.u64)


class Tensor:
    """A tensor argument of a kernel, or a view of one. `shape` holds run-time scalars; `dtype` is known."""

    __slots__ = ("_cell", "_extents")

    def __init__(self, value: Value, extents: tuple[Value, ...]):
        self._cell, self._extents = value, extents

    @property
    def shape(self) -> tuple[Scalar, ...]:
        return tuple(
            Scalar(extent) for extent in self._extents
        )  # new cells: two names never share one behind the user's back

    @property
    def _type(self) -> TensorType:
        assert isinstance(self._cell.type, TensorType)
        return self._cell.type

    @property
    def dtype(self) -> DType:
        return self._type.dtype

    @property
    def T(self) -> Tensor:
        """The view with its axes reversed."""
        return self.permute(*reversed(builtin_range(len(self.shape))))

    def permute(self, *axes: int) -> Tensor:
        """A view whose axis i is axis `axes[i]` of this tensor."""
        if sorted(axes) != list(builtin_range(len(self.shape))):
            raise TilecError(
                f"permute({', '.join(map(str, axes))}) of a tensor of rank {len(self.shape)}", fix="name each axis once"
            )
        zero = current().index(0)
        return self._view([(zero, n) for n in self._read_extents()], tuple(axes), aligned=[True] * len(axes))

    def tiles(self, *shape: int, fill: PythonNumber = 0) -> Tiles:
        """The tensor as an array of tiles of this shape, one size per axis; the last tile of an axis may hang over the
        edge, where loads give `fill` and stores write nothing."""
        if len(shape) == 1 and isinstance(shape[0], (tuple, list)):
            shape = tuple(shape[0])
        return Tiles(self, tile_shape(shape, len(self.shape), "tiles"), self._fill(fill))

    def gather(self, *indices: Any, fill: PythonNumber = 0) -> Tile:
        """A tile of single elements: one index tile (or scalar) per axis, broadcast together; `fill` outside the
        tensor."""
        tracer = current()
        values, shape = self._indices(tracer, indices, (), "gather")
        constant = self._fill_value(tracer, self._fill(fill))
        return Tile(
            tracer.emit(
                Gather,
                tracer.tile_type(shape, self.dtype),
                named=True,
                tensor=self._read(),
                indices=values,
                fill=constant,
            )
        )

    def scatter(self, *indices: Any, value: Any) -> None:
        """Writes single elements; what lies outside the tensor is dropped. Where two name one place, either may
        stay."""
        self._write_elements(Scatter, "scatter", indices, value)

    def atomic_add(self, *indices: Any, value: Any) -> None:
        """Adds to single elements atomically (device scope, relaxed); what lies outside the tensor is dropped."""
        if self.dtype not in ATOMIC_TYPES:
            raise TilecError(
                f"atomic_add to a tensor of {self.dtype}",
                limit=f"atomics add {', '.join(t.name for t in ATOMIC_TYPES)}",
                fix="keep the sums in an f32 tensor",
            )
        self._write_elements(AtomicAdd, "atomic_add", indices, value)

    def _write_elements(self, op: type, word: str, indices: tuple[Any, ...], value: Any) -> None:
        tracer = current()
        item = storable(value, self.dtype, word)
        shape = item.shape if isinstance(item, Number) else ()
        values, full = self._indices(tracer, indices, shape, word)
        tracer.effect(op, tensor=self._read(), indices=values, value=materialise(tracer, item, self.dtype, full))

    @property
    def at(self) -> Elements:
        """`A.at[i, j]` is one element, a run-time scalar; 0 outside the tensor."""
        return Elements(self)

    def __getitem__(self, items: Any) -> Tensor:
        items = list(items) if isinstance(items, tuple) else [items]
        rank = len(self.shape)
        if (dots := next((i for i, item in enumerate(items) if item is Ellipsis), None)) is not None:
            items[dots : dots + 1] = [slice(None)] * (rank - len(items) + 1)
        if len(items) > rank:
            raise TilecError(f"{len(items)} indices for a tensor of rank {rank}")
        items += [slice(None)] * (rank - len(items))
        tracer = current()
        windows, kept, aligned = [], [], []
        for axis, (item, extent) in enumerate(zip(items, self._read_extents())):
            if isinstance(item, slice):
                window, steady = _window(tracer, item, extent, self._type, axis)
                kept.append(axis)
            else:
                constant = python_number(item)
                index = _from_end(tracer, item, extent)
                window, steady = (
                    (index, tracer.index(1)),
                    axis != self._type.contiguous or _keeps_alignment(constant, self._type),
                )
            windows.append(window)
            aligned.append(steady)
        if not kept:
            raise TilecError("an index for every axis leaves no tensor", fix="read the element: A.at[i, j]")
        return self._view(windows, tuple(kept), aligned)

    def _view(self, windows: list[tuple[Value, Value]], axes: tuple[int, ...], aligned: list[bool]) -> Tensor:
        """The view of the given (offset, extent) per axis that keeps `axes`. `aligned[d]`: the offset along axis d
        leaves the base address as far aligned as it was."""
        own = self._type
        contiguous = axes.index(own.contiguous) if own.contiguous in axes else None
        alignment = own.alignment if all(aligned) else element_bytes(own.dtype)
        type = TensorType(own.dtype, len(axes), contiguous, alignment, own.wide, own.far)
        value = current().emit(
            View,
            type,
            named=True,
            tensor=self._read(),
            offsets=tuple(w[0] for w in windows),
            extents=tuple(w[1] for w in windows),
            axes=axes,
        )
        return Tensor(value, tuple(windows[a][1] for a in axes))

    def _read(self) -> Value:
        return current().read(self._cell)

    def _read_extents(self) -> list[Value]:
        return [current().read(extent) for extent in self._extents]

    def _fill(self, fill: Any) -> PythonNumber:
        if (number := python_number(fill)) is None:
            raise TilecError("fill must be a Python number", fix="use tc.where for a run-time value")
        return number

    def _fill_value(self, tracer: Tracer, fill: PythonNumber) -> Value | None:
        return None if fill == 0 else tracer.constant(fill, ScalarType(self.dtype))

    def _indices(
        self, tracer: Tracer, indices: tuple[Any, ...], shape: tuple[int, ...], word: str
    ) -> tuple[tuple[Value, ...], tuple[int, ...]]:
        """Index tiles as i32 tiles of one shape, which `shape` joins too; all scalars make a tile of one element."""
        if len(indices) == 1 and isinstance(indices[0], tuple):
            indices = indices[0]
        if len(indices) != len(self.shape):
            raise TilecError(
                f"{word} with {len(indices)} indices into a tensor of rank {len(self.shape)}",
                fix="give one index per axis",
            )
        items = [operand_of(i, word) for i in indices]
        full = joint_shape([shape, *(i.shape if isinstance(i, Number) else () for i in items)], word) or (1,)
        return tuple(broadcast(tracer, index_value(tracer, i), full) for i in items), full

    def __setitem__(self, items: Any, value: Any) -> NoReturn:
        raise TilecError(
            "a tensor is written by tiles or by elements",
            fix="A.tiles(...)[i, j] = tile, or A.scatter(rows, columns, value=tile)",
        )

    def __iter__(self) -> NoReturn:
        raise TilecError("a tensor can't be iterated", fix="for i in tc.range(A.shape[0]): A[i] ...")

    def __repr__(self) -> str:
        return f"Tensor({self._cell.name} {self.dtype} of rank {len(self._extents)})"


@dataclass(frozen=True)
class Elements:
    """`A.at`: single elements of a tensor."""

    tensor: Tensor

    def __getitem__(self, items: Any) -> Scalar:
        items = items if isinstance(items, tuple) else (items,)
        tensor, tracer = self.tensor, current()
        if len(items) != len(tensor.shape):
            raise TilecError(
                f"{len(items)} indices for an element of a tensor of rank {len(tensor.shape)}",
                fix="give one index per axis",
            )
        if any(isinstance(item, (Tile, slice)) for item in items):
            raise TilecError(
                "at[...] reads one element by scalar indices", fix="A.gather(rows, columns) reads a tile of elements"
            )
        indices = tuple(_from_end(tracer, item, n) for item, n in zip(items, tensor._read_extents()))
        return Scalar(
            tracer.emit(LoadScalar, ScalarType(tensor.dtype), named=True, tensor=tensor._read(), indices=indices)
        )

    def __setitem__(self, items: Any, value: Any) -> NoReturn:
        raise TilecError("at[...] only reads", fix="A.scatter(i, j, value=x) writes single elements")


class Tiles:
    """A tensor cut into tiles. `grid` is the number of tiles along each axis, as run-time scalars."""

    __slots__ = ("tensor", "shape", "fill")

    def __init__(self, tensor: Tensor, shape: tuple[int, ...], fill: PythonNumber):
        current().tile_type(shape, tensor.dtype)
        self.tensor, self.shape, self.fill = tensor, shape, fill

    @property
    def dtype(self) -> DType:
        return self.tensor.dtype

    @property
    def grid(self) -> tuple[Scalar, ...]:
        """Tiles along each axis: ceil(extent / size)."""
        return tuple(
            Scalar(ceiling_divide(current(), n, size)) for n, size in zip(self.tensor._read_extents(), self.shape)
        )

    def __getitem__(self, items: Any) -> Tile:
        return self.load(*(items if isinstance(items, tuple) else (items,)))

    def __setitem__(self, items: Any, value: Any) -> None:
        self.store(*(items if isinstance(items, tuple) else (items,)), value=value)

    def load(self, *indices: Any, fill: PythonNumber | None = None) -> Tile:
        """The tile at these tile indices; elements outside the tensor are `fill` (default: that of `tiles`)."""
        tracer = current()
        values = self._indices(tracer, indices)
        constant = self.tensor._fill_value(tracer, self.fill if fill is None else self.tensor._fill(fill))
        type = tracer.tile_type(self.shape, self.dtype)
        return Tile(tracer.emit(Load, type, named=True, tensor=self.tensor._read(), indices=values, fill=constant))

    def store(self, *indices: Any, value: Any) -> None:
        """Writes a tile at these tile indices; elements outside the tensor are dropped."""
        tracer = current()
        item = storable(value, self.dtype, "a store")
        shape = item.shape if isinstance(item, Number) else ()
        if joint_shape([self.shape, shape], "a store") != self.shape:
            raise TilecError(
                f"a tile of {list(shape)} stored where tiles are {list(self.shape)}",
                fix="cut the tensor into tiles of the value's shape",
            )
        tracer.effect(
            Store,
            tensor=self.tensor._read(),
            indices=self._indices(tracer, indices),
            value=materialise(tracer, item, self.dtype, self.shape),
        )

    def _indices(self, tracer: Tracer, items: tuple[Any, ...]) -> tuple[Value, ...]:
        if len(items) != len(self.shape):
            raise TilecError(
                f"{len(items)} tile indices for tiles of rank {len(self.shape)}", fix="give one tile index per axis"
            )
        if any(isinstance(item, slice) or item is None or item is Ellipsis for item in items):
            raise TilecError(
                "tile indices are scalars, not slices",
                fix="slice the tensor before cutting it into tiles: A[lo:hi].tiles(...)",
            )
        if any(isinstance(item, Tile) for item in items):
            raise TilecError("a tile index is a scalar, not a tile", fix="A.gather(rows, columns) reads by index tiles")
        return tuple(
            _from_end(tracer, item, n, size) for item, n, size in zip(items, self.tensor._read_extents(), self.shape)
        )

    def __iter__(self) -> NoReturn:
        raise TilecError("an array of tiles can't be iterated", fix="for i in tc.range(At.grid[0]): At[i, ...] ...")

    def __repr__(self) -> str:
        return f"Tiles({self.tensor._cell.name} {self.dtype}{list(self.shape)})"


# -- shapes, indices, windows ------------------------------------------------------------------------------------------


def tile_shape(sizes: tuple[Any, ...], rank: int | None, word: str) -> tuple[int, ...]:
    """Tile sizes as Python integers from 1 up."""
    if rank is not None and len(sizes) != rank:
        raise TilecError(f"{word} with {len(sizes)} sizes for a tensor of rank {rank}", fix="give one size per axis")
    for size in sizes:
        if isinstance(size, Number):
            raise TilecError(
                "tile sizes must be known when the kernel is compiled", fix="declare the size as a tc.Const argument"
            )
        if isinstance(size, bool) or not isinstance(python_number(size), int) or size < 1:
            raise TilecError(f"{word}: {size!r} is no tile size", limit="sizes are integers from 1 up")
    return tuple(int(size) for size in sizes)


def storable(value: Any, element: DType, word: str) -> Number | PythonNumber:
    """A value that may be written to a tensor: a Python number, or a Number of the tensor's own type."""
    item = operand_of(value, word)
    if isinstance(item, Number) and item.dtype != element:
        raise TilecError(f"{word} of {item.dtype} to a tensor of {element}", fix=f"cast it: .to(tc.{element})")
    return item


def index_value(tracer: Tracer, item: Number | PythonNumber) -> Value:
    """An index as i32. Wider integers are clamped, so that what was outside every tensor stays outside."""
    if not isinstance(item, Number):
        if not isinstance(item, int) or isinstance(item, bool):
            raise TilecError(f"{item!r} is no index", limit="indices are integers")
        return tracer.index(item)
    if not item.dtype.is_integer:
        raise TilecError(f"an index of {item.dtype}", limit="indices are integers", fix="cast it: .to(tc.i32)")
    value, high = read(item), dtypes.i32.limits[1]
    type = item._type
    if item.dtype.limits[1] > high:
        value = integer(tracer, "minimum", value, tracer.constant(int(high), type))
    if item.dtype.limits[0] < dtypes.i32.limits[0]:
        value = integer(tracer, "maximum", value, tracer.constant(-1, type))
    return cast(tracer, value, dtypes.i32)


def scalar_index(tracer: Tracer, item: Any) -> Value:
    if isinstance(item, Tile):
        raise TilecError("a tile where a scalar index belongs", fix="A.gather(rows, columns) reads by index tiles")
    return index_value(tracer, operand_of(item, "an index"))


def integer(tracer: Tracer, function: str, left: Value, right: Value, named: bool = False) -> Value:
    """Index arithmetic: an elementwise function of two values of one type."""
    return tracer.emit(Elementwise, left.type, named=named, arguments=(left, right), function=function)


def ceiling_divide(tracer: Tracer, extent: Value, size: int) -> Value:
    """ceil(extent / size) for extent >= 0, without overflow: floor((extent - 1) / size) + 1."""
    if size == 1:
        return extent
    less = integer(tracer, "sub", extent, tracer.index(1))
    whole = integer(tracer, "floordiv", less, tracer.index(size))
    return integer(tracer, "add", whole, tracer.index(1), named=True)


def _from_end(tracer: Tracer, item: Any, extent: Value, size: int = 1) -> Value:
    """An index, where a negative constant counts from the end (of the tiles of `size`)."""
    constant = python_number(item)
    if isinstance(constant, int) and not isinstance(constant, bool) and constant < 0:
        return integer(tracer, "add", ceiling_divide(tracer, extent, size), tracer.index(constant))
    return scalar_index(tracer, item)


def _window(
    tracer: Tracer, item: slice, extent: Value, type: TensorType, axis: int
) -> tuple[tuple[Value, Value], bool]:
    """A slice as ((offset, extent), whether the offset keeps the base aligned), clamped to the tensor."""
    if item.step is not None and python_number(item.step) != 1:
        raise TilecError(
            "a slice with a step", limit="views are contiguous windows", fix="use gather with tc.iota(n) * step"
        )
    if is_whole(item):
        return (tracer.index(0), extent), True

    def clamped(bound: Any) -> Value:
        value = _from_end(tracer, bound, extent)
        if not (isinstance(bound, int) and bound >= 0):
            value = integer(tracer, "maximum", value, tracer.index(0))
        return integer(tracer, "minimum", value, extent)

    start = tracer.index(0) if item.start is None else clamped(item.start)
    stop = extent if item.stop is None else clamped(item.stop)
    length = stop
    if item.start is not None:
        length = integer(tracer, "sub", stop, start)
        length = integer(tracer, "maximum", length, tracer.index(0))
    constant = 0 if item.start is None else python_number(item.start)
    return (start, length), axis != type.contiguous or _keeps_alignment(constant, type)


def _keeps_alignment(offset: PythonNumber | None, type: TensorType) -> bool:
    """Whether a constant offset along the contiguous axis keeps the base address aligned. Where it is clamped, the view
    is empty and its base is never used."""
    return (
        isinstance(offset, int)
        and offset >= 0
        and math.gcd(offset * element_bytes(type.dtype), type.alignment) == type.alignment
    )


def element_bytes(element: DType) -> int:
    return max(1, element.bits // 8)
