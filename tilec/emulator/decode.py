"""Turns the text of a code object into blocks of bound instructions, lazily: only what a wave reaches is decoded.

A block runs from its first address to the next branch, barrier or branch target, so that waves part and meet only at
its ends. Mnemonics are looked up in the tables (scalar, vector, matrix, memory); one that is in none stops with
address, bytes and text.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from tilec.emulator import indexing, lane_ops, memory_ops, scalar_ops, vector_ops
from tilec.emulator.elf import CodeObject, Kernel
from tilec.emulator.hazards import Hazards
from tilec.emulator.instruction import Instruction
from tilec.emulator.matrix import MATRIX
from tilec.emulator.memory_rows import MEMORY
from tilec.emulator.operands import AGPR, M0, SGPR, parse
from tilec.emulator.vector import VECTOR
from tilec.emulator.wave import Batch
from tilec.errors import TilecError


@dataclass(eq=False)
class Block:
    """Instructions in order. `end` is the address after the last; `body` excludes nothing (a branch or barrier comes
    last).
    """

    start: int
    end: int
    body: tuple[Instruction, ...]
    stops: bool


class Binder:
    """Register ids to rows of the batch's register array: VGPRs first, AGPRs from the descriptor's accumulation
    offset.
    """

    def __init__(self, kernel: Kernel):
        descriptor = kernel.descriptor
        self.total = descriptor.vector_registers
        self.split = min(descriptor.accumulation_offset, self.total)
        self.rows = list(range(self.split)) + [-1] * (AGPR - self.split)
        self.rows += [self.split + i if self.split + i < self.total else -1 for i in range(SGPR - AGPR)]

    def row(self, register: int) -> int:
        row = self.rows[register] if register < SGPR else -1
        if row < 0:
            name = f"v{register}" if register < AGPR else f"a{register - AGPR}"
            raise ValueError(
                f"{name} is not allocated: the descriptor gives {self.split} VGPRs and {self.total - self.split} AGPRs"
            )
        return row


def _unbound(batch: Batch) -> None:
    raise AssertionError("instruction without a function")


class Decoded:
    """What every run of a kernel shares: bound instructions by address, branch targets, and pairs judged for wait
    states.
    """

    def __init__(self, code: CodeObject, kernel: Kernel):
        self.binder = Binder(kernel)
        self.hazards = Hazards(code.arch)
        self.position = {instruction.address: i for i, instruction in enumerate(code.instructions)}
        self.instructions: dict[int, Instruction] = {}
        self.indexed: dict[tuple[int, int], Instruction] = {}  # by address and M0, where registers are relative
        if code.origin is not None:
            parent, changed = code.origin
            shared = _decoded(parent, kernel)
            sizes = {i.address: i.size for i in code.instructions}
            self.binder, self.hazards = shared.binder, Hazards(code.arch)
            self.instructions = {
                address: instruction
                for address, instruction in shared.instructions.items()
                if sizes.get(address) == instruction.size
                and changed.isdisjoint(range(address, address + instruction.size, 4))
            }
        targets, moves = set(), set()
        for address, size, text in code.instructions:
            if text.startswith(("s_branch", "s_cbranch", "s_call")):
                offset = int(text.split()[-1].rsplit(",")[-1], 0) & 0xFFFF
                targets.add(address + size + 4 * (offset - (offset >> 15 << 16)))
            elif text.startswith(indexing.RELATIVE_MOVES):
                moves.add(address)
                targets |= {address, address + size}
        self.leaders, self.relative_moves = frozenset(targets), frozenset(moves)


_DECODED: WeakKeyDictionary[CodeObject, dict[str, Decoded]] = WeakKeyDictionary()


def _decoded(code: CodeObject, kernel: Kernel) -> Decoded:
    kernels = _DECODED.setdefault(code, {})
    if kernel.name not in kernels:
        kernels[kernel.name] = Decoded(code, kernel)
    return kernels[kernel.name]


class Program:
    """The blocks of one kernel, bound to its register allocation. `without`: addresses of instructions to leave out."""

    def __init__(self, code: CodeObject, kernel: Kernel, without: Collection[int] = ()):
        self.code, self.kernel, self.without = code, kernel, frozenset(without)
        self.decoded = _decoded(code, kernel)
        self.binder = self.decoded.binder
        self._position, self._instructions = self.decoded.position, self.decoded.instructions
        self._blocks: dict[tuple[int, int | None], Block] = {}
        missing = sorted(self.without - self._position.keys())
        if missing:
            raise TilecError(
                f"no instruction starts at {', '.join(map(hex, missing))}",
                fix="give addresses as `tilec disasm` prints them",
            )

    def block(self, address: int, m0: int | None = None) -> Block:
        """The block that starts at the address. `m0`: what registers are relative to, where they are (`relative`).
        Raises TilecError where no instruction starts.
        """
        block = self._blocks.get((address, m0))
        if block is None:
            block = self._blocks[address, m0] = self._build(address, m0)
        return block

    def relative(self, batch: Batch) -> bool:
        """Do the registers of the batch's next block depend on M0?"""
        return bool(batch.mode_bits & indexing.ENABLED) or batch.pc in self.decoded.relative_moves

    def _build(self, start: int, m0: int | None) -> Block:
        body: list[Instruction] = []
        address = start
        while True:
            if address not in self._position:
                raise TilecError(f"execution reached {address:#x}, where no instruction starts")
            raw = self.code.instructions[self._position[address]]
            if address not in self.without:
                instruction = self.instruction(address, m0)
                body.append(instruction)
                if instruction.ends_block or m0 is not None and M0 in instruction.writes:
                    return Block(start, raw.address + raw.size, tuple(body), True)
            address += raw.size
            if address in self.decoded.leaders or len(body) >= 4096:
                return Block(start, address, tuple(body), False)

    def instruction(self, address: int, m0: int | None = None) -> Instruction:
        """The bound instruction at the address; with `m0`, its registers are those that this M0 leads to."""
        raw = self.code.instructions[self._position[address]]
        if m0 is None and address in self.decoded.relative_moves:
            m0 = 0
        if m0 is None:
            found = self._instructions.get(address)
            if found is None:
                found = self._instructions[address] = self._decode(raw.address, raw.size, raw.text, None)
            return found
        key = address, m0
        if key not in self.decoded.indexed:
            self.decoded.indexed[key] = self._decode(raw.address, raw.size, raw.text, m0)
        return self.decoded.indexed[key]

    def _decode(self, address: int, size: int, text: str, m0: int | None) -> Instruction:
        if not text:
            raise self._unknown(address, size, "no instruction of the architecture")
        try:
            parsed = parse(text) if m0 is None else indexing.shifted(parse(text), m0)
            instruction = Instruction(address, size, text, parsed, "", _unbound)
            arch, name = self.code.arch, parsed.name
            if name.startswith("s_") and scalar_ops.bind_scalar(self.binder, instruction):
                pass
            elif (memory := MEMORY.get(name)) is not None and arch in memory.architectures:
                memory_ops.bind_memory(self.binder, instruction, memory)
            elif (matrix := MATRIX.get(name)) is not None and arch in matrix.architectures:
                lane_ops.bind_matrix(self.binder, instruction, matrix)
            elif name in lane_ops.LANE_OPS:
                lane_ops.bind_lanes(self.binder, instruction)
            elif (vector := VECTOR.get(name)) is not None and arch in vector.architectures:
                vector_ops.bind_vector(self.binder, instruction, vector)
            elif name in ("v_nop", "v_clrexcp"):
                instruction.unit, instruction.execute = "valu", scalar_ops.idle
            else:
                raise self._unknown(address, size, text)
        except (ValueError, KeyError, AssertionError) as error:
            raise TilecError(f"instruction not understood at {address:#x}: {text}", limit=f"{error}") from error
        instruction.touches = instruction.reads | instruction.writes
        return instruction

    def _unknown(self, address: int, size: int, text: str) -> TilecError:
        return TilecError(
            f"the emulator can't execute the instruction at {address:#x}: {text}",
            limit=f"its bytes are {self.code.bytes_at(address, size).hex(' ')}",
            fix=f"`tilec isa --missing {self.code.arch}` lists what the emulator lacks",
        )
