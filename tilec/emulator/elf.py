"""Reads a code object: the ELF container, kernel descriptors, metadata, instructions and source lines.

Only what the hardware and the loader would look at is used: `.text` bytes, the 64-byte descriptor behind each
`NAME.kd` symbol (LLVM, "User Guide for AMDGPU Backend", code object v3 kernel descriptor), the msgpack note for
arguments, `.debug_line` for lines. Addresses are those of the file (the object is loaded at 0). Nothing here executes
or interprets an instruction.
"""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import msgpack
from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import NoteSection, SymbolTableSection

from tilec import llvm
from tilec.errors import TilecError

MACHINES = {0x4C: "gfx942", 0x4F: "gfx950"}
"""EF_AMDGPU_MACH, the low byte of e_flags."""

USER_SGPRS = (  # descriptor property bit, name, SGPRs; in the order in which the hardware fills them
    (0, "private_segment_buffer", 4),
    (1, "dispatch_ptr", 2),
    (2, "queue_ptr", 2),
    (3, "kernarg_segment_ptr", 2),
    (4, "dispatch_id", 2),
    (5, "flat_scratch_init", 2),
    (6, "private_segment_size", 1),
)


@dataclass(frozen=True)
class Argument:
    """One kernel argument of the metadata. `kind` is the value_kind: by_value, global_buffer, hidden_block_count_x,
    ...
    """

    name: str
    offset: int
    size: int
    kind: str


@dataclass(frozen=True)
class Descriptor:
    """The 64 bytes behind `NAME.kd`, field by field. Sizes in bytes; `entry` is the address of the first
    instruction.
    """

    lds_bytes: int
    scratch_bytes: int
    kernarg_bytes: int
    entry: int
    rsrc1: int
    rsrc2: int
    rsrc3: int
    properties: int
    preload: int

    @property
    def accumulation_offset(self) -> int:
        """First AGPR's place in the unified register file = VGPRs that the wave owns (RSRC3 ACCUM_OFFSET)."""
        return 4 * ((self.rsrc3 & 63) + 1)

    @property
    def vector_registers(self) -> int:
        """VGPRs and AGPRs together, as allocated (granule 8)."""
        return 8 * ((self.rsrc1 & 63) + 1)

    @property
    def mode(self) -> int:
        """The MODE register at entry: rounding and denormals in [7:0], DX10_CLAMP 8, IEEE 9, FP16_OVFL 23."""
        return (
            self.rsrc1 >> 12 & 0xFF
            | (self.rsrc1 >> 21 & 1) << 8
            | (self.rsrc1 >> 23 & 1) << 9
            | (self.rsrc1 >> 26 & 1) << 23
        )

    @property
    def user_sgprs(self) -> tuple[tuple[str, int], ...]:
        """Enabled user SGPR inputs with their number of registers, in order, without preloaded arguments."""
        return tuple((name, count) for bit, name, count in USER_SGPRS if self.properties >> bit & 1)

    @property
    def preload_count(self) -> int:
        """Dwords of the kernel argument segment that the firmware places in SGPRs before it enters at entry + 256."""
        return self.preload & 0x7F

    @property
    def preload_offset(self) -> int:
        """First preloaded dword of the kernel argument segment."""
        return self.preload >> 7

    @property
    def workgroup_ids(self) -> tuple[bool, bool, bool]:
        return bool(self.rsrc2 & 1 << 7), bool(self.rsrc2 & 1 << 8), bool(self.rsrc2 & 1 << 9)

    @property
    def workgroup_info(self) -> bool:
        return bool(self.rsrc2 & 1 << 10)

    @property
    def workitem_id(self) -> int:
        """0: v0 holds x; 1: x and y; 2: x, y and z (packed into v0, ten bits each)."""
        return self.rsrc2 >> 11 & 3


@dataclass(frozen=True)
class Kernel:
    """A kernel of the object. `lds_bytes` and `scratch_bytes` are static; `size` is the length of its code in bytes."""

    name: str
    descriptor: Descriptor
    arguments: tuple[Argument, ...]
    size: int
    max_workgroup: int
    metadata: dict[str, Any] = field(repr=False, compare=False)

    @property
    def lds_bytes(self) -> int:
        return self.descriptor.lds_bytes

    @property
    def scratch_bytes(self) -> int:
        return self.descriptor.scratch_bytes

    @property
    def kernarg_bytes(self) -> int:
        return self.descriptor.kernarg_bytes


@dataclass(frozen=True, eq=False)
class CodeObject:
    """A loaded code object. `instructions` covers all of `.text`, in address order."""

    arch: str
    kernels: dict[str, Kernel]
    text_address: int
    text: bytes = field(repr=False)
    lines: dict[int, str] = field(repr=False, compare=False)
    origin: tuple[CodeObject, frozenset[int]] | None = field(repr=False, default=None)
    """The object that this one was patched from, and the dwords that differ: decoded instructions are shared."""

    @cached_property
    def instructions(self) -> tuple[llvm.Instruction, ...]:
        return tuple(llvm.disassemble(self.text, self.arch, self.text_address))

    def patched(self, changes: dict[int, bytes]) -> CodeObject:
        """A copy with the bytes at these addresses replaced: for mutation tests, which break a program in one place."""
        text = bytearray(self.text)
        for address, data in changes.items():
            start = address - self.text_address
            text[start : start + len(data)] = data
        changed = {a + i for a, data in changes.items() for i in range(0, len(data), 4)}
        return replace(self, text=bytes(text), origin=(self, frozenset(changed)))

    def bytes_at(self, address: int, size: int) -> bytes:
        offset = address - self.text_address
        return self.text[offset : offset + size]

    def line_of(self, address: int) -> str:
        """`file:line` of the source where the object says it, else ''."""
        return self.lines.get(address, "")


