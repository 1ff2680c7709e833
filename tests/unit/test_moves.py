"""Copies: expanded to moves in the right order, and many at once put in a row."""

from __future__ import annotations

import random

import pytest

from tilec.backend_amdgcn.moves import expand_copy, parallel_copy
from tilec.errors import InternalError
from tilec.ir.machine import Immediate, Instruction, Operand, Physical, Ref, Register, whole

COPY = Instruction("copy")


def printed(dst: Physical, src: Operand) -> list[str]:
    return [f"{i.op} {i.dst[0]} <- {i.src[0].value if isinstance(i.src[0], Immediate) else i.src[0]}"
            for i in expand_copy(COPY, dst, src)]


@pytest.mark.parametrize("dst, src, expected", [
    (Physical("v", 4, 2), Physical("v", 4, 2), []),
    (Physical("v", 4, 2), Physical("v", 8, 2), ["v_mov_b32 v4 <- v8", "v_mov_b32 v5 <- v9"]),
    (Physical("v", 0, 3), Physical("v", 1, 3), ["v_mov_b32 v0 <- v1", "v_mov_b32 v1 <- v2", "v_mov_b32 v2 <- v3"]),
    (Physical("v", 1, 3), Physical("v", 0, 3), ["v_mov_b32 v3 <- v2", "v_mov_b32 v2 <- v1", "v_mov_b32 v1 <- v0"]),
    (Physical("v", 1), Physical("s", 7), ["v_mov_b32 v1 <- s7"]),
    (Physical("v", 1, 2), Immediate(300), ["v_mov_b32 v1 <- 300", "v_mov_b32 v2 <- 300"]),
    (Physical("a", 2), Physical("v", 2), ["v_accvgpr_write_b32 a2 <- v2"]),
    (Physical("v", 2), Physical("a", 2), ["v_accvgpr_read_b32 v2 <- a2"]),
    (Physical("a", 3), Physical("a", 2), ["v_accvgpr_mov_b32 a3 <- a2"]),
    (Physical("a", 3), Immediate(1), ["v_accvgpr_write_b32 a3 <- 1"]),
    (Physical("s", 4, 3), Physical("s", 8, 3), ["s_mov_b64 s[4:5] <- s[8:9]", "s_mov_b32 s6 <- s10"]),
    (Physical("s", 5, 2), Physical("s", 8, 2), ["s_mov_b32 s5 <- s8", "s_mov_b32 s6 <- s9"]),
    (Physical("s", 6, 4), Physical("s", 4, 4), ["s_mov_b64 s[8:9] <- s[6:7]", "s_mov_b64 s[6:7] <- s[4:5]"]),
    (Physical("s", 6, 2), Immediate(-1), ["s_mov_b64 s[6:7] <- -1"]),
    (Physical("s", 6, 2), Immediate(5), ["s_mov_b32 s6 <- 5", "s_mov_b32 s7 <- 5"]),
    (Physical("s", 6, 2), Physical("vcc", 0, 2), ["s_mov_b64 s[6:7] <- vcc"]),
])
def test_expansion(dst: Physical, src: Operand, expected: list[str]):
    assert printed(dst, src) == expected


@pytest.mark.parametrize("dst, src", [
    (Physical("s", 0), Physical("v", 0)), (Physical("s", 0), Physical("a", 0)), (Physical("a", 0), Immediate(300)),
    (Physical("v", 0, 2), Physical("v", 4, 3))])
def test_copies_that_no_instruction_makes(dst: Physical, src: Operand):
    with pytest.raises(InternalError):
        expand_copy(COPY, dst, src)


def at_once(pairs: list[tuple[Ref, Operand]], content: dict) -> dict:
    result = dict(content)
    for dst, src in pairs:
        for k in range(dst.size):
            result[dst.register, dst.start + k] = value(src, k, content)
    return result


def in_a_row(copies: list[Instruction], content: dict) -> dict:
    result = dict(content)
    for copy in copies:
        dst, src = copy.dst[0], copy.src[0]
        assert isinstance(dst, Ref)
        moved = [value(src, k, result) for k in range(dst.size)]        # a single copy reads all before it writes
        for k in range(dst.size):
            result[dst.register, dst.start + k] = moved[k]
    return result


def value(src: Operand, k: int, content: dict) -> object:
    return content[src.register, src.start + k] if isinstance(src, Ref) else src


@pytest.mark.parametrize("size", [1, 2, 4, 16])
def test_swapping_tuples_keeps_every_dword(size: int):      # BL-24
    a, b = Register("va", size, "a"), Register("va", size, "b")
    copies = parallel_copy([(whole(a), whole(b)), (whole(b), whole(a))])
    content = {(r, k): (r.name, k) for r in (a, b) for k in range(size)}
    after = in_a_row(copies, content)
    assert {name: after[name] for name in content} == at_once(
        [(whole(a), whole(b)), (whole(b), whole(a))], content)
    assert len(copies) == 3 and all(c.dst[0].size == size for c in copies if isinstance(c.dst[0], Ref))


@pytest.mark.parametrize("seed", range(200))
def test_any_copies_at_once(seed: int):
    rng = random.Random(seed)
    registers = [Register("v", rng.choice((1, 2, 4, 8)), f"r{i}") for i in range(rng.randint(1, 6))]
    free = [(r, k) for r in registers for k in range(r.size)]
    pairs: list[tuple[Ref, Operand]] = []
    for _ in range(rng.randint(1, 8)):
        register = rng.choice(registers)
        size = rng.randint(1, register.size)
        dst = Ref(register, rng.randint(0, register.size - size), size)
        dwords = [(register, dst.start + k) for k in range(size)]
        if not all(d in free for d in dwords):
            continue                                        # destinations are apart
        free = [d for d in free if d not in dwords]
        sources = [r for r in registers if r.size >= size]
        source = rng.choice(sources)
        pairs.append((dst, Immediate(seed) if rng.random() < 0.1
                      else Ref(source, rng.randint(0, source.size - size), size)))
    content = {(r, k): (r.name, k) for r in registers for k in range(r.size)}
    copies = parallel_copy(pairs)
    after, expected = in_a_row(copies, content), at_once(pairs, content)
    assert {name: after[name] for name in content} == expected
    assert len(copies) <= 2 * sum(dst.size for dst, _ in pairs)


def test_a_chain_needs_no_new_register():
    a, b, c = (Register("v", 4, n) for n in "abc")
    copies = parallel_copy([(whole(b), whole(c)), (whole(a), whole(b))])
    assert [(i.dst[0], i.src[0]) for i in copies] == [(whole(a), whole(b)), (whole(b), whole(c))]
