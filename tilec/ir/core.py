"""The bones of a tile program: values, ops, blocks, programs.

An op is a small frozen dataclass whose fields are declared as `operand()`, `attribute()` or `region()`. Printing,
parsing, walking, cloning and dead-code removal follow from the declaration, so a new op is its fields and nothing more.
Values are SSA names compared by identity; programs are immutable, and a pass builds a new one (it may reuse ops and
values). Control flow is structured: an op's regions are blocks with parameters and yields, and see the values defined
before the op.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

from tilec.dtypes import DType
from tilec.errors import Location
from tilec.ir.layout import Layout
from tilec.ir.shared_layout import SharedLayout

# -- types -----------------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class ScalarType:
    """One number, the same in every lane of the workgroup."""

    dtype: DType


@dataclass(frozen=True)
class TileType:
    """A tile of numbers. `layout` (forms laid_out and later) says which item of which lane of which wave holds each
    element."""

    shape: tuple[int, ...]
    dtype: DType
    layout: Layout | None = None


FAR_STRIDE, FAR_ROWS = (1 << 19) - 16, 1 << 12     # their product, and a row beside it, stay below 2 GiB


@dataclass(frozen=True)
class TensorType:
    """A tensor in global memory, or a view of one. What is written here specialises the object; shapes and stride
    values do not.

    `contiguous` is the axis whose stride is 1 (None: no axis is known to be). `alignment` (bytes) divides the base
    address and, in bytes, every stride but that of the contiguous axis. A tensor that is not `wide` spans less than
    2 GiB, so that all its byte offsets fit in 31 bits. Of a wide one that is not `far` those within a tile do: no
    stride is negative or exceeds FAR_STRIDE.
    """

    dtype: DType
    rank: int
    contiguous: int | None = None
    alignment: int = 1
    wide: bool = False
    far: bool = False

    def offsets_fit(self, shape: tuple[int, ...]) -> bool:
        """Whether byte offsets within a tile of `shape` are known to fit in 31 bits."""
        rows = sum(size - 1 for axis, size in enumerate(shape) if axis != self.contiguous)
        return not self.wide or (not self.far and rows < FAR_ROWS)


@dataclass(frozen=True)
class SharedType:
    """A ring of `slots` tile buffers in LDS."""

    shape: tuple[int, ...]
    dtype: DType
    slots: int = 1
    layout: SharedLayout | None = None

    @property
    def slot_bytes(self) -> int:
        """Bytes from one slot to the next: aligned for the widest LDS instruction (16 bytes)."""
        assert self.layout is not None
        return -(-self.layout.bytes // 16) * 16

    @property
    def bytes(self) -> int:
        """Bytes of all slots."""
        return self.slot_bytes * self.slots


@dataclass(frozen=True)
class TokenType:
    """The completion of an access to LDS; barriers wait for tokens."""


Type = ScalarType | TileType | TensorType | SharedType | TokenType


# -- values, ops, blocks ---------------------------------------------------------------------------------------------

@dataclass(frozen=True, eq=False)
class Value:
    """An SSA name. `name` is a hint taken from the user's code; identity, not the name, tells values apart."""

    type: Type
    name: str = ""

    @property
    def dtype(self) -> DType:
        """The element type; tokens have none."""
        assert not isinstance(self.type, TokenType), self
        return self.type.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a tile or LDS buffer; () for a scalar."""
        return self.type.shape if isinstance(self.type, (TileType, SharedType)) else ()

    @property
    def rank(self) -> int:
        """The number of axes of a tensor."""
        return self.tensor_type.rank

    @property
    def tile_type(self) -> TileType:
        assert isinstance(self.type, TileType), self
        return self.type

    @property
    def tensor_type(self) -> TensorType:
        assert isinstance(self.type, TensorType), self
        return self.type

    @property
    def shared_type(self) -> SharedType:
        assert isinstance(self.type, SharedType), self
        return self.type

    @property
    def layout(self) -> Layout:
        """The layout of a tile, which form laid_out and later have."""
        layout = self.tile_type.layout
        assert layout is not None, self
        return layout

    @property
    def shared_layout(self) -> SharedLayout:
        """The layout of an LDS buffer, once solved."""
        layout = self.shared_type.layout
        assert layout is not None, self
        return layout

    def like(self, type: Type | None = None, name: str | None = None) -> Value:
        """A new value with this one's type and name, each replaceable."""
        return Value(type or self.type, self.name if name is None else name)


