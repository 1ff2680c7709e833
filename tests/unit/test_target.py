"""Architecture records against the fact tables of the matrix instructions, the register table, and the LDS phases."""

import json
from pathlib import Path

import pytest

from tilec import dtypes
from tilec.dtypes import DTYPES
from tilec.errors import TilecError
from tilec.passes.swizzle import phase_basis
from tilec.target import TARGETS, target

FACTS = json.loads((Path(__file__).parents[1] / "data" / "mfma_table.json").read_text())["instructions"]
CLASSES = {"XDL": "xdl", "SGEMM": "sgemm", "DGEMM": "dgemm"}
EIGHT_BIT = {"fp8_e4m3fn", "fp8_e5m2"}


def of_format(value, name):
    if not isinstance(value, dict):
        return value
    return value["fp8/bf8"] if name in EIGHT_BIT else value["fp6/bf6"] if name.startswith("fp6") else value["fp4"]


@pytest.mark.parametrize("arch", TARGETS)
def test_every_dense_mfma_is_there_as_the_facts_have_it(arch):
    facts = {row["mnemonic"]: row for row in FACTS
             if arch in row["arch"] and row["mnemonic"].startswith("v_mfma") and "scale" not in row["mnemonic"]}
    ours = TARGETS[arch].mfmas
    assert {row.mnemonic for row in ours} == set(facts)
    assert len(ours) == len({(row.mnemonic, row.a, row.b) for row in ours})
    for row in ours:
        fact = facts[row.mnemonic]
        assert (row.m, row.n, row.k, row.blocks) == tuple(fact[key] for key in ("M", "N", "K", "blocks"))
        registers = fact["vgprs"]
        assert row.a_dwords == of_format(registers["A"], row.a) and row.b_dwords == of_format(registers["B"], row.b)
        assert row.cd_dwords == registers["D"] and row.kind == CLASSES[fact["hazard_class"]]
        passes = fact["passes"]
        if row.is_f8f6f4:
            passes = passes["any operand fp8/bf8" if {row.a, row.b} & EIGHT_BIT else "both in {fp6,bf6,fp4}"]
        assert row.passes == (passes[arch] if isinstance(passes, dict) else passes)


@pytest.mark.parametrize("arch", TARGETS)
def test_operand_registers_follow_from_shape_and_type(arch):
    for row in TARGETS[arch].mfmas:
        for name, elements, dwords in ((row.a, row.m * row.k, row.a_dwords), (row.b, row.n * row.k, row.b_dwords),
                                       (row.cd, row.m * row.n, row.cd_dwords)):
            held = elements * row.blocks // 64
            assert dwords == (held if name == "xf32" else DTYPES[name].dwords_of(held)), row


def test_eight_bit_formats_differ_between_architectures():
    gfx942, gfx950 = target("gfx942"), target("gfx950")
    assert gfx942.mfma("v_mfma_f32_16x16x32_fp8_bf8").b == "fp8_e5m2fnuz"
    assert gfx950.mfma("v_mfma_f32_16x16x32_fp8_bf8").b == "fp8_e5m2"
    row = gfx950.mfma("v_mfma_f32_32x32x64_f8f6f4", "fp6_e3m2", "fp8_e5m2")
    assert (row.cbsz, row.blgp, row.passes, row.a_dwords, row.b_dwords) == (3, 1, 16, 6, 8)
    with pytest.raises(KeyError, match="gfx942 has no v_mfma_f32_32x32x64_f8f6f4"):
        gfx942.mfma("v_mfma_f32_32x32x64_f8f6f4")


def test_choice_of_mfma():
    bf16, f32 = dtypes.bf16, dtypes.f32
    assert [row.mnemonic for row in target("gfx950").mfmas_for(bf16, bf16, f32)] == [
        "v_mfma_f32_16x16x32_bf16", "v_mfma_f32_32x32x16_bf16", "v_mfma_f32_16x16x16_bf16", "v_mfma_f32_32x32x8_bf16"]
    assert target("gfx942").mfmas_for(f32, f32, f32)[0].mnemonic == "v_mfma_f32_16x16x4_f32"  # never xf32 unasked
    assert target("gfx942").mfmas_for(dtypes.fp4_e2m1, dtypes.fp4_e2m1, f32) == ()


