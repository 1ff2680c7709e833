"""Wait states: the table against LLVM's own hazard recogniser, and the pass and its checker on whole programs."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mutation.mutants import mutants
from tests.support.assembly import instruction, program
from tilec.backend_amdgcn import emit, hazardcheck, hazards, isa
from tilec.backend_amdgcn.hazard_table import RULES, WINDOW, effects, required
from tilec.ir.machine import Instruction, Physical, Program
from tilec.target import target

ARCHITECTURES = ("gfx942", "gfx950")
ORACLE = json.loads((Path(__file__).parent.parent / "data" / "hazard_oracle.json").read_text())

# A matrix instruction of each class and number of passes: mnemonic, dwords of A and B, of C and D.
MATRIX = {
    "xdl2": ("v_mfma_f32_4x4x4_16b_f16", 2, 4), "xdl4": ("v_mfma_f32_16x16x16_f16", 2, 4),
    "xdl8": ("v_mfma_f32_32x32x8_f16", 2, 16), "xdl16": ("v_mfma_f32_32x32x4_2b_f16", 2, 32),
    "sg2": ("v_mfma_f32_4x4x1_16b_f32", 1, 4), "sg8": ("v_mfma_f32_16x16x4_f32", 1, 4),
    "sg16": ("v_mfma_f32_32x32x2_f32", 1, 16), "dg4": ("v_mfma_f64_4x4x4_4b_f64", 2, 2),
    "dg16": ("v_mfma_f64_16x16x4_f64", 2, 8),
}


def states(producer: str, consumer: str, arch: str) -> int:
    return required(*(effects(instruction(code, arch), arch) for code in (producer, consumer)))[0]


def _v(first: int, size: int) -> str:
    return f"v{first}" if size == 1 else f"v[{first}:{first + size - 1}]"


def matrix(name: str, d: int = 0, a: int = 64, b: int = 68, c: int = 72) -> str:
    mnemonic, ab, cd = MATRIX[name]
    return f"{mnemonic} {_v(d, cd)}, {_v(a, ab)}, {_v(b, ab)}, {_v(c, cd)}"


# What the oracle's names mean: the consumer of a producer whose D starts at v0, A at v64, B at v68 and C at v72.
AFTER_MATRIX = {
    "VALU_RAW": "v_add_f32 v200, v1, v1", "VALU_WAW": "v_mov_b32 v1, 0",
    "VMEM_R": "global_store_dword v[220:221], v1, off", "VMEM_W": "global_load_dword v1, v[220:221], off",
    "DS_R": "ds_write_b32 v220, v1", "DS_W": "ds_read_b32 v1, v220",
    "BUF_R": "buffer_store_dword v1, v220, s[4:7], 0 offen",
    "SRCC_WAR": "v_mov_b32 v72, 0", "SRCA_WAR": "v_mov_b32 v64, 0",
    "SRCC_WAR_LOAD": "global_load_dword v72, v[220:221], off",
}


def _after(name: str) -> str:
    if name in AFTER_MATRIX:
        return AFTER_MATRIX[name]
    consumer, use, *_ = name.split("_")
    place = {"srcCsame": {"c": 0, "d": 128}, "srcCovl": {"c": 2, "d": 128}, "srcA": {"a": 0, "d": 128, "c": 160},
             "srcB": {"b": 0, "d": 128, "c": 160}, "dstWAW": {"d": 0, "c": 160}}[use]
    return matrix(consumer, **{"a": 192, "b": 196, **place})


def oracle(producer: str, consumer: str, arch: str) -> int:
    value = ORACLE["mfma"][producer][consumer]
    return value if isinstance(value, int) else value[ARCHITECTURES.index(arch)]


def _documented(producer: str, consumer: str, arch: str, llvm: int) -> int:
    """Where the table keeps more than LLVM inserts: one opcode alone forwards its result as SrcC, whatever the passes;
    CDNA3's table has SGEMM before XDL, where LLVM and CDNA4's have 0; f64 16x16x4 takes twice as long on gfx950."""
    to, _, use = consumer.partition("_")
    if use.startswith("srcC") and producer != to:
        if producer[0] == "x":
            other = producer if to[0] == "x" else "sg2" if producer == "xdl16" else "sg16"
            return oracle(producer, f"{other}_srcCovl", arch)
        if producer[0] == "s":
            return oracle(producer, f"{producer}_srcCovl", arch)
    if producer == "dg16" and arch == "gfx950":
        return {"VALU_WAW": 19, "VMEM_R": 19, "DS_R": 19, "BUF_R": 19, "VMEM_W": 19, "DS_W": 19}.get(consumer, llvm)
    return llvm


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("producer", MATRIX)
def test_after_matrix_instructions(producer: str, arch: str):       # BL-17, BL-18
    """Every class and number of passes before every kind of use, against LLVM's recogniser."""
    for consumer in ORACLE["mfma"][producer]:
        if consumer.endswith("srcCovl") and MATRIX[producer][2] == 2:
            continue                                # no even register overlaps two without being the same
        llvm = oracle(producer, consumer, arch)
        wanted = _documented(producer, consumer, arch, llvm)
        assert wanted >= llvm
        found = states(matrix(producer), _after(consumer), arch)
        assert found == wanted, f"{producer} {consumer}: {found}, LLVM {llvm}, wanted {wanted}"


