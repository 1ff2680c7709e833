"""The v_cvt_scalef32 rows of gfx950: to and from fp8, bf8, fp6, bf6 and fp4 with a power-of-two scale.

The scale is the exponent field of an f32 source, 2**(e - 127) (255 counts as NaN, like E8M0): results are value / scale
into a narrow format, value * scale out of it, rounded once. Stochastic forms step the hardware's random register from
item to item.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np

from tilec.emulator.arithmetic import Array
from tilec.emulator.formats import BF16, E8M0_VALUES, FORMATS, bf16_to_f32, pack, unpack
from tilec.emulator.mode import Mode
from tilec.emulator.vector_bitwise import random_step
from tilec.emulator.vector_convert import join_bytes, narrowed, split_bytes
from tilec.emulator.vector_row import RowBuilder, VectorRow

KINDS = ("f32", "f16", "bf16")
Function = Callable[..., Array]


def _scale(x: Array) -> Array:
    return E8M0_VALUES[x.view(np.uint32) >> np.uint32(23) & np.uint32(0xFF)]


def _divided(kind: str, x: Array, scale: Array) -> Array:
    """float64, exact."""
    return (bf16_to_f32(x) if kind == "bf16" else x) / _scale(scale)


def _multiplied(kind: str, x: Array, scale: Array) -> Array:
    """Exact products rounded once to the kind; any NaN is the default one."""
    wide = x * _scale(scale)
    wide = np.where(np.isnan(wide), np.nan, wide)
    return BF16.encode(wide) if kind == "bf16" else wide.astype(np.float16 if kind == "f16" else np.float32)


def _join_nibbles(low: Array, high: Array) -> Array:
    return low | high << np.uint8(4)


def _split_nibbles(codes: Array) -> Array:
    return np.stack([codes & np.uint8(15), codes >> np.uint8(4)])


def _to_pair(name: str, kind: str) -> Function:
    """Two f32 sources, or the halves of one 16-bit pair."""
    join = _join_nibbles if name == "fp4" else join_bytes

    def function(mode: Mode, *sources: Array) -> Array:
        *values, scale = sources
        pair = values if kind == "f32" else values[0]
        return join(*(narrowed(mode, name, _divided(kind, x, scale), kind) for x in pair))

    return function


def _to_one_random(name: str, kind: str) -> Function:
    return lambda mode, x, random, scale: narrowed(mode, name, _divided(kind, x, scale), kind, random)


def _to_codes_random(name: str, kind: str) -> Callable[..., list[Array]]:
    def function(mode: Mode, x: Array, random: Array, scale: Array) -> list[Array]:
        codes = []
        for item in _divided(kind, x, scale):
            codes.append(narrowed(mode, name, item, kind, random))
            random = random_step(random)
        return codes

    return function


def _to_pair_random(name: str, kind: str) -> Function:
    codes = _to_codes_random(name, kind)
    return lambda mode, x, random, scale: _join_nibbles(*codes(mode, x, random, scale))


def _to_32_random(name: str, kind: str) -> Function:
    codes = _to_codes_random(name, kind)
    return lambda mode, x, random, scale: pack(np.stack(codes(mode, x, random, scale)), 6)


def _to_32(name: str, kind: str) -> Function:
    return lambda mode, x, scale: pack(narrowed(mode, name, _divided(kind, x, scale), kind), 6)


def _to_32_interleaved(name: str) -> Function:
    def function(mode: Mode, a: Array, b: Array, scale: Array) -> Array:
        a, b = np.broadcast_arrays(a, b)
        both = np.stack([a, b], axis=1).reshape(32, *a.shape[1:])
        return pack(narrowed(mode, name, _divided("f32", both, scale), "f32"), 6)

    return function


def _from(name: str, kind: str, codes_of: Callable[[Array], Array]) -> Function:
    def function(mode: Mode, x: Array, scale: Array) -> Array:
        return _multiplied(kind, FORMATS[mode.architecture][name].decode(codes_of(x)), scale)

    return function


def _rows() -> list[VectorRow]:
    row = RowBuilder()

    def add(name: str, dst: str, src: str, function: Function, **options: Any) -> None:
        row(f"v_cvt_scalef32_{name}", dst, src, function, architectures=("gfx950",), **options)

    for name, kind in product(("fp8", "bf8", "fp4"), KINDS):
        byte = name == "fp4"
        sources = "f32 f32 f32" if kind == "f32" else f"v2{kind} f32"
        add(f"pk_{name}_{kind}", "u8" if byte else "u16", sources, _to_pair(name, kind), keeps=True)
        split = _split_nibbles if byte else split_bytes
        add(f"pk_{kind}_{name}", f"v2{kind}", "u8 f32" if byte else "u16 f32", _from(name, kind, split))
        if byte:
            add(f"sr_pk_{name}_{kind}", "u8", f"v2{kind} u32 f32", _to_pair_random(name, kind), keeps=True)
        else:
            add(f"sr_{name}_{kind}", "u8", f"{kind} u32 f32", _to_one_random(name, kind), keeps=True)
    for name, kind in product(("fp8", "bf8"), ("f32", "f16")):
        add(f"{kind}_{name}", kind, "u8 f32", _from(name, kind, lambda codes: codes), keeps=kind == "f16")
    for name, kind in product(("fp6", "bf6"), KINDS):
        if kind == "f32":
            add(f"2xpk16_{name}_f32", "v6u32", "v16f32 v16f32 f32", _to_32_interleaved(name))
        else:
            add(f"pk32_{name}_{kind}", "v6u32", f"v32{kind} f32", _to_32(name, kind))
        add(f"sr_pk32_{name}_{kind}", "v6u32", f"v32{kind} u32 f32", _to_32_random(name, kind))
        add(f"pk32_{kind}_{name}", f"v32{kind}", "v6u32 f32", _from(name, kind, lambda x: unpack(x, 6).swapaxes(0, 1)))
    return row.rows


ROWS: tuple[VectorRow, ...] = tuple(_rows())
