"""Functions of ``operator``, and the callables that its classes make."""

# mypy: ignore-errors

from __future__ import annotations

import operator

from .registry import polyfill


@polyfill(operator.concat)
def concat(a, b, /):
    if not hasattr(a, "__getitem__"):
        raise TypeError(f"'{type(a).__name__}' object can't be concatenated")
    return a + b


@polyfill(operator.iconcat)
def iconcat(a, b, /):
    if not hasattr(a, "__getitem__"):
        raise TypeError(f"'{type(a).__name__}' object can't be concatenated")
    a += b
    return a


@polyfill(operator.itemgetter)
def itemgetter(key, /, *more):
    if not more:
        return lambda value: value[key]
    return lambda value: tuple([value[k] for k in (key, *more)])


def _attribute(value, path):
    for name in path.split("."):
        value = getattr(value, name)
    return value


@polyfill(operator.attrgetter)
def attrgetter(*paths):
    if len(paths) == 1:
        return lambda value: _attribute(value, paths[0])
    return lambda value: tuple([_attribute(value, path) for path in paths])


@polyfill(operator.methodcaller)
def methodcaller(name, /, *args, **kwargs):
    return lambda value: getattr(value, name)(*args, **kwargs)
