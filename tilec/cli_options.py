"""Options that several commands share, as decorators, and how they print JSON."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any

import click

LANDINGS = ("late", "early", "random")


def as_json(function: Callable[..., None]) -> Callable[..., None]:
    return click.option("--json", "json_output", is_flag=True, help="Print one JSON value instead of text.")(function)


def of_kernel(function: Callable[..., None]) -> Callable[..., None]:
    """The options that name a kernel and what to compile it for; the command gets them as one `Request`."""

    @click.argument("kernel", metavar="FILE:KERNEL")
    @click.option("--arch", metavar="ARCH", help="gfx942 or gfx950 (default: TILEC_ARCH, else gfx950).")
    @click.option("--arg", "args", multiple=True, metavar="NAME=dtype[shape]",
                  help="A tensor argument, as in x=bf16[1000,777], or a scalar, as in n=5; may be repeated.")
    @click.option("--const", "consts", multiple=True, metavar="NAME=VALUE",
                  help="A Const argument, as in BM=128 or causal=True; may be repeated.")
    @click.option("--schedule", metavar="S",
                  help="simple, pingpong, pingpong(buffers=2), interleave, or one of the kernel's own by its name.")
    @functools.wraps(function)
    def command(kernel: str, arch: str | None, args: tuple[str, ...], consts: tuple[str, ...], schedule: str | None,
                **rest: Any) -> None:
        from tilec.cli_kernel import Request

        function(Request.of(kernel, arch, args, consts, schedule), **rest)

    return command


def of_emulator(function: Callable[..., None]) -> Callable[..., None]:
    """The options of a run on the emulator."""
    for option in reversed((
        click.option("--checks", default="all", show_default=True, metavar="all|none|LIST",
                     help="Which checks watch the run: their names, separated by commas."),
        click.option("--seed", default=0, show_default=True, help="The order of waves, and of random landings."),
        click.option("--landing", type=click.Choice(LANDINGS), default="late", show_default=True,
                     help="When loads sample memory: as late as the waits allow, at issue, or at random."),
    )):
        function = option(function)
    return function


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2))
