"""Random valid traced programs, with arguments on which every correct execution gives the same bits.

    case = generate(seed)                                       # or generate(seed, Options(dtypes=("f32", "i32")))
    interp.run(case.program, arguments := case.arguments())     # new arrays at each call, in poisoned memory

Float values are integers small enough that every sum is exact in any order (their bounds are tracked as the program
grows); integers wrap at will. Workgroups write disjoint places, or add atomically. The same seed and options give the
same case.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.semantics.known import Known, bounds, limits, roomy, typed
from tests.semantics.memory import Memory
from tilec.dtypes import DTYPES, DType, bool_, f32, f64, i32
from tilec.ir import tile
from tilec.ir.core import Block, Builder, Op, Program, ScalarType, TensorType, Value

MAP_NAMES = ("add", "sub", "mul", "floordiv", "mod", "minimum", "maximum", "and", "or", "xor", "shl", "shr", "fma",
             "neg", "abs", "not", "floor", "ceil", "lt", "le", "gt", "ge", "eq", "ne", "where")
KINDS = ("constant", "iota", "map", "cast", "broadcast", "expand_dims", "permute", "reduce", "dot", "load",
         "load_scalar", "gather", "view", "loop", "dot_loop", "branch")
ACCUMULATORS = {"f32": "f32", "f16": "f32", "bf16": "f32", "f64": "f64", "i8": "i32"}
CONTRACTED = {"i8": 32}     # the least length of the contracted axis that every architecture multiplies, where not 16
TRIPS = 4            # no loop runs longer


@dataclass(frozen=True)
class Options:
    """What may occur. `without` names KINDS, functions of MAP_NAMES, or 'scatter' and 'atomic_add'."""

    dtypes: tuple[str, ...] = ("f32", "f16", "bf16", "i32", "i8", "u8", "u32", "i64", "bool")
    sizes: tuple[int, ...] = (16, 32)
    statements: int = 14
    without: tuple[str, ...] = ()


@dataclass(frozen=True)
class Case:
    program: Program
    memory: dict[str, Memory]
    scalars: dict[str, Any]

    def arguments(self) -> dict[str, Any]:
        return {**{name: memory.allocate() for name, memory in self.memory.items()}, **self.scalars}


@dataclass
class Tensor:
    value: Value
    memory: Memory
    low: int
    high: int


def generate(seed: int, options: Options | None = None) -> Case:
    return _Generator(seed, options or Options()).case()


@dataclass
class _Generator:
    seed: int
    options: Options
    builder: Builder = field(default_factory=Builder)
    pool: list[Known] = field(default_factory=list)
    inputs: list[Tensor] = field(default_factory=list)
    params: list[Value] = field(default_factory=list)
    memory: dict[str, Memory] = field(default_factory=dict)
    scalars: dict[str, Any] = field(default_factory=dict)
    depth: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.coin = random.Random(self.seed)        # for hints, which change no program
        self.kinds = [k for k in KINDS if k not in self.options.without]
        self.kinds += ["map"] * (4 if "map" in self.kinds else 0)
        self.maps = [m for m in MAP_NAMES if m not in self.options.without]
        self.dtypes = [DTYPES[name] for name in self.options.dtypes]

    def case(self) -> Case:
        for _ in range(self.random.randint(2, 4)):
            self.new_input()
        self.scalar_parameter()
        grid = self.grid()
        self.statements(self.options.statements)
        self.write_results()
        body = self.builder.block()
        program = Program(f"random_{self.seed}", tuple(self.params), body, grid)
        return Case(program, self.memory, self.scalars)

    # -- small helpers ------------------------------------------------------------------------------------------------

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def pick(self, items: list[Any]) -> Any:
        """One of the items, later ones more often; None of none."""
        return items[max(self.random.randrange(len(items)), self.random.randrange(len(items)))] if items else None

    def emit(self, op_class: type[Op], *operands: Any, dtype: DType, shape: tuple[int, ...] = (), low: int, high: int,
             **attributes: Any) -> Known:
        """Adds an op whose result has these bounds; integers that may wrap have all bounds."""
        least, most = limits(dtype)
        if low < least or high > most:
            assert dtype.is_integer, (op_class, low, high)
            low, high = least, most
        result = Value(typed(dtype, shape), self.random.choice(("", "x", "y", "acc")))
        self.builder.emit(op_class(*operands, **attributes, results=(result,)))
        known = Known(result, low, high)
        self.pool.append(known)
        return known

    def moved(self, op_class: type[Op], source: Known, *attributes: Any, shape: tuple[int, ...]) -> Known:
        """The same elements in another shape."""
        return self.emit(op_class, source.value, *attributes, dtype=source.dtype, shape=shape, low=source.low,
                         high=source.high)

    def number(self, value: int, dtype: DType = i32, shape: tuple[int, ...] = ()) -> Known:
        written = float(value) if dtype.is_float else bool(value) if dtype is bool_ else value
        return self.emit(tile.Constant, written, dtype=dtype, shape=shape, low=value, high=value)

    def apply(self, function: str, *arguments: Known, low: int, high: int, dtype: DType | None = None) -> Known:
        last = arguments[-1]
        rare = function == "where" and bool(last.shape) and self.coin.random() < 0.5
        return self.emit(tile.Elementwise, tuple(a.value for a in arguments), function, dtype=dtype or last.dtype,
                         shape=last.shape, low=low, high=high, rare=rare)

    def shape(self, rank: int | None = None) -> tuple[int, ...]:
        rank = rank or self.random.choice((1, 2, 2))
        return tuple(self.random.choice(self.options.sizes) for _ in range(rank))

    def find(self, **wanted: Any) -> list[Known]:
        return [k for k in self.pool if all(getattr(k, name) == value for name, value in wanted.items())]

    def bounded(self, known: Known, low: int, high: int) -> Known:
        """The value itself, or clamped so that it lies in [low, high]."""
        if known.within(low, high):
            return known
        least, most = self.number(low, known.dtype, known.shape), self.number(high, known.dtype, known.shape)
        above = self.apply("maximum", known, least, low=low, high=max(low, known.high))
        return self.apply("minimum", above, most, low=low, high=high)

    # -- parameters and the grid --------------------------------------------------------------------------------------

    def new_tensor(self, dtype: DType, extents: tuple[int, ...], low: int, high: int) -> Tensor:
        name = f"t{len(self.params)}"
        memory = Memory.random(self.random, dtype, extents, low, high)
        value = Value(TensorType(dtype, len(extents), memory.contiguous, memory.alignment), name)
        self.params.append(value)
        self.memory[name] = memory
        return Tensor(value, memory, low, high)

    def new_input(self, dtype: DType | None = None, rank: int | None = None) -> Tensor:
        dtype = dtype or self.random.choice(self.dtypes)
        rank = rank or self.random.choice((1, 2, 2))
        extents = tuple(self.random.choice((1, 7, 16, 33, 40, 48)) for _ in range(rank))
        low, high = (-4, 4) if dtype.is_float else (0, 1) if dtype is bool_ else limits(dtype)
        if dtype.is_integer and self.chance(0.6):
            low, high = max(low, -9), 9
        self.inputs.append(self.new_tensor(dtype, extents, low, high))
        return self.inputs[-1]

    def scalar_parameter(self) -> None:
        value, number = Value(ScalarType(i32), "n"), self.random.randint(-3, 9)
        self.params.append(value)
        self.scalars["n"] = number
        self.pool.append(Known(value, -3, 9))

    def extent(self, tensor: Tensor, axis: int) -> Known:
        size = tensor.memory.extents[axis]
        return self.emit(tile.Dim, tensor.value, axis, dtype=i32, low=size, high=size)

    def tiles_along(self, tensor: Tensor, axis: int, block: int) -> Known:
        """cdiv(extent, block)."""
        extent = self.extent(tensor, axis)
        trips = -(-extent.high // block)
        rounded = self.apply("add", extent, self.number(block - 1), low=0, high=extent.high + block - 1)
        return self.apply("floordiv", rounded, self.number(block), low=0, high=trips)

    def grid(self) -> tuple[Value, ...]:
        extents = [self.tiles_along(self.random.choice(self.inputs), 0, 16) for _ in range(self.random.randint(1, 2))]
        ids = [self.emit(tile.ProgramId, axis, dtype=i32, low=0, high=e.high - 1) for axis, e in enumerate(extents)]
        zero = self.number(0)
        held = self.apply(self.random.choice(("ge", "gt", "ne")), extents[-1], zero, low=0, high=1, dtype=bool_)
        self.builder.emit(tile.Require(held.value, "there is work"))
        self.programs = int(np.prod([e.high for e in extents]))
        self.linear = ids[0]
        if len(ids) == 2:
            row = self.apply("mul", ids[0], extents[1], low=0, high=self.programs)
            self.linear = self.apply("add", row, ids[1], low=0, high=self.programs - 1)
        return tuple(e.value for e in extents)

    def index(self) -> Known:
        """A scalar fit to be a tile index: small, sometimes negative or beyond the end."""
        near = [k for k in self.find(dtype=i32, shape=()) if k.low >= -3 and k.high <= 9]
        return self.pick(near) if near and self.chance(0.8) else self.number(self.random.randint(-1, 2))

    # -- statements ---------------------------------------------------------------------------------------------------

    def statements(self, count: int) -> None:
        for _ in range(count):
            kind = self.random.choice(self.kinds)
            if self.depth >= 2 and kind in ("loop", "branch", "dot_loop"):
                kind = "map"
            getattr(self, kind)()

    def constant(self) -> None:
        shape = self.shape() if self.chance(0.6) else ()
        self.number(self.random.randint(0, 1), self.random.choice(self.dtypes), shape)

    def iota(self) -> None:
        shape = self.shape()
        axis = self.random.randrange(len(shape))
        self.emit(tile.Iota, axis, dtype=i32, shape=shape, low=0, high=shape[axis] - 1)

    def cast(self) -> None:
        source, target = self.pick(self.pool), self.random.choice(self.dtypes)
        low, high = limits(target)
        if target is bool_:
            low, high = 0, 1
        elif source.dtype.is_float and not target.is_float:
            low, high = max(low, min(source.low, high)), min(high, max(source.high, low))      # clamps
        elif low <= source.low and source.high <= high:
            low, high = source.low, source.high
        elif target.is_float:
            return
        self.emit(tile.Cast, source.value, dtype=target, shape=source.shape, low=low, high=high)

    def broadcast(self) -> None:
        source = self.pick([k for k in self.pool if not k.shape or 1 in k.shape])
        if source:
            shape = tuple(self.random.choice(self.options.sizes) if s == 1 else s for s in source.shape)
            self.moved(tile.Broadcast, source, shape=shape or self.shape())

    def expand_dims(self) -> None:
        source = self.pick([k for k in self.pool if len(k.shape) == 1])
        if source:
            axis = self.random.randrange(2)
            self.moved(tile.ExpandDims, source, axis, shape=(*source.shape[:axis], 1, *source.shape[axis:]))

    def permute(self) -> None:
        source = self.pick([k for k in self.pool if len(k.shape) == 2])
        if source:
            self.moved(tile.Permute, source, (1, 0), shape=source.shape[::-1])

    def reduce(self) -> None:
        source = self.pick([k for k in self.pool if k.shape])
        if not source:
            return
        axis = self.random.randrange(len(source.shape))
        kind = self.random.choice(("sum", "max", "min")) if source.dtype is not bool_ else "max"
        count = source.shape[axis] if kind == "sum" else 1
        if source.dtype.is_float and max(abs(source.low), abs(source.high)) * count > limits(source.dtype)[1]:
            bound = limits(source.dtype)[1] // count
            source = self.bounded(source, -bound, bound)
        shape = source.shape[:axis] + source.shape[axis + 1:]
        self.emit(tile.Reduce, source.value, axis, kind, dtype=source.dtype, shape=shape, low=source.low * count,
                  high=source.high * count)

    def map(self) -> None:
        function = self.random.choice(self.maps)
        first = self.pick([k for k in self.pool if tile.accepts(function, k.dtype)])
        if not first:
            return
        same = self.find(dtype=first.dtype, shape=first.shape)
        data = [first, *(self.pick(same) for _ in range(tile.ELEMENTWISE[function][0] - 1))]
        arguments = data
        if function == "where":
            data = data[:2]
            flag = self.pick(self.find(dtype=bool_, shape=first.shape)) or self.number(1, bool_, first.shape)
            arguments = [flag, *data]
        low, high = bounds(function, data, first.dtype)
        result = bool_ if tile.ELEMENTWISE[function][1] == "bool" else first.dtype
        if not result.is_float or limits(result)[0] <= low and high <= limits(result)[1]:
            self.apply(function, *arguments, low=low, high=high, dtype=result)

    def load(self) -> None:
        tensor = self.random.choice(self.inputs)
        dtype = tensor.memory.dtype
        shape = self.shape(len(tensor.memory.extents))
        fill = self.number(1, dtype) if self.chance(0.3) else None
        self.emit(tile.Load, tensor.value, tuple(self.index().value for _ in shape), fill.value if fill else None,
                  dtype=dtype, shape=shape, low=min(0, tensor.low), high=max(tensor.high, 1))

    def load_scalar(self) -> None:
        tensor = self.random.choice(self.inputs)
        self.emit(tile.LoadScalar, tensor.value, tuple(self.index().value for _ in tensor.memory.extents),
                  dtype=tensor.memory.dtype, low=min(0, tensor.low), high=max(0, tensor.high))

    def gather(self) -> None:
        tensor = self.random.choice(self.inputs)
        index = self.pick([k for k in self.pool if k.dtype is i32 and k.shape])
        if index:
            self.emit(tile.Gather, tensor.value, (index.value,) * len(tensor.memory.extents), dtype=tensor.memory.dtype,
                      shape=index.shape, low=min(0, tensor.low), high=max(0, tensor.high))

    def view(self) -> None:
        """A load from a window that starts a little inside the tensor, transposed or with an axis indexed away."""
        tensor = self.random.choice(self.inputs)
        offsets, extents = [], []
        for axis, size in enumerate(tensor.memory.extents):
            start = self.random.randint(0, min(size, 5))
            offsets.append(self.number(start))
            length = self.extent(tensor, axis)
            extents.append(self.apply("sub", length, offsets[-1], low=size - start, high=size - start))
        axes = list(range(len(offsets)))
        self.random.shuffle(axes)
        if len(axes) > 1 and self.chance(0.4):
            offsets[axes.pop()] = self.index()
        axis = tensor.value.type.contiguous
        kind = TensorType(tensor.memory.dtype, len(axes), axes.index(axis) if axis in axes else None,
                          tensor.memory.dtype.bits // 8)
        window = Value(kind, "window")
        self.builder.emit(tile.View(tensor.value, tuple(o.value for o in offsets), tuple(e.value for e in extents),
                                    tuple(axes), results=(window,)))
        shape = self.shape(len(axes))
        self.emit(tile.Load, window, tuple(self.index().value for _ in axes), dtype=tensor.memory.dtype, shape=shape,
                  low=min(0, tensor.low), high=max(0, tensor.high))

    def dot(self) -> None:
        tiles = [k for k in self.pool if len(k.shape) == 2 and 1 not in k.shape and k.dtype.name in ACCUMULATORS]
        a = self.pick([k for k in tiles if k.shape[1] % CONTRACTED.get(k.dtype.name, 16) == 0])
        if a:
            a = self.bounded(a, -8, 8) if a.dtype.is_float else a
            b = self.pick([k for k in tiles if k.dtype is a.dtype and k.shape[0] == a.shape[1]])
            b = b or self.number(1, a.dtype, (a.shape[1], self.random.choice(self.options.sizes)))
            self.multiply(a, self.bounded(b, -8, 8), None)

    def multiply(self, a: Known, b: Known, accumulator: Known | None) -> Known:
        kind, shape = DTYPES[ACCUMULATORS[a.dtype.name]], (a.shape[0], b.shape[1])
        c = accumulator or self.number(1, kind, shape)
        grown = a.shape[1] * 64 if kind.is_float else 1 << 31
        return self.emit(tile.Dot, a.value, b.value, c.value, dtype=kind, shape=shape, low=c.low - grown,
                         high=c.high + grown)

    # -- control ------------------------------------------------------------------------------------------------------

    def nested(self, params: tuple[Known, ...], build: Any) -> Block:
        """A block built by `build`, which returns the values to yield."""
        outer, pool = self.builder, self.pool
        self.builder, self.pool, self.depth = Builder(), [*pool, *params], self.depth + 1
        yields = build()
        block = self.builder.block([p.value for p in params], [k.value for k in yields])
        self.builder, self.pool, self.depth = outer, pool, self.depth - 1
        return block

    def loop_over(self, lower: Known, upper: Known, step: Known, inits: list[Known], build: Any) -> None:
        """A loop whose carried values stay within the bounds of `inits`."""
        counter = Known(Value(ScalarType(i32), "k"), lower.low, upper.high)
        carried = tuple(Known(i.value.like(), i.low, i.high) for i in inits)
        body = self.nested((counter, *carried), lambda: build(counter, carried))
        results = tuple(i.value.like() for i in inits)
        values = tuple(i.value for i in inits)
        self.builder.emit(tile.For(lower.value, upper.value, step.value, values, body, results=results))
        self.pool += [Known(r, i.low, i.high) for r, i in zip(results, inits)]

    def loop(self) -> None:
        lower = self.number(self.random.randint(0, 1))
        if self.chance(0.5):
            upper = self.number(self.random.randint(0, TRIPS))
        else:
            upper = self.tiles_along(self.random.choice(self.inputs), 0, self.random.choice(self.options.sizes))
        inits = self.random.sample(self.pool, min(len(self.pool), self.random.randint(1, 3)))
        inits = [Known(i.value, *roomy(i.dtype)) for i in inits if i.within(*roomy(i.dtype))]

        def build(counter: Known, carried: tuple[Known, ...]) -> list[Known]:
            self.statements(self.random.randint(1, 4))
            return [self.next(c) for c in carried]

        self.loop_over(lower, upper, self.number(self.random.choice((1, 1, 2))), inits, build)

    def another(self, like: Known) -> Known:
        """Another value of the type, brought within the bounds of `like`."""
        found = self.pick(self.find(dtype=like.dtype, shape=like.shape))
        return found if found.dtype is bool_ else self.bounded(found, like.low, like.high)

    def next(self, carried: Known) -> Known:
        """A value to carry on, which mostly depends on the trips before."""
        found = self.another(carried)
        if carried.dtype is bool_:
            functions = ["xor"] if "xor" in self.maps else []
        else:
            functions = [f for f in ("add", "sub", "maximum") if f in self.maps]
        if not functions or self.chance(0.2):
            return found
        function = self.random.choice(functions)
        low, high = bounds(function, [found, carried], carried.dtype)
        mixed = self.apply(function, found, carried, low=low, high=high)
        return mixed if carried.dtype is bool_ else self.bounded(mixed, carried.low, carried.high)

    def dot_loop(self) -> None:
        """acc += a[m, k] @ b[k, n] along the contracted axis of one tensor, the other's may be longer or shorter."""
        dtype = self.pick([t for t in self.dtypes if t.name in ACCUMULATORS])
        if not dtype or "dot" in self.options.without:
            return
        tensors = [t for t in self.inputs if t.memory.dtype is dtype and len(t.memory.extents) == 2 and t.high < 9]
        a = self.pick(tensors) or self.new_input(dtype, 2)
        b = self.new_input(dtype, 2) if self.chance(0.5) else self.pick(tensors) or a
        blocks = [size for size in self.options.sizes if size % CONTRACTED.get(dtype.name, 16) == 0]
        if not blocks:
            return
        block = self.random.choice(blocks)
        m, n = self.random.choice(self.options.sizes), self.random.choice(self.options.sizes)
        transposed, row, column = self.chance(0.5), self.index(), self.index()
        upper = self.tiles_along(a, 1, block)
        kind = DTYPES[ACCUMULATORS[dtype.name]]
        start = self.number(1, kind, (m, n))
        room = limits(kind)[1] // 2 if kind.is_float else limits(kind)[1]

        def tile_of(tensor: Tensor, shape: tuple[int, int], indices: tuple[Known, ...]) -> Known:
            loaded = self.emit(tile.Load, tensor.value, tuple(i.value for i in indices), dtype=dtype, shape=shape,
                               low=min(0, tensor.low), high=max(0, tensor.high))
            return self.bounded(loaded, -8, 8) if dtype.is_float else loaded

        def build(counter: Known, carried: tuple[Known, ...]) -> list[Known]:
            left = tile_of(a, (m, block), (row, counter))
            if transposed:
                right = tile_of(b, (n, block), (column, counter))
                right = self.moved(tile.Permute, right, (1, 0), shape=(block, n))
            else:
                right = tile_of(b, (block, n), (counter, column))
            return [self.multiply(left, right, Known(carried[0].value, -room, room))]

        self.loop_over(self.number(0), upper, self.number(1), [Known(start.value, *limits(kind))], build)

    def branch(self) -> None:
        condition = self.pick(self.find(dtype=bool_, shape=()))
        if not condition:
            a, b = self.index(), self.number(self.random.randint(0, 3))
            condition = self.apply(self.random.choice(("lt", "ge", "ne")), a, b, low=0, high=1, dtype=bool_)
        targets = self.random.sample(self.pool, self.random.randint(0, min(2, len(self.pool))))

        def build() -> list[Known]:
            self.statements(self.random.randint(1, 4))
            return [self.another(t) for t in targets]

        then, otherwise = self.nested((), build), self.nested((), build)
        results = tuple(t.value.like() for t in targets)
        self.builder.emit(tile.If(condition.value, then, otherwise, results=results))
        self.pool += [Known(r, t.low, t.high) for r, t in zip(results, targets)]

    # -- results ------------------------------------------------------------------------------------------------------

    def write_results(self) -> None:
        """Stores some of the values, each to an output of its own, where the last tile may stick out."""
        used = {operand for op in self.builder.ops for operand in op.operands}
        unused = [k for k in self.pool if k.value not in used]
        for source in self.random.sample(unused, min(5, len(unused))) + self.random.sample(self.pool, 2):
            if not source.shape:
                source = self.moved(tile.Broadcast, source, shape=self.shape(1))
            rest = source.shape[1:]
            total = self.programs * source.shape[0]
            extents = tuple(max(0, size - self.random.randint(0, 20)) for size in (total, *rest))
            output = self.new_tensor(source.dtype, extents, *((0, 1) if source.dtype is bool_ else (0, 9)))
            how = self.random.random()
            if how < 0.15 and source.dtype in (i32, f32, f64) and "atomic_add" not in self.options.without:
                if source.dtype.is_float:
                    source = self.bounded(source, -64, 64)
                self.add_atomically(output, source)
            elif how < 0.3 and "scatter" not in self.options.without:
                rows = self.coordinate(source.shape, 0, self.linear)
                places = (rows, *(self.coordinate(source.shape, a, None) for a in range(1, len(source.shape))))
                self.builder.emit(tile.Scatter(output.value, places, source.value))
            else:
                zero = self.number(0)
                indices = (self.linear.value, *(zero.value for _ in rest))
                self.builder.emit(tile.Store(output.value, indices, source.value))

    def coordinate(self, shape: tuple[int, ...], axis: int, tile_index: Known | None) -> Value:
        """Element coordinates along an axis, backwards so that it is no plain store; each place once."""
        size = shape[axis]
        iota = self.emit(tile.Iota, axis, dtype=i32, shape=shape, low=0, high=size - 1)
        result = self.apply("sub", self.number(size - 1, i32, shape), iota, low=0, high=size - 1)
        if tile_index:
            start = self.apply("mul", tile_index, self.number(size), low=0, high=self.programs * size)
            spread = self.moved(tile.Broadcast, start, shape=shape)
            result = self.apply("add", result, spread, low=0, high=start.high + size)
        return result.value

    def add_atomically(self, output: Tensor, source: Known) -> None:
        """Adds to few places, many times."""
        indices = []
        for axis in range(len(source.shape)):
            iota = self.emit(tile.Iota, axis, dtype=i32, shape=source.shape, low=0, high=source.shape[axis] - 1)
            third = self.apply("floordiv", iota, self.number(3, i32, source.shape), low=0, high=source.shape[axis])
            indices.append(third.value)
        self.builder.emit(tile.AtomicAdd(output.value, tuple(indices), source.value))
