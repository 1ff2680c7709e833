"""Inserts the weakest `s_waitcnt` that makes every asynchronous result safe to touch.

Needs and keeps form `allocated`: physical registers, final order. Promise: an instruction that reads or writes a
register, or names a token, finds every access that defines it complete, on all paths; no count is stronger than some
path needs. Checked by waitcheck.
Method: forward dataflow. Per counter, each register dword and token maps to the position of the access that delivers
it; later accesses on the counter push it back, a wait for N completes all that are N or more back, paths join by the
nearest position. Facts [D]: vmcnt counts down in order over loads, stores and copies to LDS alike; lgkmcnt in order
among LDS instructions, while scalar loads come in any order, so that beside one only lgkmcnt(0) says anything. Source
data is read at issue, so that overwriting it needs no wait.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from tilec.backend_amdgcn.isa import Row, dwords, rows
from tilec.ir.machine import Block, Instruction, Operand, Physical, Program, Ref, Register, successors
from tilec.target import target

COUNTERS = {"vm": "vmcnt", "lgkm": "lgkmcnt"}
ORDERED_UNITS = ("vmem", "lds")
"""Units whose accesses on one counter complete in the order of issue."""

_EXACT_SWEEPS = 8
"""Sweeps in which a block's entry state is computed afresh. After them states only grow, so that the analysis ends."""

Key = int | Register
Pending = dict[Key, tuple[int, Instruction]]


@dataclass
class _Queue:
    """One counter. A position is a count of accesses, 0 for the last one before the block. `unordered`: a scalar load,
    say, may be on its way, which keeps no order."""

    limit: int
    pending: Pending = field(default_factory=dict)
    unordered: bool = False
    now: int = 0

    def issue(self, keys: Iterable[Key], instruction: Instruction, ordered: bool) -> None:
        self.now += 1
        self.pending.update(dict.fromkeys(keys, (self.now, instruction)))
        self.unordered |= not ordered

    def forget(self, keys: Iterable[Key]) -> None:
        """Tokens that an access of the other counter defines anew."""
        for key in keys:
            self.pending.pop(key, None)

    def count_for(self, hits: set[Key]) -> int:
        """The largest count that proves the accesses behind these keys complete."""
        if self.unordered:
            return 0
        nearest = max(self.pending[key][0] for key in hits)
        return min(self.now - nearest, self.limit - 1)      # at its maximum the counter stops, and says nothing

    def wait(self, count: int) -> None:
        if count == 0:
            self.pending, self.unordered = {}, False
        elif not self.unordered:
            done = self.now - count
            self.pending = {key: event for key, event in self.pending.items() if event[0] > done}

    def closed(self) -> _Queue:
        """The state for the blocks that follow: positions count from here, down to where no count tells them apart."""
        now, lowest = self.now, 1 - self.limit
        pending = {key: (max(position - now, lowest), access) for key, (position, access) in self.pending.items()}
        return _Queue(self.limit, pending, self.unordered)

    def joined(self, other: _Queue) -> _Queue:
        pending = dict(self.pending)
        for key, event in other.pending.items():
            if key not in pending or pending[key][0] < event[0]:
                pending[key] = event
        return _Queue(self.limit, pending, self.unordered or other.unordered)


State = dict[str, _Queue]


@dataclass(slots=True)
class _Step:
    """What the pass must know of one instruction: per counter, the keys whose accesses must be complete before it; what
    it defines itself, on which counter; for a wait its counts."""

    instruction: Instruction
    counter: str | None = None
    ordered: bool = True
    needs: dict[str, tuple[Key, ...]] = field(default_factory=dict)
    defines: tuple[Key, ...] = ()
    hands_on: tuple[tuple[Key, Key], ...] = ()
    counts: dict[str, int] | None = None


def insert(program: Program) -> Program:
    """The program with waits: at most one `s_waitcnt` before each instruction, with modifiers vmcnt and/or lgkmcnt and
    the reason as its note."""
    table = rows(program.arch)
    limits = {"vm": target(program.arch).vmcnt_max, "lgkm": target(program.arch).lgkmcnt_max}
    blocks = [[_step(i, table[i.op]) for i in block.instructions] for block in program.blocks]
    index = {block.label: i for i, block in enumerate(program.blocks)}
    predecessors: list[list[int]] = [[] for _ in blocks]
    for label, following in successors(program).items():
        for successor in following:
            predecessors[index[successor]].append(index[label])

    entries: list[State | None] = [None] * len(blocks)
    exits: list[State | None] = [None] * len(blocks)
    waits: list[dict[int, Instruction]] = [{} for _ in blocks]
    sweep, changed = 0, True
    while changed:
        changed, sweep = False, sweep + 1
        for i, steps in enumerate(blocks):
            entry = {name: _Queue(limit) for name, limit in limits.items()}
            for known in [exits[p] for p in predecessors[i]] + [entries[i] if sweep > _EXACT_SWEEPS else None]:
                if known is not None:
                    entry = {name: entry[name].joined(known[name]) for name in entry}
            if entry != entries[i]:
                entries[i], changed = entry, True
                exits[i], waits[i] = _run(steps, entry, table)
    return program.replace(blocks=tuple(_with_waits(block, placed) for block, placed in zip(program.blocks, waits)))


