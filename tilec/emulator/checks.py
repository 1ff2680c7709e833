"""The checks: faults of a program that hardware hides, reported while it runs. Each can be switched off by name.

definedness   an undefined bit decides an address, a branch, EXEC, or reaches global memory           (shadow.py)
waits         a register is used while a load that writes it has not been waited for
hazards       two instructions are nearer than their wait states                                      (hazards.py)
lds_races     two waves touch an LDS byte, one writing, with no wait and barrier between              (races.py)
barriers      waves of a workgroup pass unequal numbers of barriers
global_races  two workgroups touch a byte of global memory, one writing plainly                       (global_races.py)
bounds        an access outside of the allocations, of LDS or of scratch; a store to read-only memory
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tilec.emulator import shadow
from tilec.emulator.access import Access
from tilec.emulator.findings import Finding, Report
from tilec.emulator.global_races import GlobalRaces
from tilec.emulator.instruction import Instruction
from tilec.emulator.memory import Memory
from tilec.emulator.memory_rows import MEMORY
from tilec.emulator.memory_shadow import MemoryShadow, data_bits
from tilec.emulator.operands import EXEC, SGPR
from tilec.emulator.races import LdsRaces

if TYPE_CHECKING:
    from tilec.emulator.decode import Block, Program
    from tilec.emulator.machine import Machine
    from tilec.emulator.trace import Sink
    from tilec.emulator.wave import Batch

Array = np.ndarray[Any, Any]
CHECKS = ("definedness", "waits", "hazards", "lds_races", "barriers", "global_races", "bounds")
__all__ = ["CHECKS", "Checker", "Finding"]


class Checker:
    """Watches one launch. `start` binds it to each resident set in turn."""

    machine: Machine
    memory_shadow: MemoryShadow

    def __init__(self, program: Program, names: frozenset[str], memory: Memory):
        self.program, self.names = program, names
        self.report = Report(program.code)
        self.bounds, self.waits, self.definedness = "bounds" in names, "waits" in names, "definedness" in names
        self.hazards = program.decoded.hazards if "hazards" in names else None
        self.global_races = GlobalRaces(self._found, _narrowest(program)) if "global_races" in names else None
        self.lds_races: LdsRaces | None = None
        self._paths: dict[tuple[Block, tuple[Instruction, ...]], tuple[Instruction, ...]] = {}
        self.current: Instruction | None = None

    # ---- life of a resident set
    def start(self, machine: Machine, batch: Batch) -> None:
        self.machine = machine
        self.lds_races = (
            LdsRaces(machine, self._found) if {"lds_races", "definedness"} & self.names and machine.lds_bytes else None
        )
        self.memory_shadow = MemoryShadow(machine, self.lds_races)
        self._ends: dict[int, Instruction] = {}
        self._barriers: dict[int, Instruction] = {}

    def mark_undefined(self, batch: Batch, given_scalars: int) -> None:
        """Everything but what the dispatcher sets is undefined at entry."""
        if not self.definedness:
            return
        count = len(batch.waves)
        vector, scalar = np.full((count, 64), 0xFFFFFFFF, np.uint32), np.full(count, 0xFFFFFFFF, np.uint32)
        for register in range(1, 512):
            if self.program.binder.rows[register] >= 0:
                batch.undefined[register] = vector
        for register in (*range(SGPR + given_scalars, SGPR + 108), SGPR + 124, SGPR + 128):
            batch.undefined[register] = scalar

    def finish_resident(self) -> None:
        if self.lds_races is not None and "lds_races" in self.names:
            self.lds_races.sweep(np.arange(len(self.machine.groups)))

    def findings(self) -> tuple[Finding, ...]:
        return self.report.findings()

    def _found(
        self,
        check: str,
        message: str,
        at: Instruction,
        other: Instruction | None = None,
        *,
        wave: int = -1,
        lane: int = -1,
        byte: int = -1,
    ) -> None:
        """`wave`: machine wave index."""
        if check not in self.names:
            return
        machine = self.machine
        group = int(machine.groups[machine.slot[wave]]) if wave >= 0 else -1
        self.report.add(
            check,
            message,
            at,
            other,
            workgroup=group,
            wave=int(machine.wave_in_group[wave]) if wave >= 0 else -1,
            lane=lane,
            byte=byte,
        )

    # ---- one block
    def run_block(self, batch: Batch, block: Block, sink: Sink | None) -> None:
        if self.hazards is not None:
            self._walk(batch, block)
        waits, definedness = self.waits, self.definedness
        for instruction in block.body:
            if sink is not None:
                sink.before(batch, instruction)
            if waits and batch.in_flight and not batch.in_flight.keys().isdisjoint(instruction.touches):
                self._check_in_flight(batch, instruction)
            self.current = instruction
            undefined = batch.undefined
            if definedness and undefined:
                if not undefined.keys().isdisjoint(instruction.reads):
                    self._step_undefined(batch, instruction)
                else:
                    instruction.execute(batch)
                    if instruction.unit != "memory" and not undefined.keys().isdisjoint(instruction.writes):
                        shadow.apply(batch, instruction, {})
            else:
                instruction.execute(batch)
            if sink is not None:
                sink.after(batch, instruction)

    def _walk(self, batch: Batch, block: Block) -> None:
        """Wait states along every path that the batch's waves came by."""
        assert self.hazards is not None
        after = []
        for history in batch.histories:
            key = block, history
            next_history = self._paths.get(key)
            if next_history is None:
                violations, kept = self.hazards.walk(history, block.body)
                for v in violations:
                    self._found(
                        "hazards",
                        f"{v.states} wait states of the {v.needed} that rule {v.rule.name} needs",
                        v.consumer,
                        v.producer,
                        wave=int(batch.waves[0]),
                    )
                next_history = self._paths[key] = kept
            after.append(next_history)
        batch.histories = frozenset(after)

    # ---- loads in flight
    def _check_in_flight(self, batch: Batch, instruction: Instruction) -> None:
        for register in instruction.touches:
            access = batch.in_flight.get(register)
            if access is None:
                continue
            merges = (
                instruction.unit == "memory"
                and register in instruction.writes
                and register not in instruction.data | instruction.addresses
            )
            if register in instruction.reads and not merges:
                self._found(
                    "waits",
                    f"reads {shadow.register_name(register)} while the load that writes it is in flight",
                    instruction,
                    access.instruction,
                    wave=int(batch.waves[0]),
                )
            elif not _in_order(instruction, access):
                self._found(
                    "waits",
                    f"writes {shadow.register_name(register)} while a load that writes it is in flight",
                    instruction,
                    access.instruction,
                    wave=int(batch.waves[0]),
                )

    # ---- definedness
    def _step_undefined(self, batch: Batch, instruction: Instruction) -> None:
        """An instruction that reads registers with undefined bits."""
        if instruction.unit == "memory":
            self._check_memory_operands(batch, instruction)
            if instruction.spread is None:
                instruction.execute(batch)
                return
        elif instruction.ends_block or instruction.unit == "control" or instruction.name.startswith("s_setreg"):
            harm = "sets a hardware register" if instruction.name.startswith("s_setreg") else "decides a branch"
            self._report_undefined(batch, instruction, instruction.reads, harm)
        bits = shadow.spread(batch, instruction)
        if instruction.unit == "memory":  # a permute: its data is known now, and lands later
            batch.machine.permuted = bits
            instruction.execute(batch)
            return
        instruction.execute(batch)
        for register in (EXEC, EXEC + 1):
            if register in bits and bits[register].any():
                wave = int(np.flatnonzero(bits[register])[0])
                self._found("definedness", "an undefined value decides EXEC", instruction, wave=int(batch.waves[wave]))
                del bits[register]
        shadow.apply(batch, instruction, bits)

    def _report_undefined(
        self, batch: Batch, instruction: Instruction, registers: frozenset[int], what: str, only: int = 0xFFFFFFFF
    ) -> None:
        place = shadow.undefined_among(batch, registers, only)
        if place is not None:
            register, wave, lane, byte = place
            self._found(
                "definedness",
                f"undefined byte {byte} of {shadow.register_name(register)} {what}",
                instruction,
                wave=int(batch.waves[wave]),
                lane=lane,
                byte=byte,
            )

    def _check_memory_operands(self, batch: Batch, instruction: Instruction) -> None:
        row = instruction.row
        self._report_undefined(batch, instruction, instruction.addresses, "is part of an address")
        if row.op in ("store", "atomic") and row.space not in ("lds", "scratch"):
            self._report_undefined(batch, instruction, instruction.data, "is stored to memory", shadow.stored_bits(row))

    # ---- hooks of the machine
    def issued(self, batch: Batch, access: Access) -> None:
        if self.definedness and batch.undefined:
            permuted, batch.machine.permuted = batch.machine.permuted, None
            if permuted is not None:
                access.shadow = {0: next(iter(permuted.values()))} if permuted else None
            elif (
                access.data is not None
                and access.row.space in ("lds", "scratch", "flat")
                and access.row.op in ("store", "atomic")
            ):
                access.shadow = data_bits(batch, access)
        if self.lds_races is not None and (access.target is not None or access.row.space in ("lds", "flat")):
            self.lds_races.access(batch, access)
        if self.global_races is not None:
            if access.instruction.name == "buffer_inv" and "sc1" in access.instruction.parsed.modifiers:
                self.global_races.acquired.update(int(g) for g in self.machine.groups[self.machine.slot[batch.waves]])
            for part in access.parts:
                if part.space is self.machine.memory.space and part.index.ndim == 2:
                    self.global_races.access(self.machine, batch, access, part)

    def completed(self, batch: Batch, access: Access) -> None:
        if self.lds_races is not None and access.target is not None:
            self.lds_races.completed(batch, access)

    def landing(self, batch: Batch, access: Access) -> None:
        """Before an access takes effect: definedness of what it stores and loads."""
        if self.definedness:
            self.memory_shadow.landing(batch, access)

    # ---- barriers
    def arrived(self, batch: Batch) -> None:
        assert batch.barrier is not None
        if self.lds_races is not None and "lds_races" in self.names:
            self.lds_races.arrived(batch)
        for slot in np.unique(self.machine.slot[batch.waves]):
            self._barriers[int(slot)] = batch.barrier

    def barrier_opens(self, slots: Array) -> None:
        machine = self.machine
        for slot in slots[machine.alive[slots] < machine.waves_per_group]:
            barrier, end = self._barriers.get(int(slot)), self._ends.get(int(slot))
            if barrier is not None:
                gone = machine.waves_per_group - int(machine.alive[slot])
                self._found(
                    "barriers",
                    f"{gone} of {machine.waves_per_group} waves have ended while others wait at a barrier: "
                    "unequal numbers of barriers, a hang on hardware",
                    barrier,
                    end,
                    wave=int(slot) * machine.waves_per_group,
                )
        if self.lds_races is not None and "lds_races" in self.names:
            self.lds_races.opens(slots)

    def barrier_opened(self, slots: Array) -> None:
        if self.lds_races is not None and "lds_races" in self.names:
            self.lds_races.opened(slots)

    def ended(self, batch: Batch) -> None:
        if self.current is not None:
            for slot in np.unique(self.machine.slot[batch.waves]):
                self._ends[int(slot)] = self.current

    # ---- bounds
    def lds_bounds(self, batch: Batch, address: Array, fine: Array, size: int) -> None:
        self._bounds(
            batch,
            np.broadcast_to(address, fine.shape),
            fine,
            f"{size} bytes of LDS, of which the workgroup has {self.machine.lds_bytes}",
        )

    def scratch_bounds(self, batch: Batch, address: Array, fine: Array, size: int) -> None:
        self._bounds(
            batch,
            np.broadcast_to(address, fine.shape),
            fine,
            f"{size} bytes of scratch, of which a lane has {self.machine.scratch_bytes}",
        )

    def global_bounds(
        self, batch: Batch, instruction: Instruction, address: Array, fine: Array, size: int, write: bool
    ) -> None:
        place = tuple(int(i) for i in np.argwhere(~fine)[0])
        self._bounds(
            batch,
            address,
            fine,
            f"{size} bytes, {self.machine.describe(int(address[place]))}",
            "writes" if write else "reads",
        )

    def _bounds(self, batch: Batch, address: Array, fine: Array, what: str, verb: str = "touches") -> None:
        if fine.all() or self.current is None:
            return
        place = tuple(int(i) for i in np.argwhere(~fine)[0])
        self._found(
            "bounds",
            f"{verb} {what}",
            self.current,
            wave=int(batch.waves[place[0]]),
            lane=place[1] if len(place) > 1 else -1,
            byte=int(address[place]) & (1 << 64) - 1,
        )


def _in_order(instruction: Instruction, access: Access) -> bool:
    """May the instruction overwrite what the access will write? Only when one in-order counter holds both."""
    if (
        instruction.unit != "memory"
        or instruction.counters != access.instruction.counters
        or len(instruction.counters) != 1
    ):
        return False
    return instruction.counters == ("vm",) or (instruction.row.space == "lds" and access.row.space == "lds")


def _narrowest(program: Program) -> int:
    """The smallest size of a global access in the object: what the race check counts in."""
    size = 4
    for _, _, text in program.code.instructions:
        row = MEMORY.get(text.split(" ", 1)[0])
        if row is not None and row.space in ("buffer", "global", "flat") and row.size:
            size = min(size, row.size)
    return size
