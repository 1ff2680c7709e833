"""From a decorated function to a traced program: the function runs once, on placeholders.

Tensors and run-time scalars become `Tensor` and `Scalar` placeholders, Const arguments are passed as they are. What the
function does to the placeholders is the program. Errors without a place get the user's innermost line here, and so do
TypeErrors and AttributeErrors that the user's own statements raise; everything else passes through untouched.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from tilec.errors import InternalError, Location, TilecError
from tilec.frontend import source
from tilec.frontend.tensors import I32, Tensor
from tilec.frontend.tracer import MAX_RANK, Tracer, activate
from tilec.frontend.values import Scalar
from tilec.ir.core import Block, Program, ScalarType, Substitution, TensorType, Value, remove_dead
from tilec.ir.tile import Dim
from tilec.target import target


def trace(
    function: Callable[..., Any],
    types: Mapping[str, TensorType | ScalarType],
    consts: Mapping[str, Any],
    arch: str,
    waves: int,
) -> Program:
    """The traced program of a kernel function. `types` gives its run-time arguments, in the order of the argument
    segment."""
    where = definition(function)
    if inspect.isgeneratorfunction(function):
        raise TilecError(f"kernel {function.__name__!r} is a generator", where=where, fix="store to a tensor")
    tracer = Tracer(target(arch), waves, where)
    params = {name: Value(type, name) for name, type in types.items()}
    before = activate(tracer)
    try:
        arguments = {name: _placeholder(tracer, value, function) for name, value in params.items()}
        result = function(**arguments, **consts)
        if result is not None:
            raise TilecError(
                f"kernel {function.__name__!r} returns a value",
                where=where,
                limit="a kernel's results are what it stores",
                fix="pass an output tensor, and assign its tiles",
            )
    except (TilecError, TypeError, AttributeError) as error:
        raise _placed(error) from (None if isinstance(error, TilecError) else error)
    finally:
        activate(before)
    (scope,) = tracer.scopes
    body = _resolve(Block((), tuple(scope.builder.ops)), _Aliases(tracer))
    grid = tuple(tracer.resolve(value) for value in tracer.grid or ())
    return remove_dead(Program(function.__name__, tuple(params.values()), body, grid, waves=waves, where=where))


def definition(function: Callable[..., Any]) -> Location:
    """The `def` line of a function, under its name."""
    code = function.__code__
    tree = source.source_of(code)
    node = tree.function(code) if tree else None
    if tree is None or node is None:
        return Location(code.co_filename, code.co_firstlineno)
    line, column, *_ = source.node_span(node)
    return source.locate(code.co_filename, (line, column + 4, line, column + 4 + len(node.name.encode())))


def parameter(function: Callable[..., Any], name: str) -> Location:
    """Where a function declares one of its parameters."""
    code = function.__code__
    tree = source.source_of(code)
    node = tree.function(code) if tree else None
    if tree is not None and node is not None:
        for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
            if argument.arg == name:
                return tree.where(argument)
    return definition(function)


def _placeholder(tracer: Tracer, value: Value, function: Callable[..., Any]) -> Tensor | Scalar:
    type = value.type
    assert isinstance(type, (TensorType, ScalarType))
    tracer.define(value)
    try:
        tracer.require(type.dtype)
        if isinstance(type, ScalarType):
            return Scalar(value)
        if not 1 <= type.rank <= MAX_RANK:
            raise TilecError(
                f"{value.name} is a tensor of rank {type.rank}", limit=f"tensors have 1 to {MAX_RANK} axes"
            )
    except TilecError as error:
        raise TilecError(error.what, where=parameter(function, value.name), limit=error.limit, fix=error.fix) from None
    extents = tuple(tracer.emit(Dim, I32, tensor=value, axis=axis) for axis in range(type.rank))
    return Tensor(value, extents)


def _placed(error: TilecError | TypeError | AttributeError) -> Exception:
    """The error with the user's line, where it has none."""
    where, own = source.raised_at(error.__traceback__)
    if isinstance(error, InternalError) or (isinstance(error, TilecError) and error.where is not None):
        return error
    if isinstance(error, TilecError):
        return TilecError(error.what, where=where, limit=error.limit, fix=error.fix)
    if not own:
        return error
    return TilecError(str(error).partition(". Did you mean")[0], where=where)  # newer Pythons guess in the message


class _Aliases(Substitution):
    def __init__(self, tracer: Tracer):
        super().__init__()
        self._resolve = tracer.resolve

    def __call__(self, value: Value) -> Value:
        return self._resolve(value)


def _resolve(block: Block, aliases: _Aliases) -> Block:
    ops = tuple(op.map_operands(aliases).map_regions(lambda inner: _resolve(inner, aliases)) for op in block.ops)
    return Block(block.params, ops, tuple(map(aliases, block.yields)))
