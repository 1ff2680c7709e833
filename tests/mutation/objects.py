"""Breaks the synchronisation of a finished code object in one place, and asks the emulator whether it notices.

Mutants leave out a wait, a barrier or an s_nop, let one more operation stay in flight at a wait, or move an
instruction up over the one before it: over a wait, barrier or s_nop, or, when it consumes an MFMA result that is still
under way, over an instruction that has nothing to do with it. A mutant is reported (a finding, or a wrong result),
harmless (bit-exact over landings and seeds), or missed.

    python -m tests.mutation.objects CORPUS [--limit 60] [NAME ...]       prints the table of docs/emulator.md
"""

from __future__ import annotations

import argparse
import random
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from tilec.emulator import CodeObject, load_object
from tilec.emulator.corpus import CaseResult, load_description, load_reference, run_case
from tilec.emulator.decode import Program
from tilec.emulator.hazards import WINDOW
from tilec.emulator.instruction import Instruction
from tilec.emulator.operands import EXEC
from tilec.emulator.wave import Batch
from tilec.errors import TilecError

RUNS = (("late", 0), ("early", 1), ("random", 2), ("random", 3), ("late", 4))
"""Landings and seeds over which a mutant must be bit-exact to be called harmless."""

SYNCHRONISES = ("s_waitcnt", "s_barrier", "s_nop")
_ANCHORED = re.compile(r"s_(branch|cbranch|barrier|waitcnt|endpgm|nop|setprio|call|setpc|swappc|getpc|sleep)")


@dataclass(frozen=True)
class Mutant:
    """`kind`: 'wait deleted', 'wait weakened', 'barrier deleted', 'states deleted' or 'moved up'; `text` is what was
    changed.
    """

    kind: str
    address: int
    text: str
    code: CodeObject
    without: tuple[int, ...] = ()


def mutants(code: CodeObject, executed: frozenset[int], limit: int, seed: int = 0) -> list[Mutant]:
    """At most `limit` mutants of the executed part, drawn evenly over the kinds by seed."""
    by_kind: dict[str, list[Mutant]] = {}
    for mutant in _all(code, executed):
        by_kind.setdefault(mutant.kind, []).append(mutant)
    drawn: list[Mutant] = []
    generator = random.Random(seed)
    for kind in by_kind.values():
        generator.shuffle(kind)
    while len(drawn) < limit and any(by_kind.values()):
        drawn += [kind.pop() for kind in by_kind.values() if kind][: limit - len(drawn)]
    return drawn


def _all(code: CodeObject, executed: frozenset[int]) -> Iterator[Mutant]:
    instructions = [i for i in code.instructions if i.address in executed]
    consumers = _consumers(code, executed)
    for place, (address, size, text) in enumerate(instructions):
        if text.startswith("s_waitcnt"):
            yield Mutant("wait deleted", address, text, code, (address,))
            for counter, weaker in _weakened(text):
                yield Mutant("wait weakened", address, f"{text} -> {counter}", code.patched({address: weaker}))
        elif text == "s_barrier":
            yield Mutant("barrier deleted", address, text, code, (address,))
        elif text.startswith("s_nop"):
            yield Mutant("states deleted", address, text, code, (address,))
        previous = instructions[place - 1] if place else None
        if (
            previous is not None
            and previous.address + previous.size == address
            and not _ANCHORED.match(text)
            and (previous.text.startswith(SYNCHRONISES) or address in consumers)
        ):
            swapped = code.bytes_at(address, size) + code.bytes_at(previous.address, previous.size)
            yield Mutant("moved up", address, f"{text} over {previous.text}", code.patched({previous.address: swapped}))


def _consumers(code: CodeObject, executed: frozenset[int]) -> set[int]:
    """Addresses of what reads or overwrites an MFMA result within the window of wait states, and could as well stand
    before the instruction above it.
    """
    (kernel,) = code.kernels.values()
    program = Program(code, kernel)
    found: set[int] = set()
    path: list[Instruction] = []
    for address, _, text in code.instructions:
        if address not in executed or _ANCHORED.match(text) and not text.startswith(SYNCHRONISES):
            path = []  # a jump: what came before is not known here
            continue
        instruction = program.instruction(address)
        above = path[-1] if path else None
        if above is not None and not above.text.startswith(SYNCHRONISES) and _independent(above, instruction):
            recent = [p for p in path[-1 - WINDOW : -1] if p.unit == "mfma"]
            if any(not p.writes.isdisjoint(instruction.touches) for p in recent):
                found.add(address)
        path.append(instruction)
    return found


def _independent(above: Instruction, below: Instruction) -> bool:
    """Neither reads or overwrites what the other writes, nor do both go to memory; EXEC and SCC stay as they are."""
    shared = above.writes & below.touches or below.writes & above.reads
    return not shared and not (above.unit == below.unit == "memory") and {above.unit, below.unit} <= {
        "valu", "mfma", "memory"
    } and EXEC not in above.writes | below.writes


def _weakened(text: str) -> Iterator[tuple[str, bytes]]:
    counts = {"vmcnt": 63, "lgkmcnt": 15} | {name: int(n) for name, n in re.findall(r"(vmcnt|lgkmcnt)\((\d+)\)", text)}
    for name, most in (("vmcnt", 63), ("lgkmcnt", 15)):
        if counts[name] < most:
            changed = counts | {name: counts[name] + 1}
            vm = changed["vmcnt"]
            immediate = vm & 15 | 7 << 4 | changed["lgkmcnt"] << 8 | vm >> 4 << 14
            yield f"{name}({changed[name]})", (0xBF8C0000 | immediate).to_bytes(4, "little")