class Effect(enum.IntEnum):
    """What an op does to memory, ordered: an op above READ is never removed; ops above NONE keep their order to
    conflicting ones."""

    NONE = 0
    READ = 1
    WRITE = 2
    ATOMIC = 3
    BARRIER = 4


def operand(default: Any = dataclasses.MISSING) -> Any:
    """A Value, None, or a tuple of Values."""
    return field(default=default, metadata={"kind": "operand"})


def attribute(default: Any = dataclasses.MISSING) -> Any:
    """Plain hashable data with a text form."""
    return field(default=default, metadata={"kind": "attribute"})


def region(default: Any = dataclasses.MISSING) -> Any:
    """A nested Block."""
    return field(default=default, metadata={"kind": "region"})


@dataclass(frozen=True, eq=False)
class Op:
    """Base of every op. `results` are the values it defines, `where` the user's line."""

    results: tuple[Value, ...] = field(kw_only=True, default=())
    where: Location | None = field(kw_only=True, default=None)

    mnemonic: ClassVar[str] = ""
    effect: ClassVar[Effect] = Effect.NONE

    @property
    def result(self) -> Value:
        (only,) = self.results
        return only

    @property
    def operands(self) -> tuple[Value, ...]:
        """All operands, flattened in field order."""
        found: list[Value] = []
        for f in fields_of(type(self), "operand"):
            value = getattr(self, f)
            if isinstance(value, Value):
                found.append(value)
            elif value is not None:
                found.extend(value)
        return tuple(found)

    @property
    def attributes(self) -> dict[str, Any]:
        return {f: getattr(self, f) for f in fields_of(type(self), "attribute")}

    @property
    def regions(self) -> tuple[Block, ...]:
        return tuple(b for f in fields_of(type(self), "region") if (b := getattr(self, f)) is not None)

    def replace(self, **changes: Any) -> Any:
        return dataclasses.replace(self, **changes)

    def map_operands(self, change: Callable[[Value], Value]) -> Any:
        """This op with `change` applied to each operand (not inside regions); itself when nothing changes."""
        changes: dict[str, Any] = {}
        for f in fields_of(type(self), "operand"):
            old = getattr(self, f)
            if old is None:
                continue
            new = change(old) if isinstance(old, Value) else tuple(change(v) for v in old)
            if new != old:
                changes[f] = new
        return dataclasses.replace(self, **changes) if changes else self

    def map_regions(self, change: Callable[[Block], Block]) -> Any:
        changes = {f: change(b) for f in fields_of(type(self), "region") if (b := getattr(self, f)) is not None}
        return dataclasses.replace(self, **changes) if changes else self


_FIELDS: dict[tuple[type, str], tuple[str, ...]] = {}


def fields_of(op_class: type, kind: str) -> tuple[str, ...]:
    """Names of an op class's fields of one kind ('operand', 'attribute', 'region'), in declaration order."""
    key = (op_class, kind)
    if key not in _FIELDS:
        _FIELDS[key] = tuple(f.name for f in dataclasses.fields(op_class) if f.metadata.get("kind") == kind)
    return _FIELDS[key]


OPS: dict[str, type[Op]] = {}
OpClass = TypeVar("OpClass", bound=Op)


def register(op_class: type[OpClass]) -> type[OpClass]:
    """Class decorator: makes the op known to the text format under its mnemonic."""
    assert op_class.mnemonic and op_class.mnemonic not in OPS, op_class
    OPS[op_class.mnemonic] = op_class
    return op_class


