"""needs  form traced        gives  form laid_out
promise  every tile has a layout; what its users need in another layout is converted, within lanes or through LDS;
         dots have an MFMA
method   tiles tied by elementwise ops and loops form classes; each class takes the layout of its strongest anchor
         (dot, reduction, load, store); leaves (constants, iotas, broadcasts) are made again in each layout asked
         for; loads that only feed dots go to LDS and are read as fragments
checked  the verifier; interpreter before == after; conversions by enumeration in ir/conversion.py
"""

from __future__ import annotations

import math

from tilec.dtypes import dtype as dtype_of
from tilec.errors import InternalError, Location
from tilec.ir import tile
from tilec.ir.blocked import LayoutBuilder
from tilec.ir.conversion import conversion, reduction
from tilec.ir.core import Block, Builder, Op, Program, ScalarType, SharedType, TileType, TokenType, Value
from tilec.ir.layout import Layout
from tilec.ir.lds_access import copy_layout, grouped
from tilec.ir.schedule import Schedule
from tilec.passes.layout_classes import Classes
from tilec.passes.swizzle import Access, solve
from tilec.target import Target


def assign_layouts(program: Program, target: Target, schedule: Schedule | None = None) -> Program:
    """The program in form laid_out."""
    classes = Classes(program, target, schedule.option("mfma", 0) if schedule else 0)
    return _Rewriter(program, target, classes).run()


