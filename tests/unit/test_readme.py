"""The documents are true: the README's code, commands and links, and the map's table of passes.

Shown numbers may age; words may not. A command must end as shown, and every word that its shown output holds must be in
the real one.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from tilec.cli import main
from tilec.compile import PIPELINE

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
MAP = (ROOT / "docs" / "ARCHITECTURE.md").read_text()
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(language: str) -> list[str]:
    """The README's code blocks in this language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def sessions() -> list[tuple[str, str]]:
    """Every command of the README with the output shown under it."""
    parts = [part for block in blocks("console") for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]]
    return [(command, shown) for command, _, shown in (part.partition("\n") for part in parts)]


def words(text: str) -> set[str]:
    return set(re.findall(r"[A-Za-z_]{3,}", text))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that looks like the project's root to the README's commands, with its first kernel saved."""
    folder = tmp_path_factory.mktemp("readme")
    for name in ("kernels", "tests"):
        (folder / name).symlink_to(ROOT / name)
    example, = (block for block in blocks("python") if "def normalise" in block)
    (folder / "normalise.py").write_text(example)
    return folder


def test_the_commands_print_what_is_shown(place: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(place)
    runs = sessions()
    assert {shlex.split(command)[1] for command, _ in runs} == set(main.commands)
    for command, shown in runs:
        tool, *arguments = shlex.split(command)
        assert tool == "tilec"
        result = CliRunner().invoke(main, arguments, catch_exceptions=False)
        assert result.exit_code == (2 if shown.startswith("tilec:") else 0), f"{command}\n{result.output}"
        missing = words(shown) - words(result.output)
        assert not missing, f"{command} prints no {missing}:\n{result.output}"


def test_the_kernel_is_the_one_of_its_file():
    shown, = (block for block in blocks("python") if "def gemm" in block)
    assert shown.strip() in (ROOT / "kernels" / "gemm.py").read_text()


def test_the_map_lists_the_passes():
    rows = [line.split("|")[1:4] for line in MAP.splitlines() if line.startswith("| ")]
    listed = [tuple(cell.strip() for cell in row) for row in rows[1:]]
    assert listed == [(step.name, step.needs, step.gives) for step in PIPELINE]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_named_files_exist(document: Path):
    text = document.read_text()
    named = set(re.findall(r"(?<![\w/.])(?:tilec|docs|tests|kernels|examples|benchmarks)/[\w/-]+\.(?:py|md)\b", text))
    missing = sorted(name for name in named if not (ROOT / name).exists())
    assert not missing


def test_the_map_names_every_file_of_the_compiler():
    tree = MAP[MAP.index("## Tree"):MAP.index("## Dependencies")]
    files = {path.stem for folder in (".", "ir", "passes", "backend_amdgcn", "runtime", "frontend")
             for path in (ROOT / "tilec" / folder).glob("*.py")}
    assert sorted(files - words(tree) - {step.name for step in PIPELINE} - {"__init__"}) == []