CHAIN = "v_mfma_f32_16x16x16_f16 a[0:3], v[2:3], v[4:5], a[0:3]"
FROM_AGPRS = "v_mfma_f32_16x16x16_f16 a[0:3], a[8:9], v[4:5], a[4:7]"
MISC = {        # the oracle's names: producer, consumer
    "valu_vgpr__mfma_A": ("v_mov_b32 v64, 0", matrix("xdl4")),
    "valu_vgpr__mfma_B": ("v_mov_b32 v68, 0", matrix("xdl4")),
    "valu_vgpr__mfma_C": ("v_mov_b32 v72, 0", matrix("xdl4")),
    "valu_vgpr__mfma_D_WAW": ("v_mov_b32 v0, 0", matrix("xdl4")),
    "accwrite__mfma_A": ("v_accvgpr_write_b32 a0, v1", "v_mfma_f32_16x16x16_f16 v[8:11], a[0:1], v[4:5], v[8:11]"),
    "accwrite__mfma_C": ("v_accvgpr_write_b32 a0, v1", "v_mfma_f32_16x16x16_f16 a[0:3], v[2:3], v[4:5], a[0:3]"),
    "mfma__accread": (CHAIN, "v_accvgpr_read_b32 v9, a1"),
    "mfma__accwrite_WAW": (CHAIN, "v_accvgpr_write_b32 a1, v9"),
    "mfma__accwrite_srcC_WAR": (FROM_AGPRS, "v_accvgpr_write_b32 a4, v9"),
    "mfma__dsread_agpr_srcA_WAR": (FROM_AGPRS, "ds_read_b32 a8, v9"),
    "mfma__dsread_agpr_dst_WAW": (FROM_AGPRS, "ds_read_b32 a1, v9"),
    "trans__mfma_A": ("v_exp_f32 v64, v1", matrix("xdl4")), "trans__valu": ("v_exp_f32 v0, v1", "v_add_f32 v2, v0, v3"),
    "trans__valu_WAW": ("v_exp_f32 v0, v1", "v_mov_b32 v0, v3"),
    "trans__trans": ("v_exp_f32 v0, v1", "v_log_f32 v2, v0"),
    "trans__store": ("v_exp_f32 v0, v1", "global_store_dword v[2:3], v0, off"),
    "trans__ds_write": ("v_exp_f32 v0, v1", "ds_write_b32 v2, v0"),
    "valu_vgpr__store_addr": ("v_mov_b32 v2, v1", "global_store_dword v[2:3], v0, off"),
    "valu_vgpr__ds_addr": ("v_mov_b32 v2, v1", "ds_read_b32 v0, v2"),
    "readfirstlane__buffer_rsrc": ("v_readfirstlane_b32 s4, v0", "buffer_load_dword v1, v2, s[4:7], 0 offen"),
    "readfirstlane__buffer_soffset": ("v_readfirstlane_b32 s9, v0", "buffer_load_dword v1, v2, s[4:7], s9 offen"),
    "readfirstlane__bufload_lds_soff": ("v_readfirstlane_b32 s9, v0", "buffer_load_dwordx4 v2, s[4:7], s9 offen lds"),
    "salu__buffer_rsrc": ("s_mov_b32 s4, 0", "buffer_load_dword v1, v2, s[4:7], 0 offen"),
    "readfirstlane__sload": ("v_readfirstlane_b32 s4, v0", "s_load_dword s8, s[4:5], 0"),
    "readfirstlane__salu": ("v_readfirstlane_b32 s4, v0", "s_add_u32 s8, s4, 1"),
    "readfirstlane__valu_const": ("v_readfirstlane_b32 s4, v0", "v_add_f32 v1, s4, v2"),
    "vcmp_vcc__cndmask": ("v_cmp_lt_f32 vcc, v0, v1", "v_cndmask_b32 v2, v3, v4, vcc"),
    "vcmp_sgpr__cndmask": ("v_cmp_lt_f32 s[4:5], v0, v1", "v_cndmask_b32 v2, v3, v4, s[4:5]"),
    "vcmp_vcc__addc": ("v_cmp_lt_f32 vcc, v0, v1", "v_addc_co_u32 v2, vcc, v3, v4, vcc"),
    "vcmp_vcc__s_and_saveexec": ("v_cmp_lt_f32 vcc, v0, v1", "s_and_saveexec_b64 s[4:5], vcc"),
    "vcmp_vcc__div_fmas": ("v_cmp_lt_f32 vcc, v0, v1", "v_div_fmas_f32 v2, v3, v4, v5"),
    "salu_exec__valu": ("s_mov_b64 exec, s[4:5]", "v_mov_b32 v0, v1"),
    "salu_exec__dpp": ("s_mov_b64 exec, s[4:5]", "v_mov_b32_dpp v0, v1 row_shr:1"),
    "salu_exec__mfma": ("s_mov_b64 exec, s[4:5]", matrix("xdl4")),
    "salu_exec__readlane": ("s_mov_b64 exec, s[4:5]", "v_readlane_b32 s9, v1, 3"),
    "valu_vgpr__dpp": ("v_mov_b32 v1, v9", "v_mov_b32_dpp v0, v1 row_shr:1"),
    "valu_vgpr__dpp_old": ("v_mov_b32 v0, v9", "v_mov_b32_dpp v0, v1 row_shr:1"),
    "valu_vgpr__readfirstlane": ("v_mov_b32 v1, v9", "v_readfirstlane_b32 s9, v1"),
    "valu_vgpr__readlane": ("v_mov_b32 v1, v9", "v_readlane_b32 s9, v1, 3"),
    "valu_sgpr__readlane_sel": ("v_readfirstlane_b32 s4, v0", "v_readlane_b32 s9, v1, s4"),
    "salu_sgpr__readlane_sel": ("s_mov_b32 s4, 3", "v_readlane_b32 s9, v1, s4"),
    "salu_m0__bufload_lds": ("s_mov_b32 m0, s4", "buffer_load_dword v2, s[4:7], 0 offen lds"),
    "salu_m0__bufload_lds_x4": ("s_mov_b32 m0, s4", "buffer_load_dwordx4 v2, s[4:7], 0 offen lds"),
    "salu_m0__ds_read": ("s_mov_b32 m0, s4", "ds_read_b32 v0, v1"),
    "gstore_x4__valu_w": ("global_store_dwordx4 v[8:9], v[0:3], off", "v_mov_b32 v3, 0"),
    "gstore_x3__valu_w": ("global_store_dwordx3 v[8:9], v[0:2], off", "v_mov_b32 v2, 0"),
    "gstore_x2__valu_w": ("global_store_dwordx2 v[8:9], v[0:1], off", "v_mov_b32 v1, 0"),
    "gstore_x4__mfma_w": ("global_store_dwordx4 v[8:9], v[0:3], off", matrix("xdl4")),
    "gstore_x4__dsread_w": ("global_store_dwordx4 v[8:9], v[0:3], off", "ds_read_b32 v1, v20"),
    "gstore_x4__gload_w": ("global_store_dwordx4 v[8:9], v[0:3], off", "global_load_dword v1, v[20:21], off"),
    "gstore_x4__valu_addr_w": ("global_store_dwordx4 v[8:9], v[0:3], off", "v_mov_b32 v8, 0"),
    "bufstore_x4_imm__valu_w": ("buffer_store_dwordx4 v[0:3], v9, s[4:7], 0 offen", "v_mov_b32 v3, 0"),
    "bufstore_x4_sgprofs__valu_w": ("buffer_store_dwordx4 v[0:3], v9, s[4:7], s8 offen", "v_mov_b32 v3, 0"),
    "ds_write_b128__valu_w": ("ds_write_b128 v9, v[0:3]", "v_mov_b32 v3, 0"),
    "opsel_hi__valu_R": ("v_add3_u32 v0, v1, v2, v3 op_sel:[0,0,0,1]", "v_mov_b32 v5, v0"),
    "opsel_hi__valu_W": ("v_add3_u32 v0, v1, v2, v3 op_sel:[0,0,0,1]", "v_mov_b32 v0, v5"),
    "opsel_hi__store": ("v_add3_u32 v0, v1, v2, v3 op_sel:[0,0,0,1]", "global_store_dword v[8:9], v0, off"),
    "opsel_hi__mfma": ("v_add3_u32 v64, v1, v2, v3 op_sel:[0,0,0,1]", matrix("xdl4")),
    "dgemm__fma_f64": (matrix("dg4"), "v_fma_f64 v[100:101], v[102:103], v[104:105], v[106:107]"),
    "dgemm__mul_f64": (matrix("dg4"), "v_mul_f64 v[100:101], v[102:103], v[104:105]"),
    "valu__permlane32": ("v_mov_b32 v0, v9", "v_permlane32_swap_b32 v1, v0"),
    "permlane32__permlane32_same": ("v_permlane32_swap_b32 v1, v0", "v_permlane32_swap_b32 v0, v1"),
    "permlane32__valu_R": ("v_permlane32_swap_b32 v1, v0", "v_mov_b32 v5, v0"),
    "permlane32__mfma": ("v_permlane32_swap_b32 v1, v64", matrix("xdl4")),
    "trans__permlane32": ("v_exp_f32 v0, v9", "v_permlane32_swap_b32 v1, v0"),
    "mfma4__permlane32": (matrix("xdl4"), "v_permlane32_swap_b32 v100, v0"),
    "salu_exec__permlane32": ("s_mov_b64 exec, s[4:5]", "v_permlane32_swap_b32 v1, v0"),
}
KEPT_ABOVE_LLVM = {     # [D] asks for more than LLVM 22 inserts; the last is LLVM pull request 197267, measured
    "gstore_x4__dsread_w": 1, "gstore_x4__gload_w": 1, "bufstore_x4_sgprofs__valu_w": 1,
}


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_other_pairs(arch: str):
    checked = 0
    for name, pair in MISC.items():
        value = ORACLE["misc"][name]
        llvm = value if isinstance(value, int) else value[ARCHITECTURES.index(arch)]
        if llvm is None or any("dwordx4 v2" in code and "lds" in code for code in pair) and arch == "gfx942":
            continue
        wanted = KEPT_ABOVE_LLVM.get(name, llvm)
        assert states(*pair, arch) == wanted, f"{name}: {states(*pair, arch)}, not {wanted}"
        checked += 1
    assert checked > 50


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_every_matrix_instruction(arch: str):       # BL-17
    """The use of a result by the VALU, for every row of the target, by passes."""
    table = {"gfx942": {2: 5, 4: 7, 8: 11, 16: 19}, "gfx950": {2: 5, 4: 8, 8: 12, 16: 20}}[arch]
    for row in target(arch).mfmas:
        formats = f" cbsz:{row.cbsz} blgp:{row.blgp}" if row.is_f8f6f4 else ""
        ab = f"{_v(64, row.a_dwords)}, {_v(72, row.b_dwords)}"
        code = f"{row.mnemonic} {_v(0, row.cd_dwords)}, {ab}, {_v(0, row.cd_dwords)}{formats}"
        wanted = {"xdl": table, "sgemm": {2: 4, 8: 10, 16: 18}, "dgemm": {4: 6, 8: 11, 16: 19}}[row.kind][row.passes]
        assert states(code, "v_add_f32 v100, v1, v1", arch) == wanted, row


