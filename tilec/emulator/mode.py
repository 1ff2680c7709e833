"""The part of a wave's MODE register that changes what vector arithmetic returns (CDNA3 ISA guide, section 4.1).

A Mode is uniform over a batch; a core whose waves disagree splits the batch. FP_ROUND and FP_DENORM have one field for
f32 and one shared by f16 and f64. Denormal fields: bit 0 keeps input denormals, bit 1 keeps output denormals.
"""

from __future__ import annotations

from dataclasses import dataclass

NEAREST, UPWARD, DOWNWARD, TOWARD_ZERO = range(4)


@dataclass(frozen=True)
class Mode:
    """Rounding (0 nearest even, 1 up, 2 down, 3 to zero), denormal handling (3 keeps all), IEEE and overflow bits."""

    round32: int = NEAREST
    round64: int = NEAREST
    denorm32: int = 3
    denorm64: int = 3
    dx10_clamp: bool = True
    ieee: bool = True
    fp16_ovfl: bool = False
    architecture: str = "gfx950"

    @classmethod
    def from_register(cls, value: int, architecture: str) -> Mode:
        """The mode of a 32-bit MODE register value."""
        return cls(
            round32=value & 3,
            round64=value >> 2 & 3,
            denorm32=value >> 4 & 3,
            denorm64=value >> 6 & 3,
            dx10_clamp=bool(value >> 8 & 1),
            ieee=bool(value >> 9 & 1),
            fp16_ovfl=bool(value >> 23 & 1),
            architecture=architecture,
        )
