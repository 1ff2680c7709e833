"""Live ranges: known small cases, and random programs against a search of paths from every point."""

from __future__ import annotations

import pytest

from tests.fuzz.machine_programs import random_program
from tests.support.machine_text import parse
from tilec.backend_amdgcn.exec_mask import ALL_LANES, lanes_of
from tilec.backend_amdgcn.isa import row_of
from tilec.backend_amdgcn.liveness import Liveness, analyse, pressure_steps, scan_operands
from tilec.errors import InternalError
from tilec.ir.machine import Program, Ref, Register, successors


def live(text: str, **fields) -> tuple[Liveness, dict[str, Register]]:
    program, registers = parse(text, **fields)
    return analyse(scan_operands(program)), registers


def points(mask: int) -> list[int]:
    return [p for p in range(mask.bit_length()) if mask >> p & 1]


def test_from_write_to_last_read():
    result, r = live("""
        v_mov_b32 x:v <- 1
        v_mov_b32 y:v <- 2
        v_add_u32 z:v <- x, y
        v_add_u32 unused:v <- z, y
        s_endpgm""")
    assert points(*result.dword_masks(r["x"])) == [1, 2, 3, 4]
    assert points(*result.dword_masks(r["y"])) == [3, 4, 5, 6]
    assert points(*result.dword_masks(r["z"])) == [5, 6]
    assert points(*result.dword_masks(r["unused"])) == [7]          # written, though never read
    assert result.points == 10


def test_each_dword_has_its_own_life():
    result, r = live("""
        copy big:v4 <- 0
        v_mov_b32 big[1] <- 1
        v_add_u32 x:v <- big[1], big[1]
        v_add_u32 y:v <- big[0], x
        s_endpgm""")
    assert list(map(points, result.dword_masks(r["big"]))) == [[1, 2, 3, 4, 5, 6], [1, 3, 4], [1], [1]]


def test_around_a_loop():
    result, r = live("""
        entry:
          s_mov_b32 n:s <- 3
          v_mov_b32 kept:v <- 0
        loop 1:
          v_mov_b32 inner:v <- 1
          v_add_u32 inner <- inner, kept
          s_sub_u32 n <- n, 1
          s_cmp_lg_u32 n, 0
          s_cbranch_scc1 ->loop
        end:
          s_endpgm""")
    assert points(*result.dword_masks(r["kept"])) == list(range(3, 14))
    assert points(*result.dword_masks(r["n"])) == list(range(1, 14))
    assert points(*result.dword_masks(r["inner"])) == [5, 6, 7]


def test_a_part_kept_by_the_instruction_is_read():
    result, r = live("""
        v_mov_b32 half:v <- 1
        ds_read_u16_d16_hi half <- v0
        v_add_u32 y:v <- half, half
        s_endpgm""")
    assert points(*result.dword_masks(r["half"])) == [1, 2, 3, 4]


def test_an_early_clobber_is_live_while_the_sources_are_read():
    result, r = live("""
        s_load_dwordx2 base:s2 <- s[0:1], 0
        v_mfma_f32_32x32x16_bf16 d:va16 <- v[4:7], v[8:11], 0
        buffer_store_dword d[0], v0, s[4:7], 0
        s_endpgm""")
    assert [points(m)[0] for m in result.dword_masks(r["base"])] == [0, 0]
    assert points(result.dword_masks(r["d"])[0]) == [2, 3, 4]
    entering = result.scan.fixed["s", 0]
    assert points(*result.dword_masks(entering)) == [0]


def test_never_written_takes_no_room():
    result, r = live("""
        v_add_u32 y:v <- nothing:v, v0
        v_mov_b32 nothing <- 1
        v_mov_b32 y <- nothing
        s_endpgm""")
    assert points(*result.dword_masks(r["nothing"])) == [3, 4]


NARROWED = """
    v_mov_b32 x:v <- 7
    v_cmp_lt_i32 m:s2 <- v0, 3
    s_and_saveexec_b64 saved:s2 <- m
    v_mov_b32 inside:v <- 1
    v_add_u32 x <- inside, inside
    s_mov_exec saved
    v_add_u32 z:v <- x, x
    s_endpgm"""