def load_object(data: bytes) -> CodeObject:
    """Parse an ELF code object for gfx942 or gfx950. Raises TilecError when it is none."""
    try:
        elf = ELFFile(io.BytesIO(data))
        if elf["e_machine"] != "EM_AMDGPU":
            raise TilecError(f"not an AMDGPU code object: e_machine is {elf['e_machine']}", fix="give an .hsaco file")
        arch = MACHINES.get(elf["e_flags"] & 0xFF)
        if arch is None:
            raise TilecError(
                f"the code object is for machine {elf['e_flags'] & 0xFF:#x}",
                limit="the emulator runs gfx942 (0x4c) and gfx950 (0x4f)",
            )
        return _read(elf, arch)
    except ELFError as error:
        raise TilecError(f"not a readable ELF file: {error}") from error


def _read(elf: ELFFile, arch: str) -> CodeObject:
    text = elf.get_section_by_name(".text")
    if text is None:
        raise TilecError("the code object has no .text section")
    symbols = {
        symbol.name: symbol.entry
        for name in (".symtab", ".dynsym")
        if isinstance(table := elf.get_section_by_name(name), SymbolTableSection)
        for symbol in table.iter_symbols()
    }
    kernels = {}
    for entry in _metadata(elf).get("amdhsa.kernels", ()):
        name, descriptor_symbol = entry[".name"], entry[".symbol"]
        if descriptor_symbol not in symbols:
            raise TilecError(
                f"the metadata names the kernel descriptor {descriptor_symbol}, but the object has no such symbol"
            )
        address = symbols[descriptor_symbol]["st_value"]
        arguments = tuple(
            Argument(a.get(".name", ""), a[".offset"], a[".size"], a[".value_kind"]) for a in entry.get(".args", ())
        )
        kernels[name] = Kernel(
            name,
            _descriptor(_load(elf, address, 64), address),
            arguments,
            symbols[name]["st_size"] if name in symbols else 0,
            entry.get(".max_flat_workgroup_size", 1024),
            entry,
        )
    return CodeObject(arch, kernels, text["sh_addr"], text.data(), _lines(elf))


def _load(elf: ELFFile, address: int, size: int) -> bytes:
    """Bytes of the loaded image."""
    for section in elf.iter_sections():
        start = section["sh_addr"]
        if (
            section["sh_type"] == "SHT_PROGBITS"
            and start
            and start <= address
            and address + size <= start + section["sh_size"]
        ):
            return section.data()[address - start : address - start + size]
    raise TilecError(f"nothing of the code object is loaded at {address:#x}", limit=f"{size} bytes are needed there")


def _descriptor(data: bytes, address: int) -> Descriptor:
    lds, scratch, kernarg, _, entry, _, rsrc3, rsrc1, rsrc2, properties, preload, _ = struct.unpack(
        "<IIIIq20sIIIHHI", data
    )
    return Descriptor(lds, scratch, kernarg, address + entry, rsrc1, rsrc2, rsrc3, properties, preload)


def _metadata(elf: ELFFile) -> dict[str, Any]:
    for section in elf.iter_sections():
        if not isinstance(section, NoteSection):
            continue
        for note in section.iter_notes():
            if note["n_name"] == "AMDGPU" and note["n_type"] in (32, "NT_AMDGPU_METADATA"):
                unpacked: dict[str, Any] = msgpack.unpackb(note["n_descdata"])
                return unpacked
    raise TilecError("the code object has no AMDGPU metadata note", limit="code object v3 or later is needed")


def _lines(elf: ELFFile) -> dict[int, str]:
    """Address to `file:line`, from the line number program; each address inherits the last row before it."""
    if not elf.has_dwarf_info():
        return {}
    dwarf = elf.get_dwarf_info()
    rows: list[tuple[int, str]] = []
    for unit in dwarf.iter_CUs():
        program = dwarf.line_program_for_CU(unit)
        if program is None:
            continue
        files = program["file_entry"]
        first = 0 if program["version"] >= 5 else 1
        for entry in program.get_entries():
            state = entry.state
            if state is not None and not state.end_sequence and 0 <= state.file - first < len(files):
                rows.append((state.address, f"{files[state.file - first].name.decode()}:{state.line}"))
    lines: dict[int, str] = {}
    rows.sort()
    for (address, line), (end, _) in zip(rows, rows[1:] + [(rows[-1][0] + 4, "")] if rows else [], strict=False):
        for place in range(address, max(end, address + 4), 4):
            lines[place] = line
    return lines
