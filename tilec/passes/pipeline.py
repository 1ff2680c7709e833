"""needs, gives  form laid_out
promise  in a loop that fills LDS from global memory, the copies of the next trip are on their way while this trip
         computes; right for any trip count from 0 up
method   every op of the loop has a stage: copies (with the index arithmetic they need) run one trip ahead, the rest
         does not. From the stages follow a first copy before the loop, the steady loop, and a last trip that copies
         nothing. Rings get a slot per stage in flight; copies that pass through registers are written after the
         trip's reads, so one slot may do
checked  interpreter before == after, trip counts from 0; the emulator's race check
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilec.dtypes import dtype
from tilec.ir import tile
from tilec.ir.core import Block, Builder, Op, Program, ScalarType, Substitution, TokenType, Value, clone_op
from tilec.passes.place_lds import ring_bytes, room_beside
from tilec.target import Target

I32, BOOL = ScalarType(dtype("i32")), ScalarType(dtype("bool"))


def pipeline(program: Program, target: Target) -> Program:
    """The program with its copying loops pipelined, where the rings fit LDS and no wave schedule has taken care of
    them."""
    plans = [
        plan
        for op in program.walk()
        if isinstance(op, tile.For) and not op.scheduled and (plan := _plan(op)) is not None
    ]
    rings: dict[Value, Value] = {}
    chosen: dict[tile.For, _Plan] = {}
    for plan in plans:
        if 2 * sum(ring_bytes(ring) for ring in plan.rings) <= room_beside(program, plan.loop, plan.rings, target):
            rings.update({r: r.like(replace(r.shared_type, slots=2)) for r in plan.rings})
        elif plan.direct:
            continue  # copies past the registers need a slot that nobody reads
        chosen[plan.loop] = plan
    return program.replace(body=_Rewrite(rings, chosen).block(program.body)) if chosen else program


@dataclass(frozen=True, eq=False)
class _Plan:
    """What a loop's stages are: `ahead` runs a trip early: the copies, and what they alone need. Of copies through
    registers the write to LDS (`writes`) is issued early too, but after the trip's reads."""

    loop: tile.For
    ahead: tuple[Op, ...]
    writes: tuple[tile.SharedWrite, ...]
    rest: tuple[Op, ...]
    rings: tuple[Value, ...]
    direct: bool


def _plan(loop: tile.For) -> _Plan | None:
    """The stages of a loop, or None when it fills no ring that only it reads, or when a copy depends on what the trip
    computes."""
    counter = loop.body.params[0]
    body = loop.body.ops
    loads = tile.loads_to_lds(loop.body)
    writes = [op for op in body if isinstance(op, tile.SharedWrite) and op.value in loads]
    direct = [op for op in body if isinstance(op, tile.AsyncCopy)]
    copies = [*direct, *(loads[w.value] for w in writes)]
    if not copies or any(op.slot is not None for op in (*writes, *direct)):
        return None
    if any(not c.inside or any(i is counter and not ok for i, ok in zip(c.indices, c.inside)) for c in copies):
        return None  # the loop over the rest of a split: a trip or two
    if any(isinstance(c, tile.Load) and c.tensor.tensor_type.alignment < 4 for c in copies):
        return None  # loaded piece by piece and put together at once: nothing would be on its way, but registers held
    known = {counter}
    index_ops: list[Op] = []
    wanted = {v for c in copies for v in c.operands}
    for op in reversed(body):
        if any(r in wanted for r in op.results) and not isinstance(op, (tile.Load, tile.AsyncCopy)):
            if op.effect or op.regions:
                return None
            index_ops.insert(0, op)
            wanted |= set(op.operands)
    known |= {r for op in index_ops for r in op.results}
    inside = {r for op in body for r in op.results} | set(loop.body.params)
    if any(v in inside and v not in known for c in copies for v in c.operands):
        return None
    rings = tuple(dict.fromkeys(op.buffer for op in (*writes, *direct)))
    ahead = tuple(op for op in body if op in index_ops or op in copies)
    rest = tuple(op for op in body if op not in copies and op not in writes)
    return _Plan(loop, ahead, tuple(writes), rest, rings, direct=not writes)


