"""The two streams of a mixed cluster in one."""

from __future__ import annotations

from tilec.backend_amdgcn.builder import Builder
from tilec.backend_amdgcn.interleave import merge
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
    merged = merge(reads, compute := dots(8), Builder("gfx950"))
    assert [i.op[:4] for i in merged] == ["ds_r", "v_mf", "v_mf"] * 4
    assert [i for i in merged if i in reads] == reads and [i for i in merged if i in compute] == compute


def test_what_needs_a_read_stays_behind_it():
    """Halves read one by one are put together by VALU instructions; M0 is written ahead of its copy."""
    address, low, high, whole, m0 = registers(5)
    stream = [
        instruction("ds_read_u16", [low], [address]), instruction("ds_read_u16", [high], [address]),
        instruction("v_lshl_or_b32", [whole], [high, high, low]), instruction("s_mov_m0", [], [m0]),
        instruction("buffer_load_dword_lds", [], [address]),
    ]
    for count in (1, 2, 3, 9, 40):
        merged = merge(stream, dots(count), Builder("gfx950"))
        order = [merged.index(i) for i in stream]
        assert order[2] > max(order[:2]) and order[4] > order[3]
