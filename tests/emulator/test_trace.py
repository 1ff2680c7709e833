"""The event sink: bank conflicts by phase, bytes and coalescing per instruction, the trace of chosen waves, the ELF
reader.
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

from tests.emulator.harness import LOAD_POINTERS, execute, words
from tilec.backend_amdgcn.assemble import assemble as link
from tilec.backend_amdgcn.kernel_text import KernelInfo, kernel_text
from tilec.emulator import EventSink, Memory, Summary, Trace, load_object, run
from tilec.emulator.banks import extra_cycles, measured, phases
from tilec.emulator.operands import Constant, parse
from tilec.errors import TilecError

CORPUS = Path(__file__).resolve().parents[1] / "data" / "corpus"
ALL = np.ones((1, 64), bool)
LANE = np.arange(64)


@pytest.mark.parametrize(
    ("arch", "write", "size"), [(a, w, s) for a in ("gfx942", "gfx950") for w in (False, True) for s in (4, 8, 12, 16)]
)
def test_phases_cover_every_lane_once(arch, write, size):
    _, groups = phases(arch, write, size)
    assert sorted(lane for group in groups for lane in group) == list(range(64))


@pytest.mark.parametrize(
    ("arch", "write", "size", "address", "expected"),
    [
        ("gfx950", True, 8, LANE * 256, 60),  # one bank for all: 64 accesses in 4 phases, as counted on MI355X
        ("gfx950", False, 16, LANE * 16, 0),
        ("gfx950", False, 8, LANE * 8, 0),
        ("gfx950", False, 4, LANE * 4, 0),
        ("gfx942", False, 4, LANE * 8, 2),  # two phases, every second bank
        ("gfx942", False, 4, LANE * 0, 0),  # equal dwords are served at once
        ("gfx950", False, 16, LANE * 256, 60),
    ],
)
def test_extra_cycles(arch, write, size, address, expected):
    assert extra_cycles(arch, write, size, address[None], ALL).tolist() == [expected]
    nobody = np.zeros((1, 64), bool)
    assert extra_cycles(arch, write, size, address[None], nobody).tolist() == [0]
    assert measured("gfx950", False, 16) and not measured("gfx942", False, 16)


COPY = (
    LOAD_POINTERS
    + """
    global_load_dword v2, v1, s[8:9]
    v_lshlrev_b32_e32 v3, 7, v0
    s_waitcnt vmcnt(0)
    ds_write_b32 v3, v2
    s_barrier
    global_store_dword v1, v2, s[10:11]
    s_endpgm
