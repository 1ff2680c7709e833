"""Kernels as objects: signatures, binding, schedules, and when they are compiled again and when not."""

from __future__ import annotations

import importlib.util
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilec as tc
from tilec.errors import Location
from tilec.frontend import cache, fingerprint, jit
from tilec.frontend.fingerprint import compiler_hash
from tilec.ir.schedule import ClusterPlan, Part, Pin, Schedule, Split, Step, named, parse_schedule

VECTOR = tc.spec("f32", (100,))


@pytest.fixture(autouse=True)
def own_disk_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TILEC_ARCH", "gfx950")


@tc.kernel
def scale(A: tc.Tensor, B: tc.Tensor, factor: tc.f32, BN: tc.Const = 64, flip: tc.Const = False):
    i = tc.program_id(A.tiles(BN).grid[0])
    x = A.tiles(BN)[i]
    B.tiles(BN)[i] = (-x if flip else x) * factor


# -- binding -----------------------------------------------------------------------------------------------------------

def test_parameters_follow_from_annotations():
    kinds = {p.name: (p.kind, p.dtype) for p in scale.signature.parameters}
    assert kinds == {"A": ("tensor", None), "B": ("tensor", None), "factor": ("scalar", tc.f32), "BN": ("const", None),
                     "flip": ("const", None)}


def test_binding_sorts_arguments():
    a = np.zeros(8, np.float32)
    bound = scale.signature.bind((a, VECTOR), {"factor": 2, "flip": np.bool_(True)})
    assert bound.values["A"].owner is a and bound.values["factor"] == 2.0
    assert bound.consts == {"BN": 64, "flip": True} and type(bound.consts["flip"]) is bool
    assert list(bound.types) == ["A", "B", "factor"]


@pytest.mark.parametrize("args, kwargs, message", [
    ((VECTOR,), {}, "kernel scale: argument 'B' is missing\n  limit: it takes A, B, factor, BN, flip"),
    ((VECTOR, VECTOR), {}, "kernel scale: argument 'factor' is missing\n  limit: it takes A, B, factor, BN, flip"),
    ((VECTOR, VECTOR, 1.0), {"BM": 3}, "kernel scale: got an unexpected keyword argument 'BM'\n"
                                       "  limit: it takes A, B, factor, BN, flip"),
    ((VECTOR, VECTOR, 1.0, 2, 3, 4), {}, "kernel scale: too many positional arguments\n"
                                         "  limit: it takes A, B, factor, BN, flip"),
    ((VECTOR, VECTOR, "x"), {}, "kernel scale: argument 'factor' is 'x'\n  limit: it is a run-time scalar of f32"),
    ((VECTOR, VECTOR, 1.0), {"BN": [64]}, "kernel scale: argument 'BN' is a list, which can't be hashed\n"
                                          "  limit: Const arguments tell objects apart\n"
                                          "  try: pass a tuple instead of a list"),
    ((VECTOR, VECTOR, 1.0), {"BN": VECTOR}, "kernel scale: argument 'BN' is a tensor, but the parameter is a tc.Const"),
    ((VECTOR, 3, 1.0), {}, "kernel scale: argument 'B' is a int, not a tensor\n"
                           "  try: pass a numpy array, a torch tensor or anything with DLPack"),
])
def test_refused_arguments(args: tuple[Any, ...], kwargs: dict[str, Any], message: str):
    with pytest.raises(tc.TilecError) as caught:
        scale.run(*args, **kwargs)
    assert str(caught.value) == message


def test_integer_scalars_are_checked():
    @tc.kernel
    def count(A: tc.Tensor, n: int, m: tc.u32):
        A.tiles(8)[n] = m.to(tc.f32)

    cases = ((1.5, 0, "'n' is 1.5\n  limit: it is a run-time scalar of i32"), (1 << 31, 0, "'n' is 2147483648\n"
                                                            "  limit: i32"),
             (0, -1, "'m' is -1\n  limit: u32 holds 0 to 4294967295"))
    for n, m, message in cases:
        with pytest.raises(tc.TilecError) as caught:
            count.signature.bind((VECTOR, n, m), {})
        assert message in str(caught.value)


