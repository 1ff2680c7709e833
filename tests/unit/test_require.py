"""What a launch must satisfy: evaluated by the host with the grid, refused with the numbers; no object knows of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tilec as tc
from kernels.softmax import softmax
from tilec.errors import InternalError
from tilec.ir import interp, tile
from tilec.ir.core import Block
from tilec.ir.text import parse_program, print_program
from tilec.ir.verify import verify
from tilec.passes.simplify import simplify


@pytest.fixture(autouse=True)
def own_disk_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TILEC_ARCH", "gfx950")


@tc.kernel
def rows(X: tc.Tensor, Y: tc.Tensor, n: tc.i32, BN: tc.Const = 64):
    tc.require(BN >= 16, "BN must be at least 16")
    tc.require((X.shape[0] == Y.shape[0]) & (n * 4 <= X.shape[1]), "n must be a quarter of X's columns")
    i = tc.program_id(Y.tiles(1, BN).grid[0])
    Y.tiles(1, BN)[i, 0] = X[:, :n].tiles(1, BN)[i, 0]


def refused(make) -> str:
    with pytest.raises(tc.TilecError) as caught:
        make()
    return "\n".join(str(caught.value).replace(f"{caught.value.where}: ", "").splitlines())


def test_a_row_that_does_not_fit_is_refused_at_launch():                 # BL-31, BL-33
    x, y = np.zeros((3, 130), np.float32), np.zeros((3, 130), np.float32)
    compiled = softmax.compile(x, y, BN=128)
    message = ("kernel softmax: a row of X must fit one tile of BN elements\n"
               "    tc.require(X.shape[1] <= BN, \"a row of X must fit one tile of BN elements\")\n"
               "    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n"
               "  limit: 130 <= 128 does not hold; X.shape[1] = 130")
    assert refused(lambda: compiled.run(x, y)) == message
    assert refused(lambda: softmax(x, y, BN=128)) == message
    assert refused(lambda: interp.run(compiled.traced, {"X": x, "Y": y}, [(0,)])) == message
    assert compiled.run(x[:, :128], y[:, :128]) == ()                    # the same object


def test_every_launch_that_is_not_refused_is_right():                    # BL-33
    compiled = rows.compile(*[np.zeros((4, 9), np.float32)] * 2, verify=True)
    served = 0
    for m, columns, n in np.ndindex(4, 12, 4):
        x, y = np.random.rand(3, columns).astype(np.float32), np.zeros((m, 9), np.float32)
        try:
            findings = compiled.run(x, y, n)
        except tc.TilecError:
            assert m != 3 or n * 4 > columns
        else:
            assert m == 3 and n * 4 <= columns and not findings
            np.testing.assert_array_equal(y[:, :min(n, 9)], x[:, :min(n, 9)])
            served += 1
    assert served


def test_the_numbers_are_those_that_do_not_hold():
    compiled = rows.compile(*[np.zeros((4, 9), np.float32)] * 2)
    x, y = np.zeros((3, 9), np.float32), np.zeros((4, 9), np.float32)
    assert "limit: 3 == 4 does not hold; X.shape[0] = 3, Y.shape[0] = 4, n = 2, X.shape[1] = 9" in \
        refused(lambda: compiled.run(x, y, 2))
    assert "limit: 3 == 4 and 20 <= 9 does not hold;" in refused(lambda: compiled.run(x, y, 5))


def test_what_consts_decide_is_decided_when_compiling():
    message = refused(lambda: rows.compile(*[np.zeros((4, 9), np.float32)] * 2, BN=8))
    assert message == ("BN must be at least 16\n    tc.require(BN >= 16, \"BN must be at least 16\")\n"
                       "    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^")


def test_nothing_of_it_reaches_the_object():
    program = rows.trace(*[np.zeros((4, 9), np.float32)] * 2)
    (op,) = [op for op in program.walk() if isinstance(op, tile.Require)]
    assert op.text == "n must be a quarter of X's columns"
    assert not any(isinstance(op, tile.Require) for op in simplify(program).walk())
    without = program.replace(body=Block((), tuple(o for o in program.body.ops if o is not op), ()))
    assert print_program(simplify(without)) == print_program(simplify(program))


def test_text_round_trip():
    program = rows.trace(*[np.zeros((4, 9), np.float32)] * 2)
    again = parse_program(print_program(program))
    assert print_program(again) == print_program(program)
    x, y = np.zeros((3, 9), np.float32), np.zeros((4, 9), np.float32)
    assert refused(lambda: interp.evaluate_grid(again, {"X": x, "Y": y, "n": 1})).startswith("kernel rows: n must")


def test_what_the_host_cannot_know_is_refused():
    def body(use):
        @tc.kernel
        def k(X: tc.Tensor, n: tc.i32):
            use(X, n)
            X.tiles(4)[0] = 0.0
        return lambda: k.trace(tc.spec("f32", (8,)), 3)

    def in_a_loop(X, n):
        for _ in tc.range(n):
            tc.require(n > 0, "positive")

    assert refused(body(lambda X, n: tc.require(X.at[0] > 0, "positive"))).startswith(
        "what is required depends on load_scalar\n")
    assert "require of i32" in refused(body(lambda X, n: tc.require(n, "positive")))
    assert "require of f32[4]" in refused(body(lambda X, n: tc.require(X.tiles(4)[0], "positive")))
    assert "require with 3" in refused(body(lambda X, n: tc.require(n > 0, 3)))
    assert "require inside a loop" in refused(body(in_a_loop))


def test_the_verifier_keeps_it_at_the_top_of_a_traced_program():
    program = rows.trace(*[np.zeros((4, 9), np.float32)] * 2)
    with pytest.raises(InternalError, match="require in form laid_out"):
        verify(program.replace(form="laid_out"))
