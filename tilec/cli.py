"""The `tilec` command: compile, explain, registers, run, emulate, dump, disasm, isa, grid.

Every command has `--json`: one JSON value on stdout and nothing else there. Faults go to stderr as tilec's errors, with
exit status 2; status 1 means that something ran and was found wrong. Commands only parse, call and print; modules are
loaded by the command that needs them.
"""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tilec.cli_explain import explain
from tilec.cli_grid import grid
from tilec.cli_isa import Watch, address_of, isa, of_watch
from tilec.cli_options import as_json, of_emulator, of_kernel, print_json
from tilec.cli_registers import registers
from tilec.errors import TilecError

if TYPE_CHECKING:
    from tilec.cli_kernel import Request
    from tilec.trial import Outcome

WRONG, FAULT = 1, 2             # exit status: what ran is wrong; the command could not be carried out
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


class Commands(click.Group):
    """A group whose commands may raise TilecError."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except TilecError as error:
            click.echo(f"tilec: {error}", err=True)
            ctx.exit(FAULT)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="tilec", message="%(prog)s %(version)s")
def main() -> None:
    """Compile tile kernels for AMD CDNA3 (gfx942) and CDNA4 (gfx950), run them on the CPU emulator, look into them.

    \b
    A kernel is named FILE:KERNEL, as in kernels/gemm.py:gemm. Arguments that are not
    given are those that the kernel's file sets as its defaults.

    \b
      tilec compile kernels/gemm.py:gemm --arch gfx942 -o out
      tilec run kernels/softmax.py:softmax --arg "X=f32[33,1000]" --arg "Y=f32[33,1000]"
      tilec dump kernels/gemm.py:gemm --diff traced simplify
      tilec disasm out/gemm.hsaco
    """


main.add_command(grid)
main.add_command(explain)
main.add_command(isa)
main.add_command(registers)


@main.command()
@of_kernel
@click.option("-o", "output", type=click.Path(file_okay=False, path_type=Path), metavar="DIR",
              help="Where to write KERNEL.s and KERNEL.hsaco.")
@as_json
def compile(request: Request, output: Path | None, json_output: bool) -> None:
    """Compile a kernel: assembly, code object, resources, seconds per pass, what its innermost loops hold.

    Loops and registers are read from the finished object. Conflict cycles are those of one workgroup that the emulator
    runs on the arguments' shapes.
    """
    report, written = request.report(), request.write(output) if output else {}
    if json_output:
        print_json(report.as_json() | written)
    else:
        click.echo("\n".join([report.as_text(), *(f"{kind}: {path}" for kind, path in written.items())]))


@main.command()
@of_kernel
@of_emulator
@click.option("--data", type=click.Choice(("normal", "integers")), default="normal", show_default=True,
              help="What fills the tensors: normally distributed numbers, or small integers (sums are then exact).")
@as_json
def run(request: Request, checks: str, seed: int, landing: str, data: str, json_output: bool) -> None:
    """Compile a kernel, run it on the emulator on generated data, and compare with the reference of its file.

    Exit status: 0 when all outputs match and the checks found nothing, 1 otherwise.
    """
    finish(request.run(checks=checks, seed=seed, landing=landing, data=data), json_output)


@main.command()
@click.argument("object_file", metavar="OBJECT", type=FILE)
@click.option("--meta", "description", required=True, type=FILE, help="The meta.json that describes the object.")
@click.option("--ref", "reference", required=True, type=FILE,
              help="The Python file (numpy only) whose launch(meta, case) makes the inputs and checks the outputs.")
@click.option("--case", required=True, help="Which case of the description to run.")
@of_emulator
@click.option("--without", multiple=True, metavar="ADDRESS",
              help="Leave out the instruction at this address (decimal or 0x...); may be repeated.")
@of_watch
@as_json
def emulate(object_file: Path, description: Path, reference: Path, case: str, checks: str, seed: int, landing: str,
            without: tuple[str, ...], watch: Watch, json_output: bool) -> None:
    """Run a described code object of any compiler on the emulator, and compare with its reference.

    An instruction that is left out counts for no wait states either. Exit status: 0 when there is no mismatch and no
    finding, 1 otherwise.
    """
    from tilec.emulator.corpus import load_description, load_reference, run_case
    from tilec.emulator.elf import load_object
    from tilec.trial import Outcome

    code = load_object(object_file.read_bytes())
    left_out = [address_of("--without", text) for text in without]
    if strangers := set(left_out) - {instruction.address for instruction in code.instructions}:
        raise TilecError(f"no instruction of {object_file} starts at {', '.join(map(hex, sorted(strangers)))}",
                         fix=f"tilec disasm {object_file} lists their addresses")
    with watch.sink() as sink:
        result = run_case(code, load_description(description), case, load_reference(reference), checks=checks,
                          seed=seed, landing=landing, without=left_out, sink=sink)
    finish(Outcome(result.mismatches, result.findings, result.statistics), json_output, watch)


@main.command()
@of_kernel
@click.option("--stage", metavar="NAME", help="A pass (the program after it), a form (the last program in it), or asm.")
@click.option("--diff", nargs=2, metavar="A B", help="What changed from stage A to stage B, as a unified diff.")
@as_json
def dump(request: Request, stage: str | None, diff: tuple[str, str] | None, json_output: bool) -> None:
    """Print a kernel at a stage of the compiler, or the difference between two; without either, list the stages."""
    if stage and diff:
        raise click.UsageError("--stage and --diff exclude each other")
    names = diff or ((stage,) if stage else ())
    texts = {name: request.stage(name) for name in names} or request.stages()
    if json_output:
        print_json(texts)
    elif diff:
        before, after = (texts[name].splitlines() for name in diff)
        click.echo("\n".join(difflib.unified_diff(before, after, *diff, lineterm="")))
    elif stage:
        click.echo(texts[stage])
    else:
        click.echo("\n".join(f"{name:12} {form}" for name, form in texts.items()))


@main.command()
@click.argument("object_file", metavar="OBJECT", type=FILE)
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


def finish(outcome: Outcome, json_output: bool, watch: Watch | None = None) -> None:
    """Prints what a run gave and what was to be watched of it, and ends the command with its exit status."""
    if json_output:
        print_json(outcome.as_json() | (watch.as_json() if watch else {}))
    else:
        click.echo("\n".join([*(watch.as_text() if watch else []), outcome.as_text()]))
    if not outcome.passed:
        click.get_current_context().exit(WRONG)
