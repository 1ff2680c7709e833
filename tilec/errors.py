"""The one error that tilec raises for what a user did: where, what was asked, the limit in numbers, what to try.

`Location` is a place in the user's source. It is attached to every op, register and instruction that came from it, so
that an error of any pass can point to the line that asked for the impossible.
"""

from __future__ import annotations

import linecache
from dataclasses import dataclass


@dataclass(frozen=True)
class Location:
    """A span of one source line. `line` and `column` count from 1; `width` is the number of characters to underline."""

    file: str
    line: int
    column: int = 1
    width: int = 1

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"

    def excerpt(self) -> str:
        """The source line with a caret under the span; empty when the source can't be read."""
        text = linecache.getline(self.file, self.line).rstrip("\n")
        if not text:
            return ""
        indent = len(text) - len(text.lstrip())
        column = max(self.column - 1, indent)
        carets = "^" * max(1, min(self.width, len(text) - column))
        return f"    {text[indent:]}\n    {' ' * (column - indent)}{carets}"


class TilecError(Exception):
    """What the user sees when a program, an argument or a file is refused.

    `what` states the fault in one sentence; `limit` gives the numbers (asked against allowed), `fix` says what to try.
    """

    def __init__(self, what: str, *, where: Location | None = None, limit: str = "", fix: str = ""):
        self.what, self.where, self.limit, self.fix = what, where, limit, fix
        super().__init__(self.render())

    def render(self) -> str:
        lines = [f"{self.where}: {self.what}" if self.where else self.what]
        if self.where and (excerpt := self.where.excerpt()):
            lines.append(excerpt)
        if self.limit:
            lines.append(f"  limit: {self.limit}")
        if self.fix:
            lines.append(f"  try: {self.fix}")
        return "\n".join(lines)


class OverBudget(TilecError):
    """What lives at the same time does not fit registers or LDS; the compiler may try with less at once."""


class OutOfScalars(OverBudget):
    """SGPRs are what runs out: a program that hoists less out of its loops may need fewer."""


class Unscheduled(TilecError):
    """A named schedule serves no loop of the program; the compiler goes on with less of it, or without."""


class InternalError(TilecError):
    """A bug of tilec's own, never the user's: a pass broke its promise, or generated text did not assemble."""

    def __init__(self, what: str, *, where: Location | None = None, limit: str = ""):
        super().__init__(f"internal error in tilec: {what}", where=where, limit=limit,
                         fix="report this with the kernel; it is a bug in tilec, not in your program")
