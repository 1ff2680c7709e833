"""O = softmax(scale Q K^T) V, head by head, with the log-sum-exp of each row: attention forward.

Q and O are (batch, heads, queries, D), K and V (batch, key heads, keys, D), LSE is (batch, heads, queries).
Head h reads key head h // (heads / key heads): MHA, GQA and MQA. `causal` aligns the last query with the last key. A row
that sees no key is 0, its log-sum-exp -infinity.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import tilec as tc

LOWEST = -3e38      # below every scaled score, yet finite: what has seen no key subtracts it without making NaN


@tc.kernel
def attention(Q: tc.Tensor, K: tc.Tensor, V: tc.Tensor, O: tc.Tensor, LSE: tc.Tensor, scale: tc.f32,
              causal: tc.Const = False, D: tc.Const = 128, BM: tc.Const = 128, BN: tc.Const = 64):
    tc.require((Q.shape[3] == D) & (K.shape[3] == D) & (V.shape[3] == D) & (O.shape[3] == D), "heads must be D elements")
    tc.require(Q.shape[1] % K.shape[1] == 0, "the heads of Q must be a multiple of those of K")
    tc.require(scale > 0.0, "scale must be positive")
    queries, keys = Q.shape[2], K.shape[2]
    b, h, m = tc.program_id((Q.shape[0], Q.shape[1], tc.cdiv(queries, BM)))
    g = h * K.shape[1] // Q.shape[1]
    Qt, Ot, Lt = Q[b, h].tiles(BM, D), O[b, h].tiles(BM, D), LSE[b, h].tiles(BM)
    Kt, Vt = K[b, g].tiles(BN, D), V[b, g].tiles(BN, D)
    last = m * BM + tc.iota(BM) + (keys - queries) if causal else tc.full(BM, keys - 1)     # the last key a row sees
    end = tc.minimum(keys, (m + 1) * BM + (keys - queries)) if causal else keys
    q, exponent = Qt[m, 0], scale * math.log2(math.e)
    top, total, acc = tc.full(BM, LOWEST), tc.zeros(BM), tc.zeros(BM, D)
    for j in tc.range(tc.cdiv(end, BN)):
        k, v = Kt[j, 0], Vt[j, 0]
        seen = (j * BN + tc.iota(BN))[None, :] <= last[:, None]
        s = tc.where(seen, tc.dot(q, k.T), -math.inf)
        higher = tc.maximum(top, s.max(axis=1) * exponent)
        p = tc.exp2(tc.fma(s, exponent, -higher[:, None]))
        fade = tc.exp2(top - higher)
        total = total * fade + p.sum(axis=1)
        acc = tc.dot(p.to(V.dtype), v, acc * fade[:, None])
        top = +higher
    Ot[m, 0] = (acc * tc.where(total > 0, 1.0 / total, 0.0)[:, None]).to(O.dtype)
    Lt[m] = (top + tc.log2(total)) * math.log(2)


def defaults() -> dict[str, Any]:
    q, k = tc.spec("bf16", (2, 6, 200, 128)), tc.spec("bf16", (2, 2, 333, 128))
    return {"Q": q, "K": k, "V": k, "O": q, "LSE": tc.spec("f32", (2, 6, 200)), "scale": 128**-0.5}


def reference(Q: np.ndarray, K: np.ndarray, V: np.ndarray, O: np.ndarray, scale: float, causal: bool = False,
              **_: Any) -> dict[str, np.ndarray]:
    q, k, v = (x.astype(np.float64) for x in (Q, K, V))
    group = q.shape[1] // k.shape[1] if q.shape[1] else 1
    s = q @ np.repeat(k, group, axis=1).swapaxes(2, 3) * scale
    if causal:
        s = np.where(np.tri(q.shape[2], k.shape[2], k.shape[2] - q.shape[2], dtype=bool), s, -np.inf)
    top = s.max(axis=3, keepdims=True, initial=-np.inf)
    e = np.exp(s - np.where(np.isfinite(top), top, 0))
    total = e.sum(axis=3, keepdims=True)
    with np.errstate(divide="ignore"):
        lse = (top + np.log(total))[..., 0]
    return {"O": e / np.where(total > 0, total, 1) @ np.repeat(v, group, axis=1), "LSE": lse}
