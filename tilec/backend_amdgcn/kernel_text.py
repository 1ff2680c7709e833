"""What surrounds the instructions of a kernel: symbol, kernel descriptor, code object metadata.

`KernelInfo` is the whole of what the hardware and the loader must know of a kernel; `kernel_text` prints it in the
assembler's directives (LLVM, "User Guide for AMDGPU Backend": AMDHSA assembler directives, code object v5 metadata).
One module, one kernel. The target line is left out: its spelling differs between LLVM versions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

CODE_PADDING_DWORDS = 256
"""LLVM puts this many s_nop behind the code on gfx90a and later, for the instruction prefetch to run into."""

_S_NOP = 0xBF800000
_RESERVED_SGPRS = 6             # VCC, XNACK mask, flat scratch: counted by metadata, not by next_free_sgpr
_WAVE_SIZE = 64


@dataclass(frozen=True)
class KernelArgument:
    """One argument in the kernel argument segment. `offset` and `size` in bytes; `value_kind` as in code object v5
    ("global_buffer", "by_value", "hidden_..."); `address_space` of a pointer ("global"); `dtype` is for readers."""

    name: str
    offset: int
    size: int
    value_kind: str
    address_space: str | None = None
    dtype: str = ""


@dataclass(frozen=True)
class KernelInfo:
    """What a kernel asks of the machine. Register counts are per lane; `vgprs` and `agprs` count from register 0 of
    each file to the last one used; `sgprs` excludes VCC. AGPR 0 is the unified file's register `accum_offset`."""

    name: str
    arch: str
    vgprs: int
    agprs: int
    accum_offset: int
    sgprs: int
    lds_bytes: int
    kernarg_bytes: int
    arguments: tuple[KernelArgument, ...]
    workgroup_size: tuple[int, int, int]
    scratch_bytes: int = 0
    kernarg_align: int = 8
    workgroup_ids: tuple[bool, bool, bool] = (True, False, False)
    workitem_id_dimensions: int = 1

    @property
    def total_vgprs(self) -> int:
        """Registers of the unified file: AGPRs follow the VGPRs at `accum_offset`."""
        return self.accum_offset + self.agprs if self.agprs else self.vgprs


def kernel_text(info: KernelInfo, body: str, sources: Sequence[str] = ()) -> str:
    """The assembly of a module with this one kernel. `body` is its instructions, labels and comments.

    With `sources`, paths of the user's files, the object gets a line table: a directive `.loc N LINE COLUMN` in the
    body says that what follows comes from the N-th of them (from 1).
    """
    lines = _line_table(info.name) if sources else ""
    return _files(sources) + _symbol(info.name, body) + _descriptor(info) + _metadata(info) + lines


def _symbol(name: str, body: str) -> str:
    return f"""\
\t.text
\t.globl\t{name}
\t.p2align\t8
\t.type\t{name},@function
{name}:
{body.rstrip()}
.Lend_{name}:
\t.size\t{name}, .Lend_{name}-{name}
\t.p2alignl 6, {_S_NOP:#x}
\t.fill {CODE_PADDING_DWORDS}, 4, {_S_NOP:#x}
"""


def _files(sources: Sequence[str]) -> str:
    return "".join(f'\t.file\t{number} "{path}"\n' for number, path in enumerate(sources, 1))


def _line_table(name: str) -> str:
    """DWARF 4: one compile unit that covers the kernel and points to the line program that the assembler writes."""
    return f"""\
\t.section\t.debug_abbrev,"",@progbits
\t.byte\t1, 0x11, 0                     ; abbreviation 1: DW_TAG_compile_unit without children
\t.byte\t0x10, 0x17, 0x11, 0x01, 0x12, 0x06, 0, 0, 0   ; stmt_list: sec_offset, low_pc: addr, high_pc: data4
\t.section\t.debug_info,"",@progbits
\t.long\t.Lunit_end-.Lunit
.Lunit:
\t.short\t4
\t.long\t.debug_abbrev
\t.byte\t8, 1
\t.long\t.Lline_table
\t.quad\t{name}
\t.long\t.Lend_{name}-{name}
.Lunit_end:
\t.section\t.debug_line,"",@progbits
.Lline_table:
"""