def test_lanes_that_are_off_keep_their_content():
    result, r = live(NARROWED)
    assert points(*result.dword_masks(r["x"])) == list(range(1, 13))
    assert points(*result.dword_masks(r["inside"])) == [7, 8]       # nobody looks at its other lanes
    program, _ = parse(NARROWED)
    assert lanes_of(program) == [(), (), (), (2,), (2,), (2,), (), ()]


def test_exec_that_differs_between_paths_is_refused():
    program, _ = parse("""
        entry:
          s_cbranch_scc1 ->join
        narrow:
          s_mov_exec vcc
        join:
          s_endpgm""")
    with pytest.raises(InternalError, match="EXEC is narrowed in different ways on the paths that meet at join"):
        lanes_of(program)


def test_pressure_counts_live_dwords():
    result, r = live("""
        copy a:v4 <- 0
        copy b:v2 <- 0
        buffer_store_dwordx4 a, v0, s[4:7], 0
        v_add_u32 b[0] <- b[0], b[1]
        s_endpgm""")
    steps = pressure_steps(result, [r["a"], r["b"]])
    assert [sum(steps[:p + 1]) for p in range(8)] == [0, 4, 4, 6, 6, 2, 2, 1]


# -- against a search -------------------------------------------------------------------------------------------------


def searched(program: Program) -> dict[tuple[Register, int], set[int]]:
    """Live points of every dword by walking: back from each read to the writes, and only where a write leads."""
    code = list(program.instructions())
    lanes = lanes_of(program) or [ALL_LANES] * len(code)
    assert all(state == ALL_LANES for state in lanes)
    before = predecessors(program)
    reads, writes, early = [], [], []
    for instruction in code:
        row = row_of(instruction, program.arch)
        written = dwords(instruction.dst)
        reads.append(dwords(instruction.src) | (written if "keeps" in row.flags else set()))
        writes.append(written)
        early.append("early" in row.flags)
    result: dict[tuple[Register, int], set[int]] = {}
    for name in set().union(*reads, *writes):
        backward: set[int] = set()                      # points from which a read is reached before a write
        stack = [2 * i for i in range(len(code)) if name in reads[i]]
        while stack:
            point = stack.pop()
            if point in backward:
                continue
            backward.add(point)
            if point % 2 and name in writes[point // 2]:
                continue
            stack += [point - 1] if point % 2 else [2 * j + 1 for j in before[point // 2]]
        forward: set[int] = set()
        after: dict[int, list[int]] = {}
        for i, previous in enumerate(before):
            for j in previous:
                after.setdefault(j, []).append(i)
        stack = [2 * i + 1 for i in range(len(code)) if name in writes[i]]
        while stack:
            point = stack.pop()
            if point in forward:
                continue
            forward.add(point)
            stack += [2 * j for j in after.get(point // 2, [])] if point % 2 else [point + 1]
        born = {2 * i + 1 - e for i in range(len(code)) if name in writes[i] for e in range(2 if early[i] else 1)}
        result[name] = backward & forward | born
    return result


def dwords(operands) -> set[tuple[Register, int]]:
    return {(o.register, k) for o in operands if isinstance(o, Ref) for k in range(o.start, o.start + o.size)}


def predecessors(program: Program) -> list[list[int]]:
    """Instructions that may come right before each one."""
    following, blocks = successors(program), {b.label: b for b in program.blocks}
    first: dict[str, int] = {}
    result: list[list[int]] = []
    for block in program.blocks:
        first[block.label] = len(result)
        result += [[len(result) + k - 1] if k else [] for k in range(len(block.instructions))]

    def entered(label: str) -> set[int]:
        """The first instructions that a jump to a block may come to, through empty blocks."""
        if blocks[label].instructions:
            return {first[label]}
        return set().union(*(entered(after) for after in following[label]))

    for block in program.blocks:
        if block.instructions:
            for number in set().union(*(entered(after) for after in following[block.label])):
                result[number].append(first[block.label] + len(block.instructions) - 1)
    return result


@pytest.mark.parametrize("seed", range(6))
def test_random_programs(seed: int):
    program = random_program(seed, "gfx950", length=40, tiles=4, narrows=False)
    result = analyse(scan_operands(program))
    expected = searched(program)
    for register in result.scan.registers:
        if register not in result.scan.fixed.values():
            for k, mask in enumerate(result.dword_masks(register)):
                assert points(mask) == sorted(expected.get((register, k), ())), (register.name, k)
