"""The rules of tile programs: SSA scoping, each op's types, what a form allows. Run between passes, never in use."""

from __future__ import annotations

from tilec.errors import InternalError
from tilec.ir import tile
from tilec.ir.core import Block, Op, Program, ScalarType, TileType, TokenType, Value


def verify(program: Program) -> None:
    """Raises InternalError where the program breaks SSA scoping, an op's typing rule, or a rule of its form."""
    scope, defined = set(program.params), set(program.params)
    _verify_block(program, program.body, scope, defined)
    for value in program.grid:
        _require(value in scope, "a grid extent is not defined at the top level", None)
    top = set(map(id, program.body.ops))
    for op in program.walk():
        _require(not isinstance(op, tile.Require) or id(op) in top, "require is not at the top level", op)


def _verify_block(program: Program, block: Block, scope: set[Value], defined: set[Value]) -> None:
    """`scope` is what the block sees, `defined` all that the program has defined: a value has one definition
    anywhere."""

    def define(value: Value, op: Op | None) -> None:
        _require(value not in defined, f"%{value.name} is defined twice", op)
        scope.add(value)
        defined.add(value)

    for value in block.params:
        define(value, None)
    for op in block.ops:
        for value in op.operands:
            _require(value in scope, f"{op.mnemonic} reads %{value.name or '?'} before it is defined", op)
        for inner in op.regions:
            _verify_block(program, inner, set(scope), defined)
        _verify_op(program, op)
        for result in op.results:
            define(result, op)
    for value in block.yields:
        _require(value in scope, f"yield of %{value.name or '?'}, which is not defined", None)


def _verify_op(program: Program, op: Op) -> None:
    laid_out = program.form != "traced"
    _require(laid_out or not isinstance(op, tile.LAID_OUT_ONLY), f"{op.mnemonic} needs form laid_out", op)
    _require(not (laid_out and isinstance(op, tile.Require)), f"{op.mnemonic} in form {program.form}", op)
    for result in op.results:
        if isinstance(result.type, TileType):
            has_layout = result.type.layout is not None
            state = "has a" if has_layout else "lacks its"
            _require(has_layout == laid_out, f"tile %{result.name} {state} layout in form {program.form}", op)
            if result.type.layout is not None:
                covered = result.type.layout.shape
                _require(
                    covered == result.type.shape,
                    f"layout of %{result.name} covers {covered}, the tile is {result.type.shape}",
                    op,
                )
    rule = _RULES.get(type(op))
    if rule:
        rule(op)


def _require(condition: bool, fault: str, op: Op | None) -> None:
    if not condition:
        raise InternalError(f"tile program: {fault}", where=op.where if op else None)


def _layout(value: Value) -> object:
    return value.type.layout if isinstance(value.type, TileType) else None


def _elementwise(op: tile.Elementwise) -> None:
    count, kind = tile.ELEMENTWISE.get(op.function, (0, ""))
    _require(count == len(op.arguments), f"map {op.function!r} takes {count} arguments, not {len(op.arguments)}", op)
    data = op.arguments[1:] if op.function == "where" else op.arguments
    for argument in op.arguments:
        _require(argument.shape == op.result.shape, f"map {op.function}: shapes differ", op)
        _require(_layout(argument) == _layout(op.result), f"map {op.function}: layouts differ", op)
    _require(len({a.dtype for a in data}) == 1, f"map {op.function}: dtypes differ", op)
    if kind == "bool" or op.function == "where":
        flag = op.result if kind == "bool" else op.arguments[0]
        _require(flag.dtype.name == "bool", f"map {op.function}: needs a bool", op)
    _require(tile.accepts(op.function, data[0].dtype), f"map {op.function} of {data[0].dtype}", op)
    if kind == "same":
        _require(op.result.dtype == data[0].dtype, f"map {op.function}: result dtype differs", op)


def _same_layout_and_shape(op: tile.Cast) -> None:
    _require(op.source.shape == op.result.shape, "cast changes the shape", op)
    _require(_layout(op.source) == _layout(op.result), "cast changes the layout", op)


def _dot(op: tile.Dot) -> None:
    (m, k), (k2, n) = op.a.shape, op.b.shape
    _require(k == k2, f"dot contracts {k} with {k2}", op)
    _require(op.accumulator.shape == (m, n) == op.result.shape, "dot's accumulator has another shape", op)
    _require(op.accumulator.type == op.result.type, "dot's result and accumulator differ in type", op)
    floats = {v.dtype.is_float for v in (op.a, op.b, op.accumulator)}
    _require(
        len(floats) == 1 and op.result.dtype.name in ("f32", "f64", "i32"),
        f"dot of {op.a.dtype} and {op.b.dtype} to {op.result.dtype}",
        op,
    )


def _reduce(op: tile.Reduce) -> None:
    shape = op.source.shape
    _require(op.kind in tile.REDUCTIONS, f"reduce {op.kind!r}", op)
    _require(0 <= op.axis < len(shape), f"reduce along axis {op.axis} of {len(shape)}", op)
    _require(shape[: op.axis] + shape[op.axis + 1 :] == op.result.shape, "reduce gives another shape", op)
    _require(op.source.dtype == op.result.dtype, "reduce changes the dtype", op)
    _require(op.kind != "sum" or op.source.dtype.kind != "bool", "reduce sums bools", op)


