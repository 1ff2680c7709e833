"""The ops of a tile program, and what each form allows.

`traced`: what the user wrote: no layouts, no LDS. `laid_out`: every tile has a layout; conversions and LDS traffic are
ops. `clustered`: loops are pipelined, ops of marked loops stand in clusters, barriers carry their reasons. Tiles and
scalars share the elementwise ops. Index arithmetic is i32; element addresses are formed in 64 bits by the backend.
`ir/verify.py` checks a program against its form; the meaning of each op is `ir/interp.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilec.dtypes import DType
from tilec.ir.core import (
    Block,
    Effect,
    Op,
    Value,
    attribute,
    operand,
    region,
    register,
    used_outside,
)
from tilec.ir.layout import Layout

# name -> (number of arguments, result). 'same': the type of the arguments; 'bool': a comparison; the first argument of
# `where` is a bool. Integer floordiv and mod have Python's floor semantics; shifts are arithmetic for signed types.
ELEMENTWISE: dict[str, tuple[int, str]] = {
    "add": (2, "same"), "sub": (2, "same"), "mul": (2, "same"), "div": (2, "same"), "floordiv": (2, "same"),
    "mod": (2, "same"),
    "minimum": (2, "same"), "maximum": (2, "same"), "and": (2, "same"), "or": (2, "same"), "xor": (2, "same"),
    "shl": (2, "same"), "shr": (2, "same"), "fma": (3, "same"),
    "neg": (1, "same"), "abs": (1, "same"), "not": (1, "same"),
    "exp2": (1, "same"), "exp": (1, "same"), "log2": (1, "same"), "log": (1, "same"), "sqrt": (1, "same"),
    "rsqrt": (1, "same"),
    "reciprocal": (1, "same"), "sin": (1, "same"), "cos": (1, "same"), "floor": (1, "same"), "ceil": (1, "same"),
    "lt": (2, "bool"), "le": (2, "bool"), "gt": (2, "bool"), "ge": (2, "bool"), "eq": (2, "bool"), "ne": (2, "bool"),
    "where": (3, "same"),
}
REDUCTIONS = ("sum", "max", "min")
_INTEGERS, _BITS, _FLOATS, _NUMBERS = ("int", "uint"), ("int", "uint", "bool"), ("float",), ("int", "uint", "float")
_KINDS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("floordiv", "mod", "shl", "shr"), _INTEGERS), **dict.fromkeys(("and", "or", "xor", "not"), _BITS),
    **dict.fromkeys(("div", "exp2", "exp", "log2", "log", "sqrt", "rsqrt", "reciprocal", "sin", "cos", "floor", "ceil"),
                    _FLOATS),
    **dict.fromkeys(("eq", "ne", "where"), (*_NUMBERS, "bool")),
}


def accepts(function: str, dtype: DType) -> bool:
    """Whether the arguments of an elementwise function (of `where`: the last two) may have this dtype."""
    return dtype.kind in _KINDS.get(function, _NUMBERS)


@register
@dataclass(frozen=True, eq=False)
class Constant(Op):
    """A number; as a tile, every element holds it. `value` is a Python int, float or bool."""

    mnemonic: ClassVar[str] = "constant"
    value: int | float | bool = attribute()


@register
@dataclass(frozen=True, eq=False)
class Iota(Op):
    """A tile whose elements hold their own coordinate along `axis`."""

    mnemonic: ClassVar[str] = "iota"
    axis: int = attribute(0)


@register
@dataclass(frozen=True, eq=False)
class ProgramId(Op):
    """This workgroup's index along one axis of the program's grid (i32)."""

    mnemonic: ClassVar[str] = "program_id"
    axis: int = attribute()


@register
@dataclass(frozen=True, eq=False)
class Dim(Op):
    """The extent of a tensor or view along an axis (i32)."""

    mnemonic: ClassVar[str] = "dim"
    tensor: Value = operand()
    axis: int = attribute()


@register
@dataclass(frozen=True, eq=False)
class View(Op):
    """A window into a tensor: per axis of the tensor an element offset and an extent, both i32 scalars and both inside
    of it.

    `axes` lists the kept axes in the view's order, so that a view may also transpose. The others have been indexed
    (their extent says nothing): they vanish, and where the index is outside the tensor the view is empty: all its
    extents are 0.
    """

    mnemonic: ClassVar[str] = "view"
    tensor: Value = operand()
    offsets: tuple[Value, ...] = operand()
    extents: tuple[Value, ...] = operand()
    axes: tuple[int, ...] = attribute()


@register
@dataclass(frozen=True, eq=False)
class Elementwise(Op):
    """`function` of ELEMENTWISE applied element by element; all arguments have the result's shape (scalars: a scalar
    result). `rare`, of a `where` of tiles: the condition seldom holds, and a wave in which it holds nowhere shall not
    compute what only this choice needs; the result is the same."""

    mnemonic: ClassVar[str] = "map"
    arguments: tuple[Value, ...] = operand()
    function: str = attribute()
    rare: bool = attribute(False)


@register
@dataclass(frozen=True, eq=False)
class Cast(Op):
    """Conversion to the result's dtype. Floats round to nearest even; float to integer truncates and clamps (NaN gives
    0). `saturate`: a finite value beyond the largest finite one of a narrower float becomes that one instead of
    infinity."""

    mnemonic: ClassVar[str] = "cast"
    source: Value = operand()
    saturate: bool = attribute(False)


@register
@dataclass(frozen=True, eq=False)
class Broadcast(Op):
    """Repeats a scalar, or a tile along its axes of size 1, to the result's shape (same rank)."""

    mnemonic: ClassVar[str] = "broadcast"
    source: Value = operand()


