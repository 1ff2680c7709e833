"""A kernel's parameters, by its annotations, and the arguments of one call bound to them.

A parameter is a Tensor, a Const (known when the kernel is compiled) or a run-time scalar. Every argument is checked
against its parameter here; what comes out is ready to specialise and to launch.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tilec import dtypes
from tilec.dtypes import DType
from tilec.errors import TilecError
from tilec.frontend.tensors import Tensor
from tilec.frontend.trace import definition, parameter
from tilec.frontend.values import python_number
from tilec.ir.core import ScalarType, TensorType
from tilec.ir.grid_order import PARAMETERS
from tilec.runtime import tensors
from tilec.runtime.arguments import Argument
from tilec.runtime.devices import Device, common_device
from tilec.runtime.tensors import TensorView

RESERVED = (  # options of Kernel's methods, and parameters of its own
    "arch", "schedule", "order", "on", "check", "seed", "landing", "verify", *PARAMETERS.values()
)


if TYPE_CHECKING:
    Const = Any  # type checkers see what the kernel sees: a plain Python value
else:
    class Const:
        """Annotation of a kernel argument that is known when the kernel is compiled: `BM: tc.Const = 128`."""


@dataclass(frozen=True)
class Parameter:
    """`kind` is 'tensor', 'const' or 'scalar' (then with its element type)."""

    name: str
    kind: str
    dtype: DType | None = None

    @property
    def element(self) -> DType:
        assert self.dtype is not None
        return self.dtype


@dataclass(frozen=True)
class Binding:
    """The arguments of one call: run-time values by name, and Consts."""

    values: Mapping[str, Argument]
    types: Mapping[str, TensorType | ScalarType]
    consts: Mapping[str, Any]

    @property
    def device(self) -> Device:
        return common_device((name, v.device) for name, v in self.values.items() if isinstance(v, TensorView))


@dataclass(frozen=True)
class Signature:
    """The parameters of a kernel function."""

    name: str
    parameters: tuple[Parameter, ...]
    signature: inspect.Signature

    @staticmethod
    def of(function: Callable[..., Any]) -> Signature:
        return Signature(function.__name__, _parameters(function), inspect.signature(function))

    def bind(
        self,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        values_needed: bool = True,
        fixed: Mapping[str, Any] | None = None,
    ) -> Binding:
        """The arguments of a call. `values_needed`: run-time scalars must be there. `fixed`: Consts that are decided
        already; they may be left out, and must agree where they are given."""
        try:
            bound = self.signature.bind_partial(*args, **kwargs)
        except TypeError as error:
            raise TilecError(f"kernel {self.name}: {error}", limit=self._takes) from None
        for name, value in (fixed or {}).items():
            if bound.arguments.setdefault(name, value) != value:
                raise TilecError(
                    f"kernel {self.name}: {name} is {bound.arguments[name]!r}",
                    limit=f"it was compiled with {name}={value!r}",
                    fix="compile again, or call the kernel itself",
                )
        bound.apply_defaults()
        values: dict[str, Argument] = {}
        types: dict[str, TensorType | ScalarType] = {}
        consts: dict[str, Any] = {}
        for p in self.parameters:
            label = f"kernel {self.name}: argument {p.name!r}"
            if p.name not in bound.arguments:
                if p.kind == "scalar" and not values_needed:
                    types[p.name] = ScalarType(p.element)
                    continue
                raise TilecError(f"{label} is missing", limit=self._takes)
            item = bound.arguments[p.name]
            if p.kind == "tensor":
                view = values[p.name] = tensors.view(item, label)
                types[p.name] = view.type
            elif p.kind == "scalar":
                values[p.name] = _scalar_argument(item, p.element, label)
                types[p.name] = ScalarType(p.element)
            else:
                consts[p.name] = _const_argument(item, label)
        return Binding(values, types, consts)

    @property
    def _takes(self) -> str:
        return f"it takes {', '.join(p.name for p in self.parameters)}"


def _parameters(function: Callable[..., Any]) -> tuple[Parameter, ...]:
    try:
        signature = inspect.signature(function, eval_str=True)
    except (NameError, AttributeError) as error:
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
