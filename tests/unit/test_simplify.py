"""simplify: every identity bit for bit on edge values of every dtype; what is shared, hoisted, folded and kept."""

import itertools

import numpy as np
import pytest

from tests.unit.tile_programs import Kernel, gemm
from tilec.dtypes import DTYPES, DType, bf16, bool_, dtype, f16, f32, f64, i8, i32, i64, u8, u32
from tilec.errors import InternalError
from tilec.ir import interp, numerics, tile
from tilec.ir.core import Op, Program
from tilec.ir.text import parse_program, print_program
from tilec.ir.verify import verify
from tilec.passes.simplify import simplify

WORKING = (f64, f32, f16, bf16, i8, i32, i64, u8, u32, bool_)
FUNCTIONS = [(name, element) for name in tile.ELEMENTWISE for element in WORKING if tile.accepts(name, element)]
SMALL_FLOATS = [t for t in DTYPES.values() if t.is_float and t.bits <= 8 and t.specials != "scale"]


def edges(element: DType) -> list:
    if element is bool_:
        return [False, True]
    low, high = element.limits
    if element.is_float:
        tiny = 2.0 ** (1 - element.bias)
        return [0.0, -0.0, 1.0, -1.0, 2.0, 0.5, 3.0, -2.5, 2.0**8, 257.0, float(high), float(low), tiny, tiny / 2,
                -tiny / 4, np.inf, -np.inf, np.nan]
    return sorted({v for v in (0, 1, 2, 3, 7, 8, 31, 32, -1, -2, -8, low, low + 1, high, high - 1) if low <= v <= high})


def stored(values: list, element: DType) -> np.ndarray:
    return numerics.encode(np.stack([numerics.constant(v, element) for v in values]), element)


def same_bits(a: np.ndarray, b: np.ndarray, element: DType) -> bool:
    """Equal bit for bit; NaNs of any payload are equal."""
    if element.is_float:
        a, b = numerics.decode(a, element), numerics.decode(b, element)
        return bool(((a == b) & (np.signbit(a) == np.signbit(b)) | (np.isnan(a) & np.isnan(b))).all())
    return np.array_equal(a, b)


def check(program: Program, inputs: dict[str, np.ndarray], out: DType, count: int) -> Program:
    """Simplifies, compares the results bit for bit, and returns the simplified program."""
    verify(program)
    simplified = simplify(program)
    verify(simplified)
    results = []
    for each in (program, simplified):
        result = np.zeros(count, numerics.storage_of(out))
        interp.run(each, {**inputs, "out": result}, [(0,)])
        results.append(result)
    assert same_bits(*results, out), print_program(simplified)
    return simplified


def ops(program: Program) -> list[str]:
    return [op.function if isinstance(op, tile.Elementwise) else op.mnemonic for op in program.walk()]


@pytest.mark.parametrize(("function", "element"), FUNCTIONS, ids=str)
def test_functions_of_edges_and_constants_keep_every_bit(function, element):
    values = edges(element)
    count, kind = tile.ELEMENTWISE[function]
    result = bool_ if kind == "bool" else element
    data = stored(values, element)
    choices = [None, *values]
    pairs = [(a, b) for i, a in enumerate(choices) for j, b in enumerate(choices) if not i or not j or (i + j) % 6 == 0]
    for numbers in pairs if count > 1 else [(None,), *((v,) for v in values)]:
        k = Kernel("k")
        x, out = k.tensor("x", element, 1), k.tensor("out", result, 1)
        size, zero = (len(values),), k.number(0)
        loaded = k.load(x, [zero], size)
        arguments = [loaded if n is None else k.constant(n, size, element) for n in numbers]
        arguments += arguments[:1] * (count - len(arguments))
        if function == "where":
            arguments[0] = k.map("ne", loaded, k.constant(values[0], size, element))
        k.store(out, [zero], k.map(function, *arguments))
        check(k.program(), {"x": data}, result, len(values))


