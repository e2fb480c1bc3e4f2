"""The guards of a function's entries, equal ones held once: those of a model for another size are nearly all the same.

>>> first, second = (Guard(Local("n"), "constant", 12), Guard(Local("m"), "constant", 1)), (
...     Guard(Local("n"), "constant", 12), Guard(Local("m"), "constant", True))
>>> found = with_those_of(first, second)
>>> found == second, found[0] is first[0], found[1] is second[1]
(True, True, True)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..records.guards import Guard, TensorMeta
from ..records.sources import Local as Local
from ..records.sources import Source

_BY_VALUE = frozenset({type(None), bool, int, str, bytes})


def with_those_of(known: Iterable[Guard], guards: Iterable[Guard]) -> tuple[Guard, ...]:
    """``guards``, where one says what one of ``known`` says that one."""
    by_content = {_content(guard): guard for guard in known}
    return tuple(by_content.get(_content(guard), guard) for guard in guards)


def _content(guard: Guard) -> tuple[Any, ...]:
    return guard.check, guard.source, guard.why, guard.origin, _exactly(guard.expected)


def _exactly(value: Any) -> Any:
    """A key that only what is the same by type and value has; objects are only themselves."""
    kind = type(value)
    if kind in _BY_VALUE:
        return kind, value
    if kind in (tuple, list):
        return kind, *map(_exactly, value)
    if isinstance(value, (Source, TensorMeta)):
        return value
    return "itself", id(value)
