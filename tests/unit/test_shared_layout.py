"""LDS maps and accesses by brute force: every address against the map's definition, conflicts against a plain count,
transposed reads and copies carried out on a simulated LDS."""

import itertools

import numpy as np
import pytest

from tilec.errors import InternalError
from tilec.ir.blocked import blocked
from tilec.ir.fragments import operand
from tilec.ir.layout import Layout
from tilec.ir.lds_access import copy_layout, extra_cycles, lds_access, read_access, transposed_access
from tilec.ir.shared_layout import SharedLayout
from tilec.target import TARGETS, target

GFX942, GFX950 = target("gfx942"), target("gfx950")
M16 = GFX950.mfma("v_mfma_f32_16x16x32_bf16")
M32 = GFX950.mfma("v_mfma_f32_32x32x16_bf16")
F8 = GFX950.mfma("v_mfma_f32_16x16x128_f8f6f4", "fp8_e4m3fn", "fp8_e4m3fn")
F6 = GFX950.mfma("v_mfma_f32_16x16x128_f8f6f4", "fp6_e2m3", "fp6_e2m3")
F4 = GFX950.mfma("v_mfma_f32_16x16x128_f8f6f4", "fp4_e2m1", "fp4_e2m1")

MAPS = {
    "plain": SharedLayout((16, 64), 16, (1, 0), 8),
    "columns": SharedLayout((16, 64), 16, (0, 1), 8),
    "swizzled": SharedLayout((16, 64), 16, (1, 0), 8, swizzle=(0, 0, 0, 1, 2, 5)),
    "in range": SharedLayout((16, 64), 16, (1, 0), 4, swizzle=(0, 0, 1, 3, 0, 7)),
    "padded": SharedLayout((16, 64), 16, (1, 0), 8, pad_interval=128, pad_bytes=16),
    "both": SharedLayout((16, 64), 32, (1, 0), 4, swizzle=(0, 0, 0, 0, 1, 2), pad_interval=512, pad_bytes=32),
    "odd": SharedLayout((48, 96), 16, (1, 0), 8, swizzle=(0, 0, 1, 2, 3)),
    "three axes": SharedLayout((2, 12, 8), 8, (2, 0, 1), 4, swizzle=(0, 1, 2)),
    "fp6": SharedLayout((16, 128), 6, (1, 0), 32, swizzle=(0, 0, 1, 2)),
    "fp6 spread": SharedLayout((16, 128), 6, (1, 0), 16, 16),
    "fp4": SharedLayout((16, 128), 4, (1, 0), 32, swizzle=(0, 0, 1, 2)),
    "bytes": SharedLayout((4, 4), 8, (1, 0), 1),
}


def grid(shape):
    return np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij"))


@pytest.mark.parametrize("shared", MAPS.values(), ids=MAPS)
def test_map(shared):
    bits = np.asarray(shared.bit_address(grid(shared.shape))).ravel()
    starts = np.sort(bits)
    assert (np.diff(starts) >= shared.element_bits).all()  # no two elements overlap
    assert starts[0] == 0 and starts[-1] + shared.element_bits <= 8 * shared.bytes
    for point in itertools.product(*map(range, shared.shape)):
        assert shared.coordinates(*shared.place(point)) == point
        address, granule = shared.bit_address(point), shared.granule
        first = shared.coordinates(shared.place(point)[0])
        assert address - shared.bit_address(first) == shared.place(point)[1] * shared.element_bits
        assert shared.place(point)[1] < granule
    assert SharedLayout.parse(str(shared)) == shared


def test_definition_of_swizzle_and_padding():
    swizzled = MAPS["swizzled"]  # rows of 8 granules: bits 3, 4, 5 are rows 1, 2, 4
    assert swizzled.byte_address((5, 0)) == 5 * 128 + 16 * (1 ^ 5)
    assert swizzled.byte_address((5, 9)) == 5 * 128 + 16 * (1 ^ 1 ^ 5) + 2
    assert MAPS["padded"].byte_address((5, 9)) == 5 * 144 + 18
    assert MAPS["odd"].block == 16 * 32 and MAPS["odd"].byte_address((0, 32)) == 1024  # the next block of columns
    assert MAPS["fp6"].bit_address((0, 33)) == 24 * 8 + 6


