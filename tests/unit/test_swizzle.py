"""The swizzle solver: published access patterns, random access sets against brute force, padding, time."""

import time

import numpy as np
import pytest

from tilec.errors import InternalError
from tilec.ir.blocked import blocked
from tilec.ir.fragments import operand
from tilec.ir.layout import Layout
from tilec.ir.lds_access import extra_cycles, lds_access
from tilec.ir.shared_layout import SharedLayout
from tilec.passes import swizzle
from tilec.passes.swizzle import Access, evaluate, solve
from tilec.target import target

GFX942, GFX950 = target("gfx942"), target("gfx950")


def base_tile(rows: int, columns: int, stride: int, by_column: bool, tile: tuple[int, int]) -> Layout:
    """A register tile as HipKittens describes it: lane l has row l % rows and runs of `stride` columns, the first at
    stride * (l // rows); by_column exchanges rows and columns. Base tiles repeat to fill `tile`."""
    free, along = (1, 0) if by_column else (0, 1)
    shape = (rows, columns)
    unit = [lambda value: (0, value), lambda value: (value, 0)][by_column]
    other = [lambda value: (value, 0), lambda value: (0, value)][by_column]
    lanes_free, lanes_along = shape[free], 64 // shape[free]
    item = [unit(1 << bit) for bit in range(stride.bit_length() - 1)]
    lane = [other(1 << bit) for bit in range(lanes_free.bit_length() - 1)]
    lane += [unit(stride << bit) for bit in range(lanes_along.bit_length() - 1)]
    value = stride * lanes_along
    while value < tile[along]:
        item.append(unit(value))
        value *= 2
    value = lanes_free
    while value < tile[free]:
        item.append(other(value))
        value *= 2
    return Layout(tile, tuple(item), tuple(lane), ())


COPY = Access("copy", "copy", copy_bytes=16)


def read(rows, columns, stride, tile, by_column=False):
    return Access("column" if by_column else "row", "read", base_tile(rows, columns, stride, by_column, tile))


# What HipKittens reaches by hand-made swizzles (its paper and code, phases measured on MI355X): extra cycles per
# instruction, here as the limit for the solver. Each buffer is solved for all its accesses at once.
PATTERNS = {
    "GEMM A, B": ((128, 64), 16, [COPY, read(16, 32, 8, (128, 64))], {"ds_read_b128": 0}),
    "GEMM A, B, 32x32x16": ((256, 64), 16, [COPY, read(32, 16, 8, (256, 64))], {"ds_read_b128": 0}),
    "backward Q, dO": ((32, 128), 16, [COPY, read(16, 32, 8, (32, 128)), read(16, 32, 8, (32, 128), True)],
                       {"ds_read_b128": 0, "ds_read_b64_tr_b16": 0}),
    "forward K": ((64, 128), 16, [COPY, read(32, 16, 8, (64, 128))], {"ds_read_b128": 0}),
    "forward V": ((64, 128), 16, [COPY, read(16, 32, 4, (64, 128), True)], {"ds_read_b64_tr_b16": 0}),
    "backward K": ((256, 128), 16, [COPY, read(16, 32, 8, (256, 128)), read(32, 16, 4, (256, 128), True)],
                   {"ds_read_b128": 0, "ds_read_b64_tr_b16": 0}),
    "backward dS": ((16, 16), 16, [Access("write", "write", base_tile(16, 16, 4, False, (16, 16))),
                                   read(32, 16, 4, (16, 16), True)], {"ds_write_b64": 0, "ds_read_b64_tr_b16": 0}),
    "FP8 GEMM": ((128, 128), 8, [COPY, read(16, 128, 16, (128, 128))], {"ds_read_b128": 0}),
    "32x16 tiles in 8-byte reads": ((128, 64), 16, [COPY, read(32, 16, 4, (128, 64))], {"ds_read_b64": 2}),
    "32x32 tiles in 8-byte reads": ((64, 64), 16, [COPY, read(32, 32, 4, (64, 64))], {"ds_read_b64": 2}),
}


@pytest.mark.parametrize("shape,bits,accesses,limits", PATTERNS.values(), ids=PATTERNS)
def test_published_patterns(shape, bits, accesses, limits):
    solution = solve(accesses, shape, bits, GFX950, (1, 0))
    assert solution.proven
    found = {report.mnemonic: report.extra_cycles for report in solution.reports if report.mnemonic != "copy"}
    assert found.keys() == limits.keys()
    assert all(found[name] <= limits[name] for name in limits), found


def test_without_a_swizzle_these_patterns_conflict():
    """The counts published for the maps without a swizzle: 4 for the 16x32 tile read, 12 for the dS write."""
    row = base_tile(16, 32, 8, False, (16, 32))
    plain = evaluate([Access("row", "read", row)], SharedLayout((16, 32), 16, (1, 0), 8), GFX950)
    assert plain.reports[0].extra_cycles == 4
    write = Access("write", "write", base_tile(16, 16, 4, False, (16, 16)))
    plain = evaluate([write], SharedLayout((16, 16), 16, (1, 0), 4), GFX950)
    assert plain.reports[0].extra_cycles == 12 and plain.paying == ("write",)


