"""Rows that need more than a lane-by-lane formula: transcendentals, division, lane counts, the table as a whole."""

from __future__ import annotations

import json
import random
import re
from decimal import Decimal, localcontext
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.emulator import reference
from tests.emulator.test_arithmetic import edge_bits
from tilec import llvm
from tilec.emulator.mode import Mode
from tilec.emulator.vector import KINDS, VECTOR, VectorRow

DATA = Path(__file__).parents[1] / "data"
PI = Decimal(
    "3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534211706798214808651328"
)
DTYPES = {"f16": np.float16, "f32": np.float32, "f64": np.float64}
LN2 = Decimal(2).ln()

# Transcendentals


def cosine_of_turns(x: Fraction, quarter: int) -> Decimal:
    """cos(2 pi (x - quarter / 4)) by its series, argument reduced exactly."""
    turns = x - Fraction(quarter, 4)
    turns -= round(turns)
    angle = 2 * PI * Decimal(turns.numerator) / Decimal(turns.denominator)
    total, term, n = Decimal(0), Decimal(1), 0
    while abs(term) > Decimal("1e-60"):
        total += term
        n += 2
        term *= -angle * angle / (n * (n - 1))
    return total


def exactly(name: str, x: Fraction) -> Decimal:
    value = Decimal(x.numerator) / Decimal(x.denominator)
    match name:
        case "exp":
            return (value * LN2).exp()
        case "log":
            return value.ln() / LN2
        case "rcp":
            return 1 / value
        case "rsq":
            return 1 / value.sqrt()
        case "sqrt":
            return value.sqrt()
        case "sin":
            return cosine_of_turns(x, 1)
    return cosine_of_turns(x, 0)


def samples(form: reference.Binary, name: str, rng: random.Random) -> list[int]:
    positive = name in ("log", "rsq", "sqrt")
    span = {"exp": 6, "sin": 7, "cos": 7}.get(name, form.bias - 2)
    result = []
    for _ in range(250):
        field = min(max(form.bias + rng.randint(-span, span), 1), 2 * form.bias)
        sign = 0 if positive else rng.getrandbits(1)
        result.append(sign * form.sign_bit | field << form.mantissa | rng.getrandbits(form.mantissa))
    result += [form.round(Fraction(n, 4)) for n in range(1, 40)]
    return result


ROWS = [f"v_{name}_{kind}" for name in ("exp", "log", "rcp", "rsq", "sqrt", "sin", "cos") for kind in ("f16", "f32")]
ROWS += ["v_rcp_f64", "v_rsq_f64", "v_sqrt_f64", "v_rcp_iflag_f32", "v_exp_legacy_f32", "v_log_legacy_f32"]


@pytest.mark.parametrize("row", ROWS)
def test_transcendental_is_within_a_unit_of_the_last_place(row: str) -> None:
    _, name, *_, kind = row.split("_")
    form = reference.FORMATS[kind]
    bits = samples(form, name, random.Random(len(row)))
    x = np.array(bits, f"u{form.width // 8}").view(DTYPES[kind])
    with np.errstate(all="ignore"):
        result = VECTOR[row].function(Mode(), x).view(f"u{form.width // 8}")
    with localcontext() as context:
        context.prec = 70
        for source, got in zip(bits, result.tolist()):
            want = Fraction(exactly(name, form.value(source)))
            if form.is_infinite(got):
                assert form.is_infinite(form.round(want))
                continue
            nearest = form.round(want)
            if kind == "f32":
                nearest = form.flushed(nearest, 0)
            unit = Fraction(2) ** (max(form.field(nearest), 1) - form.bias - form.mantissa)
            if (
                nearest != got
            ):  # sin and cos err absolutely (2**-41 of a turn in the manual), the others by half an ulp and a bit
                slack = Fraction(1, 2**45) if name in ("sin", "cos") else 0
                ulps = Fraction(51, 100) if kind != "f64" else Fraction(3, 2)  # rsq_f64 rounds twice
                assert abs(form.value(got) - want) <= unit * ulps + slack, (row, hex(source), hex(got))


