"""Random programs on undefined registers: whatever the shadow calls defined must not depend on what was undefined.

Each program runs under several seeds, which put different garbage into registers and LDS. At the end, every bit of
every register that the definedness check holds for defined has to be the same in all runs.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.emulator.harness import execute
from tilec.emulator import EventSink
from tilec.emulator.operands import SGPR

VECTOR = (
    "v_mov_b32_e32 {d}, {a}",
    "v_and_b32_e32 {d}, {a}, {b}",
    "v_or_b32_e32 {d}, {a}, {b}",
    "v_xor_b32_e32 {d}, {a}, {b}",
    "v_not_b32_e32 {d}, {a}",
    "v_bfi_b32 {d}, {a}, {b}, {c}",
    "v_and_or_b32 {d}, {a}, {b}, {c}",
    "v_lshlrev_b32_e32 {d}, {n}, {a}",
    "v_lshrrev_b32_e32 {d}, {n}, {a}",
    "v_ashrrev_i32_e32 {d}, {n}, {a}",
    "v_lshlrev_b32_e32 {d}, {a}, {b}",
    "v_perm_b32 {d}, {a}, {b}, {s}",
    "v_bfe_u32 {d}, {a}, {n}, 7",
    "v_bfe_i32 {d}, {a}, {n}, {b}",
    "v_alignbit_b32 {d}, {a}, {b}, {n}",
    "v_add_u32_e32 {d}, {a}, {b}",
    "v_sub_u32_e32 {d}, {a}, {b}",
    "v_lshl_add_u32 {d}, {a}, {n}, {b}",
    "v_mul_lo_u32 {d}, {a}, {b}",
    "v_add3_u32 {d}, {a}, {b}, {c}",
    "v_mul_hi_u32 {d}, {a}, {b}",
    "v_mul_f32_e32 {d}, {a}, {b}",
    "v_fma_f32 {d}, {a}, -{b}, |{c}|",
    "v_cvt_f32_u32_e32 {d}, {a}",
    "v_cndmask_b32_e32 {d}, {a}, {b}, vcc",
    "v_cmp_lt_u32_e32 vcc, {a}, {b}",
    "v_cmp_eq_f32_e64 s[{p}:{q}], {a}, {b}",
    "v_cndmask_b32_e64 {d}, {a}, {b}, s[{p}:{q}]",
    "v_pk_add_f16 {d}, {a}, {b}",
    "v_pk_lshlrev_b16 {d}, {a}, {b}",
    "v_pack_b32_f16 {d}, {a}, {b} op_sel:[1,0,0]",
    "v_cvt_pk_u16_u32 {d}, {a}, {b}",
    "v_max_u16_e32 {d}, {a}, {b}",
    "v_mov_b32_dpp {d}, {a} row_shr:3 row_mask:0xf bank_mask:0xf",
    "v_add_u32_dpp {d}, {a}, {b} quad_perm:[1,0,3,2] row_mask:0xa bank_mask:0xf",
    "v_mov_b32_sdwa {d}, {a} dst_sel:BYTE_2 dst_unused:UNUSED_PRESERVE src0_sel:BYTE_1",
    "v_add_u16_sdwa {d}, {a}, {b} dst_sel:WORD_1 dst_unused:UNUSED_PAD src0_sel:WORD_0 src1_sel:BYTE_3",
    "v_mad_u64_u32 v[8:9], vcc, {a}, {b}, v[10:11]",
    "v_lshlrev_b64 v[10:11], {n}, v[8:9]",
    "v_readlane_b32 {s}, {a}, 5",
    "v_writelane_b32 {d}, {s}, 9",
    "v_readfirstlane_b32 {s}, {a}",
    "v_mad_u32_u24 {d}, {a}, {b}, {c}",
    "v_sad_u8 {d}, {a}, {b}, {c}",
    "v_med3_i32 {d}, {a}, {b}, {c}",
    "v_mbcnt_lo_u32_b32 {d}, {a}, {b}",
    "v_add_co_u32_e32 {d}, vcc, {a}, {b}",
    "v_addc_co_u32_e32 {d}, vcc, {a}, {b}, vcc",
    "v_xad_u32 {d}, {a}, {b}, {c}",
    "v_bitop3_b32 {d}, {a}, {b}, {c} bitop3:0x6c",
    "v_permlane32_swap_b32_e32 {d}, {a}",
    "ds_bpermute_b32 {d}, v12, {a}\ns_waitcnt lgkmcnt(0)",
    "ds_swizzle_b32 {d}, {a} offset:swizzle(SWAP,4)\ns_waitcnt lgkmcnt(0)",
    "ds_write_b8 v13, {a}\nds_read_b32 {d}, v13\ns_waitcnt lgkmcnt(0)",
    "ds_write_b16_d16_hi v13, {a} offset:2\ns_waitcnt lgkmcnt(0)",
    "ds_read_u8_d16_hi {d}, v13 offset:1\ns_waitcnt lgkmcnt(0)",
    "ds_read_i16 {d}, v13 offset:2\ns_waitcnt lgkmcnt(0)",
    "scratch_store_dword off, {a}, off offset:4\nscratch_load_ushort {d}, off, off offset:6\ns_waitcnt vmcnt(0)",
    "v_mfma_f32_16x16x16_f16 v[16:19], v[4:5], v[6:7], v[16:19]\ns_nop 15",
    "v_mov_b32_e32 {d}, v17",
)
SCALAR = (
    "s_and_b32 {s}, {t}, {u}",
    "s_or_b64 s[20:21], s[22:23], s[24:25]",
    "s_andn2_b32 {s}, {t}, 0xff00",
    "s_add_u32 {s}, {t}, {u}",
    "s_addc_u32 {s}, {t}, {u}",
    "s_lshl_b32 {s}, {t}, {n}",
    "s_mul_i32 {s}, {t}, {u}",
    "s_cselect_b32 {s}, {t}, {u}",
    "s_cmp_lg_u32 {s}, {t}",
    "s_bfe_u32 {s}, {t}, 0x80004",
    "s_min_u32 {s}, {t}, {u}",
    "s_mov_b64 vcc, s[22:23]",
    "s_ff1_i32_b32 {s}, {t}",
    "s_bcnt1_i32_b64 {s}, s[20:21]",
    "s_pack_ll_b32_b16 {s}, {t}, {u}",
    "s_sub_i32 {s}, {t}, {u}",
    "s_lshl2_add_u32 {s}, {t}, {u}",
)


class Last(EventSink):
    """Keeps the state of the wave at its end."""

    def before(self, batch, instruction):
        if instruction.name == "s_endpgm":
            undefined = batch.undefined
            self.vector = batch.v[:, 0].copy()
            self.scalar = batch.s[:, 0].copy()
            self.masks = {register: bits[0].copy() for register, bits in undefined.items()}

    def after(self, batch, instruction):
        pass


def program(generator: random.Random, length: int) -> str:
    lines = ["v_lshlrev_b32_e32 v13, 2, v0", "v_mul_u32_u24_e32 v12, 20, v0"]
    for register in generator.sample(range(2, 12), 5):
        lines.append(f"v_mul_u32_u24_e32 v{register}, {generator.randrange(1 << 20):#x}, v0")
    for register in generator.sample(range(20, 28), 4):
        lines.append(f"s_mov_b32 s{register}, {generator.getrandbits(32):#x}")
    lines += ["s_mov_b32 exec_lo, 0xfff0ffff"] if generator.random() < 0.4 else []
    for _ in range(length):
        text = generator.choice(VECTOR if generator.random() < 0.8 else SCALAR)
        pair = generator.choice((20, 22, 24, 26))
        names = {c: f"v{generator.randrange(2, 12)}" for c in "abcd"} | {
            c: f"s{generator.randrange(20, 28)}" for c in "stu"
        }
        lines.append(text.format(n=generator.randrange(32), p=pair, q=pair + 1, **names))
    return "\n".join([*lines, "s_endpgm"])


def check(seed: int, length: int) -> int:
    """Number of bits held for defined that were compared."""
    text = program(random.Random(seed), length)
    ends = []
    for garbage in (1, 2, 3):
        last = Last()
        execute(
            text, arch="gfx950", vgprs=64, agprs=0, lds=256, scratch=16, seed=garbage, checks="definedness", sink=last
        )
        ends.append(last)
    defined = 0
    for register in (*range(64), *range(SGPR + 20, SGPR + 28), SGPR + 106, SGPR + 107, SGPR + 128):
        values = [end.vector[register] if register < SGPR else end.scalar[register - SGPR] for end in ends]
        known = ~(
            ends[0].masks.get(register, np.uint32(0))
            | ends[1].masks.get(register, np.uint32(0))
            | ends[2].masks.get(register, np.uint32(0))
        )
        for other in values[1:]:
            wrong = (values[0] ^ other) & known
            assert not wrong.any(), (
                f"seed {seed}: register {register} depends on garbage in bits {np.max(wrong):#x}\n{text}"
            )
        defined += int(np.bitwise_count(np.broadcast_to(known, np.shape(values[0])).astype(np.uint32)).sum())
    return defined


@pytest.mark.parametrize("seed", range(25))
def test_defined_bits_do_not_depend_on_garbage(seed):
    assert check(seed, 25) > 64


@pytest.mark.slow
def test_many_programs():
    for seed in range(1000, 3000):
        check(seed, 40)