def test_waves_per_simd():
    """The occupancy table of a 512-register SIMD with granules of 8."""
    for t in TARGETS.values():
        table = {24: 8, 64: 8, 72: 7, 80: 6, 84: 5, 96: 5, 100: 4, 128: 4, 129: 3, 168: 3, 256: 2}
        assert {count: t.waves_per_simd(count) for count in table} == table
        assert t.waves_per_simd(256, 256) == 1 and t.waves_per_simd(128, 128) == 2 and t.waves_per_simd(1, 256) == 1
        assert t.waves_per_simd(257) == 0 and t.waves_per_simd(0, 257) == 0


@pytest.mark.parametrize("vgprs, lds, waves, expected", [
    (128, 0, 4, 4), (128, 65536, 4, 2), (152, 32768, 8, 2), (64, 131072, 8, 2), (64, 0, 16, 8), (200, 0, 1, 2),
    (64, 163840, 1, 1), (512, 0, 8, 0)])
def test_occupancy(vgprs, lds, waves, expected):
    """Registers, LDS and whole workgroups each may be what limits: 152 registers leave room for 3 waves on a SIMD, but
    12 waves are one workgroup of 8."""
    assert target("gfx950").occupancy(min(vgprs, 256), max(0, vgprs - 256), lds, waves) == expected


def test_lds_allocation():
    assert target("gfx942").lds_allocation(1) == 512 and target("gfx950").lds_allocation(1281) == 2560
    assert target("gfx950").lds_allocation(163840) == 163840


@pytest.mark.parametrize("arch", TARGETS)
def test_phases_share_out_the_wave(arch):
    for row in TARGETS[arch].lds_instructions:
        assert sorted(lane for phase in row.phases for lane in phase) == list(range(64)), row.mnemonic
        assert len({len(phase) for phase in row.phases}) == 1
        assert len(row.phases[0]) * max(row.bytes, 4) <= 4 * row.banks, row.mnemonic  # a phase can be free of conflicts
        assert len(phase_basis(row)) == len(row.phases[0]).bit_length() - 1
        if arch == "gfx942":
            assert row.source == "inferred from documents" and row.banks == 32


def test_measured_rows_of_gfx950():
    t = target("gfx950")
    assert t.lds("ds_read_b128").phases[0] == (0, 1, 2, 3, 12, 13, 14, 15, 20, 21, 22, 23, 24, 25, 26, 27)
    assert t.lds("ds_read_b96").phases[6] == (40, 41, 42, 43, 60, 61, 62, 63)
    cycles = {"ds_read_b128": 4, "ds_read_b64": 2, "ds_read_b96": 8, "ds_write_b64": 4}
    assert {name: t.lds(name).base_cycles for name in cycles} == cycles
    assert (t.lds("ds_read_b64_tr_b16").elements, t.lds("ds_read_b96_tr_b6").elements) == (4, 16)
    assert t.lds("ds_read_b96_tr_b6").alignment == 16


def test_features_and_missing_types():
    assert target("gfx950").has("permlane_swap") and not target("gfx942").has("permlane_swap")
    with pytest.raises(KeyError, match="unknown feature 'permlane_swop'"):
        target("gfx950").has("permlane_swop")
    target("gfx942").require(dtypes.fp8_e4m3fnuz)
    with pytest.raises(TilecError) as error:
        target("gfx942").require(dtypes.fp8_e4m3fn)
    assert str(error.value) == (
        "gfx942 has no fp8_e4m3fn\n  limit: gfx942 has no instruction that reads or makes fp8_e4m3fn\n"
        "  try: use fp8_e4m3fnuz on gfx942, or compile for gfx950")


def test_names():
    assert target("gfx950:sramecc+:xnack-") is TARGETS["gfx950"]
    with pytest.raises(TilecError) as error:
        target("gfx90a")
    assert str(error.value) == (
        "unknown architecture 'gfx90a'\n  limit: tilec compiles for gfx942, gfx950\n"
        "  try: gfx942 is MI300X, MI300A and MI325X; gfx950 is MI350X and MI355X")