@register
@dataclass(frozen=True, eq=False)
class ExpandDims(Op):
    """Inserts an axis of size 1 at `axis`."""

    mnemonic: ClassVar[str] = "expand_dims"
    source: Value = operand()
    axis: int = attribute()


@register
@dataclass(frozen=True, eq=False)
class Permute(Op):
    """Reorders axes: axis i of the result is axis `axes[i]` of the source."""

    mnemonic: ClassVar[str] = "permute"
    source: Value = operand()
    axes: tuple[int, ...] = attribute()


@register
@dataclass(frozen=True, eq=False)
class Reduce(Op):
    """Combines a tile along `axis`, which vanishes (a 1-D tile gives a scalar). 16-bit floats accumulate in f32.
    The order of a sum is not specified; max and min ignore NaN unless all elements are NaN."""

    mnemonic: ClassVar[str] = "reduce"
    source: Value = operand()
    axis: int = attribute()
    kind: str = attribute()
    scratch: Value | None = operand(None)     # laid_out: LDS for what waves exchange, where the axis crosses waves


@register
@dataclass(frozen=True, eq=False)
class Dot(Op):
    """a (M x K) times b (K x N) plus `accumulator` (M x N, f32, f64 or i32). `scales` holds MX scales, one per operand,
    or nothing."""

    mnemonic: ClassVar[str] = "dot"
    a: Value = operand()
    b: Value = operand()
    accumulator: Value = operand()
    scales: tuple[Value, ...] = operand(())
    instruction: str = attribute("")     # laid_out: the MFMA chosen
    swapped: bool = attribute(False)     # laid_out: computed as (b^T a^T)^T, so that a lane holds consecutive columns


@register
@dataclass(frozen=True, eq=False)
class Load(Op):
    """The tile at tile index `indices` of a tensor: element i along axis d has coordinate indices[d] * shape[d] + i.
    Elements outside the tensor are `fill` (a scalar; zero when None). `inside[d]` says that axis d is known to be
    within bounds."""

    mnemonic: ClassVar[str] = "load"
    effect: ClassVar[Effect] = Effect.READ
    tensor: Value = operand()
    indices: tuple[Value, ...] = operand()
    fill: Value | None = operand(None)
    inside: tuple[bool, ...] = attribute(())


