"""A real clang and ld.lld as the oracle for our code objects. PyPI's `ziglang` carries both, with the AMDGPU target."""

from __future__ import annotations

import functools
import importlib.util
import io
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from elftools.elf.elffile import ELFFile

_HEADER_FIELDS_OF_THE_SECTION_TABLE = (slice(0x28, 0x30), slice(0x3C, 0x40))        # e_shoff; e_shnum and e_shstrndx


@functools.cache
def zig() -> Path:
    """The binary that answers to `zig clang` and `zig ld.lld`."""
    spec = importlib.util.find_spec("ziglang")
    assert spec and spec.origin, "ziglang is a test dependency: pip install ziglang"
    return Path(spec.origin).with_name("zig")


def clang_code_object(text: str, arch: str) -> bytes:
    """What `clang -c` and `ld.lld -shared` make of an assembly module (code object v5)."""
    with tempfile.TemporaryDirectory() as folder:
        object_file, result = Path(folder, "kernel.o"), Path(folder, "kernel.hsaco")
        _run("clang", "-x", "assembler", "--target=amdgcn-amd-amdhsa", f"-mcpu={arch}", "-mcode-object-version=5", "-c",
             "-o", str(object_file), "-", input=text.encode())
        _run("ld.lld", "-shared", "-o", str(result), str(object_file))
        return result.read_bytes()


def compare_with_clang(text: str, arch: str, object_bytes: bytes) -> None:
    """Asserts that the code object is what clang and ld.lld make of the same text, in everything that is loaded:
    ELF header, segments, and each loaded section (.text, .rodata with the kernel descriptors, .note with the metadata,
    the dynamic symbols, their hash tables) at its address, byte for byte.
    """
    expected = clang_code_object(text, arch)
    ours, theirs = (ELFFile(io.BytesIO(data)) for data in (object_bytes, expected))
    for section in theirs.iter_sections():
        if section["sh_flags"] & 2 and section["sh_type"] != "SHT_NOBITS":           # SHF_ALLOC
            _compare_section(ours.get_section_by_name(section.name), section)
    assert [dict(segment.header) for segment in ours.iter_segments()] == \
           [dict(segment.header) for segment in theirs.iter_segments()]
    loaded = max(segment["p_offset"] + segment["p_filesz"] for segment in theirs.iter_segments())
    assert _without_section_table(object_bytes[:loaded]) == _without_section_table(expected[:loaded])


def _compare_section(ours: Any, theirs: Any) -> None:
    assert ours is not None, f"{theirs.name} is missing"
    for key in ("sh_type", "sh_flags", "sh_addr", "sh_offset", "sh_size", "sh_addralign", "sh_entsize", "sh_info"):
        assert ours[key] == theirs[key], f"{theirs.name}: {key} is {ours[key]}, clang has {theirs[key]}"
    mine, other = ours.data(), theirs.data()
    offset = next((index for index, (a, b) in enumerate(zip(mine, other)) if a != b), None)
    assert mine == other, f"{theirs.name} differs from clang's from byte {offset:#x} on: " \
                          f"{mine[offset:][:16].hex()} instead of {other[offset:][:16].hex()}"


def _without_section_table(data: bytes) -> bytes:
    result = bytearray(data)
    for where in _HEADER_FIELDS_OF_THE_SECTION_TABLE:
        result[where] = bytes(where.stop - where.start)
    return bytes(result)


def _run(*arguments: str, input: bytes = b"") -> None:
    done = subprocess.run([str(zig()), *arguments], input=input, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
