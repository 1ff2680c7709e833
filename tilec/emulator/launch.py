"""Builds what the runtime hands to a kernel: the argument segment with hidden arguments, and the dispatch packet.

Layouts: HSA "AQL kernel dispatch packet"; hidden arguments as LLVM's AMDGPU guide lists them for code object v5.
"""

from __future__ import annotations

import struct

from tilec.emulator.elf import Kernel
from tilec.errors import TilecError

Triple = tuple[int, int, int]


def argument_segment(
    kernel: Kernel, values: dict[int, bytes], grid: Triple, block: Triple, lds_dynamic: int = 0
) -> bytes:
    """The kernel argument segment: `values` by byte offset, hidden arguments from the launch, the rest zero."""
    segment = bytearray(
        max(kernel.kernarg_bytes, max((offset + len(value) for offset, value in values.items()), default=0))
    )
    for argument in kernel.arguments:
        hidden = hidden_value(argument.kind, grid, block, lds_dynamic)
        if hidden is not None:
            segment[argument.offset : argument.offset + argument.size] = hidden.to_bytes(8, "little")[: argument.size]
    for offset, value in values.items():
        segment[offset : offset + len(value)] = value
    return bytes(segment)


def hidden_value(kind: str, grid: Triple, block: Triple, lds_dynamic: int) -> int | None:
    """The value of a hidden argument, None for arguments that the user gives. The grid is in whole workgroups."""
    if not kind.startswith("hidden_"):
        return None
    name, _, axis = kind.removeprefix("hidden_").rpartition("_")
    if axis in ("x", "y", "z"):
        i = "xyz".index(axis)
        return {"block_count": grid[i], "group_size": block[i], "remainder": 0, "global_offset": 0}.get(name, 0)
    if kind == "hidden_grid_dims":
        return max([1] + [i + 1 for i in range(3) if grid[i] * block[i] > 1])
    if kind == "hidden_dynamic_lds_size":
        return lds_dynamic
    return 0


def dispatch_packet(grid: Triple, block: Triple, kernel: Kernel, lds_bytes: int, segment: int) -> bytes:
    """The 64 bytes of an hsa_kernel_dispatch_packet_t; grid sizes there are in workitems."""
    items = tuple(g * b for g, b in zip(grid, block, strict=True))
    if max(items) >= 1 << 32:
        raise TilecError(f"a grid of {items} workitems can't be dispatched", limit="each dimension has 32 bits")
    return struct.pack(
        "<HHHHHHIIIIIQQQQ",
        0x1502,
        3,
        *block,
        0,
        *items,
        kernel.scratch_bytes,
        lds_bytes,
        kernel.descriptor.entry,
        segment,
        0,
        0,
    )
