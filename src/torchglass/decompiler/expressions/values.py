"""What can lie on the symbolic stack besides plain ``ast`` expressions.

Markers stand for things the compiler keeps on the stack and source never names (iterators, exit functions, the
exception being handled); the others become expressions or statements once it is known how they are used.
"""

from __future__ import annotations

import ast
from types import CodeType
from typing import Any


class Marker:
    """A value that source cannot name; it may be dropped, never used in an expression."""

    def __init__(self, kind: str, expr: Any = None, flag: bool = False) -> None:
        self.kind = kind
        self.expr = expr
        self.flag = flag
        self.resumed = False

    def __repr__(self) -> str:
        return f"<{self.kind}>"


class Iterating(ast.expr):
    """``iter(expr)``, waiting for its loop; ``asynchronous`` for ``async for``."""

    _fields = ("value",)

    def __init__(self, value: Any, asynchronous: bool = False) -> None:
        self.value = value
        self.asynchronous = asynchronous


class Item(ast.expr):
    """The value a ``for``, ``with`` or ``except`` binds; ``kind`` says which."""

    _fields = ()

    def __init__(self, kind: str) -> None:
        self.kind = kind


class Awaitable(ast.expr):
    """The operand of a coming YIELD_FROM."""

    _fields = ("value",)

    def __init__(self, value: Any, is_await: bool) -> None:
        self.value = value
        self.is_await = is_await


class Chained(ast.expr):
    """A value that has been stored to ``targets`` and is still on the stack."""

    _fields = ("value",)

    def __init__(self, value: Any, targets: list[Any]) -> None:
        self.value = value
        self.targets = targets


class Inplace(ast.expr):
    """``left op= right`` before it is known where it is stored."""

    _fields = ("left", "right")

    def __init__(self, left: Any, op: ast.operator, right: Any) -> None:
        self.left = left
        self.op = op
        self.right = right


class Unpacking:
    """One UNPACK_SEQUENCE or UNPACK_EX whose targets are being stored."""

    def __init__(self, value: Any, count: int, star: int | None, shared: bool) -> None:
        self.value = value
        self.targets: list[Any] = [None] * count
        self.star = star
        self.shared = shared
        self.filled = 0


class UnpackItem(ast.expr):
    """Item ``index`` of an Unpacking, waiting for its target."""

    _fields = ()

    def __init__(self, owner: Unpacking, index: int) -> None:
        self.owner = owner
        self.index = index


class Function(ast.expr):
    """The result of MAKE_FUNCTION."""

    _fields = ()

    def __init__(self, code: CodeType) -> None:
        self.code = code
        self.defaults: list[Any] = []
        self.kwdefaults: dict[str, Any] = {}
        self.annotations: dict[str, Any] = {}
        self.type_params: Any = None


class Class(ast.expr):
    """The result of calling __build_class__."""

    _fields = ()

    def __init__(self, function: Function, name: str, bases: list[Any], keywords: list[ast.keyword]) -> None:
        self.function = function
        self.name = name
        self.bases = bases
        self.keywords = keywords
        self.type_params: Any = None


class Import(ast.expr):
    """IMPORT_NAME, with the names taken from it so far."""

    _fields = ()

    def __init__(self, module: str, level: int, names: Any) -> None:
        self.module = module
        self.level = level
        self.names = names
        self.aliases: list[ast.alias] = []
        self.path: Import | None = None


class Imported(ast.expr):
    """IMPORT_FROM: one name out of an Import."""

    _fields = ()

    def __init__(self, owner: Import, name: str) -> None:
        self.owner = owner
        self.name = name


class Collected(ast.stmt):
    """A comprehension's element (LIST_APPEND, SET_ADD, MAP_ADD or a generator's yield)."""

    _fields = ()

    def __init__(self, kind: str, value: Any, key: Any = None) -> None:
        self.kind = kind
        self.value = value
        self.key = key


class Match(ast.expr):
    """``CHECK_EXC_MATCH`` against ``type``."""

    _fields = ("type",)

    def __init__(self, type: Any) -> None:
        self.type = type


def is_silent(value: Any) -> bool:
    """Whether a stack value may stay below a statement without being lost or evaluated late."""
    if isinstance(value, Function):  # that of a comprehension waits for what it iterates over
        return value.code.co_name.startswith("<") and value.code.co_name != "<lambda>"
    return isinstance(value, (Marker, Iterating, Item, UnpackItem, Unpacking, Import, Imported, Awaitable))
