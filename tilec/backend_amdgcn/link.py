"""Links one relocatable AMDGPU object into a code object: the ELF shared object that the HSA loader takes.

The result is laid out as `ld.lld -shared` lays it out, section by section at the same addresses, so that the two can be
compared byte for byte. Of what is not loaded, the line table (`.debug_*`) is kept; `.symtab` and `.comment` are not.
Formats: System V ABI (ELF64, dynamic section, SysV hash), GNU hash, LLVM's AMDGPU guide (notes, relocations).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field

from tilec.errors import TilecError
from tilec.llvm import TEXT_END

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")        # Elf64_Ehdr
_SECTION = struct.Struct("<IIQQQQIIQQ")             # Elf64_Shdr
_SEGMENT = struct.Struct("<IIQQQQQQ")               # Elf64_Phdr
_SYMBOL = struct.Struct("<IBBHQQ")                  # Elf64_Sym
_RELOCATION = struct.Struct("<QIIq")                # Elf64_Rela; the info word split into type and symbol
_NOTE = struct.Struct("<III")

_PAGE = 0x1000
_ET_REL, _ET_DYN = 1, 3
_SHT_PROGBITS, _SHT_SYMTAB, _SHT_STRTAB, _SHT_RELA, _SHT_HASH, _SHT_DYNAMIC, _SHT_NOTE, _SHT_DYNSYM, _SHT_GNU_HASH = (
    1, 2, 3, 4, 5, 6, 7, 11, 0x6FFFFFF6)
_WRITE, _ALLOC, _EXECUTE = 1, 2, 4                  # section flags
_PT_LOAD, _PT_DYNAMIC, _PT_NOTE, _PT_PHDR, _PT_GNU_STACK, _PT_GNU_RELRO = 1, 2, 4, 6, 0x6474E551, 0x6474E552
_R, _RW, _RX = 4, 6, 5                              # segment flags
_DT_NULL, _DT_HASH, _DT_STRTAB, _DT_SYMTAB, _DT_STRSZ, _DT_SYMENT, _DT_GNU_HASH = 0, 4, 5, 6, 10, 11, 0x6FFFFEF5
_STB_LOCAL = 0
_R_AMDGPU_ABS64, _R_AMDGPU_REL32, _R_AMDGPU_REL64, _R_AMDGPU_ABS32 = 3, 4, 5, 6
_R_AMDGPU_REL32_LO, _R_AMDGPU_REL32_HI = 10, 11
_NT_AMDGPU_METADATA = 32
_SEGMENTS = 8


@dataclass(eq=False)
class _Section:
    name: str
    type: int
    flags: int
    align: int
    data: bytes
    entry_size: int = 0
    link: int = 0
    info: int = 0
    address: int = 0
    offset: int = 0


@dataclass(frozen=True)
class _Symbol:
    name: str
    info: int
    other: int
    section: int            # index in the relocatable; 0: undefined
    value: int
    size: int


@dataclass
class _Object:
    ident: bytes
    machine: int
    flags: int
    sections: list[_Section]
    symbols: list[_Symbol] = field(default_factory=list)

    def named(self, name: str) -> _Section | None:
        return next((section for section in self.sections if section.name == name), None)


def link(relocatable: bytes) -> bytes:
    """The loadable code object of one relocatable object. Raises TilecError for what a kernel module can't contain."""
    source = _read(relocatable)
    kept = [section for section in source.sections if section.flags & _ALLOC and section.data]
    for section in kept:
        if section.name not in (".note", ".rodata", ".text"):
            raise TilecError(f"a kernel module can't have the section {section.name}",
                             limit="sections that are loaded: .text, .rodata, .note",
                             fix="keep constants in .rodata and writable data in tensors")
    note = source.named(".note") or _Section(".note", _SHT_NOTE, _ALLOC, 4, b"")
    rodata = source.named(".rodata") or _Section(".rodata", _SHT_PROGBITS, _ALLOC, 64, b"")
    text = source.named(".text") or _Section(".text", _SHT_PROGBITS, _ALLOC | _EXECUTE, 256, b"")
    end = next((symbol for symbol in source.symbols if symbol.name == TEXT_END), None)
    if end:                                         # LLVM's module route pads the code and adds an empty metadata note
        text.data = text.data[:end.value]
        note.data = _first_metadata(note.data)
    exported = [symbol for symbol in source.symbols if symbol.info >> 4 != _STB_LOCAL and symbol.section]
    names, name_offsets = _string_table(symbol.name for symbol in exported)
    exported = _in_hash_order(exported)

    blank = bytes(_SYMBOL.size * (len(exported) + 1))
    dynsym = _Section(".dynsym", _SHT_DYNSYM, _ALLOC, 8, blank, _SYMBOL.size, info=1)
    gnu_hash = _Section(".gnu.hash", _SHT_GNU_HASH, _ALLOC, 8, _gnu_hash(exported))
    sysv_hash = _Section(".hash", _SHT_HASH, _ALLOC, 4, _sysv_hash(exported), 4)
    dynstr = _Section(".dynstr", _SHT_STRTAB, _ALLOC, 1, names)
    dynamic = _Section(".dynamic", _SHT_DYNAMIC, _WRITE | _ALLOC, 8, bytes(7 * 16), 16)
    out = [note, dynsym, gnu_hash, sysv_hash, dynstr, rodata, text, dynamic]
    number = {id(section): index for index, section in enumerate(out, 1)}
    dynsym.link = dynamic.link = number[id(dynstr)]
    gnu_hash.link = sysv_hash.link = number[id(dynsym)]

    _place(out, text, dynamic)
    debug = [section for section in source.sections if section.name.startswith(".debug_")]
    home = {index: section for index, section in enumerate(source.sections) if section in (note, rodata, text, *debug)}
    _relocate(source, home)
    dynsym.data = b"".join([bytes(_SYMBOL.size), *(
        _SYMBOL.pack(name_offsets[symbol.name], symbol.info, symbol.other, number[id(home[symbol.section])],
                     home[symbol.section].address + symbol.value, symbol.size) for symbol in exported)])
    dynamic.data = b"".join(struct.pack("<QQ", *entry) for entry in (
        (_DT_SYMTAB, dynsym.address), (_DT_SYMENT, _SYMBOL.size), (_DT_STRTAB, dynstr.address), (_DT_STRSZ, len(names)),
        (_DT_GNU_HASH, gnu_hash.address), (_DT_HASH, sysv_hash.address), (_DT_NULL, 0)))
    return _write(source, out, debug, note, rodata, text, dynamic)


