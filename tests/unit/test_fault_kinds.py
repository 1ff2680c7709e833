"""The kinds of fault that tests name are explained in tests/README.md, and those alone."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]


def test_the_kinds_that_tests_name_are_the_kinds_explained():
    named = {kind for file in TESTS.rglob("*.py") for kind in re.findall(r"BL-\d\d", file.read_text())}
    explained = re.findall(r"^\| (BL-\d\d) \|", (TESTS / "README.md").read_text(), re.MULTILINE)
    assert explained == sorted(named)