def refused(make: Any) -> str:
    with pytest.raises(tc.TilecError) as caught:
        make()
    error = caught.value
    assert isinstance(error.where, Location)
    return str(error).replace(f"{error.where}: ", "")


def test_refused_signatures():
    def no_annotation():
        @tc.kernel
        def k(A: tc.Tensor, n): ...

    def odd_annotation():
        @tc.kernel
        def k(A: tc.Tensor, n: list): ...

    def narrow_scalar():
        @tc.kernel
        def k(A: tc.Tensor, x: tc.bf16): ...

    def variadic():
        @tc.kernel
        def k(*A: tc.Tensor): ...

    def reserved():
        @tc.kernel
        def k(A: tc.Tensor, schedule: tc.Const): ...

    def unknown_name():
        @tc.kernel
        def k(A: tc.Tenser): ...

    def waves():
        @tc.kernel(waves=32)
        def k(A: tc.Tensor): ...

    assert refused(no_annotation) == (
        "argument 'n' has no annotation\n    def k(A: tc.Tensor, n): ...\n                        ^\n"
        "  try: annotate it: tc.Tensor, tc.Const, or tc.i32, tc.f32, ... for a run-time scalar")
    assert refused(odd_annotation) == (
        "argument 'n' is annotated <class 'list'>\n    def k(A: tc.Tensor, n: list): ...\n"
        "                        ^^^^^^^\n"
        "  limit: arguments are tc.Tensor, tc.Const or run-time scalars\n"
        "  try: tc.i32, tc.f32, ..., int, float or bool for a scalar")
    assert refused(narrow_scalar) == (
        "a run-time scalar argument of bf16\n    def k(A: tc.Tensor, x: tc.bf16): ...\n"
        "                        ^^^^^^^^^^\n"
        "  limit: scalar arguments are bool or have 32 or 64 bits\n  try: pass it as tc.f32 and cast it")
    assert refused(variadic) == "kernel k takes *A\n    def k(*A: tc.Tensor): ...\n        ^\n  try: name each argument"
    assert refused(reserved).startswith("a kernel argument named 'schedule'\n"
                                        "    def k(A: tc.Tensor, schedule: tc.Const): ...\n"
                                        "                        ^^^^^^^^^^^^^^^^^^\n")
    assert refused(unknown_name).startswith("kernel k: module 'tilec' has no attribute 'Tenser'")
    assert refused(waves) == ("k with waves=32\n    def k(A: tc.Tensor): ...\n        ^\n"
                              "  limit: a workgroup has 1 to 16 waves")


# -- schedules ---------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("schedule", [
    tc.simple(), tc.pingpong(), tc.pingpong(buffers=3), tc.interleave(order=tc.chiplet(8, 64))])
def test_named_schedules_have_a_text(schedule: Schedule):
    assert parse_schedule(str(schedule)) == schedule
    assert hash(schedule) == hash(parse_schedule(str(schedule)))


def test_named_schedules_fill_in_defaults():
    assert str(tc.pingpong()) == "pingpong(buffers=2, mfma=16)" and tc.pingpong().waves == 8
    assert parse_schedule("pingpong") == tc.pingpong()
    assert parse_schedule("interleave").option("buffers") == 2 and parse_schedule("simple") == named("simple")


