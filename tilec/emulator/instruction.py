"""A decoded instruction: what it is called, which registers it touches in which role, and a function that executes it.

Built once per object; at run time nothing of the text is looked at again. The checks work from the same fields.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tilec.emulator.operands import Parsed

if TYPE_CHECKING:
    from tilec.emulator.wave import Batch

NOTHING: frozenset[int] = frozenset()


@dataclass(eq=False)
class Instruction:
    """`unit`: salu, valu, mfma, memory, control. Sets hold register ids (see operands.py), without EXEC as a mere mask.

    `addresses` are the ids that form an address, descriptor or LDS base, `data` those that are stored. `sources` are
    the ids of each source operand in order. `states`: wait states that it supplies to hazards (s_nop N: N + 1).
    """

    address: int
    size: int
    text: str
    parsed: Parsed
    unit: str
    execute: Callable[[Batch], None]
    reads: frozenset[int] = NOTHING
    writes: frozenset[int] = NOTHING
    addresses: frozenset[int] = NOTHING
    data: frozenset[int] = NOTHING
    sources: tuple[range, ...] = ()
    results: tuple[range, ...] = ()
    row: Any = None
    counters: tuple[str, ...] = ()
    states: int = 1
    ends_block: bool = False
    spread: Callable[[Batch], dict[int, Any]] | None = None
    """Definedness: undefined bits of each written register from those of the sources; None: the general rule of
    shadow.py.
    """
    compute: Callable[..., list[tuple[int, Any]]] | None = None
    """Vector arithmetic without the write: (register id, value) of each result."""
    fetches: tuple[Callable[[Batch], Any], ...] = ()
    """Vector arithmetic: each source as the function sees it."""
    touches: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        self.touches = self.reads | self.writes

    @property
    def name(self) -> str:
        return self.parsed.name

    def __str__(self) -> str:
        return f"{self.address:#x}: {self.text}"
