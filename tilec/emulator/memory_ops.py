"""Binds memory instructions: addresses from registers, range checks of the hardware, and the access that is issued.

Buffer: base + soffset + (index * stride) + offset, where only offset + immediate is compared with num_records, per
dword (raw mode); swizzle bits have no effect on offset-only addressing. Global: 64-bit or SGPR base + 32-bit offset.
FLAT looks at the apertures. Scratch is private per lane, LDS per workgroup. (CDNA3 ISA guide 9.1, 10, 11; LDS DMA:
CDNA4 ISA guide 9.1.9.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tilec.emulator.access import Access, Part
from tilec.emulator.instruction import Instruction
from tilec.emulator.memory import BASE, PRIVATE_APERTURE, SHARED_APERTURE
from tilec.emulator.memory_rows import ATOMIC, MemoryRow
from tilec.emulator.operands import M0, SGPR, Constant, Operand, Register, Special
from tilec.emulator.permute import bpermute, permute, swizzle

if TYPE_CHECKING:
    from tilec.emulator.decode import Binder
    from tilec.emulator.wave import Batch

Array = np.ndarray[Any, Any]
Lanes = np.ndarray[Any, Any] | None
_BASE = np.int64(BASE)


def bind_memory(binder: Binder, instruction: Instruction, row: MemoryRow) -> None:
    """Fill in the instruction's execute function and register roles."""
    if "lds" in instruction.parsed.modifiers and row.op == "load":
        row = replace(row, op="dma")
    if "sc0" in instruction.parsed.modifiers and row.op == "atomic":
        row = replace(row, returns=True)
    instruction.unit, instruction.row = "memory", row
    instruction.counters = {"lds": ("lgkm",), "scalar": ("lgkm",), "flat": ("vm", "lgkm")}.get(row.space, ("vm",))
    binders = {
        "buffer": _buffer,
        "global": _global,
        "flat": _global,
        "scratch": _scratch,
        "lds": _lds,
        "scalar": _scalar,
    }
    if row.op == "cache":
        _finish(instruction, row, lambda batch: (), (), (), None)
    elif row.op == "permute":
        _permute(binder, instruction, row)
    else:
        binders[row.space](binder, instruction, row)


Parts = Callable[["Batch"], tuple[Part, ...]]


def _finish(
    instruction: Instruction,
    row: MemoryRow,
    parts: Parts,
    registers: tuple[int, ...],
    addresses: tuple[Operand, ...],
    data: Callable[[Batch], Array] | None,
    stored: tuple[Operand, ...] = (),
    target: Callable[[Batch], Part] | None = None,
) -> None:
    """Set register roles and the execute function: build the access, hand it to the machine."""
    instruction.writes = frozenset(registers)
    instruction.results = tuple(range(r, r + 1) for r in registers)
    instruction.addresses = frozenset(i for operand in addresses for i in operand.ids) | (
        {M0} if row.op == "dma" or row.by_lane else frozenset()
    )
    instruction.data = frozenset(i for operand in stored for i in operand.ids)
    instruction.reads = instruction.addresses | instruction.data
    instruction.sources = tuple(operand.ids for operand in (*stored, *addresses))
    instruction.touches = instruction.reads | instruction.writes

    def execute(batch: Batch) -> None:
        access = Access(
            instruction,
            row,
            registers,
            parts(batch),
            batch.mask,
            None if data is None else data(batch),
            None if target is None else target(batch),
        )
        batch.machine.issue(batch, access)

    instruction.execute = execute


def _registers(operand: Operand, count: int) -> tuple[int, ...]:
    first = operand.register.first
    return tuple(range(first, first + count))


def _data(binder: Binder, *operands: Operand) -> Callable[[Batch], Array]:
    """A copy of the data registers: uint32 [dwords, wave, lane]."""
    spans = [(binder.row(operand.register.first), operand.register.count) for operand in operands]
    if len(spans) == 1:
        start, count = spans[0]
        return lambda batch: batch.v[start : start + count].copy()
    return lambda batch: np.concatenate([batch.v[start : start + count] for start, count in spans])


def _both(a: Lanes, b: Lanes) -> Lanes:
    return b if a is None else a if b is None else a & b


