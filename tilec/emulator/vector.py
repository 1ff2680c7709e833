"""The table of vector instructions: one row per mnemonic, gathered from the files of its kinds.

Lane shuffles (v_readlane, v_writelane, v_permlane*_swap, DPP, ds_swizzle) move values between lanes and are in
lanes.py; MFMA is in matrix.py.
"""

from __future__ import annotations

from tilec.emulator import (
    vector_bitwise,
    vector_compare,
    vector_convert,
    vector_division,
    vector_float,
    vector_integer,
    vector_scaled,
    vector_special,
)
from tilec.emulator.mode import Mode
from tilec.emulator.vector_row import KINDS, Kind, VectorRow

__all__ = ["KINDS", "VECTOR", "Kind", "Mode", "VectorRow"]

_FILES = (
    vector_bitwise,
    vector_integer,
    vector_float,
    vector_division,
    vector_special,
    vector_compare,
    vector_convert,
    vector_scaled,
)
VECTOR: dict[str, VectorRow] = {row.name: row for file in _FILES for row in file.ROWS}
