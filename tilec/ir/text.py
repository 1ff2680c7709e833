"""The text of a tile program: `print_program` and `parse_program`, each the other's inverse.

Both follow the declared fields of ops and types, so a new op needs nothing here. An op is a line

    %name: type, ... = mnemonic operand, ... attribute=value ... region(%name: type, ...) { ... yield %name } at PLACE

Operands and attributes stand in the order of declaration; operands at the end and attributes that equal their default
are left out, `-` is none and `[...]` a tuple. Value names are the user's, made unique by a number behind a dot;
PLACE is "file":line:column:width in the user's code; a layout is written once, above the program.
"""

from __future__ import annotations

import dataclasses
import json
import math
from functools import lru_cache
from typing import Any

from tilec.dtypes import DTYPES, DType
from tilec.errors import InternalError, Location, TilecError
from tilec.ir import tile
from tilec.ir.core import (
    OPS,
    Block,
    Op,
    Program,
    ScalarType,
    SharedType,
    TensorType,
    TileType,
    TokenType,
    Type,
    Value,
    fields_of,
)
from tilec.ir.layout import Layout
from tilec.ir.shared_layout import SharedLayout

_TYPES: dict[str, type] = {"tensor": TensorType, "tile": TileType, "shared": SharedType, "token": TokenType}
_TYPE_NAMES = {c: name for name, c in _TYPES.items()}
_LAYOUTS: dict[str, Any] = {"layout": Layout, "shared": SharedLayout}
_WORDS = {"true": True, "false": False, "none": None, "inf": math.inf, "nan": math.nan}
assert tile.Constant.mnemonic in OPS


# -- printing --------------------------------------------------------------------------------------------------------

def print_program(program: Program, locations: bool = False) -> str:
    """The program's text; with `locations`, each op ends with the user's line it came from."""
    return _Printer(locations).program(program)


def name_values(program: Program) -> dict[Value, str]:
    """A unique name for every value: its hint, numbered from the second of a kind on; a bare number where it has
    none."""
    names: dict[Value, str] = {}
    counts: dict[str, int] = {}

    def define(value: Value) -> None:
        hint = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in value.name)
        hint = f"_{hint}" if hint[:1].isdigit() else hint
        count = counts[hint] = counts.get(hint, -1) + 1
        names[value] = str(count) if not hint else f"{hint}.{count}" if count else hint

    def walk(block: Block) -> None:
        for value in block.params:
            define(value)
        for op in block.ops:
            for value in op.results:
                define(value)
            for inner in op.regions:
                walk(inner)

    for value in program.params:
        define(value)
    walk(program.body)
    return names


class _Printer:
    def __init__(self, locations: bool) -> None:
        self.locations = locations
        self.names: dict[Value, str] = {}
        self.layouts: dict[Any, str] = {}

    def program(self, program: Program) -> str:
        self.names = name_values(program)
        head = f"tile {program.name}({self.definitions(program.params)}) form={program.form} waves={program.waves}"
        lines = [f"{head}{self.location(program.where)} {{", *self.body(program.body, "  ", "grid", program.grid), "}"]
        tables = [f"{name} = {layout}" for layout, name in self.layouts.items()]
        return "\n".join([*tables, *lines, ""])

    def body(self, block: Block, indent: str, end: str, values: tuple[Value, ...]) -> list[str]:
        lines = [line for op in block.ops for line in self.op(op, indent)]
        return [*lines, f"{indent}{end} {self.uses(values)}".rstrip()] if values else lines

    def op(self, op: Op, indent: str) -> list[str]:
        operands = [getattr(op, f) for f in _without_defaults(op, "operand")]
        attributes = [f"{f}={self.attribute(getattr(op, f), op)}" for f in _attributes(op)]
        results = f"{self.definitions(op.results)} = " if op.results else ""
        words = [f"{indent}{results}{op.mnemonic}", ", ".join(map(self.operand, operands)), *attributes]
        line = " ".join(filter(None, words))
        lines: list[str] = []
        for name in fields_of(type(op), "region"):
            block = getattr(op, name)
            params = f"({self.definitions(block.params)})" if block.params else ""
            lines += [f"{line} {name}{params} {{", *self.body(block, indent + "  ", "yield", block.yields)]
            line = f"{indent}}}"
        return [*lines, line + self.location(op.where)]

    def definitions(self, values: tuple[Value, ...]) -> str:
        return ", ".join(f"%{self.names[v]}: {self.type(v.type)}" for v in values)

    def uses(self, values: tuple[Value, ...]) -> str:
        return ", ".join(map(self.operand, values))

    def operand(self, value: Value | tuple[Value, ...] | None) -> str:
        if value is None:
            return "-"
        if isinstance(value, tuple):
            return f"[{self.uses(value)}]"
        return f"%{self.names.get(value, f'undefined:{value.name}')}"

    def type(self, type_: Type) -> str:
        if isinstance(type_, ScalarType):
            return type_.dtype.name
        parts = []
        for field in dataclasses.fields(type_):
            value = getattr(type_, field.name)
            if field.default is dataclasses.MISSING:
                parts.append("x".join(map(str, value)) if field.name == "shape" else self.attribute(value, None))
            elif value != field.default:
                parts.append(f"{field.name}={self.attribute(value, None)}")
        return f"{_TYPE_NAMES[type(type_)]}<{', '.join(parts)}>" if parts else _TYPE_NAMES[type(type_)]

    def attribute(self, value: Any, op: Op | None) -> str:
        match value:
            case None:
                return "none"
            case bool():
                return str(value).lower()
            case int() | float():
                return repr(value)
            case str():
                bare = value.isascii() and value.isidentifier() and value not in _WORDS and value not in DTYPES
                return value if bare else json.dumps(value)
            case tuple():
                return f"({', '.join(self.attribute(v, op) for v in value)})"
            case DType():
                return value.name
            case Layout() | SharedLayout():
                return self.layouts.setdefault(value, f"#{len(self.layouts)}")
        raise InternalError(f"attribute {value!r} has no text form", where=op.where if op else None)

    def location(self, where: Location | None) -> str:
        if where is None or not self.locations:
            return ""
        return f" at {json.dumps(where.file)}:{where.line}:{where.column}:{where.width}"


