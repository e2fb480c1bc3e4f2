"""What can lie on the symbolic stack besides plain ``ast`` expressions, and what such values become on the way.

Markers stand for things the compiler keeps on the stack and source never names (iterators, exit functions, the
exception being handled); the others become expressions or statements once it is known how they are used.  None of
them may be left in the finished tree (``statements/check.py``).
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

from ...bytecode.ins import Ins


@dataclass(eq=False)
class Marker:
    """A value that source cannot name; it may be dropped, never used in an expression."""

    kind: str
    expr: Any = None
    flag: bool = False
    resumed: bool = False

    def __repr__(self) -> str:
        return f"<{self.kind}>"


def is_marker(value: Any, kind: str) -> bool:
    return isinstance(value, Marker) and value.kind == kind


@dataclass(eq=False, repr=False)
class Iterating(ast.expr):
    """``iter(value)``, waiting for its loop; ``asynchronous`` for ``async for``."""

    value: Any
    asynchronous: bool = False


@dataclass(eq=False, repr=False)
class Item(ast.expr):
    """The value a ``for``, ``with`` or ``except`` binds; ``kind`` says which."""

    kind: str


@dataclass(eq=False, repr=False)
class Awaitable(ast.expr):
    """The operand of a coming YIELD_FROM."""

    value: Any
    is_await: bool


@dataclass(eq=False, repr=False)
class Chained(ast.expr):
    """A value that has been stored to ``targets`` and is still on the stack."""

    value: Any
    targets: list[Any]


@dataclass(eq=False, repr=False)
class Inplace(ast.expr):
    """``left op= right`` before it is known where it is stored."""

    left: Any
    op: ast.operator
    right: Any


class Unpacking:
    """One UNPACK_SEQUENCE or UNPACK_EX whose targets are being stored; ``dropped`` are those thrown away."""

    def __init__(self, value: Any, count: int, star: int | None, shared: bool) -> None:
        self.value = value
        self.targets: list[Any] = [None] * count
        self.star = star
        self.shared = shared
        self.filled = 0
        self.dropped: list[int] = []


@dataclass(eq=False, repr=False)
class UnpackItem(ast.expr):
    """Item ``index`` of an Unpacking, waiting for its target."""

    owner: Unpacking
    index: int


@dataclass(eq=False, repr=False)
class Function(ast.expr):
    """The result of MAKE_FUNCTION; ``owner`` is the scope of its type parameters."""

    code: CodeType
    defaults: list[Any] = field(default_factory=list)
    kwdefaults: dict[str, Any] = field(default_factory=dict)
    annotations: dict[str, Any] = field(default_factory=dict)
    type_params: Any = None
    owner: Any = None


@dataclass(eq=False, repr=False)
class Class(ast.expr):
    """The result of calling __build_class__; ``owner`` is the scope of its type parameters."""

    function: Function
    name: str
    bases: list[Any]
    keywords: list[ast.keyword]
    type_params: Any = None
    owner: Any = None


@dataclass(eq=False, repr=False)
class Parameter(ast.expr):
    """One type parameter (3.12)."""

    node: Any


@dataclass(eq=False, repr=False)
class Alias(ast.expr):
    """The value of a ``type`` statement."""

    name: str
    parameters: list[Any]
    value: Any
    owner: Any = None


@dataclass(eq=False, repr=False)
class Import(ast.expr):
    """IMPORT_NAME, with the names taken from it so far."""

    module: str
    level: int
    names: Any
    aliases: list[ast.alias] = field(default_factory=list)


@dataclass(eq=False, repr=False)
class Imported(ast.expr):
    """IMPORT_FROM: one name out of an Import."""

    owner: Import
    name: str


@dataclass(eq=False, repr=False)
class Collected(ast.stmt):
    """A comprehension's element (LIST_APPEND, SET_ADD, MAP_ADD or a generator's yield)."""

    kind: str
    value: Any
    key: Any = None


@dataclass(eq=False, repr=False)
class Match(ast.expr):
    """``CHECK_EXC_MATCH`` against ``type``."""

    type: Any


@dataclass(eq=False, repr=False)
class CaseTest(ast.expr):
    """The condition of a ``case``: ``subject`` is a Marker that all cases of one statement share."""

    subject: Any
    pattern: Any


class Case:
    """One ``case``: its pattern, the variables it stores, and whether the subject was used up by it."""

    def __init__(self, pattern: Any, stores: list[Ins], last: bool) -> None:
        self.pattern = pattern
        self.stores = stores
        self.last = last

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Case) and ast.dump(self.pattern) == ast.dump(other.pattern)

    def __hash__(self) -> int:
        return hash(ast.dump(self.pattern))


@dataclass(eq=False, repr=False)
class Fresh(ast.expr):
    """A list or tuple that was just built and that only the stack knows; never changed, but replaced."""

    kind: Any
    elements: list[Any]


def is_silent(value: Any) -> bool:
    """Whether a stack value may stay below a statement without being lost or evaluated late."""
    if isinstance(value, Function):  # that of a comprehension waits for what it iterates over
        return value.code.co_name.startswith("<") and value.code.co_name != "<lambda>"
    return isinstance(value, (Marker, Iterating, Item, UnpackItem, Unpacking, Import, Imported, Awaitable))
