"""Machine programs for tests, written as text.

    entry:                                  a block; `loop 1:` gives its depth copy desc:s4 <- 0
    `name:kindsize` makes a register, `name` is it again, `name[2:4]` a part of it copy tile:va4@a8 <- 0
    pinned v_add_u32 x:v <- x0, v0               hardware registers are named as in assembly s_cbranch_scc1 <- ->loop
"""

from __future__ import annotations

import re
from typing import Any

from tilec.errors import Location
from tilec.ir.machine import (
    EXEC,
    M0,
    SCC,
    VCC,
    Block,
    Immediate,
    Instruction,
    Operand,
    Physical,
    Program,
    Ref,
    Register,
    Target,
)

_NAMED = {"vcc": VCC, "exec": EXEC, "scc": SCC, "m0": M0}
_OPERAND = re.compile(r"(?P<name>[A-Za-z_]\w*)(?::(?P<kind>va|[svat])(?P<size>\d*))?(?:@(?P<file>[sva])(?P<pin>\d+))?"
                      r"(?:\[(?P<first>\d+)(?::(?P<last>\d+))?\])?$")


def program(text: str, arch: str = "gfx950", waves: int = 4, **fields: Any) -> Program:
    return parse(text, arch, waves, **fields)[0]


def parse(text: str, arch: str = "gfx950", waves: int = 4, **fields: Any) -> tuple[Program, dict[str, Register]]:
    """The program, and its registers by name. Lines are numbered as locations in the file "kernel.py"."""
    registers: dict[str, Register] = {}
    blocks: list[Block] = []
    label, depth, code = "entry", 0, []

    def close() -> None:
        if code or blocks:
            blocks.append(Block(label, tuple(code), depth))

    for number, line in enumerate(text.strip().splitlines(), 1):
        line = line.partition("#")[0].strip()
        if line.endswith(":"):
            close()
            label, _, nested = line[:-1].partition(" ")
            depth, code = int(nested or 0), []
        elif line:
            code.append(_instruction(line, registers, Location("kernel.py", number)))
    close()
    return Program("kernel", arch, tuple(blocks), waves=waves, **fields), registers


def _instruction(line: str, registers: dict[str, Register], where: Location) -> Instruction:
    op, _, rest = line.partition(" ")
    left, _, right = rest.partition("<-") if "<-" in rest else ("", "", rest)
    modifiers = tuple(re.findall(r"\{(\w+)=(\w+)\}", right))
    right = re.sub(r"\{.*?\}", "", right)
    dst, src = ([_operand(word.strip(), registers, where) for word in side.split(",") if word.strip()]
                for side in (left, right))
    return Instruction(op, tuple(dst), tuple(src), modifiers, where)


def _operand(word: str, registers: dict[str, Register], where: Location) -> Operand:
    if word.startswith("->"):
        return Target(word[2:])
    if word in _NAMED:
        return _NAMED[word]
    if re.fullmatch(r"-?(0x[0-9a-f]+|\d+)", word):
        return Immediate(int(word, 0))
    if match := re.fullmatch(r"([sva])(?:(\d+)|\[(\d+):(\d+)\])", word):
        first = int(match[2] or match[3])
        return Physical(match[1], first, int(match[4]) - first + 1 if match[4] else 1)
    match = _OPERAND.match(word)
    assert match, word
    if match["kind"]:
        pin = (match["file"], int(match["pin"])) if match["file"] else None
        assert match["name"] not in registers, f"{match['name']} is made twice"
        registers[match["name"]] = Register(match["kind"], int(match["size"] or 1), match["name"], where, pin)
    register = registers[match["name"]]
    if match["first"] is None:
        return Ref(register, 0, register.size)
    first = int(match["first"])
    return Ref(register, first, int(match["last"]) - first if match["last"] else 1)
