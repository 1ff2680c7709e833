"""attention: lengths, heads, places, masks, types on both architectures; within a bound derived from the arithmetic."""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import Any

import numpy as np
import pytest

import tilec as tc
from kernels.attention import attention, attention_varlen, each_sequence, reference_attention_varlen
from kernels.attention import reference_attention as reference
from tests.schedules.steady import Steady
from tests.support.numbers import attention_bounds, integers, normal
from tests.support.placing import PLACES, dense, odd_rows, placed
from tests.support.proving import difference, interpreted, prove, prove_chain, run_and_compare
from tilec import trial
from tilec.dtypes import DTYPES
from tilec.ir import interp, numerics, tile
from tilec.ir.core import Value, definitions

SMALL = {"D": 32, "BM": 32, "BN": 32}
LENGTHS = [1, 2, 5, 31, 32, 33, 100]
Problem = tuple[dict[str, Any], dict[str, np.ndarray], dict[str, np.ndarray]]


def problem(queries: int, keys: int, heads: int = 1, key_heads: int = 1, batch: int = 1, depth: int = 32,
            dtype: str = "bf16", causal: bool = False, scale: float | None = None, place: Any = dense,
            exact: bool = False, seed: int = 0, lazy: float = 0) -> Problem:
    """Arguments in poisoned memory, results, bounds. `exact`: small integers, whose scores are exact in f32."""
    shapes = [(batch, h, length, depth) for h, length in [(heads, queries), (key_heads, keys), (key_heads, keys)]]
    make = integers if exact else normal
    q, k, v = (make(shape, dtype, seed + i) for i, shape in enumerate(shapes))
    arguments: dict[str, Any] = {name: placed(data, place) for name, data in zip("QKV", (q, k, v))}
    arguments["O"] = placed(np.ones(shapes[0], DTYPES[dtype].numpy()), place)
    arguments["LSE"] = placed(np.ones(shapes[0][:3], np.float32), place)
    arguments["scale"] = float(np.float32(depth**-0.5 if scale is None else scale))
    expected = reference(**arguments, causal=causal)
    return arguments, expected, attention_bounds(q, k, v, arguments["scale"], causal, DTYPES[dtype], exact, lazy=lazy)


# -- the meaning of the kernel: the interpreter against float64

@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("queries", [0, *LENGTHS])
def test_meaning_for_any_lengths(queries, causal):                       # BL-48, BL-49, BL-53
    program = None
    for keys in [0, *LENGTHS]:
        arguments, expected, bounds = problem(queries, keys, place=odd_rows, causal=causal)
        program = program or attention.trace(**arguments, causal=causal, **SMALL)
        agree(interpreted(program, arguments), expected, bounds)


def agree(got: dict[str, np.ndarray], expected: dict[str, np.ndarray], bounds: dict[str, np.ndarray]) -> None:
    for name, want in expected.items():
        assert not (fault := difference(got[name], want, bounds[name])), f"{name}: {fault}"


def test_rows_that_see_nothing():                                        # BL-48, BL-53
    arguments, expected, bounds = problem(40, 7, causal=True)
    assert (expected["O"][..., :33, :] == 0).all() and (expected["LSE"][..., :33] == -np.inf).all()
    got = interpreted(attention.trace(**arguments, causal=True, **SMALL), arguments)
    assert (got["O"][..., :33, :] == 0).all() and (got["LSE"][..., :33] == -np.inf).all()
    agree(got, expected, bounds)


def test_the_bound_sees_one_more_key_and_one_less():
    """A padded key that enters the sum as a score of 0, and a diagonal off by one, show in some row."""
    for causal in (False, True):
        arguments, expected, bounds = problem(20, 37, causal=causal)
        padded = {name: np.pad(arguments[name], ((0, 0), (0, 0), (0, 1), (0, 0))) for name in "KV"}
        wrong = reference(**{**arguments, **padded}, causal=causal)
        assert difference(wrong["O"], expected["O"], bounds["O"]) and difference(wrong["LSE"], expected["LSE"],
                                                                                 bounds["LSE"])


def heads_seen(heads: int, key_heads: int) -> np.ndarray:
    """The key head that each head reads: values name their head, keys are alike."""
    depth, rows = 16, 16
    q, k = np.zeros((1, heads, 1, depth), np.float16), np.zeros((1, key_heads, 1, depth), np.float16)
    v = np.broadcast_to(np.arange(key_heads, dtype=np.float16)[None, :, None, None], k.shape).copy()
    arguments = {"Q": q, "K": k, "V": v, "O": q - 1, "LSE": np.zeros((1, heads, 1), np.float32), "scale": 1.0}
    program = attention.trace(**arguments, D=depth, BM=rows, BN=16)
    return interpreted(program, arguments)["O"][0, :, 0, 0].astype(int)


