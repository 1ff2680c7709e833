"""What the instructions of a code object say: registers in use, histogram, innermost loops with waits and LDS accesses.

Pure functions over a disassembly, so that every claim about code comes from the bytes and holds for anyone's object.
Branch targets are read from the encodings; blocks end at branches, loops are connected parts of the flow graph.
Bank conflicts can't be seen in the text: the caller brings the cycles per address that the emulator counted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from tilec.llvm import Instruction

_REGISTER = re.compile(r"(?<![\w.])(?P<file>[vas])(?:(?P<one>\d+)|\[(?P<first>\d+):(?P<last>\d+)\])(?!\w)")
_COUNTER = re.compile(r"(vmcnt|lgkmcnt|expcnt)\((\d+)\)")
_ENCODING = re.compile(r"_e(?:32|64)$")                   # names an encoding, not another operation
_CROSSBAR = ("ds_permute", "ds_bpermute", "ds_swizzle", "ds_nop")      # use its crossbar, not its memory
_NONE: Mapping[int, float] = MappingProxyType({})
_NO_SUCCESSOR = ("s_endpgm", "s_setpc_b64", "s_endpgm_saved")


@dataclass(frozen=True)
class Wait:
    """An s_waitcnt: the counters that it waits for, with the number of accesses that may stay in flight."""

    address: int
    counters: Mapping[str, int]


@dataclass(frozen=True)
class LdsAccess:
    """An instruction that reads or writes LDS. `conflict_cycles`: mean extra per execution, None if unmeasured."""

    address: int
    mnemonic: str
    conflict_cycles: float | None


@dataclass(frozen=True)
class Loop:
    """An innermost loop. `first` and `last` are addresses of instructions, `instructions` counts them as they stand;
    all else is of these. `aside` counts what belongs to the loop but lies behind the kernel's end, out of the way."""

    first: int
    last: int
    instructions: int
    aside: int
    histogram: Mapping[str, int]
    waits: tuple[Wait, ...]
    lds: tuple[LdsAccess, ...]


def mnemonic(instruction: Instruction) -> str:
    """The operation, without operands and without the suffix that only names an encoding."""
    return _ENCODING.sub("", instruction.text.split(None, 1)[0]) if instruction.text else ""


def histogram(instructions: Iterable[Instruction]) -> dict[str, int]:
    """Instructions by mnemonic, the most frequent first."""
    return dict(Counter(map(mnemonic, instructions)).most_common())


def registers_used(instructions: Iterable[Instruction]) -> dict[str, int]:
    """Registers of each file counted from 0 to the last one named: {"vgpr": .., "agpr": .., "sgpr": ..}."""
    used = {"v": 0, "a": 0, "s": 0}
    for instruction in instructions:
        for match in _REGISTER.finditer(instruction.text):
            file, last = match["file"], int(match["one"] or match["last"])
            used[file] = max(used[file], last + 1)
    return {"vgpr": used["v"], "agpr": used["a"], "sgpr": used["s"]}


def branch_target(instruction: Instruction) -> int | None:
    """The address that a branch goes to; None for what is no direct branch."""
    name, _, operand = instruction.text.partition(" ")
    if not name.startswith(("s_branch", "s_cbranch_")) or not operand.strip().isdigit():
        return None
    offset = int(operand)                                   # signed 16 bits, in dwords from the next instruction
    return instruction.address + instruction.size + 4 * (offset - 0x10000 if offset & 0x8000 else offset)


def lds_accesses(instructions: Iterable[Instruction], conflicts: Mapping[int, float]) -> tuple[LdsAccess, ...]:
    """Every access to LDS, copies from global memory included."""
    return tuple(LdsAccess(i.address, mnemonic(i), conflicts.get(i.address)) for i in instructions if _touches_lds(i))


def loops(instructions: Sequence[Instruction], conflicts: Mapping[int, float] = _NONE) -> tuple[Loop, ...]:
    """The innermost loops of one kernel, in address order. `conflicts`: extra LDS cycles per execution, by address."""
    blocks = _blocks(instructions)
    edges = _successors(blocks)
    found = []
    for members in _innermost(set(range(len(blocks))), edges):
        behind = range(min(members), len(blocks))
        end = next((index for index in behind if blocks[index][-1].text.startswith("s_endpgm")), len(blocks))
        body = [instruction for index in sorted(members) if index < end for instruction in blocks[index]]
        aside = sum(len(blocks[index]) for index in members if index > end)
        found.append(Loop(body[0].address, body[-1].address, len(body), aside, histogram(body), _waits(body),
                          lds_accesses(body, conflicts)))
    return tuple(sorted(found, key=lambda loop: loop.first))


def _waits(body: Iterable[Instruction]) -> tuple[Wait, ...]:
    return tuple(Wait(i.address, {name: int(count) for name, count in _COUNTER.findall(i.text)})
                 for i in body if i.text.startswith("s_waitcnt"))


def _touches_lds(instruction: Instruction) -> bool:
    name, words = mnemonic(instruction), instruction.text.split()
    return (name.startswith("ds_") and not name.startswith(_CROSSBAR)) or "_load_lds_" in name or words[-1:] == ["lds"]


def _blocks(instructions: Sequence[Instruction]) -> list[list[Instruction]]:
    """Runs of instructions that are entered at the top and left at the bottom only."""
    starts = {target for i in instructions if (target := branch_target(i)) is not None}
    blocks: list[list[Instruction]] = []
    fresh = True
    for instruction in instructions:
        if fresh or instruction.address in starts:
            blocks.append([])
        blocks[-1].append(instruction)
        fresh = branch_target(instruction) is not None or instruction.text.startswith(_NO_SUCCESSOR)
    return blocks


def _successors(blocks: Sequence[Sequence[Instruction]]) -> dict[int, set[int]]:
    at = {block[0].address: index for index, block in enumerate(blocks)}
    edges: dict[int, set[int]] = {}
    for index, block in enumerate(blocks):
        last = block[-1]
        target = branch_target(last)
        falls = not last.text.startswith(("s_branch", *_NO_SUCCESSOR))
        reached = {target} if target is not None else set()
        if falls:
            reached.add(last.address + last.size)
        edges[index] = {at[address] for address in reached if address in at}
    return edges


def _innermost(blocks: set[int], edges: Mapping[int, set[int]]) -> list[set[int]]:
    """Loops among `blocks` that hold no loop: parts that stay connected, each taken apart at its entries."""
    result = []
    for part in _connected(blocks, edges):
        entries = {block for index in edges for block in edges[index] & part if index not in part} or {min(part)}
        result += _innermost(part - entries, edges) or [part]
    return result


def _connected(blocks: set[int], edges: Mapping[int, set[int]]) -> list[set[int]]:
    """Strongly connected components that hold a cycle (Warshall's closure on bit sets; kernels have few blocks)."""
    order = sorted(blocks)
    reach = {block: sum(1 << other for other in edges[block] & blocks) for block in order}
    for middle in order:
        for block in order:
            if reach[block] >> middle & 1:
                reach[block] |= reach[middle]
    parts: dict[int, set[int]] = {}
    for block in order:
        if reach[block] >> block & 1:
            first = next(other for other in order if reach[block] >> other & 1 and reach[other] >> block & 1)
            parts.setdefault(first, set()).add(block)
    return list(parts.values())
