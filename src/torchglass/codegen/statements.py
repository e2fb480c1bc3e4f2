"""The statement IR: what a kernel's C says, as data. ``c_body`` makes it, ``rewrites`` change it, ``c_printer`` prints.

    For("i0", "0", 512, kind="parallel", body=(
        For("i1", "0", 256, kind="simd", body=(
            Read("t1", "float", Place("x", Address((("i0", 256), ("i1", 1)))), "float32", "float32"),
            Let("t2", "float", "mul", ("t1", "t1"), "float32", "float32"),
            Write(Place("y", ...), "t2", "float32"),
        )),
    ))

is ``for (...) { for (...) { const float t1 = x[256*i0 + i1]; const float t2 = t1 * t1; y[256*i0 + i1] = t2; } }``. An
operand is a name or a literal; addresses are linear in counters and values. What a kernel does once (rooms for sums, a
thread's share) is in ``Declare`` and ``Call``, whose texts no rewrite looks into.

A rewrite is a function from statements to statements, or to None where it does not apply or does not pay
(``rewrites/``). All statements are frozen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from typing import Any, TypeAlias, TypeVar

from ..records.sizes import Expr, Size, text

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Address:
    """``offset + sum(stride * name)``; a name is a counter (``i0``, ``lane``) or an integer value (``t7``)."""

    terms: tuple[tuple[str, Size], ...] = ()
    offset: Size = 0

    def stride(self, name: str) -> Size:
        """By how much it moves with a name."""
        return sum((stride for term, stride in self.terms if term == name), 0)

    def plus(self, name: str, stride: Size) -> Address:
        """The address moved by another name."""
        return replace(self, terms=(*self.terms, (name, stride)))

    def at(self, name: str, number: int) -> Address:
        """The address where a counter has this value."""
        rest = tuple(term for term in self.terms if term[0] != name)
        return Address(rest, self.offset + self.stride(name) * number)


@dataclass(frozen=True, slots=True)
class Place:
    """One element of an array in memory."""

    array: str
    address: Address


Names: TypeAlias = "Callable[[str], str]"
Places: TypeAlias = "Callable[[Place], Place]"


@dataclass(frozen=True, slots=True)
class Let:
    """``const ctype name = op(args);`` in ``dtype``, the operands in ``operand``. Without ``ctype`` the name exists."""

    name: str
    ctype: str
    op: str
    args: tuple[str, ...]
    dtype: str
    operand: str


@dataclass(frozen=True, slots=True)
class Count:
    """``const ctype name = address;``: an integer computed from counters."""

    name: str
    ctype: str
    address: Address


@dataclass(frozen=True, slots=True)
class Read:
    """``const ctype name = place;`` from memory of ``stored`` to ``dtype``; ``other`` where ``mask`` is false."""

    name: str
    ctype: str
    place: Place
    stored: str
    dtype: str
    mask: str | None = None
    other: str = ""


@dataclass(frozen=True, slots=True)
class Write:
    """``place = value;`` in memory of ``stored``. ``add``: to what is there."""

    place: Place
    value: str
    stored: str
    add: bool = False


@dataclass(frozen=True, slots=True)
class Move:
    """``target = source;``, both of one type in memory."""

    target: Place
    source: Place


@dataclass(frozen=True, slots=True)
class Assign:
    """``target = value;`` (or ``+=``) for a variable or an array of values."""

    target: str | Place
    value: str
    operator: str = "="


@dataclass(frozen=True, slots=True)
class Accumulate:
    """``target = target kind value;``. ``exact``: as one value, which keeps NaN; else a flag beside it does."""

    target: str | Place
    kind: str
    value: str
    dtype: str
    exact: bool = False


@dataclass(frozen=True, slots=True)
class NoteNan:
    """``flag |= value != value;``"""

    flag: str
    value: str


@dataclass(frozen=True, slots=True)
class ReadPair:
    """Two neighbours of bfloat16 as ``name`` and ``name_b``."""

    name: str
    place: Place


@dataclass(frozen=True, slots=True)
class WritePair:
    """Two neighbours of bfloat16."""

    place: Place
    values: tuple[str, str]


@dataclass(frozen=True, slots=True)
class LetPair:
    """The same computation for two neighbours."""

    first: Let
    second: Let


@dataclass(frozen=True, slots=True)
class Declare:
    """``ctype name = value;``, or an array of ``count``, at the start of a cache line if it is ``aligned``."""

    ctype: str
    name: str
    value: str | None = None
    count: Size | None = None
    aligned: bool = True


@dataclass(frozen=True, slots=True)
class Call:
    """``function(args);``"""

    function: str
    args: tuple[str | Place, ...]


@dataclass(frozen=True, slots=True)
class When:
    """``if (condition) body``"""

    condition: str
    body: Stmt


@dataclass(frozen=True, slots=True)
class Pragma:
    """A directive of OpenMP's that stands between statements."""

    text: str


@dataclass(frozen=True, slots=True)
class Block:
    """``{ body }``, of variables of its own. ``pragma``: threads run it; ``inline``: on one line."""

    body: tuple[Stmt, ...]
    pragma: str = ""
    inline: bool = False


