"""Loops, waits, registers and LDS accesses, read from assembled text."""

from __future__ import annotations

import io

import pytest
from elftools.elf.elffile import ELFFile

from tilec import llvm
from tilec.inspect_object import branch_target, histogram, loops, registers_used


def instructions(text: str, arch: str = "gfx950", address: int = 0x1000) -> list[llvm.Instruction]:
    elf = ELFFile(io.BytesIO(llvm.assemble(text, arch)))
    end = elf.get_section_by_name(".symtab").get_symbol_by_name(llvm.TEXT_END)[0]["st_value"]
    return llvm.disassemble(elf.get_section_by_name(".text").data()[:end], arch, address)


def bodies(text: str) -> list[list[int]]:
    """The innermost loops, each as the numbers of the `s_nop N` in it."""
    code = instructions(text)
    numbers = {i.address: int(i.text.split()[1]) for i in code if i.text.startswith("s_nop")}
    return [[number for address, number in numbers.items() if loop.first <= address <= loop.last and
             loop.histogram.get("s_nop")] for loop in loops(code)]


def test_a_loop_of_one_block():
    text = "s_nop 0\nL: s_nop 1\ns_nop 2\ns_cbranch_scc1 L\ns_nop 3\ns_endpgm\n"
    assert bodies(text) == [[1, 2]]
    (loop,) = loops(instructions(text))
    assert (loop.first, loop.last, loop.instructions) == (0x1004, 0x100C, 3)
    assert loop.histogram == {"s_nop": 2, "s_cbranch_scc1": 1}


@pytest.mark.parametrize("text, expected", [
    # the inner of two loops
    ("A: s_nop 1\nB: s_nop 2\ns_cbranch_scc1 B\ns_nop 3\ns_cbranch_scc1 A\ns_endpgm\n", [[2]]),
    # two inner loops in one outer
    ("A: s_nop 1\nB: s_nop 2\ns_cbranch_scc1 B\nC: s_nop 3\ns_cbranch_vccz C\ns_branch A\n", [[2], [3]]),
    # a branch within the body, and two ways back
    ("A: s_nop 1\ns_cbranch_scc1 B\ns_nop 2\ns_cbranch_scc0 A\nB: s_nop 3\ns_cbranch_vccnz A\ns_endpgm\n", [[1, 2, 3]]),
    # test at the top
    ("A: s_nop 1\ns_cbranch_scc1 E\ns_nop 2\ns_branch A\nE: s_nop 3\ns_endpgm\n", [[1, 2]]),
    # a jump backwards that closes no loop
    ("s_branch B\nA: s_nop 1\ns_endpgm\nB: s_nop 2\ns_branch A\n", []),
    # three deep
    ("A: s_nop 1\nB: s_nop 2\nC: s_nop 3\ns_cbranch_scc1 C\ns_cbranch_scc1 B\ns_cbranch_scc1 A\ns_endpgm\n", [[3]]),
    # entered in the middle
    ("s_cbranch_scc1 B\nA: s_nop 1\nB: s_nop 2\ns_cbranch_scc1 A\ns_endpgm\n", [[1, 2]]),
    ("s_nop 0\ns_endpgm\n", []),
])
def test_innermost_loops(text: str, expected: list[list[int]]):
    assert bodies(text) == expected


def test_what_a_loop_keeps_out_of_the_way_is_counted_aside():
    """The cold block behind the end of the program belongs to the loop; what lies between does not."""
    (loop,) = loops(instructions("A: s_nop 1\ns_cbranch_scc1 B\nC: s_nop 2\ns_cbranch_vccz A\ns_nop 7\ns_endpgm\n"
                                 "B: s_nop 3\ns_branch C\n"))
    assert loop.histogram == {"s_nop": 2, "s_cbranch_scc1": 1, "s_cbranch_vccz": 1}
    assert (loop.instructions, loop.aside) == (4, 2)


def test_waits_and_lds_accesses_of_a_loop():
    code = instructions("""
        ds_read_b32 v9, v9
        L: s_mov_b32 m0, 0
        buffer_load_dwordx4 v4, s[4:7], 0 offen lds
        global_load_lds_dword v[0:1], off
        ds_write_b64 v0, v[2:3]
        ds_bpermute_b32 v1, v2, v3
        s_waitcnt vmcnt(33) lgkmcnt(2)
        ds_read_b64_tr_b16 v[0:1], v4
        s_waitcnt lgkmcnt(0)
        buffer_load_dwordx4 v[4:7], v4, s[4:7], 0 offen
        s_cbranch_scc1 L
        s_endpgm""")
    (loop,) = loops(code, {code[4].address: 1.5})
    assert [(wait.counters, wait.address) for wait in loop.waits] == [
        ({"vmcnt": 33, "lgkmcnt": 2}, code[6].address), ({"lgkmcnt": 0}, code[8].address)]
    assert [(access.mnemonic, access.conflict_cycles) for access in loop.lds] == [
        ("buffer_load_dwordx4", None), ("global_load_lds_dword", None), ("ds_write_b64", 1.5),
        ("ds_read_b64_tr_b16", None)]


def test_histogram_drops_the_encoding_only():
    code = instructions("v_add_f32_e32 v0, v1, v2\nv_add_f32_e64 v0, v1, |v2|\nv_mov_b32_dpp v0, v1 row_shl:1\n"
                        "v_mfma_f32_16x16x16_f16 v[0:3], v[0:1], v[2:3], 0\n")
    assert histogram(code) == {"v_add_f32": 2, "v_mov_b32_dpp": 1, "v_mfma_f32_16x16x16_f16": 1}


def test_registers_used():
    code = instructions("v_mfma_f32_32x32x8_bf16 a[16:31], v[4:5], a[40:41], a[16:31]\nv_mov_b32 v7, s13\n"
                        "s_load_dwordx4 s[20:23], s[0:1], 0x40\nv_add_f32 v3, |v9|, -v2\n")
    assert registers_used(code) == {"vgpr": 10, "agpr": 42, "sgpr": 24}
    assert registers_used([]) == {"vgpr": 0, "agpr": 0, "sgpr": 0}


def test_branch_targets():
    forward, back, other = instructions("s_branch 3\ns_cbranch_execz 65535\ns_nop 3\n")
    assert branch_target(forward) == 0x1000 + 4 + 12
    assert branch_target(back) == 0x1004
    assert branch_target(other) is None
