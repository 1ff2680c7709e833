"""core: what follows from an op's declared fields, cloning, dead code."""

import pytest

from tests.unit.tile_programs import Kernel, gemm
from tilec.dtypes import bf16, f32, i32
from tilec.ir import tile
from tilec.ir.core import (
    Block,
    Builder,
    Effect,
    Op,
    ScalarType,
    SharedType,
    Substitution,
    Value,
    clone_block,
    definitions,
    fields_of,
    register,
    remove_dead,
    used_outside,
)
from tilec.ir.shared_layout import SharedLayout
from tilec.ir.text import print_program

INT = ScalarType(i32)


def test_fields_come_in_order_of_declaration_by_kind():
    assert fields_of(tile.Load, "operand") == ("tensor", "indices", "fill")
    assert fields_of(tile.Load, "attribute") == ("inside",)
    assert fields_of(tile.If, "region") == ("then", "otherwise")


def test_operands_are_flat_and_attributes_named():
    tensor, index, fill = (Value(INT, n) for n in "tif")
    op = tile.Load(tensor, (index, index), fill, (True, False))
    assert op.operands == (tensor, index, index, fill)
    assert op.replace(fill=None).operands == (tensor, index, index)
    assert op.attributes == {"inside": (True, False)}
    then, otherwise = Block(), Block()
    assert tile.If(index, then, otherwise).regions == (then, otherwise)


def test_map_operands_changes_only_what_changes():
    a, b = Value(INT), Value(INT)
    op = tile.Load(a, (a, b))
    assert op.map_operands(lambda v: v) is op
    changed = op.map_operands({a: b, b: b}.get)
    assert (changed.tensor, changed.indices, changed.fill) == (b, (b, b), None)


def test_result_is_the_only_one():
    assert tile.Constant(1, results=(v := Value(INT),)).result is v
    with pytest.raises(ValueError):
        _ = tile.Barrier().result


def test_values_are_told_apart_by_identity():
    a, b = Value(INT, "x"), Value(INT, "x")
    assert a != b and len({a, b}) == 2
    assert (a.like(name="y").name, a.like(ScalarType(f32)).type, a.like().name) == ("y", ScalarType(f32), "x")


def test_a_builder_gives_back_results():
    builder = Builder()
    one = builder.emit(tile.Constant(1, results=(Value(INT),)))
    assert isinstance(one, Value)
    assert builder.emit(tile.If(one, Block((), (), (one, one)), Block((), (), (one, one)),
                                results=(r := (Value(INT), Value(INT))))) == r
    assert builder.block().ops[0].result is one


def test_a_clone_defines_new_values_and_reads_the_same_from_outside():
    loop = next(op for op in gemm(32, 32, 16).walk() if isinstance(op, tile.For))
    copy = clone_block(loop.body, Substitution())
    assert not set(definitions(copy)) & set(definitions(loop.body)) and not set(copy.params) & set(loop.body.params)
    outside = used_outside(loop)
    assert used_outside(loop.replace(body=copy)) == outside
    assert [type(op) for op in copy.walk()] == [type(op) for op in loop.body.walk()]
    assert [v.name for v in copy.params] == [v.name for v in loop.body.params]


def test_used_outside_sees_into_regions_and_not_their_own_values():
    inner, outer, bound = Value(INT), Value(INT), Value(INT)
    body = Block((k := Value(INT),), (tile.Elementwise((k, outer), "add", results=(inner,)),), ())
    assert used_outside(tile.For(bound, bound, bound, (), body)) == {bound, outer}
    branch = tile.If(bound, Block((), (), (inner,)), Block((), (), (outer,)), results=(k,))
    assert used_outside(branch) == {bound, inner, outer}


def test_dead_ops_go_and_effects_stay():
    k = Kernel("k")
    out = k.tensor("out", i32, 1)
    extent = k.dim(out, 0)
    k.program_id(extent)
    k.map("add", k.number(1), k.number(2))                       # dead
    k.load_scalar(out, [k.number(0)])                            # dead: a read
    kept = k.number(3)
    k.branch(k.map("lt", extent, kept), lambda: k.store(out, [kept], k.constant(1, (1,))), lambda: None)
    k.branch(k.map("gt", extent, kept), lambda: [k.number(1)], lambda: [k.number(2)])     # dead with its condition
    program = remove_dead(k.program())
    assert print_program(program) == """\
tile k(%out: tensor<i32, 1>) form=traced waves=4 {
  %0: i32 = dim %out axis=0
  %1: i32 = constant value=3
  %2: bool = map [%0, %1] function=lt
  if %2 then {
    %3: tile<1, i32> = constant value=1
    store %out, [%1], %3
  } otherwise {
  }
  grid %0
}
"""


def test_effects_are_ordered():
    assert tile.Elementwise.effect < tile.Load.effect < tile.Store.effect < tile.AtomicAdd.effect < tile.Barrier.effect
    assert Effect.READ == tile.Gather.effect


def test_slots_of_a_ring_are_aligned_for_the_widest_instruction():
    layout = SharedLayout((3, 5), 16, (1, 0))
    assert layout.bytes == 30 and SharedType((3, 5), bf16, 2, layout).slot_bytes == 32


def test_an_op_needs_a_mnemonic_of_its_own():
    with pytest.raises(AssertionError):
        register(Op)
