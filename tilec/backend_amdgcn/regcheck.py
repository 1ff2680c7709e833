"""Proof that an allocated program computes what its virtual program does. Knows nothing of the allocator.

Both programs run side by side on symbolic values. Moves pass values on; every other instruction must appear in both,
in the same order, must read equal values dword by dword, and makes new values. Where paths meet, two names stay equal
only if they are on all of them, to a fixpoint (the idea is that of regalloc2's checker). Under a narrowed EXEC each
nesting level of lanes has a state of its own. Then each allocated instruction alone: files, sizes, alignment, ties,
early clobbers, budget. Raises InternalError.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NoReturn

from tilec.backend_amdgcn.isa import Row, rows
from tilec.errors import InternalError
from tilec.ir.machine import (
    EXEC,
    Block,
    Immediate,
    Instruction,
    Operand,
    Physical,
    Program,
    Ref,
    Register,
    Resources,
    successors,
)
from tilec.target import target

_MOVES = {"copy", "s_mov_b32", "s_mov_b64",
          "v_mov_b32", "v_accvgpr_read_b32", "v_accvgpr_write_b32", "v_accvgpr_mov_b32"}
_FILES = {"v": "v", "x": "vs", "a": "a", "w": "va", "f": "va", "s": "s", "c": "s", "m": "s"}
_ALL_ONES = 0xFFFFFFFF

Name = tuple[Register | str, int]
"""A dword: of a virtual register, or ('v', 7), ('scc', 0) ..."""
Values = dict[Name, object]
"""What each dword holds. Only equality within one state has a meaning; a missing name may hold anything."""


def check(virtual: Program, allocated: Program) -> None:
    """Raises InternalError with the instruction and the dword if `allocated` is not `virtual` with registers given
    out."""
    if [b.label for b in virtual.blocks] != [b.label for b in allocated.blocks] or allocated.form != "allocated":
        raise InternalError("the allocated program has other blocks than the virtual one", where=virtual.where)
    _check_each(allocated)
    pairs = {v.label: (v, a) for v, a in zip(virtual.blocks, allocated.blocks)}
    following, table = successors(virtual), rows(virtual.arch)
    if following != successors(allocated):
        raise InternalError("the allocated program branches otherwise than the virtual one", where=virtual.where)
    entry: dict[str, _State] = {virtual.blocks[0].label: _State.at_start()}
    waiting = [virtual.blocks[0].label]
    while waiting:
        label = waiting.pop()
        state = entry[label].copy()
        _run(*pairs[label], state, table)
        for after in following[label]:
            known = entry.get(after)
            if known is None:
                entry[after] = state.renamed(after)
            elif not known.meet(state, after):
                continue
            if after not in waiting:
                waiting.append(after)


# -- the state ---------------------------------------------------------------------------------------------------------


@dataclass
class _Level:
    """What the lanes of one nesting level of EXEC hold, without those of the next. `virtual['mask', k]` is EXEC
    itself."""

    virtual: Values
    physical: Values

    def copy(self) -> _Level:
        return _Level(dict(self.virtual), dict(self.physical))

    def of(self, virtual: bool) -> Values:
        return self.virtual if virtual else self.physical


@dataclass
class _State:
    """Levels from the lanes that are off first to those that are on now. Scalars are the same on each."""

    levels: list[_Level]
    shape: tuple[int, ...] = field(default=())

    @staticmethod
    def at_start() -> _State:
        arriving: Values = {name: ("entry", *name) for name in (("s", 0), ("s", 1), ("s", 2), ("v", 0))}
        mask: Values = {("mask", k): ("constant", _ALL_ONES) for k in range(2)}
        return _State([_Level({**arriving, **mask}, dict(arriving))])

    def copy(self) -> _State:
        return _State([level.copy() for level in self.levels])

    def renamed(self, label: str) -> _State:
        """The same state under names of a block's entry: no value of an earlier trip can be taken for one of this
        trip."""
        result = self.copy()
        result.meet(self, label)
        return result

    def meet(self, other: _State, label: str) -> bool:
        """Keeps the equalities that hold in both states. Whether that changed this one."""
        if len(self.levels) != len(other.levels):
            raise InternalError(f"EXEC is narrowed in different ways on the paths that meet at {label}")
        old_shape, shape = self.shape, []
        classes: dict[tuple[object, object], object] = {}
        for mine, its in zip(self.levels, other.levels):
            for a, b in ((mine.virtual, its.virtual), (mine.physical, its.physical)):
                for name in [name for name in a if name not in b]:
                    del a[name]
                for name, value in a.items():
                    pair = (value, b[name])
                    if pair not in classes:
                        same_constant = value == b[name] and _is_constant(value)
                        classes[pair] = value if same_constant else ("at", label, len(classes))
                    a[name] = classes[pair]
            distinct = {*mine.virtual.values(), *mine.physical.values()}
            shape += [len(mine.virtual), len(mine.physical), len(distinct), sum(map(_is_constant, distinct))]
        self.shape = tuple(shape)
        return self.shape != old_shape                      # equalities only get fewer, so that counts tell

    def reached(self, operand: Operand, whole: bool = False) -> list[_Level]:
        """The levels that a write of this operand changes: all for scalars and for what ignores EXEC, else the last."""
        return self.levels if whole or _is_scalar(operand) else self.levels[-1:]

    def mask(self) -> list[object]:
        return [self.levels[-1].virtual["mask", k] for k in range(2)]

    def narrow(self, mask: list[object]) -> None:
        self.levels.append(self.levels[-1].copy())
        for k in range(2):
            self.levels[-1].virtual["mask", k] = mask[k]

    def widen(self) -> None:
        """The last level's lanes join those of the one before: a dword then holds a mixture, if they differ."""
        inner, outer = self.levels.pop(), self.levels[-1]
        for inside, outside in ((inner.virtual, outer.virtual), (inner.physical, outer.physical)):
            for name, value in list(outside.items()):
                if name[0] == "mask":
                    continue
                if name not in inside:
                    del outside[name]
                elif inside[name] != value:
                    outside[name] = ("mixed", inside[name], value)


