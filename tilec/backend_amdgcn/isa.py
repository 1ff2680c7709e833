"""One row per instruction that tilec can emit: its operands, unit, counter, implicit registers and constraints.

A row is a line of text:  mnemonic  destinations <- sources : unit flags Operand codes (a number gives the dwords): v
VGPR · a AGPR · w VGPR or AGPR · s SGPR · x VGPR, SGPR or inline constant · c SGPR or constant · f MFMA C operand (VGPR,
AGPR or inline constant) · m lane mask in an SGPR pair · i immediate · L label · t token (optional). Flags: vop1 vop2
vopc vop3 (encoding; the first two take a 32-bit literal as first source), vm / lgkm (counter it increments), +scc +vcc
+m0 +exec (reads) =scc =vcc =m0 =exec (writes), tied (first destination is also source 0), early (destination may not
overlap sources), commutes (first two sources may change places), lanes (moves between lanes, touches no memory), gfx942
/ gfx950 (only there). Encodings and names were checked by assembling every row for its architectures
(tests/unit/test_isa.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from tilec.ir.machine import EXEC, M0, SCC, VCC, Instruction, Operand, Physical, Ref
from tilec.target import Target, target


@dataclass(frozen=True)
class Spec:
    """What an operand may be: code letter of the table and dwords."""

    code: str
    size: int = 1


@dataclass(frozen=True)
class Row:
    """One instruction. `name` is what rows are asked for, `mnemonic` what the assembler reads (they differ where one
    mnemonic has two forms). `unit`: salu valu trans mfma vmem lds smem branch barrier wait message pseudo."""

    name: str
    mnemonic: str
    dst: tuple[Spec, ...]
    src: tuple[Spec, ...]
    unit: str
    flags: frozenset[str]

    @property
    def counter(self) -> str | None:
        return "vm" if "vm" in self.flags else "lgkm" if "lgkm" in self.flags else None

    @property
    def reaches_memory(self) -> bool:
        return self.unit == "vmem" or self.unit == "lds" and "lanes" not in self.flags

    @property
    def implicit_reads(self) -> tuple[Physical, ...]:
        return tuple(r for name, r in _IMPLICIT.items() if f"+{name}" in self.flags)

    @property
    def implicit_writes(self) -> tuple[Physical, ...]:
        return tuple(r for name, r in _IMPLICIT.items() if f"={name}" in self.flags)

    @property
    def takes_literal(self) -> bool:
        """Whether the first source may be a 32-bit literal (SALU: any one source)."""
        return self.unit == "salu" or bool(self.flags & {"vop1", "vop2"})

    def on(self, arch: str) -> bool:
        only = self.flags & {"gfx942", "gfx950"}
        return not only or arch in only


_IMPLICIT = {"scc": SCC, "vcc": VCC, "m0": M0, "exec": EXEC}

_TABLE = """
# scalar
s_mov_b32            s <- c              : salu
s_mov_b64            s2 <- c2            : salu
s_mov_m0             <- c                : salu =m0
s_mov_exec           <- c2               : salu =exec
s_read_exec          s2 <-               : salu +exec
s_and_saveexec_b64   s2 <- s2            : salu +exec =exec =scc
s_add_u32            s <- c c            : salu =scc
s_addc_u32           s <- c c            : salu +scc =scc
s_sub_u32            s <- c c            : salu =scc
s_subb_u32           s <- c c            : salu +scc =scc
s_add_i32            s <- c c            : salu =scc
s_sub_i32            s <- c c            : salu =scc
s_mul_i32            s <- c c            : salu
s_mul_hi_u32         s <- c c            : salu
s_mul_hi_i32         s <- c c            : salu
s_and_b32            s <- c c            : salu =scc
s_or_b32             s <- c c            : salu =scc
s_xor_b32            s <- c c            : salu =scc
s_not_b32            s <- c              : salu =scc
s_and_b64            s2 <- c2 c2         : salu =scc
s_or_b64             s2 <- c2 c2         : salu =scc
s_xor_b64            s2 <- c2 c2         : salu =scc
s_not_b64            s2 <- c2            : salu =scc
s_andn2_b64          s2 <- c2 c2         : salu =scc
s_lshl_b32           s <- c c            : salu =scc
s_lshr_b32           s <- c c            : salu =scc
s_ashr_i32           s <- c c            : salu =scc
s_lshl_b64           s2 <- c2 c          : salu =scc
s_lshr_b64           s2 <- c2 c          : salu =scc
s_ashr_i64           s2 <- c2 c          : salu =scc
s_min_i32            s <- c c            : salu =scc
s_max_i32            s <- c c            : salu =scc
s_min_u32            s <- c c            : salu =scc
s_max_u32            s <- c c            : salu =scc
s_abs_i32            s <- c              : salu =scc
s_sext_i32_i8        s <- c              : salu
s_sext_i32_i16       s <- c              : salu
s_bfe_u32            s <- c c            : salu =scc
s_bfe_i32            s <- c c            : salu =scc
s_cmp_eq_i32         <- c c              : salu =scc
s_cmp_lg_i32         <- c c              : salu =scc
s_cmp_gt_i32         <- c c              : salu =scc
s_cmp_ge_i32         <- c c              : salu =scc
s_cmp_lt_i32         <- c c              : salu =scc
s_cmp_le_i32         <- c c              : salu =scc
s_cmp_eq_u32         <- c c              : salu =scc
s_cmp_lg_u32         <- c c              : salu =scc
s_cmp_gt_u32         <- c c              : salu =scc
s_cmp_ge_u32         <- c c              : salu =scc
s_cmp_lt_u32         <- c c              : salu =scc
s_cmp_le_u32         <- c c              : salu =scc
s_cmp_eq_u64         <- c2 c2            : salu =scc
s_cmp_lg_u64         <- c2 c2            : salu =scc
s_cselect_b32        s <- c c            : salu +scc
s_cselect_b64        s2 <- c2 c2         : salu +scc
s_branch             <- L                : branch
s_cbranch_scc0       <- L                : branch +scc
s_cbranch_scc1       <- L                : branch +scc
s_cbranch_execz      <- L                : branch +exec
s_barrier            <-                  : barrier
s_endpgm             <-                  : branch
s_nop                <- i                : wait
s_waitcnt            <-                  : wait
s_setprio            <- i                : wait
s_load_dword         s <- s2 i           : smem lgkm early
s_load_dwordx2       s2 <- s2 i          : smem lgkm early
s_load_dwordx4       s4 <- s2 i          : smem lgkm early
s_load_dwordx8       s8 <- s2 i          : smem lgkm early
# moves between lanes and files
v_mov_b32            v <- x              : valu vop1
v_accvgpr_read_b32   v <- a              : valu vop3
v_accvgpr_write_b32  a <- x              : valu vop3
v_accvgpr_mov_b32    a <- a              : valu vop1
v_readfirstlane_b32  s <- v              : valu vop1
v_readlane_b32       s <- v c            : valu vop3
v_mov_b32_dpp        v <- v              : valu vop1
v_permlane32_swap_b32 v v <- v v         : valu vop1 swap gfx950
v_permlane16_swap_b32 v v <- v v         : valu vop1 swap gfx950
v_mbcnt_lo_u32_b32   v <- x x            : valu vop3
v_mbcnt_hi_u32_b32   v <- x x            : valu vop3
v_cndmask_b32        v <- x x m          : valu vop3
# integer
v_add_u32            v <- x x            : valu vop2 commutes
v_sub_u32            v <- x x            : valu vop2
v_subrev_u32         v <- x x            : valu vop2
v_add_co_u32         v m <- x x          : valu vop3
v_addc_co_u32        v m <- x x m        : valu vop3
v_sub_co_u32         v m <- x x          : valu vop3
v_subb_co_u32        v m <- x x m        : valu vop3
v_add3_u32           v <- x x x          : valu vop3
v_lshl_add_u32       v <- x x x          : valu vop3
v_add_lshl_u32       v <- x x x          : valu vop3
v_lshl_or_b32        v <- x x x          : valu vop3
v_and_or_b32         v <- x x x          : valu vop3
v_or3_b32            v <- x x x          : valu vop3
v_lshl_add_u64       v2 <- x2 x x2       : valu vop3
v_mul_lo_u32         v <- x x            : valu vop3
v_mul_hi_u32         v <- x x            : valu vop3
v_mul_hi_i32         v <- x x            : valu vop3
v_mad_u64_u32        v2 m <- x x x2      : valu vop3 early
v_mad_i64_i32        v2 m <- x x x2      : valu vop3 early
v_and_b32            v <- x x            : valu vop2 commutes
v_or_b32             v <- x x            : valu vop2 commutes
v_xor_b32            v <- x x            : valu vop2 commutes
v_not_b32            v <- x              : valu vop1
v_lshlrev_b32        v <- x x            : valu vop2
v_lshrrev_b32        v <- x x            : valu vop2
v_ashrrev_i32        v <- x x            : valu vop2
v_lshlrev_b64        v2 <- x x2          : valu vop3
v_lshrrev_b64        v2 <- x x2          : valu vop3
v_ashrrev_i64        v2 <- x x2          : valu vop3
v_bfe_u32            v <- x x x          : valu vop3
v_bfe_i32            v <- x x x          : valu vop3
v_bfi_b32            v <- x x x          : valu vop3
v_perm_b32           v <- x x x          : valu vop3
v_min_i32            v <- x x            : valu vop2 commutes
v_max_i32            v <- x x            : valu vop2 commutes
v_min_u32            v <- x x            : valu vop2 commutes
v_max_u32            v <- x x            : valu vop2 commutes
v_med3_i32           v <- x x x          : valu vop3
# float
v_add_f32            v <- x x            : valu vop2 commutes
v_sub_f32            v <- x x            : valu vop2
v_mul_f32            v <- x x            : valu vop2 commutes
v_min_f32            v <- x x            : valu vop2 commutes
v_max_f32            v <- x x            : valu vop2 commutes
v_fma_f32            v <- x x x          : valu vop3
v_max3_f32           v <- x x x          : valu vop3
v_min3_f32           v <- x x x          : valu vop3
v_pk_add_f32         v2 <- v2 v2         : valu vop3
v_pk_mul_f32         v2 <- v2 v2         : valu vop3
v_pk_fma_f32         v2 <- v2 v2 v2      : valu vop3
v_med3_f32           v <- x x x          : valu vop3
v_exp_f32            v <- x              : trans vop1
v_log_f32            v <- x              : trans vop1
v_rcp_f32            v <- x              : trans vop1
v_rcp_iflag_f32      v <- x              : trans vop1
v_rsq_f32            v <- x              : trans vop1
v_sqrt_f32           v <- x              : trans vop1
v_sin_f32            v <- x              : trans vop1
v_cos_f32            v <- x              : trans vop1
v_fract_f32          v <- x              : valu vop1
v_floor_f32          v <- x              : valu vop1
v_ceil_f32           v <- x              : valu vop1
v_trunc_f32          v <- x              : valu vop1
v_rndne_f32          v <- x              : valu vop1
v_ldexp_f32          v <- x x            : valu vop3
v_frexp_mant_f32     v <- x              : valu vop1
v_frexp_exp_i32_f32  v <- x              : valu vop1
v_div_scale_f32      v m <- x x x        : valu vop3
v_div_fmas_f32       v <- x x x          : valu vop3 +vcc
v_div_fixup_f32      v <- x x x          : valu vop3
v_cvt_f32_i32        v <- x              : valu vop1
v_cvt_f32_u32        v <- x              : valu vop1
v_cvt_i32_f32        v <- x              : valu vop1
v_cvt_u32_f32        v <- x              : valu vop1
v_cvt_f32_f16        v <- x              : valu vop1
v_cvt_f16_f32        v <- x              : valu vop1
v_cvt_pk_f16_f32     v <- x x            : valu vop3 gfx950
v_cvt_pk_bf16_f32    v <- x x            : valu vop3 gfx950
v_pack_b32_f16       v <- x x            : valu vop3
v_cvt_f64_f32        v2 <- x             : valu vop1
v_cvt_f32_f64        v <- x2             : valu vop1
v_cvt_f64_i32        v2 <- x             : valu vop1
v_cvt_f64_u32        v2 <- x             : valu vop1
v_cvt_i32_f64        v <- x2             : valu vop1
v_cvt_u32_f64        v <- x2             : valu vop1
v_add_f64            v2 <- x2 x2         : valu vop3
v_mul_f64            v2 <- x2 x2         : valu vop3
v_min_f64            v2 <- x2 x2         : valu vop3
v_max_f64            v2 <- x2 x2         : valu vop3
v_fma_f64            v2 <- x2 x2 x2      : valu vop3
v_rcp_f64            v2 <- x2            : trans vop1
v_rsq_f64            v2 <- x2            : trans vop1
v_sqrt_f64           v2 <- x2            : trans vop1
v_floor_f64          v2 <- x2            : valu vop1
v_ceil_f64           v2 <- x2            : valu vop1
v_trunc_f64          v2 <- x2            : valu vop1
v_rndne_f64          v2 <- x2            : valu vop1
v_fract_f64          v2 <- x2            : valu vop1
v_ldexp_f64          v2 <- x2 x          : valu vop3
v_frexp_mant_f64     v2 <- x2            : valu vop1
v_frexp_exp_i32_f64  v <- x2             : valu vop1
v_div_scale_f64      v2 m <- x2 x2 x2    : valu vop3
v_div_fmas_f64       v2 <- x2 x2 x2      : valu vop3 +vcc
v_div_fixup_f64      v2 <- x2 x2 x2      : valu vop3
# LDS
ds_read_u8           w <- v              : lds lgkm
ds_read_i8           w <- v              : lds lgkm
ds_read_u16          w <- v              : lds lgkm
ds_read_u8_d16       w <- v              : lds lgkm keeps
ds_read_u8_d16_hi    w <- v              : lds lgkm keeps
ds_read_u16_d16      w <- v              : lds lgkm keeps
ds_read_u16_d16_hi   w <- v              : lds lgkm keeps
ds_read_b32          w <- v              : lds lgkm
ds_read_b64          w2 <- v             : lds lgkm
ds_read_b96          w3 <- v             : lds lgkm
ds_read_b128         w4 <- v             : lds lgkm
ds_read_b64_tr_b16   w2 <- v             : lds lgkm gfx950
ds_read_b64_tr_b8    w2 <- v             : lds lgkm gfx950
ds_write_b8          <- v w              : lds lgkm
ds_write_b8_d16_hi   <- v w              : lds lgkm
ds_write_b16         <- v w              : lds lgkm
ds_write_b16_d16_hi  <- v w              : lds lgkm
ds_write_b32         <- v w              : lds lgkm
ds_write_b64         <- v w2             : lds lgkm
ds_write_b96         <- v w3             : lds lgkm
ds_write_b128        <- v w4             : lds lgkm
ds_bpermute_b32      v <- v v            : lds lgkm lanes
ds_swizzle_b32       v <- v              : lds lgkm lanes
"""

_LOADS = {"ubyte": 1, "sbyte": 1, "ushort": 1, "sshort": 1, "dword": 1, "dwordx2": 2, "dwordx3": 3, "dwordx4": 4}
_STORES = {
    "byte": 1, "byte_d16_hi": 1, "short": 1, "short_d16_hi": 1, "dword": 1, "dwordx2": 2, "dwordx3": 3, "dwordx4": 4,
}
_HALVES = ("short_d16", "short_d16_hi", "ubyte_d16", "ubyte_d16_hi")
_COMPARISONS = ("lt", "eq", "le", "gt", "lg", "ge", "o", "u", "nge", "nlg", "ngt", "nle", "neq", "nlt")
_ATOMICS = {"add": 1, "add_f32": 1, "add_x2": 2, "add_f64": 2, "pk_add_f16": 1, "pk_add_bf16": 1}


def _families() -> list[str]:
    """Rows that repeat one shape over widths, types or comparisons."""
    lines: list[str] = []
    for width, size in _LOADS.items():
        lines += [f"buffer_load_{width} w{size} <- v s4 c : vmem vm", f"global_load_{width} w{size} <- v2 : vmem vm"]
    for width in _HALVES:
        lines += [f"buffer_load_{width} w <- v s4 c : vmem vm keeps", f"global_load_{width} w <- v2 : vmem vm keeps"]
    for width, size in _STORES.items():
        lines += [f"buffer_store_{width} <- w{size} v s4 c : vmem vm", f"global_store_{width} <- v2 w{size} : vmem vm"]
    for width in ("ubyte", "ushort", "dword", "dwordx3", "dwordx4"):
        only = " gfx950" if width in ("dwordx3", "dwordx4") else ""
        lines.append(f"buffer_load_{width}_lds=buffer_load_{width} <- v s4 c : vmem vm +m0{only}")
    for kind, size in _ATOMICS.items():
        lines.append(f"global_atomic_{kind} <- v2 v{size} : vmem vm")
    for kind, width in (("i32", ""), ("u32", ""), ("f32", ""), ("i64", 2), ("u64", 2), ("f64", 2)):
        names = _COMPARISONS if kind[0] == "f" else ("lt", "eq", "le", "gt", "ne", "ge")
        lines += [f"v_cmp_{name}_{kind} m <- x{width} x{width} : valu vopc" for name in names]
    return lines


def _parse(line: str) -> Row:
    head, _, tail = line.partition(":")
    left, _, right = head.partition("<-")
    name, *dst = left.split()
    unit, *flags = tail.split()
    name, _, mnemonic = name.partition("=")
    mnemonic = mnemonic or _SPELLING.get(name, name)
    return Row(name, mnemonic, tuple(map(_spec, dst)), tuple(map(_spec, right.split())), unit, frozenset(flags))


_SPELLING = {"s_mov_m0": "s_mov_b32", "s_mov_exec": "s_mov_b64", "s_read_exec": "s_mov_b64"}


def _spec(text: str) -> Spec:
    return Spec("m", 2) if text == "m" else Spec(text[0], int(text[1:] or 1))


PSEUDO = {
    # Moves any number of dwords (or a token) of one register to another; the allocator removes it or expands it.
    "copy": Row("copy", "copy", (Spec("w"),), (Spec("x"),), "pseudo", frozenset()),
    # Hands a token on; stays to the end and emits nothing.
    "token": Row("token", "token", (), (), "pseudo", frozenset()),
    # Nothing but the place where the tokens it names are complete.
    "await": Row("await", "await", (), (), "pseudo", frozenset()),
}


@cache
def rows(arch: str) -> dict[str, Row]:
    """Every row that the architecture has, by name; MFMA rows come from the target's table."""
    table = dict(PSEUDO)
    lines = [line for line in _TABLE.splitlines() if line and not line.startswith("#")] + _families()
    for line in lines:
        row = _parse(line)
        if row.on(arch):
            table[row.name] = row
    for mfma in target(arch).mfmas:
        # Destinations over 4 dwords may not overlap A or B, and C is either the same registers or apart
        # (docs/isa-notes.md, registers).
        flags = {"early"} if mfma.cd_dwords > 4 else set()
        a, b, cd = Spec("w", mfma.a_dwords), Spec("w", mfma.b_dwords), mfma.cd_dwords
        # An f8f6f4 instruction takes operands of as many dwords as their formats fill: a row per pair of formats.
        name = f"{mfma.mnemonic}_{mfma.a}_{mfma.b}" if mfma.is_f8f6f4 else mfma.mnemonic
        table[name] = Row(name, mfma.mnemonic, (Spec("w", cd),), (a, b, Spec("f", cd)), "mfma", frozenset(flags))
    return table


