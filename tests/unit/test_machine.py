"""The machine program's data: parts of operands, names of hardware registers, where control goes."""

from __future__ import annotations

import pytest

from tests.support.machine_text import program
from tilec.ir.machine import EXEC, M0, SCC, VCC, Instruction, Physical, Ref, Register, successors, whole


@pytest.mark.parametrize("operand, text", [
    (Physical("s", 2), "s2"), (Physical("v", 4, 4), "v[4:7]"), (Physical("a", 4, 4)[2:], "a[6:7]"),
    (Physical("a", 4, 4)[-1], "a7"), (VCC, "vcc"), (VCC[0], "vcc_lo"), (EXEC[1], "exec_hi"), (SCC, "scc"), (M0, "m0")])
def test_hardware_registers_print_as_in_assembly(operand: Physical, text: str):
    assert str(operand) == text


def test_parts_of_an_operand_count_from_its_own_start():
    register = Register("va", 8, "big")
    part = whole(register)[2:]
    assert part == Ref(register, 2, 6) and part[0] == Ref(register, 2) and part[2:4] == Ref(register, 4, 2)
    assert part[-1] == Ref(register, 7) and part.kind == "va"
    with pytest.raises(IndexError):
        part[6]


def test_registers_are_told_apart_by_identity():
    assert Register("v", 1, "x") != Register("v", 1, "x") and whole(Register("v")) != whole(Register("v"))


def test_modifiers():
    instruction = Instruction("buffer_load_dword", modifiers=(("offen", True), ("offset", 16)))
    assert instruction.modifier("offset") == 16 and instruction.modifier("nt", False) is False
    assert instruction.replace(note="why").note == "why" and instruction.note == ""


def test_where_control_goes():
    flow = successors(program("""
        entry:
          s_cbranch_scc0 ->third
        second:
          s_nop 0
        third:
          s_cbranch_scc1 ->second
          s_branch ->fifth
        fourth:
          s_endpgm
        fifth:
          s_cbranch_execz ->fifth
          s_endpgm"""))
    assert flow == {"entry": ("third", "second"), "second": ("third",), "third": ("second", "fifth"), "fourth": (),
                    "fifth": ("fifth",)}
