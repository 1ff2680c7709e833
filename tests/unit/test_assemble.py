"""Text to code object: equal to what clang and ld.lld make of the text, readable by others, faults mapped back."""

from __future__ import annotations

import dataclasses
import io
import itertools
import struct
from pathlib import Path

import msgpack
import pytest
from elftools.elf.elffile import ELFFile

from tests.support.clang import clang_code_object, compare_with_clang, zig
from tilec.backend_amdgcn import assemble as module
from tilec.backend_amdgcn.assemble import assemble, find_clang
from tilec.backend_amdgcn.kernel_text import CODE_PADDING_DWORDS, KernelArgument, KernelInfo, kernel_text
from tilec.errors import InternalError, Location, TilecError

COPY = """\
\ts_load_dwordx4 s[4:7], s[0:1], 0x0
\ts_waitcnt lgkmcnt(0)
\tv_lshlrev_b32_e32 v0, 2, v0                 ; kernels/copy.py:3  i = tc.iota(64)
\tglobal_load_dword v1, v0, s[4:5]
\ts_waitcnt vmcnt(0)
\tglobal_store_dword v0, v1, s[6:7]
\ts_endpgm
"""

MATRIX = """\
\tv_mov_b32_e32 v0, 0
\tv_accvgpr_write_b32 a0, v0
\tds_read_b128 a[4:7], v0 offset:1024
\tds_read_b128 v[4:7], v0
\ts_waitcnt lgkmcnt(0)
.Lloop:
\tv_mfma_f32_32x32x8_bf16 a[8:23], v[4:5], a[4:5], 0
\tv_mfma_f32_16x16x16_f16 a[0:3], a[4:5], v[6:7], a[0:3]
\ts_sub_u32 s2, s2, 1
\ts_cbranch_scc0 .Lloop
\ts_barrier
\tbuffer_store_dwordx4 a[8:11], v0, s[4:7], 0 offen offset:16
\tbuffer_load_dword v0, s[4:7], s9 offen lds
\ts_endpgm
"""

GFX950 = """\
\tds_read_b64_tr_b16 v[0:1], v4 offset:512
\tbuffer_load_dwordx4 v4, s[4:7], s9 offen lds
\tv_mfma_f32_16x16x32_bf16 v[0:3], v[4:7], a[0:3], v[0:3]
\tv_mfma_scale_f32_32x32x64_f8f6f4 a[0:15], v[8:15], v[16:23], a[0:15], v24, v25 op_sel_hi:[0,0,0]
\tv_permlane32_swap_b32_e32 v0, v1
\tv_cvt_pk_bf16_f32 v2, v0, v1
\ts_endpgm
"""

TENSOR = KernelArgument("N", 0, 8, "global_buffer", "global", "bf16")       # a name that YAML takes for "no"
COUNT = KernelArgument("nan", 8, 4, "by_value", None, "i32")

PLAIN = KernelInfo("copy", "gfx950", vgprs=2, agprs=0, accum_offset=4, sgprs=8, lds_bytes=0, kernarg_bytes=16,
                   arguments=(TENSOR, dataclasses.replace(TENSOR, name="y", offset=8)), workgroup_size=(64, 1, 1))
FULL = KernelInfo("gemm_bf16", "gfx942", vgprs=8, agprs=24, accum_offset=8, sgprs=32, lds_bytes=65536, kernarg_bytes=12,
                  kernarg_align=16, arguments=(TENSOR, COUNT), workgroup_size=(64, 4, 2), scratch_bytes=32,
                  workgroup_ids=(True, True, True), workitem_id_dimensions=3)
WIDE = KernelInfo("new", "gfx950", vgprs=256, agprs=256, accum_offset=256, sgprs=102, lds_bytes=163840, kernarg_bytes=0,
                  arguments=(), workgroup_size=(512, 1, 1), workgroup_ids=(False, False, True))
