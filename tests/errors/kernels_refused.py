# ruff: noqa: B007, UP028
"""Kernels that must be refused. Each is traced by test_refused.py, which compares the whole message.

Kept apart from the tests, so that the line in a message is the line of a kernel and nothing else.
"""

import math
from types import SimpleNamespace

import tilec as tc

VECTOR = tc.spec("f32", (1000,))
MATRIX = tc.spec("f32", (300, 200))
MATRICES = ("shapes_do_not_fit", "dot_shapes", "dot_types", "dot_accumulator", "dot_of_integers", "tile_too_large",
            "too_few_tile_sizes", "gather_index_count")
BF16 = ("atomic_on_bf16",)
GFX942 = ("type_of_another_architecture",)


def arguments(name):
    """What a kernel is traced for: (tensors, architecture)."""
    tensor = MATRIX if name in MATRICES else tc.spec("bf16", (1000,)) if name in BF16 else VECTOR
    return (tensor,), "gfx942" if name in GFX942 else "gfx950"


@tc.kernel
def break_in_loop(A: tc.Tensor):
    At = A.tiles(64)
    for k in tc.range(At.grid[0]):
        At[k] = At[k] + 1
        break


@tc.kernel
def continue_in_loop(A: tc.Tensor):
    At = A.tiles(64)
    for k in tc.range(At.grid[0]):
        for _ in range(2):
            continue  # a Python loop's own: fine
        continue


@tc.kernel
def return_in_loop(A: tc.Tensor):
    At = A.tiles(64)
    for k in tc.range(At.grid[0]):
        if k is None:
            return
        At[k] = At[k] + 1


@tc.kernel
def return_in_when(A: tc.Tensor):
    with tc.when(A.shape[0] > 3):
        return


@tc.kernel
def returns_a_value(A: tc.Tensor):
    return A.tiles(64)[0]


@tc.kernel
def range_in_comprehension(A: tc.Tensor):
    At = A.tiles(64)
    [At[k] for k in tc.range(3)]


@tc.kernel
def range_in_enumerate(A: tc.Tensor):
    for i, k in enumerate(tc.range(3)):
        A.tiles(64)[k] = i


@tc.kernel
def range_with_two_counters(A: tc.Tensor):
    for i, k in tc.range(3):
        A.tiles(64)[k] = i


@tc.kernel
def range_counting_down(A: tc.Tensor):
    for k in tc.range(3, 0, -1):
        A.tiles(64)[k] = 1


@tc.kernel
def when_without_with(A: tc.Tensor):
    tc.when(A.shape[0] > 3)


@tc.kernel
def when_on_a_tile(A: tc.Tensor):
    x = A.tiles(64)[0]
    with tc.when(x > 3):
        A.tiles(64)[0] = x


@tc.kernel
def python_number_changes(A: tc.Tensor):
    At = A.tiles(64)
    i = 0
    for k in tc.range(At.grid[0]):
        At[k] = At[k] + i
        i += 1


@tc.kernel
def python_number_changes_in_when(A: tc.Tensor):
    At = A.tiles(64)
    scale = 1.0
    with tc.when(A.shape[0] > 100):
        scale = 2.0
    At[0] = At[0] * scale


@tc.kernel
def python_number_becomes_scalar(A: tc.Tensor):
    At = A.tiles(64)
    total = 0
    for k in tc.range(At.grid[0]):
        total = total + k
    At[0] = total.to(tc.f32)


@tc.kernel
def object_changes(A: tc.Tensor):
    for k in tc.range(4):
        A.tiles(64)[k] = 1
        A = A[1:]


@tc.kernel
def list_grows(A: tc.Tensor):
    tiles = []
    for k in tc.range(4):
        tiles.append(A.tiles(64)[k])


@tc.kernel
def if_on_value(A: tc.Tensor):
    n = A.shape[0]
    if n > 100:
        A.tiles(64)[0] = 1


@tc.kernel
def while_on_value(A: tc.Tensor):
    n = A.shape[0]
    while n > 0:
        n = n - 1


@tc.kernel
def and_on_values(A: tc.Tensor):
    n = A.shape[0]
    with tc.when(n > 3 and n < 9):
        A.tiles(64)[0] = 1


@tc.kernel
def or_inside_if(A: tc.Tensor, flag: tc.Const = False):
    if flag or A.shape[0] > 5:
        A.tiles(64)[0] = 1


@tc.kernel
def not_on_value(A: tc.Tensor):
    with tc.when(not (A.shape[0] > 3)):
        A.tiles(64)[0] = 1


@tc.kernel
def chained_comparison(A: tc.Tensor):
    with tc.when(3 < A.shape[0] < 9):
        A.tiles(64)[0] = 1


@tc.kernel
def builtin_max(A: tc.Tensor):
    n = max(A.shape[0], 3)
    A.tiles(64)[n] = 1