@pytest.mark.parametrize("first", WORKING, ids=str)
def test_chains_of_casts_keep_every_bit(first):
    values = edges(first)
    data = stored(values, first)
    shorter = 0
    for second, third in itertools.product(WORKING, repeat=2):
        k = Kernel("k")
        x, out = k.tensor("x", first, 1), k.tensor("out", third, 1)
        zero = k.number(0)
        loaded = k.load(x, [zero], (len(values),))
        k.store(out, [zero], k.cast(k.cast(loaded, second), third))
        shorter += ops(check(k.program(), {"x": data}, third, len(values))).count("cast") < 2
    assert shorter >= len(WORKING)


@pytest.mark.parametrize("first", SMALL_FLOATS, ids=str)
@pytest.mark.parametrize("second", ["f16", "bf16", "f32"])
def test_small_floats_are_kept_by_wider_ones_only_where_that_is_so(first, second):
    codes = np.arange(1 << first.bits, dtype=np.uint8)
    k = Kernel("k")
    x, out = k.tensor("x", first, 1), k.tensor("out", f64, 1)
    loaded = k.load(x, [k.number(0)], codes.shape)
    k.store(out, [k.number(0)], k.cast(k.cast(loaded, dtype(second)), f64))
    check(k.program(), {"x": codes}, f64, len(codes))


def simplified_text(text: str) -> str:
    program = parse_program(text)
    verify(program)
    return print_program(simplify(program))


def test_shapes_of_one_scalar_collapse():
    k = Kernel("k")
    n, out = k.scalar_parameter("n", f32), k.tensor("out", f32, 2)
    rows = k.expand_dims(k.broadcast(n, (4,)), 1)
    cube = k.permute(k.permute(k.broadcast(rows, (4, 8)), (1, 0)), (1, 0))
    doubled = k.map("add", cube, k.map("mul", cube, k.broadcast(k.expand_dims(k.constant(2.0, (8,), f32), 0), (4, 8))))
    k.store(out, [k.number(0)] * 2, k.cast(k.cast(doubled, f64), f32))
    assert print_program(simplify(k.program())) == """\
tile k(%n: f32, %out: tensor<f32, 2>) form=traced waves=4 {
  %0: f32 = constant value=2.0
  %1: f32 = map [%n, %0] function=mul
  %2: f32 = map [%n, %1] function=add
  %3: tile<4x8, f32> = broadcast %2
  %4: i32 = constant value=0
  store %out, [%4, %4], %3
}
"""


def test_loop_invariant_scalars_and_small_tiles_leave_the_loop_and_big_ones_stay():
    text = simplified_text("""\
tile k(%x: tensor<f32, 1>, %y: tensor<f32, 2>, %n: i32) form=traced waves=4 {
  %zero: i32 = constant value=0
  %one: i32 = constant value=1
  for %zero, %n, %one, [] body(%i: i32) {
    for %zero, %i, %one, [] body(%j: i32) {
      %small: tile<64, i32> = iota axis=0
      %big: tile<64x64, i32> = iota
      %twice: i32 = map [%n, %n] function=add
      %both: i32 = map [%twice, %i] function=mul
      %own: i32 = map [%both, %j] function=add
      %rows: tile<64x64, f32> = load %y, [%own, %both]
      %wide: tile<64x64, f32> = cast %big
      %sum: tile<64x64, f32> = map [%rows, %wide] function=add
      store %y, [%own, %both], %sum
      %line: tile<64, f32> = cast %small
      store %x, [%own], %line
    }
  }
}
""")
    assert text == """\
tile k(%x: tensor<f32, 1>, %y: tensor<f32, 2>, %n: i32) form=traced waves=4 {
  %zero: i32 = constant value=0
  %one: i32 = constant value=1
  %small: tile<64, i32> = iota
  %twice: i32 = map [%n, %n] function=add
  %line: tile<64, f32> = cast %small
  for %zero, %n, %one, [] body(%i: i32) {
    %both: i32 = map [%twice, %i] function=mul
    for %zero, %i, %one, [] body(%j: i32) {
      %big: tile<64x64, i32> = iota
      %own: i32 = map [%both, %j] function=add
      %rows: tile<64x64, f32> = load %y, [%own, %both]
      %wide: tile<64x64, f32> = cast %big
      %sum: tile<64x64, f32> = map [%rows, %wide] function=add
      store %y, [%own, %both], %sum
      store %x, [%own], %line
    }
  }
}
"""


