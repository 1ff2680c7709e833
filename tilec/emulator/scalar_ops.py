"""Binds scalar instructions: SGPR operands to the kinds of a row, EXEC updates, hardware registers, control flow and
waits.

What ends a block (branches, barriers, the end) returns its outcome to the scheduler in grid.py through the batch's pc
and `stop`. Hardware registers: MODE is real (rounding, denormals, overflow), HW_ID and XCC_ID tell where the
dispatcher put the wave.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tilec.emulator import indexing
from tilec.emulator.instruction import Instruction
from tilec.emulator.operands import EXEC, M0, SCC, SGPR, VCC, Constant, Operand, Register, Special
from tilec.emulator.scalar import SAVE_EXEC, SCALAR, WRITE_EXEC, ScalarRow
from tilec.emulator.vector_sources import special_value

if TYPE_CHECKING:
    from tilec.emulator.decode import Binder
    from tilec.emulator.wave import Batch

Array = np.ndarray[Any, Any]
_TYPES: dict[str, Any] = {"u32": np.uint32, "i32": np.int32, "u64": np.uint64, "i64": np.int64}
_SCC = SCC - SGPR
_EXEC = EXEC - SGPR
_M0 = M0 - SGPR
HARDWARE_REGISTERS = {
    "HW_REG_MODE": 1,
    "HW_REG_STATUS": 2,
    "HW_REG_TRAPSTS": 3,
    "HW_REG_HW_ID": 4,
    "HW_REG_GPR_ALLOC": 5,
    "HW_REG_LDS_ALLOC": 6,
    "HW_REG_IB_STS": 7,
    "HW_REG_SH_MEM_BASES": 15,
    "HW_REG_XCC_ID": 20,
}
IDLE = (
    "s_nop",
    "s_setprio",
    "s_sleep",
    "s_sethalt",
    "s_setkill",
    "s_icache_inv",
    "s_incperflevel",
    "s_decperflevel",
    "s_ttracedata",
    "s_sendmsg",
    "s_wakeup",
    "s_setvskip",
    "s_trap",
    "s_inst_prefetch",
)
BRANCHES = (
    "s_branch",
    "s_cbranch_scc0",
    "s_cbranch_scc1",
    "s_cbranch_vccz",
    "s_cbranch_vccnz",
    "s_cbranch_execz",
    "s_cbranch_execnz",
)
JUMPS = ("s_setpc_b64", "s_swappc_b64", "s_call_b64")


def bind_scalar(binder: Binder, instruction: Instruction) -> bool:
    """Fill in the instruction's functions; False when the name is no scalar instruction that the emulator knows."""
    name = instruction.name
    if name in SCALAR:
        _arithmetic(instruction, SCALAR[name])
    elif match := re.fullmatch(r"s_(\w+?)_(saveexec|wrexec)_b64", name):
        _exec_update(instruction, match[1], match[2])
    elif name.startswith(("s_setreg", "s_getreg")):
        _hardware_register(instruction)
    elif name in ("s_waitcnt", "s_waitcnt_vmcnt", "s_waitcnt_lgkmcnt", "s_waitcnt_expcnt", "s_waitcnt_vscnt"):
        _wait(instruction)
    elif name in BRANCHES:
        _branch(instruction)
    elif name in JUMPS:
        _jump(instruction)
    elif name == "s_getpc_b64":
        _set(
            instruction,
            instruction.parsed.operands[0].register,
            lambda batch: np.full(len(batch.waves), instruction.address + instruction.size, np.uint64),
            (),
        )
    elif name in ("s_endpgm", "s_endpgm_saved"):
        instruction.ends_block = True
        instruction.execute = _end
    elif name == "s_barrier":
        instruction.ends_block = True
        instruction.execute = _barrier_of(instruction)
    elif name in indexing.CHANGES:
        _index_change(instruction)
    elif name in IDLE:
        instruction.execute = idle
        if name == "s_nop":
            count = instruction.parsed.operands[0].value
            assert isinstance(count, Constant)
            instruction.states = int(count.value) + 1
    else:
        return False
    if instruction.unit == "":
        instruction.unit = "control"
    return True


def idle(batch: Batch) -> None:
    """No architectural effect."""


def _end(batch: Batch) -> None:
    batch.stop = "end"