def exec_lanes(batch: Batch) -> Lanes:
    return None if batch.mask is None else batch.active


def scalar_value(operand: Operand) -> Callable[[Batch], Any]:
    """A 32-bit scalar operand as int64 [wave, 1], or a Python int for constants and `off`."""
    if isinstance(operand.value, Constant):
        number = operand.value.bits("u32")
        return lambda batch: number
    if isinstance(operand.value, Special):
        return lambda batch: 0
    index = operand.register.first - SGPR
    return lambda batch: batch.s[index].astype(np.int64)[:, None]


def scalar_pair(operand: Operand) -> Callable[[Batch], Array]:
    """A 64-bit scalar operand as int64 [wave, 1]."""
    index = operand.register.first - SGPR
    return lambda batch: (batch.s[index].astype(np.int64) | batch.s[index + 1].astype(np.int64) << 32)[:, None]


def _offset(instruction: Instruction, name: str = "offset") -> int:
    value = instruction.parsed.modifiers.get(name, 0)
    return value if isinstance(value, int) else 0


# ---- buffers
def _buffer(binder: Binder, instruction: Instruction, row: MemoryRow) -> None:
    operands, modifiers = list(instruction.parsed.operands), instruction.parsed.modifiers
    value = None if row.op == "dma" else operands.pop(0)
    offen, idxen = "offen" in modifiers, "idxen" in modifiers
    vector = (
        operands.pop(0)
        if offen or idxen or isinstance(operands[0].value, Special) or not operands[0].register.is_scalar
        else None
    )
    resource, soffset = operands
    immediate, write = _offset(instruction), row.op in ("store", "atomic")
    index_row = binder.row(vector.register.first) if vector is not None and idxen else None
    offset_row = binder.row(vector.register.first + (1 if idxen else 0)) if vector is not None and offen else None
    first, scalar_offset = resource.register.first - SGPR, scalar_value(soffset)

    def parts(batch: Batch) -> tuple[Part, ...]:
        words = batch.s[first : first + 4].astype(np.int64)[..., None]
        base = words[0] | (words[1] & 0xFFFF) << 32
        offset = immediate if offset_row is None else batch.v[offset_row].astype(np.int64) + immediate
        address: Any = offset + (base + scalar_offset(batch))
        if index_row is not None:
            index = batch.v[index_row].astype(np.int64)
            stride = words[1] >> 16 & 0x3FFF
            address = address + index * stride
            inside = np.where(stride != 0, index < words[2], offset + index * 0 + row.size <= words[2])
        else:
            inside = offset + row.size <= words[2]
            if row.size > 4 and not inside.all():
                dwords = [offset + 4 * i + 4 <= words[2] for i in range(row.dwords)]
                if (dwords[0] != dwords[-1]).any():
                    return tuple(
                        _global_part(batch, instruction, row, address + 4 * i, inside_i, 4, i, write)
                        for i, inside_i in enumerate(dwords)
                    )
        return (_global_part(batch, instruction, row, address, None if inside.all() else inside, row.size, 0, write),)

    registers = _registers(value, row.dwords) if value is not None and (row.op == "load" or row.returns) else ()
    stored = (value,) if value is not None and row.op != "load" else ()
    addresses = tuple(o for o in (vector, resource, soffset) if o is not None)
    _finish(
        instruction,
        row,
        parts,
        registers,
        addresses,
        _data(binder, *stored) if stored else None,
        stored,
        _dma_target(row, immediate) if row.op == "dma" else None,
    )


def _global_part(
    batch: Batch,
    instruction: Instruction,
    row: MemoryRow,
    address: Any,
    inside: Lanes,
    size: int,
    dword: int,
    write: bool,
) -> Part:
    shape = (len(batch.waves), 64)
    address = np.broadcast_to(address, shape)
    lanes = _both(exec_lanes(batch), None if inside is None else np.broadcast_to(inside, shape))
    index, lanes = batch.machine.require_legal(batch, instruction, address - _BASE, lanes, size, write)
    return Part(batch.machine.memory.space, index, lanes, dword, size)


