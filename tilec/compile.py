"""The compiler: one tuple of passes, from the traced tile program to the loadable object.

Each pass is a pure function of (program, options) and declares the form it needs and the form it gives. With `verify`,
form verifiers and each pass's independent checker run between all of them; in use they are off.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tilec.backend_amdgcn import clustercheck, emit, hazardcheck, hazards, regalloc, regcheck, waitcheck, waits
from tilec.backend_amdgcn.assemble import assemble
from tilec.backend_amdgcn.lower import lower
from tilec.errors import InternalError, OverBudget
from tilec.ir import machine
from tilec.ir.core import Program, remove_dead
from tilec.ir.schedule import Schedule
from tilec.ir.verify import verify
from tilec.passes.barriers import insert_barriers
from tilec.passes.cluster import MOST_OVERLAP, cluster
from tilec.passes.grid_order import order_grid
from tilec.passes.layouts import assign_layouts
from tilec.passes.pipeline import pipeline
from tilec.passes.place_lds import place_lds
from tilec.passes.simplify import simplify
from tilec.passes.split import split
from tilec.passes.split_tails import split_tails
from tilec.target import Target, target

AnyProgram = Program | machine.Program


@dataclass(frozen=True)
class Options:
    """What passes may ask about: the architecture and the schedule; `overlap`: how much of it a named schedule asks for
    (`passes/cluster.py`)."""

    target: Target
    schedule: Schedule | None
    overlap: int = MOST_OVERLAP


@dataclass(frozen=True)
class Pass:
    """`run` takes a program in form `needs` to one in form `gives`; `check` proves it, given both."""

    name: str
    needs: str
    gives: str
    run: Callable[[Any, Options], AnyProgram]
    check: Callable[[Any, Any], None] | None = None


def _no_faults(faults: list[Any]) -> None:
    if faults:
        raise InternalError("; ".join(map(str, faults[:3])))


PIPELINE: tuple[Pass, ...] = (
    Pass("grid_order", "traced", "traced", lambda p, o: order_grid(p, o.schedule.order) if o.schedule else p),
    Pass("simplify", "traced", "traced", lambda p, o: simplify(p)),
    Pass("split", "traced", "traced", lambda p, o: simplify(split(p, o.schedule))),
    Pass("split_tails", "traced", "traced", lambda p, o: simplify(split_tails(p))),
    Pass("layouts", "traced", "laid_out", lambda p, o: remove_dead(assign_layouts(p, o.target, o.schedule))),
    Pass("cluster", "laid_out", "laid_out", lambda p, o: cluster(p, o.target, o.schedule, o.overlap)),
    Pass("pipeline", "laid_out", "laid_out", lambda p, o: pipeline(p, o.target)),
    Pass("place_lds", "laid_out", "laid_out", lambda p, o: place_lds(p, o.target)),
    Pass("barriers", "laid_out", "clustered", lambda p, o: insert_barriers(p)),
    Pass("lower", "clustered", "virtual", lambda p, o: lower(p, o.target.name, o.schedule.pins if o.schedule else ())),
    Pass("registers", "virtual", "allocated", lambda p, o: regalloc.allocate(p).program, regcheck.check),
    Pass("waits", "allocated", "allocated", lambda p, o: waits.insert(p), lambda _, p: _no_faults(waitcheck.check(p))),
    Pass("hazards", "allocated", "final", lambda p, o: hazards.insert(p),
         # it moves instructions into wait states
         lambda _, p: _no_faults(hazardcheck.check(p) + waitcheck.check(p))),
)


class Stages(dict[str, AnyProgram]):
    """The program after each pass, by the pass's name ('traced' before the first); the name of a form gives the last
    program in that form."""

    def __missing__(self, form: str) -> AnyProgram:
        for program in reversed(self.values()):
            if program.form == form:
                return program
        raise KeyError(form)


@dataclass(frozen=True)
class Compiled:
    """A compiled kernel. `seconds` holds the time of each pass."""

    traced: Program
    arch: str
    schedule: Schedule | None
    stages: Stages
    asm: str
    object: bytes
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.traced.name

    @property
    def machine(self) -> machine.Program:
        """The finished machine program."""
        final = self.stages["hazards"]
        assert isinstance(final, machine.Program)
        return final

    @property
    def waves(self) -> int:
        return self.machine.waves

    @property
    def resources(self) -> machine.Resources:
        return self.machine.resources


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Passes make records by the ten thousand that live on in `stages`; to search them for cycles again and again would
    take a fifth of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@_collector_paused()
def compile(program: Program, arch: str, schedule: Schedule | None = None, verify: bool = False) -> Compiled:
    """Compiles a traced program. Raises TilecError for what can't be done, InternalError when a pass breaks its
    promise."""
    stages = Stages({"traced": program})
    seconds: dict[str, float] = {}
    named = schedule is not None and schedule.is_named
    current: AnyProgram = program
    for overlap in range(MOST_OVERLAP, -1 if named else MOST_OVERLAP - 1, -1):
        try:
            current = _run(Options(target(arch), schedule, overlap), stages, seconds, verify)
        except OverBudget:
            if not named or not overlap:
                raise       # a named schedule serves every kernel: with less overlap, where registers run out
        else:
            if not overlap or not _moves_between_files(current):
                break
        for step in PIPELINE[PIPELINE.index(_OVERLAPPING):]:
            stages.pop(step.name, None)
    assert isinstance(current, machine.Program)
    if verify:
        clustered = stages["barriers"]
        assert isinstance(clustered, Program)
        _no_faults(clustercheck.check(clustered, current))
    start = time.perf_counter()
    text, lines = emit.text(current)
    seconds["emit"] = time.perf_counter() - start
    start = time.perf_counter()
    loadable = assemble(text, arch, line_map=emit.origin(lines))
    seconds["assemble"] = time.perf_counter() - start
    return Compiled(program, arch, schedule, stages, text, loadable, seconds)


_OVERLAPPING = next(step for step in PIPELINE if step.name == "cluster")


def _run(options: Options, stages: Stages, seconds: dict[str, float], verify: bool) -> machine.Program:
    """The passes that `stages` lacks."""
    current = stages["traced"]
    for step in PIPELINE:
        if step.name in stages:
            current = stages[step.name]
            continue
        if current.form != step.needs:
            raise InternalError(f"pass {step.name} needs form {step.needs}, not {current.form}")
        before, start = current, time.perf_counter()
        current = step.run(current, options)
        seconds[step.name] = seconds.get(step.name, 0.0) + time.perf_counter() - start
        stages[step.name] = current
        if verify:
            _verify(step, before, current)
    assert isinstance(current, machine.Program)
    return current


def _moves_between_files(program: machine.Program) -> bool:
    """Whether a loop moves values between VGPRs and AGPRs: that is what too many registers come to."""
    return any("accvgpr" in i.op for block in program.blocks if block.depth for i in block.instructions)


def _verify(step: Pass, before: AnyProgram, after: AnyProgram) -> None:
    if after.form != step.gives:
        raise InternalError(f"pass {step.name} gives form {after.form}, not {step.gives}")
    if isinstance(after, Program):
        verify(after)
    if step.check is not None:
        step.check(before, after)
