"""The machine program: basic blocks of instructions over virtual, then physical, registers.

`virtual`: registers are `Ref`s to `Register`s (which may be written more than once); `copy` moves any number of dwords.
`allocated`: every `Ref` but those of kind 't' is a `Physical`; `copy` is gone; order is final. `final`: waits and wait
states stand. Tokens (kind 't') take no hardware register: an access to LDS may define one, a barrier names those that
must be complete before it, and `copy` hands them on (around loops, say). So "which copy must have landed" is plain
dataflow, as it is for loaded registers. What an instruction reads, writes and waits for is in its row of
`backend_amdgcn/isa.py`; this module only holds the data.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tilec.errors import Location
from tilec.ir.abi import Slot

MACHINE_FORMS = ("virtual", "allocated", "final")


@dataclass(frozen=True, eq=False)
class Register:
    """`size` consecutive dwords. `kind`: 's' SGPR, 'v' VGPR, 'a' AGPR, 'va' the allocator's choice of the two, 't'
    token. `name` and `where` tell the user which tile this is. `pin`: first register of a range the user asked for
    ('a', 0)."""

    kind: str
    size: int = 1
    name: str = ""
    where: Location | None = None
    pin: tuple[str, int] | None = None


@dataclass(frozen=True)
class Ref:
    """`size` dwords of a register from dword `start` on."""

    register: Register
    start: int = 0
    size: int = 1

    @property
    def kind(self) -> str:
        return self.register.kind

    def __getitem__(self, index: int | slice) -> Ref:
        """A dword, or a run of dwords, of this operand."""
        span = range(self.size)[index]
        if isinstance(span, int):
            return Ref(self.register, self.start + span, 1)
        return Ref(self.register, self.start + span.start, len(span))


def whole(register: Register) -> Ref:
    return Ref(register, 0, register.size)


@dataclass(frozen=True)
class Physical:
    """Hardware registers. `file`: 's', 'v' or 'a' with `index`; or the named ones 'vcc', 'exec' (2 dwords), 'scc',
    'm0'."""

    file: str
    index: int = 0
    size: int = 1

    @property
    def kind(self) -> str:
        return self.file

    def __getitem__(self, index: int | slice) -> Physical:
        span = range(self.size)[index]
        if isinstance(span, int):
            return Physical(self.file, self.index + span, 1)
        return Physical(self.file, self.index + span.start, len(span))

    def __str__(self) -> str:
        if self.file not in ("s", "v", "a"):
            whole_register = self.file in ("scc", "m0") or self.size == 2
            return self.file if whole_register else f"{self.file}_{'lo' if self.index == 0 else 'hi'}"
        if self.size == 1:
            return f"{self.file}{self.index}"
        return f"{self.file}[{self.index}:{self.index + self.size - 1}]"


VCC, EXEC, SCC, M0 = Physical("vcc", 0, 2), Physical("exec", 0, 2), Physical("scc"), Physical("m0")


@dataclass(frozen=True)
class Immediate:
    """A constant operand: a 32-bit pattern as an unsigned or small negative int."""

    value: int


@dataclass(frozen=True)
class Target:
    """The label of a block, as a branch names it."""

    label: str


Operand = Ref | Physical | Immediate | Target


def registers(operand: Operand) -> Ref | Physical:
    """An operand that is neither a constant nor a label."""
    assert isinstance(operand, (Ref, Physical)), operand
    return operand


@dataclass(frozen=True)
class SharedAccess:
    """What the checkers need to know of an access to LDS: the buffer, and the bytes [first, end) of LDS that it may
    touch. In a ring whose slot changes with the loop, `slots` counts the slots in these bytes, and the access is to
    slot (`slot` + trips of the loop so far) modulo `slots`; None: which slot is known at run time only."""

    buffer: str
    first: int
    end: int
    slots: int = 1
    slot: int | None = 0


@dataclass(frozen=True, eq=False)
class Instruction:
    """One instruction or pseudo. `op` names a row of isa.py. Operands stand in assembly order; tokens follow the row's
    own destinations (defined) or sources (awaited). `modifiers` are (name, value) pairs, value True for a bare word."""

    op: str
    dst: tuple[Operand, ...] = ()
    src: tuple[Operand, ...] = ()
    modifiers: tuple[tuple[str, Any], ...] = ()
    where: Location | None = None
    note: str = ""
    shared: SharedAccess | None = None

    def replace(self, **changes: Any) -> Instruction:
        return dataclasses.replace(self, **changes)

    def modifier(self, name: str, default: Any = None) -> Any:
        return next((value for key, value in self.modifiers if key == name), default)


@dataclass(frozen=True, eq=False)
class Block:
    """A label, instructions, and at the end at most one conditional branch followed by at most one unconditional one;
    control falls through to the next block otherwise. `depth` counts the loops around it, `title` heads it in the
    listing."""

    label: str
    instructions: tuple[Instruction, ...] = ()
    depth: int = 0
    title: str = ""

    def replace(self, **changes: Any) -> Block:
        return dataclasses.replace(self, **changes)


@dataclass(frozen=True)
class Resources:
    """What a finished kernel takes: registers per wave, bytes of LDS per workgroup, bytes of scratch, waves per SIMD.
    """

    vgpr: int = 0
    agpr: int = 0
    sgpr: int = 0
    lds: int = 0
    scratch: int = 0
    waves_per_simd: int = 0


@dataclass(frozen=True, eq=False)
class Program:
    """A kernel as machine code. At entry s[0:1] hold the kernel argument segment's address, s2 the workgroup's number,
    v0 the workitem's; the first block's instructions read them as Physical operands."""

    name: str
    arch: str
    blocks: tuple[Block, ...]
    form: str = "virtual"
    waves: int = 4
    lds_bytes: int = 0
    slots: tuple[Slot, ...] = ()
    argument_bytes: int = 0
    resources: Resources = field(default_factory=Resources)
    where: Location | None = None

    def replace(self, **changes: Any) -> Program:
        return dataclasses.replace(self, **changes)

    def instructions(self) -> Iterator[Instruction]:
        for block in self.blocks:
            yield from block.instructions


def successors(program: Program) -> dict[str, tuple[str, ...]]:
    """Labels of the blocks that control may reach from each block: branch targets, and the next block where control
    falls through."""
    result: dict[str, tuple[str, ...]] = {}
    for i, block in enumerate(program.blocks):
        following = program.blocks[i + 1].label if i + 1 < len(program.blocks) else None
        targets: list[str] = []
        falls = True
        for instruction in block.instructions:
            targets += [o.label for o in instruction.src if isinstance(o, Target)]
            if instruction.op in ("s_branch", "s_endpgm"):
                falls = False
        if falls and following is not None:
            targets.append(following)
        result[block.label] = tuple(dict.fromkeys(targets))
    return result
