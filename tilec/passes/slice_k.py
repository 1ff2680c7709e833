"""needs, gives  form traced
promise  the same results; a dot that is cut is computed in `count` slices of k, each loaded when its turn comes:
         LDS and registers hold one slice at a time. Sums run over k in the same order
method   a dot whose operands are tiles of tensors becomes a loop over slices of them. Where a loop over tiles does
         nothing but such dots, its own counter counts slices instead, and the loop stays one loop
checked  interpreter before == after
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from tilec.dtypes import dtype
from tilec.ir import tile
from tilec.ir.core import Block, Builder, Program, ScalarType, TileType, Value, changes_memory, definitions
from tilec.target import Target

I32 = ScalarType(dtype("i32"))
SLICE_BYTES = 64     # of a row, at least: of thinner slices lanes could not read 16 bytes at once from LDS


def slice_k(program: Program, target: Target, count: int, least: int = SLICE_BYTES) -> Program:
    """The program with each dot that can be cut into `count` slices of k cut so, of `least` bytes or more of a row; the
    program itself if none can."""
    return program if count == 1 else _Slicer(program, target, count, least).run()


@dataclass(frozen=True, eq=False)
class _Operand:
    """An operand of a dot: a load, and the transpositions between the two, the dot's last. `axis`: k in the load."""

    load: tile.Load
    moves: tuple[tile.Permute, ...]
    axis: int

    @property
    def index(self) -> Value:
        """The tile index along k."""
        return self.load.indices[self.axis]


