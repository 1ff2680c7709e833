"""Random tile programs: the compiled object on the emulator, under all checks, leaves what the interpreter leaves."""

import numpy as np
import pytest

from tests.semantics.generate import Case, Options, generate
from tests.semantics.memory import Memory
from tilec.compile import compile
from tilec.ir import interp
from tilec.ir.core import Block, Program, changes_memory
from tilec.runtime import emulated
from tilec.runtime.arguments import Executable
from tilec.runtime.tensors import view

ARCHS = ("gfx942", "gfx950")
LANDINGS = ("late", "early", "random")


def check(seed: int, arch: str, options: Options | None = None) -> None:
    case = generate(seed, options)
    compiled = compile(case.program, arch, verify=True)
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


def arrays(arguments: dict) -> dict[str, np.ndarray]:
    return {name: value for name, value in arguments.items() if isinstance(value, np.ndarray)}


def emulate(case: Case, arguments: dict, code: bytes, arch: str, seed: int, landing: str) -> tuple:
    """Runs the object on the arguments in place and returns what the checks found."""
    views = {name: view(array.view(case.memory[name].dtype.numpy())) for name, array in arrays(arguments).items()}
    executable = Executable(case.program, code, arch)
    return emulated.run(executable, {**arguments, **views}, seed=seed, landing=landing).findings


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("seed", range(8))
def test_objects_do_what_the_interpreter_says(seed, arch):
    check(seed, arch)


@pytest.mark.slow
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("seed", range(8, 600))
def test_more_objects_do_what_the_interpreter_says(seed, arch):
    check(seed, arch)


@pytest.mark.slow
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("seed", range(600, 800))
def test_tiles_of_odd_sizes_and_all_dtypes(seed, arch):
    dtypes = ("f64", "f32", "f16", "bf16", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "bool")
    sizes = ((1, 2, 4, 8, 32, 96), (16, 48, 64))[seed % 2]
    check(seed, arch, Options(dtypes, sizes, without=("dot", "dot_loop") if seed % 2 == 0 else ()))


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
