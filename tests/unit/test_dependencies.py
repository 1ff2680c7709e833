"""The direction of imports that docs/ARCHITECTURE.md promises, read from the sources.

A module may import its own package and the layers below it, nothing above. Packages that stand side by side (passes,
backend, emulator) don't know each other.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

BASE = {"errors", "config", "dtypes", "target"}
COMPILER = BASE | {"llvm", "ir", "passes", "backend_amdgcn"}

ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "config": {"errors"},
    "dtypes": {"errors", "config"},
    "target": {"errors", "config", "dtypes"},
    "llvm": {"errors", "config"},
    "ir": BASE,
    "emulator": {"errors", "dtypes", "llvm"},
    "inspect_object": {"errors", "llvm"},
    "object_report": {"errors", "dtypes", "target", "llvm", "emulator", "inspect_object"},
    "passes": BASE | {"ir"},
    "backend_amdgcn": BASE | {"ir", "llvm"},
    "compile": COMPILER,
    "explain": COMPILER | {"compile"},
    "register_map": COMPILER,
    "register_picture": {"register_map"},
    "runtime": COMPILER | {"compile", "emulator"},
    "frontend": COMPILER | {"compile", "explain", "register_map", "runtime", "emulator"},
    # the public names, and the tool at the top
    "__init__": COMPILER | {"compile", "runtime", "frontend"},
    "cache_model": BASE,
    "cli_values": {"errors", "dtypes"},
    "cli_grid": BASE | {"ir", "cache_model"},
    "trial": {"errors", "dtypes", "runtime", "emulator"},
    "cli_kernel": COMPILER | {"compile", "runtime", "frontend", "emulator", "object_report", "cli_values", "trial"},
    "cli_options": {"cli_kernel"},
    "cli_explain": {"cli_options", "cli_kernel"},
    "cli_isa": {"errors", "emulator", "cli_options"},
    "cli_registers": {"cli_options", "cli_kernel", "register_picture"},
    "cli": {"errors", "emulator", "object_report", "cli_kernel", "cli_options", "cli_explain", "cli_grid", "cli_isa",
            "cli_registers", "trial"},
}
"""package or module of tilec: the others that it may import."""

ONLY_IN: dict[str, str] = {"hip": "tilec/runtime/hip.py"}
"""third-party package: the one file that may import it."""

LATE = {"networkx", "lark", "hip", "torch", "ml_dtypes", "click", "llvmlite"}
"""packages that are slow to import or may be missing: imported where used, so that `import tilec` stays fast."""

_COMMANDS = ("cli", "cli_options", "cli_explain", "cli_grid", "cli_isa", "cli_registers")
MAY_IMPORT_EARLY = {f"tilec/{name}.py": {"click"} for name in _COMMANDS}
"""the command line is the entry of its own process."""


@dataclass(frozen=True)
class Import:
    module: str
    line: int
    at_top: bool        # runs when the module is imported


def imports(tree: ast.Module, package: str) -> Iterator[Import]:
    """Every import of a module, relative ones resolved against `package`. Those under `if TYPE_CHECKING` don't run."""

    def walk(node: ast.AST, at_top: bool) -> Iterator[Import]:
        if isinstance(node, ast.Import):
            for name in node.names:
                yield Import(name.name, node.lineno, at_top)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package.split(".")[:len(package.split(".")) + 1 - node.level]) if node.level else ""
            module = ".".join(part for part in (base, node.module) if part)
            for name in node.names:         # `from tilec import ir` names a submodule
                yield Import(f"{module}.{name.name}" if module == "tilec" else module, node.lineno, at_top)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for child in node.body:
                yield from walk(child, False)
            for child in node.orelse:
                yield from walk(child, at_top)
        else:
            inner = at_top and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            for child in ast.iter_child_nodes(node):
                yield from walk(child, inner)

    yield from walk(tree, True)


