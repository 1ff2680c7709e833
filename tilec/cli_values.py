"""What the command line's words mean: FILE:KERNEL, NAME=dtype[shape], NAME=VALUE.

Everything here turns text into plain values or raises a TilecError that shows the text and the form that was expected.
"""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from tilec.dtypes import DTYPES, DType, dtype
from tilec.errors import Location, TilecError

_TENSOR = re.compile(r"(?P<dtype>\w+)\[(?P<shape>[^\]]*)\]\Z")
_NAME = re.compile(r"[A-Za-z_]\w*\Z")


@dataclass(frozen=True)
class TensorText:
    """`bf16[1000,777]`: an element type and a shape. The command line makes contiguous tensors."""

    dtype: DType
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype.name}[{','.join(map(str, self.shape))}]"


def arguments(texts: Iterable[str]) -> dict[str, TensorText | bool | int | float]:
    """`--arg NAME=dtype[shape]` for tensors, `--arg NAME=NUMBER` for scalars."""
    return _pairs(texts, "--arg", "NAME=dtype[shape] or NAME=NUMBER", _argument)


def consts(texts: Iterable[str]) -> dict[str, Any]:
    """`--const NAME=VALUE`: a Python literal, the name of an element type, or a word."""
    return _pairs(texts, "--const", "NAME=VALUE", _const)


def _pairs(texts: Iterable[str], option: str, form: str, parse: Callable[[str, str], Any]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not _NAME.match(name) or not value:
            raise TilecError(f"{option} {text!r} is not understood", fix=f"write {option} {form}")
        if name in values:
            raise TilecError(f"{option} names {name!r} twice", fix="give each name once")
        values[name] = parse(name, value)
    return values


def _argument(name: str, text: str) -> TensorText | bool | int | float:
    if match := _TENSOR.match(text):
        sizes = [size.strip() for size in re.split("[,x]", match["shape"])]
        if not all(size.isdigit() for size in sizes):
            raise TilecError(f"--arg {name}={text}: the shape is not a list of sizes", fix=f"--arg {name}=f32[128,64]")
        return TensorText(dtype(match["dtype"]), tuple(map(int, sizes)))
    value = _literal(text)
    if not isinstance(value, bool | int | float):
        raise TilecError(f"--arg {name}={text}: neither a tensor nor a number",
                         fix=f"--arg {name}=f32[128,64] for a tensor, --arg {name}=5 for a scalar")
    return value


def _const(_: str, text: str) -> Any:
    value = _literal(text)
    return DTYPES.get(text, text) if value is None and text != "None" else value


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return None


def load_kernel(reference: str, is_kernel: Callable[[Any], bool]) -> tuple[Any, ModuleType]:
    """The kernel that FILE:KERNEL names and the module of its file. `:KERNEL` may be left out if the file has one."""
    file, _, name = reference.partition(":")
    module = load_file(Path(file))
    kernels = {key: value for key, value in vars(module).items() if is_kernel(value)}
    if not kernels:
        raise TilecError(f"{file} defines no kernel", fix="decorate a function with @tc.kernel")
    if not name and len(kernels) == 1:
        name = next(iter(kernels))
    if name not in kernels:
        raise TilecError(f"{file} has no kernel {name!r}" if name else f"{file} has several kernels",
                         fix=f"one of {', '.join(f'{file}:{key}' for key in kernels)}")
    return kernels[name], module


def load_file(path: Path) -> ModuleType:
    """Executes a Python file as a module. What it imports may lie beside it or in the current directory."""
    if path.suffix != ".py" or not path.is_file():
        raise TilecError(f"{path} is no Python file", fix="name a kernel as FILE:KERNEL, as in kernels/gemm.py:gemm")
    for folder in (str(path.resolve().parent), str(Path.cwd())):
        if folder not in sys.path:
            sys.path.append(folder)
    spec = importlib.util.spec_from_file_location(f"tilec_file_{path.stem}", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except TilecError:
        raise
    except SyntaxError as error:
        where = Location(error.filename or str(path), error.lineno or 1, error.offset or 1)
        raise TilecError(f"not Python: {error.msg}", where=where) from error
    except Exception as error:
        raise TilecError(f"the file raises {type(error).__name__}: {error}", where=_innermost(error, path)) from error
    return module


def _innermost(error: BaseException, path: Path) -> Location:
    """The last line of the file itself that the error passed through."""
    line, trace = 1, error.__traceback__
    while trace:
        if trace.tb_frame.f_code.co_filename == str(path):
            line = trace.tb_lineno
        trace = trace.tb_next
    return Location(str(path), line)
