"""The meaning of a tile program: a numpy interpreter for every form, and the one place that computes a grid.

A workgroup runs op by op as a whole; an op's meaning is one small function under `@means`, its arithmetic is
`numerics`. Tiles are arrays of `numerics.held_as`, scalars numpy scalars, tensors windows on the caller's memory, LDS
rings arrays. Claims are checked: what raises is an axis marked `inside` that is not, a view beyond its tensor, and a
read of an LDS slot that was never written, whose bytes another buffer took over, or whose copy no barrier waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from tilec.dtypes import i32
from tilec.errors import InternalError, TilecError
from tilec.ir import numerics, tile
from tilec.ir.core import Block, Op, Program, SharedType, TensorType, TileType, Value, definitions, used_outside

Observer = Callable[[tuple[int, ...], Op, tuple[Any, ...]], None]


def run(program: Program, arguments: Mapping[str, Any], program_ids: Iterable[tuple[int, ...]] | None = None,
        observe: Observer | None = None) -> None:
    """Runs every workgroup of the grid (or those named), one after the other, on numpy arrays in place.

    Tensors are ndarrays of any strides in the tensor's numpy type; bf16 and smaller floats are ml_dtypes arrays or raw
    unsigned integers. `observe(program_id, op, results)` sees every op executed. Raises TilecError for arguments that
    do not fit.
    """
    values = {p: _bind(p, _argument(p, arguments)) for p in program.params}
    if program_ids is None:
        program_ids = np.ndindex(*evaluate_grid(program, arguments))
    for program_id in program_ids:
        _Workgroup(program, dict(values), tuple(program_id), observe).block(program.body)


def evaluate_grid(program: Program, arguments: Mapping[str, Any]) -> tuple[int, ...]:
    """The number of workgroups per axis of `program_id`, from the scalars and the tensors' `.shape` alone. Raises
    TilecError where these do not meet what the program requires."""
    given = [_argument(p, arguments) for p in program.params]
    key = tuple([tuple(a.shape) if isinstance(p.type, TensorType) else a for p, a in zip(program.params, given)])
    known = _GRIDS.setdefault(program, {})
    if key not in known:
        host = _Workgroup(program, {p: _bind_shape(p, a) for p, a in zip(program.params, given)}, (), None)
        required = [op for op in program.body.ops if isinstance(op, tile.Require)]
        for op in [*_ops_for(program, {*program.grid, *(op.condition for op in required)}), *required]:
            host.execute(op)
        if len(known) >= _KNOWN_GRIDS:
            known.clear()
        known[key] = tuple(max(0, int(host[extent])) for extent in program.grid)
    return known[key]


_KNOWN_GRIDS = 1000     # launches repeat their shapes: a grid is worked out once for each, until there are so many
_GRIDS: WeakKeyDictionary[Program, dict[tuple[Any, ...], tuple[int, ...]]] = WeakKeyDictionary()


def grid_ops(program: Program) -> list[Op]:
    """The top-level ops that the grid follows from, in order."""
    return _ops_for(program, set(program.grid))


def _ops_for(program: Program, live: set[Value]) -> list[Op]:
    """The top-level ops that the host evaluates to know these values."""
    needed = []
    for op in reversed(program.body.ops):
        if live.intersection(op.results):
            if op.effect or isinstance(op, tile.ProgramId):
                raise TilecError("the grid must follow from shapes and scalar arguments alone", where=op.where,
                                 limit=f"it depends on {op.mnemonic}")
            needed.append(op)
            live |= used_outside(op)
    return needed[::-1]


def same_numbers(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal element by element, where NaN equals NaN."""
    return bool(((a == b) | ((a != a) & (b != b))).all())


def first_difference(stages: Mapping[str, Program], arguments: Mapping[str, Any],
                     same: Callable[[np.ndarray, np.ndarray], bool] = same_numbers) -> str:
    """The first stage that leaves other memory than the first of all does, '' where all agree. Runs on copies."""
    expected = None
    for name, program in stages.items():
        copies = {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in arguments.items()}
        run(program, copies)
        memory = [v for v in copies.values() if isinstance(v, np.ndarray)]
        if expected is None:
            expected = memory
        elif not all(same(a, b) for a, b in zip(expected, memory)):
            return name
    return ""


# -- arguments -------------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class _Window:
    """A tensor or a view of one. `array` is None where only the shape is known and in an empty view."""

    array: Any
    extents: tuple[int, ...]