KERNELS = [(COPY, PLAIN), (MATRIX, FULL), (GFX950, WIDE), (COPY, WIDE), (MATRIX, WIDE)]


def on(arch: str, info: KernelInfo) -> KernelInfo:
    return dataclasses.replace(info, arch=arch)


def cases():
    for (body, info), arch in itertools.product(KERNELS, ("gfx942", "gfx950")):
        if arch == "gfx950" or body is not GFX950:
            yield pytest.param(body, on(arch, info), id=f"{info.name}-{KERNELS.index((body, info))}-{arch}")


@pytest.mark.parametrize("body, info", list(cases()))
def test_equal_to_clang_and_lld(body: str, info: KernelInfo):
    text = kernel_text(info, body)
    compare_with_clang(text, info.arch, assemble(text, info.arch))


def test_the_comparison_notices_a_difference():
    text = kernel_text(PLAIN, COPY)
    for other in (kernel_text(PLAIN, COPY.replace("v0, 2, v0", "v0, 3, v0")),
                  kernel_text(dataclasses.replace(PLAIN, lds_bytes=4), COPY),
                  kernel_text(dataclasses.replace(PLAIN, arguments=()), COPY)):
        with pytest.raises(AssertionError, match="clang"):
            compare_with_clang(text, "gfx950", assemble(other, "gfx950"))