class _Slicer:
    def __init__(self, program: Program, target: Target, count: int, least: int):
        self.program, self.target, self.count, self.least = program, target, count, least
        self.defining = definitions(program.body)
        self.changed = False

    def run(self) -> Program:
        body = self._block(self.program.body)
        return self.program.replace(body=body) if self.changed else self.program

    def _block(self, block: Block) -> Block:
        b = Builder()
        for op in block.ops:
            if isinstance(op, tile.For) and (operands := self._only_dots(op)) is not None:
                self._recount(op, operands, b)
            elif isinstance(op, tile.Dot) and (pair := self._operands(op, block)) is not None:
                self._as_loop(op, pair, b)
            else:
                b.emit(op.map_regions(self._block))
                continue
            self.changed = True
        return b.block(block.params, block.yields)

    # -- what can be cut ---------------------------------------------------------------------------------------------

    def _operands(self, dot: tile.Dot, block: Block) -> tuple[_Operand, _Operand] | None:
        """Both operands of a dot that can be cut: loaded beside it, memory unchanged since, and deep enough. A sum that
        fills the registers by itself is not worth it."""
        a, b = self._operand(dot.a, 1), self._operand(dot.b, 0)
        if a is None or b is None or dot.scales:
            return None
        depth, rest = divmod(dot.a.shape[1], self.count)
        rows = self.target.mfmas_for(dot.a.dtype, dot.b.dtype, dot.accumulator.dtype)
        if rest or depth * dot.a.dtype.bits < 8 * self.least or not any(depth % row.k == 0 for row in rows):
            return None
        waves = min(self.program.waves, self.target.simds)
        room = 32 * self.target.registers_per_lane * self.target.wave_size * waves
        if math.prod(dot.result.shape) * dot.result.dtype.bits >= room:
            return None
        if a.load not in block.ops or b.load not in block.ops:
            return None
        first = min(block.ops.index(a.load), block.ops.index(b.load))
        return None if any(map(changes_memory, block.ops[first : block.ops.index(dot)])) else (a, b)

    def _operand(self, value: Value, axis: int) -> _Operand | None:
        moves: list[tile.Permute] = []
        while isinstance(op := self.defining.get(value), tile.Permute):
            moves.insert(0, op)
            value, axis = op.source, op.axes[axis]
        return _Operand(op, tuple(moves), axis) if isinstance(op, tile.Load) else None

    def _only_dots(self, loop: tile.For) -> dict[tile.Dot, tuple[_Operand, _Operand]] | None:
        """The dots of a loop over the tiles of their k, if it does nothing else and each adds to a sum of its own."""
        counter, *sums = loop.body.params
        dots = [op for op in loop.body.ops if isinstance(op, tile.Dot)]
        found = {dot: pair for dot in dots if (pair := self._operands(dot, loop.body)) is not None}
        operands = [operand for pair in found.values() for operand in pair]
        step = self.defining.get(loop.step)
        alone = {op for operand in operands for op in (operand.load, *operand.moves)} | set(dots) == set(loop.body.ops)
        if not (dots and alone and len(found) == len(dots) and isinstance(step, tile.Constant) and step.value == 1):
            return None
        along_k = all([i is counter for i in o.load.indices] == [axis == o.axis for axis in range(len(o.load.indices))]
                      for o in operands)
        own = {dot.accumulator: dot.result for dot in dots}
        return found if along_k and len(own) == len(dots) and own == dict(zip(sums, loop.body.yields)) else None

    # -- the cut -----------------------------------------------------------------------------------------------------

    def _recount(self, loop: tile.For, operands: dict[tile.Dot, tuple[_Operand, _Operand]], b: Builder) -> None:
        """The loop, its counter in units of slices."""
        inner = Builder()
        for dot, pair in operands.items():
            self._slice(dot, pair, inner, lambda operand: operand.index, dot.accumulator, dot.result)
        lower, upper = (self._scalar("mul", bound, self.count, b) for bound in (loop.lower, loop.upper))
        b.emit(loop.replace(lower=lower, upper=upper, body=inner.block(loop.body.params, loop.body.yields)))

    def _as_loop(self, dot: tile.Dot, operands: tuple[_Operand, _Operand], b: Builder) -> None:
        """The dot as a loop over its slices."""
        firsts = {operand: self._scalar("mul", operand.index, self.count, b) for operand in operands}
        lower, upper, step = (b.emit(tile.Constant(number, results=(Value(I32),))) for number in (0, self.count, 1))
        counter, total, result = Value(I32, "slice"), dot.accumulator.like(), dot.result.like()
        inner = Builder()

        def index(operand: _Operand) -> Value:
            return inner.emit(tile.Elementwise((firsts[operand], counter), "add", results=(Value(I32),)))

        self._slice(dot, operands, inner, index, total, result)
        body = inner.block((counter, total), (result,))
        b.emit(tile.For(lower, upper, step, (dot.accumulator,), body, results=(dot.result,), where=dot.where))

    def _slice(
        self,
        dot: tile.Dot,
        operands: tuple[_Operand, _Operand],
        b: Builder,
        index: Callable[[_Operand], Value],
        total: Value,
        result: Value,
    ) -> None:
        """One slice of a dot, added to `total`; `index` tells which, in units of slices."""
        sides = []
        for operand in operands:
            load = operand.load
            indices = tuple(index(operand) if i == operand.axis else v for i, v in enumerate(load.indices))
            value = b.emit(load.replace(indices=indices, results=(self._part(load.result, operand.axis),)))
            axis = operand.axis
            for move in operand.moves:
                axis = move.axes.index(axis)
                value = b.emit(move.replace(source=value, results=(self._part(move.result, axis),)))
            sides.append(value)
        b.emit(dot.replace(a=sides[0], b=sides[1], accumulator=total, results=(result,)))

    def _part(self, value: Value, axis: int) -> Value:
        shape = tuple(size // self.count if i == axis else size for i, size in enumerate(value.shape))
        return value.like(TileType(shape, value.dtype))

    def _scalar(self, function: str, value: Value, number: int, b: Builder) -> Value:
        constant = b.emit(tile.Constant(number, results=(Value(I32),)))
        return b.emit(tile.Elementwise((value, constant), function, results=(Value(I32),)))