def _barrier_of(instruction: Instruction) -> Callable[[Batch], None]:
    after = instruction.address + instruction.size

    def execute(batch: Batch) -> None:
        batch.stop, batch.barrier, batch.pc = "barrier", instruction, after

    return execute


def fetch(operand: Operand, kind: str) -> Callable[[Batch], Array]:
    """A scalar source as [wave] of its kind ([1] for constants)."""
    value = operand.value
    if kind in ("k16", "ku16"):
        assert isinstance(value, Constant)
        low = int(value.value) & 0xFFFF
        number = np.array([low - (low >> 15 << 16)], np.int32) if kind == "k16" else np.array([low], np.uint32)
        return lambda batch: number
    dtype, wide = _TYPES[kind], kind.endswith("64")
    if isinstance(value, Constant):
        bits = value.bits("f64" if wide and isinstance(value.value, float) else kind)
        number = np.array([bits], np.uint64 if wide else np.uint32).view(dtype)
        return lambda batch: number
    if isinstance(value, Special):
        special = special_value(value.name, 2 if wide else 1)
        if not wide:
            return lambda batch: special(batch)[:, 0].view(dtype)
        return lambda batch: (
            special(batch)[0, :, 0].astype(np.uint64) | special(batch)[1, :, 0].astype(np.uint64) << np.uint64(32)
        ).view(dtype)
    index = value.first - SGPR
    if not wide:
        if dtype is np.uint32:
            return lambda batch: batch.s[index]
        return lambda batch: batch.s[index].view(dtype)
    return lambda batch: (
        batch.s[index].astype(np.uint64) | batch.s[index + 1].astype(np.uint64) << np.uint64(32)
    ).view(dtype)


def _store(register: Register, wide: bool) -> Callable[[Batch, Array], None]:
    index = register.first - SGPR
    touches_exec = register.first in (EXEC, EXEC + 1)

    def store(batch: Batch, value: Array) -> None:
        if wide:
            bits = value.view(np.uint64)
            batch.s[index] = bits.astype(np.uint32)
            batch.s[index + 1] = (bits >> np.uint64(32)).astype(np.uint32)
        else:
            batch.s[index] = value.view(np.uint32)
        if touches_exec:
            batch.exec_changed()

    return store


def _set(
    instruction: Instruction, register: Register, compute: Callable[[Batch], Array], reads: tuple[int, ...]
) -> None:
    """An instruction that writes one 64-bit scalar."""
    store = _store(register, True)
    instruction.execute = lambda batch: store(batch, compute(batch))
    instruction.writes, instruction.reads, instruction.unit = frozenset(register.ids), frozenset(reads), "salu"


def _arithmetic(instruction: Instruction, row: ScalarRow) -> None:
    operands = list(instruction.parsed.operands)
    destination = operands.pop(0).register if row.dst else None
    kinds = row.src
    fetches = [fetch(operand, kind) for operand, kind in zip(operands, kinds, strict=True)]
    if row.reads_dst and destination is not None:
        fetches.insert(0, fetch(Operand(destination), row.dst if row.dst in _TYPES else "i32"))
    if row.reads_scc:
        fetches.append(lambda batch: batch.s[_SCC])
    store = _store(destination, row.dst.endswith("64")) if destination is not None else None
    function, scc = row.function, row.scc

    def compute(batch: Batch) -> tuple[Any, Any]:
        """(result or None, SCC or None)."""
        value = function(*[f(batch) for f in fetches])
        if scc == "keep":
            return value, None
        if scc == "nonzero":
            return value, value != 0
        return value if isinstance(value, tuple) else (None, value)

    def execute(batch: Batch) -> None:
        result, flag = compute(batch)
        if store is not None:
            store(batch, result)
        if flag is not None:
            batch.s[_SCC] = flag

    reads = {i for operand in operands for i in operand.ids} | ({SCC} if row.reads_scc else set())
    if row.reads_dst and destination is not None:
        reads |= set(destination.ids)
    writes = set(destination.ids) if destination is not None else set()
    instruction.results = (destination.ids,) if destination is not None else ()
    instruction.sources = tuple(operand.ids for operand in operands)
    instruction.execute, instruction.unit, instruction.row = execute, "salu", row
    instruction.reads = frozenset(reads)
    instruction.writes = frozenset(writes | ({SCC} if scc != "keep" else set()))

    def results(batch: Batch, flip: Array | None = None) -> list[tuple[int, Array]]:
        result, flag = compute(batch)
        out: list[tuple[int, Array]] = []
        if destination is not None:
            bits = np.broadcast_to(result.view(np.uint64 if row.dst.endswith("64") else np.uint32), (len(batch.waves),))
            bits = ~bits if flip is not None else bits
            out = [
                (i, (bits >> bits.dtype.type(32 * n)).astype(np.uint32) if n else bits.astype(np.uint32))
                for n, i in enumerate(destination.ids)
            ]
        if flag is not None:
            out.append((SCC, np.broadcast_to(flag, (len(batch.waves),)).astype(np.uint32)))
        return out

    instruction.compute = results