@pytest.mark.parametrize("text, message", [
    ("pong", "no schedule is called 'pong'\n  limit: there are simple, pingpong, interleave"),
    ("pingpong(depth=3)", "schedule 'pingpong' has no option 'depth'\n  limit: its options are buffers, mfma"),
    ("pingpong(buffers=0)", "schedule pingpong: buffers=0\n  limit: buffers is an integer from 1 up"),
    ("pingpong(buffers", "'pingpong(buffers' is no schedule\n"
                         "  try: write one as simple, pingpong or pingpong(buffers=2)"),
    ("1 + 1", "'1 + 1' is no schedule\n  try: write one as simple, pingpong or pingpong(buffers=2)"),
    ("Schedule(wave=3)", "Schedule has no field 'wave'"),
    ("Part(tile='a')", "\"Part(tile='a')\" is no schedule\n"
                       "  try: write one as simple, pingpong or pingpong(buffers=2)"),
])
def test_refused_schedules(text: str, message: str):
    with pytest.raises(tc.TilecError) as caught:
        parse_schedule(text)
    assert str(caught.value) == message


def test_a_custom_schedule_is_recorded_as_data():
    @tc.kernel
    def gemm(A: tc.Tensor): ...

    @gemm.schedule(waves=8, order=tc.chiplet(window=8, chunk=64))
    def halves(s: Any):
        a, acc = s.a.split(m=2), s.acc.split(m=2, n=2)
        s.ring(a=2)
        s.stagger(halves=2)
        s.memory(a[0].read, next_copy=1)
        s.compute(acc[0, 1], prio=1, name="upper")
        s.qk.ahead(1)
        s.pin(acc, tc.agpr[0:128])

    assert halves == Schedule(
        "halves", 8, (), tc.chiplet(8, 64), (Split("a", ("m",), (2,)), Split("acc", ("m", "n"), (2, 2))), (("a", 2),),
        (("qk", 1),), 2,
        (ClusterPlan("memory", (Step(Part("a", (0,)), "read"),), 1),
         ClusterPlan("compute", (Step(Part("acc", (0, 1)), "compute"),), 0, 1, "upper")),
        (Pin(Part("acc"), "a", 0, 128),))
    assert parse_schedule(str(halves)) == halves
    assert gemm.specialise(gemm.signature.bind((VECTOR,), {}), None, "halves").waves == 8
    assert gemm.trace(VECTOR, schedule=halves).waves == 8 and gemm.trace(VECTOR).waves == 4
    with pytest.raises(tc.TilecError, match=r"acc has no part \[2, 0\]\n  limit: it is split into \[2, 2\]"):
        gemm.schedule()(lambda s: s.acc.split(m=2, n=2)[2, 0])
    with pytest.raises(tc.TilecError, match="a memory cluster takes reads and copies"):
        gemm.schedule()(lambda s: s.memory(s.acc))


# -- compiled once, and again when something changed -------------------------------------------------------------------

