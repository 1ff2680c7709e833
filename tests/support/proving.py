"""One launch on the emulator under all checks, against a reference; where it fails, the first stage that differs.

    prove(gemm, {"A": a, "B": b, "C": c}, "gfx950", {"C": expected}, BM=64)

The chain of truth: reference == interpreter(traced) == interpreter(clustered) == emulator(object), on the same data.
`exact` data makes all comparisons bit for bit; else `bounds` gives the allowed distance of each element.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tests.support.placing import intact
from tilec.compile import Compiled
from tilec.emulator import Finding
from tilec.frontend.jit import CompiledKernel, Kernel
from tilec.ir import interp
from tilec.ir.core import Program

Arrays = dict[str, np.ndarray]
LANDINGS = ("late", "early", "random")

errors: dict[tuple[str, str], tuple[float, float]] = {}
"""By test and result, for --errors: how far compiled kernels were off at most, and the largest share of a bound."""


def prove(kernel: Kernel, arguments: Mapping[str, Any], arch: str, expected: Arrays, *, bounds: Arrays | None = None,
          seed: int = 0, landing: str = "late", **consts: Any) -> CompiledKernel:
    """Compiles (with every checker on), runs, and asserts: no finding, the expected numbers, nothing else written."""
    compiled = kernel.compile(**arguments, arch=arch, verify=True, **consts)
    run_and_compare(compiled, arguments, expected, bounds=bounds, seed=seed, landing=landing)
    return compiled


def run_and_compare(compiled: CompiledKernel, arguments: Mapping[str, Any], expected: Arrays, *,
                    bounds: Arrays | None = None, seed: int = 0, landing: str = "late") -> None:
    """`arguments` hold `placed` arrays; those that the kernel writes are written."""
    before = {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in arguments.items()}
    findings = compiled.run(**arguments, seed=seed, landing=landing)
    assert not findings, "\n".join(map(str, findings))
    for name, value in arguments.items():
        if not isinstance(value, np.ndarray):
            continue
        want = expected.get(name, before[name])
        bound = bounds.get(name) if bounds and name in expected else None
        fault = difference(value, want, bound)
        if bound is not None:
            _remember(name, value, want, bound)
        assert not fault, f"{compiled.name} on {compiled.arch}: {name}: {fault}; " + blame(compiled, before, expected,
                                                                                           bounds)
        assert isinstance(value.base, np.ndarray) and intact(value), f"{name} is written beside its elements"


def _remember(name: str, got: np.ndarray, want: np.ndarray, bound: np.ndarray) -> None:
    with np.errstate(all="ignore"):
        error = np.abs(got.astype(np.float64) - want.astype(np.float64))
        found = [float(np.max(x, where=np.isfinite(x), initial=0)) for x in (error, error / bound)]
    key = os.environ.get("PYTEST_CURRENT_TEST", "").partition(" ")[0].partition("[")[0], name
    before = errors.get(key, (0.0, 0.0))
    errors[key] = max(before[0], found[0]), max(before[1], found[1])


def difference(got: np.ndarray, want: np.ndarray, bound: np.ndarray | None = None) -> str:
    """Where two arrays first differ, '' where they do not. Numbers are compared in `got`'s type bit for bit (zeros of
    either sign are equal), or within `bound`. NaN equals NaN and nothing else, with a bound too."""   # BL-51
    if got.shape != want.shape:
        return f"shape {got.shape} instead of {want.shape}"
    with np.errstate(all="ignore"):
        rounded = want.astype(got.dtype)
        same = (got == rounded) | ((got != got) & (rounded != rounded))
        if bound is not None:
            same |= np.abs(got.astype(np.float64) - want.astype(np.float64)) <= bound
    if same.all():
        return ""
    first = tuple(map(int, np.argwhere(~same)[0]))
    return f"{(~same).sum()} of {same.size} elements differ, first {list(first)}: {got[first]} instead of {want[first]}"


def tile_stages(compiled: Compiled) -> dict[str, Program]:
    return {name: stage for name, stage in compiled.stages.items() if isinstance(stage, Program)}


def blame(compiled: Compiled, arguments: Mapping[str, Any], expected: Arrays, bounds: Arrays | None = None) -> str:
    """The first link of the chain that differs from the reference."""
    for stage, program in tile_stages(compiled).items():
        results = interpreted(program, arguments)
        if any(difference(results[name], want, bounds and bounds.get(name)) for name, want in expected.items()):
            return f"the first stage that differs is {stage!r}"
    return "all tile stages agree with the reference: the object differs"


def interpreted(program: Program, arguments: Mapping[str, Any]) -> Arrays:
    """What the interpreter leaves in copies of the tensors."""
    copies = {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in arguments.items()}
    interp.run(program, copies)
    return {name: value for name, value in copies.items() if isinstance(value, np.ndarray)}


def prove_chain(kernel: Kernel, arguments: Mapping[str, Any], arch: str, expected: Arrays, **options: Any) -> None:
    """`prove`, and every tile stage gives the expected numbers too."""
    before = {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in arguments.items()}
    compiled = prove(kernel, arguments, arch, expected, **options)
    found = blame(compiled, before, expected, options.get("bounds"))
    assert found.startswith("all tile stages agree"), f"{kernel.name} on {arch}: {found}"


@dataclass(frozen=True, eq=False)
class Launch:
    """A kernel and a problem to run it on, again and again: `arguments` makes them anew."""

    kernel: CompiledKernel
    arguments: Callable[[], Mapping[str, Any]]

    @cached_property
    def result(self) -> Arrays:
        findings, arrays = self.run(self.kernel)
        assert not findings, "\n".join(map(str, findings))
        return arrays

    def run(self, kernel: CompiledKernel, **order: Any) -> tuple[tuple[Finding, ...], Arrays]:
        """What the checks found and what `kernel`, this one or a broken one, left in the arrays."""
        arguments = self.arguments()
        findings = kernel.run(**arguments, **order)
        return findings, {name: value for name, value in arguments.items() if isinstance(value, np.ndarray)}

    def differing(self, arrays: Arrays) -> str:
        """The first array that is not bit for bit the result, and where; '' where all are."""
        faults = ((name, difference(arrays[name], want)) for name, want in self.result.items())
        return next((f"{name}: {fault}" for name, fault in faults if fault), "")


def same_under(launch: Launch, seeds: range) -> None:
    """All checks silent and the same bits in every order of waves and landings."""
    for landing in LANDINGS:
        for seed in seeds:
            findings, arrays = launch.run(launch.kernel, seed=seed, landing=landing)
            assert not findings, "\n".join(map(str, findings))
            assert not (fault := launch.differing(arrays)), f"landing {landing}, seed {seed}: {fault}"
