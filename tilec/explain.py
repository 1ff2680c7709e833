"""What the compiler made of the tiles of a kernel, as text: `compiled.explain("acc")`, `tilec explain FILE:KERNEL acc`.

Everything is read from the stages of the compilation: layouts, LDS and clusters from the clustered tile program,
registers from the allocation, waits with their counts and reasons from the finished machine program. The steady loop is
the kernel's first loop; a tile of another loop is told by where it first stands. Nothing is decided here.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from tilec.backend_amdgcn import regalloc
from tilec.backend_amdgcn.isa import rows
from tilec.backend_amdgcn.lower_lds import buffer_side
from tilec.compile import Compiled
from tilec.errors import TilecError
from tilec.ir import machine, tile
from tilec.ir.core import Block, Op, Program, TileType, Value, definitions
from tilec.ir.layout import Layout
from tilec.ir.machine import Instruction, Ref
from tilec.passes import swizzle
from tilec.target import Target, target

_MADE = {tile.Load: "loaded", tile.SharedRead: "read from LDS", tile.Constant: "made"}
_ACCESSES = (tile.AsyncCopy, tile.SharedWrite, tile.SharedRead)


def explain(compiled: Compiled, name: str = "") -> str:
    """The tile of that name (all parts of a split one; one part by `acc[0, 1]`), or all tiles of the steady loop.
    Raises TilecError for a name that the kernel's tiles do not have."""
    program = compiled.stages["barriers"]
    assert isinstance(program, Program)
    view = _View(compiled, program)
    chosen = view.tiles(name)
    if not chosen and not name:
        return f"{view.head()}\n\nIts source gives no tile a name."
    if not chosen:
        known = ", ".join(sorted({value.name.partition("[")[0] for value in view.all_tiles()}))
        raise TilecError(f"{compiled.name} has no tile {name!r}", limit=f"its tiles are {known or 'unnamed'}")
    return "\n".join([view.head(), *(line for value in chosen for line in ("", *view.describe(value)))])


def layout_text(layout: Layout) -> str:
    """`2x4 waves, 32 elements a lane, runs of 4 along axis 1`: waves along each axis"""
    waves = [math.prod(count) for count in zip(*(_extent(layout, step) for step in _wave_steps(layout)))] or \
        [1] * layout.rank
    runs = [(layout.vector_width(axis), axis) for axis in range(layout.rank)]
    run, axis = max(runs, default=(1, 0))
    together = f", runs of {run} along axis {axis}" if run > 1 else ""
    return f"{'x'.join(map(str, waves))} waves, {layout.items} elements a lane{together}"


def _wave_steps(layout: Layout) -> list[tuple[int, tuple[int, ...]]]:
    return [(2, basis) for basis in layout.wave if any(basis)] + \
        [(count, step) for count, step in layout.wave_grid if any(step)]


def _extent(layout: Layout, step: tuple[int, tuple[int, ...]]) -> tuple[int, ...]:
    count, basis = step
    return tuple(count if value else 1 for value in basis)


@dataclass
class _Loop:
    """A loop of the tile program with the blocks of machine code that it became."""

    op: tile.For
    blocks: tuple[str, ...]
    clusters: list[tuple[tile.ClusterBegin, list[Op]]] = field(default_factory=list)