GEMMS = {
    "gfx950 16x16x32": (GFX950, "v_mfma_f32_16x16x32_bf16", 0, "copy"),
    "gfx950 32x32x16": (GFX950, "v_mfma_f32_32x32x16_bf16", 0, "copy"),
    "gfx942 16x16x16": (GFX942, "v_mfma_f32_16x16x16_bf16", 0, "write"),
    "gfx942 16x16x16, pairs": (GFX942, "v_mfma_f32_16x16x16_bf16", 8, "write"),
    "gfx942 32x32x8, pairs": (GFX942, "v_mfma_f32_32x32x8_f16", 8, "write"),
}


@pytest.mark.parametrize("arch,mnemonic,k_vector,fill", GEMMS.values(), ids=GEMMS)
@pytest.mark.parametrize("shape", [(256, 64), (128, 32), (256, 128), (192, 64)], ids=str)
def test_gemm_tiles_are_free_of_conflicts(arch, mnemonic, k_vector, fill, shape):
    tile = operand(arch.mfma(mnemonic), "a", shape, (2, 4), k_vector=k_vector)
    filled = COPY if fill == "copy" else Access("write", "write", blocked(shape, (1, 0), 8, 8))
    swizzle._solve.cache_clear()
    start = time.perf_counter()
    solution = solve([filled, Access("read", "read", tile)], shape, 16, arch, (1, 0))
    assert time.perf_counter() - start < 0.2  # 1 to 5 ms on a quiet machine
    assert solution.extra_cycles == 0 and solution.proven and solution.shared.pad_bytes == 0
    assert solution.reports[1].source == ("measured on MI355X" if arch is GFX950 else "inferred from documents")


def test_low_swizzle_bits_are_preferred():
    """The rows of one copy of a wave carry the swizzle: the copies' global addresses stay lane part plus constant."""
    tile = operand(GFX950.mfma("v_mfma_f32_16x16x32_bf16"), "a", (256, 64), (2, 4))
    solution = solve([COPY, Access("read", "read", tile)], (256, 64), 16, GFX950, (1, 0))
    assert len(solution.shared.swizzle) <= 6


def test_narrower_granules_where_wide_ones_conflict():
    """Rows written 16 bytes a lane but read 8 bytes a lane by 16 rows: free only if 8-byte granules can move."""
    tile = operand(GFX942.mfma("v_mfma_f32_16x16x16_bf16"), "a", (256, 64), (2, 4))
    write = Access("write", "write", blocked((256, 64), (1, 0), 8, 8))
    solution = solve([write, Access("read", "read", tile)], (256, 64), 16, GFX942, (1, 0))
    assert [report.mnemonic for report in solution.reports] == ["ds_write_b64", "ds_read_b64"]
    assert solution.shared.granule_bytes == 8 and solution.extra_cycles == 0


def test_report_names_who_pays():
    """A copy keeps granules at 16 bytes, so 8-byte column accesses of gfx942 can't be freed: the report says which."""
    wide = blocked((64, 64), (1, 0), 8, 4)
    narrow = base_tile(16, 16, 4, False, (64, 64))
    accesses = [COPY, Access("rows", "read", wide), Access("tiles", "read", narrow)]
    solution = solve(accesses, (64, 64), 16, GFX942, (1, 0))
    assert solution.paying == ("tiles",) and solution.reports[2].extra_cycles > 0
    assert str(solution.reports[2]) == (
        f"tiles: {solution.reports[2].instructions} ds_read_b64, {solution.reports[2].extra_cycles} extra cycles each "
        "(inferred from documents)")


