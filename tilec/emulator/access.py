"""A memory operation in flight: where it reads and writes, and what happens when it lands.

An access is built at issue from the registers of that moment and waits in its batch's queue. Loads sample memory when
they land, not before; stores become visible then. A lane that takes no part (EXEC off, out of range) has index 0, the
page of zeros. An access is data: it can lose waves (`take`) and be joined with the same access of other waves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tilec.emulator.memory import Space, alignment
from tilec.emulator.memory_rows import ATOMIC, MemoryRow

if TYPE_CHECKING:
    from tilec.emulator.decode import Instruction
    from tilec.emulator.wave import Batch

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Part:
    """One gather or scatter of an access. `index`: int64 byte index into `space`, [wave, lane] ([wave] for scalar
    loads).

    `lanes`: bool of that shape, those that take part; None: all. `dword`: first dword of the data that this part moves.
    """

    space: Space
    index: Array
    lanes: Array | None
    dword: int
    size: int

    @cached_property
    def unit(self) -> int:
        """The widest power of two, up to 16, that divides every index and the size."""
        return alignment(self.index, self.size)

    def take(self, rows: Array) -> Part:
        return replace(self, index=self.index[rows], lanes=None if self.lanes is None else self.lanes[rows])

    def load(self) -> Array:
        """What lies there: uint32 [dwords, *index.shape]."""
        return self.space.load(self.index, self.size, self.unit)

    def effective(self) -> tuple[Array, Array | None]:
        """Flat indices of the lanes that take part, in wave then lane order, and which they are (None: all)."""
        if self.lanes is None:
            return self.index.reshape(-1), None
        return self.index[self.lanes], self.lanes


@dataclass(eq=False)
class Access:
    """`mask`: EXEC at issue (uint32, None: full). `data`: uint32 [dwords, wave, lane] to store. `target`: LDS part of a
    DMA. `registers`: ids that the landing writes. `shadow`: undefined bits of the data, by dword.
    """

    instruction: Instruction
    row: MemoryRow
    registers: tuple[int, ...]
    parts: tuple[Part, ...]
    mask: Array | None = None
    data: Array | None = None
    target: Part | None = None
    shadow: dict[int, Array] | None = None
    landed: bool = False

    def take(self, rows: Array) -> Access:
        return replace(
            self,
            parts=tuple(part.take(rows) for part in self.parts),
            mask=None if self.mask is None else self.mask[rows],
            data=None if self.data is None else self.data[:, rows],
            target=None if self.target is None else self.target.take(rows),
            shadow=None if self.shadow is None else {dword: bits[rows] for dword, bits in self.shadow.items()},
        )

    def join(self, others: Sequence[Access]) -> Access:
        """One access of all waves. `others` includes self, in the order of the joined batch."""
        shapes = [access.parts[0].index.shape if access.parts else (0, 64) for access in others]
        layouts = {tuple((id(p.space), p.dword, p.size) for p in access.parts) for access in others}
        if len(layouts) > 1:
            raise ValueError("accesses of one instruction with unlike parts cannot be joined")
        parts = tuple(_join_parts(parts) for parts in zip(*(access.parts for access in others), strict=True))
        mask = None
        if any(access.mask is not None for access in others):
            mask = np.concatenate(
                [
                    np.full(shape, 0xFFFFFFFF, np.uint32) if access.mask is None else access.mask
                    for access, shape in zip(others, shapes, strict=True)
                ]
            )
        data = (
            None
            if self.data is None
            else np.concatenate([access.data for access in others if access.data is not None], axis=1)
        )
        target = (
            None
            if self.target is None
            else _join_parts([access.target for access in others if access.target is not None])
        )
        shadow: dict[int, Array] = {}
        for dword in {dword for access in others for dword in access.shadow or {}}:
            shadow[dword] = np.concatenate(
                [
                    (access.shadow or {}).get(dword, np.zeros(shape, np.uint32))
                    for access, shape in zip(others, shapes, strict=True)
                ]
            )
        return replace(self, parts=parts, mask=mask, data=data, target=target, shadow=shadow or None)

    @property
    def layout(self) -> tuple[Any, ...]:
        """What must agree for two accesses of one instruction to be joined."""
        return (
            self.instruction.address,
            self.landed,
            tuple((id(part.space), part.dword, part.size) for part in self.parts),
        )

    # ---- landing
    def land(self, batch: Batch) -> None:
        """Sample or change memory, and write the destination registers."""
        if self.landed:
            return
        self.landed = True
        if batch.machine.checker is not None:
            batch.machine.checker.landing(batch, self)
        op = self.row.op
        if self.row.space == "scalar":
            self._write_scalars(batch)
        elif op == "load":
            self._write_registers(batch, self._gather())
        elif op == "store":
            self._scatter()
        elif op == "atomic":
            old = self._atomic()
            if self.row.returns:
                self._write_registers(batch, old)
        elif op == "dma":
            self._copy()
        elif op == "permute" and self.data is not None:
            self._write_registers(batch, self.data)

    def _gather(self) -> Array:
        if len(self.parts) == 1:
            return self.parts[0].load()
        out = np.zeros(
            (
                sum(-(-part.size // 4) for part in self.parts if part.space is self.parts[0].space),
                *self.parts[0].index.shape,
            ),
            np.uint32,
        )
        for part in self.parts:  # a lane that another part serves has index 0 here, and reads zeros
            piece = part.load()
            out[part.dword : part.dword + len(piece)] |= piece
        return out

    def _scatter(self) -> None:
        assert self.data is not None
        for part in self.parts:
            index, lanes = part.effective()
            count = -(-part.size // 4)
            piece = self.data[part.dword : part.dword + count]
            if self.row.half == "high":
                piece = piece >> np.uint32(16)
            moved = piece.reshape(count, -1) if lanes is None else piece[:, lanes]
            part.space.store(index, moved, part.size, part.unit)

    def _copy(self) -> None:
        """Global memory to LDS; a lane that is out of range writes zeros, a lane with EXEC off writes nothing."""
        assert self.target is not None
        data = self._gather()
        if self.row.size < 4:
            data = _extend(data, self.row)
        index, lanes = self.target.effective()
        moved = data.reshape(len(data), -1) if lanes is None else data[:, lanes]
        self.target.space.store(index, moved, self.target.size, self.target.unit)

    def _write_registers(self, batch: Batch, data: Array) -> None:
        row = self.row
        if row.size < 4:
            data = _extend(data, row)
        if row.transpose:
            data = transpose(data, row.transpose)
        for i, register in enumerate(self.registers):
            target = batch.v[batch.machine.rows[register]]
            value = data[i]
            if row.half:  # the other half is cleared
                value = value & np.uint32(0xFFFF) if row.half == "low" else value << np.uint32(16)
            if self.mask is None:
                target[...] = value
            else:
                target ^= (target ^ value) & self.mask

    def _write_scalars(self, batch: Batch) -> None:
        data = self._gather() if self.parts else self.data
        if data is None:
            return  # s_dcache_*
        for i, register in enumerate(self.registers):
            batch.s[register - 512] = data[i]

    def _atomic(self) -> Array:
        """Apply the operation lane by lane in wave and lane order; the old values, uint32 [dwords, wave, lane]."""
        assert self.data is not None
        words = self.row.dwords
        old = np.zeros((words * len(self.parts), *self.data.shape[1:]), np.uint32)
        for n, part in enumerate(self.parts):
            atomic = ATOMIC[self.row.atomic]
            index, lanes = part.effective()
            each = words * (2 if atomic.compares else 1)
            data = self.data[part.dword : part.dword + each]
            flat = data.reshape(each, -1) if lanes is None else data[:, lanes]
            values = _apply_atomic(part.space, index, flat, words, self.row, want_old=self.row.returns)
            if self.row.returns:
                view = old[n * words : (n + 1) * words]
                if lanes is None:
                    view[...] = values.reshape(view.shape)
                else:
                    view[:, lanes] = values
        return old


def _join_parts(parts: Sequence[Part]) -> Part:
    lanes = None
    if any(part.lanes is not None for part in parts):
        lanes = np.concatenate(
            [np.ones(part.index.shape, bool) if part.lanes is None else part.lanes for part in parts]
        )
    return replace(parts[0], index=np.concatenate([part.index for part in parts]), lanes=lanes)


def _extend(data: Array, row: MemoryRow) -> Array:
    if not row.signed:
        return data
    shift = np.int32(32 - 8 * row.size)
    return (data.view(np.int32) << shift >> shift).view(np.uint32)


def _typed(words: Array, kind: type, items: int) -> Array:
    """uint32 [dwords, n] as [n] of the kind, or [n, items] for packed kinds."""
    joined = np.ascontiguousarray(np.moveaxis(words, 0, -1)).view(kind)
    return joined if items > 1 else joined[..., 0]


def _untyped(values: Array, words: int) -> Array:
    flat = np.ascontiguousarray(values)
    return np.moveaxis(flat.view(np.uint32).reshape(len(flat), words), -1, 0)


def _apply_atomic(space: Space, index: Array, data: Array, words: int, row: MemoryRow, *, want_old: bool) -> Array:
    """Read, change and write each element, equal addresses one after another in order. data: uint32 [dwords, n]."""
    atomic = ATOMIC[row.atomic]
    source = _typed(data[:words], atomic.kind, atomic.items)
    second = _typed(data[words:], atomic.kind, atomic.items) if atomic.compares else None
    results = np.zeros((words, len(index)), np.uint32)
    order = np.argsort(index, kind="stable")
    ordered = index[order]
    first = (
        np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1]))) if len(index) else np.zeros(0, np.int64)
    )
    if atomic.combine is not None and not want_old:
        if len(first):
            merged = atomic.combine.reduceat(source[order], first).astype(
                atomic.kind, copy=False
            )  # numpy sums in 64 bits
            old = _typed(space.load(ordered[first], row.size), atomic.kind, atomic.items)
            space.store(ordered[first], _untyped(atomic.apply(old, merged), words), row.size)
        return results
    rank = np.arange(len(index)) - np.repeat(first, np.diff(np.append(first, len(index))))
    for step in range(int(rank.max(initial=-1)) + 1):
        chosen = order[rank == step]
        raw = space.load(index[chosen], row.size)
        results[:, chosen] = raw
        old = _typed(raw, atomic.kind, atomic.items)
        new = atomic.apply(old, source[chosen]) if second is None else atomic.apply(old, source[chosen], second[chosen])
        space.store(index[chosen], _untyped(new.astype(atomic.kind, copy=False), words), row.size)
    return results


def transpose(data: Array, bits: int) -> Array:
    """The lane exchange of ds_read_b64_tr_b{16,8,4} and ds_read_b96_tr_b6, within groups of 16 lanes. data: [dwords,
    wave, lane].

    Lane l takes as element j: for b16 element l % 4 of lane 4j + l / 4, for b8 element l % 8 of lane 2j + l / 8, for
    b4 and b6 element l of lane j (CDNA4 ISA guide, section 11.4; facts agree with Triton's layouts).
    """
    words, waves, lanes = data.shape
    raw = np.ascontiguousarray(np.moveaxis(data, 0, -1))
    per_lane = 16 if bits == 6 else words * 32 // bits
    lane, item = np.arange(16)[:, None], np.arange(per_lane)[None, :]
    if bits in (8, 16):
        elements = raw.view(np.uint16 if bits == 16 else np.uint8).reshape(waves, lanes // 16, 16, per_lane)
        lanes_per_item, within = 16 // per_lane, per_lane.bit_length() - 1
        moved = elements[:, :, lanes_per_item * item + (lane >> within), (lane & per_lane - 1) + 0 * item]
        packed = np.ascontiguousarray(moved).reshape(waves, lanes, -1)
    else:
        stream = np.unpackbits(raw.view(np.uint8), axis=-1, bitorder="little")
        elements = stream[..., : per_lane * bits].reshape(waves, lanes // 16, 16, per_lane, bits)
        moved = elements[:, :, item + 0 * lane, lane + 0 * item]
        packed = np.packbits(moved.reshape(waves, lanes, per_lane * bits), axis=-1, bitorder="little")
    return np.moveaxis(packed.view(np.uint32), -1, 0)