@tc.kernel
def builtin_range(A: tc.Tensor):
    for k in range(A.tiles(64).grid[0]):
        A.tiles(64)[k] = 1


@tc.kernel
def math_function(A: tc.Tensor):
    x = A.tiles(64)[0]
    A.tiles(64)[0] = math.exp(x)


@tc.kernel
def iterate_a_tile(A: tc.Tensor):
    for x in A.tiles(64)[0]:
        A.tiles(64)[0] = x


@tc.kernel
def aliased_names(A: tc.Tensor):
    At = A.tiles(64)
    first = total = At[0]
    for k in tc.range(At.grid[0]):
        total = total + At[k] * first
    At[0] = total


@tc.kernel
def aliased_in_a_list(A: tc.Tensor):
    At = A.tiles(64)
    accs = [tc.zeros(64)] * 2
    for k in tc.range(4):
        accs[0] = accs[0] + At[k]
    At[0] = accs[0] + accs[1]


@tc.kernel
def becomes_alias(A: tc.Tensor):
    At = A.tiles(64)
    x, last = At[0], At[1]
    for k in tc.range(4):
        At[k] = last
        last = x
    At[5] = x + last


@tc.kernel
def two_new_names_for_one(A: tc.Tensor):
    At = A.tiles(64)
    x, y = At[0], At[1]
    for k in tc.range(4):
        x = y = x + y
    At[5] = x + y


@tc.kernel
def old_value_escapes(A: tc.Tensor):
    At = A.tiles(64)
    m = At[0]
    for k in tc.range(4):
        before = m
        m = tc.maximum(m, At[k])
    At[0] = before


@tc.kernel
def type_changes_in_loop(A: tc.Tensor):
    At = A.tiles(64)
    x = At[0]
    for k in tc.range(4):
        x = (x + At[k]).to(tc.bf16)
    At[0] = x.to(tc.f32)


@tc.kernel
def shape_changes_in_loop(A: tc.Tensor):
    At = A.tiles(64)
    x = tc.zeros(1)
    for k in tc.range(4):
        x = x + At[k]
    At[0] = x


@tc.kernel
def type_changes_in_object(A: tc.Tensor):
    state = SimpleNamespace(total=tc.scalar(0))
    for k in tc.range(4):
        state.total = state.total + 0.5
    A.tiles(64)[0] = state.total


@tc.kernel
def read_after_loop(A: tc.Tensor):
    At = A.tiles(64)
    for k in tc.range(At.grid[0]):
        x = At[k] * 2
    At[0] = x


@tc.kernel
def counter_after_loop(A: tc.Tensor):
    At = A.tiles(64)
    for k in tc.range(At.grid[0]):
        At[k] = 1
    At[k] = 2


@tc.kernel
def read_after_when(A: tc.Tensor):
    At = A.tiles(64)
    with tc.when(A.shape[0] > 5):
        x = At[1]
    At[0] = x


@tc.kernel
def shapes_do_not_fit(A: tc.Tensor):
    A.tiles(32, 32)[0, 0] = tc.zeros(32, 32) + tc.zeros(16)


@tc.kernel
def dot_shapes(A: tc.Tensor):
    At = A.tiles(64, 32)
    a, b = At[0, 0], At[1, 0]
    A.tiles(64, 64)[0, 0] = tc.dot(a, b)


@tc.kernel
def dot_types(A: tc.Tensor):
    At = A.tiles(64, 32)
    A.tiles(64, 64)[0, 0] = tc.dot(At[0, 0], At[1, 0].T.to(tc.bf16))


@tc.kernel
def dot_accumulator(A: tc.Tensor):
    At = A.tiles(64, 32)
    acc = tc.zeros(64, 32)
    acc = tc.dot(At[0, 0], At[1, 0].T, acc)


@tc.kernel
def dot_of_integers(A: tc.Tensor):
    x = tc.iota(64, 64)
    tc.dot(x, x)


@tc.kernel
def store_shape(A: tc.Tensor):
    A.tiles(64)[0] = tc.zeros(32)


@tc.kernel
def store_type(A: tc.Tensor):
    A.tiles(64)[0] = tc.iota(64)


@tc.kernel
def tile_too_large(A: tc.Tensor):
    A.tiles(1024, 1024)[0, 0] = 0


@tc.kernel
def tile_size_at_run_time(A: tc.Tensor):
    A.tiles(A.shape[0])[0] = 0


@tc.kernel
def grid_twice(A: tc.Tensor):
    i = tc.program_id(A.tiles(64).grid[0])
    i = tc.program_id(A.tiles(64).grid[0])
    j = tc.program_id(A.tiles(32).grid[0])
    A.tiles(64)[i + j] = 0


@tc.kernel
def grid_from_data(A: tc.Tensor):
    i = tc.program_id(A.at[0].to(tc.i32))
    A.tiles(64)[i] = 0


