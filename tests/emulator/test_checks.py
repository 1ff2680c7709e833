"""Each check bites: a small program that is right is silent, and each way to break it is reported with both
instructions.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.harness import ENTRY, LOAD_POINTERS, execute, words
from tilec.errors import TilecError

ARCHS = ("gfx942", "gfx950")


def only(outcome, check):
    """The one finding, which must be of this check."""
    assert outcome.checks() == {check}, "\n".join(map(str, outcome.findings)) or "no finding"
    return outcome.findings[0]


# ---- waits
COPY = (
    LOAD_POINTERS
    + """
    global_load_dword v2, v1, s[8:9]
    {wait}
    v_add_u32_e32 v3, 1, v2
    global_store_dword v1, v3, s[10:11]
    s_endpgm
"""
)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("landing", ["late", "early", "random"])
def test_a_waited_load_is_silent(arch, landing):
    source = np.arange(64, dtype=np.uint32)
    outcome = execute(COPY.format(wait="s_waitcnt vmcnt(0)"), source, words(), arch=arch, landing=landing)
    assert not outcome.findings
    assert (outcome.outputs[1] == source + 1).all()


@pytest.mark.parametrize("landing", ["late", "early"])
def test_reading_a_register_in_flight_is_reported(landing):
    outcome = execute(
        COPY.format(wait="s_nop 0"), np.arange(64, dtype=np.uint32), words(), landing=landing, checks="waits"
    )
    finding = only(outcome, "waits")
    assert finding.text.startswith("v_add_u32") and finding.other_text.startswith("global_load_dword")
    assert "reads v2" in finding.message and (finding.workgroup, finding.wave) == (0, 0)


def test_loads_sample_memory_when_they_land():
    text = (
        LOAD_POINTERS
        + """
        global_load_dword v2, v1, s[8:9]
        v_mov_b32_e32 v3, 7
        global_store_dword v1, v3, s[8:9]
        s_waitcnt vmcnt(0)
        global_store_dword v1, v2, s[10:11]
        s_endpgm
    """
    )
    source = np.arange(64, dtype=np.uint32)
    outcome = execute(text, source, words())  # one in-order counter: the load lands before the store
    assert (outcome.outputs[1] == source).all() and (outcome.outputs[0] == 7).all()


@pytest.mark.parametrize(
    ("second", "legal"),
    [
        ("global_load_dword v2, v1, s[8:9] offset:4", True),
        ("v_mov_b32_e32 v2, 0", False),
        ("ds_read_b32 v2, v1", False),
    ],
)
def test_overwriting_a_register_in_flight(second, legal):
    text = (
        LOAD_POINTERS
        + f"""
        global_load_dword v2, v1, s[8:9]
        {second}
        s_waitcnt vmcnt(0) lgkmcnt(0)
        s_endpgm
    """
    )
    outcome = execute(text, words(65), words(), lds=256, checks="waits")
    assert bool(outcome.findings) != legal
    if not legal:
        assert "writes v2" in only(outcome, "waits").message


def test_counters_are_finite():
    loads = "\n".join(f"ds_read_b32 v{2 + i}, v1 offset:{4 * i}" for i in range(17))
    text = f"v_lshlrev_b32_e32 v1, 2, v0\n{loads}\nv_mov_b32_e32 v40, v{{register}}\ns_waitcnt lgkmcnt(0)\ns_endpgm"
    assert not execute(text.format(register=3), lds=1024, checks="waits").findings  # 17 issued: two are complete
    assert execute(text.format(register=4), lds=1024, checks="waits").findings


def test_vmcnt_is_finite_too():
    loads = [f"global_load_dword v{2 + i}, v1, s[8:9] offset:{4 * i}" for i in range(50)]
    loads += ["global_load_dword v52, v1, s[8:9]"] * 15
    text = LOAD_POINTERS + "{loads}\nv_mov_b32_e32 v60, v{register}\ns_waitcnt vmcnt(0)\ns_endpgm"
    for count, register, fine in ((63, 2, False), (64, 2, True), (65, 3, True), (65, 4, False)):
        outcome = execute(
            text.format(loads="\n".join(loads[:count]), register=register), words(256), checks="waits")
        assert (not outcome.findings) == fine


def test_a_full_counter_with_scalar_loads_says_nothing():
    """Any of the sixteen may be the one that has come back."""
    loads = "\n".join(f"ds_read_b32 v{2 + i}, v1 offset:{4 * i}" for i in range(16))
    text = f"v_lshlrev_b32_e32 v1, 2, v0\ns_load_dword s20, s[0:1], 0x0\n{loads}\nv_mov_b32_e32 v40, v2\n"
    outcome = execute(text + "s_waitcnt lgkmcnt(0)\ns_endpgm", lds=1024, checks="waits")
    assert "reads v2" in only(outcome, "waits").message


def test_only_zero_says_anything_of_scalar_loads():
    text = """
        s_load_dword s8, s[0:1], 0x0
        ds_read_b32 v2, v0
        s_waitcnt lgkmcnt(1)
        {use}
        s_waitcnt lgkmcnt(0)
        s_endpgm
    """
    assert only(execute(text.format(use="s_mov_b32 s9, s8"), lds=256, checks="waits"), "waits")
    assert only(execute(text.format(use="v_mov_b32_e32 v3, v2"), lds=256, checks="waits"), "waits")


def test_an_mfma_reading_a_register_in_flight_is_reported():  # BL-10
    text = (
        LOAD_POINTERS
        + """
        global_load_dwordx4 a[0:3], v1, s[8:9]
        v_mov_b32_e32 v4, 0
        v_mov_b32_e32 v5, 0
        v_mov_b32_e32 v6, 0
        v_mov_b32_e32 v7, 0
        s_nop 1
        v_mfma_f32_16x16x32_bf16 a[0:3], v[4:7], v[4:7], a[0:3]
        s_endpgm
    """
    )
    finding = only(execute(text, words(128), checks="waits"), "waits")
    assert finding.text.startswith("v_mfma") and "a0" in finding.message


# ---- definedness
def test_undefined_bits_are_reported_where_they_do_harm():
    store = LOAD_POINTERS + "{make}\nglobal_store_dword v1, v2, s[8:9]\ns_endpgm"
    finding = only(execute(store.format(make="s_nop 0"), words()), "definedness")
    assert "byte 0 of v2 is stored" in finding.message and finding.lane == 0
    assert not execute(store.format(make="v_and_b32_e32 v2, 0, v5"), words()).findings
    assert not execute(
        store.format(make="v_and_b32_e32 v5, 0xff, v5\nv_lshlrev_b32_e32 v2, 8, v5\nv_mul_u32_u24_e32 v2, 0, v0"),
        words(),
    ).findings
    assert only(execute(store.format(make="v_add_f32_e32 v2, v5, v0"), words()), "definedness")
    narrow = LOAD_POINTERS + "v_lshlrev_b32_e32 v2, 16, v5\nglobal_store_short{half} v1, v2, s[8:9]\ns_endpgm"
    assert not execute(narrow.format(half=""), words()).findings
    assert "byte 2 of v2" in only(execute(narrow.format(half="_d16_hi"), words()), "definedness").message


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("v_mov_b32_e32 v2, 0\nglobal_store_dword v9, v2, s[8:9]", "byte 0 of v9 is part of an address"),
        ("v_mov_b32_e32 v2, 0\nglobal_store_dword v1, v2, s[20:21]", "is part of an address"),
        ("s_cmp_eq_u32 s20, 0\ns_cbranch_scc1 0", "decides a branch"),
        ("v_cmp_eq_u32_e32 vcc, 0, v9\ns_cbranch_vccz 0", "decides a branch"),
        ("v_cmp_eq_u32_e32 vcc, 0, v9\ns_and_saveexec_b64 s[20:21], vcc", "decides EXEC"),
        ("v_readfirstlane_b32 s20, v9\ns_cmp_eq_u32 s20, 0\ns_cbranch_scc1 0", "decides a branch"),
    ],
)
def test_undefined_values_in_control_and_addresses(text, what):
    outcome = execute(LOAD_POINTERS + text + "\ns_endpgm", words(), checks=["definedness", "bounds"])
    assert any(what in finding.message for finding in outcome.findings), outcome.findings


def test_undefined_lanes_that_are_masked_are_legal():
    text = (
        LOAD_POINTERS
        + """
        v_cmp_gt_u32_e32 vcc, 32, v0
        s_and_saveexec_b64 s[12:13], vcc
        v_mov_b32_e32 v2, 5
        s_nop 0
        {restore}
        global_store_dword v1, v2, s[8:9]
        s_endpgm
    """
    )
    outcome = execute(text.format(restore="s_nop 0"), words())
    assert (
        not outcome.findings
        and (outcome.outputs[0][:32] == 5).all()
        and (outcome.outputs[0][32:] == words()[32:]).all()
    )
    assert only(execute(text.format(restore="s_mov_b64 exec, s[12:13]"), words()), "definedness").lane == 32


def test_lds_and_scratch_remember_undefined_bits():
    text = (
        LOAD_POINTERS
        + """
        ds_write_b16 v1, v0
        s_waitcnt lgkmcnt(0)
        ds_read_b32 v2, v1
        s_waitcnt lgkmcnt(0)
        global_store_{width} v1, v2, s[8:9]
        s_endpgm
    """
    )
    assert not execute(text.format(width="short"), words(), lds=256).findings
    assert "byte 2 of v2" in only(execute(text.format(width="dword"), words(), lds=256), "definedness").message
    spill = (
        LOAD_POINTERS
        + """
        scratch_store_dwordx2 off, v[{pair}], off offset:8
        s_waitcnt vmcnt(0)
        scratch_load_dwordx2 v[6:7], off, off offset:8
        s_waitcnt vmcnt(0)
        global_store_dword v1, v6, s[8:9]
        s_endpgm
    """
    )
    assert not execute(spill.format(pair="0:1"), words(), scratch=16).findings
    assert only(execute(spill.format(pair="8:9"), words(), scratch=16), "definedness")


def test_an_undefined_row_of_a_matrix_product_spoils_its_row_only():
    prepare = "\n".join(f"v_mov_b32_e32 v{i}, 0" for i in range(4, 16))
    text = (
        LOAD_POINTERS
        + prepare
        + """
        s_mov_b32 exec_lo, {defined}
        v_mov_b32_e32 v20, 0
        s_mov_b64 exec, -1
        v_mov_b32_e32 v21, 0
        v_mov_b32_e32 v22, 0
        v_mov_b32_e32 v23, 0
        s_nop 1
        v_mfma_f32_16x16x32_bf16 v[12:15], v[20:23], v[4:7], v[12:15]
        s_nop 15
        s_mov_b64 exec, {stored}
        global_store_dword v1, v12, s[8:9]
        s_endpgm
    """
    )
    # row 5 of A lies in lanes 5, 21, 37, 53; row i of D in register i % 4 of lanes 16 (i / 4) ...
    undefined_row_5 = "0xffffffdf"
    assert execute(text.format(defined="-1", stored="-1"), words()).checks() == set()
    rows = execute(text.format(defined=undefined_row_5, stored="0xffff"), words())
    assert rows.checks() == set()  # lanes 0 to 15 of register 0 hold row 0
    text = text.replace("global_store_dword v1, v12", "global_store_dword v1, v13")
    assert only(execute(text.format(defined=undefined_row_5, stored="0xffff0000"), words()), "definedness").lane == 16


# ---- hazards
def test_a_wait_state_too_few_is_reported():
    text = """
        v_mov_b32_e32 v1, 0
        {fill}
        v_mov_b32_dpp v2, v1 row_shr:1 row_mask:0xf bank_mask:0xf bound_ctrl:1
        s_endpgm
    """
    finding = only(execute(text.format(fill="s_nop 0"), checks="hazards"), "hazards")
    assert "1 wait states of the 2 that rule dpp needs" in finding.message
    assert finding.text.startswith("v_mov_b32_dpp") and finding.other_text.startswith("v_mov_b32_e32 v1")
    assert not execute(text.format(fill="s_nop 1"), checks="hazards").findings
    assert not execute(text.format(fill="s_mov_b32 s8, 0\ns_mov_b32 s9, 0"), checks="hazards").findings


@pytest.mark.parametrize("fillers", [18, 19, 20])  # BL-21
def test_the_longest_window(fillers):
    text = "\n".join(
        [
            "v_mfma_f32_32x32x4_2b_f16 v[0:31], v[32:33], v[34:35], v[0:31]",
            *["s_nop 0"] * fillers,
            "v_mov_b32_e32 v40, v0",
            "s_endpgm",
        ]
    )
    assert bool(execute(text, checks="hazards").findings) == (fillers < 20)
    assert bool(execute(text, arch="gfx942", checks="hazards").findings) == (fillers < 19)


def test_hazards_follow_the_path_taken():
    text = """
        s_mov_b32 s8, 2
    loop:
        v_readlane_b32 s9, v0, s10
        s_sub_u32 s8, s8, 1
        v_readfirstlane_b32 s10, v0
        s_cmp_lg_u32 s8, 0
        s_cbranch_scc1 loop
        s_endpgm
    """
    finding = only(execute(text, checks="hazards"), "hazards")  # only around the back edge
    assert "2 wait states of the 4 that rule lane_select needs" in finding.message


def test_an_instruction_left_out_counts_for_no_wait_state():
    text = """
        v_mov_b32_e32 v1, 0
        s_nop 1
        v_readlane_b32 s8, v1, 0
        v_mov_b32_dpp v2, v1 row_shr:1 row_mask:0xf bank_mask:0xf
        s_endpgm
    """
    assert not execute(text, checks="hazards").findings
    assert len(execute(text, checks="hazards", without=[ENTRY + 4]).findings) == 2


# ---- LDS races
EXCHANGE = (
    LOAD_POINTERS
    + """
    v_xor_b32_e32 v3, 0x100, v1
    ds_write_b32 v1, v0
    {wait}
    {barrier}
    ds_read_b32 v2, v3
    s_waitcnt lgkmcnt(0)
    {again}
    global_store_dword v1, v2, s[8:9]
    s_endpgm
