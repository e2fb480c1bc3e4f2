"""The native guard table of an entry: guards and fetched sources in, a ``_native.GuardTable`` out.

Equal sources are one node of the table, so ``self.layers[0].weight`` and ``self.layers[0].bias`` walk to
``self.layers[0]`` once. Globals hang below the globals dict, imported modules below ``sys.modules``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch  # also loads the libraries that _native needs

from .. import _native
from ..records.guards import CHECKS, Guard, TensorMeta
from ..records.sources import (
    Attr,
    Cell,
    Computed,
    Constant,
    DictKey,
    Fixed,
    Global,
    InstanceDict,
    Item,
    Local,
    Module,
    Referent,
    Source,
    StrideOf,
    TypeOf,
)
from .guard_sources import module_globals, parameter_names, plain_function


class TableRows(NamedTuple):
    """What a native table is made of, as it takes them: nodes by number, parents first (kind, parent, key); conditions
    (node, check, expected); relations of several nodes, or of classes and modules; the global state; nodes to fetch.
    """

    nodes: tuple[tuple[str, int, Any], ...]
    conditions: tuple[tuple[int, str, Any], ...]
    relations: tuple[tuple[Any, ...], ...]
    state: tuple[Any, ...] | None
    fetched: tuple[int, ...]


def build_table(guards: Iterable[Guard], fetch: Iterable[Source], function: Callable[..., Any]) -> _native.GuardTable:
    """The native table of one entry of ``function``.

    ``check(locals)`` takes the values of ``parameter_names(function)`` and returns those of ``fetch``, or
    None. Raises KeyError for a parameter, closure variable or module that does not exist, ValueError for an
    unknown check.
    """
    return _native.GuardTable(*table_rows(guards, fetch, function))


def table_rows(guards: Iterable[Guard], fetch: Iterable[Source], function: Callable[..., Any]) -> TableRows:
    """The rows of the table that ``build_table`` makes; it raises the same."""
    tree = _Tree(function)
    guards, fetch = list(guards), list(fetch)
    guards, classes = _by_class(guards)
    tensors = frozenset(guard.source for guard in guards if guard.check == "tensor" and guard.expected.type in _PLAIN)
    for source in _sources(guards, fetch, tensors):
        tree.add(source)
    number = tree.number()
    conditions: list[tuple[int, str, Any]] = []
    relations: list[tuple[Any, ...]] = [("class", cls, tuple(rows)) for cls, rows in classes.items()]
    states: list[tuple[Any, ...]] = []
    for guard in guards:
        if guard.check not in CHECKS:
            raise ValueError(f"unknown check {guard.check!r}; there are: {', '.join(CHECKS)}")
        if guard.check == "global_state":
            states.append(tuple(guard.expected))
        elif guard.check == "names":
            assert isinstance(guard.source, Module)
            relations.append(("names", vars(sys.modules[guard.source.name]), tuple(guard.expected)))
        elif guard.check == "distinct":
            relations.append(("distinct", tuple(number[source] for source in guard.expected)))
        elif guard.source is None:
            raise ValueError(f"a {guard.check} guard needs a source")
        elif guard.check == "same":
            relations.append(("same", (number[guard.source], number[guard.expected])))
        elif isinstance(guard.source, Computed):
            relations.append(("computed", tuple(_operations(guard.source, number, tensors)), guard.expected))
        else:
            conditions.append((number[guard.source], guard.check, tree.native_expected(guard)))
    if any(state != states[0] for state in states):
        raise ValueError("guards expect two different global states")
    fetched = tuple(number[source] for source in fetch)
    state = states[0] if states else None
    return TableRows(tree.nodes(number), tuple(conditions), tuple(relations), state, fetched)


_ABOUT_CLASSES = ("class_has", "class_kind", "class_lacks", "mro")


def _by_class(guards: list[Guard]) -> tuple[list[Guard], dict[type, list[tuple[str, Any]]]]:
    """Guards on what classes have, as conditions by class: they hold while its version is the same. The rest first."""
    rest: list[Guard] = []
    classes: dict[type, list[tuple[str, Any]]] = {}
    for guard in guards:
        if guard.check in _ABOUT_CLASSES and isinstance(guard.source, Fixed):
            classes.setdefault(guard.source.object, []).append((guard.check, guard.expected))
        else:
            rest.append(guard)
    return rest, classes


def _operations(
    source: Source, number: dict[Source, int], tensors: frozenset[Source | None]
) -> Iterable[tuple[Any, ...]]:
    """A computed number in postfix order, as the native table takes it."""
    if isinstance(source, Computed):
        for part in source.parts:
            yield from _operations(part, number, tensors)
        yield source.function, len(source.parts)
    elif (size := _size_of(source, tensors)) is not None:
        tensor, dim, stride = size
        yield number[tensor], dim, stride
    else:
        yield (source.value, None) if isinstance(source, Constant) else (number[source],)


_PLAIN = (torch.Tensor, torch.nn.Parameter)
"""The classes whose ``shape`` is the tensor's own."""


