"""Lowering of global memory: parameters, program ids, views, tile loads and stores, gathers, scatters, atomics.

Parameters are loaded once at entry. A tile access becomes one instruction per run of items that lie side by side in
memory. Where a tile may be cut along the contiguous axis, loads take whole vectors and replace what lies beyond by the
fill value in registers; stores take whole vectors where they fit and single elements, behind a uniform branch, where
they do not. Of replicated elements one representative is stored. EXEC is narrowed only for wide tensors and atomics.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from tilec.backend_amdgcn import alu, lower_lds
from tilec.backend_amdgcn.address import (
    TileAccess,
    both,
    descriptor,
    is_uniform,
    masked_offset,
    plus,
    product64,
    representative_lanes,
    tile_access,
    times,
    under_mask,
    vector_plus,
    vector_times,
    wide_address,
)
from tilec.backend_amdgcn.fragment import Fragment, Stored, joined, pack, side_by_side, storage_bits, unpack
from tilec.backend_amdgcn.integer_math import add64
from tilec.backend_amdgcn.lowering import Lowering, TensorRef
from tilec.backend_amdgcn.operands import flag_mask, half
from tilec.dtypes import dtype
from tilec.errors import TilecError
from tilec.ir import tile
from tilec.ir.abi import argument_slots
from tilec.ir.core import Op, ScalarType, TensorType, TileType, Value
from tilec.ir.layout import Layout
from tilec.ir.machine import Immediate, Instruction, Operand, Physical, Ref

U32 = dtype("u32")
LOADS = {1: "ubyte", 2: "ushort", 4: "dword", 8: "dwordx2", 12: "dwordx3", 16: "dwordx4"}
STORES = {1: "byte", 2: "short", 4: "dword", 8: "dwordx2", 12: "dwordx3", 16: "dwordx4"}


# -- parameters, grid, views -----------------------------------------------------------------------------------------


def bind_parameters(context: Lowering) -> None:
    """Loads the kernel argument segment (8, 4, 2, 1 dwords at a time; no more than 2 where SGPRs are short: of wide
    tuples, dwords that nobody reads any more leave gaps that are too narrow) and binds tensors and scalars."""
    b = context.b
    slots, size = argument_slots(context.program)
    dwords: list[Ref] = []
    widths = (8, 4, 2, 1) if b.room is None else (2, 1)
    while len(dwords) * 4 < size:
        left = size // 4 - len(dwords)
        count = next(width for width in widths if width <= left)
        chunk = b.register("s", count, "arguments")
        b.emit(f"s_load_dword{'' if count == 1 else f'x{count}'}", [chunk], [Physical("s", 0, 2), len(dwords) * 4])
        dwords += [chunk[i] for i in range(count)]

    def field(parameter: str, part: str, axis: int = 0) -> Ref:
        slot = next(s for s in slots if (s.parameter, s.part, s.axis) == (parameter, part, axis))
        first = dwords[slot.offset // 4]
        return first if slot.size == 4 else Ref(first.register, first.start, 2)

    for value in context.program.params:
        if isinstance(value.type, ScalarType):
            context.values[value] = field(value.name, "value")
            continue
        assert isinstance(value.type, TensorType)
        element = value.dtype.bits // 8
        strides = tuple(
            Immediate(element) if axis == value.tensor_type.contiguous else field(value.name, "stride", axis)
            for axis in range(value.rank)
        )
        extents = tuple(field(value.name, "extent", axis) for axis in range(value.rank))
        written = value in context.written
        context.values[value] = TensorRef(value.type, field(value.name, "base"), strides, extents, written)


def _program_id(context: Lowering, op: tile.ProgramId) -> None:
    """The workgroup's number in mixed radix, the last axis fastest."""
    b, grid = context.b, context.program.grid
    number: Operand = b.pure("s_mov_b32", Physical("s", 2), kind="s", name="workgroup")
    for axis in reversed(range(op.axis + 1, len(grid))):
        number = alu.scalar(b, "floordiv", U32, [number, context.scalar(grid[axis])])
    if op.axis > 0:
        number = alu.scalar(b, "mod", U32, [number, context.scalar(grid[op.axis])])
    context.values[op.result] = number


def _dim(context: Lowering, op: tile.Dim) -> None:
    context.values[op.result] = context.tensor(op.tensor).extents[op.axis]


