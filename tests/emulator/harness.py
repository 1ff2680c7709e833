"""Runs a few lines of assembly on the emulator, without a linker: text to `.text` bytes, a descriptor made by hand.

Entry state: s[0:1] kernel arguments (one 64-bit pointer per buffer), s2 s3 s4 the workgroup id, v0 the workitem id.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

import numpy as np
from elftools.elf.elffile import ELFFile

from tilec import llvm
from tilec.emulator import CodeObject, Finding, Kernel, Memory, RunResult, run
from tilec.emulator.elf import Descriptor

Array = np.ndarray[Any, Any]
ENTRY = 0x1000
POISON = 0xCD


def assemble(
    text: str, arch: str = "gfx950", *, vgprs: int = 64, agprs: int = 64, lds: int = 0, scratch: int = 0
) -> CodeObject:
    """A code object of one kernel `k` at ENTRY. `vgprs` and `agprs` are multiples of 8."""
    relocatable = llvm.assemble(".text\n" + text, arch)
    section = ELFFile(io.BytesIO(relocatable)).get_section_by_name(".text")
    symbols = ELFFile(io.BytesIO(relocatable)).get_section_by_name(".symtab")
    end = next((s["st_value"] for s in symbols.iter_symbols() if s.name == llvm.TEXT_END), len(section.data()))
    code = section.data()[:end]
    rsrc1 = (vgprs + agprs) // 8 - 1 | 0xF0 << 12 | 1 << 21 | 1 << 23
    rsrc2 = 2 << 1 | 0b111 << 7 | 2 << 11 | (1 if scratch else 0)
    descriptor = Descriptor(lds, scratch, 64, ENTRY, rsrc1, rsrc2, vgprs // 4 - 1, 1 << 3, 0)
    kernel = Kernel("k", descriptor, (), len(code), 1024, {})
    return CodeObject(arch, {"k": kernel}, ENTRY, code, {})


@dataclass
class Outcome:
    result: RunResult
    outputs: list[Array]

    @property
    def findings(self) -> tuple[Finding, ...]:
        return self.result.findings

    def checks(self) -> set[str]:
        return {finding.check for finding in self.result.findings}


def execute(
    text: str,
    *buffers: Array,
    arch: str = "gfx950",
    grid: tuple[int, int, int] = (1, 1, 1),
    block: int | tuple[int, int, int] = 64,
    vgprs: int = 64,
    agprs: int = 64,
    lds: int = 0,
    scratch: int = 0,
    readonly: tuple[int, ...] = (),
    **options: Any,
) -> Outcome:
    """Assemble and run; each buffer is placed and its contents after the run are the outputs."""
    code = assemble(text, arch, vgprs=vgprs, agprs=agprs, lds=lds, scratch=scratch)
    memory = Memory()
    places = [memory.place(buffer, name=f"buffer {i}", readonly=i in readonly) for i, buffer in enumerate(buffers)]
    arguments = b"".join(place.to_bytes(8, "little") for place in places).ljust(64, b"\0")
    result = run(
        code,
        "k",
        grid=grid,
        block=(block, 1, 1) if isinstance(block, int) else block,
        arguments=arguments,
        memory=memory,
        **options,
    )
    outputs = [
        memory.read(place, buffer.nbytes).view(buffer.dtype).reshape(buffer.shape)
        for place, buffer in zip(places, buffers, strict=True)
    ]
    return Outcome(result, outputs)


def words(count: int = 64) -> Array:
    """Room for `count` dwords, poisoned."""
    return np.full(count, 0x01010101 * POISON, np.uint32)


LOAD_POINTERS = """
    s_load_dwordx4 s[8:11], s[0:1], 0x0
    v_lshlrev_b32_e32 v1, 2, v0
    s_waitcnt lgkmcnt(0)
"""
"""s[8:9] and s[10:11]: the first two buffers; v1: workitem * 4."""
