"""Memory instructions against numpy: widths, offsets, range checks, apertures, atomics, LDS forms, exchanges between
lanes.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.harness import LOAD_POINTERS, POISON, assemble, execute, words
from tilec.emulator import Memory, run
from tilec.emulator.memory import BASE
from tilec.errors import TilecError

RANDOM = np.random.default_rng(7)
WAIT = "s_waitcnt vmcnt(0) lgkmcnt(0)"
DESCRIPTOR = """
    s_mov_b32 s12, s8
    s_and_b32 s13, s9, 0xffff
    s_mov_b32 s14, {records}
    s_mov_b32 s15, 0x27000
"""


def random_bytes(count):
    return RANDOM.integers(0, 256, count).astype(np.uint8)


# ---- the store itself
def test_memory_is_sparse_and_guarded():
    memory = Memory()
    big = memory.place(6 << 30, name="six gigabytes")  # BL-69
    after = memory.place(np.arange(4, dtype=np.int16), name="after", align=2)
    assert after > big + (6 << 30) and memory.read(after, 8).view(np.int16).tolist() == [0, 1, 2, 3]
    memory.write(big + (5 << 30), b"\x07")
    assert memory.read(big + (5 << 30), 1)[0] == 7 and memory.read(big, 4).sum() == 0
    assert memory.find(after + 8) is None and memory.find(after + 7).name == "after"
    placed = memory.place(b"abc", address=BASE + (1 << 36) + 3)
    assert bytes(memory.read(placed, 3)) == b"abc"
    with pytest.raises(TilecError, match="no room for 4 bytes of x"):
        memory.place(4, name="x", address=after + 6)
    with pytest.raises(TilecError, match="not inside of an allocation"):
        memory.read(after, 9)


def test_offsets_beyond_32_bits():
    memory = Memory()
    address = memory.place(6 << 30)
    index = np.array([0, 1 << 31, (1 << 32) + 8, (6 << 30) - 4], np.int64) + (address - BASE)
    memory.space.store(index, np.arange(1, 5, dtype=np.uint32)[None], 4)
    assert memory.space.load(index, 4)[0].tolist() == [1, 2, 3, 4]


def test_a_kernel_reaches_the_end_of_a_tensor_over_four_gigabytes():  # BL-69, BL-71
    text = """
        s_load_dwordx2 s[8:9], s[0:1], 0x0
        v_lshlrev_b32_e32 v1, 2, v0
        s_waitcnt lgkmcnt(0)
        s_add_u32 s8, s8, 0x40000000
        s_addc_u32 s9, s9, 1
        global_store_dword v1, v0, s[8:9]
        s_endpgm
    """
    memory = Memory()
    size = (5 << 30) + 256
    address = memory.place(size, name="big")
    code = assemble(text)
    arguments = address.to_bytes(8, "little").ljust(64, b"\0")
    result = run(code, "k", grid=(1, 1, 1), block=(64, 1, 1), arguments=arguments, memory=memory)
    assert not result.findings and memory.read(address + (5 << 30), 256).view(np.uint32).tolist() == list(range(64))


@pytest.mark.parametrize("size", [1, 2, 4, 8, 12, 16])
@pytest.mark.parametrize("shift", [0, 1, 2, 4, 8])
def test_any_alignment(size, shift):
    memory = Memory()
    content = random_bytes(2048)
    base = memory.place(content, align=16) - BASE + shift
    index = base + RANDOM.permutation(64) * 16
    expected = [content[i - base + shift :][:size].tobytes().ljust(-(-size // 4) * 4, b"\0") for i in index]
    got = memory.space.load(index, size)
    assert [got[:, n].tobytes() for n in range(64)] == expected
    memory.space.store(index, ~got, size)
    assert (
        memory.space.load(index, size)
        == (~got & (np.uint32(0xFFFFFFFF) if size >= 4 else np.uint32((1 << 8 * size) - 1)))
    ).all()


# ---- global memory and buffers
@pytest.mark.parametrize(
    ("name", "count", "kind"),
    [
        ("ubyte", 1, "u1"),
        ("sbyte", 1, "i1"),
        ("ushort", 1, "u2"),
        ("sshort", 1, "i2"),
        ("dword", 1, "u4"),
        ("dwordx2", 2, "u4"),
        ("dwordx3", 3, "u4"),
        ("dwordx4", 4, "u4"),
    ],
)
@pytest.mark.parametrize("form", ["global", "saddr", "buffer", "flat"])
def test_loads_of_every_width(name, count, kind, form):
    size = np.dtype(kind).itemsize * count
    source = random_bytes(64 * 16 + 32)
    registers = f"v[4:{3 + count}]" if count > 1 else "v4"
    access = {
        "global": f"global_load_{name} {registers}, v[2:3], off offset:16",
        "flat": f"flat_load_{name} {registers}, v[2:3] offset:16",
        "saddr": f"global_load_{name} {registers}, v1, s[8:9] offset:16",
        "buffer": DESCRIPTOR.format(records="0x10000")
        + f"buffer_load_{name} {registers}, v1, s[12:15], 0 offen offset:16",
    }[form]
    stores = "\n".join(f"global_store_dword v8, v{4 + i}, s[10:11] offset:{4 * i}" for i in range(count))
    text = (
        LOAD_POINTERS
        + f"""
        v_lshlrev_b32_e32 v1, 4, v0
        v_lshlrev_b32_e32 v8, 4, v0
        v_mov_b32_e32 v2, s8
        v_mov_b32_e32 v3, s9
        v_add_co_u32_e32 v2, vcc, v2, v1
        s_nop 1
        v_addc_co_u32_e32 v3, vcc, 0, v3, vcc
        {access}
        {WAIT}
        {stores}
        s_endpgm
    """
    )
    outcome = execute(text, source, np.zeros(256, np.uint32))
    assert not outcome.findings
    for lane in range(64):
        raw = source[16 + 16 * lane :][:size]
        expected = raw.view(kind).astype(np.int64).astype(np.uint32) if size < 4 else raw.view("u4")
        assert (outcome.outputs[1][4 * lane :][:count] == expected).all()


@pytest.mark.parametrize(
    ("name", "value"),
    [("ubyte_d16", 0x82), ("sbyte_d16", 0xFF82), ("sbyte_d16_hi", 0xFF820000), ("short_d16_hi", 0x81820000)],
)
@pytest.mark.parametrize("space", ["global", "lds"])
def test_half_register_loads_leave_the_other_half_undefined(name, value, space):
    """Registers have ECC: the other half is lost (LLVM: d16PreservesUnusedBits), here 0 and never to be relied on."""
    load = f"global_load_{name} v2, v3, s[8:9]"
    if space == "lds":
        lds = name.replace("ubyte", "u8").replace("sbyte", "i8").replace("short", "u16")
        load = f"v_mov_b32_e32 v4, 0x8182\nds_write_b16 v3, v4\nds_read_{lds} v2, v3"
    text = (
        LOAD_POINTERS
        + f"v_mov_b32_e32 v3, 0\nv_mov_b32_e32 v2, 0x12345678\n{load}\n"
        + f"{WAIT}\n{{use}}\nglobal_store_dword v1, v2, s[10:11]\ns_endpgm"
    )
    source = np.full(64, 0x8182, np.uint16).view(np.uint8)
    outcome = execute(text.format(use=""), source, words(), lds=256)
    (finding,) = outcome.findings
    assert finding.check == "definedness" and f"byte {0 if value >> 16 else 2} of v2" in finding.message
    assert (outcome.outputs[1] == value).all()
    use = "v_lshrrev_b32_e32 v2, 16, v2" if value >> 16 else "v_and_b32_e32 v2, 0xffff, v2"
    outcome = execute(text.format(use=use), source, words(), lds=256)
    assert not outcome.findings and (outcome.outputs[1] == (value >> 16 or value)).all()


def test_buffer_range_checks():
    """Offset and immediate are checked per dword, soffset is not; out of range reads 0 and stores nothing."""
    source = np.arange(1, 257, dtype=np.uint32)
    text = (
        LOAD_POINTERS
        + DESCRIPTOR.format(records="0xf8")
        + f"""
        v_lshlrev_b32_e32 v1, 3, v0
        s_movk_i32 s16, 0x100
        buffer_load_dwordx2 v[4:5], v1, s[12:15], s16 offen offset:4
        v_mov_b32_e32 v6, 0x80000000
        buffer_load_dword v7, v6, s[12:15], 0 offen
        {WAIT}
        v_mov_b32_e32 v9, 9
        buffer_store_dword v9, v6, s[12:15], 0 offen
        v_lshlrev_b32_e32 v2, 4, v0
        global_store_dwordx2 v2, v[4:5], s[10:11]
        global_store_dword v2, v7, s[10:11] offset:8
        s_endpgm
    """
    )
    outcome = execute(text, source, np.zeros(256, np.uint32))
    assert not outcome.findings and (outcome.outputs[0] == source).all()
    got = outcome.outputs[1].reshape(64, 4)
    expected = np.zeros((64, 2), np.uint32)
    for lane in range(64):
        for word in range(2):
            offset = 8 * lane + 4 + 4 * word
            if offset + 4 <= 0xF8:
                expected[lane, word] = source[(0x100 + offset) // 4]
    assert (got[:, :2] == expected).all() and not got[:, 2].any() and expected[30].tolist()[0] and not expected[30][1]


def test_swizzle_bits_do_nothing_without_an_index():
    source = np.arange(64, dtype=np.uint32)
    text = (
        LOAD_POINTERS
        + DESCRIPTOR.format(records="0x100")
        + f"""
        s_or_b32 s13, s13, 0xc0100000
        buffer_load_dword v4, v1, s[12:15], 0 offen
        {WAIT}
        global_store_dword v1, v4, s[10:11]
        s_endpgm
    """
    )
    outcome = execute(text, source, words())
    assert not outcome.findings and (outcome.outputs[1] == source).all()


def test_flat_reaches_lds_and_scratch():
    text = (
        LOAD_POINTERS
        + f"""
        s_mov_b64 s[12:13], src_shared_base
        s_mov_b64 s[14:15], src_private_base
        v_mov_b32_e32 v4, v1
        v_mov_b32_e32 v5, s13
        flat_store_dword v[4:5], v0
        {WAIT}
        ds_read_b32 v6, v1
        v_mov_b32_e32 v8, 4
        v_mov_b32_e32 v9, s15
        flat_store_dword v[8:9], v1
        {WAIT}
        scratch_load_dword v7, off, off offset:4
        {WAIT}
        v_add_u32_e32 v6, v6, v7
        global_store_dword v1, v6, s[8:9]
        s_endpgm
    """
    )
    outcome = execute(text, words(), lds=256, scratch=8)
    assert not outcome.findings and (outcome.outputs[0] == np.arange(64) * 5).all()


# ---- atomics
@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("add", lambda old, x: old + x),
        ("sub", lambda old, x: old - x),
        ("umax", np.maximum),
        ("umin", np.minimum),
        ("and", np.bitwise_and),
        ("or", np.bitwise_or),
        ("xor", np.bitwise_xor),
        ("swap", lambda old, x: x),
        ("inc", lambda old, x: np.uint32(0) if old >= x else old + np.uint32(1)),
        ("dec", lambda old, x: x if old == 0 or old > x else old - np.uint32(1)),
    ],
)
@pytest.mark.parametrize("returns", [True, False])
def test_atomics_are_serial(name, function, returns):
    start = RANDOM.integers(0, 2**32, 8).astype(np.uint32)
    text = (
        LOAD_POINTERS
        + f"""
        v_and_b32_e32 v2, 7, v0
        v_lshlrev_b32_e32 v2, 2, v2
        v_mul_lo_u32 v3, 0x9e3779b1, v0
        v_mov_b32_e32 v4, 0
        global_atomic_{name} {"v4, " if returns else ""}v2, v3, s[8:9]{" sc0" if returns else ""}
        {WAIT}
        global_store_dword v1, v4, s[10:11]
        s_endpgm
    """
    )
    outcome = execute(
        text.replace("v_mul_lo_u32 v3, 0x9e3779b1, v0", "s_mov_b32 s16, 0x9e3779b1\nv_mul_lo_u32 v3, s16, v0"),
        start,
        words(),
    )
    assert not outcome.findings
    memory, old = start.copy(), []
    with np.errstate(over="ignore"):
        for lane in range(64):
            old.append(memory[lane % 8])
            memory[lane % 8] = function(memory[lane % 8], np.uint32(lane * 0x9E3779B1 & 0xFFFFFFFF))
    assert (outcome.outputs[0] == memory).all()
    assert (outcome.outputs[1] == (old if returns else 0)).all()


def test_compare_and_swap_in_memory_and_lds():
    text = (
        LOAD_POINTERS
        + f"""
        v_mov_b32_e32 v4, 100
        v_add_u32_e32 v4, v4, v0
        v_mov_b32_e32 v5, 5
        v_mov_b32_e32 v9, 0
        global_atomic_cmpswap v6, v9, v[4:5], s[8:9] sc0
        ds_write_b32 v9, v5
        ds_cmpst_rtn_b32 v7, v9, v5, v4
        {WAIT}
        global_store_dword v1, v6, s[10:11]
        ds_read_b32 v8, v9
        {WAIT}
        global_store_dword v9, v8, s[8:9] offset:4
        s_endpgm
    """
    )
    outcome = execute(text, np.array([5, 0], np.uint32), words(), lds=64)
    assert outcome.outputs[0].tolist() == [100, 100]
    assert outcome.outputs[1].tolist() == [5] + [100] * 63


def test_floating_atomics():
    text = (
        LOAD_POINTERS
        + f"v_mov_b32_e32 v2, 0\nv_cvt_f32_u32_e32 v3, v0\nglobal_atomic_add_f32 v2, v3, s[8:9]\n{WAIT}\ns_endpgm"
    )
    assert execute(text, np.array([0.5], np.float32)).outputs[0][0] == 2016.5
    text = (
        LOAD_POINTERS
        + "v_mov_b32_e32 v2, 0\nv_mov_b32_e32 v3, 0x3c004000\n"
        + f"global_atomic_pk_add_f16 v2, v3, s[8:9]\n{WAIT}\ns_endpgm"
    )
    assert execute(text, np.array([1, 0], np.float16)).outputs[0].tolist() == [129, 64]
    text = (
        LOAD_POINTERS
        + "v_mov_b32_e32 v2, 0\nv_mov_b32_e32 v3, 0x3f804000\n"
        + f"global_atomic_pk_add_bf16 v2, v3, s[8:9]\n{WAIT}\ns_endpgm"
    )
    assert execute(text, np.array([0x3F80, 0], np.uint16)).outputs[0].tolist() == [0x4301, 0x4280]


# ---- LDS
@pytest.mark.parametrize(
    ("write", "read", "width"),
    [
        ("ds_write_b64 v1, v[4:5]", "ds_read_b64 v[6:7], v1", 8),
        ("ds_write2_b32 v1, v4, v5 offset1:1", "ds_read2_b32 v[6:7], v1 offset1:1", 8),
        ("ds_write2st64_b32 v1, v4, v5 offset1:2", "ds_read2st64_b32 v[6:7], v1 offset1:2", 4),
        (
            "ds_write_b8 v1, v4\nds_write_b8_d16_hi v1, v4 offset:1\nds_write_b16_d16_hi v1, v5 offset:2",
            "ds_read_u8 v6, v1\nds_read_i16 v7, v1 offset:2",
            4,
        ),
    ],
)
def test_lds_forms(write, read, width):
    text = (
        LOAD_POINTERS
        + f"""
        v_mul_u32_u24_e32 v1, {width}, v0
        s_mov_b32 s16, 0x9e3779b1
        v_mul_lo_u32 v4, s16, v0
        v_not_b32_e32 v5, v4
        {write}
        {read}
        {WAIT}
        v_lshlrev_b32_e32 v8, 3, v0
        global_store_dwordx2 v8, v[6:7], s[8:9]
        s_endpgm
    """
    )
    outcome = execute(text, words(128), lds=2048)
    assert not outcome.findings
    value = np.arange(64, dtype=np.uint64) * 0x9E3779B1 % (1 << 32)
    first, second = value.astype(np.uint32), (~value).astype(np.uint32)
    if "u8" in read:
        first, second = first & 0xFF, (second.view(np.int32) >> 16).view(np.uint32)
    assert (outcome.outputs[0].reshape(64, 2) == np.stack([first, second], 1)).all()


@pytest.mark.parametrize(
    ("name", "bits", "dwords"), [("b64_tr_b16", 16, 2), ("b64_tr_b8", 8, 2), ("b64_tr_b4", 4, 2), ("b96_tr_b6", 6, 3)]
)
def test_transposed_lds_reads(name, bits, dwords):
    """Lane l of 16 gets as element j what the ISA guide says; elements are numbered by where they lie in memory."""
    size = 4 * dwords
    content = random_bytes(64 * 16)
    text = (
        LOAD_POINTERS
        + f"""
        v_lshlrev_b32_e32 v2, 4, v0
        global_load_dwordx4 v[4:7], v2, s[8:9]
        s_waitcnt vmcnt(0)
        ds_write_b128 v2, v[4:7]
        ds_read_{name} v[8:{7 + dwords}], v2
        {WAIT}
        {"".join(f"global_store_dword v2, v{8 + i}, s[10:11] offset:{4 * i}" + chr(10) for i in range(dwords))}
        s_endpgm
    """
    )
    outcome = execute(text, content, np.zeros(256, np.uint32), lds=1024)
    assert not outcome.findings

    def elements(raw):
        stream = np.unpackbits(np.frombuffer(raw, np.uint8), bitorder="little")
        return [
            int(np.packbits(stream[i * bits : (i + 1) * bits], bitorder="little")[0])
            if bits <= 8
            else int.from_bytes(np.packbits(stream[i * bits : (i + 1) * bits], bitorder="little").tobytes(), "little")
            for i in range(len(stream) // bits)
        ]

    memory = [elements(content[16 * lane : 16 * lane + size].tobytes()) for lane in range(64)]
    got = [elements(outcome.outputs[1].reshape(64, 4)[lane, :dwords].tobytes()) for lane in range(64)]
    for lane in range(64):
        group, within = lane & ~15, lane & 15
        for j, value in enumerate(got[lane]):
            if bits == 16:
                source, element = 4 * j + (within >> 2), within & 3
            elif bits == 8:
                source, element = 2 * j + (within >> 3), within & 7
            else:
                source, element = j, within
            assert value == memory[group + source][element]


def test_wide_copies_to_lds():
    source = random_bytes(1024)
    text = (
        LOAD_POINTERS
        + f"""
        v_lshlrev_b32_e32 v2, 4, v0
        v_xor_b32_e32 v3, 0x30, v2
        s_mov_b32 m0, 0x400
        s_nop 0
        global_load_lds_dwordx4 v3, s[8:9] offset:0
        s_waitcnt vmcnt(0)
        ds_read_b128 v[4:7], v2 offset:0x400
        {WAIT}
        global_store_dwordx4 v2, v[4:7], s[10:11]
        s_endpgm
    """
    )
    outcome = execute(text, source, np.zeros(256, np.uint32), lds=2048)
    assert not outcome.findings
    assert (outcome.outputs[1].view(np.uint8).reshape(64, 16) == source.reshape(64, 16)[np.arange(64) ^ 3]).all()


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("ds_bpermute_b32 v3, v2, v0", lambda i: (5 * i) % 64),
        ("ds_permute_b32 v3, v2, v0", lambda i: next(j for j in range(64) if 5 * j % 64 == i)),
        ("ds_swizzle_b32 v3, v0 offset:swizzle(SWAP,16)", lambda i: i ^ 16),
        ("ds_swizzle_b32 v3, v0 offset:swizzle(REVERSE,8)", lambda i: i ^ 7),
        ("ds_swizzle_b32 v3, v0 offset:swizzle(BROADCAST,4,2)", lambda i: i & ~3 | 2),
        ("ds_swizzle_b32 v3, v0 offset:swizzle(QUAD_PERM,3,0,2,1)", lambda i: i & ~3 | (3, 0, 2, 1)[i & 3]),
        ('ds_swizzle_b32 v3, v0 offset:swizzle(BITMASK_PERM,"01pip")', lambda i: i & 32 | ((i & 7 | 8) ^ 2)),
    ],
)
def test_exchanges_between_lanes(text, source):
    program = (
        LOAD_POINTERS + f"v_mul_u32_u24_e32 v2, 20, v0\n{text}\n{WAIT}\nglobal_store_dword v1, v3, s[8:9]\ns_endpgm"
    )
    outcome = execute(program, words())
    assert not outcome.findings and outcome.outputs[0].tolist() == [source(i) for i in range(64)]


def test_inactive_lanes_give_zero_to_a_permute():
    program = (
        LOAD_POINTERS
        + f"""
        v_mov_b32_e32 v3, 77
        s_mov_b64 exec, 0xff
        ds_bpermute_b32 v3, v2, v0
        {WAIT}
        s_mov_b64 exec, -1
        global_store_dword v1, v3, s[8:9]
        s_endpgm
    """.replace("s_mov_b64 exec, 0xff", "v_lshlrev_b32_e32 v2, 3, v0\ns_mov_b64 exec, 0xff")
    )
    outcome = execute(program, words())
    assert outcome.outputs[0].tolist() == [0, 2, 4, 6, 0, 0, 0, 0] + [77] * 56


# ---- scalar memory, waves and the dispatcher
def test_scalar_loads_and_workgroup_ids():
    text = """
        s_load_dwordx2 s[8:9], s[0:1], 0x0
        s_waitcnt lgkmcnt(0)
        s_load_dwordx8 s[16:23], s[8:9], 0x4
        s_mul_i32 s5, s4, 6
        s_mul_i32 s6, s3, 2
        s_add_u32 s5, s5, s6
        s_add_u32 s5, s5, s2
        s_waitcnt lgkmcnt(0)
        s_lshl_b32 s6, s5, 2
        s_add_u32 s7, s16, s23
        v_mov_b32_e32 v1, s6
        v_mov_b32_e32 v2, s7
        s_getreg_b32 s12, hwreg(HW_REG_XCC_ID)
        v_add_u32_e32 v2, s12, v2
        v_cmp_eq_u32_e32 vcc, 0, v0
        s_and_saveexec_b64 s[10:11], vcc
        global_store_dword v1, v2, s[8:9] offset:64
        s_endpgm
    """
    buffer = np.zeros(16 + 24, np.uint32)
    buffer[:9] = [99, 1, 0, 0, 0, 0, 0, 0, 100]
    outcome = execute(text, buffer, grid=(2, 3, 4))
    assert not outcome.findings
    assert outcome.outputs[0][16:].tolist() == [101 + i % 8 for i in range(24)]  # XCC_ID: round robin over 8


def test_partial_waves_and_large_grids():
    text = (
        LOAD_POINTERS
        + """
        s_mul_i32 s3, s2, 400
        v_add_u32_e32 v1, s3, v1
        v_mov_b32_e32 v2, s2
        global_store_dword v1, v2, s[8:9]
        s_endpgm
    """
    )
    outcome = execute(text, words(100 * 600), block=100, grid=(600, 1, 1))  # 1200 waves: several resident sets
    assert not outcome.findings and (outcome.outputs[0].reshape(600, 100) == np.arange(600)[:, None]).all()
    assert POISON == 0xCD


def test_lds_addressed_by_lane():
    """M0[15:0] + offset + 4 * lane, whatever the lane holds."""
    text = (
        LOAD_POINTERS
        + f"""
        s_movk_i32 m0, 0x100
        s_nop 0
        ds_write_addtid_b32 v0 offset:16
        v_add_u32_e32 v2, 0x110, v1
        ds_read_b32 v3, v2
        s_movk_i32 m0, 0x104
        s_nop 0
        ds_read_addtid_b32 v4 offset:8
        {WAIT}
        v_lshl_or_b32 v3, v4, 8, v3
        global_store_dword v1, v3, s[8:9]
        s_endpgm
    """
    )
    outcome = execute(text, words(), lds=1024)
    got = outcome.outputs[0]
    assert (got & 0xFF == np.arange(64)).all()                 # v3: what lane l wrote at 0x110 + 4 l
    assert (got[1:] >> 8 == np.arange(1, 64) - 1).all() and got[0] >> 8 == 0       # v4: 0x10c + 4 l, one lane before
    (finding,) = outcome.findings                               # lane 0 reads what nobody wrote
    assert finding.check == "definedness" and finding.lane == 0


def test_wrap_in_lds():
    """old >= data0 ? old - data0 : old + data1, one lane after another."""
    text = (
        LOAD_POINTERS
        + f"""
        v_mov_b32_e32 v2, 0
        v_mov_b32_e32 v3, 5
        v_mov_b32_e32 v4, 5
        v_mov_b32_e32 v5, 2
        ds_write_b32 v2, v3
        ds_wrap_rtn_b32 v6, v2, v4, v5
        {WAIT}
        global_store_dword v1, v6, s[8:9]
        s_endpgm
    """
    )
    outcome = execute(text, words(), lds=256)
    expected, old = [], 5
    for _ in range(64):
        expected.append(old)
        old = old - 5 if old >= 5 else old + 2
    assert not outcome.findings and (outcome.outputs[0] == expected).all()


def test_scratch_is_copied_to_lds():
    text = (
        LOAD_POINTERS
        + f"""
        v_add_u32_e32 v2, 100, v0
        scratch_store_dword off, v2, off offset:4
        s_movk_i32 m0, 0x40
        s_waitcnt vmcnt(0)
        scratch_load_lds_dword off, off offset:4
        v_add_u32_e32 v3, 0x44, v1
        {WAIT}
        ds_read_b32 v4, v3
        {WAIT}
        global_store_dword v1, v4, s[8:9]
        s_endpgm
    """
    )
    outcome = execute(text, words(), lds=1024, scratch=16)
    assert not outcome.findings and (outcome.outputs[0] == np.arange(64) + 100).all()
