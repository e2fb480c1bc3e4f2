"""Sets and frozensets."""

# ruff: noqa: C416
from __future__ import annotations

from ..tables import rand, table, tables

WHOLE, BREAKING, whole, breaking = tables()
PROGRAMS, program = table()


@whole
def set_updates(x):
    s = {1, 2, 3}
    s.difference_update({1})
    s.intersection_update({2, 3, 4})
    s.symmetric_difference_update({4})
    s |= {9}
    return x + len(s), s


@whole
def frozensets(x):
    f = frozenset([1, 2])
    return (
        f | {3},
        f & {1},
        {f: 1}[frozenset([2, 1])],
        sorted(f ^ {1, 9}),
        x + len(f),
        f <= {1, 2, 3},
        f.isdisjoint({4}),
    )


@whole
def set_ops(x):
    s = {1, 2, 3}
    s |= {4}
    s -= {1}
    s ^= {2, 9}
    s.add(x.shape[0])
    return sorted(s), s == {3, 4, 9}, {1, 2} < {1, 2, 3}, x + 1


@whole
def sets_in_order(x):
    """Sets give their members in the order of a real set, and keep the member that was there first."""
    one, other = {3, 1, x.shape[0] + 6}, {17, 9, 1, x.shape[0]}
    return (
        list(one), list(other), list(one | other), list(one & other), list(one - other), list(one ^ other),
        list(frozenset([5, 3, 1])), [n for n in {10, 9, 2}], next(iter({4, 3, 2})), sorted(one.union([0, 5])),
        [type(n) for n in {1} | {True}], [type(n) for n in {True}.union([1])], one.pop(), list(one), x + 1,
    )  # fmt: skip


@program
def sets_and_frozensets():
    def f(x, names):
        a, b = set(names), frozenset({"w", "b"})
        return x * len(a & b), sorted(a | b), sorted(a ^ b), a <= b, a.isdisjoint(b), sorted(a - b)

    return f, [(rand(2), ["w"]), (rand(2), ["q", "b"])]
