"""The sizes and numbers of a call of which the program says what they will be: marks and ``dynamic_shapes=`` in.

    declared_sizes({"x": {0: "b", 1: 16}, "n": "dynamic"}, ("x", "n"), (x, 5))
        x.shape[0]    left open, an error if the program needs it as a number
        x.shape[1]    always 16
        n             left open, too

What is said of a size is a name or an object with one (``torch.export.Dim``), "dynamic", "auto" (left open, but no
error if it cannot be), "static" or None (a number), or the number that it is. Sizes of equal names are equal.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import replace
from inspect import CO_VARARGS, CO_VARKEYWORDS
from types import FunctionType
from typing import Any, TypeAlias

import torch

from ..bytecode import parameter_names
from ..errors import DeclaredSizeError
from ..records.declared_sizes import DeclaredSize
from ..records.sources import Item, Local, Source, is_tensor_size, tensor_size
from ..torch_compat import plain_spec
from .tensors import marked_ranges

BY = "dynamic_shapes"
_STATIC = DeclaredSize(BY, changes=False)
_KEYWORDS: dict[Any, DeclaredSize] = {
    None: _STATIC, "static": _STATIC, "auto": DeclaredSize(BY), "dynamic": DeclaredSize(BY, strict=True)
}  # fmt: skip
_TAKES = 'a name, a torch.export.Dim, "dynamic", "auto", "static", None or a number'
Found: TypeAlias = "Iterator[tuple[Source, int, DeclaredSize, Hashable]]"


def checked_spec(spec: Any) -> Mapping[str, Any] | None:
    """What ``dynamic_shapes=`` or ``shapes_spec=`` got, as a mapping of names of arguments. TypeError for anything that
    is none, or that has leaves which say nothing about a size.
    """
    plain = plain_spec(spec)
    if plain is None or (isinstance(plain, Mapping) and all(isinstance(name, str) for name in plain)):
        _check_leaves(plain, BY)
        return plain
    raise TypeError(f"{BY} must be a mapping of names of arguments to what is said of their sizes, not {spec!r}")


def _check_leaves(spec: Any, place: str) -> None:
    if isinstance(spec, (Mapping, list)):
        for key, inner in spec.items() if isinstance(spec, Mapping) else enumerate(spec):
            _check_leaves(inner, f"{place}[{key!r}]")
        return
    try:
        _leaf(spec)
    except TypeError:
        raise TypeError(f"{place} must be {_TAKES}, not {spec!r}") from None


def by_parameter(spec: Mapping[str, Any], function: FunctionType) -> dict[str, Any]:
    """The specification by names of parameters, those of ``*args`` and ``**kwargs`` too. ValueError for a name that the
    function does not take.
    """
    code = function.__code__
    names = parameter_names(code)
    named = names[: code.co_argcount + code.co_kwonlyargcount]
    variadic = {"*args": CO_VARARGS, "**kwargs": CO_VARKEYWORDS}
    rest = dict(zip([key for key, flag in variadic.items() if code.co_flags & flag], names[len(named) :]))
    found: dict[str, Any] = {}
    for name, inner in spec.items():
        if name in named or name in rest:
            found[rest.get(name, name)] = inner
        elif "**kwargs" in rest:
            found[rest["**kwargs"]] = {**found.get(rest["**kwargs"], {}), name: inner}
        else:
            raise ValueError(f"{BY} names {name!r}, which `{function.__qualname__}` does not take: {', '.join(named)}")
    return found


def declared_sizes(
    spec: Mapping[str, Any], parameters: Iterable[str], arguments: Iterable[Any]
) -> dict[Source, DeclaredSize]:
    """What is said of the sizes and numbers of a call. DeclaredSizeError where that does not hold of this one."""
    found: dict[Source, DeclaredSize] = {}
    named: dict[Hashable, list[tuple[Source, int]]] = {}
    for name, value in zip(parameters, arguments):
        for source, size, declared, key in _within(Local(name), value, spec.get(name, _UNSAID)):
            if not declared.has(size):
                raise DeclaredSizeError(f"{source} is {size}, but {declared.by} says {declared.range()}")
            found[source] = declared
            if key is not None:
                named.setdefault(key, []).append((source, size))
    for key, places in named.items():
        first = next((place for place in places if is_tensor_size(place[0])), places[0])
        for source, size in places:
            if size != first[1]:
                told = f"{first[0]} is {first[1]} and {source} is {size}"
                raise DeclaredSizeError(f"{told}, but {found[source].by} says that both are {_name(key)}")
            if source != first[0]:
                found[source] = replace(found[source], like=first[0])
    return found


_UNSAID = object()


def _within(source: Source, value: Any, spec: Any) -> Found:
    """Of a value from outside what is said of its sizes: where each is read, what it is, and its name. Containers may
    be nested deeply, or in themselves: where nothing is said of one, it is looked at once, for marks on tensors.
    """
    waiting, seen = [(source, value, spec)], set[int]()
    while waiting:
        source, value, spec = waiting.pop()
        if isinstance(value, torch.Tensor):
            yield from (
                (tensor_size(source, dim), value.shape[dim], *said) for dim, said in marked_ranges(value).items()
            )
            for dim, inner in () if spec is _UNSAID else _by_dimension(source, value.dim(), spec).items():
                yield tensor_size(source, dim), value.shape[dim], *_leaf(inner)
        elif type(value) in _CONTAINERS and not (spec is _UNSAID and id(value) in seen):
            seen.add(id(value))
            waiting += reversed([(Item(source, key), *item) for key, *item in _items(value, spec)])
        elif type(value) is int and spec is not _UNSAID and not isinstance(spec, (Mapping, list)):
            yield source, value, *_leaf(spec)


_CONTAINERS = (list, tuple, dict)


def _items(value: Any, spec: Any) -> Iterator[tuple[str | int, Any, Any]]:
    """The items of a container that something may be said of: key, value and what is said."""
    inner = spec if isinstance(spec, Mapping) else dict(enumerate(spec)) if isinstance(spec, list) else {}
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(key, (str, int)) and (
            key in inner or isinstance(item, torch.Tensor) or type(item) in _CONTAINERS
        ):
            yield key, item, inner.get(key, _UNSAID)


def _by_dimension(source: Source, rank: int, spec: Any) -> dict[int, Any]:
    if isinstance(spec, list):
        if len(spec) != rank:
            raise DeclaredSizeError(f"{source} has {rank} dimensions, but {BY} says {len(spec)}")
        return dict(enumerate(spec))
    if not isinstance(spec, Mapping):
        return dict.fromkeys(range(rank), spec)
    for dim in spec:
        if not isinstance(dim, int) or not -rank <= dim < rank:
            raise DeclaredSizeError(f"{source} has {rank} dimensions, but {BY} says something of {dim!r}")
    return {dim % rank: inner for dim, inner in spec.items()}


def _leaf(spec: Any) -> tuple[DeclaredSize, Hashable]:
    """What a leaf says of a size, and the name that it has in common with others. TypeError for what is no leaf."""
    if spec is None or (isinstance(spec, str) and spec in _KEYWORDS):
        return _KEYWORDS[spec], None
    if type(spec) is int:
        return replace(_STATIC, low=spec, high=spec), None
    if isinstance(spec, str):
        return _KEYWORDS["dynamic"], spec
    hint = getattr(getattr(spec, "type", None), "name", None)  # Dim.AUTO, Dim.DYNAMIC, Dim.STATIC
    name = getattr(spec, "__name__", None) or getattr(spec, "name", None)
    if hasattr(spec, "root") or not hasattr(spec, "max") or not isinstance(hint or name, str):
        raise TypeError(spec)
    declared = _KEYWORDS[str(hint).lower()] if hint else _KEYWORDS["dynamic"]
    low, high = (end if type(end) is int else None for end in (spec.min, spec.max))
    # variables of shapes_spec are told apart by what they are, dimensions of torch.export by their names
    key = None if hint else spec if isinstance(spec, torch.SymInt) else name
    return replace(declared, low=low or 0, high=high), key


def _name(key: Hashable) -> str:
    return repr(key if isinstance(key, str) else getattr(key, "name", "one size"))
