"""`@tc.kernel`: signature, binding of arguments, tracing, compiling, launching.

A parameter is a Tensor, a Const (known when compiled) or a run-time scalar, by its annotation. What specialises an
object is gathered in one record, `Specialisation`; everything else about the arguments is only seen at launch.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tilec import config, dtypes
from tilec.dtypes import DType
from tilec.errors import TilecError
from tilec.frontend import schedules
from tilec.frontend.tensors import Tensor
from tilec.frontend.trace import definition, parameter, trace
from tilec.frontend.values import python_number
from tilec.ir.core import Program, ScalarType, TensorType
from tilec.ir.schedule import NAMED, GridOrder, Schedule, parse_schedule
from tilec.runtime import tensors
from tilec.runtime.tensors import TensorView

DEFAULT_WAVES = 4
MAX_WAVES = 16  # 1024 threads
RESERVED = ("arch", "schedule", "waves", "on", "check", "seed", "landing", "verify")


class Const:
    """Annotation of a kernel argument that is known when the kernel is compiled: `BM: tc.Const = 128`."""


@dataclass(frozen=True)
class Parameter:
    """`kind` is 'tensor', 'const' or 'scalar' (then with its element type)."""

    name: str
    kind: str
    dtype: DType | None = None


@dataclass(frozen=True)
class Specialisation:
    """All that tells two objects of one kernel apart, apart from the source."""

    types: tuple[tuple[str, TensorType | ScalarType], ...]
    consts: tuple[tuple[str, Any], ...]
    arch: str
    schedule: Schedule
    waves: int


@dataclass(frozen=True)
class Binding:
    """The arguments of one call: run-time values by name, and Consts."""

    values: Mapping[str, TensorView | bool | int | float]
    types: Mapping[str, TensorType | ScalarType]
    consts: Mapping[str, Any]


class Kernel:
    """A kernel function. Called with tensors it launches where they live: on a GPU, or for CPU memory on the
    emulator."""

    def __init__(self, function: Callable[..., Any], waves: int = DEFAULT_WAVES):
        self.function, self.name, self.waves = function, function.__name__, _checked_waves(waves, function)
        self.parameters = _parameters(function)
        self.signature = inspect.signature(function)
        self.schedules: dict[str, Schedule] = {}
        self.__doc__, self.__name__, self.__wrapped__ = function.__doc__, self.name, function

    def __repr__(self) -> str:
        return f"<kernel {self.name}({', '.join(p.name for p in self.parameters)})>"

    # -- schedules

    def schedule(
        self, *, waves: int | None = None, order: GridOrder | None = None
    ) -> Callable[[Callable[[Any], None]], Schedule]:
        """Decorator: a custom schedule of this kernel, known by its function's name."""

        def decorate(function: Callable[[Any], None]) -> Schedule:
            if function.__name__ in NAMED:
                raise TilecError(
                    f"a schedule named {function.__name__!r}",
                    where=definition(function),
                    limit=f"{', '.join(NAMED)} are tilec's own",
                    fix="give it another name",
                )
            built = schedules.build(function, None if waves is None else _checked_waves(waves, function), order)
            self.schedules[built.name] = built
            return built

        return decorate

    def _schedule(self, given: Schedule | str | None) -> Schedule:
        if given is None:
            return schedules.simple()
        if isinstance(given, str):
            return self.schedules.get(given) or parse_schedule(given)
        return given

    # -- arguments

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], values_needed: bool = True) -> Binding:
        """The arguments of a call, each checked against its parameter. `values_needed`: run-time scalars must be
        there."""
        try:
            bound = self.signature.bind_partial(*args, **kwargs)
        except TypeError as error:
            raise TilecError(
                f"kernel {self.name}: {error}", limit=f"it takes {', '.join(p.name for p in self.parameters)}"
            ) from None
        bound.apply_defaults()
        given = bound.arguments
        values: dict[str, Any] = {}
        types: dict[str, TensorType | ScalarType] = {}
        consts: dict[str, Any] = {}
        for p in self.parameters:
            label = f"kernel {self.name}: argument {p.name!r}"
            if p.name not in given:
                if p.kind == "scalar" and not values_needed:
                    types[p.name] = ScalarType(_element(p))
                    continue
                raise TilecError(f"{label} is missing", limit=f"it takes {', '.join(q.name for q in self.parameters)}")
            item = given[p.name]
            if p.kind == "tensor":
                values[p.name] = tensors.view(item, label)
                types[p.name] = values[p.name].type
            elif p.kind == "scalar":
                values[p.name] = _scalar_argument(item, _element(p), label)
                types[p.name] = ScalarType(_element(p))
            else:
                consts[p.name] = _const_argument(item, label)
        return Binding(values, types, consts)

    def specialise(self, binding: Binding, arch: str | None, schedule: Schedule | str | None) -> Specialisation:
        plan = self._schedule(schedule)
        return Specialisation(
            tuple(binding.types.items()),
            tuple(binding.consts.items()),
            arch or config.current().arch,
            plan,
            plan.waves or self.waves,
        )

    # -- what users call

    def trace(
        self, *args: Any, arch: str | None = None, schedule: Schedule | str | None = None, **kwargs: Any
    ) -> Program:
        """The traced program for these arguments (tensors, or `tc.spec(...)` in their place)."""
        return self._trace(self.specialise(self.bind(args, kwargs, values_needed=False), arch, schedule))

    def _trace(self, spec: Specialisation) -> Program:
        return trace(self.function, dict(spec.types), dict(spec.consts), spec.arch, spec.waves)


