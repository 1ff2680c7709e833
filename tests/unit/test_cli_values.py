"""Words of the command line to values, and the errors for those that are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilec import dtypes
from tilec.cli_values import TensorText, arguments, consts, load_kernel
from tilec.errors import TilecError


def test_arguments():
    assert arguments(["a=bf16[1000,777]", "b=f32[3x4x5]", "n=5", "alpha = -0.5", "flag=True", "v=i32[ 7 ]"]) == {
        "a": TensorText(dtypes.DTYPES["bf16"], (1000, 777)), "b": TensorText(dtypes.DTYPES["f32"], (3, 4, 5)), "n": 5,
        "alpha": -0.5, "flag": True, "v": TensorText(dtypes.DTYPES["i32"], (7,))}
    assert str(arguments(["a=float32[2,0]"])["a"]) == "f32[2,0]"


def test_consts():
    assert consts(["BM=128", "scale=0.5", "causal=True", "dtype=bf16", "mode=fast", "shape=(1,2)", "x=None"]) == {
        "BM": 128, "scale": 0.5, "causal": True, "dtype": dtypes.DTYPES["bf16"], "mode": "fast", "shape": (1, 2),
        "x": None}


@pytest.mark.parametrize("parse, text, message", [
    (arguments, "a", "--arg 'a' is not understood\n  try: write --arg NAME=dtype[shape] or NAME=NUMBER"),
    (arguments, "a=", "--arg 'a=' is not understood\n  try: write --arg NAME=dtype[shape] or NAME=NUMBER"),
    (arguments, "2a=5", "--arg '2a=5' is not understood\n  try: write --arg NAME=dtype[shape] or NAME=NUMBER"),
    (arguments, "a=f32[1,-2]", "--arg a=f32[1,-2]: the shape is not a list of sizes\n  try: --arg a=f32[128,64]"),
    (arguments, "a=f32[]", "--arg a=f32[]: the shape is not a list of sizes\n  try: --arg a=f32[128,64]"),
    (arguments, "a=f32", "--arg a=f32: neither a tensor nor a number\n"
                         "  try: --arg a=f32[128,64] for a tensor, --arg a=5 for a scalar"),
    (arguments, "a=f31[2]", f"no element type 'f31'\n  try: use one of {', '.join(dtypes.DTYPES)}"),
    (consts, "BM:128", "--const 'BM:128' is not understood\n  try: write --const NAME=VALUE"),
])
def test_what_is_not_understood(parse, text: str, message: str):
    with pytest.raises(TilecError) as error:
        parse([text])
    assert str(error.value) == message


def test_a_name_twice():
    with pytest.raises(TilecError) as error:
        consts(["BM=1", "BM=2"])
    assert str(error.value) == "--const names 'BM' twice\n  try: give each name once"


class Kernel:
    pass


def load(path: Path, name: str = ""):
    return load_kernel(f"{path}:{name}" if name else str(path), lambda value: isinstance(value, Kernel))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "beside_the_kernel.py").write_text("one = 1\n")
    path = tmp_path / "my_kernels.py"
    path.write_text(f"from {__name__} import Kernel\nfrom beside_the_kernel import one\na = Kernel()\nb = Kernel()\n")
    return path


def test_kernels_of_a_file(file: Path, monkeypatch: pytest.MonkeyPatch):
    import sys
    monkeypatch.setitem(sys.modules, __name__, sys.modules[Kernel.__module__])
    kernel, module = load(file, "b")
    assert kernel is module.b and module.one == 1
    with pytest.raises(TilecError) as error:
        load(file, "c")
    assert str(error.value) == f"{file} has no kernel 'c'\n  try: one of {file}:a, {file}:b"
    with pytest.raises(TilecError) as error:
        load(file)
    assert str(error.value) == f"{file} has several kernels\n  try: one of {file}:a, {file}:b"


def test_files_that_hold_no_kernel(tmp_path: Path):
    path = tmp_path / "k.py"
    with pytest.raises(TilecError) as error:
        load(path)
    assert str(error.value) == (f"{path} is no Python file\n"
                                "  try: name a kernel as FILE:KERNEL, as in kernels/gemm.py:gemm")
    path.write_text("x = 1\n")
    with pytest.raises(TilecError) as error:
        load(path, "x")
    assert str(error.value) == f"{path} defines no kernel\n  try: decorate a function with @tc.kernel"


def test_files_that_do_not_run(tmp_path: Path):
    path = tmp_path / "broken.py"
    path.write_text("x = 1\nfor\n")
    with pytest.raises(TilecError) as error:
        load(path)
    assert str(error.value) == f"{path}:2: not Python: invalid syntax\n    for\n       ^"
    path = tmp_path / "raises.py"
    path.write_text("def f():\n    return {}['key']\n\ny = f()\n")
    with pytest.raises(TilecError) as error:
        load(path)
    assert str(error.value) == f"{path}:2: the file raises KeyError: 'key'\n    return {{}}['key']\n    ^"
