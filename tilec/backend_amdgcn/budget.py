"""How many registers a wave may take, and the one error of a kernel that takes more.

The waves of a workgroup are all resident at once, so that those that share a SIMD share its registers: VGPRs and AGPRs
come out of one file of 512 per lane (CDNA3 ISA, "Vector general purpose registers"), at most 256 of each. There is no
spilling.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import accumulate

from tilec.backend_amdgcn.liveness import Liveness, pressure_steps
from tilec.errors import OutOfScalars, OverBudget
from tilec.ir.machine import Register
from tilec.target import Target

FILE_NAMES = {"v": "VGPRs", "a": "AGPRs", "s": "SGPRs"}
_LISTED = 6
"""Tiles that the error names; the rest are summed up."""


@dataclass(frozen=True)
class Budget:
    """The registers of one wave, by architecture and waves in a workgroup."""

    target: Target
    waves: int

    @property
    def waves_per_simd(self) -> int:
        return max(1, -(-self.waves // self.target.simds))

    @property
    def vector(self) -> int:
        """VGPRs and AGPRs together."""
        granule = self.target.vgpr_granule
        return self.target.registers_per_lane // self.waves_per_simd // granule * granule

    def limit(self, file: str, agprs: int = 0) -> int:
        """Registers of a file, if so many AGPRs are taken besides."""
        if file == "s":
            return self.target.sgprs
        if file == "a":
            return min(self.target.agprs, self.vector)
        granule = self.target.accum_offset_granule
        return min(self.target.vgprs, (self.vector - agprs) // granule * granule)

    def say(self, file: str) -> str:
        """The budget in words. Of vector registers always both files: which one a tile is in is tilec's choice."""
        if file == "s":
            return f"a wave has {self.target.sgprs} SGPRs"
        return (f"a wave has {self.vector} vector registers with {self.waves} waves in a workgroup "
                f"({self.waves_per_simd} on each SIMD): up to {self.target.vgprs} VGPRs and {self.target.agprs} AGPRs")


def over_budget(live: Liveness, files: dict[Register, str], file: str, budget: Budget) -> OverBudget:
    """The error for a program that has no room in `file`: the tiles that are live at the peak, the largest first."""
    scan = live.scan
    registers = [r for r in scan.registers if (files[r] == "s") == (file == "s")]
    levels = list(accumulate(pressure_steps(live, registers)))
    peak = max(levels)
    point = levels.index(peak)
    sizes: Counter[str] = Counter()
    first: dict[str, Register] = {}
    for register in registers:
        dwords = sum(mask >> point & 1 for mask in live.dword_masks(register))
        if dwords:
            name = register.name or "unnamed values"
            sizes[name] += dwords
            first.setdefault(name, register)
    largest = sizes.most_common(_LISTED)
    listing = [f"{name} {size}" + (f" ({where})" if (where := first[name].where) else "") for name, size in largest]
    if rest := peak - sum(size for _, size in largest):
        listing.append(f"others {rest}")
    kind, room = ("SGPRs", budget.limit("s")) if file == "s" else ("vector registers", budget.vector)
    what = f"{scan.program.name} needs {peak} {kind} at once"
    if peak <= room:
        what += f", and no placement was found: {FILE_NAMES[file]} run out, or their gaps are too narrow for a tile"
    if file == "s":
        fix = "pass fewer tensors, or compute scalars where they are used"
    else:
        fix = (f"make {largest[0][0]} smaller, " + ("use fewer waves" if budget.waves_per_simd > 1 else
               "spread the tile over more waves") + ", or keep fewer copies in flight")
        if pinned := sorted({r.name for r in registers if r.pin and r.kind == "va"}):
            fix += f"; or leave out the pin of {', '.join(pinned)}: AGPRs up to the highest pinned one count as taken"
    instruction = scan.accesses[min(point // 2, len(scan.accesses) - 1)][0]
    where = instruction.where or first[largest[0][0]].where or scan.program.where
    error = OutOfScalars if file == "s" else OverBudget
    return error(what, where=where, limit=f"{budget.say(file)}; live here: {', '.join(listing)}", fix=fix)
