"""Launches on the CPU: the object runs on the emulator, on copies of the arguments' memory.

Arguments that overlap share one allocation, so that a kernel that works in place, or on two views of one tensor, sees
what it would see on a GPU. Addresses keep the alignment (up to 16 bytes) of the real ones. What the kernel does not
write is read-only for it; what it writes is copied back.
"""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tilec.runtime.arguments import Argument, Executable, check_arguments, pack, workgroups
from tilec.runtime.tensors import TensorView

if TYPE_CHECKING:
    from tilec.emulator.grid import RunResult

ALIGNMENT = 256  # of allocations, as hipMalloc gives
KEPT = 16  # bytes of alignment that a specialisation can know of


@dataclass
class Span:
    """Bytes [start, end) of real memory that arguments reach, and whether the kernel writes them."""

    start: int
    end: int
    names: list[str]
    written: bool

    def array(self) -> np.ndarray:
        return np.frombuffer(memoryview((ctypes.c_uint8 * (self.end - self.start)).from_address(self.start)), np.uint8)


def run(
    executable: Executable,
    values: Mapping[str, Argument],
    *,
    checks: str | Iterable[str] = "all",
    seed: int = 0,
    landing: str = "late",
    numerics: str = "fast",
    without: Collection[int] = (),
    sink: Any = None,
) -> RunResult:
    """Runs one launch and copies results back; an empty grid runs nothing. Options as in `tilec.emulator.grid.run`."""
    from tilec.emulator import grid
    from tilec.emulator.memory import BASE, Memory

    check_arguments(executable, values)
    code, total = executable.code, workgroups(executable.program, values)
    if total == 0:
        return grid.RunResult((), grid.Statistics(0, 0, 0.0, {}))
    memory = Memory()
    spans = merge(executable, values)
    addresses: dict[str, int] = {}
    places: list[int] = []
    cursor = BASE + (1 << 20)
    for span in spans:
        place = cursor + span.start % KEPT
        memory.place(span.array(), name=" and ".join(span.names), readonly=not span.written, address=place)
        places.append(place)
        for name in span.names:
            view = values[name]
            assert isinstance(view, TensorView)
            addresses[name] = place + view.address - span.start
        cursor += -(-(span.end - span.start + KEPT + (1 << 16)) // ALIGNMENT) * ALIGNMENT
    addresses |= {name: cursor for name, value in values.items() if isinstance(value, TensorView) and not value.span}
    result = grid.run(
        code,
        executable.name,
        grid=(total, 1, 1),
        block=(executable.threads, 1, 1),
        arguments=pack(executable.program, values, addresses),
        memory=memory,
        checks=checks,
        seed=seed,
        landing=landing,
        numerics=numerics,
        without=without,
        sink=sink,
    )
    for span, place in zip(spans, places):
        if span.written:
            span.array()[:] = memory.read(place, span.end - span.start)
    return result


def merge(executable: Executable, values: Mapping[str, Argument]) -> list[Span]:
    """The memory of all tensors, overlapping ones together, in order of address."""
    views = sorted(
        (v.address, v.address + v.span, name) for name, v in values.items() if isinstance(v, TensorView) and v.span
    )
    spans: list[Span] = []
    for start, end, name in views:
        written = name in executable.written
        if spans and start < spans[-1].end:
            last = spans[-1]
            last.end, last.written = max(last.end, end), last.written or written
            last.names.append(name)
        else:
            spans.append(Span(start, end, [name], written))
    return spans
