"""A kernel of a code object as text or JSON: the resource line, the listing with labels and source lines, the loops.

Everything comes from the object: registers from its instructions, sizes from its descriptor, names from its metadata.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tilec import inspect_object
from tilec.inspect_object import Loop
from tilec.llvm import Instruction
from tilec.target import target

if TYPE_CHECKING:
    from tilec.emulator.elf import CodeObject, Kernel


@dataclass(frozen=True)
class Report:
    """`resources`: registers per lane, LDS and scratch in bytes, waves that fit a SIMD by registers, bytes of code."""

    name: str
    arch: str
    resources: Mapping[str, int]
    arguments: tuple[Mapping[str, Any], ...]
    instructions: tuple[Instruction, ...] = field(repr=False)
    lines: Mapping[int, str] = field(repr=False)
    loops: tuple[Loop, ...]

    def as_json(self) -> dict[str, Any]:
        listing = [{"address": i.address, "size": i.size, "text": i.text, "line": self.lines.get(i.address, "")}
                   for i in self.instructions]
        return {
            "name": self.name, "arch": self.arch, "resources": dict(self.resources), "arguments": list(self.arguments),
            "histogram": inspect_object.histogram(self.instructions),
            "loops": [loop_json(loop) for loop in self.loops], "instructions": listing,
        }

    def as_text(self) -> str:
        labels = self._labels()
        out = [self._head()]
        out += [f";   {a['name'] or '(unnamed)'}: {a['kind']}, {a['size']} bytes at {a['offset']}"
                for a in self.arguments]
        line = ""
        for instruction in self.instructions:
            here = self.lines.get(instruction.address, line)
            if here != line:
                out.append(f"; {here}")
                line = here
            if label := labels.get(instruction.address):
                out.append(f"{label}:")
            out.append(f"{instruction.address:#8x}  {_instruction_text(instruction, labels)}")
        return "\n".join([*out, *map(loop_text, self.loops)])

    def summary(self) -> list[str]:
        """Resources and loops, a few lines."""
        return [self._head(), *map(loop_text, self.loops)]

    def _head(self) -> str:
        return f"; {self.name} for {self.arch}: {resource_line(self.resources)}"

    def _labels(self) -> dict[int, str]:
        targets = {inspect_object.branch_target(i) for i in self.instructions}
        inside = sorted(i.address for i in self.instructions if i.address in targets)
        return {self.instructions[0].address: self.name} | {address: f"L{n}" for n, address in enumerate(inside)}


def describe(code: CodeObject, kernel: Kernel, conflicts: Mapping[int, float] | None = None) -> Report:
    """`conflicts`: extra LDS cycles per execution by address, where the emulator measured them."""
    start = kernel.descriptor.entry
    body = tuple(i for i in code.instructions if start <= i.address < start + kernel.size)
    allocated = kernel.descriptor.vector_registers
    vgprs = min(allocated, kernel.descriptor.accumulation_offset)
    machine, waves = target(code.arch), -(-kernel.max_workgroup // target(code.arch).wave_size)
    resources = {
        **inspect_object.registers_used(body), "lds": kernel.lds_bytes, "scratch": kernel.scratch_bytes,
        "waves_per_simd": machine.occupancy(vgprs, allocated - vgprs, kernel.lds_bytes, waves),
        "code_bytes": kernel.size,
    }
    arguments = tuple({"name": a.name, "offset": a.offset, "size": a.size, "kind": a.kind} for a in kernel.arguments)
    lines = {i.address: line for i in body if (line := code.line_of(i.address))}
    loops = inspect_object.loops(body, conflicts or {})
    return Report(kernel.name, code.arch, resources, arguments, body, lines, loops)


def _instruction_text(instruction: Instruction, labels: Mapping[int, str]) -> str:
    label = labels.get(inspect_object.branch_target(instruction) or -1)
    return f"{instruction.text.split()[0]} {label}" if label else instruction.text or "(not an instruction)"


def resource_line(resources: Mapping[str, int]) -> str:
    return (f"{resources['vgpr']} VGPR, {resources['agpr']} AGPR, {resources['sgpr']} SGPR, {resources['lds']} B LDS, "
            f"{resources['scratch']} B scratch, {resources['waves_per_simd']} waves per SIMD, "
            f"{resources['code_bytes']} B code")


def loop_json(loop: Loop) -> dict[str, Any]:
    return {
        "first": loop.first, "last": loop.last, "instructions": loop.instructions, "aside": loop.aside,
        "histogram": dict(loop.histogram),
        "waits": [{"address": wait.address, **wait.counters} for wait in loop.waits],
        "conflict_cycles": [{"address": access.address, "mnemonic": access.mnemonic, "cycles": access.conflict_cycles}
                            for access in loop.lds],
    }


def loop_text(loop: Loop) -> str:
    often = ", ".join(f"{count} {name}" for name, count in list(loop.histogram.items())[:8])
    waits = ", ".join(" ".join(f"{name}({count})" for name, count in wait.counters.items()) for wait in loop.waits)
    measured = [access.conflict_cycles for access in loop.lds if access.conflict_cycles is not None]
    conflicts = f"{sum(measured):g} a trip" if measured else "not measured"
    aside = f" and {loop.aside} aside" if loop.aside else ""
    return (f"; loop {loop.first:#x}..{loop.last:#x}: {loop.instructions} instructions{aside}: {often}\n"
            f";   waits: {waits or 'none'}\n;   {len(loop.lds)} LDS accesses, conflict cycles: {conflicts}")
