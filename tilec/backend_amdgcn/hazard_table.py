"""Which instructions must keep how far apart: the wait states that hardware does not insert itself, as data.

A rule says: between a producer with one trait and a consumer with another that share a register in the named roles, so
many instructions of any kind must lie (`s_nop N` counts as N + 1). Sources: [D] AMD's CDNA3 and CDNA4 ISA manuals,
chapter 4 (table 11) and the table of required NOPs in the matrix chapter; [L] LLVM 22's GCNHazardRecognizer. Where they
differ the larger number stands. What has no rule is interlocked in hardware; loaded registers are guarded by waits.
`Effects` gives the shape and roles of an instruction; the inserter and the checker share this module and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache, cached_property

from tilec.backend_amdgcn.isa import Row, dwords, rows
from tilec.ir.machine import EXEC, M0, VCC, Instruction, Operand, Physical
from tilec.target import target

WINDOW = 20
"""No rule reaches over more states than this (gfx950: the result of a 16-pass MFMA)."""

CLAUSE_UNITS = ("vmem", "smem")
"""Adjacent memory instructions of one unit form a clause, which the hardware may issue anew after a page fault (XNACK,
which objects for `gfx942` and `gfx950` allow). So in a clause of several none may write what one of them, itself
included, reads, and no store may follow a load; any other instruction between ends it [L: checkSoftClauseHazards]."""

States = int | dict[int, int]
"""Required states, or required states by the producer's passes."""


@dataclass(frozen=True)
class Rule:
    """`producer` and `consumer` are traits. `pairs` name a role of the producer and one of the consumer: the rule holds
    when the registers of any pair overlap; without pairs it always holds. `same`: only if the consumer's SrcC is the
    very result of the producer and both are one instruction, so that hardware forwards it (True), or only if not."""

    name: str
    producer: str
    consumer: str
    pairs: tuple[tuple[str, str], ...]
    gfx942: States
    gfx950: States
    same: bool | None = None

    def states(self, arch: str, passes: int) -> int:
        value = self.gfx942 if arch == "gfx942" else self.gfx950
        return value.get(passes, 0) if isinstance(value, dict) else value


def _passes(two: int, four: int, eight: int, sixteen: int) -> dict[int, int]:
    return {2: two, 4: four, 8: eight, 16: sixteen}


def _rule(name: str, producer: str, consumer: str, pairs: str, gfx942: States, gfx950: States | None = None,
          same: bool | None = None) -> Rule:
    """One number or table stands for both architectures unless there are two. `pairs`: "vdst>vsrc vdst>vdst"."""
    split = tuple((left, right) for pair in pairs.split() for left, _, right in [pair.partition(">")])
    return Rule(name, producer, consumer, split, gfx942, gfx942 if gfx950 is None else gfx950, same)


_XDL_USE = (_passes(5, 7, 11, 19), _passes(5, 8, 12, 20))
_SGEMM_USE = _passes(4, 6, 10, 18)
_SGEMM_C = _passes(2, 4, 8, 16)

