"""What the front end reads from the user's source: positions, names, liveness, ways out; and tracing under a tracer."""

from __future__ import annotations

import ast
import sys
from types import FrameType
from typing import Any

import numpy as np
import pytest

import tilec as tc
from tilec.frontend.source import Source, escapes, last_assignment, locate, names_at, node_span, read_after, reads_first
from tilec.ir.text import print_program


def body(text: str) -> list[ast.stmt]:
    return ast.parse(text).body


@pytest.mark.parametrize("text, reads", [
    ("y = x", True), ("x = 1\ny = x", False), ("x += 1", True), ("x[0] = 1", True), ("x.a = 1", True),
    ("x: int = 3", False),
    ("if c: x = 1\ny = x", True), ("if c: x = 1\nelse: x = 2\ny = x", False), ("y = x if c else 0", True),
    ("y = (x := 2) + x", False),
    ("if c: return\ny = x", True), ("return 1\ny = x", False), ("return x", True),
    ("for x in z: y = x", False), ("for i in z: x = 1\ny = x", True), ("for i in x: pass", True),
    ("while x: x = 1", True),
    ("for i in z:\n    y = x\n    x = 1", True),
    ("with c: x = 1\ny = x", True), ("with x: pass", True), ("f = lambda: x", True), ("y = [x for x in z]", True),
    ("def f(): return x", True), ("try:\n    x = 1\nexcept E: pass\ny = x", True), ("x, y = 1, 2\nz = x", False),
    ("y = f(x=x)", True), ("y = f(x=1)", False),
    ("a = b = x", True), ("del x", False), ("y = x = 3", False)])
def test_reads_first(text: str, reads: bool):
    assert reads_first(body(text), "x") is reads


@pytest.mark.parametrize("text, reads", [
    ("def f():\n    MARK\n    return x", True), ("def f():\n    MARK\n    x = 1\n    return x", False),
    ("def f():\n    MARK", False),
    ("def f():\n    while c:\n        y = x\n        MARK", True),
    ("def f():\n    while c:\n        x = 1\n        MARK", False),
    ("def f():\n    while c:\n        x = 1\n        MARK\n    return x", True),
    ("def f():\n    for x in z:\n        MARK", False),
    ("def f():\n    if c:\n        MARK\n    else:\n        y = x", False),
    ("def f():\n    if c:\n        MARK\n    y = x", True),
    ("def f():\n    if c:\n        MARK\n        return\n    y = x", False),
    ("def f():\n    MARK\n    if c: x = 1\n    y = x", True),
    ("def g():\n    def f():\n        MARK\n    return x", False),
    ("def f():\n    try:\n        MARK\n    finally:\n        y = x", True)])
def test_read_after(text: str, reads: bool):
    source = Source("text", ast.parse(text))
    (mark,) = (n for n in ast.walk(source.tree) if isinstance(n, ast.Expr) and ast.unparse(n) == "MARK")
    assert read_after(source, mark, "x") is reads


@pytest.mark.parametrize("text, kinds", [
    ("break", ["break"]), ("for i in z: break", []), ("for i in z: return", ["return"]),
    ("if c: continue", ["continue"]),
    ("while c:\n    break\nelse:\n    break", ["break"]), ("def f(): return", []), ("x = yield 1", ["yield"]),
    ("lambda: (yield)", [])])
def test_escapes(text: str, kinds: list[str]):
    assert [kind for _, kind in escapes(body(text), loop=True)] == kinds


@pytest.mark.parametrize("text, names", [
    ("a = f()", ("a",)), ("a, b = f()", ("a", "b")), ("x.y = f()", ()), ("a: int = f()", ("a",)),
    ("print(a := f())", ("a",)), ("g(f())", ()), ("a, b = f(), 3", ("a",)), ("a, (b, c) = 3, f()", ("b", "c")),
    ("a, *b = f(), 3, 4", ())])
def test_names(text: str, names: tuple[str, ...]):
    source = Source("text", ast.parse(text))
    (call,) = (n for n in ast.walk(source.tree) if isinstance(n, ast.Call) and ast.unparse(n) == "f()")
    assert names_at(source, node_span(call)) == names


def test_last_assignment():
    block = body("x = 1\nif c:\n    x += 2\ny = 3")
    found = last_assignment(block, "x")
    assert isinstance(found, ast.AugAssign) and last_assignment(block, "z") is None


def test_locations_count_characters(tmp_path: Any):
    path = tmp_path / "text.py"
    path.write_text("π = größe + 1\n")
    source = Source(str(path), ast.parse(path.read_text()))
    name = next(n for n in ast.walk(source.tree) if isinstance(n, ast.Name) and n.id == "größe")
    where = locate(str(path), node_span(name))
    assert (where.line, where.column, where.width) == (1, 5, 5)
    assert where.excerpt() == "    π = größe + 1\n        ^^^^^"


# -- under a tracer, as coverage and debuggers install -----------------------------------------------------------------

@tc.kernel
def many_names(A: tc.Tensor, B: tc.Tensor, n: tc.i32):
    At = A.tiles(8)
    total, old, parts = tc.zeros(8), At[0], [tc.zeros(8)] + [At[1]]
    for k in tc.range(n):
        x = At[k]
        total = total + x
        parts[0] = parts[0] + 1
        for j in tc.range(2):
            total = total * 2
            with tc.when(j > 0):
                old = +x
    B.tiles(8)[0] = total + old + parts[0] + sum([parts[1], total][1:], 0.0)


def test_a_tracer_changes_nothing():
    arguments = tc.spec("f32", (100,)), tc.spec("f32", (8,))
    plain = print_program(many_names.trace(*arguments, arch="gfx950"), locations=True)
    seen: set[str] = set()

    def tracer(frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code.co_name == "many_names":
            frame.f_trace_opcodes = True
            seen.update(frame.f_locals)     # before 3.13 this writes the locals back when the event ends
        return tracer

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        traced = print_program(many_names.trace(*arguments, arch="gfx950"), locations=True)
    finally:
        sys.settrace(before)
    assert traced == plain and {"total", "old", "parts", "x", "k"} <= seen


def test_source_that_cant_be_read_is_refused():
    scope: dict[str, Any] = {"tc": tc}
    exec("@tc.kernel\ndef k(A: tc.Tensor):\n    for i in tc.range(3):\n        A.tiles(8)[i] = 1\n", scope)
    with pytest.raises(tc.TilecError, match="tc.range: the source of 'k' can't be read"):
        scope["k"].trace(tc.spec("f32", (8,)))
    exec("@tc.kernel\ndef k(A: tc.Tensor):\n    A.tiles(8)[0] = 1\n", scope)
    assert scope["k"].trace(tc.spec("f32", (8,))).name == "k"       # without loops it is not needed


def test_a_kernel_is_one_trace_after_another():
    @tc.kernel
    def k(A: tc.Tensor, size: tc.Const):
        A.tiles(size)[0] = np.float32(size)

    texts = [print_program(k.trace(tc.spec("f32", (8,)), size)) for size in (8, 16, 8)]
    assert texts[0] == texts[2] != texts[1]
