"""interp: the meaning of each op against numpy written by hand, in every form; refused arguments by their whole
message."""

import ml_dtypes
import numpy as np
import pytest

from tests.unit.tile_programs import Kernel, gemm
from tilec.dtypes import bf16, bool_, f16, f32, i32, u8
from tilec.errors import InternalError, Location, TilecError
from tilec.ir import interp, tile
from tilec.ir.core import ScalarType, SharedType, TileType, TokenType, Value
from tilec.ir.verify import verify

INT, FLAG = ScalarType(i32), ScalarType(bool_)


def test_gemm_on_strided_views_with_tails():
    rng = np.random.default_rng(1)
    a = rng.integers(-4, 5, (123, 200)).astype(ml_dtypes.bfloat16).T[::2]          # 100 x 123, both strides odd
    b = rng.integers(-4, 5, (77, 123)).astype(ml_dtypes.bfloat16)
    c = np.full((100, 77), np.nan, np.float32)
    program = gemm(32, 32, 16)
    verify(program)
    assert interp.evaluate_grid(program, {"A": a, "B": b, "C": c}) == (4, 3)
    interp.run(program, {"A": a, "B": b.view(np.uint16), "C": c})                    # raw bits serve as well
    assert np.array_equal(c, a.astype(np.float32) @ b.astype(np.float32).T)


def test_only_the_programs_named_run_and_each_op_is_shown():
    k = Kernel("k")
    out = k.tensor("out", i32, 1)
    pid = k.program_id(k.dim(out, 0))
    k.store(out, [pid], k.broadcast(pid, (1,)))
    array, seen = np.full(6, -1, np.int32), []
    interp.run(k.program(), {"out": array}, [(4,), (2,)], lambda where, op, results: seen.append((where, op.mnemonic)))
    assert array.tolist() == [-1, -1, 2, -1, 4, -1]
    assert seen[0] == ((4,), "dim") and seen[-1] == ((2,), "store")


def one(build, *inputs: np.ndarray, out: np.ndarray, **scalars):
    """Runs a kernel whose body is `build(kernel, *tensors)` and gives back `out`."""
    k = Kernel("k")
    tensors = [k.tensor(f"x{i}", k.dtype_of(x), x.ndim) for i, x in enumerate(inputs)]
    result = k.tensor("out", k.dtype_of(out), out.ndim)
    numbers = [k.scalar_parameter(name, i32) for name in scalars]
    build(k, *tensors, result, *numbers)
    program = k.program()
    verify(program)
    interp.run(program, {**{f"x{i}": x for i, x in enumerate(inputs)}, "out": out, **scalars})
    return out


def test_load_fills_outside_and_store_clips():
    x = np.arange(6, dtype=np.int32)

    def build(k, source, out):
        for index in (-1, 0, 1, 2):
            loaded = k.load(source, [k.number(index)], (4,), fill=k.number(9))
            k.store(out, [k.number(index + 1)], loaded)
    assert one(build, x, out=np.zeros(14, np.int32)).tolist() == [9, 9, 9, 9, 0, 1, 2, 3, 4, 5, 9, 9, 9, 9]


def test_load_without_fill_gives_zero_even_beside_nan():
    x = np.full((2, 3), np.nan, np.float32)[:, :2]

    def build(k, source, out):
        k.store(out, [k.number(0)] * 2, k.load(source, [k.number(0), k.number(1)], (2, 2)))
    assert one(build, x, out=np.ones((2, 2), np.float32)).tolist() == [[0, 0], [0, 0]]


@pytest.mark.parametrize(("row", "expected"), [(1, [11, 12, 13, 0]), (3, [0] * 4), (-1, [0] * 4)])
def test_view_indexes_an_axis_away_and_is_empty_outside(row, expected):
    x = np.arange(3 * 5, dtype=np.int32).reshape(3, 5) + 5

    def build(k, source, out, r):
        one_, width = k.number(1), k.number(3)
        window = k.view(source, [r, one_], [one_, width], (1,))
        k.store(out, [k.number(0)], k.load(window, [k.number(0)], (4,)))
        extent = k.dim(window, 0)
        k.store(out, [k.number(1)], k.broadcast(extent, (4,)))
    got = one(build, x, out=np.zeros(8, np.int32), row=row).tolist()
    assert got == expected + [3 if 0 <= row < 3 else 0] * 4


def test_view_transposes_and_nests():
    x = np.arange(30, dtype=np.int32).reshape(5, 6)

    def build(k, source, out):
        n = k.number
        turned = k.view(source, [n(1), n(2)], [n(4), n(3)], (1, 0))
        inner = k.view(turned, [n(1), n(0)], [n(2), n(4)], (0, 1))
        k.store(out, [n(0), n(0)], k.load(inner, [n(0), n(0)], (2, 4)))
    assert np.array_equal(one(build, x, out=np.zeros((2, 4), np.int32)), x[1:, 2:5].T[1:])


