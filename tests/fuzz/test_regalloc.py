"""Random machine functions: allocated, proven by the checker, and run beside the virtual program on made-up values."""

from __future__ import annotations

import pytest

from tests.fuzz.machine_programs import random_program
from tests.fuzz.run_machine import trace
from tilec.backend_amdgcn.regalloc import allocate
from tilec.backend_amdgcn.regcheck import check
from tilec.errors import InternalError, TilecError


def allocated(seed: int, steps: int) -> str:
    """What came of it: 'vgpr', 'agpr' or 'refused'."""
    virtual = random_program(seed, ("gfx950", "gfx942")[seed % 2], length=20 + seed % 80, waves=(4, 8, 16)[seed % 3],
                             tiles=3 + seed % 20)
    try:
        result = allocate(virtual).program
    except InternalError:
        raise
    except TilecError as error:
        assert "needs" in error.what and "at once" in error.what
        return "refused"
    check(virtual, result)
    assert trace(result, steps) == trace(virtual, steps)
    return "agpr" if result.resources.agpr else "vgpr"


def test_random_programs():
    outcomes = [allocated(seed, 60) for seed in range(40)]
    assert outcomes.count("refused") < 15 and "agpr" in outcomes


@pytest.mark.slow
@pytest.mark.parametrize("hundred", range(20))
def test_many_random_programs(hundred: int):
    outcomes = [allocated(1000 + 100 * hundred + k, 400) for k in range(100)]
    assert outcomes.count("refused") < 40 and "agpr" in outcomes
