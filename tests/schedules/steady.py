"""The steady loop of an object: what its disassembly holds, and how the waves of a workgroup meet in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tilec import object_report, trial
from tilec.emulator.elf import load_object
from tilec.emulator.trace import Event, EventSink
from tilec.frontend.jit import CompiledKernel, launch_values
from tilec.inspect_object import Loop, mnemonic
from tilec.llvm import Instruction
from tilec.runtime import emulated


@dataclass(frozen=True, eq=False)
class Steady:
    """The first innermost loop with matrix instructions. Everything is read from the bytes of the object."""

    kernel: CompiledKernel

    @cached_property
    def report(self) -> object_report.Report:
        code = load_object(self.kernel.object)
        return object_report.describe(code, code.kernels[self.kernel.name])

    @cached_property
    def loop(self) -> Loop:
        return next(loop for loop in self.report.loops if any("mfma" in name for name in loop.histogram))

    @cached_property
    def instructions(self) -> tuple[Instruction, ...]:
        return tuple(i for i in self.report.instructions if self.loop.first <= i.address <= self.loop.last)

    @cached_property
    def names(self) -> list[str]:
        return [mnemonic(i) for i in self.instructions]

    def compute_clusters(self) -> Iterator[Sequence[str]]:
        """What stands between each s_setprio 1 and the s_setprio 0 behind it."""
        inside: list[str] | None = None
        for instruction, name in zip(self.instructions, self.names):
            if name == "s_setprio" and instruction.text.split()[1] != "0":
                assert inside is None, "priority is raised twice"
                inside = []
            elif name == "s_setprio":
                assert inside is not None, "priority is lowered twice"
                yield inside
                inside = None
            elif inside is not None:
                inside.append(name)
        assert inside is None, "priority stays raised around the loop"

    def publishing(self) -> list[int]:
        """vmcnt of the waits that stand right before a barrier."""
        waits = {wait.address: wait.counters for wait in self.loop.waits}
        before = [a for a, b in zip(self.instructions, self.instructions[1:]) if mnemonic(b) == "s_barrier"]
        return [waits[i.address]["vmcnt"] for i in before if "vmcnt" in waits.get(i.address, {})]

    def conflict_cycles(self, arguments: dict[str, np.ndarray]) -> dict[str, float]:
        """Extra cycles per execution of each kind of access to LDS in the loop, as the emulator counts them."""
        binding = self.kernel.kernel.signature.bind((), arguments, fixed=dict(self.kernel.specialisation.consts))
        values = launch_values(binding, self.kernel.order, self.kernel.arch)
        measured = trial.lds_conflicts(self.kernel.executable, values)
        found: Counter[str] = Counter()
        for access in self.loop.lds:
            found[access.mnemonic] += measured[access.address]          # KeyError: it never ran
        return dict(found)

    def clusters_by_epoch(self, arguments: dict[str, np.ndarray]) -> dict[int, list[frozenset[int]]]:
        """For each wave of the first workgroup: the addresses in the loop that it executed between its barriers,
        one set for each interval between barriers of the whole workgroup."""
        binding = self.kernel.kernel.signature.bind((), arguments, fixed=dict(self.kernel.specialisation.consts))
        sink = _Epochs(self.loop.first, self.loop.last)
        values = launch_values(binding, self.kernel.order, self.kernel.arch)
        assert emulated.run(self.kernel.executable, values, sink=sink).findings == ()
        return sink.between()


class _Epochs(EventSink):
    def __init__(self, first: int, last: int):
        self.first, self.last = first, last
        self.passed: Counter[int] = Counter()
        self.seen: dict[tuple[int, int], set[int]] = {}

    def event(self, event: Event) -> None:
        address = event.instruction.address
        for group, wave in zip(event.workgroups.tolist(), event.waves.tolist()):
            if group:
                continue
            if self.first <= address <= self.last and not event.barrier:
                self.seen.setdefault((wave, self.passed[wave]), set()).add(address)
            self.passed[wave] += event.barrier

    def between(self) -> dict[int, list[frozenset[int]]]:
        epochs = range(1 + max(self.passed.values()))
        return {wave: [frozenset(self.seen.get((wave, epoch), ())) for epoch in epochs] for wave in sorted(self.passed)}
