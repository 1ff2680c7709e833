"""Solves for the LDS layout of a buffer: the XOR swizzle under which all its accesses cost the fewest extra cycles.

Needs every access to the buffer (the copy that fills it, each write, each read). Within a phase of an instruction,
lanes and their addresses are linear over GF(2), and so are the banks: an access is free of conflicts when the map from
the phase's lanes (modulo lanes that want one word) to banks is injective, and each dimension that it loses doubles its
cycles. So the search goes up the bits of the granule index and picks for each the mask that it XORs in; every access
has at most one new dimension per bit, whose bank bits must leave the span of those before. Branch and bound makes that
exact. The answer is then proved by enumerating real addresses. No map for 16-byte granules may do: 8- and 4-byte
granules (narrower instructions) and padding are tried where it does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache

from tilec.errors import InternalError
from tilec.ir.layout import Layout, Span
from tilec.ir.lds_access import LdsAccess, copy_layout, lds_access, read_access
from tilec.ir.shared_layout import SharedLayout
from tilec.target import LdsInstruction, Target

NODE_LIMIT = 20_000
_State = tuple[tuple[int, ...], int, tuple[int, ...]]


@dataclass(frozen=True)
class Access:
    """One use of the buffer: `kind` is read, write or copy (straight from global memory, `copy_bytes` per lane).
    `layout` is the register layout of a read or write. `weight` says how often it happens, for trading one access
    against another."""

    name: str
    kind: str
    layout: Layout | None = None
    copy_bytes: int = 0
    weight: int = 1


@dataclass(frozen=True)
class AccessReport:
    """What an access costs: `instructions` per wave, each of `base_cycles`, the worst with `extra_cycles` more by
    conflicts; `source` says whether the phases behind the count were measured."""

    name: str
    mnemonic: str
    instructions: int
    base_cycles: int
    extra_cycles: int
    total_extra: int
    source: str

    def __str__(self) -> str:
        text = f"{self.name}: {self.instructions} {self.mnemonic}, {self.extra_cycles} extra cycles each"
        return f"{text} ({self.source})" if self.source else text


@dataclass(frozen=True)
class Solution:
    """The layout found. `proven` says that the search for its kind of granule was exhaustive; `accesses[i]` is None for
    copies."""

    shared: SharedLayout
    reports: tuple[AccessReport, ...]
    accesses: tuple[LdsAccess | None, ...]
    proven: bool
    cost: int

    @property
    def extra_cycles(self) -> int:
        """Conflict cycles of all instructions of a wave, each access once."""
        return sum(report.total_extra for report in self.reports)

    @property
    def paying(self) -> tuple[str, ...]:
        """Names of the accesses that still have conflicts."""
        return tuple(report.name for report in self.reports if report.total_extra)


def solve(accesses: Sequence[Access], shape: Sequence[int], element_bits: int, target: Target,
          order: Sequence[int]) -> Solution:
    """The best layout for a buffer of `shape` whose memory order is `order` (the fastest axis first). Cost is cycles
    over all accesses by weight; of equal cost the widest granule wins, then the lowest swizzle bits, then no
    padding."""
    return _solve(tuple(accesses), tuple(shape), element_bits, target, tuple(order))


@lru_cache(maxsize=256)
def _solve(accesses: tuple[Access, ...], shape: tuple[int, ...], element_bits: int, target: Target,
           order: tuple[int, ...]) -> Solution:
    best: Solution | None = None
    for plain in _granules(accesses, shape, element_bits, order):
        plans = _plans(accesses, plain, target)
        if plans is None or any(plan is not None and _unit(plan) > plain.granule_bytes for plan in plans):
            continue                            # a read as wide as two granules keeps them together: one granule
        if plain.granule_bytes & (plain.granule_bytes - 1):
            swizzle, proven = _climb(accesses, plain, target), False
        else:
            swizzle, proven = _search([_demand(plan, access.weight, plain.granule_bytes)
                                       for access, plan in zip(accesses, plans, strict=True) if plan is not None])
        found = evaluate(accesses, replace(plain, swizzle=swizzle), target, proven)
        best = found if best is None or (found and found.cost < best.cost) else best
        if best and not best.extra_cycles:
            return best
    if best is None:
        raise InternalError(f"no LDS layout of {shape} serves {', '.join(access.name for access in accesses)}")
    for padded in _padded(accesses, best.shared):
        found = evaluate(accesses, padded, target, best.proven)
        best = found if found and found.cost < best.cost else best
    return best


def evaluate(accesses: Sequence[Access], shared: SharedLayout, target: Target, proven: bool = False) -> Solution | None:
    """What all accesses cost under a given layout, by enumerating the addresses of every lane of every instruction of
    wave 0 (other waves differ by an XOR or by whole blocks); None if one can't be served."""
    plans = _plans(accesses, shared, target)
    if plans is None:
        return None
    reports, cost = [], 0
    for access, plan in zip(accesses, plans, strict=True):
        if plan is None:
            reports.append(AccessReport(access.name, "copy", 0, 0, 0, 0, ""))
            continue
        extra = plan.extra_cycles()
        instruction, count = plan.instruction, len(plan.parts)
        reports.append(AccessReport(access.name, instruction.mnemonic, count, instruction.base_cycles, int(extra.max()),
                                    int(extra.sum()), instruction.source))
        cost += access.weight * (count * instruction.base_cycles + int(extra.sum()))
    return Solution(shared, tuple(reports), plans, proven, cost)


