"""A tile as the registers of a wave's lanes: items in compute form, and packed dwords as memory and MFMA want them.

Compute form: what VALU instructions work on. f16 and bf16 compute in f32 (one rounding per op gives the correctly
rounded 16-bit result, since 24 >= 2 * 11 + 2), integers below 32 bits in 32 bits, bool as a lane mask in an SGPR pair.
A fragment is either stored (its dwords sit in registers) or lazy (items are computed when asked for), so that a chain
of elementwise ops with one reader each needs no registers for whole intermediate tiles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilec.backend_amdgcn.builder import Builder
from tilec.dtypes import DType
from tilec.ir.core import TileType
from tilec.ir.machine import Immediate, Operand, Physical, Ref


def storage_bits(dtype: DType) -> int:
    """Bits of an item in a packed dword; bool is stored as a byte 0 or 1, as in memory."""
    return 8 if dtype.name == "bool" else dtype.bits


class Fragment:
    """A tile in registers. `items` per lane; `dwords` per lane in storage form."""

    dwords_per_read = 1  # what arrives together when a dword is asked for
    home: Ref | None = None  # the pinned registers that it puts its dwords into by itself

    def __init__(self, builder: Builder, type: TileType):
        assert type.layout is not None
        self.builder, self.type, self.dtype = builder, type, type.dtype
        self.items = type.layout.items
        self.bits = storage_bits(type.dtype)
        self.dwords = -(-self.items * self.bits // 32)

    def value(self, item: int) -> Operand:
        """Item in compute form: a VGPR (or pair), a mask, an SGPR or a constant."""
        raise NotImplementedError

    def dword(self, index: int) -> Operand:
        """Packed dword `index`."""
        raise NotImplementedError

    def pair(self, index: int) -> Ref:
        """Items 2 * index and 2 * index + 1 side by side in VGPRs; for items of 32 bits."""
        return beside(self.builder, self.value(2 * index), self.value(2 * index + 1))

    def stored(self) -> Stored:
        """This fragment with every dword in a register now."""
        return Stored(self.builder, self.type, [self.dword(i) for i in range(self.dwords)])


class Stored(Fragment):
    """Dwords in registers (or constants)."""

    def __init__(self, builder: Builder, type: TileType, dwords: Sequence[Operand]):
        super().__init__(builder, type)
        assert len(dwords) == self.dwords, (type, len(dwords))
        self.refs = list(dwords)

    def dword(self, index: int) -> Operand:
        return self.refs[index]

    def stored(self) -> Stored:
        return self

    def value(self, item: int) -> Operand:
        if self.bits == 64:
            return joined(self.builder, self.refs[2 * item : 2 * item + 2])
        per_dword = 32 // self.bits
        return unpack(self.builder, self.dtype, self.refs[item // per_dword], item % per_dword)


class Lazy(Fragment):
    """Items computed on demand by `compute`; packing follows the dtype."""

    def __init__(self, builder: Builder, type: TileType, compute: Callable[[int], Operand]):
        super().__init__(builder, type)
        self.value = compute  # type: ignore[method-assign]
        self.half_read: tuple[int, Operand] | None = None   # an item of 64 bits whose high dword is asked for next

    def dword(self, index: int) -> Operand:
        if self.bits == 64:
            item, high = divmod(index, 2)
            known, self.half_read = self.half_read, None
            pair = known[1] if high and known and known[0] == item else self.value(item)
            if not high:
                self.half_read = item, pair
            return pair[index % 2] if isinstance(pair, (Ref, Physical)) else pair
        per_dword = 32 // self.bits
        first = index * per_dword
        return pack(self.builder, self.dtype, [self.value(i) for i in range(first, min(first + per_dword, self.items))])


class Packed(Fragment):
    """Narrow items computed a dword at a time (rounding two at once, wrapping four at once) and remembered."""

    def __init__(self, builder: Builder, type: TileType, compute: Callable[[int], Operand]):
        super().__init__(builder, type)
        self.compute = compute
        self.known: dict[int, Operand] = {}

    def dword(self, index: int) -> Operand:
        if index not in self.known:
            self.known[index] = self.compute(index)
        return self.known[index]

    def value(self, item: int) -> Operand:
        per_dword = 32 // self.bits
        return unpack(self.builder, self.dtype, self.dword(item // per_dword), item % per_dword)


class Paired(Fragment):
    """Items of 32 bits computed two at a time and remembered."""

    def __init__(self, builder: Builder, type: TileType, compute: Callable[[int], Ref]):
        super().__init__(builder, type)
        self.compute = compute
        self.known: dict[int, Ref] = {}

    def pair(self, index: int) -> Ref:
        if index not in self.known:
            self.known[index] = self.compute(index)
        return self.known[index]

    def value(self, item: int) -> Operand:
        return self.pair(item // 2)[item % 2]

    def dword(self, index: int) -> Operand:
        return self.value(index)


def moved(source: Fragment, type: TileType, items: Sequence[int]) -> Fragment:
    """The tile whose item i is the source's item `items[i]`, bits untouched."""
    b, bits = source.builder, source.bits
    if list(items) == list(range(source.items)) and isinstance(source, Stored):
        return Stored(b, type, source.stored().refs)
    if bits >= 32:
        size = bits // 32
        return Packed(b, type, lambda index: source.dword(items[index // size] * size + index % size))

    def dword(index: int) -> Operand:
        bytes_each, count = bits // 8, 32 // bits
        taken = items[index * count : (index + 1) * count]
        places = [(item // count, item % count * bytes_each + byte) for item in taken for byte in range(bytes_each)]
        return _permuted(b, source, places)

    return Packed(b, type, dword)


def _permuted(b: Builder, source: Fragment, places: list[tuple[int, int]]) -> Operand:
    """A dword of up to four bytes, each given as (dword, byte) of the source."""
    wanted = list(dict.fromkeys(dword for dword, _ in places))
    if len(wanted) > 2:
        low, high = _permuted(b, source, places[:2]), _permuted(b, source, places[2:])
        return b.value("v_perm_b32", high, low, 0x05040100)
    if len(wanted) == 1 and [byte for _, byte in places] == list(range(len(places))):
        return source.dword(wanted[0])
    # v_perm_b32 picks bytes: 0-3 from its second source, 4-7 from its first, 0x0c is zero.
    codes = [byte + 4 * wanted.index(dword) for dword, byte in places] + [0x0C] * (4 - len(places))
    selector = sum(code << 8 * place for place, code in enumerate(codes))
    low, high = (source.dword(dword) for dword in (wanted[0], wanted[-1]))
    return b.value("v_perm_b32", high, low, selector)


def _side_by_side(dwords: list[Operand]) -> Ref | None:
    """Two dwords as the aligned pair that they are."""
    if len(dwords) != 2:
        return None
    low, high = dwords
    if not (isinstance(low, Ref) and isinstance(high, Ref)):
        return None
    together = low.register is high.register and low.start % 2 == 0 and high.start == low.start + 1
    return Ref(low.register, low.start, 2) if together else None


def beside(builder: Builder, low: Operand, high: Operand) -> Ref:
    """Two operands as a pair: in place where they are one, else copied to VGPRs (the allocator removes copies of what
    is computed for the pair only)."""
    pair = _side_by_side([low, high])
    if pair is not None:
        return pair
    if low == high:
        halves = [("v_mov_b32", (low,), {"dst": place}) for place in range(2)]
        return builder.pure_sequence(halves, kind="v", size=2)
    result = builder.register("v", 2)
    for place, operand in enumerate((low, high)):
        if isinstance(operand, Ref) and operand.kind != "s":
            builder.copy(result[place], operand)
        else:
            builder.emit("v_mov_b32", [result[place]], [operand])
    return result


def joined(builder: Builder, dwords: Sequence[Operand]) -> Ref:
    """The dwords as one tuple: in place when they already stand side by side, else copied into a new one of their
    name."""
    first = dwords[0]
    if (
        isinstance(first, Ref)
        and all(
            isinstance(d, Ref) and d.register is first.register and d.start == first.start + i
            for i, d in enumerate(dwords)
        )
    ):
        return Ref(first.register, first.start, len(dwords))
    result = builder.register("va", len(dwords), first.register.name if isinstance(first, Ref) else "")
    for i, dword in enumerate(dwords):
        builder.copy(result[i], dword)
    return result


def unpack(b: Builder, dtype: DType, dword: Operand, place: int) -> Operand:
    """Item `place` of a packed dword in compute form."""
    bits = storage_bits(dtype)
    if bits == 32:
        return dword
    if dtype.name == "bf16":
        return b.value("v_lshlrev_b32", 16, dword) if place == 0 else b.value("v_and_b32", 0xFFFF0000, dword)
    if dtype.name == "f16":
        low = dword if place == 0 else b.value("v_lshrrev_b32", 16, dword)
        return b.value("v_cvt_f32_f16", low)
    if dtype.name == "bool":
        byte = b.value("v_bfe_u32", dword, 8 * place, 8)
        return b.value("v_cmp_ne_u32", 0, byte, kind="s", size=2)
    return b.value("v_bfe_i32" if dtype.kind == "int" else "v_bfe_u32", dword, bits * place, bits)


def pack(b: Builder, dtype: DType, items: list[Operand]) -> Operand:
    """Items in compute form (already rounded or to be wrapped to the dtype) in one dword, the first lowest."""
    if dtype.name == "bool":
        items = [b.value("v_cndmask_b32", 0, 1, item) for item in items]
    bits = storage_bits(dtype)
    if bits == 32:
        return items[0]
    if dtype.is_float:
        return round_pair(b, dtype, items)
    constants = [item.value for item in items if isinstance(item, Immediate)]
    if len(constants) == len(items):
        return Immediate(sum((value & (1 << bits) - 1) << bits * i for i, value in enumerate(constants)))
    # v_perm_b32 picks bytes: 0-3 from its second source, 4-7 from its first, 0x0c is zero.
    if bits == 16:
        return b.value("v_perm_b32", items[1], items[0], 0x05040100) if len(items) == 2 else items[0]
    pairs = [
        b.value("v_perm_b32", items[i + 1], items[i], 0x0C0C0400) if i + 1 < len(items) else items[i]
        for i in range(0, len(items), 2)
    ]
    return b.value("v_perm_b32", pairs[1], pairs[0], 0x05040100) if len(pairs) == 2 else pairs[0]


def side_by_side(b: Builder, items: list[Ref], bits: int) -> Ref:
    """Zero-extended items packed in one dword, the first lowest."""
    result = items[0]
    for i, item in enumerate(items[1:], 1):
        result = b.value("v_lshl_or_b32", item, i * bits, result)
    return result


def round_pair(b: Builder, dtype: DType, items: list[Operand]) -> Operand:
    """One or two f32 values rounded to nearest even to f16 or bf16, in one dword."""
    low, high = items[0], items[1] if len(items) > 1 else Immediate(0)
    if dtype.name == "bf16":
        if b.target.has("cvt_pk_bf16_f32"):
            return b.value("v_cvt_pk_bf16_f32", low, high)
        return b.value("v_perm_b32", *_bf16_bits(b, [high, low]), 0x07060302)
    assert dtype.name == "f16"
    if b.target.has("cvt_pk_f16_f32"):
        return b.value("v_cvt_pk_f16_f32", low, high)
    return b.value("v_pack_b32_f16", b.value("v_cvt_f16_f32", low), b.value("v_cvt_f16_f32", high))


def _bf16_bits(b: Builder, values: list[Operand]) -> list[Operand]:
    """f32 values whose high halves are the values rounded to bf16 (round half to even on the bits; a NaN stays one and
    is made quiet). Step by step for all of them, so that no instruction waits for the one before it."""
    known = [_rounded_bits(v.value & 0xFFFFFFFF) if isinstance(v, Immediate) else None for v in values]
    unknown = [v for v in values if not isinstance(v, Immediate)]
    odd = [b.value("v_bfe_u32", value, 16, 1) for value in unknown]
    rounded = [b.value("v_add3_u32", value, bit, 0x7FFF) for value, bit in zip(unknown, odd)]
    is_nan = [b.value("v_cmp_u_f32", value, value, kind="s", size=2) for value in unknown]
    quiet = [b.value("v_or_b32", 0x00400000, value) for value in unknown]
    chosen = iter([b.value("v_cndmask_b32", *choice) for choice in zip(rounded, quiet, is_nan)])
    return [next(chosen) if number is None else Immediate(number) for number in known]


def _rounded_bits(bits: int) -> int:
    return bits if bits & 0xFFFF == 0 else bits + 0x7FFF + (bits >> 16 & 1)
