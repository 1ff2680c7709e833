"""Compile latency of the 256x256x64 bf16 GEMM, checkers off: per pass, in a warm process and in a fresh one; medians.

Warm: traced and compiled anew in a process that has done it before. Fresh: new processes. 'inside' is from Python's
first own line to the finished object; 'process' is what the caller waits, the interpreter's start and end included. The
two architectures take turns, so that a change of the machine's load reaches both.
Run by `make bench`, or from the project's root with `python -m benchmarks.compile_latency`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ARCHITECTURES = ("gfx950", "gfx942")
FRESH = """\
import time; start = time.perf_counter()
import json, sys
import tilec
steps = {"import": time.perf_counter() - start}
from kernels import gemm
before = time.perf_counter()
compiled = gemm.gemm.compile(**gemm.defaults(), arch=sys.argv[1], verify=False)
now = time.perf_counter()
steps |= {"trace": now - before - sum(compiled.seconds.values()), **compiled.seconds, "inside": now - start}
steps["cpu"] = time.process_time()
json.dump(steps, sys.stdout)
"""

Steps = dict[str, float]


def warm(arch: str) -> Steps:
    """Seconds per step of one compilation; 'trace' is the front end."""
    from kernels import gemm
    from tilec.compile import compile

    start, cpu = time.perf_counter(), time.process_time()
    program = gemm.gemm.trace(**gemm.defaults(), arch=arch)
    traced = time.perf_counter() - start
    compiled = compile(program, arch)
    inside, cpu = time.perf_counter() - start, time.process_time() - cpu
    return {"trace": traced, **compiled.seconds, "inside": inside, "cpu": cpu}


def fresh(arch: str, bytecode: str) -> Steps:
    """Seconds per step of one new process, whose modules' bytecode lies in this folder."""
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-E", "-X", f"pycache_prefix={bytecode}", "-c", FRESH, arch],
                          capture_output=True, text=True, check=True, cwd=ROOT)
    return {**json.loads(done.stdout), "process": time.perf_counter() - start}


def medians(runs: list[Steps]) -> Steps:
    return {step: statistics.median(run[step] for run in runs) for step in runs[0]}


def measure(repeats: int) -> dict[str, dict[str, Steps]]:
    """{arch: {"warm" or "fresh": {step: median seconds}}}"""
    runs: dict[str, dict[str, list[Steps]]] = {arch: {"warm": [], "fresh": []} for arch in ARCHITECTURES}
    with tempfile.TemporaryDirectory() as bytecode:
        for arch in ARCHITECTURES:
            warm(arch)
            fresh(arch, bytecode)
        for _ in range(repeats):
            for arch in ARCHITECTURES:
                runs[arch]["warm"].append(warm(arch))
                runs[arch]["fresh"].append(fresh(arch, bytecode))
    return {arch: {kind: medians(found) for kind, found in kinds.items()} for arch, kinds in runs.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON value, in seconds")
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    figures = measure(options.repeats)
    if options.json:
        print(json.dumps(figures, indent=2))
        return
    for arch, both in figures.items():
        print(f"compile, {arch}: {'warm':>8} {'fresh':>8}   ms, medians of {options.repeats}")
        for step in both["fresh"]:
            cells = (f"{1000 * steps[step]:8.1f}" if step in steps else " " * 8 for steps in both.values())
            print(f"  {step:<13} {' '.join(cells)}")


if __name__ == "__main__":
    main()