SPECIAL = {
    "exp": {"+0": "1", "-0": "1", "+inf": "+inf", "-inf": "+0"},
    "log": {"+0": "-inf", "-0": "-inf", "+inf": "+inf", "-inf": "nan", "-1": "nan", "1": "+0"},
    "rcp": {"+0": "+inf", "-0": "-inf", "+inf": "+0", "-inf": "-0", "1": "1"},
    "rsq": {"+0": "+inf", "-0": "-inf", "+inf": "+0", "-inf": "nan", "-1": "nan", "1": "1"},
    "sqrt": {"+0": "+0", "-0": "-0", "+inf": "+inf", "-inf": "nan", "-1": "nan", "1": "1"},
    "sin": {"+0": "+0", "-0": "-0", "+inf": "nan", "-inf": "nan", "300": "+0", "1/4": "1"},
    "cos": {"+0": "1", "-0": "1", "+inf": "nan", "-inf": "nan", "300": "1", "1/4": "+0", "1/2": "-1"},
}


def special(form: reference.Binary, name: str) -> int:
    if name == "nan":
        return form.sign_bit | form.nan
    if name[1:] == "inf":
        return form.infinity | (form.sign_bit if name[0] == "-" else 0)
    return form.round(Fraction(name), 0, int(name == "-0"))


@pytest.mark.parametrize("row", [r for r in ROWS if "legacy" not in r and "iflag" not in r])
def test_transcendental_special_values(row: str) -> None:
    """Zeros, infinities and invalid arguments; NaN payloads pass quieted; f32 flushes denormals, the others do not."""
    _, name, kind = row.split("_")
    form = reference.FORMATS[kind]
    unsigned = f"u{form.width // 8}"
    pairs = [(special(form, x), special(form, y)) for x, y in SPECIAL[name].items()]
    pairs += [(x, x | form.quiet_bit) for x in edge_bits(form) if form.is_nan(x)]
    x = np.array([p[0] for p in pairs], unsigned).view(DTYPES[kind])
    with np.errstate(all="ignore"):
        got = VECTOR[row].function(Mode(), x).view(unsigned).tolist()
    for (source, want), bits in zip(pairs, got):
        if name == "cos" and source == special(form, "1/4"):
            assert abs(form.value(bits)) < Fraction(1, 2**45)
        else:
            assert bits == want, (hex(source), hex(bits), hex(want))
    if name in ("rcp", "sqrt"):
        tiny = np.array([1], unsigned).view(DTYPES[kind])
        with np.errstate(all="ignore"):
            result = VECTOR[row].function(Mode(), tiny)[0]
        zero = {"rcp": np.inf, "sqrt": 0}[name]
        assert (result == zero) == (kind == "f32" or name == "rcp")


def test_trig_preop_segments_add_up_to_two_over_pi() -> None:
    segments = np.arange(8, dtype=np.uint32)
    parts = VECTOR["v_trig_preop_f64"].function(Mode(), np.ones(8), segments)
    total = sum(Fraction(p) for p in parts.tolist())
    with localcontext() as context:
        context.prec = 120
        product = Decimal(total.numerator) / Decimal(total.denominator) * PI
        assert abs(product - 2) < Decimal("1e-105")
    big = VECTOR["v_trig_preop_f64"].function(Mode(), np.array([2.0**900]), np.array([0], np.uint32))
    bits = int(Fraction(big[0]) * 2**1000)
    assert bits.bit_length() <= 1000 - (1023 + 900 - 1077)  # the whole part of the product is skipped


# Division


