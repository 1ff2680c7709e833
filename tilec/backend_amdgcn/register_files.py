"""Which file each vector register goes to.

Ordinary VALU instructions cannot name AGPRs; matrix instructions take A and B from either file, C and D from one;
memory instructions take data of either. 'va' registers go to VGPRs while these suffice, since both files come out of
one budget. Over 256, tiles move to AGPRs in clusters that are linked by matrix instructions and copies: first those
that need no `v_accvgpr` moves at all; then clusters are cut at copies and VALU uses outside all loops, then inside one
more loop at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import accumulate

from tilec.backend_amdgcn.fit_operands import ACCEPTS, Files
from tilec.backend_amdgcn.liveness import NOTHING, Liveness, Scan, add_steps, pressure_steps
from tilec.ir.machine import Ref, Register


def choose_files(scan: Scan, live: Liveness, limit_v: int, limit_total: int, limit_a: int) -> Iterator[Files]:
    """Choices of file, the best first: all that may in VGPRs, then as few tiles in AGPRs as bring the peak of the VGPRs
    under `limit_v`. AGPRs count against `limit_total` too, so that below 512 registers nothing is won by them."""
    choice = _Choice(scan, live)
    first = choice.files(set())
    yield first
    if limit_total <= limit_v:
        return
    for level in range(max(scan.depths, default=0) + 2):
        moved: set[Register] = set()
        in_v, in_a = (pressure_steps(live, (r for r in scan.registers if first[r] == file)) for file in "va")
        for tile in choice.tiles(level):
            for part in ([set().union(*tile)], tile):       # whole, or as much of it as the AGPRs hold
                for cluster in part:
                    after = list(in_a)
                    add_steps(after, live, cluster)
                    if max(accumulate(after)) <= limit_a:
                        in_a = after
                        add_steps(in_v, live, cluster, -1)
                        moved |= cluster
                if moved >= part[0]:
                    break
            if moved and max(accumulate(in_v)) <= limit_v:
                yield choice.files(moved)


class _Choice:
    """What binds registers to a file and to each other. `forced`: 'va' registers that have no choice (by a pin, by an
    operand that must be an AGPR, by the other end of a matrix instruction). `valu_depth`: the deepest use that can't
    name an AGPR."""

    def __init__(self, scan: Scan, live: Liveness):
        self.scan, self.live = scan, live
        self.valu_depth: dict[Register, int] = {}
        self.forced: Files = {r: r.pin[0] for r in scan.registers if r.pin and r.kind == "va"}
        for (number, code), depth in scan.uses.items():
            operand = scan.operands[number]
            if isinstance(operand, Ref) and operand.kind == "va" and code:
                if ACCEPTS.get(code) == "a":
                    self.forced.setdefault(operand.register, "a")
                elif "a" not in ACCEPTS.get(code, ""):
                    self.valu_depth[operand.register] = max(depth, self.valu_depth.get(operand.register, -1))
        self.accumulators = list(_accumulators(scan))
        self._force(self.accumulators)
        if any(r.pin for r in self.forced):                 # what is copied to and from a pinned tile goes along
            free = [(d, s) for d, s in _copies(scan) if not {d, s} & self.valu_depth.keys()]
            self._force([*self.accumulators, *free])

    def _force(self, links: list[tuple[Register, Register]]) -> None:
        """Hands forced files on along links, to where nothing forces another."""
        changed = True
        while changed:
            changed = False
            for pair in links:
                for one, other in (pair, pair[::-1]):
                    file = self.forced.get(one) if one.kind == "va" else one.kind
                    if file and other.kind == "va" and other not in self.forced:
                        self.forced[other] = file
                        changed = True

    def files(self, moved: set[Register]) -> Files:
        """The file of every register, if so many of the free ones move to AGPRs."""
        own = {"va": "v"}
        return {r: "a" if r in moved else self.forced.get(r) or own.get(r.kind, r.kind) for r in self.scan.registers}

    def tiles(self, level: int) -> list[list[set[Register]]]:
        """Sets of registers that may move to AGPRs with moves in less than `level` loops only, those of one tile (by
        name) together; the tiles that relieve most first."""
        tiles: dict[str, list[set[Register]]] = {}
        relief: Counter[str] = Counter()
        for members in self._clusters(level):
            if all(r.kind == "va" and r not in self.forced and self.valu_depth.get(r, -1) < level for r in members):
                name = next(iter(members)).name
                tiles.setdefault(name, []).append(set(members))
                relief[name] += sum(map(self._dword_points, members))
        return [tiles[name] for name, _ in relief.most_common()]

    def _clusters(self, level: int) -> list[list[Register]]:
        """Vector registers linked by matrix instructions, or by copies inside `level` loops or more."""
        leader: dict[Register, Register] = {}

        def find(register: Register) -> Register:
            while register in leader:
                register = leader[register]
            return register

        for a, b in (*self.accumulators, *_copies(self.scan, level)):
            if find(a) is not find(b):
                leader[find(a)] = find(b)
        clusters: dict[Register, list[Register]] = {}
        for register in self.scan.registers:
            if register.kind in ("v", "va"):
                clusters.setdefault(find(register), []).append(register)
        return list(clusters.values())

    def _dword_points(self, register: Register) -> int:
        return sum(size * (last - begin + 1) for size, runs in self.live.runs(register) for begin, last in runs)


def _copies(scan: Scan, depth: int = 0) -> Iterator[tuple[Register, Register]]:
    """Vector registers that copies inside so many loops or more join."""
    for (_, row, dst, src), loops in zip(scan.accesses, scan.depths):
        if row.name == "copy" and loops >= depth and dst[0] != NOTHING and src[0] != NOTHING:
            d, s = scan.operands[dst[0]], scan.operands[src[0]]
            if isinstance(d, Ref) and isinstance(s, Ref) and "s" not in (d.kind, s.kind):
                yield d.register, s.register


def _accumulators(scan: Scan) -> Iterator[tuple[Register, Register]]:
    """D and C of every matrix instruction, where both are registers of the program."""
    for _, row, dst, src in scan.accesses:
        if row.unit == "mfma" and dst[0] != NOTHING and src[2] != NOTHING:
            d, c = scan.operands[dst[0]], scan.operands[src[2]]
            if isinstance(d, Ref) and isinstance(c, Ref) and d.register is not c.register:
                yield d.register, c.register
