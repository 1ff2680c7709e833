"""Random tile programs: the compiled object on the emulator, under all checks, leaves what the interpreter leaves.

A program that the compiler refuses by design counts as refused; of each hundred most must compile.
"""

import sys
from collections import Counter

import numpy as np
import pytest

from tests.semantics.generate import Case, Options, generate
from tests.semantics.memory import Memory
from tilec.compile import compile
from tilec.errors import InternalError, TilecError
from tilec.ir import interp
from tilec.ir.core import Block, Program, changes_memory
from tilec.runtime import emulated
from tilec.runtime.arguments import Executable
from tilec.runtime.tensors import tensor

ARCHS = ("gfx942", "gfx950")
LANDINGS = ("late", "early", "random")
WAVES = (4, 1, 2, 8)
REFUSED = ("vector registers at once", "SGPRs at once", "of LDS", "does not divide into matrix instructions")
"""Words of the messages for programs over budget, and for dots that no instruction does."""


def check(seed: int, arch: str, options: Options | None = None) -> str:
    """The words that say why the program was refused; '' where it ran and was right."""
    case = generate(seed, options)
    case = Case(case.program.replace(waves=WAVES[seed // 3 % 4]), case.memory, case.scalars)
    try:
        compiled = compile(case.program, arch, verify=True)
    except TilecError as error:
        reason = next((words for words in REFUSED if words in str(error)), "")
        if isinstance(error, InternalError) or not reason:
            raise
        return reason
    expected, got = case.arguments(), case.arguments()
    interp.run(case.program, expected)
    findings = emulate(case, got, compiled.object, arch, seed, LANDINGS[seed % 3])
    assert not findings, f"seed {seed}: {findings[0]}"
    for name, array in arrays(got).items():
        if not interp.same_numbers(array, expected[name]):
            stages = {stage: p for stage, p in compiled.stages.items() if isinstance(p, Program)}
            first = interp.first_difference(stages, case.arguments()) or "the object"
            pytest.fail(f"seed {seed}, {arch}: {name} differs; the first stage that does is {first}")
        assert Memory.surroundings_intact(array), f"seed {seed}, {arch}: {name} is written beside its elements"
    return ""


def arrays(arguments: dict) -> dict[str, np.ndarray]:
    return {name: value for name, value in arguments.items() if isinstance(value, np.ndarray)}


def emulate(case: Case, arguments: dict, code: bytes, arch: str, seed: int, landing: str) -> tuple:
    """Runs the object on the arguments in place and returns what the checks found."""
    views = {name: tensor(array, case.memory[name].dtype) for name, array in arrays(arguments).items()}
    executable = Executable(case.program, code, arch)
    return emulated.run(executable, {**arguments, **views}, seed=seed, landing=landing).findings


@pytest.mark.parametrize("arch", ARCHS)
def test_objects_do_what_the_interpreter_says(arch):
    refused = Counter(check(seed, arch) for seed in range(30))
    assert refused[""] >= 25, refused


@pytest.mark.slow
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("first", range(100, 3000, 100))
def test_more_objects_do_what_the_interpreter_says(first, arch):
    refused = Counter(check(seed, arch, options(seed)) for seed in range(first, first + 100))
    assert refused[""] >= 70, refused


@pytest.mark.parametrize("seed, arch", [(105, "gfx942"), (105, "gfx950")])
def test_less_is_hoisted_where_sgprs_run_out(seed, arch, monkeypatch):
    assert check(seed, arch, options(seed)) == ""
    monkeypatch.setattr(sys.modules["tilec.compile"], "HOISTED_SGPRS", (None,))
    assert check(seed, arch, options(seed)) == "SGPRs at once"


@pytest.mark.parametrize("arch", ARCHS)
def test_objects_without_hoisted_scalars(arch, monkeypatch):
    monkeypatch.setattr(sys.modules["tilec.compile"], "HOISTED_SGPRS", (0,))
    assert not any(check(seed, arch) for seed in range(30, 36))


def options(seed: int) -> Options:
    dtypes = ("f64", "f32", "f16", "bf16", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "bool")
    few, sizes = Options.dtypes, ((16, 32), (1, 2, 4, 8, 32, 96), (16, 48, 64), (32, 128), (1, 4, 16))[seed % 5]
    without = ("dot", "dot_loop") if min(sizes) < 16 and seed % 2 else ()
    return Options((few, dtypes)[seed % 3 == 0], sizes, 10 + seed % 20, without)


def test_a_wrong_object_is_seen():
    """The comparison can fail: an object of another program of the same arguments."""
    case = generate(3)
    other = compile(without_last_write(case.program), "gfx950").object
    expected, got = case.arguments(), case.arguments()
    interp.run(case.program, expected)
    emulate(case, got, other, "gfx950", 0, "late")
    assert not all(interp.same_numbers(array, expected[name]) for name, array in arrays(got).items())


def without_last_write(program: Program) -> Program:
    """The program without the last op that writes memory."""
    last = max(i for i, op in enumerate(program.body.ops) if changes_memory(op))
    return program.replace(body=Block((), program.body.ops[:last] + program.body.ops[last + 1:]))
