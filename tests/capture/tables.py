"""The tables that files of programs fill: captured whole, or broken and right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Table = dict[str, Any]


def tables() -> tuple[Table, Table, Callable[[Any], Any], Callable[[Any], Any]]:
    """Two tables and the decorators that enter functions by name, each at most once."""
    whole_ones: Table = {}
    breaking_ones: Table = {}

    def enter(table: Table) -> Callable[[Any], Any]:
        def decorator(function: Any) -> Any:
            name = function.__name__
            if name in whole_ones or name in breaking_ones:
                raise ValueError(f"{name}: there is such a program already")
            table[name] = function
            return function

        return decorator

    return whole_ones, breaking_ones, enter(whole_ones), enter(breaking_ones)
