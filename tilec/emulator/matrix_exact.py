"""MFMA accumulation in the order of CDNA3 hardware, bit for bit (the public model of MMA-Sim, arXiv 2511.10909).

f32 and f64 inputs: one fused multiply-add per k, ascending.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilec.emulator.arithmetic import FMA, Array, Float, F32, F64
from tilec.emulator.mode import Mode


def accumulate(form: str, a: Array, b: Array, c: Array, mode: Mode) -> Array:
    """C + A B for values a [W, blocks, k, m], b [W, blocks, k, n] and c [W, blocks, m, n]."""
    float_form: Float = F64 if form == "f64" else F32
    keep = Mode()
    for k in range(a.shape[-2]):
        c = FMA[float_form](keep, a[..., k, :, None], b[..., k, None, :], c)
    return c
