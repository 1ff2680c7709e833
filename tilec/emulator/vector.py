"""The table of vector instructions: one row per mnemonic, gathered from the files of its kinds.

Lane shuffles (v_readlane, v_writelane, v_permlane*_swap, DPP, ds_swizzle) move values between lanes and are in lanes.py;
MFMA is in matrix.py.
"""

from __future__ import annotations

from tilec.emulator import vector_compare, vector_convert, vector_float, vector_integer
from tilec.emulator.mode import Mode
from tilec.emulator.vector_row import KINDS, Kind, VectorRow

__all__ = ["KINDS", "VECTOR", "Kind", "Mode", "VectorRow"]

VECTOR: dict[str, VectorRow] = {
    row.name: row
    for rows in (vector_integer.ROWS, vector_float.ROWS, vector_compare.ROWS, vector_convert.ROWS)
    for row in rows
}
