"""The kernel argument segment: one rule, used by the backend that loads from it and by the runtime that fills it.

Parameters follow each other in the order of the program. A tensor is a 64-bit base address, then one 64-bit stride in
bytes per axis, then one 32-bit extent per axis. Scalars take their own size. Everything is aligned to its size; the
segment to 8 bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilec.ir.core import Program, ScalarType, TensorType


@dataclass(frozen=True)
class Slot:
    """One field of the segment. `part` is 'base', 'stride' or 'extent' (with its axis) of a tensor, or 'value'."""

    parameter: str
    part: str
    axis: int
    offset: int
    size: int


def argument_slots(program: Program) -> tuple[tuple[Slot, ...], int]:
    """All slots of a program's arguments in order of offset, and the size of the segment in bytes."""
    slots: list[Slot] = []
    offset = 0

    def add(parameter: str, part: str, axis: int, size: int) -> None:
        nonlocal offset
        offset = -(-offset // size) * size
        slots.append(Slot(parameter, part, axis, offset, size))
        offset += size

    for value in program.params:
        if isinstance(value.type, TensorType):
            add(value.name, "base", 0, 8)
            for axis in range(value.type.rank):
                add(value.name, "stride", axis, 8)
            for axis in range(value.type.rank):
                add(value.name, "extent", axis, 4)
        else:
            assert isinstance(value.type, ScalarType)
            add(value.name, "value", 0, 8 if value.type.dtype.bits == 64 else 4)
    return tuple(slots), -(-offset // 8) * 8
