"""Launching: the argument segment, the grid, memory shared between arguments, refusals; HIP through a stand-in."""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator
from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilec as tc
from tilec.ir.core import Program
from tilec.runtime import emulated, hip
from tilec.runtime.arguments import Executable, pack, workgroups, written_parameters
from tilec.runtime.devices import Device
from tilec.runtime.tensors import TensorView, view


@pytest.fixture(autouse=True)
def no_disk_cache(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEC_CACHE", str(tmp_path))
    monkeypatch.setenv("TILEC_ARCH", "gfx942")


@tc.kernel
def add(A: tc.Tensor, B: tc.Tensor, C: tc.Tensor, BN: tc.Const = 256):
    i = tc.program_id(C.tiles(BN).grid[0])
    C.tiles(BN)[i] = A.tiles(BN)[i] + B.tiles(BN)[i]


@tc.kernel
def mix(A: tc.Tensor, n: tc.i32, x: tc.f32, big: tc.i64, y: float, flag: bool):
    i, j, k = tc.program_id((A.tiles(1, 4).grid[0], n, 2))
    with tc.when(flag & (j == 0) & (k == 0)):
        A[i].tiles(4)[0] = x + y + (big >> 20).to(tc.i32).to(tc.f32)


def executable(kernel: tc.Kernel, *args: Any, arch: str = "gfx942") -> Executable:
    return kernel.compile(*args, arch=arch).executable


# -- the segment and the grid ------------------------------------------------------------------------------------------

def test_the_segment_is_filled_by_the_abi():
    a = np.zeros((3, 8), np.float32)[:, ::2]
    program = mix.trace(a, arch="gfx942")
    values = {"A": view(a), "n": -5, "x": 1.5, "big": -(1 << 40), "y": 2.25, "flag": True}
    address = view(a).address
    expected = struct.pack("<QqqIIifqfI", address, 32, 8, 3, 4, -5, 1.5, -(1 << 40), 2.25, 1)
    assert pack(program, values) == expected
    assert pack(program, values, {"A": 4096}) == struct.pack("<Q", 4096) + expected[8:]


def test_workgroups_are_the_product_of_the_grid():
    program = mix.trace(np.zeros((3, 4), np.float32), arch="gfx942")
    values = {"A": view(np.zeros((3, 4), np.float32)), "n": 5, "x": 0.0, "big": 0, "y": 0.0, "flag": False}
    assert workgroups(program, values) == 30
    assert workgroups(program, values | {"n": 0}) == 0
    assert workgroups(program, values | {"n": -7}) == 0
    with pytest.raises(tc.TilecError) as caught:
        workgroups(program, values | {"n": 1 << 25})
    assert str(caught.value) == ("kernel mix: a grid of 3 x 33554432 x 2 workgroups\n"
                                 "  limit: one launch runs up to 16777215 workgroups of 4 waves\n"
                                 "  try: use larger tiles, or split the launch")


def test_written_parameters_are_seen_through_views():
    @tc.kernel
    def several(A: tc.Tensor, B: tc.Tensor, C: tc.Tensor, D: tc.Tensor):
        x = A.tiles(8)[0]
        for k in tc.range(2):
            B[k].T.tiles(8)[0] = x
        with tc.when(A.shape[0] > 3):
            C[2:].scatter(0, value=1)
        D.atomic_add(0, value=1)

    shapes = {"A": (8,), "B": (2, 8), "C": (9,), "D": (1,)}
    program = several.trace(**{name: tc.spec("f32", shape) for name, shape in shapes.items()}, arch="gfx942")
    assert written_parameters(program) == {"B", "C", "D"}


# -- on the emulator ---------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("n", [0, 1, 255, 256, 1000])
@pytest.mark.parametrize("element", [np.float32, ml_dtypes.bfloat16, np.int32])
def test_a_call_runs_where_the_data_is(n: int, element: Any):
    a, b, c = (np.arange(n) % 50).astype(element), np.full(n, 3, element), np.zeros(n, element)
    add(a, b, c)
    np.testing.assert_array_equal(c, a + b)


def test_raw_memory_as_bf16():
    a = np.arange(300).astype(ml_dtypes.bfloat16)
    c = np.zeros(300, np.uint16)
    add(tc.tensor(a.view(np.uint16), "bf16"), a, tc.tensor(c, tc.bf16))
    np.testing.assert_array_equal(c.view(ml_dtypes.bfloat16), a + a)


def test_strided_views_leave_the_rest_alone():
    whole = np.arange(1200, dtype=np.float32)
    before = whole.copy()
    add(whole[0:900:3], np.ones(300, np.float32), whole[1:901:3])
    before[1:901:3] = before[0:900:3] + 1
    np.testing.assert_array_equal(whole, before)


def test_arguments_may_share_memory():
    a = np.arange(1000, dtype=np.float32)
    add(a, a, a)
    np.testing.assert_array_equal(a, 2 * np.arange(1000))
    spans = emulated.merge(executable(add, a, a, a), {"A": view(a[:10]), "B": view(a[5:20]), "C": view(a[30:])})
    found = [(list(s.views), s.written, s.end - s.start) for s in spans]
    assert found == [(["A", "B"], False, 80), (["C"], True, 3880)]


def test_copied_are_the_rows_and_what_lies_close():
    memory = np.zeros(100_000, np.uint8)

    def runs(shape: tuple[int, ...], strides: tuple[int, ...], first: int) -> list[tuple[int, int]]:
        start = memory.ctypes.data + first
        found = TensorView(tc.i8, shape, strides, start)
        (span,) = emulated.merge(executable(add, *[np.zeros(9, np.float32)] * 3), {"A": found})
        return [(low - memory.ctypes.data, high - memory.ctypes.data) for low, high in span.runs()]

    assert runs((10, 50), (100, 1), 7) == [(7, 957)]
    assert runs((3, 50), (10_000, 1), 7) == [(7, 313), (9751, 10_313), (19_751, 20_057)]
    assert runs((3, 50), (-10_000, 1), 20_007) == [(7, 313), (9751, 10_313), (19_751, 20_057)]
    assert runs((2, 2, 50), (200, 50_000, 1), 0) == [(0, 506), (49_744, 50_250)]
    assert runs((1000, 50), (0, 1), 3) == [(3, 53)]


def test_tensors_may_run_backwards():
    a, b, c = np.arange(700, dtype=np.float32), np.arange(700, dtype=np.float32), np.zeros(700, np.float32)
    assert add.run(a[::-1], b, c[::-1]) == ()
    np.testing.assert_array_equal(c[::-1], a[::-1] + b)


def test_run_time_scalars_arrive():
    a = np.zeros((3, 4), np.float32)
    assert mix.run(a, 2, 1.5, -(1 << 40), 2.25, True) == ()
    assert (a == np.float32(3.75) + np.float32(-(1 << 20))).all()
    a[:] = 0
    mix(a, n=1, x=1, big=0, y=np.float32(1), flag=False)
    assert (a == 0).all()


def test_an_object_runs_on_other_shapes():
    k = add.compile(*[tc.spec("f32", (8,))] * 3, BN=128, arch="gfx942")
    assert k.asm and k.stages and k.resources.vgpr
    for n in (5, 1000):
        a, c = np.arange(n, dtype=np.float32), np.zeros(n, np.float32)
        assert k.run(a, a, c) == ()
        np.testing.assert_array_equal(c, 2 * a)
    with pytest.raises(tc.TilecError, match="kernel add: BN is 64\n  limit: it was compiled with BN=128"):
        k.run(a, a, c, BN=64)
    with pytest.raises(tc.TilecError, match="argument 'A' does not fit the object: axis 0 is not contiguous"):
        k.run(np.zeros(2000, np.float32)[::2], a, c)
    with pytest.raises(tc.TilecError, match="argument 'C' does not fit the object: it holds f64, not f32"):
        k.run(a, a, np.zeros(5))


def test_a_read_only_output_is_refused():
    a, c = np.zeros(10, np.float32), np.zeros(10, np.float32)
    a.flags.writeable = False
    add(a, a, c)
    with pytest.raises(tc.TilecError, match="argument 'C' is read-only, and the kernel writes it"):
        add(c, c, a)


def test_findings_of_the_checks_are_returned_and_raised(monkeypatch: pytest.MonkeyPatch):
    a, c = np.zeros(300, np.float32), np.zeros(300, np.float32)
    real = emulated.merge

    def shorter(*args: Any) -> list[emulated.Span]:
        spans = real(*args)
        for span in spans:
            span.end -= 400      # the kernel now reaches past the end of what it was given
        return spans

    monkeypatch.setattr(emulated, "merge", shorter)
    findings = add.run(a, a, c)
    assert findings and {f.check for f in findings} == {"bounds"}
    with pytest.raises(tc.TilecError, match="kernel add: the emulator's checks found"):
        add(a, a, c)


def test_an_object_that_belongs_to_another_program_is_refused():
    good = executable(add, *[np.zeros(9, np.float32)] * 3)
    other = executable(mix, np.zeros((3, 4), np.float32))

    def fault(program: Program, content: bytes, arch: str) -> str:
        with pytest.raises(tc.TilecError) as caught:
            assert Executable(program, content, arch).code
        return str(caught.value)

    assert fault(good.program, good.object, "gfx950") == (
        "the object of kernel add is for gfx942, not for gfx950\n  try: compile it with arch='gfx950'")
    assert fault(other.program, good.object, "gfx942") == "the object has no kernel 'mix'\n  limit: it has add"
    shifted = replace(other.program, name="add")
    assert "kernel add takes other arguments than the program" in fault(shifted, good.object, "gfx942")
    assert fault(good.program, b"no object", "gfx942").startswith("not a readable ELF file")


# -- on a GPU, through a stand-in for hip-python -----------------------------------------------------------------------

class FakeHip(ModuleType):
    """The calls that a launch makes, recorded. Pretends to be two GPUs."""

    def __init__(self) -> None:
        super().__init__("hip")
        self.hip, self.calls, self.device, self.error = self, [], 0, 0
        self.architectures = [b"gfx942:sramecc+:xnack-", b"gfx950:sramecc+:xnack-"]

    def hipGetDevice(self) -> tuple[int, int]:
        return 0, self.device

    def hipSetDevice(self, index: int) -> tuple[int]:
        self.device = index
        return (0,)

    def hipGetDeviceProperties(self, index: int) -> tuple[int, Any]:
        return 0, SimpleNamespace(gcnArchName=self.architectures[index])

    def hipModuleLoadData(self, image: bytes) -> tuple[int, Any]:
        self.calls.append(("load", self.device, len(image)))
        return 0, f"module{self.device}"

    def hipModuleGetFunction(self, module: Any, name: bytes) -> tuple[int, Any]:
        return 0, (module, name)

    def hipModuleLaunchKernel(self, function: Any, *rest: Any) -> tuple[int]:
        *sizes, stream, _, (segment,) = rest
        self.calls.append(("launch", self.device, function, tuple(sizes), stream, bytes(segment.bytes)))
        return (self.error,)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHip]:
    fake = FakeHip()
    monkeypatch.setitem(sys.modules, "hip", fake)
    monkeypatch.setattr(hip, "_functions", type(hip._functions)())
    yield fake


