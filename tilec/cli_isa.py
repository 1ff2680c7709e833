"""`tilec isa`, and what `tilec emulate` shows of a run: a trace of chosen waves, a summary per instruction."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tilec.cli_options import as_json, print_json
from tilec.errors import TilecError

if TYPE_CHECKING:
    from tilec.emulator.trace import Sink, Summary


@click.command()
@click.option("--missing", "arch", required=True, type=click.Choice(("gfx942", "gfx950")),
              help="The architecture whose instructions to go through.")
@as_json
def isa(arch: str, json_output: bool) -> None:
    """List the instructions that LLVM knows for an architecture and the emulator can't run, each with its reason."""
    from tilec.emulator.coverage import missing, mnemonics

    known, absent = len(mnemonics(arch)), missing(arch)
    if json_output:
        print_json({"arch": arch, "known": known, "missing": [{"name": n, "reason": r} for n, r in absent]})
        return
    width = max(len(name) for name, _ in absent)
    click.echo(f"; {arch}: LLVM knows {known} instructions, the emulator runs {known - len(absent)}; "
               f"the other {len(absent)}:")
    click.echo("\n".join(f"{name:{width}}  {reason}" for name, reason in absent))


class Watch:
    """What of a run is to be shown. `sink` goes into the run; `summary` is there after it, if it was asked for."""

    summary: Summary | None

    def __init__(self, trace: Path | None, waves: str | None, addresses: str | None, summary: bool):
        if trace is None and (waves or addresses):
            raise click.UsageError("--waves and --range choose what --trace FILE writes")
        self.path, self.waves, self.range = trace, _waves(waves), _range(addresses)
        self._wanted, self.summary = summary, None

    @contextlib.contextmanager
    def sink(self) -> Iterator[Sink | None]:
        """The sink for one run; the trace's file is closed behind it."""
        from tilec.emulator.trace import Sinks, Summary, Trace

        self.summary = Summary() if self._wanted else None
        with contextlib.ExitStack() as stack:
            sinks: list[Sink] = [] if self.summary is None else [self.summary]
            if self.path is not None:
                try:
                    out = stack.enter_context(self.path.open("w"))
                except OSError as error:
                    raise TilecError(f"can't write the trace to {self.path}: {error.strerror}") from None
                sinks.append(Trace(out, self.waves, *self.range))
            yield Sinks(sinks) if sinks else None

    def as_json(self) -> dict[str, Any]:
        return ({"trace": str(self.path)} if self.path else {}) | (
            {"summary": self.summary.as_json()} if self.summary else {})

    def as_text(self) -> list[str]:
        return ([f"trace: {self.path}"] if self.path else []) + ([self.summary.table()] if self.summary else [])


def of_watch(function: Callable[..., None]) -> Callable[..., None]:
    """The options of a `Watch`; the command gets one."""

    @click.option("--trace", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
                  help="Write there what each wave did: address, instruction, registers changed.")
    @click.option("--waves", metavar="G.W,...", help="Trace only these: workgroup and wave in it, as in 0.1,3.0.")
    @click.option("--range", "addresses", metavar="FROM:TO",
                  help="Trace only instructions from this address to before that one; either may be left out.")
    @click.option("--summary", is_flag=True,
                  help="Print per instruction: executions, active lanes, LDS extra cycles, bytes, coalescing.")
    @functools.wraps(function)
    def command(trace: Path | None, waves: str | None, addresses: str | None, summary: bool, **rest: Any) -> None:
        function(watch=Watch(trace, waves, addresses, summary), **rest)

    return command


def address_of(option: str, text: str) -> int:
    """An address as the user writes it."""
    try:
        return int(text, 0)
    except ValueError:
        raise TilecError(f"{option} {text!r} is no address", fix="write it as 0x1a2c, or in decimal") from None


def _waves(text: str | None) -> list[tuple[int, int]] | None:
    if text is None:
        return None
    pairs = [piece.strip().split(".") for piece in text.split(",")]
    if not all(len(pair) == 2 and pair[0].isdigit() and pair[1].isdigit() for pair in pairs):
        raise TilecError(f"--waves {text!r} names no waves", fix="write workgroup.wave, as in 0.1,3.0")
    return [(int(group), int(wave)) for group, wave in pairs]


def _range(text: str | None) -> tuple[int, int]:
    if text is None:
        return 0, 1 << 62
    start, colon, end = text.partition(":")
    if not colon:
        raise TilecError(f"--range {text!r} is no range", fix="write FROM:TO, as in 0x1c00:0x1d00")
    return address_of("--range", start) if start else 0, address_of("--range", end) if end else 1 << 62