RULES = (
    # Results of matrix instructions. [D] CDNA3 table 37, CDNA4 table 38; [L] agrees but for what is marked.
    _rule("xdl result > valu", "xdl", "valu", "vdst>vsrc vdst>vdst", *_XDL_USE),
    _rule("xdl result > memory", "xdl", "memory", "vdst>vsrc vdst>vdst", *_XDL_USE),
    _rule("xdl result > mfma A B", "xdl", "mfma", "vdst>ab", *_XDL_USE),
    # [L] forwards whenever registers and passes agree; its pull request 218363 says that only one opcode forwards.
    _rule("xdl result > same C", "xdl", "xdl", "vdst>c", _passes(2, 0, 0, 0), same=True),
    _rule("xdl result > other C", "xdl", "xdl", "vdst>c", _passes(3, 5, 9, 17), _passes(4, 6, 10, 18), same=False),
    _rule("xdl result > sgemm C", "xdl", "sgemm", "vdst>c", _passes(3, 5, 9, 17), _passes(3, 6, 10, 18)),
    _rule("xdl result > dgemm C", "xdl", "dgemm", "vdst>c", _passes(3, 5, 9, 17), _passes(3, 6, 10, 18)),
    _rule("xdl C > overwritten by valu", "xdl", "valu", "c>vdst", _passes(1, 3, 7, 15)),
    _rule("xdl C > overwritten by load", "xdl", "memory", "c>vdst", _passes(1, 3, 7, 15)),
    _rule("sgemm result > valu", "sgemm", "valu", "vdst>vsrc vdst>vdst", _SGEMM_USE),
    _rule("sgemm result > memory", "sgemm", "memory", "vdst>vsrc vdst>vdst", _SGEMM_USE),
    _rule("sgemm result > mfma A B", "sgemm", "mfma", "vdst>ab", _SGEMM_USE),
    _rule("sgemm result > same C", "sgemm", "sgemm", "vdst>c", _passes(2, 0, 0, 0), same=True),
    _rule("sgemm result > other C", "sgemm", "sgemm", "vdst>c", _SGEMM_C, same=False),
    _rule("sgemm result > dgemm C", "sgemm", "dgemm", "vdst>c", _SGEMM_C),
    _rule("sgemm result > xdl C", "sgemm", "xdl", "vdst>c", _SGEMM_C),       # CDNA3's table; 0 in CDNA4's and [L]
    # f64: 4x4x4 has 4 passes; 16x16x4 has 8 on gfx942 and 16 on gfx950.
    _rule("dgemm result > valu", "dgemm", "valu", "vdst>vsrc vdst>vdst", {4: 6, 8: 11}, {4: 6, 16: 19}),   # [L] WAW 11
    _rule("dgemm result > memory", "dgemm", "memory", "vdst>vsrc", {4: 9, 8: 18}, {4: 9, 16: 19}),       # [D] 18
    _rule("dgemm result > overwritten by load", "dgemm", "memory", "vdst>vdst", {4: 6, 8: 11}, {4: 6, 16: 19}),
    _rule("dgemm result > mfma A B", "dgemm", "mfma", "vdst>ab", {4: 6, 8: 11}, {4: 6, 16: 19}),
    _rule("dgemm result > same C", "dgemm", "dgemm", "vdst>c", {4: 4, 8: 0}, {4: 4, 16: 0}, same=True),
    _rule("dgemm result > other C", "dgemm", "dgemm", "vdst>c", {4: 4, 8: 9}, {4: 4, 16: 17}, same=False),
    _rule("dgemm result > sgemm C", "dgemm", "sgemm", "vdst>c", {4: 4, 8: 9}, {4: 4, 16: 17}),
    _rule("dgemm > f64 fused multiply-add", "dgemm", "fma64", "", 2),        # [L] whatever the registers
    # Into matrix instructions.
    _rule("valu result > mfma", "valu", "mfma", "vdst>ab vdst>c", 2),
    _rule("dot result > mfma", "dot", "mfma", "vdst>ab vdst>c", 3),          # [D]; [L] 0
    # VALU to VALU. [D] chapter 4, table 11.
    _rule("valu result > dpp", "valu", "dpp", "vdst>vsrc", 2),
    _rule("valu result > lane read", "valu", "readlane", "vdst>vsrc", 1),
    _rule("valu result > lane swap", "valu", "permlane", "vdst>vsrc", 2),
    _rule("transcendental result > valu", "trans", "plain", "vdst>vsrc", 1),
    _rule("part of a register > valu", "partial", "valu", "vdst>vsrc vdst>vdst", 1),
    _rule("dot result > same dot A B", "dot", "dot", "vdst>ab", 3),
    _rule("dot result > other dot C", "dot", "dot", "vdst>c vdst>vdst", 3, same=False),
    _rule("dot result > valu", "dot", "plain", "vdst>vsrc vdst>vdst", 3),
    _rule("dot result > memory", "dot", "memory", "vdst>vsrc vdst>vdst", 3),
    # Scalars that the VALU writes. [D] table 11; [L] also asks 2 for carries and masks, where [D] has 0.
    _rule("valu scalar > valu operand", "valu", "valu", "sdst>ssrc", 2),
    _rule("valu scalar > vector memory", "valu", "vmem", "sdst>ssrc", 5),
    _rule("valu scalar > lane select", "valu", "readlane", "sdst>lane", 4),
    _rule("valu vcc > v_div_fmas", "valu", "divfmas", "sdst>vcc", 4),
    # EXEC that the VALU writes (v_cmpx); from the SALU it needs nothing.
    _rule("valu exec > vector memory", "valu", "vmem", "exec>mask", 5),
    _rule("valu exec > dpp", "valu", "dpp", "exec>mask", 5),
    _rule("valu exec > lane read", "valu", "readlane", "exec>mask", 4),
    _rule("valu exec > lane swap", "valu", "permlane", "exec>mask", 4),
    _rule("valu exec > mfma", "valu", "mfma", "exec>mask", 4),
    # M0, for copies to LDS (and messages); ordinary LDS instructions don't read it.
    _rule("m0 > use", "salu", "usesm0", "m0dst>m0src", 1),
    # Stores of more than 64 bits read their data late. With an SGPR offset 1 state is left (LLVM pull request 197267,
    # from measurements on MI350X), where the manual asks for none.
    _rule("wide store data > valu", "widestore", "writer", "data>vdst", 2),
    _rule("wide store data > valu (SGPR offset)", "widestore_soffset", "writer", "data>vdst", 1),
    _rule("wide store data > load", "widestore", "memory", "data>vdst", 1),              # [D]; [L] 0
    _rule("wide store data > load (SGPR offset)", "widestore_soffset", "memory", "data>vdst", 1),
)