def on_gpu(index: int = 0, n: int = 1000, owner: Any = None) -> TensorView:
    return TensorView(tc.f32, (n,), (4,), 0x7F0000001000 + 0x10000 * index, Device("gpu", index), owner=owner)


def test_a_launch_on_a_gpu(gpu: FakeHip):
    a = on_gpu()
    add(a, a, a)
    load, launch = gpu.calls
    assert load[:2] == ("load", 0)
    segment = struct.pack("<QqI4x", a.address, 4, 1000) * 3
    assert launch == ("launch", 0, ("module0", b"add"), (4, 1, 1, 256, 1, 1, 0), None, segment)
    add(a, a, a)
    assert [call[0] for call in gpu.calls] == ["load", "launch", "launch"]     # loaded once


def test_the_tensors_device_is_used_and_the_callers_restored(gpu: FakeHip):
    gpu.architectures[1] = gpu.architectures[0]
    for index in (0, 1, 0):
        add(*[on_gpu(index)] * 3)
    assert [call[:2] for call in gpu.calls] == [("load", 0), ("launch", 0), ("load", 1), ("launch", 1), ("launch", 0)]
    assert gpu.device == 0


def test_each_device_gets_code_for_its_architecture(gpu: FakeHip):
    add(*[on_gpu(1)] * 3)
    k = add.compile(*[on_gpu(1)] * 3, arch="gfx942")
    with pytest.raises(tc.TilecError) as caught:
        k.run(*[on_gpu(1)] * 3, on="gpu")
    assert str(caught.value) == ("kernel add is compiled for gfx942, and GPU 1 is gfx950\n"
                                 "  try: compile it with arch='gfx950'")


