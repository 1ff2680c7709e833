"""Tensors from outside: no copies, one pure rule for what specialises an object, clear refusals."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilec as tc
from tilec.ir.core import FAR_STRIDE, TensorType
from tilec.runtime.devices import CPU, Device
from tilec.runtime.tensors import MAX_SPAN, TensorView, misfit, tensor_type, view


def test_numpy_is_seen_in_place():
    array = np.arange(24, dtype=np.float32).reshape(4, 6)
    seen = view(array[1:, ::2])
    assert (seen.dtype, seen.shape, seen.strides) == (tc.f32, (3, 3), (24, 8))
    assert seen.address == array.__array_interface__["data"][0] + 24
    seen.numpy()[0, 1] = 99
    assert array[1, 2] == 99
    assert seen.span == 2 * 24 + 2 * 8 + 4


@pytest.mark.parametrize("array, expected", [
    (np.zeros(3, ml_dtypes.bfloat16), tc.bf16), (np.zeros(3, ml_dtypes.float8_e4m3fn), tc.fp8_e4m3fn),
    (np.zeros(3, np.float16), tc.f16), (np.zeros(3, bool), tc.bool_), (np.zeros(3, np.int64), tc.i64),
    (np.zeros(3, np.uint8), tc.u8)])
def test_element_types(array: np.ndarray, expected: tc.DType):
    assert view(array).dtype == expected


def test_raw_integers_as_another_type():
    raw = np.zeros((3, 4), np.uint16)
    seen = tc.tensor(raw, "bf16")
    assert seen.dtype == tc.bf16 and seen.address == view(raw).address
    with pytest.raises(tc.TilecError, match="16 bits against 32"):
        tc.tensor(raw, tc.f32)


class OnlyDlpack:
    """A tensor that offers nothing but DLPack."""

    def __init__(self, array: np.ndarray):
        self.array = array

    def __dlpack__(self, **_: Any) -> Any:
        return self.array.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


def test_dlpack_is_seen_in_place():
    array = np.arange(24, dtype=np.int32).reshape(4, 6)
    seen = view(OnlyDlpack(array[:, 1:4]))
    assert (seen.dtype, seen.shape, seen.strides, seen.device) == (tc.i32, (4, 3), (24, 4), CPU)
    references = sys.getrefcount(array)
    seen.numpy()[1, 0] = -5
    assert array[1, 1] == -5
    del seen
    assert sys.getrefcount(array) <= references       # the capsule let go of the memory


class TorchDtype:
    def __str__(self) -> str:
        return "torch.bfloat16"


class FakeTorch:
    """The part of torch.Tensor that is read, on whichever device."""

    def __init__(self, array: np.ndarray, device: str = "cpu", index: int | None = None):
        self.array, self.dtype, self.shape = array, TorchDtype(), array.shape
        self.device = SimpleNamespace(type=device, index=index)

    def data_ptr(self) -> int:
        return view(self.array).address

    def stride(self) -> tuple[int, ...]:
        return tuple(s // self.array.itemsize for s in self.array.strides)

    def element_size(self) -> int:
        return self.array.itemsize


def test_torch_tensors():
    array = np.zeros((4, 6), np.uint16)
    seen = view(FakeTorch(array.T))
    assert (seen.dtype, seen.shape, seen.strides, seen.device) == (tc.bf16, (6, 4), (2, 12), CPU)
    assert view(FakeTorch(array, "cuda", 1)).device == Device("gpu", 1)
    with pytest.raises(tc.TilecError, match="A lives on a xla device"):
        view(FakeTorch(array, "xla"), "A")


# -- what specialises an object ----------------------------------------------------------------------------------------

@pytest.mark.parametrize("shape, strides, address, expected", [
    # row-major, column-major, neither
    ((8, 64), (128, 2), 4096, TensorType(tc.bf16, 2, 1, 16)),
    ((64, 8), (2, 128), 4096, TensorType(tc.bf16, 2, 0, 16)),
    ((8, 64), (256, 4), 4096, TensorType(tc.bf16, 2, None, 4)),
    # alignment: of the base, of strides, and of both
    ((8, 64), (128, 2), 4100, TensorType(tc.bf16, 2, 1, 4)),
    ((8, 64), (132, 2), 4096, TensorType(tc.bf16, 2, 1, 4)),
    ((8, 65), (130, 2), 4096, TensorType(tc.bf16, 2, 1, 2)),
    ((8, 64), (136, 2), 4096, TensorType(tc.bf16, 2, 1, 4)),
    # axes of size 1 never decide, whatever their stride
    ((8, 1), (128, 777), 4096, TensorType(tc.bf16, 2, 1, 16)),
    ((1, 64), (3, 2), 4096, TensorType(tc.bf16, 2, 1, 16)),
    ((1, 64), (3, 128), 4096, TensorType(tc.bf16, 2, 0, 16)),
    ((1, 1), (3, 5), 4096, TensorType(tc.bf16, 2, 1, 16)),
    ((5, 1, 64), (128, 6, 2), 4096, TensorType(tc.bf16, 3, 2, 16)),
    # broadcast axes, empty tensors
    ((8, 64), (0, 2), 4096, TensorType(tc.bf16, 2, 1, 16)),
    ((0, 64), (3, 5), 4096, TensorType(tc.bf16, 2, 1, 16)),
    # wide: the last byte lies 2**31 - 1 or more behind the first
    ((2, 8), (MAX_SPAN - 17, 2), 0, TensorType(tc.bf16, 2, 1, 2, False)),
    ((2, 8), (MAX_SPAN - 15, 2), 0, TensorType(tc.bf16, 2, 1, 16, True, True)),
    ((3, 8), (FAR_STRIDE, 2), 0, TensorType(tc.bf16, 2, 1, 16, False, False)),
    ((1 << 20, 8), (FAR_STRIDE, 2), 0, TensorType(tc.bf16, 2, 1, 16, True, False)),
    ((1 << 20, 8), (FAR_STRIDE + 16, 2), 0, TensorType(tc.bf16, 2, 1, 16, True, True)),
])
def test_tensor_type(shape: tuple[int, ...], strides: tuple[int, ...], address: int, expected: TensorType):
    assert tensor_type(tc.bf16, shape, strides, address) == expected


def test_what_runs_backwards_starts_at_its_lowest_element():
    whole = np.arange(24, dtype=np.int32).reshape(4, 6)
    for array in (whole[::-1], whole[:, ::-1], whole[::-1, ::-2], whole[::-1].T, whole):
        found = view(array)
        low, high = np.lib.array_utils.byte_bounds(array)
        assert (found.start, found.span) == (low, high - low)
        np.testing.assert_array_equal(found.numpy(), array)
    assert view(whole[::-1]).type.far and view(whole[:, ::-1]).type.contiguous is None
    assert not view(whole[:1][::-1]).type.wide          # an axis of size 1 runs nowhere


def test_alignment_is_at_least_the_elements():
    assert tensor_type(tc.f64, (4,), (8,), 8).alignment == 8
    assert tensor_type(tc.i8, (4,), (1,), 3).alignment == 1


def test_shapes_and_stride_values_do_not_specialise():
    types = {tc.spec("bf16", (1000, 768)).type, tc.spec("bf16", (3, 16)).type, tc.spec("bf16", (7, 8), (800, 1)).type}
    assert len(types) == 1


@pytest.mark.parametrize("given, reason", [
    (tc.spec("f32", (8, 8)), "it holds f32, not bf16"), (tc.spec("bf16", (8,)), "it has 1 axes, not 2"),
    (tc.spec("bf16", (8, 8), strides=(1, 8)), "axis 1 is not contiguous"),
    (tc.spec("bf16", (8, 9)), "no multiple of 16 bytes"),
    (tc.spec("bf16", (8, 8), align=4), "no multiple of 16 bytes"),
    (tc.spec("bf16", (2, 8), strides=(1 << 31, 1)), "more than 2147483647"), (tc.spec("bf16", (8, 16)), ""),
    (tc.spec("bf16", (1, 9)), ""), (tc.spec("bf16", (8, 1), strides=(8, 5)), ""), (tc.spec("bf16", (0, 9)), "")])
def test_what_an_object_serves(given: TensorView, reason: str):
    found = misfit(given, TensorType(tc.bf16, 2, 1, 16))
    assert found.endswith(reason) if reason else not found, found


# -- refused -----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("make, message", [
    (lambda: view([1, 2], "A"),
     "A is a list, not a tensor\n  try: pass a numpy array, a torch tensor or anything with DLPack"),
    (lambda: view(np.zeros(3, np.complex64), "A"),
     "A: no element type dtype('complex64')\n"
     "  try: tc.tensor(array, dtype=...) reads raw integers as a type of that size"),
    (lambda: view(np.zeros(3, [("x", "u1"), ("y", "<f4")])["y"], "A"),
     "A: the stride of axis 0 is no whole number of elements\n  limit: 5 bytes, elements of 4\n  try: copy it"),
    (lambda: tc.spec("i8", (2**31,)), "a spec is too long: axis 0 has 2147483648 elements\n"
                                      "  limit: extents go up to 2147483647\n"
                                      "  try: split the tensor into views and launch for each"),
    (lambda: tc.spec("fp4_e2m1", (8,)),
     "a spec has elements of fp4_e2m1\n  limit: tensors hold whole bytes\n  try: pass the packed bytes as u8"),
    (lambda: tc.spec("f32", (8,), align=2),
     "a spec starts at an address that its elements do not fit\n  limit: 0x2 is no multiple of 4\n  try: copy it"),
    (lambda: tc.spec("f32", (8,), align=24), "align=24\n  limit: alignment is a power of two, in bytes"),
    (lambda: tc.spec("f32", (8, 8), strides=(1,)), "a spec of 2 axes with 1 strides"),
])
def test_refused_tensors(make: Any, message: str):
    with pytest.raises(tc.TilecError) as caught:
        make()
    assert str(caught.value) == message
