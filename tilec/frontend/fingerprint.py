"""What a kernel's meaning depends on: its code, the functions it calls, the globals and closures they read.

Two equal fingerprints mean that tracing again would give the same program. Functions are followed by their code, not by
their name, so that an edited helper counts; modules by those of their names that the code mentions. What can't be
looked into is told apart by identity: then the fingerprint holds the object, so that its identity stays taken.
"""

from __future__ import annotations

import hashlib
import sys
import sysconfig
from functools import cache, lru_cache
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from tilec.dtypes import DType
from tilec.frontend.source import PACKAGE, is_user_code

_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis), DType, range, slice)


class Identity:
    """Stands for an object that can't be looked into; equal only for the same object."""

    def __init__(self, item: Any):
        self.item = item

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identity) and self.item is other.item

    def __hash__(self) -> int:
        return id(self.item)


def fingerprint(function: FunctionType) -> tuple[Any, ...]:
    """A hashable value that changes with anything that tracing the function may see."""
    return _Walk().function(function)


def distinct(value: Any) -> Any:
    """A hashable stand-in for a value that tells apart what Python calls equal: 1, 1.0 and True, 0.0 and -0.0."""
    return _Walk().value(value)


class _Walk:
    """One walk over functions and data. Objects met before are named by their number, so that cycles end."""

    def __init__(self) -> None:
        self.seen: dict[int, int] = {}
        self.kept: list[Any] = []  # keeps ids of temporaries taken during the walk

    def value(self, item: Any, names: frozenset[str] = frozenset()) -> Any:
        """An object that code mentioning `names` may look into."""
        if isinstance(item, _PLAIN):
            return type(item), repr(item)  # repr tells -0.0 from 0.0, and NaN from nothing
        if isinstance(item, BuiltinFunctionType):
            return item.__module__, item.__qualname__
        if isinstance(item, ModuleType):
            return self.module(item, names)
        if id(item) in self.seen:
            return "seen", self.seen[id(item)]
        self.seen[id(item)] = len(self.seen)
        self.kept.append(item)
        if isinstance(item, FunctionType):
            return self.function(item)
        if isinstance(item, type):
            return self.type(item)
        if isinstance(item, (tuple, list)):
            return type(item), tuple(self.value(element, names) for element in item)
        if isinstance(item, dict):
            return dict, tuple((self.value(key), self.value(value, names)) for key, value in item.items())
        if isinstance(item, (set, frozenset)):
            return type(item), tuple(sorted(repr(self.value(element)) for element in item))
        if isinstance(inner := getattr(item, "__wrapped__", None), FunctionType):  # another kernel, a cached function
            return type(item).__qualname__, self.function(inner)
        if isinstance(item, np.ndarray):
            return np.ndarray, str(item.dtype), item.shape, hashlib.sha256(item.tobytes()).digest()
        if hasattr(item, "__dict__") and (_is_users(type(item)) or isinstance(item, SimpleNamespace)):
            return self.type(type(item)), tuple((key, self.value(value, names)) for key, value in vars(item).items())
        return Identity(item)

    def function(self, function: FunctionType) -> tuple[Any, ...]:
        code = function.__code__
        if not is_user_code(code):
            return "tilec", function.__module__, function.__qualname__
        names = _names(code)
        scope = function.__globals__
        read = tuple((name, self.value(scope[name], names)) for name in sorted(names) if name in scope)
        cells = tuple(self.cell(cell, names) for cell in function.__closure__ or ())
        defaults = self.value(function.__defaults__), self.value(function.__kwdefaults__)
        return code.co_filename, _content(code), read, cells, defaults

    def cell(self, cell: Any, names: frozenset[str]) -> Any:
        try:
            return self.value(cell.cell_contents, names)
        except ValueError:  # not bound yet
            return "empty"

    def module(self, module: ModuleType, names: frozenset[str]) -> Any:
        if not _is_users_module(module):
            return module.__name__
        if id(module) in self.seen:
            return "seen", self.seen[id(module)]
        self.seen[id(module)] = len(self.seen)
        found = vars(module)
        return module.__name__, tuple((name, self.value(found[name], names)) for name in sorted(names) if name in found)

    def type(self, kind: type) -> Any:
        if not _is_users(kind):
            return kind.__module__, kind.__qualname__
        members = [(k, v) for k, v in vars(kind).items() if isinstance(v, (FunctionType, *_PLAIN))]
        return kind.__qualname__, tuple((key, self.value(value)) for key, value in members)


@lru_cache(maxsize=1024)
def _names(code: CodeType) -> frozenset[str]:
    """Global and attribute names that a code object mentions, those of the functions inside it included."""
    inner = (c for c in code.co_consts if isinstance(c, CodeType))
    return frozenset(code.co_names).union(*(_names(c) for c in inner))


@lru_cache(maxsize=1024)
def _content(code: CodeType) -> tuple[Any, ...]:
    """A code object by content: equal for equal source at the same place of a file."""
    consts = tuple(_content(c) if isinstance(c, CodeType) else (type(c), repr(c)) for c in code.co_consts)
    return (
        code.co_code,
        consts,
        code.co_names,
        code.co_varnames,
        code.co_freevars,
        code.co_firstlineno,
        code.co_linetable,
    )


def _is_users(kind: type) -> bool:
    module = sys.modules.get(kind.__module__)
    return module is not None and _is_users_module(module)


def _is_users_module(module: ModuleType) -> bool:
    """Whether a module may be edited between two traces: neither installed, nor Python's, nor tilec's."""
    file = getattr(module, "__file__", None)
    return module.__name__ == "__main__" if file is None else _is_users_file(file)


@cache
def _is_users_file(file: str) -> bool:
    installed = {"site-packages", "dist-packages"}.intersection(Path(file).parts)
    return not installed and not file.startswith((sysconfig.get_paths()["stdlib"], PACKAGE))


@cache
def compiler_hash(root: Path | None = None) -> str:
    """Of all the compiler's sources: objects on disk belong to the compiler that made them."""
    root = root or Path(PACKAGE)
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()
