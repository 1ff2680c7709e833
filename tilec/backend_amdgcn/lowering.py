"""What the lowering rules share: where each value lives, who reads it, the lane and wave numbers, coordinates.

A value is an SGPR operand or constant (scalars), a Fragment (tiles), a TensorRef (tensors and views), a SharedRef (LDS
rings) or a token register. `bind` keeps an elementwise result unevaluated where one op of the same region (block,
cluster) reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tilec.backend_amdgcn.builder import Builder
from tilec.backend_amdgcn.fragment import Fragment, Lazy, Stored
from tilec.backend_amdgcn.spread import OpenCluster
from tilec.backend_amdgcn.tile_pins import dwords, pinned_places
from tilec.ir import tile
from tilec.ir.core import Block, Op, Program, SharedType, TensorType, TileType, Value
from tilec.ir.layout import Layout
from tilec.ir.machine import Immediate, Operand, Physical, Ref, Register, SharedAccess
from tilec.ir.schedule import Pin


@dataclass(frozen=True, eq=False)
class TensorRef:
    """A tensor or view: base address (SGPR pair), per axis the stride in bytes (SGPR pair; constant for the contiguous
    axis) and the extent (scalar). `written`: the kernel stores to it, so that even bytes whose value is not used may
    not be read beyond a tile's edge, where another workgroup may be writing."""

    type: TensorType
    base: Ref
    strides: tuple[Operand, ...]
    extents: tuple[Operand, ...]
    written: bool = False

    @property
    def element_bytes(self) -> int:
        return max(8, self.type.dtype.bits) // 8


@dataclass(frozen=True)
class SharedRef:
    """A ring in LDS from byte `offset` on."""

    name: str
    type: SharedType
    offset: int

    def access(self, slot: Operand, phase: int | None) -> SharedAccess:
        """The bytes that an access to a slot may touch: all slots where the slot is known by its phase only, or not at
        all."""
        if isinstance(slot, Immediate):
            first = self.offset + slot.value * self.type.slot_bytes
            return SharedAccess(self.name, first, first + self.type.slot_bytes)
        return SharedAccess(self.name, self.offset, self.offset + self.type.bytes, self.type.slots, phase)


Region = tuple[Block, int]
"""Ops of one block, between the bounds of its clusters."""