def division32(mode: Mode, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """LLVM's expansion of a correctly rounded f32 division."""
    op = {name: row.function for name, row in VECTOR.items()}
    one = np.ones_like(x)
    d, _ = op["v_div_scale_f32"](mode, y, y, x)
    n, mask = op["v_div_scale_f32"](mode, x, y, x)
    r = op["v_rcp_f32"](mode, d)
    fma = op["v_fma_f32"]
    r1 = fma(mode, fma(mode, -d, r, one), r, r)
    q = op["v_mul_f32"](mode, n, r1)
    q1 = fma(mode, fma(mode, -d, q, n), r1, q)
    last = op["v_div_fmas_f32"](mode, fma(mode, -d, q1, n), r1, q1, mask)
    return op["v_div_fixup_f32"](mode, last, y, x)


def division64(mode: Mode, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    op = {name: row.function for name, row in VECTOR.items()}
    one = np.ones_like(x)
    fma = op["v_fma_f64"]
    d, _ = op["v_div_scale_f64"](mode, y, y, x)
    n, mask = op["v_div_scale_f64"](mode, x, y, x)
    r = op["v_rcp_f64"](mode, d)
    r1 = fma(mode, r, fma(mode, -d, r, one), r)
    r2 = fma(mode, r1, fma(mode, -d, r1, one), r1)
    q = op["v_mul_f64"](mode, n, r2)
    last = op["v_div_fmas_f64"](mode, fma(mode, -d, q, n), r2, q, mask)
    return op["v_div_fixup_f64"](mode, last, y, x)


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_division_sequences_round_correctly(kind: str) -> None:
    """Over the whole range, overflow and denormal quotients included."""
    form = reference.FORMATS[kind]
    rng = np.random.default_rng(1)
    unsigned = np.dtype(f"u{form.width // 8}")
    count = 60000 if kind == "f32" else 8000
    x, y = (rng.integers(0, 1 << form.width, count, unsigned).view(DTYPES[kind]) for _ in range(2))
    edges = np.array(edge_bits(form), unsigned).view(DTYPES[kind])
    grid = np.meshgrid(edges, edges)
    x, y = np.concatenate([x, grid[0].ravel()]), np.concatenate([y, grid[1].ravel()])
    with np.errstate(all="ignore"):
        got = (division32 if kind == "f32" else division64)(Mode(), x, y)
        want = x / y
    same = (got == want) & (np.signbit(got) == np.signbit(want)) | (np.isnan(got) & np.isnan(want))
    assert same.all(), (x[~same][:4], y[~same][:4], got[~same][:4], want[~same][:4])


# Lane counts


@pytest.mark.parametrize("name", ["v_mbcnt_lo_u32_b32", "v_mbcnt_hi_u32_b32"])
def test_mbcnt_counts_bits_below_the_lane(name: str) -> None:
    rng = random.Random(2)
    masks = [[rng.getrandbits(32) for _ in range(64)] for _ in range(3)]
    base = [[rng.getrandbits(32) for _ in range(64)] for _ in range(3)]
    got = VECTOR[name].function(Mode(), np.array(masks, np.uint32), np.array(base, np.uint32))
    for wave in range(3):
        for lane in range(64):
            below = (1 << lane) - 1 >> (32 if "hi" in name else 0)
            want = (masks[wave][lane] & below & 0xFFFFFFFF).bit_count() + base[wave][lane]
            assert got[wave, lane] == want % (1 << 32)


def test_perm_with_one_selector_for_all_lanes() -> None:
    rng = random.Random(6)
    a, b = (np.array([[rng.getrandbits(32) for _ in range(64)]], np.uint32) for _ in range(2))
    function = VECTOR["v_perm_b32"].function
    for selector in [
        0x07060302,
        0x05040100,
        0x00010203,
        0x07030501,
        0x0C0C0100,
        *(rng.getrandbits(32) for _ in range(40)),
    ]:
        selector &= 0x0F0F0F0F if selector % 3 else 0x07070707
        one = np.array([[selector]], np.uint32)
        assert np.array_equal(function(Mode(), a, b, one), function(Mode(), a, b, np.broadcast_to(one, a.shape)))


def test_64_bit_multiply_add_around_zero() -> None:
    """Sums that cancel to -1, 0 and 1, where carry and sign part."""
    rng = random.Random(8)
    pairs = [(rng.getrandbits(32), rng.getrandbits(32)) for _ in range(64)]
    for delta in (-1, 0, 1):
        for name, kind, bits in (("v_mad_u64_u32", "u", 64), ("v_mad_i64_i32", "i", 64)):
            a, b = (np.array(x, np.uint32).view(f"{kind}4") for x in zip(*pairs))
            addends = [delta - int(x) * int(y) & (1 << bits) - 1 for x, y in zip(a, b)]
            c = np.array(addends, np.uint64).view(f"{kind}8")
            result, carry = VECTOR[name].function(Mode(), a, b, c)
            for i in range(64):
                total = int(a[i]) * int(b[i]) + int(c[i])
                assert int(result[i]) & (1 << 64) - 1 == total & (1 << 64) - 1
                assert bool(carry[i]) == bool(total >> 64 & 1)


# The table


NOT_ROWS = {  # the core's business: no function of lanes, or lane shuffles (lanes.py)
    "v_nop", "v_clrexcp", "v_screen_partition_4se_b32", "v_readfirstlane_b32", "v_readlane_b32", "v_writelane_b32",
    "v_permlane16_swap_b32", "v_permlane32_swap_b32",
}  # fmt: skip


def test_every_mnemonic_that_llvm_knows_has_a_row() -> None:
    known = json.loads((DATA / "vector_mnemonics.json").read_text())
    for arch in ("gfx942", "gfx950"):
        names = {*known["both"], *known[arch]} - NOT_ROWS
        rows = {name for name, row in VECTOR.items() if arch in row.architectures}
        assert rows == names


def test_which_rows_keep_the_rest_of_their_destination() -> None:
    """16-bit results clear the upper half but for these (LLVM, GCNSubtarget::zeroesHigh16BitsOfDest); narrower keep."""
    sixteen = {f"v_{name}_{kind}" for name in ("min3", "max3", "med3") for kind in ("f16", "i16", "u16")}
    sixteen |= {"v_mad_f16", "v_mad_i16", "v_mad_u16", "v_fma_f16", "v_div_fixup_f16", "v_add_i16", "v_sub_i16"}
    sixteen |= {"v_fma_mixlo_f16", "v_fma_mixhi_f16", "v_cvt_sr_f16_f32", "v_cvt_sr_bf16_f32"}
    sixteen |= {"v_cvt_scalef32_f16_fp8", "v_cvt_scalef32_f16_bf8"}
    narrow = {n for n in VECTOR if re.fullmatch(r"v_cvt_(scalef32_)?(sr_)?(pk_)?(fp8|bf8|fp4)_b?f(16|32)", n)}
    assert {name for name, row in VECTOR.items() if row.keeps} == sixteen | narrow
    assert [name for name, row in VECTOR.items() if row.high_result] == ["v_fma_mixhi_f16"]
    assert [name for name, row in VECTOR.items() if row.reads_vcc] == ["v_div_fmas_f32", "v_div_fmas_f64"]
    assert all(row.writes_exec == name.startswith("v_cmpx") for name, row in VECTOR.items())


def register(kind: str, first: int) -> str:
    dwords = KINDS[kind].dwords
    return f"v[{first}:{first + dwords - 1}]" if dwords > 1 else f"v{first}"


def assembly(row: VectorRow) -> str:
    """The row with a VGPR for each operand, masks in SGPR pairs; the encoding suffix is left to the assembler."""
    operands, first = [], 2
    printed = row.src[: len(row.src) - int(row.accumulates) - int(row.reads_vcc)]
    for index, kind in enumerate((*row.dst, *printed)):
        if kind == "mask":
            operands.append(f"s[{2 * index}:{2 * index + 1}]")
            continue
        operands.append(register(kind, first))
        first += (KINDS[kind].dwords + 1) // 2 * 2
    text = f"{row.name} {', '.join(operands)}"
    if row.writes_exec:  # LLVM's disassembler does not take its own VOP3 encoding of v_cmpx
        return f"{row.name}_e32 vcc, {', '.join(operands[1:])}"
    if row.name.startswith("v_swap"):
        return f"{row.name} v2, v4"
    if "accvgpr" in row.name:
        reads, writes = "read" in row.name or "mov" in row.name, "write" in row.name or "mov" in row.name
        return f"{row.name} {'av'[not writes]}2, {'av'[not reads]}4"
    if "mk_" in row.name or "ak_" in row.name:
        operands[{"mk": 2, "ak": 3}[row.name.split("_")[1][-2:]]] = "0x1234"
        return f"{row.name} {', '.join(operands)}"
    return text


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_operand_kinds_have_the_registers_that_llvm_wants(arch: str) -> None:
    """Each row, written with registers of its kinds' sizes, assembles, and comes back under its own name."""
    rows = [row for row in VECTOR.values() if arch in row.architectures]
    object_ = llvm.assemble("\n".join(assembly(row) for row in rows), arch)
    code = text_of(object_)
    listed = llvm.disassemble(code, arch)
    assert len(listed) >= len(rows)
    for row, instruction in zip(rows, listed):
        mnemonic = instruction.text.split()[0]
        assert mnemonic.removesuffix("_e32").removesuffix("_e64") == row.name.replace("v_mul_lo_i32", "v_mul_lo_u32")


def text_of(object_: Any) -> bytes:
    """The bytes of .text of a relocatable object."""
    from io import BytesIO

    from elftools.elf.elffile import ELFFile

    return ELFFile(BytesIO(object_)).get_section_by_name(".text").data()