def test_two_opcodes_on_one_accumulator():          # BL-16
    first = "v_mfma_f32_16x16x32_bf16 v[0:3], v[8:11], v[12:15], v[0:3]"
    second = "v_mfma_f32_16x16x16_bf16 v[0:3], v[8:9], v[12:13], v[0:3]"
    assert states(first, first, "gfx950") == 0
    assert states(first, second, "gfx950") == 6
    f8f6f4 = "v_mfma_f32_16x16x128_f8f6f4 v[0:3], v[8:15], v[16:23], v[0:3] cbsz:{} blgp:{}"
    assert states(f8f6f4.format(0, 1), f8f6f4.format(1, 0), "gfx950") == 0         # both take 8 passes
    assert states(f8f6f4.format(0, 0), f8f6f4.format(4, 4), "gfx950") == 10        # 8 passes, then 4


def test_no_rule_reaches_beyond_the_window():
    every = [rule.states(arch, passes) for rule in RULES for arch in ARCHITECTURES for passes in (0, 2, 4, 8, 16)]
    assert max(every) == WINDOW


def test_no_instruction_writes_exec_from_the_valu_unseen():
    """A row that did (v_cmpx) would need the rules of EXEC: they apply as soon as it says =exec."""
    for arch in ARCHITECTURES:
        assert not [r for r in isa.rows(arch).values() if r.unit in ("valu", "trans") and "=exec" in r.flags]


