"""What the compiler knows of each architecture: one frozen record, no literals of these in passes.

Every number says where it comes from: [D] AMD's ISA manual or data sheet, [L] LLVM 22's AMDGPU tables, [A] tried with
an assembler, [C] AMD's matrix instruction calculator, [M] a published measurement, [E] an estimate. Clocks are engine
clocks. Nothing here was measured by this project. Prefer [M] to [D] to [E] where they differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tilec.dtypes import DTYPES, DType
from tilec.errors import TilecError


@dataclass(frozen=True)
class Mfma:
    """One dense matrix instruction: D[b,i,j] = C[b,i,j] + sum over k of A[b,i,k] * B[b,k,j], with `blocks` independent
    b.

    `a`, `b`, `cd` name element types; xf32 (f32 read with a 10-bit mantissa) is not a type of tilec's and only named
    here. `passes` are 4 clocks each; an instruction occupies the matrix pipe for that long. `kind` is the hazard class:
    xdl, sgemm (f32 operands) or dgemm (f64). `cbsz` and `blgp` are the format codes of an f8f6f4 instruction, 0
    elsewhere.
    """

    mnemonic: str
    m: int
    n: int
    k: int
    blocks: int
    a: str
    b: str
    cd: str
    a_dwords: int
    b_dwords: int
    cd_dwords: int
    passes: int
    kind: str
    cbsz: int = 0
    blgp: int = 0

    @property
    def cycles(self) -> int:
        return 4 * self.passes

    @property
    def is_f8f6f4(self) -> bool:
        return self.mnemonic.endswith("f8f6f4")

    @property
    def flops_per_cycle(self) -> float:
        """Operations per clock and SIMD: what to choose between two instructions by."""
        return 2 * self.m * self.n * self.k * self.blocks / self.cycles


@dataclass(frozen=True)
class LdsInstruction:
    """How LDS serves one instruction: the lanes of a phase go together, a bank gives one 4-byte word per cycle, and
    lanes that want the same word share it. `elements` and `element_bits` are set for transposed reads."""

    mnemonic: str
    bytes: int
    phases: tuple[tuple[int, ...], ...]
    banks: int
    writes: bool
    alignment: int
    source: str
    elements: int = 0
    element_bits: int = 0

    @property
    def is_transposed(self) -> bool:
        return self.elements > 0

    @property
    def base_cycles(self) -> int:
        return len(self.phases)


@dataclass(frozen=True)
class Latencies:
    """Clocks from issue to use, for the list scheduler and the timing model. Loaded figures, where a loop keeps the
    pipe busy."""

    valu: int
    transcendental: int
    salu: int
    scalar_load: int
    lds_read: int
    lds_write: int
    global_load: int
    l2_hit: int
    last_level_hit: int
    hbm: int
    barrier: int


@dataclass(frozen=True)
class Target:
    """One architecture. Sizes are in bytes unless the name says otherwise."""

    name: str
    elf_mach: int
    wave_size: int
    simds: int
    max_threads: int
    max_waves_per_simd: int
    vgprs: int
    agprs: int
    registers_per_lane: int
    vgpr_granule: int
    accum_offset_granule: int
    sgprs: int
    sgpr_granule: int
    max_user_sgprs: int
    vmcnt_max: int
    lgkmcnt_max: int
    expcnt_max: int
    lds_bytes: int
    lds_granule: int
    lds_banks: int
    lds_instructions: tuple[LdsInstruction, ...]
    lds_copy_bytes: tuple[int, ...]
    m0_bits: int
    buffer_offset_max: int
    global_offset: tuple[int, int]
    ds_offset_max: int
    scalar_offset: tuple[int, int]
    mfmas: tuple[Mfma, ...]
    features: frozenset[str]
    missing_dtypes: tuple[tuple[str, str], ...]
    latencies: Latencies
    issue_cycles: tuple[tuple[str, int], ...]
    chiplets: int
    compute_units: int
    l1_bytes: int
    l2_bytes: int
    last_level_bytes: int
    cache_line: int

    def __hash__(self) -> int:
        return hash(self.name)  # records are compared in full, but are looked up often

    def has(self, feature: str) -> bool:
        if feature not in _FEATURES:
            raise KeyError(f"unknown feature {feature!r}")
        return feature in self.features

    def waves_per_simd(self, vgprs: int, agprs: int = 0) -> int:
        """Waves that fit a SIMD beside each other with so many registers each; 0 when one wave does not fit."""
        if vgprs > self.vgprs or agprs > self.agprs:
            return 0
        total = _align(_align(vgprs, self.accum_offset_granule) + agprs, self.vgpr_granule)
        return min(self.max_waves_per_simd, self.registers_per_lane // max(total, self.vgpr_granule))

    def lds_allocation(self, size: int) -> int:
        """Bytes that the hardware reserves for a workgroup that asks for `size`."""
        return _align(size, self.lds_granule)

    def occupancy(self, vgprs: int, agprs: int, lds: int, waves: int) -> int:
        """Waves that a SIMD holds of workgroups of so many waves and bytes of LDS, which a CU holds whole or not at
        all; where they do not share out evenly, of the SIMD that holds most."""
        workgroups = self.simds * self.waves_per_simd(vgprs, agprs) // waves
        if lds:
            workgroups = min(workgroups, self.lds_bytes // self.lds_allocation(lds))
        return -(-workgroups * waves // self.simds)

    @cached_property
    def _lds_by_name(self) -> dict[str, LdsInstruction]:
        return {instruction.mnemonic: instruction for instruction in self.lds_instructions}

    def lds(self, mnemonic: str) -> LdsInstruction:
        return self._lds_by_name[mnemonic]

    def mfma(self, mnemonic: str, a: str = "", b: str = "") -> Mfma:
        """The row of that mnemonic; for f8f6f4 also by operand types."""
        for row in self.mfmas:
            if row.mnemonic == mnemonic and (not a or row.a == a) and (not b or row.b == b):
                return row
        raise KeyError(f"{self.name} has no {mnemonic} {a} {b}".rstrip())

    def mfmas_for(self, a: DType, b: DType, cd: DType, blocks: int = 1) -> tuple[Mfma, ...]:
        """Dense rows for these types, the fastest first and of equally fast ones the smaller tile; empty if there is
        none."""
        rows = [row for row in self.mfmas if (row.a, row.b, row.cd, row.blocks) == (a.name, b.name, cd.name, blocks)]
        return tuple(sorted(rows, key=lambda row: (-row.flops_per_cycle, row.m * row.n)))

    def require(self, element: DType) -> None:
        """Raises TilecError for an element type that this architecture has no instructions for."""
        for name, instead in self.missing_dtypes:
            if element.name == name:
                raise TilecError(f"{self.name} has no {element}",
                                 limit=f"{self.name} has no instruction that reads or makes {element}", fix=instead)


def _align(value: int, granule: int) -> int:
    return -(-value // granule) * granule


# ---------------------------------------------------------------------------------------------------------- matrix rows
# [L][A] shapes, registers, passes of LLVM 22's tables, accepted by its assembler for that CPU; passes of every gfx942
# row equal [C]. mnemonic tail, m, n, k, blocks, a, b, cd, dwords of A, B and C/D, passes
_COMMON_ROWS = """
f32_4x4x1_16b_f32    4  4  1 16 f32  f32  f32 1 1  4  2
f32_4x4x4_16b_f16    4  4  4 16 f16  f16  f32 2 2  4  2
f32_4x4x4_16b_bf16   4  4  4 16 bf16 bf16 f32 2 2  4  2
i32_4x4x4_16b_i8     4  4  4 16 i8   i8   i32 1 1  4  2
f32_16x16x1_4b_f32  16 16  1  4 f32  f32  f32 1 1 16  8
f32_16x16x4_4b_f16  16 16  4  4 f16  f16  f32 2 2 16  8
f32_16x16x4_4b_bf16 16 16  4  4 bf16 bf16 f32 2 2 16  8
i32_16x16x4_4b_i8   16 16  4  4 i8   i8   i32 1 1 16  8
f32_32x32x1_2b_f32  32 32  1  2 f32  f32  f32 1 1 32 16
f32_32x32x4_2b_f16  32 32  4  2 f16  f16  f32 2 2 32 16
f32_32x32x4_2b_bf16 32 32  4  2 bf16 bf16 f32 2 2 32 16
i32_32x32x4_2b_i8   32 32  4  2 i8   i8   i32 1 1 32 16
f32_16x16x4_f32     16 16  4  1 f32  f32  f32 1 1  4  8
f32_32x32x2_f32     32 32  2  1 f32  f32  f32 1 1 16 16
f32_16x16x16_f16    16 16 16  1 f16  f16  f32 2 2  4  4
f32_16x16x16_bf16   16 16 16  1 bf16 bf16 f32 2 2  4  4
f32_32x32x8_f16     32 32  8  1 f16  f16  f32 2 2 16  8
f32_32x32x8_bf16    32 32  8  1 bf16 bf16 f32 2 2 16  8
i32_16x16x32_i8     16 16 32  1 i8   i8   i32 2 2  4  4
i32_32x32x16_i8     32 32 16  1 i8   i8   i32 2 2 16  8
f32_16x16x32_fp8_fp8 16 16 32 1 fp8  fp8  f32 2 2  4  4
f32_16x16x32_fp8_bf8 16 16 32 1 fp8  bf8  f32 2 2  4  4
f32_16x16x32_bf8_fp8 16 16 32 1 bf8  fp8  f32 2 2  4  4
f32_16x16x32_bf8_bf8 16 16 32 1 bf8  bf8  f32 2 2  4  4
f32_32x32x16_fp8_fp8 32 32 16 1 fp8  fp8  f32 2 2 16  8
f32_32x32x16_fp8_bf8 32 32 16 1 fp8  bf8  f32 2 2 16  8
f32_32x32x16_bf8_fp8 32 32 16 1 bf8  fp8  f32 2 2 16  8
f32_32x32x16_bf8_bf8 32 32 16 1 bf8  bf8  f32 2 2 16  8
f64_4x4x4_4b_f64     4  4  4  4 f64  f64  f64 2 2  2  4
"""
_GFX942_ROWS = """
f32_16x16x8_xf32    16 16  8  1 xf32 xf32 f32 2 2  4  4
f32_32x32x4_xf32    32 32  4  1 xf32 xf32 f32 2 2 16  8
f64_16x16x4_f64     16 16  4  1 f64  f64  f64 2 2  8  8
"""
_GFX950_ROWS = """
f64_16x16x4_f64     16 16  4  1 f64  f64  f64 2 2  8 16
f32_16x16x32_f16    16 16 32  1 f16  f16  f32 4 4  4  4
f32_16x16x32_bf16   16 16 32  1 bf16 bf16 f32 4 4  4  4
f32_32x32x16_f16    32 32 16  1 f16  f16  f32 4 4 16  8
f32_32x32x16_bf16   32 32 16  1 bf16 bf16 f32 4 4 16  8
i32_16x16x64_i8     16 16 64  1 i8   i8   i32 4 4  4  4
i32_32x32x32_i8     32 32 32  1 i8   i8   i32 4 4 16  8
"""
_FNUZ = {"fp8": "fp8_e4m3fnuz", "bf8": "fp8_e5m2fnuz"}  # [D] the same mnemonics read FNUZ bits on gfx942
_OCP = {"fp8": "fp8_e4m3fn", "bf8": "fp8_e5m2"}  # [D] and OCP bits on gfx950
# [D] format codes of v_mfma_f32_*_f8f6f4 in CBSZ (A) and BLGP (B)
_F8F6F4_CODES = {"fp8_e4m3fn": 0, "fp8_e5m2": 1, "fp6_e2m3": 2, "fp6_e3m2": 3, "fp4_e2m1": 4}


def _rows(text: str, eight_bit: dict[str, str]) -> tuple[Mfma, ...]:
    rows = []
    for line in filter(None, text.splitlines()):
        tail, *cells = line.split()
        m, n, k, blocks = map(int, cells[:4])
        a, b, cd = (eight_bit.get(cell, cell) for cell in cells[4:7])
        a_dwords, b_dwords, cd_dwords, passes = map(int, cells[7:])
        kind = {"f32": "sgemm", "f64": "dgemm"}.get(a, "xdl")
        rows.append(Mfma(f"v_mfma_{tail}", m, n, k, blocks, a, b, cd, a_dwords, b_dwords, cd_dwords, passes, kind))
    return tuple(rows)


def _f8f6f4_rows() -> tuple[Mfma, ...]:
    """[L] One row per pair of formats. An 8-bit operand on either side doubles the passes."""
    rows = []
    for m, k, cd_dwords, passes in ((16, 128, 4, 4), (32, 64, 16, 8)):
        items = m * k // 64
        for a, cbsz in _F8F6F4_CODES.items():
            for b, blgp in _F8F6F4_CODES.items():
                slow = max(DTYPES[a].bits, DTYPES[b].bits) == 8
                rows.append(Mfma(f"v_mfma_f32_{m}x{m}x{k}_f8f6f4", m, m, k, 1, a, b, "f32", DTYPES[a].dwords_of(items),
                                 DTYPES[b].dwords_of(items), cd_dwords, passes * (2 if slow else 1), "xdl", cbsz, blgp))
    return tuple(rows)


# ----------------------------------------------------------------------------------------------------------- LDS phases
def _runs(length: int) -> tuple[tuple[int, ...], ...]:
    """A wave in phases of `length` consecutive lanes."""
    return tuple(tuple(range(start, start + length)) for start in range(0, 64, length))


def _halves(*groups: str) -> tuple[tuple[int, ...], ...]:
    """Phases given by lane ranges of the lower half wave, the same again for the upper half."""
    lower = []
    for group in groups:
        bounds = [tuple(map(int, run.split("-"))) for run in group.split()]
        lower.append(tuple(lane for first, last in bounds for lane in range(first, last + 1)))
    return tuple(lower) + tuple(tuple(lane + 32 for lane in group) for group in lower)


def _lds_rows(table: str) -> tuple[LdsInstruction, ...]:
    """Rows of `lanes per phase, banks, source: mnemonics`."""
    sizes = {"u8": 1, "b8": 1, "u16": 2, "b16": 2, "b32": 4, "b64": 8, "b96": 12, "b128": 16}
    result = []
    for line in table.strip().splitlines():
        facts, _, mnemonics = line.partition(":")
        lanes, banks, source = facts.split(maxsplit=2)
        for mnemonic in mnemonics.split():
            _, verb, size, *transposed = mnemonic.split("_")
            bits = int(transposed[1][1:]) if transposed else 0
            # [A][D] ds_read_b96_tr_b6 needs 16 bytes; ordinary 12-byte accesses are kept on 4, others on their own size
            alignment = 16 if bits == 6 else 4 if size == "b96" else sizes[size]
            result.append(LdsInstruction(
                mnemonic, sizes[size], _PHASES[lanes], int(banks), verb == "write", alignment, source.strip(),
                8 * sizes[size] // bits if bits else 0, bits))
    return tuple(result)


_PHASES = {str(length): _runs(length) for length in (8, 16, 32, 64)}
# The order in which CDNA3 serves wide reads, 8 lanes at a time over 32 banks, as AMD's engineers give it (ROCm blog
# "Avoiding LDS Bank Conflicts on AMD GPUs", 2025; Triton pull request 11365). gfx950 keeps it for 12-byte reads [M].
_PHASES["8*"] = _halves("0-3 20-23", "4-7 16-19", "8-11 28-31", "12-15 24-27")
_PHASES["16*"] = _halves("0-3 12-15 20-27", "4-11 16-19 28-31")  # [M] gfx950
_GFX942_LDS = _lds_rows("""
32 32 inferred from documents: ds_read_u8 ds_read_u16 ds_read_b32 ds_write_b8 ds_write_b16 ds_write_b32
16 32 inferred from documents: ds_read_b64 ds_write_b64
8  32 inferred from documents: ds_write_b96 ds_write_b128
8* 32 inferred from documents: ds_read_b96 ds_read_b128
""")
# Measured by the authors of HipKittens (arXiv 2511.08083, table 5, appendix D) where the row says so: reads move 256
# bytes a clock over 64 banks, writes 128 over 32. The other rows extend that by width.
_GFX950_LDS = _lds_rows("""
64  64 inferred from measured widths: ds_read_u8 ds_read_u16 ds_read_b32
32  64 measured on MI355X: ds_read_b64
8*  32 measured on MI355X: ds_read_b96
16* 64 measured on MI355X: ds_read_b128
32  64 phases stated by HipKittens, banks inferred: ds_read_b64_tr_b16
32  64 inferred from ds_read_b64: ds_read_b64_tr_b8 ds_read_b64_tr_b4
8*  32 inferred from ds_read_b96: ds_read_b96_tr_b6
32  32 inferred from measured widths: ds_write_b8 ds_write_b16 ds_write_b32
16  32 measured on MI355X: ds_write_b64
8   32 inferred from measured widths: ds_write_b96 ds_write_b128
""")

# ---------------------------------------------------------------------------------------------------------- the records
_FEATURES = frozenset({
    "cvt_pk_bf16_f32", "cvt_pk_f16_f32", "cvt_scalef32", "permlane_swap", "ds_read_tr", "lds_dma_x4", "bitop3",
    "minimum3", "prng", "ashr_pk", "dot2_bf16", "buffer_atomic_pk_add_bf16", "f8f6f4", "xf32"})
_COMMON: dict[str, Any] = {
    "wave_size": 64, "simds": 4, "max_waves_per_simd": 8, "max_threads": 1024,  # [D]
    "vgprs": 256, "agprs": 256, "registers_per_lane": 512,  # [D] one file, arch registers first, then acc
    "vgpr_granule": 8, "accum_offset_granule": 4,  # [L]
    "sgprs": 102, "sgpr_granule": 16, "max_user_sgprs": 16,  # [L] s0 to s101, then VCC
    "vmcnt_max": 63, "lgkmcnt_max": 15, "expcnt_max": 7,  # [D] 6, 4 and 3 bits
    "buffer_offset_max": 4095, "global_offset": (-4096, 4095), "ds_offset_max": 65535,  # [D][A]
    "scalar_offset": (-(1 << 20), (1 << 20) - 1),  # [D][A] 21 bits, signed
    "chiplets": 8, "l1_bytes": 32 << 10, "l2_bytes": 4 << 20, "last_level_bytes": 256 << 20,  # [D] per CU, XCD, device
    "cache_line": 128,  # [D] L1 and L2
}
TARGETS: dict[str, Target] = {t.name: t for t in (
    Target(
        name="gfx942", elf_mach=0x4C, compute_units=304,  # [L]; MI300X and MI325X [D]
        lds_bytes=65536, lds_granule=512, lds_banks=32, m0_bits=16,  # [D][L]
        lds_instructions=_GFX942_LDS, lds_copy_bytes=(4,),  # [D] load-to-LDS moves at most a dword per lane
        mfmas=_rows(_COMMON_ROWS + _GFX942_ROWS, _FNUZ),
        features=frozenset({"xf32"}),
        missing_dtypes=(
            ("fp8_e4m3fn", "use fp8_e4m3fnuz on gfx942, or compile for gfx950"),
            ("fp8_e5m2", "use fp8_e5m2fnuz on gfx942, or compile for gfx950"),
            *((name, "compile for gfx950") for name in ("fp6_e2m3", "fp6_e3m2", "fp4_e2m1", "e8m0"))),
        latencies=Latencies(
            valu=8, transcendental=16, salu=4, scalar_load=200,  # [M] dependent FMA on MI350X; [D] 16 clk; [E]; [E] hit
            lds_read=64, lds_write=64,  # [M] b128 on MI308X; [E]
            global_load=880, l2_hit=213, last_level_hit=456, hbm=880,  # [M] MI300X pointer chase
            barrier=40),  # [E]
        issue_cycles=(
            ("salu", 4), ("valu", 4), ("transcendental", 16),  # [D]
            ("vmem_dword", 4), ("vmem_dwordx2", 16), ("vmem_dwordx4", 16),  # [D][M]
            ("ds_read_b32", 8), ("ds_read_b64", 16), ("ds_read_b128", 32),  # [M] four waves, 128 B/clk/CU
            ("ds_write_b32", 8), ("ds_write_b64", 16), ("ds_write_b128", 32)),  # [E] same bus
        **_COMMON),
    Target(
        name="gfx950", elf_mach=0x4F, compute_units=256,  # [L]; MI350X and MI355X [D]
        lds_bytes=163840, lds_granule=1280, lds_banks=64, m0_bits=18,  # [D][L]
        lds_instructions=_GFX950_LDS, lds_copy_bytes=(4, 12, 16),  # [D][A] x3 skips each fourth dword
        mfmas=_rows(_COMMON_ROWS + _GFX950_ROWS, _OCP) + _f8f6f4_rows(),
        features=_FEATURES - {"xf32"},
        missing_dtypes=(
            ("fp8_e4m3fnuz", "use fp8_e4m3fn on gfx950, or compile for gfx942"),
            ("fp8_e5m2fnuz", "use fp8_e5m2 on gfx950, or compile for gfx942")),
        latencies=Latencies(
            valu=8, transcendental=8, salu=4, scalar_load=200,  # [M]; AMD claims twice gfx942's rate [D]; [E]; [E] hit
            lds_read=69, lds_write=64,  # [M] dependent read, MI350X; [E]
            global_load=790, l2_hit=256, last_level_hit=444, hbm=768,  # [M] MI350X, MI350P
            barrier=40),  # [E]
        issue_cycles=(
            ("salu", 4), ("valu", 4), ("transcendental", 8),  # [D]
            ("vmem_dword", 4), ("vmem_dwordx2", 16), ("vmem_dwordx4", 16),  # [D][M]
            ("ds_read_b32", 4), ("ds_read_b64", 8), ("ds_read_b128", 16),  # [M] four waves, 256 B/clk/CU
            ("ds_write_b32", 8), ("ds_write_b64", 12), ("ds_write_b128", 20)),  # [M] 4 + 16 clocks; b64 [E]
        **_COMMON),
)}


def target(name: str) -> Target:
    """The record of an architecture by its LLVM name, with or without feature suffixes (`gfx942:sramecc+:xnack-`)."""
    found = TARGETS.get(name.partition(":")[0])
    if found is None:
        raise TilecError(f"unknown architecture {name!r}", limit=f"tilec compiles for {', '.join(TARGETS)}",
                         fix="gfx942 is MI300X, MI300A and MI325X; gfx950 is MI350X and MI355X")
    return found
