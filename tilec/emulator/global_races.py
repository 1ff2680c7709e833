"""Races between workgroups in global memory, by byte: nothing orders two workgroups of a launch.

Each writable allocation remembers per granule which workgroup read, wrote or changed it atomically (or that several
did), and which instruction did so last. A plain write races with anything of another workgroup, an atomic with plain
accesses only. A workgroup that acquires at agent scope (buffer_inv sc1) is taken to be ordered after all others from
then on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tilec.emulator.access import Access, Part
from tilec.emulator.instruction import Instruction
from tilec.emulator.memory import BASE, Allocation, sparse

if TYPE_CHECKING:
    from tilec.emulator.machine import Machine
    from tilec.emulator.wave import Batch

Array = np.ndarray[Any, Any]
MANY = np.uint32(0xFFFFFFFF)
KINDS = {"load": "read", "dma": "read", "store": "write", "atomic": "atomic"}
AGAINST = {"read": ("write", "atomic"), "write": ("write", "read", "atomic"), "atomic": ("write", "read")}
VERBS = {"read": "reads", "write": "writes", "atomic": "changes atomically"}
PASTS = {"read": "read", "write": "written", "atomic": "changed atomically"}


class Table:
    """One kind of access to one allocation: `who` is workgroup id + 1 or MANY, `site` the number of the instruction."""

    def __init__(self, granules: int):
        self.who, self.site = (sparse(4 * granules).view(np.uint32) for _ in range(2))

    def enter(self, at: Array, who: Array, site: int) -> None:
        old = self.who[at]
        self.who[at] = np.where((old == 0) | (old == who), who, MANY)
        lost = self.who[at] != who  # several workgroups, earlier or in this very instruction: nobody alone
        if lost.any():
            self.who[at[lost]] = MANY
        self.site[at] = site


@dataclass(frozen=True)
class Touch:
    """The lanes of one access that fall into one allocation, flat: first granule, workgroup id + 1, and batch place."""

    access: Access
    allocation: Allocation
    granule: Array
    who: Array
    places: Array


class GlobalRaces:
    """`granule`: bytes per entry, no more than the narrowest global access of the object."""

    def __init__(self, found: Callable[..., None], granule: int):
        self.found, self.granule = found, granule
        self.tables: dict[int, dict[str, Table]] = {}
        self.sites: list[Instruction] = []
        self.numbers: dict[int, int] = {}
        self.acquired: set[int] = set()

    def access(self, machine: Machine, batch: Batch, access: Access, part: Part) -> None:
        """Judge a part of an access, then remember it."""
        kind = KINDS.get(access.row.op)
        if kind is None:
            return
        top = machine.memory.find(int(part.index.max(initial=0)) + BASE)  # idle lanes have index 0
        if top is None or top.readonly and part.lanes is None and int(part.index.min()) + BASE >= top.start:
            return
        lanes = np.ones(part.index.shape, bool) if part.lanes is None else part.lanes
        address = part.index[lanes] + BASE
        groups = machine.groups[machine.slot[batch.waves]].astype(np.uint32) + np.uint32(1)
        who = np.broadcast_to(groups[:, None], part.index.shape)[lanes]
        places = np.flatnonzero(lanes)
        while len(address):
            allocation = machine.memory.find(int(address.min()))
            if allocation is None:
                return
            inside = address < allocation.end
            if not allocation.readonly:
                granule = (address[inside] - allocation.start) // self.granule
                self._touch(batch, Touch(access, allocation, granule, who[inside], places[inside]), kind, part.size)
            address, who, places = address[~inside], who[~inside], places[~inside]

    def _touch(self, batch: Batch, touch: Touch, kind: str, size: int) -> None:
        tables = self._tables(touch.allocation)
        instruction = touch.access.instruction
        number = self.numbers.get(instruction.address)
        if number is None:
            number = self.numbers[instruction.address] = len(self.sites)
            self.sites.append(instruction)
        for i in range(max(1, size // self.granule)):
            at = touch.granule + i
            for other in AGAINST[kind]:
                earlier = tables[other].who[at]
                bad = (earlier != 0) & (earlier != touch.who)
                if bad.any():
                    self._report(batch, touch, kind, other, at, bad)
            tables[kind].enter(at, touch.who, number)
            if kind == "write" and (touch.who != touch.who[0]).any():  # workgroups of this very instruction
                bad = tables[kind].who[at] == MANY
                if bad.any():
                    self._report(batch, touch, kind, kind, at, bad)

    def _tables(self, allocation: Allocation) -> dict[str, Table]:
        found = self.tables.get(allocation.start)
        if found is None:
            granules = (allocation.end - allocation.start) // self.granule + 16
            found = self.tables[allocation.start] = {kind: Table(granules) for kind in ("read", "write", "atomic")}
        return found

    def _report(self, batch: Batch, touch: Touch, kind: str, other: str, at: Array, bad: Array) -> None:
        if self.acquired:
            bad = bad & ~np.isin(touch.who - np.uint32(1), np.array(sorted(self.acquired), np.uint32))
            if not bad.any():
                return
        n = int(np.flatnonzero(bad)[0])
        wave, lane = divmod(int(touch.places[n]), 64)
        table = self.tables[touch.allocation.start][other]
        self.found(
            "global_races",
            f"{VERBS[kind]} a byte of {touch.allocation.name} that another workgroup has {PASTS[other]}",
            touch.access.instruction,
            self.sites[int(table.site[at[n]])],
            wave=int(batch.waves[wave]),
            lane=lane,
            byte=touch.allocation.start + int(at[n]) * self.granule,
        )
