"""Reads assembly text (as people write it in tests, or as LLVM prints it) into a machine program.

A comment may carry what text can't say: `; +a` defines token a, `; -a` names it, `; lds=buffer:first:end` or
`lds=buffer:first:end:slots:slot` gives the LDS bytes. `a <- b` on a line of its own hands token b on to a.
"""

from __future__ import annotations

import re

from tilec.backend_amdgcn.isa import Row, rows
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
    Register,
    SharedAccess,
    Target,
    whole,
)
from tilec.target import target

_NAMED = {"vcc": VCC, "exec": EXEC, "scc": SCC, "m0": M0, "vcc_lo": VCC[0], "vcc_hi": VCC[1], "exec_lo": EXEC[0],
          "exec_hi": EXEC[1]}
_REGISTER = re.compile(r"([svat])(?:(\d+)|\[(\d+):(\d+)\])$")
_BARE_MODIFIERS = ("offen", "idxen", "lds", "sc0", "sc1", "nt", "clamp")
_SUFFIX = re.compile(r"_(e32|e64)$")


def program(text: str, arch: str = "gfx950", waves: int = 4, form: str = "allocated") -> Program:
    """Blocks start at labels and behind branches; `depth` counts the branches back that span a block."""
    tokens: dict[str, Register] = {}
    blocks: list[tuple[str, list[Instruction]]] = [("entry", [])]
    for number, line in enumerate(text.splitlines(), 1):
        code, _, comment = line.partition(";")
        code = code.split("//")[0].strip()
        if not code:
            continue
        if code.endswith(":"):
            blocks.append((code[:-1], []))
            continue
        if _ends_with_branch(blocks[-1][1]) and not code.startswith("s_branch"):
            blocks.append((f"after_{number}", []))
        if "<-" in code:
            left, right = (tuple(_token(name, tokens) for name in side.split()) for side in code.split("<-"))
            blocks[-1][1].append(Instruction("token", tuple(map(whole, left)), tuple(map(whole, right))))
            continue
        try:
            blocks[-1][1].append(_annotated(instruction(code, arch), comment, tokens))
        except (KeyError, ValueError, IndexError) as fault:
            raise ValueError(f"line {number}: {line.strip()}: {fault!r}") from fault
    order = {label: place for place, (label, _) in enumerate(blocks)}
    back = [(order[o.label], place) for place, (_, body) in enumerate(blocks) for i in body for o in i.src
            if isinstance(o, Target) and order[o.label] <= place]
    return Program("test", arch, tuple(Block(label, tuple(body), sum(first <= place <= last for first, last in back))
                                       for place, (label, body) in enumerate(blocks)), form, waves)


def _ends_with_branch(body: list[Instruction]) -> bool:
    return bool(body) and any(isinstance(o, Target) for o in body[-1].src)


def instruction(code: str, arch: str) -> Instruction:
    mnemonic, _, rest = code.partition(" ")
    parts = [part.strip() for part in re.split(r",(?![^\[]*\])", rest)] if rest.strip() else []
    words: list[str] = []
    if parts:                                       # modifiers follow the last operand, or the mnemonic
        *parts, last = parts
        first, *words = re.split(r"\s+(?![^\[]*\])", last)
        if _is_operand(first):
            parts.append(first)
        else:
            words = [first, *words]
    mnemonic = _SUFFIX.sub("", mnemonic)
    row = _row(mnemonic, parts, words, arch)
    if mnemonic in ("s_nop", "s_setprio"):
        return Instruction(mnemonic, (), (Immediate(int(parts[0], 0)),))
    if mnemonic == "s_waitcnt":
        counts = re.findall(r"(vmcnt|lgkmcnt)\((\d+)\)", rest)
        return Instruction(mnemonic, modifiers=tuple((name, int(count)) for name, count in counts))
    if row.name in ("s_mov_m0", "s_mov_exec"):
        parts = parts[1:]
    if row.name == "s_read_exec":
        parts = parts[:1]
    if row.unit == "vmem" and mnemonic.startswith("global"):
        parts = [part for part in parts if part != "off"]
    operands = [_operand(part) for part in parts]
    dst = tuple(operands[:len(row.dst)])
    src = dst if "swap" in row.flags else tuple(operands[len(row.dst):])
    if "tied" in row.flags:
        src = (dst[0], *src)
    if len(dst) != len(row.dst) or len(src) != len(row.src):
        raise ValueError(f"{row.name} takes {len(row.dst)} and {len(row.src)} operands")
    implied = ("lds", "cbsz", "blgp") if row.name != row.mnemonic else ()
    modifiers = tuple(m for m in map(_modifier, words) if m[0] not in implied)
    return Instruction(row.name, dst, src, modifiers)