def _argument(parameter: Value, arguments: Mapping[str, Any]) -> Any:
    if parameter.name not in arguments:
        raise TilecError(f"no argument for parameter {parameter.name!r}",
                         limit=f"given: {', '.join(arguments) or 'none'}")
    return arguments[parameter.name]


def _bind_shape(parameter: Value, given: Any) -> Any:
    if isinstance(parameter.type, TensorType):
        return _Window(None, tuple(given.shape))
    return _bind_scalar(parameter, given)


def _bind_scalar(parameter: Value, given: Any) -> Any:
    element = parameter.dtype
    if not element.is_float and not element.limits[0] <= given <= element.limits[1]:
        raise TilecError(f"argument {parameter.name!r} does not fit {element}",
                         limit=f"{element} holds {element.limits[0]} to {element.limits[1]}, given {given}")
    return numerics.constant(given, element)


def _bind(parameter: Value, given: Any) -> Any:
    if not isinstance(parameter.type, TensorType):
        return _bind_scalar(parameter, given)
    element, rank = parameter.dtype, parameter.rank
    if not isinstance(given, np.ndarray) or given.ndim != rank:
        shown = f"shape {given.shape}" if isinstance(given, np.ndarray) else type(given).__name__
        raise TilecError(f"argument {parameter.name!r} must be an array of {rank} axes", limit=f"given {shown}")
    if given.dtype not in (element.numpy(), numerics.storage_of(element)):
        raise TilecError(f"argument {parameter.name!r} must hold {element}, not {given.dtype}")
    return _Window(given.view(numerics.storage_of(element)), given.shape)


# -- one workgroup ---------------------------------------------------------------------------------------------------

@dataclass
class _Ring:
    """A ring of LDS buffers. `copying[slot]` is the copy that no barrier has waited for yet."""

    type: SharedType
    offset: int
    data: np.ndarray
    written: list[bool]
    copying: list[Any]

    def overlaps(self, slot: int, other: _Ring, other_slot: int) -> bool:
        if min(self.offset, other.offset) < 0 or self is other:
            return False                                  # not placed yet: no bytes are shared
        mine, theirs = self._bytes(slot), other._bytes(other_slot)
        return mine.start < theirs.stop and theirs.start < mine.stop

    def _bytes(self, slot: int) -> range:
        start = self.offset + slot * self.type.slot_bytes
        return range(start, start + self.type.slot_bytes)


@dataclass(eq=False)
class _Completion:
    """The value of a token: which slot its access fills."""

    ring: _Ring
    slot: int


@dataclass
class _Workgroup:
    program: Program
    values: dict[Value, Any]
    program_id: tuple[int, ...]
    observe: Observer | None
    rings: list[_Ring] = field(default_factory=list)

    def block(self, block: Block) -> tuple[Any, ...]:
        for op in block.ops:
            self.execute(op)
        return tuple(self.values[v] for v in block.yields)

    def execute(self, op: Op) -> None:
        meaning = _MEANING.get(type(op))
        if meaning is None:
            raise InternalError(f"the interpreter knows no op {op.mnemonic!r}", where=op.where)
        given = meaning(self, op)
        results = given if isinstance(given, tuple) else () if given is None else (given,)
        self.values.update(zip(op.results, results, strict=True))
        if self.observe:
            self.observe(self.program_id, op, results)

    def __getitem__(self, value: Value) -> Any:
        return self.values[value]

    def all(self, values: Iterable[Value]) -> tuple[Any, ...]:
        return tuple(self.values[v] for v in values)


_MEANING: dict[type[Op], Callable[[_Workgroup, Any], Any]] = {}


def means(op_class: type[Op]) -> Callable[[Callable[[_Workgroup, Any], Any]], Callable[[_Workgroup, Any], Any]]:
    """Registers a function (workgroup, op) -> result, tuple of results, or None as the meaning of an op."""
    def register(function: Callable[[_Workgroup, Any], Any]) -> Callable[[_Workgroup, Any], Any]:
        _MEANING[op_class] = function
        return function
    return register


# -- values ----------------------------------------------------------------------------------------------------------

@means(tile.Constant)
def _constant(w: _Workgroup, op: tile.Constant) -> Any:
    number = numerics.constant(op.value, op.result.dtype)
    return np.full(op.result.shape, number) if isinstance(op.result.type, TileType) else number


