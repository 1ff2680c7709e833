"""Prints a finished machine program as the assembly text of a module: made to be read, and to be assembled.

Needs form `final`. A resource table stands on top; each run of instructions is headed by the user's line that it came
from, each block by its title; waits, wait states and barriers carry their reasons. Everything that the assembler reads
is decided here by the instruction's row: mnemonic, operand order, modifiers, `off`, constants. Checked by assembling.
"""

from __future__ import annotations

import linecache
import struct
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from tilec.backend_amdgcn.isa import Row, is_inline, rows
from tilec.backend_amdgcn.kernel_text import KernelArgument, KernelInfo, kernel_text
from tilec.errors import InternalError, Location
from tilec.ir.machine import Immediate, Instruction, Operand, Physical, Program, Target
from tilec.target import TARGETS, target

_COMMENT_COLUMN = 64
_NAMED_FIRST = {"s_mov_m0": "m0", "s_mov_exec": "exec"}
_NAMED_LAST = {"s_read_exec": "exec"}
_ORDER = ("offen", "offset", "sc0", "nt", "sc1", "lds", "quad_perm", "row_shl", "row_shr", "row_ror", "row_mask",
          "bank_mask", "bound_ctrl", "op_sel", "op_sel_hi", "neg_lo", "neg_hi", "clamp", "cbsz", "abid", "blgp")
"""Modifiers in the order in which they are printed; others follow as given."""

Lines = dict[int, Instruction]
"""Line of the text, counted from 1, to the instruction on it."""


def text(program: Program) -> tuple[str, Lines]:
    """The module's text, and which line holds which instruction."""
    table = rows(program.arch)
    targets = {o.label for i in program.instructions() for o in i.src if isinstance(o, Target)}
    body: list[str] = []
    lines: Lines = {}
    files: list[str] = []
    heading: tuple[str, int] | None = None
    for block in program.blocks:
        if block.title:
            body += ["", f"; ---- {block.title} ----"]
        if block.label in targets:
            body.append(f"{_label(block.label)}:")
            heading = None
        for instruction in block.instructions:
            row = table[instruction.op]
            if row.unit == "pseudo":
                continue
            where = instruction.where
            if where and (where.file, where.line) != heading:
                heading = (where.file, where.line)
                if where.file not in files:
                    files.append(where.file)
                place = f"{files.index(where.file) + 1} {where.line} {where.column}"
                body.append(f"\t.loc\t{place}    ; {source_line(where)}")
            body.append(_line(instruction, row))
            lines[len(body)] = instruction
    joined = "\n".join(body)
    whole = _header(program) + kernel_text(info(program), joined, files)
    offset = whole[:whole.index(joined)].count("\n")
    return whole, {offset + number: instruction for number, instruction in lines.items()}


def origin(lines: Lines) -> Callable[[int], tuple[str, Location | None]]:
    """For `assemble`: what a line of the text holds, and the user's line that it came from."""
    def find(line: int) -> tuple[str, Location | None]:
        found = lines.get(line)
        return (f"{found.op} ({found.note})" if found.note else found.op, found.where) if found else ("", None)
    return find


