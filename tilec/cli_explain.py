"""`tilec explain`: what the compiler made of a kernel's tiles."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tilec.cli_options import as_json, of_kernel, print_json

if TYPE_CHECKING:
    from tilec.cli_kernel import Request


@click.command()
@of_kernel
@click.argument("tile", required=False, default="")
@as_json
def explain(request: Request, tile: str, json_output: bool) -> None:
    """Explain a tile of a kernel, by its name in the source: layout, LDS and swizzle, registers, clusters, waits.

    A tile that the schedule splits is told part by part, or one part is named as in "acc[0, 1]". Without TILE, all
    tiles of the steady loop.
    """
    text = request.compiled.explain(tile)
    if json_output:
        print_json({"kernel": request.compiled.name, "arch": request.compiled.arch, "tile": tile, "text": text})
    else:
        click.echo(text)