def test_view_beyond_its_tensor_is_refused():
    def build(k, source, out):
        k.store(out, [k.number(0)], k.load(k.view(source, [k.number(2)], [k.number(3)], (0,)), [k.number(0)], (4,)))
    with pytest.raises(TilecError) as fault:
        one(build, np.zeros(4, np.int32), out=np.zeros(4, np.int32))
    assert str(fault.value) == "axis 0 of a view lies outside its tensor\n  limit: elements 2 to 5 of 4"


def test_scalar_loads_give_zero_outside():
    x = np.float32([[1, 2], [3, 4]])

    def build(k, source, out):
        for at, (row, column) in enumerate(((1, 0), (0, 1), (2, 0), (0, -1))):
            loaded = k.load_scalar(source, [k.number(row), k.number(column)])
            k.store(out, [k.number(at)], k.broadcast(loaded, (1,)))
    assert one(build, x, out=np.ones(4, np.float32)).tolist() == [3, 2, 0, 0]


def test_gather_scatter_and_atomic_add():
    x = np.float32([10, 20, 30])
    rows = np.int32([2, 0, -1, 3, 2])

    def build(k, source, index, out):
        where = k.load(index, [k.number(0)], (5,))
        got = k.gather(source, [where], fill=k.number(-1.0, f32))
        k.store(out, [k.number(0)], got)
        k.scatter(out, [k.map("add", where, k.constant(5, (5,)))], got)
        k.atomic_add(out, [k.map("minimum", where, k.constant(0, (5,)))], got)
    out = one(build, x, rows, out=np.zeros(9, np.float32)).tolist()
    assert out[5:8] == [10, 0, 30] and out[8] == -1                # -1 + 5 is the fourth place, written after the store
    assert out[0] == 30 + 30 + 10 - 1 + 30 and out[1:4] == [10, -1, -1] and out[4] == -1


def test_atomic_add_to_bf16_rounds_each_time():
    def build(k, out):
        k.atomic_add(out, [k.constant(0, (3,))], k.constant(1.0, (3,), bf16))
    assert one(build, out=np.full(1, 256, ml_dtypes.bfloat16)).tolist() == [256]


def test_shapes_and_reductions():
    x = np.arange(12, dtype=np.int32).reshape(3, 4)

    def build(k, source, out):
        t = k.load(source, [k.number(0)] * 2, (3, 4))
        columns, rows = k.reduce("sum", t, 0), k.reduce("max", t, 1)
        wide = k.map("add", k.broadcast(k.expand_dims(columns, 0), (3, 4)), k.broadcast(k.expand_dims(rows, 1), (3, 4)))
        total = k.broadcast(k.reduce("min", k.reduce("sum", t, 1), 0), (3, 4))
        k.store(out, [k.number(0)] * 2, k.permute(k.map("add", wide, total), (1, 0)))
    expected = (x.sum(0)[None] + x.max(1)[:, None] + x.sum(1).min()).T
    assert np.array_equal(one(build, x, out=np.zeros((4, 3), np.int32)), expected)


def test_iota_where_cast_and_bool_memory():
    def build(k, flags, out):
        column = k.iota((2, 3), 1)
        chosen = k.map("where", k.load(flags, [k.number(0)] * 2, (2, 3)), column, k.constant(-1, (2, 3)))
        k.store(out, [k.number(0)] * 2, k.cast(chosen, u8))
    flags = np.array([[True, False, True], [False, False, True]])
    assert one(build, flags, out=np.zeros((2, 3), np.uint8)).tolist() == [[0, 255, 2], [255, 255, 2]]


@pytest.mark.parametrize("n", [-2, 0, 1, 5])
def test_loops_carry_values_and_may_not_run(n):
    def build(k, out, trips):
        def body(counter, total, last):
            return k.map("add", total, counter), counter
        total, last = k.loop(k.number(0), trips, k.number(2), [k.number(100), k.number(-7)], body)
        k.store(out, [k.number(0)], k.broadcast(total, (1,)))
        k.store(out, [k.number(1)], k.broadcast(last, (1,)))
    trips = range(0, n, 2)
    assert one(build, out=np.zeros(2, np.int32), n=n).tolist() == [100 + sum(trips), trips[-1] if trips else -7]


def test_a_loop_that_does_not_advance_is_refused():
    def build(k, out, step):
        k.loop(k.number(0), k.number(3), step, [], lambda counter: ())
    with pytest.raises(TilecError, match="a loop's step must be positive"):
        one(build, out=np.zeros(2, np.int32), step=0)


