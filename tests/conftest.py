"""Options of the test run."""

import gc

import pytest

gc.set_threshold(100_000, 20, 100)  # compiling makes many objects: the default spends half the run on them


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--bless", action="store_true", help="write what goldens should hold instead of comparing")
