"""The register map against programs that can be read by hand, against the allocated instructions, and its picture."""

from __future__ import annotations

import dataclasses
import json
import xml.etree.ElementTree as xml

import numpy as np
import pytest
from click.testing import CliRunner

import tilec as tc
from kernels.attention import attention
from kernels.gemm import gemm
from tests.support.machine_text import program
from tilec.backend_amdgcn.regalloc import allocate
from tilec.cli import main
from tilec.frontend.jit import CompiledKernel
from tilec.frontend.schedules import RegisterRange
from tilec.ir.schedule import Part, Pin, named
from tilec.register_map import OTHER, RegisterMap, register_map
from tilec.register_picture import svg

SMALL = """
    s_load_dwordx4 base:s4 <- s[0:1], 0
    v_lshlrev_b32 a_at:v <- 4, v0
    buffer_load_dwordx4 first:v4 <- a_at, base, 0
    copy acc:va4@a4 <- 0
    copy n:s <- 0
loop 1:
    v_mfma_f32_16x16x32_bf16 acc <- first, first, acc
    s_barrier
    buffer_load_dwordx4 second:v4@v8 <- a_at, base, 0
    v_mfma_f32_16x16x32_bf16 acc <- second, first, acc
    s_add_i32 n <- n, 1
    s_cmp_lt_i32 <- n, 5
    s_cbranch_scc1 <- ->loop
end:
    buffer_store_dwordx4 <- acc, a_at, base, 0
    s_endpgm
"""

DRAWN = """
kernel for gfx950: 12 VGPR, 8 AGPR, 8 waves on a SIMD

         regions
                  0 1 2 3
           loops    = =
     v[0:3]    4  a a a .
         v4    1  - - - -
     v[5:7]    3  . . . .
    v[8:11]    4  . . c .
     a[0:3]    4  . . . .
     a[4:7]    4  b b b b

tiles (+: more than one in the region; .: free; -: addresses and single values)
  a  first: v[0:3]
  b  acc: a[4:7]
  c  second: v[8:11]

regions (=: in a loop)
   0  entry: 3 instructions: load first
   1    loop: 1 instructions: dot acc
   2    loop: 6 instructions: load second; dot acc
   3  end: 2 instructions: store"""


def compiled_map(schedule: str, arch: str = "gfx950", **pins: RegisterRange) -> tuple[CompiledKernel, RegisterMap]:
    a, c = np.zeros((256, 128), np.float16), np.zeros((256, 256), np.float32)
    plan = dataclasses.replace(named(schedule), pins=tuple(
        Pin(Part(tile), r.file, r.first, r.count) for tile, r in pins.items()))
    kernel = gemm.compile(a, a, c, arch=arch, schedule=plan, BM=128, BN=128, BK=32)
    return kernel, kernel.register_map()


@pytest.fixture(scope="module", params=["simple", "pingpong", "interleave", "attention"])
def mapped(request) -> tuple[CompiledKernel, RegisterMap]:
    if request.param != "attention":
        return compiled_map(request.param)
    q, lse = tc.spec("bf16", (1, 2, 64, 64)), tc.spec("f32", (1, 2, 64))
    kernel = attention.compile(q, q, q, q, lse, 0.125, D=64, arch="gfx942")
    return kernel, kernel.register_map()


def test_a_program_read_by_hand():
    assert "\n" + str(register_map(program(SMALL))) == DRAWN


def test_no_register_holds_two_tiles_at_once(mapped):
    _, found = mapped
    assert found.lives
    taken: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for life in found.lives:
        for index in range(life.index, life.index + life.count):
            taken.setdefault((life.file, index), []).append((life.first, life.end))
    for spans in taken.values():
        spans.sort()
        # an accumulator is read at the point at which the result that takes its place is there already
        assert all(first[1] <= second[0] + 1 for first, second in zip(spans, spans[1:]))
    used = found.resources
    assert max(index for file, index in taken if file == "v") < used.vgpr
    assert max((index for file, index in taken if file == "a"), default=-1) < used.agpr


def test_regions_cover_the_program_once(mapped):
    kernel, found = mapped
    count = sum(len(block.instructions) for block in kernel.stages["lower"].blocks)
    edges = [0, *(region.end for region in found.regions)]
    assert [region.first for region in found.regions] == edges[:-1] and edges[-1] == 2 * count
    depths = [region.depth for region in found.regions]
    assert 0 in depths and 1 in depths and all(any(pair) for pair in zip(depths, depths[1:]))