def test_branches():
    def build(k, out, n):
        small = k.map("lt", n, k.number(3))
        result, = k.branch(small, lambda: [k.number(1)], lambda: [k.map("mul", n, n)])
        k.store(out, [k.number(0)], k.broadcast(result, (1,)))
    assert [one(build, out=np.zeros(1, np.int32), n=n)[0] for n in (2, 3, 4)] == [1, 9, 16]


def test_scaled_dot_takes_one_scale_per_block_of_the_contracted_axis():
    rng = np.random.default_rng(2)
    a, b = (rng.integers(-3, 4, shape).astype(np.float32) for shape in ((4, 64), (64, 4)))
    sa, sb = rng.integers(126, 130, (4, 2)).astype(np.uint8), rng.integers(126, 130, (2, 4)).astype(np.uint8)
    k = Kernel("scaled")
    from tilec.dtypes import e8m0
    tensors = [k.tensor(n, t, 2) for n, t in (("a", f32), ("b", f32), ("sa", e8m0), ("sb", e8m0), ("out", f32))]
    zero = [k.number(0)] * 2
    tiles = [k.load(t, zero, s) for t, s in zip(tensors, ((4, 64), (64, 4), (4, 2), (2, 4)))]
    k.store(tensors[4], zero, k.dot(tiles[0], tiles[1], k.constant(0.0, (4, 4), f32), scales=tuple(tiles[2:])))
    out = np.zeros((4, 4), np.float32)
    interp.run(k.program(), {"a": a, "b": b, "sa": sa, "sb": sb, "out": out})
    expected = (a * np.repeat(2.0 ** (sa - 127.0), 32, 1)) @ (b * np.repeat(2.0 ** (sb - 127.0), 32, 0))
    assert np.array_equal(out, expected)


# -- arguments, the grid, claims -------------------------------------------------------------------------------------

@pytest.mark.parametrize(("arguments", "message"), [
    ({}, "no argument for parameter 'x'\n  limit: given: none"),
    ({"x": np.zeros((2, 2), np.float16), "n": 1},
     "argument 'x' must be an array of 1 axes\n  limit: given shape (2, 2)"),
    ({"x": 3, "n": 1}, "argument 'x' must be an array of 1 axes\n  limit: given int"),
    ({"x": np.zeros(2, np.float32), "n": 1}, "argument 'x' must hold f16, not float32"),
    ({"x": np.zeros(2, np.float16), "n": 256}, "argument 'n' does not fit u8\n  limit: u8 holds 0 to 255, given 256")])
def test_arguments_that_do_not_fit(arguments, message):
    k = Kernel("k")
    k.tensor("x", f16, 1)
    k.scalar_parameter("n", u8)
    with pytest.raises(TilecError) as fault:
        interp.run(k.program(), arguments)
    assert str(fault.value) == message


def test_writing_to_a_read_only_array_is_refused():
    array = np.zeros(4, np.int32)
    array.flags.writeable = False
    with pytest.raises(TilecError, match="the kernel writes to an array that is read-only"):
        one(lambda k, out: k.store(out, [k.number(0)], k.constant(1, (4,))), out=array)


def test_the_grid_takes_shapes_and_scalars_and_is_never_negative():
    k = Kernel("k")
    x, n = k.tensor("x", f32, 2), k.scalar_parameter("n", i32)
    k.program_id(k.dim(x, 1), k.map("sub", n, k.number(3)))
    program = k.program()
    shape = type("OnlyAShape", (), {"shape": (4, 9)})()
    assert interp.evaluate_grid(program, {"x": shape, "n": 8}) == (9, 5)
    assert interp.evaluate_grid(program, {"x": shape, "n": 2}) == (9, 0)


def test_a_grid_that_depends_on_memory_is_refused():
    k = Kernel("k")
    x = k.tensor("x", i32, 1)
    k.where = Location("<kernel>", 7)
    k.program_id(k.load_scalar(x, [k.number(0)]))
    with pytest.raises(TilecError) as fault:
        interp.evaluate_grid(k.program(), {"x": np.int32([4])})
    assert str(fault.value) == ("<kernel>:7: the grid must follow from shapes and scalar arguments alone\n"
                                "  limit: it depends on load_scalar")


@pytest.mark.parametrize("index", [-1, 1])
def test_a_false_claim_to_be_inside_is_caught(index):
    def build(k, source, out):
        k.store(out, [k.number(0)], k.load(source, [k.number(index)], (4,), inside=(True,)))
    with pytest.raises(InternalError, match="load claims to be inside along axis 0 and is not"):
        one(build, np.zeros(6, np.int32), out=np.zeros(4, np.int32))