def _without_defaults(op: Op, kind: str) -> list[str]:
    """Field names of a kind up to the last that differs from its default."""
    names = list(fields_of(type(op), kind))
    while names and _default(type(op), names[-1]) == getattr(op, names[-1]):
        names.pop()
    return names


def _attributes(op: Op) -> list[str]:
    def differs(name: str) -> bool:
        default, value = _default(type(op), name), getattr(op, name)
        return default is dataclasses.MISSING or type(default) is not type(value) or default != value
    return [name for name in fields_of(type(op), "attribute") if differs(name)]


def _default(op_class: type[Op], name: str) -> Any:
    return next(f.default for f in dataclasses.fields(op_class) if f.name == name)


# -- parsing ---------------------------------------------------------------------------------------------------------

_GRAMMAR = r"""
start: _NL? layout* program
layout: LAYOUT "=" LAYOUT_TEXT _NL
program: "tile" NAME "(" params ")" "form" "=" NAME "waves" "=" INT place? "{" _NL block "}" _NL?
params: (param ("," param)*)?
param: VALUE ":" type
block: (op _NL)* (end _NL)?
end: ("yield" | "grid") VALUE ("," VALUE)*
op: [results "="] NAME operands extras place?
results: param ("," param)*
operands: (operand ("," operand)*)?
?operand: VALUE -> value | "-" -> nothing | "[" (VALUE ("," VALUE)*)? "]" -> values
extras: extra*
?extra: NAME "=" _literal -> attribute | NAME ["(" params ")"] "{" _NL block "}" -> region
place: "at" STRING ":" INT ":" INT ":" INT
type: NAME ["<" argument ("," argument)* ">"]
argument: [NAME "="] _literal
_literal: FLOAT | INT | SHAPE | STRING | NAME | LAYOUT | tuple
tuple: "(" (_literal ("," _literal)*)? ")"

VALUE: /%[A-Za-z0-9_.]+/
LAYOUT: /#[0-9]+/
LAYOUT_TEXT: /(layout|shared)\([^\n]*\)/
NAME: /[A-Za-z_][A-Za-z0-9_]*/
SHAPE: /[0-9]+(x[0-9]+)+/
FLOAT: /-?([0-9]+\.[0-9]*([eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+)|-inf/
INT: /-?[0-9]+/
STRING: /"([^"\\\n]|\\.)*"/
_NL: /([ \t\r]*(\/\/[^\n]*)?\n)+/
%ignore /[ \t]+/
"""


@lru_cache(maxsize=1)
def _parser() -> Any:
    import lark
    return lark.Lark(_GRAMMAR, parser="lalr", maybe_placeholders=True, propagate_positions=True)


def parse_program(text: str, source: str = "<tile program>") -> Program:
    """The program that `text` says. Raises TilecError with the line of `source` where it is no tile program."""
    import lark
    try:
        tree = _parser().parse(text if text.endswith("\n") else text + "\n")
    except lark.exceptions.UnexpectedInput as fault:
        found = str(getattr(fault, "token", getattr(fault, "char", ""))).strip()
        expected = getattr(fault, "expected", None) or getattr(fault, "allowed", None) or ()
        raise TilecError(f"this is no tile program: unexpected {found or 'end of line'}",
                         where=Location(source, max(fault.line, 1), max(fault.column, 1)),
                         limit=f"expected one of {', '.join(sorted(expected))}") from None
    return _Reader(source).program(tree)


