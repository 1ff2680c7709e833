"""C = A + B for vectors of any length."""

from __future__ import annotations

from typing import Any

import numpy as np

import tilec as tc


@tc.kernel
def vector_add(A: tc.Tensor, B: tc.Tensor, C: tc.Tensor, BN: tc.Const = 1024):
    At, Bt, Ct = A.tiles(BN), B.tiles(BN), C.tiles(BN)
    i = tc.program_id(Ct.grid[0])
    Ct[i] = (At[i] + Bt[i]).to(C.dtype)


def defaults() -> dict[str, Any]:
    return {name: tc.spec("f32", (100_003,)) for name in "ABC"}


def reference(A: np.ndarray, B: np.ndarray, C: np.ndarray, **_: Any) -> dict[str, np.ndarray]:
    wide = np.float64 if C.dtype.kind == "f" else C.dtype
    return {"C": A.astype(wide) + B.astype(wide)}