def _with_waits(block: Block, placed: dict[int, Instruction]) -> Block:
    if not placed:
        return block
    result: list[Instruction] = []
    for i, instruction in enumerate(block.instructions):
        if i in placed:
            result.append(placed[i])
        result.append(instruction)
    return block.replace(instructions=tuple(result))


def _keys(operands: Iterable[Operand]) -> tuple[Key, ...]:
    result: list[Key] = []
    for operand in operands:
        if isinstance(operand, Physical):
            result += dwords(operand)
        elif isinstance(operand, Ref):
            result.append(operand.register)
    return tuple(result)


def _step(instruction: Instruction, row: Row) -> _Step:
    if instruction.op == "s_waitcnt":
        return _Step(instruction, counts=counts_of(instruction))
    sources, results = _keys(instruction.src), _keys(instruction.dst)
    if instruction.op == "token":
        return _Step(instruction, hands_on=token_moves(sources, results))
    counter, ordered = row.counter, row.unit in ORDERED_UNITS
    registers = tuple(key for key in results if isinstance(key, int))
    # A later access of the same ordered counter may overwrite what an earlier one still has to deliver.
    needs = {name: sources if name == counter and ordered else sources + registers for name in COUNTERS}
    return _Step(instruction, counter, ordered, needs, results)


def counts_of(wait: Instruction) -> dict[str, int]:
    """The counts that an `s_waitcnt` waits for, by counter."""
    return {name: count for name, spelled in COUNTERS.items() if (count := wait.modifier(spelled)) is not None}


def token_moves(sources: tuple[Key, ...], results: tuple[Key, ...]) -> tuple[tuple[Key, Key], ...]:
    """(result, source) pairs of a `token` pseudo: one for one, all at once; else every source goes to every result."""
    if len(sources) == len(results):
        return tuple(zip(results, sources))
    return tuple((result, source) for result in results for source in sources)


def _run(steps: list[_Step], entry: State, table: dict[str, Row]) -> tuple[State, dict[int, Instruction]]:
    """One block: its exit state, and the waits to place before its instructions (by index)."""
    state = {name: replace(queue, pending=dict(queue.pending)) for name, queue in entry.items()}
    placed: dict[int, Instruction] = {}
    for i, step in enumerate(steps):
        counts: dict[str, int] = {}
        reasons: list[str] = []
        for name, keys in step.needs.items():
            queue = state[name]
            if queue.pending and not queue.pending.keys().isdisjoint(keys):
                hits = queue.pending.keys() & keys
                counts[name] = queue.count_for(hits)
                reasons += _labels((queue.pending[key] for key in hits), table)
                queue.wait(counts[name])
        if counts:
            placed[i] = _wait(counts, reasons, step.instruction)
        if step.counter:
            for name, queue in state.items():
                if name == step.counter:
                    queue.issue(step.defines, step.instruction, step.ordered)
                else:
                    queue.forget(step.defines)
        elif step.hands_on:
            _hand_on(step.hands_on, state)
        elif step.counts:
            for name, count in step.counts.items():
                state[name].wait(count)
    return {name: queue.closed() for name, queue in state.items()}, placed


def _wait(counts: dict[str, int], reasons: list[str], before: Instruction) -> Instruction:
    what = ", ".join(reasons[:3]) + (f" and {len(reasons) - 3} more" if len(reasons) > 3 else "")
    consumer = f"the barrier ({before.note})" if before.op == "s_barrier" and before.note else before.op
    return Instruction("s_waitcnt", modifiers=tuple((COUNTERS[name], count) for name, count in counts.items()),
                       where=before.where, note=f"{what} before {consumer}")


def _hand_on(pairs: tuple[tuple[Key, Key], ...], state: State) -> None:
    for queue in state.values():
        pending = queue.pending
        moved: Pending = {}
        for result, source in pairs:
            if source in pending and (result not in moved or moved[result][0] < pending[source][0]):
                moved[result] = pending[source]
        for result, _ in pairs:
            pending.pop(result, None)
        pending.update(moved)


def _labels(events: Iterable[tuple[int, Instruction]], table: dict[str, Row]) -> list[str]:
    """What the accesses do, in the order of issue, each once."""
    seen = {event: position for position, event in events}
    return list(dict.fromkeys(_label(event, table) for event in sorted(seen, key=lambda e: (seen[e], str(e.dst)))))


def _label(access: Instruction, table: dict[str, Row]) -> str:
    """`copy into a`, `read of a`, `load of v[0:3]`: what an access does, in a few words."""
    row = table[access.op]
    register = next((str(o) for o in access.dst if isinstance(o, Physical)), "")
    if access.shared:
        verb = "copy into" if row.unit == "vmem" else "read of" if register else "write to"
        return f"{verb} {access.shared.buffer}"
    return f"{'read' if row.unit == 'lds' else 'load'} of {access.note or register}" if register else row.mnemonic
