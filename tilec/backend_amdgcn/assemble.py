"""Assembly text to a loadable code object: assembled by LLVM, linked by `link.py`.

Two assemblers: ROCm's LLVM in process (the default), or a ROCm clang as a subprocess, on request, for the same bytes.
A fault in text that tilec printed is tilec's bug and says so; one in text that a person edited points into the text.
Either is mapped back through `line_map` to the instruction and the user's line where these are known.
"""

from __future__ import annotations

import functools
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

from tilec import config, llvm
from tilec.backend_amdgcn.link import link
from tilec.errors import InternalError, Location, TilecError

LineMap = Callable[[int], tuple[str, Location | None]]
"""Line of the text (from 1) to the machine instruction as the IR prints it, and the user's line that it came from."""

_SHOWN = 5
_CLANG_FAULT = re.compile(r"^[^:\n]*:(\d+):(\d+): error: (.*)$", re.MULTILINE)
_PROBE = "v_mfma_f32_16x16x32_bf16 v[0:3], v[4:7], v[8:11], 0"      # gfx950 only
_PLACES = ("llvm/bin/clang", "lib/llvm/bin/clang", "bin/amdclang")
_DEFAULT_ROCM = Path("/opt/rocm")


def assemble(text: str, arch: str, *, line_map: LineMap | None = None, edited: str = "",
             clang: Path | None = None) -> bytes:
    """The code object (ELF shared object, code object v5) of a module's text.

    `edited` names the file when a person wrote or changed the text: it is then assembled in a child process, and its
    faults are the person's (TilecError), not ours (InternalError). `clang` uses that compiler; see `find_clang`.
    """
    try:
        if clang:
            relocatable = _clang(clang, text, arch)
        elif edited:
            relocatable = llvm.assemble_isolated(text, arch)
        else:
            relocatable = llvm.assemble(text, arch)
    except llvm.AssemblerError as error:
        raise _explain(error.messages, text, line_map, edited) from error
    return link(relocatable)


def find_clang(asked: Path | None = None) -> Path:
    """A clang that assembles for gfx950: the one asked for, or ROCM_PATH's, or /opt/rocm's. TilecError if none does."""
    if asked:
        candidates = [asked]
    else:
        roots = [root for root in (config.current().rocm_path, _DEFAULT_ROCM) if root]
        candidates = [root / place for root in roots for place in _PLACES]
    found = [path for path in candidates if path.exists()]
    for path in found:
        if _can_assemble(path):
            return path
    looked = ", ".join(map(str, candidates))
    if found:
        raise TilecError(f"{found[0]} does not assemble for gfx950", limit=f"probed with {_PROBE!r}",
                         fix="use the clang of ROCm 7 or newer, or leave the option out to use the embedded LLVM")
    raise TilecError("no ROCm clang found", limit=f"looked at {looked}",
                     fix="set ROCM_PATH, name the clang, or leave the option out to use the embedded LLVM")


@functools.cache
def _can_assemble(path: Path) -> bool:
    try:
        _clang(path, _PROBE + "\n", "gfx950")
    except (llvm.AssemblerError, OSError):
        return False
    return True


def _clang(path: Path, text: str, arch: str) -> bytes:
    command = [str(path), "-x", "assembler", f"--target={llvm.TRIPLE.decode()}", f"-mcpu={arch}",
               f"-mcode-object-version={llvm.CODE_OBJECT_VERSION // 100}", "-c", "-o", "-", "-"]
    done = subprocess.run(command, input=text.encode(), capture_output=True, check=False)
    if done.returncode == 0:
        return done.stdout
    said = done.stderr.decode("utf-8", "replace")
    faults = [llvm.Message(int(line), int(column), what) for line, column, what in _CLANG_FAULT.findall(said)]
    raise llvm.AssemblerError(tuple(faults) or (llvm.Message(0, 0, said.strip()),))


def _explain(messages: tuple[llvm.Message, ...], text: str, line_map: LineMap | None, edited: str) -> TilecError:
    lines = text.splitlines()
    told, first = [], None
    for message in messages[:_SHOWN]:
        source = lines[message.line - 1].strip() if 0 < message.line <= len(lines) else ""
        instruction, where = line_map(message.line) if line_map and message.line else ("", None)
        first = first or where
        told.append(str(message) + (f"\n    {source}" if source else "") +
                    (f"\n    from {instruction}" if instruction else "") + (f" at {where}" if where else ""))
    if len(messages) > _SHOWN:
        told.append(f"and {len(messages) - _SHOWN} more")
    if not edited:
        return InternalError("generated assembly does not assemble\n  " + "\n  ".join(told), where=first)
    place = next((Location(edited, message.line, max(message.column, 1)) for message in messages if message.line), None)
    return TilecError("this assembly does not assemble\n  " + "\n  ".join(told), where=place,
                      fix="compare with the text that tilec printed for this kernel")