@tc.kernel
def program_id_in_loop(A: tc.Tensor):
    for k in tc.range(3):
        A.tiles(64)[k + tc.program_id(4)] = 0


@tc.kernel
def too_many_tile_indices(A: tc.Tensor):
    A.tiles(64)[0, 1] = 0


@tc.kernel
def too_few_tile_sizes(A: tc.Tensor):
    A.tiles(64)[0, 0] = 0


@tc.kernel
def tile_index_is_float(A: tc.Tensor):
    A.tiles(64)[0.5] = 0


@tc.kernel
def tile_index_is_slice(A: tc.Tensor):
    A.tiles(64)[0:3] = 0


@tc.kernel
def index_into_tile(A: tc.Tensor):
    x = A.tiles(64)[0]
    A.tiles(64)[0] = x[3]


@tc.kernel
def unknown_keyword(A: tc.Tensor):
    A.tiles(64)[0] = tc.zeros(64, type=tc.f32)


@tc.kernel
def unknown_method(A: tc.Tensor):
    A.tiles(64)[0] = A.tiles(64)[0].mean(axis=0)


@tc.kernel
def exp_of_integers(A: tc.Tensor):
    A.tiles(64)[0] = tc.exp(tc.iota(64))


@tc.kernel
def divide_integers(A: tc.Tensor):
    A.tiles(64)[0] = tc.iota(64) / 2


@tc.kernel
def floor_divide_floats(A: tc.Tensor):
    A.tiles(64)[0] = A.tiles(64)[0] // 2.0


@tc.kernel
def number_too_large(A: tc.Tensor):
    A.tiles(64)[0] = tc.iota(64).to(tc.i8) + 300


@tc.kernel
def operand_is_a_tensor(A: tc.Tensor):
    A.tiles(64)[0] = A.tiles(64)[0] + A


@tc.kernel
def where_on_numbers(A: tc.Tensor):
    A.tiles(64)[0] = tc.where(tc.iota(64), 1.0, 2.0)


@tc.kernel
def slice_with_step(A: tc.Tensor):
    A[::2].tiles(64)[0] = 0


@tc.kernel
def store_to_tensor(A: tc.Tensor):
    A[0] = 1


@tc.kernel
def atomic_on_bf16(A: tc.Tensor):
    A.atomic_add(tc.iota(64), value=1)


@tc.kernel
def gather_index_count(A: tc.Tensor):
    A.gather(tc.iota(64))


@tc.kernel
def utf8_column(A: tc.Tensor):
    größe = A.shape[0]; π = tc.iota(64) // größe; A.tiles(64)[0] = π  # noqa: E702


@tc.kernel
def type_of_another_architecture(A: tc.Tensor):
    A.tiles(64)[0] = A.tiles(64)[0].to(tc.fp8_e4m3fn).to(tc.f32)


@tc.kernel
def type_not_compiled_yet(A: tc.Tensor):
    A.tiles(64)[0] = A.tiles(64)[0].to(tc.fp8_e4m3fn).to(tc.f32)


@tc.kernel
def yields(A: tc.Tensor):
    for k in tc.range(3):
        yield k


@tc.kernel
def is_a_generator(A: tc.Tensor):
    yield A


@tc.kernel
def when_among_others(A: tc.Tensor):
    with tc.when(A.shape[0] > 3), open("nothing"):
        A.tiles(64)[0] = 1


@tc.kernel
def assert_on_value(A: tc.Tensor):
    assert A.shape[0] > 3


@tc.kernel
def value_from_elsewhere(A: tc.Tensor, kept: tc.Const = None):
    if not KEPT:
        KEPT.append(A.tiles(64)[0])
        value_from_elsewhere.trace(VECTOR, arch="gfx950")
    A.tiles(64)[0] = KEPT[0] + 1


KEPT = []


@tc.kernel
def nan_to_integer(A: tc.Tensor):
    A.tiles(64)[0] = tc.full((64,), 0.5, tc.i32).to(tc.f32)


@tc.kernel
def negative_size(A: tc.Tensor):
    tc.zeros(-3)


@tc.kernel
def kernel_in_kernel(A: tc.Tensor):
    negative_size(A)


def _helper(At, n):
    last = 0.0
    for k in tc.range(n):
        last = 1.0
        At[k] = 1
    return last


@tc.kernel
def inside_a_helper(A: tc.Tensor):
    A.tiles(64)[0] = _helper(A.tiles(64), 3)


@tc.kernel
def through_nonlocal(A: tc.Tensor):
    count = 0

    def bump():
        nonlocal count
        count += 1

    for k in tc.range(3):
        bump()
        A.tiles(64)[k] = 1


@tc.kernel
def dtype_changes(A: tc.Tensor):
    kind = tc.f32
    for k in tc.range(3):
        A.tiles(64)[k] = tc.zeros(64, dtype=kind).to(tc.f32)
        kind = tc.bf16
