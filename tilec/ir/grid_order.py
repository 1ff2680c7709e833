"""Which tile a workgroup takes: the arithmetic of the grid orders, written once.

It uses +, -, *, // and two functions only, so that the same lines serve Python integers and numpy arrays (proofs, the
cache model) and the scalars of a tile program (`passes/grid_order.py`). All numbers are unsigned and products of two
extents fit in 32 bits. Chiplet order is Algorithm 1 of HipKittens (arXiv 2511.08083) in two steps, each a permutation
by itself. Workgroup i runs on chiplet i mod `chiplets`: the hardware deals them out in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tilec.errors import TilecError
from tilec.ir.schedule import ORDERS, GridOrder

Where = Callable[[Any, Any, Any], Any]
Minimum = Callable[[Any, Any], Any]

PARAMETERS = {"window": "order_window", "chunk": "order_chunk", "chiplets": "order_chiplets"}
"""number of an order: the kernel parameter that holds it at run time."""


def arguments(order: GridOrder, chiplets: int) -> dict[str, int]:
    """The run-time arguments of a launch in this order by parameter; `chiplets` is for an order that leaves it open."""
    return {PARAMETERS[name]: getattr(order, name) or chiplets for name in ORDERS[order.kind]}


def place(kind: str, number: Any, grid: Sequence[Any], numbers: Mapping[str, Any], where: Where = np.where,
          minimum: Minimum = np.minimum) -> tuple[Any, ...]:
    """The tile of workgroup `number` (0 <= number < product of the grid): one index per axis of the grid.

    The last two axes are rows and columns; those before are a batch, which stays outermost. `numbers` holds what
    `ORDERS[kind]` names, all from 1 up.
    """
    if kind == "chiplet":
        total = grid[0]
        for extent in grid[1:]:
            total = total * extent
        number = chunk_step(number, total, numbers["chunk"], numbers["chiplets"], where)
    if len(grid) == 1:
        return (number,)
    *batch, rows, columns = grid
    index: list[Any] = []
    if batch:
        outer, number = divide(number, rows * columns)
        for extent in reversed(batch[1:]):
            outer, digit = divide(outer, extent)
            index.insert(0, digit)
        index.insert(0, outer)
    if kind == "rows":
        return (*index, *divide(number, columns))
    return (*index, *window_step(number, rows, columns, numbers["window"], minimum))


def chunk_step(number: Any, total: Any, chunk: Any, chiplets: Any, where: Where = np.where) -> Any:
    """Gives each chiplet runs of `chunk` consecutive numbers out of `total`.

    A round of chiplets * chunk numbers is reordered within itself. The last round, if it is not whole, keeps its order.
    (The paper's condition is number <= limit, the first number of that round; it maps to itself either way.)
    """
    local, chiplet = divide(number, chiplets)
    round_, position = divide(local, chunk)
    first = round_ * (chiplets * chunk)
    return where(first + chiplets * chunk <= total, first + chiplet * chunk + position, number)


def window_step(number: Any, rows: Any, columns: Any, window: Any, minimum: Minimum = np.minimum) -> tuple[Any, Any]:
    """Row and column: down `window` rows, then on to the next column, then the next window; the last one may be
    shorter."""
    window = minimum(window, rows)              # also keeps the product below the number of tiles
    band, rest = divide(number, window * columns)
    first = band * window
    column, row = divide(rest, minimum(rows - first, window))
    return first + row, column


def divide(number: Any, divisor: Any) -> tuple[Any, Any]:
    """Quotient and remainder by one division, which is dear on the scalar unit."""
    quotient = number // divisor
    return quotient, number - quotient * divisor


def tiles(order: GridOrder, grid: Sequence[int], chiplets: int) -> np.ndarray:
    """All tiles in order: workgroup i takes tile `result[i]`. Shape (product of grid, axes of grid)."""
    if any(extent < 0 for extent in grid) or not grid:
        raise TilecError(f"a grid of {list(grid)}", limit="extents are 0 or more, along one axis at least")
    numbers = {name: getattr(order, name) or chiplets for name in ORDERS[order.kind]}
    count = np.arange(int(np.prod(grid, dtype=np.int64)))
    if not count.size:
        return np.zeros((0, len(grid)), np.int64)
    return np.stack([np.broadcast_to(axis, count.shape) for axis in place(order.kind, count, grid, numbers)], axis=1)