def _place(sections: list[_Section], text: _Section, dynamic: _Section) -> None:
    """Gives file offsets without gaps beyond alignment; each segment starts on a page of its own in memory."""
    offset = address = _HEADER.size + _SEGMENTS * _SEGMENT.size
    for section in sections:
        if section is text or section is dynamic:   # other rights, another page at the same offset within the page
            address = _up(address, _PAGE) + address % _PAGE
        offset, address = _up(offset, section.align), _up(address, section.align)
        section.offset, section.address = offset, address
        offset += len(section.data)
        address += len(section.data)


def _relocate(source: _Object, home: dict[int, _Section]) -> None:
    for table in source.sections:
        target = home.get(table.info) if table.type == _SHT_RELA else None
        if target is None:
            continue
        data = bytearray(target.data)
        for offset, kind, index, addend in _RELOCATION.iter_unpack(table.data):
            symbol = source.symbols[index]
            if symbol.section not in home:
                raise TilecError(f"the symbol {symbol.name!r} is used but not defined in this module",
                                 fix="define it; a code object can't refer to another one")
            distance = home[symbol.section].address + symbol.value + addend - (target.address + offset)
            if kind == _R_AMDGPU_REL64:
                struct.pack_into("<q", data, offset, distance)
            elif kind in (_R_AMDGPU_REL32, _R_AMDGPU_REL32_LO):
                struct.pack_into("<I", data, offset, distance & 0xFFFFFFFF)
            elif kind == _R_AMDGPU_REL32_HI:
                struct.pack_into("<I", data, offset, distance >> 32 & 0xFFFFFFFF)
            elif kind in (_R_AMDGPU_ABS32, _R_AMDGPU_ABS64) and not target.flags & _ALLOC:
                place = distance + target.address + offset          # debug sections hold the addresses of the file
                struct.pack_into("<I" if kind == _R_AMDGPU_ABS32 else "<Q", data, offset, place)
            else:
                raise TilecError(f"relocation type {kind} against {symbol.name!r} is not position independent",
                                 fix="refer to symbols relative to the program counter (@rel32@lo, @rel32@hi)")
        target.data = bytes(data)