def test_equal_ops_are_shared_in_scope_only():
    text = simplified_text("""\
tile k(%x: tensor<i32, 1>, %n: i32, %c: bool) form=traced waves=4 {
  %a: i32 = map [%n, %n] function=mul
  %b: i32 = map [%n, %a] function=add
  %b.1: i32 = map [%a, %n] function=add
  %big: tile<32x32, i32> = broadcast %b
  if %c then {
    %d: i32 = map [%n, %n] function=mul
    %e: i32 = map [%d, %b.1] function=sub
    %t: tile<1, i32> = broadcast %e
    store %x, [%d], %t
  } otherwise {
    %e.1: i32 = map [%a, %b] function=sub
    %t.1: tile<1, i32> = broadcast %e.1
    store %x, [%e.1], %t.1
  }
}
""")
    assert text == """\
tile k(%x: tensor<i32, 1>, %n: i32, %c: bool) form=traced waves=4 {
  %a: i32 = map [%n, %n] function=mul
  %b: i32 = map [%n, %a] function=add
  if %c then {
    %e: i32 = map [%a, %b] function=sub
    %t: tile<1, i32> = broadcast %e
    store %x, [%a], %t
  } otherwise {
    %e.1: i32 = map [%a, %b] function=sub
    %t.1: tile<1, i32> = broadcast %e.1
    store %x, [%e.1], %t.1
  }
}
"""


def test_big_tiles_are_shared_within_a_block_but_constants_are_not():
    k = Kernel("k")
    out = k.tensor("out", f32, 2)
    zero = k.number(0)
    x = k.load(out, [zero, zero], (32, 32))
    k.store(out, [zero, zero], k.map("add", k.map("exp2", x), k.map("exp2", x)))
    for _ in range(2):
        k.store(out, [zero, zero], k.constant(0.0, (32, 32), f32))
    assert " ".join(ops(simplify(k.program()))) == "constant load exp2 add store constant store constant store"


def test_zeros_of_both_signs_and_numbers_of_other_types_are_told_apart():
    k = Kernel("k")
    out, flags = k.tensor("out", f32, 1), k.tensor("flags", bool_, 1)
    for value in (0.0, -0.0):
        k.store(out, [k.number(0)], k.constant(value, (4,), f32))
    k.store(flags, [k.number(1)], k.constant(True, (4,), bool_))
    values = [op.value for op in simplify(k.program()).walk() if isinstance(op, tile.Constant)]
    assert list(map(str, values)) == ["0", "0.0", "-0.0", "1", "True"]


def test_reads_are_not_moved_or_shared():
    k = Kernel("k")
    x = k.tensor("x", i32, 1)
    zero, one = k.number(0), k.number(1)

    def body(counter):
        for _ in range(2):
            element = k.load_scalar(x, [zero])
            k.store(x, [zero], k.broadcast(k.map("add", element, one), (1,)))
        return ()
    k.loop(zero, k.dim(x, 0), one, [], body)
    program = simplify(k.program())
    assert ops(program).count("load_scalar") == 2
    array = np.zeros(5, np.int32)
    interp.run(program, {"x": array}, [()])
    assert array[0] == 10


def test_known_branches_and_loops_of_at_most_one_trip_dissolve():
    text = simplified_text("""\
tile k(%x: tensor<i32, 1>, %n: i32) form=traced waves=4 {
  %zero: i32 = constant value=0
  %one: i32 = constant value=1
  %five: i32 = constant value=5
  %never: i32 = for %five, %five, %one, [%n] body(%i: i32, %v: i32) {
    %w: i32 = map [%v, %i] function=add
    yield %w
  }
  %once: i32 = for %zero, %one, %five, [%never] body(%i.1: i32, %v.1: i32) {
    %p: i32 = map [%v.1, %v.1] function=mul
    %q: i32 = map [%p, %i.1] function=add
    yield %q
  }
  %yes: bool = map [%one, %five] function=lt
  %r: i32 = if %yes then {
    yield %once
  } otherwise {
    yield %n
  }
  %t: tile<1, i32> = broadcast %r
  store %x, [%zero], %t
}
""")
    assert text == """\
tile k(%x: tensor<i32, 1>, %n: i32) form=traced waves=4 {
  %zero: i32 = constant value=0
  %p: i32 = map [%n, %n] function=mul
  %t: tile<1, i32> = broadcast %p
  store %x, [%zero], %t
}
"""