class Counting:
    """Counts calls of the compiler."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.count, self.real = 0, jit.compile
        monkeypatch.setattr(jit, "compile", self)

    def __call__(self, *args: Any) -> Any:
        self.count += 1
        return self.real(*args)


@pytest.fixture
def compiles(monkeypatch: pytest.MonkeyPatch) -> Counting:
    return Counting(monkeypatch)


SOURCE = '''
import types
import tilec as tc
import helper_of_{name} as other

BIAS = 1.0
SETTINGS = {{"step": 2.0}}
SPACE = types.SimpleNamespace(gain=1.0)

def inner(x):
    return x + BIAS

def helper(x):
    return inner(x) * SETTINGS["step"] * SPACE.gain

def make():
    offset = 0.0

    @tc.kernel
    def k(A: tc.Tensor, B: tc.Tensor, BN: tc.Const = 64):
        i = tc.program_id(A.tiles(BN).grid[0])
        B.tiles(BN)[i] = other.twice(helper(A.tiles(BN)[i])) + offset

    def set_offset(value):
        nonlocal offset
        offset = value

    return k, set_offset

k, set_offset = make()
'''


@pytest.fixture
def module(tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    """A kernel's file and a helper's file, imported."""
    name = f"m{abs(hash(request.node.name))}"
    helper = "def twice(x):\n    return x * 2\nunused = 1\n"
    for file, text in ((f"helper_of_{name}", helper), (name, SOURCE.format(name=name))):
        path = tmp_path / f"{file}.py"
        path.write_text(text)
        spec = importlib.util.spec_from_file_location(file, path)
        assert spec and spec.loader
        loaded = sys.modules[file] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(loaded)
    yield sys.modules[name]
    del sys.modules[name], sys.modules[f"helper_of_{name}"]


def result(module: Any, n: int = 100, **consts: Any) -> float:
    a, b = np.full(n, 3, np.float32), np.zeros(n, np.float32)
    module.k(a, b, **consts)
    assert (b == b[0]).all()
    return float(b[0])


def test_what_did_not_change_is_not_compiled_again(module: Any, compiles: Counting):
    assert result(module) == 16
    for n in (100, 7, 1000):        # shapes do not specialise
        assert result(module, n) == 16
    module.other.unused = 2         # a name that the kernel does not mention
    module.SETTINGS = {"step": 2.0}
    assert result(module) == 16
    assert compiles.count == 1


CHANGES = {
    "a global": lambda m: setattr(m, "BIAS", 2.0), "a dict": lambda m: m.SETTINGS.update(step=2.5),
    "an attribute": lambda m: setattr(m.SPACE, "gain", 1.25), "a closure": lambda m: m.set_offset(4.0),
    "a helper": lambda m: setattr(m, "helper", lambda x: x * 2.0 + 4),
    "a helper's helper": lambda m: setattr(m, "inner", lambda x: x + 2),
    "a helper in another module": lambda m: setattr(m.other, "twice", lambda x: x * 2.5),
    "a helper's code": lambda m: setattr(m.inner, "__code__", (lambda x: x + 2).__code__),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_changed_is_compiled_again(module: Any, compiles: Counting, change: str):
    assert result(module) == 16
    CHANGES[change](module)
    assert result(module) == 20
    assert compiles.count == 2
    assert result(module) == 20
    assert compiles.count == 2


def test_consts_types_schedules_and_architectures_specialise(compiles: Counting):
    a, b = np.ones(100, np.float32), np.zeros(100, np.float32)
    scale(a, b, 2.0)
    scale(a, b, 3.0)                            # run-time scalars do not
    assert compiles.count == 1
    scale(a, b, 2.0, BN=32)
    scale(a, b, 2.0, flip=True)
    assert compiles.count == 3 and (b == -2).all()
    scale(a[:50], b, 2.0, schedule="simple")    # the default
    assert compiles.count == 3
    scale.run(a, b, 2.0, arch="gfx942")
    assert compiles.count == 4
    scale(a, b, 2.0, schedule=tc.simple(tc.grouped(4)))
    assert compiles.count == 5
    assert scale.compile(VECTOR, VECTOR) is scale.compile(tc.spec("f32", (7,)), VECTOR)


def test_equal_numbers_of_different_types_are_different_consts(compiles: Counting):
    @tc.kernel
    def k(A: tc.Tensor, x: tc.Const):
        A.tiles(8)[0] = float(repr(x) == "1")

    for x in (1, True, 1.0, 0.0, -0.0, (1, 2), (1, 2.0)):
        k.compile(VECTOR, x)
    assert compiles.count == 7


# -- on disk -----------------------------------------------------------------------------------------------------------

def forget(kernel: tc.Kernel) -> None:
    """What a new process knows."""
    kernel._compiled.clear()
    kernel._executables.clear()


def test_objects_outlive_the_process(module: Any, compiles: Counting):
    assert result(module) == 16
    forget(module.k)
    assert result(module) == 16
    assert compiles.count == 1
    module.BIAS = 2.0
    forget(module.k)
    assert result(module) == 20
    assert compiles.count == 2


def test_another_compiler_makes_its_own_objects(module: Any, compiles: Counting, monkeypatch: pytest.MonkeyPatch):
    assert result(module) == 16
    forget(module.k)
    monkeypatch.setattr(cache, "compiler_hash", lambda: "another")
    assert result(module) == 16
    assert compiles.count == 2


def test_the_compilers_hash_is_of_its_sources(tmp_path: Path):
    (tmp_path / "a.py").write_text("x = 1")
    (tmp_path / "notes.txt").write_text("nothing")
    hashes = [compiler_hash.__wrapped__(tmp_path)]
    (tmp_path / "notes.txt").write_text("still nothing")
    hashes.append(compiler_hash.__wrapped__(tmp_path))
    (tmp_path / "a.py").write_text("x = 2")
    hashes.append(compiler_hash.__wrapped__(tmp_path))
    (tmp_path / "a.py").rename(tmp_path / "b.py")
    hashes.append(compiler_hash.__wrapped__(tmp_path))
    assert hashes[0] == hashes[1] and len(set(hashes)) == 3
    assert len(compiler_hash()) == 64


@pytest.mark.parametrize("content", [b"", b"rubbish", b"\x7fELF" + bytes(200)])
def test_a_broken_file_is_compiled_over(module: Any, compiles: Counting, tmp_path: Path, content: bytes):
    assert result(module) == 16
    (file,) = (tmp_path / "cache").iterdir()
    whole = file.read_bytes()
    file.write_bytes(content)
    forget(module.k)
    assert result(module) == 16
    assert compiles.count == 2 and file.read_bytes() == whole


def test_an_object_with_other_arguments_is_compiled_over(module: Any, compiles: Counting, tmp_path: Path):
    @tc.kernel
    def k(A: tc.Tensor, B: tc.Tensor, C: tc.Tensor):
        A.tiles(8)[0] = 1

    assert result(module) == 16
    (file,) = (tmp_path / "cache").iterdir()
    file.write_bytes(k.compile(VECTOR, VECTOR, VECTOR).object)
    forget(module.k)
    assert result(module) == 16
    assert compiles.count == 3


def test_a_cache_that_cant_be_written_is_empty(module: Any, compiles: Counting, tmp_path: Path,
                                               monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("TILEC_CACHE", str(tmp_path / "file" / "cache"))
    assert result(module) == 16
    forget(module.k)
    assert result(module) == 16
    assert compiles.count == 2


# -- fingerprints ------------------------------------------------------------------------------------------------------

def function(source: str, **names: Any) -> types.FunctionType:
    scope: dict[str, Any] = dict(names)
    exec(compile(source, "a file of the user", "exec"), scope)
    return scope["f"]


def test_fingerprints_end_on_cycles():
    f = function("def f():\n    return g()\ndef g():\n    return f(), data")
    data: list[Any] = [1]
    data.append(data)
    f.__globals__["data"] = data
    assert fingerprint.fingerprint(f) == fingerprint.fingerprint(f)
    before = fingerprint.fingerprint(f)
    data[0] = 2
    assert fingerprint.fingerprint(f) != before


@pytest.mark.parametrize("old, new", [
    (1, True), (1, 1.0), (0.0, -0.0), ([1], (1,)), ({"a": 1}, {"a": 2}), ({1, 2}, {1, 3}),
    (tc.f32, tc.f16), (np.zeros(3), np.ones(3))])
def test_fingerprints_tell_values_apart(old: Any, new: Any):
    f = function("def f():\n    return x", x=old)
    before = fingerprint.fingerprint(f)
    assert before == fingerprint.fingerprint(f)
    f.__globals__["x"] = new
    assert fingerprint.fingerprint(f) != before


def test_fingerprints_are_hashable_and_tell_unknown_objects_apart():
    first, second = object(), object()
    f = function("def f():\n    return x", x=first)
    before = fingerprint.fingerprint(f)
    assert hash(before) == hash(fingerprint.fingerprint(f)) and before == fingerprint.fingerprint(f)
    f.__globals__["x"] = second
    assert fingerprint.fingerprint(f) != before
