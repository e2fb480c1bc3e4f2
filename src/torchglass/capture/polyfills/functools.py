"""Functions of ``functools``."""

# mypy: ignore-errors

from __future__ import annotations

import functools
import sys

from .registry import polyfill


class Compared:
    """What ``functools.cmp_to_key(compare)`` makes of a value."""

    def __init__(self, compare, value):
        self.compare = compare
        self.obj = value

    def __lt__(self, other):
        return self.compare(self.obj, other.obj) < 0

    def __gt__(self, other):
        return self.compare(self.obj, other.obj) > 0

    def __le__(self, other):
        return self.compare(self.obj, other.obj) <= 0

    def __ge__(self, other):
        return self.compare(self.obj, other.obj) >= 0

    def __eq__(self, other):
        return self.compare(self.obj, other.obj) == 0


@polyfill(functools.cmp_to_key)
def cmp_to_key(mycmp):
    return lambda obj: Compared(mycmp, obj)


@polyfill(functools.singledispatchmethod.__get__ if sys.version_info >= (3, 13) else None)
def bound_by_kind(self, instance, owner=None):
    """``functools.singledispatchmethod.__get__``, without the cache that Python 3.13 keeps its results in."""
    dispatch, name = self.dispatcher.dispatch, getattr(self.func, "__name__", "singledispatchmethod method")

    def _method(*args, **kwargs):
        if not args:
            raise TypeError(f"{name} requires at least 1 positional argument")
        return dispatch(args[0].__class__).__get__(instance, owner)(*args, **kwargs)

    _method.__isabstractmethod__ = self.__isabstractmethod__
    _method.register = self.register
    functools.update_wrapper(_method, self.func)
    return _method
