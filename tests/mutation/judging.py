"""Who notices a mutant of a machine program: a static checker, else the emulator; or nobody, and why not.

    python -m tests.mutation.judging        the tables of docs/schedules.md and docs/attention.md, made anew
                                            (some minutes)

A mutant that no static checker refuses is assembled and run with all checks over landings and seeds. It is `missed`
when bits differ and nothing was reported; `harmless` when all runs are bit-exact: a right program, which `EXCUSED` says
why.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from tests.mutation.mutants import Mutant, mutants, refusal
from tests.schedules.cases import attention_launch, launch
from tests.support.proving import Launch
from tilec.backend_amdgcn import emit
from tilec.backend_amdgcn.assemble import assemble
from tilec.errors import TilecError
from tilec.frontend.jit import CompiledKernel
from tilec.ir.core import Program

RUNS = (("late", 0), ("early", 1), ("random", 2), ("random", 3), ("late", 4))

EXCUSED = {
    ("barrier deleted", "hand over"): "what it hands over was handed over by the barriers before it, as nothing that "
                                      "passes through registers is still on its way behind the loop",
    ("barrier deleted", "hand over and publish"): "of the trip left over: the barrier behind the loop follows at once",
}
"""Mutants that are right programs, by kind and by the reason of the barrier."""


def verdict(mutant: Mutant, launch: Launch) -> str:
    """The static checker's name, 'emulator: ' with the check's name, 'harmless' or 'missed'."""
    clustered = launch.kernel.stages["barriers"]
    assert isinstance(clustered, Program)
    return refusal(mutant, clustered) or by_emulator(mutant, launch)


def by_emulator(mutant: Mutant, launch: Launch) -> str:
    text, lines = emit.text(mutant.program)
    broken = replace(launch.kernel, object=assemble(text, launch.kernel.arch, line_map=emit.origin(lines)))
    outcome = "harmless"
    for landing, seed in RUNS:
        try:
            findings, arrays = launch.run(broken, landing=landing, seed=seed)
        except TilecError as error:
            return f"emulator: {error.what}"
        if findings:
            return f"emulator: {findings[0].check}"
        if launch.differing(arrays):
            outcome = "missed"
    return outcome


def faulty(some: Iterable[Mutant], launch: Launch) -> list[str]:
    """Mutants that nobody noticed and nothing excuses."""
    verdicts = ((mutant, verdict(mutant, launch)) for mutant in some)
    return [f"{outcome}: {mutant}" for mutant, outcome in verdicts
            if outcome == "missed" or outcome == "harmless" and not excused(mutant)]


def by_kind(kernel: CompiledKernel) -> dict[str, list[Mutant]]:
    found: dict[str, list[Mutant]] = {}
    for mutant in mutants(kernel.machine):
        found.setdefault(mutant.kind, []).append(mutant)
    return found


def drawn(kernel: CompiledKernel, count: int) -> list[Mutant]:
    """So many of each kind, the same ones each time."""
    return [mutant for some in by_kind(kernel).values()
            for mutant in random.Random(0).sample(some, min(count, len(some)))]


def excused(mutant: Mutant) -> bool:
    """A right program: one of EXCUSED, or one of two barriers with nothing between, or a barrier on the other side of
    an access to a buffer that it does not guard, where all waves are together."""
    return ((mutant.kind, mutant.instruction.note) in EXCUSED or mutant.kind == "barrier deleted" and mutant.repeated
            or mutant.kind == "barrier moved" and not mutant.apart)


def table(launch: Launch) -> Counter[tuple[str, str]]:
    """Mutants by kind and by who is the first to notice; and how many the emulator sees."""
    counts: Counter[tuple[str, str]] = Counter()
    for mutant in mutants(launch.kernel.machine):
        outcome = verdict(mutant, launch)
        counts[mutant.kind, outcome.partition(":")[0]] += 1
        seen = by_emulator(mutant, launch).startswith("emulator")
        counts[mutant.kind, "seen by the emulator"] += seen
    return counts


COLUMNS = ("waitcheck", "hazardcheck", "clustercheck", "emulator", "harmless", "missed")


def markdown(counts: Counter[tuple[str, str]]) -> str:
    """One row a kind: how many there are, who was the first to notice, and how many the emulator sees."""
    kinds = sorted({kind for kind, _ in counts})
    rows = ["| kind | mutants | " + " | ".join(COLUMNS) + " | emulator sees |", "|---" * 9 + "|"]
    for kind in kinds:
        numbers = [counts[kind, column] for column in COLUMNS]
        cells = " | ".join(str(n) if n else "" for n in numbers)
        rows.append(f"| {kind} | {sum(numbers)} | {cells} | {counts[kind, 'seen by the emulator']} |")
    return "\n".join(rows)


if __name__ == "__main__":
    for architecture in ("gfx950", "gfx942"):
        for name, launched in (("pingpong", launch("pingpong", architecture)),
                               ("attention", attention_launch(architecture, 64, True))):
            print(f"\n{name}, {architecture}\n\n{markdown(table(launched))}", flush=True)
