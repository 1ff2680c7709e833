"""A register map as an SVG picture: registers downward, the program from left to right, a box for each life of a tile.

A region is as wide as its instructions ask for, within limits, and wider in loops; within a region the scale is even.
Hovering over a box names the tile, its registers and where it lives.
"""

from __future__ import annotations

import colorsys
from collections.abc import Iterator
from xml.sax.saxutils import escape, quoteattr

from tilec.register_map import OTHER, Life, Region, RegisterMap, run_text

_ROW, _LEFT, _TOP, _GAP = 3, 70, 40, 30         # pixels: a register, the margins, between the files
_NARROWEST, _WIDEST, _LEGEND = 22, 200, 18
_SEEN = 0.5                                     # pixels below which an address is left out
_FREE, _OTHER, _LOOP = "#f7f7f7", "#c8c8c8", "#e9eef6"
_FONT = 'font-family="monospace" font-size="11"'


def svg(registers: RegisterMap) -> str:
    """The picture as the text of an SVG file."""
    places = _Places(registers)
    colours = {tile: _colour(number) for number, tile in enumerate(registers.tiles)} | {OTHER: _OTHER}
    width = places.right + 20
    height = places.bottom + _GAP + _LEGEND * (len(registers.tiles) + len(registers.regions) + 3)
    used = registers.resources
    title = (f"{registers.kernel} for {registers.arch}: {used.vgpr} VGPR, {used.agpr} AGPR, {used.waves_per_simd} "
             "waves on a SIMD")
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        _text(_LEFT, 16, title),
        *_ground(registers, places),
        *(_box(life, registers, places, colours[life.tile]) for life in registers.lives
          if life.tile != OTHER or places.x(life.end) - places.x(life.first) >= _SEEN),
        *_borders(registers, places),
        *_legend(registers, places.bottom + _GAP, colours),
        "</svg>", ""])


class _Places:
    """Where points and registers lie on the picture."""

    def __init__(self, registers: RegisterMap):
        self.starts: list[tuple[Region, float, float]] = []
        x = float(_LEFT)
        for region in registers.regions:
            asked = region.instructions * (1.2 if region.depth else 0.1)
            width = min(_WIDEST, max(_NARROWEST, asked))
            self.starts.append((region, x, width))
            x += width
        self.right = int(x)
        self.tops: dict[str, int] = {}
        y = _TOP
        self.sizes = {"v": registers.resources.vgpr, "a": registers.resources.agpr}
        for file, count in self.sizes.items():
            if count:
                self.tops[file] = y
                y += count * _ROW + _GAP
        self.bottom = y - _GAP

    def x(self, point: int) -> float:
        for region, start, width in self.starts:
            if point < region.end:
                return start + width * max(0, point - region.first) / (region.end - region.first)
        return float(self.right)

    def y(self, file: str, index: int) -> int:
        return self.tops[file] + index * _ROW


def _ground(registers: RegisterMap, places: _Places) -> Iterator[str]:
    """The free registers, darker in loops; names of every 16th."""
    for file, top in places.tops.items():
        count = places.sizes[file]
        for region, x, width in places.starts:
            yield (f'<rect x="{x:.1f}" y="{top}" width="{width:.1f}" height="{count * _ROW}" '
                   f'fill="{_LOOP if region.depth else _FREE}"/>')
        for index in range(0, count, 16):
            yield _text(_LEFT - 8, places.y(file, index) + 9, f"{file}{index}", anchor="end")


def _box(life: Life, registers: RegisterMap, places: _Places, colour: str) -> str:
    left, right = places.x(life.first), places.x(life.end)
    block = next((r.block for r in registers.regions if life.first < r.end), "")
    told = f"{life.tile}: {run_text(life.file, life.index, life.count)} from {block} on"
    return (f'<rect x="{left:.1f}" y="{places.y(life.file, life.index)}" width="{max(0.5, right - left):.1f}" '
            f'height="{life.count * _ROW}" fill="{colour}" data-tile={quoteattr(life.tile)}>'
            f"<title>{escape(told)}</title></rect>")


def _borders(registers: RegisterMap, places: _Places) -> Iterator[str]:
    for number, (_, x, width) in enumerate(places.starts):
        yield _text(x + width / 2, _TOP - 8, str(number), anchor="middle")
        for file, top in places.tops.items():
            yield (f'<line x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{top + places.sizes[file] * _ROW}" '
                   'stroke="white" stroke-width="0.7"/>')


def _legend(registers: RegisterMap, y: int, colours: dict[str, str]) -> Iterator[str]:
    for tile in (*registers.tiles, OTHER):
        runs = "" if tile == OTHER else f": {', '.join(run_text(*run) for run in registers.places(tile))}"
        yield f'<rect x="{_LEFT}" y="{y - 10}" width="12" height="12" fill="{colours[tile]}"/>'
        yield _text(_LEFT + 20, y, tile + runs)
        y += _LEGEND
    y += _LEGEND
    for number, region in enumerate(registers.regions):
        yield _text(_LEFT, y, f"{number}  {region.block}: {region.instructions} instructions"
                    + (f": {region.title}" if region.title else ""))
        y += _LEGEND


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {_FONT} text-anchor="{anchor}">{escape(text)}</text>'


def _colour(number: int) -> str:
    """Colours that differ as long as they can: hues a golden section apart, light and dark by turns."""
    red, green, blue = colorsys.hls_to_rgb(number * 0.618034 % 1, (0.55, 0.7, 0.42)[number % 3], 0.65)
    return f"#{int(red * 255):02x}{int(green * 255):02x}{int(blue * 255):02x}"
