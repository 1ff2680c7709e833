"""needs, gives  form laid_out or clustered
promise  every LDS ring has a place; rings that are alive at the same time do not overlap; the total fits the
         architecture
method   a ring lives from its first to its last access in program order (an access in a loop: the whole loop); first
         fit by size
checked  the emulator's race check; the sum in the resource table
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tilec.errors import OverBudget
from tilec.ir import tile
from tilec.ir.core import Block, Op, Program, SharedType, Value
from tilec.target import Target

ALIGNMENT = 128


def place_lds(program: Program, target: Target) -> Program:
    """The program with `offset` set on each Alloc. Raises OverBudget when the rings do not fit."""
    lives = _lives(program)
    rings = [op.result for op in program.body.ops if isinstance(op, tile.Alloc)]
    places: dict[Value, int] = {}
    for ring in sorted(rings, key=lambda r: (-ring_bytes(r), lives.get(r, (0, 0)))):
        taken = sorted(
            (places[o], places[o] + ring_bytes(o)) for o in places if _overlap(lives.get(o), lives.get(ring))
        )
        offset = 0
        for first, end in taken:
            if offset + ring_bytes(ring) <= first:
                break
            offset = max(offset, -(-end // ALIGNMENT) * ALIGNMENT)
        places[ring] = offset
    used = max((places[r] + ring_bytes(r) for r in rings), default=0)
    if used > target.lds_bytes:
        largest = max(rings, key=ring_bytes)
        where = next((op.where for op in program.walk() if largest in op.operands and op.where), program.where)
        sizes = (f"{r.name.removesuffix('_lds')}: {_text(r.shared_type)} = {ring_bytes(r)} bytes" for r in rings)
        listing = ", ".join(sizes)
        raise OverBudget(
            f"the tiles of this kernel need {used} bytes of LDS",
            where=where,
            limit=f"{target.name} has {target.lds_bytes} bytes per workgroup ({listing})",
            fix="choose smaller tiles or fewer buffers",
        )
    ops = tuple(op.replace(offset=places[op.result]) if isinstance(op, tile.Alloc) else op for op in program.body.ops)
    return program.replace(body=Block(program.body.params, ops, program.body.yields))


def room_beside(program: Program, loop: tile.For, rings: Iterable[Value], target: Target) -> int:
    """Bytes of LDS left for a loop's own `rings`: the others that the outermost loop around it uses live as long."""
    outermost = next(op for op in _outermost_loops(program.body) if op is loop or loop in _ops_in(op))
    others = {v for op in _ops_in(outermost) for v in op.operands if isinstance(v.type, SharedType)} - set(rings)
    return target.lds_bytes - sum(-(-ring_bytes(ring) // ALIGNMENT) * ALIGNMENT for ring in others)


def _outermost_loops(block: Block) -> Iterator[tile.For]:
    for op in block.ops:
        if isinstance(op, tile.For):
            yield op
        else:
            for inner in op.regions:
                yield from _outermost_loops(inner)


def _ops_in(op: Op) -> list[Op]:
    return [inner for block in op.regions for inner in block.walk()]


def ring_bytes(ring: Value) -> int:
    """Bytes of LDS that a ring takes."""
    return ring.shared_type.bytes


def _text(type: SharedType) -> str:
    shape = "x".join(map(str, type.shape))
    return f"{type.slots} x {shape} {type.dtype}" if type.slots > 1 else f"{shape} {type.dtype}"


def _overlap(first: tuple[int, int] | None, second: tuple[int, int] | None) -> bool:
    return first is None or second is None or (first[0] <= second[1] and second[0] <= first[1])


def _lives(program: Program) -> dict[Value, tuple[int, int]]:
    """First and last position at which each ring is accessed."""
    lives: dict[Value, tuple[int, int]] = {}
    position = 0

    def touch(op: Op, first: int, last: int) -> None:
        for value in op.operands:
            if isinstance(value.type, SharedType):
                old = lives.get(value, (first, last))
                lives[value] = min(old[0], first), max(old[1], last)

    def walk(block: Block, span: tuple[int, int] | None) -> None:
        nonlocal position
        for op in block.ops:
            position += 1
            if isinstance(op, tile.For) and span is None:
                start = position
                count = sum(1 for _ in op.body.walk())
                walk(op.body, (start, start + count))
                position = start + count
            elif op.regions:
                for inner in op.regions:
                    walk(inner, span)
            touch(op, *(span or (position, position)))

    walk(program.body, None)
    return lives
