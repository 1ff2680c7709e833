"""O = softmax(scale Q K^T) V, head by head, with the log-sum-exp of each row: attention forward.

Q and O are (batch, heads, queries, D), K and V (batch, key heads, keys, D), LSE is (batch, heads, queries). Head h
reads key head h // (heads / key heads): MHA, GQA and MQA. `causal` aligns the last query with the last key. A row that
sees no key is 0, its log-sum-exp -infinity. `attention_varlen` takes sequences one behind the other: Q and O are (all
queries, heads, D), K and V (all keys, key heads, D), LSE is (heads, all queries); sequence b has queries q_starts[b] to
q_starts[b + 1] and keys k_starts[b] to k_starts[b + 1], and `longest` is at least the most queries of a sequence.

A row's weights are taken relative to the largest score so far, and what is summed up fades when that rises. With `lazy`
it may rise by so much (in powers of 2, up to 8) before it is followed: weights grow up to 2**lazy, and O is rescaled
seldom.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import tilec as tc

LOWEST = -3e38      # below every scaled score, yet finite: what has seen no key subtracts it without making NaN


@tc.kernel
def attention(Q: tc.Tensor, K: tc.Tensor, V: tc.Tensor, O: tc.Tensor, LSE: tc.Tensor, scale: tc.f32,
              causal: tc.Const = False, lazy: tc.Const = 0, D: tc.Const = 128, BM: tc.Const = 128, BN: tc.Const = 64):
    for x in (Q, K, V, O):
        tc.require(x.shape[3] == D, "a head must be D elements")
    tc.require(Q.shape[1] % K.shape[1] == 0, "the heads of Q must be a multiple of those of K")
    tc.require(scale > 0.0, "scale must be positive")
    b, h, m = tc.program_id((Q.shape[0], Q.shape[1], tc.cdiv(Q.shape[2], BM)))
    g = h * K.shape[1] // Q.shape[1]
    attend(Q[b, h], K[b, g], V[b, g], O[b, h], LSE[b, h], m, scale, causal, lazy, D, BM, BN)


@tc.kernel
def attention_varlen(Q: tc.Tensor, K: tc.Tensor, V: tc.Tensor, O: tc.Tensor, LSE: tc.Tensor, q_starts: tc.Tensor,
                     k_starts: tc.Tensor, longest: tc.i32, scale: tc.f32, causal: tc.Const = False,
                     lazy: tc.Const = 0, D: tc.Const = 128, BM: tc.Const = 128, BN: tc.Const = 64):
    for x in (Q, K, V, O):
        tc.require(x.shape[2] == D, "a head must be D elements")
    tc.require(Q.shape[1] % K.shape[1] == 0, "the heads of Q must be a multiple of those of K")
    tc.require(scale > 0.0, "scale must be positive")
    b, h, m = tc.program_id((q_starts.shape[0] - 1, Q.shape[1], tc.cdiv(longest, BM)))
    g = h * K.shape[1] // Q.shape[1]
    first, end, k_first, k_end = q_starts.at[b], q_starts.at[b + 1], k_starts.at[b], k_starts.at[b + 1]
    with tc.when(m * BM < end - first):
        attend(Q[first:end, h], K[k_first:k_end, g], V[k_first:k_end, g], O[first:end, h], LSE[h, first:end], m, scale,
               causal, lazy, D, BM, BN)


def attend(Q: Any, K: Any, V: Any, O: Any, LSE: Any, m: Any, scale: Any, causal: bool, lazy: float, D: int, BM: int,
           BN: int) -> None:
    """Rows m * BM and on of one head: Q and O are queries x D, K and V keys x D."""
    tc.require(0 <= lazy <= 8, "lazy must be from 0 to 8: weights grow up to 2**lazy")
    queries, keys = Q.shape[0], K.shape[0]
    Kt, Vt = K.tiles(BN, D), V.tiles(BN, D)
    last = m * BM + tc.iota(BM) + (keys - queries) if causal else tc.full(BM, keys - 1)     # the last key a row sees
    end = tc.minimum(keys, (m + 1) * BM + (keys - queries)) if causal else keys
    q, exponent = Q.tiles(BM, D)[m, 0], scale * math.log2(math.e)
    top, total, acc = tc.full(BM, LOWEST), tc.zeros(BM), tc.zeros(BM, D)
    for j in tc.range(tc.cdiv(end, BN)):
        k, v = Kt[j, 0], Vt[j, 0]
        seen = (j * BN + tc.iota(BN))[None, :] <= last[:, None]
        s = tc.where(seen, tc.dot(q, k.T), -math.inf)
        highest = s.max(axis=1) * exponent
        higher = tc.where(highest > top + lazy, highest, top) if lazy else tc.maximum(top, highest)
        p = tc.exp2(tc.fma(s, exponent, -higher[:, None]))
        fade = tc.exp2(top - higher)
        total = total * fade + p.sum(axis=1)
        faded = tc.where(fade[:, None] < 1, acc * fade[:, None], acc, rare=True) if lazy else acc * fade[:, None]
        acc = tc.dot(p.to(V.dtype), v, faded)
        top = +higher
    O.tiles(BM, D)[m, 0] = (acc * tc.where(total > 0, 1.0 / total, 0.0)[:, None]).to(O.dtype)
    LSE.tiles(BM)[m] = (top + tc.log2(total)) * math.log(2)


def defaults_attention() -> dict[str, Any]:
    q, k = tc.spec("bf16", (2, 6, 200, 128)), tc.spec("bf16", (2, 2, 333, 128))
    return {"Q": q, "K": k, "V": k, "O": q, "LSE": tc.spec("f32", (2, 6, 200)), "scale": 128**-0.5}


def reference_attention(Q: np.ndarray, K: np.ndarray, V: np.ndarray, scale: float, causal: bool = False,
                        **_: Any) -> dict[str, np.ndarray]:
    weights, lse = _softmax(Q, K, scale, causal)
    return {"O": weights @ np.repeat(V.astype(np.float64), Q.shape[1] // V.shape[1], axis=1), "LSE": lse}


def bounds_attention(Q: np.ndarray, K: np.ndarray, V: np.ndarray, scale: float, causal: bool = False,
                     **_: Any) -> dict[str, np.ndarray]:
    """Weights are rounded to V's type before they meet V."""
    half_a_unit = np.finfo(V.dtype).eps / 2 if V.dtype == np.float16 else 2.0**-8
    magnitude = np.repeat(np.abs(V.astype(np.float64)), Q.shape[1] // V.shape[1], axis=1)
    return {"O": half_a_unit * (_softmax(Q, K, scale, causal)[0] @ magnitude)}


def _softmax(Q: np.ndarray, K: np.ndarray, scale: float, causal: bool) -> tuple[np.ndarray, np.ndarray]:
    """The weight of each key in each row, and the rows' log-sum-exp."""
    s = Q.astype(np.float64) @ np.repeat(K.astype(np.float64), Q.shape[1] // K.shape[1], axis=1).swapaxes(2, 3) * scale
    if causal:
        s = np.where(np.tri(Q.shape[2], K.shape[2], K.shape[2] - Q.shape[2], dtype=bool), s, -np.inf)
    top = s.max(axis=3, keepdims=True, initial=-np.inf)
    e = np.exp(s - np.where(np.isfinite(top), top, 0))
    total = e.sum(axis=3, keepdims=True)
    with np.errstate(divide="ignore"):
        return e / np.where(total > 0, total, 1), (top + np.log(total))[..., 0]


def defaults_attention_varlen() -> dict[str, Any]:
    starts = {"q_starts": np.array([0, 70, 70, 200], np.int32), "k_starts": np.array([0, 70, 120, 333], np.int32)}
    q, k = tc.spec("bf16", (200, 6, 128)), tc.spec("bf16", (333, 2, 128))
    return {"Q": q, "K": k, "V": k, "O": q, "LSE": tc.spec("f32", (6, 200)), **starts, "longest": 130,
            "scale": 128**-0.5}


def reference_attention_varlen(**arguments: Any) -> dict[str, np.ndarray]:
    return each_sequence(reference_attention, **arguments)


def bounds_attention_varlen(**arguments: Any) -> dict[str, np.ndarray]:
    return each_sequence(bounds_attention, **arguments)


def each_sequence(function: Callable[..., dict[str, np.ndarray]], O: np.ndarray, LSE: np.ndarray, q_starts: np.ndarray,
                  k_starts: np.ndarray, Q: np.ndarray, K: np.ndarray, V: np.ndarray,
                  **rest: Any) -> dict[str, np.ndarray]:
    """`function` of each sequence, as a batch of one, put where its queries lie."""
    results = {"O": O.astype(np.float64), "LSE": LSE.astype(np.float64)}
    for queries, keys in zip(zip(q_starts, q_starts[1:]), zip(k_starts, k_starts[1:])):
        q, k, v = (x[slice(*place)].swapaxes(0, 1)[None] for x, place in ((Q, queries), (K, keys), (V, keys)))
        found = function(Q=q, K=k, V=v, **rest)
        results["O"][slice(*queries)] = found["O"][0].swapaxes(0, 1)
        results["LSE"][:, slice(*queries)] = found["LSE"][0] if "LSE" in found else 0.0
    return results