@means(tile.Iota)
def _iota(w: _Workgroup, op: tile.Iota) -> Any:
    shape = op.result.shape
    along = numerics.cast(np.arange(shape[op.axis], dtype=np.int32), i32, op.result.dtype)
    return np.broadcast_to(along.reshape([-1 if a == op.axis else 1 for a in range(len(shape))]), shape)


@means(tile.ProgramId)
def _program_id(w: _Workgroup, op: tile.ProgramId) -> Any:
    return np.int32(w.program_id[op.axis])


@means(tile.Elementwise)
def _elementwise(w: _Workgroup, op: tile.Elementwise) -> Any:
    return numerics.elementwise(op.function, w.all(op.arguments), op.arguments[-1].dtype, op.result.dtype)


@means(tile.Cast)
def _cast(w: _Workgroup, op: tile.Cast) -> Any:
    return numerics.cast(w[op.source], op.source.dtype, op.result.dtype, op.saturate)


@means(tile.Broadcast)
def _broadcast(w: _Workgroup, op: tile.Broadcast) -> Any:
    return np.broadcast_to(w[op.source], op.result.shape)


@means(tile.ExpandDims)
def _expand_dims(w: _Workgroup, op: tile.ExpandDims) -> Any:
    return np.expand_dims(w[op.source], op.axis)


@means(tile.Permute)
def _permute(w: _Workgroup, op: tile.Permute) -> Any:
    return np.transpose(w[op.source], op.axes)


@means(tile.Reduce)
def _reduce(w: _Workgroup, op: tile.Reduce) -> Any:
    return numerics.reduce(op.kind, w[op.source], op.axis, op.source.dtype)