def _is_constant(value: object) -> bool:
    return isinstance(value, tuple) and value[0] == "constant"


def _is_scalar(operand: Operand) -> bool:
    return not isinstance(operand, (Ref, Physical)) or operand.kind not in ("v", "a", "va")


def _names(operand: Operand) -> list[Name]:
    if isinstance(operand, Ref):
        return [(operand.register, k) for k in range(operand.start, operand.start + operand.size)]
    if isinstance(operand, Physical):
        return [(operand.file, k) for k in range(operand.index, operand.index + operand.size)]
    return []


# -- running a block ---------------------------------------------------------------------------------------------------


def _run(virtual: Block, allocated: Block, state: _State, table: dict[str, Row]) -> None:
    rest = iter(allocated.instructions)
    for instruction in virtual.instructions:
        if _is_move(instruction):
            _move(instruction, state, True)
            continue
        twin = next((i for i in _moving(rest, state)), None)
        if twin is None:
            _fail("is missing in the allocated program", instruction)
        _step(instruction, twin, state, table)
    for extra in _moving(rest, state):
        _fail("is not in the virtual program", extra)


def _moving(rest: object, state: _State):
    """Runs the moves of the allocated program, and yields what is no move."""
    for instruction in rest:  # type: ignore[attr-defined]
        if _is_move(instruction):
            _move(instruction, state, False)
        else:
            yield instruction


def _is_move(instruction: Instruction) -> bool:
    return instruction.op in _MOVES and not instruction.modifiers and not (
        instruction.op == "copy" and isinstance(instruction.dst[0], Ref) and instruction.dst[0].kind == "t")


def _move(instruction: Instruction, state: _State, virtual: bool) -> None:
    dst, src = instruction.dst[0], instruction.src[0]
    names = _names(dst)
    for level in state.reached(dst):
        content = level.of(virtual)
        if isinstance(src, Immediate):
            wide = instruction.op == "s_mov_b64"
            values: list[object] = [("constant", (src.value >> 32 * k if wide else src.value) & _ALL_ONES)
                                    for k in range(len(names))]
        else:
            values = [content.get(name) for name in _names(src)]
        if len(values) != len(names):
            _fail("moves a different number of dwords than it reads", instruction)
        for name, value in zip(names, values):
            if value is None:
                content.pop(name, None)
            else:
                content[name] = value


def _step(virtual: Instruction, twin: Instruction, state: _State, table: dict[str, Row]) -> None:
    """One instruction in both programs: equal values in, new values out."""
    token = virtual.op == "copy" and twin.op == "token"
    if not token and virtual.op != twin.op or virtual.modifiers != twin.modifiers or virtual.shared != twin.shared \
            or len(virtual.dst) != len(twin.dst) or len(virtual.src) != len(twin.src):
        _fail(f"became {twin.op} (or changed its shape)", virtual)
    row = table[twin.op]
    whole = row.unit == "mfma" or row.name == "v_readlane_b32"      # these look at all lanes, whatever EXEC says
    mask = state.mask()
    for seen in state.levels if whole else state.levels[-1:]:
        for v, p in (*zip(virtual.src, twin.src), *((h, h) for h in row.implicit_reads if h != EXEC)):
            _same(v, p, seen, virtual, strict=True)
        if "keeps" in row.flags:
            for v, p in zip(virtual.dst, twin.dst):
                _same(v, p, seen, virtual, strict=False)
    pairs = [*zip(virtual.dst, twin.dst), *((h, h) for h in row.implicit_writes if h != EXEC)]
    saves = twin.op in ("s_and_saveexec_b64", "s_read_exec")
    for n, (v, p) in enumerate(pairs):
        if isinstance(v, Ref) and v.kind == "t":
            if v != p:
                _fail(f"defines the token {p}", virtual)
            continue
        if len(_names(v)) != len(_names(p)):
            _fail(f"writes {p}, which is of another size", virtual)
        for k, (to, place) in enumerate(zip(_names(v), _names(p))):
            value = mask[k] if saves and n == 0 else ("made", virtual, n, k)
            for level in state.reached(v, whole):
                level.virtual[to] = level.physical[place] = value
    if EXEC in row.implicit_writes:
        _narrow(virtual, state, mask)


