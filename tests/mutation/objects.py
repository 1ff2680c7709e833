"""Breaks the synchronisation of a finished code object in one place, and asks the emulator whether it notices.

Mutants leave out a wait, a barrier or an s_nop, let one more operation stay in flight at a wait, or move an
instruction up over the one before it. A mutant is reported (a finding, or a wrong result), harmless (bit-exact over
landings and seeds), or missed.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from tilec.emulator import CodeObject
from tilec.emulator.corpus import CaseResult, run_case
from tilec.errors import TilecError

RUNS = (("late", 0), ("early", 1), ("random", 2), ("random", 3), ("late", 4))
"""Landings and seeds over which a mutant must be bit-exact to be called harmless."""

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
            and previous.text.startswith(("s_waitcnt", "s_barrier", "s_nop"))
        ):
            swapped = code.bytes_at(address, size) + code.bytes_at(previous.address, previous.size)
            yield Mutant("moved up", address, f"{text} over {previous.text}", code.patched({previous.address: swapped}))


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
    """`outcome`: reported, harmless or missed; `reason`: the check that saw it, the class of the harmless, or what
    differed.
    """

    mutant: Mutant
    outcome: str
    reason: str


def judge(
    mutant: Mutant, meta: dict[str, Any], case: str, reference: ModuleType, good: CaseResult, budget: int
) -> Verdict:
    """Run a mutant until something notices it. `budget`: wave instructions per run."""
    known = {(f.check, f.address, f.other_address) for f in good.findings}
    try:
        for landing, seed in RUNS:
            result = run_case(
                mutant.code, meta, case, reference, landing=landing, seed=seed, without=mutant.without, limit=budget
            )
            fresh = [f for f in result.findings if (f.check, f.address, f.other_address) not in known]
            if fresh:
                return Verdict(mutant, "reported", fresh[0].check)
            if result.mismatches and not good.mismatches:
                return Verdict(mutant, "reported", "wrong result")
            unlike = any(
                (result.outputs[name].view("u1") != good.outputs[name].view("u1")).any() for name in good.outputs
            )
            if unlike:
                return Verdict(mutant, "missed", f"bits differ with landing {landing}, seed {seed}")
    except TilecError as error:
        return Verdict(mutant, "reported", f"stopped: {error.what[:40]}")
    return Verdict(mutant, "harmless", _class_of(mutant))


def _class_of(mutant: Mutant) -> str:
    return {
        "wait deleted": "implied by another wait",
        "wait weakened": "implied by another wait",
        "barrier deleted": "phase only, or covered by another barrier",
        "states deleted": "not needed on the path taken",
        "moved up": "independent of what it passed",
    }[mutant.kind]
