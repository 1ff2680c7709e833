"""Where data lives, and so where a kernel runs: CPU memory means the emulator, a GPU means hip-python."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tilec.errors import TilecError


@dataclass(frozen=True)
class Device:
    """`kind` is 'cpu' or 'gpu' (ROCm); `index` is the device's number."""

    kind: str
    index: int = 0

    def __str__(self) -> str:
        return self.kind if self.kind == "cpu" else f"{self.kind}:{self.index}"


CPU = Device("cpu")


def common_device(devices: Iterable[tuple[str, Device]]) -> Device:
    """The one device of all (argument name, device) pairs; the CPU where there are none."""
    found: dict[Device, str] = {}
    for name, device in devices:
        found.setdefault(device, name)
    if len(found) > 1:
        places = ", ".join(f"{name} on {device}" for device, name in found.items())
        raise TilecError(
            "the tensors of one launch live on different devices", limit=places, fix="move them to one device"
        )
    return next(iter(found), CPU)
