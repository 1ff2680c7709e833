"""Every wait, barrier, priority and wait state of the wave schedules is needed: without it somebody objects.

The suite draws a slice of each kind for ping-pong; the sweep behind the marker takes all, at full size too.
"""

from __future__ import annotations

import random

import pytest

from tests.mutation.judging import by_emulator, faulty, result, verdict
from tests.mutation.mutants import Mutant, mutants
from tests.schedules.cases import ARCHITECTURES, compiled
from tilec.frontend.jit import CompiledKernel

KINDS = {"wait deleted", "wait weakened", "wait moved", "barrier deleted", "barrier before its wait", "barrier moved",
         "halves exchanged", "priority deleted"}


def of_kind(kernel: CompiledKernel) -> dict[str, list[Mutant]]:
    found: dict[str, list[Mutant]] = {}
    for mutant in mutants(kernel.machine):
        found.setdefault(mutant.kind, []).append(mutant)
    return found


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_a_slice_of_mutants_is_noticed(arch):                                       # BL-01, BL-07, BL-12
    kernel = compiled("pingpong", arch)
    kinds = of_kind(kernel)
    assert set(kinds) >= KINDS
    drawn = [mutant for some in kinds.values() for mutant in random.Random(0).sample(some, min(4, len(some)))]
    assert faulty(drawn, kernel) == []


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_every_lost_barrier_of_ping_pong_is_noticed(arch):
    kernel = compiled("pingpong", arch)
    lost = of_kind(kernel)["barrier deleted"]
    assert len(lost) >= 16 and faulty(lost, kernel) == []


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_a_phase_barrier_is_missed_by_its_clusters_only(arch):
    """Its loss breaks no data: numbers can't tell, and neither can the happens-before of LDS in all places."""
    kernel = compiled("pingpong", arch)
    lost = of_kind(kernel)["barrier deleted"]
    told = {verdict(m, kernel) for m in lost if m.instruction.note == "phase" and m.block.startswith("loop")}
    assert told <= {"waitcheck", "clustercheck"} and "clustercheck" in told


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_exchanged_halves_never_meet(arch):
    """Which waves fall behind is data to the static checkers: the emulator sees waves wait for each other for ever."""
    kernel = compiled("pingpong", arch)
    exchanged = of_kind(kernel)["halves exchanged"]
    assert len(exchanged) == 2
    assert {by_emulator(mutant, kernel, result(kernel)) for mutant in exchanged} == {"emulator: barriers"}


@pytest.mark.slow
@pytest.mark.parametrize("schedule, size", [("pingpong", 128), ("pingpong", 256), ("interleave", 128), ("halves", 128)])
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_all_mutants_are_noticed(arch, schedule, size):
    kernel = compiled(schedule, arch, tile=size)
    assert faulty(mutants(kernel.machine), kernel) == []
