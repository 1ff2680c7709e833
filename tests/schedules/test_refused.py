"""Schedules that can't be carried out are refused by the name of the op, with the whole message compared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import tilec as tc
from kernels.gemm import gemm
from tests.schedules.cases import ROWS, problem
from tests.support.proving import run_and_compare
from tilec.errors import TilecError
from tilec.frontend import schedules

Clusters = Callable[[Any, Any, Any], list[tuple[list[Any], list[Any], int]]]
"""From the parts of a, b and acc: for each pair of clusters what is read (or copied), what is computed, next_copy."""


def schedule(clusters: Clusters, rings: dict[str, int] | None = None, waves: int = 8) -> schedules.Schedule:
    """Ping-pong with other clusters."""
    def custom(s: Any) -> None:
        a, b, acc = s.a.split(m=2), s.b.split(n=2), s.acc.split(m=2, n=2)
        s.ring(**(rings or {"a": 2, "b": 2}))
        s.stagger(halves=2)
        for reads, dots, copies in clusters(a, b, acc):
            s.memory(*reads, next_copy=copies)
            s.compute(*dots, prio=1)

    return schedules.build(custom, waves, None)


def compiled(plan: schedules.Schedule, arch: str = "gfx950", tile: int = 128) -> Any:
    specs = [tc.spec(element, (ROWS, ROWS)) for element in ("bf16", "bf16", "f32")]
    return gemm.compile(*specs, arch=arch, schedule=plan, BM=tile, BN=tile, BK=64, verify=True)


def message(plan: schedules.Schedule, **options: Any) -> str:
    """The message without the place, which is a line of the kernel."""
    with pytest.raises(TilecError) as refused:
        compiled(plan, **options)
    assert refused.value.where is not None and refused.value.where.file.endswith("kernels/gemm.py")
    lines = str(refused.value).splitlines()
    return "\n".join([lines[0].partition(": ")[2], *(line for line in lines if line.startswith(("  limit", "  try")))])


def pingpong(a: Any, b: Any, acc: Any) -> list[tuple[list[Any], list[Any], int]]:
    return [([b[0].read, a[0].read], [acc[0, 0]], 1), ([b[1].read], [acc[0, 1]], 1), ([a[1].read], [acc[1, 0]], 1),
            ([], [acc[1, 1]], 1)]


def test_the_list_that_the_others_change_compiles():
    compiled(schedule(pingpong))


# -- an op left out, placed twice, or made up

def test_a_read_left_out():
    def clusters(a, b, acc):
        return [([b[0].read, a[0].read], [acc[0, 0]], 1), ([], [acc[0, 1]], 1), ([a[1].read], [acc[1, 0]], 1),
                ([], [acc[1, 1]], 1)]
    assert message(schedule(clusters)) == """\
schedule custom leaves out the read of b[1]
  limit: the loop has 4 reads and 4 dots
  try: give each a place in a cluster"""


def test_dots_left_out():
    assert message(schedule(lambda a, b, acc: pingpong(a, b, acc)[:2] + [([a[1].read], [], 2)])) == """\
schedule custom leaves out the dot of acc[1, 0], acc[1, 1]
  limit: the loop has 4 reads and 4 dots
  try: give each a place in a cluster"""


def test_too_little_room_for_copies():
    def clusters(a, b, acc):
        return [(reads, dots, int(number < 3)) for number, (reads, dots, _) in enumerate(pingpong(a, b, acc))]
    assert message(schedule(clusters)) == """\
no cluster has room for the copy of a[1]
  limit: 4 copies without a place of their own, room for 3 in a trip
  try: raise next_copy of a memory cluster, or place the copy"""


def test_an_op_placed_twice():
    def clusters(a, b, acc):
        return [*pingpong(a, b, acc)[:3], ([b[0].read], [acc[1, 1]], 1)]
    assert message(schedule(clusters)) == """\
schedule custom places the read of b[0] twice
  limit: in clusters 0 and 6
  try: give each op one place in the trip"""


def test_an_op_that_the_loop_does_not_have():
    def custom(s):
        s.ring(a=2, b=2)
        s.memory(s.a.read, s.b.read, next_copy=2)
        s.compute(s.accumulator)
    assert message(schedules.build(custom, 8, None)) == """\
schedule custom: cluster 1 names the dot of accumulator, which the loop does not have
  limit: it has the dot of acc
  try: name a tile of the kernel's loop, split as the schedule splits it"""


def test_a_part_of_what_is_whole():
    def custom(s):
        s.ring(a=2, b=2)
        s.acc.split(m=2)
        s.memory(s.a.read, s.b.read, next_copy=2)
        s.compute(s.acc)
    assert message(schedules.build(custom, 8, None)) == """\
schedule custom: cluster 0 names the read of a, which the loop does not have
  limit: it has the read of a[0], a[1], b
  try: name a tile of the kernel's loop, split as the schedule splits it"""


# -- dependences

def test_a_dot_before_its_operand():
    def clusters(a, b, acc):
        first, second, *rest = pingpong(a, b, acc)
        return [(first[0], second[1], 1), (second[0], first[1], 1), *rest]
    assert message(schedule(clusters)) == """\
the clusters run the dot of acc[0, 1] before the read of b[1], which it needs
  try: order the clusters as the data flows"""


def test_a_copy_right_before_its_read():
    """The trailing half has not passed the barrier behind its write when the leading half reads."""
    def custom(s):
        s.ring(a=1, b=1)
        s.stagger(halves=2)
        s.memory(s.a.read, s.b.read, next_copy=2)
        s.compute(s.acc, prio=1)
        s.memory(name="writes")
    assert message(schedules.build(custom, 8, None), arch="gfx942") == """\
the clusters leave no barrier between the write of a and the read of a
  limit: they run in cluster 2 and in cluster 0 1 trip later, of 3; waves are up to 1 clusters apart
  try: move the write of a to an earlier cluster, or the read of a to a later one"""


