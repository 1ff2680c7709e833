"""Waits: which counts come out for which programs. Whether they suffice is waitcheck's business, which runs on each."""

from __future__ import annotations

import itertools
import random

import pytest

from tests.mutation.mutants import mutants
from tests.support.assembly import program
from tilec.backend_amdgcn import emit, waits
from tilec.backend_amdgcn.waitcheck import check
from tilec.ir.machine import Program


def waited(text: str, **options) -> str:
    """The program with waits, as text. Every program here is also proven safe."""
    done = waits.insert(program(text, **options))
    assert check(done) == []
    lines = []
    for block in done.blocks:
        lines += [f"{block.label}:"] if block.label != "entry" else []
        lines += [emit.instruction_text(i, done.arch) for i in block.instructions if i.op != "token"]
    return "\n".join(lines)


def counts(text: str, **options) -> list[str]:
    return [line for line in waited(text, **options).splitlines() if line.startswith("s_waitcnt")]


def test_each_result_waits_for_itself_only():
    assert waited("""
        buffer_load_dwordx4 v[0:3], v20, s[4:7], 0 offen
        buffer_load_dwordx4 v[4:7], v20, s[4:7], 0 offen offset:16
        buffer_load_dword v8, v20, s[4:7], 0 offen offset:32
        v_add_f32 v9, v3, v3
        v_add_f32 v9, v9, v4
        v_add_f32 v9, v9, v8
    """) == """\
buffer_load_dwordx4 v[0:3], v20, s[4:7], 0 offen
buffer_load_dwordx4 v[4:7], v20, s[4:7], 0 offen offset:16
buffer_load_dword v8, v20, s[4:7], 0 offen offset:32
s_waitcnt vmcnt(2)
v_add_f32 v9, v3, v3
s_waitcnt vmcnt(1)
v_add_f32 v9, v9, v4
s_waitcnt vmcnt(0)
v_add_f32 v9, v9, v8"""


def test_both_counters_in_one_wait():
    assert counts("""
        global_load_dword v0, v[2:3], off
        ds_read_b32 v1, v4
        ds_read_b32 v5, v4
        v_add_u32 v6, v0, v1
    """) == ["s_waitcnt vmcnt(0) lgkmcnt(1)"]


def test_stores_and_copies_count_too():         # BL-03
    assert counts("""
        buffer_load_dword v0, v20, s[4:7], 0 offen
        buffer_store_dword v1, v20, s[4:7], 0 offen
        buffer_load_dword v20, s[4:7], 0 offen lds
        global_load_dword v2, v[4:5], off
        v_mov_b32 v3, v0
    """) == ["s_waitcnt vmcnt(3)"]


def test_overwriting_waits_unless_the_counter_keeps_the_order():
    load, read = "global_load_dword v0, v[2:3], off\n", "ds_read_b32 v0, v4\n"
    assert counts(load + "v_mov_b32 v0, 0") == ["s_waitcnt vmcnt(0)"]
    assert counts(load + read) == ["s_waitcnt vmcnt(0)"]
    assert counts(read + load) == ["s_waitcnt lgkmcnt(0)"]
    assert counts(load + load + "v_mov_b32 v1, v0") == ["s_waitcnt vmcnt(0)"]
    assert counts(read + read) == counts("s_load_dword s0, s[2:3], 0") == []
    assert counts("s_load_dword s0, s[2:3], 0\n" * 2) == ["s_waitcnt lgkmcnt(0)"]


def test_source_data_is_read_at_issue():
    assert counts("ds_write_b32 v0, v1\nv_mov_b32 v1, 0\nglobal_store_dword v[2:3], v1, off\nv_mov_b32 v1, 1") == []


@pytest.mark.parametrize("middle, expected", [("", 1), ("s_load_dword s9, s[2:3], 0\n", 0)])
def test_scalar_loads_keep_no_order(middle: str, expected: int):
    assert counts(f"ds_read_b32 v0, v4\n{middle}ds_read_b32 v1, v4\nv_mov_b32 v2, v0") == [
        f"s_waitcnt lgkmcnt({expected})"]
    assert counts("s_load_dword s8, s[2:3], 0\ns_load_dword s9, s[2:3], 4\ns_add_u32 s8, s8, s8") == [
        "s_waitcnt lgkmcnt(0)"]


@pytest.mark.parametrize("load, spelled, many, highest", [
    ("global_load_dword v{0}, v[252:253], off", "vmcnt", 80, 62), ("ds_read_b32 v{0}, v252", "lgkmcnt", 30, 14)])
def test_counts_stay_below_the_counter_s_maximum(load: str, spelled: str, many: int, highest: int):
    text = "\n".join(load.format(i) for i in range(many)) + "\nv_mov_b32 v251, v0\n"
    assert counts(text) == [f"s_waitcnt {spelled}({highest})"]


def test_paths_join_at_the_nearer_issue():
    text = """
        global_load_dword v0, v[2:3], off
        s_cbranch_scc0 join
        global_load_dword v1, v[2:3], off
    join:
        v_mov_b32 v4, v0
    """
    assert counts(text) == ["s_waitcnt vmcnt(0)"]
    both = text.replace("join:", "join:\n global_load_dword v5, v[2:3], off")
    assert counts(both) == ["s_waitcnt vmcnt(1)"]


