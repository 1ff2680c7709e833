"""The linker against ld.lld, on modules that a single kernel doesn't reach: many symbols, relocations, refusals."""

from __future__ import annotations

import io
import struct

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.hash import ELFHashTable, GNUHashTable

from tests.support.clang import compare_with_clang
from tilec import llvm
from tilec.backend_amdgcn.link import link
from tilec.errors import TilecError


def kernel(name: str, body: str = "s_endpgm") -> str:
    return f"""\
\t.text
\t.globl\t{name}
\t.p2align\t8
\t.type\t{name},@function
{name}:
{body}
.Lend_{name}:
\t.size\t{name}, .Lend_{name}-{name}
\t.section\t.rodata,"a",@progbits
\t.p2align\t6, 0x0
\t.amdhsa_kernel {name}
\t\t.amdhsa_next_free_vgpr 8
\t\t.amdhsa_next_free_sgpr 8
\t\t.amdhsa_accum_offset 8
\t.end_amdhsa_kernel
"""


METADATA = "\t.amdgpu_metadata\n---\namdhsa.kernels: []\namdhsa.version: [1, 2]\n...\n\t.end_amdgpu_metadata\n"


@pytest.mark.parametrize("arch", ["gfx942", "gfx950", "gfx950:xnack-"])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 16])
def test_any_number_of_kernels(arch: str, count: int):
    """Symbols, both hash tables and the order of symbols change with the number of names."""
    kernels = [kernel(f"kernel_{index}", f"s_nop {index}\n" * index + "s_endpgm") for index in range(count)]
    text = "".join(kernels) + METADATA
    compare_with_clang(text, arch, link(llvm.assemble(text, arch)))


@pytest.mark.parametrize("size", [1, 4000, 4096, 70000])
def test_code_and_constants_of_any_size(size: int):
    """Sections cross pages at different places."""
    text = (kernel("k", f"\t.fill {size}, 4, 0xbf800000\n\ts_endpgm") +
            f"\t.section .rodata\n\t.globl table\ntable:\n\t.fill {size}, 1, 7\n" + METADATA)
    compare_with_clang(text, "gfx950", link(llvm.assemble(text, "gfx950")))


@pytest.mark.parametrize("constants, code", [*((size, 1) for size in range(2048, 4096 + 64, 64)),
                                             *((1, size) for size in range(1018, 1026))])
def test_a_segment_may_end_anywhere_in_its_page(constants: int, code: int):
    """Alignment alone may carry the next segment over the end of a page, and then one page further in memory."""
    text = (kernel("k", f"\t.fill {code}, 4, 0xbf800000") +
            f"\t.section .rodata\n\t.globl table\ntable:\n\t.fill {constants}, 1, 7\n" + METADATA)
    compare_with_clang(text, "gfx950", link(llvm.assemble(text, "gfx950")))


def test_constants_relative_to_the_program_counter():
    text = kernel("k", "s_getpc_b64 s[2:3]\ns_add_u32 s2, s2, table@rel32@lo+4\ns_addc_u32 s3, s3, table@rel32@hi+12\n"
                  "s_endpgm") + "\t.section .rodata\n\t.p2align 4\ntable:\n\t.long 1, 2, 3\n" + METADATA
    result = link(llvm.assemble(text, "gfx950"))
    compare_with_clang(text, "gfx950", result)
    elf = ELFFile(io.BytesIO(result))
    code, constants = elf.get_section_by_name(".text"), elf.get_section_by_name(".rodata")
    after_getpc = code["sh_addr"] + 4
    low, high = struct.unpack_from("<4xxxxxi4xi", code.data())
    assert constants.data()[after_getpc + low - constants["sh_addr"]:] == struct.pack("<3I", 1, 2, 3) and high == -1


def test_the_symbols_are_found_through_both_hash_tables():
    text = "".join(kernel(f"k{index}") for index in range(9)) + METADATA
    elf = ELFFile(io.BytesIO(link(llvm.assemble(text, "gfx942"))))
    symbols = elf.get_section_by_name(".dynsym")
    gnu, sysv = elf.get_section_by_name(".gnu.hash"), elf.get_section_by_name(".hash")
    for table in (GNUHashTable(elf, gnu["sh_offset"], symbols),
                  ELFHashTable(elf, sysv["sh_offset"], sysv["sh_size"], symbols)):
        for index in range(9):
            for name in (f"k{index}", f"k{index}.kd"):
                assert table.get_symbol(name).name == name
        assert table.get_symbol("k9") is None


def test_one_metadata_note_is_left():
    text = kernel("k") + METADATA
    relocatable = ELFFile(io.BytesIO(llvm.assemble(text, "gfx950")))
    assert len(list(relocatable.get_section_by_name(".note").iter_notes())) == 2
    elf = ELFFile(io.BytesIO(link(llvm.assemble(text, "gfx950"))))
    (note,) = elf.get_section_by_name(".note").iter_notes()
    assert note["n_name"] == "AMDGPU" and b"amdhsa.target" not in note["n_descdata"]       # ours, not LLVM's empty one


def test_what_cannot_be_linked_is_refused():
    def message(text: str) -> str:
        with pytest.raises(TilecError) as error:
            link(llvm.assemble(text, "gfx950"))
        return str(error.value)

    assert message(kernel("k") + "\t.data\n\t.long 1\n") == (
        "a kernel module can't have the section .data\n  limit: sections that are loaded: .text, .rodata, .note\n"
        "  try: keep constants in .rodata and writable data in tensors")
    assert message(kernel("k", "s_add_u32 s2, s2, elsewhere@rel32@lo+4\ns_endpgm")) == (
        "the symbol 'elsewhere' is used but not defined in this module\n"
        "  try: define it; a code object can't refer to another one")
    assert message(kernel("k") + "\t.section .rodata\n\t.quad k\n") == (
        "relocation type 3 against 'k' is not position independent\n"
        "  try: refer to symbols relative to the program counter (@rel32@lo, @rel32@hi)")
    with pytest.raises(TilecError, match="not a relocatable ELF64 object"):
        link(link(llvm.assemble(kernel("k"), "gfx950")))
    with pytest.raises(TilecError, match="not a relocatable ELF64 object"):
        link(b"")