@register
@dataclass(frozen=True, eq=False)
class Store(Op):
    """Writes a tile at tile index `indices`; elements outside the tensor are dropped."""

    mnemonic: ClassVar[str] = "store"
    effect: ClassVar[Effect] = Effect.WRITE
    tensor: Value = operand()
    indices: tuple[Value, ...] = operand()
    value: Value = operand()
    inside: tuple[bool, ...] = attribute(())


@register
@dataclass(frozen=True, eq=False)
class LoadScalar(Op):
    """One element at element coordinates `indices` (scalars); 0 outside the tensor."""

    mnemonic: ClassVar[str] = "load_scalar"
    effect: ClassVar[Effect] = Effect.READ
    tensor: Value = operand()
    indices: tuple[Value, ...] = operand()


@register
@dataclass(frozen=True, eq=False)
class Gather(Op):
    """Element by element: reads the tensor at the element coordinates given by one i32 tile per axis; `fill` (or 0)
    outside."""

    mnemonic: ClassVar[str] = "gather"
    effect: ClassVar[Effect] = Effect.READ
    tensor: Value = operand()
    indices: tuple[Value, ...] = operand()
    fill: Value | None = operand(None)


@register
@dataclass(frozen=True, eq=False)
class Scatter(Op):
    """Element by element: writes `value` at the coordinates given by one i32 tile per axis; dropped outside.
    Where several elements name one place, one of them ends there, which one is not specified."""

    mnemonic: ClassVar[str] = "scatter"
    effect: ClassVar[Effect] = Effect.WRITE
    tensor: Value = operand()
    indices: tuple[Value, ...] = operand()
    value: Value = operand()


@register
@dataclass(frozen=True, eq=False)
class AtomicAdd(Op):
    """Element by element: adds `value` atomically (device scope, relaxed) at the coordinates given by one i32 tile per
    axis."""

    mnemonic: ClassVar[str] = "atomic_add"
    effect: ClassVar[Effect] = Effect.ATOMIC
    tensor: Value = operand()
    indices: tuple[Value, ...] = operand()
    value: Value = operand()


@register
@dataclass(frozen=True, eq=False)
class For(Op):
    """Counts from `lower` while below `upper` by `step` (i32 scalars, step > 0). The body's parameters are the counter
    and the carried values, it yields the next carried values; the results are the carried values after the last
    trip."""

    mnemonic: ClassVar[str] = "for"
    lower: Value = operand()
    upper: Value = operand()
    step: Value = operand()
    inits: tuple[Value, ...] = operand()
    body: Block = region()
    scheduled: bool = attribute(False)      # its barriers were derived with its clusters


@register
@dataclass(frozen=True, eq=False)
class If(Op):
    """Runs one of two blocks by a scalar bool; both yield the results."""

    mnemonic: ClassVar[str] = "if"
    condition: Value = operand()
    then: Block = region()
    otherwise: Block = region()
    scheduled: bool = attribute(False)


# -- form laid_out and later -----------------------------------------------------------------------------------------

@register
@dataclass(frozen=True, eq=False)
class ConvertLayout(Op):
    """The same tile in the result's layout, by moving registers within a lane only, or between lanes of a wave."""

    mnemonic: ClassVar[str] = "convert_layout"
    source: Value = operand()


@register
@dataclass(frozen=True, eq=False)
class Alloc(Op):
    """A ring of tile buffers in LDS. Buffers whose lives do not overlap may share bytes (`passes/place_lds.py`):
    `offset` is the first byte once placed, -1 before."""

    mnemonic: ClassVar[str] = "alloc"
    offset: int = attribute(-1)


@register
@dataclass(frozen=True, eq=False)
class SharedWrite(Op):
    """Writes a tile to one slot of an LDS ring (`slot`: i32 scalar, None for slot 0). The result is its completion."""

    mnemonic: ClassVar[str] = "shared_write"
    effect: ClassVar[Effect] = Effect.WRITE
    buffer: Value = operand()
    value: Value = operand()
    slot: Value | None = operand(None)
    phase: int | None = attribute(None)     # in a loop that takes the slots in turn: slots ahead of the trip's own