class _Rewrite:
    def __init__(self, rings: dict[Value, Value], plans: dict[tile.For, _Plan]):
        self.rings, self.plans = rings, plans

    def block(self, block: Block) -> Block:
        ops: list[Op] = []
        for op in block.ops:
            if isinstance(op, tile.For) and op in self.plans:
                ops += self._pipelined(self.plans[op])
            elif isinstance(op, tile.Alloc) and op.result in self.rings:
                ops.append(op.replace(results=(self.rings[op.result],)))
            else:
                ops.append(op.map_regions(self.block))
        return Block(block.params, tuple(ops), block.yields)

    def _pipelined(self, plan: _Plan) -> list[Op]:
        """`if lower < upper`: first copies; steady loop while another trip follows; the last trip."""
        loop = plan.loop
        out, inner = Builder(), Builder()
        some = out.emit(tile.Elementwise((loop.lower, loop.upper), "lt", results=(Value(BOOL),)))
        two_slots = plan.rings[0] in self.rings
        zero = inner.emit(tile.Constant(0, results=(Value(I32),)))
        tokens = self._copies(inner, plan, loop.lower, zero if two_slots else None, None)
        tokens += self._writes(inner, plan, zero if two_slots else None, None)
        inner.emit(tile.Barrier(tuple(tokens), "publish", where=loop.where))
        inner.emit(steady := self._steady(inner, plan, zero, two_slots))
        *carried, last, slot = steady.results
        results = self._trip(inner, plan, last, tuple(carried), slot if two_slots else None, None)
        yields = Block((), tuple(inner.ops), results)
        out.emit(tile.If(some, yields, Block((), (), loop.inits), results=loop.results, where=loop.where))
        return out.ops

    def _steady(self, before: Builder, plan: _Plan, zero: Value, two_slots: bool) -> tile.For:
        loop = plan.loop
        upper = before.emit(tile.Elementwise((loop.upper, loop.step), "sub", results=(Value(I32),)))
        counter = loop.body.params[0].like()
        carried = tuple(p.like() for p in loop.body.params[1:])
        at, slot = Value(I32, f"{counter.name}_at"), Value(I32, "slot")
        b = Builder()
        following = b.emit(tile.Elementwise((counter, loop.step), "add", results=(Value(I32, f"{counter.name}_next"),)))
        one = b.emit(tile.Constant(1, results=(Value(I32),)))
        other = b.emit(tile.Elementwise((slot, one), "xor", results=(Value(I32, "next_slot"),)))
        self._copies(b, plan, following, other if two_slots else None, 1 if two_slots else None)
        results = self._trip(b, plan, counter, carried, slot if two_slots else None, 0 if two_slots else None)
        self._writes(b, plan, other if two_slots else None, 1 if two_slots else None)
        body = b.block((counter, *carried, at, slot), (*results, following, other))
        final = (*(r.like() for r in loop.results), at.like(), slot.like())
        return tile.For(
            loop.lower, upper, loop.step, (*loop.inits, loop.lower, zero), body, results=final, where=loop.where
        )

    def _copies(self, b: Builder, plan: _Plan, counter: Value, slot: Value | None, phase: int | None) -> list[Value]:
        """The copies of the trip that `counter` names, into `slot`."""
        self.names = Substitution()
        self.names[plan.loop.body.params[0]] = counter
        tokens = []
        for op in plan.ahead:
            op = clone_op(op, self.names)
            if isinstance(op, tile.AsyncCopy):
                op = op.replace(buffer=self.rings.get(op.buffer, op.buffer), slot=slot, phase=phase)
                tokens.append(op.result)
            b.emit(op)
        return tokens

    def _writes(self, b: Builder, plan: _Plan, slot: Value | None, phase: int | None) -> list[Value]:
        """What the last `_copies` loaded to registers goes to LDS."""
        return [
            b.emit(
                op.replace(
                    buffer=self.rings.get(op.buffer, op.buffer),
                    value=self.names(op.value),
                    slot=slot,
                    phase=phase,
                    results=(Value(TokenType(), op.result.name),),
                )
            )
            for op in plan.writes
        ]

    def _trip(
        self, b: Builder, plan: _Plan, counter: Value, carried: tuple[Value, ...], slot: Value | None, phase: int | None
    ) -> tuple[Value, ...]:
        """One trip without its copies; gives what it yields."""
        names = Substitution()
        for param, value in zip(plan.loop.body.params, (counter, *carried)):
            names[param] = value
        for op in plan.rest:
            op = clone_op(op, names)
            if isinstance(op, tile.SharedRead) and op.buffer in plan.rings:
                op = op.replace(buffer=self.rings.get(op.buffer, op.buffer), slot=slot, phase=phase)
            b.emit(op)
        return tuple(names(v) for v in plan.loop.body.yields)
