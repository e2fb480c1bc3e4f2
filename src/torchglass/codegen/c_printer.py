"""Statements in, lines of C out: one row of ``PRINTERS`` for each kind of statement."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ..process.tables import enters
from ..records.loops import compute_dtype
from ..records.sizes import text
from . import statements as s
from .c_ops import c_op, carried, combine, from_half, to_half

PRINTERS: dict[type, Callable[[Any], list[str]]] = {}
prints = enters(PRINTERS)
"""Enters the printer of a kind of statement."""


def lines_of(body: Iterable[s.Stmt]) -> list[str]:
    """The C of statements, one line each but for loops and blocks."""
    return [line for stmt in body for line in PRINTERS[type(stmt)](stmt)]


def indent(lines: list[str]) -> list[str]:
    return ["    " + line for line in lines]


def address_text(address: s.Address) -> str:
    """``256*i0 + i1 - 3``."""
    parts = []
    for name, stride in address.terms:
        if stride == 1:
            parts.append(name)
        elif stride == -1:
            parts.append(f"-{name}")
        elif stride != 0:
            parts.append(f"{text(stride, 'c')}*{name}")
    if address.offset != 0 or not parts:
        parts.append(text(address.offset, "c"))
    return parts[0] + "".join(f" - {part[1:]}" if part[0] == "-" else f" + {part}" for part in parts[1:])


def place_text(place: s.Place) -> str:
    return f"{place.array}[{address_text(place.address)}]"


def _target(target: str | s.Place) -> str:
    return target if isinstance(target, str) else place_text(target)


def _made(ctype: str, name: str, value: str) -> list[str]:
    return [f"const {ctype} {name} = {value};" if ctype else f"{name} = {value};"]


@prints(s.Let)
def _let(stmt: s.Let) -> list[str]:
    return _made(stmt.ctype, stmt.name, value_text(stmt))


def value_text(stmt: s.Let) -> str:
    return c_op(stmt.op, stmt.dtype, stmt.operand, stmt.args)


@prints(s.Count)
def _count(stmt: s.Count) -> list[str]:
    return _made(stmt.ctype, stmt.name, address_text(stmt.address))


@prints(s.Read)
def _read(stmt: s.Read) -> list[str]:
    value = from_half(place_text(stmt.place), stmt.stored)
    have = compute_dtype(stmt.stored)
    value = value if have == stmt.dtype else c_op("cast", stmt.dtype, have, [value])
    return _made(stmt.ctype, stmt.name, value if stmt.mask is None else f"{stmt.mask} ? {value} : {stmt.other}")


@prints(s.Write)
def _write(stmt: s.Write) -> list[str]:
    place = place_text(stmt.place)
    value = f"{from_half(place, stmt.stored)} + {stmt.value}" if stmt.add else stmt.value
    return [f"{place} = {to_half(value, stmt.stored)};"]


@prints(s.Move)
def _move(stmt: s.Move) -> list[str]:
    return [f"{place_text(stmt.target)} = {place_text(stmt.source)};"]


@prints(s.Assign)
def _assign(stmt: s.Assign) -> list[str]:
    return [f"{_target(stmt.target)} {stmt.operator} {stmt.value};"]


@prints(s.Accumulate)
def _accumulate(stmt: s.Accumulate) -> list[str]:
    target = _target(stmt.target)
    joined = (
        carried(stmt.kind, stmt.dtype, target, stmt.value) if stmt.exact else combine(stmt.kind, target, stmt.value)
    )
    return [f"{target} = {joined};"]


@prints(s.NoteNan)
def _note_nan(stmt: s.NoteNan) -> list[str]:
    return [f"{stmt.flag} |= {stmt.value} != {stmt.value};"]


@prints(s.ReadPair)
def _read_pair(stmt: s.ReadPair) -> list[str]:
    name = stmt.name
    return [
        f"const pair {name}_p = PAIR({place_text(stmt.place)});",
        f"const float {name} = tg_first({name}_p), {name}_b = tg_second({name}_p);",
    ]


@prints(s.WritePair)
def _write_pair(stmt: s.WritePair) -> list[str]:
    return [f"PAIR({place_text(stmt.place)}) = tg_pair({stmt.values[0]}, {stmt.values[1]});"]


@prints(s.LetPair)
def _let_pair(stmt: s.LetPair) -> list[str]:
    one, two = stmt.first, stmt.second
    return [f"const {one.ctype} {one.name} = {value_text(one)}, {two.name} = {value_text(two)};"]


@prints(s.Declare)
def _declare(stmt: s.Declare) -> list[str]:
    count = "" if stmt.count is None else f"[{text(stmt.count, 'c')}]"
    aligned = " ALIGNED" if stmt.count is not None and stmt.aligned else ""
    value = "" if stmt.value is None else f" = {stmt.value}"
    return [f"{stmt.ctype} {stmt.name}{count}{aligned}{value};"]


@prints(s.Call)
def _call(stmt: s.Call) -> list[str]:
    args = ", ".join(a if isinstance(a, str) else f"&{place_text(a)}" for a in stmt.args)
    return [f"{stmt.function}({args});"]


@prints(s.When)
def _when(stmt: s.When) -> list[str]:
    return [f"if ({stmt.condition}) {' '.join(lines_of([stmt.body]))}"]


@prints(s.Pragma)
def _pragma(stmt: s.Pragma) -> list[str]:
    return [f"#pragma omp {stmt.text}"]


@prints(s.Block)
def _block(stmt: s.Block) -> list[str]:
    if stmt.inline:
        return [f"{{ {' '.join(lines_of(stmt.body))} }}"]
    head = [f"#pragma omp {stmt.pragma}"] if stmt.pragma else []
    return [*head, "{", *indent(lines_of(stmt.body)), "}"]


DIRECTIVES = {
    "simd": "simd",
    "parallel": "parallel for schedule(static)",
    "parallel simd": "parallel for simd schedule(static)",
    "shared": "for schedule(static)",
}


@prints(s.For)
def _for(stmt: s.For) -> list[str]:
    head = [f"#pragma omp {DIRECTIVES[stmt.kind]}{stmt.clauses}"] if stmt.kind != "serial" else []
    i, body = stmt.counter, lines_of(stmt.body)
    step = f"++{i}" if stmt.step == 1 else f"{i} += {stmt.step}"
    stop = stmt.stop if isinstance(stmt.stop, str) else text(stmt.stop, "c")
    loop = f"for ({stmt.ctype} {i} = {stmt.start}; {i} < {stop}; {step})"
    if stmt.whole:
        loop = f"for (; {i} + {stmt.step} <= {stop}; {step})"
    return [*head, f"{loop} {' '.join(body)}"] if stmt.inline else [*head, f"{loop} {{", *indent(body), "}"]
