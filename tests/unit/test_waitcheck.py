"""The checker of waits and LDS discipline: what it must refuse, and what is right and must pass."""

from __future__ import annotations

import pytest

from tests.support.assembly import program
from tilec.backend_amdgcn.waitcheck import check

COPY = "buffer_load_dwordx4 v20, s[4:7], 0 offen lds"


def faults(text: str, **options) -> list[str]:
    return [str(fault) for fault in check(program(text, **options))]


def test_message():
    assert faults("""
        ds_read_b128 v[0:3], v9 ; lds=a:0:64
        ds_read_b32 v4, v9
        v_mov_b32 v5, v2
    """) == ["v_mov_b32 reads what ds_read_b128 v[0:3] (a) has yet to deliver: lgkmcnt(1) is missing"]


@pytest.mark.parametrize("wait, right", [("", False), ("vmcnt(2)", False), ("vmcnt(1)", True), ("vmcnt(0)", True),
                                         ("lgkmcnt(0)", False)])
def test_counts(wait: str, right: bool):
    text = f"""
        global_load_dword v0, v[2:3], off
        global_store_dword v[2:3], v5, off
        {f's_waitcnt {wait}' if wait else ''}
        v_mov_b32 v1, v0
    """
    assert (faults(text) == []) == right


@pytest.mark.parametrize("register", ["v0", "v3", "a0", "a3"])
@pytest.mark.parametrize("use", ["A", "B", "C", "D"])
def test_matrix_instructions_are_observed(register: str, use: str):         # BL-10
    """Loads into accumulators and fragments: read as A, B and C, overwritten as D, in both files."""
    file = register[0]
    operands = {name: f"{file}[{8 * place + 8}:{8 * place + 11}]" for place, name in enumerate("ABCD")}
    operands[use] = f"{file}[0:3]"
    mfma = f"v_mfma_f32_16x16x32_bf16 {operands['D']}, {operands['A']}, {operands['B']}, {operands['C']}"
    load = f"global_load_dword {register}, v[60:61], off"
    assert len(faults(f"{load}\n{mfma}")) == 1
    assert faults(f"{load}\ns_waitcnt vmcnt(0)\n{mfma}") == []


def test_scalar_loads_need_zero():
    text = "s_load_dword s8, s[2:3], 0\ns_load_dword s9, s[2:3], 4\ns_waitcnt lgkmcnt({})\ns_mov_b32 s10, s8"
    assert faults(text.format(1)) and not faults(text.format(0))


def test_counters_at_their_maximum_prove_nothing():
    loads = "".join(f"global_load_dword v{i}, v[252:253], off\n" for i in range(80))
    assert faults(loads + "s_waitcnt vmcnt(63)\nv_mov_b32 v251, v0")
    assert not faults(loads + "s_waitcnt vmcnt(62)\nv_mov_b32 v251, v0")


def test_every_path_counts():
    text = """
        global_load_dword v0, v[2:3], off
        s_cbranch_scc0 join
        {}
        global_load_dword v1, v[2:3], off
    join:
        s_waitcnt vmcnt(1)
        v_mov_b32 v4, v0
    """
    assert len(faults(text.format(""))) == 1        # on the short path nothing stands behind the load
    assert faults(text.format("global_load_dword v5, v[2:3], off\ns_branch join")) != []


def test_results_of_earlier_trips():
    text = "loop:\nv_mov_b32 v1, v0\nglobal_load_dword v0, v[2:3], off\n{}\ns_cbranch_scc1 loop\ns_endpgm"
    assert faults(text.format("")) == [
        "v_mov_b32 reads what global_load_dword v0 has yet to deliver: vmcnt(0) is missing"]
    assert faults(text.format("s_waitcnt vmcnt(0)")) == []


def test_tokens_must_be_complete_where_they_are_named():
    text = f"{COPY} ; +a\n{COPY} ; +b\nc <- a\ns_waitcnt vmcnt({{}})\ns_barrier ; -c"
    assert faults(text.format(2)) == ["s_barrier waits for what buffer_load_dwordx4_lds has yet to deliver: "
                                      "vmcnt(1) is missing"]
    assert faults(text.format(1)) == []


ROUND_TRIP = """
    ds_write_b32 v1, v2 ; lds=a:0:256
    {}
    ds_read_b32 v0, v1 ; lds=a:0:256
"""


def test_writes_must_be_published():            # BL-05
    assert faults(ROUND_TRIP.format("s_waitcnt lgkmcnt(0)\ns_barrier")) == []
    assert faults(ROUND_TRIP.format("s_barrier")) == [
        "ds_read_b32 v0 (a) reads bytes of LDS that ds_write_b32 (a) writes, without a wait and a barrier between"]
    assert faults(ROUND_TRIP.format("s_waitcnt lgkmcnt(0)")) == [
        "ds_read_b32 v0 (a) reads bytes of LDS that ds_write_b32 (a) writes, without a barrier between"]
    assert faults(ROUND_TRIP.format("s_barrier\ns_waitcnt lgkmcnt(0)")) != []


def test_one_wave_keeps_its_own_order():        # BL-09
    assert faults(ROUND_TRIP.format(""), waves=1) == []
    assert faults(ROUND_TRIP.format("") + "v_mov_b32 v3, v0", waves=1) == [
        "v_mov_b32 reads what ds_read_b32 v0 (a) has yet to deliver: lgkmcnt(0) is missing"]


