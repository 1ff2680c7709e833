"""Prints a machine program in any form: one instruction a line, for people and for diffs. It is not read back.

A virtual register is `%name.vN`: its kind, numbered by first appearance, so that equal programs print alike. Physical
registers, labels and constants look as in assembly; modifiers and notes follow.
"""

from __future__ import annotations

from tilec.ir.machine import Immediate, Instruction, Operand, Physical, Program, Ref, Register, Target

_NOTE_COLUMN = 72


def print_machine(program: Program) -> str:
    """The text of a machine program, ending in a newline."""
    names: dict[Register, str] = {}
    lines = [f"machine {program.name} for {program.arch} form={program.form} waves={program.waves} "
             f"lds={program.lds_bytes}"]
    for block in program.blocks:
        lines.append(f"{block.label}:" + (f"    ; {block.title}" if block.title else ""))
        lines += [_instruction(instruction, names) for instruction in block.instructions]
    return "\n".join(lines) + "\n"


def _instruction(instruction: Instruction, names: dict[Register, str]) -> str:
    results = ", ".join(_operand(operand, names) for operand in instruction.dst)
    operands = ", ".join(_operand(operand, names) for operand in instruction.src)
    words = [instruction.op, operands, *(name if value is True else f"{name}={_value(value)}"
                                         for name, value in instruction.modifiers)]
    text = "  " + (f"{results} = " if results else "") + " ".join(filter(None, words))
    if instruction.shared:
        access = instruction.shared
        text += f" lds({access.buffer} {access.first}..{access.end})"
    return f"{text:<{_NOTE_COLUMN}}; {instruction.note}" if instruction.note else text


def _operand(operand: Operand, names: dict[Register, str]) -> str:
    if isinstance(operand, Ref):
        register = operand.register
        name = names.setdefault(register, f"%{register.name}.{register.kind}{len(names)}" if register.name
                                else f"%{register.kind}{len(names)}")
        if (operand.start, operand.size) == (0, register.size):
            return name
        last = operand.start + operand.size - 1
        return f"{name}[{operand.start}]" if operand.size == 1 else f"{name}[{operand.start}:{last}]"
    if isinstance(operand, Physical):
        return str(operand)
    if isinstance(operand, Target):
        return operand.label
    assert isinstance(operand, Immediate)
    pattern = operand.value & 0xFFFFFFFF
    signed = pattern - (pattern >> 31 << 32)
    return str(signed) if -1024 <= signed <= 1024 else f"{pattern:#x}"


def _value(value: object) -> str:
    return "[" + ",".join(str(int(item)) for item in value) + "]" if isinstance(value, tuple) else str(value)