# -- programs ----------------------------------------------------------------------------------------------------------

def nops(text: str, arch: str = "gfx950") -> list[str]:
    """The program with wait states, as text. Every program here is also proven safe."""
    done = hazards.insert(program(text, arch))
    assert done.form == "final"
    assert hazardcheck.check(done) == []
    return [emit.instruction_text(i, arch) for i in done.instructions()]


def missing(text: str, arch: str = "gfx950") -> int:
    return sum(int(line.split()[1]) + 1 for line in nops(text, arch) if line.startswith("s_nop"))


LONG = "v_mfma_f32_32x32x4_2b_f16 v[0:31], v[64:65], v[66:67], v[0:31]\n"       # 16 passes


@pytest.mark.parametrize("arch, states", [("gfx942", 19), ("gfx950", 20)])
@pytest.mark.parametrize("fillers", [0, 1, 17, 18, 19, 20, 21])
def test_window(arch: str, states: int, fillers: int):             # BL-21
    text = LONG + "v_mov_b32 v100, 0\n" * fillers + "v_add_f32 v101, v1, v1"
    assert missing(text, arch) == max(0, states - fillers)
    without = program(text, arch)
    assert len(hazardcheck.check(without)) == (fillers < states)


def test_long_waits_are_split():
    assert [line for line in nops(LONG + "v_add_f32 v101, v1, v1") if "nop" in line] == ["s_nop 15", "s_nop 3"]


