"""The code objects of the shipped kernels: what clang and ld.lld make of the same text, without scratch."""

from __future__ import annotations

import importlib

import pytest

import tilec as tc
from tests.support.clang import compare_with_clang
from tilec.frontend.jit import CompiledKernel


def compiled(name: str, arch: str, **arguments: object) -> CompiledKernel:
    module = importlib.import_module(f"kernels.{name}")
    return getattr(module, name).compile(**{**module.defaults(), **arguments}, arch=arch)


def gemm_of(dtype: str, output: str) -> dict[str, object]:
    return {"A": tc.spec(dtype, (100, 200)), "B": tc.spec(dtype, (70, 200)), "C": tc.spec(output, (100, 70))}


CASES = {
    "vector_add": ("vector_add", {}),
    "softmax": ("softmax", {}),
    "transpose": ("transpose", {}),
    "gemm": ("gemm", {}),
    "gemm_small_f16": ("gemm", {**gemm_of("f16", "f32"), "BM": 64, "BN": 64, "BK": 32}),
    "gemm_small_i8": ("gemm", {**gemm_of("i8", "i32"), "BM": 64, "BN": 64, "BK": 64}),
}


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
@pytest.mark.parametrize("case", CASES)
def test_objects_equal_clang_and_lld(case: str, arch: str):
    name, arguments = CASES[case]
    result = compiled(name, arch, **arguments)
    compare_with_clang(result.asm, arch, result.object)
    assert result.resources.scratch == 0
