"""Test data, and how far a correct kernel's results may lie from a reference in float64."""

from __future__ import annotations

import numpy as np

from tilec.dtypes import DTYPES, DType

SMALLEST = 2.0**-126     # f32's least normal number: exp2 and the division may flush what is below


def integers(shape: tuple[int, ...], dtype: str, seed: int = 0, high: int = 4) -> np.ndarray:
    """Integers from -high to high (from 0 for unsigned types): every product and partial sum is exact in f32."""
    element = DTYPES[dtype]
    low = -high if element.is_signed else 0
    numbers = np.random.default_rng(seed).integers(low, 1 if element.kind == "bool" else high, shape, endpoint=True)
    return numbers.astype(element.numpy())


def normal(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(DTYPES[dtype].numpy())


def rounding(dtype: DType) -> float:
    """The largest relative error of one rounding to nearest: half a unit in the last place."""
    return 2.0 ** -(dtype.mantissa + 1)


def _rounded(exact: np.ndarray, lost: np.ndarray, output: DType) -> np.ndarray:
    """The bound after the rounding to the output's type, whose least subnormal is as exact as it gets."""
    subnormal = 2.0 ** (1 - output.bias - output.mantissa)
    return lost + rounding(output) * (exact + lost) + subnormal / 2 + SMALLEST


def dot_bound(a: np.ndarray, b: np.ndarray, output: DType) -> np.ndarray:
    """For A B^T summed in f32 in any order (Higham, Accuracy and Stability of Numerical Algorithms, 3.1): K + 1
    roundings of sum |a||b|, each of a whole unit in the last place, since matrix instructions need not round to
    nearest; then one rounding to the output."""
    terms = a.shape[1] + 1
    unit = 2.0**-23
    lost = terms * unit / (1 - terms * unit) * (np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64)).T)
    exact = np.abs(a.astype(np.float64) @ b.astype(np.float64).T)
    return _rounded(exact, lost, output)


def softmax_bound(x: np.ndarray, output: DType) -> np.ndarray:
    """For exp(x - max) / sum in f32. x - max rounds once, its product with log2(e) twice (the product and the
    constant), so exp's argument d is off by 3 |d| units; exp2, the division and its parts round within 8 units; the sum
    of n numbers within n."""
    unit = 2.0**-24
    d = x.astype(np.float64) - x.astype(np.float64).max(axis=1, keepdims=True)
    e = np.exp(d)
    own = (3 * np.abs(d) + 8) * unit
    shared = (e * own).sum(axis=1, keepdims=True) / e.sum(axis=1, keepdims=True) + x.shape[1] * unit
    exact = e / e.sum(axis=1, keepdims=True)
    lost = exact * (own + shared) * 1.01                       # products of two errors
    return _rounded(exact, lost, output)


def attention_bounds(q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float, causal: bool, output: DType,
                     exact_scores: bool = False, tile: int = 32, lazy: float = 0) -> dict[str, np.ndarray]:
    """For attention by key tiles (online softmax) whose scores, weights and sums are f32 and whose weights are rounded
    to v's type for the second product; q is (batch, heads, queries, depth).

    Scores are sums of `depth` products (none lost where `exact_scores`). The exponent s * scale * log2(e) - top rounds
    4 times, a fading factor's once for each rise of top, all rises together at most twice the largest score. A weight
    then fades once for each tile (exp2 and a product), is summed in any order, and rounded to v's type, or to its
    least subnormal. The second product sums as in `dot_bound`. With `lazy` weights may exceed 1 by 2**lazy, which adds
    to the logarithm of their sum only: all else is relative."""
    unit, q, k, v, weight_type = 2.0**-24, *(x.astype(np.float64) for x in (q, k, v)), _type_of(v)
    group = q.shape[1] // max(1, k.shape[1])
    k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    queries, keys = q.shape[2], k.shape[2]
    tiles = keys // tile + 2
    seen = np.tri(queries, keys, keys - queries, dtype=bool) if causal else np.ones((queries, keys), bool)
    s = q @ k.swapaxes(2, 3) * scale
    terms = 0 if exact_scores else q.shape[3] + 1
    lost = terms * 2 * unit * scale * (np.abs(q) @ np.abs(k).swapaxes(2, 3))
    largest = np.where(seen, np.abs(s), 0).max(axis=3, keepdims=True, initial=0)
    top = np.where(seen, s, -np.inf).max(axis=3, keepdims=True, initial=-np.inf)
    e = np.where(seen, np.exp(s - np.where(np.isfinite(top), top, 0)), 0)
    total = e.sum(axis=3, keepdims=True)
    w = e / np.where(total > 0, total, 1)
    own = np.expm1(lost + 8 * unit * largest) + (4 * tiles + 8) * unit
    shared = (w * own).sum(axis=3, keepdims=True) + (keys + tiles) * unit
    relative = own + shared + rounding(weight_type) + (keys + tiles) * 2 * unit + 4 * unit
    subnormal = 2.0 ** -(weight_type.bias + weight_type.mantissa)
    values = (w * relative) @ np.abs(v) * 1.01 + subnormal * seen @ np.abs(v)
    logarithm = shared[..., 0] * 1.01 + unit * (4 * largest[..., 0] + 4 * np.log(max(2, keys)) + 4 * lazy + 8)
    return {"O": _rounded(np.abs(w @ v), values, output), "LSE": logarithm}


def _type_of(array: np.ndarray) -> DType:
    return next(t for t in DTYPES.values() if t.numpy() == array.dtype)
