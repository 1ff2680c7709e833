"""The allocation checker: it accepts what is right and catches each kind of wrong.

Mutants of allocated random programs are also run on made-up values; what the run tells apart the checker must refuse.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from tests.fuzz.machine_programs import random_program
from tests.fuzz.run_machine import MOVES, trace
from tests.support.machine_text import program
from tilec.backend_amdgcn.regalloc import allocate
from tilec.backend_amdgcn.regcheck import check
from tilec.errors import InternalError, TilecError
from tilec.ir.machine import Instruction, Physical, Program, Resources

# -- by hand -----------------------------------------------------------------------------------------------------------


def finished(text: str, vgpr: int, agpr: int, sgpr: int, waves: int = 8, **fields) -> Program:
    return program(text, form="allocated", resources=Resources(vgpr, agpr, sgpr, 0, 0, waves), **fields)


VIRTUAL = """
    copy base:s4 <- 0
    v_mov_b32 x:v <- 1
    copy y:v <- x
    v_add_u32 y <- y, v0
    v_add_u32 x <- x, y
    buffer_store_dword x, y, base, 0
    s_endpgm"""
RIGHT = """
    s_mov_b64 s[4:5] <- 0
    s_mov_b64 s[6:7] <- 0
    v_mov_b32 v1 <- 1
    v_mov_b32 v2 <- v1
    v_add_u32 v2 <- v2, v0
    v_add_u32 v1 <- v1, v2
    buffer_store_dword v1, v2, s[4:7], 0
    s_endpgm"""


def test_what_is_right_passes():
    check(program(VIRTUAL), finished(RIGHT, 3, 0, 8))
    straight = RIGHT.replace("v_mov_b32 v2 <- v1", "v_mov_b32 v2 <- 1")     # as good: the same constant
    check(program(VIRTUAL), finished(straight, 3, 0, 8))


@pytest.mark.parametrize("old, new, message", [
    ("v_mov_b32 v2 <- v1", "v_mov_b32 v2 <- v0", "v_add_u32 reads v2, which does not hold y[0]"),
    ("v_mov_b32 v2 <- v1\n", "\n", "v_add_u32 reads v2, which does not hold y[0]"),
    ("v_mov_b32 v2 <- v1", "v_mov_b32 v2 <- 2", "v_add_u32 reads v2, which does not hold y[0]"),
    ("v_add_u32 v2 <- v2, v0", "v_add_u32 v1 <- v2, v0", "v_add_u32 reads v1, which does not hold x[0]"),
    ("v_add_u32 v1 <- v1, v2", "v_add_u32 v1 <- v2, v1", "v_add_u32 reads v2, which does not hold x[0]"),
    ("v_add_u32 v1 <- v1, v2", "v_sub_u32 v1 <- v1, v2", "v_add_u32 became v_sub_u32"),
    ("buffer_store_dword v1, v2, s[4:7], 0", "buffer_store_dword v1, v2, s[4:7], 1", "reads Immediate(value=1)"),
    ("buffer_store_dword v1, v2, s[4:7], 0", "buffer_store_dword v1, v2, s[5:8], 0", "from a multiple of 4 on"),
    ("buffer_store_dword v1, v2, s[4:7], 0", "buffer_store_dword s1, v2, s[4:7], 0", "can't take s1 where 'w'"),
    ("buffer_store_dword v1, v2, s[4:7], 0", "buffer_store_dword v1, v[2:3], s[4:7], 0", "1 dwords"),
    ("v_add_u32 v1 <- v1, v2", "v_add_u32 a1 <- v1, v2", "can't take a1 where 'v' is asked for"),
    ("v_add_u32 v1 <- v1, v2", "copy v1 <- v2", "copy is left over"),
    ("s_endpgm", "v_add_u32 v1 <- v1, v1\ns_endpgm", "s_endpgm became v_add_u32"),
    ("    s_endpgm", "", "s_endpgm is missing"),
    ("v_mov_b32 v1 <- 1", "v_mov_b32 v200 <- 1", "v_add_u32 reads v2, which does not hold y[0]"),
])
def test_what_is_wrong_is_caught(old: str, new: str, message: str):
    assert old in RIGHT
    with pytest.raises(InternalError) as caught:
        check(program(VIRTUAL), finished(RIGHT.replace(old, new, 1), 201, 2, 9, 2))
    assert message in str(caught.value)


@pytest.mark.parametrize("resources, message", [
    ((2, 0, 8, 8), "does not describe"), ((3, 0, 7, 8), "does not describe"), ((3, 0, 8, 7), "does not describe")])
def test_resources_describe_the_program(resources: tuple[int, int, int, int], message: str):
    with pytest.raises(InternalError, match=message):
        check(program(VIRTUAL), finished(RIGHT, *resources))


def test_the_budget_of_the_waves():
    far = RIGHT.replace("v2", "v140")
    check(program(VIRTUAL), finished(far, 141, 0, 8, 3))
    with pytest.raises(InternalError, match="leave 3 waves per SIMD of 4"):
        check(program(VIRTUAL, waves=16), finished(far, 141, 0, 8, 3).replace(waves=16))


LOOP = """
    entry:
      copy base:s4 <- 0
      copy a_:v <- 1
      copy b_:v <- 2
    loop 1:
      v_add_u32 c_:v <- a_, b_
      buffer_store_dword c_, v0, base, 0
      copy t_:v <- a_
      copy a_ <- b_
      copy b_ <- t_
      s_cmp_lg_u32 s2, 0
      s_cbranch_scc1 ->loop
    end:
      s_endpgm"""
SWAPPED = """
    entry:
      s_mov_b64 s[4:5] <- 0
      s_mov_b64 s[6:7] <- 0
      v_mov_b32 v1 <- 1
      v_mov_b32 v2 <- 2
    loop 1:
      v_add_u32 v3 <- v1, v2
      buffer_store_dword v3, v0, s[4:7], 0
      v_mov_b32 v3 <- v1
      v_mov_b32 v1 <- v2
      v_mov_b32 v2 <- v3
      s_cmp_lg_u32 s2, 0
      s_cbranch_scc1 ->loop
    end:
      s_endpgm"""


def test_a_fault_that_shows_only_in_the_second_trip():
    check(program(LOOP), finished(SWAPPED, 4, 0, 8))
    for wrong in (SWAPPED.replace("v_mov_b32 v2 <- v3", ""), SWAPPED.replace("v_mov_b32 v3 <- v1\n", ""),
                  SWAPPED.replace("v_mov_b32 v1 <- v2", "")):
        with pytest.raises(InternalError, match="does not hold"):
            check(program(LOOP), finished(wrong, 4, 0, 8))


def test_a_value_of_the_last_trip_is_not_one_of_this_trip():
    """x is made anew in each trip, and so is not what y was copied from."""
    virtual = """
        entry:
          copy base:s4 <- 0
          copy y:v <- 0
        outer 1:
          v_add_u32 z:v <- y, v0
          buffer_store_dword z, v0, base, 0
        inner 2:
          v_add_u32 x:v <- v0, v0
          buffer_store_dword y, x, base, 0
          copy y <- x
          s_cmp_lg_u32 s2, 0
          s_cbranch_scc1 ->inner
        latch 1:
          s_cmp_lg_u32 s2, 1
          s_cbranch_scc1 ->outer
        end:
          s_endpgm"""
    right = """
        entry:
          s_mov_b64 s[4:5] <- 0
          s_mov_b64 s[6:7] <- 0
          v_mov_b32 v1 <- 0
        outer 1:
          v_add_u32 v2 <- v1, v0
          buffer_store_dword v2, v0, s[4:7], 0
        inner 2:
          v_add_u32 v2 <- v0, v0
          buffer_store_dword v1, v2, s[4:7], 0
          v_mov_b32 v1 <- v2
          s_cmp_lg_u32 s2, 0
          s_cbranch_scc1 ->inner
        latch 1:
          s_cmp_lg_u32 s2, 1
          s_cbranch_scc1 ->outer
        end:
          s_endpgm"""
    check(program(virtual), finished(right, 3, 0, 8))
    with pytest.raises(InternalError, match="does not hold y"):
        check(program(virtual), finished(right.replace("buffer_store_dword v1, v2", "buffer_store_dword v2, v2"),
                                         3, 0, 8))


def test_reading_what_is_not_written_on_every_path():
    text = """
        entry:
          copy base:s4 <- 0
          s_cmp_lg_u32 s2, 0
          s_cbranch_scc1 ->join
        then:
          v_mov_b32 x:v <- 1
        join:
          buffer_store_dword x, v0, base, 0
          s_endpgm"""
    with pytest.raises(InternalError, match=r"reads x\[0\], which is not written on every path"):
        check(program(text), allocate(program(text)).program)


@pytest.mark.parametrize("old, new", [("s_mov_b32 s3 <- 1", "s_and_b32 s3 <- s2, s2"), ("s_mov_b32 s3", "s_mov_m0")])
def test_status_bits_between_a_compare_and_its_use(old: str, new: str):
    virtual = "copy base:s4 <- 0\ns_cmp_lg_u32 s2, 0\ncopy one:s <- 1\ns_cselect_b32 r:s <- one, s2\ns_endpgm"
    right = "s_mov_b64 s[4:5] <- 0\ns_mov_b64 s[6:7] <- 0\ns_cmp_lg_u32 s2, 0\ns_mov_b32 s3 <- 1\n" \
            "s_cselect_b32 s3 <- s3, s2\ns_endpgm"
    check(program(virtual), finished(right, 0, 0, 8))
    with pytest.raises(InternalError):
        check(program(virtual), finished(right.replace(old, new), 0, 0, 8))


NARROWED = """
    copy base:s4 <- 0
    v_mov_b32 x:v <- 7
    v_mov_b32 y:v <- 8
    v_cmp_lt_i32 m:s2 <- v0, 3
    s_mov_exec m
    v_add_u32 t_:v <- v0, v0
    v_add_u32 x <- t_, y
    s_mov_exec -1
    buffer_store_dword x, v0, base, 0
    s_endpgm"""
NARROWED_RIGHT = """
    s_mov_b64 s[4:5] <- 0
    s_mov_b64 s[6:7] <- 0
    v_mov_b32 v1 <- 7
    v_mov_b32 v2 <- 8
    v_cmp_lt_i32 s[8:9] <- v0, 3
    s_mov_exec s[8:9]
    v_add_u32 v3 <- v0, v0
    v_add_u32 v1 <- v3, v2
    s_mov_exec -1
    buffer_store_dword v1, v0, s[4:7], 0
    s_endpgm"""


def test_lanes_that_are_off():
    check(program(NARROWED), finished(NARROWED_RIGHT, 4, 0, 10))
    check(program(NARROWED), finished(NARROWED_RIGHT.replace("v3", "v4"), 5, 0, 10))
    in_place = NARROWED_RIGHT.replace("v3", "v1")           # x of the other lanes is not touched
    check(program(NARROWED), finished(in_place, 3, 0, 10))
    in_y = NARROWED_RIGHT.replace("v1 <- v3, v2", "v2 <- v3, v2").replace("store_dword v1", "store_dword v2")
    with pytest.raises(InternalError, match="does not hold x"):     # the other lanes hold y
        check(program(NARROWED), finished(in_y, 4, 0, 10))


def test_exec_is_known_again_behind_nested_branches():
    """All lanes are on at the end: what was computed for some of them in another register is not enough."""
    virtual = """
        entry:
          copy base:s4 <- 0
          v_mov_b32 x:v <- 7
          v_cmp_lt_i32 m:s2 <- v0, 3
          v_cmp_lt_i32 n:s2 <- v0, 2
          s_and_saveexec_b64 outer:s2 <- m
          s_cbranch_execz ->skip
        some:
          s_and_saveexec_b64 inner:s2 <- n
          s_cbranch_execz ->skip_fewer
        fewer:
          v_add_u32 x <- v0, v0
        skip_fewer:
          s_mov_exec inner
          v_add_u32 x <- x, v0
        skip:
          s_mov_exec outer
          buffer_store_dword x, v0, base, 0
          s_endpgm"""
    right = """
        entry:
          s_mov_b64 s[4:5] <- 0
          s_mov_b64 s[6:7] <- 0
          v_mov_b32 v1 <- 7
          v_cmp_lt_i32 s[8:9] <- v0, 3
          v_cmp_lt_i32 s[10:11] <- v0, 2
          s_and_saveexec_b64 s[8:9] <- s[8:9]
          s_cbranch_execz ->skip
        some:
          s_and_saveexec_b64 s[10:11] <- s[10:11]
          s_cbranch_execz ->skip_fewer
        fewer:
          v_add_u32 v1 <- v0, v0
        skip_fewer:
          s_mov_exec s[10:11]
          v_add_u32 v1 <- v1, v0
        skip:
          s_mov_exec s[8:9]
          buffer_store_dword v1, v0, s[4:7], 0
          s_endpgm"""
    check(program(virtual), finished(right, 2, 0, 12))
    elsewhere = right.replace("v1 <- v1, v0", "v2 <- v1, v0").replace("store_dword v1", "store_dword v2")
    for others in (7, 6):                                   # what v2 holds in the lanes that are off
        text = elsewhere.replace("v_mov_b32 v1 <- 7", f"v_mov_b32 v1 <- 7\n v_mov_b32 v2 <- {others}")
        if others == 7:
            check(program(virtual), finished(text, 3, 0, 12))
        else:
            with pytest.raises(InternalError, match="does not hold x"):
                check(program(virtual), finished(text, 3, 0, 12))


@pytest.mark.parametrize("line, message", [
    ("v_mfma_f32_16x16x32_bf16 v[0:3] <- v[4:7], v[8:11], a[0:3]", r"has C in a\[0:3\] and D in v\[0:3\]"),
    ("v_mfma_f32_32x32x16_bf16 v[0:15] <- v[16:19], v[12:15], 0", "writes v.0:15. before it has read v.12:15."),
    ("v_mfma_f32_32x32x16_bf16 v[0:15] <- v[16:19], v[20:23], v[2:17]", "before it has read v.2:17."),
    ("s_load_dwordx2 s[0:1] <- s[0:1], 0", "writes s.0:1. before it has read s.0:1."),
    ("v_permlane32_swap_b32 v0, v1 <- v0, v2", "must have v1 as source v2"),
])
def test_constraints_of_single_instructions(line: str, message: str):
    with pytest.raises(InternalError, match=message):
        check(program("s_endpgm"), finished(line + "\ns_endpgm", 24, 4, 8))


def test_equal_c_and_d_are_allowed():
    text = "v_mfma_f32_32x32x16_bf16 v[0:15] <- v[16:19], v[20:23], v[0:15]\ns_endpgm"
    with pytest.raises(InternalError, match="s_endpgm became v_mfma"):     # past the checks of single instructions
        check(program("s_endpgm"), finished(text, 24, 0, 0))


# -- mutants -----------------------------------------------------------------------------------------------------------


def mutants(allocated: Program, rng: random.Random) -> Iterator[tuple[str, Program]]:
    """One change each."""
    places = [(b, k) for b, block in enumerate(allocated.blocks) for k in range(len(block.instructions))]

    def with_code(b: int, code: list[Instruction]) -> Program:
        blocks = list(allocated.blocks)
        blocks[b] = blocks[b].replace(instructions=tuple(code))
        return allocated.replace(blocks=tuple(blocks))

    def other(operand: Physical) -> Physical:
        step = 4 if operand.file == "s" and operand.size > 2 else 2 if operand.size > 1 else 1
        return Physical(operand.file, max(0, operand.index + step * rng.choice((-2, -1, 1, 2, 3))), operand.size)

    for b, k in rng.sample(places, min(len(places), 20)):
        code = list(allocated.blocks[b].instructions)
        old = code[k]
        registers = [(side, n) for side in ("dst", "src") for n, o in enumerate(getattr(old, side))
                     if isinstance(o, Physical) and o.file in "sva"]
        if registers:
            side, n = rng.choice(registers)
            operands = list(getattr(old, side))
            operands[n] = other(operands[n])
            yield f"other {side}", with_code(b, [*code[:k], old.replace(**{side: tuple(operands)}), *code[k + 1:]])
        if len(old.src) > 1 and old.src[0] != old.src[1]:
            swapped = old.replace(src=(old.src[1], old.src[0], *old.src[2:]))
            yield "swapped sources", with_code(b, [*code[:k], swapped, *code[k + 1:]])
        if old.op in MOVES:
            yield "missing move", with_code(b, [*code[:k], *code[k + 1:]])
            if k and code[k - 1].op in MOVES:
                yield "moves exchanged", with_code(b, [*code[:k - 1], old, code[k - 1], *code[k + 1:]])
        clobber = Instruction("v_mov_b32", (Physical("v", rng.randrange(max(1, allocated.resources.vgpr))),),
                              (Physical("v", rng.randrange(max(1, allocated.resources.vgpr))),))
        yield "clobber", with_code(b, [*code[:k], clobber, *code[k:]])


def refusal(virtual: Program, allocated: Program) -> str:
    try:
        check(virtual, allocated)
    except InternalError as error:
        return str(error)
    return ""


def attempt(run: Callable[[], object]) -> object:
    """The result, or that the mutant is nonsense that can't even be run."""
    try:
        return run()
    except (KeyError, ValueError, AssertionError) as error:
        return type(error).__name__


_STEPS = 150


def test_mutants_that_compute_otherwise_are_refused():
    rng = random.Random(1)
    told_apart: Counter[str] = Counter()
    for seed in range(10):
        virtual = random_program(seed, ("gfx950", "gfx942")[seed % 2], length=40, tiles=3 + seed % 4)
        try:
            allocated = allocate(virtual).program
        except TilecError:
            continue
        expected = trace(virtual, _STEPS)
        assert refusal(virtual, allocated) == ""
        for kind, mutant in mutants(allocated, rng):
            if attempt(lambda mutant=mutant: trace(mutant, _STEPS)) != expected:
                told_apart[kind] += 1
                assert refusal(virtual, mutant), (seed, kind)
    assert len(told_apart) == 6 and min(told_apart.values()) >= 2, told_apart
