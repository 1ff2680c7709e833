"""text: print and parse are inverses, for every op, every type and random programs; faults point to their line."""

import math

import numpy as np
import pytest

from tests.semantics.generate import generate
from tests.unit.tile_programs import Kernel, gemm
from tilec.dtypes import DTYPES, bf16, bool_, f32, i32
from tilec.errors import InternalError, Location, TilecError
from tilec.ir import interp, tile
from tilec.ir.blocked import blocked
from tilec.ir.core import (
    OPS,
    Block,
    Op,
    Program,
    ScalarType,
    SharedType,
    TensorType,
    TileType,
    TokenType,
    Type,
    Value,
    fields_of,
)
from tilec.ir.shared_layout import SharedLayout
from tilec.ir.text import name_values, parse_program, print_program
from tilec.ir.verify import verify

GEMM = """\
tile gemm(%A: tensor<bf16, 2, contiguous=1, alignment=16>, %B: tensor<bf16, 2, contiguous=1, alignment=16>, \
%C: tensor<f32, 2, contiguous=1, alignment=16>) form=traced waves=4 {
  %0: i32 = dim %A axis=0
  %1: i32 = constant value=31
  %2: i32 = map [%0, %1] function=add
  %3: i32 = constant value=32
  %4: i32 = map [%2, %3] function=floordiv
  %5: i32 = dim %B axis=0
  %6: i32 = constant value=31
  %7: i32 = map [%5, %6] function=add
  %8: i32 = constant value=32
  %9: i32 = map [%7, %8] function=floordiv
  %pid: i32 = program_id axis=0
  %pid.1: i32 = program_id axis=1
  %acc: tile<32x32, f32> = constant value=0.0
  %10: i32 = constant value=0
  %11: i32 = dim %A axis=1
  %12: i32 = constant value=15
  %13: i32 = map [%11, %12] function=add
  %14: i32 = constant value=16
  %15: i32 = map [%13, %14] function=floordiv
  %16: i32 = constant value=1
  %acc.1: tile<32x32, f32> = for %10, %15, %16, [%acc] body(%k: i32, %acc.2: tile<32x32, f32>) {
    %a: tile<32x16, bf16> = load %A, [%pid, %k]
    %b: tile<32x16, bf16> = load %B, [%pid.1, %k]
    %17: tile<16x32, bf16> = permute %b axes=(1, 0)
    %acc.3: tile<32x32, f32> = dot %a, %17, %acc.2
    yield %acc.3
  }
  store %C, [%pid, %pid.1], %acc.1
  grid %4, %9
}
"""


def same(a, b, names: dict[Value, Value]) -> bool:
    """Whether two programs (or parts) are the same but for the identity of their values."""
    match a:
        case Value():
            return names.setdefault(a, b) is b and (a.type, a.name) == (b.type, b.name)
        case tuple():
            return len(a) == len(b) and all(same(x, y, names) for x, y in zip(a, b))
        case Block():
            return all(same(getattr(a, f), getattr(b, f), names) for f in ("params", "ops", "yields"))
        case Program():
            plain = (a.name, a.form, a.waves, a.where) == (b.name, b.form, b.waves, b.where)
            return plain and all(same(getattr(a, f), getattr(b, f), names) for f in ("params", "body", "grid"))
        case Op():
            fields = [f for kind in ("operand", "attribute", "region") for f in fields_of(type(a), kind)]
            parts = all(same(getattr(a, f), getattr(b, f), names) for f in (*fields, "results"))
            return type(a) is type(b) and a.where == b.where and parts
        case float():
            return type(b) is float and (math.isnan(a) and math.isnan(b) or str(a) == str(b))
    return type(a) is type(b) and a == b


def round_trip(program: Program, locations: bool = True) -> str:
    text = print_program(program, locations)
    parsed = parse_program(text)
    assert print_program(parsed, locations) == text
    assert same(program, parsed, {})
    return text


def test_a_kernel_reads_well_and_means_the_same_after_parsing():
    program = gemm(32, 32, 16)
    assert round_trip(program) == GEMM
    parsed = parse_program(GEMM)
    verify(parsed)
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, s).astype(bf16.numpy()) for s in ((40, 50), (33, 50)))
    arguments = {"A": a, "B": b, "C": np.zeros((40, 33), np.float32)}
    assert interp.first_difference({"": program, "parsed": parsed}, arguments) == ""


@pytest.mark.parametrize("seed", range(60))
def test_random_programs_round_trip(seed):
    round_trip(generate(seed).program)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60, 2000))
def test_more_random_programs_round_trip(seed):
    round_trip(generate(seed).program)


LAYOUT = blocked((16, 64), (1, 0), 4, 4)
SHARED = SharedLayout((16, 64), 16, (1, 0), granule=8, swizzle=(0, 0, 1, 0, 6), pad_interval=1024, pad_bytes=16)
TYPES: list[Type] = [
    *(ScalarType(t) for t in DTYPES.values()), TileType((4,), f32), TileType((16, 64), bf16, LAYOUT),
    TensorType(f32, 3), TensorType(bf16, 2, None, 2, True), TensorType(bf16, 2, 0, 16), SharedType((8, 8), f32),
    SharedType((16, 64), bf16, 3, SHARED), TokenType()]
ATTRIBUTES = [
    0, -1, 7, 1.5, -0.0, 1e-30, 1e300, math.inf, -math.inf, math.nan, True, False, None, "", "phase", "hand over",
    "inf", "true", "none", "f32", "not\"quoted\n", (), (1,), (1, (True, "x")), LAYOUT, SHARED, bf16]


