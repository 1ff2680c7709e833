"""Objects on disk, one file each, named by a hash of all that they follow from.

The traced program with its source locations is the compiler's whole input, beside architecture, schedule and the
compiler itself; so a key needs no knowledge of helpers or globals. Files appear whole or not at all. A cache that can't
be read or written is a cache that is empty.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

from tilec import config
from tilec.frontend.fingerprint import compiler_hash
from tilec.ir.core import Program
from tilec.ir.schedule import Schedule
from tilec.ir.text import print_program


def key(program: Program, arch: str, schedule: Schedule) -> str:
    """The name of the object that this program compiles to."""
    parts = (compiler_hash(), arch, repr(schedule), print_program(program, locations=True))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def load(name: str) -> bytes | None:
    try:
        return _path(name).read_bytes()
    except OSError:
        return None


def store(name: str, content: bytes) -> None:
    path = _path(name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(content)
        os.replace(file.name, path)
    except OSError:
        pass


def _path(name: str) -> Path:
    return config.current().cache_dir / f"{name}.hsaco"