def _exec_update(instruction: Instruction, operation: str, form: str) -> None:
    destination, source = instruction.parsed.operands
    function = (SAVE_EXEC if form == "saveexec" else WRITE_EXEC)[operation]
    get, old = fetch(source, "u64"), fetch(Operand(Register(EXEC, 2)), "u64")
    store, store_exec = _store(destination.register, True), _store(Register(EXEC, 2), True)

    def execute(batch: Batch) -> None:
        before = old(batch)
        after = function(get(batch), before)
        store(batch, before if form == "saveexec" else after)
        batch.s[_SCC] = after != 0
        store_exec(batch, np.broadcast_to(after, before.shape))

    instruction.execute, instruction.unit = execute, "salu"
    instruction.reads = frozenset((*source.ids, EXEC, EXEC + 1))
    instruction.writes = frozenset((*destination.ids, EXEC, EXEC + 1, SCC))
    instruction.sources, instruction.results = (source.ids,), (destination.ids,)


def hardware_field(operand: Operand) -> tuple[int, int, int]:
    """(register id, first bit, bits) of hwreg(NAME, offset, size), or of the 16-bit code (size-1) << 11 | offset << 6
    | id.
    """
    if isinstance(operand.value, Constant):
        code = int(operand.value.value)
        return code & 63, code >> 6 & 31, (code >> 11 & 31) + 1
    match = re.fullmatch(
        r"hwreg\((\w+)(?:,\s*(\d+),\s*(\d+))?\)", operand.value.name if isinstance(operand.value, Special) else ""
    )
    if not match:
        raise ValueError(f"hardware register not understood: {operand.value}")
    number = HARDWARE_REGISTERS[match[1]] if match[1] in HARDWARE_REGISTERS else int(match[1], 0)
    return number, int(match[2] or 0), int(match[3] or 32)


def _hardware_register(instruction: Instruction) -> None:
    operands = instruction.parsed.operands
    getting = instruction.name == "s_getreg_b32"
    number, offset, bits = hardware_field(operands[1 if getting else 0])
    keep = (1 << bits) - 1
    if getting:
        store = _store(operands[0].register, False)
        instruction.execute = lambda batch: store(
            batch, batch.machine.hardware_register(batch, number) >> np.uint32(offset) & np.uint32(keep)
        )
        instruction.writes, instruction.unit = frozenset(operands[0].ids), "salu"
        instruction.results = (operands[0].ids,)
        return
    get = fetch(operands[1], "u32")
    instruction.ends_block = instruction.name == "s_setreg_b32"

    def execute(batch: Batch) -> None:
        if number != HARDWARE_REGISTERS["HW_REG_MODE"]:
            return
        values = np.broadcast_to(get(batch), (len(batch.waves),))
        if (values == values[0]).all():
            batch.set_mode(batch.mode_bits & ~(keep << offset) | (int(values[0]) & keep) << offset)
            return
        for value, part in batch.part(values):  # a batch has one mode
            part.set_mode(part.mode_bits & ~(keep << offset) | (value & keep) << offset)

    instruction.execute, instruction.unit = execute, "salu"
    instruction.reads = frozenset(operands[1].ids)


