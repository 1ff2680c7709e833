"""The checks bite on other compilers' objects: broken synchronisation is reported, or provably does nothing.

A short slice runs always, 60 mutants of every object of the stored corpus behind the marker `slow`.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.mutation.objects import judge, mutants
from tilec.emulator import load_object
from tilec.emulator.corpus import load_description, load_reference, run_case

CORPUS = Path(__file__).resolve().parents[1] / "data" / "corpus"
SLICE = {
    "softmax_row_bf16_1024__gfx942": 12,
    "transpose_bf16_64x64__gfx950": 10,
    "gemm_bf16_128x128x64_w4_s1__gfx942": 10,
    "gemm_bf16_64x64x32_w1__gfx950": 8,
    "gemm_bf16_128x128x64_w4_s2__gfx950": 8,
}


def table(name: str, limit: int) -> Counter[tuple[str, str]]:
    """Verdicts of an object's mutants, counted by kind and outcome; fails on a missed one."""
    path = CORPUS / name
    code, meta = load_object((path / "kernel.hsaco").read_bytes()), load_description(path / "meta.json")
    reference, case = load_reference(CORPUS / "ref.py"), meta["cases"][-1]["id"]
    good = run_case(code, meta, case, reference)
    assert good.passed
    executed = frozenset(good.statistics.counts)
    counts: Counter[tuple[str, str]] = Counter()
    for mutant in mutants(code, executed, limit):
        verdict = judge(mutant, meta, case, reference, good, 4 * good.statistics.instructions + 100_000)
        assert verdict.outcome != "missed", (
            f"{name} {mutant.kind} at {mutant.address:#x}: {mutant.text}: {verdict.reason}"
        )
        counts[mutant.kind, verdict.outcome] += 1
    return counts


@pytest.mark.parametrize("name", SLICE)
def test_a_slice_of_mutants_is_noticed(name):
    counts = table(name, SLICE[name])
    reported = sum(n for (_, outcome), n in counts.items() if outcome == "reported")
    assert sum(counts.values()) == SLICE[name] and reported >= SLICE[name] // 3


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(path.parent.name for path in CORPUS.glob("*/kernel.hsaco")))
def test_all_mutants_are_noticed(name):
    counts = table(name, 60)
    print(name, dict(counts))
