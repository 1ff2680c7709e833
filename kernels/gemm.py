"""C = A B^T: A is M x K, B is N x K, C is M x N; any M, N, K, any strides."""

from __future__ import annotations

from typing import Any

import numpy as np

import tilec as tc


@tc.kernel
def gemm(A: tc.Tensor, B: tc.Tensor, C: tc.Tensor, BM: tc.Const = 256, BN: tc.Const = 256, BK: tc.Const = 64):
    tc.require((A.shape[1] == B.shape[1]) & (A.shape[0] == C.shape[0]) & (B.shape[0] == C.shape[1]), "C must be A B^T")
    At, Bt, Ct = A.tiles(BM, BK), B.tiles(BN, BK), C.tiles(BM, BN)      # B is N x K
    m, n = tc.program_id(Ct.grid)
    acc = tc.zeros(BM, BN, dtype=tc.i32 if A.dtype == tc.i8 else tc.f32)
    for k in tc.range(At.grid[1]):
        a, b = At[m, k], Bt[n, k]
        acc = tc.dot(a, b.T, acc)
    Ct[m, n] = acc.to(C.dtype)


def defaults() -> dict[str, Any]:
    return {"A": tc.spec("bf16", (1000, 1234)), "B": tc.spec("bf16", (777, 1234)), "C": tc.spec("bf16", (1000, 777))}


def reference(A: np.ndarray, B: np.ndarray, C: np.ndarray, **_: Any) -> dict[str, np.ndarray]:
    wide = np.int64 if A.dtype.kind in "iu" else np.float64
    return {"C": A.astype(wide) @ B.astype(wide).T}