@dataclass(frozen=True, eq=False)
class Shape:
    """What the table must know of a kind of instruction. `roles` maps a role to the operands in it, as (is a
    destination, index) pairs; `fixed` holds registers that are no operands."""

    arch: str
    row: Row
    passes: int
    traits: frozenset[str]
    roles: dict[str, tuple[tuple[bool, int], ...]]
    fixed: dict[str, frozenset[int]]
    _followers: dict[Shape, tuple[tuple[int, Rule], ...]] = field(default_factory=dict)

    def has(self, role: str) -> bool:
        return role in self.roles or role in self.fixed

    @cached_property
    def starts(self) -> tuple[tuple[int, Rule], ...]:
        """The rules that such a producer can start, with the states that each asks for, most first."""
        found = [(rule.states(self.arch, self.passes), rule) for rule in RULES if rule.producer in self.traits and
                 (not rule.pairs or any(self.has(role) for role, _ in rule.pairs))]
        return tuple(sorted((f for f in found if f[0] > 0), key=lambda f: -f[0]))

    @cached_property
    def guards(self) -> tuple[str, ...]:
        """The producer roles of these rules: the registers that a consumer must watch."""
        return tuple(dict.fromkeys(role for _, rule in self.starts for role, _ in rule.pairs if self.has(role)))

    @cached_property
    def unseen(self) -> bool:
        """Whether a rule of this producer may hold without an operand in common: by EXEC, or whatever the operands."""
        return any(not rule.pairs or "exec" in dict(rule.pairs) for _, rule in self.starts)

    @cached_property
    def stores(self) -> bool:
        return "store" in self.row.name or "atomic" in self.row.name

    @cached_property
    def implied(self) -> tuple[frozenset[int], frozenset[int]]:
        """Registers read and written that are no operands."""
        mask = () if self.row.unit == "salu" else (EXEC,)
        return (frozenset().union(*map(dwords, self.row.implicit_reads + mask)),
                frozenset().union(*map(dwords, self.row.implicit_writes)))

    @cached_property
    def implicit(self) -> tuple[int, ...]:
        return tuple(r for role, registers in self.fixed.items() if role != "mask" for r in registers)

    @cached_property
    def reach(self) -> int:
        """The most states that any rule asks for after such a producer."""
        return self.starts[0][0] if self.starts else 0

    def before(self, consumer: Shape) -> tuple[tuple[int, Rule], ...]:
        """The rules that may hold between this producer and such a consumer, the one with the most states first."""
        found = self._followers.get(consumer)
        if found is None:
            found = self._followers[consumer] = tuple(
                (states, rule) for states, rule in self.starts if rule.consumer in consumer.traits and
                (not rule.pairs or any(consumer.has(role) for _, role in rule.pairs)))
        return found


