"""Lowering of LDS: rings of buffers, writes, reads (transposing where gfx950 can), copies straight from global memory,
barriers.

Addresses follow from `ir/lds_access.py`: one VGPR per distinct XOR pattern, computed before the loop; the rest is the
immediate. The last instruction of an access defines its token: accesses of one kind complete in order.
"""

from __future__ import annotations

from collections.abc import Callable

from tilec.backend_amdgcn.address import (
    TileAccess,
    is_uniform,
    moved_back,
    plus,
    representative_lanes,
    tile_access,
    times,
    under_mask,
    vector_plus,
)
from tilec.backend_amdgcn.fragment import Fragment, Stored, joined, moved, side_by_side
from tilec.backend_amdgcn.lowering import Lowering, SharedRef
from tilec.errors import InternalError
from tilec.ir import tile
from tilec.ir.conversion import conversion
from tilec.ir.core import Op, TileType, Value
from tilec.ir.layout import Layout
from tilec.ir.lds_access import LdsAccess, LdsPart, grouped, lds_access, read_access
from tilec.ir.machine import Immediate, Instruction, Operand, Ref, SharedAccess

WRITES = {
    1: "ds_write_b8",
    2: "ds_write_b16",
    4: "ds_write_b32",
    8: "ds_write_b64",
    12: "ds_write_b96",
    16: "ds_write_b128",
}


def _alloc(context: Lowering, op: tile.Alloc) -> None:
    if op.offset < 0:
        raise InternalError(f"LDS buffer {op.result.name} was not placed", where=op.where)
    context.values[op.result] = SharedRef(op.result.name, op.result.shared_type, op.offset)


def _slot(context: Lowering, slot: Value | None) -> Operand:
    return Immediate(0) if slot is None else context.scalar(slot)


class _Addresses:
    """Address registers of an access to one slot of a ring."""

    def __init__(self, context: Lowering, access: LdsAccess, buffer: SharedRef, slot: Operand):
        self.context, self.access, self.buffer, self.slot = context, access, buffer, slot

    def of(self, xor: int, offset: int) -> tuple[Operand, int]:
        """Address register and immediate of a part."""
        context = self.context
        base = self._base(xor)
        total = offset + self.buffer.offset
        if isinstance(self.slot, Immediate):
            total += self.slot.value * self.buffer.type.slot_bytes
        else:
            base = vector_plus(context, base, times(context, self.slot, Immediate(self.buffer.type.slot_bytes)))
        high = total & ~context.target.ds_offset_max
        base = vector_plus(context, base, Immediate(high))
        if is_uniform(base):
            base = context.b.pure("v_mov_b32", base)
        return base, total - high

    def _base(self, xor: int) -> Operand:
        """`LdsAccess.base` as instructions."""
        context, access = self.context, self.access
        wave: Operand = Immediate(0)
        for bit, mask in enumerate(access.wave):
            if mask:
                field = context.b.pure("s_bfe_u32", context.wave, bit | 1 << 16, kind="s")
                part = times(context, field, Immediate(mask))
                wave = part if isinstance(wave, Immediate) else context.b.pure("s_xor_b32", wave, part, kind="s")
        if xor:
            wave = Immediate(xor) if isinstance(wave, Immediate) else context.b.pure("s_xor_b32", wave, xor, kind="s")
        base = context.linear(access.lane, wave)
        if access.scale > 1:
            base = _scaled(context, base, access.scale)
        if access.pad_interval:
            shift = access.pad_interval.bit_length() - 1
            if is_uniform(base):
                base = context.b.pure("v_mov_b32", base)
            steps = context.b.pure("v_lshrrev_b32", shift, base)
            base = context.b.pure("v_add_u32", base, _scaled(context, steps, access.pad_bytes))
        return vector_plus(context, base, _grid_part(context, access.wave_grid, len(access.wave)))


def _scaled(context: Lowering, value: Operand, factor: int) -> Operand:
    if is_uniform(value):
        return times(context, value, Immediate(factor))
    if factor & (factor - 1) == 0:
        return context.b.pure("v_lshlrev_b32", factor.bit_length() - 1, value)
    return context.b.pure("v_mul_lo_u32", value, factor)


def _grid_part(context: Lowering, grid: tuple[tuple[int, int], ...], bits: int) -> Operand:
    """What the digits of the wave number above its bits add."""
    total: Operand = Immediate(0)
    for digit, step in context.wave_digits(tuple(count for count, _ in grid), bits):
        total = plus(context, total, times(context, digit, Immediate(grid[step][1])))
    return total


