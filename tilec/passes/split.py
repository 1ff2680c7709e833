"""needs, gives  form traced
promise  the same results; the tiles that the schedule splits are computed, loaded and stored part by part
method   a split of a dot's result along m and n spreads to all tiles tied to it: operands, accumulators that loops
         carry, elementwise results, loads and stores. Each op on split tiles becomes one op per part
checked  interpreter before == after
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product

from tilec.dtypes import dtype
from tilec.errors import TilecError
from tilec.ir import tile
from tilec.ir.core import Block, Builder, Op, Program, ScalarType, TileType, Value
from tilec.ir.schedule import Schedule

I32 = ScalarType(dtype("i32"))
Counts = tuple[int, ...]
Index = tuple[int, ...]


def split(program: Program, schedule: Schedule | None) -> Program:
    """The program with the schedule's splits carried out; the program itself when it asks for none."""
    wanted = dot_splits(program, schedule)
    if not wanted:
        return program
    try:
        counts = _spread(program, wanted)
    except TilecError:
        if schedule is not None and schedule.is_named:
            return program  # a named schedule serves every kernel: it does without halves
        raise
    return _Splitter(counts).run(program)


def dot_splits(program: Program, schedule: Schedule | None) -> dict[tile.Dot, Counts]:
    """Parts along (m, n) of each dot that is split: what a custom schedule names, or halves for the named wave
    schedules."""
    if schedule is None or (schedule.is_named and schedule.name == "simple"):
        return {}
    dots = [
        op for loop in program.walk() if isinstance(loop, tile.For) for op in loop.body.ops if isinstance(op, tile.Dot)
    ]
    if schedule.is_named:
        least = 4 * program.waves * max(16, schedule.option("mfma", 0)) ** 2     # one instruction of a part a wave
        return {dot: (2, 2) for dot in dots if min(dot.result.shape) >= 64 and math.prod(dot.result.shape) >= least}
    found: dict[tile.Dot, Counts] = {}
    by_tile = {s.tile: dict(zip(s.axes, s.counts)) for s in schedule.splits}
    for dot in dots:
        names = [dot.result.name, *(v.name for v in _sources(program, dot))]
        asked = [by_tile[name] for name in names if name in by_tile]
        m, n = (max((parts.get(axis, 1) for parts in asked), default=1) for axis in "mn")
        if any(parts.get("k", 1) > 1 for parts in asked):
            raise TilecError(
                f"schedule {schedule.name} splits {dot.result.name} along k",
                where=dot.where,
                limit="dots are split along m and n",
                fix="choose a smaller tile along k in the kernel",
            )
        if (m, n) != (1, 1):
            found[dot] = (m, n)
    return found


def _sources(program: Program, dot: tile.Dot) -> Iterator[Value]:
    """The operands of a dot, seen through transpositions."""
    defining = {r: op for op in program.walk() for r in op.results}
    for value in (dot.a, dot.b):
        yield value
        while isinstance(op := defining.get(value), tile.Permute):
            value = op.source
            yield value


def _spread(program: Program, wanted: dict[tile.Dot, Counts]) -> dict[Value, Counts]:
    """Parts per axis of every tile that is tied to a split one."""
    counts: dict[Value, Counts] = {}
    changed = True

    def need(value: Value, parts: Counts, op: Op) -> None:
        nonlocal changed
        if not isinstance(value.type, TileType) or value not in counts and not any(p > 1 for p in parts):
            return
        if counts.get(value, parts) != parts or any(size % p for size, p in zip(value.shape, parts)):
            raise TilecError(
                f"tile {value.name or '?'} of {_text(value.shape)} can't be split into {_text(parts)}",
                where=op.where,
                limit="all that is computed with it must be split alike",
                fix="leave the split out, or split the other tile alike",
            )
        if value not in counts:
            counts[value] = parts
            changed = True

    def tie(values: tuple[Value, ...], op: Op) -> None:
        parts = next((counts[v] for v in values if v in counts), None)
        if parts is not None:
            for value in values:
                need(value, parts, op)

    for dot, (m, n) in wanted.items():
        need(dot.result, (m, n), dot)
    while changed:
        changed = False
        for op in program.walk():
            match op:
                case tile.Dot() if op.result in counts or op.accumulator in counts:
                    m, n = counts.get(op.result) or counts[op.accumulator]
                    for value, parts in ((op.result, (m, n)), (op.accumulator, (m, n)), (op.a, (m, 1)), (op.b, (1, n))):
                        need(value, parts, op)
                case tile.Elementwise() | tile.Cast():
                    tie((*op.results, *op.operands), op)
                case tile.For():
                    for values in zip(op.inits, op.body.params[1:], op.body.yields, op.results):
                        tie(values, op)
                case tile.If():
                    for values in zip(op.results, op.then.yields, op.otherwise.yields):
                        tie(values, op)
                case tile.Permute():
                    if op.result in counts:
                        parts = counts[op.result]
                        need(op.source, tuple(parts[op.axes.index(axis)] for axis in range(len(parts))), op)
                    elif op.source in counts:
                        need(op.result, tuple(counts[op.source][axis] for axis in op.axes), op)
                case tile.Broadcast():
                    if op.result in counts and isinstance(op.source.type, TileType):
                        need(
                            op.source,
                            tuple(p if size > 1 else 1 for p, size in zip(counts[op.result], op.source.shape)),
                            op,
                        )
                case tile.ExpandDims():
                    if op.result in counts:
                        parts = counts[op.result]
                        need(op.source, parts[: op.axis] + parts[op.axis + 1 :], op)
                case tile.Load() | tile.Store() | tile.Constant() | tile.Iota() | tile.Dot():
                    pass
                case _:
                    for value in (*op.operands, *op.results):
                        if value in counts:
                            raise TilecError(
                                f"tile {value.name or '?'} can't be split: {op.mnemonic} needs all of it",
                                where=op.where,
                                fix="leave the split out of the schedule",
                            )
    for op in program.walk():       # whose result is whole takes whole tiles
        if isinstance(op, (tile.Dot, tile.Broadcast, tile.ExpandDims)) and op.result not in counts:
            for value in op.operands:
                need(value, (1,) * len(getattr(value.type, "shape", ())), op)
    return counts


