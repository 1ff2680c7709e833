"""Keeps instructions as far apart as the hardware needs: by moving work between them, else by `s_nop`.

Needs form `allocated` with its waits in place, gives `final`. Promise: between any two instructions that a rule of the
hazard table names, as many instructions lie as it asks for, on every path. Checked by hazardcheck.
Method: forward dataflow over the producers that a rule can still reach, each with the fewest instructions since. Before
a consumer that stands too close goes an instruction from behind it that depends on nothing between; where there is
none, the missing states, which is the fewest in straight-line code. No move crosses a wait, a barrier, a branch or a
change of priority, and none is of a memory instruction, so that counts and clusters stay as they are.
"""

from __future__ import annotations

from tilec.backend_amdgcn.hazard_table import CLAUSE_UNITS, Effects, effects, required
from tilec.ir.machine import Block, Immediate, Instruction, Program, successors

NOP_STATES = 16
"""The most wait states of one s_nop."""
LOOKAHEAD = 16
"""How far behind a consumer work is looked for."""

_EXACT_SWEEPS = 8
"""Sweeps in which wait states are computed afresh. After them they only grow, so that the analysis ends."""
_MOVABLE = ("salu", "valu", "trans", "mfma")
_FIXED = ("wait", "barrier", "branch", "message")

Nops = dict[Instruction, tuple[int, str]]
"""Wait states to insert before an instruction, and the rule that asks for them."""

State = dict[Effects, int]
"""Producers within reach, with the instructions that were issued since (the fewest over all paths)."""


def insert(program: Program) -> Program:
    """The program in form final, with `s_nop` whose note names the rule. Instructions that emit nothing don't count."""
    arch = program.arch
    blocks = [[effects(i, arch) for i in block.instructions] for block in program.blocks]
    index = {block.label: i for i, block in enumerate(program.blocks)}
    predecessors: list[list[int]] = [[] for _ in blocks]
    for label, following in successors(program).items():
        for successor in following:
            predecessors[index[successor]].append(index[label])

    entries: list[State | None] = [None] * len(blocks)
    exits: list[State] = [{} for _ in blocks]
    nops: list[Nops] = [{} for _ in blocks]
    sweep, changed = 0, True
    while changed:      # a producer's age only grows around a loop, so that with fixed nops this ends
        changed, sweep = False, sweep + 1
        for i, steps in enumerate(blocks):
            entry: State = {}
            for predecessor in predecessors[i]:
                for producer, age in exits[predecessor].items():
                    entry[producer] = min(age, entry.get(producer, age))
            if entry != entries[i]:
                entries[i], changed = entry, True
                exits[i], nops[i] = _run(steps, entry, nops[i] if sweep > _EXACT_SWEEPS else {})
    _break_clauses(blocks, nops)
    return program.replace(blocks=tuple(map(_finished, program.blocks, blocks, nops)), form="final")


def _break_clauses(blocks: list[list[Effects]], nops: list[Nops]) -> None:
    """Ends clauses that could not be replayed (see the table). A state more only adds to what its rules asked for."""
    unit, reads, writes = "", frozenset[int](), frozenset[int]()
    for steps, placed in zip(blocks, nops):
        for step in steps:
            if step.unit == "pseudo":
                continue
            if step.unit not in CLAUSE_UNITS:
                unit = ""
                continue
            own_reads, own_writes = step.uses()
            joins = unit == step.unit and step.instruction not in placed
            if joins and (writes and step.shape.stores or (reads | own_reads) & (writes | own_writes)):
                placed[step.instruction] = (1, "end of a clause that may be replayed")
                joins = False
            reads, writes = (reads | own_reads, writes | own_writes) if joins else (own_reads, own_writes)
            unit = step.unit


class _Window:
    """The producers within reach at a place of a block, and the registers through which they reach it."""

    def __init__(self, entry: State):
        self.now = 0
        self.active: list[tuple[Effects, int]] = []
        self.expiry: dict[int, int] = {}        # by register, the last position that a producer reaches through it
        self.unseen = -1                        # the same for producers whose rules need no register in common
        for producer, age in entry.items():
            self._follow(producer, -age - 1)

    def missing(self, consumer: Effects) -> tuple[int, str]:
        """States that must still pass before the consumer, and the rule that asks for them."""
        now, expiry = self.now, self.expiry
        missing, why = 0, ""
        if self.active and (self.unseen >= now or any(expiry.get(r, -1) >= now for r in consumer.registers())):
            self.active = [p for p in self.active if p[1] + p[0].shape.reach >= now]
            for producer, issued in self.active:
                rules = producer.shape.before(consumer.shape)
                if rules and rules[0][0] > now - issued - 1 + missing:
                    states, rule = required(producer, consumer)
                    if states > now - issued - 1 + missing:
                        missing, why = states - (now - issued - 1), rule
        return missing, why

    def issue(self, step: Effects, states: int) -> None:
        """One instruction, after so many states of `s_nop`."""
        self.now += states
        if step.shape.reach:
            self._follow(step, self.now)
        self.now += 1

    def close(self) -> State:
        return {p: self.now - issued - 1 for p, issued in self.active if issued + p.shape.reach >= self.now}

    def _follow(self, producer: Effects, issued: int) -> None:
        self.active.append((producer, issued))
        end = issued + producer.shape.reach
        if producer.shape.unseen:
            self.unseen = max(self.unseen, end)
        for role in producer.shape.guards:
            for register in producer.role(role):
                if self.expiry.get(register, -1) < end:
                    self.expiry[register] = end


def _run(steps: list[Effects], entry: State, least: Nops) -> tuple[State, Nops]:
    """Goes through a block, reordering `steps` where that fills a slot: its exit state, and the wait states it needs,
    `least` at least."""
    window = _Window(entry)
    nops: Nops = {}
    place = 0
    while place < len(steps):
        step = steps[place]
        if step.unit == "pseudo":
            place += 1
            continue
        missing, why = window.missing(step)
        while missing and (filler := _filler(steps, place, window)) is not None:
            steps.insert(place, steps.pop(filler))
            window.issue(steps[place], 0)
            place += 1
            missing, why = window.missing(step)
        missing, why = max((missing, why), least.get(step.instruction, (0, "")))
        if missing:
            nops[step.instruction] = (missing, why)
        window.issue(step, missing)
        place += 1
    return window.close(), nops


def _filler(steps: list[Effects], place: int, window: _Window) -> int | None:
    """An instruction behind `place` that may as well stand before it, and needs no states there."""
    read: set[int] = set()
    written: set[int] = set()
    for candidate in range(place, min(place + LOOKAHEAD, len(steps))):
        step = steps[candidate]
        if step.unit in _FIXED:
            return None
        reads, writes = step.uses()
        if candidate > place and step.unit in _MOVABLE and written.isdisjoint(reads) and \
                written.isdisjoint(writes) and read.isdisjoint(writes) and not window.missing(step)[0]:
            return candidate
        read |= reads
        written |= writes
    return None


def _finished(block: Block, steps: list[Effects], nops: Nops) -> Block:
    result: list[Instruction] = []
    for step in steps:
        states, why = nops.get(step.instruction, (0, ""))
        while states > 0:
            chunk = min(states, NOP_STATES)
            result.append(Instruction("s_nop", (), (Immediate(chunk - 1),), where=step.instruction.where, note=why))
            states -= chunk
        result.append(step.instruction)
    return block.replace(instructions=tuple(result))
