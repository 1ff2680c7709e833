"""What a loop that fills LDS and multiplies what it reads consists of, as the schedules see it."""

from __future__ import annotations

from dataclasses import dataclass

from tilec.ir import tile
from tilec.ir.core import Op, Value


@dataclass(frozen=True, eq=False)
class LoopOps:
    """The ops of a loop that fills rings in LDS and reads them: `copies` (straight to LDS) or `loads` and `writes`
    (through registers), `reads`, `dots`, and `others`, which need no LDS; `index` is what copies need (of `others`
    too, where they need it), `constant` what is the same in every trip. All in program order."""

    loop: tile.For
    index: tuple[Op, ...]
    copies: tuple[tile.AsyncCopy, ...]
    loads: tuple[tile.Load, ...]
    writes: tuple[tile.SharedWrite, ...]
    reads: tuple[tile.SharedRead, ...]
    dots: tuple[tile.Dot, ...]
    others: tuple[Op, ...]
    constant: tuple[Op, ...]

    @property
    def direct(self) -> bool:
        return not self.loads

    def fill(self, ring: Value) -> Op:
        """The op that fills a ring (of a copy through registers: the load)."""
        for copy in self.copies:
            if copy.buffer is ring:
                return copy
        write = next(w for w in self.writes if w.buffer is ring)
        return next(load for load in self.loads if load.result is write.value)

    def write(self, load: Op) -> tile.SharedWrite:
        return next(w for w in self.writes if w.value is load.results[0])


def loop_ops(loop: tile.For, defining: dict[Value, Op]) -> LoopOps | None:
    """The loop's ops by kind; None where it fills no ring, or a fill depends on what the trip computes, or its step is
    not 1, or an op accesses memory beside the rings."""
    body, counter = loop.body.ops, loop.body.params[0]
    step = defining.get(loop.step)
    copies = tuple(op for op in body if isinstance(op, tile.AsyncCopy))
    results = tile.loads_to_lds(loop.body)
    writes = tuple(op for op in body if isinstance(op, tile.SharedWrite) and op.value in results)
    loads = tuple(results[w.value] for w in writes)
    if not (copies or loads) or (copies and loads) or not isinstance(step, tile.Constant) or step.value != 1:
        return None
    fills = (*copies, *loads)
    if any(i is counter and not ok for f in fills for i, ok in zip(f.indices, f.inside or (False,) * len(f.indices))):
        return None
    index: list[Op] = []
    wanted = {v for f in fills for v in f.operands}
    for op in reversed(body):
        if op not in fills and set(op.results) & wanted:
            if op.effect or op.regions:
                return None
            index.insert(0, op)
            wanted |= set(op.operands)
    inside = {r for op in body for r in op.results} | set(loop.body.params)
    known = {counter, *(r for op in index for r in op.results)}
    if any(v in inside and v not in known for f in fills for v in f.operands):
        return None
    rings = {f.buffer for f in (*copies, *writes)}
    reads = tuple(op for op in body if isinstance(op, tile.SharedRead) and op.buffer in rings)
    dots = tuple(op for op in body if isinstance(op, tile.Dot))
    taken = {*fills, *writes, *reads, *dots}
    used = {*loop.body.yields, *(v for op in body if op not in index and op not in fills for v in op.operands)}
    for op in reversed(index):      # what not only copies need is computed once more, with the rest
        if used.intersection(op.results):
            used.update(op.operands)
    rest = tuple(op for op in body if op not in taken and (op not in index or used.intersection(op.results)))
    crossing = any(isinstance(op, tile.Reduce) and op.scratch is not None for op in rest)    # has barriers of its own
    if not dots or not reads or crossing or any(op.regions or op.effect for op in rest):
        return None
    changing = {*loop.body.params, *(r for op in taken for r in op.results)}
    for op in rest:
        if changing.intersection(op.operands):
            changing.update(op.results)
    others = tuple(op for op in rest if changing.intersection(op.results))
    constant = tuple(op for op in rest if op not in others)
    return LoopOps(loop, tuple(index), copies, loads, writes, reads, dots, others, constant)
