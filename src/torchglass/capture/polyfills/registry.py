"""Which function of ours is interpreted in place of which in C.

@polyfill(itertools.repeat)      itertools.repeat(x)  ->  repeat(x)
@polyfill()                      for ``Machine.polyfill``, by name
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

POLYFILLS: list[tuple[Any, Any]] = []  # what is called, and what is interpreted instead
NAMED: dict[str, Any] = {}


def polyfill(*reals: Any) -> Callable[[Any], Any]:
    """Say what a function stands for. A version of Python that lacks that has None in its place."""

    def register(function: Any) -> Any:
        if NAMED.setdefault(function.__name__, function) is not function:
            raise ValueError(f"{function.__name__}: already entered")
        POLYFILLS.extend((real, function) for real in reals if real is not None)
        return function

    return register
