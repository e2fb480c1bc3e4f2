"""The table of methods of C types, keyed by class and name, and the decorator that fills it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...values.base import Value

Method = Callable[..., Value]


class Table(dict[Any, Any]):
    """A table in which each key is entered once."""

    def __setitem__(self, key: Any, value: Any) -> None:
        if key in self:
            raise ValueError(f"{value}: already handled")
        super().__setitem__(key, value)


METHODS: dict[tuple[type, str], Method] = Table()


def method(*classes: type, name: str | None = None) -> Callable[[Method], Method]:
    """Register a method of ``classes``; its Python name is the function's, less a trailing underscore or prefix."""

    def register(function: Method) -> Method:
        key = name or function.__name__.partition("__")[2] or function.__name__
        for cls in classes:
            if not hasattr(cls, key):
                raise ValueError(f"{cls.__name__} has no method {key}")
            METHODS[cls, key] = function
        return function

    return register
