"""Tuples, ranges and slices."""

from __future__ import annotations

from ..tables import tables

WHOLE, BREAKING, whole, breaking = tables()


@whole
def tuples_in_order(x):
    """Compared item by item, so far as they differ: what comes behind may be tensors."""
    options = {"scale": x, "add": 2.0, "more": x + 1}
    total = x
    for name, value in sorted(options.items()):
        total = total * value if name == "scale" else total + value
    a, b = (1, x), (2, x)
    found = [a < b, a <= a, a > b, [1, x] < [1, x, 2], (x, 1) < (x, 2), max((1, x), (4, x))[0]]
    try:
        found.append((1, "a", x) < (1, 2, x))
    except TypeError as error:
        found.append(str(error))
    return total, found, sorted([(2, x), (1, x), (3, None)])[0][0]


@whole
def ranges(x):
    r = range(2, 10, 3)
    return (
        list(r),
        r[1],
        r[-1],
        len(r),
        5 in r,
        r.start,
        r.step,
        list(reversed(r)),
        r.index(5),
        x[range(2)[1]],
        r == range(2, 11, 3),
        r[1:],
    )


@whole
def slices(x):
    s = slice(1, None, 2)
    return x[s], s.start, s.indices(10), [1, 2, 3, 4][s], x[(slice(None), slice(0, 2))], s == slice(1, None, 2)


@whole
def reversed_by_what_is_reversed(x):
    said = []
    for value in ({1}, frozenset(), iter([1]), (i for i in "a"), 5):
        try:
            said.append(list(reversed(value)))
        except TypeError as error:
            said.append(str(error))
    keys = {"a": 1, "b": 2}
    return reversed(x), list(reversed(keys)), list(reversed(keys.values())), list(reversed("ab")), said
