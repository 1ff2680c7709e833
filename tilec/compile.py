"""The compiler: one tuple of passes, from the traced tile program to the loadable object.

Each pass is a pure function of (program, options) and declares the form it needs and the form it gives. With `verify`,
form verifiers and each pass's independent checker run between all of them; in use they are off.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from tilec.backend_amdgcn import clustercheck, emit, hazardcheck, hazards, regalloc, regcheck, waitcheck, waits
from tilec.backend_amdgcn.assemble import assemble
from tilec.backend_amdgcn.isa import rows
from tilec.backend_amdgcn.lower import HOISTED_SGPRS, lower
from tilec.errors import InternalError, OutOfScalars, OverBudget, TilecError, Unscheduled
from tilec.ir import machine, tile
from tilec.ir.core import Program, remove_dead
from tilec.ir.schedule import Overlap, Schedule
from tilec.ir.verify import verify
from tilec.passes.barriers import insert_barriers
from tilec.passes.cluster import cluster
from tilec.passes.grid_order import order_grid
from tilec.passes.layouts import assign_layouts
from tilec.passes.pipeline import pipeline
from tilec.passes.place_lds import place_lds
from tilec.passes.simplify import simplify
from tilec.passes.slice_k import slice_k
from tilec.passes.split import split
from tilec.passes.split_tails import split_tails
from tilec.target import Target, target

AnyProgram = Program | machine.Program


@dataclass(frozen=True)
class Options:
    """What passes may ask about: the architecture and the schedule; how much shall overlap, into
    how many slices of k to cut dots, how many SGPRs to spend on what is hoisted out of loops (None: any number)."""

    target: Target
    schedule: Schedule | None
    overlap: Overlap = Overlap.DOTS
    slices: int = 1
    room: int | None = None


@dataclass(frozen=True)
class Pass:
    """`run` takes a program in form `needs` to one in form `gives`; `check` proves it, given both. `knob` is the option
    that no pass before it asks about."""

    name: str
    needs: str
    gives: str
    run: Callable[[Any, Options], AnyProgram]
    check: Callable[[Any, Any], None] | None = None
    knob: str = ""


def _no_faults(faults: list[Any]) -> None:
    if faults:
        raise InternalError("; ".join(map(str, faults[:3])))


PIPELINE: tuple[Pass, ...] = (
    Pass("grid_order", "traced", "traced", lambda p, o: order_grid(p, o.schedule.order) if o.schedule else p),
    Pass("simplify", "traced", "traced", lambda p, o: simplify(p)),
    Pass("split", "traced", "traced", lambda p, o: simplify(split(slice_k(p, o.target, o.slices), o.schedule)),
         knob="slices"),
    Pass("split_tails", "traced", "traced", lambda p, o: simplify(split_tails(p))),
    Pass("layouts", "traced", "laid_out", lambda p, o: remove_dead(assign_layouts(p, o.target, o.schedule))),
    Pass("cluster", "laid_out", "laid_out", lambda p, o: cluster(p, o.target, o.schedule, o.overlap),
         knob="overlap"),
    Pass("pipeline", "laid_out", "laid_out",
         lambda p, o: pipeline(p, o.target) if o.overlap >= Overlap.COPIES else p),
    Pass("place_lds", "laid_out", "laid_out", lambda p, o: place_lds(p, o.target)),
    Pass("barriers", "laid_out", "clustered", lambda p, o: insert_barriers(p)),
    Pass("lower", "clustered", "virtual",
         lambda p, o: lower(p, o.target.name, o.schedule.pins if o.schedule else (), o.room), knob="room"),
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
    """A compiled kernel. `seconds` holds the time of each pass, `compromises` what the program or its schedule had to
    do without to fit, in words."""

    traced: Program
    arch: str
    schedule: Schedule | None
    stages: Stages
    asm: str
    object: bytes
    seconds: Mapping[str, float] = field(default_factory=dict)
    compromises: tuple[str, ...] = ()

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
    """Compiles a traced program. What fits registers and LDS is tried, not estimated: with less and less at once, until
    it does. Raises TilecError for what can't be done (OverBudget of the first attempt), InternalError when a pass
    breaks its promise."""
    attempt = _Attempt(program, verify)
    refused: OverBudget | None = None
    crowded: Compiled | None = None
    because: list[str] = []
    for options in _attempts(attempt, Options(target(arch), schedule)):
        try:
            made = attempt.compile(options)
        except InternalError:
            raise
        except TilecError as error:
            if isinstance(error, OverBudget):
                refused = refused or error
            elif not (isinstance(error, Unscheduled) or refused or crowded):
                raise
            because.append(error.what)
        else:
            if not _moves_between_files(made.machine):
                return replace(made, compromises=tuple(_compromises(options, *because)))
            because.append("values would move between VGPRs and AGPRs in a loop")
            crowded = crowded or made
    if crowded is None:
        assert refused is not None
        raise refused
    return crowded


def _attempts(attempt: _Attempt, most: Options) -> Iterator[Options]:
    """From the most that is in registers and LDS at once to the least: less overlap, dots in slices of k. What a
    schedule spells out stays as it is."""
    schedule = most.schedule
    if schedule is not None and not schedule.is_named:
        yield most
        return
    loops = [op for op in attempt.program.walk() if isinstance(op, tile.For)]
    dots = any(isinstance(op, tile.Dot) for loop in loops for op in loop.body.walk())
    waves = [(Overlap.DOTS, Overlap.CLUSTERS)] if dots and schedule is not None and schedule.name != "simple" else []
    for overlaps in (*waves, (Overlap.COPIES,), (Overlap.NOTHING,)):
        slices = 1
        while True:
            yield from (replace(most, overlap=overlap, slices=slices) for overlap in overlaps)
            slices *= 2
            simple = attempt.stages["simplify"]
            assert isinstance(simple, Program)
            if schedule is not None and schedule.pins or slice_k(simple, most.target, slices) is simple:
                break


def _compromises(options: Options, because: str = "no loop has a dot", *_: str) -> Iterator[str]:
    if options.schedule is not None and options.schedule.is_named and options.schedule.name != "simple":
        if options.overlap < Overlap.CLUSTERS:
            yield f"schedule {options.schedule.name} serves no loop here: {because}"
        elif options.overlap is Overlap.CLUSTERS:
            yield f"no dot runs ahead of those that need it: {because}"
    if options.overlap is Overlap.NOTHING:
        yield f"nothing is copied ahead: {because}"
    if options.slices > 1:
        yield f"dots are computed in {options.slices} slices of k: {because}"


class _Attempt:
    """Compiles one program with changing options; what the change does not concern is kept."""

    def __init__(self, program: Program, verify: bool):
        self.program, self.verify = program, verify
        self.options: Options | None = None
        self.stages = Stages({"traced": program})
        self.seconds: dict[str, float] = {}

    def compile(self, options: Options) -> Compiled:
        refused: OutOfScalars | None = None
        for room in HOISTED_SGPRS:
            try:
                return self._compile(replace(options, room=room))
            except OutOfScalars as error:
                refused = refused or error
        assert refused is not None
        raise refused

    def _compile(self, options: Options) -> Compiled:
        kept: dict[str, AnyProgram] = {"traced": self.program}
        for step in PIPELINE:
            if step.knob and getattr(options, step.knob) != getattr(self.options, step.knob, None):
                break
            if step.name in self.stages:
                kept[step.name] = self.stages[step.name]
        self.options, self.stages = options, Stages(kept)
        final = self._run(options)
        if self.verify:
            clustered = self.stages["barriers"]
            assert isinstance(clustered, Program)
            _no_faults(clustercheck.check(clustered, final))
        arch = options.target.name
        with self._timed("emit"):
            text, lines = emit.text(final)
        with self._timed("assemble"):
            loadable = assemble(text, arch, line_map=emit.origin(lines))
        return Compiled(self.program, arch, options.schedule, self.stages, text, loadable, dict(self.seconds))

    def _run(self, options: Options) -> machine.Program:
        """The passes that have not been run with these options."""
        current: AnyProgram = self.program
        for step in PIPELINE:
            if step.name in self.stages:
                current = self.stages[step.name]
                continue
            if current.form != step.needs:
                raise InternalError(f"pass {step.name} needs form {step.needs}, not {current.form}")
            before = current
            with self._timed(step.name):
                current = step.run(before, options)
            self.stages[step.name] = current
            if self.verify:
                _verify(step, before, current)
        assert isinstance(current, machine.Program)
        return current

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start


def _moves_between_files(program: machine.Program) -> bool:
    """Whether a loop with matrix instructions moves values between VGPRs and AGPRs: that is what too many registers
    come to."""
    table = rows(program.arch)
    loops = (block.instructions for block in program.blocks if block.depth)
    return any("accvgpr" in i.op for body in loops if any(table[i.op].unit == "mfma" for i in body) for i in body)


def _verify(step: Pass, before: AnyProgram, after: AnyProgram) -> None:
    if after.form != step.gives:
        raise InternalError(f"pass {step.name} gives form {after.form}, not {step.gives}")
    if isinstance(after, Program):
        verify(after)
    if step.check is not None:
        step.check(before, after)