class Effects:
    """One instruction as the table sees it. The registers of a role are found when a rule first asks for them."""

    __slots__ = ("instruction", "shape", "_registers", "_roles", "_uses")

    def __init__(self, instruction: Instruction, shape: Shape):
        self.instruction, self.shape = instruction, shape
        self._registers: tuple[int, ...] | None = None
        self._uses: tuple[frozenset[int], frozenset[int]] | None = None
        self._roles: dict[str, frozenset[int]] = {}

    @property
    def unit(self) -> str:
        return self.shape.row.unit

    def role(self, name: str) -> frozenset[int]:
        found = self._roles.get(name)
        if found is None:
            registers = set(self.shape.fixed.get(name, ()))
            for is_dst, index in self.shape.roles.get(name, ()):
                operand = (self.instruction.dst if is_dst else self.instruction.src)[index]
                if isinstance(operand, Physical):
                    registers.update(dwords(operand))
            found = self._roles[name] = frozenset(registers)
        return found

    def uses(self) -> tuple[frozenset[int], frozenset[int]]:
        """Registers read and written, EXEC as the mask of all but scalar instructions included."""
        if self._uses is None:
            row, made = self.shape.row, self.instruction
            read, written = self.shape.implied
            kept = made.dst if row.flags & {"keeps", "swap"} else ()
            self._uses = read.union(*map(dwords, _hardware(made.src + kept))), written.union(
                *map(dwords, _hardware(made.dst)))
        return self._uses

    def registers(self) -> tuple[int, ...]:
        """All registers that can be in some role, EXEC as the lane mask apart: a quick test for no rule at all."""
        if self._registers is None:
            found = [*self.shape.implicit]
            for operand in _hardware(self.instruction.dst + self.instruction.src):
                found += dwords(operand)
            self._registers = tuple(found)
        return self._registers


def _hardware(operands: tuple[Operand, ...]) -> list[Physical]:
    return [operand for operand in operands if isinstance(operand, Physical)]


def effects(instruction: Instruction, arch: str) -> Effects:
    """The instruction with its shape; shapes are shared by all instructions of a kind."""
    op, variant = instruction.op, None
    if instruction.modifiers and op.startswith("v_"):
        variant = instruction.modifier("op_sel")
    elif op.startswith("buffer_store"):
        variant = isinstance(instruction.src[3], Physical) or None
    return Effects(instruction, _shape(op, variant, arch))


def required(producer: Effects, consumer: Effects) -> tuple[int, str]:
    """States that must lie between two instructions, and the name of the rule that asks for the most."""
    for states, rule in producer.shape.before(consumer.shape):
        if rule.same is not None and rule.same != _forwards(producer, consumer):
            continue
        if not rule.pairs or any(not producer.role(p).isdisjoint(consumer.role(c)) for p, c in rule.pairs):
            return states, rule.name
    return 0, ""


def _forwards(producer: Effects, consumer: Effects) -> bool:
    """Whether the consumer takes the producer's result as its SrcC on the matrix pipe's own path."""
    first, second = producer.shape, consumer.shape
    return (first.row.mnemonic == second.row.mnemonic and first.passes == second.passes and "c" in second.roles and
            producer.instruction.dst[0] == consumer.instruction.src[second.roles["c"][0][1]])


