"""Parses the operands and modifiers of one line of LLVM's disassembly into plain data.

A register is named by an id: VGPR n is n, AGPR n is 256 + n, SGPR n is 512 + n (VCC 106, M0 124, EXEC 126, as in the
encoding), SCC is 512 + 128. Everything the emulator knows of assembly syntax is in this file; at run time no text is
read.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field

AGPR = 256
SGPR = 512
VCC, M0, EXEC = SGPR + 106, SGPR + 124, SGPR + 126
SCC = SGPR + 128
LAST_ID = SGPR + 129

_NAMED = {
    "vcc": (VCC, 2),
    "vcc_lo": (VCC, 1),
    "vcc_hi": (VCC + 1, 1),
    "exec": (EXEC, 2),
    "exec_lo": (EXEC, 1),
    "exec_hi": (EXEC + 1, 1),
    "m0": (M0, 1),
    "scc": (SCC, 1),
    "src_scc": (SCC, 1),
    "flat_scratch": (SGPR + 102, 2),
    "flat_scratch_lo": (SGPR + 102, 1),
    "flat_scratch_hi": (SGPR + 103, 1),
    "xnack_mask": (SGPR + 104, 2),
    "xnack_mask_lo": (SGPR + 104, 1),
    "xnack_mask_hi": (SGPR + 105, 1),
}
_RANGE = re.compile(r"(v|a|s|ttmp)\[(\d+):(\d+)\]")
_SINGLE = re.compile(r"(v|a|s|ttmp)(\d+)")
_INTEGER = re.compile(r"-?(0x[0-9a-f]+|\d+)")
_FLOAT = re.compile(r"-?\d+\.\d+(e[-+]?\d+)?")
_FILES = {"v": 0, "a": AGPR, "s": SGPR, "ttmp": SGPR + 108}
INVERSE_TWO_PI = {"f16": 0x3118, "f32": 0x3E22F983, "f64": 0x3FC45F306DC9C882}
"""The inline constant 1/(2*pi): not the nearest value of the printed decimal in every format, so spelled out."""


@dataclass(frozen=True)
class Register:
    """`count` consecutive registers from id `first`."""

    first: int
    count: int

    @property
    def is_scalar(self) -> bool:
        return self.first >= SGPR

    @property
    def ids(self) -> range:
        return range(self.first, self.first + self.count)


@dataclass(frozen=True)
class Constant:
    """An inline constant or literal, as printed: an int (two's complement) or a float."""

    value: int | float

    def bits(self, kind: str) -> int:
        """The bits that an operand of this kind sees. `kind` is a numeric type name such as f32, u16, v2f16, f64."""
        wide = kind in ("u64", "i64", "f64")
        if isinstance(self.value, float):
            base = "f64" if kind == "f64" else "f16" if "f16" in kind and "bf16" not in kind else "f32"
            if abs(abs(self.value) - 0.15915494) < 1e-7:
                bits = INVERSE_TWO_PI[base] | ((1 << {"f16": 15, "f32": 31, "f64": 63}[base]) if self.value < 0 else 0)
            else:
                code, width = {"f16": ("<e", "<H"), "f32": ("<f", "<I"), "f64": ("<d", "<Q")}[base]
                bits = struct.unpack(width, struct.pack(code, self.value))[0]
            return bits >> 16 if kind in ("bf16", "v2bf16") else bits
        if kind == "f64" and not -16 <= self.value <= 64:
            return (self.value & 0xFFFFFFFF) << 32  # a 32-bit literal is the high half of a double
        if wide:
            return self.value & 0xFFFFFFFFFFFFFFFF
        return self.value & 0xFFFFFFFF


@dataclass(frozen=True)
class Special:
    """An operand that is neither register nor number: off, null, hwreg(...), src_shared_base, an s_waitcnt list."""

    name: str


@dataclass(frozen=True)
class Operand:
    """A source or destination with its own modifiers (text: -v1, |v1|, sext(v1), neg(0))."""

    value: Register | Constant | Special
    negate: bool = False
    absolute: bool = False
    sign_extend: bool = False

    @property
    def register(self) -> Register:
        if not isinstance(self.value, Register):
            raise ValueError(f"{self.value} is not a register")
        return self.value

    @property
    def ids(self) -> range:
        return self.value.ids if isinstance(self.value, Register) else range(0)


Modifier = int | str | tuple[int, ...] | bool


@dataclass(frozen=True)
class Parsed:
    """A line taken apart. `name` is the mnemonic without its encoding suffix; `suffix` one of '', e32, e64, dpp,
    sdwa.
    """

    name: str
    suffix: str
    operands: tuple[Operand, ...]
    modifiers: dict[str, Modifier] = field(hash=False)


def parse(text: str) -> Parsed:
    """Take one disassembled instruction apart. Raises ValueError on text that it does not understand."""
    mnemonic, _, rest = text.partition(" ")
    name, suffix = mnemonic, ""
    for tail in ("e64_dpp", "e32", "e64", "dpp", "sdwa"):
        if mnemonic.endswith("_" + tail):
            name, suffix = mnemonic[: -len(tail) - 1], tail
            break
    if name == "s_waitcnt":
        return Parsed(
            name, "", (), {counter: int(n) for counter, n in re.findall(r"(\w+)\((\d+)\)", rest)} or _raw_wait(rest)
        )
    pieces = _split(rest, ",")
    modifiers: dict[str, Modifier] = {}
    operands = []
    for piece in pieces:
        words = _split(piece, " ")
        if words and not _is_modifier(words[0]):
            operands.append(parse_operand(words.pop(0)))
        for word in words:
            key, _, value = word.partition(":")
            modifiers[key] = _modifier(value)
    return Parsed(name, suffix, tuple(operands), modifiers)


def _raw_wait(text: str) -> dict[str, Modifier]:
    """s_waitcnt printed as a bare number: SIMM16 = vm[3:0] | exp<<4 | lgkm<<8 | vm[5:4]<<14."""
    value = int(text, 0) if text else 0
    return {"vmcnt": value & 15 | (value >> 14 & 3) << 4, "lgkmcnt": value >> 8 & 15}


_FLAGS = {
    "offen",
    "idxen",
    "addr64",
    "lds",
    "sc0",
    "sc1",
    "nt",
    "glc",
    "slc",
    "dlc",
    "tfe",
    "clamp",
    "gds",
    "row_mirror",
    "row_half_mirror",
}


def _is_modifier(word: str) -> bool:
    return word in _FLAGS or (":" in word and not word.endswith("]")) or bool(re.match(r"[a-z]\w*:\[", word))


def _modifier(value: str) -> Modifier:
    if not value:
        return True
    if value.startswith("["):
        return tuple(int(v, 0) for v in value[1:-1].split(","))
    return int(value, 0) if _INTEGER.fullmatch(value) else value


def _split(text: str, separator: str) -> list[str]:
    """Split outside of brackets and parentheses; empty pieces are dropped."""
    pieces, depth, start = [], 0, 0
    for i, c in enumerate(text):
        if c in "[(":
            depth += 1
        elif c in "])":
            depth -= 1
        elif c == separator and depth == 0:
            pieces.append(text[start:i].strip())
            start = i + 1
    pieces.append(text[start:].strip())
    return [piece for piece in pieces if piece]


def parse_operand(text: str) -> Operand:
    """One operand with its sign, bars and sext()."""
    negate = absolute = sign_extend = False
    if text.startswith("neg(") and text.endswith(")"):
        text, negate = text[4:-1], True
    elif text.startswith("-") and not (_INTEGER.fullmatch(text) or _FLOAT.fullmatch(text)):
        text, negate = text[1:], True
    if text.startswith("|") and text.endswith("|"):
        text, absolute = text[1:-1], True
    elif text.startswith("abs(") and text.endswith(")"):
        text, absolute = text[4:-1], True
    if text.startswith("sext(") and text.endswith(")"):
        text, sign_extend = text[5:-1], True
    return Operand(_value(text), negate, absolute, sign_extend)


def _value(text: str) -> Register | Constant | Special:
    if text in _NAMED:
        return Register(*_NAMED[text])
    if match := _RANGE.fullmatch(text):
        first, last = int(match[2]), int(match[3])
        return Register(_FILES[match[1]] + first, last - first + 1)
    if match := _SINGLE.fullmatch(text):
        return Register(_FILES[match[1]] + int(match[2]), 1)
    if _INTEGER.fullmatch(text):
        return Constant(int(text, 0))
    if _FLOAT.fullmatch(text):
        return Constant(float(text))
    if re.fullmatch(r"[a-z_]\w*(\(.*\))?", text):
        return Special(text)
    raise ValueError(f"operand not understood: {text!r}")
