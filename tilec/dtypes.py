"""Element types: one frozen record each, their twins in numpy, ml_dtypes and torch, and the promotion rule.

`bits` is the size in memory; how many elements share a register follows from it. A float is described by its bit format
(sign bit first, then `exponent`, then `mantissa` bits), which is all that conversions and the emulator need. Twins are
looked up by name when asked for: this module never imports torch, and ml_dtypes only if it is installed (else the raw
unsigned integer of that size).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from tilec.errors import TilecError


@dataclass(frozen=True)
class DType:
    """One element type.

    `kind` is float, int, uint or bool. `specials` says what the top of a float's range means: `ieee` has infinities and
    NaNs, `fn` has only NaNs at all ones, `fnuz` has one NaN at negative zero, `finite` has neither, `scale` is e8m0: a
    bare exponent without sign, mantissa or zero, whose all-ones pattern is NaN.
    """

    name: str
    bits: int
    kind: str
    exponent: int = 0
    mantissa: int = 0
    bias: int = 0
    specials: str = ""

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"tilec.{self.name}"

    def __reduce__(self) -> tuple[Any, ...]:
        return dtype, (self.name,)

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        return self.kind in ("int", "uint")

    @property
    def is_signed(self) -> bool:
        return self.kind == "int" or (self.is_float and self.specials != "scale")

    def bytes_of(self, count: int) -> int:
        """Bytes that `count` packed elements fill, rounded up to whole bytes (4- and 6-bit elements are packed without
        gaps)."""
        return (count * self.bits + 7) // 8

    def dwords_of(self, count: int) -> int:
        """32-bit registers that `count` packed elements fill: 2 for 4 bf16, 6 for 32 fp6."""
        return (count * self.bits + 31) // 32

    @property
    def limits(self) -> tuple[float, float] | tuple[int, int]:
        """(lowest, highest) finite value."""
        if self.kind == "bool":
            return 0, 1
        if self.is_integer:
            low = -(1 << (self.bits - 1)) if self.kind == "int" else 0
            return low, (1 << (self.bits - (self.kind == "int"))) - 1
        if self.specials == "scale":
            return 2.0**-self.bias, 2.0 ** ((1 << self.exponent) - 2 - self.bias)
        top = (1 << self.exponent) - (2 if self.specials == "ieee" else 1)
        fraction = 2.0 - 2.0**-self.mantissa * (2 if self.specials == "fn" else 1)
        high = fraction * 2.0 ** (top - self.bias)
        return -high, high

    def numpy(self) -> np.dtype:
        """The numpy type of one unpacked element: native, of ml_dtypes, or the unsigned integer of its size (at least 8
        bits)."""
        return _numpy_twin(self)

    @property
    def torch_name(self) -> str:
        """The attribute of the torch module that names this type; empty where torch has none."""
        return _TORCH.get(self.name, "")


def _float(name: str, bits: int, exponent: int, mantissa: int, bias: int, specials: str = "ieee") -> DType:
    return DType(name, bits, "float", exponent, mantissa, bias, specials)


f64 = _float("f64", 64, 11, 52, 1023)
f32 = _float("f32", 32, 8, 23, 127)
f16 = _float("f16", 16, 5, 10, 15)
bf16 = _float("bf16", 16, 8, 7, 127)
# OCP 8-bit floating point specification; FNUZ flavours as CDNA3's manual defines them (bias one higher, 0x80 is NaN).
fp8_e4m3fn = _float("fp8_e4m3fn", 8, 4, 3, 7, "fn")
fp8_e5m2 = _float("fp8_e5m2", 8, 5, 2, 15)
fp8_e4m3fnuz = _float("fp8_e4m3fnuz", 8, 4, 3, 8, "fnuz")
fp8_e5m2fnuz = _float("fp8_e5m2fnuz", 8, 5, 2, 16, "fnuz")
# OCP microscaling (MX) formats.
fp6_e2m3 = _float("fp6_e2m3", 6, 2, 3, 1, "finite")
fp6_e3m2 = _float("fp6_e3m2", 6, 3, 2, 3, "finite")
fp4_e2m1 = _float("fp4_e2m1", 4, 2, 1, 1, "finite")
e8m0 = _float("e8m0", 8, 8, 0, 127, "scale")
i8, i16, i32, i64 = (DType(f"i{bits}", bits, "int") for bits in (8, 16, 32, 64))
u8, u16, u32, u64 = (DType(f"u{bits}", bits, "uint") for bits in (8, 16, 32, 64))
bool_ = DType("bool", 8, "bool")

DTYPES: dict[str, DType] = {t.name: t for t in (
    f64, f32, f16, bf16, fp8_e4m3fn, fp8_e5m2, fp8_e4m3fnuz, fp8_e5m2fnuz, fp6_e2m3, fp6_e3m2, fp4_e2m1, e8m0,
    i8, i16, i32, i64, u8, u16, u32, u64, bool_)}

_NUMPY = {"f64": "float64", "f32": "float32", "f16": "float16", "bool": "bool"}
_NUMPY |= {f"{word[0]}{bits}": f"{word}{bits}" for word in ("int", "uint") for bits in (8, 16, 32, 64)}
_ML_DTYPES = {
    "bf16": "bfloat16", "fp8_e4m3fn": "float8_e4m3fn", "fp8_e5m2": "float8_e5m2", "fp8_e4m3fnuz": "float8_e4m3fnuz",
    "fp8_e5m2fnuz": "float8_e5m2fnuz", "fp6_e2m3": "float6_e2m3fn", "fp6_e3m2": "float6_e3m2fn",
    "fp4_e2m1": "float4_e2m1fn", "e8m0": "float8_e8m0fnu"}
_TORCH = {name: twin for name, twin in (_NUMPY | _ML_DTYPES).items() if not name.startswith(("fp6", "fp4"))}
_TORCH |= {"fp4_e2m1": "float4_e2m1fn_x2"}  # torch stores two in a byte and has no 6-bit type
_BY_TWIN = {twin: DTYPES[name] for table in (_NUMPY, _ML_DTYPES, _TORCH) for name, twin in table.items()}


@cache
def _numpy_twin(element: DType) -> np.dtype:
    if element.name in _NUMPY:
        return np.dtype(_NUMPY[element.name])
    try:
        import ml_dtypes
        return np.dtype(getattr(ml_dtypes, _ML_DTYPES[element.name]))
    except (ImportError, AttributeError):
        return np.dtype(f"uint{max(8, element.bits)}")


def dtype(value: Any) -> DType:
    """The element type named by a tilec name ("bf16"), a DType, a numpy or torch dtype, or one of Python's bool, int,
    float."""
    if isinstance(value, DType):
        return value
    if isinstance(value, type) and value in _PYTHON:
        return _PYTHON[value]
    name = value if isinstance(value, str) else str(value).removeprefix("torch.")
    found = DTYPES.get(name) or _BY_TWIN.get(name)
    if found is None and not isinstance(value, str):
        try:
            found = _BY_TWIN.get(np.dtype(value).name)
        except TypeError:
            pass
    if found is None:
        raise TilecError(f"no element type {value!r}", fix=f"use one of {', '.join(DTYPES)}")
    return found


_PYTHON = {bool: bool_, int: i32, float: f32}


def default_of(value: bool | int | float) -> DType:
    """The type that a Python number has alone: bool, i32 (i64 or u64 where it does not fit), f32."""
    if isinstance(value, (bool, np.bool_)):
        return bool_
    if isinstance(value, (int, np.integer)):
        for candidate in (i32, i64, u64):
            if candidate.limits[0] <= value <= candidate.limits[1]:
                return candidate
        raise TilecError(f"the integer {value} fits no element type",
                         limit=f"i64 ends at {i64.limits[1]}, u64 at {u64.limits[1]}")
    return f32


def promote(left: DType | bool | int | float, right: DType | bool | int | float) -> DType:
    """The type of `left op right` for arithmetic, where each side is a DType or a Python number.

    A Python number is weak: it takes the other side's type unless that is of a lower kind (bool < int < float), where
    it has its default type. Between DTypes: a float wins over integers and bool; the wider of two floats wins, f16 with
    bf16 is f32; the wider integer wins, and signed with unsigned of at least its size is the next wider signed type.
    Refused: two different floats of 8 bits or fewer (cast one), u64 with a signed type, and arithmetic on e8m0.
    """
    if not isinstance(left, DType) and not isinstance(right, DType):
        left, right = default_of(left), default_of(right)
    if not isinstance(left, DType):
        left, right = right, left
    assert isinstance(left, DType)
    if not isinstance(right, DType):
        own = default_of(right)
        if _RANK[own.kind] > _RANK[left.kind]:
            return own
        if left.is_integer and not left.limits[0] <= right <= left.limits[1]:
            raise TilecError(f"the integer {right} does not fit {left}",
                             limit=f"{left} holds {left.limits[0]} to {left.limits[1]}",
                             fix=f"cast the {left} side to a wider type first")
        right = left
    if e8m0 in (left, right):
        raise TilecError("e8m0 is a scale, not a number: it has no arithmetic", fix="cast it to f32 first")
    if left == right or _RANK[left.kind] != _RANK[right.kind]:
        return max(left, right, key=lambda t: _RANK[t.kind])
    wide, narrow = sorted((left, right), key=lambda t: (t.bits, t.kind == "uint"), reverse=True)
    if left.is_float:
        if wide.bits > narrow.bits and wide.bits > 8:
            return wide
        if wide.bits == 16:
            return f32
        raise TilecError(f"no common type for {left} and {right}", fix="cast one side with .to(...)")
    if wide.kind == narrow.kind or wide.kind == "int":
        return wide
    if wide.bits == 64:
        raise TilecError(f"no integer type holds both {left} and {right}", fix="cast one side with .to(...)")
    return DTYPES[f"i{2 * wide.bits}"]


_RANK = {"bool": 0, "int": 1, "uint": 1, "float": 2}