@pytest.mark.parametrize("ahead", [1, 2, 3])
def test_results_of_earlier_trips(ahead: int):
    """A load of trip i is consumed in trip i + ahead; the registers rotate by unrolling, the counts stay exact."""
    stages = ahead + 1
    prologue = "\n".join(f"global_load_dword v{i}, v[30:31], off" for i in range(ahead))
    body = "\n".join(f"global_load_dword v{(i + ahead) % stages}, v[30:31], off\nv_mov_b32 v9, v{i}"
                     for i in range(stages))
    assert set(counts(f"{prologue}\nloop:\n{body}\ns_cbranch_scc1 loop")) == {f"s_waitcnt vmcnt({ahead})"}


@pytest.mark.parametrize("copies", [1, 4])
@pytest.mark.parametrize("ahead", [1, 2])
def test_tokens_travel_around_the_loop(copies: int, ahead: int):
    """Copies of trip i are published in trip i + ahead; tokens are handed on, the loop is not unrolled."""
    one = "buffer_load_dwordx4 v20, s[4:7], 0 offen lds"
    copy = f"{one}\n" * (copies - 1) + one + " ; +{}\n"
    prologue = "".join(copy.format(f"c{i}") for i in range(ahead))
    hand_on = "\n".join(f"c{i} <- c{i + 1}" for i in range(ahead))
    text = f"{prologue}loop:\n{copy.format(f'c{ahead}')}s_barrier ; -c0\n{hand_on}\ns_cbranch_scc1 loop\n"
    assert counts(text) == [f"s_waitcnt vmcnt({copies * ahead})"]


def test_hand_over_drains_the_reads():          # BL-01
    lines = waited("ds_read_b128 v[0:3], v9 ; +read\ns_barrier ; -read\nv_mov_b32 v4, v0").splitlines()
    assert lines[1:3] == ["s_waitcnt lgkmcnt(0)", "s_barrier"]


@pytest.mark.parametrize("buffers", [4, 12, 40])
def test_any_number_of_buffers_is_tracked(buffers: int):       # BL-06
    bounds = [f"lds=b{i}:{64 * i}:{64 * i + 64}" for i in range(buffers)]
    text = "".join(f"buffer_load_dword v20, s[4:7], 0 offen lds ; +b{i} {bounds[i]}\n" for i in range(buffers))
    text += "".join(f"s_barrier ; -b{i}\nds_read_b32 v{i}, v50 ; {bounds[i]}\n" for i in range(buffers))
    assert counts(text) == [f"s_waitcnt vmcnt({buffers - 1 - i})" for i in range(buffers)]


def test_counts_follow_the_final_order():       # BL-02
    """Independent accesses in any order: the waits are those of that order."""
    loads = [f"global_load_dword v{i}, v[20:21], off" for i in range(4)]
    for order in itertools.permutations(range(4)):
        text = "\n".join(loads[i] for i in order) + "\nv_mov_b32 v9, v2\n"
        assert counts(text) == [f"s_waitcnt vmcnt({3 - order.index(2)})"]


def test_notes_say_what_for():
    done = waits.insert(program("""
        buffer_load_dwordx4 v20, s[4:7], 0 offen lds ; +c lds=a:0:64
        ds_read_b128 v[0:3], v9 ; lds=b:64:128
        s_barrier ; -c
        v_mov_b32 v8, v0
    """))
    assert [i.note for i in done.instructions() if i.op == "s_waitcnt"] == [
        "copy into a before s_barrier", "read of b before v_mov_b32"]


def random_program(seed: int, scalar_loads: bool) -> Program:
    """Loads, reads, copies, stores and uses over few registers and tokens, in branches and loops."""
    random_ = random.Random(seed)
    tokens = "cdr"

    def line() -> str:
        v, w, t = random_.randrange(6), random_.randrange(6), random_.choice(tokens)
        lines = [
            f"global_load_dword v{v}, v[20:21], off", f"ds_read_b32 v{v}, v22 ; +{t}",
            f"buffer_load_dword v22, s[4:7], 0 offen lds ; +{t}", f"ds_write_b32 v22, v{v} ; +{t}",
            f"global_store_dword v[20:21], v{v}, off", f"v_mov_b32 v{v}, v{w}", f"v_add_f32 v{v}, v{v}, v{w}",
            f"s_barrier ; -{t}", f"{t} <- {random_.choice(tokens)}"]
        scalar = [f"s_load_dword s{10 + v}, s[2:3], 0", f"v_mov_b32 v{v}, s{10 + v}"]
        return random_.choice(lines + scalar_loads * scalar)

    count = random_.randrange(1, 5)
    text = []
    for block in range(count):
        text += [f"L_{block}:", *(line() for _ in range(random_.randrange(1, 9)))]
        if random_.random() < 0.7:
            text.append(f"s_cbranch_scc1 L_{random_.randrange(count)}")
    return program("\n".join(text) + "\ns_endpgm", waves=1)


@pytest.mark.parametrize("seed", range(150))
def test_random_programs_are_safe_and_no_wait_is_idle(seed: int):
    """No wait is there for nothing: without any one of them the program is wrong."""
    done = waits.insert(random_program(seed, scalar_loads=True))
    assert check(done) == []
    for mutant in mutants(done):
        if mutant.kind == "wait deleted":
            assert check(mutant.program), str(mutant)


@pytest.mark.parametrize("seed", range(150))
def test_random_programs_have_the_weakest_counts(seed: int):
    """No count can be raised. (Beside scalar loads the pass asks for 0 where the checker could prove more.)"""
    done = waits.insert(random_program(1000 + seed, scalar_loads=False))
    assert check(done) == []
    for mutant in mutants(done):
        if mutant.kind in ("wait weakened", "wait moved"):
            assert check(mutant.program), str(mutant)