def _dma_target(row: MemoryRow, immediate: int) -> Callable[[Batch], Part]:
    """LDS bytes that a copy fills: M0 + immediate + lane * 4, or * 16 for the wide forms (x3 leaves every fourth
    dword).
    """
    size = max(row.size, 4)
    lane = np.arange(64, dtype=np.int64)[None] * (4 if size == 4 else 16) + immediate

    def target(batch: Batch) -> Part:
        limit = 0x3FFFC if batch.machine.arch == "gfx950" else 0xFFFC
        address = lane + (batch.s[M0 - SGPR].astype(np.int64) & limit)[:, None]
        return batch.machine.lds_part(batch, address, exec_lanes(batch), size, 0)

    return target


# ---- global, flat, scratch
def _global(binder: Binder, instruction: Instruction, row: MemoryRow) -> None:
    operands, immediate = list(instruction.parsed.operands), _offset(instruction)
    write = row.op in ("store", "atomic")
    value: Operand | None = None
    if row.op == "load" or (row.op == "atomic" and row.returns):
        value = operands.pop(0)
    vector = operands.pop(0)
    stored = (operands.pop(0),) if write else ()
    saddr = operands.pop(0) if operands else None
    start = binder.row(vector.register.first)
    if saddr is not None and isinstance(saddr.value, Register):
        pair = scalar_pair(saddr)

        def address_of(batch: Batch) -> Array:
            return batch.v[start].astype(np.int64) + (pair(batch) + immediate)
    else:

        def address_of(batch: Batch) -> Array:
            wide: Array = (
                batch.v[start].astype(np.uint64) | batch.v[start + 1].astype(np.uint64) << np.uint64(32)
            ).view(np.int64)
            return wide + immediate if immediate else wide

    def parts(batch: Batch) -> tuple[Part, ...]:
        address = address_of(batch)
        if row.space != "flat":
            return (_global_part(batch, instruction, row, address, None, row.size, 0, write),)
        lanes, aperture = batch.active, address >> 48
        shared, private = aperture == SHARED_APERTURE >> 48, aperture == PRIVATE_APERTURE >> 48
        found = []
        if (lanes & ~shared & ~private).any():
            found.append(_global_part(batch, instruction, row, address, ~shared & ~private, row.size, 0, write))
        low = address & 0xFFFFFFFF
        if (lanes & shared).any():
            found.append(batch.machine.lds_part(batch, low, lanes & shared, row.size, 0))
        if (lanes & private).any():
            found.append(batch.machine.scratch_part(batch, low, lanes & private, row.size))
        return tuple(found) or (_global_part(batch, instruction, row, address, None, row.size, 0, write),)

    registers = _registers(value, row.dwords) if value is not None else ()
    addresses = (vector, *((saddr,) if saddr is not None else ()))
    _finish(
        instruction,
        row,
        parts,
        registers,
        addresses,
        _data(binder, *stored) if stored else None,
        stored,
        _dma_target(row, immediate) if row.op == "dma" else None,
    )


def _scratch(binder: Binder, instruction: Instruction, row: MemoryRow) -> None:
    operands, immediate = list(instruction.parsed.operands), _offset(instruction)
    value = operands.pop(0) if row.op == "load" else None
    vector = operands.pop(0)
    stored = (operands.pop(0),) if row.op == "store" else ()
    saddr = operands.pop(0)
    start = binder.row(vector.register.first) if isinstance(vector.value, Register) else None
    scalar = scalar_value(saddr)

    def parts(batch: Batch) -> tuple[Part, ...]:
        offset = scalar(batch) + immediate
        address = np.broadcast_to(
            offset if start is None else batch.v[start].astype(np.int64) + offset, (len(batch.waves), 64)
        )
        return (batch.machine.scratch_part(batch, address, exec_lanes(batch), row.size),)

    registers = _registers(value, row.dwords) if value is not None else ()
    _finish(
        instruction,
        row,
        parts,
        registers,
        (vector, saddr),
        _data(binder, *stored) if stored else None,
        stored,
        _dma_target(row, immediate) if row.op == "dma" else None,
    )


