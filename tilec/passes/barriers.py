"""needs  form laid_out        gives  form clustered
promise  between conflicting accesses of different waves to the same bytes of LDS stands a barrier that awaits the
         earlier one: 'publish' between a write and a read, 'hand over' before bytes are written again
method   forward walk with the accesses since the last barrier. What the end of a loop leaves open meets the head of
         the next trip, one slot further on in rings whose accesses name their phase; where that conflicts, a barrier
         ends the trip
checked  waitcheck's LDS discipline; the emulator's race check; mutation
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from tilec.ir import tile
from tilec.ir.core import Block, Op, Program, Value
from tilec.passes.place_lds import ring_bytes


@dataclass(frozen=True, eq=False)
class _Access:
    """An access to bytes [first, end) of LDS: of one slot where that is a constant, else of all. `phase` (of `slots`)
    says which then, relative to the trip of the loop around it; None: any. `done` is the token of its completion, None
    where whoever made the access has waited already. `in_order`: a wave that is alone keeps it in order with its other
    LDS instructions, which copies from global memory are not."""

    buffer: Value
    first: int
    end: int
    slots: int
    phase: int | None
    writes: bool
    done: Value | None
    in_order: bool

    def conflicts(self, other: _Access) -> bool:
        if self.in_order and other.in_order:
            return False
        if not (self.writes or other.writes) or self.end <= other.first or other.end <= self.first:
            return False
        if self.buffer is other.buffer and self.phase is not None and other.phase is not None:
            return (self.phase - other.phase) % self.slots == 0
        return True


def insert_barriers(program: Program) -> Program:
    """The program with every barrier that its LDS traffic needs; a wave that is alone, only for its copies."""
    alone = program.waves == 1
    if alone and not any(isinstance(op, tile.AsyncCopy) for op in program.walk()):
        return program.replace(form="clustered")
    places = {op.result: op.offset for op in program.body.ops if isinstance(op, tile.Alloc)}
    constants = {op.result: op.value for op in program.walk() if isinstance(op, tile.Constant)}
    body, _ = _Walk(places, constants, alone).block(program.body, [], False)
    return program.replace(body=body, form="clustered")


class _Walk:
    def __init__(self, places: dict[Value, int], constants: dict[Value, Any], alone: bool):
        self.places, self.constants, self.alone = places, constants, alone

    def block(self, block: Block, open: list[_Access], later: bool) -> tuple[Block, list[_Access]]:
        """The block with barriers, and the accesses open at its end. `later`: whether LDS is accessed after it."""
        ops: list[Op] = []
        follows = [later] * (len(block.ops) + 1)
        for i in reversed(range(len(block.ops))):
            follows[i] = follows[i + 1] or any(self._access(inner) for inner in (block.ops[i], *_below(block.ops[i])))
        for i, op in enumerate(block.ops):
            if isinstance(op, (tile.For, tile.If)) and op.scheduled:
                open = []  # barriers of its own, and one before it
            elif isinstance(op, tile.For):
                op, open = self._loop(op, open, follows[i + 1])
            elif isinstance(op, tile.If):
                then, first = self._branch(op.then, open, follows[i + 1], op)
                otherwise, second = self._branch(op.otherwise, open, follows[i + 1], op)
                op, open = op.replace(then=then, otherwise=otherwise), [*first, *(a for a in second if a not in first)]
            elif isinstance(op, tile.Barrier):
                open = []
            elif (access := self._access(op)) is not None:
                if any(access.conflicts(earlier) for earlier in open):
                    ops.append(_barrier(open, access.writes, op))
                    open = []
                open = [*open, replace(access, writes=False) if isinstance(op, tile.Reduce) else access]
            ops.append(op)
        return Block(block.params, tuple(ops), block.yields), open

    def _branch(self, block: Block, entry: list[_Access], later: bool, op: Op) -> tuple[Block, list[_Access]]:
        """One side of a condition. What it leaves open is closed at its end: outside, nobody could name it."""
        block, open = self.block(block, entry, later)
        return self._closed(block, open, entry, later, op)

    def _closed(
        self, block: Block, open: list[_Access], entry: list[_Access], later: bool, op: Op
    ) -> tuple[Block, list[_Access]]:
        own = [a for a in open if a not in entry]
        if not own or not later:
            return block, [a for a in open if a in entry]
        return Block(block.params, (*block.ops, _barrier(open, False, op)), block.yields), []

    def _loop(self, op: tile.For, entry: list[_Access], later: bool) -> tuple[tile.For, list[_Access]]:
        body, left = self.block(op.body, entry, True)
        wrapped = [replace(a, phase=None if a.phase is None else a.phase - 1) for a in left if a not in entry]
        access = self._first_conflict(body, wrapped)
        if access is not None:
            body, left = Block(body.params, (*body.ops, _barrier(wrapped, access.writes, op)), body.yields), []
        body, left = self._closed(body, left, entry, later, op)
        return op.replace(body=body), entry  # what was open before is so still if there was no trip

    def _first_conflict(self, body: Block, open: list[_Access]) -> _Access | None:
        """The first access at the head of a trip that conflicts with an open one, no barrier between them."""
        for op in body.ops:
            if isinstance(op, tile.Barrier):
                return None
            access = self._access(op)
            if access is not None and any(access.conflicts(earlier) for earlier in open):
                return access
            for inner in op.regions:
                found = self._first_conflict(
                    inner, [replace(a, phase=None) for a in open] if isinstance(op, tile.For) else open
                )
                if found is not None:
                    return found
        return None

    def _access(self, op: Op) -> _Access | None:
        """What an op does to LDS. A reduction across waves writes its buffer first, and at its end has read it and used
        what it read; the barrier between the two is its own."""
        if isinstance(op, tile.Reduce) and op.scratch is not None:
            return self._access_to(op.scratch, None, None, True, None, self.alone)
        if isinstance(op, (tile.SharedWrite, tile.AsyncCopy, tile.SharedRead)):
            writes, in_order = not isinstance(op, tile.SharedRead), self.alone and not isinstance(op, tile.AsyncCopy)
            return self._access_to(op.buffer, op.slot, op.phase, writes, op.results[-1], in_order)
        return None

    def _access_to(
        self, ring: Value, slot: Value | None, phase: int | None, writes: bool, done: Value | None, in_order: bool
    ) -> _Access:
        first, length = self.places[ring], ring_bytes(ring)
        if slot in self.constants:
            length //= ring.shared_type.slots
            first, phase = first + self.constants[slot] * length, None
        return _Access(ring, first, first + length, ring.shared_type.slots, phase, writes, done, in_order)


def _below(op: Op) -> Iterator[Op]:
    for block in op.regions:
        yield from block.walk()


def _barrier(open: list[_Access], writes: bool, before: Op) -> tile.Barrier:
    """Awaits all that is open, since the barrier closes all of it."""
    awaited = tuple(dict.fromkeys(a.done for a in open if a.done is not None))
    return tile.Barrier(awaited, "hand over" if writes else "publish", where=before.where)
