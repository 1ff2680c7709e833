"""tile.verify: accepts what passes make, and names each broken rule."""

from collections.abc import Callable

import pytest

from tests.semantics.generate import generate
from tests.unit.tile_programs import Kernel, gemm
from tilec.dtypes import bool_, dtype, f16, f32, i8, i32, i64
from tilec.errors import InternalError, Location
from tilec.ir import tile
from tilec.ir.blocked import blocked
from tilec.ir.core import Block, ScalarType, TensorType, TileType, Type, Value
from tilec.ir.verify import verify

INT, TILE = ScalarType(i32), TileType((4, 8), f32)


def test_whole_programs_pass():
    verify(gemm(32, 32, 16))
    for seed in range(20):
        verify(generate(seed).program)


def tile_of(k: Kernel, shape=(4, 8), element=f32) -> Value:
    return k.constant(1 if not element.is_float else 1.0, shape, element)


def make(op_class, *fields, type: Type = TILE) -> Callable[[Kernel], None]:
    """A kernel's body of one op; fields that are functions are given the kernel."""
    def build(k: Kernel) -> None:
        k.make(op_class, *(with_kernel(f, k) for f in fields), type=type)
    return build


def with_kernel(field, k: Kernel):
    if isinstance(field, tuple):
        return tuple(with_kernel(f, k) for f in field)
    return field(k) if callable(field) else field


def t(shape=(4, 8), element="f32") -> Callable[[Kernel], Value]:
    return lambda k: tile_of(k, shape, dtype(element))


def n(element="i32") -> Callable[[Kernel], Value]:
    return lambda k: k.number(1.0 if dtype(element).is_float else 1, dtype(element))


def tensor(element="f32", rank=2) -> Callable[[Kernel], Value]:
    return lambda k: k.tensor("x", dtype(element), rank)


BROKEN: list[tuple[Callable[[Kernel], None], str]] = [
    (make(tile.Elementwise, (t(), t()), "plus"), "map 'plus' takes 0 arguments, not 2"),
    (make(tile.Elementwise, (t(),), "add"), "map 'add' takes 2 arguments, not 1"),
    (make(tile.Elementwise, (t(), t((4, 4))), "add"), "map add: shapes differ"),
    (make(tile.Elementwise, (t(), t(element="f16")), "add"), "map add: dtypes differ"),
    (make(tile.Elementwise, (t(), t()), "xor"), "map xor of f32"),
    (make(tile.Elementwise, (t(element="i32"),), "exp2", type=TileType((4, 8), i32)), "map exp2 of i32"),
    (make(tile.Elementwise, (t(element="bool"),) * 2, "add", type=TileType((4, 8), bool_)), "map add of bool"),
    (make(tile.Elementwise, (t(), t()), "add", type=TileType((4, 8), f16)), "map add: result dtype differs"),
    (make(tile.Elementwise, (t(), t()), "lt"), "map lt: needs a bool"),
    (make(tile.Elementwise, (t(), t(), t()), "where"), "map where: needs a bool"),
    (make(tile.Cast, t((4, 4))), "cast changes the shape"),
    (make(tile.Constant, 300, type=TileType((4,), i8)), "constant 300 is no i8"),
    (make(tile.Constant, 1.5, type=INT), "constant 1.5 is no i32"),
    (make(tile.Iota, 2, type=TileType((4, 8), i32)), "iota along axis 2"),
    (make(tile.Iota, 0), "iota counts in integers"),
    (make(tile.Broadcast, t((4, 4))), "broadcast of "),
    (make(tile.Broadcast, n("f16")), "broadcast of "),
    (make(tile.ExpandDims, t((4, 8)), 1, type=TileType((1, 4, 8), f32)), "expand_dims gives another shape"),
    (make(tile.Permute, t(), (1, 0)), "permute gives another shape"),
    (make(tile.Permute, t((4, 4)), (0, 0), type=TileType((4, 4), f32)), "permute by (0, 0)"),
    (make(tile.Reduce, t(), 0, "mean", type=TileType((8,), f32)), "reduce 'mean'"),
    (make(tile.Reduce, t(), 1, "sum", type=TileType((8,), f32)), "reduce gives another shape"),
    (make(tile.Reduce, t(), -1, "sum", type=TileType((4,), f32)), "reduce along axis -1 of 2"),
    (make(tile.Reduce, t(element="f16"), 0, "sum", type=TileType((8,), f32)), "reduce changes the dtype"),
    (make(tile.Reduce, t(element="bool"), 0, "sum", type=TileType((8,), bool_)), "reduce sums bools"),
    (make(tile.Dot, t((4, 4)), t((8, 8)), t()), "dot contracts 4 with 8"),
    (make(tile.Dot, t((4, 4)), t((4, 8)), t((8, 8))), "dot's accumulator has another shape"),
    (make(tile.Dot, t((4, 4)), t((4, 8)), t(), type=TileType((4, 8), f16)),
     "dot's result and accumulator differ in type"),
    (make(tile.Dot, t((4, 4)), t((4, 8)), t(element="i32"), type=TileType((4, 8), i32)), "dot of f32 and f32 to i32"),
    (make(tile.Load, tensor(rank=1), (n(),), None), "load: rank differs from the tensor's 1"),
    (make(tile.Load, tensor("f16"), (n(), n()), None), "load: dtype differs from the tensor's"),
    (make(tile.Load, tensor(), (n(), n()), None, (True,)), "load: inside names 1 of 2 axes"),
    (make(tile.Load, tensor(), (n(), n("i64")), None), "load: an index, %, is no i32 scalar"),
    (make(tile.Load, tensor(), (n(), n()), n("f16")), "load: the fill is no scalar of the tensor's dtype"),
    (make(tile.LoadScalar, tensor(), (n(),), type=ScalarType(f32)), "load_scalar: one index per axis"),
    (make(tile.Gather, tensor(), (t(element="i32"),), None), "gather: one index per axis"),
    (make(tile.Gather, tensor(), (t(element="i32"), t((4, 4), "i32")), None),
     "gather: an index has another shape or layout"),
    (make(tile.View, tensor(), (n(),), (n(),), (0, 1), type=TensorType(f32, 2)), "view needs 2 offsets and extents"),
    (make(tile.View, tensor(), (n(), n()), (n(), n()), (0, 0), type=TensorType(f32, 2)), "view keeps other axes than"),
    (make(tile.View, tensor(), (n(), n()), (n(), n()), (0,), type=TensorType(f16, 1)), "view changes the dtype"),
    (make(tile.SharedRead, t(), None), "shared_read needs form laid_out"),
]


