"""Launches on an AMD GPU through hip-python: the only file that imports it, and only when a GPU is asked for.

The same object bytes as everywhere. A module is loaded once per device; the launch goes to torch's current stream where
the tensors are torch's, else to the default stream, and does not wait for the kernel to end.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

from tilec.errors import TilecError
from tilec.runtime.arguments import Argument, Executable, check_arguments, pack, workgroups
from tilec.runtime.devices import Device
from tilec.runtime.tensors import TensorView

_functions: WeakKeyDictionary[Executable, dict[int, tuple[Any, Any]]] = WeakKeyDictionary()


def launch(executable: Executable, values: Mapping[str, Argument], device: Device) -> None:
    """Enqueues one launch. Raises TilecError where the object, the arguments or HIP refuse."""
    hip = _hip()
    check_arguments(executable, values)
    total = workgroups(executable.program, values)
    if total == 0:
        return
    with _current_device(hip, device.index):
        function = _function(hip, executable, device.index)
        content = pack(executable.program, values)
        segment = _segment_type(len(content)).from_buffer_copy(content)
        _call(
            hip,
            "hipModuleLaunchKernel",
            function,
            total,
            1,
            1,
            executable.threads,
            1,
            1,
            0,
            _stream(values, device),
            None,
            (segment,),
        )


def architecture(device: Device) -> str:
    """The device's architecture by its LLVM name, without feature suffixes."""
    hip = _hip()
    name = _call(hip, "hipGetDeviceProperties", device.index).gcnArchName
    return (name.decode() if isinstance(name, bytes) else str(name)).partition(":")[0]


def _hip() -> Any:
    try:
        from hip import hip  # pyright: ignore[reportAttributeAccessIssue]
    except ImportError as error:
        raise TilecError(
            "hip-python can't be imported, and the tensors live on a GPU",
            limit=str(error),
            fix="install tilec[gpu] beside ROCm, or move the tensors to the CPU to run on the emulator",
        ) from None
    return hip


def _function(hip: Any, executable: Executable, index: int) -> Any:
    """The kernel as loaded on a device; the module is kept with it."""
    loaded = _functions.setdefault(executable, {})
    if index not in loaded:
        found = architecture(Device("gpu", index))
        if found != executable.arch:
            raise TilecError(
                f"kernel {executable.name} is compiled for {executable.arch}, and GPU {index} is {found}",
                fix=f"compile it with arch={found!r}",
            )
        assert executable.code  # the object's metadata must fit the program before the loader sees it
        module = _call(hip, "hipModuleLoadData", executable.object)
        loaded[index] = module, _call(hip, "hipModuleGetFunction", module, executable.name.encode())
    return loaded[index][1]


def _stream(values: Mapping[str, Argument], device: Device) -> int | None:
    """torch's current stream where a tensor is torch's; None is the default stream."""
    torch = sys.modules.get("torch")
    if torch is not None and any(
        isinstance(v, TensorView) and isinstance(v.owner, torch.Tensor) for v in values.values()
    ):
        return torch.cuda.current_stream(device.index).cuda_stream
    return None


@contextmanager
def _current_device(hip: Any, index: int) -> Iterator[None]:
    before = _call(hip, "hipGetDevice")
    if before != index:
        _call(hip, "hipSetDevice", index)
    try:
        yield
    finally:
        if before != index:
            _call(hip, "hipSetDevice", before)


def _call(hip: Any, name: str, *arguments: Any) -> Any:
    """Calls a HIP function: hip-python gives a tuple of the error and the results."""
    error, *results = getattr(hip, name)(*arguments)
    if int(error) != 0:
        raise TilecError(f"{name} failed: {error}")
    return results[0] if results else None


def _segment_type(size: int) -> type[ctypes.Structure]:
    """A structure of `size` bytes: hip-python passes structures by value, byte for byte."""
    return type("Segment", (ctypes.Structure,), {"_fields_": [("bytes", ctypes.c_uint8 * size)]})
