"""Random tile programs mean the same before and after each tile pass and through text, in any order of workgroups."""

import random
from collections import Counter

import numpy as np
import pytest

from tests.semantics.generate import ACCUMULATORS, MAP_NAMES, Case, Options, generate
from tests.semantics.known import limits
from tests.semantics.memory import Memory
from tilec.errors import TilecError
from tilec.ir import interp, tile
from tilec.ir.core import OPS, Block, Program
from tilec.ir.text import parse_program, print_program
from tilec.ir.verify import verify
from tilec.passes.simplify import simplify
from tilec.passes.slice_k import slice_k
from tilec.passes.split_tails import split_tails
from tilec.target import target

FEW, MANY = range(100), range(100, 10_000)


def stages(program: Program) -> dict[str, Program]:
    simple = simplify(program)
    split = split_tails(simple)
    sliced = slice_k(simple, target("gfx950"), 2, least=1)
    return {"traced": program, "split alone": split_tails(program), "simplified": simple, "split": split,
            "simplified again": simplify(split), "sliced": sliced, "sliced and split": split_tails(simplify(sliced)),
            "parsed": parse_program(print_program(split))}


def results(case: Case, program: Program, program_ids: list[tuple[int, ...]] | None = None) -> dict[str, np.ndarray]:
    arguments = case.arguments()
    interp.run(program, arguments, program_ids)
    arrays = {name: value for name, value in arguments.items() if isinstance(value, np.ndarray)}
    for name, array in arrays.items():
        assert Memory.surroundings_intact(array), f"{name} was written outside"
    return arrays


def check(seed: int, options: Options | None = None) -> None:
    case = generate(seed, options)
    expected = results(case, case.program)
    for name, program in stages(case.program).items():
        verify(program)
        for tensor, array in results(case, program).items():
            same = interp.same_numbers(array, expected[tensor])
            assert same, f"seed {seed}: {tensor} differs in {name}\n{print_program(program)}"


@pytest.mark.parametrize("seed", FEW)
def test_passes_keep_the_meaning(seed):
    check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", MANY)
def test_passes_keep_the_meaning_of_many(seed):
    check(seed, Options(statements=14 + seed % 30, sizes=((16, 32), (8, 48, 64), (1, 4, 16))[seed % 3]))


@pytest.mark.parametrize("seed", range(20))
def test_workgroups_may_run_in_any_order(seed):
    case = generate(seed)
    ids = list(np.ndindex(*interp.evaluate_grid(case.program, case.arguments())))
    random.Random(seed).shuffle(ids)
    shuffled, in_order = results(case, case.program, ids), results(case, case.program)
    assert all(interp.same_numbers(shuffled[name], in_order[name]) for name in in_order)


# -- the generator itself --------------------------------------------------------------------------------------------

def test_a_seed_gives_the_same_case_again():
    for seed in range(10):
        a, b = generate(seed), generate(seed)
        assert print_program(a.program) == print_program(b.program)
        assert all(np.array_equal(x, y) for x, y in zip(a.arguments().values(), b.arguments().values()))


@pytest.mark.parametrize("seed", range(30))
def test_floats_are_exact_integers_throughout(seed):
    case = generate(seed)

    def observe(where, op, made):
        for value, array in zip(op.results, made):
            dtype = getattr(value.type, "dtype", None)
            if dtype is not None and dtype.is_float and not isinstance(op, tile.View):
                array = np.asarray(array, np.float64)
                assert (array == np.rint(array)).all() and (np.abs(array) <= limits(dtype)[1]).all(), op
    interp.run(case.program, case.arguments(), observe=observe)


def test_all_ops_functions_and_dtypes_occur():
    ops, functions, dots = Counter(), Counter(), Counter()
    for seed in FEW:
        for op in generate(seed).program.walk():
            ops[op.mnemonic] += 1
            if isinstance(op, tile.Elementwise):
                functions[op.function] += 1
            if isinstance(op, tile.Dot):
                dots[op.a.type.dtype.name] += 1
    later = {c.mnemonic for c in tile.LAID_OUT_ONLY}
    assert set(OPS) - later <= set(ops)
    assert set(MAP_NAMES) <= set(functions)
    assert set(ACCUMULATORS) - {"f64"} <= set(dots)


def test_options_leave_out_what_they_name():
    without = ("dot", "dot_loop", "gather", "scatter", "atomic_add", "mod")
    options = Options(dtypes=("f32", "i32"), sizes=(64,), without=without)
    for seed in range(30):
        case = generate(seed, options)
        for op in case.program.walk():
            assert op.mnemonic not in ("dot", "gather", "scatter", "atomic_add")
            assert not isinstance(op, tile.Elementwise) or op.function != "mod"
            for value in op.results:
                assert getattr(value.type, "dtype", None) is None or value.type.dtype.name in ("f32", "i32", "bool")
                assert all(size in (1, 64) for size in getattr(value.type, "shape", ()))


def with_one_number_changed(program: Program, chosen: random.Random) -> Program:
    """The program with one of its numbers off by one."""
    wrong = chosen.choice([op for op in program.body.ops if isinstance(op, tile.Constant) and type(op.value) is int])
    changed = tuple(op.replace(value=op.value ^ 1) if op is wrong else op for op in program.body.ops)
    return program.replace(body=Block(program.body.params, changed, program.body.yields))


def test_one_wrong_number_shows_in_half_of_the_programs():
    """What a case computes reaches memory: a program that hides every fault would prove nothing."""
    shown = 0
    for seed in range(60):
        case = generate(seed)
        right = results(case, case.program)
        ids = list(np.ndindex(*interp.evaluate_grid(case.program, case.arguments())))
        try:
            wrong = results(case, with_one_number_changed(simplify(case.program), random.Random(seed)), ids)
        except TilecError:
            shown += 1
        else:
            shown += any(not interp.same_numbers(right[name], wrong[name]) for name in right)
    assert shown >= 30
