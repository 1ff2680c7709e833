"""needs  tile program in form laid_out or clustered        gives  machine program in form virtual
promise  the machine program does what the interpreter says of the tile program, one workgroup per program id
method   one rule per op; scalars live in SGPRs, tiles in VGPRs and AGPRs as fragments; control flow is uniform, EXEC
         stays all ones outside the few rules that narrow it for one instruction; the builder hoists addresses,
         masks, scalars
checked  interpreter == emulator on every kernel, shape sweep and random tile program
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

from tilec.backend_amdgcn import lower_dot, lower_math, lower_mem
from tilec.backend_amdgcn.builder import Builder
from tilec.backend_amdgcn.fragment import Fragment, Lazy, Stored
from tilec.backend_amdgcn.lowering import Lowering, parallel_copy
from tilec.backend_amdgcn.spread import OpenCluster
from tilec.errors import InternalError
from tilec.ir import machine, tile
from tilec.ir.abi import argument_slots
from tilec.ir.core import Block, Op, Program, ScalarType, TileType, TokenType, Value
from tilec.ir.machine import Immediate, Instruction, Operand, Ref
from tilec.ir.schedule import Pin

Rule = Callable[[Lowering, Any], None]     # of one class of ops


HOISTED_SGPRS = (None, 32, 0)
"""SGPRs for scalars that are hoisted out of a loop: without bound, and what to try in turn where SGPRs run out so."""


def lower(program: Program, arch: str, pins: Sequence[Pin] = (), room: int | None = None) -> machine.Program:
    """The machine program of a tile program, its tiles where the schedule pins them. Raises TilecError for what the
    architecture can't do and for pins that fit no tile. `room` is one of HOISTED_SGPRS."""
    context = Lowering(program, arch, pins, room)
    lower_mem.bind_parameters(context)
    lower_block(context, program.body)
    slots, size = argument_slots(program)
    return machine.Program(
        program.name,
        arch,
        context.b.finish(),
        waves=program.waves,
        lds_bytes=context.lds_bytes(),
        slots=slots,
        argument_bytes=size,
        where=program.where,
    )


def lower_block(context: Lowering, block: Block) -> None:
    for op in block.ops:
        rule = RULES.get(type(op))
        if rule is None:
            raise InternalError(f"no lowering for {op.mnemonic}", where=op.where)
        context.b.where = op.where or context.b.where
        context.b.name = op.results[0].name if op.results else ""
        rule(context, op)
        for result in op.results:
            context.settle(result)
            context.keep_pinned(result)


def _cluster_begin(context: Lowering, op: tile.ClusterBegin) -> None:
    if op.priority:
        context.b.emit("s_setprio", [], [op.priority], note=op.name)
    context.clusters.append(OpenCluster(op, context.b))


def _cluster_end(context: Lowering, op: tile.ClusterEnd) -> None:
    cluster = context.clusters.pop()
    cluster.close()
    if cluster.begin.priority:
        context.b.emit("s_setprio", [], [0])


# -- control flow ----------------------------------------------------------------------------------------------------


def _carried_registers(context: Lowering, value: Value) -> list[Ref]:
    """Registers that hold a value which control flow changes: a scalar's dwords, a tile's packed dwords in tuples, a
    token."""
    b = context.b
    if isinstance(value.type, TokenType):
        return [b.register("t", 1, value.name)]
    if isinstance(value.type, ScalarType):
        return [b.register("s", 2 if value.dtype.bits == 64 else 1, value.name)]
    home = context.pinned(value)
    if home is not None:
        return [home[i] for i in range(home.size)]
    group, total = context.tuple_size(value), Fragment(b, value.tile_type).dwords
    tuples = [b.register("va", min(group, total - start), value.name) for start in range(0, total, group)]
    return [t[i] for t in tuples for i in range(t.size)]


def _bind_carried(context: Lowering, value: Value, registers: list[Ref]) -> None:
    if isinstance(value.type, TileType):
        context.values[value] = Stored(context.b, value.type, list(registers))
    else:
        context.values[value] = registers[0]


def _operands_of(context: Lowering, value: Value) -> list[Operand]:
    """What `_carried_registers` would hold, as it is now."""
    known = context.values[value]
    if isinstance(known, Fragment):
        return [known.dword(i) for i in range(known.dwords)]
    if isinstance(value.type, TokenType):
        return [context.token(value)]
    return [context.scalar64(value) if value.dtype.bits == 64 else context.scalar(value)]


