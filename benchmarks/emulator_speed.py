"""Speed of the emulator on 256x256x64 bf16 GEMMs, ours and Triton's: 64 workgroups with checks off and on, and a cube.

A wave instruction is one instruction of one wave. The batch size is the mean number of waves that the emulator takes
through an instruction at once. Medians; checks off and on take turns, so that their ratio holds on a loaded machine.
The rate in brackets is per second of processor time, which holds there too.
Run by `make bench`, or from the project's root with `python -m benchmarks.emulator_speed [--cube 4096]`.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

ARCHITECTURES = ("gfx950", "gfx942")
WORKGROUPS_64 = (2048, 2048, 512)       # M, N, K: 8 x 8 tiles, 8 trips
CORPUS = Path(__file__).resolve().parents[1] / "tests" / "data" / "corpus"

Run = Callable[[str], Any]
"""Runs a kernel under the named checks; statistics of the run: instructions, batches, seconds."""


def ours(arch: str, shape: tuple[int, int, int]) -> Run:
    """kernels/gemm.py, compiled."""
    from kernels.gemm import gemm
    from tilec import spec, trial
    from tilec.runtime import emulated

    m, n, k = shape
    tensors = {"A": spec("bf16", (m, k)), "B": spec("bf16", (n, k)), "C": spec("bf16", (m, n))}
    random = np.random.default_rng(0)
    arrays = {name: trial.fill(tensor, "normal", random) for name, tensor in tensors.items()}
    values = gemm.signature.bind((), arrays).values
    executable = gemm.compile(**tensors, arch=arch).executable

    def run(checks: str) -> Any:
        result = emulated.run(executable, values, checks=checks)
        assert not result.findings, result.findings
        return result.statistics

    return run


def tritons(arch: str, shape: tuple[int, int, int]) -> Run:
    """The object of the stored corpus, launched on this shape; its reference checks every run."""
    from tilec.emulator import load_object
    from tilec.emulator.corpus import load_description, load_reference, run_case

    folder = CORPUS / f"gemm_bf16_256x256x64_w8_s2__{arch}"
    code, meta = load_object((folder / "kernel.hsaco").read_bytes()), load_description(folder / "meta.json")
    case = {"id": "large", "params": dict(zip("MNK", shape))}
    run_large = partial(run_case, code, {**meta, "cases": [case]}, "large", load_reference(CORPUS / "ref.py"))

    def run(checks: str) -> Any:
        result = run_large(checks=checks)
        assert result.passed, (result.mismatches, result.findings)
        return result.statistics

    return run


def measure(repeats: int, cube: int) -> dict[str, Any]:
    """{arch: {who: {"64 workgroups" or "N^3": figures}}}. The cube runs once, with checks off."""
    figures: dict[str, Any] = {}
    for arch in ARCHITECTURES:
        figures[arch] = {}
        for who, of in (("tilec", ours), ("Triton", tritons)):
            run = of(arch, WORKGROUPS_64)
            run("none")         # decoded instructions are kept
            runs = [(run("none"), run("all")) for _ in range(repeats)]
            figures[arch][who] = {
                "64 workgroups": _figures(WORKGROUPS_64, dict(zip(("none", "all"), zip(*runs)))) | {
                    "slowdown": statistics.median(checked.seconds / plain.seconds for plain, checked in runs)},
                f"{cube}^3": _figures((cube, cube, cube), {"none": (of(arch, (cube, cube, cube))("none"),)}),
            }
    return figures


def _figures(shape: tuple[int, int, int], runs: dict[str, tuple[Any, ...]]) -> dict[str, Any]:
    """`runs`: statistics of the runs under each choice of checks."""
    one = runs["none"][0]
    seconds = {checks: statistics.median(run.seconds for run in of) for checks, of in runs.items()}
    processor = {checks: statistics.median(run.processor_seconds for run in of) for checks, of in runs.items()}
    return {"shape": shape, "wave_instructions": one.instructions, "batch": one.instructions / one.batches,
            "seconds": seconds, "processor_seconds": processor,
            "rate": {checks: one.instructions / s for checks, s in seconds.items()},
            "processor_rate": {checks: one.instructions / s for checks, s in processor.items()}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON value, in seconds and wave instructions")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--cube", type=int, default=1024, help="M = N = K of the last run")
    options = parser.parse_args()
    figures = measure(options.repeats, options.cube)
    if options.json:
        print(json.dumps(figures, indent=2))
        return
    print(f"emulator, medians of {options.repeats}: seconds, million wave instructions per second [of processor time]")
    for arch, kernels in figures.items():
        for who, products in kernels.items():
            for name, f in products.items():
                times = ", ".join(f"checks {'off' if c == 'none' else 'on'} {s:6.2f} s, {f['rate'][c] / 1e6:.2f} M/s "
                                  f"[{f['processor_rate'][c] / 1e6:.2f}]" for c, s in f["seconds"].items())
                slower = f", {f['slowdown']:.1f} x slower" if "slowdown" in f else ""
                print(f"  {arch} {who:<6} {name:<13} {f['wave_instructions']:>9} wave instructions, "
                      f"{f['batch']:.0f} waves a batch: {times}{slower}")


if __name__ == "__main__":
    main()
