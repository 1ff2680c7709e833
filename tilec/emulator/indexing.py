"""Registers relative to M0: `s_set_gpr_idx_*` shifts the VGPRs of vector instructions, `s_movrel*` SGPRs of one move.

Compilers use both for arrays in registers whose index is known at run time only. A block in which registers are
relative is bound once for each M0 that waves bring (`decode.Program`): waves with unlike values go on apart, and every
check sees the registers that are really touched. (CDNA3 ISA guide: VGPR indexing, S_SET_GPR_IDX_*, S_MOVREL*.)
"""

from __future__ import annotations

from dataclasses import replace

from tilec.emulator.operands import AGPR, SGPR, Constant, Operand, Parsed, Register, Special
from tilec.emulator.vector import VECTOR

ENABLED = 1 << 27
"""MODE.gpr_idx_en."""
_ROLES = {"SRC0": 1, "SRC1": 2, "SRC2": 4, "DST": 8}
RELATIVE_MOVES = ("s_movrels_b32", "s_movrels_b64", "s_movreld_b32", "s_movreld_b64")
CHANGES = ("s_set_gpr_idx_on", "s_set_gpr_idx_off", "s_set_gpr_idx_mode", "s_set_gpr_idx_idx")


def shifted(parsed: Parsed, m0: int) -> Parsed:
    """The instruction with the registers that it means when M0 is `m0`. Raises ValueError beyond the register file."""
    if parsed.name in RELATIVE_MOVES:
        moved = 0 if parsed.name.startswith("s_movreld") else 1
        operands = [_shift(o, m0, SGPR + 102) if n == moved else o for n, o in enumerate(parsed.operands)]
        return replace(parsed, name="s_mov_b" + parsed.name[-2:], operands=tuple(operands))
    row = VECTOR.get(parsed.name)
    if row is None:
        return parsed
    index, enabled = m0 & 0xFF, m0 >> 12 & 15
    places = [_ROLES["DST"]] * len(row.dst) + [_ROLES["SRC0"], _ROLES["SRC1"], _ROLES["SRC2"]]
    operands = [_shift(operand, index, AGPR) if place & enabled else operand
                for operand, place in zip(parsed.operands, places, strict=False)]
    return replace(parsed, operands=tuple(operands))


def _shift(operand: Operand, by: int, end: int) -> Operand:
    """The operand `by` registers on, if it is one of the file that ends at `end`."""
    register = operand.value
    if not isinstance(register, Register) or not register.first < end or (end == AGPR) != (not register.is_scalar):
        return operand
    if register.first + by + register.count > end:
        raise ValueError(f"M0 takes it {by} registers on, beyond the register file")
    return replace(operand, value=Register(register.first + by, register.count))


def roles(operand: Operand) -> int:
    """The mask of gpr_idx(SRC0,DST), also written as a bare number."""
    if isinstance(operand.value, Constant):
        return int(operand.value.value) & 15
    assert isinstance(operand.value, Special)
    names = operand.value.name.removeprefix("gpr_idx(").removesuffix(")")
    return sum(_ROLES[name.strip()] for name in names.split(",") if name.strip())