@cache
def _shape(op: str, variant: object, arch: str) -> Shape:
    row = rows(arch)[op]
    vector = row.unit in ("valu", "trans", "mfma", "vmem", "lds")
    roles: dict[str, list[tuple[bool, int]]] = {}
    for is_dst, specs in ((True, row.dst), (False, row.src)):
        for index, spec in enumerate(specs):
            for role in _operand_roles(row, is_dst, index, spec.code):
                roles.setdefault(role, []).append((is_dst, index))
    fixed = {
        "m0dst": frozenset(dwords(M0)) if "=m0" in row.flags else frozenset(),
        "m0src": frozenset(dwords(M0)) if "+m0" in row.flags else frozenset(),
        "vcc": frozenset(dwords(VCC)) if "+vcc" in row.flags else frozenset(),
        "ssrc": frozenset(dwords(VCC)) if "+vcc" in row.flags else frozenset(),
        "sdst": frozenset(dwords(VCC)) if "=vcc" in row.flags else frozenset(),
        "exec": frozenset(dwords(EXEC)) if "=exec" in row.flags else frozenset(),
        "mask": frozenset(dwords(EXEC)) if vector else frozenset(),
    }
    passes, kind = _matrix(row, arch) if row.unit == "mfma" else (0, "")
    return Shape(arch, row, passes, frozenset(_traits(row, variant, kind)),
                 {role: tuple(operands) for role, operands in roles.items()},
                 {role: registers for role, registers in fixed.items() if registers})


def _matrix(row: Row, arch: str) -> tuple[int, str]:
    """Passes and class of an MFMA. An f8f6f4 instruction has a row per pair of formats, which decide its passes."""
    found = next(m for m in target(arch).mfmas if row.name in (m.mnemonic, f"{m.mnemonic}_{m.a}_{m.b}"))
    return found.passes, found.kind


def _operand_roles(row: Row, is_dst: bool, index: int, code: str) -> tuple[str, ...]:
    """vdst, vsrc: vector registers written, read · sdst, ssrc: scalars · ab, c: sources of a matrix or dot instruction
    · data: what a store stores · lane: a lane select."""
    kinds = {"v": "v", "a": "v", "w": "v", "s": "s", "m": "s", "c": "s", "x": "vs", "f": "v"}.get(code, "")
    name = row.name
    if is_dst:
        kept = row.flags & {"keeps", "swap"} or name.endswith("_dpp")       # DPP keeps what its lanes do not write
        return (*(f"{kind}dst" for kind in kinds), *(("vsrc",) if kept and "v" in kinds else ()))
    result = [f"{kind}src" for kind in kinds]
    if row.unit == "mfma" or name.startswith("v_dot"):
        result.append("c" if index == 2 or "tied" in row.flags and index == 0 else "ab")
    if "_store_dwordx" in name and index == (0 if name.startswith("buffer") else 1):
        result.append("data")
    if name in ("v_readlane_b32", "v_writelane_b32") and index == 1:
        result.append("lane")
    return tuple(result)


def _traits(row: Row, variant: object, kind: str) -> list[str]:
    name = row.name
    traits = [row.unit]
    if row.unit in ("valu", "trans"):
        dot = name.startswith("v_dot")
        traits += ["valu", "writer"]
        traits += ["dot"] if dot else ["plain"] if row.unit == "valu" else []
        traits += ["dpp"] if name.endswith("_dpp") else []
        traits += ["readlane"] if name in ("v_readlane_b32", "v_readfirstlane_b32", "v_writelane_b32") else []
        traits += ["permlane"] if "swap" in row.flags else []
        traits += ["fma64"] if name in ("v_fma_f64", "v_fmac_f64") else []
        traits += ["divfmas"] if name.startswith("v_div_fmas") else []
        traits += ["partial"] if _writes_part(row, variant) else []
    elif row.unit == "mfma":
        traits += [kind, "writer"]
    elif row.unit in ("vmem", "lds"):
        traits.append("memory")
        if "_store_dwordx3" in name or "_store_dwordx4" in name:
            traits.append("widestore_soffset" if variant else "widestore")
    return traits + (["usesm0"] if "+m0" in row.flags else [])


def _writes_part(row: Row, variant: object) -> bool:
    """Whether the result goes to a part of its register other than the low one: op_sel's entries behind the sources
    choose it; conversions to fp4 always do so [L]. Packed instructions' op_sel chooses sources only."""
    selects = variant if isinstance(variant, tuple) else ()
    packed = row.name.startswith(("v_pk_", "v_dot"))
    return any(selects[len(row.src):]) and not packed or row.name.startswith(
        ("v_cvt_scalef32_pk_fp4", "v_cvt_scalef32_sr_pk_fp4"))