def _plans(accesses: Sequence[Access], shared: SharedLayout, target: Target) -> tuple[LdsAccess | None, ...] | None:
    """The instruction and addresses of each access (None for a copy); None if one does not fit the granule."""
    plans: list[LdsAccess | None] = []
    for access in accesses:
        if access.kind == "copy":
            if copy_layout(shared, access.copy_bytes, 1, target.wave_size) is None:
                return None
            plans.append(None)
            continue
        assert access.layout is not None
        plan = (read_access(access.layout, shared, target) if access.kind == "read"
                else lds_access(access.layout, shared, target, writes=True))
        if plan is None:
            return None
        plans.append(plan)
    return tuple(plans)


def _granules(accesses: tuple[Access, ...], shape: tuple[int, ...], element_bits: int,
              order: tuple[int, ...]) -> Iterator[SharedLayout]:
    """Layouts without a swizzle to start from, wide granules first. Copies need granules of their own size at least."""
    copies = max((access.copy_bytes for access in accesses if access.kind == "copy"), default=0)
    if element_bits == 6:
        sizes = [(16, 16)] if copies == 12 else [(32, 24), (16, 16)]
    else:
        sizes = [(8 * size // element_bits, size) for size in (16, 8, 4) if 8 * size >= element_bits and size >= copies]
    block = SharedLayout(shape, element_bits, order).block if element_bits % 8 == 0 else 0
    for granule, size in sizes:
        if not block or granule <= block:
            yield SharedLayout(shape, element_bits, order, granule, size)
    if block and block * element_bits < 32:
        yield SharedLayout(shape, element_bits, order)


def _padded(accesses: tuple[Access, ...], shared: SharedLayout) -> Iterator[SharedLayout]:
    """Padded layouts without a swizzle; a copy writes a wave's lanes side by side, which padding would cut."""
    if any(access.kind == "copy" for access in accesses) or shared.granule_bytes & (shared.granule_bytes - 1):
        return
    row = shared.twos[shared.order[0]] * shared.element_bits // 8
    for granule_bytes in (size for size in (16, 8, 4) if size * 8 >= shared.element_bits and size <= row):
        for interval in (row, 2 * row, 4 * row):
            for pad in (4, 8, 16, 32):
                if pad % granule_bytes == 0 and interval < shared.bytes:
                    yield SharedLayout(shared.shape, shared.element_bits, shared.order,
                                       8 * granule_bytes // shared.element_bits, granule_bytes, (), interval, pad)


# ------------------------------------------------------------------------------------------------------- the search
@dataclass(frozen=True)
class _Row:
    """A dimension of an access: the swizzle bit that decides it (-1: none), the granule index bits and the bank bits of
    its address before the swizzle."""

    level: int
    granule_bits: int
    banks: int


@dataclass(frozen=True)
class _Demand:
    """An access as the search sees it: independent dimensions by level, how far a granule index is shifted to bank
    bits, and the cycles that the first lost dimension costs."""

    rows: tuple[_Row, ...]
    shift: int
    bank_mask: int
    price: int

    def cost(self, lost: int) -> int:
        return self.price * ((1 << lost) - 1)

    @cached_property
    def least(self) -> int:
        """No map can keep more dimensions than there are bank bits."""
        return self.cost(max(0, len(self.rows) - self.bank_mask.bit_length()))

    def least_below(self, top: int) -> int:
        """The same for maps whose sources are bits up to `top`: rows without such a bit are as they are."""
        _, lost = _extend((), [row.banks for row in self.rows if not row.granule_bits & (1 << top + 1) - 1])
        return max(self.least, self.cost(lost))

    def step(self, state: _State, level: int, mask: int) -> _State:
        """The state after `level` is given `mask`: what the mask adds to rows that have this bit, then the row it
        decides."""
        span, lost, pending = state
        if not pending:
            return state
        added = mask << self.shift & self.bank_mask
        rows = self.rows[len(self.rows) - len(pending):]
        pending = tuple(banks ^ added if row.granule_bits >> level & 1 else banks
                        for row, banks in zip(rows, pending, strict=True))
        if rows[0].level == level:
            span, missing = _extend(span, pending[:1])
            lost, pending = lost + missing, pending[1:]
        return span, lost, tuple(_reduced(banks, span) for banks in pending)


@cache
def phase_basis(instruction: LdsInstruction) -> tuple[int, ...]:
    """Lane numbers that generate the first phase; the other phases are its cosets (checked here, once per
    instruction)."""
    span = Span()
    basis = tuple(lane for lane in instruction.phases[0] if span.add(lane))
    first = set(instruction.phases[0])
    cosets = all({lane ^ phase[0] for lane in phase} == first for phase in instruction.phases)
    if len(first) != 1 << len(basis) or not cosets:
        raise InternalError(f"the phases of {instruction.mnemonic} are no cosets of one subspace of lanes")
    return basis


def _unit(plan: LdsAccess) -> int:
    """Bytes that each lane's address is a multiple of."""
    return max(4, plan.instruction.bytes & -plan.instruction.bytes)


def _demand(plan: LdsAccess, weight: int, granule_bytes: int) -> _Demand:
    instruction = plan.instruction
    low = _unit(plan).bit_length() - 1
    shift = granule_bytes.bit_length() - 1
    bank_mask = (1 << ((4 * instruction.banks).bit_length() - 1 - low)) - 1
    echelon: dict[int, int] = {}
    for lane in phase_basis(instruction):
        vector = 0
        for bit, mask in enumerate(plan.lane):
            vector ^= mask * (lane >> bit & 1)
        vector >>= low
        while vector and (top := vector.bit_length()) in echelon:
            vector ^= echelon[top]
        if vector:
            echelon[vector.bit_length()] = vector
    rows = tuple(_Row(max(-1, (vector << low).bit_length() - 1 - shift), (vector << low) >> shift, vector & bank_mask)
                 for _, vector in sorted(echelon.items()))
    price = weight * len(plan.parts) * instruction.base_cycles
    return _Demand(rows, shift - low, bank_mask, price)


def _search(demands: Sequence[_Demand]) -> tuple[tuple[int, ...], bool]:
    """The swizzle of least cost, and whether that is certain. Maps that only use low bits as sources are tried first:
    with them, addresses of further items and copies are plain sums."""
    width = max((demand.bank_mask.bit_length() - demand.shift for demand in demands), default=0)
    used = 0
    for row in (row for demand in demands for row in demand.rows):
        used |= row.granule_bits
    levels = [bit for bit in range(used.bit_length()) if used >> bit & 1]
    search = _Search(demands, levels, max(width, 0))
    floor = sum(demand.least for demand in demands)
    for top in (-1, *levels):
        if top == max(levels, default=-1) or sum(demand.least_below(top) for demand in demands) == floor:
            search.run(top)
        if search.best_cost == floor or search.nodes > NODE_LIMIT:
            break
    return search.best, search.nodes <= NODE_LIMIT


class _Search:
    """Depth-first branch and bound over the masks of the granule index bits in `levels`, ascending."""

    def __init__(self, demands: Sequence[_Demand], levels: Sequence[int], width: int):
        self.demands, self.levels = demands, levels
        self.choices = [_by_weight(min(width, level)) for level in levels]
        self.best: tuple[int, ...] = ()
        self.best_cost, self.nodes = 1 << 62, 0

    def run(self, top: int) -> None:
        """Searches the maps whose masks belong to bits up to `top`, for one cheaper than the best so far."""
        self.top = top
        self.seen: set[tuple[object, ...]] = set()
        states = []
        for demand in self.demands:
            own = [row.banks for row in demand.rows if row.level < 0]
            span, lost = _extend((), own)
            states.append((span, lost, tuple(row.banks for row in demand.rows[len(own):])))
        self._descend(0, (), tuple(states))

    def _descend(self, position: int, masks: tuple[int, ...], states: tuple[_State, ...]) -> None:
        """`masks` are those of the levels before `position`; a state is the span of an access' bank bits so far, the
        dimensions it lost, and the bank bits of its rows to come, as far as they are decided (modulo the span)."""
        pairs = list(zip(self.demands, states, strict=True))
        bound = sum(max(demand.cost(lost), demand.least) for demand, (_, lost, _) in pairs)
        self.nodes += 1
        if bound >= self.best_cost or self.nodes > NODE_LIMIT or (position, states) in self.seen:
            return
        self.seen.add((position, states))
        if position == len(self.levels):
            self.best_cost = bound
            by_level = dict(zip(self.levels, masks, strict=True))
            self.best = tuple(by_level.get(bit, 0) for bit in range(max(self.levels, default=-1) + 1))
            return
        level = self.levels[position]
        for mask in self.choices[position] if level <= self.top else (0,):
            after = tuple(demand.step(state, level, mask) for demand, state in pairs)
            self._descend(position + 1, (*masks, mask), after)


def _extend(span: tuple[int, ...], vectors: Sequence[int]) -> tuple[tuple[int, ...], int]:
    """The span, as its one reduced basis, with vectors added; and how many of them it held already."""
    lost = 0
    for vector in vectors:
        vector = _reduced(vector, span)
        if vector:
            top = vector.bit_length() - 1
            rest = (basis ^ vector if basis >> top & 1 else basis for basis in span)
            span = tuple(sorted((*rest, vector), reverse=True))
        else:
            lost += 1
    return span, lost


def _reduced(vector: int, span: tuple[int, ...]) -> int:
    for basis in span:
        vector = min(vector, vector ^ basis)
    return vector


@cache
def _by_weight(width: int) -> tuple[int, ...]:
    return tuple(sorted(range(1 << width), key=lambda mask: (mask.bit_count(), mask)))


def _climb(accesses: tuple[Access, ...], plain: SharedLayout, target: Target) -> tuple[int, ...]:
    """A swizzle for granules whose size is no power of two, where banks are not linear: bit by bit, the mask that costs
    least by enumeration. Not exhaustive."""
    bits = (plain.block // plain.granule).bit_length() - 1
    masks = [0] * bits
    best = evaluate(accesses, plain, target)
    for bit in range(bits):
        for mask in _by_weight(min(bit, (4 * target.lds_banks // plain.granule_bytes).bit_length())):
            if best is None or not best.extra_cycles:
                break
            trial = (*masks[:bit], mask, *masks[bit + 1:])
            found = evaluate(accesses, replace(plain, swizzle=trial), target)
            if found and found.cost < best.cost:
                best, masks[bit] = found, mask
    return tuple(masks)
