"""needs, gives  form laid_out
promise  a loop that fills LDS and reads it for dots runs as the schedule's clusters; every access that another
         wave's access must follow is awaited at a barrier between the two, counted with the distance at which the
         halves of the workgroup run
method   each op has a cluster and a number of trips that it runs ahead (cluster_plans.py). From these follow the
         trip, its first copies and reads before the loop, and what is carried around it. Trips are unrolled by the
         slots of the rings, so that slots are constants. Past the last tile the copies fetch it again, and nobody
         reads that: so no trip is special
checked  interpreter before == after; its rule that a copy is read only behind a barrier that awaited it; the
         emulator's race check
"""

from __future__ import annotations

from dataclasses import replace

from tilec.errors import TilecError, Unscheduled
from tilec.ir import tile
from tilec.ir.core import Block, Op, Program, definitions
from tilec.ir.schedule import Overlap, Schedule
from tilec.passes import cluster_plans
from tilec.passes.cluster_loop import ClusteredLoop, LoopPlan
from tilec.passes.cluster_plans import Shape
from tilec.passes.loop_ops import LoopOps, loop_ops
from tilec.passes.place_lds import ring_bytes, room_beside
from tilec.target import Target


def cluster(program: Program, target: Target, schedule: Schedule | None, overlap: Overlap = Overlap.DOTS) -> Program:
    """The program with its filling loops in clusters, where the schedule has any and `overlap` admits them. Raises
    Unscheduled where a named schedule serves no loop."""
    if schedule is None or overlap < Overlap.CLUSTERS or (schedule.is_named and schedule.name == "simple"):
        return program
    if not (schedule.is_named or schedule.clusters or schedule.rings or schedule.ahead or schedule.stagger > 1):
        return program  # it says how many waves, which registers or what order, and nothing of clusters
    if schedule.stagger > 1 and program.waves % 2:
        raise TilecError(
            f"schedule {schedule.name} staggers two halves of the waves",
            where=program.where,
            limit=f"the workgroup has {program.waves} wave{'s' if program.waves > 1 else ''}",
            fix="give the schedule an even number of waves",
        )
    defining = definitions(program.body)
    chosen: dict[tile.For, LoopPlan] = {}
    refused: TilecError | None = None
    for op in program.walk():
        if isinstance(op, tile.For) and (ops := loop_ops(op, defining)) is not None:
            try:
                chosen[op] = _plan(ops, program, target, schedule, overlap)
            except TilecError as error:
                if not schedule.is_named:
                    raise  # a named schedule serves every loop; this one goes without
                refused = refused or error
    if not chosen and schedule.is_named:
        raise Unscheduled(refused.what if refused else "no loop loads tiles by its counter and multiplies them")
    if not chosen:
        raise TilecError(
            f"schedule {schedule.name} finds no loop to schedule",
            where=program.where,
            limit="it needs a loop that loads tiles by its counter and multiplies them",
            fix="use the schedule 'simple'",
        )
    return program.replace(body=_Rewrite(chosen).block(program.body))


def _plan(ops: LoopOps, program: Program, target: Target, schedule: Schedule, overlap: Overlap) -> LoopPlan:
    rings = list(dict.fromkeys(f.buffer for f in (*ops.copies, *ops.writes)))
    stagger = 1 if schedule.name == "pingpong" or schedule.stagger > 1 else 0
    asked = schedule.option("buffers") or max((n for _, n in schedule.rings), default=2)
    room = room_beside(program, ops.loop, rings, target) // max(1, sum(ring_bytes(r) for r in rings))
    slots = min(asked, room) if ops.direct else 1 if room < 2 or schedule.is_named else asked
    if ops.direct and slots < 2 or slots < 1 or not schedule.is_named and slots < asked:
        listing = ", ".join(f"{r.name.removesuffix('_lds')} {ring_bytes(r)}" for r in rings)
        raise TilecError(
            f"schedule {schedule.name} needs {asked} buffers of each tile",
            where=ops.loop.where,
            limit=f"{asked * sum(map(ring_bytes, rings))} bytes of LDS, {target.name} has {target.lds_bytes} "
            f"(one buffer each: {listing})",
            fix="use fewer buffers or smaller tiles",
        )
    shape = Shape(slots, stagger)
    new = {r: r.like(replace(r.shared_type, slots=slots)) for r in rings}
    if not schedule.is_named:
        return _proven(LoopPlan(ops, cluster_plans.custom(ops, shape, schedule), shape, new))
    build = cluster_plans.pingpong if schedule.name == "pingpong" else cluster_plans.interleave
    try:
        return _proven(LoopPlan(ops, build(ops, shape, overlap is Overlap.DOTS), shape, new))
    except TilecError:
        if overlap < Overlap.DOTS:
            raise
        return _proven(LoopPlan(ops, build(ops, shape, False), shape, new))


def _proven(plan: LoopPlan) -> LoopPlan:
    """The plan, if it can be carried out."""
    ClusteredLoop(plan)
    return plan


class _Rewrite:
    def __init__(self, plans: dict[tile.For, LoopPlan]):
        self.plans = plans
        self.rings = {old: new for plan in plans.values() for old, new in plan.rings.items()}

    def block(self, block: Block) -> Block:
        ops: list[Op] = []
        for op in block.ops:
            if isinstance(op, tile.For) and op in self.plans:
                ops += ClusteredLoop(self.plans[op]).ops()
            elif isinstance(op, tile.Alloc) and op.result in self.rings:
                ops.append(op.replace(results=(self.rings[op.result],)))
            else:
                ops.append(op.map_regions(self.block))
        return Block(block.params, tuple(ops), block.yields)


__all__ = ["cluster"]
