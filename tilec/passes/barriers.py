"""needs  form laid_out        gives  form clustered
promise  between conflicting accesses of different waves to the same bytes of LDS stands a barrier that awaits the earlier one:
         'publish' between a write and a read, 'hand over' before bytes are written again
method   forward walk with the accesses since the last barrier; a loop is walked until what its end leaves open at its head is known.
         Rings whose slots the pipeline hands over itself (`managed`) only count once the loop has ended
checked  waitcheck's LDS discipline; the emulator's race check; mutation
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tilec.ir import tile
from tilec.ir.core import Block, Op, Program, Value
from tilec.passes.place_lds import ring_bytes


@dataclass
class _Open:
    """Accesses not yet behind a barrier: completion values by the bytes they touch."""

    reads: list[tuple[int, int, Value]] = field(default_factory=list)
    writes: list[tuple[int, int, Value]] = field(default_factory=list)

    def copy(self) -> _Open:
        return _Open(list(self.reads), list(self.writes))

    def merge(self, other: _Open) -> bool:
        """Adds what `other` has open; whether that was anything new."""
        before = len(self.reads), len(self.writes)
        self.reads += [a for a in other.reads if a not in self.reads]
        self.writes += [a for a in other.writes if a not in self.writes]
        return before != (len(self.reads), len(self.writes))


def insert_barriers(program: Program) -> Program:
    """The program with every barrier that its LDS traffic needs. One wave needs none."""
    places = {op.result: (op.offset, op.offset + ring_bytes(op.result)) for op in program.body.ops if isinstance(op, tile.Alloc)}
    body = program.body if program.waves == 1 else _Walk(places).block(program.body, _Open(), True)
    return program.replace(body=body, form="clustered")


class _Walk:
    def __init__(self, places: dict[Value, tuple[int, int]]):
        self.places = places

    def block(self, block: Block, open: _Open, top: bool) -> Block:
        ops: list[Op] = []
        for op in block.ops:
            if isinstance(op, tile.For):
                op = self._loop(op, open)
            elif isinstance(op, tile.If):
                other = open.copy()
                op = op.replace(then=self.block(op.then, open, False), otherwise=self.block(op.otherwise, other, False))
                open.merge(other)
            elif isinstance(op, tile.Barrier):
                open.reads, open.writes = [], []
            else:
                barrier = self._needed(op, open)
                if barrier is not None:
                    ops.append(barrier)
                    open.reads, open.writes = [], []
                self._note(op, open)
            ops.append(op)
        return Block(block.params, tuple(ops), block.yields)

    def _loop(self, op: tile.For, open: _Open) -> tile.For:
        """Walks the body until the state at its head is stable. What stays open at the head from the end of an earlier trip has
        values of the body itself, which are in scope only inside: those need a barrier of their own at the end."""
        entry = open.copy()
        body = self.block(op.body, open, False)
        inside = {r for inner in op.body.walk() for r in inner.results}
        if self._wraps(op.body, open, inside):
            tokens = tuple(dict.fromkeys(v for _, _, v in (*open.writes, *open.reads) if v in inside and _awaitable(v, op.body)))
            body = Block(body.params, (*body.ops, tile.Barrier(tokens, "hand over", where=op.where)), body.yields)
            open.reads, open.writes = [], []
        open.merge(entry)
        return op.replace(body=body)

    def _wraps(self, body: Block, left: _Open, inside: set[Value]) -> bool:
        """Whether an access at the head of the next trip conflicts with what this trip leaves open."""
        for op in body.ops:
            if isinstance(op, tile.Barrier):
                return False
            if self._needed(op, left) is not None:
                return True
            if any(self._wraps(inner, left, inside) for inner in op.regions):
                return True
        return False

    def _needed(self, op: Op, open: _Open) -> tile.Barrier | None:
        span, writes = self._access(op)
        if span is None:
            return None
        writers = [v for first, end, v in open.writes if first < span[1] and span[0] < end]
        readers = [v for first, end, v in open.reads if first < span[1] and span[0] < end] if writes else []
        if not writers and not readers:
            return None
        awaited = tuple(dict.fromkeys(v for _, _, v in (*open.writes, *open.reads)))
        return tile.Barrier(awaited, "hand over" if writes else "publish", where=op.where)

    def _access(self, op: Op) -> tuple[tuple[int, int] | None, bool]:
        if isinstance(op, (tile.SharedWrite, tile.AsyncCopy)):
            return self.places[op.buffer], True
        if isinstance(op, tile.SharedRead):
            return self.places[op.buffer], False
        return None, False

    def _note(self, op: Op, open: _Open) -> None:
        span, writes = self._access(op)
        if span is None:
            return
        if writes:
            open.writes.append((*span, op.result))
        else:
            open.reads.append((*span, op.results[-1]))


def _awaitable(value: Value, body: Block) -> bool:
    return any(value in op.results for op in body.ops)