# ---- LDS
def _lds(binder: Binder, instruction: Instruction, row: MemoryRow) -> None:
    operands = list(instruction.parsed.operands)
    loads = row.op == "load" or row.returns
    value = operands.pop(0) if loads else None
    address_operand = None if row.by_lane else operands.pop(0)
    stored = tuple(operands)
    if row.op == "atomic" and ATOMIC[row.atomic].compares:
        stored = stored[::-1]  # DS names the compared value first
    address_of = _by_lane if address_operand is None else _vector_address(binder.row(address_operand.register.first))
    each = row.dwords
    if row.elements == 2:
        offsets = tuple(_offset(instruction, f"offset{i}") * row.stride for i in range(2))
    else:
        offsets = (_offset(instruction),)

    def parts(batch: Batch) -> tuple[Part, ...]:
        address = address_of(batch)
        lanes = exec_lanes(batch)
        return tuple(
            batch.machine.lds_part(batch, address + offset if offset else address, lanes, row.size, i * each)
            for i, offset in enumerate(offsets)
        )

    registers = _registers(value, each * row.elements) if value is not None else ()
    addresses = () if address_operand is None else (address_operand,)
    _finish(instruction, row, parts, registers, addresses, _data(binder, *stored) if stored else None, stored)


def _vector_address(row: int) -> Callable[[Batch], Array]:
    return lambda batch: batch.v[row].astype(np.int64)


def _by_lane(batch: Batch) -> Array:
    """The addtid forms: M0[15:0] plus a dword for each lane."""
    base: Array = (batch.s[M0 - SGPR].astype(np.int64) & 0xFFFF)[:, None] + 4 * np.arange(64, dtype=np.int64)
    return base


def _permute(binder: Binder, instruction: Instruction, row: MemoryRow) -> None:
    operands, name = instruction.parsed.operands, row.name
    value = operands[0]
    if name == "ds_swizzle_b32":
        source, pattern = operands[1], instruction.parsed.modifiers.get("offset", 0)
        source_row = binder.row(source.register.first)

        def move(batch: Batch, data: Array) -> Array:
            return swizzle(data, pattern, batch.active)

        addresses: tuple[Operand, ...] = ()
    else:
        source, address_row, offset = operands[2], binder.row(operands[1].register.first), _offset(instruction)
        source_row = binder.row(source.register.first)
        function = bpermute if name == "ds_bpermute_b32" else permute

        def move(batch: Batch, data: Array) -> Array:
            lane = (batch.v[address_row] + np.uint32(offset) >> np.uint32(2)) & np.uint32(63)
            return function(data, lane, batch.active)

        addresses = (operands[1],)
    _finish(
        instruction,
        row,
        lambda batch: (),
        _registers(value, 1),
        addresses,
        lambda batch: move(batch, batch.v[source_row])[None],
        (source,),
    )
    destination, source_id = value.register.first, source.register.first

    def spread(batch: Batch) -> dict[int, Array]:
        undefined = batch.undefined.get(source_id)
        return {} if undefined is None else {destination: move(batch, undefined)}

    instruction.spread = spread


# ---- scalar memory
def _scalar(binder: Binder, instruction: Instruction, row: MemoryRow) -> None:
    operands = instruction.parsed.operands
    registers = _registers(operands[0], row.dwords)
    if row.op == "clock":
        _finish(instruction, row, lambda batch: (), registers, (), lambda batch: batch.machine.clock(batch))
        return
    base, offset = operands[1], operands[2] if len(operands) > 2 else Operand(Constant(0))
    extra = _offset(instruction)
    buffer, index = row.name.startswith("s_buffer"), base.register.first - SGPR
    constant = offset.value.value if isinstance(offset.value, Constant) else None
    moving = scalar_value(offset)

    def parts(batch: Batch) -> tuple[Part, ...]:
        at = (moving(batch)[:, 0] if constant is None else int(constant)) + extra
        words = batch.s[index : index + (4 if buffer else 2)].astype(np.int64)
        pointer = words[0] | (words[1] & (0xFFFF if buffer else 0xFFFFFFFF)) << 32
        lanes = None
        if buffer:
            lanes = np.broadcast_to(at, pointer.shape) + row.size <= words[2]
            lanes = None if lanes.all() else lanes
        address = (pointer + at & ~np.int64(3)) - _BASE
        position, lanes = batch.machine.require_legal(batch, instruction, address, lanes, row.size, False)
        return (Part(batch.machine.memory.space, position, lanes, 0, row.size),)

    _finish(instruction, row, parts, registers, (base, offset), None)