def test_first_difference_names_the_stage():
    programs = {}
    for name, value in (("a", 1), ("b", 1), ("c", 2), ("d", 3)):
        k = Kernel(name)
        out = k.tensor("out", i32, 1)
        k.program_id(k.dim(out, 0))
        k.store(out, [k.number(0)], k.constant(value, (2,)))
        programs[name] = k.program()
    array = np.zeros(2, np.int32)
    assert interp.first_difference(programs, {"out": array}) == "c"
    assert interp.first_difference({n: programs[n] for n in "ab"}, {"out": array}) == ""
    assert array.tolist() == [0, 0]


# -- LDS -------------------------------------------------------------------------------------------------------------

class Ring:
    """A kernel in form clustered with one LDS ring of two slots; what the ops mean does not need layouts."""

    def __init__(self, form: str = "clustered") -> None:
        self.k, self.form = Kernel("lds"), form
        self.source, self.out = self.k.tensor("x", i32, 2), self.k.tensor("out", i32, 2)
        self.buffer = self.alloc()

    def alloc(self, offset: int = -1, layout=None) -> Value:
        return self.k.emit(tile.Alloc(offset, results=(Value(SharedType((2, 4), i32, 2, layout), "ring"),)))

    def token(self, op_class, *fields) -> Value:
        return self.k.emit(op_class(*fields, results=(Value(TokenType()),)))

    def copy(self, slot: int, index: int = 0) -> Value:
        indices = (self.k.number(index), self.k.number(0))
        return self.token(tile.AsyncCopy, self.source, indices, self.buffer, self.k.number(slot))

    def write(self, slot: int, value: int, buffer: Value | None = None) -> Value:
        return self.token(tile.SharedWrite, buffer or self.buffer, self.k.constant(value, (2, 4)), self.k.number(slot))

    def read_and_store(self, slot: int, axes: tuple[int, ...] = ()) -> None:
        shape = (4, 2) if axes == (1, 0) else (2, 4)
        read = self.k.make(tile.SharedRead, self.buffer, self.k.number(slot), axes, type=TileType(shape, i32))
        self.k.store(self.out, [self.k.number(0)] * 2, read)

    def barrier(self, *after: Value) -> None:
        self.k.emit(tile.Barrier(after))

    def run(self, shape=(2, 4)) -> np.ndarray:
        out = np.full(shape, -1, np.int32)
        interp.run(self.k.program(form=self.form), {"x": np.arange(12, dtype=np.int32).reshape(4, 3), "out": out})
        return out


def test_a_copy_through_lds_transposed():
    ring = Ring()
    ring.barrier(ring.copy(1, index=1))
    ring.read_and_store(1, (1, 0))
    assert ring.run((4, 2)).tolist() == [[6, 9], [7, 10], [8, 11], [0, 0]]


def test_reading_a_slot_never_written_is_caught():
    ring = Ring()
    ring.write(0, 5)
    ring.read_and_store(1)
    with pytest.raises(InternalError, match="LDS slot 1 of %ring is read but not written"):
        ring.run()


def test_reading_a_copy_that_no_barrier_waited_for_is_caught():
    ring = Ring()
    stale = ring.copy(0)
    ring.barrier(stale)
    ring.copy(0, index=1)
    ring.barrier(stale)                                   # waits for the copy before: not for this one
    ring.read_and_store(0)
    with pytest.raises(InternalError, match="read before a barrier waits for its copy"):
        ring.run()
    unordered = Ring("laid_out")                          # this form has no barriers yet
    unordered.copy(0)
    unordered.read_and_store(0)
    assert unordered.run().tolist() == [[0, 1, 2, 0], [3, 4, 5, 0]]


def test_a_slot_out_of_range_is_caught():
    ring = Ring()
    ring.write(2, 5)
    with pytest.raises(InternalError, match="shared_write names slot 2 of a ring of 2"):
        ring.run()


def test_buffers_that_share_bytes_lose_what_the_other_wrote():
    from tilec.ir.shared_layout import SharedLayout
    for offset, caught in ((32, True), (64, False)):      # a slot is 2 x 4 x 4 bytes
        ring = Ring()
        layout = SharedLayout((2, 4), 32, (1, 0))
        ring.buffer = ring.alloc(0, layout)
        other = ring.alloc(offset, layout)
        ring.write(1, 5)
        ring.write(0, 6, other)
        ring.read_and_store(1)
        if caught:
            with pytest.raises(InternalError, match="read but not written"):
                ring.run()
        else:
            assert (ring.run() == 5).all()


def test_a_read_may_give_a_token_and_a_layout_conversion_changes_nothing():
    ring = Ring()
    ring.write(0, 5)
    tile_type = TileType((2, 4), i32)
    data, done = ring.k.emit(tile.SharedRead(ring.buffer, None, (), results=(Value(tile_type), Value(TokenType()))))
    ring.barrier(done)
    converted = ring.k.emit(tile.ConvertLayout(data, results=(Value(tile_type),)))
    ring.k.store(ring.out, [ring.k.number(0)] * 2, converted)
    assert (ring.run() == 5).all()


