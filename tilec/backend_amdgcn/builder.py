"""Builds a machine program in form virtual: emits instructions, makes registers, opens loops and conditionals.

Legal by construction: a VALU instruction gets at most one SGPR or literal (the constant bus of gfx9), literals only
where the encoding has room. `pure` instructions (addresses, masks, scalars) are numbered by value and placed in the
outermost open loop where their sources exist: what does not change in a loop is computed once, before it, without a
later pass. Regions nest: the kernel, loop bodies, branches. A region's block stays open for hoisted code while inner
regions are built.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from tilec.backend_amdgcn.isa import Row, is_inline, rows
from tilec.errors import Location
from tilec.ir.machine import (
    Block,
    Immediate,
    Instruction,
    Operand,
    Physical,
    Ref,
    Register,
    SharedAccess,
    Target,
    registers,
    whole,
)
from tilec.target import target

Source = Operand | int


@dataclass
class _OpenBlock:
    label: str
    depth: int
    title: str = ""
    instructions: list[Instruction] = field(default_factory=list)


@dataclass
class _Region:
    """A nesting level: the block that code of this level goes to now, and the values numbered at it, each with its
    place. `opened_at`: how long the block of the level around was when this one was opened. `hoisted`: SGPRs of what
    was hoisted out of it."""

    block: _OpenBlock
    # nothing is hoisted out of it: what it needs would be alive around it
    closed: bool = False
    opened_at: int = 0
    hoisted: int = 0
    numbered: dict[Any, tuple[Ref, _OpenBlock, int]] = field(default_factory=dict)


NEAR = 64
"""Instructions over which a numbered value is kept for its next use. Beyond, it is computed again: that costs an
instruction outside of loops, keeping it would cost a register all the way."""


class Builder:
    """`where` and `title` are set by the caller as it goes through the tile program; they label what is emitted.
    `room`: the most SGPRs for values that are hoisted out of a loop; None: no bound."""

    def __init__(self, arch: str, room: int | None = None):
        self.arch, self.room = arch, room
        self.target = target(arch)
        self.rows = rows(arch)
        self.blocks: list[_OpenBlock] = []
        self._asides: list[_OpenBlock] = []
        self.where: Location | None = None
        self.name = ""
        self._labels = 0
        self._level: dict[Register, int] = {}
        self._regions: list[_Region] = []
        self._open("entry", 0)

    # -- registers ---------------------------------------------------------------------------------------------------

    def register(self, kind: str, size: int = 1, name: str = "", pin: tuple[str, int] | None = None) -> Ref:
        """A new register, known at the current level."""
        register = Register(kind, size, name or self.name, self.where, pin)
        self._level[register] = self.level
        return whole(register)

    # -- plain emission ----------------------------------------------------------------------------------------------

    @property
    def level(self) -> int:
        return len(self._regions) - 1

    def emit(
        self,
        op: str,
        dst: Sequence[Operand] = (),
        src: Sequence[Source] = (),
        *,
        note: str = "",
        shared: SharedAccess | None = None,
        level: int | None = None,
        **modifiers: Any,
    ) -> None:
        """One instruction at the current place (or at the end of an outer level's open block), made legal."""
        level = self.level if level is None else level
        region = self._regions[level]
        row = self.rows[op]
        sources = tuple(Immediate(s) if isinstance(s, int) else s for s in src)
        if row.unit in ("valu", "trans"):
            sources = self._legal_vector(row, sources, level)
        elif row.unit == "salu":
            sources = self._legal_scalar(row, sources, region)
        elif row.unit in ("vmem", "lds"):
            sources = (
                tuple(self.vector(s) if spec.code == "v" else s for s, spec in zip(sources, row.src))
                + sources[len(row.src) :]
            )
        given = tuple(item for item in modifiers.items() if item != ("offset", 0))
        region.block.instructions.append(Instruction(op, tuple(dst), sources, given, self.where, note, shared))

    def emit_early(self, op: str, dst: Sequence[Operand], src: Sequence[Source]) -> None:
        """An instruction that writes M0, before the last one where that has nothing to do with it: so the slot that the
        hardware wants between a write of M0 and its use holds work."""
        self.emit(op, dst, src)
        instructions = self._regions[-1].block.instructions
        if len(instructions) > 1:
            before, new = instructions[-2:]
            row = self.rows[before.op]
            if (
                row.unit in ("lds", "barrier", "wait", "salu", "mfma")
                and not any(o in new.src for o in before.dst)
                and not row.implicit_reads
            ):
                instructions[-2:] = new, before

    def vector(self, source: Operand) -> Ref:
        """The operand in vector registers: itself, or a copy."""
        if isinstance(source, Ref) and source.kind != "s":
            return source
        result = self.register("v", 1 if isinstance(source, Immediate) else registers(source).size)
        for i in range(result.size):
            self.emit("v_mov_b32", [result[i]], [source if isinstance(source, Immediate) else registers(source)[i]])
        return result

    def value(self, op: str, *src: Source, kind: str = "v", size: int = 1, name: str = "", **modifiers: Any) -> Ref:
        """One instruction with one new destination."""
        result = self.register(kind, size, name)
        self.emit(op, [result], src, **modifiers)
        return result

    def copy(self, dst: Ref, src: Operand) -> None:
        """A move that the allocator may remove."""
        self.emit("copy", [dst], [src])

    def _legal_vector(self, row: Row, sources: tuple[Operand, ...], level: int) -> tuple[Operand, ...]:
        result = list(sources)
        if "commutes" in row.flags and _is_literal(result[1]) and not _is_literal(result[0]):
            result[0], result[1] = result[1], result[0]
        bus: set[Operand] = set()  # the SGPRs that the instruction reads; a literal counts as one
        # a mask can't move: it goes first
        for index in sorted(range(len(row.src)), key=lambda i: row.src[i].code != "m"):
            source = result[index]
            if _is_literal(source):
                if (
                    row.takes_literal
                    and index == 0
                    and not bus
                    and all(_is_vector(s) for s in result[1 : len(row.src)])
                ):
                    bus.add(source)
                    continue
                result[index] = source = self._constant(source, row.src[index].size, level)
            if _is_scalar(source) and source not in bus:
                if bus:
                    result[index] = self._moved(source, self._regions[level])
                else:
                    bus.add(source)
        return tuple(result)

    def _legal_scalar(self, row: Row, sources: tuple[Operand, ...], region: _Region) -> tuple[Operand, ...]:
        result = list(sources)
        literals = {s.value for s in result if _is_literal(s)}
        for index, source in enumerate(result):
            if _is_literal(source) and len(literals) > 1:
                literals.discard(source.value)
                moved = self.register("s")
                region.block.instructions.append(Instruction("s_mov_b32", (moved,), (source,), where=self.where))
                result[index] = moved
        return tuple(result)

    def _constant(self, source: Immediate, size: int, level: int) -> Ref:
        """A literal in SGPRs for an instruction at this level, numbered at the outermost one so that a loop does not
        load it again."""
        if size == 2:
            return self.pair(source.value & 0xFFFFFFFF, source.value >> 32 & 0xFFFFFFFF, level)
        return self.pure_sequence([("s_mov_b32", (source.value,), {})], kind="s", reader=level)

    def _moved(self, source: Ref | Physical, region: _Region) -> Ref:
        moved = self.register("v", source.size)
        for i in range(source.size):
            region.block.instructions.append(Instruction("v_mov_b32", (moved[i],), (source[i],), where=self.where))
        return moved

    # -- pure code: numbered and hoisted -----------------------------------------------------------------------------

    def level_of(self, source: Source) -> int:
        """The outermost level at which an operand is known."""
        return self._level.get(source.register, 0) if isinstance(source, Ref) else 0

    def pure(self, op: str, *src: Source, kind: str = "v", size: int = 1, name: str = "", **modifiers: Any) -> Ref:
        """The result of an instruction without side effects (but SCC), computed once for the same operands."""
        return self.pure_sequence([(op, src, modifiers)], kind=kind, size=size, name=name)

    def pure_sequence(
        self,
        steps: list[tuple[str, tuple[Any, ...], dict[str, Any]]],
        *,
        kind: str,
        size: int = 1,
        name: str = "",
        reader: int | None = None,
    ) -> Ref:
        """Several instructions that must stay together (they pass SCC on) and give one register. A step that writes
        only a part of it has `dst` among its modifiers (dword index), one that writes nothing `dst` None. `reader`: the
        level at which it is wanted; the current one if None."""
        key = (
            kind,
            size,
            *[(op, src, *sorted(modifiers.items())) if modifiers else (op, src) for op, src, modifiers in steps],
        )
        closed = max((i for i, region in enumerate(self._regions) if region.closed), default=0)
        level = max((self.level_of(s) for _, src, _ in steps for s in src), default=0)
        level = max(level, closed)
        if (known := self._known(key, level)) is not None:
            return known
        reader = self.level if reader is None else reader
        if kind == "s" and not self._hoist(level, reader, size):
            level = reader
            if (known := self._known(key, level)) is not None:
                return known
        saved_name, self.name = self.name, name or self.name
        result = self.register(kind, size)
        self.name = saved_name
        self._level[result.register] = level
        for op, src, modifiers in steps:
            modifiers = dict(modifiers)
            part = modifiers.pop("dst", "whole")
            dst = [] if part is None else [result if part == "whole" else result[part]]
            sources = tuple(result[s[1]] if isinstance(s, tuple) else s for s in src)
            self.emit(op, dst, sources, level=level, **modifiers)
        block = self._regions[level].block
        self._regions[level].numbered[key] = result, block, len(block.instructions)
        return result

    def _hoist(self, level: int, reader: int, size: int) -> bool:
        """Whether there is room for a scalar of `level` to stay in its registers through all regions from there to its
        reader's."""
        through = self._regions[level + 1 : reader + 1]
        if self.room is not None and any(region.hoisted + size > self.room for region in through):
            return False
        for region in through:
            region.hoisted += size
        return True

    def _known(self, key: Any, level: int) -> Ref | None:
        """The numbered value, if it stands at this level and near enough (in loops only where SGPRs are short): near
        this place, or near the head of the loop that wants it."""
        found = self._regions[level].numbered.get(key)
        if found is None or found[1] is not self._regions[level].block:
            return None
        result, block, place = found
        here = len(block.instructions) if level == self.level else self._regions[level + 1].opened_at
        kept = block.depth and not (self.room is not None and result.kind == "s")
        return result if kept or place > here - NEAR else None

    def pair(self, low: Source, high: Source, reader: int | None = None) -> Ref:
        """Two scalar dwords side by side."""
        steps = [("s_mov_b32", (low,), {"dst": 0}), ("s_mov_b32", (high,), {"dst": 1})]
        return self.pure_sequence(steps, kind="s", size=2, reader=reader)

    def set_level(self, registers: list[Ref], level: int) -> None:
        """Registers that a loop changes belong to its body while it is open, and to the level around it afterwards."""
        for ref in registers:
            self._level[ref.register] = level

    # -- taking back --------------------------------------------------------------------------------------------------

    @property
    def block(self) -> object:
        """The block that is being filled."""
        return self._regions[-1].block

    def mark(self) -> int:
        """The place after the last instruction of the current block."""
        return len(self._regions[-1].block.instructions)

    def since(self, mark: int) -> list[Instruction]:
        """Takes out the instructions of the current block from a mark on."""
        instructions = self._regions[-1].block.instructions
        taken = instructions[mark:]
        del instructions[mark:]
        return taken

    def append(self, instructions: list[Instruction]) -> None:
        self._regions[-1].block.instructions += instructions

    # -- regions -----------------------------------------------------------------------------------------------------

    def label(self, stem: str) -> str:
        self._labels += 1
        return f"{stem}_{self._labels}"

    def _open(self, label: str, depth: int, title: str = "", closed: bool = False) -> None:
        """Starts a new region with a block of its own."""
        block = _OpenBlock(label, depth, title)
        self.blocks.append(block)
        before = len(self._regions[-1].block.instructions) if self._regions else 0
        self._regions.append(_Region(block, closed, before))

    def _next_block(self, label: str) -> None:
        """Goes on at the current level in a new block."""
        region = self._regions[-1]
        region.block = _OpenBlock(label, region.block.depth)
        self.blocks.append(region.block)

    def begin_loop(self, title: str = "", innermost: bool = True) -> Loop:
        """Opens a loop body. What the loop carries must have been copied to its registers before. Nothing is hoisted
        out of a loop around loops: little is gained, and it would hold registers through all of them."""
        loop = Loop(self.label("loop"), self.label("after_loop"), self._regions[-1].block)
        self._open(loop.label, self._regions[-1].block.depth + 1, title, closed=not innermost)
        return loop

    def end_loop(self, loop: Loop, enter: list[Instruction], again: list[Instruction]) -> None:
        """Closes the body. `enter` and `again` are compares that set SCC when the (first, next) trip shall run."""
        loop.before.instructions += [*enter, Instruction("s_cbranch_scc0", (), (Target(loop.exit),))]
        self._regions[-1].block.instructions += [*again, Instruction("s_cbranch_scc1", (), (Target(loop.label),))]
        self._regions.pop()
        self._next_block(loop.exit)

    def begin_if(self, compare: list[Instruction], branch: str = "s_cbranch_scc0") -> Branch:
        """Opens a block that runs only if `branch` is not taken after `compare`."""
        open_branch = Branch(self._regions[-1].block, compare, branch, self.label("else"), self.label("endif"))
        self._open(self.label("then"), self._regions[-1].block.depth, closed=True)
        return open_branch

    def begin_else(self, branch: Branch) -> None:
        self._regions[-1].block.instructions.append(Instruction("s_branch", (), (Target(branch.end),)))
        self._regions.pop()
        branch.has_else = True
        self._open(branch.otherwise, branch.before.depth, closed=True)

    def end_if(self, branch: Branch) -> None:
        self._regions.pop()
        skip = branch.otherwise if branch.has_else else branch.end
        branch.before.instructions += [*branch.compare, Instruction(branch.branch, (), (Target(skip),))]
        self._next_block(branch.end)

    def begin_aside(self, compare: list[Instruction]) -> Branch:
        """Opens a block out of the way, behind the kernel's end, that runs only if `compare` sets SCC."""
        before = self._regions[-1].block
        aside = Branch(before, compare, "s_cbranch_scc1", self.label("aside"), self.label("join"))
        self._open(aside.otherwise, before.depth, closed=True)
        self._asides.append(self.blocks.pop())
        return aside

    def end_aside(self, aside: Branch) -> None:
        """Goes on with what runs in its place; `join` ends that."""
        assert self._regions[-1].block is self._asides[-1], "a block was opened aside"
        self._regions[-1].block.instructions.append(Instruction("s_branch", (), (Target(aside.end),)))
        self._regions.pop()
        aside.before.instructions += [*aside.compare, Instruction(aside.branch, (), (Target(aside.otherwise),))]
        self._next_block(self.label("straight"))

    def join(self, aside: Branch) -> None:
        self._next_block(aside.end)

    def finish(self) -> tuple[Block, ...]:
        assert self.level == 0
        self.emit("s_endpgm")
        blocks = (*self.blocks, *self._asides)
        return tuple(Block(b.label, tuple(b.instructions), b.depth, b.title) for b in blocks)


@dataclass
class Loop:
    label: str
    exit: str
    before: _OpenBlock


@dataclass
class Branch:
    before: _OpenBlock
    compare: list[Instruction]
    branch: str
    otherwise: str
    end: str
    has_else: bool = False


def _is_literal(source: Operand) -> TypeGuard[Immediate]:
    return isinstance(source, Immediate) and not is_inline(source.value)


def _is_scalar(source: Operand) -> TypeGuard[Ref | Physical]:
    return isinstance(source, (Ref, Physical)) and source.kind in ("s", "vcc", "exec", "m0")


def _is_vector(source: Operand) -> bool:
    return isinstance(source, (Ref, Physical)) and source.kind in ("v", "a", "va")