@means(tile.Dot)
def _dot(w: _Workgroup, op: tile.Dot) -> Any:
    factors = [w[op.a], w[op.b]]
    for index, scale in enumerate(op.scales):             # MX: one scale for each block of the contracted axis
        axis = 1 - index
        blocks = np.repeat(w[scale], factors[index].shape[axis] // w[scale].shape[axis], axis=axis)
        factors[index] = factors[index].astype(np.float64) * blocks
    return numerics.dot(*factors, w[op.accumulator], op.result.dtype)


@means(tile.ConvertLayout)
def _convert_layout(w: _Workgroup, op: tile.ConvertLayout) -> Any:
    return w[op.source]


# -- global memory ---------------------------------------------------------------------------------------------------

@means(tile.Dim)
def _dim(w: _Workgroup, op: tile.Dim) -> Any:
    return np.int32(w[op.tensor].extents[op.axis])


@means(tile.View)
def _view(w: _Workgroup, op: tile.View) -> Any:
    source = w[op.tensor]
    offsets, extents = [int(v) for v in w.all(op.offsets)], [int(v) for v in w.all(op.extents)]
    index: list[Any] = []
    empty = False
    for axis, (offset, extent, size) in enumerate(zip(offsets, extents, source.extents)):
        if axis not in op.axes:
            empty = empty or not 0 <= offset < size
            index.append(offset)
            continue
        if extent > 0 and not (0 <= offset and offset + extent <= size):
            raise TilecError(f"axis {axis} of a view lies outside its tensor", where=op.where,
                             limit=f"elements {offset} to {offset + extent} of {size}")
        index.append(slice(offset, offset + max(0, extent)))
    if empty:
        return _Window(None, (0,) * len(op.axes))
    kept = sorted(op.axes)
    array = None if source.array is None else source.array[tuple(index)].transpose([kept.index(a) for a in op.axes])
    return _Window(array, tuple(extents[a] for a in op.axes))


def _tile_region(w: _Workgroup, op: Any, shape: tuple[int, ...]) -> tuple[tuple[slice, ...], tuple[slice, ...]] | None:
    """The part of a tile that lies in the tensor: its slices in the tensor and in the tile; None where nothing does."""
    window: _Window = w[op.tensor]
    claims = op.inside or (False,) * len(shape)
    within, of_tile = [], []
    for index, size, extent in zip(w.all(op.indices), shape, window.extents):
        start = int(index) * size
        low, high = max(0, -start), min(size, extent - start)
        within.append(slice(start + low, start + high))
        of_tile.append(slice(low, high))
    if any(s.start >= s.stop and not claimed for s, claimed in zip(of_tile, claims)):
        return None                                           # the other axes are not looked at
    for axis, (size, part, claimed) in enumerate(zip(shape, of_tile, claims)):
        if claimed and (part.start, part.stop) != (0, size):
            start = int(w[op.indices[axis]]) * size
            raise InternalError(f"{op.mnemonic} claims to be inside along axis {axis} and is not", where=op.where,
                                limit=f"elements {start} to {start + size} of {window.extents[axis]}")
    return tuple(within), tuple(of_tile)


def _read_tile(w: _Workgroup, op: Any, target: Value, fill: Any) -> Any:
    element = target.dtype
    result = np.full(target.shape, fill, numerics.held_as(element))
    region = _tile_region(w, op, target.shape)
    if region:
        within, of_tile = region
        result[of_tile] = numerics.decode(w[op.tensor].array[within], element)
    return result


def _writable(window: _Window, op: Any) -> Any:
    if not window.array.flags.writeable:
        raise TilecError("the kernel writes to an array that is read-only", where=op.where)
    return window.array


@means(tile.Load)
def _load(w: _Workgroup, op: tile.Load) -> Any:
    return _read_tile(w, op, op.result, 0 if op.fill is None else w[op.fill])


@means(tile.Store)
def _store(w: _Workgroup, op: tile.Store) -> None:
    region = _tile_region(w, op, op.value.shape)
    if region:
        within, of_tile = region
        _writable(w[op.tensor], op)[within] = numerics.encode(w[op.value][of_tile], op.value.dtype)


def _places(w: _Workgroup, op: Any, shape: tuple[int, ...]) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """Where a per-element access goes: index arrays of the elements inside the tensor, and which elements those are."""
    window: _Window = w[op.tensor]
    indices = [np.broadcast_to(np.asarray(i, np.int64), shape) for i in w.all(op.indices)]
    inside = np.full(shape, True)
    for index, extent in zip(indices, window.extents):
        inside &= (index >= 0) & (index < extent)
    return tuple(i[inside] for i in indices), inside


@means(tile.LoadScalar)
def _load_scalar(w: _Workgroup, op: tile.LoadScalar) -> Any:
    places, inside = _places(w, op, ())
    element = op.result.dtype
    if not inside:
        return numerics.constant(0, element)
    return numerics.decode(w[op.tensor].array[places], element)[0]


@means(tile.Gather)
def _gather(w: _Workgroup, op: tile.Gather) -> Any:
    element = op.result.dtype
    places, inside = _places(w, op, op.result.shape)
    result = np.full(op.result.shape, 0 if op.fill is None else w[op.fill], numerics.held_as(element))
    if inside.any():
        result[inside] = numerics.decode(w[op.tensor].array[places], element)
    return result


@means(tile.Scatter)
def _scatter(w: _Workgroup, op: tile.Scatter) -> None:
    places, inside = _places(w, op, op.value.shape)
    if inside.any():
        _writable(w[op.tensor], op)[places] = numerics.encode(w[op.value][inside], op.value.dtype)


@means(tile.AtomicAdd)
def _atomic_add(w: _Workgroup, op: tile.AtomicAdd) -> None:
    element = op.value.dtype
    places, inside = _places(w, op, op.value.shape)
    if not inside.any():
        return
    array = _writable(w[op.tensor], op)
    values = w[op.value][inside]
    if numerics.storage_of(element) == numerics.work_type(element):
        with np.errstate(all="ignore"):
            np.add.at(array, places, values)
        return
    for place, value in zip(zip(*places), values):        # 16-bit floats round after each addition
        total = numerics.elementwise("add", (numerics.decode(array[place], element), value), element, element)
        array[place] = numerics.encode(total, element)


# -- control ---------------------------------------------------------------------------------------------------------

@means(tile.For)
def _for(w: _Workgroup, op: tile.For) -> tuple[Any, ...]:
    lower, upper, step = (int(w[v]) for v in (op.lower, op.upper, op.step))
    if step <= 0:
        raise TilecError("a loop's step must be positive", where=op.where, limit=f"step {step}")
    carried = w.all(op.inits)
    for counter in range(lower, upper, step):
        w.values.update(zip(op.body.params, (np.int32(counter), *carried)))
        carried = w.block(op.body)
    return carried


@means(tile.If)
def _if(w: _Workgroup, op: tile.If) -> tuple[Any, ...]:
    return w.block(op.then if w[op.condition] else op.otherwise)


@means(tile.Require)
def _require(w: _Workgroup, op: tile.Require) -> None:
    if not w[op.condition]:
        raise TilecError(f"kernel {w.program.name}: {op.text}", where=op.where, limit=_unmet(w, op.condition))


_COMPARISONS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}