class Lowering:
    """State of one lowering."""

    def __init__(self, program: Program, arch: str, pins: Sequence[Pin] = (), room: int | None = None):
        self.program = program
        self._places = pinned_places(program, pins)
        self._pinned: dict[Value, Ref] = {}
        self.b = Builder(arch, room)
        self.target = self.b.target
        self.values: dict[Value, Operand | Fragment | TensorRef | SharedRef] = {}
        self.readers: dict[Value, list[tuple[Op | None, Region]]] = {}
        self._home: dict[Value, Region] = {}
        self._maker: dict[Value, Op] = {}
        self.clusters: list[OpenCluster] = []
        self._note_readers(program.body)
        self.written = written_parameters(program)
        self.thread = self.b.pure("v_mov_b32", Physical("v", 0), name="thread")
        self.lane = self.b.pure("v_and_b32", self.target.wave_size - 1, self.thread, name="lane")
        shift = self.target.wave_size.bit_length() - 1
        self.wave: Operand = Immediate(0)
        if program.waves > 1:
            self.wave = self.b.pure(
                "v_readfirstlane_b32", self.b.pure("v_lshrrev_b32", shift, self.thread), kind="s", name="wave"
            )

    def _note_readers(self, block: Block) -> None:
        region = block, 0
        for op in block.ops:
            if isinstance(op, (tile.ClusterBegin, tile.ClusterEnd)):
                region = block, region[1] + 1
            for value in op.operands:
                self.readers.setdefault(value, []).append((op, region))
            for result in op.results:
                self._home[result], self._maker[result] = region, op
            for inner in op.regions:
                self._note_readers(inner)
        for value in block.yields:
            self.readers.setdefault(value, []).append((None, region))

    # -- values ------------------------------------------------------------------------------------------------------

    def scalar(self, value: Value) -> Ref | Immediate:
        """A scalar: an SGPR (pair) or a constant."""
        known = self.values[value]
        assert isinstance(known, (Ref, Immediate)), value
        return known

    def scalar64(self, value: Value) -> Ref:
        """A 64-bit scalar in an SGPR pair."""
        known = self.scalar(value)
        if isinstance(known, Immediate):
            return self.b.pair(known.value & 0xFFFFFFFF, known.value >> 32 & 0xFFFFFFFF)
        return known

    def fragment(self, value: Value) -> Fragment:
        known = self.values[value]
        assert isinstance(known, Fragment), value
        return known

    def tensor(self, value: Value) -> TensorRef:
        known = self.values[value]
        assert isinstance(known, TensorRef), value
        return known

    def shared(self, value: Value) -> SharedRef:
        known = self.values[value]
        assert isinstance(known, SharedRef), value
        return known

    def token(self, value: Value) -> Ref:
        known = self.values[value]
        assert isinstance(known, Ref) and known.kind == "t", value
        return known

    def bind(
        self,
        value: Value,
        compute: Callable[[int], Any],
        *,
        cheap: bool = False,
        of: Callable[[Builder, TileType, Callable[[int], Any]], Fragment] = Lazy,
    ) -> None:
        """Binds a tile to its items (of `Packed`: its dwords, of `Paired`: its pairs) as functions. Kept lazy when
        `cheap` to compute again, when it is a mask, or when its only reader stands in the same region; computed now
        otherwise."""
        assert isinstance(value.type, TileType)
        lazy = of(self.b, value.type, compute)
        readers = self.readers.get(value, [])
        alone = len(readers) == 1 and readers[0][1] == self._home[value] and _reads_items_once(readers[0][0], value)
        self.values[value] = lazy if cheap or alone or value.dtype.name == "bool" else lazy.stored()

    def settle(self, value: Value) -> None:
        """What computes its dwords once, when first asked for, does so now if another region asks: an inner block may
        not run, and a cluster does its own work."""
        if not any(region != self._home[value] for _, region in self.readers.get(value, [])):
            return
        asked = {value}
        for source in self._behind(value):
            if source in asked:
                self._settled(source, asked)

    def settle_for(self, op: Op, value: Value) -> None:
        """The same for what an op asks of `value` in a block that may not run, where others ask for it too."""
        within, asked = {op}, {value}
        for source in self._behind(value):
            if source in asked and all(reader in within for reader, _ in self.readers[source]):
                within.add(self._maker[source])
                asked.update(self._maker[source].operands)
            elif source in asked:
                self._settled(source, asked)

    def _settled(self, value: Value, asked: set[Value]) -> None:
        """Computes now what remembers its dwords; what does not will ask again for what its op takes."""
        fragment = self.values[value]
        if isinstance(fragment, Lazy):
            asked.update(self._maker[value].operands)
        elif isinstance(fragment, Fragment):
            self.values[value] = fragment.stored()

    def _behind(self, value: Value) -> list[Value]:
        """The tile and those of its region that it is still to be computed from, each before what it needs."""
        order: list[Value] = []
        seen: set[Value] = set()
        work = [(value, False)]
        while work:
            source, done = work.pop()
            if done:
                order.append(source)
            elif source not in seen and self.same_region(source, value) and not self._is_stored(source):
                seen.add(source)
                work += [(source, True), *((v, False) for v in self._maker[source].operands)]
        return order[::-1]

    def _is_stored(self, value: Value) -> bool:
        return not isinstance(fragment := self.values.get(value), Fragment) or type(fragment) is Stored

    def same_region(self, one: Value, other: Value) -> bool:
        """Whether the ops that make two values run one if and only if the other does, in one cluster."""
        return one in self._home and self._home[one] == self._home.get(other)

    def is_zero(self, value: Value) -> bool:
        maker = self._maker.get(value)
        return isinstance(maker, tile.Constant) and maker.value == 0

    def source_of(self, value: Value) -> tuple[Value, list[Op]]:
        """The tile that a tile repeats or relabels, and the ops that do so."""
        ops: list[Op] = []
        while isinstance(maker := self._maker.get(value), (tile.Broadcast, tile.ExpandDims, tile.Permute)):
            if not isinstance(maker.source.type, TileType):
                break
            ops.insert(0, maker)
            value = maker.source
        return value, ops

    def pinned(self, value: Value) -> Ref | None:
        """The registers that the schedule pins a tile to."""
        if value in self._places and value not in self._pinned:
            register = self.b.register("va", dwords(value), value.name, self._places[value])
            self._pinned[value] = register
        return self._pinned.get(value)

    def keep_pinned(self, value: Value) -> None:
        """Has a pinned tile in its registers, where the rule that made it did not put it there."""
        place, fragment = self._places.get(value), self.values.get(value)
        if place is None or not isinstance(fragment, Fragment) or fragment.home is not None:
            return
        made = [fragment.dword(i) for i in range(fragment.dwords)]
        if all(isinstance(d, Ref) and d.register.pin == place and d.start == i for i, d in enumerate(made)):
            return
        home = self.pinned(value)
        assert home is not None
        for i, dword in enumerate(made):
            self.b.copy(home[i], dword)
        self.values[value] = Stored(self.b, fragment.type, [home[i] for i in range(home.size)])

    def tuple_size(self, value: Value) -> int:
        """Dwords of the tuples that a tile's readers want: 4, as memory does, or what a matrix instruction takes."""
        size = 4
        for op, _ in self.readers.get(value, []):
            if isinstance(op, tile.Dot) and op.instruction:
                mfma = self.target.mfma(op.instruction)
                size = max(size, mfma.cd_dwords if op.accumulator is value else max(mfma.a_dwords, mfma.b_dwords))
        return size

    def only_feeds_dots(self, value: Value) -> bool:
        readers = self.readers.get(value, [])
        return bool(readers) and all(isinstance(op, tile.Dot) for op, _ in readers)

    def read_by_next_dot(self, op: tile.SharedRead) -> bool:
        """Whether a dot further down the same block is the only reader, with nothing but other reads from LDS in
        between."""
        readers = self.readers.get(op.results[0], [])
        if (
            len(readers) != 1
            or not isinstance(readers[0][0], tile.Dot)
            or readers[0][1] != self._home[op.results[0]]
        ):
            return False
        ops = readers[0][1][0].ops
        between = ops[ops.index(op) + 1 : ops.index(readers[0][0])]
        return not any(
            isinstance(o, (tile.Barrier, tile.SharedWrite, tile.AsyncCopy, tile.For, tile.If))
            for o in between
        )

    # -- coordinates -------------------------------------------------------------------------------------------------

    def linear(self, lane_bases: tuple[int, ...], wave_part: Operand) -> Operand:
        """XOR over the lane number's bits of their bases, combined with a wave's part that occupies other bits or is
        XORed in."""
        parts: list[Operand] = []
        taken = 0
        for bit, width, shift in _runs(lane_bases):
            field = ((1 << width) - 1) << bit
            part: Operand = (
                self.lane if field == self.target.wave_size - 1 else self.b.pure("v_and_b32", field, self.lane)
            )
            if shift > bit:
                part = self.b.pure("v_lshlrev_b32", shift - bit, part)
            elif shift < bit:
                part = self.b.pure("v_lshrrev_b32", bit - shift, part)
            parts.append(part)
            taken |= field
        if not (isinstance(wave_part, Immediate) and wave_part.value == 0):
            parts.append(wave_part)
        if not parts:
            return Immediate(0)
        result = parts[0]
        for part in parts[1:]:
            if isinstance(result, Ref) and result.kind == "s" or isinstance(result, Immediate):
                result, part = part, result
            result = self.b.pure("v_xor_b32", part, result)
        return result

    def wave_linear(self, layout: Layout, weigh: Callable[[tuple[int, ...]], int]) -> Operand:
        """A wave number's part of a linear function of the coordinates (`weigh` gives the function of one basis), in an
        SGPR."""
        bits, result = len(layout.wave), Immediate(0)
        bases = tuple(weigh(basis) for basis in layout.wave)
        for bit, width, shift in _runs(bases):
            part = self.b.pure("s_bfe_u32", self.wave, bit | width << 16, kind="s")
            if shift:
                part = self.b.pure("s_lshl_b32", part, shift, kind="s")
            result = part if isinstance(result, Immediate) else self.b.pure("s_xor_b32", result, part, kind="s")
        for digit, index in self.wave_digits(tuple(count for count, _ in layout.wave_grid), bits):
            part = self.b.pure("s_mul_i32", digit, weigh(layout.wave_grid[index].step), kind="s")
            result = part if isinstance(result, Immediate) else self.b.pure("s_add_i32", result, part, kind="s")
        return result

    def wave_digits(self, counts: tuple[int, ...], bits: int) -> Iterator[tuple[Ref, int]]:
        """The digits of the wave number above its lowest `bits` bits, each with its position in `counts`."""
        rest = self.wave
        for index, count in enumerate(counts):
            if index == 0 and bits:
                rest = self.b.pure("s_lshr_b32", rest, bits, kind="s")
            # Wave numbers are below 16: n * (65536 // count + 1) >> 16 is n // count exactly.
            quotient = self.b.pure(
                "s_lshr_b32", self.b.pure("s_mul_i32", rest, 65536 // count + 1, kind="s"), 16, kind="s"
            )
            yield self.b.pure("s_sub_i32", rest, self.b.pure("s_mul_i32", quotient, count, kind="s"), kind="s"), index
            rest = quotient

    def coordinate(self, layout: Layout, axis: int) -> Operand:
        """This lane's coordinate of item 0 along an axis: a VGPR, an SGPR or a constant."""
        wave = self.wave_linear(layout, lambda basis: basis[axis])
        return self.linear(tuple(basis[axis] for basis in layout.lane), wave)

    def lds_bytes(self) -> int:
        """Bytes of LDS that the placed buffers reach."""
        return max((v.offset + v.type.bytes for v in self.values.values() if isinstance(v, SharedRef)), default=0)


def written_parameters(program: Program) -> set[Value]:
    """Tensors that the program writes, itself or through views."""
    root: dict[Value, Value] = {}
    found: set[Value] = set()
    for op in program.walk():
        if isinstance(op, tile.View):
            root[op.result] = root.get(op.tensor, op.tensor)
        elif isinstance(op, (tile.Store, tile.Scatter, tile.AtomicAdd)):
            found.add(root.get(op.tensor, op.tensor))
    return found


def _reads_items_once(op: Op | None, value: Value) -> bool:
    """Whether a reader asks for each item once: elementwise ops, casts, stores and a dot that takes it as accumulator
    do; broadcasts, and dots that take it as an operand, may not."""
    if isinstance(op, tile.Dot):
        return value not in (op.a, op.b, *op.scales)
    return isinstance(
        op,
        (
            tile.Elementwise,
            tile.Cast,
            tile.Store,
            tile.Scatter,
            tile.Reduce,
            tile.Permute,
            tile.ExpandDims,
            tile.SharedWrite,
        ),
    )


def _runs(bases: tuple[int, ...]) -> list[tuple[int, int, int]]:
    """A GF(2) map as runs: bits [bit, bit + width) of the index are XORed into the result at `shift` on."""
    pairs = sorted(
        (
            (shift - bit, bit, shift)
            for bit, basis in enumerate(bases)
            for shift in range(basis.bit_length())
            if basis >> shift & 1
        )
    )
    runs: list[list[int]] = []
    for delta, bit, shift in pairs:
        if runs and runs[-1][2] - runs[-1][0] == delta and runs[-1][0] + runs[-1][1] == bit:
            runs[-1][1] += 1
        else:
            runs.append([bit, 1, shift])
    return [(bit, width, shift) for bit, width, shift in runs]


def parallel_copy(b: Builder, pairs: list[tuple[Ref, Operand]]) -> None:
    """All sources are read before any destination is written. A source that is itself a destination goes through a new
    register, which the allocator removes where the lives allow."""
    written: set[Register] = {dst.register for dst, _ in pairs}
    moves = [(dst, src) for dst, src in pairs if dst != src]
    staged: list[tuple[Ref, Operand]] = []
    for dst, src in moves:
        if isinstance(src, Ref) and src.register in written:
            stage = b.register(src.kind, src.size, src.register.name)
            b.copy(stage, src)
            src = stage
        staged.append((dst, src))
    for dst, src in staged:
        b.copy(dst, src)
