"""Two objects of a production compiler that the checks refuse, and why they are right to: see docs/emulator.md.

Each is proven faulty from both sides: the findings name the instructions of the argument and no others, and the same
object with its wait put where the manual wants it (in place, byte for byte of one size) passes every check, whatever
the landing.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.emulator.harness import assemble
from tilec.emulator import load_object
from tilec.emulator.corpus import load_description, load_reference, run_case

DATA = Path(__file__).resolve().parents[1] / "data"
REFERENCE = load_reference(DATA / "corpus" / "ref.py")
PINGPONG = "gluon_gemm_db_bf16_256x256x64_w8_pingpong__gfx950"
SCALED = "gemm_e4m3fn_256x256x128_w8_s2__gfx950"
ORDERS = [("late", 0), ("early", 1), ("random", 2), ("random", 3)]


def read(name):
    folder = DATA / "faulty" / name
    return load_object((folder / "kernel.hsaco").read_bytes()), load_description(folder / "meta.json")


def text_at(code, address):
    return next(i.text for i in code.instructions if i.address == address)


def encoded(code, text):
    """The instructions' bytes, without what the assembler puts behind them."""
    return assemble(text, code.arch).text


@pytest.mark.parametrize("case", ["one", "multi"])
def test_a_tile_is_read_that_nobody_waited_for(case):
    """The barrier at 0x1e74 waits for no counter; the first wait for vmcnt comes after the reads."""
    code, meta = read(PINGPONG)
    copies = [i.address for i in code.instructions if i.text.endswith("lds") and i.address < 0x1E74]
    waits = [i.address for i in code.instructions if "vmcnt" in i.text and "s_waitcnt" in i.text]
    assert copies[0] == 0x1DB0 and copies[-1] == 0x1E58 and len(copies) == 8
    assert text_at(code, 0x1E74) == "s_barrier" and waits[0] == 0x2444
    late = run_case(code, meta, case, REFERENCE)
    assert late.mismatches                      # the copies may land after the reads
    assert not run_case(code, meta, case, REFERENCE, landing="early").mismatches
    assert {f.check for f in late.findings} == {"lds_races", "definedness"}      # what was read is stored in the end
    races = [f for f in late.findings if f.check == "lds_races"]
    assert {min(f.address, f.other_address) for f in races} == set(copies)
    assert all("ds_read" in text_at(code, max(f.address, f.other_address)) for f in races)
    assert all(0x2348 <= max(f.address, f.other_address) < 0x2444 for f in races)


@pytest.mark.parametrize(("landing", "seed"), ORDERS)
def test_with_the_wait_before_the_barrier_it_passes(landing, seed):
    """v_cmp_lt 0xff is the complement of v_cmp_gt 0x100, which makes room for the wait."""
    code, meta = read(PINGPONG)
    repaired = encoded(code, "s_not_b64 s[0:1], vcc\ns_waitcnt vmcnt(0)\ns_nop 0")
    assert text_at(code, 0x1E6C).startswith("v_cmp_lt_u32_e64 s[0:1]") and len(repaired) == 0x1E74 - 0x1E68
    result = run_case(code.patched({0x1E68: repaired}), meta, "one", REFERENCE, landing=landing, seed=seed)
    assert result.passed, [*result.mismatches, *map(str, result.findings)]


@pytest.mark.parametrize("case", ["one", "multi"])
def test_a_barrier_is_passed_with_reads_in_flight(case):
    """The trailing half arrives at 0x266c with the reads at 0x2580 and 0x2588 under way; the leading half refills."""
    code, meta = read(SCALED)
    assert text_at(code, 0x25BC) == "s_waitcnt lgkmcnt(2)" and text_at(code, 0x2684) == "s_waitcnt lgkmcnt(0)"
    assert text_at(code, 0x266C) == text_at(code, 0x23DC) == "s_barrier"
    result = run_case(code, meta, case, REFERENCE)
    assert {f.check for f in result.findings} == {"lds_races"}
    assert {(f.address, f.other_address) for f in result.findings} == {
        (copy, load) for copy in (0x2488, 0x24A0) for load in (0x2580, 0x2588)}
    assert all(f.wave < 4 for f in result.findings) and "read by wave" in result.findings[0].message


@pytest.mark.parametrize(("landing", "seed"), ORDERS)
def test_with_wait_and_barrier_exchanged_it_passes(landing, seed):
    code, meta = read(SCALED)
    exchanged = {0x266C: encoded(code, text_at(code, 0x2684)), 0x2684: encoded(code, "s_barrier")}
    result = run_case(code.patched(exchanged), meta, "one", REFERENCE, landing=landing, seed=seed)
    assert result.passed, [*result.mismatches, *map(str, result.findings)]