def _row(mnemonic: str, parts: list[str], words: list[str], arch: str) -> Row:
    named = {"s_mov_b32": ("m0", 0, "s_mov_m0"), "s_mov_b64": ("exec", 0, "s_mov_exec")}
    if mnemonic in named and parts[0] == named[mnemonic][0]:
        return rows(arch)[named[mnemonic][2]]
    if mnemonic == "s_mov_b64" and parts[1] == "exec":
        return rows(arch)["s_read_exec"]
    if mnemonic.endswith("f8f6f4"):
        cbsz, blgp = (next((int(w[5:]) for w in words if w.startswith(name)), 0) for name in ("cbsz:", "blgp:"))
        found = next(m for m in target(arch).mfmas if (m.mnemonic, m.cbsz, m.blgp) == (mnemonic, cbsz, blgp))
        return rows(arch)[f"{mnemonic}_{found.a}_{found.b}"]
    return rows(arch)[mnemonic + "_lds" if "lds" in words else mnemonic]


def _is_operand(word: str) -> bool:
    bare = word.strip("-|")
    return bool(bare in _NAMED or bare == "off" or _REGISTER.match(bare) or re.match(r"(0x[0-9a-f]+|[\d.]+)$", bare) or
                re.match(r"\.?[A-Za-z]\w*$", bare) and bare not in _BARE_MODIFIERS)


def _operand(word: str) -> Operand:
    word = word.strip("|") if not word.startswith("-|") else word[2:-1]
    if word in _NAMED:
        return _NAMED[word]
    if match := _REGISTER.match(word.removeprefix("-")):
        file, single, first, last = match.groups()
        return Physical(file, int(single)) if single else Physical(file, int(first), int(last) - int(first) + 1)
    if word == "off":
        return Immediate(0)
    try:
        return Immediate(int(word, 0))
    except ValueError:
        return Immediate(0x3F800000) if re.match(r"-?[\d.]+$", word) else Target(word)


def _modifier(word: str) -> tuple[str, object]:
    name, _, value = word.partition(":")
    if not value:
        return name, True
    if value.startswith("["):
        return name, tuple(int(v, 0) for v in value[1:-1].split(","))
    return name, int(value, 0)


def _annotated(made: Instruction, comment: str, tokens: dict[str, Register]) -> Instruction:
    for word in comment.split():
        if word[0] == "+":
            made = made.replace(dst=(*made.dst, whole(_token(word[1:], tokens))))
        elif word[0] == "-":
            made = made.replace(src=(*made.src, whole(_token(word[1:], tokens))))
        elif word.startswith("lds="):
            buffer, first, end, *ring = word[4:].split(":")
            slot = [None if r == "?" else int(r) for r in ring]
            made = made.replace(shared=SharedAccess(buffer, int(first), int(end), *slot))
        elif word.startswith("half="):
            made = made.replace(modifiers=(*made.modifiers, ("half", word[5:])))
    return made


def _token(name: str, tokens: dict[str, Register]) -> Register:
    return tokens.setdefault(name, Register("t", 1, name))