class _Reader:
    def __init__(self, source: str) -> None:
        self.source = source
        self.values: dict[str, Value] = {}
        self.layouts: dict[str, Any] = {}

    def fault(self, what: str, at: Any, **more: str) -> TilecError:
        line, column = (at.line, at.column) if hasattr(at, "line") else (at.meta.line, at.meta.column)
        return TilecError(what, where=Location(self.source, line, column), **more)

    def program(self, tree: Any) -> Program:
        *layouts, program = tree.children
        for name, layout in (entry.children for entry in layouts):
            self.layouts[str(name)] = _LAYOUTS[layout.partition("(")[0]].parse(str(layout))
        name, params, form, waves, *rest = program.children
        place, block = (rest[0], rest[-1]) if len(rest) == 2 else (None, rest[0])
        parameters = self.params(params)
        body = self.block(block, ())
        return Program(str(name), parameters, dataclasses.replace(body, yields=()), body.yields, str(form), int(waves),
                       self.place(place))

    def block(self, tree: Any, params: tuple[Value, ...]) -> Block:
        ops: list[Op] = []
        yields: tuple[Value, ...] = ()
        for entry in tree.children:
            if entry.data == "op":
                ops.append(self.op(entry))
            else:
                yields = tuple(self.use(v) for v in entry.children)
        return Block(params, tuple(ops), yields)

    def op(self, tree: Any) -> Op:
        results, mnemonic, operands, extras, *place = tree.children
        op_class = OPS.get(mnemonic)
        if op_class is None:
            raise self.fault(f"no op {str(mnemonic)!r}", mnemonic, fix=f"use one of {', '.join(OPS)}")
        fields: dict[str, Any] = {}
        names = fields_of(op_class, "operand")
        if len(operands.children) > len(names):
            raise self.fault(f"{mnemonic} takes at most {len(names)} operands", mnemonic,
                             limit=f"given {len(operands.children)}")
        for name, entry in zip(names, operands.children):
            uses = tuple(self.use(v) for v in entry.children)
            fields[name] = None if entry.data == "nothing" else uses if entry.data == "values" else uses[0]
        for extra in extras.children:
            name, *content = extra.children
            if name not in fields_of(op_class, extra.data):
                raise self.fault(f"{mnemonic} has no {extra.data} {str(name)!r}", name)
            if extra.data == "attribute":
                fields[str(name)] = self.literal(content[0])
            else:
                fields[str(name)] = self.block(content[1], self.params(content[0]) if content[0] else ())
        defined = self.params(results) if results else ()
        try:
            return op_class(**fields, results=defined, where=self.place(place[0] if place else None))
        except TypeError as fault:
            raise self.fault(f"{mnemonic} lacks a field: {fault}", mnemonic) from None

    def params(self, tree: Any) -> tuple[Value, ...]:
        return tuple(self.define(*entry.children) for entry in tree.children)

    def define(self, token: Any, type_: Any) -> Value:
        name = str(token)[1:]
        if name in self.values:
            raise self.fault(f"{token} is defined twice", token)
        hint, _, number = name.partition(".")
        if number and not number.isdigit():
            raise self.fault(f"{token} is no name", token, fix="put only a number behind the dot")
        value = self.values[name] = Value(self.type(type_), "" if hint.isdigit() else hint)
        return value

    def use(self, token: Any) -> Value:
        if str(token)[1:] not in self.values:
            raise self.fault(f"{token} is not defined before it is used", token)
        return self.values[str(token)[1:]]

    def type(self, tree: Any) -> Type:
        name, *arguments = tree.children
        if name in DTYPES:
            return ScalarType(DTYPES[name])
        if name not in _TYPES:
            raise self.fault(f"no type {str(name)!r}", name, fix=f"use a dtype or one of {', '.join(_TYPES)}")
        fields = [f.name for f in dataclasses.fields(_TYPES[name])]
        given: dict[str, Any] = {}
        for index, argument in enumerate(a for a in arguments if a):
            key, value = argument.children
            key = str(key) if key else fields[index] if index < len(fields) else "?"
            literal = self.literal(value)
            given[key] = (literal,) if key == "shape" and isinstance(literal, int) else literal
        try:
            return _TYPES[name](**given)
        except TypeError as fault:
            raise self.fault(f"type {name}: {fault}", name) from None

    def literal(self, token: Any) -> Any:
        kind = getattr(token, "type", "tuple")
        if kind == "tuple":
            return tuple(self.literal(t) for t in token.children)
        text = str(token)
        if kind == "LAYOUT":
            if text not in self.layouts:
                raise self.fault(f"no layout {text} is given above the program", token)
            return self.layouts[text]
        match kind:
            case "INT":
                return int(text)
            case "FLOAT":
                return float(text)
            case "SHAPE":
                return tuple(map(int, text.split("x")))
            case "STRING":
                return json.loads(text)
        return _WORDS[text] if text in _WORDS else DTYPES.get(text, text)

    def place(self, tree: Any) -> Location | None:
        if tree is None:
            return None
        file, line, column, width = tree.children
        return Location(json.loads(file), int(line), int(column), int(width))
