"""Definedness: which bits of which lanes hold values that the program never wrote, and where such a bit does harm.

A batch keeps a mask of undefined bits per register, only for registers that have any; most steps cost one set test.
Bits travel through moves and logic exactly: such an instruction is run again with the undefined bits set otherwise,
and what changes is undefined. Arithmetic spoils the whole result of a lane. A fault is reported where an undefined
bit decides an address, a branch, EXEC, or what is stored to global memory; LDS and scratch remember undefined bits
instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from tilec.emulator.instruction import Instruction
from tilec.emulator.memory_rows import MemoryRow
from tilec.emulator.operands import EXEC, SCC, SGPR

if TYPE_CHECKING:
    from tilec.emulator.wave import Batch

Array = np.ndarray[Any, Any]
ALL = np.uint32(0xFFFFFFFF)

_EXACT = re.compile(
    r"v_(mov|accvgpr_(read|write|mov)|and|or|xor|xnor|not|bfi|and_or|or3|lshl_or|lshlrev|lshrrev|ashrrev|alignbit|alignbyte|perm|bfe|bfrev"
    r"|bitop3|cndmask|pk_mov|swap)_[bui]\d+|v_pack_b32_f16|v_pk_(lshlrev|lshrrev|ashrrev)_[bi]16"
    r"|s_(mov|and|or|xor|not|andn2|orn2|nand|nor|xnor|lshl|lshr|cselect|brev)_b(32|64)|s_ashr_i(32|64)|s_bfe_[ui](32|64)|s_pack_\w+|s_movk_i32"
)
"""Instructions whose result bits each depend on few source bits: run again rather than spoiled whole."""


_CARRY = re.compile(
    r"v_(add|sub|subrev)_(u32|i32|u16)|v_(add|sub|subrev)_co_u32|v_add3_u32|v_lshl_add_u(32|64)|v_add_lshl_u32|v_xad_u32|v_mul_lo_u(32|16)"
    r"|v_mad_[ui]64_[ui]32|v_mul_[ui]32_[ui]24|v_mad_[ui]32_[ui]24|s_(add|sub)_[ui]32|s_mul_i32|s_(add|mul)k_i32|s_lshl\d_add_u32"
)
"""Integer arithmetic in which a bit of the result depends only on source bits at or below it."""


def names_exact(name: str) -> bool:
    return _EXACT.fullmatch(name) is not None


def spread(batch: Batch, instruction: Instruction) -> dict[int, Array]:
    """Undefined bits of the results, from those of the sources: by register id, uint32 [wave, lane] or [wave]."""
    if instruction.spread is not None:
        return instruction.spread(batch)
    if instruction.compute is None:
        return _spoil_all(batch, instruction)
    sources = [r for r in instruction.reads if r in batch.undefined]
    if names_exact(instruction.name):
        return _exactly(batch, instruction, sources)
    if _CARRY.fullmatch(instruction.name) and instruction.parsed.suffix not in ("dpp", "sdwa"):
        return _carried(batch, instruction)
    if instruction.unit == "salu":
        flip: Array | None = np.ones(len(batch.waves), bool)
        outcomes = [
            _filled(batch, instruction, sources, [0] * len(sources), None),
            _filled(batch, instruction, sources, [0] * len(sources), flip),
        ]
        bits = _difference(batch, outcomes)
        if SCC in instruction.writes:
            bits[SCC] = np.ones(len(batch.waves), np.uint32)
        return bits
    flip = _spoiled_lanes(batch, instruction, sources)
    zero, one = [0] * len(sources), [1] * len(sources)
    outcomes = [
        _filled(batch, instruction, sources, zero, None),
        _filled(batch, instruction, sources, zero, flip),
        _filled(batch, instruction, sources, one, None),
    ]
    return _difference(batch, outcomes)


_CONTROL = re.compile(
    r"(?P<first>v_(pk_)?(lsh[lr]rev|ashrrev)_[bi](16|32|64))|(?P<second>v_lshl_or_b32|s_(lshl|lshr)_b(32|64)|s_ashr_i(32|64)|s_bfe_\w+)"
    r"|(?P<third>v_(perm|alignbit|alignbyte|cndmask)_b32)|(?P<both>v_bfe_[ui]32)"
)
"""Which source of an exact instruction chooses rather than gives bits: a shift amount, a selector."""


def _exactly(batch: Batch, instruction: Instruction, sources: list[int]) -> dict[int, Array]:
    """What changes in the result when the undefined bits of its operands are 0 or 1, in all combinations of operands.

    An undefined bit in a shift amount or selector could choose anything: it spoils the lane.
    """
    operands = [next((n for n, span in enumerate(instruction.sources) if r in span), 0) for r in sources]
    groups = {operand: i for i, operand in enumerate(sorted(set(operands)))}
    patterns = [[code >> groups[operand] & 1 for operand in operands] for code in range(1 << len(groups))]
    outcomes = [_filled(batch, instruction, sources, pattern, None) for pattern in patterns]
    flip = _undecided(batch, instruction)
    if flip is not None:
        outcomes.append(_filled(batch, instruction, sources, patterns[0], flip))
    return _difference(batch, outcomes)


def _undecided(batch: Batch, instruction: Instruction) -> Array | None:
    """Lanes (waves for scalar instructions) whose choosing operand has an undefined bit that matters; None: none."""
    if instruction.name.startswith("s_cselect"):
        return np.ones(len(batch.waves), bool) if SCC in batch.undefined else None
    match = _CONTROL.fullmatch(instruction.name)
    if match is None:
        return None
    chosen = {"first": (0,), "second": (1,), "third": (2,), "both": (1, 2)}[
        next(k for k, v in match.groupdict().items() if v)
    ]
    width = 63 if instruction.name.endswith("64") else 15 if instruction.name.endswith("16") else 31
    relevant = np.uint32(
        width
        if "lsh" in instruction.name
        or "ash" in instruction.name
        or "alignbit" in instruction.name
        or "v_bfe" in instruction.name
        else 0xFFFFFFFF
    )
    if instruction.unit == "salu":
        bits = [batch.undefined[r] & relevant for n in chosen for r in instruction.sources[n] if r in batch.undefined]
        return np.logical_or.reduce([b != 0 for b in bits]) if bits else None
    sources = [r for n in chosen for r in instruction.sources[n] if r in batch.undefined]
    if not sources:
        return None
    views = []
    for ones in (0, 1):
        saved = _set_bits(batch, sources, [ones] * len(sources))
        views.append([np.array(instruction.fetches[n](batch)) for n in chosen])
        for view, old in saved:
            view[...] = old
    lanes = np.zeros((len(batch.waves), 64), bool)
    for a, b in zip(*views, strict=True):
        changed = a != b if a.dtype == np.bool_ else (_bits(a) ^ _bits(b)) & relevant.astype(_bits(a).dtype) != 0
        lanes = lanes | (changed if changed.ndim == 2 else changed.any(axis=0))
    return lanes


def _carried(batch: Batch, instruction: Instruction) -> dict[int, Array]:
    """Everything from the lowest undefined source bit upwards; carries out of it too."""
    vector = instruction.unit == "valu"
    shape = (len(batch.waves), 64) if vector else (len(batch.waves),)
    low = np.zeros(shape, np.uint64)
    for span in instruction.sources if vector else (*instruction.sources, *instruction.results):
        for i, register in enumerate(span):
            bits = batch.undefined.get(register)
            if bits is not None and register in instruction.reads:
                wide = bits.astype(np.uint64) << np.uint64(32 * i)
                low |= wide[:, None] if vector and register >= SGPR else wide
    spoiled = low | (np.uint64(0) - low)  # ones from the lowest one upwards
    found: dict[int, Array] = {}
    for span in instruction.results:
        if vector and span[0] >= SGPR:
            words = np.packbits((low != 0) & batch.active, axis=-1, bitorder="little").view(np.uint32)
            found |= {register: words[:, i] for i, register in enumerate(span)}
        else:
            found |= {register: (spoiled >> np.uint64(32 * i)).astype(np.uint32) for i, register in enumerate(span)}
    if SCC in instruction.writes:
        found[SCC] = (low != 0).astype(np.uint32)
    return found


Outcome = list[tuple[int, Array]]


def _set_bits(batch: Batch, sources: list[int], pattern: Iterable[int]) -> list[tuple[Array, Array]]:
    """Fill the undefined bits of registers with zeros or ones; what to write back afterwards."""
    saved = []
    for register, ones in zip(sources, pattern, strict=True):
        view = batch.s[register - SGPR] if register >= SGPR else batch.v[batch.machine.rows[register]]
        saved.append((view, view.copy()))
        bits = batch.undefined[register]
        view[...] = view | bits if ones else view & ~bits
    return saved


def _filled(
    batch: Batch, instruction: Instruction, sources: list[int], pattern: list[int], flip: Array | None
) -> Outcome:
    assert instruction.compute is not None
    saved = _set_bits(batch, sources, pattern)
    outcome = [(register, np.array(value)) for register, value in instruction.compute(batch, flip)]
    for view, old in saved:
        view[...] = old
    return outcome


def _spoiled_lanes(batch: Batch, instruction: Instruction, sources: list[int]) -> Array:
    """bool [wave, lane] (or [item, wave, lane] for packed arithmetic): a source of the lane has an undefined bit."""
    shape = (len(batch.waves), 64)
    views = []
    for pattern in (0, 1):
        saved = _set_bits(batch, sources, [pattern] * len(sources))
        views.append([np.array(fetch(batch)) for fetch in instruction.fetches])
        for view, old in saved:
            view[...] = old
    packed = (
        bool(instruction.fetches)
        and all(view.ndim == 3 for view in views[0])
        and len({len(view) for view in views[0]}) == 1
    )
    lanes = np.zeros((len(views[0][0]), *shape) if packed else shape, bool)
    for a, b in zip(*views, strict=True):
        changed = _bits(a) != _bits(b)
        lanes = lanes | (changed if packed or changed.ndim == 2 else changed.any(axis=0))
    return lanes


def _bits(values: Array) -> Array:
    unsigned = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[values.dtype.itemsize]
    return values if values.dtype == np.bool_ else values.view(unsigned)


def _difference(batch: Batch, outcomes: list[Outcome]) -> dict[int, Array]:
    """Bits in which outcomes differ, per register."""
    found: dict[int, Array] = {}
    for others in outcomes[1:]:
        for (register, first), (_, other) in zip(outcomes[0], others, strict=True):
            if first.dtype == np.bool_:
                lanes = np.broadcast_to(first != other, (len(batch.waves), 64)) & batch.active
                words = np.packbits(lanes, axis=-1, bitorder="little").view(np.uint32)
                for i in range(2):
                    found[register + i] = found.get(register + i, np.uint32(0)) | words[:, i]
            else:
                shape = (len(batch.waves),) if register >= SGPR else (len(batch.waves), 64)
                found[register] = found.get(register, np.uint32(0)) | np.broadcast_to(first ^ other, shape)
    return found


def _spoil_all(batch: Batch, instruction: Instruction) -> dict[int, Array]:
    count = len(batch.waves)
    return {register: np.full((count,) if register >= SGPR else (count, 64), ALL) for register in instruction.writes}


def apply(batch: Batch, instruction: Instruction, bits: dict[int, Array]) -> None:
    """Record the undefined bits of an instruction's results, in the lanes that it wrote."""
    whole = instruction.unit == "mfma" or instruction.name == "v_writelane_b32" or batch.mask is None
    for register in instruction.writes:
        new = bits.get(register)
        old = batch.undefined.get(register)
        if register < SGPR and not whole and batch.mask is not None:
            kept = None if old is None else old & ~batch.mask
            new = kept if new is None else new & batch.mask if kept is None else kept | new & batch.mask
        if new is not None and new.any():
            batch.undefined[register] = np.ascontiguousarray(new)
        elif old is not None:
            del batch.undefined[register]


