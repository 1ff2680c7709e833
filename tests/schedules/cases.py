"""What the tests of schedules share: ping-pong spelled out by hand, compiled objects, and problems to run on them.

Most tests take tiles of 128 x 128 x 64: the mechanism is that of the full size, at an eighth of the work.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

import tilec as tc
from kernels.attention import attention
from kernels.gemm import gemm
from tests.support.numbers import integers, normal
from tests.support.placing import placed, wide_rows
from tests.support.proving import Launch
from tilec.dtypes import DTYPES
from tilec.frontend.jit import CompiledKernel

ARCHITECTURES = ("gfx942", "gfx950")
ATTENTION = ("simple", "pingpong(mfma=32)")
SCHEDULES = ("simple", "pingpong", "interleave", "halves")
WAVE_SCHEDULES = SCHEDULES[1:]
ROWS = 1024             # of the specs: whole cache lines apart, as the placed tensors are

Arrays = dict[str, np.ndarray]


@gemm.schedule(waves=8)
def halves(s: Any) -> None:
    """What `pingpong` stands for."""
    a, b, acc = s.a.split(m=2), s.b.split(n=2), s.acc.split(m=2, n=2)
    s.ring(a=2, b=2)
    s.stagger(halves=2)
    s.memory(b[0].read, a[0].read, next_copy=1)
    s.compute(acc[0, 0], prio=1)
    s.memory(b[1].read, next_copy=1)
    s.compute(acc[0, 1], prio=1)
    s.memory(a[1].read, next_copy=1)
    s.compute(acc[1, 0], prio=1)
    s.memory(next_copy=1)
    s.compute(acc[1, 1], prio=1)


@cache
def compiled(schedule: str, arch: str, dtype: str = "bf16", tile: int = 128) -> CompiledKernel:
    """`gemm` with C in f32, for tensors whose rows are aligned; every checker runs between the passes."""
    specs = [tc.spec(element, (ROWS, ROWS)) for element in (dtype, dtype, "f32")]
    return gemm.compile(*specs, arch=arch, schedule=schedule, BM=tile, BN=tile, BK=64, verify=True)


def problem(m: int, n: int, k: int, dtype: str = "bf16", random: bool = False) -> tuple[Arrays, Arrays]:
    """Arguments in poisoned memory, and the product: exact where the data are small integers."""
    make = normal if random else integers
    a, b = make((m, k), dtype, 1), make((n, k), dtype, 2)
    c = np.full((m, n), 7, DTYPES["f32"].numpy())
    arguments = {name: placed(data, wide_rows) for name, data in zip("ABC", (a, b, c))}
    return arguments, {"C": a.astype(np.float64) @ b.astype(np.float64).T}


def launch(schedule: str, arch: str, tile: int = 128) -> Launch:
    """On data that rounds; a round of the steady loop, a trip left over, and the partial tile: all of the program."""
    return Launch(compiled(schedule, arch, tile=tile), lambda: problem(127, 126, 5 * 64 + 9, random=True)[0])


@cache
def attention_launch(arch: str, depth: int, causal: bool, schedule: str = "simple", lazy: float = 0) -> Launch:
    """Rows for one workgroup and a part (simple) or a part of one; five whole tiles of keys and a partial one, not all
    of which the causal mask lets each row see."""
    def arguments() -> dict[str, Any]:
        lengths = {"Q": 140, "K": 5 * 64 + 9, "V": 5 * 64 + 9}
        tensors = {name: placed(normal((1, 1, length, depth), "bf16", seed), wide_rows)
                   for seed, (name, length) in enumerate(lengths.items())}
        o, lse = np.zeros_like(tensors["Q"]), np.zeros((1, 1, 140), np.float32)
        return {**tensors, "O": placed(o, wide_rows), "LSE": placed(lse), "scale": depth**-0.5}

    rows = 128 if schedule == "simple" else 256
    return Launch(attention.compile(**arguments(), arch=arch, schedule=schedule, causal=causal, lazy=lazy, D=depth,
                                    BM=rows, verify=True), arguments)