class _View:
    """One compilation, indexed for questions about tiles."""

    def __init__(self, compiled: Compiled, program: Program):
        self.compiled, self.program = compiled, program
        self.target: Target = target(compiled.arch)
        self.defining = definitions(program.body)
        self.places = {op.result: op.offset for op in program.body.ops if isinstance(op, tile.Alloc)}
        self.loop = next(iter(_loops(program, compiled.machine)), None)
        virtual = compiled.stages["lower"]
        assert isinstance(virtual, machine.Program)
        self.virtual, self.assignment = virtual, regalloc.allocate(virtual).assignment

    # -- which tiles there are

    def all_tiles(self) -> list[Value]:
        """Named tiles, each name once, those of the steady loop first."""
        inside = list(self.loop.op.body.walk()) if self.loop else []
        found: dict[str, Value] = {}
        for op in (*inside, *self.program.walk()):
            for value in op.results:
                if isinstance(value.type, TileType) and value.name:
                    found.setdefault(value.name, value)
        return list(found.values())

    def tiles(self, name: str) -> list[Value]:
        every = self.all_tiles()
        if name:
            wanted = name.replace(" ", "")
            return [v for v in every if wanted in (v.name.replace(" ", ""), v.name.partition("[")[0])]
        inside = {id(v) for op in self.loop.op.body.walk() for v in op.results} if self.loop else set()
        return [v for v in every if id(v) in inside] or every

    # -- text

    def head(self) -> str:
        used, plan = self.compiled.resources, self.compiled.schedule
        return (f"{self.compiled.name} for {self.compiled.arch}, schedule {plan.name if plan else 'simple'}: "
                f"{self.compiled.waves} waves, {used.vgpr} VGPR, {used.agpr} AGPR, {used.lds} bytes of LDS, "
                f"{used.scratch} bytes of scratch")

    def describe(self, value: Value) -> list[str]:
        shape = "x".join(map(str, value.shape))
        line = next((f", {op.where}" for op in [self.defining.get(value)] if op and op.where), "")
        out = [f"{value.name}: {shape} {value.tile_type.dtype}{line}"]
        for title, lines in (
            ("layout", self.layouts(value)),
            ("LDS", self.lds(value)),
            ("registers", self.registers(value)),
            ("clusters", self.clusters(value)),
            ("waits", self.waits(value)),
        ):
            out += [_row(title if not number else "", line) for number, line in enumerate(lines)]
        return out

    def layouts(self, value: Value) -> Iterator[str]:
        """Every layout that the tile has on its way: as it is loaded, as it is read, as it is computed with."""
        made: dict[Layout, str] = {}
        for op in self.program.walk():
            for result in op.results:
                if result.name == value.name and isinstance(result.type, TileType) and result.type.layout is not None:
                    made.setdefault(result.type.layout, _MADE.get(type(op), "computed"))
        for layout, how in made.items():
            yield f"{how} by {layout_text(layout)}"
            yield str(layout)

    # -- LDS

    def buffers(self, value: Value) -> list[Value]:
        """The rings from which a tile of this name is read, or to which it is written."""
        every = list(self.program.walk())
        read = [op.buffer for op in every if isinstance(op, tile.SharedRead) and op.results[0].name == value.name]
        written = [op.buffer for op in every if isinstance(op, tile.SharedWrite) and op.value is value]
        return list(dict.fromkeys((*read, *written)))

    def lds(self, value: Value) -> Iterator[str]:
        for buffer in self.buffers(value):
            count = buffer.shared_type.slots
            first, total = self.places[buffer], buffer.shared_type.bytes
            slots = f"{count} slots of {total // count} bytes" if count > 1 else f"{total} bytes"
            yield f"{self._where(buffer)}bytes {first} to {first + total - 1}: {slots}"
            yield str(buffer.shared_layout)
            yield from self._accesses(buffer)

    def _where(self, buffer: Value) -> str:
        steady = self.loop is None or any(buffer in op.operands for op in self.loop.op.body.walk())
        return "" if steady else "beside the steady loop: "

    def _accesses(self, buffer: Value) -> Iterator[str]:
        """Each way of access to a ring, with what bank conflicts cost it."""
        copies: dict[str, None] = {}
        ways: dict[swizzle.Access, None] = {}
        for op in self.program.walk():
            if not isinstance(op, _ACCESSES) or op.buffer is not buffer:
                continue
            if isinstance(op, tile.SharedRead):
                ways[swizzle.Access("read", "read", buffer_side(op.results[0].layout, op.axes))] = None
            elif isinstance(op, tile.SharedWrite):
                ways[swizzle.Access("written", "write", op.value.layout)] = None
            elif op.layout is not None:
                bits, axis = buffer.shared_layout.element_bits, op.tensor.tensor_type.contiguous
                vector = min(op.layout.vector_width(axis), 128 // bits) if axis is not None else 1
                count, size = -(-op.layout.items // vector), vector * bits // 8
                copies[f"filled straight from memory: {count} copies of {size} bytes a lane, written lane after lane: "
                       "no conflicts"] = None
        yield from copies
        for access in ways:
            solution = swizzle.evaluate([access], buffer.shared_layout, self.target)
            for report in solution.reports if solution else ():
                yield (f"{report.name}: {report.instructions} {report.mnemonic} of {report.base_cycles} cycles, "
                       f"{report.extra_cycles} extra by bank conflicts ({report.source})")

    # -- registers

    def registers(self, value: Value) -> list[str]:
        """Where the tile lies while the steady loop runs; else, where it lies at all."""
        inside, outside = (self.loop.blocks, " outside of the steady loop") if self.loop else ((), "")
        for blocks, where in ((inside, " in the steady loop"), (None, outside)):
            places = self._places(value.name, blocks)
            if places:
                return [f"{_ranges(places)} ({len(places)} a lane){where}"]
        return ["none: it is used up where it is made"]

    def _places(self, name: str, blocks: Sequence[str] | None) -> set[tuple[str, int]]:
        """Registers of the tile's name that matrix instructions take or loads fill; where there are none, those that
        are written at all. (Addresses of a tile go by its name too.)"""
        table = rows(self.compiled.arch)
        found: dict[bool, set[tuple[str, int]]] = {True: set(), False: set()}
        for block in self.virtual.blocks:
            if blocks is not None and block.label not in blocks:
                continue
            for instruction in block.instructions:
                unit = table[instruction.op].unit
                for operand in (*instruction.dst, *(instruction.src if unit == "mfma" else ())):
                    if isinstance(operand, Ref) and operand.register.name == name and operand.kind in ("v", "a", "va"):
                        place = self.assignment[operand.register]
                        first = place.index + operand.start
                        data = unit in ("mfma", "vmem", "lds")
                        found[data] |= {(place.file, index) for index in range(first, first + operand.size)}
        return found[True] or found[False]

    # -- clusters

    def clusters(self, value: Value) -> Iterator[str]:
        if self.loop is None or not self.loop.clusters:
            return
        buffers = self.buffers(value)
        trips = self._trips()
        count = len(self.loop.clusters) // trips
        for number, (begin, ops) in enumerate(self.loop.clusters[:count]):
            for op in ops:
                if (what := self._part_in(op, value, buffers)) is not None:
                    priority = f", priority {begin.priority}" if begin.priority else ""
                    yield f"{number} of {count} ({begin.kind}: {begin.name}{priority}): {what}"

    def _trips(self) -> int:
        """How many trips the loop is unrolled by: clusters come again by name."""
        assert self.loop
        names = [begin.name for begin, _ in self.loop.clusters]
        whole = [n for n in range(1, len(names) + 1) if len(names) % n == 0]
        return max(n for n in whole if names[: len(names) // n] * n == names)

    def _part_in(self, op: Op, value: Value, buffers: list[Value]) -> str | None:
        match op:
            case tile.AsyncCopy() | tile.SharedWrite() if op.buffer in buffers:
                verb = "copied to LDS" if isinstance(op, tile.AsyncCopy) else "written to LDS"
                return verb + (f", {self._ahead(op)}" if isinstance(op, tile.AsyncCopy) else "")
            case tile.SharedRead() if op.results[0].name == value.name:
                return "read from LDS"
            case tile.Dot() if op.result.name == value.name:
                return f"computed: {op.a.name} times {op.b.name}"
            case tile.Dot() if value.name in (op.a.name, op.b.name):
                return f"used for {op.result.name}"
            case tile.Load() if op.result.name == value.name:
                return f"loaded to registers, {self._ahead(op)}"
            case _ if any(r.name == value.name for r in op.results):
                return f"computed ({op.mnemonic})"
        return None

    def _ahead(self, op: tile.AsyncCopy | tile.Load) -> str:
        """For which tile the op works: so many after the one that the first trip of a round computes."""
        assert self.loop
        counter = self.loop.op.body.params[0]
        for index in op.indices:
            distance = self._distance(index, counter)
            if distance:
                return f"{distance} trip{'s' if distance > 1 else ''} ahead"
        return "for this trip"

    def _distance(self, value: Value, counter: Value) -> int:
        """What is added to the counter in an index, looked for in its definition."""
        op = self.defining.get(value)
        if not isinstance(op, tile.Elementwise):
            return 0
        if op.function == "add" and counter in op.operands:
            other = self.defining.get(next((v for v in op.operands if v is not counter), counter))
            return int(other.value) if isinstance(other, tile.Constant) else 0
        return max((self._distance(v, counter) for v in op.operands), default=0)

    # -- waits

    def waits(self, value: Value) -> Iterator[str]:
        """The waits and barriers of one round of the steady loop that this tile needs, in the order of the program."""
        if self.loop is None:
            return
        names = [value.name, *(buffer.name for buffer in self.buffers(value))]
        tokens = {f"{value.name} {what}" for what in ("copied", "written", "read")}
        barriers = iter([op for op in self.loop.op.body.walk() if isinstance(op, tile.Barrier)])
        lines: Counter[str] = Counter()
        wait: Instruction | None = None
        for instruction in self._loop_body():
            if instruction.op == "s_waitcnt":
                wait = instruction
                continue
            barrier = next(barriers, None) if instruction.op == "s_barrier" else None
            awaited = [v.name for v in barrier.after if v.name in tokens] if barrier else []
            if awaited:
                counts = _counts(wait) if wait else "no wait of its own, an earlier one completes it"
                lines[f"{counts}: {' and '.join(dict.fromkeys(awaited))}, for all waves ({instruction.note})"] += 1
            elif wait is not None and instruction.op != "s_barrier" and _mentions(wait.note, names):
                note = wait.note.replace("_lds", "").replace("before await", "before this wave computes with it")
                lines[f"{_counts(wait)}: {note}"] += 1
            wait = None
        yield from (line + (f", {times} times a round" if times > 1 else "") for line, times in lines.items())

    def _loop_body(self) -> Iterator[Instruction]:
        assert self.loop
        for block in self.compiled.machine.blocks:
            if block.label in self.loop.blocks:
                yield from block.instructions

def _loops(program: Program, final: machine.Program) -> Iterator[_Loop]:
    """The loops in program order. Each became a block titled `for`, and what is nested in it until the depth ends."""
    heads = [n for n, block in enumerate(final.blocks) if block.title.startswith("for ")]
    loops = [op for op in program.walk() if isinstance(op, tile.For)]
    for op, head in zip(loops, heads):
        depth, labels = final.blocks[head].depth, []
        for block in final.blocks[head:]:
            if block.depth < depth:
                break
            labels.append(block.label)
        yield _Loop(op, tuple(labels), list(_clusters(op.body)))


def _clusters(body: Block) -> Iterator[tuple[tile.ClusterBegin, list[Op]]]:
    begin: tile.ClusterBegin | None = None
    inside: list[Op] = []
    for op in body.ops:
        if isinstance(op, tile.ClusterBegin):
            begin, inside = op, []
        elif isinstance(op, tile.ClusterEnd) and begin is not None:
            yield begin, inside
            begin = None
        else:
            inside.append(op)


def _counts(wait: Instruction) -> str:
    return " ".join(f"{name}({count})" for name, count in wait.modifiers)


def _mentions(note: str, names: Iterable[str]) -> bool:
    return any(re.search(rf"(?:of|into|to) {re.escape(name)}(?![\w\[])", note) for name in names)


def _ranges(places: set[tuple[str, int]]) -> str:
    """`v[0:31], a[4:7], v9`"""
    runs: list[tuple[str, int, int]] = []
    for file, index in sorted(places):
        if runs and runs[-1][0] == file and runs[-1][2] == index - 1:
            runs[-1] = file, runs[-1][1], index
        else:
            runs.append((file, index, index))
    return ", ".join(f"{file}[{first}:{last}]" if last > first else f"{file}{first}" for file, first, last in runs)


def _row(title: str, text: str) -> str:
    return f"  {title:<10} {text}".rstrip()
