"""Speed of the emulator on the 256x256x64 bf16 GEMM: 64 workgroups with checks off and on, and seconds for 1024^3.

A wave instruction is one instruction of one wave. The batch size is the mean number of waves that the emulator takes
through an instruction at once. Medians; checks off and on take turns, so that their ratio holds on a loaded machine.
Run by `make bench`, or from the project's root with `python -m benchmarks.emulator_speed`.
"""

from __future__ import annotations

import argparse
import json
import statistics
from dataclasses import dataclass
from typing import Any

import numpy as np

ARCHITECTURES = ("gfx950", "gfx942")
WORKGROUPS_64 = (2048, 2048, 512)       # M, N, K: 8 x 8 tiles, 8 trips
CUBE = (1024, 1024, 1024)


@dataclass
class Product:
    """A GEMM on the emulator, ready to run."""

    arch: str
    shape: tuple[int, int, int]

    def __post_init__(self) -> None:
        from kernels.gemm import gemm
        from tilec import spec, trial

        m, n, k = self.shape
        tensors = {"A": spec("bf16", (m, k)), "B": spec("bf16", (n, k)), "C": spec("bf16", (m, n))}
        random = np.random.default_rng(0)
        arrays = {name: trial.fill(tensor, "normal", random) for name, tensor in tensors.items()}
        self.values = gemm.signature.bind((), arrays).values
        self.executable = gemm.compile(**tensors, arch=self.arch).executable

    def run(self, checks: str) -> Any:
        """Statistics of one run: instructions, batches, seconds."""
        from tilec.runtime import emulated

        result = emulated.run(self.executable, self.values, checks=checks)
        assert not result.findings, result.findings
        return result.statistics


def measure(repeats: int) -> dict[str, Any]:
    """{arch: {"64 workgroups" or "1024^3": figures}}; per checks 'none' and 'all': seconds and rate (per second)."""
    figures: dict[str, Any] = {}
    for arch in ARCHITECTURES:
        figures[arch] = {}
        for name, shape in (("64 workgroups", WORKGROUPS_64), ("1024^3", CUBE)):
            product = Product(arch, shape)
            product.run("none")         # decoded instructions are kept
            runs = [(product.run("none"), product.run("all")) for _ in range(repeats)]
            seconds = [statistics.median(run.seconds for run in kind) for kind in zip(*runs)]
            one = runs[0][0]
            figures[arch][name] = {
                "shape": shape, "wave_instructions": one.instructions, "batch": one.instructions / one.batches,
                "seconds": dict(zip(("none", "all"), seconds)),
                "rate": {checks: one.instructions / s for checks, s in zip(("none", "all"), seconds)},
                "slowdown": statistics.median(checked.seconds / plain.seconds for plain, checked in runs),
            }
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON value, in seconds and wave instructions")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    figures = measure(options.repeats)
    if options.json:
        print(json.dumps(figures, indent=2))
        return
    print(f"emulator, medians of {options.repeats}: seconds (million wave instructions per second)")
    for arch, products in figures.items():
        for name, f in products.items():
            off, on = (f"{f['seconds'][c]:6.2f} s ({f['rate'][c] / 1e6:.2f} M/s)" for c in ("none", "all"))
            print(f"  {arch} {name:<14} {f['wave_instructions']:>9} wave instructions, {f['batch']:.0f} waves a batch: "
                  f"checks off {off}, on {on}, {f['slowdown']:.1f} x slower")


if __name__ == "__main__":
    main()
