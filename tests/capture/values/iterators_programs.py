"""Iterators that have ended, or whose lists grow."""

from __future__ import annotations

from ..tables import tables

WHOLE, BREAKING, whole, breaking = tables()


@whole
def iterators_that_ended(x):
    items = [1]
    it = iter(items)
    taken = list(it)
    items.append(2)
    seen = []
    try:
        members = {1, 2}
        for value in members:
            members.add(value + 10)
    except RuntimeError as error:
        seen.append(str(error))
    return x, taken, list(it), seen


@breaking
def iterators_of_growing_lists(x):
    items, table = [1, 2], {"a": 1, "b": 2}
    it, pairs, numbered = iter(items), iter(table.items()), enumerate(items)
    firsts = next(it), next(pairs), next(numbered)
    if x.sum() > 0:
        x = x + 1
    items.append(5)
    table["b"] = 9
    return firsts, list(it), list(pairs), list(numbered), x