TRIPS = [(1, 1, False), (2, 1, True), (2, 2, False), (3, 2, True), (2, 0, True)]


@pytest.mark.parametrize(("upper", "step", "kept"), TRIPS)
def test_only_loops_of_at_most_one_trip_dissolve(upper, step, kept):
    k = Kernel("k")
    x, n = k.tensor("x", i32, 1), k.scalar_parameter("n", i32)
    bounds = [k.number(v) for v in (0, upper, step)]
    result, = k.loop(*bounds, [n], lambda i, v: [k.map("mul", v, k.map("add", v, i))])
    k.store(x, [k.number(0)], k.broadcast(result, (1,)))
    assert ("for" in ops(simplify(k.program()))) == kept


def test_values_that_a_loop_or_branch_does_not_change_are_not_carried():
    text = simplified_text("""\
tile k(%x: tensor<i32, 1>, %n: i32, %c: bool) form=traced waves=4 {
  %zero: i32 = constant value=0
  %one: i32 = constant value=1
  %a: i32, %b: i32, %s: i32 = for %zero, %n, %one, [%n, %one, %n] body(%i: i32, %a.1: i32, %b.1: i32, %s.1: i32) {
    %t: i32 = map [%s.1, %a.1] function=xor
    yield %a.1, %one, %t
  }
  %r: i32, %u: i32 = if %c then {
    yield %a, %s
  } otherwise {
    yield %n, %b
  }
  %sum: i32 = map [%r, %u] function=xor
  %tile: tile<1, i32> = broadcast %sum
  store %x, [%zero], %tile
}
""")
    assert text == """\
tile k(%x: tensor<i32, 1>, %n: i32, %c: bool) form=traced waves=4 {
  %zero: i32 = constant value=0
  %one: i32 = constant value=1
  %s: i32 = for %zero, %n, %one, [%n] body(%i: i32, %s.1: i32) {
    %t: i32 = map [%s.1, %n] function=xor
    yield %t
  }
  %u: i32 = if %c then {
    yield %s
  } otherwise {
    yield %one
  }
  %sum: i32 = map [%n, %u] function=xor
  %tile: tile<1, i32> = broadcast %sum
  store %x, [%zero], %tile
}
"""


def test_the_extent_of_a_view_is_known_unless_it_may_be_empty():
    k = Kernel("k")
    x, n = k.tensor("x", i32, 2), k.scalar_parameter("n", i32)
    zero, one = k.number(0), k.number(1)
    whole, row = k.view(x, [zero, zero], [n, one], (1, 0)), k.view(x, [n, zero], [one, one], (1,))
    for view, axis in ((whole, 1), (row, 0)):
        k.store(x, [zero, zero], k.broadcast(k.dim(view, axis), (1, 1)))
    program = simplify(k.program())
    stores = [op for op in program.walk() if isinstance(op, tile.Store)]
    made = {r: op for op in program.walk() for r in op.results}
    sources: list[Op | None] = [made.get(made[s.value].source) for s in stores]  # type: ignore[attr-defined]
    assert sources[0] is None and isinstance(sources[1], tile.Dim)


def test_the_grid_is_kept_and_still_evaluated():
    program = simplify(gemm(32, 32, 16))
    shapes = {"A": np.empty((100, 50)), "B": np.empty((40, 50)), "C": np.empty((100, 40))}
    assert interp.evaluate_grid(program, shapes) == (4, 2)


def test_a_simplified_program_is_not_simplified_further():
    once = simplify(gemm(32, 32, 16))
    assert print_program(simplify(once)) == print_program(once)


def test_later_forms_are_refused():
    with pytest.raises(InternalError, match="simplify needs form traced, not laid_out"):
        simplify(gemm(32, 32, 16).replace(form="laid_out"))
