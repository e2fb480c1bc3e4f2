"""How many arguments a builtin takes, and by which names: a call that does not fit raises what Python raises.

list(sequence=[])     # TypeError: list() takes no keyword arguments
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Collection
from types import BuiltinFunctionType, MethodDescriptorType
from typing import Any, NamedTuple

from ...bytecode.objects import is_heap_type
from ..errors import Unsupported
from ..protocol import Machine, Value


class Shape(NamedTuple):
    """The fewest and most positional arguments; ``signature`` decides where there are keywords."""

    fewest: int
    most: float
    signature: inspect.Signature | None = None

    def takes(self, args: list[Value], keywords: Collection[str]) -> bool:
        if not keywords:
            return self.fewest <= len(args) <= self.most
        if self.signature is None:
            return False
        try:
            self.signature.bind(*args, **dict.fromkeys(keywords))
        except TypeError:
            return False
        return True


# Builtins that do not say what they take, and take no keywords.
WITHOUT_SIGNATURE: dict[Any, Shape] = {
    getattr: Shape(2, 3), next: Shape(1, 2), iter: Shape(1, 2), set: Shape(0, 1), frozenset: Shape(0, 1),
    slice: Shape(1, 3), filter: Shape(2, 2), bool: Shape(0, 1), vars: Shape(0, 1),
}  # fmt: skip


BUILTINS = (BuiltinFunctionType, MethodDescriptorType, type)


@functools.cache
def shape_of(function: Any) -> Shape | None:
    """What a builtin takes; None where that is not known."""
    known = WITHOUT_SIGNATURE.get(function)
    if known is not None or not isinstance(function, BUILTINS):
        return known
    if isinstance(function, type) and is_heap_type(function):
        return None
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):
        return None
    positional = [p for p in signature.parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    fewest = sum(p.default is p.empty for p in signature.parameters.values())
    anything = any(p.kind is p.VAR_POSITIONAL for p in signature.parameters.values())
    fewest -= sum(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in signature.parameters.values())
    return Shape(fewest, float("inf") if anything else len(positional), signature)


def check(m: Machine, function: Any, args: list[Value], kwargs: dict[str, Value]) -> None:
    """Raise the program's TypeError where ``function`` does not take such arguments."""
    shape = shape_of(function)
    if shape is None or shape.takes(args, kwargs):
        return
    # it looks at their number and names first, and raises before it does anything with them
    values: list[object] = [object() for _ in args]
    if isinstance(function, MethodDescriptorType) and args:
        owner: Any = function.__objclass__
        values[0] = owner.__new__(owner)
    m.real(function, *values, **{name: object() for name in kwargs})
    raise Unsupported(f"`{function.__name__}` called with these arguments")
