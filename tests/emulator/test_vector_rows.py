"""Every row of VECTOR, lane by lane, against the scalar reference: edge values in combination, then random ones.

The transcendentals and the lane-counting rows, which are no function of their sources' bits alone, have their own
tests.
"""

from __future__ import annotations

import itertools
import random
import zlib
from typing import Any

import numpy as np
import pytest

from tests.emulator import reference, reference_convert, reference_rows
from tests.emulator.test_arithmetic import edge_bits
from tilec.emulator.mode import Mode
from tilec.emulator.vector import KINDS, VECTOR, VectorRow

ELSEWHERE = {
    f"v_{name}_{kind}" for name in ("exp", "log", "rcp", "rsq", "sqrt", "sin", "cos") for kind in ("f16", "f32", "f64")
} | {"v_rcp_iflag_f32", "v_exp_legacy_f32", "v_log_legacy_f32", "v_trig_preop_f64", "v_mbcnt_lo_u32_b32",
     "v_mbcnt_hi_u32_b32"}  # fmt: skip
PLAIN = (Mode(), Mode(architecture="gfx942", ieee=False))
MODES = (
    *PLAIN,
    Mode(round32=1, round64=2, denorm32=3, denorm64=3),
    Mode(round32=3, round64=1, denorm32=0, denorm64=0, fp16_ovfl=True),
    Mode(round32=2, round64=3, denorm32=1, denorm64=2, architecture="gfx942"),
)
SMALL = [0, 1, 2, 3, 4, 5, 7, 8, 9, 12, 13, 15, 16, 17, 23, 24, 31, 32, 33, 63, 64, 0x7F, 0x80, 0xFF]


def reference_of(name: str) -> Any:
    """The scalar entry of a mnemonic; a packed form (v_pk_...) applies its scalar entry to each item."""
    entries = reference_rows.ROWS | reference_convert.ROWS
    if name in entries:
        return entries[name]
    scalar = entries[name.replace("v_pk_", "v_").replace("fmac", "fma")]
    return lambda mode, *sources: tuple(scalar(mode, *items) for items in zip(*sources))