def filled(op_class: type[Op], step: int) -> tuple[Op, tuple[Value, ...]]:
    """An op with every field filled, by turns with single values, lists and nothing, and the values it reads."""
    names = ("x", "", "long_name", "_7")
    reads = tuple(Value(TYPES[(step + i) % len(TYPES)], names[(step + i) % 4]) for i in range(4))
    fields: dict = {}
    for i, name in enumerate(fields_of(op_class, "operand")):
        fields[name] = (reads[i % 4], reads[:2], None, (), reads[3:])[(i + step) % 5]
    for i, name in enumerate(fields_of(op_class, "attribute")):
        fields[name] = ATTRIBUTES[(i + step) % len(ATTRIBUTES)]
    for i, name in enumerate(fields_of(op_class, "region")):
        param = Value(ScalarType(i32), "p")
        inner = tile.Constant(1, results=(Value(ScalarType(i32), "x"),))
        fields[name] = Block((param,) * (step % 2), (inner,) * (step % 3 > 0), (reads[0],) * (i + step % 2))
    results = tuple(Value(TYPES[(step + i) % len(TYPES)], "x") for i in range(step % 3))
    where = Location("a \"b\".py", step + 1, 3, 9) if step % 2 else None
    return op_class(**fields, results=results, where=where), reads


@pytest.mark.parametrize("mnemonic", OPS)
def test_every_op_round_trips_with_all_kinds_of_fields(mnemonic):
    for step in range(30):
        op, reads = filled(OPS[mnemonic], step)
        round_trip(Program("p", reads, Block((), (op,)), (), "laid_out", 8))


@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_every_type_round_trips(type_):
    round_trip(Program("p", (Value(type_, "x"),), Block()))


@pytest.mark.parametrize("value", ATTRIBUTES, ids=repr)
def test_every_attribute_round_trips(value):
    op = tile.Constant(value, results=(Value(ScalarType(f32)),))  # type: ignore[arg-type]
    round_trip(Program("p", (), Block((), (op,))))


def test_locations_are_printed_on_request():
    k = Kernel("k")
    k.where = Location("/tmp/ker nel.py", 12, 5, 8)
    k.number(1)
    program = k.program(where=Location("k.py", 3))
    assert print_program(program) == "tile k() form=traced waves=4 {\n  %0: i32 = constant value=1\n}\n"
    assert round_trip(program) == ('tile k() form=traced waves=4 at "k.py":3:1:1 {\n'
                                   '  %0: i32 = constant value=1 at "/tmp/ker nel.py":12:5:8\n}\n')


def test_a_layout_is_written_once():
    values = tuple(Value(TileType((16, 64), bf16, LAYOUT)) for _ in range(2))
    text = print_program(Program("p", values, Block(), form="laid_out"))
    params = "%0: tile<16x64, bf16, layout=#0>, %1: tile<16x64, bf16, layout=#0>"
    assert text == f"#0 = {LAYOUT}\ntile p({params}) form=laid_out waves=4 {{\n}}\n"


def test_names_are_unique_and_fit_the_grammar():
    hints = ["a", "a", "", "a.1", "a 1", "1", "", "é"]
    values = tuple(Value(ScalarType(f32), h) for h in hints)
    names = list(name_values(Program("p", values, Block())).values())
    assert names == ["a", "a.1", "0", "a_1", "a_1.1", "_1", "1", "_"]


def test_comments_and_blank_lines_are_allowed():
    text = "\n// a kernel\n" + GEMM.replace("\n  %1:", "  // its rows\n\n  // and\n  %1:")
    assert print_program(parse_program(text)) == GEMM


HEAD = "tile k(%x: f32) form=traced waves=4 {\n"


@pytest.mark.parametrize(("text", "message"), [
    (HEAD + "  %y: f32 = frobnicate %x\n}\n", "k.tile:2: no op 'frobnicate'"),
    (HEAD + "  %y: f32 = cast %z\n}\n", "k.tile:2: %z is not defined before it is used"),
    (HEAD + "  %x: f32 = cast %x\n}\n", "k.tile:2: %x is defined twice"),
    (HEAD + "  %y: f32 = cast %x color=1\n}\n", "k.tile:2: cast has no attribute 'color'"),
    (HEAD + "  %y: f32 = cast\n}\n", "k.tile:2: cast lacks a field"),
    (HEAD + "  %y: f32 = cast %x, %x\n}\n", "k.tile:2: cast takes at most 1 operands\n  limit: given 2"),
    (HEAD + "  %y: f32 = cast %x body {\n  }\n}\n", "k.tile:2: cast has no region 'body'"),
    (HEAD + "  %y: f33 = cast %x\n}\n", "k.tile:2: no type 'f33'"),
    (HEAD + "  %y: tile<4x4> = cast %x\n}\n", "k.tile:2: type tile: "),
    (HEAD + "  %y: tile<4x4, f32, layout=#3> = cast %x\n}\n", "k.tile:2: no layout #3 is given above the program"),
    (HEAD + "  %y.z: f32 = cast %x\n}\n", "k.tile:2: %y.z is no name"),
    (HEAD + "  %y: f32 = cast %x }\n}\n", "k.tile:2: this is no tile program: unexpected }"),
    (HEAD + "  cast $\n}\n", "k.tile:2: this is no tile program: unexpected $"),
    ("", "k.tile:1: this is no tile program: unexpected end")])
def test_faults_point_to_their_line(text, message):
    with pytest.raises(TilecError) as fault:
        parse_program(text, "k.tile")
    assert str(fault.value).startswith(message)


def test_an_attribute_without_a_text_form_is_a_bug():
    op = tile.Constant(object(), results=(Value(ScalarType(bool_)),))  # type: ignore[arg-type]
    with pytest.raises(InternalError, match="has no text form"):
        print_program(Program("p", (), Block((), (op,))))