def test_the_loop_shows_what_its_instructions_name(mapped):
    """Results of the matrix instructions of loops, as allocated, are the registers of tiles that live in loops."""
    kernel, found = mapped
    named_there = {(o.file, o.index + k) for block in kernel.stages["registers"].blocks if block.depth
                   for i in block.instructions if "mfma" in i.op for o in i.dst for k in range(o.size)}
    loops = [region for region in found.regions if region.depth]
    shown = {place for place in named_there if any(set(found.cell(*place, region)) - {OTHER} for region in loops)}
    assert named_there and shown == named_there


@pytest.mark.parametrize("registers", [tc.agpr[16:80], tc.vgpr[60:124]], ids=str)
def test_a_pinned_tile_fills_its_place_through_the_loop(registers):
    _, found = compiled_map("simple", acc=registers)
    assert found.places("acc")[0] == (registers.file, registers.first, registers.count)
    for region in found.regions:
        if region.depth:
            assert all(found.cell(registers.file, index, region) == ("acc",)
                       for index in range(registers.first, registers.first + registers.count))


def holds(found: RegisterMap, tile: str, file: str, index: int, point: int) -> bool:
    return any(life.tile == tile and life.file == file and life.first <= point < life.end
               and life.index <= index < life.index + life.count for life in found.lives)


def test_addresses_are_no_tiles():
    """They go by the name of the tile that they are computed for."""
    kernel, found = compiled_map("simple")
    virtual, place = kernel.stages["lower"], allocate(kernel.stages["lower"]).assignment
    number, seen = 0, set()
    for block in virtual.blocks:
        for i in block.instructions:
            if i.op == "ds_read_b128" and block.depth:
                at, data = place[i.src[0].register], place[i.dst[0].register]
                register = i.dst[0].register
                assert holds(found, OTHER, at.file, at.index, 2 * number)
                assert holds(found, register.name, data.file, data.index, 2 * number + 1)
                seen.add(i.src[0].register.name)
            number += 1
    assert seen & {"a", "b"}


def test_the_picture_is_the_map(mapped):
    _, found = mapped
    root = xml.fromstring(svg(found))
    space = "{http://www.w3.org/2000/svg}"
    boxes = [e for e in root.iter(f"{space}rect") if "data-tile" in e.attrib]
    area: dict[str, float] = {}
    for box in boxes:
        area[box.attrib["data-tile"]] = area.get(box.attrib["data-tile"], 0) + float(box.attrib["height"])
    rows: dict[str, int] = {}
    for life in found.lives:
        rows[life.tile] = rows.get(life.tile, 0) + life.count
    scale = {area[tile] / rows[tile] for tile in found.tiles}
    assert len(scale) == 1 and found.tiles                      # every register of a life is equally high
    texts = [e.text or "" for e in root.iter(f"{space}text")]
    for number, region in enumerate(found.regions):
        assert any(t.startswith(f"{number}  {region.block}: {region.instructions} ") for t in texts)
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for e in root.iter(f"{space}rect"):
        x, y, w, h = (float(e.attrib.get(k, 0)) for k in ("x", "y", "width", "height"))
        assert x + w <= width + 1 and y + h <= height + 1


def test_on_the_command_line(tmp_path):
    picture = tmp_path / "gemm.svg"
    options = ["registers", "kernels/gemm.py:gemm", "--const", "BM=128", "--const", "BN=128", "--const", "BK=32"]
    shown = CliRunner().invoke(main, [*options, "--svg", str(picture)])
    assert shown.exit_code == 0, shown.output
    assert shown.output.startswith("gemm for gfx950: ") and "  acc: v[" in shown.output
    assert xml.fromstring(picture.read_text()).tag.endswith("svg")
    told = json.loads(CliRunner().invoke(main, [*options, "--json"]).output)
    assert set(told["tiles"]) >= {"a", "b", "acc"}
    assert len(told["rows"][0]["tiles"]) == len(told["regions"])


def test_a_schedule_that_does_not_exist():
    shown = CliRunner().invoke(main, ["registers", "kernels/gemm.py:gemm", "--schedule", "sideways"])
    assert shown.exit_code == 2 and "sideways" in shown.stderr
