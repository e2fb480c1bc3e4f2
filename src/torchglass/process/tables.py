"""Tables that decorators fill: what one file knows stands in rows beside it, and no row is written twice.

printer = enters(PRINTERS)

@printer("neg")
def _neg(...): ...
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

K = TypeVar("K")
V = TypeVar("V")


def enters(table: dict[K, V]) -> Callable[..., Callable[[V], V]]:
    """A decorator that enters what it is put on under each key given; a second entry is an error at import."""

    def keys(*names: Any) -> Callable[[V], V]:
        def enter(value: V) -> V:
            for name in names:
                if name in table:
                    raise ValueError(f"{name}: entered already, as {table[name]}")
                table[name] = value
            return value

        return enter

    return keys
