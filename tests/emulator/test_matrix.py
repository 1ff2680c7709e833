"""MFMA: table and layouts against published facts, products entry by entry, modifiers, scales, and the two numerics."""

from __future__ import annotations

import json
import random
from fractions import Fraction
from math import floor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.emulator import reference
from tests.emulator.reference import F32, NARROW
from tilec.emulator import matrix, matrix_exact
from tilec.emulator.matrix import MATRIX, MatrixRow
from tilec.emulator.mode import Mode

DATA = Path(__file__).parents[1] / "data"
Array = np.ndarray[Any, Any]
WAVES = 3


def variants() -> list[tuple[str, int, int]]:
    """(name, cbsz, blgp): every row, f8f6f4 with all pairs of formats."""
    pairs = [(a, b) for a in range(5) for b in range(5)]
    return [(n, *p) for n, row in MATRIX.items() for p in (pairs if row.a == "f8f6f4" else [(0, 0)])]


def each(*, only: Any = lambda row: True) -> Any:
    """Parametrise over the variants of the rows that `only` keeps."""
    return pytest.mark.parametrize(("name", "cbsz", "blgp"), [v for v in variants() if only(MATRIX[v[0]])])


@pytest.fixture(autouse=True)
def quiet() -> Any:
    with np.errstate(all="ignore"):
        yield


# Table and layouts


def test_table_agrees_with_the_published_one() -> None:
    published = json.loads((DATA / "mfma_table.json").read_text())["instructions"]
    assert {p["mnemonic"] for p in published} == set(MATRIX)
    for p in published:
        row = MATRIX[p["mnemonic"]]
        assert (row.m, row.n, row.k, row.blocks) == (p["M"], p["N"], p["K"], p["blocks"])
        assert (row.hazard_class, list(row.architectures)) == (p["hazard_class"].lower(), p["arch"])
        assert row.cd_dwords == p["vgprs"]["C"] == p["vgprs"]["D"]
        passes = p["passes"]
        if row.a == "f8f6f4":
            widths = {"fp8": "fp8/bf8", "bf8": "fp8/bf8", "fp6": "fp6/bf6", "bf6": "fp6/bf6", "fp4": "fp4"}
            for code, form in enumerate(matrix.F8F6F4):
                assert row.operand_dwords(form) == p["vgprs"]["A"][widths[form]]
                eight, narrow = passes["any operand fp8/bf8"], passes["both in {fp6,bf6,fp4}"]
                assert row.cycles("gfx950", code, 4) == 4 * (eight if code < 2 else narrow)
        else:
            assert (row.a_dwords, row.b_dwords) == (p["vgprs"]["A"], p["vgprs"]["B"])
            for arch in row.architectures:
                assert row.cycles(arch) == 4 * (passes[arch] if isinstance(passes, dict) else passes)


def layouts() -> list[tuple[str, str, int]]:
    index = json.loads(str(np.load(DATA / "mfma_layouts.npz")["index"]))["layouts"]
    return [
        (arch, name, i) for arch, names in index.items() for name, entries in names.items() for i in range(len(entries))
    ]


@pytest.mark.parametrize(("arch", "name", "entry"), layouts())
def test_layouts_entry_by_entry(arch: str, name: str, entry: int) -> None:
    with np.load(DATA / "mfma_layouts.npz") as data:
        facts = json.loads(str(data["index"]))["layouts"][arch][name][entry]
        maps = {operand: data[f"map{facts[operand]}"] for operand in ("A", "B", "CD")}
    row = MATRIX[name]
    forms = row.formats(facts["cbsz"], facts["blgp"])
    lane = np.arange(64)[:, None]
    for operand, form in zip(("A", "B"), forms):
        items = np.arange(maps[operand].shape[1])
        assert len(items) == row.k_items and facts[f"{operand}_bits"] == matrix.BITS[form]
        block, line, k = np.broadcast_arrays(*matrix.operand_index(row, form, lane, items))
        order = (line, k, block) if operand == "A" else (k, line, block)
        assert np.array_equal(np.stack(order, -1), maps[operand])
    block, i, j = np.broadcast_arrays(*matrix.result_index(row, lane, np.arange(maps["CD"].shape[1])))
    assert np.array_equal(np.stack((i, j, block), -1), maps["CD"])
    assert facts["CD_bits"] == matrix.BITS[row.cd]