def _descriptor(info: KernelInfo) -> str:
    x, y, z = map(int, info.workgroup_ids)
    fields = {
        "group_segment_fixed_size": info.lds_bytes,
        "private_segment_fixed_size": info.scratch_bytes,
        "kernarg_size": info.kernarg_bytes,
        "user_sgpr_count": 2,
        "user_sgpr_kernarg_segment_ptr": 1,
        "enable_private_segment": int(info.scratch_bytes > 0),
        "system_sgpr_workgroup_id_x": x,
        "system_sgpr_workgroup_id_y": y,
        "system_sgpr_workgroup_id_z": z,
        "system_vgpr_workitem_id": info.workitem_id_dimensions - 1,
        "next_free_vgpr": info.total_vgprs,
        "next_free_sgpr": info.sgprs,
        "accum_offset": info.accum_offset,
        "reserve_vcc": 1,
        "float_round_mode_32": 0,           # nearest even
        "float_round_mode_16_64": 0,
        "float_denorm_mode_32": 3,          # keep denormals; the assembler's default would flush them
        "float_denorm_mode_16_64": 3,
        "dx10_clamp": 1,                    # clamp turns NaN into 0
        "ieee_mode": 1,                     # signalling NaNs are quieted, as the emulator computes
        "tg_split": 0,                      # all waves of a workgroup on one CU, as LDS needs
    }
    directives = "\n".join(f"\t\t.amdhsa_{name} {value}" for name, value in fields.items())
    return (f'\t.section\t.rodata,"a",@progbits\n\t.p2align\t6, 0x0\n'
            f"\t.amdhsa_kernel {info.name}\n{directives}\n\t.end_amdhsa_kernel\n\t.text\n")


def _metadata(info: KernelInfo) -> str:
    threads = info.workgroup_size[0] * info.workgroup_size[1] * info.workgroup_size[2]
    lines = ["---", "amdhsa.kernels:", f"  - .agpr_count: {info.agprs}"]
    lines += ["    .args:" if info.arguments else "    .args: []"]
    for argument in info.arguments:
        lines += _list_item("      ", _argument_fields(argument))
    lines += [f"    {name}: {value}" for name, value in {
        ".group_segment_fixed_size": info.lds_bytes,
        ".kernarg_segment_align": info.kernarg_align,
        ".kernarg_segment_size": info.kernarg_bytes,
        ".max_flat_workgroup_size": threads,
        ".name": _string(info.name),
        ".private_segment_fixed_size": info.scratch_bytes,
        ".reqd_workgroup_size": "[{}, {}, {}]".format(*info.workgroup_size),
        ".sgpr_count": info.sgprs + _RESERVED_SGPRS,
        ".sgpr_spill_count": 0,
        ".symbol": _string(f"{info.name}.kd"),
        ".uniform_work_group_size": 1,
        ".vgpr_count": info.total_vgprs,
        ".vgpr_spill_count": 0,
        ".wavefront_size": _WAVE_SIZE,
    }.items()]
    lines += [f"amdhsa.target: amdgcn-amd-amdhsa--{info.arch}", "amdhsa.version:", "  - 1", "  - 2", "..."]
    return "\t.amdgpu_metadata\n" + "\n".join(lines) + "\n\t.end_amdgpu_metadata\n"


def _argument_fields(argument: KernelArgument) -> dict[str, object]:
    fields: dict[str, object] = {".name": _string(argument.name), ".offset": argument.offset, ".size": argument.size,
                                 ".value_kind": argument.value_kind}
    if argument.address_space:
        fields[".address_space"] = argument.address_space
    if argument.dtype:
        fields[".type_name"] = _string(argument.dtype)
    return dict(sorted(fields.items()))


def _list_item(indent: str, fields: dict[str, object]) -> Iterable[str]:
    """A map as an item of a YAML list."""
    for index, (name, value) in enumerate(fields.items()):
        yield f"{indent}{'- ' if index == 0 else '  '}{name}: {value}"


def _string(text: str) -> str:
    """A name that stays one: YAML takes a bare N or `nan` for a truth value or a number."""
    return f"!str '{text}'"