def violations(path: str, source: str) -> list[str]:
    """What the file at `path` (relative to the root, e.g. "tilec/ir/tile.py") breaks, one line each."""
    parts = Path(path).with_suffix("").parts
    layer, package = parts[1], ".".join(parts[:-1])
    tree, found = ast.parse(source), []
    if layer not in ALLOWED:
        return [f"{path}: {layer!r} is in no layer; give it one in {Path(__file__).name}"]
    for used in imports(tree, package):
        top, _, rest = used.module.partition(".")
        if top == "tilec":
            other = rest.split(".")[0] or "__init__"
            if other not in ALLOWED:
                other = "__init__"              # a public name: `from tilec import TilecError`
            if other != layer and other not in ALLOWED[layer]:
                found.append(f"{path}:{used.line}: {layer} imports {used.module}")
        elif top in ONLY_IN and path != ONLY_IN[top]:
            found.append(f"{path}:{used.line}: only {ONLY_IN[top]} imports {top}")
        elif top in LATE and used.at_top and top not in MAY_IMPORT_EARLY.get(path, ()):
            found.append(f"{path}:{used.line}: {top} is imported at the top of a module")
    if path != "tilec/config.py":
        for node in ast.walk(tree):
            reads = isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv", "environb")
            named = isinstance(node, ast.ImportFrom) and node.module == "os" and any(
                name.name in ("environ", "getenv", "environb") for name in node.names)
            if reads or named:
                found.append(f"{path}:{node.lineno}: only tilec/config.py reads the environment")
    return found


def test_importing_tilec_loads_nothing_slow():
    slow = LATE | {"elftools", "msgpack", "rocm", "tilec.emulator"}
    probe = f"import sys, tilec; print(sorted({slow} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", probe], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_imports_go_one_way():
    files = sorted((ROOT / "tilec").rglob("*.py"))
    assert files
    found = [line for file in files for line in violations(str(file.relative_to(ROOT)), file.read_text())]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("path, source, expected", [
    ("tilec/passes/a.py", "from tilec.backend_amdgcn import isa", "passes imports tilec.backend_amdgcn"),
    ("tilec/backend_amdgcn/a.py", "from ..passes import layouts", "backend_amdgcn imports tilec.passes"),
    ("tilec/backend_amdgcn/a.py", "def f():\n    import tilec.passes", "backend_amdgcn imports tilec.passes"),
    ("tilec/emulator/a.py", "from tilec import target", "emulator imports tilec.target"),
    ("tilec/emulator/a.py", "from tilec.ir.core import Value", "emulator imports tilec.ir.core"),
    ("tilec/ir/a.py", "from tilec import TilecError", "ir imports tilec.TilecError"),
    ("tilec/ir/a.py", "import tilec", "ir imports tilec"),
    ("tilec/runtime/a.py", "def f():\n    from hip import hip", "only tilec/runtime/hip.py imports hip"),
    ("tilec/runtime/hip.py", "from hip import hip", "hip is imported at the top of a module"),
    ("tilec/ir/a.py", "class A:\n    import lark", "lark is imported at the top of a module"),
    ("tilec/ir/a.py", "import os\nx = os.environ['A']", "only tilec/config.py reads the environment"),
    ("tilec/ir/a.py", "from os import getenv", "only tilec/config.py reads the environment"),
    ("tilec/stranger.py", "", "'stranger' is in no layer"),
])
def test_a_violation_is_caught(path: str, source: str, expected: str):
    found = violations(path, source)
    assert len(found) == 1 and expected in found[0], found


@pytest.mark.parametrize("path, source", [
    ("tilec/ir/a.py", "def f():\n    import lark\nfrom tilec.errors import TilecError\nfrom . import core"),
    ("tilec/ir/a.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import networkx"),
    ("tilec/runtime/hip.py", "def f():\n    from hip import hip"),
    ("tilec/config.py", "import os\nx = os.environ['A']"),
    ("tilec/cli.py", "import click"),
])
def test_what_is_allowed_passes(path: str, source: str):
    assert violations(path, source) == []
