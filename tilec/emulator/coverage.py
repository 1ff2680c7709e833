"""What LLVM knows for an architecture and the emulator can't run, found by decoding every opcode of every encoding.

The encodings are those of the CDNA3 and CDNA4 ISA guides, chapter 13; LLVM's disassembler says which opcodes exist
and what they are called. A mnemonic that is in no table of the emulator is missing, each kind with its reason.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tilec import llvm
from tilec.emulator import indexing, lane_ops, scalar_ops
from tilec.emulator.matrix import MATRIX
from tilec.emulator.memory_rows import MEMORY
from tilec.emulator.scalar import SAVE_EXEC, SCALAR, WRITE_EXEC
from tilec.emulator.vector import VECTOR


@dataclass(frozen=True)
class Encoding:
    """The opcode has `bits` bits at `shift` of dword `word`. `forms`: the dwords without it; unused operands must be
    0 in some.
    """

    name: str
    shift: int
    bits: int
    forms: tuple[tuple[int, ...], ...]
    word: int = 0


ENCODINGS = (
    Encoding("SOP2", 23, 7, ((0x80000000,),)),
    Encoding("SOPK", 23, 5, ((0xB0000000,), (0xB0000001,))),
    Encoding("SOP1", 8, 8, ((0xBE800000,),)),
    Encoding("SOPC", 16, 7, ((0xBF000000,),)),
    Encoding("SOPP", 16, 7, ((0xBF800000,),)),
    Encoding("SMEM", 18, 8, ((0xC0020000, 0), (0xC0020040, 0), (0xC0000000, 0))),
    Encoding("VOP2", 25, 6, ((0x00000100,),)),
    Encoding("VOP1", 9, 8, ((0x7E000100,),)),
    Encoding("VOPC", 17, 8, ((0x7C000100,),)),
    Encoding("VOP3", 16, 10, ((0xD0000000, 0x04020500), (0xD0000000, 0x00020500), (0xD0000000, 0x00000100))),
    Encoding(
        "VOP3P",
        16,
        7,
        (
            (0xD3800000, 0x1C020500),
            (0xD3804000, 0x18020500),
            (0xD3800000, 0x04020500),
            (0xD3804000, 0x18000100),
            (0xD3804000, 0x08000100),
        ),
    ),
    Encoding("VOP3PX", 16, 7, ((0xD3AC0000, 0x00020500, 0xD3800000, 0x04020500),), 2),
    Encoding("DS", 17, 8, ((0xD8000000, 0),)),
    Encoding("FLAT", 18, 7, ((0xDC000000, 0),)),
    Encoding("SCRATCH", 18, 7, ((0xDC004000, 0x007F0000),)),
    Encoding("GLOBAL", 18, 7, ((0xDC008000, 0x007F0000),)),
    Encoding("MUBUF", 18, 7, ((0xE0001000, 0x80000000), (0xE0011000, 0x80000000), (0xE0000000, 0))),
    Encoding("MTBUF", 15, 4, ((0xE8001000, 0x80000000),)),
)

REASONS: tuple[tuple[str, str], ...] = (
    (r"v_smfmac_\w+", "sparse matrix products: no kernel of the project uses them"),
    (
        r"t?buffer_(load|store)_format\w*",
        "typed buffers convert through texture formats, which compute kernels do not use",
    ),
    (r"s_(buffer_)?(store|atomic)\w*", "scalar stores and atomics: LLVM decodes them and never selects them"),
    (r"s_scratch\w*", "scalar access to scratch: LLVM decodes it and never selects it"),
    (r"s_dcache_discard\w*", "throws away dirty lines of scalar stores, which are missing too"),
    (r"s_atc_probe\w*", "prefetches address translations, for the driver"),
    (r"ds_(append|consume)", "append counters: the documents differ on where M0 holds their address"),
    (r"ds_condxchg32_rtn_b64", "conditional exchange: no document at hand says which bit is the condition"),
    (r"s_(rfe|rfe_restore)_b64", "returns from the trap handler"),
    (r"s_cbranch_(g_fork|i_fork|join)", "forks of waves: no compiler makes them"),
    (r"s_cbranch_cdbg\w*", "branches for the debugger"),
    (r"s_sendmsghalt", "halts the wave for the driver"),
    (r"s_endpgm_ordered_ps_done", "ends pixel shaders"),
    (r"v_screen_partition_4se_b32", "divides the screen among shader engines"),
    (r"v_mfma_ld_scale_b32", "half of a scaled MFMA, which LLVM decodes as one instruction"),
)
"""(mnemonics, why they can't be run). Whatever else LLVM knows must run; a test holds that."""


def mnemonics(arch: str) -> dict[str, bytes]:
    """Every mnemonic that LLVM decodes, without encoding suffix, and the code bytes of one instruction of that name."""
    found: dict[str, bytes] = {}
    for encoding in ENCODINGS:
        for opcode in range(1 << encoding.bits):
            for form in encoding.forms:
                words = list(form)
                words[encoding.word] |= opcode << encoding.shift
                code = b"".join(word.to_bytes(4, "little") for word in words)
                name = _decode(code, arch)
                if name:
                    found.setdefault(name, code)
    return found


def _decode(code: bytes, arch: str) -> str:
    """The mnemonic, or '' when the bytes are no whole instruction."""
    text = llvm.disassemble(code + bytes(8), arch)[0].text
    return re.sub(r"_(e32|e64|dpp|sdwa|e64_dpp)$", "", text.split(" ", 1)[0])


def runs(name: str, arch: str) -> bool:
    """Is the mnemonic in one of the emulator's tables, for this architecture?"""
    for table in (MEMORY, MATRIX, VECTOR):
        row = table.get(name)
        if row is not None:
            return arch in row.architectures
    update = re.fullmatch(r"s_(\w+?)_(saveexec|wrexec)_b64", name)
    if update:
        return update[1] in (SAVE_EXEC if update[2] == "saveexec" else WRITE_EXEC)
    control = (
        *scalar_ops.IDLE,
        *scalar_ops.BRANCHES,
        *scalar_ops.JUMPS,
        *lane_ops.LANE_OPS,
        *indexing.CHANGES,
        *indexing.RELATIVE_MOVES,
        "s_getpc_b64",
        "s_endpgm",
        "s_endpgm_saved",
        "s_barrier",
        "s_waitcnt",
        "s_getreg_b32",
        "s_setreg_b32",
        "s_setreg_imm32_b32",
        "v_nop",
        "v_clrexcp",
    )
    return name in SCALAR or name in control


def missing(arch: str) -> list[tuple[str, str]]:
    """(mnemonic, reason) of what LLVM knows for the architecture and the emulator can't run, by name. A reason of ""
    would be an omission.
    """
    absent = sorted(name for name in mnemonics(arch) if not runs(name, arch))
    return [(name, _reason(name)) for name in absent]


def _reason(name: str) -> str:
    return next((reason for pattern, reason in REASONS if re.fullmatch(pattern, name)), "")
