"""Which tiles must share a layout, and which layout each class of them takes: the choosing half of `layouts.py`.

Elementwise ops, loops and branches tie tiles into classes. A class takes the layout of its strongest anchor: a dot's
result, a reduction's, a moved tile, a load, a store. Tiles that cost nothing to make again (constants, iotas,
broadcasts) are leaves and belong to none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tilec.ir import tile
from tilec.ir.blocked import blocked
from tilec.ir.conversion import reduction
from tilec.ir.core import Block, Op, Program, TensorType, TileType, Value
from tilec.ir.layout import Layout
from tilec.passes import dots
from tilec.target import Target

DOT, REDUCE, MOVED, KEPT, LOAD, STORE = 6, 5, 4, 3, 2, 1


@dataclass
class _Anchor:
    strength: int
    layout: Callable[[], Layout | None]


class Classes:
    """Which tiles must share a layout, and which layout each class takes."""

    def __init__(self, program: Program, target: Target, mfma_rows: int):
        self.program, self.target, self.mfma_rows = program, target, mfma_rows
        self.parent: dict[Value, Value] = {}
        self.anchors: dict[Value, list[_Anchor]] = {}
        self.plans: dict[Op, dots.DotPlan] = {}
        self.chosen: dict[Value, Layout] = {}
        self.busy: set[Value] = set()
        self.defining: dict[Value, Op] = {}
        self.readers: dict[Value, list[Op]] = {}
        self.home: dict[Op, Block] = {}
        self._scan(program.body)

    def find(self, value: Value) -> Value:
        while (parent := self.parent.get(value, value)) is not value:
            value = parent
        return value

    def _tie(self, *values: Value) -> None:
        tiles = [v for v in values if isinstance(v.type, TileType) and not self.is_leaf(v)]
        for other in tiles[1:]:
            first, second = self.find(tiles[0]), self.find(other)
            if first is not second:
                self.parent[second] = first
                self.anchors.setdefault(first, []).extend(self.anchors.pop(second, []))

    def _anchor(self, value: Value, strength: int, layout: Callable[[], Layout | None]) -> None:
        if isinstance(value.type, TileType) and not self.is_leaf(value):
            self.anchors.setdefault(self.find(value), []).append(_Anchor(strength, layout))

    def is_leaf(self, value: Value) -> bool:
        """Whether a tile can be made in any layout at no cost worth speaking of: from constants, iotas, scalars, and
        broadcasts."""
        op = self.defining.get(value)
        if isinstance(op, (tile.Constant, tile.Iota, tile.Broadcast, tile.ExpandDims)):
            return True
        if isinstance(op, (tile.Elementwise, tile.Cast)):
            return all(self.is_leaf(v) for v in op.operands if isinstance(v.type, TileType))
        return False

    def _scan(self, block: Block) -> None:
        for op in block.ops:
            self.home[op] = block
            for result in op.results:
                self.defining[result] = op
            for value in op.operands:
                self.readers.setdefault(value, []).append(op)
            if isinstance(op, (tile.For, tile.If)):
                for inner in op.regions:
                    self._scan(inner)
            self._constrain(op)

    def _constrain(self, op: Op) -> None:
        match op:
            case tile.Elementwise() | tile.Cast():
                self._tie(*op.results, *op.operands)
            case tile.For():
                for values in zip(op.body.params[1:], op.body.yields, op.results, op.inits):
                    self._tie(*values)
            case tile.If():
                for values in zip(op.results, *(b.yields for b in op.regions)):
                    self._tie(*values)
            case tile.Dot():
                self._tie(op.result, op.accumulator)
                self._anchor(op.result, DOT, lambda: self.plan(op).accumulator)
                self._keep(op, op.a, lambda: self.plan(op).a)
                self._keep(op, op.b, lambda: self.plan(op).b)
            case tile.Reduce():
                source = op.source
                self._anchor(op.result, REDUCE, lambda: _reduced(self.layout(source), op.axis))
            case tile.Permute():
                source, axes = op.source, op.axes
                self._anchor(
                    op.result, MOVED, lambda: self.layout(source).permute(axes) if not self.is_leaf(source) else None
                )
            case tile.Load():
                self._anchor(op.result, LOAD, lambda: self.memory_layout(op.result.tile_type, op.tensor.tensor_type))
            case tile.Store():
                self._anchor(op.value, STORE, lambda: self.memory_layout(op.value.tile_type, op.tensor.tensor_type))
            case tile.Scatter() | tile.AtomicAdd():
                self._tie(op.value, *op.indices)

    def _keep(self, op: tile.Dot, operand: Value, layout: Callable[[], Layout]) -> None:
        """An operand that is loaded outside of the dot's loop stays in registers, as the dot wants it."""
        load, axes = self.source_of(operand)
        if isinstance(load, tile.Load) and self.home[load] is not self.home[op]:
            self._anchor(load.result, KEPT, lambda: layout().permute(tuple(axes.index(a) for a in range(len(axes)))))

    def source_of(self, value: Value) -> tuple[Op | None, tuple[int, ...]]:
        """The op behind a chain of transpositions, and the axes of its result in the value's order."""
        axes = tuple(range(len(value.shape)))
        op = self.defining.get(value)
        while isinstance(op, tile.Permute):
            axes = tuple(op.axes[a] for a in axes)
            op = self.defining.get(op.source)
        return op, axes

    def plan(self, op: tile.Dot) -> dots.DotPlan:
        """How a dot is computed; operands that the program computes are taken as their classes hold them where that
        serves."""
        if op not in self.plans:
            held = self._held(op.a), self._held(op.b)
            self.plans[op] = dots.plan(
                op,
                self.program.waves,
                self.target,
                self._wants_rows(op),
                self.mfma_rows,
                self._combined(op),
                held,
                self._followers(op),
            )
        return self.plans[op]

    def _held(self, operand: Value) -> Layout | None:
        """The layout of an operand that comes out of arithmetic; None for leaves and for what is loaded (it may have
        any)."""
        if self.is_leaf(operand) or isinstance(self.source_of(operand)[0], (tile.Load, tile.Gather)):
            return None
        try:
            return self.layout(operand)
        except _Cycle:
            return None

    def _followed(self, op: tile.Dot) -> Iterator[tuple[Op, Value]]:
        """The ops that read a tile of the class of a dot's result, each with the tile that it reads: all dots of one
        accumulator, in whatever loops, find the same."""
        key = self.find(op.result)
        for value, readers in self.readers.items():
            if isinstance(value.type, TileType) and self.find(value) is key:
                yield from ((reader, value) for reader in readers)

    def _wants_rows(self, op: tile.Dot) -> bool:
        """Whether a lane should hold consecutive columns of the result: unless it is stored to a tensor contiguous
        along rows' axis."""
        return next(
            (
                reader.tensor.tensor_type.contiguous != reader.tensor.rank - 2
                for reader, _ in self._followed(op)
                if isinstance(reader, tile.Store)
            ),
            True,
        )

    def _followers(self, op: tile.Dot) -> list[tile.Dot]:
        """The dots that take the result as an operand."""
        return [r for r, value in self._followed(op) if isinstance(r, tile.Dot) and value is not r.accumulator]

    def _combined(self, op: tile.Dot) -> frozenset[int]:
        """The axes of a dot's result along which elements are combined later: by a reduction, or by the next dot."""
        axes = set()
        for reader, value in self._followed(op):
            if isinstance(reader, tile.Reduce):
                axes.add(reader.axis)
            elif isinstance(reader, tile.Dot) and value is not reader.accumulator:
                axes.add(1 if value is reader.a else 0)
        return frozenset(axes)

    def memory_layout(self, type: TileType, tensor: TensorType) -> Layout:
        """Coalesced: 16 bytes per lane where the tensor's alignment allows, lanes along the contiguous axis first."""
        rank = len(type.shape)
        if not rank:
            return replicated(self.program.waves, self.target.wave_size)
        contiguous = tensor.contiguous if tensor.contiguous is not None else rank - 1
        order = (contiguous, *(axis for axis in reversed(range(rank)) if axis != contiguous))
        size = max(8, type.dtype.bits) // 8
        vectors = tensor.alignment >= 4 and tensor.contiguous is not None and tensor.offsets_fit(type.shape)
        most = 16 if vectors else size
        # A narrow item still fills a register with its neighbours, so that packed arithmetic and LDS writes stay whole.
        vector = max(most, 4) // size if size < 4 else most // size
        return blocked(
            type.shape,
            order,
            max(1, vector),
            self._rows_first(type.shape, order, max(1, vector)),
            self.target.wave_size,
        )

    def _rows_first(self, shape: tuple[int, ...], order: tuple[int, ...], vector: int) -> int | tuple[int, ...]:
        """Waves per axis, the slowest axes first, after lanes took their part: reductions along the contiguous axis
        then stay within waves. A plain number where waves would be left over."""
        lanes, left = self.target.wave_size, list(shape)
        left[order[0]] = max(1, left[order[0]] // math.gcd(left[order[0]], vector))
        for axis in order:
            taken = math.gcd(lanes, left[axis])
            lanes, left[axis] = lanes // taken, left[axis] // taken
        rest, counts = self.program.waves, [1] * len(shape)
        for axis in reversed(order):
            counts[axis] = math.gcd(rest, left[axis])
            rest //= counts[axis]
        return tuple(counts) if rest == 1 else self.program.waves

    def default_layout(self, type: TileType) -> Layout:
        if not type.shape:
            return replicated(self.program.waves, self.target.wave_size)
        order = tuple(reversed(range(len(type.shape))))
        vector = max(1, 32 // max(8, type.dtype.bits))
        return blocked(type.shape, order, vector, self.program.waves, self.target.wave_size)

    def layout(self, value: Value) -> Layout:
        """The layout of a tile's class (leaves: a default one)."""
        if self.is_leaf(value):
            return self.default_layout(value.tile_type)
        key = self.find(value)
        if key in self.busy:
            raise _Cycle
        if key not in self.chosen:
            self.busy.add(key)
            found = None
            for anchor in sorted(self.anchors.get(key, []), key=lambda a: -a.strength):
                try:
                    found = anchor.layout()
                except _Cycle:
                    continue
                if found is not None:
                    break
            self.busy.discard(key)
            self.chosen[key] = found or self.default_layout(value.tile_type)
        return self.chosen[key]


def replicated(waves: int, wave_size: int) -> Layout:
    """The layout of a tile without axes: every lane holds the element."""
    return Layout((), (), ((),) * (wave_size.bit_length() - 1), ((),) * (waves.bit_length() - 1))


class _Cycle(Exception):
    """A class whose layout depends on itself; another anchor decides."""


def _reduced(layout: Layout, axis: int) -> Layout | None:
    plan = reduction(layout, axis)
    return plan.result if plan else None
