"""The event sink: what each batch instruction did, for traces, summaries and timing models.

The core calls a Sink before and after every instruction of a batch. An EventSink gets that as one Event per batch
instruction: waves, address, active lanes, LDS extra cycles, bytes and cache lines of memory accesses, barriers and
waits. Trace prints what chosen waves did, with the registers that changed; Summary adds up per instruction. Sinks
only look.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TextIO

import numpy as np

from tilec.emulator import banks
from tilec.emulator.instruction import Instruction
from tilec.emulator.operands import SGPR
from tilec.emulator.shadow import register_name

if TYPE_CHECKING:
    from tilec.emulator.access import Part
    from tilec.emulator.wave import Batch

Array = np.ndarray[Any, Any]
CACHE_LINE = 128
"""Bytes of a vector L1 cache line on CDNA3 and CDNA4."""


class Sink(Protocol):
    """Sees every instruction of every batch."""

    def before(self, batch: Batch, instruction: Instruction) -> None: ...

    def after(self, batch: Batch, instruction: Instruction) -> None: ...


class Sinks:
    """Several sinks as one."""

    def __init__(self, sinks: Sequence[Sink]):
        self.sinks = tuple(sinks)

    def before(self, batch: Batch, instruction: Instruction) -> None:
        for sink in self.sinks:
            sink.before(batch, instruction)

    def after(self, batch: Batch, instruction: Instruction) -> None:
        for sink in self.sinks:
            sink.after(batch, instruction)


@dataclass(frozen=True)
class Event:
    """One instruction of one batch. Per-wave arrays are int64 [wave]; `workgroups` are linear ids, `waves` count
    within them.

    `wait`: the counts of an s_waitcnt (vmcnt, lgkmcnt; -1: not waited for). `cache_lines` and `bytes`: of global
    accesses.
    """

    instruction: Instruction
    workgroups: Array
    waves: Array
    active: Array
    lds_extra_cycles: Array
    cache_lines: Array
    bytes: Array
    barrier: bool
    wait: tuple[int, int] | None


class EventSink:
    """Turns the calls of the core into events; subclasses override `event`."""

    _active: Array = np.zeros(0, np.int64)

    def before(self, batch: Batch, instruction: Instruction) -> None:
        self._active = np.count_nonzero(batch.active, axis=1)
        batch.machine.last_issued = None

    def after(self, batch: Batch, instruction: Instruction) -> None:
        access = batch.machine.last_issued
        count = len(batch.waves)
        none = np.zeros(count, np.int64)
        extra, lines, moved = none, none, none
        for part in () if access is None else (*access.parts, *(() if access.target is None else (access.target,))):
            if part.space is batch.machine.lds:
                write = access is not None and access.row.op != "load"
                extra = extra + banks.extra_cycles(batch.machine.arch, write, part.size, part.index, _lanes(part))
            elif part.space is batch.machine.memory.space:
                lines, moved = lines + _cache_lines(part), moved + np.count_nonzero(_lanes(part), axis=1) * part.size
        wait = None
        if instruction.name == "s_waitcnt":
            counts = instruction.parsed.modifiers
            wait = int(counts.get("vmcnt", -1)), int(counts.get("lgkmcnt", -1))  # type: ignore[arg-type]
        machine = batch.machine
        self.event(
            Event(
                instruction,
                machine.groups[machine.slot[batch.waves]],
                machine.wave_in_group[batch.waves],
                self._active,
                extra,
                lines,
                moved,
                instruction.name == "s_barrier",
                wait,
            )
        )

    def event(self, event: Event) -> None:
        """Called once per batch instruction, in the order of execution."""


def _lanes(part: Part) -> Array:
    index = part.index if part.index.ndim == 2 else part.index[:, None]
    return (
        np.ones(index.shape, bool)
        if part.lanes is None
        else np.broadcast_to(part.lanes if part.lanes.ndim == 2 else part.lanes[:, None], index.shape)
    )


def _cache_lines(part: Part) -> Array:
    """Distinct cache lines that each wave touches."""
    index = part.index if part.index.ndim == 2 else part.index[:, None]
    ends = np.stack([index // CACHE_LINE, (index + part.size - 1) // CACHE_LINE], axis=-1)
    lines = np.where(_lanes(part)[..., None], ends, -1).reshape(len(index), -1)
    lines.sort(axis=1)
    fresh = np.ones(lines.shape, bool)
    fresh[:, 1:] = lines[:, 1:] != lines[:, :-1]
    return np.count_nonzero(fresh & (lines >= 0), axis=1)


@dataclass
class Row:
    """What one instruction did over the whole run."""

    instruction: Instruction
    executions: int = 0
    active_lanes: int = 0
    lds_extra_cycles: int = 0
    cache_lines: int = 0
    bytes: int = 0

    @property
    def coalescing(self) -> float:
        """Bytes used per byte of the cache lines touched, 0 where there were none."""
        return self.bytes / (self.cache_lines * CACHE_LINE) if self.cache_lines else 0.0


@dataclass(eq=False)
class Summary(EventSink):
    """Counts per instruction: executions, active lanes, LDS extra cycles, bytes and cache lines."""

    rows: dict[int, Row] = field(default_factory=dict)

    def event(self, event: Event) -> None:
        address = event.instruction.address
        row = self.rows.get(address)
        if row is None:
            row = self.rows[address] = Row(event.instruction)
        row.executions += len(event.waves)
        row.active_lanes += int(event.active.sum())
        row.lds_extra_cycles += int(event.lds_extra_cycles.sum())
        row.cache_lines += int(event.cache_lines.sum())
        row.bytes += int(event.bytes.sum())

    def as_json(self) -> list[dict[str, Any]]:
        """A dict per instruction, in address order."""
        return [
            {
                "address": address,
                "instruction": row.instruction.text,
                "executions": row.executions,
                "active_lanes": row.active_lanes,
                "lds_extra_cycles": row.lds_extra_cycles,
                "bytes": row.bytes,
                "cache_lines": row.cache_lines,
                "coalescing": row.coalescing,
            }
            for address, row in sorted(self.rows.items())
        ]

    def table(self) -> str:
        """Rows in address order; memory columns are blank where nothing was moved."""
        lines = [
            f"{'address':>10} {'waves':>9} {'lanes':>6} {'lds extra':>10} {'bytes':>12} {'coalesced':>9}  instruction"
        ]
        for address, row in sorted(self.rows.items()):
            lanes = row.active_lanes / max(row.executions, 1)
            extra = str(row.lds_extra_cycles) if row.lds_extra_cycles or row.instruction.name.startswith("ds_") else ""
            moved, share = (str(row.bytes), f"{row.coalescing:.0%}") if row.bytes else ("", "")
            counts = f"{address:#10x} {row.executions:9} {lanes:6.1f} {extra:>10} {moved:>12} {share:>9}"
            lines.append(f"{counts}  {row.instruction.text}")
        return "\n".join(lines)


class Trace:
    """Writes one line per wave and instruction: wave, address, text, and the registers that changed: those that it
    wrote, and those of loads that landed with it.

    `waves`: pairs (workgroup, wave in it), or None for all; `start`, `end`: the addresses of interest.
    """

    def __init__(
        self, out: TextIO, waves: Collection[tuple[int, int]] | None = None, start: int = 0, end: int = 1 << 62
    ):
        self.out, self.waves, self.start, self.end = out, None if waves is None else frozenset(waves), start, end
        self._old: dict[int, dict[int, Array]] = {}

    def _rows(self, batch: Batch) -> list[tuple[int, int, int]]:
        machine = batch.machine
        groups, waves = machine.groups[machine.slot[batch.waves]], machine.wave_in_group[batch.waves]
        return [
            (row, int(group), int(wave))
            for row, (group, wave) in enumerate(zip(groups, waves, strict=True))
            if self.waves is None or (int(group), int(wave)) in self.waves
        ]

    def _value(self, batch: Batch, register: int, row: int) -> Array:
        value = batch.s[register - SGPR, row] if register >= SGPR else batch.v[batch.machine.rows[register], row]
        return np.array(value)

    def before(self, batch: Batch, instruction: Instruction) -> None:
        if self.start <= instruction.address < self.end:
            registers = sorted(instruction.writes | batch.in_flight.keys())
            self._old = {
                row: {r: self._value(batch, r, row) for r in registers}
                for row, _, _ in self._rows(batch)
            }

    def after(self, batch: Batch, instruction: Instruction) -> None:
        if not self.start <= instruction.address < self.end:
            return
        for row, group, wave in self._rows(batch):
            changes = []
            for register, old in self._old[row].items():
                new = self._value(batch, register, row)
                if (new != old).any():
                    changes.append(f"{register_name(register)}={_show(new)}")
            if batch.in_flight and not instruction.writes.isdisjoint(batch.in_flight):
                changes.append("(in flight)")
            effect = f"  ; {' '.join(changes)}" if changes else ""
            self.out.write(f"{group}.{wave} {instruction.address:#x}: {instruction.text}{effect}\n")


def _show(value: Array) -> str:
    """A scalar in hex; lanes as one value when all agree, else all of them."""
    if value.ndim == 0:
        return f"{int(value):#x}"
    if (value == value[0]).all():
        return f"{int(value[0]):#x}"
    return "[" + " ".join(f"{int(x):x}" for x in value) + "]"
