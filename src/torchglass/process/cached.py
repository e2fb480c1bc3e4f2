"""``functools.cached_property`` as Python 3.12 has it: on 3.11 each holds a lock, which costs more than what is
computed here, and which a forked child may find closed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class cached_property(Generic[T]):
    """A value that is computed when it is first asked for; two threads that ask at once may both compute it."""

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self.compute, self.name, self.__doc__ = compute, compute.__name__, compute.__doc__

    def __get__(self, owner: Any, kind: type | None = None) -> T:
        value = owner.__dict__[self.name] = self.compute(owner)
        return value
