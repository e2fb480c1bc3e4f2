"""A guard table as JSON, and made again for a call: the rows of ``runtime.guard_build``, objects by what they are.

    kept = kept_rows(table_rows(guards, fetch, function), function)
    made = table_for(kept, function, arguments)          # in another process: a native table, or None

Where a condition holds an object to be the same, the object is looked for in the same place (its node, the class, the
module), compared with the description that was kept, and held to be the same from then on.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import BuiltinFunctionType, CodeType, FunctionType
from typing import Any

from .. import _native
from ..records.kept_graph import NotKept
from ..runtime.guard_build import TableRows
from ..runtime.guards import on_class
from .objects import described, found, name_of
from .values import decoded, encoded

MISSING = object()
DESCRIBED = "?"
"""In the place of an expected value: the description of what is to be found there follows."""


# --- what is looked for, by the check ---------------------------------------------------------------------------------
def _has(cls: Any, expected: Any) -> Any:
    return next(iter(on_class(cls, expected[0])), MISSING)


def _kind(cls: Any, expected: Any) -> Any:
    return next(map(type, on_class(cls, expected[0])), MISSING)


_LOOK: dict[str, Callable[[Any, Any], Any]] = {
    "identity": lambda value, expected: value,
    "type": lambda value, expected: type(value),
    "class_has": _has,
    "class_kind": _kind,
    "mro": lambda cls, expected: cls.__mro__,  # the very tuple: a class whose bases change has another
}
_NAMED = ("class_has", "class_kind")


def _description(value: Any) -> Any:
    return [described(one) for one in value] if type(value) is tuple else described(value)


# --- out --------------------------------------------------------------------------------------------------------------
def kept_rows(rows: TableRows, function: FunctionType) -> dict[str, Any]:
    """The rows for ``json``. Raises NotKept for what no later process can find."""
    classes = {wanted: node for node, check, wanted in rows.conditions if check == "type"}
    return {
        "nodes": [[kind, parent, _key(kind, key, function)] for kind, parent, key in rows.nodes],
        "conditions": [[node, check, _expected(check, wanted)] for node, check, wanted in rows.conditions],
        "relations": [_relation(kind, rest, classes) for kind, *rest in rows.relations],
        "state": encoded(rows.state),
        "fetched": list(rows.fetched),
    }


def _relation(kind: str, rest: list[Any], classes: dict[Any, int]) -> list[Any]:
    """A class that no path leads to, since a library has made it for an object, is found as the type of a node."""
    if kind == "class":
        cls, rows = rest
        try:
            place: Any = name_of(cls)
        except NotKept:
            if cls not in classes:
                raise
            place = classes[cls]
        return ["class", place, [[check, _expected(check, wanted)] for check, wanted in rows]]
    return _RELATIONS[kind][0](*rest)


def _key(kind: str, key: Any, function: FunctionType) -> Any:
    if kind == "cell":
        return next(n for n, cell in enumerate(function.__closure__ or ()) if cell is key)
    if kind == "constant":
        return "G" if key is function.__globals__ else "M" if key is sys.modules else name_of(key)
    return encoded(key)


def _expected(check: str, wanted: Any) -> Any:
    if check in _NAMED:
        return [DESCRIBED, wanted[0], described(wanted[1])]
    if check == "mro":
        return [DESCRIBED, None, _description(wanted)]
    if check in _LOOK or isinstance(wanted, CodeType):
        return [DESCRIBED, None, described(wanted)]
    return encoded(wanted)


def _names_out(namespace: dict[str, Any], names: tuple[tuple[str, Any], ...]) -> list[Any]:
    return ["names", name_of(namespace)[0], [[name, _of_library(real)] for name, real in names]]


def _of_library(real: Any) -> Any:
    """What a library has under a name; of an object that is itself and nothing else, its class."""
    try:
        return described(real)
    except NotKept:
        return ["instance", *described(type(real))]


def _function_out(function: Any) -> Any:
    """A function by its path; a method of a constant (``"{}.".format``) by that and its name."""
    of = getattr(function, "__self__", None)
    if isinstance(function, BuiltinFunctionType) and type(of) in (str, bytes, int, float):
        return {"method": [encoded(of), function.__name__]}
    return name_of(function)


def _function_in(kept: Any) -> Any:
    if type(kept) is dict:
        of, name = kept["method"]
        return getattr(decoded(of), name)
    return found(kept)


def _computed_out(operations: tuple[tuple[Any, ...], ...], wanted: Any) -> list[Any]:
    rows: list[Any] = []
    for first, *rest in operations:
        if callable(first) and rest and rest[0] is not None:
            rows.append(["call", _function_out(first), rest[0]])
        elif rest == [None]:
            rows.append(["constant", encoded(first)])
        else:
            rows.append(["node", first, *rest])
    return ["computed", rows, encoded(wanted)]


# --- in ---------------------------------------------------------------------------------------------------------------
def table_for(kept: dict[str, Any], function: FunctionType, arguments: tuple[Any, ...]) -> _native.GuardTable | str:
    """The table, for a call that it is to fit; else in words what does not. Raises NotKept as ``found`` does."""
    state = decoded(kept["state"])
    if _native.GuardTable((), (), (), state, ()).check(arguments) is None:  # first: of many entries it is the reason
        return "it is for another mode, such as with gradients"
    nodes = tuple((kind, parent, _again(kind, key, function)) for kind, parent, key in kept["nodes"])
    conditions = kept["conditions"]
    asked = [row[0] for row in conditions if _is_described(row[2])]
    asked += [row[1] for row in kept["relations"] if row[0] == "class" and type(row[1]) is int]
    values = _native.GuardTable(nodes, (), (), None, tuple(asked)).check(arguments)
    if values is None:
        return "what the entry reads is not there"
    at_hand, made = iter(values), []
    for node, check, wanted in conditions:
        if _is_described(wanted):
            value = _compared(check, next(at_hand), wanted)
            if value is MISSING:
                return f"another object for {check} of node {node}: {wanted[2]}"
            made.append((node, check, value))
        else:
            made.append((node, check, decoded(wanted)))
    relations = []
    for kind, *rest in kept["relations"]:
        if kind == "class":
            cls = type(next(at_hand)) if type(rest[0]) is int else found(rest[0])
            relation = _class_in(cls, rest[1])
        else:
            relation = _RELATIONS[kind][1](*rest)
        if isinstance(relation, str):
            return relation
        relations.append((kind, *relation))
    return _native.GuardTable(nodes, tuple(made), tuple(relations), state, tuple(kept["fetched"]))


def _again(kind: str, key: Any, function: FunctionType) -> Any:
    if kind == "cell":
        return (function.__closure__ or ())[key]
    if kind == "constant":
        return function.__globals__ if key == "G" else sys.modules if key == "M" else found(key)
    return decoded(key)


def _is_described(wanted: Any) -> bool:
    return type(wanted) is list and wanted[0] == DESCRIBED


def _compared(check: str, value: Any, wanted: list[Any]) -> Any:
    """What a condition expects, found again; MISSING where it is another one."""
    _, name, description = wanted
    look = _LOOK.get(check, _LOOK["identity"])
    held = look(value, [name])
    try:
        if held is MISSING or _description(held) != description:
            return MISSING
    except NotKept:
        return MISSING
    return (name, held) if check in _NAMED else held


def _class_in(cls: type, rows: list[list[Any]]) -> Any:
    made = []
    for check, wanted in rows:
        value = _compared(check, cls, wanted) if _is_described(wanted) else decoded(wanted)
        if value is MISSING:
            return f"{cls.__qualname__}: another {wanted[1] or check}"
        made.append((check, value))
    return cls, tuple(made)


def _names_in(module: str, names: list[list[Any]]) -> Any:
    namespace, made = vars(found([module])), []
    for name, description in names:
        value = namespace.get(name, MISSING)
        if value is MISSING or _of_library(value) != description:
            return f"another object is called {module}.{name}"
        made.append((name, value))
    return namespace, tuple(made)


def _computed_in(rows: list[list[Any]], wanted: Any) -> Any:
    operations: list[Any] = []
    for kind, first, *rest in rows:
        if kind == "call":
            operations.append((_function_in(first), *rest))
        elif kind == "constant":
            operations.append((decoded(first), None))
        else:
            operations.append((first, *rest))
    return tuple(operations), decoded(wanted)


_RELATIONS: dict[str, tuple[Callable[..., list[Any]], Callable[..., Any]]] = {
    "names": (_names_out, _names_in),
    "distinct": (lambda numbers: ["distinct", list(numbers)], lambda numbers: (tuple(numbers),)),
    "same": (lambda numbers: ["same", list(numbers)], lambda numbers: (tuple(numbers),)),
    "computed": (_computed_out, _computed_in),
}
"""How each other kind of relation is written and read; a text that is read says what does not fit."""
