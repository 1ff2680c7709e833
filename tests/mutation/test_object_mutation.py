"""The checks bite on other compilers' objects: broken synchronisation is reported, or provably does nothing.

A short slice runs always, 60 mutants of every object of the stored corpus behind the marker `slow`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutation.objects import synchronises, verdicts
from tilec.emulator.corpus import load_reference

CORPUS = Path(__file__).resolve().parents[1] / "data" / "corpus"
REFERENCE = load_reference(CORPUS / "ref.py")
OBJECTS = sorted(path.parent.name for path in CORPUS.glob("*/kernel.hsaco") if synchronises(path.parent))
SLICE = {
    "softmax_row_bf16_1024__gfx942": 12,
    "transpose_bf16_64x64__gfx950": 10,
    "gemm_bf16_128x128x64_w4_s1__gfx942": 10,
    "gemm_bf16_64x64x32_w1__gfx950": 8,
    "gemm_bf16_128x128x64_w4_s2__gfx950": 8,
}


@pytest.mark.parametrize("name", SLICE)
def test_a_slice_of_mutants_is_noticed(name):
    found = verdicts(CORPUS / name, REFERENCE, SLICE[name])
    assert not [str(verdict) for verdict in found if verdict.outcome == "missed"]
    reported = [verdict for verdict in found if verdict.outcome == "reported"]
    assert len(found) == SLICE[name] and len(reported) >= SLICE[name] // 3


@pytest.mark.slow
@pytest.mark.parametrize("name", OBJECTS)
def test_all_mutants_are_noticed(name):
    found = verdicts(CORPUS / name, REFERENCE, 60)
    assert not [str(verdict) for verdict in found if verdict.outcome == "missed"]
    assert {verdict.outcome for verdict in found} <= {"reported", "harmless"}
    assert len([verdict for verdict in found if verdict.outcome == "reported"]) > len(found) // 2


def test_there_are_objects_enough():
    assert len(OBJECTS) >= 20