def _narrow(instruction: Instruction, state: _State, mask: list[object]) -> None:
    """EXEC after `s_and_saveexec` (a subset of what it was) or `s_mov_exec` (a level that stands, or some lanes of
    all)."""
    new: list[object] = [("made", instruction, "exec", k) for k in range(2)]
    if instruction.op == "s_mov_exec":
        source = instruction.src[0]
        if isinstance(source, Immediate):
            new = [("constant", source.value >> 32 * k & _ALL_ONES) for k in range(2)]
        else:
            new = [state.levels[-1].virtual[name] for name in _names(source)]
        while len(state.levels) > 1 and state.mask() != new:
            state.widen()
        if state.mask() == new:
            return
    state.narrow(new)


def _same(v: Operand, p: Operand, seen: _Level, instruction: Instruction, strict: bool) -> None:
    if not isinstance(p, Physical) or not isinstance(v, (Ref, Physical)):
        if v != p:
            _fail(f"reads {p} instead of {v}", instruction)
        return
    if isinstance(v, Ref) and v.register.pin and v.register.pin[0] == p.file and v.register.pin[1] + v.start != p.index:
        _fail(f"reads {p}, but {v.register.name} is pinned to {v.register.pin}", instruction)
    names, places = _names(v), _names(p)
    if len(names) != len(places):
        _fail(f"reads {p} for {len(names)} dwords", instruction)
    for name, place in zip(names, places):
        if name not in seen.virtual:
            if strict:
                _fail(f"reads {_say(name)}, which is not written on every path", instruction)
        elif seen.virtual[name] != seen.physical.get(place):
            _fail(f"reads {_say(place)}, which does not hold {_say(name)}", instruction)


def _say(name: Name) -> str:
    owner, k = name
    return f"{owner.name or 'a register'}[{k}]" if isinstance(owner, Register) else f"{owner}{k}"


def _fail(what: str, instruction: Instruction) -> NoReturn:
    raise InternalError(f"register allocation: {instruction.op} {what}", where=instruction.where)


# -- each instruction by itself ----------------------------------------------------------------------------------------


def _check_each(program: Program) -> None:
    used = {"s": 0, "v": 0, "a": 0}
    table = rows(program.arch)
    for instruction in program.instructions():
        row = table[instruction.op]
        if row.name == "copy":
            _fail("is left over", instruction)
        if row.unit == "pseudo":
            continue
        for operand, spec in (*zip(instruction.dst, row.dst), *zip(instruction.src, row.src)):
            if isinstance(operand, Ref):
                _fail("still has a virtual register", instruction)
            if isinstance(operand, Physical) and operand.file in used:
                if operand.file not in _FILES.get(spec.code, ""):
                    _fail(f"can't take {operand} where {spec.code!r} is asked for", instruction)
                step = 1 if operand.size == 1 else 4 if operand.file == "s" and operand.size > 2 else 2
                if operand.size != spec.size or operand.index % step:
                    _fail(f"can't take {operand}: {spec.size} dwords from a multiple of {step} on", instruction)
                used[operand.file] = max(used[operand.file], operand.index + operand.size)
        _check_constraints(instruction, row)
    machine = target(program.arch)
    waves = machine.waves_per_simd(used["v"], used["a"])
    needed = -(-program.waves // machine.simds)
    given = program.resources
    if waves < needed or used["s"] > machine.sgprs:
        raise InternalError(f"register allocation: {used} registers leave {waves} waves per SIMD of {needed}",
                            where=program.where)
    if any(have < need for have, need in zip((given.vgpr, given.agpr, given.sgpr), (used["v"], used["a"], used["s"]))) \
            or given != Resources(given.vgpr, given.agpr, given.sgpr, program.lds_bytes, 0,
                                  machine.occupancy(given.vgpr, given.agpr, program.lds_bytes, program.waves)):
        raise InternalError(f"register allocation: {given} does not describe {used}", where=program.where)


def _check_constraints(instruction: Instruction, row: Row) -> None:
    """Ties, early clobbers, and the rules of matrix operands: C and D in one file; over 4 dwords the same or apart."""
    dst, src = instruction.dst, instruction.src
    ties = 1 if "tied" in row.flags else 2 if "swap" in row.flags else 0
    for d, s in list(zip(dst, src))[:ties]:
        if d != s:
            _fail(f"must have {d} as source {s}", instruction)
    for d in dst:
        for k, s in enumerate(src):
            if not isinstance(d, Physical) or not isinstance(s, Physical):
                continue
            if row.unit == "mfma" and k == 2:
                if d.file != s.file:
                    _fail(f"has C in {s} and D in {d}", instruction)
                if d == s:
                    continue
            if "early" in row.flags and set(_names(d)) & set(_names(s)):
                _fail(f"writes {d} before it has read {s}", instruction)
