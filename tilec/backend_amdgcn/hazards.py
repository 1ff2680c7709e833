"""Inserts the wait states that hardware does not: `s_nop` between instructions that stand too close.

Needs form `allocated` with its waits in place, gives `final`. Promise: between any two instructions that a rule of the
hazard table names, as many instructions lie as it asks for, on every path. Checked by hazardcheck.
Method: forward dataflow over the producers that a rule can still reach, each with the fewest instructions since; at a
consumer that stands too close the missing states go in directly before it, which is the fewest in straight-line code.
"""

from __future__ import annotations

from tilec.backend_amdgcn.hazard_table import Effects, effects, required
from tilec.ir.machine import Block, Immediate, Instruction, Program, successors

NOP_STATES = 16
"""The most wait states of one s_nop."""

_EXACT_SWEEPS = 8
"""Sweeps in which wait states are computed afresh. After them they only grow, so that the analysis ends."""

Nops = dict[Instruction, tuple[int, str]]
"""Wait states to insert before an instruction, and the rule that asks for them."""

State = dict[Effects, int]
"""Producers within reach, with the instructions that were issued since (the fewest over all paths)."""


def insert(program: Program) -> Program:
    """The program in form final, with `s_nop` whose note names the rule. Instructions that emit nothing don't count."""
    arch = program.arch
    blocks = [[effects(i, arch) for i in block.instructions if i.op != "token"] for block in program.blocks]
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
    return program.replace(blocks=tuple(_with_nops(b, n) for b, n in zip(program.blocks, nops)), form="final")


def _run(steps: list[Effects], entry: State, least: Nops) -> tuple[State, Nops]:
    """Goes through a block: its exit state, and the wait states it needs, `least` at least."""
    now = 0
    nops: Nops = {}
    active: list[tuple[Effects, int]] = []
    expiry: dict[int, int] = {}             # by register, the last position that a producer reaches through it
    unseen = -1                             # the same for producers whose rules need no register in common

    def follow(producer: Effects, issued: int) -> None:
        nonlocal unseen
        active.append((producer, issued))
        end = issued + producer.shape.reach
        if producer.shape.unseen:
            unseen = max(unseen, end)
        for role in producer.shape.guards:
            for register in producer.role(role):
                if expiry.get(register, -1) < end:
                    expiry[register] = end

    for producer, age in entry.items():
        follow(producer, -age - 1)
    for consumer in steps:
        missing, why = least.get(consumer.instruction, (0, ""))
        if active and (unseen >= now or any(expiry.get(register, -1) >= now for register in consumer.registers())):
            active = [p for p in active if p[1] + p[0].shape.reach >= now]
            for producer, issued in active:
                rules = producer.shape.before(consumer.shape)
                if rules and rules[0][0] > now - issued - 1 + missing:
                    states, rule = required(producer, consumer)
                    if states > now - issued - 1 + missing:
                        missing, why = states - (now - issued - 1), rule
        if missing:
            nops[consumer.instruction] = (missing, why)
            now += missing
        if consumer.shape.reach:
            follow(consumer, now)
        now += 1
    return {producer: now - issued - 1 for producer, issued in active if issued + producer.shape.reach >= now}, nops


def _with_nops(block: Block, nops: Nops) -> Block:
    if not nops:
        return block
    result: list[Instruction] = []
    for instruction in block.instructions:
        states, why = nops.get(instruction, (0, ""))
        while states > 0:
            chunk = min(states, NOP_STATES)
            result.append(Instruction("s_nop", (), (Immediate(chunk - 1),), where=instruction.where, note=why))
            states -= chunk
        result.append(instruction)
    return block.replace(instructions=tuple(result))
