"""One row per vector instruction: its operands as kinds, and its meaning as a pure numpy function.

Arrays have shape [W, 64] (wave, lane), [W, 1] from scalar registers or [1, 1] from constants, and broadcast; kinds with
several items put them first: [items, W, 64]. Functions are elementwise, so that a packed instruction is the scalar one
on a leading axis. Source modifiers (neg, abs, op_sel, DPP, SDWA) are applied before the call; float clamp, omod, op_sel
and EXEC after it, by the caller, who also holds np.errstate(all="ignore"). A result shorter than its registers clears
the rest (16-bit results on gfx9), unless the row `keeps` the other bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilec.emulator.mode import Mode


@dataclass(frozen=True)
class Kind:
    """How an operand's registers are seen: `items` values of `dtype` packed little-endian in `dwords` registers."""

    dtype: type
    items: int = 1
    dwords: int = 1


KINDS: dict[str, Kind] = {
    "u8": Kind(np.uint8),  # the byte chosen by op_sel or SDWA (byte 0 otherwise)
    "u16": Kind(np.uint16),
    "i16": Kind(np.int16),
    "f16": Kind(np.float16),
    "bf16": Kind(np.uint16),  # raw bits: numpy has no bfloat16
    "u32": Kind(np.uint32),
    "i32": Kind(np.int32),
    "f32": Kind(np.float32),
    "mix": Kind(np.float32),  # v_fma_mix: f32, or the half chosen by op_sel where op_sel_hi is set, widened to f32
    "u64": Kind(np.uint64, 1, 2),
    "i64": Kind(np.int64, 1, 2),
    "f64": Kind(np.float64, 1, 2),
    "v2u16": Kind(np.uint16, 2, 1),
    "v2i16": Kind(np.int16, 2, 1),
    "v2f16": Kind(np.float16, 2, 1),
    "v2bf16": Kind(np.uint16, 2, 1),
    "v2f32": Kind(np.float32, 2, 2),
    "v2u32": Kind(np.uint32, 2, 2),
    "v4u32": Kind(np.uint32, 4, 4),
    "v6u32": Kind(np.uint32, 6, 6),
    "v16u32": Kind(np.uint32, 16, 16),
    "v16f32": Kind(np.float32, 16, 16),
    "v32f32": Kind(np.float32, 32, 32),
    "v32f16": Kind(np.float16, 32, 16),
    "v32bf16": Kind(np.uint16, 32, 16),
    "mask": Kind(np.bool_, 1, 2),  # one bit per lane in VCC or an SGPR pair
}


@dataclass(frozen=True)
class VectorRow:
    """`name` is the mnemonic without _e32/_e64/_dpp/_sdwa. `dst` and `src` are kinds in the disassembly's order.

    `function(mode, *sources, **modifiers)` returns one array, or a tuple with one per destination.
    """

    name: str
    dst: tuple[str, ...]
    src: tuple[str, ...]
    function: Callable[..., Any]
    accumulates: bool = False  # the destination's old value is the last source, not printed by the disassembler
    reads_vcc: bool = False  # VCC is the last source (a mask), not printed (v_div_fmas)
    writes_exec: bool = False  # v_cmpx: the result mask is also the new EXEC
    keeps: bool = False  # bits of the destination registers outside the result keep their value
    high_result: bool = False  # the 16-bit result goes to the upper half without op_sel (v_fma_mixhi)
    modifiers: tuple[str, ...] = ()  # named immediates of the text passed as keywords (bitop3)
    saturate: Callable[..., Any] | None = None  # integer clamp: called in place of `function` when clamp is set
    architectures: tuple[str, ...] = ("gfx942", "gfx950")


class RowBuilder:
    """Collects rows; kinds are given as words: row("v_add_f32", "f32", "f32 f32", function)."""

    def __init__(self) -> None:
        self.rows: list[VectorRow] = []

    def __call__(self, name: str, dst: str, src: str, function: Callable[..., Any], **options: Any) -> None:
        self.rows.append(VectorRow(name, tuple(dst.split()), tuple(src.split()), function, **options))


def row_of(name: str, dst: str, src: str, formula: Callable[..., Any], **options: Any) -> VectorRow:
    """A row whose formula takes the sources alone: no mode bit changes it."""

    def function(mode: Mode, *sources: Any) -> Any:
        return formula(*sources)

    return VectorRow(name, tuple(dst.split()), tuple(src.split()), function, **options)
