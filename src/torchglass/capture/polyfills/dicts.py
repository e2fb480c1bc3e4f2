"""What classes derived from OrderedDict and defaultdict do in their own way, as Python that the machine interprets."""

# mypy: ignore-errors

from __future__ import annotations

import _collections
from collections import OrderedDict, defaultdict

from .registry import polyfill


def start_of_defaulting(value, default_factory=None, /, *args, **kwargs):
    """``__init__`` of a class that derives from defaultdict."""
    if default_factory is not None and not callable(default_factory):
        raise TypeError("first argument must be callable or None")
    value.default_factory = default_factory
    dict.update(value, *args, **kwargs)


def default_of(value, key, /):
    if value.default_factory is None:
        raise KeyError(key)
    value[key] = made = value.default_factory()
    return made


def update_of_ordered(value, other=(), /, **kwargs):
    """``update`` of a class that derives from OrderedDict: it stores by the class's own ``__setitem__``."""
    for key, item in ((key, other[key]) for key in other.keys()) if hasattr(other, "keys") else other:  # noqa: SIM118
        value[key] = item
    for key, item in kwargs.items():
        value[key] = item


def setdefault_of_ordered(value, key, default=None):
    if key in value:
        return value[key]
    value[key] = default
    return default


def copy_of_ordered(value):
    """``copy`` of a class that derives from OrderedDict."""
    made = type(value)()
    for key in OrderedDict.__iter__(value):
        made[key] = value[key]
    return made


def copy_of_defaulting(value):
    return type(value)(value.default_factory, value)


def merged(model, left, right):
    """``left | right`` of dictionaries, as one of them makes it: of its own class, and with its default factory."""
    made = type(model)(model.default_factory, left) if isinstance(model, defaultdict) else type(model)(left)
    made.update(right)
    return made


@polyfill(_collections._count_elements)
def count_elements(mapping, iterable):
    for element in iterable:
        mapping[element] = mapping.get(element, 0) + 1
