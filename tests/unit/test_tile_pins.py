"""Tiles that a schedule pins: they lie where it says, on the emulator too; and what is refused, the whole message."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import tilec as tc
from kernels.attention import attention
from kernels.gemm import gemm
from tests.schedules import cases
from tilec.errors import TilecError
from tilec.ir.machine import Physical
from tilec.ir.schedule import Part, Pin, Schedule, named, parse_schedule

SIZES = {"BM": 128, "BN": 128, "BK": 32}


def simple(*pins: Pin, waves: int = 4) -> Schedule:
    return dataclasses.replace(named("simple"), name="pinned", waves=waves, pins=pins)


def pin(name: str, registers: tc.frontend.schedules.RegisterRange, *index: int) -> Pin:
    return Pin(Part(name, index), registers.file, registers.first, registers.count)


def halves(*pins: Pin) -> Schedule:
    """Four dots a trip, the second half of the waves one cluster behind."""
    return dataclasses.replace(cases.halves, pins=pins)


def data(m: int = 200, n: int = 150, k: int = 100) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(1)
    a, b = (random.integers(-3, 4, shape).astype(np.float16) for shape in ((m, k), (n, k)))
    return a, b, np.zeros((m, n), np.float32)


def compiled(schedule: Schedule, arch: str = "gfx950", **sizes):
    return gemm.compile(*data(), arch=arch, schedule=schedule, verify=True, **(sizes or SIZES))


def mfmas(kernel) -> list[tuple[Physical, Physical, Physical]]:
    """Result, A and B of each matrix instruction of the loops, where registers are moved by none."""
    loops = [i for b in kernel.stages["registers"].blocks if b.depth for i in b.instructions]
    assert not [i for i in loops if "accvgpr" in i.op]
    return [(i.dst[0], i.src[0], i.src[1]) for i in loops if "mfma" in i.op]


def places(operands) -> set[str]:
    return {f"{o.file}{i}" for o in operands for i in range(o.index, o.index + o.size)}


def run(schedule: Schedule, arch: str, **sizes) -> None:
    a, b, c = data()
    kernel = gemm.compile(a, b, c, arch=arch, schedule=schedule, verify=True, **(sizes or SIZES))
    assert not kernel.run(a, b, c)
    assert (c == a.astype(np.float64) @ b.astype(np.float64).T).all()


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
@pytest.mark.parametrize("registers", [tc.agpr[0:64], tc.agpr[40:104], tc.vgpr[100:164], tc.agpr[8:256]], ids=str)
def test_accumulators_lie_where_they_are_pinned(registers, arch):
    kernel = compiled(simple(pin("acc", registers)), arch)
    results = places(d for d, _, _ in mfmas(kernel))
    assert results == {f"{registers.file}{i}" for i in range(registers.first, registers.first + 64)}
    run(simple(pin("acc", registers)), arch)


def test_parts_of_a_whole_lie_in_order():
    kernel = compiled(halves(pin("acc", tc.agpr[16:48])))
    by_part: dict[str, set[int]] = {}
    for block in kernel.stages["lower"].blocks:
        for i in block.instructions:
            if "mfma" in i.op:
                register = i.dst[0].register
                by_part.setdefault(register.name, set()).add(register.pin[1])
    assert by_part == {"acc[0, 0]": {16}, "acc[0, 1]": {24}, "acc[1, 0]": {32}, "acc[1, 1]": {40}}
    assert places(d for d, _, _ in mfmas(kernel)) == {f"a{i}" for i in range(16, 48)}
    run(halves(pin("acc", tc.agpr[16:48])), "gfx950")


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_agprs_are_operands_too(arch):
    """Two operands that are never alive together share registers; the third stands beside them."""
    pins = (pin("a", tc.agpr[64:72], 0), pin("a", tc.agpr[64:72], 1), pin("b", tc.agpr[80:84], 1),
            pin("acc", tc.agpr[0:32]))
    used = mfmas(compiled(halves(*pins), arch))
    operands = [places([x]) | places([y]) for _, x, y in used]
    shared, apart = ({f"a{i}" for i in r} for r in (range(64, 72), range(80, 84)))
    assert all(o & shared for o in operands)
    assert sum(bool(o & apart) for o in operands) == len(operands) // 2
    run(halves(*pins), arch)


def test_a_large_accumulator_takes_its_own_place():
    """Results of more than 4 dwords may not overlap other operands, but take the place of C."""
    schedule = dataclasses.replace(named("pingpong", mfma=32), name="pinned", waves=4, pins=())
    plain = gemm.compile(*data(), arch="gfx950", schedule=schedule, verify=True, **SIZES)
    assert {d.size for d, _, _ in mfmas(plain)} == {16}
    run(dataclasses.replace(schedule, pins=(pin("acc", tc.agpr[32:96]),)), "gfx950")


@pytest.mark.parametrize("name", ["pingpong", "interleave"])
def test_a_named_schedule_keeps_its_clusters_when_tiles_are_pinned(name):
    plain = named(name)
    count = 32 if plain.waves == 8 else 64
    pinned = dataclasses.replace(plain, pins=(pin("acc", tc.agpr[32:32 + count]),))
    assert pinned.is_named and parse_schedule(str(pinned)) == pinned and parse_schedule(str(plain)) == plain
    kernels = [compiled(schedule) for schedule in (plain, pinned)]
    counts = [{op: sum(i.op == op for b in k.machine.blocks if b.depth for i in b.instructions)
               for op in ("s_barrier", "s_setprio", "ds_read_b128")} for k in kernels]
    assert counts[0] == counts[1] and counts[0]["s_barrier"]
    assert places(d for d, _, _ in mfmas(kernels[1])) == {f"a{i}" for i in range(32, 32 + count)}
    run(pinned, "gfx950")


def test_pins_are_written_and_read_as_text():
    schedule = simple(pin("acc", tc.agpr[0:64]))
    assert parse_schedule(str(schedule)) == schedule


@tc.kernel
def reads_the_old(A: tc.Tensor, B: tc.Tensor, C: tc.Tensor):
    At, Bt, Ct = A.tiles(64, 32), B.tiles(64, 32), C.tiles(64, 64)
    m, n = tc.program_id(Ct.grid)
    acc, old = tc.zeros(64, 64), tc.zeros(64, 64)
    for k in tc.range(At.grid[1]):
        a, b = At[m, k], Bt[n, k]
        before = acc
        acc = tc.dot(a, b.T, acc)
        old = old + before * acc
    Ct[m, n] = acc + old


REFUSED = {
    "too small": (simple(pin("acc", tc.agpr[0:32])), """