# Registers of given matrices, built item by item from the layout maps


def codes_to_registers(codes: Array, bits: int) -> Array:
    """Python-int codes [W, 64 lanes, items] to uint32 [dwords, W, 64]."""
    waves, _, items = codes.shape
    out = np.zeros((items * bits // 32, waves, 64), np.uint32)
    for wave in range(waves):
        for lane in range(64):
            whole = sum(int(c) << bits * i for i, c in enumerate(codes[wave, lane]))
            for dword in range(out.shape[0]):
                out[dword, wave, lane] = whole >> 32 * dword & 0xFFFFFFFF
    return out


def operand_registers(row: MatrixRow, form: str, codes: Array) -> Array:
    """Codes [W, blocks, lines, k] to registers."""
    lane = np.arange(64)[:, None]
    block, line, k = np.broadcast_arrays(*matrix.operand_index(row, form, lane, np.arange(row.k_items)))
    return codes_to_registers(codes[:, block, line, k], matrix.BITS[form])


def result_registers(row: MatrixRow, codes: Array) -> Array:
    items = row.cd_dwords * 32 // matrix.BITS[row.cd]
    block, i, j = np.broadcast_arrays(*matrix.result_index(row, np.arange(64)[:, None], np.arange(items)))
    return codes_to_registers(codes[:, block, i, j], matrix.BITS[row.cd])


def small_integers(form: str, arch: str, rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """(codes, values) of small exact numbers in a format."""
    if form == "fp4":
        values = rng.choice([-2.0, -1.0, 0.0, 1.0, 2.0, 3.0], shape)
    else:
        values = rng.integers(-3, 4, shape).astype(np.float64)
    if form == "i8":
        return values.astype(np.int8).view(np.uint8), values
    if form in ("f32", "xf32", "f64", "f16"):
        dtype = {"f64": np.float64, "f16": np.float16}.get(form, np.float32)
        return values.astype(dtype).view(f"u{np.dtype(dtype).itemsize}"), values
    if form == "bf16":
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16), values
    narrow = NARROW[arch][form]
    table = {v: narrow.encode(Fraction(v), int(v < 0), False) for v in np.unique(values).tolist()}
    return np.vectorize(table.__getitem__)(values), values


def case(row: MatrixRow, cbsz: int, blgp: int, seed: int) -> dict[str, Any]:
    """Operands with small integers, as registers and as matrices, on each architecture's own formats."""
    rng = np.random.default_rng(seed)
    arch = row.architectures[seed % len(row.architectures)]
    form_a, form_b = row.formats(cbsz, blgp)
    codes_a, a = small_integers(form_a, arch, rng, (WAVES, row.blocks, row.m, row.k))
    codes_b, b = small_integers(form_b, arch, rng, (WAVES, row.blocks, row.n, row.k))
    c = rng.integers(-9, 10, (WAVES, row.blocks, row.m, row.n))
    codes_c = c.astype({"i32": np.int32, "f32": np.float32, "f64": np.float64}[row.cd])
    return {
        "mode": Mode(architecture=arch), "a": a, "b": b, "c": c,
        "registers": (
            operand_registers(row, form_a, codes_a), operand_registers(row, form_b, codes_b),
            result_registers(row, codes_c.view(f"u{codes_c.dtype.itemsize}")),
        ),
    }  # fmt: skip


def numbers(row: MatrixRow, registers: Array) -> Array:
    """Result registers to [W, blocks, m, n], by the layout map alone."""
    items = row.cd_dwords * 32 // matrix.BITS[row.cd]
    values = np.empty(
        (registers.shape[1], row.blocks, row.m, row.n), {"i32": np.int32, "f32": np.float32, "f64": np.float64}[row.cd]
    )
    for lane in range(64):
        for item in range(items):
            block, i, j = (int(x) for x in matrix.result_index(row, np.int64(lane), np.int64(item)))
            words = (
                registers[item : item + 1, :, lane] if row.cd != "f64" else registers[2 * item : 2 * item + 2, :, lane]
            )
            values[:, block, i, j] = np.ascontiguousarray(words.T).view(values.dtype)[:, 0]
    return values


@each()
@pytest.mark.parametrize("numerics", ["fast", "exact"])
def test_small_integers_multiply_exactly(name: str, cbsz: int, blgp: int, numerics: str) -> None:
    row = MATRIX[name]
    for seed in range(len(row.architectures)):
        x = case(row, cbsz, blgp, seed)
        got = matrix.execute(row, *x["registers"], numerics=numerics, cbsz=cbsz, blgp=blgp, mode=x["mode"])
        assert got.dtype == np.uint32 and got.shape == (row.cd_dwords, WAVES, 64)
        want = np.einsum("wbmk,wbnk->wbmn", x["a"], x["b"]) + x["c"]
        assert np.array_equal(numbers(row, got), want)


@each(only=lambda row: row.scaled)
@pytest.mark.parametrize("numerics", ["fast", "exact"])
def test_scales_apply_to_blocks_of_32(name: str, cbsz: int, blgp: int, numerics: str) -> None:
    row = MATRIX[name]
    x = case(row, cbsz, blgp, 0)
    rng = np.random.default_rng(4)
    powers_a, powers_b = (rng.integers(-3, 4, (WAVES, row.k // 32, row.m)) for _ in range(2))
    # Lane l holds the scale of line l % m and k block l // m.
    scale_a, scale_b = ((127 + p.reshape(WAVES, 64)).astype(np.uint8) for p in (powers_a, powers_b))
    got = matrix.execute(
        row, *x["registers"], numerics=numerics, cbsz=cbsz, blgp=blgp, scale_a=scale_a, scale_b=scale_b, mode=x["mode"]
    )
    a = x["a"][:, 0] * np.repeat(2.0**powers_a, 32, axis=1).swapaxes(1, 2)
    b = x["b"][:, 0] * np.repeat(2.0**powers_b, 32, axis=1).swapaxes(1, 2)
    want = np.einsum("wmk,wnk->wmn", a, b) + x["c"][:, 0]
    assert np.array_equal(numbers(row, got)[:, 0], want)


def test_nan_scale_spoils_its_row_only() -> None:
    row = MATRIX["v_mfma_scale_f32_16x16x128_f8f6f4"]
    x = case(row, 4, 4, 0)
    one = np.full((WAVES, 64), 127, np.uint8)
    broken = one.copy()
    broken[:, 5] = 255
    for numerics in ("fast", "exact"):
        got = numbers(row, matrix.execute(row, *x["registers"], numerics=numerics, cbsz=4, blgp=4, scale_a=broken,
                                          scale_b=one, mode=x["mode"]))  # fmt: skip
        nan = np.isnan(got[:, 0])
        assert nan[:, 5].all() and nan.sum() == WAVES * 16


# Modifiers


@pytest.mark.parametrize("name", [n for n, r in MATRIX.items() if r.blocks > 1 and r.a != "f64"])
def test_broadcast_of_a_and_lane_patterns_of_b(name: str) -> None:
    """cbsz and abid replace A's lanes, blgp B's: the result is that of registers with the lanes moved beforehand."""
    row = MATRIX[name]
    x = case(row, 0, 0, 0)
    a, b, c = x["registers"]
    for cbsz in range(1, row.blocks.bit_length()):
        for abid in range(1 << cbsz):
            size = 64 >> cbsz
            moved = np.stack([a[:, :, lane % size + size * abid] for lane in range(64)], axis=-1)
            got = matrix.execute(row, a, b, c, cbsz=cbsz, abid=abid, mode=x["mode"])
            assert np.array_equal(got, matrix.execute(row, moved, b, c, mode=x["mode"]))
    sources = {1: lambda i: i % 32, 2: lambda i: i % 32 + 32, 3: lambda i: (i + 16) % 64}
    for blgp in range(1, 8):
        source = sources.get(blgp, lambda i, q=blgp - 4: 16 * q + i % 16)
        moved = np.stack([b[:, :, source(lane)] for lane in range(64)], axis=-1)
        got = matrix.execute(row, a, b, c, blgp=blgp, mode=x["mode"])
        assert np.array_equal(got, matrix.execute(row, a, moved, c, mode=x["mode"]))


def test_full_broadcast_uses_one_block_for_all() -> None:
    row = MATRIX["v_mfma_f32_4x4x4_16b_f16"]
    x = case(row, 0, 0, 1)
    got = numbers(row, matrix.execute(row, *x["registers"], cbsz=4, abid=6, mode=x["mode"]))
    want = np.einsum("wmk,wbnk->wbmn", x["a"][:, 6], x["b"]) + x["c"]
    assert np.array_equal(got, want)


@pytest.mark.parametrize("negate", range(8))
def test_blgp_negates_f64_operands(negate: int) -> None:
    row = MATRIX["v_mfma_f64_16x16x4_f64"]
    x = case(row, 0, 0, 1)
    sign_a, sign_b, sign_c = (-1 if negate >> i & 1 else 1 for i in range(3))
    got = numbers(row, matrix.execute(row, *x["registers"], blgp=negate, mode=x["mode"]))
    assert np.array_equal(got, sign_a * sign_b * np.einsum("wbmk,wbnk->wbmn", x["a"], x["b"]) + sign_c * x["c"])


def test_integers_wrap_or_clamp() -> None:
    row = MATRIX["v_mfma_i32_16x16x64_i8"]
    a = np.full((row.a_dwords, 1, 64), 0x7F7F7F7F, np.uint32)
    top = np.full((row.cd_dwords, 1, 64), 0x7FFFFFF0, np.uint32)
    total = 0x7FFFFFF0 + 64 * 127 * 127
    assert (matrix.execute(row, a, a, top, clamp=False) == np.uint32(total % 2**32)).all()
    assert (matrix.execute(row, a, a, top, clamp=True) == np.uint32(0x7FFFFFFF)).all()


def test_xf32_inputs_lose_the_bits_below_ten() -> None:
    row = MATRIX["v_mfma_f32_16x16x8_xf32"]
    value = np.float32([1 + 2.0**-10 + 2.0**-11 + 2.0**-23]).view(np.uint32)[0]
    a = np.full((row.a_dwords, 1, 64), value, np.uint32)
    b = np.full((row.b_dwords, 1, 64), np.float32(1).view(np.uint32), np.uint32)
    for numerics in ("fast", "exact"):
        got = matrix.execute(row, a, b, np.zeros((row.cd_dwords, 1, 64), np.uint32), numerics=numerics)
        assert (got.view(np.float32) == 8 * np.float32(1 + 2.0**-10)).all()


def test_denormal_inputs_flush_by_mode_only_for_f32() -> None:
    tiny = np.uint32(1 << 22)  # a denormal f32, and as bf16 pair a denormal above a zero
    big = np.float32([2.0**120]).view(np.uint32)[0]
    row = MATRIX["v_mfma_f32_16x16x4_f32"]
    args = [np.full((row.a_dwords, 1, 64), v, np.uint32) for v in (tiny, big)]
    c = np.zeros((row.cd_dwords, 1, 64), np.uint32)
    for numerics in ("fast", "exact"):
        assert matrix.execute(row, *args, c, numerics=numerics).any()
        assert not matrix.execute(row, *args, c, numerics=numerics, mode=Mode(denorm32=0)).any()
    row = MATRIX["v_mfma_f32_16x16x16_bf16"]
    args = [np.full((row.a_dwords, 1, 64), v, np.uint32) for v in (tiny, big)]
    for numerics in ("fast", "exact"):
        assert matrix.execute(row, *args, c, numerics=numerics, mode=Mode(denorm32=0)).any()


def test_overflow_bit_clamps_to_the_largest_f32() -> None:
    row = MATRIX["v_mfma_f32_16x16x16_bf16"]
    big = np.full((row.a_dwords, 1, 64), 0x7F007F00, np.uint32)
    c = np.zeros((row.cd_dwords, 1, 64), np.uint32)
    for numerics in ("fast", "exact"):
        assert np.isinf(matrix.execute(row, big, big, c, numerics=numerics).view(np.float32)).all()
        clamped = matrix.execute(row, big, big, c, numerics=numerics, mode=Mode(fp16_ovfl=True)).view(np.float32)
        assert (clamped == np.finfo(np.float32).max).all()


# Exact numerics, against the published model on rationals


def aligned_exponent(form: str, arch: str, value: Fraction) -> int:
    lowest = {"f16": -14, "bf16": -126, "xf32": -126}.get(form)
    if lowest is None:
        lowest = 1 - NARROW[arch][form].bias
    return max(reference.floor_log2(abs(value)), lowest)


def cut(value: Fraction, place: int) -> Fraction:
    """Toward zero at 2**place."""
    unit = Fraction(2) ** place
    return int(value / unit) * unit


def floored(value: Fraction, place: int) -> Fraction:
    unit = Fraction(2) ** place
    return floor(value / unit) * unit


def cut_sum(products: list[tuple[Fraction, int]]) -> tuple[Fraction, int | None]:
    live = [(v, e) for v, e in products if v]
    if not live:
        return Fraction(0), None
    top = max(e for _, e in live)
    return sum((cut(v, top - 24) for v, _ in live), Fraction(0)), top


def model(forms: tuple[str, str], arch: str, a: list[Fraction], b: list[Fraction], c: int) -> int:
    """Bits of the accumulator after all groups (finite values only)."""
    eight = forms[0] in ("fp8", "bf8")
    size = 16 if eight else 4 if forms[0] == "xf32" else min(8, len(a))
    for start in range(0, len(a), size):
        products = []
        for x, y in zip(a[start : start + size], b[start : start + size]):
            live = x and y
            exponent = aligned_exponent(forms[0], arch, x) + aligned_exponent(forms[1], arch, y) if live else 0
            products.append((x * y, exponent))
        if eight:
            halves = [cut_sum(products[0::2]), cut_sum(products[1::2])]
            tops = [t for _, t in halves if t is not None]
            top = max(tops) if tops else None
            total = sum((floored(s, top - 24) for s, _ in halves), Fraction(0)) if top is not None else Fraction(0)
        else:
            total, top = cut_sum(products)
        addend = F32.value(c)
        exponent_c = max(reference.floor_log2(abs(addend)), -126) if addend else None
        known = [e for e in (top, exponent_c) if e is not None]
        if not known:
            c = 0
            continue
        highest = max(known)
        if eight and exponent_c is not None and exponent_c < highest - 25:
            addend = Fraction(0)
        c = F32.round(floored(total, highest - 31) + floored(addend, highest - 24))
    return c


def random_operand(form: str, arch: str, rng: random.Random) -> tuple[int, Fraction]:
    """(code, value) of a finite number, near one or anywhere, zeros and denormals included."""
    while True:
        if form in ("f16", "bf16"):
            binary = reference.FORMATS[form]
            code = rng.getrandbits(16)
            if rng.random() < 0.8:
                span = 6 if form == "f16" else 20
                code = code & ~binary.infinity | (binary.bias + rng.randint(-span, span) << binary.mantissa)
            if not binary.is_finite(code) or (form == "bf16" and binary.field(code) > 180):
                continue
            return code, binary.value(code)
        if form == "xf32":
            code = rng.getrandbits(32) & 0x807FFFFF | rng.randint(107, 147) << 23
            return code, F32.value(code & 0xFFFFE000)
        code = rng.getrandbits(8)
        value = NARROW[arch][form].decode(code)
        if isinstance(value, Fraction):
            return code, value


EXACT = [n for n, r in MATRIX.items() if r.cd == "f32" and r.a not in ("f32", "f8f6f4")]


@pytest.mark.parametrize("name", EXACT)
def test_exact_numerics_follow_the_published_model(name: str) -> None:
    """32 results of each row on random operands, cancellation and far accumulators included."""
    row = MATRIX[name]
    rng = random.Random(len(name))
    arch = row.architectures[0]
    codes_a = np.zeros((1, row.blocks, row.m, row.k), np.uint32)
    codes_b = np.zeros((1, row.blocks, row.n, row.k), np.uint32)
    codes_c = np.zeros((1, row.blocks, row.m, row.n), np.uint32)
    values_a, values_b = {}, {}
    for block, line, k in np.ndindex(row.blocks, row.m, row.k):
        codes_a[0, block, line, k], values_a[block, line, k] = random_operand(row.a, arch, rng)
        codes_b[0, block, line, k], values_b[block, line, k] = random_operand(row.b, arch, rng)
    for block, i, j in np.ndindex(row.blocks, row.m, row.n):
        codes_c[0, block, i, j] = rng.getrandbits(32) & 0x807FFFFF | rng.randint(90, 165) << 23
    registers = (
        operand_registers(row, row.a, codes_a), operand_registers(row, row.b, codes_b), result_registers(row, codes_c),
    )  # fmt: skip
    got = numbers(row, matrix.execute(row, *registers, numerics="exact", mode=Mode(architecture=arch)))
    for _ in range(32):
        block, i, j = rng.randrange(row.blocks), rng.randrange(row.m), rng.randrange(row.n)
        a = [values_a[block, i, k] for k in range(row.k)]
        b = [values_b[block, j, k] for k in range(row.k)]
        want = model((row.a, row.b), arch, a, b, int(codes_c[0, block, i, j]))
        assert int(got[0, block, i, j].view(np.uint32)) == want, (block, i, j)


@pytest.mark.parametrize("name", [n for n, r in MATRIX.items() if r.a in ("f32", "f64")])
def test_exact_f32_and_f64_are_a_chain_of_fma(name: str) -> None:
    row = MATRIX[name]
    form = reference.FORMATS[row.a]
    rng = random.Random(len(name))
    unsigned = f"u{form.width // 8}"

    def draw(*shape: int) -> Array:
        span = 30
        bits = [rng.getrandbits(form.width) & ~form.infinity | form.bias + rng.randint(-span, span) << form.mantissa
                for _ in range(int(np.prod(shape)))]  # fmt: skip
        return np.array(bits, unsigned).reshape(shape)

    a, b = draw(1, row.blocks, row.m, row.k), draw(1, row.blocks, row.n, row.k)
    c = draw(1, row.blocks, row.m, row.n)
    registers = (operand_registers(row, row.a, a), operand_registers(row, row.b, b), result_registers(row, c))
    got = numbers(row, matrix.execute(row, *registers, numerics="exact")).view(unsigned)
    for block, i, j in np.ndindex(row.blocks, row.m, row.n):
        want = int(c[0, block, i, j])
        for k in range(row.k):
            want = reference.fused(form, int(a[0, block, i, k]), int(b[0, block, j, k]), want)
        assert int(got[0, block, i, j]) == want


def test_exact_special_values() -> None:
    """Infinities, NaNs and products beyond 2**128 as the model has them; NaN results are the default one."""
    row = MATRIX["v_mfma_f32_16x16x16_bf16"]
    bf16 = reference.FORMATS["bf16"]
    one, big, infinity, nan = 0x3F80, 0x7F00, bf16.infinity, 0x7FC5
    cases = [
        ([infinity, one], [one, one], 0, F32.infinity),
        ([infinity, infinity], [one, one | 0x8000], 0, F32.nan),
        ([infinity, one], [0, one], 0, F32.nan),
        ([nan, one], [one, one], 0, F32.nan),
        ([big, one], [big, one], 0, F32.infinity),
        ([big, big], [big, big | 0x8000], 0, F32.nan),
        ([one, one], [one, one], F32.infinity | F32.sign_bit, F32.infinity | F32.sign_bit),
        ([one, one], [one, one], F32.infinity + 5, F32.nan),
        ([one, one], [one, one | 0x8000], F32.sign_bit, 0),
    ]
    for left, right, c, want in cases:
        a = np.zeros((1, 1, 16, 16), np.uint16)
        b = np.zeros((1, 1, 16, 16), np.uint16)
        a[..., 3:5], b[..., 3:5] = left, right
        registers = operand_registers(row, "bf16", a), operand_registers(row, "bf16", b)
        accumulator = np.full((row.cd_dwords, 1, 64), c, np.uint32)
        got = matrix.execute(row, *registers, accumulator, numerics="exact")
        assert (got == np.uint32(want)).all(), (left, right, c)


def bound(row: MatrixRow, forms: tuple[str, str], registers: tuple[Array, ...], scales: list[Any], mode: Mode) -> Array:
    left, right = (matrix._operand(row, r, f, mode) for r, f in zip(registers, forms))
    factors = matrix.factors(row, forms, left, right, scales, mode)
    return matrix_exact.distance_bound(row.k, *factors, matrix._accumulator(row, registers[2]))


@each(only=lambda row: row.cd == "f32" and row.a != "f32")
def test_fast_stays_within_the_stated_bound_of_exact(name: str, cbsz: int, blgp: int) -> None:
    """Random registers (all exponents, cancelling, denormal) and accumulators of every size."""
    row = MATRIX[name]
    forms = row.formats(cbsz, blgp)
    rng = np.random.default_rng(len(name) + cbsz)
    mode = Mode(architecture=row.architectures[-1])
    shapes = [(row.operand_dwords(f), 8, 64) for f in forms]
    a, b = (rng.integers(0, 1 << 32, shape, np.uint32) for shape in shapes)
    # Keep exponents of wide formats away from the top, where everything is infinite.
    keep = {"f16": 0xDFFFDFFF, "bf16": 0xBFFFBFFF, "xf32": 0xBFFFFFFF, "fp8": 0xBFBFBFBF, "bf8": 0xBFBFBFBF}
    a, b = a & np.uint32(keep.get(forms[0], 0xFFFFFFFF)), b & np.uint32(keep.get(forms[1], 0xFFFFFFFF))
    c = (rng.standard_normal((row.cd_dwords, 8, 64)) * 10.0 ** rng.integers(-9, 9, (row.cd_dwords, 8, 64))).astype(
        np.float32
    )
    registers = (a, b, c.view(np.uint32))
    codes = [rng.integers(100, 150, (8, 64)).astype(np.uint8) for _ in range(2)] if row.scaled else [None, None]
    scales = [None if s is None else matrix.E8M0_VALUES[s].reshape(-1, row.groups, row.m) for s in codes]
    both = [
        matrix._accumulator(row, matrix.execute(row, *registers, numerics=n, cbsz=cbsz, blgp=blgp, scale_a=codes[0],
                                                scale_b=codes[1], mode=mode)).astype(np.float64)
        for n in ("fast", "exact")
    ]  # fmt: skip
    finite = np.isfinite(both[0]) & np.isfinite(both[1])
    distance = np.abs(both[0] - both[1])
    assert finite.mean() > 0.9
    assert (distance <= bound(row, forms, registers, scales, mode))[finite].all()
    assert distance[finite].any() or row.k < 8  # the two really are computed differently
