"""Every wait, barrier, priority and wait state of the wave schedules and of attention is needed: without it somebody
objects.

The suite draws a slice of each kind for ping-pong and for attention; the sweep behind the marker takes all, of the GEMM
at full size too.
"""

from __future__ import annotations

import pytest

from tests.mutation.judging import by_emulator, by_kind, drawn, faulty, verdict
from tests.mutation.mutants import mutants
from tests.schedules.cases import ARCHITECTURES, ATTENTION, attention_launch, launch

OF_ANY_SCHEDULE = {"wait deleted", "wait weakened", "wait moved", "barrier deleted", "barrier before its wait"}
KINDS = OF_ANY_SCHEDULE | {"barrier moved", "halves exchanged", "priority deleted"}


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_a_slice_of_mutants_is_noticed(arch):                                       # BL-01, BL-07, BL-12
    pingpong = launch("pingpong", arch)
    some = drawn(pingpong.kernel, 4)
    assert {mutant.kind for mutant in some} >= KINDS
    assert faulty(some, pingpong) == []


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_every_lost_barrier_of_ping_pong_is_noticed(arch):
    pingpong = launch("pingpong", arch)
    lost = by_kind(pingpong.kernel)["barrier deleted"]
    assert len(lost) >= 16 and faulty(lost, pingpong) == []


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_a_phase_barrier_is_missed_by_its_clusters_only(arch):
    """Its loss breaks no data: numbers can't tell, and neither can the happens-before of LDS in all places."""
    pingpong = launch("pingpong", arch)
    lost = by_kind(pingpong.kernel)["barrier deleted"]
    told = {verdict(m, pingpong) for m in lost if m.instruction.note == "phase" and m.block.startswith("loop")}
    assert told <= {"waitcheck", "clustercheck"} and "clustercheck" in told


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_exchanged_halves_never_meet(arch):
    """Which waves fall behind is data to the static checkers: the emulator sees waves wait for each other for ever."""
    pingpong = launch("pingpong", arch)
    exchanged = by_kind(pingpong.kernel)["halves exchanged"]
    assert len(exchanged) == 2
    assert {by_emulator(mutant, pingpong) for mutant in exchanged} == {"emulator: barriers"}


@pytest.mark.slow
@pytest.mark.parametrize("schedule, size", [("pingpong", 128), ("pingpong", 256), ("interleave", 128), ("halves", 128)])
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_all_mutants_are_noticed(arch, schedule, size):
    launched = launch(schedule, arch, size)
    assert faulty(mutants(launched.kernel.machine), launched) == []


# -- attention

@pytest.mark.parametrize("schedule, depth, causal, lazy", [
    ("simple", 64, True, 0), ("simple", 128, False, 0), ("pingpong(mfma=32)", 64, True, 0),
    ("pingpong(mfma=32)", 64, True, 8)])
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_a_slice_of_attentions_mutants_is_noticed(arch, schedule, depth, causal, lazy):     # BL-01, BL-02, BL-07
    attention = attention_launch(arch, depth, causal, schedule, lazy)
    some = drawn(attention.kernel, 3)
    assert {mutant.kind for mutant in some} >= OF_ANY_SCHEDULE
    assert faulty(some, attention) == []


@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("depth", [64, 128])
@pytest.mark.parametrize("schedule", ATTENTION)
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_all_mutants_of_attention_are_noticed(arch, schedule, depth, causal):
    attention = attention_launch(arch, depth, causal, schedule)
    assert faulty(mutants(attention.kernel.machine), attention) == []


@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_all_mutants_of_lazy_attention_are_noticed(arch, causal):
    attention = attention_launch(arch, 64, causal, "pingpong(mfma=32)", lazy=8)
    assert faulty(mutants(attention.kernel.machine), attention) == []