def _size_of(source: Source, tensors: frozenset[Source | None]) -> tuple[Source, int, bool] | None:
    """The tensor and the dimension that a source is the size of, which the table reads without a ``torch.Size``; True
    for the stride.
    """
    if isinstance(source, StrideOf):
        return source.of, source.dim, True
    if not (isinstance(source, Item) and isinstance(source.key, int) and source.key >= 0):
        return None
    shape = source.of
    if not (isinstance(shape, Attr) and shape.name == "shape" and shape.of in tensors):
        return None
    return shape.of, source.key, False


def _sources(guards: list[Guard], fetch: list[Source], tensors: frozenset[Source | None]) -> Iterable[Source]:
    for guard in guards:
        if isinstance(guard.source, Computed):
            for leaf in guard.source.leaves():
                size = _size_of(leaf, tensors)
                yield leaf if size is None else size[0]
        elif guard.source is not None and guard.check != "names":
            yield guard.source
        if guard.check == "same":
            yield guard.expected
        elif guard.check == "distinct":
            yield from guard.expected
    yield from fetch


_DERIVED: dict[type[Source], tuple[str, str]] = {
    # the native name of each kind, and the field that is its key
    Attr: ("attribute", "name"),
    InstanceDict: ("instance_dict", ""),
    Item: ("item", "key"),
    DictKey: ("dict_key", "index"),
    TypeOf: ("type_of", ""),
    Referent: ("referent", ""),
}


class _Tree:
    """The sources of one table as a forest: each source with its parent and its children."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = plain_function(function)
        self.parameters = {name: i for i, name in enumerate(parameter_names(function))}
        self.cells = dict(zip(self.function.__code__.co_freevars, self.function.__closure__ or ()))
        self.entries: dict[Source, tuple[Source | None, str, Any]] = {}
        self.children: dict[Source | None, list[Source]] = {None: []}
        self.metas: dict[tuple[Any, ...], tuple[Any, ...]] = {}

    def add(self, source: Source) -> None:
        """Enters a source and those it is reached through."""
        while source not in self.entries:
            parent, kind, key = self._entry(source)
            self.entries[source] = (parent, kind, key)
            self.children.setdefault(source, [])
            self.children.setdefault(parent, []).append(source)
            if parent is None:
                return
            source = parent

    def _entry(self, source: Source) -> tuple[Source | None, str, Any]:
        """(parent, native kind, native key)."""
        if isinstance(source, Local):
            return None, "local", self.parameters[source.name]
        if isinstance(source, Cell):
            return None, "cell", self.cells[source.name]
        if isinstance(source, Fixed):
            return None, "constant", source.object
        if isinstance(source, Global):
            return Fixed(module_globals(source.module, self.function)), "item", source.name
        if isinstance(source, Module):
            return Fixed(sys.modules), "item", source.name
        kind, field = _DERIVED[type(source)]
        return source.base, kind, getattr(source, field) if field else None

    def number(self) -> dict[Source, int]:
        """Numbers the sources depth first, parents before children."""
        order: dict[Source, int] = {}
        stack = self.children[None][::-1]
        while stack:
            source = stack.pop()
            order[source] = len(order)
            stack.extend(reversed(self.children[source]))
        return order

    def nodes(self, number: dict[Source, int]) -> tuple[tuple[str, int, Any], ...]:
        """The nodes as the native table takes them; ``number`` is in the order of the numbers."""
        rows = (self.entries[source] for source in number)
        return tuple((kind, -1 if parent is None else number[parent], key) for parent, kind, key in rows)

    def native_expected(self, guard: Guard) -> Any:
        """The expected value in native form; tensors that expect the same share one tuple."""
        if guard.check == "tensor":
            meta: TensorMeta = guard.expected
            layout = (tuple(meta.shape), tuple(meta.strides), meta.requires_grad, meta.flags)
            facts = (meta.type, meta.dtype, meta.device, *layout)
            return self.metas.setdefault(facts, facts)
        return tuple(guard.expected) if guard.check == "dict_keys" else guard.expected
