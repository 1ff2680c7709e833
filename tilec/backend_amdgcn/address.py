"""Where the elements of a tile lie in global memory: descriptors, lane offsets, bounds.

A tensor that is not wide spans less than 2 GiB, so every byte offset from its base fits in 31 bits: one buffer
descriptor, built once, with the exact number of bytes; lane offsets are 32-bit VGPRs, the tile's own offset a scalar.
Lanes outside the bounds get offset OUTSIDE, which the range check turns into a zero (loads) or nothing (stores); it is
compared per dword, so that a vector that starts inside and ends beyond the tensor reads zeros there (docs/isa-notes.md,
global memory). Of a wide tensor each tile has a descriptor of its own, its base in 64 bits per workgroup. Where even
the offsets within a tile may not fit, there is the general path: a 64-bit address per lane, and EXEC narrowed to the
lanes inside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilec.backend_amdgcn.integer_math import add64, multiply64, multiply_wide, widen
from tilec.backend_amdgcn.lowering import Lowering, TensorRef
from tilec.backend_amdgcn.operands import half
from tilec.ir.layout import Layout
from tilec.ir.machine import Immediate, Operand, Ref, registers

OUTSIDE = 0xC0000000  # beyond every buffer, and adding an immediate does not wrap
MOST_RECORDS = 0x80000000
# dword 3 of a raw buffer descriptor: data format must not be 0 (docs/isa-notes.md, global memory)
DESCRIPTOR_FORMAT = 0x00027000


def times(context: Lowering, x: Operand, y: Operand) -> Operand:
    """32-bit scalar product, folded where it can be."""
    for a, b in ((x, y), (y, x)):
        if isinstance(a, Immediate):
            if a.value == 0 or isinstance(b, Immediate):
                return Immediate(a.value * (b.value if isinstance(b, Immediate) else 0) & 0xFFFFFFFF)
            if a.value == 1:
                return b
            if a.value & (a.value - 1) == 0:
                return context.b.pure("s_lshl_b32", b, a.value.bit_length() - 1, kind="s")
    return context.b.pure("s_mul_i32", x, y, kind="s")


def plus(context: Lowering, x: Operand, y: Operand) -> Operand:
    """32-bit scalar sum, folded where it can be."""
    if isinstance(x, Immediate) and isinstance(y, Immediate):
        return Immediate(x.value + y.value & 0xFFFFFFFF)
    if isinstance(x, Immediate):
        x, y = y, x
    return x if isinstance(y, Immediate) and y.value == 0 else context.b.pure("s_add_i32", x, y, kind="s")


def minus(context: Lowering, x: Operand, y: Operand) -> Operand:
    if isinstance(x, Immediate) and isinstance(y, Immediate):
        return Immediate(x.value - y.value & 0xFFFFFFFF)
    return x if isinstance(y, Immediate) and y.value == 0 else context.b.pure("s_sub_i32", x, y, kind="s")


def vector_plus(context: Lowering, x: Operand, y: Operand) -> Operand:
    """Sum of lane offsets, either of which may be uniform."""
    for a, b in ((x, y), (y, x)):
        if isinstance(a, Immediate) and a.value == 0:
            return b
    if is_uniform(x) and is_uniform(y):
        return plus(context, x, y)
    return context.b.pure("v_add_u32", x, y)


def is_uniform(operand: Operand) -> bool:
    return isinstance(operand, Immediate) or registers(operand).kind == "s"


def vector_times(context: Lowering, coordinate: Operand, stride: Operand) -> Operand:
    """A coordinate times a stride of less than 2**31 bytes."""
    if is_uniform(coordinate):
        return times(context, coordinate, stride)
    if isinstance(stride, Immediate) and stride.value & (stride.value - 1) == 0:
        shift = stride.value.bit_length() - 1
        return context.b.pure("v_lshlrev_b32", shift, coordinate) if shift else coordinate
    return context.b.pure("v_mul_lo_u32", coordinate, stride)


def product64(context: Lowering, x: Operand, stride: Operand) -> Ref:
    """A non-negative 32-bit scalar times a stride, in 64 bits."""
    if isinstance(stride, Immediate):
        stride = context.b.pair(stride.value, 0)
    return multiply64(context.b, widen(context.b, x, signed=True), stride)


def descriptor(context: Lowering, tensor: TensorRef) -> Ref:
    """The raw buffer descriptor of a tensor that is not wide: base, and exactly the bytes from there to its last
    element's dword."""
    b = context.b
    span: Operand = Immediate(tensor.element_bytes)
    empty: Operand | None = None
    for stride, extent in zip(tensor.strides, tensor.extents):
        span = plus(context, span, times(context, plus(context, extent, Immediate(0xFFFFFFFF)), half(stride, 0)))
        smallest = extent if empty is None else b.pure("s_min_i32", empty, extent, kind="s")
        empty = smallest
    if tensor.type.alignment >= 4:  # whole dwords are read: the one that holds the last byte counts as inside
        span = b.pure("s_and_b32", plus(context, span, Immediate(3)), 0xFFFFFFFC, kind="s")
    if empty is not None:
        span = b.pure_sequence(
            [("s_cmp_gt_i32", (empty, Immediate(0)), {"dst": None}), ("s_cselect_b32", (span, 0), {})], kind="s"
        )
    return _records(context, tensor.base, span)


