"""Runs a kernel over a grid: dispatch in resident sets, wave start state, and the schedule of batches.

Dispatch follows the ABI: user SGPRs in the descriptor's order, preloaded arguments, workgroup ids, packed workitem
ids. The schedule always runs the batch with the lowest program counter, so that parted waves meet again as early as
possible; a batch that was passed over too often goes first once, so that a wave spinning on another's work can't
starve it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilec.emulator.checks import CHECKS, Checker, Finding
from tilec.emulator.decode import Block, Program
from tilec.emulator.elf import CodeObject, Kernel
from tilec.emulator.launch import dispatch_packet
from tilec.emulator.machine import LDS_BYTES, Machine
from tilec.emulator.memory import ZERO_PAGE, Memory
from tilec.emulator.mode import Mode
from tilec.emulator.operands import EXEC, M0, SCC, SGPR
from tilec.emulator.trace import Sink
from tilec.emulator.wave import SCALARS, Batch, join
from tilec.errors import TilecError

Array = np.ndarray[Any, Any]
RESIDENT_WAVES = 512
PATIENCE = 2000
"""Blocks that a runnable batch may be passed over before it goes first."""

Triple = tuple[int, int, int]


@dataclass(frozen=True)
class Statistics:
    """`instructions`: wave instructions executed. `batches`: batch instructions, so their ratio is the mean batch size.

    `counts`: wave executions per address. `processor_seconds`: of this process, which another's load does not change.
    """

    instructions: int
    batches: int
    seconds: float
    counts: dict[int, int] = field(repr=False)
    processor_seconds: float = 0.0

    @property
    def rate(self) -> float:
        """Wave instructions per second."""
        return self.instructions / max(self.seconds, 1e-9)


@dataclass(frozen=True)
class RunResult:
    findings: tuple[Finding, ...]
    statistics: Statistics


def run(
    code: CodeObject,
    kernel: str,
    *,
    grid: Triple,
    block: Triple,
    arguments: bytes,
    memory: Memory,
    lds_dynamic: int = 0,
    checks: str | Iterable[str] = "all",
    seed: int = 0,
    landing: str = "late",
    numerics: str = "fast",
    without: Collection[int] = (),
    sink: Sink | None = None,
    limit: int = 0,
    resident: int = RESIDENT_WAVES,
    preload: bool = True,
) -> RunResult:
    """Execute `grid` workgroups of `block` workitems; `arguments` is the kernel argument segment with hidden arguments.

    `seed`: order of workgroups, waves and batches, and the garbage in what is undefined (0: in order, zeros).
    `checks`: 'all', 'none', or names of CHECKS. `landing`: when loads sample memory: late (at the wait), early (at
    issue), random. `without`: addresses of instructions to leave out. `limit`: wave instructions after which to give
    up (0: never). `preload`: enter behind the prologue with preloaded arguments, as firmware does. Raises TilecError
    for what can't be launched.
    """
    launch = Launch(
        code,
        _kernel(code, kernel),
        grid,
        block,
        memory,
        lds_dynamic,
        _names(checks),
        seed,
        landing,
        numerics,
        without,
        sink,
        limit,
        resident,
        preload,
    )
    return launch.run(arguments)


def _kernel(code: CodeObject, name: str) -> Kernel:
    if name not in code.kernels:
        raise TilecError(f"the code object has no kernel {name!r}", limit=f"it has {', '.join(code.kernels) or 'none'}")
    return code.kernels[name]


def _names(checks: str | Iterable[str]) -> frozenset[str]:
    if checks == "all":
        return frozenset(CHECKS)
    names = frozenset(() if checks == "none" else checks.split(",") if isinstance(checks, str) else checks)
    if names - set(CHECKS):
        raise TilecError(
            f"no such check: {', '.join(sorted(names - set(CHECKS)))}", limit=f"the checks are {', '.join(CHECKS)}"
        )
    return names


class Launch:
    """One run of a kernel over its grid."""

    def __init__(
        self,
        code: CodeObject,
        kernel: Kernel,
        grid: Triple,
        block: Triple,
        memory: Memory,
        lds_dynamic: int,
        checks: frozenset[str],
        seed: int,
        landing: str,
        numerics: str,
        without: Collection[int],
        sink: Sink | None,
        limit: int,
        resident: int,
        preload: bool,
    ):
        self.code, self.kernel, self.grid, self.block, self.memory = code, kernel, grid, block, memory
        self.lds_bytes, self.landing, self.numerics, self.seed = kernel.lds_bytes + lds_dynamic, landing, numerics, seed
        self.sink, self.limit, self.preload = sink, limit, preload
        self.random = np.random.default_rng(seed)
        self.threads = block[0] * block[1] * block[2]
        self.waves_per_group = -(-self.threads // 64)
        self._refuse()
        self.program = Program(code, kernel, without)
        self.checker = Checker(self.program, checks, memory) if checks else None
        self.counts: Counter[Block] = Counter()
        self.batch_counts: Counter[Block] = Counter()
        self.executed = 0
        self.groups_at_once = max(1, resident // self.waves_per_group)

    def _refuse(self) -> None:
        limit = LDS_BYTES[self.code.arch]
        if self.lds_bytes > limit:
            raise TilecError(
                f"kernel {self.kernel.name} needs {self.lds_bytes} bytes of LDS per workgroup",
                limit=f"{self.code.arch} has {limit} bytes",
                fix="use smaller tiles or fewer buffers",
            )
        most = min(1024, self.kernel.max_workgroup)
        if not 0 < self.threads <= most:
            raise TilecError(
                f"a workgroup of {self.threads} workitems can't be launched",
                limit=f"{self.kernel.name} allows 1 to {most}",
            )
        if min(self.grid) < 0:
            raise TilecError(f"the grid {self.grid} is negative")
        if self.landing not in ("late", "early", "random"):
            raise TilecError(f"no such landing: {self.landing!r}", limit="loads land late, early or random")
        if self.numerics not in ("fast", "exact"):
            raise TilecError(f"no such numerics: {self.numerics!r}", limit="fast or exact")

    def run(self, arguments: bytes) -> RunResult:
        if len(arguments) < self.kernel.kernarg_bytes:
            raise TilecError(
                f"{len(arguments)} bytes of arguments for kernel {self.kernel.name}",
                limit=f"its argument segment has {self.kernel.kernarg_bytes} bytes, hidden arguments included",
            )
        start, processor_start = time.perf_counter(), time.process_time()
        segment = self.memory.place(arguments or b"\0", name="kernel arguments", align=64, readonly=True)
        packet = self.memory.place(
            dispatch_packet(self.grid, self.block, self.kernel, self.lds_bytes, segment),
            name="dispatch packet",
            align=64,
            readonly=True,
        )
        total = self.grid[0] * self.grid[1] * self.grid[2]
        order = np.arange(total)
        if self.seed:
            self.random.shuffle(order)
        try:
            with np.errstate(all="ignore"):
                for first in range(0, total, self.groups_at_once):
                    self._run_resident(order[first : first + self.groups_at_once], segment, packet, arguments)
        finally:
            self.memory.remove(segment)
            self.memory.remove(packet)
        counts: Counter[int] = Counter()
        for block, waves in self.counts.items():
            for instruction in block.body:
                counts[instruction.address] += waves
        batches = sum(len(block.body) * times for block, times in self.batch_counts.items())
        return RunResult(
            self.checker.findings() if self.checker is not None else (),
            Statistics(
                self.executed,
                batches,
                time.perf_counter() - start,
                dict(counts),
                time.process_time() - processor_start,
            ),
        )

    # ---- dispatch
    def _run_resident(self, groups: Array, segment: int, packet: int, arguments: bytes) -> None:
        machine = Machine(
            self.code.arch,
            self.memory,
            self.program.binder.rows,
            groups,
            self.waves_per_group,
            self.lds_bytes,
            self.kernel.scratch_bytes,
            landing=self.landing,
            numerics=self.numerics,
            random=self.random,
        )
        machine.checker = self.checker
        if self.seed:
            for space in (machine.lds, machine.scratch):
                space.views[4][ZERO_PAGE // 4 :] = self._garbage((len(space.views[4]) - ZERO_PAGE // 4,))
        batch = self._first_batch(machine, segment, packet, arguments)
        if self.checker is not None:
            self.checker.start(machine, batch)
        self._schedule(machine, batch)
        if self.checker is not None:
            self.checker.finish_resident()

    def _first_batch(self, machine: Machine, segment: int, packet: int, arguments: bytes) -> Batch:
        descriptor = self.kernel.descriptor
        waves = np.arange(len(machine.slot))
        if self.seed:
            self.random.shuffle(waves)
        count = len(waves)
        v, s = self._garbage((self.program.binder.total, count, 64)), self._garbage((SCALARS, count))
        s[SCC - SGPR] &= 1
        words: list[int] = []
        pointers = {"dispatch_ptr": packet, "kernarg_segment_ptr": segment}
        for name, size in descriptor.user_sgprs:
            value = pointers.get(name, self.kernel.scratch_bytes if name == "private_segment_size" else 0)
            words += [value >> 32 * i & 0xFFFFFFFF for i in range(size)]
        entry = descriptor.entry
        if descriptor.preload_count:
            if self.preload:
                start = 4 * descriptor.preload_offset
                raw = arguments[start : start + 4 * descriptor.preload_count].ljust(4 * descriptor.preload_count, b"\0")
                words += np.frombuffer(raw, np.uint32).tolist()
                entry += 256  # the first 256 bytes are the prologue for firmware without preloading
            else:
                words += [0] * descriptor.preload_count
        s[: len(words)] = np.array(words, np.uint32)[:, None]
        group = machine.groups[machine.slot[waves]]
        ids = (group % self.grid[0], group // self.grid[0] % self.grid[1], group // (self.grid[0] * self.grid[1]))
        at = len(words)
        for enabled, value in zip(descriptor.workgroup_ids, ids, strict=True):
            if enabled:
                s[at] = value
                at += 1
        at += descriptor.workgroup_info  # an SGPR that says nothing to compute kernels
        item = machine.wave_in_group[waves][:, None] * 64 + np.arange(64)
        x, y, z = item % self.block[0], item // self.block[0] % self.block[1], item // (self.block[0] * self.block[1])
        v[0] = x | (y << 10 if descriptor.workitem_id >= 1 else 0) | (z << 20 if descriptor.workitem_id >= 2 else 0)
        present = np.packbits(item < self.threads, axis=-1, bitorder="little").view(np.uint32)
        s[EXEC - SGPR], s[EXEC + 1 - SGPR] = present[:, 0], present[:, 1]
        batch = Batch(machine, waves, v, s, entry, Mode.from_register(descriptor.mode, self.code.arch), descriptor.mode)
        if self.checker is not None:
            self.checker.mark_undefined(batch, at)
        return batch

    def _garbage(self, shape: tuple[int, ...]) -> Array:
        """What undefined registers hold: zeros under seed 0, else random bits: results must not depend on them."""
        if not self.seed:
            return np.zeros(shape, np.uint32)
        return self.random.integers(0, 1 << 32, shape, np.uint32)

    # ---- schedule
    def _schedule(self, machine: Machine, first: Batch) -> None:
        runnable, waiting = [first], []
        while runnable or waiting:
            if not runnable:
                self._release_some(machine, runnable, waiting)
            batch = self._pick(runnable)
            self._run_block(batch)
            stop, batch.stop = batch.stop, ""
            if stop == "":
                runnable.append(batch)
            elif stop == "parted":
                runnable += batch.parts
            else:
                if stop == "end":
                    if self.checker is not None:
                        self.checker.ended(batch)
                    machine.finish(batch)
                else:
                    machine.arrive(batch)
                    waiting.append(batch)
                machine.open_barriers()
                released = [b for b in waiting if machine.may_go(b).all()]
                waiting[:] = [b for b in waiting if not any(b is r for r in released)]
                runnable += released

    def _release_some(self, machine: Machine, runnable: list[Batch], waiting: list[Batch]) -> None:
        """Nothing can run: part the batches of which only some workgroups have passed their barrier."""
        for batch in list(waiting):
            free = machine.may_go(batch)
            if free.any():
                waiting[:] = [b for b in waiting if b is not batch]
                runnable.append(batch.take(np.flatnonzero(free)))
                if not free.all():
                    waiting.append(batch.take(np.flatnonzero(~free)))
        if not runnable:
            raise AssertionError("waves wait at a barrier that no living wave can open")

    def _pick(self, runnable: list[Batch]) -> Batch:
        """Remove and return the batch to run next, joined with those in the same state."""
        if len(runnable) == 1:
            return runnable.pop()
        oldest = max(runnable, key=lambda b: b.age)
        chosen = oldest if oldest.age > PATIENCE else min(runnable, key=lambda b: b.pc)
        if self.seed and self.random.random() < 0.125:
            chosen = runnable[int(self.random.integers(len(runnable)))]
        alike = [b for b in runnable if b is chosen or (b.pc == chosen.pc and b.signature == chosen.signature)]
        runnable[:] = [b for b in runnable if not any(b is a for a in alike)]
        for batch in runnable:
            batch.age += 1
        if len(alike) > 1:
            chosen = join(alike)
        chosen.age = 0
        return chosen

    def _run_block(self, batch: Batch) -> None:
        m0 = None
        if self.program.relative(batch):
            values = batch.s[M0 - SGPR]
            m0 = int(values[0])
            if (values != m0).any():
                for value, part in batch.part(values):
                    part.relative_to = value
                return
            batch.relative_to = None
        block = self.program.block(batch.pc, m0)
        batch.pc = block.end
        count = len(batch.waves)
        self.counts[block] += count
        self.batch_counts[block] += 1
        self.executed += count * len(block.body)
        if self.limit and self.executed > self.limit:
            raise TilecError(
                f"gave up after {self.executed} wave instructions at {block.start:#x}",
                limit=f"the limit is {self.limit}",
                fix="the kernel may loop for ever; raise the limit if not",
            )
        if self.checker is not None:
            self.checker.run_block(batch, block, self.sink)
        elif self.sink is not None:
            for instruction in block.body:
                self.sink.before(batch, instruction)
                instruction.execute(batch)
                self.sink.after(batch, instruction)
        else:
            for instruction in block.body:
                instruction.execute(batch)
