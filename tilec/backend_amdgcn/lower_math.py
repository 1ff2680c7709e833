"""Lowering of what computes on registers: constants, elementwise ops, casts, broadcasts, reductions, moves within a
wave.

Elementwise results are bound as functions of the item (lowering.bind decides when they are computed). A reduction
combines items, then lanes (DPP inside quads, ds_swizzle inside 32 lanes, bpermute or a half-wave swap across), then
waves through LDS.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from tilec.backend_amdgcn import alu
from tilec.backend_amdgcn.address import is_uniform
from tilec.backend_amdgcn.fragment import Fragment, Lazy, Packed, Paired, Stored, moved, pack, round_pair, unpack
from tilec.backend_amdgcn.integer_math import f64_to_integer, integer_to_f32, integer_to_f64, widen
from tilec.backend_amdgcn.lowering import Lowering
from tilec.backend_amdgcn.operands import flag_mask, half, select, select_mask
from tilec.dtypes import DType
from tilec.dtypes import dtype as dtype_of
from tilec.errors import InternalError, TilecError
from tilec.ir import tile
from tilec.ir.conversion import conversion, matching_items, reduction
from tilec.ir.core import Op, ScalarType, TileType, Value
from tilec.ir.machine import Immediate, Operand, Ref

# -- leaves ----------------------------------------------------------------------------------------------------------


def _constant(context: Lowering, op: tile.Constant) -> None:
    b, dtype = context.b, op.result.dtype
    bits = alu.bits_of(op.value, dtype)
    if isinstance(op.result.type, ScalarType):
        context.values[op.result] = b.pair(bits & 0xFFFFFFFF, bits >> 32) if dtype.bits == 64 else Immediate(bits)
    else:
        context.bind(op.result, lambda item: _uniform_item(context, dtype, Immediate(bits)), cheap=True)


def _uniform_item(context: Lowering, dtype: DType, scalar: Operand) -> Operand:
    """A scalar as an item in compute form: bools become masks."""
    b = context.b
    if dtype.name == "bool":
        return flag_mask(b, scalar)
    if dtype.bits == 64 and isinstance(scalar, Immediate):
        return b.pair(scalar.value & 0xFFFFFFFF, scalar.value >> 32)
    return scalar


def _iota(context: Lowering, op: tile.Iota) -> None:
    layout = op.result.layout
    if not layout.additive:
        raise InternalError(f"iota in a layout that is not additive: {layout}", where=op.where)
    base = context.coordinate(layout, op.axis)

    def item(index: int) -> Operand:
        offset = layout.item_offset(index)[op.axis]
        return add_constant(context, base, offset)

    context.bind(op.result, item, cheap=True)


def add_constant(context: Lowering, base: Operand, offset: int) -> Operand:
    if isinstance(base, Immediate):
        return Immediate(base.value + offset)
    if offset == 0:
        return base
    if is_uniform(base):
        return context.b.pure("s_add_i32", base, offset, kind="s")
    return context.b.value("v_add_u32", offset, base)


# -- elementwise -----------------------------------------------------------------------------------------------------


def _elementwise(context: Lowering, op: tile.Elementwise) -> None:
    b, function = context.b, op.function
    data = op.arguments[-1]
    dtype = data.dtype
    if isinstance(op.result.type, ScalarType):
        context.values[op.result] = alu.scalar(b, function, dtype, [context.scalar(a) for a in op.arguments])
        return
    fragments = [context.fragment(a) for a in op.arguments]
    where, name = op.where, op.result.name

    def item(index: int) -> Operand:
        arguments = [f.value(index) for f in fragments]
        b.where, b.name = where, name
        if function == "where" and dtype.name == "bool":
            return select_mask(b, *arguments)
        return alu.vector(b, function, dtype, arguments)

    def pair(index: int) -> Ref:
        if alu.comes_in_pairs(function, dtype):
            arguments = [f.pair(index) for f in fragments]
            b.where, b.name = where, name
            return alu.pair(b, function, arguments)
        halves = [[f.value(item) for f in fragments] for item in (2 * index, 2 * index + 1)]
        b.where, b.name = where, name
        return alu.fill_pair(b, function, halves)

    wanted = alu.fills_pairs(function, dtype) and _wanted_in_pairs(context, op.result)
    if (wanted or alu.comes_in_pairs(function, dtype)) and op.result.layout.items % 2 == 0:
        context.bind(op.result, pair, of=Paired)
    else:
        _bind_rounded(context, op.result, item, wraps=function in _CAN_LEAVE_RANGE)


def _wanted_in_pairs(context: Lowering, value: Value) -> bool:
    """Whether an op reads the items of a tile two at a time."""
    return any(
        isinstance(reader, tile.Elementwise) and alu.comes_in_pairs(reader.function, value.dtype)
        or isinstance(reader, tile.Reduce) and reader.kind == "sum"
        for reader, _ in context.readers.get(value, []))


_CAN_LEAVE_RANGE = ("add", "sub", "mul", "neg", "shl", "fma", "not", "abs", "floordiv")


def _bind_rounded(context: Lowering, result: Value, item: Callable[[int], Operand], wraps: bool = True) -> None:
    """Binds items that were computed wider than the result's type: 16-bit floats are rounded in pairs, small integers
    wrapped."""
    dtype = result.dtype
    if dtype.name == "bool" or dtype.bits >= 32 or not (dtype.is_float or wraps):
        context.bind(result, item)
        return
    per_dword, total = 32 // dtype.bits, result.layout.items
    b = context.b

    def dword(index: int) -> Operand:
        items = [item(i) for i in range(index * per_dword, min((index + 1) * per_dword, total))]
        if dtype.is_float:
            return round_pair(b, dtype, items)
        return pack(b, dtype, items)

    context.bind(result, dword, of=Packed)


def _cast(context: Lowering, op: tile.Cast) -> None:
    b, source, target = context.b, op.source.dtype, op.result.dtype
    for dtype in (source, target):
        if dtype.is_float and dtype.bits < 16 or dtype.bits < 8:
            raise TilecError(f"casts of {dtype} are not supported yet", where=op.where, fix="use bf16, f16 or f32")
    if isinstance(op.result.type, ScalarType):
        context.values[op.result] = _cast_scalar(context, op, source, target)
        return
    fragment, where, name = context.fragment(op.source), op.where, op.result.name

    def item(index: int) -> Operand:
        value = fragment.value(index)
        b.where, b.name = where, name
        return cast_item(context, source, target, value, op.saturate)

    _bind_rounded(context, op.result, item)


def _cast_scalar(context: Lowering, op: tile.Cast, source: DType, target: DType) -> Operand:
    b, value = context.b, context.scalar(op.source)
    kinds = alu.element_class(source), alu.element_class(target)
    if kinds[0] in ("i32", "u32") and kinds[1] in ("i64", "u64"):
        return widen(b, value, signed=source.kind == "int")
    if kinds[0] in ("i64", "u64") and kinds[1] in ("i32", "u32") and target.bits == 32:
        return half(value, 0)
    if kinds[0] in ("i32", "u32", "bool") and kinds[1] in ("i32", "u32") and target.bits == 32:
        return value
    if target.kind == "bool" and source.kind != "bool":
        zero = b.pair(0, 0) if source.bits == 64 else Immediate(0)
        return alu.scalar(b, "ne", source, [value, zero])
    if source.kind == "bool":
        value = _uniform_item(context, source, value)
    result = cast_item(context, source, target, value, op.saturate)
    if target.is_float and target.bits == 16:
        result = unpack(b, target, round_pair(b, target, [result]), 0)
    return alu.uniform(b, result, target if target.is_integer and target.bits < 32 else None)


def cast_item(context: Lowering, source: DType, target: DType, value: Operand, saturate: bool = False) -> Operand:
    """One item from compute form to compute form; rounding to 16 bits and wrapping follow when it is packed."""
    b = context.b
    have, want = alu.element_class(source), alu.element_class(target)
    if want == "bool":
        return (
            value
            if have == "bool"
            else alu.vector(b, "ne", source, [b.pair(0, 0) if have[1:] == "64" else Immediate(0), value])
        )
    if have == "bool":
        one = {
            "f32": Immediate(0x3F800000),
            "f64": b.pair(0, 0x3FF00000),
            "i64": b.pair(1, 0),
            "u64": b.pair(1, 0),
        }.get(want, Immediate(1))
        return select(b, value, one, b.pair(0, 0) if want[1:] == "64" else Immediate(0))
    if have[0] in "iu" and want[0] in "iu":
        if have[1:] == want[1:]:
            return value
        if want[1:] == "32":
            return half(value, 0)
        return _wide_vector(context, value, b.value("v_ashrrev_i32", 31, value) if have == "i32" else Immediate(0))
    if have == want:
        return _saturate(context, target, value) if saturate and target.bits < source.bits else value
    if have == "f32" and want == "f64":
        return b.value("v_cvt_f64_f32", value, size=2)
    if have == "f64" and want == "f32":
        narrow = b.value("v_cvt_f32_f64", value)
        return _saturate(context, target, narrow) if saturate else narrow
    if want == "f32" and have in ("i32", "u32"):
        return b.value(f"v_cvt_f32_{have}", value)
    if want == "f64" and have in ("i32", "u32"):
        return b.value(f"v_cvt_f64_{have}", value, size=2)
    if have in ("f32", "f64") and want in ("i32", "u32"):
        whole = b.value(f"v_cvt_{want}_{have}", value)
        return _clamp(context, target, whole)
    if have[1:] == "64" and want == "f64":
        return integer_to_f64(b, source, value)
    if have[1:] == "64" and want == "f32":
        return integer_to_f32(b, source, value)
    if want[1:] == "64" and have in ("f32", "f64"):
        wide = value if have == "f64" else b.value("v_cvt_f64_f32", value, size=2)
        return f64_to_integer(b, target, wide)
    raise TilecError(
        f"a cast from {source} to {target} is not supported",
        where=b.where,
        fix="go through f64 and i32, or keep the value in 32 bits",
    )


def _wide_vector(context: Lowering, low: Operand, high: Operand) -> Ref:
    result = context.b.register("v", 2)
    context.b.emit("v_mov_b32", [result[0]], [low])
    context.b.emit("v_mov_b32", [result[1]], [high])
    return result


def _clamp(context: Lowering, target: DType, value: Operand) -> Operand:
    """A converted 32-bit integer to the range of a smaller type."""
    if target.bits == 32:
        return value
    low, high = (int(v) for v in target.limits)
    if target.kind == "uint":
        return context.b.value("v_min_u32", high, value)
    return context.b.value("v_max_i32", low & 0xFFFFFFFF, context.b.value("v_min_i32", high, value))


def _saturate(context: Lowering, target: DType, value: Operand) -> Operand:
    """A finite f32 beyond the largest finite value of a 16-bit float becomes that one; infinities and NaN stay."""
    b = context.b
    high = alu.bits_of(float(target.limits[1]), dtype_of("f32"))
    limited = b.value("v_med3_f32", value, high, high | 0x80000000)
    size = b.value("v_and_b32", 0x7FFFFFFF, value)
    finite = b.value("v_cmp_gt_u32", 0x7F800000, size, kind="s", size=2)
    return b.value("v_cndmask_b32", value, limited, finite)


# -- shapes ----------------------------------------------------------------------------------------------------------


def _broadcast(context: Lowering, op: tile.Broadcast) -> None:
    result = op.result
    if isinstance(op.source.type, ScalarType):
        scalar = context.scalar(op.source)
        context.bind(result, lambda item: _uniform_item(context, result.dtype, scalar), cheap=True)
        return
    items = matching_items(result.layout, op.source.layout)
    if items is None:
        raise InternalError(f"broadcast of %{op.source.name} needs data from other lanes", where=op.where)
    source = context.fragment(op.source)
    if not isinstance(source, Stored) and source.items < len(items) and result.dtype.name != "bool":
        source = context.values[op.source] = source.stored()
    context.bind(result, lambda item: source.value(items[item]), cheap=True)


def _relabel(context: Lowering, op: tile.ExpandDims | tile.Permute) -> None:
    """The same registers under other coordinates. Items may be numbered in another order in the result's layout."""
    context.values[op.result] = _rebound(context, context.fragment(op.source), op.result.tile_type)


