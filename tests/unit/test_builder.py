"""What the builder hoists out of a loop, and what it keeps for a second use."""

from __future__ import annotations

import pytest

from tilec.backend_amdgcn.builder import NEAR, Builder
from tilec.ir.machine import Physical


def built(room: int | None, apart: int = 0) -> dict[str, list[str]]:
    """The ops of each block: a loop that wants two masks, a sum of scalars, a sum of vectors, and all of them again."""
    b = Builder("gfx950", room)
    scalar = b.pure("s_mov_b32", Physical("s", 2), kind="s")
    vector = b.pure("v_mov_b32", Physical("v", 0))
    loop = b.begin_loop()
    for _ in range(2):
        for number in range(2):
            b.pure("v_cmp_gt_i32", number, vector, kind="s", size=2)
        b.pure("s_add_i32", scalar, 7, kind="s")
        b.pure("v_add_u32", 7, vector)
        for _ in range(apart):
            b.emit("s_nop", [], [0])
    b.end_loop(loop, [], [])
    return {block.title or block.label: [i.op for i in block.instructions if i.op != "s_nop"] for block in b.finish()}


ALL = ["v_cmp_gt_i32", "v_cmp_gt_i32", "s_add_i32"]


@pytest.mark.parametrize("room, hoisted", [
    (None, ALL), (5, ALL), (4, ALL[:2]), (3, ["v_cmp_gt_i32", "s_add_i32"]), (0, [])])
def test_scalars_are_hoisted_while_there_is_room(room: int | None, hoisted: list[str]):
    blocks = built(room)
    before, inside = blocks["entry"][2:-1], blocks["loop_1"][:-1]
    assert [op for op in before if op != "v_add_u32"] == hoisted and "v_add_u32" in before
    assert sorted(hoisted + inside) == sorted(ALL)


def test_where_scalars_are_short_none_is_kept_for_long():
    """In a loop, a numbered scalar is kept for uses that are near only; a vector as before."""
    assert built(0, apart=NEAR)["loop_1"][:-1] == ALL * 2
    assert built(None, apart=NEAR)["loop_1"][:-1] == []


@pytest.mark.parametrize("room", [None, 0])
def test_the_literal_of_a_hoisted_instruction_stands_before_it(room: int | None):
    """A vector that is hoisted from a loop takes its constants along."""
    b = Builder("gfx950", room)
    vector = b.pure("v_mov_b32", Physical("v", 0))
    loop = b.begin_loop()
    b.pure("v_mul_lo_u32", vector, 0x12345)
    b.end_loop(loop, [], [])
    before, *_ = b.finish()
    assert [i.op for i in before.instructions[:-1]] == ["v_mov_b32", "s_mov_b32", "v_mul_lo_u32"]