acc takes 64 registers of every lane, its pin has 32
  limit: tc.agpr[0:32] is pinned
  try: pin it to tc.agpr[0:64], or pin its parts apart"""),
    "too small for all parts": (halves(pin("acc", tc.vgpr[8:36])), """
acc takes 32 registers of every lane, its pin has 28
  limit: tc.vgpr[8:36] is pinned; its 4 parts take 8 each
  try: pin it to tc.vgpr[8:40], or pin its parts apart"""),
    "too small for a part": (halves(pin("acc", tc.vgpr[8:12], 1, 0)), """
acc[1,0] takes 8 registers of every lane, its pin has 4
  limit: tc.vgpr[8:12] is pinned
  try: pin it to tc.vgpr[8:16], or pin its parts apart"""),
    "no such tile": (simple(pin("q", tc.vgpr[0:4])), """
the schedule pins q, which is no tile of gemm that stays in registers
  limit: its tiles: a, acc, b
  try: pin one of these"""),
    "no such part": (halves(pin("acc", tc.vgpr[0:4], 2, 0)), """
the schedule pins acc[2,0], which is no tile of gemm that stays in registers
  limit: its tiles: a[0], a[1], acc[0,0], acc[0,1], acc[1,0], acc[1,1], b[0], b[1]
  try: pin one of these"""),
    "overlap": (simple(pin("acc", tc.agpr[0:64]), pin("a", tc.agpr[60:76])), """
a and acc are both pinned to a60 and live together
  limit: a takes a[60:75], acc takes a[0:63]
  try: pin one of them elsewhere"""),
    "not in the file": (simple(Pin(Part("acc"), "a", 200, 64)), """
acc is pinned to a[200:263], which is not in the file
  limit: it takes 64 registers, and the last is a255
  try: pin it to a192 or below"""),
    "misaligned": (simple(pin("acc", tc.agpr[1:65])), """
acc is pinned to a[1:64], where its tuples are misaligned
  limit: the first must be 0 modulo 2
  try: pin it to a2"""),
}


@pytest.mark.parametrize("case", REFUSED)
def test_pins_that_cannot_be_kept(case):
    schedule, message = REFUSED[case]
    with pytest.raises(TilecError) as error:
        compiled(schedule)
    assert "\n" + without_place(str(error.value)) == message


def test_a_tile_that_is_read_after_it_was_replaced():
    with pytest.raises(TilecError) as error:
        reads_the_old.compile(*data(), arch="gfx950", schedule=simple(pin("acc", tc.vgpr[64:80])))
    assert without_place(str(error.value)) == (
        "acc is pinned to v[64:79], and its old content is read after the new one is there\n"
        "  limit: both are alive in v64\n"
        "  try: leave the pin out, or give one of the two another name in the kernel")


def without_place(message: str) -> str:
    """The message without file and line, and the line of code that it shows."""
    lines = message.splitlines()
    rest = [line for line in lines[1:] if line.startswith(("  limit", "  try"))]
    return "\n".join([lines[0].split(": ", 1)[1], *rest])


@pytest.mark.parametrize(("name", "op"), [("acc", "v_pk_mul_f32"), ("s", "v_max3_f32"), ("p", "v_pk_add_f32")])
def test_a_file_that_an_instruction_of_the_loop_cannot_name(name, op):
    q, lse = tc.spec("bf16", (1, 2, 64, 64)), tc.spec("f32", (1, 2, 64))
    with pytest.raises(TilecError) as error:
        attention.compile(q, q, q, q, lse, 0.125, D=64, arch="gfx950", schedule=simple(pin(name, tc.agpr[0:64])))
    assert without_place(str(error.value)) == (
        f"{name} is pinned to AGPRs, which {op} in a loop cannot name\n"
        "  limit: ordinary vector instructions read and write VGPRs only\n"
        "  try: pin it to VGPRs, or leave the choice to the compiler")
