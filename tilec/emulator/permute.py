"""Lane exchanges through the LDS crossbar: ds_bpermute, ds_permute, ds_swizzle (CDNA3 ISA guide, section 11.3).

Pure functions over [wave, lane]. A lane that reads from an inactive lane gets 0; where two lanes push to one, the
higher wins.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from tilec.emulator import lanes

Array = np.ndarray[Any, Any]
_LANE = np.arange(64)


def bpermute(data: Array, lane: Array, active: Array) -> Array:
    """Lane i pulls from lane `lane[i]`."""
    return np.take_along_axis(np.where(active, data, np.uint32(0)), lane.astype(np.int64), axis=-1)


def permute(data: Array, lane: Array, active: Array) -> Array:
    """Lane i pushes to lane `lane[i]`; lanes that nobody pushes to get 0."""
    out = np.zeros_like(data)
    rows = np.broadcast_to(np.arange(len(data))[:, None], data.shape)
    out[rows[active], lane.astype(np.int64)[active]] = data[active]
    return out


def swizzle(data: Array, pattern: Any, active: Array) -> Array:
    """`pattern` is the 16-bit offset, or its symbolic text swizzle(MODE, ...)."""
    source = swizzle_sources(pattern)
    return np.where(active[:, source], data[:, source], np.uint32(0))


def swizzle_sources(pattern: Any) -> Array:
    """The lane that each of 64 lanes reads."""
    if isinstance(pattern, int):
        return lanes.ds_swizzle(pattern)
    match = re.fullmatch(r"swizzle\((\w+),\s*(.*)\)", str(pattern))
    if not match:
        raise ValueError(f"swizzle pattern not understood: {pattern!r}")
    mode, numbers = match[1], [piece.strip() for piece in match[2].split(",")]
    if mode == "QUAD_PERM":
        return _LANE & ~3 | np.array([int(n) for n in numbers])[_LANE & 3]
    if mode == "BROADCAST":
        group, which = int(numbers[0]), int(numbers[1])
        return _LANE & ~(group - 1) | which
    if mode == "SWAP":
        return _LANE ^ int(numbers[0])
    if mode == "REVERSE":
        return _LANE ^ int(numbers[0]) - 1
    if mode == "BITMASK_PERM":
        bits = numbers[0].strip('"')
        keep = sum(1 << 4 - i for i, c in enumerate(bits) if c in "pi")
        fixed = sum(1 << 4 - i for i, c in enumerate(bits) if c == "1")
        flipped = sum(1 << 4 - i for i, c in enumerate(bits) if c == "i")
        return _LANE & 32 | ((_LANE & 31 & keep | fixed) ^ flipped)
    raise ValueError(f"swizzle mode not supported: {mode}")
