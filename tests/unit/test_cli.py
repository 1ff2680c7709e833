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
  0x1500  s_load_dwordx4 s[4:7], s[0:1], 0x0
  0x1508  v_lshlrev_b32_e32 v0, 2, v0
; copy.py:4
L0:
  0x150c  ds_read_b32 v1, v0
  0x1514  s_waitcnt lgkmcnt(0)
  0x1518  s_sub_u32 s2, s2, 1
  0x151c  s_cbranch_scc0 L0
; copy.py:5
  0x1520  global_store_dword v0, v1, s[6:7]
  0x1528  s_endpgm
; loop 0x150c..0x151c: 4 instructions: 1 ds_read_b32, 1 s_waitcnt, 1 s_sub_u32, 1 s_cbranch_scc0
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
        "first": 0x150C, "last": 0x151C, "instructions": 4, "aside": 0, "waits": [{"address": 0x1514, "lgkmcnt": 0}],
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


# -- emulate ---------------------------------------------------------------------------------------------------------

ADD_ONE = """\
\ts_load_dwordx4 s[4:7], s[0:1], 0x0
\tv_lshlrev_b32_e32 v0, 2, v0
\ts_waitcnt lgkmcnt(0)
\tglobal_load_dword v1, v0, s[4:5]
\ts_waitcnt vmcnt(0)
\tv_add_u32_e32 v1, 1, v1
\tglobal_store_dword v0, v1, s[6:7]
\ts_endpgm
"""

REFERENCE = """\
from dataclasses import dataclass
import numpy as np

@dataclass
class Buf:
    raw: np.ndarray
    typ: str
    role: str

class Launch:
    def __init__(self, n):
        self.buffers = {"x": Buf(np.arange(n, dtype=np.uint32), "u32", "in"),
                        "y": Buf(np.zeros(n, np.uint32), "u32", "out")}
        self.scalars, self.grid = {}, (1, 1, 1)

    def check(self, got):
        wrong = int((got["y"] != self.buffers["x"].raw + 1).sum())
        return [f"y: {wrong} wrong"] if wrong else []

def launch(meta, case):
    return Launch(64)
"""


@pytest.fixture
def described(tmp_path: Path) -> list[object]:
    """A code object with its description: the arguments of `tilec emulate`."""
    pointers = tuple(KernelArgument(name, 8 * index, 8, "global_buffer", "global") for index, name in enumerate("xy"))
    info = KernelInfo("add_one", "gfx950", vgprs=2, agprs=0, accum_offset=4, sgprs=8, lds_bytes=0, kernarg_bytes=16,
                      arguments=pointers, workgroup_size=(64, 1, 1))
    meta = {"symbol": "add_one", "workgroup_size": [64, 1, 1], "lds_dynamic": 0, "cases": [{"id": "small"}],
            "args": [{"name": name, "offset": 8 * index, "size": 8, "value_kind": "global_buffer", "type": "*u32"}
                     for index, name in enumerate("xy")]}
    (tmp_path / "add_one.hsaco").write_bytes(assemble(kernel_text(info, ADD_ONE), "gfx950"))
    (tmp_path / "meta.json").write_text(json.dumps(meta))
    (tmp_path / "ref.py").write_text(REFERENCE)
    return [tmp_path / "add_one.hsaco", "--meta", tmp_path / "meta.json", "--ref", tmp_path / "ref.py"]


def address_of(code_object: object, text: str) -> int:
    (kernel,) = json.loads(tilec("disasm", code_object, "--json").stdout)["kernels"]
    return next(i["address"] for i in kernel["instructions"] if i["text"].startswith(text))


@pytest.mark.parametrize("landing", ["late", "early", "random"])
def test_emulate_passes(described: list[object], landing: str):
    result = tilec("emulate", *described, "--case", "small", "--landing", landing, "--seed", 3)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("passed: 0 mismatches, 0 findings; 8 wave instructions")


def test_emulate_json(described: list[object]):
    value = json.loads(tilec("emulate", *described, "--case", "small", "--json").stdout)
    assert value.pop("seconds") > 0
    assert value == {"passed": True, "mismatches": [], "findings": [], "outputs": {}, "wave_instructions": 8}


def test_emulate_without_an_addition_does_not_match(described: list[object]):
    result = tilec("emulate", *described, "--case", "small", "--without", hex(address_of(described[0], "v_add")))
    assert result.exit_code == 1
    assert "mismatch: y: 64 wrong\n" in result.stdout and "FAILED: 1 mismatches, 0 findings" in result.stdout


def test_emulate_without_a_wait_is_found(described: list[object]):
    without = address_of(described[0], "s_waitcnt vmcnt")
    result = tilec("emulate", *described, "--case", "small", "--without", without, "--json")
    value = json.loads(result.stdout)
    assert result.exit_code == 1 and not value["passed"]
    assert any(finding["text"].startswith("v_add_u32") for finding in value["findings"]), value
    # with the checks off, late landing still makes the result wrong; early landing hides the fault
    assert tilec("emulate", *described, "--case", "small", "--without", without, "--checks", "none").exit_code == 1
    assert tilec("emulate", *described, "--case", "small", "--without", without, "--checks", "none", "--landing",
                 "early").exit_code == 0


@pytest.mark.parametrize("options, message", [
    (["--case", "big"], "no case 'big'\n  limit: the description has small"),
    (["--case", "small", "--without", "0x7"], "no instruction of {object} starts at 0x7\n"
                                              "  try: tilec disasm {object} lists their addresses"),
    (["--case", "small", "--without", "here"], "--without 'here' is no address\n"
                                               "  try: write it as 0x1a2c, or in decimal"),
])
def test_emulate_faults(described: list[object], options: list[str], message: str):
    result = tilec("emulate", *described, *options)
    assert result.exit_code == 2 and not result.stdout
    assert result.stderr == "tilec: " + message.format(object=described[0]) + "\n"


def test_emulate_needs_all_its_parts(described: list[object]):
    result = tilec("emulate", described[0], "--case", "small")
    assert result.exit_code == 2 and "Missing option '--meta'" in result.stderr
