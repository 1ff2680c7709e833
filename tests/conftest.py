"""Options of the test run, and what holds for all tests: the objects that they compile are clang's."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

import tilec.compile  # noqa: F401 (watched)
from tests.support.every_object import SAMPLE, Watch

gc.set_threshold(100_000, 20, 100)  # compiling makes many objects: the default spends half the run on them

WATCH = pytest.StashKey[Watch]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--bless", action="store_true", help="write what goldens should hold instead of comparing")
    parser.addoption("--with-clang", action="store_true",
                     help=f"compare every object that the tests compile with clang's, instead of one in {SAMPLE}")
    parser.addoption("--errors", action="store_true", help="print how far results that have a bound were off at most")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[WATCH] = Watch(1 if config.option.with_clang else SAMPLE)
    config.stash[WATCH].install()


@pytest.fixture(autouse=True)
def objects_are_those_of_clang(pytestconfig: pytest.Config) -> Iterator[None]:
    yield
    pytestconfig.stash[WATCH].compare()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    watch = config.stash[WATCH]
    if watch.made:
        terminalreporter.write_line(f"{watch.compared} of {len(watch.made)} objects compared with those of clang")
    if config.option.errors:
        from tests.support.proving import errors  # late, so that its asserts are rewritten
        for (test, result), (error, share) in sorted(errors.items()):
            terminalreporter.write_line(f"{test} {result}: at most {error:.3g}, {share:.1%} of the bound")