@pytest.mark.parametrize("info", [PLAIN, FULL, WIDE], ids=lambda info: info.name)
def test_the_descriptor_says_what_was_asked(info: KernelInfo):
    """Read by the layout of LLVM's AMDGPU guide (kernel descriptor; COMPUTE_PGM_RSRC1..3 for gfx90a and later)."""
    elf = ELFFile(io.BytesIO(assemble(kernel_text(info, "\ts_endpgm"), info.arch)))
    symbols = elf.get_section_by_name(".dynsym")
    descriptor, entry = (symbols.get_symbol_by_name(name)[0]["st_value"] for name in (f"{info.name}.kd", info.name))
    rodata = elf.get_section_by_name(".rodata")
    lds, scratch, kernarg, distance, rsrc3, rsrc1, rsrc2, properties, preload = struct.unpack_from(
        "<III4xq20xIIIHH", rodata.data(), descriptor - rodata["sh_addr"])
    assert (lds, scratch, kernarg) == (info.lds_bytes, info.scratch_bytes, info.kernarg_bytes)
    assert descriptor % 64 == 0 and entry % 256 == 0 and descriptor + distance == entry
    assert (rsrc1 & 0x3F) == max(-(-info.total_vgprs // 8) - 1, 0)
    assert (rsrc3 & 0x3F) == info.accum_offset // 4 - 1
    assert rsrc1 >> 12 & 0xF == 0 and rsrc1 >> 16 & 0xF == 0xF                  # round to nearest, all denormals kept
    assert rsrc1 >> 21 & 1 and rsrc1 >> 23 & 1 and not rsrc3 >> 16 & 1          # dx10_clamp, ieee_mode, no tg_split
    assert rsrc2 & 1 == (info.scratch_bytes > 0) and rsrc2 >> 1 & 0x1F == 2
    assert tuple(bool(rsrc2 >> bit & 1) for bit in (7, 8, 9)) == info.workgroup_ids
    assert rsrc2 >> 11 & 3 == info.workitem_id_dimensions - 1
    assert properties == 1 << 3 and preload == 0                                # the kernel argument pointer alone


def test_the_metadata_says_what_was_asked():
    elf = ELFFile(io.BytesIO(assemble(kernel_text(FULL, MATRIX), "gfx942")))
    (note,) = elf.get_section_by_name(".note").iter_notes()
    metadata = msgpack.unpackb(note["n_descdata"])
    (kernel,) = metadata.pop("amdhsa.kernels")
    assert metadata == {"amdhsa.target": "amdgcn-amd-amdhsa--gfx942", "amdhsa.version": [1, 2]}
    assert kernel == {
        ".name": "gemm_bf16", ".symbol": "gemm_bf16.kd", ".vgpr_count": 32, ".agpr_count": 24, ".sgpr_count": 38,
        ".vgpr_spill_count": 0, ".sgpr_spill_count": 0, ".group_segment_fixed_size": 65536, ".wavefront_size": 64,
        ".private_segment_fixed_size": 32, ".kernarg_segment_size": 12, ".kernarg_segment_align": 16,
        ".max_flat_workgroup_size": 512, ".reqd_workgroup_size": [64, 4, 2], ".uniform_work_group_size": 1, ".args": [
            {".name": "N", ".offset": 0, ".size": 8, ".value_kind": "global_buffer", ".address_space": "global",
             ".type_name": "bf16"},
            {".name": "nan", ".offset": 8, ".size": 4, ".value_kind": "by_value", ".type_name": "i32"}]}


def test_the_code_ends_in_padding_outside_the_symbol():
    elf = ELFFile(io.BytesIO(assemble(kernel_text(PLAIN, "\ts_endpgm"), "gfx950")))
    assert elf.get_section_by_name(".dynsym").get_symbol_by_name("copy")[0]["st_size"] == 4
    code = elf.get_section_by_name(".text").data()
    assert code[4:] == struct.pack("<I", 0xBF800000) * (64 // 4 - 1 + CODE_PADDING_DWORDS)


@pytest.mark.parametrize("name", ["v0", "vcc", "exec", "s_endpgm", "off", "n", "nan", "__k__"])
def test_a_kernel_may_have_the_name_of_anything(name: str):
    text = kernel_text(dataclasses.replace(PLAIN, name=name), COPY)
    compare_with_clang(text, "gfx950", assemble(text, "gfx950"))


SOURCES = ("/home/user/my kernels/gemm.py", "/home/user/helpers.py")
LINED = "\t.loc\t1 12 5\n\ts_nop 0\n\ts_nop 1\n\t.loc\t2 7\n\ts_nop 2\n\t.loc\t1 13 9\n\ts_endpgm\n"


def line_rows(code_object: bytes) -> list[tuple[int, str, int, int]]:
    dwarf = ELFFile(io.BytesIO(code_object)).get_dwarf_info()
    (unit,) = dwarf.iter_CUs()
    program = dwarf.line_program_for_CU(unit)
    first = 0 if program["version"] >= 5 else 1
    states = [entry.state for entry in program.get_entries() if entry.state and not entry.state.end_sequence]
    names = [entry.name.decode().rpartition("/")[2] for entry in program["file_entry"]]
    return [(state.address, names[state.file - first], state.line, state.column) for state in states]


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_the_line_table_leads_back_to_the_user(arch: str):
    text = kernel_text(on(arch, PLAIN), LINED, SOURCES)
    result = assemble(text, arch)
    compare_with_clang(text, arch, result)
    elf = ELFFile(io.BytesIO(result))
    start = elf.get_section_by_name(".dynsym").get_symbol_by_name("copy")[0]["st_value"]
    assert line_rows(result) == [
        (start, "gemm.py", 12, 5), (start + 8, "helpers.py", 7, 0), (start + 12, "gemm.py", 13, 9)]
    assert line_rows(result) == line_rows(clang_code_object(text, arch))


# -- faults ----------------------------------------------------------------------------------------------------------

USER = Location("gone.py", 7)


def test_a_fault_in_generated_text_is_ours_and_names_the_instruction():
    text = kernel_text(PLAIN, "\tv_add_f32 v0, v1, a2\n\ts_endpgm")
    line = text.splitlines().index("\tv_add_f32 v0, v1, a2") + 1

    def line_map(asked: int) -> tuple[str, Location | None]:
        assert asked == line
        return "%sum = v_add_f32 %a, %b", USER

    with pytest.raises(InternalError) as error:
        assemble(text, "gfx950", line_map=line_map)
    assert str(error.value) == f"""\
gone.py:7: internal error in tilec: generated assembly does not assemble
  line {line}: invalid operand for instruction
    v_add_f32 v0, v1, a2
    from %sum = v_add_f32 %a, %b at gone.py:7
  try: report this with the kernel; it is a bug in tilec, not in your program"""


def test_a_fault_in_edited_text_points_into_it(tmp_path: Path):
    text = kernel_text(PLAIN, "\tv_add_f32 v0, v1, a2\n\ts_endpgm")
    path = tmp_path / "copy.s"
    path.write_text(text)
    with pytest.raises(TilecError) as error:
        assemble(text, "gfx950", edited=str(path))
    assert not isinstance(error.value, InternalError)
    assert str(error.value) == f"""\
{path}:6: this assembly does not assemble
  line 6: invalid operand for instruction
    v_add_f32 v0, v1, a2
    v_add_f32 v0, v1, a2
                      ^
  try: compare with the text that tilec printed for this kernel"""


def test_edited_text_cannot_end_the_process():
    text = kernel_text(PLAIN, COPY).replace(".Lend_copy:", "")
    with pytest.raises(TilecError, match="Size expression must be absolute"):
        assemble(text, "gfx950", edited="copy.s")


def test_only_the_first_faults_are_told():
    with pytest.raises(InternalError) as error:
        assemble(kernel_text(PLAIN, "\tv_bad v0\n" * 9), "gfx950")
    assert str(error.value).count("invalid instruction") == 5 and "and 4 more" in str(error.value)


# -- a ROCm clang, as a subprocess -----------------------------------------------------------------------------------

@pytest.fixture
def rocm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ROCm installation as far as find_clang looks at it: its clang is a script that runs zig's."""
    monkeypatch.delenv("ROCM_PATH", raising=False)
    monkeypatch.setattr(module, "_DEFAULT_ROCM", tmp_path / "none")
    clang = tmp_path / "rocm/llvm/bin/clang"
    clang.parent.mkdir(parents=True)
    clang.write_text(f'#!/bin/sh\nexec {zig()} clang "$@"\n')
    clang.chmod(0o755)
    return tmp_path / "rocm"


def test_clang_is_found_and_gives_the_same_bytes(rocm: Path, monkeypatch: pytest.MonkeyPatch):
    text = kernel_text(FULL, MATRIX)
    clang = rocm / "llvm/bin/clang"
    assert find_clang(clang) == clang
    monkeypatch.setenv("ROCM_PATH", str(rocm))
    assert find_clang() == clang
    assert assemble(text, "gfx942", clang=clang) == assemble(text, "gfx942")


def test_faults_that_clang_reports_are_mapped_too(rocm: Path):
    with pytest.raises(InternalError, match=r"line 6: invalid instruction\n    v_bad v0"):
        assemble(kernel_text(PLAIN, "\tv_bad v0"), "gfx950", clang=rocm / "llvm/bin/clang")


def test_no_clang(rocm: Path, tmp_path: Path):
    with pytest.raises(TilecError) as error:
        find_clang()
    none = tmp_path / "none"
    assert str(error.value) == f"""\
no ROCm clang found
  limit: looked at {none}/llvm/bin/clang, {none}/lib/llvm/bin/clang, {none}/bin/amdclang
  try: set ROCM_PATH, name the clang, or leave the option out to use the embedded LLVM"""


def test_a_clang_that_is_too_old(rocm: Path):
    old = rocm / "llvm/bin/old"
    old.write_text("#!/bin/sh\necho 'error: unknown target CPU gfx950' >&2; exit 1\n")
    old.chmod(0o755)
    with pytest.raises(TilecError) as error:
        find_clang(old)
    assert str(error.value) == f"""\
{old} does not assemble for gfx950
  limit: probed with 'v_mfma_f32_16x16x32_bf16 v[0:3], v[4:7], v[8:11], 0'
  try: use the clang of ROCm 7 or newer, or leave the option out to use the embedded LLVM"""