@dataclass(frozen=True, slots=True)
class For:
    """``for (int64_t counter = start; counter < stop; counter += step) body``.

    ``kind``: serial, simd, parallel (of its own team), "parallel simd", or shared (by the team of a parallel block).
    ``whole``: while a whole step fits, of a counter that exists.
    """

    counter: str
    start: str
    stop: Size | str
    body: tuple[Stmt, ...]
    step: int = 1
    kind: str = "serial"
    clauses: str = ""
    ctype: str = "int64_t"
    inline: bool = False
    whole: bool = False


Stmt: TypeAlias = (
    "Let | Count | Read | Write | Move | Assign | Accumulate | NoteNan | ReadPair | WritePair | LetPair"
    " | Declare | Call | When | Pragma | Block | For"
)
Body: TypeAlias = "Sequence[Stmt]"


# -- looking and changing --------------------------------------------------------------------------------------------
NAMED = frozenset(
    ["name", "args", "value", "values", "mask", "target", "flag", "condition"]  # of a statement
    + ["array", "terms"]  # of a place and its address
)
"""The fields whose strings are names or literals; those of others are C's own words."""


def mapped(stmt: T, name: Names = lambda n: n, place: Places = lambda p: p) -> T:
    """The statement with its names and places replaced."""

    def new(field: str, value: Any) -> Any:
        if isinstance(value, str):
            return name(value) if field in NAMED else value
        if isinstance(value, tuple):
            return tuple(new(field, one) for one in value)
        if isinstance(value, Place):
            return place(mapped(value, name, place))
        return mapped(value, name, place) if is_dataclass(value) and not isinstance(value, Expr) else value

    fields = stmt.__slots__  # type: ignore[attr-defined]
    return type(stmt)(*(new(field, getattr(stmt, field)) for field in fields))


def renamed(body: Iterable[Stmt], names: Mapping[str, str]) -> list[Stmt]:
    """The statements with variables called otherwise."""
    return [mapped(stmt, lambda name: names.get(name, name)) for stmt in body]


def moved(body: Iterable[Stmt], places: Mapping[Place, Place]) -> list[Stmt]:
    """The statements with memory elsewhere."""
    return [mapped(stmt, place=lambda place: places.get(place, place)) for stmt in body]


def mentions(stmt: Stmt) -> set[str]:
    """All names in a statement: variables, counters and arrays."""
    found: set[str] = set()

    def note(name: str) -> str:
        found.add(name)
        return name

    mapped(stmt, note)
    return found


def defines(stmt: Stmt) -> str | None:
    """The name that a statement makes, or None."""
    return stmt.name if isinstance(stmt, (Let, Count, Read, ReadPair)) else None


def places(stmt: Stmt) -> list[Place]:
    """The memory that a statement touches."""
    found: list[Place] = []

    def note(place: Place) -> Place:
        found.append(place)
        return place

    mapped(stmt, place=note)
    return found


def loops_changed(body: Iterable[Stmt], change: Callable[[For], For]) -> list[Stmt]:
    """The statements with each loop among them, inner ones first, replaced by what ``change`` makes of it."""
    out: list[Stmt] = []
    for stmt in body:
        if isinstance(stmt, (For, Block)):
            stmt = replace(stmt, body=tuple(loops_changed(stmt.body, change)))
        out.append(change(stmt) if isinstance(stmt, For) else stmt)
    return out


# -- making ----------------------------------------------------------------------------------------------------------
def nested(body: Iterable[Stmt], dims: Sequence[Size], which: Iterable[int]) -> list[Stmt]:
    """Plain loops over the given dimensions around ``body``, the first outermost."""
    inner = tuple(body)
    for k in reversed(list(which)):
        inner = (For(f"i{k}", "0", dims[k], inner),)
    return list(inner)


def shared(code: Sequence[Stmt], loops: int) -> list[Stmt]:
    """Perfectly nested loops, whose points threads share over so many of them."""
    (outermost,) = code
    assert isinstance(outermost, For)
    return [replace(outermost, kind="parallel", clauses=f" collapse({loops})" if loops > 1 else "")]


def constant(name: str, value: str) -> Declare:
    """``const int64_t name = value;``"""
    return Declare("const int64_t", name, value)


def limit(name: str, start: str, step: int | str, size: Size | str) -> Declare:
    """Where the block that begins at ``start`` ends."""
    size = in_c(size)
    return constant(name, f"{start} + {step} < {size} ? {start} + {step} : {size}")


def in_c(size: Size | str) -> str:
    """A size as text in C."""
    return size if isinstance(size, str) else text(size, "c")


def decode(name: str, dims: Sequence[tuple[int, Size]]) -> list[Stmt]:
    """Counters of several dimensions from one that runs over all of them."""
    if not dims:
        return []
    made: list[Stmt] = []
    rest = name
    for k, size in reversed(dims[1:]):
        made.append(constant(f"i{k}", f"{rest} % {in_c(size)}"))
        rest = f"{rest} / {in_c(size)}" if rest == name else f"({rest}) / {in_c(size)}"
    return [*made, constant(f"i{dims[0][0]}", rest)]
