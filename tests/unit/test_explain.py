"""What `explain` says of a tile is what the object does: registers, LDS, conflicts, clusters, counts of waits."""

from __future__ import annotations

import json
import re

import pytest
from click.testing import CliRunner

import tilec as tc
from kernels.softmax import softmax
from kernels.vector_add import vector_add
from tests.schedules.cases import compiled
from tests.schedules.steady import Steady
from tilec.cli import main
from tilec.errors import TilecError
from tilec.explain import explain


def sections(text: str) -> dict[str, dict[str, list[str]]]:
    """tile -> title -> lines"""
    found: dict[str, dict[str, list[str]]] = {}
    last = ""
    for part in text.split("\n\n")[1:]:
        head, *lines = part.splitlines()
        titles: dict[str, list[str]] = {}
        for line in lines:
            title, rest = line[2:12].strip(), line[13:]
            last = title or last
            titles.setdefault(last, []).append(rest)
        found[head.partition(":")[0]] = titles
    return found


@pytest.fixture(scope="module", params=["gfx942", "gfx950"])
def told(request):
    kernel = compiled("pingpong", request.param)
    return kernel, sections(kernel.explain())


def registers(text: str) -> set[str]:
    """`v[0:3], v9` as single registers."""
    names = set()
    for file, first, last in re.findall(r"\b([va])\[?(\d+)(?::(\d+))?", text):
        names |= {f"{file}{n}" for n in range(int(first), int(last or first) + 1)}
    return names


def test_all_tiles_of_the_steady_loop_are_told(told):
    kernel, tiles = told
    assert set(tiles) == {"a[0]", "a[1]", "b[0]", "b[1]", "acc[0, 0]", "acc[0, 1]", "acc[1, 0]", "acc[1, 1]"}
    assert kernel.explain().splitlines()[0] == (
        f"gemm for {kernel.arch}, schedule pingpong: 8 waves, {kernel.resources.vgpr} VGPR, 0 AGPR, "
        f"{kernel.resources.lds} bytes of LDS, 0 bytes of scratch")