@pytest.mark.parametrize(("build", "message"), BROKEN, ids=[m for _, m in BROKEN])
def test_a_broken_typing_rule_is_named_with_its_line(build, message):
    k = Kernel("k")
    k.where = Location("<kernel>", 3)
    build(k)
    with pytest.raises(InternalError) as fault:
        verify(k.program())
    assert str(fault.value).startswith(f"<kernel>:3: internal error in tilec: tile program: {message}")


def refused(k: Kernel, message: str, **more) -> None:
    with pytest.raises(InternalError, match=message):
        verify(k.program(**more))


def test_a_value_is_defined_before_it_is_read_and_only_there():
    k = Kernel("k")
    k.map("add", k.number(1), Value(INT, "later"))
    refused(k, "map reads %later before it is defined")

    k = Kernel("k")
    k.loop(k.number(0), k.number(1), k.number(1), [k.number(2)], lambda counter, x: [k.map("neg", x)])
    k.map("neg", k.builder.ops[-1].body.ops[0].result)
    refused(k, "before it is defined")


def test_a_value_has_one_definition_in_the_whole_program():
    k = Kernel("k")
    value = k.number(1)
    k.emit(tile.Constant(2, results=(value,)))
    refused(k, "is defined twice")
    k = Kernel("k")                                       # two loops with one body
    k.loop(k.number(0), k.number(1), k.number(1), [], lambda counter: ())
    k.emit(k.builder.ops[-1].replace(results=()))
    refused(k, "%k is defined twice")


def test_yields_and_grid_are_defined():
    k = Kernel("k")
    k.branch(k.number(True, bool_), lambda: [Value(INT, "nowhere")], lambda: [k.number(1)])
    refused(k, "yield of %nowhere, which is not defined")
    k = Kernel("k")
    k.grid = (Value(INT),)
    refused(k, "a grid extent is not defined at the top level")


def test_loops_and_branches_keep_types():
    k = Kernel("k")
    k.loop(k.number(0), k.number(1), k.number(1), [k.number(2)], lambda counter, x: [k.cast(x, i64)])
    refused(k, "the loop changes the type of %")
    k = Kernel("k")
    k.loop(k.number(0), k.number(1), k.number(1), [k.number(2)], lambda counter, x: [])
    refused(k, "the loop carries unequal lists")
    k = Kernel("k")
    k.loop(k.number(0), k.number(1, i64), k.number(1), [], lambda counter: [])
    refused(k, "a bound or the counter, %, is no i32 scalar")
    k = Kernel("k")
    k.branch(k.number(1), lambda: None, lambda: None)
    refused(k, "if needs a scalar bool")
    k = Kernel("k")
    k.branch(k.number(True, bool_), lambda: [k.number(1)], lambda: [k.number(1, i64)])
    refused(k, "if yields other types")


def test_layouts_come_with_the_form():
    layout = blocked((16, 64), (1, 0), 4, 4)
    laid_out = Kernel("k")
    laid_out.make(tile.Constant, 0.0, type=TileType((16, 64), f32, layout))
    verify(laid_out.program(form="laid_out"))
    refused(laid_out, "tile % has a layout in form traced")
    bare = Kernel("k")
    bare.constant(0.0, (16, 64), f32)
    refused(bare, "tile % lacks its layout in form laid_out", form="laid_out")
    other = Kernel("k")
    other.make(tile.Constant, 0.0, type=TileType((16, 32), f32, layout))
    refused(other, "covers .*, the tile is", form="clustered")


def test_regions_see_their_block_only():
    block = Block((), (tile.Constant(1, results=(v := Value(INT, "inner"),)),))
    k = Kernel("k")
    k.emit(tile.If(k.number(True, bool_), block, Block((), (tile.Elementwise((v,), "neg", results=(Value(INT),)),))))
    refused(k, "map reads %inner before it is defined")
