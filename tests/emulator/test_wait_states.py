"""The emulator's own table of wait states against LLVM's hazard recogniser and against the compiler's table.

The pairs are those of tests/unit/test_hazards.py, which compares the compiler's table with the same oracle and
documents.
"""

from __future__ import annotations

import pytest

from tests.emulator.harness import ENTRY, assemble
from tests.unit import test_hazards as compiler
from tilec.emulator.decode import Program

ARCHS = ("gfx942", "gfx950")
LESS_THAN_THE_COMPILER = {"gstore_x4__dsread_w": 0, "gstore_x4__gload_w": 0}
"""The document asks for 1 before a load overwrites store data, LLVM for 0: no load returns that soon, and LLVM's
objects are right.
"""


def states(producer: str, consumer: str, arch: str) -> int:
    code = assemble(f"{producer}\n{consumer}\ns_endpgm", arch, vgprs=256, agprs=256)
    program = Program(code, code.kernels["k"])
    first, second = (program.instruction(i.address) for i in code.instructions[:2])
    assert first.address == ENTRY
    return max((needed for _, needed in program.decoded.hazards.needs(first, second)), default=0)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("producer", compiler.MATRIX)
def test_after_matrix_instructions(producer, arch):  # BL-16, BL-17, BL-18
    for consumer in compiler.ORACLE["mfma"][producer]:
        if consumer.endswith("srcCovl") and compiler.MATRIX[producer][2] == 2:
            continue  # no even register overlaps two without being the same
        pair = compiler.matrix(producer), compiler._after(consumer)
        found, ours = states(*pair, arch), compiler.states(*pair, arch)
        assert found == ours and found >= compiler.oracle(producer, consumer, arch), (producer, consumer, found, ours)


@pytest.mark.parametrize("arch", ARCHS)
def test_other_pairs(arch):  # BL-19
    checked = 0
    for name, (producer, consumer) in compiler.MISC.items():
        value = compiler.ORACLE["misc"][name]
        llvm = value if isinstance(value, int) else value[ARCHS.index(arch)]
        if llvm is None or "v_add3_u32" in producer:  # which has no op_sel for the assembler
            continue
        found = states(producer, consumer, arch)
        assert found == LESS_THAN_THE_COMPILER.get(name, compiler.states(producer, consumer, arch)), name
        assert found >= llvm, name
        checked += 1
    assert checked > 50


@pytest.mark.parametrize(
    ("producer", "consumer", "gfx942", "gfx950"),
    [
        ("v_cmpx_gt_u32 vcc, 1, v0", "v_mov_b32_dpp v1, v2 row_shr:1", 5, 5),
        ("v_cmpx_gt_u32 vcc, 1, v0", "global_store_dword v[2:3], v1, off", 5, 5),
        ("v_cmpx_gt_u32 vcc, 1, v0", "v_readfirstlane_b32 s4, v1", 4, 4),
        ("v_cmpx_gt_u32 vcc, 1, v0", "v_mfma_f32_16x16x16_f16 v[8:11], v[4:5], v[6:7], v[8:11]", 4, 4),
        ("s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), 0", "s_getreg_b32 s4, hwreg(HW_REG_MODE)", 2, 2),
        ("s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), 0", "s_getreg_b32 s4, hwreg(HW_REG_HW_ID)", 0, 0),
        ("v_dot2_f32_f16 v1, v2, v3, v4", "v_add_f32 v5, v1, v1", 3, 3),
        ("v_dot2_f32_f16 v1, v2, v3, v4", "v_dot2_f32_f16 v1, v2, v3, v1", 0, 0),
        ("v_dot2_f32_f16 v1, v2, v3, v4", "v_dot2_f32_f16 v5, v1, v3, v4", 3, 3),
        ("v_dot2_f32_f16 v4, v2, v3, v1", "v_mfma_f32_16x16x16_f16 v[8:11], v[4:5], v[6:7], v[8:11]", 3, 3),
        ("v_cvt_sr_fp8_f32 v1, v2, v3 op_sel:[0,0,0,1]", "v_mov_b32 v4, v1", 1, 1),
        ("v_mad_u16 v1, v2, v3, v4 op_sel:[0,0,0,1]", "v_mov_b32 v1, v5", 1, 1),
        ("v_mad_u16 v1, v2, v3, v4 op_sel:[1,0,0,0]", "v_mov_b32 v1, v5", 0, 0),
        ("v_mov_b32_sdwa v1, v2 dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:DWORD", "v_mov_b32 v4, v1", 1, 1),
    ],
)
def test_rows_that_the_oracle_lacks(producer, consumer, gfx942, gfx950):
    assert (states(producer, consumer, "gfx942"), states(producer, consumer, "gfx950")) == (gfx942, gfx950)


def test_one_more_state_when_the_opcode_changes_on_gfx950():  # BL-16
    first = "v_mfma_f32_16x16x32_f16 v[0:3], v[8:11], v[12:15], v[0:3]"
    second = "v_mfma_f32_16x16x16_f16 v[0:3], v[8:9], v[12:13], v[0:3]"
    assert states(first, second, "gfx950") == 6 and states(first, first, "gfx950") == 0


def test_scaled_products_take_their_passes_from_the_formats():
    fp8 = "v_mfma_f32_32x32x64_f8f6f4 v[0:15], v[16:23], v[24:31], v[0:15]"
    fp4 = "v_mfma_f32_32x32x64_f8f6f4 v[0:15], v[16:19], v[24:27], v[0:15] cbsz:4 blgp:4"
    assert states(fp8, "v_mov_b32 v40, v0", "gfx950") == 20 and states(fp4, "v_mov_b32 v40, v0", "gfx950") == 12