def test_one_wait_serves_all():
    assert nops("""
        v_readfirstlane_b32 s4, v0
        s_mov_b32 m0, s4
        buffer_load_dword v2, s[4:7], 0 offen lds
        v_add_f32 v3, s4, v2
    """)[2:] == ["s_nop 3", "buffer_load_dword v2, s[4:7], 0 offen lds", "v_add_f32 v3, s4, v2"]


COPY = "buffer_load_dword v2, s[4:7], 0 offen lds"


@pytest.mark.parametrize("behind, moves", [
    ("s_add_u32 s9, s9, 1", True), ("v_add_f32 v3, v4, v5", True),
    ("v_mfma_f32_16x16x16_f16 a[0:3], v[4:5], v[6:7], a[0:3]", True),
    ("v_mov_b32 v2, v5", False),                            # the copy's offset is still to be read
    ("s_mov_b32 m0, s10", False),
    ("ds_read_b32 v3, v4", False),                          # counts would change
    ("s_add_u32 s4, s4, 1", False),                         # its descriptor
    ("v_readlane_b32 s9, v1, s10", False),                  # would itself stand too close to what wrote s10
    ("s_setprio 1\ns_add_u32 s9, s9, 1", False), ("s_waitcnt vmcnt(0)\ns_add_u32 s9, s9, 1", False),
    ("s_barrier\ns_add_u32 s9, s9, 1", False), ("s_cbranch_scc0 end\ns_add_u32 s9, s9, 1", False),
    ("s_mov_b32 s9, s20\ns_add_u32 s21, s9, 1", True), ("ds_read_b32 v3, v4\ns_add_u32 s9, s9, 1", True),
    ("ds_read_b32 v3, v4\nv_mov_b32 v4, v5", False),
    ("s_mov_b64 exec, s[20:21]\nv_mov_b32 v4, v5", False), # neither the write of EXEC nor what stands under it
])
def test_work_fills_slots(behind: str, moves: bool):
    text = nops(f"v_readfirstlane_b32 s10, v9\ns_mov_b32 m0, s12\n{COPY}\n{behind}\nend:\ns_endpgm")
    assert (text[text.index(COPY) - 1] == "s_nop 0") == (not moves)


