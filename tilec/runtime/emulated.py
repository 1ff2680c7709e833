"""Launches on the CPU: the object runs on the emulator, on copies of the arguments' memory.

Arguments that overlap share one allocation, so that a kernel that works in place, or on two views of one tensor, sees
what it would see on a GPU. Addresses keep the alignment (up to 16 bytes) of the real ones. What the kernel does not
write is read-only for it; what it writes is copied back. Copied are the elements and what lies close to them, so that
a tensor of a few rows, gigabytes apart, costs its rows.
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


GAP = 4096  # bytes: runs of elements that lie closer than this are copied as one
MARGIN = 256  # bytes copied on either side of a run, where the span goes on


@dataclass
class Span:
    """Bytes [start, end) of real memory that arguments reach, and whether the kernel writes them."""

    start: int
    end: int
    views: dict[str, TensorView]
    written: bool

    def runs(self) -> list[tuple[int, int]]:
        """The ranges to copy, in order of address."""
        merged: list[tuple[int, int]] = []
        for start, end in sorted(run for view in self.views.values() for run in _runs(view)):
            start, end = max(self.start, start - MARGIN), min(self.end, end + MARGIN)
            if merged and start <= merged[-1][1]:
                merged[-1] = merged[-1][0], max(end, merged[-1][1])
            else:
                merged.append((start, end))
        return merged


def _runs(view: TensorView) -> Iterable[tuple[int, int]]:
    """Ranges of real memory that together hold all elements, each without a gap of GAP bytes or more."""
    length, starts = view.dtype.bits // 8, np.array([view.start])
    for stride, extent in sorted((abs(s), n) for s, n in zip(view.strides, view.shape) if n > 1):
        if len(starts) == 1 and stride < length + GAP:
            length += (extent - 1) * stride
        else:
            starts = (starts + stride * np.arange(extent)[:, None]).ravel()
    return ((start, start + length) for start in starts.tolist())


def _bytes(start: int, end: int) -> np.ndarray:
    """Real memory."""
    return np.frombuffer(memoryview((ctypes.c_uint8 * (end - start)).from_address(start)), np.uint8)


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
    addresses: dict[str, int] = {}
    placed: list[tuple[Span, int]] = []
    cursor = BASE + (1 << 20)
    for span in merge(executable, values):
        move = cursor + span.start % KEPT - span.start
        memory.place(span.end - span.start, name=" and ".join(span.views), readonly=not span.written,
                     address=span.start + move)
        for start, end in span.runs():
            memory.write(start + move, _bytes(start, end))
        placed.append((span, move))
        addresses |= {name: view.address + move for name, view in span.views.items()}
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
    for span, move in placed:
        if span.written:
            for start, end in span.runs():
                _bytes(start, end)[:] = memory.read(start + move, end - start)
    return result


def merge(executable: Executable, values: Mapping[str, Argument]) -> list[Span]:
    """The memory of all tensors, overlapping ones together, in order of address."""
    views = {name: value for name, value in values.items() if isinstance(value, TensorView) and value.span}
    spans: list[Span] = []
    for name, view in sorted(views.items(), key=lambda item: item[1].start):
        start, end, written = view.start, view.start + view.span, name in executable.written
        if spans and start < spans[-1].end:
            last = spans[-1]
            last.end, last.written = max(last.end, end), last.written or written
            last.views[name] = view
        else:
            spans.append(Span(start, end, {name: view}, written))
    return spans