def _tile_descriptor(context: Lowering, tensor: TensorRef, origins: tuple[Operand, ...]) -> Ref:
    """A descriptor whose base is a tile's origin in a wide tensor; it ends with the tensor or just below 2 GiB."""
    b = context.b
    start: Ref | None = None
    left: Ref = b.pair(tensor.element_bytes + (3 if tensor.type.alignment >= 4 else 0), 0)
    for stride, extent, origin in zip(tensor.strides, tensor.extents, origins):
        part = product64(context, origin, stride)
        start = part if start is None else add64(b, start, part)
        rows = minus(context, minus(context, extent, origin), Immediate(1))
        left = add64(b, left, product64(context, rows, stride))
    base = tensor.base if start is None else add64(b, tensor.base, start)
    size = b.pure_sequence(
        [("s_cmp_lg_u32", (left[1], Immediate(0)), {"dst": None}), ("s_cselect_b32", (MOST_RECORDS, left[0]), {})],
        kind="s",
    )
    size = b.pure("s_min_u32", size, MOST_RECORDS, kind="s")
    return _records(
        context, base, b.pure("s_and_b32", size, 0xFFFFFFFC, kind="s") if tensor.type.alignment >= 4 else size
    )


def moved_back(context: Lowering, buffer: Ref, distance: int) -> Ref:
    """A descriptor that begins `distance` bytes earlier and ends at the same place."""
    b = context.b
    return b.pure_sequence(
        [
            ("s_sub_u32", (buffer[0], distance), {"dst": 0}),
            ("s_subb_u32", (buffer[1], 0), {"dst": 1}),
            ("s_add_u32", (buffer[2], distance), {"dst": 2}),
            ("s_mov_b32", (buffer[3],), {"dst": 3}),
        ],
        kind="s",
        size=4,
        name="descriptor",
    )


def _records(context: Lowering, base: Ref, size: Operand) -> Ref:
    return context.b.pure_sequence(
        [
            ("s_mov_b32", (base[0],), {"dst": 0}),
            ("s_and_b32", (base[1], 0xFFFF), {"dst": 1}),
            ("s_mov_b32", (size,), {"dst": 2}),
            ("s_mov_b32", (DESCRIPTOR_FORMAT,), {"dst": 3}),
        ],
        kind="s",
        size=4,
        name="descriptor",
    )


