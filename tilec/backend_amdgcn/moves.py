"""Copies: to real moves once registers are known, and copies that happen at once to copies in a row.

`copy` moves a run of dwords; an immediate fills every dword. After allocation the two runs may overlap (the source
dies there), so the moves go upward or downward as memmove does. Values never go from a vector file to SGPRs: which
lane's would it be?
"""

from __future__ import annotations

from collections.abc import Sequence

from tilec.backend_amdgcn.isa import is_inline
from tilec.errors import InternalError, Location
from tilec.ir.machine import Immediate, Instruction, Operand, Physical, Ref, Register

_MOVE = {
    "sc": "s_mov_b32", "ss": "s_mov_b32",
    "vc": "v_mov_b32", "vs": "v_mov_b32", "vv": "v_mov_b32", "va": "v_accvgpr_read_b32",
    "ac": "v_accvgpr_write_b32", "as": "v_accvgpr_write_b32", "av": "v_accvgpr_write_b32", "aa": "v_accvgpr_mov_b32",
}
"""Opcode by file of the destination and file of the source (c: constant)."""


def expand_copy(copy: Instruction, dst: Physical, src: Operand) -> list[Instruction]:
    """The moves for an allocated copy; none if both operands are the same registers."""
    if dst == src:
        return []
    if isinstance(src, Immediate):
        source_file = "c" if dst.file != "a" or is_inline(src.value) else "literal"
    elif isinstance(src, Physical) and src.size == dst.size:
        source_file = "s" if src.file in ("vcc", "exec") else src.file
    else:
        raise InternalError(f"a copy of {dst.size} dwords from {src}", where=copy.where)
    key = dst.file + source_file
    if key not in _MOVE:
        raise InternalError(f"no instruction copies {src} to {dst}", where=copy.where)
    fills_pairs = src.value in (0, -1) if isinstance(src, Immediate) else _even(src)
    step = 2 if dst.file == "s" and _even(dst) and fills_pairs else 1
    steps = list(range(0, dst.size, step))
    if isinstance(src, Physical) and src.file == dst.file and src.index < dst.index:
        steps.reverse()
    result = []
    for k in steps:
        width = min(step, dst.size - k)
        op = "s_mov_b64" if width == 2 else _MOVE[key]
        part = src[k:k + width] if isinstance(src, Physical) else src
        result.append(Instruction(op, (dst[k:k + width],), (part,), where=copy.where, note=copy.note))
    return result


def _even(operand: Operand) -> bool:
    return isinstance(operand, Physical) and operand.index % 2 == 0


def parallel_copy(pairs: Sequence[tuple[Ref, Operand]], where: Location | None = None,
                  note: str = "") -> list[Instruction]:
    """Copies in a row that together do what all `pairs` (destination, source) do at once: every source is read before
    any destination is written. Destinations may not overlap each other. A ring of copies is broken with a new
    register."""
    moves = _split([(d, s) for d, s in pairs if d != s])
    result: list[Instruction] = []

    def emit(dst: Ref, src: Operand) -> None:
        result.append(Instruction("copy", (dst,), (src,), where=where, note=note))

    pending = dict(moves)
    readers: dict[Operand, int] = {}
    for src in pending.values():
        readers[src] = readers.get(src, 0) + 1
    ready = [dst for dst in pending if not readers.get(dst)]
    while pending:
        if not ready:                                       # only rings are left: save one destination
            dst = next(iter(pending))
            register = dst.register
            saved = Ref(Register(register.kind, dst.size, register.name, register.where), 0, dst.size)
            emit(saved, dst)
            pending = {d: saved if s == dst else s for d, s in pending.items()}
            readers[dst] = 0
            ready = [dst]
        dst = ready.pop()
        src = pending.pop(dst)
        emit(dst, src)
        if src in readers:
            readers[src] -= 1
            if not readers[src] and isinstance(src, Ref) and src in pending:
                ready.append(src)
    return result


def _split(pairs: list[tuple[Ref, Operand]]) -> list[tuple[Ref, Operand]]:
    """The pairs cut up until every destination is equal to or apart from every source."""
    while True:
        cuts: dict[Register, set[int]] = {}
        for operand in (o for pair in pairs for o in pair):
            if isinstance(operand, Ref):
                cuts.setdefault(operand.register, set()).update((operand.start, operand.start + operand.size))
        result: list[tuple[Ref, Operand]] = []
        for dst, src in pairs:
            places = {c - dst.start for c in cuts[dst.register]}
            if isinstance(src, Ref):
                places |= {c - src.start for c in cuts[src.register]}
            inner = sorted({0, dst.size} | {p for p in places if 0 < p < dst.size})
            for low, high in zip(inner, inner[1:]):
                part = src[low:high] if isinstance(src, (Ref, Physical)) else src
                result.append((dst[low:high], part))
        if len(result) == len(pairs):
            return result
        pairs = result
