"""A kernel as the command line names it: its file, its arguments, and what the commands ask of it.

The file's convention is that of `kernels/__init__.py`: `defaults()` and `reference(...)`, or `defaults_NAME` and
`reference_NAME` where a file has several kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from tilec import cli_values, trial
from tilec.compile import Compiled
from tilec.errors import TilecError
from tilec.frontend.jit import CompiledKernel, Kernel, launch_values
from tilec.ir.core import Program
from tilec.ir.machine_text import print_machine
from tilec.ir.text import print_program
from tilec.object_report import Report, describe
from tilec.runtime import emulated
from tilec.runtime.tensors import TensorView, spec
from tilec.trial import Outcome

ASSEMBLY = "asm"


@dataclass(frozen=True)
class Request:
    """A kernel with all its arguments (specs for tensors), the architecture and the schedule as given."""

    kernel: Kernel
    module: ModuleType
    arguments: Mapping[str, Any]
    arch: str | None
    schedule: str | None

    @staticmethod
    def of(reference: str, arch: str | None, args: tuple[str, ...], consts: tuple[str, ...],
           schedule: str | None) -> Request:
        kernel, module = cli_values.load_kernel(reference, lambda value: isinstance(value, Kernel))
        given = {name: spec(value.dtype, value.shape) if isinstance(value, cli_values.TensorText) else value
                 for name, value in cli_values.arguments(args).items()}
        return Request(kernel, module, _defaults(kernel, module) | given | cli_values.consts(consts), arch, schedule)

    @cached_property
    def compiled(self) -> CompiledKernel:
        return self.kernel.compile(**self.arguments, arch=self.arch, schedule=self.schedule)

    # -- compile

    def report(self) -> CompileReport:
        from tilec.emulator.elf import load_object

        code = load_object(self.compiled.object)
        binding = self.kernel.signature.bind((), self.arguments, values_needed=False)
        values = launch_values(binding, self.compiled.order, self.compiled.arch)
        conflicts = trial.lds_conflicts(self.compiled.executable, values)
        return CompileReport(describe(code, code.kernels[self.compiled.name], conflicts), self.compiled)

    def write(self, folder: Path) -> dict[str, str]:
        """KERNEL.s and KERNEL.hsaco in the folder; {"assembly": path, "object": path}."""
        folder.mkdir(parents=True, exist_ok=True)
        assembly, code = folder / f"{self.compiled.name}.s", folder / f"{self.compiled.name}.hsaco"
        assembly.write_text(self.compiled.asm)
        code.write_bytes(self.compiled.object)
        return {"assembly": str(assembly), "object": str(code)}

    # -- run

    def run(self, *, checks: str, seed: int, landing: str, data: str) -> Outcome:
        """Runs the object on the emulator on generated data and compares what it wrote with the file's reference."""
        reference = _function(self.kernel, self.module, "reference")
        if reference is None:
            raise TilecError(f"{self.module.__file__} has no reference for {self.kernel.name}",
                             fix="define reference(**arguments) beside the kernel; it returns {name: array}")
        random = np.random.default_rng(seed)
        tensors = {name: value for name, value in self.arguments.items() if isinstance(value, TensorView)}
        filled = {**self.arguments, **{name: trial.fill(value, data, random) for name, value in tensors.items()}}
        binding = self.kernel.signature.bind((), filled)
        before = {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in filled.items()}
        executable = self.compiled.executable
        values = launch_values(binding, self.compiled.order, self.compiled.arch)
        result = emulated.run(executable, values, checks=checks, seed=seed, landing=landing)
        expected = reference(**before)
        if set(expected) != executable.written:
            raise TilecError(f"the reference of {self.kernel.name} gives {', '.join(sorted(expected))}",
                             limit=f"the kernel writes {', '.join(sorted(executable.written))}")
        bounds = _function(self.kernel, self.module, "bounds")
        allowed = bounds(**before) if bounds else {}
        outputs = [trial.compare(name, filled[name], np.asarray(want), tensors[name].dtype, allowed.get(name, 0.0))
                   for name, want in expected.items()]
        return Outcome([str(output) for output in outputs if output.wrong], result.findings, result.statistics, outputs)

    # -- dump

    def stages(self) -> dict[str, str]:
        """Each stage with the form of its program."""
        return {name: program.form for name, program in self.compiled.stages.items()} | {ASSEMBLY: "text"}

    def stage(self, name: str) -> str:
        """The text of a stage: by pass, by form (the last program in that form), or the assembly."""
        if name == ASSEMBLY:
            return self.compiled.asm
        stages = self.compiled.stages
        try:
            found = stages[name]
        except KeyError:
            forms = dict.fromkeys(program.form for program in stages.values())
            raise TilecError(f"there is no stage {name!r}",
                             limit=f"passes: {', '.join(stages)}; forms: {', '.join(forms)}; and {ASSEMBLY}") from None
        return print_program(found) if isinstance(found, Program) else print_machine(found)


@dataclass(frozen=True)
class CompileReport:
    """What `tilec compile` says."""

    object: Report
    compiled: Compiled

    def as_json(self) -> dict[str, Any]:
        described = self.object.as_json()
        return {"kernel": self.compiled.name, "arch": self.compiled.arch, "seconds": dict(self.compiled.seconds),
                "compromises": list(self.compiled.compromises),
                **{key: described[key] for key in ("resources", "loops", "histogram")}}

    def as_text(self) -> str:
        seconds = self.compiled.seconds
        passes = "  ".join(f"{name} {1000 * taken:.1f}" for name, taken in seconds.items())
        compromises = (f"; {text}" for text in self.compiled.compromises)
        return "\n".join([*self.object.summary(), *compromises, f"; {1000 * sum(seconds.values()):.1f} ms: {passes}"])


def _defaults(kernel: Kernel, module: ModuleType) -> dict[str, Any]:
    """The file's default arguments, or none."""
    made = _function(kernel, module, "defaults")
    return dict(made()) if made else {}


def _function(kernel: Kernel, module: ModuleType, role: str) -> Callable[..., Any] | None:
    """The file's `defaults`, `reference` or `bounds` for this kernel."""
    return getattr(module, f"{role}_{kernel.name}", None) or getattr(module, role, None)
