"""What a program or its schedule had to do without is said, and why; what fits as written says nothing."""

from __future__ import annotations

import re

import pytest

import tilec as tc
from kernels.attention import attention
from kernels.gemm import gemm
from kernels.softmax import softmax
from tilec.frontend.jit import CompiledKernel

SLICES = "dots are computed in 2 slices of k: "


def attend(arch: str, schedule: str, depth: int) -> CompiledKernel:
    q = tc.spec("bf16", (1, 2, 512, depth))
    arguments = {"Q": q, "K": q, "V": q, "O": q, "LSE": tc.spec("f32", (1, 2, 512)), "scale": 0.1}
    return attention.compile(**arguments, arch=arch, schedule=schedule, D=depth, BM=256)


@pytest.mark.parametrize("dtype, schedule, arch, expected", [
    ("bf16", "simple", "gfx942", ""), ("bf16", "pingpong", "gfx950", ""), ("bf16", "interleave", "gfx942", ""),
    ("f32", "simple", "gfx950", SLICES + r"gemm needs \d+ vector registers at once"),
    ("f32", "simple", "gfx942", SLICES + "the tiles of this kernel need 131072 bytes of LDS"),
    ("f32", "pingpong", "gfx950", SLICES + "schedule pingpong needs 2 buffers of each tile")])
def test_gemm(dtype, schedule, arch, expected):
    spec = tc.spec(dtype, (1024, 1024))
    compiled = gemm.compile(spec, spec, spec, arch=arch, schedule=schedule)
    assert re.fullmatch(expected, "; ".join(compiled.compromises))


@pytest.mark.parametrize("schedule, arch, depth, expected", [
    ("pingpong(mfma=32)", "gfx950", 128, ""),
    ("pingpong(mfma=32)", "gfx942", 128, r"no dot runs ahead .*: attention needs \d+ vector registers at once"),
    ("interleave", "gfx942", 64, "no dot runs ahead .*: values would move between VGPRs and AGPRs in a loop")])
def test_attention(schedule, arch, depth, expected):
    assert re.fullmatch(expected, "; ".join(attend(arch, schedule, depth).compromises))


def test_a_kernel_without_dots_has_no_use_for_clusters():
    spec = tc.spec("f32", (64, 100))
    (said,) = softmax.compile(spec, spec, arch="gfx950", schedule="pingpong").compromises
    assert said == "schedule pingpong serves no loop here: no loop has a dot"
