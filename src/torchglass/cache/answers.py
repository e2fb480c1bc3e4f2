"""Answers of functions that ran as they are while a program was captured, as another process compares them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeAlias

from ..records.kept_graph import NotKept

Answer: TypeAlias = "tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], Any]"
_PLAIN = (bool, int, float, complex, str, bytes, type(None))


def compared(result: Any) -> list[Any]:
    """What is compared of an answer: plain values, classes, and what is made of them. Raises NotKept for other objects,
    of which no code of the program's is asked for a text.
    """
    kind = type(result)
    if kind in _PLAIN:
        return [kind.__name__, repr(result)]
    if isinstance(result, type):
        return ["class", result.__module__, result.__qualname__]
    if kind in (tuple, list):
        return [kind.__name__, *map(compared, result)]
    if kind is dict:
        return ["dict", *([compared(key), compared(value)] for key, value in result.items())]
    if kind is inspect.Signature:
        return ["signature", compared(result.return_annotation), *map(compared, result.parameters.values())]
    if kind is inspect.Parameter:
        return [result.name, int(result.kind), compared(result.default), compared(result.annotation)]
    if kind.__module__ in ("typing", "types"):
        return [kind.__name__, repr(result)]
    raise NotKept("an answer that only its process can read")