def _write(context: Lowering, op: tile.SharedWrite) -> None:
    b, buffer, slot = context.b, context.shared(op.buffer), _slot(context, op.slot)
    shared, held = op.buffer.shared_layout, op.value.layout
    layout = grouped(held, shared.order)
    access = lds_access(layout, shared, context.target, writes=True)
    if access is None:
        raise InternalError(f"no LDS write from {layout} to {shared}", where=op.where)
    fragment = context.fragment(op.value)
    if layout != held:
        type = TileType(op.value.shape, op.value.dtype, layout)
        fragment = moved(fragment, type, conversion(held, layout).items)
    addresses = _Addresses(context, access, buffer, slot)
    bytes_each = access.instruction.bytes
    kept = set(layout.replication().items)
    parts = [p for p in access.parts if _item_of(p.bit, fragment.bits) in kept]
    writes = []
    for part in parts:
        address, offset = addresses.of(part.xor, part.offset)
        first = part.bit // 32
        dwords = [b.vector(d) for d in [fragment.dword(first + i) for i in range(max(1, bytes_each // 4))]]
        name, data = WRITES[bytes_each], joined(b, dwords)
        if bytes_each < 4 and part.bit % 32:
            byte = part.bit % 32 // 8
            if byte % 2:
                data = b.value("v_lshrrev_b32", 8, data)
            name += "_d16_hi" if byte >= 2 else ""
        writes.append((name, address, data, offset))
    token = b.register("t", 1, op.result.name)

    def emit() -> None:
        for index, (name, address, data, offset) in enumerate(writes):
            last = [token] if index == len(writes) - 1 else []
            b.emit(name, last, [address, data], shared=buffer.access(slot, op.phase), offset=offset)

    under_mask(context, representative_lanes(context, layout), emit)
    context.values[op.result] = token


def _item_of(bit: int, bits: int) -> int:
    return bit // bits


def _read(context: Lowering, op: tile.SharedRead) -> None:
    """Binds the tile; its instructions are emitted here, or by the dot that reads it where that is the only reader and
    nothing touches LDS in between."""
    buffer, slot = context.shared(op.buffer), _slot(context, op.slot)
    result = op.results[0]
    layout = buffer_side(result.layout, op.axes)
    access = read_access(layout, op.buffer.shared_layout, context.target)
    if access is None:
        raise InternalError(f"no LDS read from {op.buffer.shared_layout} to {layout}", where=op.where)
    fragment = _LdsFragment(
        context, op, access, _Addresses(context, access, buffer, slot), buffer.access(slot, op.phase)
    )
    context.values[result] = fragment if context.read_by_next_dot(op) else fragment.stored()
    if len(op.results) > 1:
        context.values[op.results[1]] = fragment.token


class _LdsFragment(Fragment):
    """A tile in LDS, read into registers part by part when first asked for. The last part read defines the token."""

    def __init__(
        self, context: Lowering, op: tile.SharedRead, access: LdsAccess, addresses: _Addresses, shared: SharedAccess
    ):
        super().__init__(context.b, op.results[0].tile_type)
        self.op, self.access, self.addresses, self.shared = op, access, addresses, shared
        self.kind = "va" if context.only_feeds_dots(op.results[0]) else "v"
        self.token = context.b.register("t", 1, f"{op.results[0].name} read")
        self.dwords_per_read = max(1, access.instruction.bytes // 4)
        self.parts: dict[int, list[LdsPart]] = {}
        for part in access.parts:
            self.parts.setdefault(part.bit // 32, []).append(part)
        self.known: dict[int, Operand] = {}
        self.home = context.pinned(op.results[0])

    def dword(self, index: int) -> Operand:
        if index not in self.known:
            size = self.dwords_per_read
            start = index // size * size
            if self.access.instruction.bytes >= 4:
                home = self.home[start:start + size] if self.home else None
                register = self._emit(self.access.instruction.mnemonic, self.kind, size, self.parts[start][0], home)
            else:
                register = self._narrow(self.parts[start])
                if self.home is not None:
                    self.builder.copy(self.home[start], register)
                    register = self.home[start]
            self.known.update({start + i: register[i] if size > 1 else register for i in range(size)})
        return self.known[index]

    def value(self, item: int) -> Operand:
        return Stored(self.builder, self.type, [self.dword(i) for i in range(self.dwords)]).value(item)

    def _emit(self, op: str, kind: str, size: int, part: LdsPart, register: Ref | None = None) -> Ref:
        b = self.builder
        address, offset = self.addresses.of(part.xor, part.offset)
        where, b.where = b.where, self.op.where
        register = register or b.register(kind, size, self.op.results[0].name)
        b.emit(op, [register, self.token], [address], shared=self.shared, offset=offset)
        b.where = where
        return register

    def _narrow(self, parts: list[LdsPart]) -> Ref:
        """Items of 1 or 2 bytes that do not lie side by side, each read into a register of its own and put together."""
        bytes_each = self.access.instruction.bytes
        op = {1: "ds_read_u8", 2: "ds_read_u16"}[bytes_each]
        return side_by_side(self.builder, [self._emit(op, "v", 1, part) for part in parts], 8 * bytes_each)


def buffer_side(layout: Layout, axes: tuple[int, ...]) -> Layout:
    """The layout over the buffer's axes of a tile whose axis i is the buffer's axis `axes[i]`."""
    if not axes or axes == tuple(range(len(axes))):
        return layout
    inverse = tuple(axes.index(axis) for axis in range(len(axes)))
    return layout.permute(inverse)


def _async_copy(context: Lowering, op: tile.AsyncCopy) -> None:
    """Each instruction writes one run of 16 (or 4) bytes per lane, lane after lane, at M0 plus its immediate
    (docs/isa-notes.md, global memory). The immediate moves the place in memory as well: lane offsets are that much
    smaller, and the base that much earlier, so that one write of M0 serves all copies whose places it can reach."""
    b, buffer, slot = context.b, context.shared(op.buffer), _slot(context, op.slot)
    tensor, shared, layout = context.tensor(op.tensor), op.buffer.shared_layout, op.layout
    contiguous = tensor.type.contiguous
    assert layout is not None and contiguous is not None        # the layouts pass copies such tensors only
    access = tile_access(context, tensor, [context.scalar(i) for i in op.indices], layout, op.inside)
    vector = min(layout.vector_width(contiguous), 16 * 8 // shared.element_bits)
    bytes_each = vector * shared.element_bits // 8
    token = b.register("t", 1, op.result.name)
    reach = context.target.buffer_offset_max + 1
    wave_place = context.wave_linear(layout, lambda basis: int(shared.byte_address(basis)))
    firsts = [i for i in layout.replication().items if i % vector == 0]
    start = None
    for index, first in enumerate(firsts):
        place = buffer.offset + int(shared.byte_address(layout.item_offset(first)))
        if start is None or not 0 <= place - start < reach:
            start = place
            in_slot = plus(context, Immediate(place), wave_place)
            at = plus(context, in_slot, times(context, slot, Immediate(buffer.type.slot_bytes)))
            b.emit_early("s_mov_m0", [], [at])
        offset, window, tile_offset = _copy_source(context, access, first, reach, place - start)
        last = [token] if index == len(firsts) - 1 else []
        b.emit(
            f"buffer_load_dword{'x4' if bytes_each == 16 else ''}_lds",
            last,
            [offset, window, tile_offset],
            shared=buffer.access(slot, op.phase),
            offen=True,
            lds=True,
            offset=place - start,
        )
    context.values[op.result] = token


def _copy_source(
    context: Lowering, access: TileAccess, item: int, back: int, immediate: int
) -> tuple[Operand, Ref, Operand]:
    """Lane offset, descriptor and scalar offset of a copy whose descriptor begins `back` bytes early."""
    window, fixed, tile_offset = access.window()
    lanes, scalar, constant = access.lane_offset(item)
    offset = vector_plus(context, vector_plus(context, lanes, scalar), fixed)
    offset = vector_plus(context, offset, Immediate(constant + back - immediate))
    offset = access.masked(offset, item)
    if is_uniform(offset):
        offset = context.b.pure("v_mov_b32", offset)
    if isinstance(tile_offset, Immediate) and not 0 <= tile_offset.value <= 64:
        tile_offset = context.b.pure("s_mov_b32", tile_offset, kind="s")
    return offset, moved_back(context, window, back), tile_offset


def _barrier(context: Lowering, op: tile.Barrier) -> None:
    b, awaited = context.b, [context.token(v) for v in op.after]
    if not op.half:
        b.emit("s_barrier", [], awaited, note=op.reason)
        return
    # Half the workgroup meets one barrier more: before the loop those that shall lag behind, after it those that led.
    compare = "s_cmp_ge_u32" if op.half == "trailing" else "s_cmp_lt_u32"
    branch = b.begin_if([Instruction(compare, (), (context.wave, Immediate(context.program.waves // 2)))])
    b.emit(
        "s_barrier",
        [],
        awaited,
        note=f"{op.reason}: {op.half} half",
        half={"trailing": "late", "leading": "early"}[op.half],
    )
    b.end_if(branch)


def _await(context: Lowering, op: tile.Await) -> None:
    context.b.emit("await", [], [context.token(v) for v in op.after], note="the operands of this cluster")


RULES: dict[type[Op], Callable] = {
    tile.Alloc: _alloc,
    tile.SharedWrite: _write,
    tile.SharedRead: _read,
    tile.AsyncCopy: _async_copy,
    tile.Barrier: _barrier,
    tile.Await: _await,
}