def _text(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


class _Splitter:
    """Rebuilds the program; `parts` maps a split tile to its parts by index, other values to themselves."""

    def __init__(self, counts: dict[Value, Counts]):
        self.counts = counts
        self.parts: dict[tuple[Value, Index], Value] = {}
        self.builders: list[Builder] = []

    def run(self, program: Program) -> Program:
        return program.replace(body=self._block(program.body))

    def _block(self, block: Block) -> Block:
        self.builders.append(Builder())
        params = tuple(part for p in block.params for part in self._new(p))
        for op in block.ops:
            self._op(op)
        return self.builders.pop().block(params, self._all(block.yields))

    def _indices(self, value: Value) -> list[Index]:
        return list(product(*map(range, self.counts[value]))) if value in self.counts else [()]

    def _new(self, value: Value) -> list[Value]:
        """The parts of a value that is now being defined."""
        if value not in self.counts:
            return [value]
        counts = self.counts[value]
        shape = tuple(size // parts for size, parts in zip(value.shape, counts))
        made = []
        for index in self._indices(value):
            number = ", ".join(str(i) for i, parts in zip(index, counts) if parts > 1)
            part = Value(TileType(shape, value.dtype), f"{value.name}[{number}]" if value.name else "")
            self.parts[value, index] = part
            made.append(part)
        return made

    def _part(self, value: Value, index: Index) -> Value:
        if value not in self.counts:
            return value
        return self.parts[value, tuple(i % n for i, n in zip(index, self.counts[value]))]

    def _all(self, values: tuple[Value, ...]) -> tuple[Value, ...]:
        return tuple(self._part(v, index) for v in values for index in self._indices(v))

    def _emit(self, op: Op) -> Value:
        return self.builders[-1].emit(op)

    def _op(self, op: Op) -> None:
        match op:
            case tile.For():
                inits = self._all(op.inits)
                body = self._block(op.body)
                results = tuple(part for r in op.results for part in self._new(r))
                self._emit(op.replace(inits=inits, body=body, results=results))
            case tile.If():
                then, otherwise = self._block(op.then), self._block(op.otherwise)
                results = tuple(part for r in op.results for part in self._new(r))
                self._emit(op.replace(then=then, otherwise=otherwise, results=results))
            case tile.Store() if op.value in self.counts:
                for index in self._indices(op.value):
                    self._emit(
                        op.replace(
                            indices=self._tile_index(op.indices, self.counts[op.value], index),
                            value=self._part(op.value, index),
                        )
                    )
            case _ if op.results and op.result in self.counts:
                for index, result in zip(self._indices(op.result), self._new(op.result)):
                    self._emit(self._of_part(op, index, result))
            case _:
                self._emit(op)

    def _of_part(self, op: Op, index: Index, result: Value) -> Op:
        match op:
            case tile.Dot():
                a, b = self._part(op.a, (index[0], 0)), self._part(op.b, (0, index[1]))
                return op.replace(a=a, b=b, accumulator=self._part(op.accumulator, index), results=(result,))
            case tile.Load():
                return op.replace(
                    indices=self._tile_index(op.indices, self.counts[op.result], index), results=(result,)
                )
            case tile.Permute():
                source = tuple(index[op.axes.index(axis)] for axis in range(len(index)))
                return op.replace(source=self._part(op.source, source), results=(result,))
            case tile.ExpandDims():
                return op.replace(
                    source=self._part(op.source, index[: op.axis] + index[op.axis + 1 :]), results=(result,)
                )
            case tile.Iota() if index[op.axis]:
                own = self._emit(op.replace(results=(result.like(),)))
                first = self._emit(tile.Constant(index[op.axis] * result.shape[op.axis], results=(result.like(),)))
                return tile.Elementwise((own, first), "add", results=(result,), where=op.where)
        return op.map_operands(lambda v: self._part(v, index)).replace(results=(result,))

    def _tile_index(self, indices: tuple[Value, ...], counts: Counts, index: Index) -> tuple[Value, ...]:
        """Tile indices in units of the part: index * parts + number of the part."""
        result = []
        for value, parts, number in zip(indices, counts, index):
            if parts > 1:
                value = self._combined("mul", value, parts)
                value = self._combined("add", value, number) if number else value
            result.append(value)
        return tuple(result)

    def _combined(self, function: str, value: Value, number: int) -> Value:
        constant = self._emit(tile.Constant(number, results=(Value(I32),)))
        return self._emit(tile.Elementwise((value, constant), function, results=(Value(I32),)))
