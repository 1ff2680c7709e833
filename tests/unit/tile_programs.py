"""A short way to write tile programs in tests: one method per op, types worked out from the operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilec.dtypes import DType, bf16, bool_, dtype, f32, i32
from tilec.ir import tile
from tilec.ir.core import Block, Builder, Op, Program, ScalarType, TensorType, TileType, Type, Value


def like(type_: Type, element: DType) -> Type:
    return TileType(type_.shape, element) if isinstance(type_, TileType) else ScalarType(element)


class Kernel:
    """Collects params and ops; `where` is put on every op added."""

    def __init__(self, name: str) -> None:
        self.name, self.params, self.builder, self.grid, self.where = name, [], Builder(), (), None

    @staticmethod
    def dtype_of(array: np.ndarray) -> DType:
        return dtype(array.dtype)

    def program(self, **more: Any) -> Program:
        return Program(self.name, tuple(self.params), self.builder.block(), self.grid, **more)

    def tensor(self, name: str, element: DType, rank: int, **more: Any) -> Value:
        self.params.append(Value(TensorType(element, rank, **more), name))
        return self.params[-1]

    def scalar_parameter(self, name: str, element: DType) -> Value:
        self.params.append(Value(ScalarType(element), name))
        return self.params[-1]

    def emit(self, op: Op) -> Any:
        return self.builder.emit(op.replace(where=self.where))

    def make(self, op_class: type[Op], *fields: Any, type: Type, name: str = "", **more: Any) -> Value:
        return self.emit(op_class(*fields, **more, results=(Value(type, name),)))

    def number(self, value: Any, element: DType = i32) -> Value:
        return self.make(tile.Constant, value, type=ScalarType(element))

    def constant(self, value: Any, shape: tuple[int, ...], element: DType = i32, name: str = "") -> Value:
        return self.make(tile.Constant, value, type=TileType(shape, element), name=name)

    def iota(self, shape: tuple[int, ...], axis: int) -> Value:
        return self.make(tile.Iota, axis, type=TileType(shape, i32))

    def program_id(self, *grid: Value) -> Any:
        self.grid = grid
        ids = [self.make(tile.ProgramId, axis, type=ScalarType(i32), name="pid") for axis in range(len(grid))]
        return ids[0] if len(ids) == 1 else ids

    def dim(self, tensor: Value, axis: int) -> Value:
        return self.make(tile.Dim, tensor, axis, type=ScalarType(i32))

    def view(self, tensor: Value, offsets: list[Value], extents: list[Value], axes: tuple[int, ...]) -> Value:
        kind = TensorType(tensor.dtype, len(axes), alignment=tensor.dtype.bits // 8)
        return self.make(tile.View, tensor, tuple(offsets), tuple(extents), axes, type=kind)

    def map(self, function: str, *arguments: Value, name: str = "") -> Value:
        result = arguments[-1].type
        if tile.ELEMENTWISE[function][1] == "bool":
            result = like(result, bool_)
        return self.make(tile.Elementwise, arguments, function, type=result, name=name)

    def cast(self, source: Value, element: DType, saturate: bool = False) -> Value:
        return self.make(tile.Cast, source, saturate, type=like(source.type, element))

    def broadcast(self, source: Value, shape: tuple[int, ...]) -> Value:
        return self.make(tile.Broadcast, source, type=TileType(shape, source.dtype))

    def expand_dims(self, source: Value, axis: int) -> Value:
        shape = source.shape
        result = TileType((*shape[:axis], 1, *shape[axis:]), source.dtype)
        return self.make(tile.ExpandDims, source, axis, type=result)

    def permute(self, source: Value, axes: tuple[int, ...]) -> Value:
        shape = tuple(source.shape[a] for a in axes)
        return self.make(tile.Permute, source, axes, type=TileType(shape, source.dtype))

    def reduce(self, kind: str, source: Value, axis: int) -> Value:
        shape = source.shape[:axis] + source.shape[axis + 1:]
        result = TileType(shape, source.dtype) if shape else ScalarType(source.dtype)
        return self.make(tile.Reduce, source, axis, kind, type=result)

    def dot(self, a: Value, b: Value, accumulator: Value, name: str = "", **more: Any) -> Value:
        return self.make(tile.Dot, a, b, accumulator, type=accumulator.type, name=name, **more)

    def load(self, tensor: Value, indices: list[Value], shape: tuple[int, ...], fill: Value | None = None,
             name: str = "", inside: tuple[bool, ...] = ()) -> Value:
        result = TileType(shape, tensor.dtype)
        return self.make(tile.Load, tensor, tuple(indices), fill, inside, type=result, name=name)

    def store(self, tensor: Value, indices: list[Value], value: Value) -> None:
        self.emit(tile.Store(tensor, tuple(indices), value))

    def load_scalar(self, tensor: Value, indices: list[Value]) -> Value:
        return self.make(tile.LoadScalar, tensor, tuple(indices), type=ScalarType(tensor.dtype))

    def gather(self, tensor: Value, indices: list[Value], fill: Value | None = None) -> Value:
        return self.make(tile.Gather, tensor, tuple(indices), fill, type=like(indices[0].type, tensor.dtype))

    def scatter(self, tensor: Value, indices: list[Value], value: Value) -> None:
        self.emit(tile.Scatter(tensor, tuple(indices), value))

    def atomic_add(self, tensor: Value, indices: list[Value], value: Value) -> None:
        self.emit(tile.AtomicAdd(tensor, tuple(indices), value))

    def block(self, params: list[Value], build: Callable[..., Any]) -> Block:
        """The ops that `build` adds and the values that it returns (None: none)."""
        outer, self.builder = self.builder, Builder()
        yields = build(*params)
        block = self.builder.block(params, yields or ())
        self.builder = outer
        return block

    def loop(self, lower: Value, upper: Value, step: Value, inits: list[Value], build: Callable[..., Any],
             counter: str = "k") -> tuple[Value, ...]:
        params = [Value(ScalarType(i32), counter), *(i.like() for i in inits)]
        results = tuple(i.like() for i in inits)
        self.emit(tile.For(lower, upper, step, tuple(inits), self.block(params, build), results=results))
        return results

    def branch(self, condition: Value, then: Callable[[], Any], otherwise: Callable[[], Any]) -> tuple[Value, ...]:
        blocks = self.block([], then), self.block([], otherwise)
        results = tuple(v.like() for v in blocks[0].yields)
        self.emit(tile.If(condition, *blocks, results=results))
        return results

    def tiles_along(self, tensor: Value, axis: int, block: int) -> Value:
        """cdiv(extent, block)."""
        return self.map("floordiv", self.map("add", self.dim(tensor, axis), self.number(block - 1)), self.number(block))


def gemm(m: int, n: int, k: int, element: DType = bf16) -> Program:
    """C = A B^T in tiles: A is M x K, B is N x K, C is M x N (f32)."""
    kernel = Kernel("gemm")
    a, b = (kernel.tensor(name, element, 2, contiguous=1, alignment=16) for name in "AB")
    c = kernel.tensor("C", f32, 2, contiguous=1, alignment=16)
    row, column = kernel.program_id(kernel.tiles_along(a, 0, m), kernel.tiles_along(b, 0, n))

    def body(counter: Value, total: Value) -> tuple[Value, ...]:
        left = kernel.load(a, [row, counter], (m, k), name="a")
        right = kernel.load(b, [column, counter], (n, k), name="b")
        return (kernel.dot(left, kernel.permute(right, (1, 0)), total, name="acc"),)

    start = kernel.constant(0.0, (m, n), f32, name="acc")
    acc, = kernel.loop(kernel.number(0), kernel.tiles_along(a, 1, k), kernel.number(1), [start], body)
    kernel.store(c, [row, column], acc)
    return kernel.program()
