"""`tilec registers`: which tile of a kernel lives in which vector registers, and when."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tilec.cli_options import as_json, of_kernel, print_json

if TYPE_CHECKING:
    from tilec.cli_kernel import Request


@click.command()
@of_kernel
@click.option("--svg", "picture", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Write the picture there too.")
@as_json
def registers(request: Request, picture: Path | None, json_output: bool) -> None:
    """Draw the registers of a kernel: rows are VGPRs and AGPRs, columns regions of the program, letters its tiles.

    \b
      tilec registers kernels/gemm.py:gemm --schedule interleave --svg gemm.svg
    """
    from tilec.register_picture import svg

    found = request.compiled.register_map()
    if picture is not None:
        picture.write_text(svg(found), encoding="utf-8")
    if json_output:
        print_json(found.as_json())
    else:
        click.echo(str(found))
