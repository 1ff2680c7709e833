"""Tensors from outside, without copying: numpy, torch, anything with DLPack, and specs without data.

All become a `TensorView`: element type, shape, strides in bytes, address. `tensor_type` alone decides how a tensor
specialises an object, from shape, strides and address. Axes of size 1 (and all axes of an empty tensor) never decide:
their strides are never used.
"""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilec import dtypes
from tilec.dtypes import DType
from tilec.errors import TilecError
from tilec.ir.core import FAR_STRIDE, TensorType
from tilec.runtime.devices import CPU, Device

MAX_EXTENT = (1 << 31) - 1  # indices are i32
MAX_SPAN = (1 << 31) - 1  # byte offsets of narrow tensors fit 31 bits
VECTOR_BYTES, WORD_BYTES = 16, 4


@dataclass(frozen=True)
class TensorView:
    """A tensor in memory. `strides` are in bytes, negative ones run backwards from `address`, where element 0 lies;
    `owner` keeps the memory alive."""

    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    address: int
    device: Device = CPU
    readonly: bool = False
    owner: Any = field(default=None, repr=False, compare=False)

    @property
    def type(self) -> TensorType:
        return tensor_type(self.dtype, self.shape, self.strides, self.address)

    @property
    def span(self) -> int:
        """Bytes from the lowest element to the end of the highest; 0 for an empty tensor."""
        if 0 in self.shape:
            return 0
        return sum((n - 1) * abs(s) for n, s in zip(self.shape, self.strides)) + self.dtype.bits // 8

    @property
    def start(self) -> int:
        """The address of the lowest element."""
        return self.address + sum(max(0, n - 1) * min(0, s) for n, s in zip(self.shape, self.strides))

    def numpy(self) -> np.ndarray:
        """The same memory as an array (CPU only)."""
        assert self.device == CPU
        element = self.dtype.numpy()
        if not self.span:
            return np.empty(self.shape, element)
        memory = memoryview((ctypes.c_uint8 * self.span).from_address(self.start))
        array = np.ndarray(self.shape, element, memory, self.address - self.start, self.strides)
        array.flags.writeable = not self.readonly
        return array


def tensor_type(dtype: DType, shape: tuple[int, ...], strides: tuple[int, ...], address: int) -> TensorType:
    """How a tensor specialises an object; strides and address in bytes. Pure."""
    size = dtype.bits // 8
    used = [d for d, n in enumerate(shape) if n > 1 and 0 not in shape]
    free = [d for d in range(len(shape)) if d not in used or strides[d] == size]
    contiguous = None
    if free:
        last = len(shape) - 1
        contiguous = last if last in free else max((d for d in free if d in used), default=free[-1])
    divisor = math.gcd(VECTOR_BYTES, address, *(strides[d] for d in used if d != contiguous))
    alignment = next((a for a in (VECTOR_BYTES, WORD_BYTES) if divisor % a == 0 and a >= size), size)
    span = sum((shape[d] - 1) * abs(strides[d]) for d in used) + size
    far = any(not 0 <= strides[d] <= FAR_STRIDE for d in used)
    wide = span > MAX_SPAN or any(strides[d] < 0 for d in used)
    return TensorType(dtype, len(shape), contiguous, alignment, wide, wide and far)


def misfit(given: TensorView, compiled: TensorType) -> str:
    """Why an object compiled for a class of tensors does not serve this one; '' where it does."""
    if given.dtype != compiled.dtype:
        return f"it holds {given.dtype}, not {compiled.dtype}"
    if len(given.shape) != compiled.rank:
        return f"it has {len(given.shape)} axes, not {compiled.rank}"
    if 0 in given.shape:
        return ""
    used = [d for d, n in enumerate(given.shape) if n > 1]
    if compiled.contiguous in used and given.strides[compiled.contiguous] != given.dtype.bits // 8:
        return f"axis {compiled.contiguous} is not contiguous"
    if any(
        v % compiled.alignment for v in (given.address, *(given.strides[d] for d in used if d != compiled.contiguous))
    ):
        return f"its base or a stride is no multiple of {compiled.alignment} bytes"
    if given.span > MAX_SPAN and not compiled.wide:
        return f"it spans {given.span} bytes, more than {MAX_SPAN}"
    if given.type.far and not compiled.far:
        return f"a stride is negative or exceeds {FAR_STRIDE} bytes"
    return ""


# -- specs: compiling without data -------------------------------------------------------------------------------------


def spec(
    dtype: Any, shape: tuple[int, ...], strides: tuple[int, ...] | None = None, align: int = VECTOR_BYTES
) -> TensorView:
    """A tensor without data, to compile for: `spec("bf16", (1024, 777))`. `strides` are in elements (default: row-
    major), `align` is what divides the base address, in bytes."""
    element = dtypes.dtype(dtype)
    shape = tuple(shape)
    if strides is None:
        strides = tuple(math.prod(shape[d + 1 :]) for d in range(len(shape)))
    if len(strides) != len(shape):
        raise TilecError(f"a spec of {len(shape)} axes with {len(strides)} strides")
    if align < 1 or align & (align - 1):
        raise TilecError(f"align={align}", limit="alignment is a power of two, in bytes")
    size = _element_size(element, "a spec")
    return _checked(TensorView(element, shape, tuple(s * size for s in strides), align), "a spec")