def _view(context: Lowering, op: tile.View) -> None:
    b, tensor = context.b, context.tensor(op.tensor)
    base = tensor.base
    extents = [context.scalar(e) for e in op.extents]
    present: Operand | None = None
    for axis, offset in enumerate(context.scalar(o) for o in op.offsets):
        if axis not in op.axes:  # an index: the view is empty where it is outside
            inside = alu.scalar(b, "lt", U32, [offset, tensor.extents[axis]])
            present = inside if present is None else b.pure("s_and_b32", present, inside, kind="s")
            offset = times(context, offset, inside)
        if not (isinstance(offset, Immediate) and offset.value == 0):
            base = add64(b, base, product64(context, offset, tensor.strides[axis]))
    kept = [extents[axis] if present is None else times(context, extents[axis], present) for axis in op.axes]
    context.values[op.result] = TensorRef(
        op.result.tensor_type, base, tuple(tensor.strides[a] for a in op.axes), tuple(kept), tensor.written
    )


# -- tile loads ------------------------------------------------------------------------------------------------------


def _load(context: Lowering, op: tile.Load) -> None:
    access = _access_of(context, op.tensor, op.indices, op.result.layout, op.inside)
    fill = context.scalar(op.fill) if op.fill is not None else Immediate(0)
    fragment = load_tile(context, access, op.result.tile_type, fill)
    context.values[op.result] = fragment


def _access_of(
    context: Lowering,
    tensor: Value,
    indices: tuple[Value, ...],
    layout: Layout,
    inside: tuple[bool, ...],
    reads: bool = True,
) -> TileAccess:
    return tile_access(context, context.tensor(tensor), [context.scalar(i) for i in indices], layout, inside, reads)