def test_a_sum_ahead_of_the_trip_before():
    def custom(s):
        s.ring(a=2, b=2)
        for ref in (s.a, s.b, s.acc):
            ref.ahead(1)
        s.memory(s.a.read, s.b.read, next_copy=2)
        s.compute(s.acc)
    assert message(schedules.build(custom, 8, None)) == """\
the dot of acc can't run ahead of the trip: it depends on the one before
  try: run ahead what does not depend on carried values"""


# -- rings

def test_rings_that_do_not_fit():
    assert message(schedule(pingpong, {"a": 3, "b": 3}), tile=256) == """\
schedule custom needs 3 buffers of each tile
  limit: 196608 bytes of LDS, gfx950 has 163840 (one buffer each: a[0] 16384, b[0] 16384, b[1] 16384, a[1] 16384)
  try: use fewer buffers or smaller tiles"""
    assert message(schedule(pingpong), arch="gfx942", tile=256) == """\
schedule custom needs 2 buffers of each tile
  limit: 131072 bytes of LDS, gfx942 has 65536 (one buffer each: a[0] 16384, b[0] 16384, b[1] 16384, a[1] 16384)
  try: use fewer buffers or smaller tiles"""


def test_rings_of_different_depth():
    assert message(schedule(pingpong, {"a": 2, "b": 3})) == """\
schedule custom asks for rings of different depth
  limit: a=2, b=3; the trip's number says which slot, alike for all tiles of a loop
  try: give every tile the same number of buffers"""


def test_a_ring_of_nothing():
    assert message(schedule(pingpong, {"a": 2, "bias": 2})) == """\
schedule custom asks for a ring of bias, which the loop does not read from LDS
  limit: it reads a, b"""


# -- splits, waves, halves

def test_splits_that_do_not_divide():
    def custom(s):
        s.acc.split(m=3)
    assert message(schedules.build(custom, 8, None)) == """\
tile acc of 128x128 can't be split into 3x1
  limit: all that is computed with it must be split alike
  try: leave the split out, or split the other tile alike"""


def test_a_split_along_k():
    def custom(s):
        s.a.split(k=2)
    assert message(schedules.build(custom, 8, None)) == """\
schedule custom splits acc along k
  limit: dots are split along m and n
  try: choose a smaller tile along k in the kernel"""


def test_waves_that_can_not_share_the_dot():
    assert message(schedule(pingpong, waves=3)) == """\
dot of 64x64 can't be shared by 3 waves
  limit: 16x16 is what one wave takes at least, and all take alike
  try: choose a power of two of waves, or tile sizes that its factors divide"""


@pytest.mark.parametrize("write, text", [
    (lambda s: s.stagger(halves=3), "stagger(halves=3)\n  limit: waves run together (1) or in two halves (2)"),
    (lambda s: s.a.split(rows=2), "a.split(rows=...)\n  limit: a dot has the axes m, n and k"),
    (lambda s: s.a.split(m=0), "a.split(m=0)\n  limit: counts are integers from 1 up"),
    (lambda s: (s.a.split(m=2), s.a.split(m=2)), "a is split twice"),
    (lambda s: s.a.split(m=2)[2], "a has no part [2]\n  limit: it is split into [2]"),
    (lambda s: s.ring(a=0), "ring(a=0)\n  limit: a ring has 1 buffer or more"),
])
def test_what_the_language_itself_refuses(write, text):
    with pytest.raises(TilecError) as refused:
        schedules.build(write, 8, None)
    assert str(refused.value) == text


# -- what looks odd and is right

def test_copies_placed_one_by_one():
    def clusters(a, b, acc):
        return [([b[0].read, a[0].read, a[1].copy], [acc[0, 0]], 0), ([b[1].read, b[0].copy], [acc[0, 1]], 0),
                ([a[1].read, a[0].copy], [acc[1, 0]], 0), ([b[1].copy], [acc[1, 1]], 0)]
    for arch in ("gfx950", "gfx942"):
        kernel = compiled(schedule(clusters), arch=arch)
        for k in (0, 64, 128, 192, 330):
            arguments, expected = problem(128, 127, k)
            run_and_compare(kernel, arguments, expected)


def test_dots_of_a_cluster_and_waves_that_run_together():
    def custom(s):
        s.ring(a=2, b=2)
        b, acc = s.b.split(n=2), s.acc.split(n=2)
        s.memory(s.a.read, *(part.read for part in b), next_copy=3)
        s.compute(acc, name="both halves")
    kernel = compiled(schedules.build(custom, 4, None))
    assert kernel.waves == 4
    for k in (0, 64, 128, 330):
        arguments, expected = problem(128, 127, k)
        run_and_compare(kernel, arguments, expected)


def test_halves_of_an_odd_number_of_waves():
    def custom(s):
        s.stagger(halves=2)
        s.memory(s.a.read, s.b.read, next_copy=2)
        s.compute(s.acc)
    assert message(schedules.build(custom, 1, None), tile=64) == """\
schedule custom staggers two halves of the waves
  limit: the workgroup has 1 wave
  try: give the schedule an even number of waves"""


def test_a_schedule_without_clusters_leaves_the_loop_to_the_pipeline():
    kernel = compiled(schedules.build(lambda s: None, 4, None))
    assert kernel.waves == 4 and kernel.asm == gemm.compile(
        *(tc.spec(element, (ROWS, ROWS)) for element in ("bf16", "bf16", "f32")), arch="gfx950", BM=128, BN=128, BK=64,
        schedule=replace(schedules.simple(), waves=4)).asm
