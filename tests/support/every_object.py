"""Every object that the compiler makes while tests run, compared with what clang and ld.lld make of the same text.

`tilec.compile` gets its objects from one call of `assemble`, whoever asks for them and however: that call is watched
here. tests/conftest.py compares after each test what the test has compiled: all of it with `pytest --with-clang`, else
a sample that the content chooses, so that a run that is repeated compares the same objects. Equal objects count once.
"""

from __future__ import annotations

import hashlib
import sys
from typing import Any

from tests.support.clang import compare_with_clang

SAMPLE = 16
"""One in so many is compared where not all are."""


class Watch:
    """`made`: digests of the distinct objects so far; `compared`: how many of them were compared."""

    def __init__(self, one_in: int):
        self.one_in, self.compared = one_in, 0
        self.made: set[bytes] = set()
        self._waiting: list[tuple[str, str, bytes]] = []

    def install(self) -> None:
        """From now on sees what the compiler has assembled."""
        compiler: Any = sys.modules["tilec.compile"]
        assemble = compiler.assemble

        def watched(text: str, arch: str, **options: Any) -> bytes:
            made = assemble(text, arch, **options)
            self.note(text, arch, made)
            return made

        compiler.assemble = watched

    def note(self, text: str, arch: str, made: bytes) -> None:
        digest = hashlib.sha256(b"\0".join((arch.encode(), text.encode(), made))).digest()
        if digest not in self.made:
            self.made.add(digest)
            if int.from_bytes(digest[:4]) % self.one_in == 0:
                self._waiting.append((text, arch, made))

    def compare(self) -> None:
        """Asserts of the objects chosen since the last call that they are clang's."""
        waiting, self._waiting = self._waiting, []
        self.compared += len(waiting)
        for text, arch, made in waiting:
            compare_with_clang(text, arch, made)
