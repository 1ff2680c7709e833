"""The command line, called as a user calls it: text, JSON, exit status, faults."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tilec.backend_amdgcn.assemble import assemble
from tilec.backend_amdgcn.kernel_text import KernelArgument, KernelInfo, kernel_text
from tilec.cli import main

COPY = """\
\t.loc\t1 3 5
\ts_load_dwordx4 s[4:7], s[0:1], 0x0
\tv_lshlrev_b32_e32 v0, 2, v0
.Lagain:
\t.loc\t1 4 9
\tds_read_b32 v1, v0
\ts_waitcnt lgkmcnt(0)
\ts_sub_u32 s2, s2, 1
\ts_cbranch_scc0 .Lagain
\t.loc\t1 5 5
\tglobal_store_dword v0, v1, s[6:7]
\ts_endpgm
"""


def tilec(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments], catch_exceptions=False)


@pytest.fixture
def copy_object(tmp_path: Path) -> Path:
    info = KernelInfo("copy", "gfx942", vgprs=2, agprs=0, accum_offset=4, sgprs=8, lds_bytes=256, kernarg_bytes=8,
                      arguments=(KernelArgument("n", 0, 8, "global_buffer", "global"),), workgroup_size=(64, 1, 1))
    path = tmp_path / "copy.hsaco"
    path.write_bytes(assemble(kernel_text(info, COPY, ["copy.py"]), "gfx942"))
    return path


def test_disasm(copy_object: Path):
    result = tilec("disasm", copy_object)
    assert result.exit_code == 0
    assert result.stdout == """\
; copy for gfx942: 2 VGPR, 0 AGPR, 8 SGPR, 256 B LDS, 0 B scratch, 8 waves per SIMD, 44 B code
;   n: global_buffer, 8 bytes at 0
; copy.py:3
copy:
    1500  s_load_dwordx4 s[4:7], s[0:1], 0x0
    1508  v_lshlrev_b32_e32 v0, 2, v0
; copy.py:4
L0:
    150c  ds_read_b32 v1, v0
    1514  s_waitcnt lgkmcnt(0)
    1518  s_sub_u32 s2, s2, 1
    151c  s_cbranch_scc0 L0
; copy.py:5
    1520  global_store_dword v0, v1, s[6:7]
    1528  s_endpgm
; loop 150c..151c: 4 instructions: 1 ds_read_b32, 1 s_waitcnt, 1 s_sub_u32, 1 s_cbranch_scc0
;   waits: lgkmcnt(0)
;   1 LDS accesses, conflict cycles: not measured
"""


def test_disasm_json(copy_object: Path):
    result = tilec("disasm", copy_object, "--json")
    value = json.loads(result.stdout)
    (kernel,) = value.pop("kernels")
    assert value == {"arch": "gfx942"}
    assert kernel["resources"] == {"vgpr": 2, "agpr": 0, "sgpr": 8, "lds": 256, "scratch": 0, "waves_per_simd": 8,
                                   "code_bytes": 44}
    assert kernel["arguments"] == [{"name": "n", "offset": 0, "size": 8, "kind": "global_buffer"}]
    assert [i["text"] for i in kernel["instructions"]][-1] == "s_endpgm"
    assert kernel["instructions"][2] == {
        "address": 0x150C, "size": 8, "text": "ds_read_b32 v1, v0", "line": "copy.py:4"}
    assert kernel["loops"] == [{
        "first": 0x150C, "last": 0x151C, "instructions": 4, "waits": [{"address": 0x1514, "lgkmcnt": 0}],
        "histogram": {"ds_read_b32": 1, "s_waitcnt": 1, "s_sub_u32": 1, "s_cbranch_scc0": 1},
        "conflict_cycles": [{"address": 0x150C, "mnemonic": "ds_read_b32", "cycles": None}]}]


def test_disasm_refuses_what_is_not_there(copy_object: Path, tmp_path: Path):
    result = tilec("disasm", copy_object, "--kernel", "paste")
    assert result.exit_code == 2
    assert result.stderr == f"tilec: {copy_object} has no kernel 'paste'\n  try: kernels in it: copy\n"
    other = tmp_path / "other"
    other.write_text("text")
    result = tilec("disasm", other)
    assert result.exit_code == 2 and "not a readable ELF file" in result.stderr and not result.stdout
    result = tilec("disasm", tmp_path / "absent")
    assert result.exit_code == 2 and "does not exist" in result.stderr


@pytest.mark.parametrize("command", [[], ["disasm"]])
def test_help(command: list[str]):
    result = tilec(*command, "--help")
    assert result.exit_code == 0 and "Usage:" in result.stdout