def info(program: Program) -> KernelInfo:
    """What the loader must know of the kernel."""
    used, machine = program.resources, target(program.arch)
    granule = machine.accum_offset_granule
    return KernelInfo(
        program.name, program.arch, vgprs=used.vgpr, agprs=used.agpr, sgprs=used.sgpr, scratch_bytes=used.scratch,
        accum_offset=max(granule, -(-used.vgpr // granule) * granule), lds_bytes=used.lds or program.lds_bytes,
        kernarg_bytes=program.argument_bytes, workgroup_size=(program.waves * machine.wave_size, 1, 1),
        arguments=tuple(KernelArgument(_slot_name(slot.parameter, slot.part, slot.axis), slot.offset, slot.size,
                                       "global_buffer" if slot.part == "base" else "by_value",
                                       "global" if slot.part == "base" else None) for slot in program.slots))


def source_line(where: Location) -> str:
    """`gemm.py:12: acc = tc.dot(a, b.T, acc)`"""
    code = linecache.getline(where.file, where.line).strip()
    return f"{Path(where.file).name}:{where.line}" + (f": {code}" if code else "")


def instruction_text(instruction: Instruction, arch: str) -> str:
    """One instruction as the assembler reads it, without its comment."""
    return _statement(instruction, rows(arch)[instruction.op])


def _header(program: Program) -> str:
    used = program.resources
    table = [
        f"{program.name} for {program.arch}",
        f"  VGPR {used.vgpr}   AGPR {used.agpr}   SGPR {used.sgpr}   LDS {used.lds or program.lds_bytes} bytes   "
        f"scratch {used.scratch} bytes",
        f"  {program.waves} waves a workgroup, {used.waves_per_simd} waves fit a SIMD",
        f"  arguments, {program.argument_bytes} bytes:",
        *(f"    {s.offset:5} +{s.size}  {_slot_name(s.parameter, s.part, s.axis)}" for s in program.slots),
    ]
    return "".join(f"; {line}".rstrip() + "\n" for line in table)


def _slot_name(parameter: str, part: str, axis: int) -> str:
    return parameter if part in ("base", "value") else f"{parameter}.{part}{axis}"


def _label(label: str) -> str:
    return f".L{label}"


def _line(instruction: Instruction, row: Row) -> str:
    statement = f"    {_statement(instruction, row)}"
    return f"{statement:<{_COMMENT_COLUMN}}; {instruction.note}" if instruction.note else statement


def _statement(instruction: Instruction, row: Row) -> str:
    operands = list(_operands(instruction, row))
    words = [row.mnemonic, *([", ".join(operands)] if operands else []), *_modifiers(instruction, row)]
    return " ".join(words)


def _operands(instruction: Instruction, row: Row) -> Iterator[str]:
    dst, src = instruction.dst[:len(row.dst)], instruction.src[:len(row.src)]
    if len(dst) < len(row.dst) or len(src) < len(row.src):
        raise InternalError(f"{instruction.op} lacks an operand", where=instruction.where)
    if instruction.op in _NAMED_FIRST:
        yield _NAMED_FIRST[instruction.op]
    for operand, spec in zip(dst, row.dst):
        yield _operand(operand, row, spec.size)
    if "swap" not in row.flags:                                 # their sources are their destinations
        signs = [instruction.modifier(name, ()) for name in ("neg", "abs")] if instruction.modifiers else [(), ()]
        for index, (operand, spec) in enumerate(zip(src, row.src)):
            if index == 0 and "tied" in row.flags:              # the destination stands for it
                continue
            if isinstance(operand, Immediate) and spec.code == "v":
                yield "off"
                continue
            shown = _operand(operand, row, spec.size)
            yield _signed(shown, *(index < len(flags) and flags[index] for flags in signs)) if any(signs) else shown
    if instruction.op in _NAMED_LAST:
        yield _NAMED_LAST[instruction.op]
    if row.unit == "vmem" and row.mnemonic.startswith("global_") and not any(spec.code == "s" for spec in row.src):
        yield "off"


def _signed(operand: str, negative: bool, absolute: bool) -> str:
    operand = f"|{operand}|" if absolute else operand
    return f"-{operand}" if negative else operand


def _operand(operand: Operand, row: Row, size: int) -> str:
    if isinstance(operand, Physical):
        return str(operand)
    if isinstance(operand, Immediate):
        return _constant(operand.value, row, size)
    if isinstance(operand, Target):
        return _label(operand.label)
    register = operand.register
    raise InternalError(f"{row.name} still has a virtual register {register.name!r}", where=register.where)


def _constant(value: int, row: Row, size: int) -> str:
    """A constant so that the assembler finds the inline form where there is one."""
    if -16 <= value <= 64:
        return str(value)
    if size > 1:
        return f"{value:#x}"
    pattern = value & 0xFFFFFFFF
    if pattern >= 0xFFFFFFF0:
        return str(pattern - (1 << 32))
    if is_inline(value) and row.mnemonic.endswith("_f32"):
        number = struct.unpack("<f", struct.pack("<I", pattern))[0]
        return "0.15915494" if pattern == 0x3E22F983 else str(number)
    return f"{pattern:#x}"


def _modifiers(instruction: Instruction, row: Row) -> Iterator[str]:
    given = dict(instruction.modifiers)
    if instruction.op == "s_waitcnt":
        yield from (f"{name}({count})" for name, count in given.items())
        return
    if row.unit == "barrier":                                   # `half` is for the checker
        return
    if row.name.endswith("_lds") and row.unit == "vmem":
        given["lds"] = True
    elif row.unit == "mfma" and row.name != row.mnemonic:
        given |= _formats(row.name)
    elif not given:
        return
    for name in sorted(given, key=lambda n: _ORDER.index(n) if n in _ORDER else len(_ORDER)):
        if name not in ("neg", "abs"):
            yield from _modifier(name, given[name])


@cache
def _formats(name: str) -> dict[str, int]:
    """The formats of A and B, which an f8f6f4 instruction's row has in its name."""
    found = next(m for m in TARGETS["gfx950"].mfmas if name == f"{m.mnemonic}_{m.a}_{m.b}")
    return {name: code for name, code in (("cbsz", found.cbsz), ("blgp", found.blgp)) if code}


def _modifier(name: str, value: object) -> Iterator[str]:
    if value is False or value is None or name == "offset" and value == 0:
        return
    if name == "bound_ctrl":
        yield "bound_ctrl:0"                                    # spelled 0 since ever, and encoded 1
    elif value is True:
        yield name
    elif isinstance(value, tuple):
        yield f"{name}:[{','.join(map(str, map(int, value)))}]"
    elif name in ("row_mask", "bank_mask"):
        yield f"{name}:{value:#x}"
    else:
        yield f"{name}:{value}"
