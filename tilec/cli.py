"""The `tilec` command: compile, run, emulate, dump, disasm.

Every command has `--json`: one JSON value on stdout and nothing else there. Faults go to stderr as tilec's errors, with
exit status 2; status 1 means that something ran and was found wrong. Commands only parse, call and print; modules are
loaded by the command that needs them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from tilec.errors import TilecError

WRONG, FAULT = 1, 2             # exit status: what ran is wrong; the command could not be carried out


class Commands(click.Group):
    """A group whose commands may raise TilecError."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except TilecError as error:
            click.echo(f"tilec: {error}", err=True)
            ctx.exit(FAULT)


def as_json(function: Any) -> Any:
    return click.option("--json", "json_output", is_flag=True, help="Print one JSON value instead of text.")(function)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="tilec", message="%(prog)s %(version)s")
def main() -> None:
    """Compile tile kernels for AMD CDNA3 (gfx942) and CDNA4 (gfx950), run them on the CPU emulator, look into them.

    \b
    A kernel is named FILE:KERNEL, as in kernels/gemm.py:gemm. Arguments that are not
    given are those that the kernel's file sets as its defaults.

    \b
      tilec compile kernels/gemm.py:gemm --arch gfx942 -o out
      tilec run kernels/softmax.py:softmax --arg "x=f32[33,1000]"
      tilec dump kernels/gemm.py:gemm --diff traced laid_out
      tilec disasm out/gemm.hsaco
    """


@main.command()
@click.argument("object_file", metavar="OBJECT", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--kernel", "names", multiple=True, metavar="NAME", help="Only this kernel; may be repeated.")
@as_json
def disasm(object_file: Path, names: tuple[str, ...], json_output: bool) -> None:
    """Show the kernels of a code object: resources, arguments, instructions, innermost loops.

    OBJECT is an .hsaco file of any AMDGPU compiler. Registers are those that the instructions name; LDS and scratch are
    what the kernel descriptor asks for.
    """
    from tilec import object_report
    from tilec.emulator.elf import load_object

    loaded = load_object(object_file.read_bytes())
    for name in names:
        if name not in loaded.kernels:
            raise TilecError(f"{object_file} has no kernel {name!r}", fix=f"kernels in it: {', '.join(loaded.kernels)}")
    reports = [object_report.describe(loaded, kernel) for kernel in loaded.kernels.values()
               if not names or kernel.name in names]
    if json_output:
        print_json({"arch": loaded.arch, "kernels": [report.as_json() for report in reports]})
    else:
        click.echo("\n\n".join(report.as_text() for report in reports))


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2))