def load_tile(context: Lowering, access: TileAccess, type: TileType, fill: Operand) -> Fragment:
    """The tile in registers, elements outside the tensor replaced by `fill` (a scalar in compute form)."""
    if access.general:
        return _load_wide(context, access, type, fill)
    dwords: list[Operand] = []
    per_dword = max(1, 32 // storage_bits(type.dtype))
    run = max(access.vector, per_dword)
    for first in range(0, access.layout.items, run):
        dwords += _load_run(context, access, first, min(run, access.layout.items - first))
    filled = not (isinstance(fill, Immediate) and fill.value == 0)
    if filled or access.cut is not None:
        return _Cut(context, access, type, dwords, fill, rows=filled)
    return Stored(context.b, type, dwords)


def _load_run(context: Lowering, access: TileAccess, first: int, count: int) -> list[Operand]:
    """Items [first, first + count): one instruction if they are a vector, else one by one into packed dwords."""
    b, size, vector = context.b, access.tensor.element_bytes, access.vector
    bytes_each = vector * size
    if bytes_each >= 4:
        dwords: list[Operand] = []
        for start in range(first, first + count, vector):
            result = b.register("v", bytes_each // 4)
            _buffer(context, access, f"buffer_load_{LOADS[bytes_each]}", start, dst=result)
            dwords += [result[i] for i in range(bytes_each // 4)]
        return dwords
    result = []
    for start in range(first, first + count, 4 // size):
        pieces = list(range(start, min(start + 4 // size, first + count), vector))
        result.append(_assemble_dword(context, access, pieces, bytes_each))
    return result


def _assemble_dword(context: Lowering, access: TileAccess, pieces: list[int], bytes_each: int) -> Ref:
    """One dword from loads of 1 or 2 bytes, each into a register of its own: with ECC on its registers, which this
    hardware has, the d16 forms do not keep the other half (LLVM: d16PreservesUnusedBits)."""
    loaded = []
    for piece in pieces:
        result = context.b.register("v")
        _buffer(context, access, f"buffer_load_{LOADS[bytes_each]}", piece, dst=result)
        loaded.append(result)
    return side_by_side(context.b, loaded, 8 * bytes_each)


def _buffer(
    context: Lowering,
    access: TileAccess,
    op: str,
    item: int,
    dst: Ref | None = None,
    data: Operand | None = None,
    mask: Operand | None = None,
    last: int = 0,
) -> None:
    """One buffer instruction for the vector that starts at `item`. The tile's own offset goes to soffset where no lane
    can start inside and end outside (soffset escapes the range check), else into the lane offset."""
    b = context.b
    buffer, fixed, tile_offset = access.window()
    lanes, scalar, constant = access.lane_offset(item)
    offset = vector_plus(context, lanes, fixed)
    if access.cut is not None:
        offset, tile_offset = vector_plus(context, offset, tile_offset), Immediate(0)
    offset = vector_plus(context, offset, scalar)
    if constant > context.target.buffer_offset_max:
        offset, constant = vector_plus(context, offset, Immediate(constant & ~0xFFF)), constant & 0xFFF
    offset = access.masked(offset, item, last, mask)
    if is_uniform(offset):
        offset = b.pure("v_mov_b32", offset)
    if isinstance(tile_offset, Immediate) and not 0 <= tile_offset.value <= 64:
        tile_offset = b.pure("s_mov_b32", tile_offset, kind="s")
    sources = [offset, buffer, tile_offset]
    b.emit(
        op,
        [dst] if dst is not None else [],
        sources if data is None else [data, *sources],
        offen=True,
        offset=constant,
    )


class _Cut(Stored):
    """A loaded tile in which what lies beyond the contiguous axis' limit (and, with `rows`, what is outside on any
    axis) still has to be replaced by the fill value: done when a dword is first asked for, so that loads in a row
    are all issued first."""

    def __init__(
        self, context: Lowering, access: TileAccess, type: TileType, dwords: list[Operand], fill: Operand, rows: bool
    ):
        super().__init__(context.b, type, dwords)
        self.context, self.access, self.fill, self.rows = context, access, fill, rows
        self.done: set[int] = set()

    def stored(self) -> Stored:
        return Stored(self.builder, self.type, [self.dword(i) for i in range(self.dwords)])

    def dword(self, index: int) -> Operand:
        if index not in self.done:
            self.done.add(index)
            self.refs[index] = self._filled(index)
        return self.refs[index]

    def value(self, item: int) -> Operand:
        for index in range(item * self.bits // 32, max(item * self.bits // 32 + 1, (item + 1) * self.bits // 32)):
            self.dword(index)
        return super().value(item)

    def _filled(self, index: int) -> Operand:
        b, access, contiguous = self.builder, self.access, self.access.tensor.type.contiguous
        first, dword, filler = index * 32 // self.bits, self.refs[index], self._filler(index)
        count = max(1, 32 // self.bits)
        if count > 1 and (contiguous is None or access.layout.vector_width(contiguous) < count):
            for i in range(min(count, self.items - first)):  # items that lie anyhow: each has a mask of its own
                mask = self._inside(first + i)
                if mask is not None:
                    item = b.value("v_cndmask_b32", filler, dword, mask)
                    dword = b.value("v_bfi_b32", ((1 << self.bits) - 1) << i * self.bits, item, dword)
            return dword
        mask = self._inside(first)
        if count > 1 and contiguous is not None and access.limits[contiguous] is not None:
            dword = _keep_items(self.context, access, contiguous, first, self.bits, dword, filler)
            mask = mask if self.rows else None
        return dword if mask is None else b.value("v_cndmask_b32", filler, dword, mask)

    def _inside(self, item: int) -> Operand | None:
        axis = self.access.cut
        return self.access.inside(item) if self.rows or axis is None else self.access.below(axis, item)

    def _filler(self, index: int) -> Operand:
        """The fill value in storage form."""
        if self.bits == 64:
            return half(self.fill, index % 2)
        if self.bits == 32 or isinstance(self.fill, Immediate) and self.fill.value == 0:
            return self.fill
        return packed_fill(self.context, self.type, self.fill, 32 // self.bits)


def packed_fill(context: Lowering, type: TileType, fill: Operand, count: int) -> Operand:
    """A fill value (a scalar in compute form; a flag is 0 or 1) `count` times side by side in a dword."""
    if isinstance(fill, Immediate) and fill.value == 0:
        return fill
    return pack(context.b, dtype("u8") if type.dtype.kind == "bool" else type.dtype, [fill] * count)


def _keep_items(
    context: Lowering, access: TileAccess, axis: int, first: int, bits: int, dword: Operand, filler: Operand
) -> Operand:
    """A packed dword with the items from the limit on replaced: n of them are inside, n * bits low bits are kept."""
    b, per_dword = context.b, 32 // bits
    pair = access.left(axis, first)
    assert pair is not None
    count = b.value("v_med3_i32", b.value("v_sub_u32", *pair), 0, per_dword)
    # shifted twice, since a shift by 32 is one by 0
    step = b.value("v_lshlrev_b32", (bits // 2).bit_length() - 1, count)
    beyond = b.value("v_lshlrev_b32", step, b.value("v_lshlrev_b32", step, 0xFFFFFFFF))
    return b.value("v_bfi_b32", beyond, filler, dword)


# -- tile stores -----------------------------------------------------------------------------------------------------


def _store(context: Lowering, op: tile.Store) -> None:
    layout = op.value.layout
    access = _access_of(context, op.tensor, op.indices, layout, op.inside, reads=False)
    fragment = context.fragment(op.value)
    kept = layout.replication()
    mask = representative_lanes(context, layout)
    if access.general:
        _store_wide(context, access, fragment, kept.items, mask)
        return
    vector, cut = access.vector, access.cut
    firsts = [i for i in kept.items if i % vector == 0]
    runs = {
        first: _store_run(context, access, fragment, first, mask, last=0 if cut is None else vector - 1)
        for first in firsts
    }
    if cut is not None:
        remainder = alu.scalar(context.b, "and", U32, [access.tensor.extents[cut], Immediate(vector - 1)])
        branch = context.b.begin_if([Instruction("s_cmp_lg_u32", (), (remainder, Immediate(0)))])
        for first in firsts:
            _store_elements(context, access, cut, first, runs[first], mask)
        context.b.end_if(branch)


def _store_run(
    context: Lowering, access: TileAccess, fragment: Fragment, first: int, mask: Operand | None, last: int
) -> list[Ref]:
    """Stores the vector from item `first` on; gives its dwords."""
    b, size = context.b, access.tensor.element_bytes
    bytes_each = access.vector * size
    start = first * size // 4
    dwords = [fragment.dword(i) for i in range(start, start + max(1, bytes_each // 4))]
    dwords = [b.vector(d) for d in dwords]
    if bytes_each >= 4:
        _buffer(
            context, access, f"buffer_store_{STORES[bytes_each]}", first, data=joined(b, dwords), mask=mask, last=last
        )
    else:
        _store_part(context, access, first, dwords[0], first * size % 4, bytes_each, mask, last)
    return dwords


def _store_part(
    context: Lowering,
    access: TileAccess,
    item: int,
    dword: Operand,
    byte: int,
    bytes_each: int,
    mask: Operand | None,
    last: int = 0,
) -> None:
    """Stores 1 or 2 bytes out of a dword: the low ones, or by the d16_hi form those from bit 16 on."""
    if byte % 2:
        dword, byte = context.b.value("v_lshrrev_b32", 8, dword), byte - 1
    suffix = "_d16_hi" if byte == 2 else ""
    _buffer(context, access, f"buffer_store_{STORES[bytes_each]}{suffix}", item, data=dword, mask=mask, last=last)


def _store_elements(
    context: Lowering, access: TileAccess, axis: int, first: int, dwords: list[Ref], mask: Operand | None
) -> None:
    """Of a vector that is cut by the limit along `axis`: its elements inside, one by one."""
    size, whole = access.tensor.element_bytes, access.below(axis, first, access.vector - 1)
    assert whole is not None
    partial = both(context, mask, context.b.pure("s_not_b64", whole, kind="s", size=2))
    for i in range(access.vector - 1):
        byte = i * size
        if size >= 4:
            data = joined(context.b, dwords[byte // 4 : byte // 4 + size // 4])
            _buffer(context, access, f"buffer_store_{STORES[size]}", first + i, data=data, mask=partial)
        else:
            _store_part(context, access, first + i, dwords[byte // 4], byte % 4, size, partial)


# -- the general path ------------------------------------------------------------------------------------------------


def _wide_item(context: Lowering, access: TileAccess, item: int) -> Ref:
    coordinates = []
    for axis, origin in enumerate(access.origins):
        own, offset = access.coordinate(axis, item)
        coordinates.append(vector_plus(context, plus(context, origin, Immediate(offset)), own))
    return wide_address(context, access.tensor, coordinates)


def _load_wide(context: Lowering, access: TileAccess, type: TileType, fill: Operand) -> Fragment:
    return _elements(
        context, type, fill, access.tensor, lambda item: (_wide_item(context, access, item), access.inside(item))
    )


def _elements(
    context: Lowering,
    type: TileType,
    fill: Operand,
    tensor: TensorRef,
    where: Callable[[int], tuple[Ref, Operand | None]],
) -> Fragment:
    """Loads a tile element by element from 64-bit addresses, under EXEC; `where` gives an item's address and mask."""
    b, size, bits = context.b, tensor.element_bytes, storage_bits(type.dtype)
    assert type.layout is not None
    values: list[Ref] = []
    for item in range(type.layout.items):
        address, mask = where(item)
        result = b.register("v", max(1, size // 4))
        filler = fill if bits >= 32 else packed_fill(context, type, fill, 1)
        for i in range(result.size):
            b.emit("v_mov_b32", [result[i]], [half(filler, i) if result.size > 1 else filler])

        def load(result: Ref = result, address: Ref = address, mask: Operand | None = mask) -> None:
            keep = () if mask is None else (result,)
            b.emit(f"global_load_{LOADS[size]}", [result], [address, *keep])

        under_mask(context, mask, load)
        values.append(result)
    if bits >= 32:
        return Stored(b, type, [v[i] for v in values for i in range(v.size)])
    per_dword = 32 // bits
    raw = [values[i : i + per_dword] for i in range(0, len(values), per_dword)]
    return Stored(b, type, [side_by_side(b, group, bits) for group in raw])


def _raw_item(context: Lowering, fragment: Fragment, item: int) -> Operand:
    """An item's bits in the low end of a VGPR (pair), as stores want them."""
    b, bits = context.b, fragment.bits
    if bits == 64:
        return joined(b, [b.vector(fragment.dword(i)) for i in (2 * item, 2 * item + 1)])
    per_dword = 32 // bits
    dword = b.vector(fragment.dword(item // per_dword))
    return b.value("v_lshrrev_b32", item % per_dword * bits, dword) if item % per_dword else dword


def _store_wide(
    context: Lowering, access: TileAccess, fragment: Fragment, items: tuple[int, ...], mask: Operand | None
) -> None:
    size = access.tensor.element_bytes
    for item in items:
        address, data = _wide_item(context, access, item), _raw_item(context, fragment, item)
        under_mask(
            context,
            both(context, access.inside(item), mask),
            partial(context.b.emit, f"global_store_{STORES[size]}", [], [address, data]),
        )


# -- element by element ----------------------------------------------------------------------------------------------


def _indexed(
    context: Lowering, tensor: TensorRef, indices: list[Fragment], item: int
) -> tuple[list[Operand], Operand | None]:
    """An item's coordinates and the mask of lanes where all are inside (compared unsigned: negative ones are not)."""
    coordinates = [f.value(item) for f in indices]
    mask: Operand | None = None
    for coordinate, extent in zip(coordinates, tensor.extents):
        mask = both(context, mask, context.b.value("v_cmp_gt_u32", extent, coordinate, kind="s", size=2))
    return coordinates, mask


def _place(context: Lowering, tensor: TensorRef, coordinates: list[Operand], mask: Operand | None) -> Ref:
    """Address of an element; lanes outside get the tensor's base (they are masked)."""
    kept = [c if mask is None else context.b.value("v_cndmask_b32", 0, c, mask) for c in coordinates]
    return wide_address(context, tensor, kept)


def _gather(context: Lowering, op: tile.Gather) -> None:
    tensor, type = context.tensor(op.tensor), op.result.tile_type
    indices = [context.fragment(i) for i in op.indices]
    fill = context.scalar(op.fill) if op.fill is not None else Immediate(0)

    def where(item: int) -> tuple[Ref, Operand | None]:
        coordinates, mask = _indexed(context, tensor, indices, item)
        return _place(context, tensor, coordinates, mask), mask

    if tensor.type.wide or not (isinstance(fill, Immediate) and fill.value == 0) or storage_bits(type.dtype) < 32:
        context.values[op.result] = _elements(context, type, fill, tensor, where)
        return
    dwords: list[Operand] = []
    for item in range(op.result.layout.items):
        coordinates, mask = _indexed(context, tensor, indices, item)
        result = context.b.register("v", tensor.element_bytes // 4)
        context.b.emit(
            f"buffer_load_{LOADS[tensor.element_bytes]}",
            [result],
            [_offset(context, tensor, coordinates, mask), descriptor(context, tensor), 0],
            offen=True,
        )
        dwords += [result[i] for i in range(result.size)]
    context.values[op.result] = Stored(context.b, type, dwords)


def _offset(context: Lowering, tensor: TensorRef, coordinates: Sequence[Operand], mask: Operand | None) -> Operand:
    total: Operand = Immediate(0)
    for coordinate, stride in zip(coordinates, tensor.strides):
        total = vector_plus(context, total, vector_times(context, coordinate, half(stride, 0)))
    return masked_offset(context, total, mask)


def _scatter(context: Lowering, op: tile.Scatter) -> None:
    b, tensor, fragment = context.b, context.tensor(op.tensor), context.fragment(op.value)
    indices = [context.fragment(i) for i in op.indices]
    kept, lanes = op.value.layout.replication(), representative_lanes(context, op.value.layout)
    for item in kept.items:
        coordinates, mask = _indexed(context, tensor, indices, item)
        mask = both(context, mask, lanes)
        data = _raw_item(context, fragment, item)
        width = STORES[tensor.element_bytes]
        if tensor.type.wide:
            address = _place(context, tensor, coordinates, mask)
            under_mask(context, mask, partial(b.emit, f"global_store_{width}", [], [address, data]))
        else:
            offset = _offset(context, tensor, coordinates, mask)
            b.emit(f"buffer_store_{width}", [], [data, offset, descriptor(context, tensor), 0], offen=True)


_ATOMIC_ADDS = {"i32": "add", "u32": "add", "f32": "add_f32", "i64": "add_x2", "u64": "add_x2", "f64": "add_f64"}


def _atomic_add(context: Lowering, op: tile.AtomicAdd) -> None:
    """Buffer atomics out of range fault on gfx950 (docs/isa-notes.md, global memory): EXEC masks them instead."""
    b, tensor, fragment = context.b, context.tensor(op.tensor), context.fragment(op.value)
    element = op.value.dtype
    if element.name not in _ATOMIC_ADDS:
        raise TilecError(
            f"atomic add of {element} is not supported",
            where=op.where,
            limit=f"supported: {', '.join(_ATOMIC_ADDS)}",
            fix="accumulate in f32 or i32",
        )
    indices = [context.fragment(i) for i in op.indices]
    kept, lanes = op.value.layout.replication(), representative_lanes(context, op.value.layout)
    for item in kept.items:
        coordinates, mask = _indexed(context, tensor, indices, item)
        mask = both(context, mask, lanes)
        address, data = _place(context, tensor, coordinates, mask), _raw_item(context, fragment, item)
        under_mask(context, mask, partial(b.emit, f"global_atomic_{_ATOMIC_ADDS[element.name]}", [], [address, data]))


def _load_scalar(context: Lowering, op: tile.LoadScalar) -> None:
    """One element through the vector path (any size and alignment, and in order with this kernel's own stores), read
    back."""
    b, tensor = context.b, context.tensor(op.tensor)
    coordinates = [context.scalar(i) for i in op.indices]
    inside: Operand = Immediate(1)
    for coordinate, extent in zip(coordinates, tensor.extents):
        this = alu.scalar(b, "lt", U32, [coordinate, extent])
        inside = this if isinstance(inside, Immediate) else b.pure("s_and_b32", inside, this, kind="s")
    lanes = flag_mask(b, inside)
    size, element = tensor.element_bytes, op.result.dtype
    result = b.register("v", max(1, size // 4))
    if tensor.type.wide:
        for i in range(result.size):
            b.emit("v_mov_b32", [result[i]], [0])
        address = wide_address(context, tensor, [times(context, c, inside) for c in coordinates])
        under_mask(context, lanes, partial(b.emit, f"global_load_{LOADS[size]}", [result], [address, result]))
    else:
        offset = _offset(context, tensor, coordinates, lanes)
        b.emit(f"buffer_load_{LOADS[size]}", [result], [offset, descriptor(context, tensor), 0], offen=True)
    raw = result if size >= 4 or element.name == "bool" else unpack(b, element, result, 0)
    context.values[op.result] = alu.uniform(b, raw)


RULES: dict[type[Op], Callable] = {
    tile.ProgramId: _program_id,
    tile.Dim: _dim,
    tile.View: _view,
    tile.Load: _load,
    tile.Store: _store,
    tile.Gather: _gather,
    tile.Scatter: _scatter,
    tile.AtomicAdd: _atomic_add,
    tile.LoadScalar: _load_scalar,
    **lower_lds.RULES,
}
