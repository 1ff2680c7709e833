"""Runs a code object that is described by a meta.json and a ref.py (numpy only) beside it: inputs, launch, expected
results.

The description is that of other compilers' objects: `meta` gives symbol, workgroup size, LDS bytes and the argument
layout; `ref.launch(meta, case)` gives buffers, scalars, the grid, and `check(outputs)`, a list of mismatches. Input
buffers are placed read-only, so that a stray store into one is found.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from tilec.emulator.checks import Finding
from tilec.emulator.elf import CodeObject, load_object
from tilec.emulator.grid import RunResult, Statistics, run
from tilec.emulator.launch import argument_segment
from tilec.emulator.memory import Memory
from tilec.emulator.trace import Sink
from tilec.errors import TilecError

_SCALAR_TYPES: dict[str, Any] = {
    "i1": np.int8,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
    "u8": np.uint8,
    "u16": np.uint16,
    "u32": np.uint32,
    "u64": np.uint64,
    "f16": np.float16,
    "f32": np.float32,
    "fp32": np.float32,
    "f64": np.float64,
    "fp64": np.float64,
}


@dataclass(frozen=True)
class CaseResult:
    """`mismatches`: what the reference says is wrong. `outputs`: raw arrays of every buffer after the run."""

    mismatches: tuple[str, ...]
    findings: tuple[Finding, ...]
    statistics: Statistics
    outputs: dict[str, np.ndarray[Any, Any]]

    @property
    def passed(self) -> bool:
        return not self.mismatches and not self.findings


def load_reference(path: str | Path) -> ModuleType:
    """Import a ref.py by its path."""
    spec = importlib.util.spec_from_file_location("tilec_reference", path)
    if spec is None or spec.loader is None or not Path(path).is_file():
        raise TilecError(
            f"no reference at {path}", fix="give the path of a Python file with a function launch(meta, case)"
        )
    module = importlib.util.module_from_spec(spec)
    import sys

    sys.modules["tilec_reference"] = module
    spec.loader.exec_module(module)
    return module


def run_case(
    code: CodeObject | bytes,
    meta: dict[str, Any],
    case: str,
    reference: ModuleType,
    *,
    checks: str | Iterable[str] = "all",
    seed: int = 0,
    landing: str = "late",
    numerics: str = "fast",
    without: Collection[int] = (),
    sink: Sink | None = None,
    align: int = 256,
    limit: int = 0,
    preload: bool = True,
) -> CaseResult:
    """Run one case of a described object and compare it with its reference. `align`: base alignment of buffers in
    bytes.
    """
    if isinstance(code, bytes):
        code = load_object(code)
    if case not in [c["id"] for c in meta["cases"]]:
        raise TilecError(f"no case {case!r}", limit=f"the description has {', '.join(c['id'] for c in meta['cases'])}")
    with np.errstate(all="ignore"):
        launch = reference.launch(meta, case)
    memory = Memory()
    places: dict[str, int] = {}
    for name, buffer in launch.buffers.items():
        places[name] = memory.place(buffer.raw, name=name, align=align, readonly=buffer.role == "in")
    block = tuple(meta["workgroup_size"])
    values: dict[int, bytes] = {}
    for argument in meta["args"]:
        name, size = argument.get("name", ""), argument["size"]
        if name in places:
            values[argument["offset"]] = places[name].to_bytes(8, "little")
        elif name in launch.scalars:
            values[argument["offset"]] = scalar_bytes(
                launch.scalars[name], argument.get("elem") or argument["type"], size
            )
        elif "value" in argument:
            values[argument["offset"]] = int(argument["value"] or 0).to_bytes(size, "little")
    kernel = code.kernels[meta["symbol"]] if meta["symbol"] in code.kernels else None
    if kernel is None:
        raise TilecError(f"the code object has no kernel {meta['symbol']!r}", limit=f"it has {', '.join(code.kernels)}")
    dynamic = meta.get("lds_dynamic", 0)
    grid: tuple[int, int, int] = tuple(int(n) for n in launch.grid)  # type: ignore[assignment]
    segment = argument_segment(kernel, values, grid, block, dynamic)  # type: ignore[arg-type]
    result: RunResult = run(
        code,
        meta["symbol"],
        grid=grid,
        block=block,
        arguments=segment,
        memory=memory,  # type: ignore[arg-type]
        lds_dynamic=dynamic,
        checks=checks,
        seed=seed,
        landing=landing,
        numerics=numerics,
        without=without,
        sink=sink,
        limit=limit,
        preload=preload,
    )
    outputs = {
        name: memory.read(address, launch.buffers[name].raw.nbytes)
        .view(launch.buffers[name].raw.dtype)
        .reshape(launch.buffers[name].raw.shape)
        for name, address in places.items()
    }
    with np.errstate(all="ignore"):  # outputs may hold anything
        mismatches = tuple(launch.check(outputs))
    return CaseResult(mismatches, result.findings, result.statistics, outputs)


def scalar_bytes(value: Any, kind: str, size: int) -> bytes:
    """A by-value argument as the bytes of its type."""
    if kind not in _SCALAR_TYPES:
        raise TilecError(f"argument type {kind!r} is not supported", limit=f"known are {', '.join(_SCALAR_TYPES)}")
    raw: bytes = np.array(value).astype(_SCALAR_TYPES[kind]).tobytes()
    return raw.ljust(size, b"\0")[:size]


def load_description(path: str | Path) -> dict[str, Any]:
    """A meta.json."""
    description: dict[str, Any] = json.loads(Path(path).read_text())
    return description
