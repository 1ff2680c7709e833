"""Assembly text: every row assembles to what its operands say, the layout of the page, the way back from a line."""

from __future__ import annotations

import linecache
import re
import struct
from io import BytesIO

import pytest
from elftools.elf.elffile import ELFFile

from tests.support.assembly import instruction, program
from tilec import llvm
from tilec.backend_amdgcn import emit, hazards, waits
from tilec.backend_amdgcn.assemble import assemble
from tilec.backend_amdgcn.isa import rows
from tilec.errors import InternalError, Location
from tilec.ir.abi import Slot
from tilec.ir.machine import (
    VCC,
    Block,
    Immediate,
    Instruction,
    Operand,
    Physical,
    Program,
    Register,
    Resources,
    Target,
    whole,
)

ARCHITECTURES = ("gfx942", "gfx950")


def _example(op: str, arch: str) -> Instruction:
    """The row with registers of its kinds, no two operands overlapping."""
    row = rows(arch)[op]
    if op == "s_waitcnt":
        return Instruction(op, modifiers=(("vmcnt", 3), ("lgkmcnt", 1)))
    free = {"s": 8, "v": 8, "a": 8}

    def take(code: str, size: int) -> Operand:
        if code == "i":
            return Immediate(4)
        if code == "L":
            return Target("end")
        if code == "m":
            return VCC if row.name.startswith("v_cmp") else take("s", size)
        file = {"x": "v", "w": "v", "f": "v", "c": "s"}.get(code, code)
        first = -(-free[file] // 4) * 4 if size > 1 else free[file]
        free[file] = first + size
        return Physical(file, first, size)

    dst = tuple(take(spec.code, spec.size) for spec in row.dst)
    if "swap" in row.flags:
        return Instruction(op, dst, dst)
    src = [take(spec.code, spec.size) for spec in row.src]
    if "tied" in row.flags:
        src[0] = dst[0]
    modifiers = {"buffer": {"offen": True, "offset": 64}, "global": {"offset": -16}}.get(op.split("_")[0], {})
    if op.endswith("_dpp"):
        modifiers = {"row_shr": 1, "row_mask": 15, "bank_mask": 15, "bound_ctrl": True}
    return Instruction(op, dst, tuple(src), tuple(modifiers.items()))


def decoded(text: str, arch: str) -> list[str]:
    """Assembles a module and disassembles its code."""
    code = ELFFile(BytesIO(llvm.assemble(text, arch))).get_section_by_name(".text").data()
    return [i.text for i in llvm.disassemble(code, arch)]


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_every_row_assembles_to_itself(arch: str):
    """LLVM reads each printed instruction, and prints it alike when it decodes the bytes."""
    examples = [_example(op, arch) for op, row in rows(arch).items() if row.unit not in ("pseudo", "branch")]
    lines = [emit.instruction_text(example, arch) for example in examples]
    for line, back in zip(lines, decoded("\n".join(lines), arch)):
        assert _canonical(back) == _canonical(line)


def _canonical(text: str) -> str:
    """Without the encoding's suffix, spaces, hexadecimal numbers and defaults that LLVM prints or leaves out."""
    text = re.sub(r"_e(32|64)\b", "", text).replace("bound_ctrl:0", "bound_ctrl:1")
    text = re.sub(r"0x[0-9a-f]+", lambda m: str(int(m[0], 16)), text)
    return re.sub(r"\s+", " ", text)


@pytest.mark.parametrize("code, printed", [
    ("v_add_f32 v0, 1.0, v1", "v_add_f32 v0, 1.0, v1"), ("v_add_u32 v0, -16, v1", "v_add_u32 v0, -16, v1"),
    ("v_add_u32 v0, 0xfffffff5, v1", "v_add_u32 v0, -11, v1"), ("v_add_u32 v0, 65, v1", "v_add_u32 v0, 0x41, v1"),
    ("v_mov_b32 v0, 0x3f800000", "v_mov_b32 v0, 0x3f800000"), ("s_mov_b32 m0, s4", "s_mov_b32 m0, s4"),
    ("s_mov_b64 exec, s[4:5]", "s_mov_b64 exec, s[4:5]"), ("s_mov_b64 s[4:5], exec", "s_mov_b64 s[4:5], exec"),
    ("global_load_dword v0, v[2:3], off offset:-8 nt", "global_load_dword v0, v[2:3], off offset:-8 nt"),
    ("buffer_store_dword v0, off, s[4:7], s8 offset:16", "buffer_store_dword v0, off, s[4:7], s8 offset:16"),
    ("v_mov_b32_dpp v0, v1 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf",
     "v_mov_b32_dpp v0, v1 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf"),
    ("v_mfma_f32_16x16x128_f8f6f4 v[0:3], v[8:15], v[16:19], 0 cbsz:1 blgp:4",
     "v_mfma_f32_16x16x128_f8f6f4 v[0:3], v[8:15], v[16:19], 0 cbsz:1 blgp:4"),
    ("s_waitcnt vmcnt(3) lgkmcnt(0)", "s_waitcnt vmcnt(3) lgkmcnt(0)"), ("s_waitcnt vmcnt(62)", "s_waitcnt vmcnt(62)"),
])
def test_operands_and_modifiers(code: str, printed: str):
    assert emit.instruction_text(instruction(code, "gfx950"), "gfx950") == printed
    assert len(decoded(printed, "gfx950")) >= 1


def test_signs_of_sources():
    made = instruction("v_fma_f32 v0, v1, v2, v3", "gfx950").replace(modifiers=(("neg", (1, 0, 1)), ("abs", (0, 1, 1))))
    assert emit.instruction_text(made, "gfx950") == "v_fma_f32 v0, -v1, |v2|, -|v3|"


@pytest.mark.parametrize("value", [*range(-20, 70), 0x3F800000, 0xBF000000, 0x3E22F983, 0x3E22F984, 0xFFFFFFF0,
                                   0xFFFFFFEF, 0x7FC00000, 0x80000000])
def test_constants_keep_their_bits(value: int):
    """The encoded constant is the given 32-bit pattern, in the inline form wherever there is one."""
    for mnemonic in ("v_add_f32", "v_add_u32"):
        (back,) = decoded(emit.instruction_text(Instruction(mnemonic, (Physical("v", 0),), (
            Immediate(value), Physical("v", 1))), "gfx950"), "gfx950")[:1]
        assert _pattern(back.split(", ")[1]) == value & 0xFFFFFFFF


def _pattern(text: str) -> int:
    if "." in text:
        return 0x3E22F983 if text == "0.15915494" else struct.unpack("<I", struct.pack("<f", float(text)))[0]
    return int(text, 0) & 0xFFFFFFFF


FILE = "/kernels/add.py"
SOURCE = "def kernel(x, y):\n    y[0] = x[0] + 1\n    return None\n"


def page() -> Program:
    linecache.cache[FILE] = (len(SOURCE), None, SOURCE.splitlines(keepends=True), FILE)
    first, second = Location(FILE, 1), Location(FILE, 2)
    body = [
        instruction("s_load_dwordx4 s[4:7], s[0:1], 0", "gfx950").replace(where=first),
        instruction("v_mov_b32 v0, s4", "gfx950").replace(where=first),
        instruction("global_load_dword v2, v[0:1], off", "gfx950").replace(where=second, note="tile x"),
        instruction("v_add_f32 v2, 1.0, v2", "gfx950").replace(where=second),
        Instruction("s_barrier", where=second, note="publish"),
    ]
    token = whole(Register("t"))
    loop = [Instruction("token", (token,), (token,)), instruction("v_exp_f32 v2, v2", "gfx950"),
            instruction("v_add_f32 v2, v2, v2", "gfx950"),
            instruction("global_store_dword v[0:1], v2, off", "gfx950").replace(where=second),
            instruction("s_cbranch_scc1 loop", "gfx950")]
    made = Program("add", "gfx950", (Block("entry", tuple(body)), Block("loop", tuple(loop), 1, "steady state"),
                                     Block("end", (Instruction("s_endpgm"),))), "allocated", waves=4, lds_bytes=1024,
                   slots=(Slot("x", "base", 0, 0, 8), Slot("x", "stride", 0, 8, 8), Slot("x", "extent", 0, 16, 4),
                          Slot("n", "value", 0, 20, 4)), argument_bytes=24,
                   resources=Resources(3, 0, 8, 1024, 0, 8))
    return hazards.insert(waits.insert(made))


def test_page():
    """What a reader sees: resources, arguments, source lines, reasons, titles."""
    text, _ = emit.text(page())
    assert text.split("\t.text")[0] == """\
; add for gfx950
;   VGPR 3   AGPR 0   SGPR 8   LDS 1024 bytes   scratch 0 bytes
;   4 waves a workgroup, 8 waves fit a SIMD
;   arguments, 24 bytes:
;         0 +8  x
;         8 +8  x.stride0
;        16 +4  x.extent0
;        20 +4  n
\t.file\t1 "/kernels/add.py"
"""
    assert text.split("add:\n")[1].split(".Lend")[0] == """\
\t.loc\t1 1 1    ; add.py:1: def kernel(x, y):
    s_load_dwordx4 s[4:7], s[0:1], 0
    s_waitcnt lgkmcnt(0)                                        ; load of s[4:7] before v_mov_b32
    v_mov_b32 v0, s4
\t.loc\t1 2 1    ; add.py:2: y[0] = x[0] + 1
    global_load_dword v2, v[0:1], off                           ; tile x
    s_waitcnt vmcnt(0)                                          ; load of tile x before v_add_f32
    v_add_f32 v2, 1.0, v2
    s_barrier                                                   ; publish

; ---- steady state ----
.Lloop:
    v_exp_f32 v2, v2
    s_nop 0                                                     ; transcendental result > valu
    v_add_f32 v2, v2, v2
\t.loc\t1 2 1    ; add.py:2: y[0] = x[0] + 1
    global_store_dword v[0:1], v2, off
    s_cbranch_scc1 .Lloop
    s_endpgm
"""


def test_lines_lead_back_to_instructions():
    program_ = page()
    text, lines = emit.text(program_)
    printed = text.splitlines()
    assert [i for i in program_.instructions() if i.op != "token"] == list(lines.values())
    for number, made in lines.items():
        assert printed[number - 1].split(";")[0].strip() == emit.instruction_text(made, "gfx950")
    number = next(n for n, i in lines.items() if i.op == "global_load_dword")
    assert emit.origin(lines)(number) == ("global_load_dword (tile x)", Location(FILE, 2))
    assert emit.origin(lines)(1) == ("", None)


def test_the_module_assembles_and_a_fault_points_home():
    text, lines = emit.text(page())
    assert assemble(text, "gfx950", line_map=emit.origin(lines))[:4] == b"\x7fELF"
    with pytest.raises(InternalError) as caught:
        assemble(text.replace("v_add_f32 v2, 1.0", "v_add_f33 v2, 1.0"), "gfx950", line_map=emit.origin(lines))
    assert f"from v_add_f32 at {FILE}:2" in str(caught.value)


def test_what_only_checkers_read_is_not_printed():
    (barrier,) = program("s_barrier ; half=late -t").instructions()
    assert barrier.modifiers and barrier.src
    assert emit.instruction_text(barrier, "gfx950") == "s_barrier"


def test_virtual_registers_are_a_bug():
    made = program("s_endpgm")
    virtual = Instruction("v_mov_b32", (whole(Register("v", 1, "acc")),), (Immediate(0),))
    with pytest.raises(InternalError, match="v_mov_b32 still has a virtual register 'acc'"):
        emit.text(made.replace(blocks=(Block("entry", (virtual,)),)))