"""
)
WAIT, BARRIER = "s_waitcnt lgkmcnt(0)", "s_barrier"


@pytest.mark.parametrize("arch", ARCHS)
def test_an_exchange_between_waves_is_silent(arch):
    outcome = execute(EXCHANGE.format(wait=WAIT, barrier=BARRIER, again=""), words(128), block=128, lds=512, arch=arch)
    assert not outcome.findings and (outcome.outputs[0] == (np.arange(128) + 64) % 128).all()


@pytest.mark.parametrize(("wait", "barrier"), [("", BARRIER), (WAIT, ""), ("", "")])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_missing_wait_or_barrier_is_a_race(wait, barrier, seed):  # BL-05
    outcome = execute(
        EXCHANGE.format(wait=wait, barrier=barrier, again=""),
        words(128),
        block=128,
        lds=512,
        checks="lds_races",
        seed=seed,
        landing="early",
    )
    finding = only(outcome, "lds_races")
    assert {finding.text.split()[0], finding.other_text.split()[0]} == {"ds_read_b32", "ds_write_b32"}
    assert 0 <= finding.byte < 512 and finding.lane >= 0


def test_a_read_still_in_flight_at_a_barrier_races_with_the_refill():  # BL-01
    refill = "s_barrier\nds_write_b32 v1, v0\n"
    text = EXCHANGE.format(wait=WAIT, barrier=BARRIER, again=refill)
    assert not execute(text, words(128), block=128, lds=512).findings
    swapped = text.replace("s_waitcnt lgkmcnt(0)\n    s_barrier\nds_write", "s_barrier\nds_write")
    finding = only(execute(swapped, words(128), block=128, lds=512, checks="lds_races", landing="early"), "lds_races")
    assert {finding.text.split()[0], finding.other_text.split()[0]} == {"ds_read_b32", "ds_write_b32"}


def test_one_wave_is_ordered_with_itself():  # BL-09
    text = (
        LOAD_POINTERS
        + "ds_write_b32 v1, v0\nds_read_b32 v2, v1\ns_waitcnt lgkmcnt(0)\nglobal_store_dword v1, v2, s[8:9]\ns_endpgm"
    )
    outcome = execute(text, words(128), block=128, lds=512)
    assert not outcome.findings and (outcome.outputs[0] == np.arange(128)).all()


def test_equal_values_from_two_waves_are_no_race():
    text = "v_and_b32_e32 v1, 63, v0\nv_lshlrev_b32_e32 v1, 2, v1\nds_write_b32 v1, {value}\ns_endpgm"
    assert not execute(text.format(value="v1"), block=128, lds=256).findings
    assert only(execute(text.format(value="v0"), block=128, lds=256), "lds_races")


@pytest.mark.parametrize("size", [1, 2, 4])
def test_neighbouring_bytes_are_no_race(size):
    name = {1: "b8", 2: "b16", 4: "b32"}[size]
    text = f"v_mul_u32_u24_e32 v1, {size}, v0\nds_write_{name} v1, v0\ns_endpgm"
    assert not execute(text, block=128, lds=512).findings


COPY_TO_LDS = (
    LOAD_POINTERS
    + """
    s_mov_b32 s14, 0x7fffffff
    s_mov_b32 s15, 0x27000
    s_mov_b32 s12, s8
    s_and_b32 s13, s9, 0xffff
    s_mov_b32 m0, 0
    v_lshrrev_b32_e32 v4, 6, v0
    s_nop 1
    v_readfirstlane_b32 s16, v4
    s_lshl_b32 m0, s16, 8
    s_nop 0
    buffer_load_dword v1, s[12:15], 0 offen lds
    {wait}
    {barrier}
    v_xor_b32_e32 v3, {other}, v1
    ds_read_b32 v2, v3
    s_waitcnt lgkmcnt(0)
    global_store_dword v1, v2, s[10:11]
    s_endpgm