def kernel(function: Callable[..., Any] | None = None, *, waves: int = DEFAULT_WAVES) -> Any:
    """Decorator: `@tc.kernel` or `@tc.kernel(waves=8)`. `waves` is the size of a workgroup unless the schedule says
    otherwise."""
    if function is None:
        return lambda f: Kernel(f, waves)
    return Kernel(function, waves)


# -- the signature -----------------------------------------------------------------------------------------------------


def _parameters(function: Callable[..., Any]) -> tuple[Parameter, ...]:
    try:
        signature = inspect.signature(function, eval_str=True)
    except NameError as error:
        raise TilecError(
            f"kernel {function.__name__}: {error} in its annotations", where=definition(function)
        ) from None
    found = []
    for p in signature.parameters.values():
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            raise TilecError(
                f"kernel {function.__name__} takes *{p.name}", where=definition(function), fix="name each argument"
            )
        if p.name in RESERVED:
            raise TilecError(
                f"a kernel argument named {p.name!r}",
                where=parameter(function, p.name),
                limit=f"{', '.join(RESERVED)} are options of the launch",
                fix="choose another name",
            )
        found.append(_parameter(function, p.name, p.annotation))
    return tuple(found)


def _parameter(function: Callable[..., Any], name: str, annotation: Any) -> Parameter:
    if annotation is Tensor:
        return Parameter(name, "tensor")
    if annotation is Const:
        return Parameter(name, "const")
    if annotation is inspect.Parameter.empty:
        raise TilecError(
            f"argument {name!r} has no annotation",
            where=parameter(function, name),
            fix="annotate it: tc.Tensor, tc.Const, or tc.i32, tc.f32, ... for a run-time scalar",
        )
    try:
        element = dtypes.dtype(annotation)
    except TilecError:
        raise TilecError(
            f"argument {name!r} is annotated {annotation!r}",
            where=parameter(function, name),
            limit="arguments are tc.Tensor, tc.Const or run-time scalars",
            fix="tc.i32, tc.f32, ..., int, float or bool for a scalar",
        ) from None
    if element.bits not in (32, 64) and element.kind != "bool":
        raise TilecError(
            f"a run-time scalar argument of {element}",
            where=parameter(function, name),
            limit="scalar arguments are bool or have 32 or 64 bits",
            fix=f"pass it as {'tc.f32' if element.is_float else 'tc.i32'} and cast it",
        )
    return Parameter(name, "scalar", element)


def _element(p: Parameter) -> DType:
    assert p.dtype is not None
    return p.dtype


def _checked_waves(waves: int, function: Callable[..., Any]) -> int:
    if not isinstance(waves, int) or not 1 <= waves <= MAX_WAVES:
        raise TilecError(
            f"{function.__name__} with waves={waves!r}",
            where=definition(function),
            limit=f"a workgroup has 1 to {MAX_WAVES} waves",
        )
    return waves


def _scalar_argument(item: Any, element: DType, label: str) -> bool | int | float:
    number = python_number(item)
    if number is None or (element.is_integer and not isinstance(number, int)):
        raise TilecError(f"{label} is {item!r}", limit=f"it is a run-time scalar of {element}")
    low, high = element.limits
    if not element.is_float and not low <= number <= high:
        raise TilecError(f"{label} is {number}", limit=f"{element} holds {low} to {high}")
    return bool(number) if element.kind == "bool" else float(number) if element.is_float else int(number)


def _const_argument(item: Any, label: str) -> Any:
    if tensors.is_tensor(item):
        raise TilecError(f"{label} is a tensor, but the parameter is a tc.Const")
    try:
        hash(item)
    except TypeError:
        raise TilecError(
            f"{label} is a {type(item).__name__}, which can't be hashed",
            limit="Const arguments tell objects apart",
            fix="pass a tuple instead of a list",
        ) from None
    number = python_number(item)
    return item if number is None else number
