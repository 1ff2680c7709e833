"""Random tile programs: what the compiled object does on the emulator is what the interpreter says."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import pytest

from tests.semantics.generate import Case, Options, generate
from tests.semantics.memory import Memory
from tilec.compile import compile
from tilec.errors import InternalError, TilecError
from tilec.ir import interp
from tilec.ir.core import Program, TensorType
from tilec.ir.text import print_program
from tilec.runtime import emulated
from tilec.runtime.arguments import Executable
from tilec.runtime.tensors import tensor

ARCHS = ("gfx942", "gfx950")
FEW, MANY = range(40), range(1000, 4000)
REFUSED = ("vector registers at once", "SGPRs at once", "of LDS", "does not divide into matrix instructions")
"""What the compiler refuses by design, by words of the message: programs over budget, dots that no instruction does."""
WAVES = (4, 1, 2, 8)


@dataclass
class Refusals:
    """Counted, so that a compiler that refuses everything does not pass."""

    runs: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    def allow(self, error: TilecError) -> None:
        reason = next((words for words in REFUSED if words in str(error)), None)
        if isinstance(error, InternalError) or reason is None:
            raise error
        self.reasons[reason] += 1


def run_object(case: Case, executable: Executable, seed: int) -> dict[str, np.ndarray]:
    arguments = case.arguments()
    types = {p.name: p.type for p in case.program.params}
    values = {name: tensor(value, types[name].dtype) if isinstance(types[name], TensorType) else value
              for name, value in arguments.items()}
    result = emulated.run(executable, values, seed=seed, landing=("late", "early", "random")[seed % 3])
    assert not result.findings, f"seed {seed}: " + "\n".join(map(str, result.findings[:3]))
    arrays = {name: value for name, value in arguments.items() if isinstance(value, np.ndarray)}
    for name, array in arrays.items():
        assert Memory.surroundings_intact(array), f"seed {seed}: {name} was written outside"
    return arrays


def interpreted(case: Case, program: Program) -> dict[str, np.ndarray]:
    arguments = case.arguments()
    interp.run(program, arguments)
    return {name: value for name, value in arguments.items() if isinstance(value, np.ndarray)}


def same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    return all(interp.same_numbers(a[name], b[name]) for name in a)


def check(seed: int, arch: str, options: Options | None, refusals: Refusals) -> None:
    case = generate(seed, options)
    program = case.program.replace(waves=WAVES[seed % len(WAVES)])
    refusals.runs += 1
    try:
        compiled = compile(program, arch, verify=True)
    except TilecError as error:
        refusals.allow(error)
        return
    expected = interpreted(case, case.program)
    if same(expected, run_object(case, Executable(program, compiled.object, arch), seed)):
        return
    stages = {name: stage for name, stage in compiled.stages.items() if isinstance(stage, Program)}
    first = next((name for name, stage in stages.items() if not same(expected, interpreted(case, stage))), "the object")
    pytest.fail(f"seed {seed} on {arch}: the first stage that differs is {first}\n{print_program(case.program)}")


@pytest.mark.parametrize("arch", ARCHS)
def test_objects_do_what_the_interpreter_says(arch):
    refusals = Refusals()
    for seed in FEW:
        check(seed, arch, None, refusals)
    assert sum(refusals.reasons.values()) <= refusals.runs / 4, refusals.reasons


@pytest.mark.slow
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("first", range(MANY.start, MANY.stop, 100))
def test_many_objects(first, arch):
    refusals = Refusals()
    for seed in range(first, first + 100):
        sizes = ((16, 32), (16, 64), (32, 128), (1, 4, 16))[seed % 4]
        check(seed, arch, Options(statements=10 + seed % 20, sizes=sizes), refusals)
    assert sum(refusals.reasons.values()) <= refusals.runs / 4, refusals.reasons
