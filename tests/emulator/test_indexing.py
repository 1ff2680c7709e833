"""Registers relative to M0: VGPR indexing and scalar relative moves, alike and unlike in the waves of a workgroup."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.harness import LOAD_POINTERS, execute, words
from tilec.errors import TilecError

FILL = "\n".join(f"v_add_u32_e32 v{8 + i}, {16 * (i + 1)}, v0" for i in range(4))
"""v8 to v11: lane + 16, lane + 32, lane + 48, lane + 64."""
STORE = "global_store_dword v1, v2, s[8:9]\ns_endpgm"


@pytest.mark.parametrize("index", range(4))
def test_a_source_is_taken_from_further_on(index):
    text = f"{FILL}\ns_mov_b32 s12, {index}\ns_set_gpr_idx_on s12, gpr_idx(SRC0)\nv_mov_b32_e32 v2, v8\n"
    outcome = execute(LOAD_POINTERS + text + "s_set_gpr_idx_off\n" + STORE, words())
    assert not outcome.findings and (outcome.outputs[0] == np.arange(64) + 16 * (index + 1)).all()


def test_roles_are_apart():
    """Destination and first source move, the second source and what follows s_set_gpr_idx_off do not."""
    text = FILL + """
        v_mov_b32_e32 v2, 0
        v_mov_b32_e32 v3, 0
        s_set_gpr_idx_on 1, gpr_idx(SRC0,DST)
        v_add_u32_e32 v2, v8, v9
        s_set_gpr_idx_mode gpr_idx(SRC1)
        s_set_gpr_idx_idx 2
        v_add_u32_e32 v4, v8, v9
        s_set_gpr_idx_off
        v_lshlrev_b32_e32 v3, 16, v3
        v_or_b32_e32 v2, v3, v4
    """
    outcome = execute(LOAD_POINTERS + text + STORE, words())
    lane = np.arange(64)
    first, second = 2 * (lane + 32), (lane + 16) + (lane + 64)
    assert not outcome.findings and (outcome.outputs[0] == (first << 16 | second)).all()


def test_waves_with_unlike_indices_go_on_apart():
    text = FILL + """
        v_readfirstlane_b32 s12, v0
        s_lshr_b32 s12, s12, 6
        s_set_gpr_idx_on s12, gpr_idx(SRC0)
        v_mov_b32_e32 v2, v8
        s_set_gpr_idx_off
        s_barrier
    """
    outcome = execute(LOAD_POINTERS + text + STORE, words(256), block=256)
    item = np.arange(256)
    assert not outcome.findings and (outcome.outputs[0] == item + 16 * (item // 64 + 1)).all()


@pytest.mark.parametrize(("move", "expected"), [("s_movrels_b32 s20, s16", 103), ("s_movreld_b32 s17, s16", 100)])
def test_scalar_moves(move, expected):
    text = "\n".join(f"s_movk_i32 s{16 + i}, {100 + i}" for i in range(8))
    text += f"\ns_mov_b32 m0, 3\ns_nop 0\n{move}\nv_mov_b32_e32 v2, s20\n"
    outcome = execute(LOAD_POINTERS + text + STORE, words())
    assert not outcome.findings and (outcome.outputs[0] == expected).all()
    late = execute(LOAD_POINTERS + text.replace("s_nop 0\n", "") + STORE, words())
    assert [f.check for f in late.findings] == ["hazards"] and "rule m0" in late.findings[0].message


def test_scalar_pairs_move_together():
    text = "\n".join(f"s_movk_i32 s{16 + i}, {100 + i}" for i in range(8))
    text += "\ns_mov_b32 m0, 4\ns_nop 0\ns_movrels_b64 s[24:25], s[16:17]\n"
    text += "s_lshl_b32 s25, s25, 8\ns_or_b32 s24, s24, s25\nv_mov_b32_e32 v2, s24\n"
    outcome = execute(LOAD_POINTERS + text + STORE, words())
    assert not outcome.findings and (outcome.outputs[0] == (104 | 105 << 8)).all()


def test_the_checks_see_the_registers_that_are_meant():
    """A load in flight to v9 is read through v8, one on; a read of v8 itself is fine."""
    text = "global_load_dword v9, v1, s[8:9]\nv_mov_b32_e32 v8, 1\ns_set_gpr_idx_on {index}, gpr_idx(SRC0)\n"
    text += "v_mov_b32_e32 v2, v8\ns_set_gpr_idx_off\ns_waitcnt vmcnt(0)\n"
    bad = execute(LOAD_POINTERS + text.format(index=1) + STORE, words())
    assert any(f.check == "waits" and "reads v9" in f.message for f in bad.findings)
    assert not execute(LOAD_POINTERS + text.format(index=0) + STORE, words()).findings


def test_an_index_beyond_the_registers_is_refused():
    text = "s_movk_i32 s12, 0xff\ns_set_gpr_idx_on s12, gpr_idx(SRC0)\nv_mov_b32_e32 v2, v8\n" + STORE
    with pytest.raises(TilecError, match="v_mov_b32_e32 v2, v8") as caught:
        execute(LOAD_POINTERS + text, words())
    assert "255 registers on" in str(caught.value)