def _write(source: _Object, out: list[_Section], debug: list[_Section], note: _Section, rodata: _Section,
           text: _Section, dynamic: _Section) -> bytes:
    names, name_offsets = _string_table([*(section.name for section in (*out, *debug)), ".shstrtab"])
    unloaded = [*debug, _Section(".shstrtab", _SHT_STRTAB, 0, 1, names)]
    end = dynamic.offset + len(dynamic.data)
    for section in unloaded:
        section.offset, end = end, end + len(section.data)
    listed = [*out, *unloaded]
    table = _up(end, 8)
    dynamic_size = len(dynamic.data)
    relro = _up(dynamic.address + dynamic_size, _PAGE) - dynamic.address        # read-only to the end of its page
    front = _HEADER.size, _SEGMENTS * _SEGMENT.size
    head = rodata.address + len(rodata.data)
    segments = [
        # type, flags, offset, address, bytes in the file, bytes in memory, alignment
        (_PT_PHDR, _R, front[0], front[0], front[1], front[1], 8),
        (_PT_LOAD, _R, 0, 0, head, head, _PAGE),
        (_PT_LOAD, _RX, text.offset, text.address, len(text.data), len(text.data), _PAGE),
        (_PT_LOAD, _RW, dynamic.offset, dynamic.address, dynamic_size, relro, _PAGE),
        (_PT_DYNAMIC, _RW, dynamic.offset, dynamic.address, dynamic_size, dynamic_size, 8),
        (_PT_GNU_RELRO, _R, dynamic.offset, dynamic.address, dynamic_size, relro, 1),
        (_PT_GNU_STACK, _RW, 0, 0, 0, 0, 0),
        (_PT_NOTE, _R, note.offset, note.address, len(note.data), len(note.data), 4),
    ]
    image = bytearray(table)
    _HEADER.pack_into(image, 0, source.ident, _ET_DYN, source.machine, 1, 0, _HEADER.size, table, source.flags,
                      _HEADER.size, _SEGMENT.size, _SEGMENTS, _SECTION.size, len(listed) + 1, len(listed))
    for index, (kind, flags, offset, address, in_file, in_memory, align) in enumerate(segments):
        _SEGMENT.pack_into(image, front[0] + index * _SEGMENT.size, kind, flags, offset, address, address,
                           in_file, in_memory, align)
    for section in listed:
        image[section.offset:section.offset + len(section.data)] = section.data
    headers = b"".join(_SECTION.pack(name_offsets[s.name], s.type, s.flags, s.address, s.offset, len(s.data), s.link,
                                     s.info, s.align, s.entry_size) for s in listed)
    return bytes(image) + bytes(_SECTION.size) + headers