"""
)


def test_a_summary_counts_per_instruction():
    summary = Summary()
    execute(COPY, np.arange(64, dtype=np.uint32), words(), lds=8192, grid=(1, 1, 1), sink=summary)
    rows = {row.instruction.name: row for row in summary.rows.values()}
    assert rows["global_load_dword"].bytes == 256 and rows["global_load_dword"].cache_lines == 2
    assert rows["global_load_dword"].coalescing == 1.0
    assert rows["ds_write_b32"].lds_extra_cycles == 62 and rows["v_lshlrev_b32"].active_lanes == 64
    assert "ds_write_b32 v3, v2" in summary.table()


def test_events_carry_waits_and_barriers():
    seen = []

    class Collect(EventSink):
        def event(self, event):
            seen.append((event.instruction.name, event.barrier, event.wait, len(event.waves), event.active.tolist()))

    execute(COPY, np.arange(96, dtype=np.uint32), words(96), lds=16384, block=96, sink=Collect(), checks="none")
    assert ("s_waitcnt", False, (0, -1), 2, [64, 32]) in seen and ("s_barrier", True, None, 2, [64, 32]) in seen


def test_a_trace_shows_what_a_wave_changed():
    out = io.StringIO()
    execute(COPY, np.arange(128, dtype=np.uint32), words(128), lds=16384, block=128, sink=Trace(out, waves=[(0, 1)]))
    lines = out.getvalue().splitlines()
    assert all(line.startswith("0.1 0x") for line in lines) and "s_endpgm" in lines[-1]
    shift = next(line for line in lines if "v_lshlrev_b32_e32 v3" in line)
    assert "v3=[2000 2080 2100" in shift
    load = next(line for line in lines if "global_load_dword" in line)
    assert "(in flight)" in load


# ---- reading objects and text
def test_an_object_says_what_it_is():
    code = load_object((CORPUS / "pid3d__gfx950" / "kernel.hsaco").read_bytes())
    (kernel,) = code.kernels.values()
    descriptor = kernel.descriptor
    assert code.arch == "gfx950" and descriptor.workgroup_ids == (True, True, True)
    assert descriptor.preload_count == 12 and descriptor.user_sgprs == (("kernarg_segment_ptr", 2),)
    assert descriptor.mode == 0x3F0 and descriptor.accumulation_offset == 4
    assert any(argument.kind == "hidden_block_count_x" for argument in kernel.arguments)
    assert code.instructions[0].address == descriptor.entry


@pytest.mark.parametrize(
    ("data", "message"), [(b"not an ELF", "not a readable ELF file"), (b"", "not a readable ELF file")]
)
def test_what_is_no_object_is_refused(data, message):
    with pytest.raises(TilecError, match=message):
        load_object(data)


def test_operands_and_modifiers_are_parsed():
    parsed = parse("v_max_f32_e64 v0, |v4|, -|v5| clamp mul:2")
    assert (parsed.name, parsed.suffix, parsed.modifiers) == ("v_max_f32", "e64", {"clamp": True, "mul": 2})
    assert [(o.absolute, o.negate) for o in parsed.operands] == [(False, False), (True, False), (True, True)]
    parsed = parse("buffer_load_dwordx4 v2, s[8:11], 0 offen offset:128 lds")
    assert len(parsed.operands) == 3 and parsed.modifiers == {"offen": True, "offset": 128, "lds": True}
    assert parse("s_waitcnt vmcnt(20) lgkmcnt(0)").modifiers == {"vmcnt": 20, "lgkmcnt": 0}
    assert parse("s_waitcnt 0x4f74").modifiers == {"vmcnt": 20, "lgkmcnt": 15}
    assert parse("v_pk_fma_f32 v[0:1], v[2:3], s[4:5], v[6:7] op_sel_hi:[1,0,1] neg_lo:[0,0,1]").modifiers == {
        "op_sel_hi": (1, 0, 1),
        "neg_lo": (0, 0, 1),
    }
    with pytest.raises(ValueError, match="operand not understood"):
        parse("v_mov_b32 v0, $5")


@pytest.mark.parametrize(
    ("value", "kind", "bits"),
    [
        (1.0, "f32", 0x3F800000),
        (1.0, "f16", 0x3C00),
        (1.0, "f64", 0x3FF0000000000000),
        (1.0, "u32", 0x3F800000),
        (1.0, "bf16", 0x3F80),
        (-4.0, "v2f16", 0xC400),
        (-1, "u64", (1 << 64) - 1),
        (0x40000000, "f64", 0x40000000 << 32),
        (64, "f64", 64),
        (0.15915494, "f32", 0x3E22F983),
        (0.15915494, "f16", 0x3118),
        (0.15915494309189532, "f64", 0x3FC45F306DC9C882),
    ],
)
def test_constants_are_read_through_their_kind(value, kind, bits):
    assert Constant(value).bits(kind) == bits


LINED = """
\t.loc 1 3 5
\tds_read_b32 v1, v0
\t.loc 1 4 9
\tv_mov_b32_e32 v2, v1
\ts_endpgm
"""


def test_findings_name_the_lines_of_the_source():
    info = KernelInfo("k", "gfx942", vgprs=4, agprs=0, accum_offset=4, sgprs=8, lds_bytes=256, kernarg_bytes=0,
                      arguments=(), workgroup_size=(64, 1, 1))  # fmt: skip
    code = load_object(link(kernel_text(info, LINED, ["/home/user/kernel.py"]), "gfx942"))
    result = run(code, "k", grid=(1, 1, 1), block=(64, 1, 1), arguments=b"", memory=Memory(), checks="waits")
    (finding,) = result.findings
    assert finding.source.endswith("kernel.py:4") and finding.other_source.endswith("kernel.py:3")
    assert f"; {finding.source}" in str(finding)
