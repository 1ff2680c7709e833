"""Who notices a mutant of a schedule's machine program: a static checker, else the emulator; or nobody, and why not.

    python -m tests.mutation.judging        the table of docs/schedules.md, made anew (some minutes)

A mutant that no static checker refuses is assembled and run with all checks over landings and seeds. It is `missed`
when bits differ and nothing was reported; `harmless` when all runs are bit-exact: a right program, which `EXCUSED` says
why.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from tests.mutation.mutants import Mutant, mutants, refusal
from tests.schedules.cases import compiled, problem
from tilec.backend_amdgcn import emit
from tilec.backend_amdgcn.assemble import assemble
from tilec.errors import TilecError
from tilec.frontend.jit import CompiledKernel
from tilec.ir.core import Program

RUNS = (("late", 0), ("early", 1), ("random", 2), ("random", 3), ("late", 4))
SHAPE = (127, 126, 5 * 64 + 9)
"""A round of the steady loop, a trip left over, and the partial tile: every part of the program runs."""

EXCUSED = {
    ("barrier deleted", "hand over"): "what it hands over was handed over by the barriers before it, as nothing that "
                                      "passes through registers is still on its way behind the loop",
    ("barrier deleted", "hand over and publish"): "of the trip left over: the barrier behind the loop follows at once",
}
"""Mutants that are right programs, by kind and by the reason of the barrier."""


def verdict(mutant: Mutant, kernel: CompiledKernel, expected: np.ndarray | None = None) -> str:
    """The static checker's name, 'emulator: ' with the check's name, 'harmless' or 'missed'. `expected`: the result to
    compare with, that of the unbroken program."""
    clustered = kernel.stages["barriers"]
    assert isinstance(clustered, Program)
    return refusal(mutant, clustered) or by_emulator(mutant, kernel, result(kernel) if expected is None else expected)


def by_emulator(mutant: Mutant, kernel: CompiledKernel, expected: np.ndarray) -> str:
    text, lines = emit.text(mutant.program)
    broken = replace(kernel, object=assemble(text, kernel.arch, line_map=emit.origin(lines)))
    outcome = "harmless"
    for landing, seed in RUNS:
        arguments, _ = problem(*SHAPE, random=True)
        try:
            findings = broken.run(**arguments, landing=landing, seed=seed)
        except TilecError as error:
            return f"emulator: {error.what}"
        if findings:
            return f"emulator: {findings[0].check}"
        if (arguments["C"] != expected).any():
            outcome = "missed"
    return outcome


def result(kernel: CompiledKernel) -> np.ndarray:
    """C of the unbroken program."""
    arguments, _ = problem(*SHAPE, random=True)
    assert kernel.run(**arguments) == ()
    return arguments["C"].copy()


def faulty(some: Iterable[Mutant], kernel: CompiledKernel) -> list[str]:
    """Mutants that nobody noticed and nothing excuses."""
    expected = result(kernel)
    verdicts = ((mutant, verdict(mutant, kernel, expected)) for mutant in some)
    return [f"{outcome}: {mutant}" for mutant, outcome in verdicts
            if outcome == "missed" or outcome == "harmless" and not excused(mutant)]


def excused(mutant: Mutant) -> bool:
    return (mutant.kind, mutant.instruction.note) in EXCUSED


def table(schedule: str, arch: str, tile: int) -> Counter[tuple[str, str]]:
    """Mutants by kind and by who is the first to notice; and how many the emulator sees."""
    kernel = compiled(schedule, arch, tile=tile)
    expected = result(kernel)
    counts: Counter[tuple[str, str]] = Counter()
    for mutant in mutants(kernel.machine):
        outcome = verdict(mutant, kernel, expected)
        counts[mutant.kind, outcome.partition(":")[0]] += 1
        seen = by_emulator(mutant, kernel, expected).startswith("emulator")
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
        print(f"\npingpong, {architecture}\n\n{markdown(table('pingpong', architecture, 128))}", flush=True)