class _Rewriter:
    """Rebuilds the program with layouts. `done` maps old values to new ones in their class's layout."""

    def __init__(self, program: Program, target: Target, classes: Classes):
        self.program, self.target, self.classes = program, target, classes
        self.done: dict[Value, Value] = {}
        self.scopes: list[dict[tuple[Value, Layout], Value]] = [{}]
        self.builders: list[Builder] = []
        self.buffers: list[Op] = []  # LDS rings stand at the head of the program

    def run(self) -> Program:
        self.done.update({p: p for p in self.program.params})
        body = self._block(self.program.body)
        grid = tuple(self.done[g] for g in self.program.grid)
        return self.program.replace(body=Block((), (*self.buffers, *body.ops), ()), grid=grid, form="laid_out")

    def _block(self, block: Block, yields_as: tuple[Layout | None, ...] | None = None) -> Block:
        self.builders.append(Builder())
        self.scopes.append({})
        params = []
        for p in block.params:
            self.done[p] = self._typed(p)
            params.append(self.done[p])
        for op in block.ops:
            self._op(op)
        yields = tuple(
            self._use(v, layout) for v, layout in zip(block.yields, yields_as or (None,) * len(block.yields))
        )
        self.scopes.pop()
        return self.builders.pop().block(params, yields)

    def _emit(self, op: Op) -> Value:
        return self.builders[-1].emit(op)

    def _typed(self, value: Value, layout: Layout | None = None) -> Value:
        """A new value for an old one, its type with the layout."""
        if not isinstance(value.type, TileType):
            return value.like()
        layout = layout or self.classes.layout(value)
        return value.like(TileType(value.shape, value.dtype, layout))

    def _use(self, value: Value, layout: Layout | None = None) -> Value:
        """The new value for an old one; a tile in the layout asked for."""
        if not isinstance(value.type, TileType):
            return self.done[value]
        layout = layout or self.classes.layout(value)
        if self.classes.is_leaf(value):
            return self._leaf(value, layout)
        return self._converted(self.done[value], layout)

    def _remembered(self, key: Value, layout: Layout) -> Value | None:
        return next((scope[key, layout] for scope in reversed(self.scopes) if (key, layout) in scope), None)

    def _leaf(self, value: Value, layout: Layout) -> Value:
        known = self._remembered(value, layout)
        if known is not None:
            return known
        op = self.classes.defining[value]
        match op:
            case tile.Broadcast() if isinstance(op.source.type, TileType):
                made = self._emit(
                    op.replace(
                        source=self._use(op.source, layout.narrow(op.source.shape)),
                        results=(self._typed(value, layout),),
                    )
                )
            case tile.ExpandDims():
                made = self._emit(
                    op.replace(
                        source=self._use(op.source, layout.project(op.axis)), results=(self._typed(value, layout),)
                    )
                )
            case _:
                made = self._emit(
                    op.map_operands(lambda v: self._use(v, layout)).replace(results=(self._typed(value, layout),))
                )
        self.scopes[-1][value, layout] = made
        return made

    def _converted(self, value: Value, layout: Layout) -> Value:
        if value.layout == layout:
            return value
        known = self._remembered(value, layout)
        if known is not None:
            return known
        plan = conversion(value.layout, layout)
        type = TileType(value.shape, value.dtype, layout)
        if plan.kind in ("identity", "registers"):
            made = self._emit(tile.ConvertLayout(value, results=(value.like(type),)))
        else:
            order = _memory_order(value.layout)
            accesses = [Access("write", "write", value.layout), Access("read", "read", layout)]
            buffer = self._buffer(value, accesses, order)
            self._emit(tile.SharedWrite(buffer, value, results=(Value(TokenType(), f"{value.name} written"),)))
            made = self._shared_read(buffer, value.like(type), (), None)
        self.scopes[-1][value, layout] = made
        return made

    def _buffer(self, value: Value, accesses: list[Access], order: tuple[int, ...]) -> Value:
        dtype = value.dtype if value.dtype.name != "bool" else dtype_of("u8")
        solution = solve(accesses, value.shape, max(8, dtype.bits), self.target, order)
        buffer = Value(SharedType(value.shape, value.dtype, 1, solution.shared), f"{value.name}_lds")
        self.buffers.append(tile.Alloc(results=(buffer,)))
        return buffer

    # -- ops ---------------------------------------------------------------------------------------------------------

    def _op(self, op: Op) -> None:
        if all(isinstance(r.type, TileType) and self.classes.is_leaf(r) for r in op.results) and op.results:
            return  # made where it is used
        match op:
            case tile.For():
                self._for(op)
            case tile.If():
                layouts = tuple(self.classes.layout(r) if isinstance(r.type, TileType) else None for r in op.results)
                condition = self._use(op.condition)
                then, otherwise = (self._block(b, layouts) for b in (op.then, op.otherwise))
                self._finish(
                    op, op.replace(condition=condition, then=then, otherwise=otherwise, results=self._results(op))
                )
            case tile.Dot():
                self._dot(op)
            case tile.Reduce():
                self._reduce(op)
            case tile.Permute():
                layout = self.classes.layout(op.result)
                inverse = tuple(op.axes.index(axis) for axis in range(len(op.axes)))
                if self._staged_load(op.result) is None:
                    self._finish(
                        op, op.replace(source=self._use(op.source, layout.permute(inverse)), results=self._results(op))
                    )
            case tile.Load() if self._staged_load(op.result) is not None:
                pass  # read as fragments by `_dot_operand`
            case tile.Store():
                self._emit(op.map_operands(lambda v: self._use(v, self._store_layout(op) if v is op.value else None)))
            case tile.Scatter() | tile.AtomicAdd():
                layout = self.classes.layout(op.value)
                self._emit(op.map_operands(lambda v: self._use(v, layout if isinstance(v.type, TileType) else None)))
            case _:
                layout = (
                    self.classes.layout(op.results[0])
                    if op.results and isinstance(op.results[0].type, TileType)
                    else None
                )
                self._finish(
                    op,
                    op.map_operands(lambda v: self._use(v, layout if isinstance(v.type, TileType) else None)).replace(
                        results=self._results(op)
                    ),
                )

    def _results(self, op: Op) -> tuple[Value, ...]:
        return tuple(self._typed(r) for r in op.results)

    def _finish(self, old: Op, new: Op) -> None:
        self._emit(new)
        self.done.update(zip(old.results, new.results))

    def _for(self, op: tile.For) -> None:
        layouts = tuple(self.classes.layout(p) if isinstance(p.type, TileType) else None for p in op.body.params[1:])
        inits = tuple(self._use(v, layout) for v, layout in zip(op.inits, layouts))
        bounds = {name: self._use(getattr(op, name)) for name in ("lower", "upper", "step")}
        body = self._block(op.body, layouts)
        self._finish(op, op.replace(inits=inits, body=body, results=self._results(op), **bounds))

    def _reduce(self, op: tile.Reduce) -> None:
        layout = self.classes.layout(op.source)
        plan = reduction(layout, op.axis)
        if plan is None:
            raise InternalError(f"no reduction along axis {op.axis} in {layout}", where=op.where)
        scratch = self._scratch(op, plan) if plan.crosses_waves else None
        result = (
            op.result.like(TileType(op.result.shape, op.result.dtype, plan.result))
            if isinstance(op.result.type, TileType)
            else op.result.like()
        )
        made = self._emit(op.replace(source=self._use(op.source, layout), scratch=scratch, results=(result,)))
        if isinstance(op.result.type, TileType):
            made = self._converted(made, self.classes.layout(op.result))
        self.done[op.result] = made

    def _scratch(self, op: tile.Reduce, plan) -> Value:
        """LDS for one value of each result item of each lane of each wave."""
        from tilec.ir.shared_layout import SharedLayout

        bits = max(32, op.source.dtype.bits)
        count = plan.result.items * self.target.wave_size * self.program.waves
        dtype = dtype_of("f64" if bits == 64 else "f32")
        buffer = Value(SharedType((count,), dtype, 1, SharedLayout((count,), bits, (0,))), f"{op.result.name}_waves")
        self.buffers.append(tile.Alloc(results=(buffer,)))
        return buffer

    def _store_layout(self, op: tile.Store) -> Layout:
        """The value's own layout unless it would write short runs where a coalesced one, on the way to which the value
        fits LDS, writes long ones."""
        own, tensor = self.classes.layout(op.value), op.tensor.tensor_type
        bits = max(8, op.value.dtype.bits)
        fits = math.prod(op.value.shape) * bits <= 8 * self.target.lds_bytes
        if tensor.contiguous is None or not tensor.offsets_fit(op.value.shape) or not fits:
            return own
        better = self.classes.memory_layout(op.value.tile_type, tensor)
        short = own.coalescing(tensor.contiguous, bits).run_bytes < 32
        return better if short and better.coalescing(tensor.contiguous, bits).run_bytes >= 64 else own

    # -- dots --------------------------------------------------------------------------------------------------------

    def _staged_load(self, value: Value) -> tile.Load | None:
        """The load behind a tile (or its transposition) if it only feeds dots beside it, so that it may go straight to
        LDS."""
        load = self.classes.source_of(value)[0]
        return load if isinstance(load, tile.Load) and self._only_dots(load.result, self.classes.home[load]) else None

    def _only_dots(self, value: Value, home: Block) -> bool:
        readers = self.classes.readers.get(value, [])
        return (
            bool(readers)
            and _yielded_nowhere(self.program, value)
            and all(
                isinstance(r, tile.Dot)
                and value in (r.a, r.b)
                and self.classes.home[r] is home
                or isinstance(r, tile.Permute)
                and self._only_dots(r.result, home)
                for r in readers
            )
        )

    def _dot(self, op: tile.Dot) -> None:
        plan = self.classes.plan(op)
        a, b = self._dot_operand(op.a, plan.a), self._dot_operand(op.b, plan.b)
        result = self._typed(op.result, plan.accumulator)
        self._emit(
            op.replace(
                a=a,
                b=b,
                accumulator=self._use(op.accumulator, plan.accumulator),
                instruction=plan.mfma.mnemonic,
                swapped=plan.swapped,
                results=(result,),
            )
        )
        self.done[op.result] = self._converted(result, self.classes.layout(op.result))

    def _dot_operand(self, value: Value, layout: Layout) -> Value:
        load = self._staged_load(value)
        if load is None:
            return self._use(value, layout)
        axes = self.classes.source_of(value)[1]
        known = self._remembered(value, layout)
        if known is None:
            known = self._staged(load, axes, value, layout)
            self.scopes[-1][value, layout] = known
        return known

    def _staged(self, load: tile.Load, axes: tuple[int, ...], value: Value, layout: Layout) -> Value:
        """A load that goes through LDS: by copies past the registers where the architecture and the bounds allow."""
        inverse = tuple(axes.index(a) for a in range(len(axes)))
        tensor, type = load.tensor.tensor_type, load.result.tile_type
        memory = self.classes.memory_layout(type, tensor)
        order = _memory_order(memory)
        read = Access(value.name, "read", layout.permute(inverse))
        indices = tuple(self._use(i) for i in load.indices)
        fill = self._use(load.fill) if load.fill is not None else None
        copy = self._copy(load, read, order)
        token = (Value(TokenType(), f"{load.result.name} copied"),)
        if copy is not None:
            buffer, copying = copy
            self._emit(
                tile.AsyncCopy(
                    load.tensor if load.tensor not in self.done else self.done[load.tensor],
                    indices,
                    buffer,
                    None,
                    load.inside,
                    copying,
                    results=token,
                    where=load.where,
                )
            )
        else:
            memory, order = self._on_the_way(type, memory, order, read)
            buffer = self._buffer(load.result, [_written(memory, order), read], order)
            loaded = self._emit(
                load.replace(
                    tensor=self.done[load.tensor],
                    indices=indices,
                    fill=fill,
                    results=(self._typed(load.result, memory),),
                )
            )
            self._emit(tile.SharedWrite(buffer, loaded, results=token, where=load.where))
        type = TileType(value.shape, value.dtype, layout)
        return self._shared_read(buffer, Value(type, load.result.name), axes, load.where)

    def _on_the_way(
        self, type: TileType, memory: Layout, order: tuple[int, ...], read: Access
    ) -> tuple[Layout, tuple[int, ...]]:
        """How a tile is loaded that is then written to LDS, and the order of axes there: as it lies in memory, or
        transposed within lanes, each of which loads a block of both axes, where LDS then takes fewer cycles."""
        choices = [(memory, order)]
        if len(order) == 2:
            held = self.program.waves * self.target.wave_size
            each = type.shape[0] * type.shape[1] // held if type.shape[0] * type.shape[1] % held == 0 else 0
            narrow, most = 64 // type.dtype.bits, 128 // type.dtype.bits
            for vector, group in ((most, most), (most, narrow), (narrow, narrow), (narrow, narrow // 2)):
                if memory.vector_width(order[0]) >= vector and group > 1 and each % (vector * group) == 0 and each:
                    choices.append((self._block_by_lane(type.shape, order, vector, group), order[::-1]))

        def cycles(choice: tuple[Layout, tuple[int, ...]]) -> int:
            layout, axes = choice
            bits = max(8, type.dtype.bits)
            try:
                return solve([_written(layout, axes), read], type.shape, bits, self.target, axes).cost
            except InternalError:
                return 1 << 62

        return min(choices, key=cycles)

    def _block_by_lane(self, shape: tuple[int, ...], order: tuple[int, ...], vector: int, group: int) -> Layout:
        """Each lane loads `group` vectors one under the other."""
        layout = LayoutBuilder(shape)
        layout.take("item", order[0], vector, odd=False)
        layout.take("item", order[1], group, odd=False)
        for part, count in (("lane", self.target.wave_size), ("wave", self.program.waves)):
            for axis in order:
                count //= layout.take(part, axis, math.gcd(count, layout.left(axis)), odd=part == "wave")
            layout.replicate(part, count)
        for axis in order:
            layout.take("item", axis, layout.left(axis))
        return layout.build()

    def _shared_read(self, buffer: Value, result: Value, axes: tuple[int, ...], where: Location | None) -> Value:
        self._emit(
            tile.SharedRead(buffer, axes=axes, results=(result, Value(TokenType(), f"{result.name} read")), where=where)
        )
        return result

    def _copy(self, load: tile.Load, read: Access, order: tuple[int, ...]) -> tuple[Value, Layout] | None:
        """The buffer and layout of a copy straight to LDS, 16 bytes per lane; None where that can't be."""
        tensor, type = load.tensor.tensor_type, load.result.tile_type
        contiguous = tensor.contiguous
        if not self.target.has("lds_dma_x4") or contiguous is None or tensor.alignment < 4 or load.fill is not None:
            return None
        if not tensor.offsets_fit(type.shape) or not (load.inside and load.inside[contiguous]):
            # a vector could be cut by the bounds: it must pass through registers
            return None
        try:
            solution = solve(
                [Access("copy", "copy", copy_bytes=16), read], type.shape, type.dtype.bits, self.target, order
            )
        except InternalError:
            return None
        copying = copy_layout(solution.shared, 16, self.program.waves, self.target.wave_size, waves_outermost=True)
        if (
            copying is None
            or copying.vector_width(contiguous) * type.dtype.bits < 128
            or copying.replication().lane_mask
            or len(copying.replication().waves) < self.program.waves
        ):
            return None
        buffer = Value(SharedType(type.shape, type.dtype, 1, solution.shared), f"{load.result.name}_lds")
        self.buffers.append(tile.Alloc(results=(buffer,)))
        return buffer, copying


def _written(layout: Layout, order: tuple[int, ...]) -> Access:
    return Access("write", "write", grouped(layout, order))


def _memory_order(layout: Layout) -> tuple[int, ...]:
    """Axes from the one that a lane's items and neighbouring lanes follow first."""
    rank = len(layout.shape)
    seen = [axis for basis in (*layout.item, *layout.lane) for axis in range(rank) if basis[axis]]
    return tuple(dict.fromkeys([*seen, *reversed(range(rank))]))


def _yielded_nowhere(program: Program, value: Value) -> bool:
    return all(value not in block.yields for op in program.walk() for block in op.regions)


__all__ = ["ScalarType", "assign_layouts"]
