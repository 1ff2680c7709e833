"""Every row of the instruction table against LLVM's assembler: spelling, operand files, sizes, alignment,
architectures."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO

import pytest
from elftools.elf.elffile import ELFFile

from tilec import llvm
from tilec.backend_amdgcn.emit import instruction_text
from tilec.backend_amdgcn.isa import Row, Spec, is_inline, reads, rows, writes
from tilec.ir.machine import (
    EXEC,
    SCC,
    VCC,
    Immediate,
    Instruction,
    Operand,
    Physical,
    Register,
    Target,
    whole,
)

ARCHS = ("gfx942", "gfx950")
FILE = {"v": "v", "x": "v", "a": "a", "w": "v", "f": "v", "s": "s", "c": "s", "m": "s"}


def real_rows(arch: str) -> list[Row]:
    return [row for row in rows(arch).values() if row.unit != "pseudo"]


def operand(spec: Spec, place: int = 0) -> Operand:
    """The operand at that place of an instruction, apart from those at other places."""
    if spec.code in FILE:
        file = FILE[spec.code]
        return Physical(file, 8 + (16 if file == "s" else 32) * place, spec.size)
    return Target("here") if spec.code == "L" else Immediate(1)


def modifiers(row: Row) -> tuple[tuple[str, object], ...]:
    if row.name.startswith("buffer_"):
        return (("offen", True), ("offset", 16))
    if row.name.endswith("_dpp"):
        return (("row_shr", 1), ("row_mask", 0xF), ("bank_mask", 0xF))
    if row.name == "s_waitcnt":
        return (("vmcnt", 3), ("lgkmcnt", 1))
    if row.mnemonic.endswith("_f8f6f4"):
        formats = {8: 0, 6: 2, 4: 4}
        return (("cbsz", formats[row.src[0].size]), ("blgp", formats[row.src[1].size]))
    return (("offset", 8),) if row.name == "ds_swizzle_b32" else ()


def example(row: Row) -> Instruction:
    dst = tuple(operand(spec) for spec in row.dst)
    src = dst if "swap" in row.flags else tuple(operand(spec, 1 + k) for k, spec in enumerate(row.src))
    return Instruction(row.name, dst, src, modifiers(row))


def sorted_out(lines: list[str], arch: str) -> tuple[list[str], list[str]]:
    """The lines that the assembler takes, and those that it refuses."""
    try:
        llvm.assemble("\n".join([".Lhere:", *lines, ""]), arch)
    except llvm.AssemblerError as error:
        bad = {message.line - 2 for message in error.messages}
        return [line for k, line in enumerate(lines) if k not in bad], [lines[k] for k in sorted(bad)]
    return lines, []


def taken(lines: list[str], arch: str) -> list[str]:
    assert lines
    return sorted_out(lines, arch)[0]


def refused(lines: list[str], arch: str) -> list[str]:
    assert lines
    return sorted_out(lines, arch)[1]


@pytest.mark.parametrize("arch", ARCHS)
def test_every_row_assembles(arch: str):
    lines = [instruction_text(example(row), arch) for row in real_rows(arch)]
    assert len(lines) > 300
    assert refused(lines, arch) == []


@pytest.mark.parametrize("arch", ARCHS)
def test_the_mnemonic_is_what_the_disassembler_prints(arch: str):
    plain = [row for row in real_rows(arch) if row.unit != "branch"]  # a branch is relocated; assembled above
    code = code_of(llvm.assemble("\n".join(instruction_text(example(row), arch) for row in plain) + "\n", arch))
    for row, printed in zip(plain, llvm.disassemble(code, arch)):
        mnemonic = printed.text.split()[0].removesuffix("_e32").removesuffix("_e64").removesuffix("_dpp")
        assert mnemonic == row.mnemonic.removesuffix("_dpp")


def code_of(data: bytes) -> bytes:
    section = ELFFile(BytesIO(data)).get_section_by_name(".text")
    assert section
    return section.data()


def test_rows_of_one_architecture_are_refused_by_the_other():
    for arch, other in (ARCHS, ARCHS[::-1]):
        only = [row for row in real_rows(arch) if row.name not in rows(other)]
        assert taken([instruction_text(example(row), arch) for row in only], other) == []


def variants(arch: str, change: Callable[[Row, Spec, Physical], Physical | None]) -> list[str]:
    """Examples in each of which one operand is changed."""
    lines = []
    for row in real_rows(arch):
        base = example(row)
        for place in ("dst", "src"):
            for k, spec in enumerate(getattr(row, place)):
                old = getattr(base, place)[k]
                new = change(row, spec, old) if isinstance(old, Physical) else None
                if new is None or "swap" in row.flags and place == "src":
                    continue
                operands = list(getattr(base, place))
                operands[k] = new
                lines.append(instruction_text(base.replace(**{place: tuple(operands)}), arch))
    return lines


@pytest.mark.parametrize("arch", ARCHS)
def test_agprs_stand_only_where_the_row_says(arch: str):
    def vector_only(row: Row, spec: Spec, old: Physical) -> Physical | None:
        memory = row.unit in ("vmem", "lds")        # more of their operands could be AGPRs than the rows use
        return Physical("a", old.index, old.size) if spec.code in ("v", "x") and not memory else None

    def either(row: Row, spec: Spec, old: Physical) -> Physical | None:
        return Physical("a", old.index, old.size) if spec.code == "w" and row.unit != "mfma" else None

    lines = variants(arch, vector_only)
    assert taken(lines, arch) == []
    lines = variants(arch, either)
    assert refused(lines, arch) == []


@pytest.mark.parametrize("arch", ARCHS)
def test_matrix_operands(arch: str):
    """A and B each in either file; C and D in one."""
    good, bad = [], []
    for row in real_rows(arch):
        if row.unit != "mfma":
            continue
        base = example(row)
        d, (a, b, c) = base.dst[0], base.src
        assert all(isinstance(o, Physical) for o in (a, b, c, d))
        agpr = {o: Physical("a", o.index, o.size) for o in (a, b, c, d)}
        constant = base.replace(src=(a, b, Immediate(0)))
        good += [base.replace(src=(agpr[a], b, c)), base.replace(src=(a, agpr[b], c)), constant,
                 base.replace(dst=(agpr[d],), src=(a, b, agpr[c])), constant.replace(dst=(agpr[d],))]
        bad += [base.replace(dst=(agpr[d],)), base.replace(src=(a, b, agpr[c]))]
        if row.dst[0].size > 4 and not row.mnemonic.endswith("_f8f6f4"):    # C overlaps D, and is not D
            bad.append(base.replace(src=(a, b, Physical("v", d.index + 2, d.size))))
    lines = [instruction_text(i, arch) for i in good]
    assert refused(lines, arch) == []
    lines = [instruction_text(i, arch) for i in bad]
    assert taken(lines, arch) == []


@pytest.mark.parametrize("arch", ARCHS)
def test_tuples_have_the_size_and_the_alignment_that_the_row_says(arch: str):
    def shifted(row: Row, spec: Spec, old: Physical) -> Physical | None:
        step = 1 if old.size == 1 else 2 if old.size == 2 or old.file != "s" else 4
        return Physical(old.file, old.index + step // 2, old.size) if step > 1 else None

    def wider(row: Row, spec: Spec, old: Physical) -> Physical | None:
        return Physical(old.file, old.index, 2 * old.size) if row.unit != "mfma" else None

    lines = variants(arch, shifted) + variants(arch, wider)
    lines = [line for line in lines if not line.startswith("global_atomic_pk_add")]
    assert taken(lines, arch) == []


def test_reads_and_writes_name_registers_tokens_and_what_is_implied():
    half, base, token = Register("v"), Register("v"), Register("t")
    load = Instruction("ds_read_u16_d16_hi", (whole(half), whole(token)), (whole(base),), (("offset", 2),))
    assert reads(load, "gfx950") == (whole(base), whole(half))
    assert writes(load, "gfx950") == (whole(half), whole(token))
    add = Instruction("s_addc_u32", (whole(Register("s")),), (Immediate(1), whole(Register("s"))))
    assert SCC in reads(add, "gfx950") and SCC in writes(add, "gfx950") and Immediate(1) not in reads(add, "gfx950")
    narrow = Instruction("s_and_saveexec_b64", (whole(Register("s", 2)),), (VCC,))
    assert {EXEC, VCC} == set(reads(narrow, "gfx942")) and {EXEC, SCC} <= set(writes(narrow, "gfx942"))


@pytest.mark.parametrize("value, free", [
    (0, True), (64, True), (65, False), (-16, True), (-17, False), (0xFFFFFFF0, True), (0xFFFFFFEF, False),
    (0x3F800000, True), (0xC0800000, True), (0x3F000001, False), (0x3E22F983, True)])
def test_inline_constants_are_those_that_need_no_literal(value: int, free: bool):
    assert is_inline(value) == free
    code = code_of(llvm.assemble(f"v_add_u32_e32 v0, {value:#x}, v1\ns_endpgm", "gfx950"))
    assert (llvm.disassemble(code, "gfx950")[0].size == 4) == free