def _view(op: tile.View) -> None:
    rank = op.tensor.rank
    _require(len(op.offsets) == len(op.extents) == rank, f"view needs {rank} offsets and extents", op)
    _require(
        len(set(op.axes)) == len(op.axes) == op.result.rank and set(op.axes) <= set(range(rank)),
        "view keeps other axes than its result has",
        op,
    )
    _require(op.tensor.dtype == op.result.dtype, "view changes the dtype", op)
    _i32_scalars(op, "an offset or extent", (*op.offsets, *op.extents))


def _broadcast(op: tile.Broadcast) -> None:
    source, shape = op.source.shape, op.result.shape
    fits = not source or len(source) == len(shape) and all(a in (1, b) for a, b in zip(source, shape))
    fits = fits and op.source.dtype == op.result.dtype
    _require(fits, f"broadcast of {op.source.type} to {op.result.type}", op)


def _expand_dims(op: tile.ExpandDims) -> None:
    source = op.source.shape
    _require((*source[: op.axis], 1, *source[op.axis :]) == op.result.shape, "expand_dims gives another shape", op)


def _iota(op: tile.Iota) -> None:
    _require(0 <= op.axis < len(op.result.shape), f"iota along axis {op.axis}", op)
    _require(op.result.dtype.is_integer, "iota counts in integers", op)


def _constant(op: tile.Constant) -> None:
    dtype = op.result.dtype
    if not dtype.is_float:
        low, high = dtype.limits
        _require(isinstance(op.value, int) and low <= op.value <= high, f"constant {op.value} is no {dtype}", op)


def _permute(op: tile.Permute) -> None:
    shape = op.source.shape
    _require(sorted(op.axes) == list(range(len(shape))), f"permute by {op.axes}", op)
    _require(tuple(shape[a] for a in op.axes) == op.result.shape, "permute gives another shape", op)


def _i32_scalars(op: Op, what: str, values: tuple[Value, ...]) -> None:
    for value in values:
        scalar = isinstance(value.type, ScalarType) and value.dtype.name == "i32"
        _require(scalar, f"{op.mnemonic}: {what}, %{value.name}, is no i32 scalar", op)


def _load_scalar(op: tile.LoadScalar) -> None:
    _require(len(op.indices) == op.tensor.rank, "load_scalar: one index per axis", op)
    _i32_scalars(op, "an index", op.indices)


def _access(op: tile.Load | tile.Store | tile.AsyncCopy) -> None:
    rank = op.tensor.rank
    moved = op.value if isinstance(op, tile.Store) else op.buffer if isinstance(op, tile.AsyncCopy) else op.result
    _require(len(op.indices) == rank == len(moved.shape), f"{op.mnemonic}: rank differs from the tensor's {rank}", op)
    _i32_scalars(op, "an index", op.indices)
    _require(moved.dtype == op.tensor.dtype, f"{op.mnemonic}: dtype differs from the tensor's", op)
    _require(len(op.inside) in (0, rank), f"{op.mnemonic}: inside names {len(op.inside)} of {rank} axes", op)
    if isinstance(op, tile.Load) and op.fill is not None:
        fits = op.fill.type == ScalarType(op.tensor.dtype)
        _require(fits, "load: the fill is no scalar of the tensor's dtype", op)


def _per_element(op: tile.Gather | tile.Scatter | tile.AtomicAdd) -> None:
    moved = op.result if isinstance(op, tile.Gather) else op.value
    _require(len(op.indices) == op.tensor.rank, f"{op.mnemonic}: one index per axis", op)
    for index in op.indices:
        fits = index.shape == moved.shape and _layout(index) == _layout(moved)
        _require(fits, f"{op.mnemonic}: an index has another shape or layout", op)


def _for(op: tile.For) -> None:
    counter, *carried = op.body.params
    _i32_scalars(op, "a bound or the counter", (op.lower, op.upper, op.step, counter))
    lengths = {len(carried), len(op.inits), len(op.body.yields), len(op.results)}
    _require(len(lengths) == 1, "the loop carries unequal lists", op)
    for values in zip(op.inits, carried, op.body.yields, op.results):
        _require(len({v.type for v in values}) == 1, f"the loop changes the type of %{values[1].name}", op)


def _require_op(op: tile.Require) -> None:
    scalar = isinstance(op.condition.type, ScalarType)
    _require(scalar and op.condition.dtype.kind == "bool", "require needs a scalar bool", op)


def _if(op: tile.If) -> None:
    scalar = isinstance(op.condition.type, ScalarType)
    _require(scalar and op.condition.dtype.kind == "bool", "if needs a scalar bool", op)
    for block in op.regions:
        _require([v.type for v in block.yields] == [r.type for r in op.results], "if yields other types", op)


def _token(op: Op) -> None:
    _require(isinstance(op.result.type, TokenType), f"{op.mnemonic} gives a token", op)


def _access_and_token(op: tile.AsyncCopy) -> None:
    _access(op)
    _token(op)


_RULES = {
    tile.Constant: _constant,
    tile.Iota: _iota,
    tile.View: _view,
    tile.Elementwise: _elementwise,
    tile.Cast: _same_layout_and_shape,
    tile.Broadcast: _broadcast,
    tile.ExpandDims: _expand_dims,
    tile.Permute: _permute,
    tile.Reduce: _reduce,
    tile.Dot: _dot,
    tile.Load: _access,
    tile.Store: _access,
    tile.LoadScalar: _load_scalar,
    tile.Gather: _per_element,
    tile.Scatter: _per_element,
    tile.AtomicAdd: _per_element,
    tile.For: _for,
    tile.If: _if,
    tile.Require: _require_op,
    tile.SharedWrite: _token,
    tile.AsyncCopy: _access_and_token,
}
