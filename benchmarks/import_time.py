"""Import time of tilec in a fresh process, beside that of numpy alone and of Python itself, and the dearest modules.

Wall time of whole processes whose modules' bytecode is cached, as after a first run; medians; the three take turns. The
modules' own times are from one run of Python's `-X importtime`, without what they import themselves.
Run by `make bench`, or from the project's root with `python -m benchmarks.import_time`.
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
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = {"python": "pass", "numpy": "import numpy", "tilec": "import tilec"}
DEAREST = 12


def python(program: str, bytecode: str, *options: str) -> str:
    """What a new process prints to stderr; its modules' bytecode lies in this folder."""
    command = [sys.executable, "-E", "-X", f"pycache_prefix={bytecode}", *options, "-c", program]
    return subprocess.run(command, check=True, cwd=ROOT, text=True, stderr=subprocess.PIPE).stderr


def process(program: str, bytecode: str) -> float:
    """Seconds of one new process."""
    start = time.perf_counter()
    python(program, bytecode)
    return time.perf_counter() - start


def modules(bytecode: str) -> dict[str, float]:
    """Seconds that each module takes by itself, the dearest first."""
    report = python(PROGRAMS["tilec"], bytecode, "-X", "importtime")
    rows = [line.removeprefix("import time:").split("|") for line in report.splitlines()[1:]]
    found = {name.strip(): int(own) / 1e6 for own, _, name in rows}
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def measure(repeats: int) -> dict[str, Any]:
    """{"seconds": per program, "modules": own seconds of each}"""
    with tempfile.TemporaryDirectory() as bytecode:
        process(PROGRAMS["tilec"], bytecode)
        runs = [{name: process(program, bytecode) for name, program in PROGRAMS.items()} for _ in range(repeats)]
        seconds = {name: statistics.median(run[name] for run in runs) for name in PROGRAMS}
        return {"seconds": seconds, "modules": modules(bytecode)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON value, in seconds")
    parser.add_argument("--repeats", type=int, default=9)
    options = parser.parse_args()
    figures = measure(options.repeats)
    if options.json:
        print(json.dumps(figures, indent=2))
        return
    print(f"import in a fresh process, ms, medians of {options.repeats}")
    for name, seconds in figures["seconds"].items():
        print(f"  {name:<8} {1000 * seconds:8.1f}")
    own: dict[str, float] = figures["modules"]
    ours = sum(seconds for name, seconds in own.items() if name.partition(".")[0] == "tilec")
    print(f"  {len(own)} modules, of which tilec's own take {1000 * ours:.1f} ms by themselves; the dearest:")
    for name, seconds in list(own.items())[:DEAREST]:
        print(f"    {1000 * seconds:6.1f}  {name}")


if __name__ == "__main__":
    main()
