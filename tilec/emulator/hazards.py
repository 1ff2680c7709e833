"""Wait states: pairs of instructions that gfx942 and gfx950 do not interlock, and how far apart they must be.

The rules are data, the emulator's own table (a test compares it with the documents' numbers). A wait state is one
instruction of any kind between the two; s_nop N gives N + 1. A path fixes the answer, so each (history, block) is
walked once and remembered. Sources: CDNA3 ISA guide 4.5 and 7.6 (table 37), CDNA4 ISA guide 7.6 (table 38), LLVM 22
GCNHazardRecognizer; where they differ, the longer.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from tilec.emulator.instruction import Instruction
from tilec.emulator.matrix import MatrixRow
from tilec.emulator.memory_rows import MemoryRow
from tilec.emulator.operands import EXEC, M0, SGPR, VCC, Register
from tilec.emulator.scalar_ops import hardware_field

WINDOW = 20
"""The longest distance that any rule asks for (gfx950, 16-pass XDL)."""

_TRANSCENDENTAL = re.compile(r"v_(exp|log|rcp|rsq|sqrt|sin|cos)(_legacy|_iflag)?_(f16|f32|f64|legacy_f32|iflag_f32)")


class Traits:
    """What the rules ask of an instruction: its kinds, and register ids by role."""

    def __init__(self, instruction: Instruction, arch: str):
        name, row, suffix = instruction.name, instruction.row, instruction.parsed.suffix
        modifiers = instruction.parsed.modifiers
        self.instruction, self.name = instruction, name
        kinds = {"any"}
        self.passes = 0
        self.ab: frozenset[int] = frozenset()
        self.c: tuple[int, ...] = ()
        if instruction.unit == "valu":
            dot = name.startswith("v_dot")
            kinds |= {"valu", "dot" if dot else "plain"}
            if _TRANSCENDENTAL.fullmatch(name):
                kinds.add("trans")
            else:
                kinds.add("not_trans")
            if name.startswith("v_cmpx"):
                kinds.add("cmpx")
            if suffix == "dpp":
                kinds.add("dpp")
            if name in ("v_readlane_b32", "v_readfirstlane_b32", "v_writelane_b32"):
                kinds.add("lane_access")
            if name.startswith("v_permlane") and "swap" in name:
                kinds.add("swap")
            if name.startswith("v_div_fmas"):
                kinds.add("div_fmas")
            if name in ("v_fma_f64", "v_fmac_f64"):
                kinds.add("fma64")
            selected = modifiers.get("op_sel")
            moved = (
                isinstance(selected, tuple)
                and len(selected) > len(instruction.sources)
                and selected[-1]
                and not name.startswith("v_pk_")
            )
            if suffix == "sdwa" and modifiers.get("dst_sel", "DWORD") != "DWORD" or moved:
                kinds.add("moved")
            if re.match(r"v_cvt_scalef32_(pk|sr_pk)_fp4", name):
                kinds.add("fp4")
        elif isinstance(row, MatrixRow):
            kinds |= {"mfma", row.hazard_class}
            cbsz, blgp = modifiers.get("cbsz", 0), modifiers.get("blgp", 0)
            self.passes = (
                row.cycles(arch, cbsz if isinstance(cbsz, int) else 0, blgp if isinstance(blgp, int) else 0) // 4
            )
            a, b, c, *scales = instruction.sources
            self.ab = frozenset(i for span in (a, b, *scales) for i in span)
            self.c = tuple(c)
        elif isinstance(row, MemoryRow):
            kinds.add({"lds": "ds", "scalar": "smem"}.get(row.space, "vmem"))
            if row.space not in ("lds", "scalar") or row.op != "cache":
                kinds.add("memory")
            if row.op == "dma" or "addtid" in name:
                kinds.add("m0_reader")
            if kinds & {"vmem", "ds"} and instruction.writes:
                kinds.add("load")
            if row.op in ("store", "atomic") and "vmem" in kinds and len(instruction.data) > 2:
                kinds.add("wide_store_sgpr" if self._scalar_offset() else "wide_store")
        elif instruction.unit == "salu":
            kinds.add("salu")
            if instruction.text.startswith("s_movrel"):
                kinds.add("m0_reader")
            if name.startswith(("s_setreg", "s_getreg")):
                kinds.add("setreg" if name.startswith("s_setreg") else "getreg")
        elif name == "s_sendmsg":
            kinds.add("m0_reader")
        self.kinds = frozenset(kinds)
        self.reads, self.writes, self.data = instruction.reads, instruction.writes, instruction.data
        self.vector_reads = frozenset(i for i in self.reads if i < SGPR)
        self.scalar_reads = frozenset(i for i in self.reads if i >= SGPR and i not in (EXEC, EXEC + 1))
        self.vector_touches = frozenset(i for i in instruction.touches if i < SGPR)
        rules = [rule for rule in RULES if rule.producer in kinds]
        self.rules = tuple(rules)
        self.reach = max((rule.states(arch, self.passes) for rule in rules), default=0)

    def _scalar_offset(self) -> bool:
        """A buffer store whose soffset is an SGPR: one wait state is enough, by measurement on gfx950 (LLVM 22:
        none).
        """
        last = self.instruction.parsed.operands[-1].value
        return self.instruction.name.startswith("buffer") and isinstance(last, Register)

    @cached_property
    def select(self) -> frozenset[int]:
        """The lane select of v_readlane and v_writelane."""
        operands = self.instruction.parsed.operands
        return frozenset(operands[-1].ids) if self.name in ("v_readlane_b32", "v_writelane_b32") else frozenset()

    @cached_property
    def hardware(self) -> int:
        """The hardware register of s_setreg or s_getreg."""
        operands = self.instruction.parsed.operands
        return hardware_field(operands[1 if "getreg" in self.kinds else 0])[0]


Link = Callable[[Traits, Traits], bool]


def _always(p: Traits, i: Traits) -> bool:
    return True


def _raw_vector(p: Traits, i: Traits) -> bool:
    return not p.writes.isdisjoint(i.vector_reads)


def _raw_scalar(p: Traits, i: Traits) -> bool:
    return not p.writes.isdisjoint(i.scalar_reads)


def _touch(p: Traits, i: Traits) -> bool:
    """Reads or writes what the producer wrote, in vector registers."""
    return not p.writes.isdisjoint(i.vector_touches)


def _operand_ab(p: Traits, i: Traits) -> bool:
    return not p.writes.isdisjoint(i.ab)


def _operand_any(p: Traits, i: Traits) -> bool:
    return not p.writes.isdisjoint(i.reads)


def _c_identical(p: Traits, i: Traits) -> bool:
    return bool(i.c) and tuple(sorted(p.writes)) == i.c and p.name == i.name and p.passes == i.passes


def _c_overlaps(p: Traits, i: Traits) -> bool:
    return not p.writes.isdisjoint(i.c) and not _c_identical(p, i)


def _c_touches(p: Traits, i: Traits) -> bool:
    return not p.writes.isdisjoint(i.c)


def _c_war(p: Traits, i: Traits) -> bool:
    return frozenset(p.c) != p.writes and not i.writes.isdisjoint(p.c)


def _data_war(p: Traits, i: Traits) -> bool:
    return not i.writes.isdisjoint(p.data)


def _lane_select(p: Traits, i: Traits) -> bool:
    return not p.writes.isdisjoint(i.select)


def _vcc(p: Traits, i: Traits) -> bool:
    return VCC in p.writes


def _m0(p: Traits, i: Traits) -> bool:
    return M0 in p.writes


def _exec_operand(p: Traits, i: Traits) -> bool:
    return EXEC in i.reads


def _zero_flag(p: Traits, i: Traits) -> bool:
    """VCCZ or EXECZ read as data after the mask behind it was written."""
    text = i.instruction.text
    return ("vccz" in text and VCC in p.writes) or ("execz" in text and EXEC in p.writes)


def _same_hardware_register(p: Traits, i: Traits) -> bool:
    return p.hardware == i.hardware


def _same_dot_operands(p: Traits, i: Traits) -> bool:
    return p.name == i.name and not p.writes.isdisjoint(x for span in i.instruction.sources[:2] for x in span)


def _other_dot_touch(p: Traits, i: Traits) -> bool:
    return p.name != i.name and _touch(p, i)


@dataclass(frozen=True)
class Rule:
    """`producer`, `consumer`: kinds. `link`: do the two depend? `states`: wait states needed, by architecture; an
    int, or by the producer's passes. A dgemm producer is keyed by its passes too (4: 4x4x4; 8 or 16: 16x16x4).
    """

    name: str
    producer: str
    consumer: str
    link: Link
    gfx942: int | dict[int, int]
    gfx950: int | dict[int, int] | None = None

    def states(self, arch: str, passes: int) -> int:
        table = self.gfx942 if arch == "gfx942" or self.gfx950 is None else self.gfx950
        return table if isinstance(table, int) else table.get(passes, 0)


def _passes(p2: int, p4: int, p8: int, p16: int) -> dict[int, int]:
    return {2: p2, 4: p4, 8: p8, 16: p16}


_XDL, _XDL950 = _passes(5, 7, 11, 19), _passes(5, 8, 12, 20)
_SGEMM = _passes(4, 6, 10, 18)

RULES: tuple[Rule, ...] = (
    Rule("setreg", "setreg", "getreg", _same_hardware_register, 2),
    Rule("setreg", "setreg", "setreg", _same_hardware_register, 2),
    Rule("vccz", "valu", "valu", _zero_flag, 5),
    Rule("lane_select", "valu", "lane_access", _lane_select, 4),
    Rule("div_fmas", "valu", "div_fmas", _vcc, 4),
    Rule("vmem_sgpr", "valu", "vmem", _raw_scalar, 5),
    Rule("vmem_exec", "cmpx", "vmem", _always, 5),
    Rule("valu_sgpr", "valu", "valu", _raw_scalar, 2),
    Rule("vcmpx_exec", "cmpx", "valu", _exec_operand, 2),
    Rule("vcmpx_lane", "cmpx", "lane_access", _always, 4),
    Rule("vcmpx_dpp", "cmpx", "dpp", _always, 5),
    Rule("vcmpx_swap", "cmpx", "swap", _always, 4),
    Rule("vcmpx_mfma", "cmpx", "mfma", _always, 4),
    Rule("dpp", "valu", "dpp", _raw_vector, 2),
    Rule("read_lane", "valu", "lane_access", _raw_vector, 1),
    Rule("swap", "valu", "swap", _operand_any, 2),
    Rule("trans", "trans", "not_trans", _raw_vector, 1),
    Rule("op_sel", "moved", "valu", _touch, 1),
    Rule("fp4", "fp4", "valu", _touch, 0, 1),
    Rule("m0", "salu", "m0_reader", _m0, 1),
    Rule("store_data", "wide_store", "valu", _data_war, 2),
    Rule("store_data", "wide_store", "mfma", _data_war, 2),
    Rule("store_data", "wide_store_sgpr", "valu", _data_war, 1),
    Rule("store_data", "wide_store_sgpr", "mfma", _data_war, 1),
    Rule("dot", "dot", "dot", _same_dot_operands, 3),
    Rule("dot", "dot", "dot", _other_dot_touch, 3),
    Rule("dot", "dot", "plain", _touch, 3),
    Rule("dot", "dot", "memory", _touch, 3),
    Rule("dot", "dot", "mfma", _operand_any, 3),
    Rule("valu_mfma", "plain", "mfma", _operand_any, 2),
    Rule("xdl_valu", "xdl", "valu", _touch, _XDL, _XDL950),
    Rule("xdl_memory", "xdl", "memory", _touch, _XDL, _XDL950),
    Rule("xdl_ab", "xdl", "mfma", _operand_ab, _XDL, _XDL950),
    Rule("xdl_c_same", "xdl", "xdl", _c_identical, _passes(2, 0, 0, 0)),
    Rule("xdl_c", "xdl", "xdl", _c_overlaps, _passes(3, 5, 9, 17), _passes(4, 6, 10, 18)),
    Rule("xdl_other_c", "xdl", "sgemm", _c_touches, _passes(3, 5, 9, 17), _passes(3, 6, 10, 18)),
    Rule("xdl_other_c", "xdl", "dgemm", _c_touches, _passes(3, 5, 9, 17), _passes(3, 6, 10, 18)),
    Rule("xdl_c_war", "xdl", "valu", _c_war, _passes(1, 3, 7, 15)),
    Rule("xdl_c_war", "xdl", "load", _c_war, _passes(1, 3, 7, 15)),
    Rule("sgemm_valu", "sgemm", "valu", _touch, _SGEMM),
    Rule("sgemm_memory", "sgemm", "memory", _touch, _SGEMM),
    Rule("sgemm_ab", "sgemm", "mfma", _operand_ab, _SGEMM),
    Rule("sgemm_c_same", "sgemm", "sgemm", _c_identical, _passes(2, 0, 0, 0)),
    Rule("sgemm_c", "sgemm", "sgemm", _c_overlaps, _passes(2, 4, 8, 16)),
    Rule("sgemm_other_c", "sgemm", "dgemm", _c_touches, _passes(2, 4, 8, 16)),
    Rule("sgemm_other_c", "sgemm", "xdl", _c_touches, _passes(2, 4, 8, 16)),
    Rule("dgemm_valu", "dgemm", "valu", _touch, {4: 6, 8: 11}, {4: 6, 16: 19}),
    Rule("dgemm_memory", "dgemm", "memory", _raw_vector, {4: 9, 8: 18}, {4: 9, 16: 19}),
    Rule("dgemm_load", "dgemm", "load", _touch, {4: 6, 8: 11}, {4: 6, 16: 19}),
    Rule("dgemm_ab", "dgemm", "mfma", _operand_ab, {4: 6, 8: 11}, {4: 6, 16: 19}),
    Rule("dgemm_c_same", "dgemm", "dgemm", _c_identical, {4: 4, 8: 0}, {4: 4, 16: 0}),
    Rule("dgemm_c", "dgemm", "dgemm", _c_overlaps, {4: 4, 8: 9}, {4: 4, 16: 17}),
    Rule("dgemm_c", "dgemm", "sgemm", _c_touches, {4: 4, 8: 9}, {4: 4, 16: 17}),
    Rule("dgemm_fma64", "dgemm", "fma64", _always, 2),
)


@dataclass(frozen=True)
class Violation:
    """`consumer` follows `producer` after `states` wait states; the rule needs `needed`."""

    rule: Rule
    producer: Instruction
    consumer: Instruction
    states: int
    needed: int


@dataclass
class Hazards:
    """Checks paths against RULES for one architecture."""

    arch: str
    _traits: dict[Instruction, Traits] = field(default_factory=dict)
    _pairs: dict[tuple[Instruction, Instruction], tuple[tuple[Rule, int], ...]] = field(default_factory=dict)

    def traits(self, instruction: Instruction) -> Traits:
        found = self._traits.get(instruction)
        if found is None:
            found = self._traits[instruction] = Traits(instruction, self.arch)
        return found

    def needs(self, producer: Instruction, consumer: Instruction) -> tuple[tuple[Rule, int], ...]:
        """The rules that bind the pair, each with the wait states that it asks for."""
        key = producer, consumer
        found = self._pairs.get(key)
        if found is None:
            p, i = self.traits(producer), self.traits(consumer)
            bound = []
            for rule in p.rules:
                if rule.consumer in i.kinds and rule.link(p, i):
                    states = rule.states(self.arch, p.passes)
                    if states:
                        bound.append((rule, states))
            found = self._pairs[key] = tuple(bound)
        return found

    def walk(
        self, history: tuple[Instruction, ...], body: tuple[Instruction, ...]
    ) -> tuple[list[Violation], tuple[Instruction, ...]]:
        """Violations in `body` when it runs after `history`, and the history after it."""
        path = [*history, *body]
        reach = [self.traits(instruction).reach for instruction in path]
        violations = []
        for place in range(len(history), len(path)):
            between, earlier = 0, place - 1
            while earlier >= 0 and between < WINDOW:
                if reach[earlier] > between:
                    for rule, needed in self.needs(path[earlier], path[place]):
                        if between < needed:
                            violations.append(Violation(rule, path[earlier], path[place], between, needed))
                between += path[earlier].states
                earlier -= 1
        kept, states = len(path), 0
        while kept and states < WINDOW:
            kept -= 1
            states += path[kept].states
        return violations, tuple(path[kept:])
