"""Every stage of a few small kernels, one file each: how the compiler sees a kernel, and what a change does to it.

A stage that is as the one before is only named. `pytest tests/golden --bless` rewrites the files; read their diff.
"""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest

import tilec as tc
from kernels.gemm import gemm
from kernels.transpose import transpose
from kernels.vector_add import vector_add
from tilec.compile import Compiled
from tilec.ir.core import Program
from tilec.ir.text import print_program

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
BF16, F32 = (tc.spec(dtype, (64, 64)) for dtype in ("bf16", "f32"))
KERNELS = {
    "vector_add": (vector_add, [tc.spec("f32", (1000,))] * 3, {"BN": 256}),
    "transpose": (transpose, [BF16, BF16], {"BM": 32, "BN": 32}),
    "gemm": (gemm, [BF16, BF16, F32], {"BM": 32, "BN": 32, "BK": 32}),
}


def listing(compiled: Compiled) -> str:
    """All stages as tile programs, then the assembly."""
    parts, last = [], ""
    for name, stage in compiled.stages.items():
        if isinstance(stage, Program):
            text = print_program(stage)
            parts.append(f"==== {name}" + (" (unchanged)" if text == last else f"\n{text}"))
            last = text
    parts.append(f"==== assembly\n{compiled.asm.replace(f'{ROOT}/', '')}")
    return "\n".join(parts)


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
@pytest.mark.parametrize("name", KERNELS)
def test_stages(name: str, arch: str, request: pytest.FixtureRequest):
    kernel, arguments, consts = KERNELS[name]
    found = listing(tc.kernel(kernel.function, waves=1).compile(*arguments, arch=arch, **consts))
    golden = HERE / f"{name}.{arch}.txt"
    if request.config.getoption("--bless"):
        golden.write_text(found)
    expected = golden.read_text() if golden.exists() else ""
    difference = "\n".join(difflib.unified_diff(expected.splitlines(), found.splitlines(), golden.name, "now", n=2,
                                                lineterm=""))
    assert not difference, f"{difference[:4000]}\n(pytest tests/golden --bless rewrites the file)"


def test_there_is_no_other_file():
    expected = {f"{name}.{arch}.txt" for name in KERNELS for arch in ("gfx942", "gfx950")}
    assert {path.name for path in HERE.glob("*.txt")} == expected
