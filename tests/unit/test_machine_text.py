"""The printed form of machine programs: every kind of operand, numbered by first appearance."""

from __future__ import annotations

from tilec.ir.machine import (
    EXEC,
    Block,
    Immediate,
    Instruction,
    Physical,
    Program,
    Ref,
    Register,
    SharedAccess,
    Target,
    whole,
)
from tilec.ir.machine_text import print_machine


def program(name: str) -> Program:
    tile, plain = Register("v", 4, name), Register("s", 2)
    return Program("k", "gfx950", (
        Block("entry", (
            Instruction("s_load_dwordx2", (whole(plain),), (Physical("s", 0, 2), Immediate(8))),
            Instruction("ds_read_b128", (whole(tile),), (Ref(plain, 1),), (("offset", 16), ("gds", True)),
                        note="read a", shared=SharedAccess("a", 0, 512)),
            Instruction("v_pk_add_f32", (Ref(tile, 0, 2),), (Ref(tile, 2, 2), Immediate(0x3F800000)),
                        (("op_sel", (True, False)),)),
            Instruction("s_mov_b64", (EXEC,), (Immediate(-1),)),
        )),
        Block("loop", (Instruction("s_cbranch_scc1", (), (Target("loop"),)), Instruction("s_endpgm")),
              title="the loop"),
    ), waves=2, lds_bytes=512)


def test_print_machine():
    assert print_machine(program("a")) == f"""\
machine k for gfx950 form=virtual waves=2 lds=512
entry:
  %s0 = s_load_dwordx2 s[0:1], 8
{'  %a.v1 = ds_read_b128 %s0[1] offset=16 gds lds(a 0..512)':<72}; read a
  %a.v1[0:1] = v_pk_add_f32 %a.v1[2:3], 0x3f800000 op_sel=[1,0]
  exec = s_mov_b64 -1
loop:    ; the loop
  s_cbranch_scc1 loop
  s_endpgm
"""


def test_equal_programs_print_alike():
    assert print_machine(program("a")) == print_machine(program("a")) != print_machine(program("b"))
