"""Scalar arithmetic row by row against plain Python integers, on edge values and random ones, through whole
instructions.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.emulator.harness import execute, words
from tilec.emulator.scalar import SAVE_EXEC, SCALAR

M32, M64 = (1 << 32) - 1, (1 << 64) - 1
EDGES32 = [0, 1, 2, 31, 32, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFF8000, 0x00070003, 0x00200000, 0x12345678]
EDGES64 = [0, 1, M64, 1 << 63, (1 << 63) - 1, 1 << 32, M32, 0x0123456789ABCDEF]
_RANDOM = random.Random(3)


def s32(x):
    return (x & M32) - ((x & 0x80000000) << 1)


def s64(x):
    return (x & M64) - ((x & 1 << 63) << 1)


def reverse(x, n):
    return int(f"{x:0{n}b}"[::-1], 2)


def quads(x, n, whole):
    return sum((15 << 4 * i if whole else 1 << i) for i in range(n // 4) if x >> 4 * i & 15)


def field(x, control, n, signed):
    offset, width = control & (n - 1), control >> 16 & 0x7F
    bits = x >> offset & ((1 << min(width, n)) - 1)
    width = min(width, n - offset)
    if signed and width and bits >> width - 1 & 1:
        bits -= 1 << width
    return bits


def flbit(x, n):
    return M32 if x == 0 else n - x.bit_length()


def flbit_signed(x, n):
    return flbit((x if x >> n - 1 == 0 else ~x) & ((1 << n) - 1), n)


def ff1(x):
    return M32 if x == 0 else (x & -x).bit_length() - 1


def logic(f, n):
    return lambda a, b, c: (f(a, b) & ((1 << n) - 1), f(a, b) & ((1 << n) - 1) != 0)


def expected(name):
    """(a, b, scc) -> (result or None, scc or None: kept)."""
    n = 64 if name.endswith(("64", "_i64", "_u64")) else 32
    m, s = (M64, s64) if n == 64 else (M32, s32)
    stem = name.removeprefix("s_").rsplit("_", 1)[0]
    if stem in ("and", "or", "xor", "andn2", "orn2", "nand", "nor", "xnor"):
        return logic(
            {
                "and": lambda a, b: a & b,
                "or": lambda a, b: a | b,
                "xor": lambda a, b: a ^ b,
                "andn2": lambda a, b: a & ~b,
                "orn2": lambda a, b: a | ~b,
                "nand": lambda a, b: ~(a & b),
                "nor": lambda a, b: ~(a | b),
                "xnor": lambda a, b: ~(a ^ b),
            }[stem],
            n,
        )
    if stem.startswith(("cmp_", "cmpk_")):
        f = {
            "eq": lambda a, b: a == b,
            "lg": lambda a, b: a != b,
            "gt": lambda a, b: a > b,
            "ge": lambda a, b: a >= b,
            "lt": lambda a, b: a < b,
            "le": lambda a, b: a <= b,
        }[stem.split("_")[1]]
        signed = name.endswith("i32")
        return lambda a, b, c: (None, f(s32(a), s32(b)) if signed else f(a, b))
    table = {
        "mov": lambda a, b, c: (a, None),
        "movk": lambda a, b, c: (a, None),
        "not": lambda a, b, c: (~a & m, a != m),
        "brev": lambda a, b, c: (reverse(a, n), None),
        "wqm": lambda a, b, c: (quads(a, n, True), a != 0),
        "quadmask": lambda a, b, c: (quads(a, n, False), a != 0),
        "bcnt0_i32": lambda a, b, c: (n - a.bit_count(), a != m),
        "bcnt1_i32": lambda a, b, c: (a.bit_count(), a != 0),
        "ff0_i32": lambda a, b, c: (ff1(~a & m), None),
        "ff1_i32": lambda a, b, c: (ff1(a), None),
        "flbit_i32": lambda a, b, c: (flbit(a, n), None),
        "sext_i32": None,
        "cselect": lambda a, b, c: (a if c else b, None),
        "lshl": lambda a, b, c: (a << (b & n - 1) & m, a << (b & n - 1) & m != 0),
        "lshr": lambda a, b, c: (a >> (b & n - 1), a >> (b & n - 1) != 0),
        "ashr": lambda a, b, c: (s(a) >> (b & n - 1) & m, s(a) >> (b & n - 1) != 0),
        "bfm": lambda a, b, c: (((1 << (a & n - 1)) - 1) << (b & n - 1) & m, None),
        "bitcmp0": lambda a, b, c: (None, a >> (b & n - 1) & 1 == 0),
        "bitcmp1": lambda a, b, c: (None, a >> (b & n - 1) & 1 == 1),
        "abs": lambda a, b, c: (abs(s32(a)) & M32, a != 0),
        "mul": lambda a, b, c: (a * b & M32, None),
        "mulk": lambda a, b, c: (a * b & M32, None),
        "pack_ll_b32": lambda a, b, c: (a & 0xFFFF | b << 16 & M32, None),
        "pack_lh_b32": lambda a, b, c: (a & 0xFFFF | b & 0xFFFF0000, None),
        "pack_hh_b32": lambda a, b, c: (a >> 16 | b & 0xFFFF0000, None),
        "bitreplicate_b64": lambda a, b, c: (sum((a >> i & 1) * 3 << 2 * i for i in range(32)), None),
    }
    special = {
        "s_sext_i32_i8": lambda a, b, c: ((a & 255) - ((a & 128) << 1) & M32, None),
        "s_sext_i32_i16": lambda a, b, c: ((a & 0xFFFF) - ((a & 0x8000) << 1) & M32, None),
        "s_flbit_i32": lambda a, b, c: (flbit_signed(a, 32), None),
        "s_flbit_i32_i64": lambda a, b, c: (flbit_signed(a, 64), None),
        "s_bfe_u32": lambda a, b, c: (field(a, b, 32, False), field(a, b, 32, False) != 0),
        "s_bfe_i32": lambda a, b, c: (field(a, b, 32, True) & M32, field(a, b, 32, True) != 0),
        "s_bfe_u64": lambda a, b, c: (field(a, b, 64, False), field(a, b, 64, False) != 0),
        "s_bfe_i64": lambda a, b, c: (field(a, b, 64, True) & M64, field(a, b, 64, True) != 0),
        "s_add_u32": lambda a, b, c: (a + b & M32, a + b > M32),
        "s_sub_u32": lambda a, b, c: (a - b & M32, a < b),
        "s_addc_u32": lambda a, b, c: (a + b + c & M32, a + b + c > M32),
        "s_subb_u32": lambda a, b, c: (a - b - c & M32, a - b - c < 0),
        "s_add_i32": lambda a, b, c: (a + b & M32, s32(a) + s32(b) != s32(a + b)),
        "s_sub_i32": lambda a, b, c: (a - b & M32, s32(a) - s32(b) != s32(a - b)),
        "s_addk_i32": lambda a, b, c: (a + b & M32, s32(a) + s32(b) != s32(a + b)),
        "s_mul_hi_u32": lambda a, b, c: (a * b >> 32, None),
        "s_mul_hi_i32": lambda a, b, c: (s32(a) * s32(b) >> 32 & M32, None),
        "s_absdiff_i32": lambda a, b, c: (abs(s32(a) - s32(b)) & M32, a != b),
        "s_min_i32": lambda a, b, c: (min(s32(a), s32(b)) & M32, s32(a) < s32(b)),
        "s_min_u32": lambda a, b, c: (min(a, b), a < b),
        "s_max_i32": lambda a, b, c: (max(s32(a), s32(b)) & M32, s32(a) > s32(b)),
        "s_max_u32": lambda a, b, c: (max(a, b), a > b),
        "s_cmp_eq_u64": lambda a, b, c: (None, a == b),
        "s_cmp_lg_u64": lambda a, b, c: (None, a != b),
        **{f"s_lshl{i}_add_u32": lambda a, b, c, i=i: ((a << i) + b & M32, (a << i) + b > M32) for i in range(1, 5)},
    }
    return special.get(name) or table[stem]


READS_OLD = {
    "s_cmov_b32",
    "s_cmov_b64",
    "s_cmovk_i32",
    "s_bitset0_b32",
    "s_bitset0_b64",
    "s_bitset1_b32",
    "s_bitset1_b64",
}
DTYPES = {"u32": np.uint32, "i32": np.int32, "u64": np.uint64, "i64": np.int64, "k16": np.int32, "ku16": np.uint32}


def samples(kind):
    if kind == "k16":
        return [x & M32 for x in (0, 1, -1, 0x7FFF, -0x8000, 77)]
    if kind == "ku16":
        return [0, 1, 0x7FFF, 0x8000, 0xFFFF]
    wide = kind.endswith("64")
    return (EDGES64 if wide else EDGES32) + [_RANDOM.getrandbits(64 if wide else 32) for _ in range(6)]


@pytest.mark.parametrize("name", sorted(set(SCALAR) - READS_OLD))
def test_a_row_is_what_the_manual_says(name):
    row = SCALAR[name]
    kinds = ((row.dst,) if row.reads_dst else ()) + row.src
    cases = [
        (a, b, c) for a in samples(kinds[0]) for b in (samples(kinds[1]) if len(kinds) > 1 else [0]) for c in (0, 1)
    ]
    columns = [np.array([case[i] for case in cases], np.uint64) for i in range(len(kinds))]
    sources = [
        column.astype(np.uint32 if not kind.endswith("64") else np.uint64).view(DTYPES[kind])
        for column, kind in zip(columns, kinds, strict=True)
    ]
    scc = np.array([case[2] for case in cases], np.uint32)
    with np.errstate(all="ignore"):
        value = row.function(*sources, *((scc,) if row.reads_scc else ()))
    result, flag = value if isinstance(value, tuple) else (None, value) if row.dst == "" else (value, None)
    if row.scc == "nonzero":
        flag = result != 0
    mask = M64 if row.dst.endswith("64") else M32
    model = expected(name)
    for i, (a, b, c) in enumerate(cases):
        wanted, wanted_flag = model(a, b, c)
        if wanted is not None:
            assert int(np.broadcast_to(result, scc.shape)[i]) & mask == wanted & mask, (name, hex(a), hex(b), c)
        if wanted_flag is not None:
            assert bool(np.broadcast_to(flag, scc.shape)[i]) == bool(wanted_flag), (name, hex(a), hex(b), c)
        assert (wanted_flag is None) == (row.scc == "keep"), name


def scalars(text, count, **options):
    """Run scalar code on s[8:9] = output; the registers s[20:20+count) it leaves."""
    stores = "".join(
        f"v_mov_b32_e32 v2, s{20 + i}\nglobal_store_dword v1, v2, s[8:9] offset:{4 * i}\n" for i in range(count)
    )
    outcome = execute(
        f"""
        s_load_dwordx2 s[8:9], s[0:1], 0x0
        v_mov_b32_e32 v1, 0
        s_waitcnt lgkmcnt(0)
        {text}
        s_mov_b64 exec, 1
        {stores}
        s_endpgm""",
        words(count),
        checks=["definedness", "waits", "bounds"],
        **options,
    )
    assert not outcome.findings, outcome.findings
    return [int(x) for x in outcome.outputs[0]]


def test_operands_reach_the_rows():
    assert scalars(
        "s_mov_b64 s[20:21], -2\ns_add_u32 s22, s20, 0x12345678\ns_addc_u32 s23, s21, -16\n"
        "s_movk_i32 s24, 0x8001\ns_mov_b32 s25, 1.0",
        6,
    ) == [M32 - 1, M32, 0x12345676, M32 - 15, 0xFFFF8001, 0x3F800000]
    assert scalars(
        "s_cmp_lg_u32 s8, 0\ns_mov_b32 s20, 5\ns_cmovk_i32 s20, 0x7\ns_bitset1_b32 s20, 31\ns_bitset0_b32 s20, 0\n"
        "s_mov_b64 s[22:23], 3\ns_cmov_b64 s[22:23], 9\ns_mov_b32 s21, scc",
        4,
    ) == [0x80000006, 1, 9, 0]


@pytest.mark.parametrize("name", sorted(SAVE_EXEC))
def test_exec_is_saved_and_changed(name):
    f = SAVE_EXEC[name]
    mask, old = 0x0F0F00FF12345678, 0xFF00FF0000FFABCD
    setup = "".join(
        f"s_mov_b32 {r}, {v >> s & M32:#x}\n"
        for r, v, s in (("s30", mask, 0), ("s31", mask, 32), ("exec_lo", old, 0), ("exec_hi", old, 32))
    )
    got = scalars(setup + f"s_{name}_saveexec_b64 s[20:21], s[30:31]\ns_mov_b32 s24, scc\ns_mov_b64 s[22:23], exec", 5)
    new = int(f(np.uint64(mask), np.uint64(old)))
    assert got == [old & M32, old >> 32, new & M32, new >> 32, int(new != 0)]


def test_hardware_registers():
    got = scalars(
        """
        s_getreg_b32 s20, hwreg(HW_REG_MODE)
        s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), 0
        s_nop 1
        s_getreg_b32 s21, hwreg(HW_REG_MODE, 0, 8)
        s_getreg_b32 s22, hwreg(HW_REG_XCC_ID)
        s_getpc_b64 s[24:25]
        s_sub_u32 s23, s24, 0x1000
    """,
        4,
    )
    assert got[:3] == [0x3F0, 0xC0, 0] and got[3] % 4 == 0


def test_calls_and_computed_jumps():
    assert scalars(
        """
        s_getpc_b64 s[30:31]
        s_add_u32 s30, s30, there-.
        s_addc_u32 s31, s31, 0
        s_mov_b32 s20, 1
        s_swappc_b64 s[34:35], s[30:31]
        s_mov_b32 s21, 3
        s_branch done
        s_nop 0
    there:
        s_add_u32 s20, s20, 4
        s_setpc_b64 s[34:35]
    done:
        s_nop 0
    """.replace("there-.", "there-.+4-4"),
        2,
    ) == [5, 3]
