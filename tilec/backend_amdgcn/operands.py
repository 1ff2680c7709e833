"""Operands in halves, and choices between operands: what arithmetic of any width shares."""

from __future__ import annotations

from tilec.backend_amdgcn.builder import Builder
from tilec.ir.machine import Immediate, Operand, Ref, registers


def select(b: Builder, mask: Operand, yes: Operand, no: Operand) -> Operand:
    """yes where the mask's bit is set, else no; 32 or 64 bits, or masks."""
    if size_of(yes) == 1 and size_of(no) == 1:
        return b.value("v_cndmask_b32", no, yes, mask)
    result = b.register("v", 2)
    for i in range(2):
        b.emit("v_cndmask_b32", [result[i]], [half(no, i), half(yes, i), mask])
    return result


def select_mask(b: Builder, mask: Operand, yes: Operand, no: Operand) -> Operand:
    kept = b.value("s_andn2_b64", no, mask, kind="s", size=2)
    return b.value("s_or_b64", b.value("s_and_b64", yes, mask, kind="s", size=2), kept, kind="s", size=2)


def flag_mask(b: Builder, flag: Operand) -> Ref:
    """A scalar flag (0 or 1) as a mask of all lanes or none."""
    if isinstance(flag, Immediate):
        return b.pure("s_mov_b64", -1 if flag.value else 0, kind="s", size=2)
    return b.pure_sequence(
        [("s_cmp_lg_u32", (flag, Immediate(0)), {"dst": None}), ("s_cselect_b64", (-1, 0), {})], kind="s", size=2
    )


def size_of(operand: Operand) -> int:
    return 1 if isinstance(operand, Immediate) else registers(operand).size


def half(operand: Operand, index: int) -> Operand:
    """The low (0) or high (1) dword of a 64-bit operand."""
    if isinstance(operand, Immediate):
        return Immediate(operand.value >> 32 * index & 0xFFFFFFFF)
    return registers(operand)[index]


def with_mask(b: Builder, op: str, sources: list[Operand], size: int = 1) -> tuple[Ref, Ref]:
    first, second = b.register("v", size), b.register("s", 2)
    b.emit(op, [first, second], sources)
    return first, second
