"""Every block of docs/schedules.md does what it says: Python runs, commands print what stands there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from tilec.cli import main

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "schedules.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
CONSOLE = [text for language, text in BLOCKS if language == "console"]


def test_blocks_are_of_known_kinds():
    assert {language for language, _ in BLOCKS} == {"python", "text", "console"}


def test_python_runs_from_the_first_block_to_the_last(tmp_path, monkeypatch):
    """As one file: kernels read their own source."""
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.py"
    page.write_text("\n".join(text for language, text in BLOCKS if language == "python"))
    exec(compile(page.read_text(), str(page), "exec"), {"__name__": "page"})


@pytest.mark.parametrize("block", CONSOLE, ids=[text.split()[2] for text in CONSOLE])
def test_commands_print_what_the_page_shows(block, monkeypatch):
    """`...` stands for any text, on a line of its own for any lines."""
    monkeypatch.chdir(ROOT)
    command, _, shown = block.partition("\n")
    result = CliRunner().invoke(main, shlex.split(command.removeprefix("$ tilec ")))
    assert result.exit_code == 0, result.output
    pattern = re.escape(shown.rstrip("\n")).replace(re.escape("\n...\n"), r"\n(?:.*\n)*?")
    pattern = re.sub(re.escape(re.escape("\n...")) + "$", lambda _: r"\n(?s:.*)", pattern)
    pattern = pattern.replace(re.escape("..."), "[^\n]*")
    assert re.fullmatch(pattern, result.output.rstrip("\n")), f"{pattern}\n---\n{result.output}"
