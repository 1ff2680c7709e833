"""From arguments to a launch: the argument segment, the number of workgroups, and what must agree before anything runs.

The segment's layout is `ir.abi`, for the backend that loads from it and for us that fill it; the object's own metadata
must say the same, so that an object from a cache or a file is never launched with shifted arguments. Workgroups are a
1-D grid: the kernel finds its place in the program's grid itself, the last axis running fastest.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tilec.dtypes import DType
from tilec.errors import TilecError
from tilec.ir import interp
from tilec.ir.abi import argument_slots
from tilec.ir.core import Program, ScalarType, TensorType, Value, definitions
from tilec.ir.tile import AtomicAdd, Scatter, Store, View
from tilec.runtime.tensors import TensorView, misfit
from tilec.target import target

if TYPE_CHECKING:
    from tilec.emulator.elf import CodeObject, Kernel

Argument = TensorView | bool | int | float


@dataclass(frozen=True, eq=False)
class Executable:
    """An object with what a launch must know of it: the traced program gives parameters and grid."""

    program: Program
    object: bytes
    arch: str

    @property
    def name(self) -> str:
        return self.program.name

    @property
    def threads(self) -> int:
        return self.program.waves * target(self.arch).wave_size

    @cached_property
    def code(self) -> CodeObject:
        """The object as the loader sees it. Raises TilecError where it is not what the program promises."""
        from tilec.emulator.elf import load_object

        code = load_object(self.object)
        if code.arch != self.arch:
            raise TilecError(
                f"the object of kernel {self.name} is for {code.arch}, not for {self.arch}",
                fix=f"compile it with arch={self.arch!r}",
            )
        if self.name not in code.kernels:
            raise TilecError(f"the object has no kernel {self.name!r}", limit=f"it has {', '.join(code.kernels)}")
        _check_layout(self.program, code.kernels[self.name])
        return code

    @cached_property
    def written(self) -> frozenset[str]:
        """Names of the tensors that the kernel writes."""
        return written_parameters(self.program)


def _check_layout(program: Program, kernel: Kernel) -> None:
    slots, size = argument_slots(program)
    expected = {(slot.offset, slot.size) for slot in slots}
    found = {(a.offset, a.size) for a in kernel.arguments if not a.kind.startswith("hidden")}
    if found != expected or kernel.kernarg_bytes < size:
        odd = sorted(expected ^ found)
        raise TilecError(
            f"the object of kernel {kernel.name} takes other arguments than the program",
            limit=f"(offset, size) {odd[0] if odd else (0, kernel.kernarg_bytes)} is in one of them only",
            fix="compile it anew; a cached or stored object does not belong to this program",
        )


def written_parameters(program: Program) -> frozenset[str]:
    made_by = definitions(program.body)

    def parameter(value: Value) -> Value:
        while (op := made_by.get(value)) is not None:
            assert isinstance(op, View)
            value = op.tensor
        return value

    return frozenset(parameter(op.tensor).name for op in program.walk() if isinstance(op, (Store, Scatter, AtomicAdd)))


# -- the launch --------------------------------------------------------------------------------------------------------


def workgroups(program: Program, values: Mapping[str, Argument]) -> int:
    """Workgroups of a launch: 1 for a kernel without program_id, 0 where an axis of the grid is empty."""
    grid = interp.evaluate_grid(program, values)
    total = math.prod(grid)
    limit = ((1 << 32) - 1) // (64 * program.waves)  # the dispatch packet counts workitems in 32 bits
    if total > limit:
        raise TilecError(
            f"kernel {program.name}: a grid of {' x '.join(map(str, grid))} workgroups",
            limit=f"one launch runs up to {limit} workgroups of {program.waves} waves",
            fix="use larger tiles, or split the launch",
        )
    return total


def check_arguments(executable: Executable, values: Mapping[str, Argument]) -> None:
    """Raises TilecError where tensors do not fit what the object was compiled for."""
    for parameter in executable.program.params:
        value = values[parameter.name]
        if not isinstance(parameter.type, TensorType):
            continue
        label = f"kernel {executable.name}: argument {parameter.name!r}"
        if not isinstance(value, TensorView):
            raise TilecError(f"{label} must be a tensor")
        if reason := misfit(value, parameter.type):
            raise TilecError(
                f"{label} does not fit the object: {reason}", fix="compile for this tensor, or call the kernel itself"
            )
        if value.readonly and parameter.name in executable.written:
            raise TilecError(f"{label} is read-only, and the kernel writes it")


def pack(program: Program, values: Mapping[str, Argument], addresses: Mapping[str, int] | None = None) -> bytes:
    """The argument segment. `addresses` stand in for the tensors' own where the kernel sees other memory (emulator)."""
    slots, size = argument_slots(program)
    types = {p.name: p.type for p in program.params}
    segment = bytearray(size)
    for slot in slots:
        value, type = values[slot.parameter], types[slot.parameter]
        if isinstance(type, ScalarType):
            field = _scalar(value, type.dtype, slot.size)
        else:
            assert isinstance(value, TensorView)
            number = {
                "base": (addresses or {}).get(slot.parameter, value.address),
                "stride": value.strides[slot.axis] if slot.part == "stride" else 0,
                "extent": value.shape[slot.axis] if slot.part == "extent" else 0,
            }[slot.part]
            field = int(number).to_bytes(slot.size, "little", signed=slot.part != "base")
        segment[slot.offset : slot.offset + slot.size] = field
    return bytes(segment)


def _scalar(value: Any, element: DType, size: int) -> bytes:
    if element.is_float:
        return struct.pack("<d" if size == 8 else "<f", value)
    return (int(value) & ((1 << 8 * size) - 1)).to_bytes(size, "little")