@pytest.mark.parametrize("seed", range(60))
def test_moves_keep_every_dependence(seed: int):
    """Of two instructions of a block that share a register, and not both only read it, none passes the other."""
    before = random_program(seed, "gfx950")
    after = hazards.insert(before)
    for old, new in zip(before.blocks, after.blocks):
        kept = [i for i in new.instructions if i.op != "s_nop"]
        assert sorted(map(id, kept)) == sorted(map(id, old.instructions))
        place = {i: n for n, i in enumerate(kept)}
        for first, second in itertools.combinations(old.instructions, 2):
            if place[first] > place[second]:
                r1, w1, r2, w2 = (_registers(i, use) for i in (first, second) for use in (isa.reads, isa.writes))
                assert not (w1 & (r2 | w2) or r1 & w2)
                assert isa.row_of(second, "gfx950").unit in ("salu", "valu", "trans", "mfma")


def _registers(made: Instruction, use: Callable) -> set[int]:
    return {d for operand in use(made, "gfx950") if isinstance(operand, Physical) for d in isa.dwords(operand)}


def test_harmless_neighbours():                     # BL-15
    """Moves of accumulators beside a chain of matrix instructions need nothing unless they touch its registers."""
    chain = "v_mfma_f32_16x16x16_f16 a[0:3], v[2:3], v[4:5], a[0:3]\n"
    assert missing(chain + "v_accvgpr_write_b32 a4, v9\nv_accvgpr_read_b32 v8, a5\n" + chain) == 0
    assert missing(chain + "v_accvgpr_read_b32 v8, a3\n" + chain, "gfx942") == 7


@pytest.mark.parametrize("offset, states", [("0", 2), ("s8", 1)])
@pytest.mark.parametrize("size", [2, 3, 4])
def test_wide_stores(offset: str, states: int, size: int):         # BL-19
    store = f"buffer_store_dwordx{size} v[0:{size - 1}], v9, s[4:7], {offset} offen\n"
    assert missing(store + "v_mov_b32 v1, 0") == (states if size > 2 else 0)


def test_paths_and_loops():
    join = "v_exp_f32 v0, v1\ns_cbranch_scc0 join\n{}join:\nv_add_f32 v2, v0, v0"
    assert missing(join.format("")) == 0            # the branch is a state
    back = "loop:\nv_add_f32 v102, v1, v1\n{}" + LONG + "s_cbranch_scc1 loop\ns_endpgm"
    assert missing(back.format("")) == 19           # the result meets the next trip, past the branch
    assert missing(back.format("v_mov_b32 v100, 0\n" * 30)) == 0          # and there is work to put before it
    short = "loop:\nv_add_f32 v2, v2, v3\ns_cbranch_scc1 loop\nv_readfirstlane_b32 s4, v2\ns_endpgm"
    assert missing(short) == 0
    entry = LONG + "s_cbranch_scc0 other\nv_mov_b32 v100, 0\nother:\nv_mov_b32 v101, 0\nv_add_f32 v102, v1, v1"
    assert missing(entry) == 18                     # over the shorter path