def _rebound(context: Lowering, source: Fragment, type: TileType) -> Fragment:
    if isinstance(source, Stored):
        return Stored(context.b, type, source.stored().refs)
    return Packed(context.b, type, source.dword) if isinstance(source, Packed) else Lazy(context.b, type, source.value)


def _convert(context: Lowering, op: tile.ConvertLayout) -> None:
    source = context.fragment(op.source)
    plan = conversion(op.source.layout, op.result.layout)
    if plan.kind in ("identity", "registers"):
        if plan.items == tuple(range(source.items)):
            context.values[op.result] = _rebound(context, source, op.result.tile_type)
        elif op.result.dtype.kind == "bool":
            context.bind(op.result, lambda item: source.value(plan.items[item]), cheap=isinstance(source, Stored))
        else:
            context.values[op.result] = moved(source, op.result.tile_type, plan.items)
        return
    raise InternalError(f"conversion of kind {plan.kind} should go through LDS", where=op.where)


# -- reductions ------------------------------------------------------------------------------------------------------


def _reduce(context: Lowering, op: tile.Reduce) -> None:
    b, source = context.b, context.fragment(op.source)
    layout, dtype = op.source.layout, op.source.dtype
    plan = reduction(layout, op.axis)
    if plan is None:
        raise InternalError(f"reduction along axis {op.axis} of {layout}", where=op.where)
    wide = _accumulates_in(dtype)
    function = {"sum": "add", "max": "maximum", "min": "minimum"}[op.kind]
    combine = partial(alu.combined, b, function, wide)
    groups: dict[int, list[int]] = {}
    for item in plan.distinct_items:
        groups.setdefault(plan.item_of[item], []).append(item)
    flags = dtype.kind == "bool"
    one_zero = (lambda item: b.value("v_cndmask_b32", 0, 1, source.value(item))) if flags else source.value

    def within_lane(items: list[int]) -> Operand:
        pairs = [items[i] // 2 for i in range(0, len(items), 2)]
        if not alu.comes_in_pairs(function, dtype) or items != [i for p in pairs for i in (2 * p, 2 * p + 1)]:
            return combine([one_zero(i) for i in items])
        total = alu.tree([source.pair(p) for p in pairs], 2, partial(alu.pair, b, function))
        return combine([total[0], total[1]])

    totals = [within_lane(groups[g]) for g in sorted(groups)]
    for mask in plan.lane_masks:
        vectors = [b.vector(total) for total in totals]
        totals = [combine(_lane_pair(context, vector, mask)) for vector in vectors]
    if plan.crosses_waves:
        totals = _across_waves(context, op, plan.wave_partners, wide, combine, totals)
    if isinstance(op.result.type, ScalarType):
        total = totals[0]
        if dtype.is_float and dtype.bits == 16:
            total = unpack(b, dtype, round_pair(b, dtype, [total]), 0)
        context.values[op.result] = alu.uniform(b, total, dtype if dtype.is_integer and dtype.bits < 32 else None)
        return
    items = plan.result.items
    order = sorted(groups)
    assert order == list(range(items)), (order, items)
    if flags:
        context.bind(op.result, lambda item: b.value("v_cmp_ne_u32", 0, totals[item], kind="s", size=2))
        return
    context.values[op.result] = _finished(context, op.result, totals)


def _accumulates_in(dtype: DType) -> DType:
    """The type that a reduction works in: 32 bits at least; flags as 0 and 1."""
    if dtype.bits >= 32:
        return dtype
    return dtype_of("f32" if dtype.is_float else "i32" if dtype.kind == "int" else "u32")


def _finished(context: Lowering, result: Value, totals: list[Operand]) -> Fragment:
    _bind_rounded(context, result, lambda item: totals[item])
    return context.fragment(result).stored()


def _lane_pair(context: Lowering, value: Ref, mask: int) -> list[Ref]:
    """What a lane and lane ^ mask (a single bit) hold, in an order that may differ between the two."""
    b = context.b
    if mask not in (16, 32) or not context.target.has("permlane_swap"):
        return [value, _lane_xor(context, value, mask)]
    both = [b.register("v", value.size), b.register("v", value.size)]
    for i in range(value.size):
        # The upper lanes (of each 32: the odd 16) of one copy change places with the lower lanes of the other.
        b.emit(f"v_permlane{mask}_swap_b32", [swapped[i] for swapped in both], [value[i], value[i]])
    return both


def _lane_xor(context: Lowering, value: Ref, mask: int) -> Ref:
    """The value of lane ^ mask (a single bit)."""
    b = context.b
    result = b.register("v", value.size)
    for i in range(value.size):
        dword = value[i]
        if mask in (1, 2):
            order = [lane ^ mask for lane in range(4)]
            b.emit("v_mov_b32_dpp", [result[i]], [dword], quad_perm=tuple(order), row_mask=15, bank_mask=15)
        elif mask < 32:
            b.emit("ds_swizzle_b32", [result[i]], [dword], offset=mask << 10 | 0x1F)  # bit mask mode: xor, or, and
        else:
            address = b.pure("v_lshlrev_b32", 2, b.pure("v_xor_b32", mask, context.lane))
            b.emit("ds_bpermute_b32", [result[i]], [address, dword])
    return result


def _across_waves(
    context: Lowering,
    op: tile.Reduce,
    partners: tuple[tuple[int, ...], ...],
    dtype: DType,
    combine: Callable[[Sequence[Operand]], Operand],
    totals: list[Operand],
) -> list[Operand]:
    """Every wave writes its totals to its own part of the scratch buffer and reads those of its partners, which form
    the same pattern for every wave: partner j of wave w is (w with the reduced bits cleared) + offset j."""
    b = context.b
    size = dtype.bits // 32
    width = {1: "b32", 2: "b64"}[size]
    assert op.scratch is not None       # the layouts pass gives a reduction that crosses waves its scratch
    buffer = context.shared(op.scratch)
    part = len(totals) * 4 * size * context.target.wave_size
    access = buffer.access(Immediate(0), None)
    lane_bytes = b.pure("v_lshlrev_b32", (4 * size).bit_length() - 1, context.lane)
    own, base = (
        b.pure(
            "v_add_u32",
            b.pure("s_add_i32", b.pure("s_mul_i32", wave, part, kind="s"), buffer.offset, kind="s"),
            lane_bytes,
        )
        for wave in (context.wave, _first_partner(context, partners))
    )
    written = []
    for i, total in enumerate(totals):
        token = b.register("t")
        b.emit(
            f"ds_write_{width}",
            [token],
            [own, b.vector(total)],
            shared=access,
            offset=i * 4 * size * context.target.wave_size,
        )
        written.append(token)
    b.emit("s_barrier", [], written, note="publish: totals of each wave")
    results = []
    for i in range(len(totals)):
        values = []
        for other in partners[0]:
            value, token = b.register("v", size), b.register("t")
            b.emit(
                f"ds_read_{width}",
                [value, token],
                [base],
                shared=access,
                offset=other * part + i * 4 * size * context.target.wave_size,
            )
            values.append(value)
        results.append(combine(values))
    return results


def _first_partner(context: Lowering, partners: tuple[tuple[int, ...], ...]) -> Operand:
    """The lowest partner of this wave. `partners[w]` is `partners[0]` moved by it."""
    shifts = [group[0] for group in partners]
    for wave, group in enumerate(partners):
        if tuple(p - group[0] for p in group) != partners[0]:
            raise InternalError("waves of a reduction do not follow one pattern", where=context.b.where)
        mask = shifts[-1]
        if shifts[wave] != wave & mask:
            raise InternalError("waves of a reduction do not follow one pattern", where=context.b.where)
    return context.b.pure("s_and_b32", context.wave, shifts[-1], kind="s") if shifts[-1] else Immediate(0)


RULES: dict[type[Op], Callable] = {
    tile.Constant: _constant,
    tile.Iota: _iota,
    tile.Elementwise: _elementwise,
    tile.Cast: _cast,
    tile.Broadcast: _broadcast,
    tile.ExpandDims: _relabel,
    tile.Permute: _relabel,
    tile.ConvertLayout: _convert,
    tile.Reduce: _reduce,
}