@register
@dataclass(frozen=True, eq=False)
class SharedRead(Op):
    """Reads a tile from one slot of an LDS ring. `axes` permutes: axis i of the result is axis `axes[i]` of the buffer.
    A second result, if there is one, is the read's completion."""

    mnemonic: ClassVar[str] = "shared_read"
    effect: ClassVar[Effect] = Effect.READ
    buffer: Value = operand()
    slot: Value | None = operand(None)
    axes: tuple[int, ...] = attribute(())
    phase: int | None = attribute(None)


@register
@dataclass(frozen=True, eq=False)
class AsyncCopy(Op):
    """Copies a tile from a tensor straight to LDS, past the registers. Bounds as for Load with a fill of 0; only axes
    whose bounds fall on whole copies may lack `inside`. `layout` says which lane copies what. The result is its
    completion."""

    mnemonic: ClassVar[str] = "async_copy"
    effect: ClassVar[Effect] = Effect.WRITE
    tensor: Value = operand()
    indices: tuple[Value, ...] = operand()
    buffer: Value = operand()
    slot: Value | None = operand(None)
    inside: tuple[bool, ...] = attribute(())
    layout: Layout | None = attribute(None)
    phase: int | None = attribute(None)


@register
@dataclass(frozen=True, eq=False)
class Barrier(Op):
    """All waves of the workgroup meet. `after` lists the accesses that must be complete before this wave arrives:
    tokens of writes that the barrier publishes, and tiles read from buffers that it hands over. `reason`: 'publish',
    'hand over', 'phase'."""

    mnemonic: ClassVar[str] = "barrier"
    effect: ClassVar[Effect] = Effect.BARRIER
    after: tuple[Value, ...] = operand(())
    reason: str = attribute("publish")
    # 'leading' or 'trailing': only these waves meet it, to set one half a cluster behind
    half: str = attribute("")


@register
@dataclass(frozen=True, eq=False)
class Await(Op):
    """The accesses whose completions are listed are over for this wave."""

    mnemonic: ClassVar[str] = "await"
    effect: ClassVar[Effect] = Effect.BARRIER
    after: tuple[Value, ...] = operand(())


@register
@dataclass(frozen=True, eq=False)
class ClusterBegin(Op):
    """Ops from here to the ClusterEnd belong together: what stands beside dots is spread between them by the backend.
    `kind`: memory, compute, or mixed (both). `priority`: of the wave inside (s_setprio)."""

    mnemonic: ClassVar[str] = "cluster_begin"
    effect: ClassVar[Effect] = Effect.BARRIER
    name: str = attribute("")
    kind: str = attribute("compute")
    priority: int = attribute(0)


@register
@dataclass(frozen=True, eq=False)
class ClusterEnd(Op):
    """Closes the cluster opened last."""

    mnemonic: ClassVar[str] = "cluster_end"
    effect: ClassVar[Effect] = Effect.BARRIER


@register
@dataclass(frozen=True, eq=False)
class Require(Op):
    """What a launch must satisfy: the host evaluates the condition together with the grid, and refuses the launch with
    `text` where it is false. Only the traced program has it; `simplify` leaves it to the host."""

    mnemonic: ClassVar[str] = "require"
    effect: ClassVar[Effect] = Effect.WRITE     # kept, though nobody reads it
    condition: Value = operand()
    text: str = attribute()


LAID_OUT_ONLY = (ConvertLayout, Alloc, SharedWrite, SharedRead, AsyncCopy, Barrier, Await, ClusterBegin, ClusterEnd)


def loads_to_lds(body: Block) -> dict[Value, Load]:
    """The loads of a block, by result, that are for one write to LDS and nothing else: they may run trips ahead of the
    rest."""
    written, elsewhere = set[Value](), set(body.yields)
    for op in body.ops:
        for value in used_outside(op):
            if value in written or not isinstance(op, SharedWrite):
                elsewhere.add(value)
            written.add(value)
    return {op.result: op for op in body.ops if isinstance(op, Load) and op.result not in elsewhere}