def test_torchs_current_stream_is_used(gpu: FakeHip, monkeypatch: pytest.MonkeyPatch):
    class Tensor:
        pass

    streams = {0: SimpleNamespace(cuda_stream=11), 1: SimpleNamespace(cuda_stream=22)}
    torch = SimpleNamespace(Tensor=Tensor, cuda=SimpleNamespace(current_stream=streams.__getitem__))
    monkeypatch.setitem(sys.modules, "torch", torch)
    add(*[on_gpu(0, owner=Tensor())] * 3)
    add(*[on_gpu(1, owner=Tensor())] * 3)
    add(*[on_gpu(1)] * 3)
    assert [call[4] for call in gpu.calls if call[0] == "launch"] == [11, 22, None]


def test_an_empty_grid_launches_nothing(gpu: FakeHip):
    add(*[on_gpu(n=0)] * 3)
    assert gpu.calls == []


def test_hip_errors_and_mixed_devices_are_told(gpu: FakeHip):
    gpu.error = 719
    with pytest.raises(tc.TilecError, match="hipModuleLaunchKernel failed: 719"):
        add(*[on_gpu()] * 3)
    with pytest.raises(tc.TilecError) as caught:
        add(on_gpu(0), on_gpu(1), np.zeros(1000, np.float32))
    assert str(caught.value) == ("the tensors of one launch live on different devices\n"
                                 "  limit: A on gpu:0, B on gpu:1, C on cpu\n  try: move them to one device")
    with pytest.raises(tc.TilecError, match="a GPU can't reach tensors in CPU memory"):
        add.run(*[np.zeros(9, np.float32)] * 3, on="gpu")
    with pytest.raises(tc.TilecError, match="the emulator runs on CPU memory"):
        add.run(*[on_gpu()] * 3, on="emulator")


def test_without_hip_python_the_error_says_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "hip", None)
    with pytest.raises(tc.TilecError, match="hip-python can't be imported, and the tensors live on a GPU"):
        add(*[on_gpu()] * 3)
