"""What a cluster does beside its matrix instructions, spread between them."""

from __future__ import annotations

import random

import pytest

from tilec.backend_amdgcn.isa import rows
from tilec.backend_amdgcn.spread import spread
from tilec.ir.machine import Instruction, Ref, Register


def instruction(op: str, dst: list[Ref], src: list[Ref]) -> Instruction:
    return Instruction(op, tuple(dst), tuple(src))


def registers(count: int, kind: str = "v", size: int = 1) -> list[Ref]:
    return [Ref(Register(kind, size), 0, size) for _ in range(count)]


def dots(count: int) -> list[Instruction]:
    tiles = registers(3, "va", 4)
    return [instruction("v_mfma_f32_16x16x32_bf16", [tiles[0]], tiles) for _ in range(count)]


def test_memory_comes_evenly_between_dots():
    address, *data = registers(5)
    reads = [instruction("ds_read_b32", [d], [address]) for d in data]
    spread_out = spread([*reads, *(compute := dots(8))], rows("gfx950"))
    assert [i.op[:4] for i in spread_out] == ["ds_r", "v_mf", "v_mf"] * 4
    assert [i for i in spread_out if i in reads] == reads and [i for i in spread_out if i in compute] == compute


def test_what_needs_a_read_stays_behind_it():
    """Halves read one by one are put together by VALU instructions; M0 is written ahead of its copy."""
    address, low, high, whole, m0 = registers(5)
    stream = [
        instruction("ds_read_u16", [low], [address]), instruction("ds_read_u16", [high], [address]),
        instruction("v_lshl_or_b32", [whole], [high, high, low]), instruction("s_mov_m0", [], [m0]),
        instruction("buffer_load_dword_lds", [], [address]),
    ]
    for count in (1, 2, 3, 9, 40):
        spread_out = spread([*stream, *dots(count)], rows("gfx950"))
        order = [spread_out.index(i) for i in stream]
        assert order[2] > max(order[:2]) and order[4] > order[3]


def test_arithmetic_comes_by_its_cycles():
    """A transcendental takes as long as four plain instructions."""
    a, b = registers(2)
    plain, slow = instruction("v_add_f32", [a], [b, b]), instruction("v_exp_f32", [b], [b])
    spread_out = spread([*dots(4), *[plain] * 8, *[slow] * 2], rows("gfx950"))
    assert [i.op[2:5] for i in spread_out] == ["add"] * 4 + ["mfm"] + ["add"] * 4 + ["mfm", "exp", "mfm", "exp", "mfm"]


def test_nothing_passes_what_it_depends_on():
    """Random programs of few registers: each pair in which one writes what the other names keeps its order, and so do
    matrix instructions and the others among themselves."""
    draw = random.Random(0)
    table = rows("gfx950")
    for _ in range(200):
        tiles = registers(4, "va", 4)
        program = []
        for _ in range(draw.randrange(2, 30)):
            if draw.random() < 0.4:
                program.append(instruction("v_mfma_f32_16x16x32_bf16", [draw.choice(tiles)], draw.choices(tiles, k=3)))
            else:
                whole = draw.choice(tiles)
                part = Ref(whole.register, draw.randrange(4), 1)
                sources = [Ref(t.register, 0, 1) for t in draw.choices(tiles, k=2)]
                program.append(instruction("v_add_f32", [part], sources))
        spread_out = spread(program, table)
        place = {id(i): n for n, i in enumerate(spread_out)}
        assert sorted(place) == sorted(map(id, program))

        def names(operands):
            return {o.register for o in operands}

        for n, first in enumerate(program):
            for second in program[n + 1:]:
                same = ("mfma" in first.op) == ("mfma" in second.op)
                meet = names(first.dst) & names((*second.dst, *second.src)) or names(first.src) & names(second.dst)
                if same or meet:
                    assert place[id(first)] < place[id(second)]


@pytest.mark.parametrize("count", range(1, 20))
def test_each_copy_follows_its_write_of_m0(count: int):
    """Also with more copies than dots: the write for the next must not overtake a copy."""
    address, *places = registers(9)
    stream = [i for place in places for i in (instruction("s_mov_m0", [], [place]),
                                              instruction("buffer_load_dword_lds", [], [address]))]
    spread_out = spread([*stream, *dots(count)], rows("gfx950"))
    assert [i for i in spread_out if i in stream] == stream
