"""Batches part and meet: divergent loops, staggered halves, barriers per workgroup, fairness, the limit on runaway
kernels.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.harness import LOAD_POINTERS, execute, words
from tilec.errors import TilecError

STORE = "global_store_dword v1, v2, s[8:9]\ns_endpgm"


def test_a_loop_with_its_own_trip_count_per_wave():
    text = (
        LOAD_POINTERS
        + """
        v_lshrrev_b32_e32 v3, 6, v0
        s_nop 1
        v_readfirstlane_b32 s16, v3
        v_mov_b32_e32 v2, 0
    loop:
        v_add_u32_e32 v2, 3, v2
        s_sub_i32 s16, s16, 1
        s_cmp_ge_i32 s16, 0
        s_cbranch_scc1 loop
    """
        + STORE
    )
    outcome = execute(text, words(1024), block=1024)
    assert not outcome.findings
    assert (outcome.outputs[0] == 3 * (np.arange(1024) // 64 + 1)).all()
    assert (
        outcome.result.statistics.counts[
            min(a for a, n in outcome.result.statistics.counts.items() if n == 16 * 17 // 2)
        ]
        == 136
    )


def test_lanes_leave_a_loop_one_by_one():
    text = (
        LOAD_POINTERS
        + """
        v_mov_b32_e32 v2, 0
        v_mov_b32_e32 v3, v0
        s_mov_b64 s[20:21], exec
    loop:
        v_cmp_gt_u32_e32 vcc, 1, v3
        s_andn2_b64 exec, exec, vcc
        s_cbranch_execz done
        v_add_u32_e32 v2, v2, v3
        v_sub_u32_e32 v3, v3, 1
        s_branch loop
    done:
        s_mov_b64 exec, s[20:21]
    """.replace("v_sub_u32_e32 v3, v3, 1", "v_subrev_u32_e32 v3, 1, v3")
        + STORE
    )
    outcome = execute(text, words(256), block=256)
    assert not outcome.findings
    assert (outcome.outputs[0] == np.arange(256) * (np.arange(256) + 1) // 2).all()


def test_branches_meet_again():
    text = (
        LOAD_POINTERS
        + """
        v_lshrrev_b32_e32 v3, 6, v0
        s_nop 1
        v_readfirstlane_b32 s16, v3
        s_bitcmp1_b32 s16, 0
        s_cbranch_scc1 odd
        v_mov_b32_e32 v2, 7
        s_branch join
    odd:
        v_mov_b32_e32 v2, 9
    join:
        v_add_u32_e32 v2, v2, v0
    """
        + STORE
    )
    outcome = execute(text, words(512), block=512)
    thread = np.arange(512)
    assert not outcome.findings and (outcome.outputs[0] == thread + np.where(thread // 64 % 2, 9, 7)).all()
    statistics = outcome.result.statistics
    last = max(statistics.counts)
    assert statistics.counts[last] == 8
    assert statistics.instructions / statistics.batches > 6  # the tail runs as one batch again


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_halves_one_barrier_apart(seed):
    """Ping-pong: the later half waits once more before the loop, the earlier once more after it."""
    text = (
        LOAD_POINTERS
        + """
        v_lshrrev_b32_e32 v3, 7, v0
        v_mov_b32_e32 v2, 0
        v_mov_b32_e32 v4, 0
        s_nop 1
        v_readfirstlane_b32 s16, v3
        s_mov_b32 s17, 5
        s_cmp_eq_u32 s16, 0
        s_cbranch_scc1 loop
        s_barrier
    loop:
        v_add_u32_e32 v2, 1, v2
        s_barrier
        v_add_u32_e32 v2, 10, v2
        s_barrier
        s_sub_u32 s17, s17, 1
        s_cmp_lg_u32 s17, 0
        s_cbranch_scc1 loop
        s_cmp_lg_u32 s16, 0
        s_cbranch_scc1 end
        s_barrier
    end:
    """
        + STORE
    )
    outcome = execute(text, words(256 * 3), block=256, grid=(1, 1, 1), seed=seed)
    assert not outcome.findings and (outcome.outputs[0][:256] == 55).all()


def test_workgroups_pass_barriers_on_their_own():
    text = (
        LOAD_POINTERS
        + """
        s_add_u32 s17, s2, 1
        v_mov_b32_e32 v2, 0
    loop:
        v_add_u32_e32 v2, 1, v2
        s_barrier
        s_sub_u32 s17, s17, 1
        s_cmp_lg_u32 s17, 0
        s_cbranch_scc1 loop
        s_lshl_b32 s16, s2, 9
        v_add_u32_e32 v1, s16, v1
    """
        + STORE
    )
    outcome = execute(text, words(128 * 9), block=128, grid=(9, 1, 1))
    assert not outcome.findings and (outcome.outputs[0].reshape(9, 128) == np.arange(1, 10)[:, None]).all()


def test_a_wave_that_spins_does_not_starve_the_one_it_waits_for():
    text = (
        LOAD_POINTERS
        + """
        v_mov_b32_e32 v4, 0
        s_cmp_eq_u32 s2, 0
        s_cbranch_scc0 giver
    spin:
        global_load_dword v3, v4, s[8:9] sc1
        s_waitcnt vmcnt(0)
        v_readfirstlane_b32 s16, v3
        s_cmp_eq_u32 s16, 1
        s_cbranch_scc0 spin
        s_endpgm
    giver:
        v_mov_b32_e32 v2, 1
        global_store_dword v4, v2, s[8:9] sc1
        s_endpgm
    """
    )
    outcome = execute(text, np.zeros(64, np.uint32), grid=(2, 1, 1), checks="none", limit=100_000)
    assert outcome.outputs[0][0] == 1


def test_a_kernel_that_never_ends_is_given_up():
    with pytest.raises(TilecError, match="gave up after .* wave instructions"):
        execute("loop: s_branch loop", limit=5000)


def test_modes_differ_between_waves():
    """Denormals are flushed only where the wave asked for it."""
    text = (
        LOAD_POINTERS
        + """
        v_lshrrev_b32_e32 v3, 6, v0
        v_mov_b32_e32 v2, 1
        s_nop 1
        v_readfirstlane_b32 s16, v3
        s_cmp_eq_u32 s16, 0
        s_cbranch_scc1 keep
        s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), 0
    keep:
        v_add_f32_e32 v2, v2, v2
    """
        + STORE
    )
    outcome = execute(text, words(128), block=128)
    assert not outcome.findings and outcome.outputs[0].tolist() == [2] * 64 + [0] * 64
    by_register = text.replace("s_cmp_eq_u32 s16, 0\n        s_cbranch_scc1 keep", "s_cmp_eq_u32 s16, 0").replace(
        "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), 0",
        "s_cselect_b32 s17, 3, 0\ns_setreg_b32 hwreg(HW_REG_MODE, 4, 2), s17",
    )
    outcome = execute(by_register, words(128), block=128)
    assert not outcome.findings and outcome.outputs[0].tolist() == [2] * 64 + [0] * 64


def test_an_unknown_instruction_names_address_bytes_and_text():
    with pytest.raises(
        TilecError, match=r"can't execute the instruction at 0x1004: v_smfmac_f32_16x16x32_f16"
    ) as caught:
        execute("s_nop 0\nv_smfmac_f32_16x16x32_f16 v[0:3], v[4:5], v[8:11], v12\ns_endpgm")
    assert "its bytes are" in str(caught.value)
    with pytest.raises(TilecError, match="v40 is not allocated: the descriptor gives 8 VGPRs"):
        execute("v_mov_b32_e32 v40, 0\ns_endpgm", vgprs=8, agprs=0)
