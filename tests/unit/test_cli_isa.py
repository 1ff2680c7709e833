"""`tilec isa`, and the trace and summary of `tilec emulate`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tilec.cli import main
from tilec.emulator.coverage import missing, mnemonics

CORPUS = Path(__file__).resolve().parents[1] / "data" / "corpus"
OBJECT = CORPUS / "softmax_row_bf16_1024__gfx942"
CASE = json.loads((OBJECT / "meta.json").read_text())["cases"][0]["id"]
EMULATE = ("emulate", OBJECT / "kernel.hsaco", "--meta", OBJECT / "meta.json", "--ref", CORPUS / "ref.py",
           "--case", CASE)


def tilec(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments], catch_exceptions=False)


def test_missing_instructions():
    absent = missing("gfx950")
    result = tilec("isa", "--missing", "gfx950")
    head, *lines = result.stdout.splitlines()
    known = len(mnemonics("gfx950"))
    assert result.exit_code == 0
    assert head == (f"; gfx950: LLVM knows {known} instructions, the emulator runs {known - len(absent)}; "
                    f"the other {len(absent)}:")
    assert [tuple(re.split(r"\s{2,}", line, maxsplit=1)) for line in lines] == absent
    value = json.loads(tilec("isa", "--missing", "gfx950", "--json").stdout)
    assert value == {"arch": "gfx950", "known": known, "missing": [{"name": n, "reason": r} for n, r in absent]}


def test_an_unknown_architecture_is_refused():
    result = tilec("isa", "--missing", "gfx90a")
    assert result.exit_code == 2 and "'gfx942', 'gfx950'" in result.stderr
    assert tilec("isa").exit_code == 2


def test_a_trace_of_chosen_waves_and_addresses(tmp_path: Path):
    path = tmp_path / "trace"
    result = tilec(*EMULATE, "--trace", path, "--waves", "0.1,1.3", "--range", "0x1a48:0x1a78")
    assert result.exit_code == 0 and f"trace: {path}\n" in result.stdout and "passed" in result.stdout
    lines = path.read_text().splitlines()
    assert {line.split()[0] for line in lines} == {"0.1", "1.3"}
    addresses = [int(line.split()[1].rstrip(":"), 0) for line in lines if line.startswith("0.1 ")]
    assert addresses == sorted(addresses) and addresses[0] == 0x1A48 and addresses[-1] < 0x1A78
    read = next(line for line in lines if "s_waitcnt lgkmcnt(0)" in line and "v4=" in line)     # lands at the wait
    assert read.startswith("0.1 0x1a70")
    scalar = next(line for line in lines if "v_readlane_b32" in line)
    assert re.search(r"; s0=0x[0-9a-f]+$", scalar)


def test_a_trace_of_everything_has_every_instruction(tmp_path: Path):
    path = tmp_path / "trace"
    value = json.loads(tilec(*EMULATE, "--trace", path, "--json").stdout)
    assert value["trace"] == str(path) and value["passed"]
    assert len(path.read_text().splitlines()) == value["wave_instructions"]


def test_a_summary_per_instruction():
    value = json.loads(tilec(*EMULATE, "--summary", "--json").stdout)
    rows = value["summary"]
    assert sum(row["executions"] for row in rows) == value["wave_instructions"]
    assert [row["address"] for row in rows] == sorted(row["address"] for row in rows)
    store = next(row for row in rows if row["instruction"].startswith("buffer_store_short"))
    assert store["bytes"] == 128 * store["executions"] == 128 * store["cache_lines"] and store["coalescing"] == 1.0
    text = tilec(*EMULATE, "--summary").stdout
    assert "lds extra" in text.splitlines()[0] and text.count("\n") == len(rows) + 2 and "passed" in text


@pytest.mark.parametrize(("options", "message"), [
    (("--trace", "t", "--waves", "3"), "--waves '3' names no waves"),
    (("--trace", "t", "--range", "0x10"), "--range '0x10' is no range"),
    (("--trace", "t", "--range", "x:0x10"), "--range 'x' is no address"),
    (("--waves", "0.1"), "choose what --trace FILE writes"),
    (("--trace", "absent/t"), "can't write the trace to absent/t"),
])
def test_what_cannot_be_traced_is_refused(options, message, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    result = tilec(*EMULATE, *options)
    assert result.exit_code == 2 and message in result.stderr and not result.stdout
