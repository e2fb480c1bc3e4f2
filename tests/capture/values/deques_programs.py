"""Deques."""

# ruff: noqa: C416, SIM300
from __future__ import annotations

import collections
import collections.abc

import torchglass as tg

from ..shared import says
from ..tables import rand, table, tables

WHOLE, BREAKING, whole, breaking = tables()
PROGRAMS, program = table()


@whole
def deques(x):
    d = collections.deque([1, 2, 3])
    d.rotate(1)
    d.appendleft(9)
    d.extendleft([7, 8])
    bounded = collections.deque(maxlen=2)
    for n in range(3):
        bounded.append(n)
    return x, list(d), list(bounded), bounded


@whole
def deques_of_every_end(x):
    d = collections.deque([1, 2, x], maxlen=3)
    d.append(4)
    d.appendleft(9)
    d.rotate(1)
    return d, len(d), d[0], list(reversed(d)), d.maxlen


@whole
def deques_in_operators(x):
    """Sums and products keep the greatest length, and no deque is equal to a list."""
    d = collections.deque("abcd", maxlen=4)
    twice = collections.deque("ab", 3)
    twice *= 2
    others = [d + collections.deque("ef"), twice, twice * 2, 2 * twice]
    compared = [d == list(d), d != list(d), list(d) == d, d == collections.deque("abcd"), d in [list(d)]]
    return x + 1, [(list(o), o.maxlen) for o in others], compared, collections.deque(iterable="abc", maxlen=2)


@whole
def deques_that_refuse(x):
    d = collections.deque("abc", maxlen=3)

    def store(n):
        d[n] = 1

    def discard(n):
        del d[n]

    said = [says(f, 7) for f in (d.__getitem__, store, discard)] + [says(f, "a") for f in (store, discard)]
    said += [says(lambda: d[0:1]), says(d.insert, 0, 1), says(collections.deque, "a", -1), says(collections.deque, 3)]
    return x + 1, said, says(collections.deque().popleft), list(d)


@whole
def deques_that_change_meanwhile(x):
    """Who goes through a deque, or compares its items, notices that it changed; writing an item is no change."""

    class Clearing:
        def __eq__(self, other):
            self.of.clear()
            return False

    changes = {
        "append": lambda d: d.append(1), "pop": lambda d: d.pop(), "rotate": lambda d: d.rotate(1),
        "appendleft": lambda d: d.appendleft(1), "insert": lambda d: d.insert(0, 1), "store": lambda d: store(d),
    }  # fmt: skip

    def store(d):
        d[1] = 9

    said = []
    for name, change in changes.items():
        d = collections.deque("abc")
        forward, backward = iter(d), reversed(d)
        next(forward)
        change(d)
        said.append((name, says(next, forward), says(next, backward)))
    for name in ("__contains__", "count", "index", "remove"):
        clearing = Clearing()
        clearing.of = collections.deque([1, clearing, 3])
        said.append((name, says(getattr(clearing.of, name), 5)))
    return x + 1, said


KEPT = collections.deque([1, 2, 3], 3)


@whole
def deques_from_outside(x):
    KEPT.append(KEPT[0] + 1)
    KEPT.appendleft(0)
    return x + 1, list(KEPT), KEPT + collections.deque([7]), 3 in KEPT, KEPT == list(KEPT), [n for n in reversed(KEPT)]


@breaking
def deques_that_change_before_a_break(x):
    d = collections.deque("abc")
    waiting = iter(d)
    next(waiting)
    d.popleft()
    tg.graph_break()
    return x + 1, says(next, waiting)


@program
def defaultdict_counter_deque():
    def f(x):
        d = collections.defaultdict(list)
        for i in range(4):
            d[i % 2].append(x * i)
        q = collections.deque(maxlen=2)
        for i in range(4):
            q.append(i)
        q.rotate(1)
        c = collections.Counter("hello")
        return {k: sum(v) for k, v in d.items()}, list(q), c.most_common(1), collections.OrderedDict(a=1, b=x)

    return f, [(rand(2),)] * 2


@whole
def empty_deques_rotate_by_numbers_alone(x):
    empty = collections.deque()
    empty.rotate(3)
    try:
        empty.rotate("a")
    except TypeError as error:
        return x + 1, str(error)