def row_of(instruction: Instruction, arch: str) -> Row:
    return rows(arch)[instruction.op]


def reads(instruction: Instruction, arch: str) -> tuple[Operand, ...]:
    """Registers and tokens read: sources, implicit registers, and a destination of which a part is kept (d16 loads,
    swaps)."""
    row = row_of(instruction, arch)
    kept = instruction.dst[:len(row.dst)] if row.flags & {"keeps", "swap"} else ()
    return tuple(o for o in (*instruction.src, *kept) if isinstance(o, (Ref, Physical))) + row.implicit_reads


def writes(instruction: Instruction, arch: str) -> tuple[Operand, ...]:
    """Registers and tokens written: destinations and implicit registers."""
    implicit = row_of(instruction, arch).implicit_writes
    return tuple(o for o in instruction.dst if isinstance(o, (Ref, Physical))) + implicit


def dwords(operand: Physical) -> range:
    """A hardware operand as numbers, one per dword, distinct over all register files: what passes index by."""
    start = _FILES[operand.file] + operand.index
    return range(start, start + operand.size)


_FILES = {"s": 0, "vcc": 106, "m0": 124, "exec": 126, "scc": 253, "v": 256, "a": 512}


def is_inline(value: int) -> bool:
    """Whether a 32-bit pattern is one of the constants that every VALU and SALU source encodes for free."""
    return -16 <= value <= 64 or value & 0xFFFFFFFF in _INLINE_FLOATS or value & 0xFFFFFFFF >= 0xFFFFFFF0


# 0.5 1.0 2.0 4.0, their negatives, and 1/(2 pi)
_INLINE_FLOATS = frozenset({
    0x3F000000, 0xBF000000, 0x3F800000, 0xBF800000, 0x40000000, 0xC0000000, 0x40800000, 0xC0800000, 0x3E22F983,
})

__all__ = ["Row", "Spec", "Target", "dwords", "is_inline", "reads", "row_of", "rows", "writes"]