def _unmet(w: _Workgroup, condition: Value) -> str:
    """The condition in numbers, and the shapes and scalars that it follows from."""
    made_by = definitions(w.program.body)
    sources: dict[str, None] = {}

    def collect(value: Value) -> None:
        match made_by.get(value):
            case None:
                sources[f"{value.name} = {w[value]}"] = None
            case tile.Dim() as op:
                sources[f"{op.tensor.name}.shape[{op.axis}] = {w[value]}"] = None
            case op:
                for operand in op.operands:
                    if not isinstance(operand.type, TensorType):
                        collect(operand)

    def shown(value: Value) -> str:
        match made_by.get(value):
            case tile.Elementwise(function="and") as op:
                return " and ".join(shown(a) for a in op.arguments if not w[a])
            case tile.Elementwise() as op if op.function in _COMPARISONS:
                left, right = w.all(op.arguments)
                return f"{left} {_COMPARISONS[op.function]} {right}"
        return "the condition"

    collect(condition)
    return f"{shown(condition)} does not hold; {', '.join(sources)}"


# -- LDS -------------------------------------------------------------------------------------------------------------

@means(tile.Alloc)
def _alloc(w: _Workgroup, op: tile.Alloc) -> _Ring:
    shared = op.result.type
    assert isinstance(shared, SharedType)
    data = np.zeros((shared.slots, *shared.shape), numerics.held_as(shared.dtype))
    ring = _Ring(shared, op.offset, data, [False] * shared.slots, [None] * shared.slots)
    w.rings.append(ring)
    return ring


def _slot(w: _Workgroup, op: Any) -> tuple[_Ring, int]:
    ring, slot = w[op.buffer], 0 if op.slot is None else int(w[op.slot])
    if not 0 <= slot < ring.type.slots:
        raise InternalError(f"{op.mnemonic} names slot {slot} of a ring of {ring.type.slots}", where=op.where)
    return ring, slot


def _fill_slot(w: _Workgroup, op: Any, value: Any) -> _Completion:
    ring, slot = _slot(w, op)
    ring.data[slot] = value
    ring.written[slot] = True
    for other in w.rings:
        for index in range(other.type.slots):
            if ring.overlaps(slot, other, index):
                other.written[index] = False
    return _Completion(ring, slot)


@means(tile.SharedWrite)
def _shared_write(w: _Workgroup, op: tile.SharedWrite) -> _Completion:
    return _fill_slot(w, op, w[op.value])


@means(tile.AsyncCopy)
def _async_copy(w: _Workgroup, op: tile.AsyncCopy) -> _Completion:
    token = _fill_slot(w, op, _read_tile(w, op, op.buffer, 0))
    if w.program.form == "clustered":         # before that form nothing runs ahead and no barrier exists
        token.ring.copying[token.slot] = token
    return token


@means(tile.SharedRead)
def _shared_read(w: _Workgroup, op: tile.SharedRead) -> Any:
    ring, slot = _slot(w, op)
    if not ring.written[slot]:
        raise InternalError(f"LDS slot {slot} of %{op.buffer.name} is read but not written", where=op.where)
    if ring.copying[slot] is not None:
        raise InternalError(f"LDS slot {slot} of %{op.buffer.name} is read before a barrier waits for its copy",
                            where=op.where)
    data = ring.data[slot].copy()
    data = data.transpose(op.axes) if op.axes else data
    return (data, _Completion(ring, slot)) if len(op.results) == 2 else data


@means(tile.Barrier)
def _barrier(w: _Workgroup, op: tile.Barrier) -> None:
    for token in w.all(op.after):
        if isinstance(token, _Completion) and token.ring.copying[token.slot] is token:
            token.ring.copying[token.slot] = None


@means(tile.Await)
@means(tile.ClusterBegin)
@means(tile.ClusterEnd)
def _order_only(w: _Workgroup, op: Op) -> None:
    """Says something of the order of execution, nothing of values."""


assert set(_MEANING) >= {c for c in vars(tile).values() if isinstance(c, type) and issubclass(c, Op) and c.mnemonic}