@pytest.mark.parametrize("arguments,message", [
    ({"granule": 3}, "3 elements"), ({"granule": 8, "granule_bytes": 8}, "8 elements of 16 bits in 8 bytes"),
    ({"granule": 8, "swizzle": (1,)}, "swizzle"), ({"granule": 8, "swizzle": (0,) * 7 + (1,)}, "reaches"),
    ({"granule": 8, "pad_interval": 96, "pad_bytes": 16}, "padding"),
    ({"granule": 8, "pad_interval": 8, "pad_bytes": 16}, "cut granules")])
def test_impossible_maps(arguments, message):
    with pytest.raises(InternalError, match=message):
        SharedLayout((16, 64), 16, (1, 0), **arguments)


def count_conflicts(instruction, addresses):
    """Extra cycles of one instruction by the definition: distinct words per bank and phase."""
    total = 0
    for phase in instruction.phases:
        banks = {}
        for lane in phase:
            for word in range(addresses[lane] // 4, (addresses[lane] + max(instruction.bytes, 4)) // 4):
                banks.setdefault(word % instruction.banks, set()).add(word)
        total += max(map(len, banks.values())) - 1
    return total


@pytest.mark.parametrize("arch,mnemonic", [
    (name, row.mnemonic) for name, t in TARGETS.items() for row in t.lds_instructions])
def test_extra_cycles(arch, mnemonic):
    instruction = target(arch).lds(mnemonic)
    rng = np.random.default_rng(5)
    unit = max(4, instruction.bytes)
    addresses = rng.integers(0, 256, (20, 64)) * unit
    addresses[0], addresses[1] = np.arange(64) * unit, 0  # consecutive lanes; all lanes on one word
    expected = [count_conflicts(instruction, row.tolist()) for row in addresses]
    np.testing.assert_array_equal(extra_cycles(instruction, addresses), expected)
    assert expected[1] == 0


def test_published_counts():
    """The counter values that HipKittens reports for its probes: 60 = 64 lanes on one bank less 4 phases; two lanes
    cost 1."""
    write = GFX950.lds("ds_write_b64")
    assert extra_cycles(write, np.arange(64) * 256) == 60
    active = np.zeros(64, bool)
    active[[0, 13]] = True
    read = GFX950.lds("ds_read_b128")
    assert extra_cycles(read, np.arange(64) * 256, active) == 1  # one phase
    active[13], active[4] = False, True
    assert extra_cycles(read, np.arange(64) * 256, active) == 0  # lane 4 is served later


def check_access(plan, register, shared):
    """Each part moves the bits of its items from where the map has them, in every lane of every wave."""
    where = np.asarray(shared.bit_address(register.enumerate()))
    element, size = shared.element_bits, 8 * plan.instruction.bytes
    covered = np.zeros((register.items,), int)
    for wave in range(register.waves):
        addresses = plan.addresses(wave)
        assert (addresses % plan.instruction.alignment == 0).all()
        for part, address in zip(plan.parts, addresses, strict=True):
            for item in range(-(-part.bit // element), (part.bit + size) // element):
                np.testing.assert_array_equal(where[wave, :, item] - 8 * address, item * element - part.bit)
                covered[item] += wave == 0
    assert size % element or (covered == 1).all()
    assert [part.bit for part in plan.parts] == list(range(0, register.items * element, size))


REGISTERS = {
    "a rows": (operand(M16, "a", (32, 64), (2, 1)), 16),
    "a 32": (operand(M32, "a", (64, 64), (1, 2)), 16),
    "b columns": (operand(M16, "b", (64, 64), (1, 2)), 16),
    "c": (operand(M16, "c", (64, 64), (2, 2)), 32),
    "c swapped": (operand(M16, "c", (64, 64), (2, 2), swap=True), 16),
    "rows": (blocked((64, 64), (1, 0), 8, 4), 16),
    "columns": (blocked((64, 64), (0, 1), 8, 4), 16),
    "odd": (blocked((48, 96), (1, 0), 8, 6), 16),
    "odd operand": (operand(M16, "a", (96, 96), (3, 1)), 16),
    "bytes": (blocked((32, 64), (1, 0), 16, 2), 8),
    "double": (blocked((16, 64), (1, 0), 2, 2), 64),
    "small": (blocked((4, 8), (1, 0), 4, 2), 16),
    "fp8": (operand(F8, "a", (32, 128), (1, 1)), 8),
    "fp4": (operand(F4, "a", (32, 128), (1, 1)), 4),
}
SWIZZLES = [(), (0, 0, 0, 1, 2), (0, 0, 1, 2, 4, 3)]


@pytest.mark.parametrize("register,bits", REGISTERS.values(), ids=REGISTERS)
@pytest.mark.parametrize("order", [(1, 0), (0, 1)])
@pytest.mark.parametrize("swizzle", SWIZZLES, ids=str)
@pytest.mark.parametrize("arch", TARGETS)
def test_access_by_enumeration(register, bits, order, swizzle, arch):
    block = SharedLayout(register.shape, bits, order).block if bits >= 8 else 1 << 12
    for size in (16, 8, 4):
        granule = 8 * size // bits
        if not granule or granule > block:
            continue
        levels = (block // granule).bit_length() - 1
        shared = SharedLayout(register.shape, bits, order, granule, size, swizzle[:levels])
        for writes in (False, True):
            plan = lds_access(register, shared, target(arch), writes, size)
            if plan is None:
                assert bits < 8 and order == (0, 1)  # single nibbles can't be addressed
                continue
            assert plan.instruction.writes == writes and plan.instruction.bytes <= size
            check_access(plan, register, shared)


@pytest.mark.parametrize("register,bits", [REGISTERS[name] for name in ("a rows", "rows", "c", "odd")], ids=str)
def test_padded_access(register, bits):
    for interval, pad in ((128, 16), (256, 4), (512, 32), (64, 8)):
        shared = SharedLayout(register.shape, bits, (1, 0), 2, 0, (), interval, pad)
        plan = lds_access(register, shared, GFX950, False)
        if plan is not None:
            check_access(plan, register, shared)
            assert pad % plan.instruction.alignment == 0
        else:
            assert register.item_grid or register.wave_grid


def test_widest_instruction():
    register, shared = operand(M16, "a", (32, 64), (2, 1)), SharedLayout((32, 64), 16, (1, 0), 8)
    assert lds_access(register, shared, GFX950, False).instruction.mnemonic == "ds_read_b128"
    assert lds_access(register, shared, GFX950, False, 8).instruction.mnemonic == "ds_read_b64"
    assert lds_access(register, shared, GFX942, True).instruction.mnemonic == "ds_write_b128"
    columns = SharedLayout((32, 64), 16, (0, 1), 8)
    assert lds_access(register, columns, GFX950, False).instruction.mnemonic == "ds_read_u16"
    granules = SharedLayout((32, 64), 16, (1, 0), 4, swizzle=(0, 0, 0, 0, 1))  # rows shuffle 8-byte granules
    assert lds_access(register, granules, GFX950, False).instruction.mnemonic == "ds_read_b64"
    padded = SharedLayout((32, 64), 16, (1, 0), 2, 0, (), 128, 4)  # rows 132 bytes apart
    assert lds_access(register, padded, GFX950, False).instruction.mnemonic == "ds_read_b32"


def test_granules():
    """A granule is what the widest access moves; without one given it is 16 bytes, or all of a smaller block."""
    register = operand(M16, "a", (32, 64), (2, 1))
    for granule, mnemonic in ((0, "ds_read_b128"), (8, "ds_read_b128"), (4, "ds_read_b64"), (1, "ds_read_u16")):
        shared = SharedLayout((32, 64), 16, (1, 0), granule)
        assert lds_access(register, shared, GFX950, False).instruction.mnemonic == mnemonic
        assert read_access(register, shared, GFX942) == lds_access(register, shared, GFX942, False)
    assert SharedLayout((32, 64), 6, (1, 0)).granule_bytes == 24 and SharedLayout((3, 2), 32, (1, 0)).granule_bytes == 8
    columns, shared = operand(M16, "b", (64, 64), (1, 2)), SharedLayout((64, 64), 16, (1, 0))
    assert read_access(columns, shared, GFX950).instruction.mnemonic == "ds_read_b64_tr_b16"
    assert read_access(columns, shared, GFX942).instruction.mnemonic == "ds_read_u16"


def test_fp6_takes_three_reads_per_granule():
    register, shared = operand(F6, "a", (32, 128), (1, 1)), SharedLayout((32, 128), 6, (1, 0), 32, swizzle=(0, 0, 1, 2))
    plan = lds_access(register, shared, GFX950, False)
    assert plan.instruction.mnemonic == "ds_read_b64" and plan.scale == 24 and len(plan.parts) == 6
    where = np.asarray(shared.byte_address(register.enumerate()))[0]
    for part, address in zip(plan.parts, plan.addresses(), strict=True):
        granule = part.bit // 192  # 32 items of 6 bits
        np.testing.assert_array_equal(address, where[:, 32 * granule] + part.bit % 192 // 8)


def test_address_registers():
    """An item bit that the swizzle mixes with lanes costs a second base; one that it leaves alone is an immediate."""
    register = operand(M16, "a", (256, 64), (2, 1))
    shared = SharedLayout((256, 64), 16, (1, 0), 8, swizzle=(0,) * 4 + (2, 4))
    plan = lds_access(register, shared, GFX950, False)
    assert plan.bases == (0, 64) and plan.lane == (128, 288, 576, 1024, 16, 32) and plan.wave == (16384,)
    assert plan.parts[:4] == ((0, 0, 0), (128, 64, 0), (256, 0, 2048), (384, 64, 2048))


def read_transposed(plan, memory, element_bits):
    """What the instruction leaves in registers, from its definition on one 16-lane group at a time: element j of lane l
    comes from element l % E of what lane (16 / E) * j + l // E addresses."""
    elements = plan.instruction.elements
    addresses = plan.addresses()
    result = np.zeros((64, len(plan.parts) * elements), memory.dtype)
    for number in range(len(plan.parts)):
        for lane, j in itertools.product(range(64), range(elements)):
            source = (16 // elements) * j + lane % 16 // elements
            place = 8 * addresses[number, lane // 16 * 16 + source] + lane % elements * element_bits
            result[lane, number * elements + j] = memory[place // element_bits] if element_bits != 6 else memory[place]
    return result


@pytest.mark.parametrize("register,bits,mnemonic", [
    (operand(M16, "b", (64, 64), (1, 1)), 16, "ds_read_b64_tr_b16"),
    (operand(M32, "b", (32, 64), (1, 1)), 16, "ds_read_b64_tr_b16"),
    (operand(F8, "b", (128, 32), (1, 1)), 8, "ds_read_b64_tr_b8"),
    (operand(F4, "b", (128, 32), (1, 1)), 4, "ds_read_b64_tr_b4"),
    (operand(F6, "b", (128, 32), (1, 1)), 6, "ds_read_b96_tr_b6")], ids=str)
@pytest.mark.parametrize("swizzle", [(), (0, 0, 1, 2, 1)])
def test_transposed_read(register, bits, mnemonic, swizzle):
    granule, size = {16: (4, 8), 8: (8, 8), 4: (16, 8), 6: (16, 16)}[bits]
    shared = SharedLayout(register.shape, bits, (1, 0), granule, size, swizzle)
    plan = transposed_access(register, shared, GFX950)
    assert plan.instruction.mnemonic == mnemonic
    places = np.asarray(shared.bit_address(grid(register.shape)))
    memory = np.full(8 * shared.bytes if bits == 6 else 8 * shared.bytes // bits, -1)
    memory[places if bits == 6 else places // bits] = np.arange(places.size).reshape(register.shape)
    wanted = np.arange(places.size).reshape(register.shape)[tuple(register.enumerate())][0]
    np.testing.assert_array_equal(read_transposed(plan, memory, bits), wanted)
    assert transposed_access(register, shared, GFX942) is None


def test_transposed_reads_need_lanes_along_the_contiguous_axis():
    assert transposed_access(operand(M16, "a", (32, 64), (1, 1)), SharedLayout((32, 64), 16, (1, 0), 8), GFX950) is None
    register = operand(M16, "b", (64, 64), (1, 1))
    assert transposed_access(register, SharedLayout((64, 64), 16, (1, 0), 2), GFX950) is not None
    shuffled = SharedLayout((64, 64), 16, (1, 0), 2, swizzle=(0, 0, 0, 0, 0, 0, 1))  # 4-byte granules change places
    assert transposed_access(register, shuffled, GFX950) is None


@pytest.mark.parametrize("shared,copy_bytes", [
    (SharedLayout((256, 64), 16, (1, 0), 8, swizzle=(0,) * 4 + (2, 4)), 16),
    (SharedLayout((256, 64), 16, (1, 0), 8, swizzle=(0, 0, 0, 1, 2, 4, 1)), 16),
    (SharedLayout((64, 64), 16, (0, 1), 2, swizzle=(0, 0, 0, 1, 2)), 4), (SharedLayout((64, 64), 16, (1, 0), 8), 4),
    (SharedLayout((192, 96), 16, (1, 0), 8, swizzle=(0, 0, 1, 2)), 16), (SharedLayout((16, 16), 16, (1, 0), 8), 16),
    (SharedLayout((64, 128), 6, (1, 0), 16, 16), 12), (SharedLayout((64, 128), 4, (1, 0), 32), 16),
    (SharedLayout((64, 64), 16, (1, 0), 8, 0, (), 1024, 16), 16)], ids=str)
@pytest.mark.parametrize("waves", [1, 4, 6])
@pytest.mark.parametrize("waves_outermost", [False, True])
def test_copies_fill_the_buffer(shared, copy_bytes, waves, waves_outermost):
    """A copy of one wave writes its lanes side by side from the address of lane 0; all copies together put each element
    where the map has it."""
    layout = copy_layout(shared, copy_bytes, waves, waves_outermost=waves_outermost)
    assert layout is not None and layout.covers() and layout.waves == waves
    items, stride = 8 * copy_bytes // shared.element_bits, 4 if copy_bytes == 4 else 16
    kept = layout.replication()
    lanes = np.flatnonzero([kept.lanes(64) >> lane & 1 for lane in range(64)])
    where = np.asarray(shared.bit_address(layout.enumerate()))
    for wave, first in itertools.product(kept.waves, range(0, layout.items, items)):
        start = where[wave, 0, first]
        expected = start + 8 * stride * lanes[:, None] + shared.element_bits * np.arange(items)
        np.testing.assert_array_equal(where[wave, lanes, first:first + items], expected)
    assert kept.items == tuple(range(layout.items))


def test_copies_of_a_wave_in_one_run():
    """With waves outermost, the copies of a wave follow each other in LDS: one base serves them all."""
    shared = SharedLayout((256, 64), 16, (1, 0), 8, swizzle=(0,) * 4 + (2, 4))
    layout = copy_layout(shared, 16, 8, waves_outermost=True)
    addresses = np.asarray(shared.byte_address(layout.enumerate()))
    assert (addresses[:, 0, ::8] == 4096 * np.arange(8)[:, None] + 1024 * np.arange(4)).all()
    assert layout.additive  # so each copy's global address is the lane's plus a constant


def test_copies_that_do_not_fit():
    assert copy_layout(SharedLayout((64, 64), 16, (1, 0), 4), 16, 4) is None  # 8-byte granules are torn
    assert copy_layout(SharedLayout((64, 64), 16, (1, 0), 8, 0, (), 128, 16), 16, 4) is None  # padding inside a copy
    assert copy_layout(SharedLayout((64, 128), 6, (1, 0), 32), 16, 4) is None  # 24-byte granules


def test_registers_that_do_not_compose_with_blocks():
    odd = Layout((6,), ((1,), (2,), (4,)), ())  # a basis beyond the power of two of the axis
    assert lds_access(odd, SharedLayout((6,), 32, (0,), 1), GFX950, False) is None