@dataclass(frozen=True, eq=False)
class Block:
    """A straight run of ops with parameters at its head and yielded values at its end."""

    params: tuple[Value, ...] = ()
    ops: tuple[Op, ...] = ()
    yields: tuple[Value, ...] = ()

    def walk(self) -> Iterator[Op]:
        """Every op of this block and of the regions below it, outer before inner."""
        for op in self.ops:
            yield op
            for inner in op.regions:
                yield from inner.walk()


TILE_FORMS = ("traced", "laid_out", "clustered")


@dataclass(frozen=True, eq=False)
class Program:
    """A kernel as a tile program. `params` are tensors and scalars; `grid` are scalar values of the body's top level,
    one per axis of `program_id`, that the host evaluates from the arguments to launch the kernel (slowest axis
    first)."""

    name: str
    params: tuple[Value, ...]
    body: Block
    grid: tuple[Value, ...] = ()
    form: str = "traced"
    waves: int = 4
    where: Location | None = None

    def replace(self, **changes: Any) -> Program:
        return dataclasses.replace(self, **changes)

    def walk(self) -> Iterator[Op]:
        return self.body.walk()


# -- building and rewriting ------------------------------------------------------------------------------------------

class Builder:
    """Collects ops in order; `emit` returns the op's only result (or the tuple of several)."""

    def __init__(self) -> None:
        self.ops: list[Op] = []

    def emit(self, op: Op) -> Any:
        self.ops.append(op)
        return op.results[0] if len(op.results) == 1 else op.results

    def block(self, params: Iterable[Value] = (), yields: Iterable[Value] = ()) -> Block:
        return Block(tuple(params), tuple(self.ops), tuple(yields))


class Substitution:
    """Maps values to their replacements while a program is rebuilt."""

    def __init__(self) -> None:
        self.map: dict[Value, Value] = {}

    def __call__(self, value: Value) -> Value:
        return self.map.get(value, value)

    def __setitem__(self, old: Value, new: Value) -> None:
        self.map[old] = new


def clone_block(block: Block, substitution: Substitution) -> Block:
    """A copy of the block in which every value defined inside is new; operands from outside go through
    `substitution`."""
    params = tuple(fresh(p, substitution) for p in block.params)
    ops = tuple(clone_op(op, substitution) for op in block.ops)
    return Block(params, ops, tuple(substitution(v) for v in block.yields))


def clone_op(op: Op, substitution: Substitution) -> Op:
    """A copy of the op with new results; `substitution` learns them."""
    op = op.map_operands(substitution).map_regions(lambda b: clone_block(b, substitution))
    return op.replace(results=tuple(fresh(r, substitution) for r in op.results))


def fresh(value: Value, substitution: Substitution) -> Value:
    new = value.like()
    substitution[value] = new
    return new


def definitions(block: Block) -> dict[Value, Op]:
    """The op that defines each value of the block and of the regions below it (block parameters have none)."""
    return {result: op for op in block.walk() for result in op.results}


def used_outside(op: Op) -> set[Value]:
    """Values that the op and its regions read and that are defined outside of the op."""
    used, defined = set(op.operands), set(op.results)
    for block in op.regions:
        defined.update(block.params)
        used.update(block.yields)
        for inner in block.ops:
            used |= used_outside(inner)
            defined.update(inner.results)
    return used - defined


def remove_dead(program: Program) -> Program:
    """The program without ops whose results nobody reads and that change no memory."""
    live: set[Value] = set(program.grid)

    def sweep(block: Block) -> Block:
        live.update(block.yields)
        kept: list[Op] = []
        for op in reversed(block.ops):
            if any(r in live for r in op.results) or changes_memory(op):
                op = op.map_regions(sweep)
                live.update(op.operands)
                kept.append(op)
        return Block(block.params, tuple(reversed(kept)), block.yields)

    return program.replace(body=sweep(program.body))


def changes_memory(op: Op) -> bool:
    return op.effect > Effect.READ or any(changes_memory(inner) for b in op.regions for inner in b.ops)