"""
)


@pytest.mark.parametrize("landing", ["late", "early"])
def test_copies_to_lds_need_wait_and_barrier(landing):  # BL-07
    source = np.arange(128, dtype=np.uint32) + 1000
    good = COPY_TO_LDS.format(wait="s_waitcnt vmcnt(0)", barrier=BARRIER, other="0x100")
    outcome = execute(good, source, words(128), block=128, lds=512, landing=landing)
    assert not outcome.findings and (outcome.outputs[1] == np.roll(source, 64)).all()
    no_barrier = COPY_TO_LDS.format(wait="s_waitcnt vmcnt(0)", barrier="", other="0x100")
    assert "lds_races" in execute(no_barrier, source, words(128), block=128, lds=512, landing=landing).checks()
    no_wait = COPY_TO_LDS.format(wait="", barrier=BARRIER, other="0x100")
    assert "lds_races" in execute(no_wait, source, words(128), block=128, lds=512, landing=landing).checks()
    own = COPY_TO_LDS.format(wait="", barrier="", other="0")
    finding = next(
        f
        for f in execute(own, source, words(128), block=128, lds=512, landing=landing).findings
        if f.check == "lds_races"
    )
    assert "not waited for" in finding.message and finding.other_text.startswith("buffer_load_dword")
    assert not execute(
        own.replace("v_xor", "s_waitcnt vmcnt(0)\nv_xor"), source, words(128), block=128, lds=512
    ).findings


def test_atomics_do_not_race_with_each_other():
    text = (
        LOAD_POINTERS
        + """
        v_mov_b32_e32 v2, 0
        v_mov_b32_e32 v3, 1
        ds_write_b32 v2, v2
        s_waitcnt lgkmcnt(0)
        s_barrier
        ds_add_u32 v2, v3
        s_waitcnt lgkmcnt(0)
        {barrier}
        ds_read_b32 v4, v2
        s_waitcnt lgkmcnt(0)
        global_store_dword v1, v4, s[8:9]
        s_endpgm
    """
    )
    outcome = execute(text.format(barrier=BARRIER), words(128), block=128, lds=16)
    assert not outcome.findings and (outcome.outputs[0] == 128).all()
    assert only(execute(text.format(barrier=""), words(128), block=128, lds=16), "lds_races")


# ---- barriers
def test_unequal_numbers_of_barriers_are_reported():  # BL-12
    text = """
        v_cmp_gt_u32_e32 vcc, 64, v0
        s_barrier
        s_cbranch_vccz skip
        s_barrier
    skip:
        s_endpgm
    """
    finding = only(execute(text, block=128), "barriers")
    assert finding.text == "s_barrier" and finding.other_text == "s_endpgm"
    assert not execute(text, block=64).findings


def test_staggered_waves_may_wait_at_different_barriers():
    text = """
        v_cmp_gt_u32_e32 vcc, 64, v0
        s_cbranch_vccz late
        s_barrier
        s_barrier
        s_endpgm
    late:
        s_nop 0
        s_barrier
        s_nop 0
        s_barrier
        s_endpgm
    """
    assert not execute(text, block=128).findings


# ---- global races
GLOBAL = LOAD_POINTERS + "v_mov_b32_e32 v2, s2\n{access}\ns_endpgm"


def test_workgroups_must_not_share_bytes_that_one_writes():
    shared = GLOBAL.format(access="global_store_dword v1, v2, s[8:9]")
    finding = only(execute(shared, words(), grid=(2, 1, 1)), "global_races")
    assert "buffer 0" in finding.message
    apart = GLOBAL.format(access="s_lshl_b32 s3, s2, 8\nv_add_u32_e32 v1, s3, v1\nglobal_store_dword v1, v2, s[8:9]")
    assert not execute(apart, words(128), grid=(2, 1, 1)).findings
    assert not execute(apart, words(128), grid=(2, 1, 1), resident=1).findings
    assert only(execute(shared, words(), grid=(2, 1, 1), resident=1), "global_races")
    atomic = GLOBAL.format(access="global_atomic_add v1, v2, s[8:9]")
    assert not execute(atomic, words(), grid=(3, 1, 1)).findings
    mixed = GLOBAL.format(
        access="global_atomic_add v1, v2, s[8:9]\ns_waitcnt vmcnt(0)\nglobal_load_dword v3, v1, s[8:9]"
    )
    assert only(execute(mixed, words(), grid=(3, 1, 1)), "global_races")
    reads = GLOBAL.format(access="global_load_dword v3, v1, s[8:9]")
    assert not execute(reads, words(), grid=(3, 1, 1)).findings


# ---- bounds
def test_bounds_by_byte_with_the_last_dword_rule():
    load = LOAD_POINTERS + "global_load_{width} v[2:{last}], v1, s[8:9] offset:{offset}\ns_waitcnt vmcnt(0)\ns_endpgm"
    store = LOAD_POINTERS + "v_mov_b32_e32 v2, 0\nglobal_store_dword v1, v2, s[8:9]\ns_endpgm"
    odd = np.zeros(64 * 4 - 2, np.uint8)  # the last dword is half valid
    assert not execute(load.format(width="dword", last=2, offset=0).replace("v[2:2]", "v2"), odd).findings
    finding = only(execute(store, odd), "bounds")
    assert (finding.lane, "writes 4 bytes" in finding.message) == (63, True)
    finding = only(execute(load.format(width="dwordx2", last=3, offset=0), words()), "bounds")
    assert finding.lane == 63 and "0 bytes past" not in finding.message
    assert (
        only(execute(load.format(width="dword", last=2, offset=4).replace("v[2:2]", "v2"), words()), "bounds").lane
        == 63
    )


def test_stores_to_read_only_buffers_and_lds_overruns_are_reported():
    store = LOAD_POINTERS + "v_mov_b32_e32 v2, 0\nglobal_store_dword v1, v2, s[8:9]\ns_endpgm"
    assert "read-only" in only(execute(store, words(), readonly=(0,)), "bounds").message
    text = "v_lshlrev_b32_e32 v1, 2, v0\nds_write_b32 v1, v0\ns_endpgm"
    finding = only(execute(text, lds=252), "bounds")
    assert finding.lane == 63 and "LDS" in finding.message and finding.byte == 252
    spill = "scratch_store_dword off, v0, off offset:16\ns_endpgm"
    assert only(execute(spill, scratch=16), "bounds")


def test_without_the_check_an_illegal_access_stops():
    text = LOAD_POINTERS + "v_mov_b32_e32 v2, 0\nglobal_store_dword v1, v2, s[8:9] offset:4\ns_endpgm"
    with pytest.raises(TilecError, match=r"illegal access of 4 bytes at .* by 0x\w+: global_store_dword") as caught:
        execute(text, words(), checks="none")
    assert "lane 63" in str(caught.value) and "past the end of buffer 0" in str(caught.value)


def test_checks_can_be_chosen():
    text = EXCHANGE.format(wait="", barrier="", again="")
    assert execute(text, words(128), block=128, lds=512, checks="none").findings == ()
    assert execute(text, words(128), block=128, lds=512, checks="definedness,hazards").findings == ()
    with pytest.raises(TilecError, match="no such check: luck"):
        execute(text, words(128), checks="luck")


def test_flat_loads_need_both_counters():
    text = (
        LOAD_POINTERS
        + """
        v_mov_b32_e32 v2, s8
        v_mov_b32_e32 v3, s9
        flat_load_dword v4, v[2:3]
        s_waitcnt {wait}
        v_mov_b32_e32 v5, v4
        s_endpgm
    """
    )
    assert not execute(text.format(wait="vmcnt(0) lgkmcnt(0)"), words(), checks="waits").findings
    assert only(execute(text.format(wait="vmcnt(0)"), words(), checks="waits"), "waits")
    assert only(execute(text.format(wait="lgkmcnt(0)"), words(), checks="waits"), "waits")


def test_a_flat_load_leaves_its_neighbours_unordered():
    """It may come back from LDS before an older load from memory does: vmcnt(1) then counts the older one."""
    text = (
        LOAD_POINTERS
        + """
        v_mov_b32_e32 v2, s8
        v_mov_b32_e32 v3, s9
        global_load_dword v5, v1, s[8:9]
        {second}
        s_waitcnt vmcnt(1) lgkmcnt(0)
        v_mov_b32_e32 v6, v5
        s_waitcnt vmcnt(0)
        s_endpgm
    """
    )
    assert only(execute(text.format(second="flat_load_dword v4, v[2:3]"), words(), checks="waits"), "waits")
    assert not execute(text.format(second="global_load_dword v4, v[2:3], off"), words(), checks="waits").findings


def test_a_finding_prints_both_instructions_and_the_place():
    outcome = execute(COPY.format(wait="s_nop 0"), np.arange(64, dtype=np.uint32), words(), checks="waits")
    text = str(outcome.findings[0])
    assert text.splitlines()[0] == ("waits: reads v2 while the load that writes it is in flight (workgroup 0, wave 0)")
    assert text.splitlines()[1:] == [
        "  at   0x101c: v_add_u32_e32 v3, 1, v2",
        "  with 0x1010: global_load_dword v2, v1, s[8:9]",
    ]
