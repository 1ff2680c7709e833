"""Every instruction that LLVM decodes is either run, or listed as missing with its reason; every one that runs can be
bound.
"""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tests.emulator.harness import assemble
from tilec import llvm
from tilec.emulator import Memory, run
from tilec.emulator.coverage import missing, mnemonics, runs

ARCHS = ("gfx942", "gfx950")
CONTROL = ("s_branch", "s_cbranch", "s_endpgm", "s_setpc", "s_swappc", "s_call", "s_barrier")
FULL_EXEC = bytes.fromhex("c101febe")  # s_mov_b64 exec, -1
END = bytes.fromhex("000081bf")


@pytest.mark.parametrize(("arch", "known", "absent"), [("gfx942", 1145, 132), ("gfx950", 1240, 147)])
def test_what_is_missing_has_a_reason(arch, known, absent):
    found, lacking = mnemonics(arch), missing(arch)
    assert len(found) >= known and len(lacking) <= absent
    assert not [name for name, reason in lacking if not reason]
    lds = {name for name, _ in lacking if name.startswith("ds_")}
    assert lds == {"ds_append", "ds_consume", "ds_condxchg32_rtn_b64"}
    assert not [name for name, _ in lacking if re.match(r"(global|flat|scratch|buffer_load_dword|buffer_atomic)", name)]
    kinds = {name for name, reason in lacking if name.startswith("v_") and not name.startswith("v_smfmac")}
    assert kinds <= {"v_screen_partition_4se_b32", "v_mfma_ld_scale_b32"}
    assert {"v_mfma_f32_16x16x4_f32", "ds_read_b64", "s_load_dword", "global_atomic_add", "v_add_f32"} <= set(
        found
    ) - dict(lacking).keys()


@pytest.mark.parametrize("defined", [True, False])
@pytest.mark.parametrize("arch", ARCHS)
def test_every_instruction_runs(arch, defined):
    """All of them in a row, on defined registers and on undefined ones, with every check on: none may trip the
    emulator.
    """
    prologue = ""
    if defined:
        prologue = "".join(f"v_mov_b32_e32 v{i}, {i}\n" for i in range(1, 40)) + "".join(
            f"s_mov_b32 s{i}, {i}\n" for i in range(5, 60)
        )
    body = b""
    count = 0
    for name, code in mnemonics(arch).items():
        first = llvm.disassemble(code + bytes(8), arch)[0]
        if runs(name, arch) and not name.startswith(CONTROL) and "Invalid" not in first.text:
            body += (code + bytes(8))[: first.size] + FULL_EXEC
            count += 1
    start = assemble(prologue + "s_nop 7", arch, vgprs=256, agprs=256, lds=4096, scratch=1024)
    program = replace(start, text=start.text + body + END)
    result = run(program, "k", grid=(1, 1, 1), block=(100, 1, 1), arguments=bytes(64), memory=Memory())
    assert count > 950 and result.statistics.instructions >= 2 * 2 * count
    assert {finding.check for finding in result.findings} >= {"bounds", "hazards"}