HEADS = [1, 6, 16, 30, 64]


@pytest.mark.parametrize("heads", HEADS)
def test_each_head_reads_its_key_head(heads):                            # BL-57
    for key_heads in (g for g in range(1, heads + 1) if heads % g == 0):
        assert np.array_equal(heads_seen(heads, key_heads), np.arange(heads) // (heads // key_heads))


def test_head_map_for_all_head_counts():                                 # BL-57
    """The program's own index arithmetic, for all heads at once, for all head counts to 128 and all their divisors."""
    arguments = problem(1, 1, depth=16)[0]
    defining = definitions(attention.trace(**arguments, D=16, BM=16, BN=16).body)
    key_head = next(value for value in defining if value.name == "g")

    def evaluate(value: Value, heads: int, key_heads: int) -> np.ndarray:
        match defining[value]:
            case tile.ProgramId(axis=1):
                return np.arange(heads, dtype=np.int32)
            case tile.Dim(axis=1) as op:
                return np.int32({"Q": heads, "K": key_heads}[op.tensor.name])
            case tile.Elementwise() as op:
                parts = tuple(evaluate(a, heads, key_heads) for a in op.arguments)
                return numerics.elementwise(op.function, parts, value.dtype, value.dtype)
        raise AssertionError(defining[value])

    for heads in range(1, 129):
        for key_heads in (g for g in range(1, heads + 1) if heads % g == 0):
            assert np.array_equal(evaluate(key_head, heads, key_heads), np.arange(heads) // (heads // key_heads))


@pytest.mark.parametrize("change, text", [
    ({"K": (1, 3, 5, 32)}, "multiple"), ({"K": (1, 1, 5, 16)}, "must be D"), ({"scale": 0.0}, "positive")])
def test_what_is_refused(change, text):
    arguments, _, _ = problem(4, 5, heads=4)
    program = attention.trace(**arguments, **SMALL)
    for name, value in change.items():
        arguments[name] = np.zeros(value, arguments[name].dtype) if isinstance(value, tuple) else value
    with pytest.raises(tc.TilecError, match=text):
        interp.run(program, arguments)


@pytest.mark.parametrize("rise", [0.5, 7.5, 8.0, 8.5, 40.0, -40.0])
@pytest.mark.parametrize("lazy", [0, 0.5, 8])
def test_scores_that_rise_from_tile_to_tile(lazy, rise):
    """Key n scores n // 32 times `rise` (as a power of 2): followed late, at once or never, the result is the same."""
    arguments, _, _ = problem(5, 320, dtype="f16", lazy=lazy)
    arguments["Q"][:] = arguments["K"][:] = 0
    arguments["Q"][..., 0], arguments["scale"] = 1, math.log(2)
    arguments["K"][..., 0] = (np.arange(320) // 32 * rise).astype(np.float16)
    q, k, v = (arguments[name] for name in "QKV")
    program = attention.trace(**arguments, lazy=lazy, **SMALL)
    bounds = attention_bounds(q, k, v, arguments["scale"], False, DTYPES["f16"], exact_scores=True, lazy=lazy)
    agree(interpreted(program, arguments), reference(**arguments), bounds)


@pytest.mark.parametrize("lazy", [-1, 8.5])
def test_how_lazy_it_may_be(lazy):
    with pytest.raises(tc.TilecError, match="lazy must be from 0 to 8"):
        attention.trace(**problem(4, 5)[0], lazy=lazy, **SMALL)


# -- compiled

@pytest.mark.parametrize("dtype", ["bf16", "f16"])
@pytest.mark.parametrize("causal", [False, True])
def test_lazy_rescale(causal, dtype, arch):
    for queries, keys, scale in [(65, 160, 0.2), (33, 129, 2.0), (64, 200, 30.0), (5, 0, 1.0)]:
        arguments, expected, bounds = problem(queries, keys, dtype=dtype, causal=causal, scale=scale, lazy=8)
        prove_chain(attention, arguments, arch, expected, bounds=bounds, causal=causal, lazy=8, **SMALL)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("queries, keys", [(0, 5), (5, 0), (1, 1), (1, 100), (100, 1), (33, 64), (64, 33), (65, 65)])
def test_lengths(queries, keys, causal, arch):                           # BL-42, BL-48, BL-49, BL-53
    arguments, expected, bounds = problem(queries, keys, place=odd_rows, causal=causal)
    prove_chain(attention, arguments, arch, expected, bounds=bounds, causal=causal, **SMALL)


def test_one_object_serves_all_lengths(arch):                            # BL-42, BL-48, BL-54
    for causal in (False, True):
        arguments = problem(33, 33)[0]
        compiled = attention.compile(**arguments, arch=arch, verify=True, causal=causal, **SMALL)
        for queries, keys in [(1, 63), (2, 64), (5, 65), (63, 5), (64, 2), (65, 1), (32, 128), (7, 97)]:
            arguments, expected, bounds = problem(queries, keys, causal=causal, seed=keys)
            run_and_compare(compiled, arguments, expected, bounds=bounds)


@pytest.mark.parametrize("group", [1, 2, 4, 8, 16])
def test_one_query_of_grouped_heads(group, arch):                        # BL-57
    arguments, expected, bounds = problem(1, 70, heads=16, key_heads=16 // group, causal=True)
    prove(attention, arguments, arch, expected, bounds=bounds, causal=True, **SMALL)


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
@pytest.mark.parametrize("depth", [16, 48, 80, 112, 256])
def test_types_and_depths(dtype, depth, arch):
    arguments, expected, bounds = problem(40, 50, 2, depth=depth, dtype=dtype, causal=True)
    prove(attention, arguments, arch, expected, bounds=bounds, causal=True, D=depth, BM=64, BN=32)


def test_deep_heads_take_tiles_of_full_size(arch):
    """D = 256: two waves on a SIMD, 64 registers of O in each lane; few columns of V are read at a time."""
    arguments, expected, bounds = problem(130, 150, depth=256, causal=True)
    compiled = prove(attention, arguments, arch, expected, bounds=bounds, causal=True, D=256)
    assert compiled.resources.scratch == compiled.resources.agpr == 0


@pytest.mark.parametrize("place", PLACES)
def test_places(place, arch):                                            # BL-49, BL-76
    arguments, expected, bounds = problem(35, 40, 2, 1, place=PLACES[place])
    prove(attention, arguments, arch, expected, bounds=bounds, **SMALL)


@pytest.mark.parametrize("scale", [1.0, 1024.0])
def test_large_scores(scale, arch):
    arguments, expected, bounds = problem(40, 70, exact=True, scale=scale)
    scores = np.abs(arguments["Q"].astype(float) @ arguments["K"].astype(float).swapaxes(2, 3)).max() * scale
    assert scale == 1.0 or scores > 1e5
    prove(attention, arguments, arch, expected, bounds=bounds, **SMALL)


@pytest.mark.parametrize("padding", [np.nan, np.inf, 1e38])
def test_what_lies_behind_a_sequence_never_leaks(padding, arch):         # BL-49
    whole = [np.full((1, 1, 128, 32), padding, DTYPES["bf16"].numpy()) for _ in range(4)]
    arguments, expected, bounds = problem(37, 41)
    for name, around in zip("QKVO", whole):
        part = around[:, :, :arguments[name].shape[2]]
        part[...] = arguments[name]
        arguments[name] = part
    compiled = attention.compile(**arguments, arch=arch, verify=True, **SMALL)
    assert not compiled.run(**arguments)
    agree(arguments, expected, bounds)
    assert not np.isfinite(whole[3][:, :, 37:]).any() or padding == 1e38


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("queries, keys", [([5, 0, 70, 33, 1], [40, 3, 0, 33, 100]), ([64], [64]), ([0], [7]),
                                           ([], [])])
def test_lengths_of_each_sequence(queries, keys, causal, arch):          # BL-42, BL-48, BL-49
    q_starts, k_starts = (np.cumsum([0, *lengths]).astype(np.int32) for lengths in (queries, keys))
    shapes = [(starts[-1], heads, 32) for starts, heads in ((q_starts, 4), (k_starts, 2), (k_starts, 2))]
    q, k, v = (normal(shape, "bf16", seed) for seed, shape in enumerate(shapes))
    arguments = {name: placed(data, odd_rows) for name, data in zip("QKVO", (q, k, v, q))}
    arguments |= {"LSE": placed(np.zeros((4, q_starts[-1]), np.float32)), "q_starts": placed(q_starts),
                  "k_starts": placed(k_starts), "longest": max(queries, default=0),
                  "scale": float(np.float32(32**-0.5))}

    def bounds_of_one(Q: np.ndarray, K: np.ndarray, V: np.ndarray, scale: float, **_: Any) -> dict[str, np.ndarray]:
        return attention_bounds(Q, K, V, scale, causal, DTYPES["bf16"])

    expected = reference_attention_varlen(**arguments, causal=causal)
    bounds = each_sequence(bounds_of_one, **arguments)
    prove_chain(attention_varlen, arguments, arch, expected, bounds=bounds, causal=causal, **SMALL)


@pytest.mark.parametrize("waves", [4, 8])
@pytest.mark.parametrize("depth", [64, 128])
def test_full_tiles(depth, waves, arch):
    arguments, expected, bounds = problem(130, 150, depth=depth, causal=True)
    kernel = tc.kernel(attention.function, waves=waves)
    compiled = prove(kernel, arguments, arch, expected, bounds=bounds, causal=True, D=depth, BM=128, BN=64)
    assert compiled.resources.scratch == 0 and compiled.resources.vgpr <= 256 and compiled.resources.agpr == 0


@pytest.mark.parametrize("causal", [False, True])
def test_the_steady_loop_compares_nothing_and_moves_no_weights_through_lds(causal, arch):
    arguments, _, _ = problem(64, 64)
    compiled = tc.kernel(attention.function, waves=1).compile(**arguments, arch=arch, causal=causal, **SMALL)
    steady, rest = (body for _, body in re.findall(r"(\.Lloop_\d+):\n(.*?)s_cbranch_scc1 \1", compiled.asm, re.S))
    compares = r"v_cmp_\w+_i32"
    assert not re.search(compares, steady) and re.search(compares, rest)
    assert "mfma" in steady and "accvgpr" not in steady
    laid_out = compiled.stages["layouts"]
    written = [op.value for op in laid_out.walk() if isinstance(op, tile.SharedWrite)]
    loaded = [op.result for op in laid_out.walk() if isinstance(op, tile.Load)]
    assert len(written) == (1 if arch == "gfx950" else 5)         # O; on gfx942 K and V of both loops pass registers
    assert sum(value in loaded for value in written) == len(written) - 1


@pytest.mark.parametrize("schedule, lazy, depth, instructions, vgprs, in_flight", [
    ("simple", 0, 64, 206, 128, None), ("simple", 0, 128, 274, 180, None),
    ("pingpong(mfma=32)", 0, 64, 193, 152, 2), ("pingpong(mfma=32)", 0, 128, 251, 240, 4),
    ("pingpong(mfma=32)", 8, 64, 181, 152, 2), ("pingpong(mfma=32)", 8, 128, 222, 240, 4)])
@pytest.mark.parametrize("causal", [False, True])
def test_figures_of_the_steady_loop(causal, schedule, lazy, depth, instructions, vgprs, in_flight):
    """gfx950, 8 waves of 32 rows, from the disassembled object: for each tile of 64 keys depth / 4 matrix instructions
    of 32x32x16, as many 16-byte reads as K has (64 * depth * 2 bytes, for each of 64 lanes 16), twice as many of V by
    8 transposed bytes, and copies straight to LDS (8 waves). Ping-pong leaves copies in flight across barriers. Lazy:
    O is rescaled aside, and the figures are of a trip that does not go there."""
    q = tc.spec("bf16", (1, 2, 512, depth))
    arguments = {"Q": q, "K": q, "V": q, "O": q, "LSE": tc.spec("f32", (1, 2, 512)), "scale": 0.1}
    kernel = tc.kernel(attention.function, waves=8)
    sizes = {"D": depth, "BM": 256, "BN": 64}
    compiled = kernel.compile(**arguments, arch="gfx950", schedule=schedule, causal=causal, lazy=lazy, **sizes)
    steady, reads = Steady(compiled), depth // 8
    counts = Counter(steady.names)
    tiles = counts["v_mfma_f32_32x32x16_bf16"] // (depth // 4)
    assert tiles == (2 if in_flight else 1)         # a trip for each slot of the rings
    lds = {name: count for name, count in counts.items() if name.startswith("ds_")}
    assert counts["v_mfma_f32_32x32x16_bf16"] == tiles * depth // 4
    assert lds == {"ds_read_b128": tiles * reads, "ds_read_b64_tr_b16": tiles * 2 * reads}
    assert counts["buffer_load_dwordx4"] == tiles * depth // 32
    assert not any(name.startswith(("v_accvgpr", "scratch")) or "_i32" in name and "v_cmp" in name for name in counts)
    assert (counts["v_pk_mul_f32"] == 0) == bool(lazy) == (steady.loop.aside > tiles * depth // 4)
    assert sum(counts.values()) <= tiles * instructions
    assert compiled.resources.vgpr <= vgprs and compiled.resources.scratch == 0
    if in_flight:
        assert steady.publishing() == [in_flight] * 4
    values = kernel.signature.bind((), {**arguments, "causal": causal, "lazy": lazy, **sizes}).values
    assert not any(trial.lds_conflicts(compiled.executable, values).values())


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_scores_run_beside_the_softmax_of_the_tile_before(arch):
    """In the compute cluster of the scores each exponential stands between matrix instructions that it does not wait
    for, and the maximum of new scores is found beside the next product."""
    q = tc.spec("bf16", (1, 2, 512, 64))
    arguments = {"Q": q, "K": q, "V": q, "O": q, "LSE": tc.spec("f32", (1, 2, 512)), "scale": 0.1}
    compiled = attention.compile(**arguments, arch=arch, schedule="pingpong(mfma=32)", D=64, BM=256, BN=64)
    scores, product, *_ = Steady(compiled).compute_clusters()
    assert sum(name == "v_exp_f32" for name in scores) == 33 and "v_exp_f32" not in product
    matrix = [n for n, name in enumerate(scores) if "mfma" in name]
    gaps = [scores[a + 1:b] for a, b in zip(matrix, matrix[1:])]
    assert sum(bool(gap) for gap in gaps) > len(gaps) // 2
    assert sum(name == "v_max3_f32" for name in product) == 14 and "v_max3_f32" not in scores


@pytest.mark.parametrize("schedule, lazy", [("pingpong(mfma=32)", 0), ("pingpong(mfma=32)", 8), ("interleave", 0)])
@pytest.mark.parametrize("causal", [False, True])
def test_wave_schedules(causal, schedule, lazy, arch):
    """Every trip count, lengths that leave a rest, orders of waves and landings."""
    sizes = {"D": 64, "BM": 128, "BN": 64} if schedule == "interleave" else {"D": 64, "BM": 256, "BN": 64}
    arguments, _, _ = problem(33, 33, depth=64)
    options = {"causal": causal, "lazy": lazy, **sizes}
    compiled = attention.compile(**arguments, arch=arch, schedule=schedule, verify=True, **options)
    assert any(isinstance(op, tile.ClusterBegin) for op in compiled.stages["cluster"].walk())
    lengths = [(33, 0), (1, 1), (5, 64), (300, 128), (64, 131), (65, 192), (131, 257), (31, 320), (31, 391), (2, 448)]
    for seed, (queries, keys) in enumerate(lengths):
        arguments, expected, bounds = problem(queries, keys, depth=64, causal=causal, seed=keys, lazy=lazy)
        landing = ("late", "early", "random")[seed % 3]
        run_and_compare(compiled, arguments, expected, bounds=bounds, seed=seed, landing=landing)


@pytest.mark.parametrize("depth, loads, perms, writes", [(64, 2, 4, 4), (128, 4, 8, 4)])
def test_what_transposing_v_costs_gfx942(depth, loads, perms, writes):
    """For each tile of 64 keys and wave of eight. Without it: depth / 64 loads and writes of 16 bytes, as K has."""
    q = tc.spec("bf16", (1, 2, 512, depth))
    arguments = {"Q": q, "K": q, "V": q, "O": q, "LSE": tc.spec("f32", (1, 2, 512)), "scale": 0.1}
    kernel = tc.kernel(attention.function, waves=8)
    counts = Counter(Steady(kernel.compile(**arguments, arch="gfx942", D=depth, BM=256, BN=64)).names)
    tiles = counts["v_mfma_f32_32x32x8_bf16"] // (depth // 2)
    assert tiles and counts["v_perm_b32"] == tiles * (16 + perms)           # 16 put two weights of P in a register
    assert counts["buffer_load_dwordx4"] == counts["ds_write_b128"] == tiles * depth // 64                          # K
    assert counts["buffer_load_dwordx2"] == tiles * loads
    assert counts["ds_write_b64"] + counts["ds_write_b32"] == tiles * writes
    assert counts["ds_read_b64"] == tiles * depth // 4
