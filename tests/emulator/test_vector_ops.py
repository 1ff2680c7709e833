"""How operands reach the vector rows: modifiers, op_sel, DPP, SDWA, clamp, overlapping registers, lanes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.harness import LOAD_POINTERS, execute, words

LANE = np.arange(64, dtype=np.uint32)


def vector(text: str, arch: str = "gfx950", register: str = "v2", **options) -> np.ndarray:
    """What the register holds after `text`; v3 = lane, v4 = 0x01020304 * lane, v5 = 0x3c00bc00 (halves 1.0, -1.0)."""
    outcome = execute(
        LOAD_POINTERS
        + f"""
        v_mov_b32_e32 v3, v0
        s_mov_b32 s16, 0x01020304
        v_mul_lo_u32 v4, s16, v0
        v_mov_b32_e32 v5, 0x3c00bc00
        v_mov_b32_e32 v2, 0xdddddddd
        {text}
        s_nop 7
        global_store_dword v1, {register}, s[8:9]
        s_endpgm
        """,
        words(),
        arch=arch,
        checks=["definedness", "waits", "bounds"],
        **options,
    )
    assert not outcome.findings, outcome.findings
    return outcome.outputs[0]


def dpp(source, valid=None, old=0xDDDDDDDD):
    lanes = np.array([source(i) for i in range(64)])
    inside = np.ones(64, bool) if valid is None else np.array([valid(i) for i in range(64)])
    return np.where(inside, lanes, old).astype(np.uint32)


ROW = ~15


@pytest.mark.parametrize(("control", "source", "valid"), [
    ("quad_perm:[2,0,3,1]", lambda i: i & ~3 | (2, 0, 3, 1)[i & 3], None),
    ("row_shl:3", lambda i: i + 3, lambda i: (i & 15) + 3 < 16),
    ("row_shr:5", lambda i: i - 5, lambda i: (i & 15) >= 5),
    ("row_ror:4", lambda i: i & ROW | (i - 4) & 15, None),
    ("row_mirror", lambda i: i ^ 15, None),
    ("row_half_mirror", lambda i: i ^ 7, None),
    ("row_bcast:15", lambda i: (i & ROW) - 1, lambda i: i >= 16),
    ("row_bcast:31", lambda i: 31, lambda i: i >= 32),
    ("row_newbcast:6", lambda i: i & ROW | 6, None),
    ("wave_shr:1", lambda i: i - 1, lambda i: i > 0),
])  # fmt: skip
def test_dpp_moves(control, source, valid):
    got = vector(f"v_mov_b32_dpp v2, v3 {control} row_mask:0xf bank_mask:0xf")
    assert (got == dpp(source, valid)).all()
    got = vector(f"v_mov_b32_dpp v2, v3 {control} row_mask:0xf bank_mask:0xf bound_ctrl:1")
    assert (got == dpp(source, valid, 0)).all()


def test_dpp_masks_inactive_lanes_and_its_own_destination():
    got = vector("v_mov_b32_dpp v2, v3 row_shr:1 row_mask:0x5 bank_mask:0x3 bound_ctrl:1")
    written = ((LANE >> 4) % 2 == 0) & ((LANE >> 2) % 4 < 2)
    assert (got == np.where(written, np.where(LANE % 16 > 0, LANE - 1, 0), 0xDDDDDDDD)).all()
    got = vector("v_mov_b32_dpp v3, v3 row_shr:1 row_mask:0xf bank_mask:0xf", register="v3")
    assert (got == np.where(LANE % 16 > 0, LANE - 1, LANE)).all()  # reads before any write
    move = "v_mov_b32_dpp v2, v3 row_shr:1 row_mask:0xf bank_mask:0xf{end}"
    text = f"s_mov_b32 exec_lo, 0xfffffff0\n{move}\ns_mov_b64 exec, -1"
    active = (LANE >= 4) & (LANE % 16 > 0)
    assert (vector(text.format(end="")) == np.where(active & (LANE > 4), LANE - 1, 0xDDDDDDDD)).all()
    zero_filled = np.where(LANE < 4, 0xDDDDDDDD, np.where(active & (LANE > 4), LANE - 1, 0))
    assert (vector(text.format(end=" bound_ctrl:1")) == zero_filled).all()


def test_dpp_in_arithmetic():
    got = vector("v_add_u32_dpp v2, v3, v3 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf")
    assert (got == (LANE ^ 1) + LANE).all()


@pytest.mark.parametrize(
    ("select", "shift", "mask"),
    [("BYTE_0", 0, 255), ("BYTE_3", 24, 255), ("WORD_1", 16, 0xFFFF), ("DWORD", 0, 0xFFFFFFFF)],
)
def test_sdwa_sources(select, shift, mask):
    value = LANE * np.uint32(0x01020304)
    got = vector(f"v_add_u32_sdwa v2, v4, v3 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:{select} src1_sel:DWORD")
    assert (got == (value >> shift & mask) + LANE).all()


@pytest.mark.parametrize(("unused", "expected"), [
    ("UNUSED_PRESERVE", lambda x: 0xDD00DDDD | (x & 255) << 16),
    ("UNUSED_PAD", lambda x: (x & 255) << 16),
    ("UNUSED_SEXT", lambda x: ((x & 255) << 16) | (np.where(x & 128, 0xFF000000, 0)).astype(np.uint32)),
])  # fmt: skip
def test_sdwa_destinations(unused, expected):
    got = vector(f"v_mov_b32_sdwa v2, v4 dst_sel:BYTE_2 dst_unused:{unused} src0_sel:BYTE_0")
    value = LANE * np.uint32(0x01020304)
    assert (got == expected(value)).all()


def test_sdwa_signs_and_scalar_sources():
    low = (LANE * np.uint32(0x01020304) & 0xFFFF).astype(np.uint16)
    got = vector("v_mov_b32_sdwa v2, sext(v4) dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_0")
    assert (got.view(np.int32) == low.view(np.int16)).all()
    got = vector(
        "s_movk_i32 s17, 0x1234\n"
        "v_add_u32_sdwa v2, s17, v3 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_1 src1_sel:DWORD"
    )
    assert (got == 0x12 + LANE).all()
    got = vector("v_add_f16_sdwa v2, -v5, |v5| dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1 src1_sel:WORD_0")
    assert (got == 0).all()


def test_op_sel_takes_and_gives_halves():
    assert (vector("v_mad_u16 v2, v4, v3, v3 op_sel:[1,0,0,1]") ==
            (LANE * np.uint32(0x01020304) >> 16) * LANE + LANE << 16 & 0xFFFF0000 | 0xDDDD).all()  # fmt: skip
    assert (vector("v_pk_add_f16 v2, v5, v5 op_sel:[0,1] op_sel_hi:[1,0]") == 0).all()
    assert (vector("v_pk_mul_f16 v2, v5, v5 neg_lo:[1,0] neg_hi:[0,1]") == 0xBC00BC00).all()
    assert (vector("v_fma_mix_f32 v2, v5, v5, 1.0 op_sel:[1,0,0] op_sel_hi:[1,1,0]") == 0).all()
    assert (vector("v_cvt_pk_fp8_f32 v2, 1.0, 2.0 op_sel:[0,0,1]") == 0x4038DDDD).all()


def test_source_and_output_modifiers():
    assert (vector("v_mul_f32_e64 v2, -4.0, |-2.0| clamp".replace("|-2.0|", "2.0")) == 0).all()
    assert (vector("v_mul_f32_e64 v2, 4.0, 2.0 clamp").view(np.float32) == 1).all()
    assert (vector("v_mul_f32_e64 v2, 4.0, 2.0 mul:4").view(np.float32) == 32).all()
    assert (vector("v_mul_f32_e64 v2, 4.0, 2.0 div:2").view(np.float32) == 4).all()
    assert (vector("v_add_u32_e64 v2, -1, v3 clamp") == np.where(LANE > 0, 0xFFFFFFFF, 0xFFFFFFFF)).all()
    assert (
        vector("v_cvt_f32_u32_e32 v6, v3\nv_fma_f32 v2, -v6, |v6|, v6").view(np.float32)
        == LANE - LANE.astype(float) ** 2
    ).all()


def test_registers_may_overlap_and_trade_places():
    assert (vector("v_mov_b32_e32 v6, 7\nv_swap_b32 v6, v3", register="v3") == 7).all()
    assert (vector("v_mov_b32_e32 v6, 7\nv_swap_b32 v6, v3", register="v6") == LANE).all()
    add = "v_mov_b32_e32 v8, v3\nv_mov_b32_e32 v9, v4\nv_lshl_add_u64 v[8:9], v[8:9], 1, v[8:9]"
    assert (vector(add, register="v8") == LANE * 3).all()
    got = vector(
        "v_mov_b32_e32 v6, v3\nv_mov_b32_e32 v7, v4\nv_pk_mov_b32 v[6:7], v[6:7], v[6:7] op_sel:[1,0]", register="v7"
    )
    assert (got == LANE).all()


def test_lanes_and_scalars():
    assert (vector("v_readlane_b32 s17, v4, 9\nv_mov_b32_e32 v2, s17") == 9 * 0x01020304).all()
    got = vector("s_mov_b32 s17, 77\nv_writelane_b32 v2, s17, 13")
    assert (got == np.where(LANE == 13, 77, 0xDDDDDDDD)).all()
    text = "s_mov_b64 exec, {mask}\nv_readfirstlane_b32 s17, v3\ns_mov_b64 exec, -1\nv_mov_b32_e32 v2, s17"
    assert (vector(text.format(mask="0xff00")) == 8).all() and (vector(text.format(mask="0")) == 0).all()
    swap = "v_add_u32_e32 v6, 0x100, v3\nv_permlane{n}_swap_b32_e32 v3, v6"
    for n in (16, 32):
        upper = LANE & n != 0
        assert (vector(swap.format(n=n), register="v3") == np.where(upper, (LANE ^ n) + 0x100, LANE)).all()
        assert (vector(swap.format(n=n), register="v6") == np.where(upper, LANE + 0x100, LANE ^ n)).all()


def test_lane_masks():
    got = vector("v_cmp_lt_u32_e64 s[18:19], 9, v3\nv_cndmask_b32_e64 v2, v3, 1, s[18:19]")
    assert (got == np.where(LANE > 9, 1, LANE)).all()
    got = vector(
        "s_mov_b64 exec, 0xf0\nv_cmp_le_u32_e32 vcc, 6, v3\ns_mov_b64 exec, -1\nv_cndmask_b32_e64 v2, 0, 1, vcc"
    )
    assert (got == ((LANE >= 6) & (LANE < 8))).all()  # inactive lanes give 0
    got = vector("v_cmpx_lt_u32_e32 vcc, 40, v3\nv_mov_b32_e32 v2, 1\ns_mov_b64 exec, -1")
    assert (got == np.where(LANE > 40, 1, 0xDDDDDDDD)).all()
    got = vector("v_mov_b32_e32 v6, -1\nv_add_co_u32_e32 v6, vcc, v6, v3\nv_addc_co_u32_e32 v2, vcc, 0, v3, vcc")
    assert (got == LANE + (LANE > 0)).all()


def test_mfma_reads_before_it_writes():
    """D may overlap A, B and C partly when it has four registers."""
    ones = (
        "".join(f"v_mov_b32_e32 v{r}, 0x3c003c00\n" for r in (6, 7, 8, 9))
        + "v_mov_b32_e32 v10, 0\nv_mov_b32_e32 v11, 0\n"
    )
    got = vector(ones + "s_nop 1\nv_mfma_f32_16x16x16_f16 v[8:11], v[6:7], v[8:9], 1.0\ns_nop 15", register="v9")
    assert (got.view(np.float32) == 17).all()
    got = vector(
        ones
        + "s_mov_b64 exec, 1\ns_nop 1\nv_mfma_f32_16x16x16_f16 v[8:11], v[6:7], v[8:9], 0\n"
        + "s_mov_b64 exec, -1\ns_nop 15",
        register="v8",
    )
    assert (got.view(np.float32) == 16).all()  # EXEC does not matter