@pytest.mark.parametrize("seed", range(300, 310))
def test_no_padded_layout_is_cheaper(seed):
    """Padding is tried where a swizzle leaves conflicts; whatever is chosen, no padded candidate costs less."""
    shape, bits, accesses = random_accesses(np.random.default_rng(seed))
    solution = solve(accesses, shape, bits, GFX942, (1, 0))
    row = shape[1] * bits // 8
    for granule_bytes, pad in ((16, 16), (8, 8), (4, 4), (4, 12), (8, 24)):
        if granule_bytes <= row:
            padded = SharedLayout(shape, bits, (1, 0), 8 * granule_bytes // bits, granule_bytes, (), row, pad)
            found = evaluate(accesses, padded, GFX942)
            assert found is None or found.cost >= solution.cost


def test_fp6_granules_of_24_bytes():
    row = GFX950.mfma("v_mfma_f32_16x16x128_f8f6f4", "fp6_e2m3", "fp6_e2m3")
    solution = solve([Access("a", "read", operand(row, "a", (256, 128), (2, 2)))], (256, 128), 6, GFX950, (1, 0))
    assert solution.extra_cycles == 0 and solution.shared.granule_bytes == 24 and not solution.proven


def test_granules_narrower_than_a_transposed_read_are_not_tried():
    """The write would be served by granules of 4 bytes; the read takes 8 at once, and no swizzle may part them."""
    write = Layout((128, 128), ((1, 0), (4, 0), (8, 0), (16, 0), (32, 0), (64, 0), (0, 1), (0, 2)),
                   ((0, 4), (0, 8), (0, 16), (0, 32), (0, 64), (2, 0)), ())
    tile = Layout((128, 128), ((0, 1), (0, 2), (0, 4), (0, 32), (0, 64), (16, 0), (32, 0), (64, 0)),
                  ((1, 0), (2, 0), (4, 0), (8, 0), (0, 8), (0, 16)), ())
    solution = solve([Access("write", "write", write), Access("y", "read", tile)], (128, 128), 16, GFX950, (0, 1))
    assert solution.shared.granule_bytes >= 8
    assert [report.mnemonic for report in solution.reports] == ["ds_write_b32", "ds_read_b64_tr_b16"]


def test_no_layout():
    with pytest.raises(InternalError, match="no LDS layout of \\(64, 64\\) serves fill"):
        solve([Access("fill", "copy", copy_bytes=12)], (64, 64), 16, GFX950, (1, 0))


# ---------------------------------------------------------------------------------------------- against brute force
def random_accesses(rng) -> tuple[tuple[int, int], int, list[Access]]:
    bits = int(rng.choice([8, 16, 32]))
    shape = (int(rng.choice([8, 16, 32, 64])), int(rng.choice([16, 32, 64])))
    accesses = []
    for number in range(int(rng.integers(1, 4))):
        pool = [(1 << bit, 0) for bit in range(shape[0].bit_length() - 1)]
        columns = [(0, 1 << bit) for bit in range(shape[1].bit_length() - 1)]
        low = int(rng.integers(0, min(len(columns), 4)))
        rest = pool + columns[low:]
        rng.shuffle(rest)
        rest = [tuple(map(int, basis)) for basis in rest]
        lane = rest[:6] + [(0, 0)] * (6 - len(rest[:6]))
        layout = Layout(shape, tuple(columns[:low] + rest[6:]), tuple(lane), ())
        accesses.append(Access(f"{number}", str(rng.choice(["read", "write"])), layout, weight=int(rng.integers(1, 4))))
    return shape, bits, accesses


def brute_force(shape, bits, accesses, arch, granule_bytes, rng) -> int | None:
    """The least cost over a family of XOR maps: all of them if at most 4096, else all masks of some bits."""
    granule = 8 * granule_bytes // bits
    plain = SharedLayout(shape, bits, (1, 0), granule, granule_bytes)
    plans = [lds_access(access.layout, plain, arch, access.kind == "write", granule_bytes) for access in accesses]
    levels = (plain.block // granule).bit_length() - 1
    width = max(0, (4 * arch.lds_banks // granule_bytes).bit_length() - 1)
    free = [(bit, 1 << min(bit, width)) for bit in range(levels) if bit]
    rng.shuffle(free)
    family = np.zeros((1, levels), np.int64)
    for bit, choices in map(tuple, free):
        if len(family) * choices > 4096:
            continue
        family = np.repeat(family, choices, axis=0)
        family[:, bit] = np.tile(np.arange(choices), len(family) // choices)
    cost = np.zeros(len(family), np.int64)
    for access, plan in zip(accesses, plans, strict=True):
        address = plan.base(np.arange(64))
        place = np.broadcast_to(address // granule_bytes, (len(family), 64)).copy()
        for bit in range(levels):
            place ^= (address // granule_bytes >> bit & 1) * family[:, bit, None]
        extra = extra_cycles(plan.instruction, place * granule_bytes + address % granule_bytes)
        cost += access.weight * len(plan.parts) * (extra + plan.instruction.base_cycles)
    return int(cost.min())


def check_against_brute_force(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape, bits, accesses = random_accesses(rng)
    for arch in (GFX942, GFX950):
        solution = solve(accesses, shape, bits, arch, (1, 0))
        assert solution.proven
        if any("_tr_" in report.mnemonic for report in solution.reports):
            continue
        best = min(brute_force(shape, bits, accesses, arch, size, rng) for size in (16, 8, 4))
        assert solution.cost <= best, str(solution.shared)
        assert evaluate(accesses, solution.shared, arch).cost == solution.cost


@pytest.mark.parametrize("seed", range(20))
def test_random_accesses_against_brute_force(seed):
    check_against_brute_force(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20, 200))
def test_many_random_accesses_against_brute_force(seed):
    check_against_brute_force(seed)