def _index_change(instruction: Instruction) -> None:
    """s_set_gpr_idx_on S, gpr_idx(ROLES); _mode gpr_idx(ROLES); _idx S; _off: M0[7:0] the index, M0[15:12] roles."""
    kind, operands = instruction.name.rsplit("_", 1)[1], instruction.parsed.operands
    get = fetch(operands[0], "u32") if kind in ("on", "idx") else None
    roles = indexing.roles(operands[-1]) << 12 if kind in ("on", "mode") else 0
    kept = ~np.uint32((0xFF if get is not None else 0) | (0xF000 if kind in ("on", "mode") else 0))

    def execute(batch: Batch) -> None:
        if kind != "off":
            index = 0 if get is None else get(batch) & np.uint32(0xFF)
            batch.s[_M0] = batch.s[_M0] & kept | index | np.uint32(roles)
        if kind in ("on", "off"):
            batch.set_mode(batch.mode_bits & ~indexing.ENABLED | (indexing.ENABLED if kind == "on" else 0))

    instruction.execute, instruction.unit, instruction.ends_block = execute, "salu", True
    if kind != "off":
        instruction.writes, instruction.results = frozenset((M0,)), (range(M0, M0 + 1),)
        instruction.sources = (operands[0].ids,)
        instruction.reads = frozenset((*operands[0].ids, *(() if kind == "on" else (M0,))))


def _wait(instruction: Instruction) -> None:
    modifiers = instruction.parsed.modifiers
    vm, lgkm = modifiers.get("vmcnt", 63), modifiers.get("lgkmcnt", 15)
    assert isinstance(vm, int) and isinstance(lgkm, int)

    def execute(batch: Batch) -> None:
        if vm < 63:
            batch.machine.retire(batch, "vm", vm)
        if lgkm < 15:
            batch.machine.retire(batch, "lgkm", lgkm)

    instruction.execute = execute


_CONDITIONS: dict[str, tuple[tuple[int, ...], Callable[[Array], Array]]] = {
    "s_cbranch_scc0": ((SCC,), lambda s: s[_SCC] == 0),
    "s_cbranch_scc1": ((SCC,), lambda s: s[_SCC] != 0),
    "s_cbranch_vccz": ((VCC, VCC + 1), lambda s: s[VCC - SGPR] | s[VCC + 1 - SGPR] == 0),
    "s_cbranch_vccnz": ((VCC, VCC + 1), lambda s: s[VCC - SGPR] | s[VCC + 1 - SGPR] != 0),
    "s_cbranch_execz": ((EXEC, EXEC + 1), lambda s: s[_EXEC] | s[_EXEC + 1] == 0),
    "s_cbranch_execnz": ((EXEC, EXEC + 1), lambda s: s[_EXEC] | s[_EXEC + 1] != 0),
}


def branch_target(instruction: Instruction) -> int:
    """The immediate is printed unsigned: dwords from the next instruction, 16 bits signed."""
    offset = instruction.parsed.operands[-1].value
    if not isinstance(offset, Constant):
        raise ValueError(f"branch target not understood: {instruction.text}")
    dwords = int(offset.value) & 0xFFFF
    return instruction.address + instruction.size + 4 * (dwords - (dwords >> 15 << 16))


def _branch(instruction: Instruction) -> None:
    instruction.ends_block = True
    target = branch_target(instruction)
    if instruction.name == "s_branch":

        def jump(batch: Batch) -> None:
            batch.pc = target

        instruction.execute = jump
        return
    reads, condition = _CONDITIONS[instruction.name]
    instruction.reads = frozenset(reads)
    following = instruction.address + instruction.size

    def execute(batch: Batch) -> None:
        taken = condition(batch.s)
        count = int(np.count_nonzero(taken))
        if count == len(taken):
            batch.pc = target
        elif count == 0:
            batch.pc = following
        else:
            for branches, part in batch.part(taken):
                part.pc = target if branches else following

    instruction.execute = execute


def _jump(instruction: Instruction) -> None:
    instruction.ends_block, instruction.unit = True, "salu"
    following = instruction.address + instruction.size
    operands = instruction.parsed.operands
    store = _store(operands[0].register, True) if len(operands) == 2 else None
    constant = branch_target(instruction) if instruction.name == "s_call_b64" else None
    get = None if constant is not None else fetch(operands[-1], "u64")
    instruction.writes = frozenset(operands[0].ids) if store is not None else frozenset()
    instruction.reads = frozenset(operands[-1].ids)

    def execute(batch: Batch) -> None:
        targets = np.array([constant], np.uint64) if get is None else get(batch)
        if store is not None:
            store(batch, np.full(len(batch.waves), following, np.uint64))
        if (targets == targets[0]).all():
            batch.pc = int(targets[0])
            return
        for place, part in batch.part(targets):
            part.pc = place

    instruction.execute = execute
