"""What a kernel finds at entry: workitem and workgroup ids, user SGPRs in order, hidden arguments, the dispatch
packet.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.emulator.harness import assemble, execute, words
from tilec.emulator import Argument, Memory, argument_segment, run
from tilec.emulator.launch import hidden_value
from tilec.errors import TilecError

STORE_V0 = """
    s_load_dwordx2 s[8:9], s[0:1], 0x0
    v_and_b32_e32 v1, 0x3ff, v0
    v_bfe_u32 v2, v0, 10, 10
    v_bfe_u32 v3, v0, 20, 10
    v_mul_u32_u24_e32 v3, {xy}, v3
    v_mul_u32_u24_e32 v2, {x}, v2
    v_add3_u32 v1, v1, v2, v3
    v_lshlrev_b32_e32 v1, 2, v1
    s_waitcnt lgkmcnt(0)
    global_store_dword v1, v0, s[8:9]
    s_endpgm
"""


def test_workitem_ids_are_packed():
    x, y, z = 5, 7, 3
    outcome = execute(STORE_V0.format(x=x, xy=x * y), words(x * y * z), block=(x, y, z))
    item = np.arange(x * y * z)
    assert not outcome.findings
    assert (outcome.outputs[0] == (item % x | item // x % y << 10 | item // (x * y) << 20)).all()


def test_user_registers_come_in_the_order_of_the_descriptor():
    """dispatch_ptr, queue_ptr, kernarg_segment_ptr, then preloaded arguments, then workgroup ids."""
    text = """
        s_load_dwordx2 s[20:21], s[4:5], 0x0
        s_load_dwordx2 s[22:23], s[0:1], 0x4
        s_load_dword s24, s[0:1], 0xc
        v_mov_b32_e32 v1, 0
        s_waitcnt lgkmcnt(0)
        v_mov_b32_e32 v2, s22
        v_mov_b32_e32 v3, s24
        v_mov_b32_e32 v4, s6
        v_mov_b32_e32 v5, s7
        s_mov_b64 exec, 1
        global_store_dwordx4 v1, v[2:5], s[20:21]
        s_endpgm
    """
    code = assemble(text)
    descriptor = replace(code.kernels["k"].descriptor, properties=0b1110, preload=2 | 2 << 7)
    code = replace(code, kernels={"k": replace(code.kernels["k"], descriptor=descriptor)})
    memory = Memory()
    out = memory.place(16)
    segment = (out.to_bytes(8, "little") + (77).to_bytes(4, "little") + (88).to_bytes(4, "little")).ljust(64, b"\0")
    for preload in (False, True):
        code_here = code if not preload else replace(code, text=bytes(256) + code.text)
        options = {"arguments": segment, "memory": memory, "preload": preload, "checks": ["definedness", "bounds"]}
        result = run(code_here, "k", grid=(3, 1, 1), block=(40, 2, 1), **options)
        assert not result.findings
        sizes, grid_x, first, second = memory.read(out, 16).view(np.uint32)
        # workgroup sizes have 16 bits, grid sizes count workitems
        assert (sizes & 0xFFFF, sizes >> 16, grid_x) == (40, 2, 120)
        assert (first, second) == ((77, 88) if preload else (0, 0))


@pytest.mark.parametrize(("kind", "value"), [
    ("hidden_block_count_y", 3), ("hidden_group_size_x", 64), ("hidden_remainder_x", 0), ("hidden_global_offset_z", 0),
    ("hidden_grid_dims", 2), ("hidden_dynamic_lds_size", 512), ("hidden_hostcall_buffer", 0), ("global_buffer", None),
])  # fmt: skip
def test_hidden_arguments(kind, value):
    assert hidden_value(kind, (2, 3, 1), (64, 1, 1), 512) == value


def test_the_argument_segment_is_laid_out_by_offset():
    kernel = assemble("s_endpgm").kernels["k"]
    arguments = (Argument("x", 0, 8, "global_buffer"), Argument("", 8, 4, "hidden_block_count_x"),
                 Argument("", 12, 2, "hidden_group_size_x"))  # fmt: skip
    segment = argument_segment(replace(kernel, arguments=arguments), {0: b"\1\2\3\4\5\6\7\10"}, (9, 1, 1), (64, 1, 1))
    assert (
        segment[:14] == b"\1\2\3\4\5\6\7\10" + (9).to_bytes(4, "little") + (64).to_bytes(2, "little")
        and len(segment) == 64
    )


@pytest.mark.parametrize(("options", "message"), [
    ({"block": 1025}, "a workgroup of 1025 workitems can't be launched"),
    ({"block": 0}, "a workgroup of 0 workitems"),
    ({"lds": 163841}, "needs 163841 bytes of LDS per workgroup"),
    ({"lds": 65536, "lds_dynamic": 1, "arch": "gfx942"}, "needs 65537 bytes of LDS"),
    ({"landing": "never"}, "no such landing: 'never'"),
    ({"numerics": "vague"}, "no such numerics: 'vague'"),
    ({"without": [0x1001]}, "no instruction starts at 0x1001"),
    ({"grid": (-1, 1, 1)}, "is negative"),
])  # fmt: skip
def test_launches_that_are_refused(options, message):
    with pytest.raises(TilecError, match=message):
        execute("s_endpgm", **options)


def test_names_and_sizes_are_checked():
    code = assemble("s_endpgm")
    with pytest.raises(TilecError, match="has no kernel 'other'"):
        run(code, "other", grid=(1, 1, 1), block=(64, 1, 1), arguments=bytes(64), memory=Memory())
    with pytest.raises(TilecError, match="8 bytes of arguments for kernel k"):
        run(code, "k", grid=(1, 1, 1), block=(64, 1, 1), arguments=bytes(8), memory=Memory())


def test_an_empty_grid_runs_nothing():
    outcome = execute("s_endpgm", grid=(0, 4, 1))
    assert outcome.result.statistics.instructions == 0 and not outcome.findings