@dataclass(frozen=True)
class Verdict:
    """`kind`, `address`, `text`: the mutant's. `outcome`: reported, harmless or missed; `reason`: the check that saw
    it, the class of the harmless, or what differed.
    """

    kind: str
    address: int
    text: str
    outcome: str
    reason: str

    def __str__(self) -> str:
        return f"{self.outcome}: {self.kind} at {self.address:#x}: {self.text}: {self.reason}"


def judge(
    mutant: Mutant, meta: dict[str, Any], case: str, reference: ModuleType, good: CaseResult, budget: int
) -> Verdict:
    """Run a mutant until something notices it. `budget`: wave instructions per run."""
    outcome, reason = _judge(mutant, meta, case, reference, good, budget)
    return Verdict(mutant.kind, mutant.address, mutant.text, outcome, reason)


def _judge(
    mutant: Mutant, meta: dict[str, Any], case: str, reference: ModuleType, good: CaseResult, budget: int
) -> tuple[str, str]:
    known = {(f.check, f.address, f.other_address) for f in good.findings}
    try:
        for landing, seed in RUNS:
            result = run_case(
                mutant.code, meta, case, reference, landing=landing, seed=seed, without=mutant.without, limit=budget
            )
            fresh = [f for f in result.findings if (f.check, f.address, f.other_address) not in known]
            if fresh:
                return "reported", fresh[0].check
            if result.mismatches and not good.mismatches:
                return "reported", "wrong result"
            unlike = any(
                (result.outputs[name].view("u1") != good.outputs[name].view("u1")).any() for name in good.outputs
            )
            if unlike:
                return "missed", f"bits differ with landing {landing}, seed {seed}"
    except TilecError as error:
        return "reported", f"stopped: {error.what[:40]}"
    return "harmless", _class_of(mutant, meta, case, reference)


class _Outstanding:
    """A sink: do more operations stand in a counter than the wait at this address lets stay?"""

    def __init__(self, address: int):
        self.address, self.waits = address, False

    def before(self, batch: Batch, instruction: Instruction) -> None:
        if instruction.address == self.address:
            counts = instruction.parsed.modifiers
            self.waits |= any(len(queue) > counts.get(f"{name}cnt", 63) for name, queue in batch.queues.items())

    def after(self, batch: Batch, instruction: Instruction) -> None: ...


def _class_of(mutant: Mutant, meta: dict[str, Any], case: str, reference: ModuleType) -> str:
    """Why a harmless mutant does no harm."""
    if mutant.kind.startswith("wait"):
        whole = mutant.code.origin[0] if mutant.code.origin else mutant.code
        seen = _Outstanding(mutant.address)
        run_case(whole, meta, case, reference, checks="none", sink=seen)
        return "implied by another wait" if seen.waits else "nothing to wait for on the path taken"
    return {
        "barrier deleted": "phase only, or covered by another barrier",
        "states deleted": "not needed on the path taken",
        "moved up": "independent of what it passed",
    }[mutant.kind]


def verdicts(path: Path, reference: ModuleType, limit: int) -> list[Verdict]:
    """The verdicts on an object's mutants, under the last of its cases. The unbroken object must pass."""
    code, meta = load_object((path / "kernel.hsaco").read_bytes()), load_description(path / "meta.json")
    case = meta["cases"][-1]["id"]
    good = run_case(code, meta, case, reference)
    assert good.passed, (path.name, good.mismatches, good.findings)
    budget = 4 * good.statistics.instructions + 100_000
    drawn = iter(mutants(code, frozenset(good.statistics.counts), limit))     # each is let go once judged
    return [judge(mutant, meta, case, reference, good, budget) for mutant in drawn]


def synchronises(path: Path) -> bool:
    """Has the object LDS accesses, waits and barriers?"""
    texts = [i.text for i in load_object((path / "kernel.hsaco").read_bytes()).instructions]
    return all(any(text.startswith(start) for text in texts) for start in ("ds_", "s_waitcnt", "s_barrier"))


def markdown(found: list[Verdict]) -> str:
    """Counts by kind of mutant; harmless ones with their class, missed ones with their places."""
    lines = ["| mutant | reported | harmless | missed |", "|---|---|---|---|"]
    for kind in dict.fromkeys(verdict.kind for verdict in found):
        of_kind = [verdict for verdict in found if verdict.kind == kind]
        count = Counter(verdict.outcome for verdict in of_kind)
        classes = Counter(verdict.reason for verdict in of_kind if verdict.outcome == "harmless")
        why = f" ({'; '.join(f'{n} {reason}' for reason, n in classes.most_common())})" if classes else ""
        lines.append(f"| {kind} | {count['reported']} | {count['harmless']}{why} | {count['missed']} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="Mutants of the objects of a corpus: who notices them.")
    parser.add_argument("corpus", type=Path)
    parser.add_argument("names", nargs="*", help="objects; without, all that have LDS accesses, waits and barriers")
    parser.add_argument("--limit", type=int, default=60, help="mutants of each object")
    options = parser.parse_args()
    reference = load_reference(options.corpus / "ref.py")
    folders = sorted(p.parent for p in options.corpus.glob("*/kernel.hsaco"))
    total: list[Verdict] = []
    for path in folders:
        if path.name in options.names if options.names else synchronises(path):
            try:
                found = verdicts(path, reference, options.limit)
            except (AssertionError, TilecError) as error:
                print(f"{path.name}: left out: {str(error)[:200]}", flush=True)
                continue
            total += found
            print(path.name, dict(Counter(v.outcome for v in found)), flush=True)
            for v in found:
                if v.outcome != "reported":
                    print(f"  {v}", flush=True)
    print(markdown(total))


if __name__ == "__main__":
    main()