def test_registers_are_those_of_the_disassembly(told):
    kernel, tiles = told
    loop = Steady(kernel)
    dots = [i.text for i in loop.instructions if "mfma" in i.text]
    per_trip = len(dots) // loop_trips(loop)
    for place, name in enumerate(("acc[0, 0]", "acc[0, 1]", "acc[1, 0]", "acc[1, 1]")):
        cluster = dots[place * per_trip // 4:(place + 1) * per_trip // 4]
        results = set().union(*(registers(text.split()[1]) for text in cluster))
        assert registers(tiles[name]["registers"][0]) == results


def loop_trips(loop: Steady) -> int:
    return len(list(loop.compute_clusters())) // 4


def test_operands_lie_where_dots_read_them(told):
    kernel, tiles = told
    first = [i.text for i in Steady(kernel).instructions if "mfma" in i.text][0]
    operands = {r for word in first.replace(",", " ").split()[2:4] for r in registers(word)}
    both = registers(tiles["a[0]"]["registers"][0]) | registers(tiles["b[0]"]["registers"][0])
    assert operands <= both


def test_lds_is_where_the_machine_program_goes(told):
    kernel, tiles = told
    for name in ("a[0]", "a[1]", "b[0]", "b[1]"):
        first, last = map(int, re.findall(r"bytes (\d+) to (\d+)", tiles[name]["LDS"][0])[0])
        touched = [i.shared for i in kernel.machine.instructions() if i.shared and i.shared.buffer == f"{name}_lds"]
        steady = [s for s in touched if first <= s.first and s.end <= last + 1]
        assert min(s.first for s in steady) == first and max(s.end for s in steady) == last + 1
        assert len(steady) > len(touched) / 2


def test_conflicts_and_their_source_are_told(told):
    kernel, tiles = told
    source = "measured on MI355X" if kernel.arch == "gfx950" else "inferred from documents"
    text = "\n".join(tiles["a[0]"]["LDS"])
    assert re.search(rf"read: \d+ ds_read_b128 of \d cycles, 0 extra by bank conflicts \({source}\)", text)
    assert "shared(64x64; 16 bits; order 1,0; granule 8 in 16 bytes; swizzle" in text
    filled = {"gfx950": "filled straight from memory: 1 copies of 16 bytes", "gfx942": "written: 1 ds_write_b128"}
    assert filled[kernel.arch] in text


def test_clusters_follow_the_data(told):
    kernel, tiles = told
    ahead = "copied to LDS, 2 trips ahead" if kernel.arch == "gfx950" else "written to LDS"
    clusters = tiles["a[0]"]["clusters"]
    assert clusters[0] == "0 of 8 (memory: read for acc[0, 0]): read from LDS"
    assert [c for c in clusters if "used" in c] == [
        "1 of 8 (compute: acc[0, 0], priority 1): used for acc[0, 0]",
        "3 of 8 (compute: acc[0, 1], priority 1): used for acc[0, 1]"]
    assert any(ahead in c for c in clusters)
    assert tiles["acc[1, 1]"]["clusters"] == ["7 of 8 (compute: acc[1, 1], priority 1): computed: a[1] times b[1]"]


def test_waits_are_those_of_the_object(told):
    kernel, tiles = told
    counts = {" ".join(f"{n}({c})" for n, c in wait.counters.items()) for wait in Steady(kernel).loop.waits}
    for name in ("a[0]", "a[1]", "b[0]", "b[1]"):
        waits = tiles[name]["waits"]
        reasons = "\n".join(waits)
        for word in (f"{name} read", f"{name} copied", "hand over", "publish"):
            assert word in reasons
        for wait in waits:
            assert wait.startswith("no wait of its own") or wait.partition(":")[0] in counts
    assert "waits" not in tiles["acc[0, 0]"]


def test_one_part_and_spelling():
    kernel = compiled("pingpong", "gfx950")
    assert list(sections(kernel.explain("acc"))) == ["acc[0, 0]", "acc[0, 1]", "acc[1, 0]", "acc[1, 1]"]
    assert kernel.explain("acc[0,1]") == kernel.explain("acc[0, 1]")
    assert list(sections(kernel.explain("a[1]"))) == ["a[1]"]


def test_a_loop_without_clusters():
    kernel = compiled("simple", "gfx950")
    tiles = sections(kernel.explain())
    assert set(tiles) == {"a", "b", "acc"} and all("clusters" not in lines for lines in tiles.values())
    assert "2 slots of" in tiles["a"]["LDS"][0] and "for all waves" in "\n".join(tiles["a"]["waits"])


def test_kernels_without_loops_and_without_names():
    compiled_softmax = softmax.compile(tc.spec("f32", (100, 1000)), tc.spec("f32", (100, 1000)), arch="gfx950")
    tiles = sections(compiled_softmax.explain("e"))
    assert set(tiles["e"]) == {"layout", "registers"} and "loop" not in tiles["e"]["registers"][0]
    plain = vector_add.compile(*(tc.spec("f32", (1000,)) for _ in range(3)), arch="gfx950")
    assert plain.explain().endswith("Its source gives no tile a name.")


def test_an_unknown_tile():
    with pytest.raises(TilecError) as refused:
        explain(compiled("simple", "gfx950"), "accumulator")
    assert str(refused.value) == "gemm has no tile 'accumulator'\n  limit: its tiles are a, acc, b"


def test_the_command():
    arguments = ["explain", "kernels/gemm.py:gemm", "acc[1, 0]", "--schedule", "pingpong", "--arch", "gfx950",
                 "--const", "BM=128", "--const", "BN=128"]
    plain = CliRunner().invoke(main, arguments)
    assert plain.exit_code == 0 and list(sections(plain.output)) == ["acc[1, 0]"]
    as_json = json.loads(CliRunner().invoke(main, [*arguments, "--json"]).output)
    assert as_json["text"] == plain.output.rstrip("\n")
    assert (as_json["kernel"], as_json["tile"]) == ("gemm", "acc[1, 0]")