def _assign(context: Lowering, registers: list[list[Ref]], values: tuple[Value, ...]) -> None:
    pairs = [
        (register, operand)
        for group, value in zip(registers, values)
        for register, operand in zip(group, _operands_of(context, value))
    ]
    parallel_copy(context.b, pairs)


def _for(context: Lowering, op: tile.For) -> None:
    b = context.b
    counter, *params = op.body.params
    lower_bound, upper, step = (context.scalar(v) for v in (op.lower, op.upper, op.step))
    registers = [_carried_registers(context, p) for p in params]
    _assign(context, registers, op.inits)
    index = b.register("s", 1, counter.name)
    b.copy(index, lower_bound)
    innermost = not any(isinstance(inner, tile.For) for inner in op.body.walk())
    loop = b.begin_loop(f"for {counter.name}", innermost)
    changing = [index, *(r for group in registers for r in group)]
    b.set_level(changing, b.level)
    context.values[counter] = index
    for param, group in zip(params, registers):
        _bind_carried(context, param, group)
    lower_block(context, op.body)
    b.where = op.where
    _assign(context, registers, op.body.yields)
    b.emit("s_add_i32", [index], [index, step])
    b.end_loop(
        loop, enter=[_compare("s_cmp_lt_i32", lower_bound, upper)], again=[_compare("s_cmp_lt_i32", index, upper)]
    )
    b.set_level(changing, b.level)
    for result, group in zip(op.results, registers):
        _bind_carried(context, result, group)


def _compare(op: str, left: Operand, right: Operand) -> Instruction:
    return Instruction(op, (), (left, right))


def _if(context: Lowering, op: tile.If) -> None:
    b = context.b
    condition = context.scalar(op.condition)
    registers = [_carried_registers(context, r) for r in op.results]
    branch = b.begin_if([_compare("s_cmp_lg_u32", condition, Immediate(0))])
    lower_block(context, op.then)
    _assign(context, registers, op.then.yields)
    if op.otherwise.ops or op.otherwise.yields:
        b.begin_else(branch)
        lower_block(context, op.otherwise)
        _assign(context, registers, op.otherwise.yields)
    b.end_if(branch)
    for result, group in zip(op.results, registers):
        _bind_carried(context, result, group)


MASKS_KEPT = 16
"""What a rare choice asks for first, each in two SGPRs; of more items they are computed again where they choose."""


def _elementwise(context: Lowering, op: tile.Elementwise) -> None:
    if op.rare:
        _rarely(context, op)
    else:
        lower_math.RULES[tile.Elementwise](context, op)


def _rarely(context: Lowering, op: tile.Elementwise) -> None:
    """A choice whose first side is seldom wanted: computed out of the way, if the condition holds in any lane."""
    b = context.b
    condition, yes, no = op.arguments
    source, repeats = context.source_of(condition)
    bound_here = [source, no, *(result for repeat in repeats for result in repeat.results)]
    elsewhere = {v: context.values[v] for v in bound_here if not context.same_region(v, op.result)}
    flags = context.fragment(source)
    if flags.items <= MASKS_KEPT:
        kept = [flags.value(i) for i in range(flags.items)]
        flags = context.values[source] = Lazy(b, source.tile_type, kept.__getitem__)
        for repeat in repeats:
            RULES[type(repeat)](context, repeat)
    else:
        context.settle_for(op, condition)
        flags = context.fragment(source)
    context.settle_for(op, yes)
    context.values[no] = context.fragment(no).stored()
    masks = (flags.value(i) for i in range(flags.items))
    held = reduce(lambda one, other: b.value("s_or_b64", one, other, kind="s", size=2), masks)
    registers = _carried_registers(context, op.result)
    aside = b.begin_aside([Instruction("s_cmp_lg_u64", (), (held, Immediate(0)))])
    lower_math.RULES[tile.Elementwise](context, op)
    _assign(context, [registers], (op.result,))
    b.end_aside(aside)
    _assign(context, [registers], (no,))
    b.join(aside)
    context.values.update(elsewhere)    # what this block has computed is not there for others
    _bind_carried(context, op.result, registers)


RULES: dict[type[Op], Rule] = {
    tile.For: _for,
    tile.If: _if,
    tile.ClusterBegin: _cluster_begin,
    tile.ClusterEnd: _cluster_end,
    **lower_math.RULES,
    **lower_mem.RULES,
    **lower_dot.RULES,
    tile.Elementwise: _elementwise,
}

__all__ = ["Builder", "lower"]