@pytest.mark.parametrize("waves", [1, 4])
def test_copies_keep_no_order_with_lds_instructions(waves: int):        # BL-14
    """Cleared, then filled by a copy, then read, then filled again."""
    barrier = "s_barrier\n" if waves > 1 else ""
    clear, copy = "ds_write_b32 v1, v2 ; lds=a:0:256\n", f"{COPY} ; lds=a:0:256\n"
    read = "ds_read_b32 v0, v1 ; lds=a:0:256\n"
    lgkm, vm = f"s_waitcnt lgkmcnt(0)\n{barrier}", f"s_waitcnt vmcnt(0)\n{barrier}"
    assert faults(clear + lgkm + copy + vm + read + lgkm + copy, waves=waves) == []
    for broken in (clear + copy, copy + read, read + copy, clear + vm + copy, copy + lgkm + read):
        assert faults(broken, waves=waves), broken


def test_disjoint_bytes_do_not_conflict():
    assert faults("ds_write_b32 v1, v2 ; lds=a:0:256\nds_read_b32 v0, v1 ; lds=b:256:512") == []
    assert faults("ds_write_b32 v1, v2 ; lds=a:0:257\nds_read_b32 v0, v1 ; lds=b:256:512") != []


LOOP = """
    {copy} ; +c0 lds=a:0:1024:2:0
loop:
    s_waitcnt vmcnt(0)
    s_barrier ; -c0
    {copy} ; +c1 lds=a:0:1024:2:1
    ds_read_b128 v[0:3], v9 ; +r lds=a:0:1024:2:0
    s_waitcnt lgkmcnt(0)
    {middle}
    v_mov_b32 v8, v0
    c0 <- c1
    s_cbranch_scc1 loop
    s_endpgm
"""


def test_rings_are_followed_around_the_loop():
    """Two slots: the copy of the next trip fills the slot that the trip before read, behind its barrier."""
    assert faults(LOOP.format(copy=COPY, middle="")) == []
    # The barrier is the only thing between the read of slot 0 and the copy into it one trip later.
    moved = LOOP.format(copy=COPY, middle="").replace("s_barrier ; -c0\n", "", 1)
    assert [f for f in faults(moved) if "overwrites" in f] and [f for f in faults(moved) if " reads bytes" in f]
    # One trip further ahead the copy would fill the slot that is being read.
    ahead = LOOP.replace("{copy} ; +c1 lds=a:0:1024:2:1", "{copy} ; +c1 lds=a:0:1024:2:0")
    assert faults(ahead.format(copy=COPY, middle="")) != []
    # Three slots need no barrier between read and refill in neighbouring trips; two trips on there is one.
    assert faults(LOOP.format(copy=COPY, middle="").replace(":2:1", ":3:2").replace(":2:0", ":3:0")) == []


def test_slots_known_at_run_time_only_are_left_to_the_emulator():
    text = "ds_write_b32 v1, v2 ; lds=a:0:256:2:?\nds_read_b32 v0, v1 ; lds={}:0:256{}"
    assert faults(text.format("a", ":2:?")) == []
    assert faults(text.format("b", "")) != []       # another buffer in the same bytes is no slot of the ring


# One half of the waves runs a phase behind the other: it passes a barrier more before, the others one more at the end.
STAGGERED = """
    {copy} ; +c lds=a:0:512
    s_waitcnt vmcnt(0)
    s_barrier ; -c
    s_cbranch_scc0 ahead
    s_barrier ; half=late
ahead:
    ds_read_b128 v[0:3], v9 ; lds=a:0:512
    s_waitcnt lgkmcnt(0)
    s_barrier
    {hand_over}
    {copy} ; lds=a:0:512
    s_waitcnt vmcnt(0)
    s_barrier
    {publish}
    ds_read_b128 v[4:7], v9 ; lds=a:0:512
    s_waitcnt lgkmcnt(0)
    s_cbranch_scc1 behind
    s_barrier ; half=early
behind:
    s_endpgm
"""


@pytest.mark.parametrize("hand_over, publish, right", [(0, 0, False), (1, 0, False), (0, 1, False), (1, 1, True)])
def test_staggered_waves_need_a_barrier_more(hand_over: int, publish: int, right: bool):        # BL-07
    """Waves that run ahead read what late waves have yet to publish, and refill what those still read."""
    found = faults(STAGGERED.format(copy=COPY, hand_over="s_barrier\n" * hand_over, publish="s_barrier\n" * publish))
    assert (found == []) == right
    assert any("overwrites" in fault for fault in found) == (not hand_over)


def test_unbalanced_barriers():                 # BL-12
    text = STAGGERED.format(copy=COPY, hand_over="s_barrier", publish="s_barrier")
    assert faults(text.replace("s_barrier ; half=early", "")) == ["waves that run behind pass +1 barriers by the end"]
    assert faults(text.replace("s_barrier ; half=late", "")) == ["waves that run behind pass -1 barriers by the end"]


def test_slots_by_number_before_the_loop():
    """A ring of three, two copies ahead: the second copy is still on its way when the first trip reads slot 0."""
    text = """
        {copy} ; +c0 lds=a:0:512
        {copy} ; +c1 lds=a:512:1024
    loop:
        s_waitcnt vmcnt({count})
        s_barrier ; -c0
        {copy} ; +c2 lds=a:0:1536:3:2
        ds_read_b128 v[0:3], v9 ; lds=a:0:1536:3:0
        s_waitcnt lgkmcnt(0)
        c0 <- c1
        c1 <- c2
        s_cbranch_scc1 loop
        {end}
        ds_write_b128 v9, v[0:3] ; lds=a:0:512
        s_endpgm
    """
    assert faults(text.format(copy=COPY, count=1, end="s_waitcnt vmcnt(0)\ns_barrier")) == []
    assert faults(text.format(copy=COPY, count=2, end="s_waitcnt vmcnt(0)\ns_barrier")) != []
    assert faults(text.format(copy=COPY, count=1, end="")) != []        # the last trip's slot may be any
