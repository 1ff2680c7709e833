"""Every wait, hand-over barrier and wait state of the shipped kernels is needed: without it a static checker objects.

The suite tries every n-th mutant of each kernel, the sweep behind the marker all of them.
"""

from __future__ import annotations

import importlib
from functools import cache

import pytest

from tests.mutation.mutants import Mutant, mutants, refusal
from tilec.backend_amdgcn import hazardcheck, waitcheck
from tilec.ir.machine import Program

KERNELS = ("vector_add", "softmax", "transpose", "gemm")
ARCHITECTURES = ("gfx942", "gfx950")

EXCUSED: dict[str, str] = {}
"""Mutants, as printed, that are right programs, and why. There are none: waits and wait states are the fewest, and each
barrier either publishes or hands over a buffer."""


@cache
def final(name: str, arch: str) -> Program:
    """The finished machine program of a kernel with its default arguments."""
    module = importlib.import_module(f"kernels.{name}")
    compiled = getattr(module, name).compile(*module.defaults().values(), arch=arch)
    return compiled.stages["hazards"]


def missed(some: list[Mutant]) -> list[str]:
    return [str(mutant) for mutant in some if not refusal(mutant) and str(mutant) not in EXCUSED]


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("name", KERNELS)
def test_shipped_programs_are_safe(name: str, arch: str):
    assert waitcheck.check(final(name, arch)) == hazardcheck.check(final(name, arch)) == []


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("name", KERNELS)
def test_some_mutants(name: str, arch: str):
    """About twenty a kernel, spread over the program, and every change of a barrier."""
    every = list(mutants(final(name, arch)))
    barriers = [m for m in every if m.kind.startswith("barrier")]
    assert missed(every[::max(1, len(every) // 20)] + barriers[:20]) == []


@pytest.mark.slow
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("name", KERNELS)
def test_all_mutants(name: str, arch: str):
    every = list(mutants(final(name, arch)))
    kinds = {m.kind for m in every}
    assert {"wait deleted", "wait weakened", "wait moved"} <= kinds
    if name in ("transpose", "gemm"):
        assert {"barrier deleted", "barrier before its wait"} <= kinds
    assert missed(every) == []


def test_a_survivor_is_named():
    """The engine itself: a barrier that nothing needs survives, and is told by kind, place and reason."""
    from tests.support.assembly import program
    idle = program("s_barrier\ns_endpgm", form="final")
    assert missed(list(mutants(idle))) == ["barrier deleted: s_barrier  in entry ()"]
