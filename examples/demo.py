"""The demo: kernels/gemm.py to code objects for gfx950 and gfx942, run on the CPU emulator, against numpy in float64.

No GPU is needed. Each architecture gets two objects, since the alignment of tensors specialises an object and their
sizes do not: one for rows of any alignment, run on both products, and one for rows aligned to 16 bytes, run on the full
tile. Every check of the emulator is on. Exit status: 1 when an element is beyond the bound or a check found something.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import tilec as tc  # noqa: E402
from kernels.gemm import gemm, reference  # noqa: E402
from tilec.emulator.elf import load_object  # noqa: E402
from tilec.frontend.jit import CompiledKernel  # noqa: E402
from tilec.object_report import describe  # noqa: E402

FOLDER = ROOT / "build" / "demo"
ARCHITECTURES = ("gfx950", "gfx942")
RAGGED, FULL_TILE = (1000, 777, 1234), (256, 256, 8192)     # M, N, K
CLASSES = {"gemm": (RAGGED, "rows of any alignment"), "gemm_aligned": (FULL_TILE, "rows aligned to 16 bytes")}
RUNS = (("gemm", RAGGED), ("gemm", FULL_TILE), ("gemm_aligned", FULL_TILE))

BF16_ROUNDING, F32_ROUNDING = 2.0**-8, 2.0**-24             # unit roundoffs: half an ulp, relative
DEVIATIONS = 8                                              # of sums of independent roundings; beyond it once in 10**13


@dataclass(frozen=True)
class Result:
    """A product against float64: errors are absolute, `used` is the worst element's share of its own bound."""

    error: float
    rounding: float
    used: float
    nearest: float

    @property
    def line(self) -> str:
        return (f"largest error {self.error:.3f} (rounding float64 to bf16 alone: {self.rounding:.3f}), "
                f"{self.used:.0%} of its bound; {self.nearest:.2%} of the elements are the nearest bf16")


def main() -> int:
    started = time.perf_counter()
    objects = {(arch, name): _compile(arch, shape) for arch in ARCHITECTURES for name, (shape, _) in CLASSES.items()}
    print(_resource_table(objects))
    print()
    print(_time_table(objects))
    print()
    FOLDER.mkdir(parents=True, exist_ok=True)
    for (arch, name), compiled in objects.items():
        path = FOLDER / f"{name}_{arch}"
        path.with_suffix(".s").write_text(compiled.asm)
        path.with_suffix(".hsaco").write_bytes(compiled.object)
        print(f"{_relative(path)}.s, .hsaco: {CLASSES[name][1]}")
    print()
    passed = [_run(objects[arch, name], name, shape) for arch in ARCHITECTURES for name, shape in RUNS]
    print(f"\n{'passed' if all(passed) else 'FAILED'} in {time.perf_counter() - started:.0f} s")
    return 0 if all(passed) else 1


def _compile(arch: str, shape: tuple[int, int, int]) -> CompiledKernel:
    m, n, k = shape
    return gemm.compile(tc.spec("bf16", (m, k)), tc.spec("bf16", (n, k)), tc.spec("bf16", (m, n)), arch=arch)


def _resource_table(objects: dict[tuple[str, str], CompiledKernel]) -> str:
    """Registers are those that the finished object's instructions name."""
    columns = {"VGPR": "vgpr", "AGPR": "agpr", "SGPR": "sgpr", "LDS bytes": "lds", "waves per SIMD": "waves_per_simd",
               "code bytes": "code_bytes"}
    lines = [f"{'object':<22}" + "".join(f"{title:>{max(8, len(title) + 2)}}" for title in columns)]
    for (arch, name), compiled in objects.items():
        code = load_object(compiled.object)
        resources = describe(code, code.kernels[compiled.name]).resources
        cells = (f"{resources[key]:>{max(8, len(title) + 2)}}" for title, key in columns.items())
        lines.append(f"{arch + ' ' + name:<22}" + "".join(cells))
    return "\n".join(lines)


def _time_table(objects: dict[tuple[str, str], CompiledKernel]) -> str:
    """Milliseconds per pass; the first object pays for imports and caches."""
    lines = [f"{'milliseconds':<14}" + "".join(f"{arch + ' ' + name:>22}" for arch, name in objects)]
    for step in next(iter(objects.values())).seconds:
        lines.append(f"{step:<14}" + "".join(f"{1000 * c.seconds[step]:>22.1f}" for c in objects.values()))
    lines.append(f"{'all passes':<14}" + "".join(f"{1000 * sum(c.seconds.values()):>22.1f}" for c in objects.values()))
    return "\n".join(lines)


def _run(compiled: CompiledKernel, name: str, shape: tuple[int, int, int]) -> bool:
    """One product on the emulator; prints what came out and whether it is right."""
    m, n, k = shape
    random = np.random.default_rng(0)
    a, b = (random.standard_normal(s, np.float32).astype(ml_dtypes.bfloat16) for s in ((m, k), (n, k)))
    c = np.full((m, n), np.nan, ml_dtypes.bfloat16)
    started = time.perf_counter()
    findings = compiled.run(a, b, c, on="emulator", check="all")
    seconds = time.perf_counter() - started
    result = compare(a, b, c)
    print(f"{compiled.arch} {name}, {m} x {n} x {k}: {len(findings)} findings, {seconds:.1f} s\n  {result.line}")
    for finding in findings:
        print(f"  finding: {finding}")
    if not result.used <= 1:
        print("  mismatch: an element is beyond its bound")
    return result.used <= 1 and not findings


def compare(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> Result:
    """The error of c against a b^T in float64.

    The bound of an element: products of two bf16 numbers are exact in f32. Each of the K additions, in whatever order,
    is off by at most one f32 rounding of a partial sum, which is at most the sum of |a||b|; independent roundings add
    up as sqrt(K) (Higham and Mary, SIAM J. Sci. Comput. 41(5), 2019). Then the sum is rounded to bf16 once.
    """
    want = reference(a, b, c)["C"]
    magnitude = reference(abs(a), abs(b), c)["C"]
    accumulation = DEVIATIONS * np.sqrt(a.shape[1]) * F32_ROUNDING * magnitude
    bound = BF16_ROUNDING * (np.abs(want) + accumulation) + accumulation
    error, nearest = np.abs(c.astype(np.float64) - want), want.astype(c.dtype)
    used = np.divide(error, bound, out=np.where(error == 0, 0.0, np.inf), where=bound > 0).max()
    return Result(error.max(), np.abs(nearest.astype(np.float64) - want).max(), used, np.mean(c == nearest))


def _relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


if __name__ == "__main__":
    sys.exit(main())