def undefined_among(batch: Batch, registers: Iterable[int], only: int = 0xFFFFFFFF) -> tuple[int, int, int, int] | None:
    """(register, wave row, lane or -1, byte of the register) of an undefined bit in an active lane; None when there
    is none.
    """
    for register in registers:
        bits = batch.undefined.get(register)
        if bits is None:
            continue
        seen = bits & np.uint32(only)
        if register < SGPR and batch.mask is not None:
            seen = seen & batch.mask
        if seen.any():
            place = np.argwhere(seen)[0]
            value = int(seen[tuple(place)])
            return (
                register,
                int(place[0]),
                int(place[1]) if len(place) > 1 else -1,
                ((value & -value).bit_length() - 1) // 8,
            )
    return None


def stored_bits(row: MemoryRow) -> int:
    """The bits of a data register that a store moves."""
    low = (1 << 8 * min(row.size, 4)) - 1
    return low << 16 if row.half == "high" else low


def register_name(register: int) -> str:
    if register >= SGPR:
        names = {
            106: "vcc_lo",
            107: "vcc_hi",
            124: "m0",
            EXEC - SGPR: "exec_lo",
            EXEC + 1 - SGPR: "exec_hi",
            128: "scc",
        }
        return names.get(register - SGPR, f"s{register - SGPR}")
    return f"v{register}" if register < 256 else f"a{register - 256}"
