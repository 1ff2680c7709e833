# ruff: noqa: I001 (names in paragraphs)
"""tilec: Python tile kernels to AMD CDNA3 and CDNA4 assembly. Write `import tilec as tc`.

Seven words: kernel, Tensor, Const, `A.tiles(...)`, range, dot (and array math), schedule.
"""

from tilec.dtypes import (
    DType, bf16, bool_, e8m0, f16, f32, f64, fp4_e2m1, fp6_e2m3, fp6_e3m2, fp8_e4m3fn, fp8_e4m3fnuz, fp8_e5m2,
    fp8_e5m2fnuz, i8, i16, i32, i64, u8, u16, u32, u64,
)
from tilec.errors import TilecError
from tilec.frontend.jit import Const, Kernel, kernel
from tilec.frontend.lang import (
    abs, cdiv, ceil, cos, dot, exp, exp2, floor, fma, full, iota, log, log2, maximum, minimum, program_id, range,
    reciprocal, require, rsqrt, scalar, sin, sqrt, when, where, zeros,
)
from tilec.frontend.schedules import agpr, chiplet, grouped, interleave, pingpong, rows, simple, vgpr
from tilec.frontend.tensors import Tensor, Tiles
from tilec.frontend.values import Scalar, Tile
from tilec.ir.schedule import Schedule
from tilec.runtime.tensors import spec, tensor

__all__ = [
    "Const", "DType", "Kernel", "Scalar", "Schedule", "Tensor", "Tile", "Tiles", "TilecError", "abs", "agpr",
    "bf16", "bool_", "cdiv", "ceil", "chiplet", "cos", "dot", "e8m0", "exp", "exp2", "f16", "f32", "f64", "floor",
    "fma", "fp4_e2m1", "fp6_e2m3", "fp6_e3m2", "fp8_e4m3fn", "fp8_e4m3fnuz", "fp8_e5m2", "fp8_e5m2fnuz", "full",
    "grouped", "i8", "i16", "i32", "i64", "interleave", "iota", "kernel", "log", "log2", "maximum", "minimum",
    "pingpong", "program_id", "range", "reciprocal", "require", "rows", "rsqrt", "scalar", "simple", "sin", "spec",
    "sqrt", "tensor", "u8", "u16", "u32", "u64", "vgpr", "when", "where", "zeros",
]
