"""The binding: object out for text in, every fault reported, a fatal error contained, bytes back to instructions."""

from __future__ import annotations

import io
import subprocess
import sys
import threading

import pytest
from elftools.elf.elffile import ELFFile

from tilec import llvm
from tilec.errors import TilecError
from tilec.llvm import AssemblerError, Instruction, Message

COPY = """\
\t.text
\t.globl\tcopy
\t.p2align\t8
\t.type\tcopy,@function
copy:
\ts_load_dwordx4 s[4:7], s[0:1], 0x0
\ts_waitcnt lgkmcnt(0)
\tv_lshlrev_b32_e32 v0, 2, v0
\tglobal_load_dword v1, v0, s[4:5]
\ts_waitcnt vmcnt(0)
\tglobal_store_dword v0, v1, s[6:7]
\ts_endpgm
.Lend:
\t.size\tcopy, .Lend-copy
"""

MACH = {"gfx942": 0x4C, "gfx950": 0x4F}


def code(relocatable: bytes) -> bytes:
    """The bytes of .text up to the end of the given text."""
    elf = ELFFile(io.BytesIO(relocatable))
    end = elf.get_section_by_name(".symtab").get_symbol_by_name(llvm.TEXT_END)[0]["st_value"]
    return elf.get_section_by_name(".text").data()[:end]


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_assembles_to_an_object_of_the_architecture(arch: str):
    elf = ELFFile(io.BytesIO(llvm.assemble(COPY, arch)))
    assert elf["e_type"] == "ET_REL" and elf["e_flags"] & 0xFF == MACH[arch]
    assert elf.header["e_ident"]["EI_ABIVERSION"] == 3         # code object v5


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_round_trip(arch: str):
    assert llvm.disassemble(code(llvm.assemble(COPY, arch)), arch, 0x100) == [
        Instruction(0x100, 8, "s_load_dwordx4 s[4:7], s[0:1], 0x0"),
        Instruction(0x108, 4, "s_waitcnt lgkmcnt(0)"),
        Instruction(0x10C, 4, "v_lshlrev_b32_e32 v0, 2, v0"),
        Instruction(0x110, 8, "global_load_dword v1, v0, s[4:5]"),
        Instruction(0x118, 4, "s_waitcnt vmcnt(0)"),
        Instruction(0x11C, 8, "global_store_dword v0, v1, s[6:7]"),
        Instruction(0x124, 4, "s_endpgm"),
    ]


def test_an_instruction_of_the_other_architecture_is_refused():
    text = "v_mfma_f32_16x16x32_bf16 v[0:3], v[4:7], v[8:11], 0\n"
    assert [i.size for i in llvm.disassemble(code(llvm.assemble(text, "gfx950")), "gfx950")] == [8]
    with pytest.raises(AssemblerError) as error:
        llvm.assemble(text, "gfx942")
    assert error.value.messages == (Message(1, 1, "instruction not supported on this GPU"),)


def test_sixteen_byte_instructions():
    text = "v_mfma_scale_f32_16x16x128_f8f6f4 v[0:3], v[4:11], v[12:19], v[0:3], v20, v21\n"
    assert [i.size for i in llvm.disassemble(code(llvm.assemble(text, "gfx950")), "gfx950")] == [16]


def test_bytes_that_decode_to_nothing_have_no_text():
    good = code(llvm.assemble("s_nop 1\n", "gfx950"))
    assert llvm.disassemble(b"\xff\xff\xff\xff" + good + b"\x12\x34", "gfx950") == [
        Instruction(0, 4, ""), Instruction(4, 4, "s_nop 1"), Instruction(8, 2, "")]
    assert llvm.disassemble(b"", "gfx942") == []


FAULTY = COPY.replace("\tv_lshlrev", "\tv_lshlrev_b99 v0\n\tv_mov_b32 v300, 0\n\tv_lshlrev")
FAULTS = (Message(8, 2, "invalid instruction"), Message(9, 12, "register index is out of range"))


@pytest.mark.parametrize("assemble", [llvm.assemble, llvm.assemble_isolated])
def test_every_fault_is_reported_with_its_line(assemble):
    with pytest.raises(AssemblerError) as error:
        assemble(FAULTY, "gfx950")
    assert error.value.messages == FAULTS
    assert str(error.value) == "line 8: invalid instruction\nline 9: register index is out of range"


def test_a_fault_leaves_the_next_text_alone():
    for _ in range(3):
        with pytest.raises(AssemblerError):
            llvm.assemble(FAULTY, "gfx950")
        assert llvm.assemble(COPY, "gfx950")


def test_isolated_gives_the_same_object():
    assert llvm.assemble_isolated(COPY, "gfx942") == llvm.assemble(COPY, "gfx942")


def test_isolated_survives_what_ends_the_process():
    """Losing the end label is fatal inside LLVM; in process it would take Python with it."""
    with pytest.raises(AssemblerError) as error:
        llvm.assemble_isolated(COPY.replace(".Lend:", "v_bad v0"), "gfx950")
    assert error.value.messages == (Message(13, 1, "invalid instruction"),
                                    Message(0, 0, "LLVM ERROR: Size expression must be absolute."))


def test_isolated_reports_what_the_metadata_reader_prints():
    text = COPY + "\t.amdgpu_metadata\n---\namdhsa.kernels: [x\n...\n\t.end_amdgpu_metadata\n"
    with pytest.raises(AssemblerError) as error:
        llvm.assemble_isolated(text, "gfx950")
    assert any("YAML" in message.text for message in error.value.messages), error.value.messages


def test_a_target_id_sets_the_header_flags():
    flags = {arch: ELFFile(io.BytesIO(llvm.assemble(COPY, arch)))["e_flags"] & 0x300
             for arch in ("gfx950", "gfx950:xnack-", "gfx950:xnack+")}
    assert flags == {"gfx950": 0x100, "gfx950:xnack-": 0x200, "gfx950:xnack+": 0x300}      # any, off, on


def test_a_stranger_is_refused():
    with pytest.raises(TilecError) as error:
        llvm.assemble(COPY, "gfx1100")
    assert str(error.value) == ("no such architecture: 'gfx1100'\n  limit: tilec assembles for gfx942 and gfx950\n"
                                "  try: use 'gfx950', or 'gfx950:xnack-'")


def test_threads():
    expected = llvm.assemble(COPY, "gfx950")
    results: list[bytes] = []
    threads = [threading.Thread(target=lambda: results.append(llvm.assemble(COPY, "gfx950"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected] * 8


def test_the_library_is_loaded_on_first_use():
    probe = ("import tilec.llvm as l\n"
             "loaded = lambda: 'librocmllvm' in open('/proc/self/maps').read()\n"
             "before = loaded(); l.version(); print(before, loaded())")
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout == "False True\n"
