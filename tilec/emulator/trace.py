"""The one event sink of the emulator: what each batch instruction did, for traces, summaries and timing models.

A sink sees a batch before and after every instruction; it must not change it. Summary counts executions, LDS extra cycles, bytes
and cache lines per instruction; Trace writes what chosen waves did, register by register.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol, TextIO

from tilec.emulator.instruction import Instruction
from tilec.emulator.wave import Batch


class Sink(Protocol):
    """Sees every instruction of every batch."""

    def before(self, batch: Batch, instruction: Instruction) -> None: ...

    def after(self, batch: Batch, instruction: Instruction) -> None: ...


class Trace:
    """Writes `wave address text registers` for chosen waves and an address range."""

    def __init__(self, out: TextIO, waves: Collection[int] | None = None, start: int = 0, end: int = 1 << 62):
        self.out, self.waves, self.start, self.end = out, None if waves is None else frozenset(waves), start, end

    def before(self, batch: Batch, instruction: Instruction) -> None: ...

    def after(self, batch: Batch, instruction: Instruction) -> None: ...
