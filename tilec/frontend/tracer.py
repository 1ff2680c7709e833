"""The state of one trace: where ops go, which values may still be read, what they are called.

Words of the language (`lang`, `values`, `tensors`, `control`) reach it through `current()`. Every op gets the user's
line, and its result the name that the user's statement gives it. A value belongs to the region it was made in; reading
it after that region is closed is the user's error. `alias` maps values that turned out to be other values: a loop's
provisional parameter that nothing changes is the value before the loop. It is applied once, when the trace ends.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from tilec import dtypes
from tilec.dtypes import DType
from tilec.errors import Location, TilecError
from tilec.frontend import source
from tilec.ir.core import Builder, Op, ScalarType, TileType, Type, Value
from tilec.ir.tile import Constant
from tilec.target import Target

# Element types of the type system whose instructions are not lowered yet: refused by name until they are.
NOT_COMPILED_YET = frozenset(
    {"fp8_e4m3fn", "fp8_e5m2", "fp8_e4m3fnuz", "fp8_e5m2fnuz", "fp6_e2m3", "fp6_e3m2", "fp4_e2m1", "e8m0"}
)
MAX_RANK = 5

_active: ContextVar[Tracer | None] = ContextVar("tilec_tracer", default=None)


@dataclass(eq=False)
class Scope:
    """A region under construction. `kind` is 'kernel', 'loop' or 'when'."""

    kind: str
    builder: Builder
    where: Location | None = None


class Tracer:
    """One trace of one kernel for one architecture and number of waves."""

    def __init__(self, target: Target, waves: int, where: Location | None):
        self.target, self.waves = target, waves
        self.scopes = [Scope("kernel", Builder(), where)]
        self.alias: dict[Value, Value] = {}
        self.grid: tuple[Value, ...] | None = None
        self.grid_where: Location | None = None
        self.program_ids: tuple[Value, ...] = ()
        self._home: dict[Value, Scope] = {}

    # -- emitting

    def emit(self, op_class: type[Op], type: Type, named: bool = False, **fields: Any) -> Value:
        """Appends an op with one result. `named`: the result is what the user's expression stands for."""
        frame = source.user_frame()
        span = source.span_of(frame)
        name = ""
        if named and (tree := source.source_of(frame.f_code)):
            names = source.names_at(tree, span)
            name = names[0] if len(names) == 1 else ""
        result = self.define(Value(type, name))
        self.scopes[-1].builder.emit(
            op_class(**fields, results=(result,), where=source.locate(frame.f_code.co_filename, span))
        )
        return result

    def add(self, op: Op) -> None:
        """Appends a finished op."""
        self.scopes[-1].builder.emit(op)

    def effect(self, op_class: type[Op], **fields: Any) -> None:
        """Appends an op without results."""
        self.scopes[-1].builder.emit(op_class(**fields, where=source.here()))

    def constant(self, value: bool | int | float, type: ScalarType | TileType) -> Value:
        """A number of the given type; refuses what the element type can't hold."""
        return self.emit(Constant, type, value=fit(value, type.dtype))

    def index(self, value: int) -> Value:
        return self.constant(value, ScalarType(dtypes.i32))

    # -- values and their regions

    def define(self, value: Value, scope: Scope | None = None) -> Value:
        self._home[value] = scope or self.scopes[-1]
        return value

    def resolve(self, value: Value) -> Value:
        while value in self.alias:
            value = self.alias[value]
        return value

    def is_readable(self, value: Value) -> bool:
        return self._home.get(self.resolve(value)) in self.scopes

    def read(self, value: Value) -> Value:
        """The value behind a name, if it may be read here."""
        value = self.resolve(value)
        home = self._home.get(value)
        if home is None:
            raise TilecError(
                "this value belongs to another kernel's trace",
                fix="pass it as an argument; values do not outlive the trace that made them",
            )
        if home not in self.scopes:
            name = f"`{value.name}`" if value.name else "this value"
            block = "loop" if home.kind == "loop" else "`when` block"
            line = f" at line {home.where.line}" if home.where else ""
            raise TilecError(
                f"{name} is made inside the {block}{line} and read after it",
                limit=f"the {block} may run zero times, then {name} does not exist",
                fix=f"give {name} a value of the same type before the {block}",
            )
        return value

    # -- types

    def require(self, element: DType) -> DType:
        """The element type, if this compiler and the architecture have it."""
        self.target.require(element)
        if element.name in NOT_COMPILED_YET:
            raise TilecError(
                f"{element} is in the type system but not compiled yet", fix="cast to bf16 or f16 on the host"
            )
        return element

    def tile_type(self, shape: Iterable[int], element: DType) -> TileType:
        """The type of a tile, if one workgroup's registers can hold it."""
        shape = tuple(shape)
        self.require(element)
        if not 1 <= len(shape) <= MAX_RANK:
            raise TilecError(f"a tile of rank {len(shape)}", limit=f"tiles have 1 to {MAX_RANK} axes")
        size = element.bytes_of(math.prod(shape))
        target = self.target
        registers = target.registers_per_lane * min(self.waves, target.simds)
        limit = registers * target.wave_size * 4
        if size > limit:
            raise TilecError(
                f"a tile of {element}{list(shape)} is too large",
                limit=f"it is {size} bytes; all registers of {self.waves} waves on {target.name} are {limit} bytes",
                fix="use a smaller tile and a loop over tiles",
            )
        return TileType(shape, element)


def current() -> Tracer:
    tracer = _active.get()
    if tracer is None:
        raise TilecError(
            "tile operations work only while a kernel is traced",
            where=source.here(),
            fix="call them from a function decorated with @tc.kernel",
        )
    return tracer


def is_tracing() -> bool:
    return _active.get() is not None


def activate(tracer: Tracer | None) -> Tracer | None:
    """Makes a tracer the current one; returns the one before."""
    before = _active.get()
    _active.set(tracer)
    return before


def fit(value: bool | int | float, element: DType) -> bool | int | float:
    """A Python number as the element type holds it before rounding; integers must be in range."""
    if element.is_float:
        return float(value)
    if element.kind == "bool":
        return bool(value)
    low, high = element.limits
    if isinstance(value, float) or not low <= value <= high:
        raise TilecError(f"{value} does not fit {element}", limit=f"{element} holds {low} to {high}")
    return int(value)
