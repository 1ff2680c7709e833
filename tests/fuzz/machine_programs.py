"""Random machine programs in form virtual: nested loops and branches, tuples and parts of them, all kinds of
constraints.

Every read is of something written on every path, so that the allocation checker can be strict. Sizes are drawn so that
AGPRs, misaligned parts, ties, early clobbers, narrowed EXEC and parallel copies all occur.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

from tilec.backend_amdgcn.moves import parallel_copy
from tilec.ir.machine import (
    VCC,
    Block,
    Immediate,
    Instruction,
    Operand,
    Physical,
    Program,
    Ref,
    Register,
    Target,
    whole,
)

_VALU = {"v_add_u32": 2, "v_xor_b32": 2, "v_fma_f32": 3, "v_exp_f32": 1, "v_perm_b32": 3}
_SALU = {"s_add_u32": 2, "s_mul_i32": 2, "s_xor_b32": 2, "s_not_b32": 1}
_LOADS = {1: "buffer_load_dword", 2: "buffer_load_dwordx2", 3: "buffer_load_dwordx3", 4: "buffer_load_dwordx4"}
_STORES = {size: name.replace("load", "store") for size, name in _LOADS.items()}
_MATRIX = {"gfx950": {"v_mfma_f32_16x16x32_bf16": (4, 4), "v_mfma_f32_32x32x16_bf16": (4, 16)},
           "gfx942": {"v_mfma_f32_16x16x16_bf16": (2, 4), "v_mfma_f32_32x32x8_bf16": (2, 16)}}


def random_program(seed: int, arch: str = "gfx950", length: int = 60, waves: int = 4, tiles: int = 6,
                   narrows: bool = True) -> Program:
    """About `length` instructions over `tiles` wide registers and some scalars; EXEC changes if it `narrows`."""
    return _Generator(random.Random(seed), arch, length, waves, tiles, narrows).program()


class _Generator:
    def __init__(self, rng: random.Random, arch: str, length: int, waves: int, tiles: int, narrows: bool):
        self.rng, self.arch, self.length, self.waves = rng, arch, length, waves
        self.blocks: list[Block] = []
        self.code: list[Instruction] = []
        self.depth = 0
        self.label = "entry"
        self.tiles = [Register(rng.choice(("va", "va", "v")), rng.choice((2, 3, 4, 4, 8, 16, 16, 32)), f"tile{i}")
                      for i in range(tiles)]
        self.lanes = [Register("v", 1, f"x{i}") for i in range(8)]
        self.scalars = [Register("s", 1, f"s{i}") for i in range(6)]
        self.pairs = [Register("s", 2, f"m{i}") for i in range(3)]
        self.descriptor = Register("s", 8, "descriptor")
        self.kernel = Register("s", 2, "kernel")
        self.narrows, self.narrowed = narrows, 0
        self.number = itertools.count()

    # -- structure ---------------------------------------------------------------------------------------------------

    def program(self) -> Program:
        self.copy(whole(self.kernel), Physical("s", 0, 2))
        self.copy(whole(self.lanes[0]), Physical("v", 0))
        self.copy(whole(self.scalars[0]), Physical("s", 2))
        for part in (0, 4):
            self.emit("s_load_dwordx4", [Ref(self.descriptor, part, 4)], [whole(self.kernel), Immediate(part * 4)])
        for number, register in enumerate((*self.tiles, *self.lanes[1:], *self.scalars[1:], *self.pairs)):
            self.copy(whole(register), Immediate(self.rng.choice((0, 1, -1, 64, 100 + number))))
        self.region(self.length)
        self.observe()
        self.emit("s_endpgm")
        self.close("")
        return Program("fuzz", self.arch, tuple(self.blocks), waves=self.waves)

    def region(self, budget: int) -> None:
        while budget > 0:
            roll = self.rng.random()
            if roll < 0.06 and self.depth < 3 and not self.narrowed and budget > 8:
                self.loop(budget // 2)
                budget -= budget // 2
            elif roll < 0.12 and budget > 8:
                self.branch(budget // 2)
                budget -= budget // 2
            elif roll < 0.17 and self.narrows and self.narrowed < 2 and budget > 6:
                self.narrow(budget // 3)
                budget -= budget // 3
            else:
                self.instruction()
                budget -= 1

    def loop(self, budget: int) -> None:
        counter, label = Register("s", 1, "counter"), f"loop{next(self.number)}"
        self.copy(whole(counter), Immediate(3))
        self.close(label)
        self.depth += 1
        self.region(budget)
        self.rotate()
        self.emit("s_sub_i32", [whole(counter)], [whole(counter), Immediate(1)])
        self.emit("s_cmp_gt_i32", [], [whole(counter), Immediate(0)])
        self.emit("s_cbranch_scc1", [], [Target(label)])
        self.close(f"after{next(self.number)}", self.depth - 1)

    def branch(self, budget: int) -> None:
        number = next(self.number)
        self.emit("s_cmp_lt_i32", [], [self.scalar(), Immediate(7)])
        self.emit("s_cbranch_scc0", [], [Target(f"else{number}")])
        self.close(f"then{number}")
        self.region(budget // 2)
        self.emit("s_branch", [], [Target(f"join{number}")])
        self.close(f"else{number}")
        self.region(budget // 2)
        self.close(f"join{number}")

    def narrow(self, budget: int) -> None:
        saved, mask = Register("s", 2, "saved"), self.rng.choice(self.pairs)
        label = f"skip{next(self.number)}"
        self.emit("s_and_saveexec_b64", [whole(saved)], [whole(mask)])
        self.narrowed += 1
        if self.rng.random() < 0.5:
            self.emit("s_cbranch_execz", [], [Target(label)])
            self.close(f"lanes{label}")
        self.region(budget)
        self.narrowed -= 1
        self.close(label)
        self.emit("s_mov_exec", [], [whole(saved)])

    def close(self, following: str, depth: int | None = None) -> None:
        self.blocks.append(Block(self.label, tuple(self.code), self.depth))
        self.depth = self.depth if depth is None else depth
        self.label, self.code = following, []

    # -- instructions ------------------------------------------------------------------------------------------------

    def emit(self, op: str, dst: list[Operand] | None = None, src: list[Operand] | None = None) -> None:
        self.code.append(Instruction(op, tuple(dst or ()), tuple(src or ())))

    def copy(self, dst: Ref, src: Operand) -> None:
        self.emit("copy", [dst], [src])

    def instruction(self) -> None:
        kinds: list[Callable[[], None]] = [
            self.valu, self.valu, self.salu, self.load, self.store, self.move, self.fresh, self.wide, self.half,
            self.compare]
        if not self.narrowed:                               # matrix instructions look at all lanes
            kinds += [self.matrix, self.matrix, self.chain]
        if self.arch == "gfx950":
            kinds.append(self.swap)
        self.rng.choice(kinds)()

    def valu(self) -> None:
        op, count = self.rng.choice(list(_VALU.items()))
        sources: list[Operand] = [self.lane() for _ in range(count)]
        if self.rng.random() < 0.3:
            sources[0] = self.scalar()
        self.emit(op, [self.lane()], sources)

    def salu(self) -> None:
        op, count = self.rng.choice(list(_SALU.items()))
        self.emit(op, [self.scalar()], [self.scalar() for _ in range(count)])

    def load(self) -> None:
        target = self.part(self.rng.randint(1, 4))
        self.emit(_LOADS[target.size], [target], [self.lane(), Ref(self.descriptor, 4, 4), Immediate(0)])

    def store(self) -> None:
        data = self.part(self.rng.randint(1, 4))
        self.emit(_STORES[data.size], [], [data, self.lane(), Ref(self.descriptor, 0, 4), self.scalar()])

    def move(self) -> None:
        size = self.rng.randint(1, 8)
        target, source = self.part(size), self.part(size)
        size = min(target.size, source.size)
        if target.register is not source.register:
            self.copy(target[:size], source[:size])

    def fresh(self) -> None:
        """A value that goes through a register of its own, as tiles do on their way into a bigger one."""
        target = self.part(self.rng.randint(1, 4))
        loaded = Register("va", target.size, "loaded")
        self.emit(_LOADS[target.size], [whole(loaded)], [self.lane(), Ref(self.descriptor, 0, 4), Immediate(0)])
        for _ in range(self.rng.randint(0, 2)):
            self.valu()
        self.copy(target, whole(loaded))

    def wide(self) -> None:
        result = Register("v", 2, "wide")
        addend = self.exactly(2) or Immediate(0)
        self.emit("v_mad_u64_u32", [whole(result), VCC], [self.lane(), self.lane(), addend])
        self.copy(self.lane(), whole(result)[self.rng.randint(0, 1)])

    def half(self) -> None:
        self.emit("ds_read_u16_d16_hi", [self.part(1)], [self.lane()])

    def compare(self) -> None:
        mask = whole(self.rng.choice(self.pairs)) if self.rng.random() < 0.7 else VCC
        self.emit("v_cmp_lt_i32", [mask], [self.lane(), self.lane()])
        self.emit("v_cndmask_b32", [self.lane()], [self.lane(), self.lane(), mask])

    def swap(self) -> None:
        a, b = self.rng.sample(self.lanes, 2)
        targets = [whole(a), whole(b)]
        sources = targets if self.rng.random() < 0.5 else [whole(r) for r in self.rng.sample(self.lanes, 2)]
        self.emit("v_permlane32_swap_b32", targets, sources)

    def matrix(self) -> None:
        op, (ab, cd) = self.rng.choice(list(_MATRIX[self.arch].items()))
        c, a, b = self.exactly(cd), self.exactly(ab), self.exactly(ab)
        if c is None or a is None or b is None or c.register in (a.register, b.register):
            return
        in_place = self.rng.random() < 0.7
        d = c if in_place else whole(Register("va", cd, "d"))
        self.emit(op, [d], [a, b, c if self.rng.random() < 0.8 else Immediate(0)])
        if not in_place:
            self.copy(c, d)

    def chain(self) -> None:
        """Accumulators in new registers, each dying where the next is born."""
        op, (ab, cd) = self.rng.choice(list(_MATRIX[self.arch].items()))
        a = self.exactly(ab)
        if a is None:
            return
        value: Operand = Immediate(0)
        for _ in range(3):
            result = whole(Register("va", cd, "chain"))
            self.emit(op, [result], [a, a, value])
            value = result
        assert isinstance(value, Ref)
        self.emit("v_max_f32", [self.lane()], [value[0], value[cd - 1]])

    def rotate(self) -> None:
        """What a loop carries is exchanged all at once."""
        same: dict[tuple[str, int], list[Register]] = {}
        for register in (*self.tiles, *self.lanes, *self.scalars):
            same.setdefault((register.kind[0], register.size), []).append(register)
        pairs: list[tuple[Ref, Operand]] = []
        for registers in same.values():
            if len(registers) > 1:
                chosen = self.rng.sample(registers, self.rng.randint(2, len(registers)))
                pairs += [(whole(d), whole(s)) for d, s in zip(chosen, self.rng.sample(chosen, len(chosen)))]
        wide = [t for t in self.tiles if t.size >= 8]
        if wide and self.rng.random() < 0.5:
            tile = self.rng.choice(wide)
            pairs = [(d, s) for d, s in pairs if d.register is not tile]
            half = tile.size // 2
            pairs += [(Ref(tile, 0, half), Ref(tile, half, half)), (Ref(tile, half, half), Ref(tile, 0, half))]
        self.code += parallel_copy(pairs)

    def observe(self) -> None:
        """Stores of everything, so that nothing is dead."""
        for register in (*self.tiles, *self.lanes):
            for start in range(0, register.size, 4):
                data = Ref(register, start, min(4, register.size - start))
                self.emit(_STORES[data.size], [],
                          [data, whole(self.lanes[0]), Ref(self.descriptor, 0, 4), whole(self.scalars[0])])

    # -- operands ----------------------------------------------------------------------------------------------------

    def lane(self) -> Ref:
        if self.rng.random() < 0.1:
            return self.part(1)
        return whole(self.rng.choice(self.lanes))

    def scalar(self) -> Ref:
        return whole(self.rng.choice(self.scalars))

    def part(self, size: int) -> Ref:
        tile = self.rng.choice(self.tiles)
        size = min(size, tile.size)
        return Ref(tile, self.rng.randint(0, tile.size - size), size)

    def exactly(self, size: int) -> Ref | None:
        wide = [t for t in self.tiles if t.size >= size]
        if not wide:
            return None
        tile = self.rng.choice(wide)
        step = 2 if self.rng.random() < 0.9 else 1
        return Ref(tile, self.rng.randrange(0, tile.size - size + 1, step), size)
