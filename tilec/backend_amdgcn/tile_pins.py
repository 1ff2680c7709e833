"""The pins of a schedule, as places of the tiles that they name.

A pin names a tile, or one part of a split tile; a pin of a whole tile lays its parts one after the other. What is
pinned are the values of that name in the layout in which dots use the tile (else, the layout it first has): not what is
on its way to LDS, nor what a store has rearranged. Each of these values gets a register of its own at the place, so
that the allocator sees which of them live together.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from tilec.backend_amdgcn.fragment import storage_bits
from tilec.errors import Location, TilecError
from tilec.ir import tile
from tilec.ir.core import Op, Program, TileType, Value
from tilec.ir.schedule import Pin

Place = tuple[str, int]
"""File and first register, as `Register.pin` has them."""


def pinned_places(program: Program, pins: Sequence[Pin]) -> dict[Value, Place]:
    """Where each pinned value lies. Raises TilecError for a pin that names no tile, or has fewer registers than its
    tile takes."""
    if not pins:
        return {}
    named, dotted, passing = _named_tiles(program)
    places: dict[Value, Place] = {}
    for pin in pins:
        wanted = str(pin.part).replace(" ", "")
        parts = [name for name in sorted(named, key=_part_order)
                 if name == wanted or not pin.part.index and name.partition("[")[0] == wanted]
        kept = [(name, _as_used(named[name], dotted, passing)) for name in parts]
        if not any(values for _, values in kept):
            known = ", ".join(sorted(named)) or "none has a name"
            raise TilecError(f"the schedule pins {wanted}, which is no tile of {program.name} that stays in registers",
                             where=program.where, limit=f"its tiles: {known}", fix="pin one of these")
        first = pin.first
        for _, values in kept:
            places |= dict.fromkeys(values, (pin.file, first))
            first += dwords(values[0]) if values else 0
        needed = first - pin.first
        if needed > pin.count:
            value = next(values[0] for _, values in kept if values)
            one = f"; its {len(parts)} parts take {needed // len(parts)} each" if len(parts) > 1 else ""
            raise TilecError(f"{wanted} takes {needed} registers of every lane, its pin has {pin.count}",
                             where=_where(program, value), limit=f"{_range(pin, pin.count)} is pinned{one}",
                             fix=f"pin it to {_range(pin, needed)}, or pin its parts apart")
    return places


def dwords(value: Value) -> int:
    """Registers per lane that a tile takes."""
    return -(-value.layout.items * storage_bits(value.dtype) // 32)


def _named_tiles(program: Program) -> tuple[dict[str, list[Value]], set[Value], set[Value]]:
    """Tiles by name without spaces; those that dots read or make; those made from constants, or that only go to LDS."""
    named: dict[str, list[Value]] = {}
    dotted: set[Value] = set()
    constant: set[Value] = set()
    readers: dict[Value, list[Op]] = {}
    for op in program.walk():
        params = (p for region in op.regions for p in region.params)
        for value in (*params, *op.results):
            if isinstance(value.type, TileType) and value.name:
                named.setdefault(value.name.replace(" ", ""), []).append(value)
        if isinstance(op, tile.Dot):
            dotted |= {op.a, op.b, op.accumulator, op.result}
        if isinstance(op, tile.Constant):
            constant |= set(op.results)
        for value in op.operands:
            readers.setdefault(value, []).append(op)
    leaving = {value for value, ops in readers.items() if all(isinstance(op, tile.SharedWrite) for op in ops)}
    return named, dotted, constant | leaving


def _as_used(values: Iterable[Value], dotted: set[Value], passing: set[Value]) -> list[Value]:
    """Of the values of one name, those in the layout in which the tile is used."""
    staying = [v for v in values if v not in passing]
    main = next((v for v in staying if v in dotted), staying[0] if staying else None)
    return [v for v in staying if main is not None and v.type == main.type]


def _part_order(name: str) -> tuple[str, tuple[int, ...]]:
    tile_name, *index = re.findall(r"[^\[\],]+", name)
    return tile_name, tuple(int(i) for i in index if i.isdigit())


def _range(pin: Pin, count: int) -> str:
    return f"tc.{pin.file}gpr[{pin.first}:{pin.first + count}]"


def _where(program: Program, value: Value) -> Location | None:
    return next((op.where for op in program.walk() if value in op.results or any(
        value in region.params for region in op.regions)), program.where)