def _read(data: bytes) -> _Object:
    if data[:6] != b"\x7fELF\x02\x01" or data[16:18] != _ET_REL.to_bytes(2, "little"):
        raise TilecError("not a relocatable ELF64 object", fix="link what the assembler made")
    ident, _, machine, _, _, _, start, flags, _, _, _, _, count, names_index = _HEADER.unpack_from(data)
    rows = [_SECTION.unpack_from(data, start + index * _SECTION.size) for index in range(count)]
    names = data[rows[names_index][4]:][:rows[names_index][5]]
    sections = [_Section(_text(names, name), type_, rights, align, data[offset:offset + size], entry, link_, info)
                for name, type_, rights, _, offset, size, link_, info, align, entry in rows]
    result = _Object(ident, machine, flags, sections)
    for section in sections:
        if section.type == _SHT_SYMTAB:
            strings = sections[section.link].data
            result.symbols = [_Symbol(_text(strings, name), info, other, index, value, size) for
                              name, info, other, index, value, size in _SYMBOL.iter_unpack(section.data)]
    return result


def _first_metadata(notes: bytes) -> bytes:
    """The notes without the metadata after the first: the module route appends an empty one of its own."""
    kept, offset, seen = [], 0, False
    while offset < len(notes):
        name_size, size, kind = _NOTE.unpack_from(notes, offset)
        end = offset + _NOTE.size + _up(name_size, 4) + _up(size, 4)
        if kind != _NT_AMDGPU_METADATA or not seen:
            kept.append(notes[offset:end])
        seen |= kind == _NT_AMDGPU_METADATA
        offset = end
    return b"".join(kept)


def _in_hash_order(symbols: list[_Symbol]) -> list[_Symbol]:
    """The GNU hash section wants the symbols of a bucket side by side."""
    return sorted(symbols, key=lambda symbol: _gnu(symbol.name) % _gnu_buckets(symbols))


def _gnu_buckets(symbols: list[_Symbol]) -> int:
    return max(len(symbols) // 4, 1)


def _gnu_hash(symbols: list[_Symbol]) -> bytes:
    """Header, bloom filter of 64-bit words (12 bits a symbol), buckets (first symbol of each), chains (bit 0: last)."""
    buckets, shift = _gnu_buckets(symbols), 26
    words = 1 << (len(symbols) * 12 // 64).bit_length() if symbols else 1
    hashes = [_gnu(symbol.name) for symbol in symbols]
    bloom, first, chains = [0] * words, [0] * buckets, []
    for index, value in enumerate(hashes):
        bloom[value // 64 % words] |= 1 << value % 64 | 1 << (value >> shift) % 64
        bucket = value % buckets
        first[bucket] = first[bucket] or index + 1
        last = index + 1 == len(hashes) or hashes[index + 1] % buckets != bucket
        chains.append(value & ~1 | last)
    return struct.pack(f"<4I{words}Q{buckets}I{len(chains)}I", buckets, 1, words, shift, *bloom, *first, *chains)


def _gnu(name: str) -> int:
    value = 5381
    for byte in name.encode():
        value = (value * 33 + byte) & 0xFFFFFFFF
    return value


def _sysv_hash(symbols: list[_Symbol]) -> bytes:
    """One bucket a symbol; each new symbol goes to the front of its chain."""
    count = len(symbols) + 1
    buckets, chains = [0] * count, [0] * count
    for index, symbol in enumerate(symbols, 1):
        value = 0
        for byte in symbol.name.encode():
            value = (value << 4) + byte
            high = value & 0xF0000000
            value = (value ^ high >> 24) & ~high & 0xFFFFFFFF
        chains[index], buckets[value % count] = buckets[value % count], index
    return struct.pack(f"<{2 + 2 * count}I", count, count, *buckets, *chains)


def _string_table(names: Iterable[str]) -> tuple[bytes, dict[str, int]]:
    table, offsets = bytearray(b"\0"), {}
    for name in names:
        offsets[name] = len(table)
        table += name.encode() + b"\0"
    return bytes(table), offsets


def _text(table: bytes, offset: int) -> str:
    return table[offset:table.index(b"\0", offset)].decode()


def _up(value: int, align: int) -> int:
    return -(-value // align) * align
