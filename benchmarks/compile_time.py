"""Compile latency of the 256x256x64 bf16 GEMM: per pass, in a warm process and in a fresh one, checkers off.

Warm: the best of several compilations in a process that has compiled before, traced anew each time. Fresh: the best of
several new processes, from the start of Python's own work (imports included) to the finished object.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time

REPEATS = 5
FRESH = """\
import time; start = time.perf_counter()
import json, sys
import tilec
imported = time.perf_counter() - start
from kernels import gemm
compiled = gemm.gemm.compile(**gemm.defaults(), arch=sys.argv[1])
json.dump({"import": imported, "total": time.perf_counter() - start, "seconds": dict(compiled.seconds)}, sys.stdout)
"""


def warm(arch: str) -> dict[str, float]:
    """Seconds per step of the fastest repeat; 'trace' is the front end."""
    from kernels import gemm
    from tilec.compile import compile

    best: dict[str, float] = {}
    for _ in range(REPEATS + 1):
        start = time.perf_counter()
        program = gemm.gemm.trace(**gemm.defaults(), arch=arch)
        traced = time.perf_counter() - start
        compiled = compile(program, arch)
        steps = {"trace": traced, **compiled.seconds, "total": time.perf_counter() - start}
        if not best or steps["total"] < best["total"]:
            best = steps
    return best


def fresh(arch: str) -> dict[str, float]:
    """Seconds per step of the fastest of several new processes; 'total' is what passes inside Python."""
    found = []
    for _ in range(REPEATS):
        done = subprocess.run([sys.executable, "-c", FRESH, arch], capture_output=True, text=True, check=True)
        value = json.loads(done.stdout)
        found.append({"import": value["import"], **value["seconds"], "total": value["total"]})
    return min(found, key=lambda steps: steps["total"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON value")
    options = parser.parse_args()
    figures = {arch: {"warm": warm(arch), "fresh": fresh(arch)} for arch in ("gfx950", "gfx942")}
    if options.json:
        print(json.dumps(figures, indent=2))
        return
    for arch, both in figures.items():
        print(f"{arch}, ms: {'warm':>8} {'fresh':>8}")
        for step in dict.fromkeys((*both["fresh"], *both["warm"])):
            cells = (f"{1000 * steps[step]:8.1f}" if step in steps else " " * 8 for steps in both.values())
            print(f"  {step:<11} {' '.join(cells)}")


if __name__ == "__main__":
    main()
