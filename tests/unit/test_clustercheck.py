"""clustercheck is silent on what the compiler makes, and names cluster and instruction where waves lose step."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.schedules.cases import compiled
from tilec.backend_amdgcn import clustercheck
from tilec.ir.core import Program as TileProgram
from tilec.ir.machine import Block, Immediate, Instruction, Program

Edit = Callable[[Instruction], tuple[Instruction, ...]]


@pytest.fixture(scope="module")
def programs() -> tuple[TileProgram, Program]:
    kernel = compiled("pingpong", "gfx950")
    clustered = kernel.stages["barriers"]
    assert isinstance(clustered, TileProgram)
    return clustered, kernel.machine


def edited(program: Program, wanted: Callable[[Instruction], bool], edit: Edit, number: int = 0,
           block: Callable[[Block], bool] = lambda block: True) -> Program:
    """The program with the n-th such instruction replaced."""
    blocks, count = [], 0
    for old in program.blocks:
        body: list[Instruction] = []
        for instruction in old.instructions:
            hit = block(old) and wanted(instruction)
            body += edit(instruction) if hit and count == number else (instruction,)
            count += hit
        blocks.append(old.replace(instructions=tuple(body)))
    assert count > number
    return program.replace(blocks=tuple(blocks))


def is_barrier(half: str | None) -> Callable[[Instruction], bool]:
    return lambda instruction: instruction.op == "s_barrier" and instruction.modifier("half") == half


def in_loop(block: Block) -> bool:
    return block.depth > 0


def messages(clustered: TileProgram, program: Program) -> list[str]:
    return [fault.what for fault in clustercheck.check(clustered, program)]


def test_silent_on_what_the_compiler_makes(programs):
    assert messages(*programs) == []


@pytest.mark.parametrize("schedule", ["simple", "interleave", "halves", "pingpong(buffers=3)"])
def test_silent_on_other_schedules(schedule):
    kernel = compiled(schedule, "gfx950")
    assert messages(kernel.stages["barriers"], kernel.machine) == []


def test_the_trips_of_ping_pong(programs):
    (trip,) = clustercheck.trips(programs[0].body)
    assert [(p.dots, p.memory, p.priority) for p in trip] == [(False, True, 0), (True, False, 1)] * 4
    assert [p.name for p in trip[1::2]] == ["acc[0, 0]", "acc[0, 1]", "acc[1, 0]", "acc[1, 1]"]
    unstaggered = compiled("interleave", "gfx950").stages["barriers"]
    assert list(clustercheck.trips(unstaggered.body)) == []


def test_a_barrier_between_memory_and_compute(programs):
    lost = edited(programs[1], is_barrier(None), lambda i: (), 0, in_loop)
    assert messages(programs[0], lost)[0] == (
        "v_mfma_f32_16x16x32_bf16 stands in cluster 0 (read for acc[0, 0]), which has no dot: a barrier is missing or "
        "misplaced")


def test_a_barrier_between_compute_and_memory(programs):
    lost = edited(programs[1], is_barrier(None), lambda i: (), 1, in_loop)
    assert messages(programs[0], lost)[0] == (
        "ds_read_b128 stands in cluster 1 (acc[0, 0]), which has no access to memory: a barrier is missing or "
        "misplaced")


def test_a_barrier_too_many(programs):
    doubled = edited(programs[1], is_barrier(None), lambda i: (i, i), 0, in_loop)
    assert messages(programs[0], doubled)[0] == "a barrier ends cluster 1 (acc[0, 0]) before its dots"


def test_halves_that_do_not_part_or_meet(programs):
    clustered, program = programs
    assert messages(clustered, edited(program, is_barrier("late"), lambda i: ())) == [
        "waves fall behind in 0 places, and 1 loops are staggered"]
    assert any("which has no" in message
               for message in messages(clustered, edited(program, is_barrier("early"), lambda i: ())))
    assert "half of the waves passes 2 barriers more" in messages(
        clustered, edited(program, is_barrier("early"), lambda i: (i, i)))


def test_priorities(programs):
    clustered, program = programs

    def sets(level: int) -> Callable[[Instruction], bool]:
        return lambda i: i.op == "s_setprio" and i.src == (Immediate(level),)

    assert messages(clustered, edited(program, sets(1), lambda i: (), 0, in_loop))[0] == (
        "v_mfma_f32_16x16x32_bf16 runs at priority 0, cluster 1 (acc[0, 0]) at 1")
    assert messages(clustered, edited(program, sets(0), lambda i: (), 0, in_loop))[0] == (
        "waves meet behind cluster 1 (acc[0, 0]) at priority 1")


def test_a_memory_access_that_slips_into_a_compute_cluster(programs):
    clustered, program = programs
    (body,) = [block.instructions for block in program.blocks if in_loop(block) and
               any(i.op == "s_setprio" for i in block.instructions)]
    read = next(i for i in body if i.op == "ds_read_b128")
    slipped = edited(program, lambda i: i.src == (Immediate(1),) and i.op == "s_setprio", lambda i: (i, read),
                     0, in_loop)
    assert messages(clustered, slipped)[0].startswith("ds_read_b128 stands in cluster 1 (acc[0, 0]), which has no acc")