LOAD = "buffer_load_dword {0}, {1}, s[4:7], 0 offen"


@pytest.mark.parametrize("text, breaks", [
    ([LOAD.format("v0", "v9"), LOAD.format("v1", "v9"), LOAD.format("v2", "v10")], []),
    ([LOAD.format("v9", "v9"), LOAD.format("v1", "v10")], [1]),             # the first could not be issued again
    ([LOAD.format("v1", "v10"), LOAD.format("v9", "v9")], [1]),
    ([LOAD.format("v1", "v9"), LOAD.format("v2", "v10"), LOAD.format("v9", "v11")], [2]),
    ([LOAD.format("v9", "v9"), "s_add_u32 s9, s9, 1", LOAD.format("v10", "v10")], []),
    ([LOAD.format("v9", "v9"), "ds_read_b32 v20, v21", LOAD.format("v10", "v10")], []),
    (["s_load_dword s8, s[2:3], 0", "s_load_dwordx2 s[2:3], s[2:3], 8"], [1]),
    ([LOAD.format("v1", "v9"), "buffer_store_dword v2, v9, s[4:7], 0 offen", LOAD.format("v1", "v9")], [1]),
    (["buffer_store_dword v2, v9, s[4:7], 0 offen", LOAD.format("v1", "v9"), LOAD.format("v3", "v9")], []),
])
def test_clauses_can_be_replayed(text: list[str], breaks: list[int]):
    done = nops("\n".join(text))
    for place in reversed(breaks):
        assert hazardcheck.check(program("\n".join(text))) != []
        text = [*text[:place], "s_nop 0", *text[place:]]
    assert done == text


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("seed", range(60))
def test_random_programs_are_safe_and_no_state_is_idle(arch: str, seed: int):
    done = hazards.insert(random_program(seed, arch))
    assert hazardcheck.check(done) == []
    for mutant in mutants(done):
        assert hazardcheck.check(mutant.program), str(mutant)


def random_program(seed: int, arch: str) -> Program:
    random_ = random.Random(seed)

    def line() -> str:
        v, s, d = random_.randrange(4), random_.randrange(4, 8), 4 * random_.randrange(2)
        return random_.choice([
            f"v_mfma_f32_16x16x16_f16 v[{d}:{d + 3}], v[0:1], v[2:3], v[{4 - d}:{7 - d}]",
            f"v_mfma_f32_4x4x4_16b_f16 v[{d}:{d + 3}], v[8:9], v[2:3], v[{d}:{d + 3}]",
            f"v_mfma_f32_32x32x8_f16 v[16:31], v[{d}:{d + 1}], v[10:11], v[16:31]",
            f"v_mov_b32 v{v}, v{v + 4}", f"v_exp_f32 v{v}, v{v + 1}", f"v_readfirstlane_b32 s{s}, v{v}",
            f"v_mov_b32_dpp v{v}, v{v + 2} row_shr:1", f"v_add_f32 v{v}, s{s}, v{v + 16}",
            "buffer_store_dwordx4 v[0:3], v9, s[4:7], 0 offen", "s_mov_b32 m0, s9",
            f"buffer_load_dword v{v + 4}, v9, s[4:7], 0 offen", "buffer_load_dword v9, s[4:7], 0 offen lds"])

    count = random_.randrange(1, 5)
    text = []
    for block in range(count):
        text += [f"L_{block}:", *(line() for _ in range(random_.randrange(1, 9)))]
        if random_.random() < 0.7:
            text.append(f"s_cbranch_scc1 L_{random_.randrange(count)}")
    return program("\n".join(text) + "\ns_endpgm", arch)