def edges(kind: str) -> list[int]:
    """Unsigned bits of the interesting values of one item of a kind."""
    scalar = kind.lstrip("v0123456789") if kind.startswith("v") else kind
    if scalar == "mask":
        return [0, 1]
    if scalar in ("f16", "f32", "f64", "bf16", "mix"):
        form = reference.FORMATS[{"mix": "f32"}.get(scalar, scalar)]
        halves = [form.round(reference.Fraction(n, 2), 0, 0) for n in (1, 3, 5, 7, 255, 510, 511, 65535)]
        return edge_bits(form) + halves + [h | form.sign_bit for h in halves]
    width = int(scalar[1:])
    top = [(1 << width - 1) + d for d in (-2, -1, 0, 1)] + [(1 << width) - 1, (1 << width) - 2]
    middle = [
        1 << width // 2,
        (1 << width // 2) - 1,
        int("01" * (width // 2), 2),
        int("0123456789abcdef"[: width // 4], 16),
    ]
    if width == 32:
        middle += [0x7FFFFF, 0x800000, 0xFFFFFF, 0x01000001, 0x0C0D0B0A, 0x08090102, 0x80FF7F00, 0x3F800000]
    return [x for x in SMALL if x < 1 << width] + top + middle


def items_of(kind: str) -> int:
    return KINDS[kind].items


def random_item(kind: str, rng: random.Random) -> int:
    width = np.dtype(KINDS[kind].dtype).itemsize * 8
    if rng.random() < 0.5:
        return rng.choice(edges(kind))
    bits = rng.getrandbits(1 if kind == "mask" else width)
    if "f32" in kind and rng.random() < 0.6:  # near one, so that sums overlap and conversions are in range
        bits = bits & 0x807FFFFF | rng.randint(100, 160) << 23
    elif "f16" in kind and "bf16" not in kind and rng.random() < 0.3:
        bits = bits & 0x83FF | rng.randint(8, 22) << 10
    return bits


def cases(row: VectorRow, rng: random.Random) -> list[list[list[int]]]:
    """Lists of sources, each a list of its items' bits."""
    wide = max(items_of(k) for k in row.src)
    count = 700 if wide <= 2 else 80  # always more than one wave
    result = []
    if wide == 1 and len(row.src) <= 2:
        result = [[[x] for x in combination] for combination in itertools.product(*(edges(k) for k in row.src))]
    if wide == 1 and "f64" not in row.src and len(row.src) == 3 and "mask" not in row.src:
        few = [rng.sample(edges(k), min(9, len(edges(k)))) for k in row.src]
        result = [[[x] for x in combination] for combination in itertools.product(*few)]
    for _ in range(count):
        case = [[random_item(k, rng) for _ in range(items_of(k))] for k in row.src]
        if rng.random() < 0.1 and row.src[:2] == row.src[:1] * 2:
            case[1] = case[0]  # equal sources
        result.append(case)
    return result


def to_array(kind: str, column: list[list[int]]) -> np.ndarray:
    """[cases][items] bits to the array a row function gets: [lanes] or [items, lanes] (rows are elementwise)."""
    dtype = np.dtype(KINDS[kind].dtype)
    if kind == "mask":
        return np.array([bool(x[0]) for x in column])
    raw = np.array(column, np.dtype(f"u{dtype.itemsize}")).view(dtype)
    return np.ascontiguousarray(raw.T) if items_of(kind) > 1 else raw[:, 0]


def to_python(kind: str, items: list[int]) -> Any:
    """The same for the reference: signed ints for i kinds, tuples for packed ones."""
    scalar = kind.lstrip("v0123456789") if kind.startswith("v") else kind
    if kind == "mask":
        return bool(items[0])
    width = np.dtype(KINDS[kind].dtype).itemsize * 8
    values = [reference_rows.signed(x, width) if scalar.startswith("i") else x for x in items]
    return tuple(values) if items_of(kind) > 1 else values[0]


def result_bits(kind: str, array: np.ndarray) -> list[Any]:
    if kind == "mask":
        return array.tolist()
    raw = np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")
    return [tuple(x) for x in raw.T.tolist()] if items_of(kind) > 1 else raw.tolist()


def matches(kind: str, got: Any, want: Any) -> bool:
    """Equal bits; None in the reference stands for any NaN of the kind."""
    if kind == "mask":
        return bool(got) == bool(want)
    if isinstance(want, tuple):
        return all(matches(kind, g, w) for g, w in zip(got, want, strict=True))
    if want is None:
        scalar = kind.lstrip("v0123456789") if kind.startswith("v") else kind
        return reference.FORMATS[scalar].is_nan(got)
    width = np.dtype(KINDS[kind].dtype).itemsize * 8
    return got == want & (1 << width) - 1


def run(row: VectorRow, function: Any, mode: Mode, listed: list[list[list[int]]], **named: int) -> list[list[Any]]:
    arrays = [to_array(kind, list(column)) for kind, column in zip(row.src, zip(*listed))]
    lanes = -len(listed) % 64  # whole waves, as the emulator has them
    padded = [np.concatenate([a, np.repeat(a[..., :1], lanes, axis=-1)], axis=-1) for a in arrays]
    shaped = [a.reshape(*a.shape[:-1], -1, 64) for a in padded]
    with np.errstate(all="ignore"):
        results = function(mode, *shaped, **named)
    results = results if isinstance(results, tuple) else (results,)
    assert len(results) == len(row.dst)
    flat = []
    for kind, array in zip(row.dst, results):
        want = shaped[0].shape[-2:]
        assert array.dtype == KINDS[kind].dtype
        assert array.shape == ((items_of(kind), *want) if items_of(kind) > 1 else want)
        flat.append(result_bits(kind, array.reshape(*array.shape[:-2], -1)[..., : len(listed)]))
    return [list(values) for values in zip(*flat)]


def depends_on_mode(row: VectorRow) -> bool:
    return any("f" in kind or kind == "mix" for kind in (*row.src, *row.dst)) or "fp8" in row.name or "bf8" in row.name


@pytest.mark.parametrize("name", sorted(set(VECTOR) - ELSEWHERE))
def test_row(name: str) -> None:
    row = VECTOR[name]
    scalar = reference_of(name)
    rng = random.Random(zlib.crc32(name.encode()))
    listed = cases(row, rng)
    if row.writes_exec:  # v_cmpx shares the function of v_cmp
        listed = rng.sample(listed, 100)
    tables = [{"bitop3": rng.getrandbits(8)} for _ in range(6)] if row.modifiers else [{}]
    for named in tables:
        for mode in MODES if depends_on_mode(row) else (Mode(),):
            if mode is not MODES[0]:
                listed = rng.sample(listed, min(len(listed), 300))
            got = run(row, row.function, mode, listed, **named)
            for case, results in zip(listed, got):
                want = scalar(mode, *(to_python(k, items) for k, items in zip(row.src, case)), **named)
                want = want if isinstance(want, list) else [want]
                for kind, g, w in zip(row.dst, results, want, strict=True):
                    assert matches(kind, g, w), f"{case=} {mode=} {g=} {w=}"


@pytest.mark.parametrize("name", sorted(n for n, r in VECTOR.items() if r.saturate))
def test_integer_clamp(name: str) -> None:
    """Clamped results are the exact ones cut to the range of the destination."""
    row = VECTOR[name]
    scalar = reference_of(name)
    listed = cases(row, random.Random(zlib.crc32(name.encode()) + 1))
    kind = row.dst[0]
    info = np.iinfo(KINDS[kind].dtype)

    def cut(x: Any) -> Any:
        return tuple(map(cut, x)) if isinstance(x, tuple) else min(max(x, info.min), info.max)

    clamped = 0
    for case, results in zip(listed, run(row, row.saturate, Mode(), listed)):
        exact = scalar(Mode(), *(to_python(k, items) for k, items in zip(row.src, case)))
        clamped += cut(exact) != exact
        assert matches(kind, results[0], cut(exact)), f"{case=}"
    assert clamped > 10  # the cases reach beyond the range


@pytest.mark.parametrize("name", sorted(VECTOR))
def test_sources_may_be_scalars_or_constants(name: str) -> None:
    """Operands from SGPRs come as [waves, 1], constants as [1, 1]: as if the same values stood in all lanes."""
    row = VECTOR[name]
    rng = random.Random(zlib.crc32(name.encode()) + 2)
    named = dict.fromkeys(row.modifiers, 0xCA)
    listed = [[[random_item(k, rng) for _ in range(items_of(k))] for k in row.src] for _ in range(128)]
    full = [to_array(kind, list(column)) for kind, column in zip(row.src, zip(*listed))]
    full = [a.reshape(*a.shape[:-1], 2, 64) for a in full]
    for index in range(len(full)):
        for cut in ((slice(None), slice(1)), (slice(1), slice(1))):
            small = np.ascontiguousarray(full[index][..., *cut])
            wide = np.ascontiguousarray(np.broadcast_to(small, full[index].shape))
            with np.errstate(all="ignore"):
                got = row.function(Mode(), *full[:index], small, *full[index + 1 :], **named)
                want = row.function(Mode(), *full[:index], wide, *full[index + 1 :], **named)
            for g, w in zip(*(r if isinstance(r, tuple) else (r,) for r in (got, want)), strict=True):
                assert g.dtype == w.dtype
                g = np.ascontiguousarray(np.broadcast_to(g, w.shape))
                assert g.tobytes() == np.ascontiguousarray(w).tobytes()