# -- data --------------------------------------------------------------------------------------------------------------


def is_tensor(item: Any) -> bool:
    return isinstance(item, (TensorView, np.ndarray)) or hasattr(item, "__dlpack__")


def view(item: Any, name: str = "the tensor") -> TensorView:
    """Any supported tensor as a TensorView on the same memory."""
    if isinstance(item, TensorView):
        return item
    if isinstance(item, np.ndarray):
        element = _dtype_of(item.dtype, name)
        address = item.__array_interface__["data"][0]
        found = TensorView(element, item.shape, item.strides, address, CPU, not item.flags.writeable, item)
    elif hasattr(item, "data_ptr") and hasattr(item, "stride"):  # torch, without importing it
        element = _dtype_of(item.dtype, name)
        device = _torch_device(item, name)
        strides = tuple(s * item.element_size() for s in item.stride())
        found = TensorView(element, tuple(item.shape), strides, item.data_ptr(), device, False, item)
    elif hasattr(item, "__dlpack__"):
        found = _from_dlpack(item, name)
    else:
        raise TilecError(
            f"{name} is a {type(item).__name__}, not a tensor",
            fix="pass a numpy array, a torch tensor or anything with DLPack",
        )
    return _checked(found, name)


def tensor(item: Any, dtype: Any) -> TensorView:
    """A tensor whose elements are read as `dtype` of the same size: raw uint16 memory as bf16, say."""
    found, element = view(item), dtypes.dtype(dtype)
    if found.dtype.bits != element.bits:
        raise TilecError(
            f"elements of {found.dtype} read as {element}", limit=f"{found.dtype.bits} bits against {element.bits}"
        )
    return TensorView(element, found.shape, found.strides, found.address, found.device, found.readonly, found.owner)


def _dtype_of(given: Any, name: str) -> DType:
    try:
        return dtypes.dtype(given)
    except TilecError as error:
        raise TilecError(
            f"{name}: {error.what}", fix="tc.tensor(array, dtype=...) reads raw integers as a type of that size"
        ) from None


def _element_size(element: DType, name: str) -> int:
    if element.bits % 8:
        raise TilecError(
            f"{name} has elements of {element}", limit="tensors hold whole bytes", fix="pass the packed bytes as u8"
        )
    return element.bits // 8


def _checked(found: TensorView, name: str) -> TensorView:
    size = _element_size(found.dtype, name)
    for axis, (extent, stride) in enumerate(zip(found.shape, found.strides)):
        if extent > MAX_EXTENT:
            raise TilecError(
                f"{name} is too long: axis {axis} has {extent} elements",
                limit=f"extents go up to {MAX_EXTENT}",
                fix="split the tensor into views and launch for each",
            )
        if extent > 1 and 0 not in found.shape and stride % size:
            raise TilecError(
                f"{name}: the stride of axis {axis} is no whole number of elements",
                limit=f"{stride} bytes, elements of {size}",
                fix="copy it",
            )
    if found.span and found.address % size:
        raise TilecError(
            f"{name} starts at an address that its elements do not fit",
            limit=f"{found.address:#x} is no multiple of {size}",
            fix="copy it",
        )
    return found


def _torch_device(item: Any, name: str) -> Device:
    kind = item.device.type
    if kind == "cpu":
        return CPU
    if kind == "cuda":  # torch's name for ROCm devices too
        return Device("gpu", item.device.index or 0)
    raise TilecError(f"{name} lives on a {kind} device", limit="tilec runs on the CPU's emulator and on AMD GPUs")


# -- DLPack ------------------------------------------------------------------------------------------------------------


class _DLTensor(ctypes.Structure):
    """The head of DLPack's DLManagedTensor."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


_DLPACK_KINDS = {0: "i", 1: "u", 2: "f", 4: "bf"}
_DLPACK_CPU, _DLPACK_ROCM = 1, 10


def _from_dlpack(item: Any, name: str) -> TensorView:
    """The capsule stays unconsumed and is kept as the owner: its destructor releases the memory."""
    kind, index = item.__dlpack_device__()
    if kind not in (_DLPACK_CPU, _DLPACK_ROCM):
        raise TilecError(
            f"{name} lives on a device of DLPack kind {int(kind)}",
            limit="tilec runs on the CPU's emulator and on AMD GPUs",
        )
    capsule = item.__dlpack__()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    head = ctypes.cast(pointer(capsule, b"dltensor"), ctypes.POINTER(_DLTensor)).contents
    known = "bool" if head.code == 6 else f"{_DLPACK_KINDS.get(head.code, '?')}{head.bits}"
    if known not in dtypes.DTYPES or head.lanes != 1:
        raise TilecError(
            f"{name}: no element type for DLPack code {head.code} with {head.bits} bits and {head.lanes} lanes"
        )
    element = dtypes.DTYPES[known]
    shape = tuple(head.shape[d] for d in range(head.ndim))
    if head.strides:
        strides = tuple(head.strides[d] for d in range(head.ndim))
    else:
        strides = tuple(math.prod(shape[d + 1 :]) for d in range(head.ndim))
    size = element.bits // 8
    device = CPU if kind == _DLPACK_CPU else Device("gpu", index)
    return TensorView(
        element,
        shape,
        tuple(s * size for s in strides),
        (head.data or 0) + head.byte_offset,
        device,
        False,
        (capsule, item),
    )