@dataclass(frozen=True, eq=False)
class TileAccess:
    """One tile of a tensor in a register layout: its tile indices, its origin (their products with the tile's sizes),
    lane coordinates, and how far each axis goes from there.

    `limits[d]`: coordinates along axis d below it are inside (None: all are)."""

    context: Lowering
    tensor: TensorRef
    layout: Layout
    indices: tuple[Operand, ...]
    limits: tuple[Operand | None, ...]
    reads: bool = True

    @property
    def origins(self) -> tuple[Operand, ...]:
        return tuple(
            times(self.context, index, Immediate(size)) for index, size in zip(self.indices, self.layout.shape)
        )

    @property
    def vector(self) -> int:
        """Items that one memory instruction moves: consecutive along the contiguous axis, at most 16 bytes, as aligned
        as the class of the tensor says."""
        type = self.tensor.type
        if type.contiguous is None or self.reads and self.tensor.written and self.limits[type.contiguous] is not None:
            return 1
        most = 16 if type.alignment >= 4 else max(type.alignment, self.tensor.element_bytes)
        return min(self.layout.vector_width(type.contiguous), max(1, most // self.tensor.element_bytes))

    @property
    def cut(self) -> int | None:
        """The axis along which the bounds may cut a vector in two; None where they can't."""
        axis = self.tensor.type.contiguous
        return axis if axis is not None and self.limits[axis] is not None and self.vector > 1 else None

    def coordinate(self, axis: int, item: int = 0) -> tuple[Operand, int]:
        """Coordinate of an item along an axis: what lanes and waves make of it, and a constant to add. Where an item's
        bits meet a lane's (a swizzled copy), the item goes into the first part."""
        own = self.context.coordinate(self.layout, axis)
        offset = self.layout.item_offset(item)[axis]
        if self.layout.additive or offset == 0:
            return own, offset
        if isinstance(own, Immediate):
            return Immediate(own.value ^ offset), 0
        kind = registers(own).kind
        return self.context.b.pure("s_xor_b32" if kind == "s" else "v_xor_b32", offset, own, kind=kind), 0

    def lane_offset(self, item: int) -> tuple[Operand, Operand, int]:
        """Byte offset of an item from the tile's origin: a lane's part, a scalar part, a constant part."""
        lanes: Operand = Immediate(0)
        scalar: Operand = Immediate(0)
        constant = 0
        for axis, stride in enumerate(self.tensor.strides):
            own, offset = self.coordinate(axis, item)
            lanes = vector_plus(self.context, lanes, vector_times(self.context, own, half(stride, 0)))
            if isinstance(stride, Immediate):
                constant += offset * stride.value
            else:
                scalar = plus(self.context, scalar, times(self.context, Immediate(offset), half(stride, 0)))
        return lanes, scalar, constant

    def tile_offset(self) -> tuple[Operand, Operand]:
        """Byte offset of the tile's origin from the tensor's base as two scalars: what was known before the loop around
        this access, and what changes in it."""
        fixed: Operand = Immediate(0)
        varying: Operand = Immediate(0)
        for index, size, stride in zip(self.indices, self.layout.shape, self.tensor.strides):
            part = times(self.context, index, times(self.context, Immediate(size), half(stride, 0)))
            if self.context.b.level_of(part) < self.context.b.level:
                fixed = plus(self.context, fixed, part)
            else:
                varying = plus(self.context, varying, part)
        return fixed, varying

    @property
    def general(self) -> bool:
        """Whether the tile needs 64-bit addresses per lane."""
        return not self.tensor.type.offsets_fit(self.layout.shape)

    def window(self) -> tuple[Ref, Operand, Operand]:
        """The buffer descriptor for this tile, and the tile's byte offset from its base: what belongs in the lane
        offset (it does not change in the loop around), and what belongs in the scalar offset."""
        if not self.tensor.type.wide:
            return descriptor(self.context, self.tensor), *self.tile_offset()
        return _tile_descriptor(self.context, self.tensor, self.origins), Immediate(0), Immediate(0)

    def left(self, axis: int, item: int, extra: int = 0) -> tuple[Operand, Operand] | None:
        """An item moved by `extra` is inside along an axis where the first of these is greater than the second; None:
        all are."""
        limit = self.limits[axis]
        if limit is None:
            return None
        own, offset = self.coordinate(axis, item)
        return minus(self.context, limit, Immediate(offset + extra)), own

    def below(self, axis: int, item: int, extra: int = 0) -> Operand | None:
        """Mask of lanes whose item, moved by `extra`, is inside along an axis; None when all are."""
        pair = self.left(axis, item, extra)
        return None if pair is None else self.context.b.pure("v_cmp_gt_i32", *pair, kind="s", size=2)

    def masked(self, offset: Operand, item: int, last: int = 0, mask: Operand | None = None) -> Operand:
        """A lane offset that lies outside of every buffer where the vector from `item` on is outside (or `mask` is
        clear). Axes whose limits do not change in a loop come first, so that what they do is done before it."""
        level = self.context.b.level_of
        limited = [(axis, limit) for axis, limit in enumerate(self.limits) if limit is not None]
        offset = masked_offset(self.context, offset, mask)
        for axis, _ in sorted(limited, key=lambda pair: level(pair[1])):
            extra = last if axis == self.tensor.type.contiguous else 0
            offset = masked_offset(self.context, offset, self.below(axis, item, extra))
        return offset

    def inside(self, item: int, last: int = 0) -> Operand | None:
        """Mask of lanes for which the vector from `item` to `item + last` along the contiguous axis is inside on every
        axis."""
        mask: Operand | None = None
        for axis in range(len(self.limits)):
            extra = last if axis == self.tensor.type.contiguous else 0
            mask = both(self.context, mask, self.below(axis, item, extra))
        return mask


def both(context: Lowering, x: Operand | None, y: Operand | None) -> Operand | None:
    """Lanes in both masks; None stands for all lanes."""
    if x is None or y is None:
        return y if x is None else x
    return context.b.pure("s_and_b64", x, y, kind="s", size=2)


def tile_access(
    context: Lowering,
    tensor: TensorRef,
    indices: list[Operand],
    layout: Layout,
    inside: tuple[bool, ...],
    reads: bool = True,
) -> TileAccess:
    """The access of the tile at tile index `indices`. An index far outside is cut to just outside, so that products
    fit."""
    b = context.b
    kept, limits = [], []
    for axis, (index, size, extent) in enumerate(zip(indices, layout.shape, tensor.extents)):
        if inside and inside[axis]:
            kept.append(index)
            limits.append(None)
            continue
        if isinstance(index, Immediate):
            signed = index.value - (1 << 32) if index.value & 0x80000000 else index.value
            index = Immediate(max(-1, min(signed, (1 << 31) // size - 1)) & 0xFFFFFFFF)
        else:
            most = b.pure("s_lshr_b32", extent, size.bit_length() - 1, kind="s")
            index = b.pure("s_min_i32", index, plus(context, most, Immediate(1)), kind="s")
        origin = times(context, index, Immediate(size))
        limit = minus(context, extent, origin)
        if isinstance(index, Immediate):
            limit = Immediate(0) if index.value & 0x80000000 else limit
        else:
            limit = b.pure_sequence(
                [("s_cmp_lt_i32", (index, Immediate(0)), {"dst": None}), ("s_cselect_b32", (0, limit), {})], kind="s"
            )
        kept.append(index)
        limits.append(limit)
    return TileAccess(context, tensor, layout, tuple(kept), tuple(limits), reads)


def masked_offset(context: Lowering, offset: Operand, mask: Operand | None) -> Operand:
    """The lane offset where the mask is set, an offset outside every buffer elsewhere."""
    if mask is None:
        return offset
    outside = context.b.pure("v_mov_b32", OUTSIDE, name="outside")
    if is_uniform(offset):
        offset = context.b.pure("v_mov_b32", offset)
    return context.b.pure("v_cndmask_b32", outside, offset, mask)


def wide_address(context: Lowering, tensor: TensorRef, coordinates: Sequence[Operand]) -> Ref:
    """64-bit address per lane of the element at `coordinates` (non-negative, VGPR or uniform) of a wide tensor."""
    b = context.b
    address = tensor.base
    for coordinate, stride in zip(coordinates, tensor.strides):
        step = b.pair(stride.value, 0) if isinstance(stride, Immediate) else registers(stride)
        result = multiply_wide(b, coordinate, step[0], address)
        high = b.value("v_mul_lo_u32", coordinate, step[1])
        address = b.register("v", 2)
        b.emit("v_mov_b32", [address[0]], [result[0]])
        b.emit("v_add_u32", [address[1]], [result[1], high])
    return b.vector(address)


def representative_lanes(context: Lowering, layout: Layout) -> Operand | None:
    """Mask of the lanes and waves that act for all that hold the same elements; None when all do."""
    b, kept = context.b, layout.replication()
    mask: Operand | None = None
    if kept.lane_mask:
        lanes = kept.lanes(context.target.wave_size)
        mask = b.pair(lanes & 0xFFFFFFFF, lanes >> 32)
    if len(kept.waves) < layout.waves:
        chosen = sum(1 << wave for wave in kept.waves)
        bit = b.pure("s_lshr_b32", chosen, context.wave, kind="s")
        mine = b.pure_sequence([("s_and_b32", (bit, 1), {"dst": 0}), ("s_cselect_b64", (-1, 0), {})], kind="s", size=2)
        mask = both(context, mask, mine)
    return mask


def under_mask(context: Lowering, mask: Operand | None, emit: Callable[[], None]) -> None:
    """Runs `emit` (which must emit nothing but memory instructions) with EXEC narrowed to a mask."""
    if mask is not None:
        context.b.emit("s_mov_exec", [], [mask])
    emit()
    if mask is not None:
        context.b.emit("s_mov_exec", [], [0xFFFFFFFFFFFFFFFF])
