"""Simplify: fold, share, hoist and drop ops, without changing one bit of any result.

needs    traced
gives    traced
promise  Memory after the program is the same, bit for bit; no float is reassociated; no big tile is kept across a loop.
         What a launch requires is left to the host, who has the traced program.
method   One walk, operands before users: rewrite by `identities`, share equal pure ops in scope, move loop-invariant
         scalars and small tiles out of loops, take known branches, dissolve loops of one trip; remove what is dead.
check    Interpreter before == after on random programs (tests/semantics) and on every kernel.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any

from tilec.errors import InternalError
from tilec.ir import tile
from tilec.ir.core import (
    Block,
    Effect,
    Op,
    Program,
    ScalarType,
    Substitution,
    TensorType,
    TileType,
    Value,
    fields_of,
    remove_dead,
)
from tilec.passes.identities import COMMUTATIVE, rewrite

SMALL = 256     # elements: a tile up to this size may be kept across a loop to save computing it again in each trip


def simplify(program: Program) -> Program:
    """The program with less to do."""
    if program.form != "traced":
        raise InternalError(f"simplify needs form traced, not {program.form}")
    walk = _Simplifier()
    top = walk.open(loop=False)
    walk.block(program.body)
    body = Block(program.body.params, tuple(top.ops), tuple(map(walk.substitution, program.body.yields)))
    return remove_dead(program.replace(body=body, grid=tuple(map(walk.substitution, program.grid))))


@dataclass
class _Scope:
    """A block being rebuilt. `loop`: it is the body of a loop, so invariant ops may leave it."""

    loop: bool
    ops: list[Op] = field(default_factory=list)
    seen: dict[Any, Op] = field(default_factory=dict)


class _Simplifier:
    def __init__(self) -> None:
        self.scopes: list[_Scope] = []
        self.substitution = Substitution()
        self.depth: dict[Value, int] = {}       # the scope that defines a value; a parameter of the program has none
        self.definition: dict[Value, Op] = {}

    # -- what the identities ask --------------------------------------------------------------------------------------

    def op(self, value: Value) -> Op | None:
        """The op that defines a value; None for a parameter."""
        return self.definition.get(value)

    def number(self, value: Value) -> int | float | bool | None:
        """The number that a value, or every element of it, is known to be."""
        op = self.definition.get(value)
        return op.value if isinstance(op, tile.Constant) else None

    def emit(self, op: Op) -> Value:
        """Adds an op (simplified itself) and returns the value that holds its only result."""
        self.visit(op)
        return self.substitution(op.result)

    # -- the walk -----------------------------------------------------------------------------------------------------

    def open(self, loop: bool, params: tuple[Value, ...] = ()) -> _Scope:
        self.scopes.append(_Scope(loop))
        self.depth.update(dict.fromkeys(params, len(self.scopes) - 1))
        return self.scopes[-1]

    def block(self, block: Block) -> tuple[Value, ...]:
        """Adds a block's ops to the innermost scope and returns what the block yields there."""
        for op in block.ops:
            self.visit(op)
        return tuple(map(self.substitution, block.yields))

    def region(self, block: Block, loop: bool) -> Block:
        scope = self.open(loop, block.params)
        yields = self.block(block)
        self.scopes.pop()
        return Block(block.params, tuple(scope.ops), yields)

    def visit(self, op: Op) -> None:
        op = op.map_operands(self.substitution)
        if isinstance(op, tile.For):
            self.loop(op)
        elif isinstance(op, tile.If):
            self.branch(op)
        elif isinstance(op, tile.Require):
            self.learn(op.condition)
        else:
            new = rewrite(op, self)
            if isinstance(new, Value):
                self.substitution[op.result] = new
            else:
                self.add(new)

    def learn(self, condition: Value) -> None:
        """What a launch requires is true from here on: extents that must equal a number are that number."""
        op = self.definition.get(condition)
        if isinstance(op, tile.Elementwise) and op.function == "and":
            for part in op.arguments:
                self.learn(part)
        elif isinstance(op, tile.Elementwise) and op.function == "eq":
            for extent, number in (op.arguments, reversed(op.arguments)):
                made, known = self.definition.get(extent), self.definition.get(number)
                if isinstance(made, tile.Dim) and isinstance(known, tile.Constant):
                    self.scopes[self.depth[extent]].seen[_key(made)] = known
                    for same in [extent, *(old for old, new in self.substitution.map.items() if new is extent)]:
                        self.substitution[same] = number

    def add(self, op: Op) -> None:
        """Appends an op where it belongs, unless an equal one is in sight."""
        home = len(self.scopes) - 1
        pure = op.effect is Effect.NONE and not op.regions and len(op.results) == 1
        if pure:
            while _is_small(op) and self.scopes[home].loop and all(self.depth.get(v, 0) < home for v in op.operands):
                home -= 1
            key = _key(op)
            for scope in self.scopes[home::-1] if _is_small(op) else self.scopes[home:]:
                if key in scope.seen:
                    self.substitution[op.result] = scope.seen[key].result
                    return
            if not isinstance(op, tile.Constant) or _is_small(op):
                self.scopes[home].seen[key] = op
        self.scopes[home].ops.append(op)
        for result in op.results:
            self.depth[result] = home
            self.definition[result] = op

    def loop(self, op: tile.For) -> None:
        bounds = [self.number(v) for v in (op.lower, op.upper, op.step)]
        if None not in bounds and bounds[2] > 0:  # type: ignore[operator]
            trips = len(range(*bounds))  # type: ignore[arg-type]
            if trips <= 1:
                values = op.inits
                if trips:
                    self.replace(op.body.params, (op.lower, *op.inits))
                    values = self.block(op.body)
                return self.replace(op.results, values)
        kept = []
        for index, (init, param, yielded) in enumerate(zip(op.inits, op.body.params[1:], op.body.yields)):
            if self.substitution(yielded) in (param, init):     # the same in each trip
                self.replace((param, op.results[index]), (init, init))
            else:
                kept.append(index)
        params = (op.body.params[0], *(op.body.params[1 + i] for i in kept))
        body = Block(params, op.body.ops, tuple(op.body.yields[i] for i in kept))
        self.add(op.replace(body=self.region(body, loop=True), inits=tuple(op.inits[i] for i in kept),
                            results=tuple(op.results[i] for i in kept)))

    def branch(self, op: tile.If) -> None:
        condition = self.number(op.condition)
        if condition is not None:
            return self.replace(op.results, self.block(op.then if condition else op.otherwise))
        then, otherwise = self.region(op.then, loop=False), self.region(op.otherwise, loop=False)
        kept = []
        for index, (a, b) in enumerate(zip(then.yields, otherwise.yields)):
            if a is b:
                self.replace((op.results[index],), (a,))
            else:
                kept.append(index)
        then, otherwise = (Block((), b.ops, tuple(b.yields[i] for i in kept)) for b in (then, otherwise))
        self.add(op.replace(then=then, otherwise=otherwise, results=tuple(op.results[i] for i in kept)))

    def replace(self, old: tuple[Value, ...], new: tuple[Value, ...]) -> None:
        for before, after in zip(old, new):
            self.substitution[before] = self.substitution(after)


def _is_small(op: Op) -> bool:
    type_ = op.result.type
    return isinstance(type_, (ScalarType, TensorType)) or isinstance(type_, TileType) and prod(type_.shape) <= SMALL


def _key(op: Op) -> Any:
    """Equal for ops that compute the same. A float is told apart by its text: 0.0 == -0.0, and 1 == True."""
    attributes = tuple(repr(getattr(op, name)) for name in fields_of(type(op), "attribute"))
    operands = tuple(getattr(op, name) for name in fields_of(type(op), "operand"))
    if isinstance(op, tile.Elementwise) and op.function in COMMUTATIVE:
        operands = (frozenset(op.arguments),)
    return type(op), operands, attributes, op.result.type
