"""What loops inside C: ``itertools``, ``sorted``, ``reduce``, ``zip``, heaps."""

# ruff: noqa: B023, C417, E741
from __future__ import annotations

import bisect
import functools
import heapq
import itertools
import math
import operator

import torch

from ..shared import says
from ..tables import rand, table, tables

WHOLE, BREAKING, whole, breaking = tables()
PROGRAMS, program = table()


@whole
def itertools_and_friends(x):
    a = list(itertools.chain([1], (2, 3)))
    b = list(itertools.islice(itertools.count(5), 3))
    c = list(itertools.product([1, 2], "ab"))
    d = list(zip(a, b, strict=True))
    e = [k for k, g in itertools.groupby([1, 1, 2])]
    f = list(map(lambda v: v * x, a))
    g = list(filter(None, [0, 1, 2]))
    h = any(v > 2 for v in a), all(a)
    i = list(reversed(a))
    j = operator.itemgetter(1)(a), operator.attrgetter("shape")(x)[0]
    k = list(itertools.accumulate(a))
    return a, b, c, d, e, f, g, h, i, j, k, math.sqrt(4.0), divmod(7, 2), round(2.567, 1)


@whole
def reduces(x):
    return (
        functools.reduce(operator.add, [x, x, x]),
        functools.reduce(lambda a, b: a * b, [1, 2, 3], 1),
        functools.cmp_to_key(lambda a, b: b - a) is not None,
        sorted([1, 3, 2], key=functools.cmp_to_key(lambda a, b: b - a)),
    )


@whole
def itertools_all(x):
    I = itertools
    return (
        list(I.chain([1], [2])),
        list(I.islice(I.count(3, 2), 3)),
        list(I.zip_longest([1, 2], [3])),
        list(I.product([1, 2], "ab")),
        list(I.permutations([1, 2, 3], 2)),
        list(I.combinations([1, 2, 3], 2)),
        list(I.combinations_with_replacement("ab", 2)),
        list(I.accumulate([1, 2, 3])),
        list(I.accumulate([1, 2, 3], operator.mul, initial=2)),
        list(I.starmap(pow, [(2, 3)])),
        list(I.takewhile(lambda a: a < 3, [1, 2, 3])),
        list(I.dropwhile(lambda a: a < 3, [1, 2, 3, 1])),
        list(I.compress("abc", [1, 0, 1])),
        list(I.filterfalse(None, [0, 1])),
        [(k, list(g)) for k, g in I.groupby("aabb")],
        list(I.pairwise([1, 2, 3])),
        list(I.repeat(x, 2)),
        [list(t) for t in I.tee([1, 2], 2)],
        list(I.islice(I.cycle([1, 2]), 5)),
        list(I.chain.from_iterable([[1], [2]])),
    )


@breaking
def heap(x):
    h = [3, 1, 2]
    heapq.heapify(h)
    heapq.heappush(h, 0)
    return heapq.heappop(h), h, bisect.bisect([1, 3, 5], 3), heapq.nlargest(2, [1, 5, 3]), x


@whole
def sorted_keys(x):
    return (
        sorted([("b", 1), ("a", 2)], key=lambda t: t[0]),
        sorted({"b": 1, "a": 2}.items(), key=operator.itemgetter(1)),
        sorted([3, 1], key=None),
        [1, 3, 2].sort(),
        max({"a": 1, "b": 3}.items(), key=lambda kv: kv[1]),
        min([], default=0),
        x,
    )


@whole
def windows_take_what_python_takes(x):
    found = []
    for bounds in ((3,), (0, 5, 3), (2, 2), (4, 1), (1, None, 2), (0,)):
        numbers = iter(range(8))
        found.append((list(itertools.islice(numbers, *bounds)), list(numbers)))
    for wrong in ((-1,), (0, 3, 0), (0, "a"), (-2, 3)):
        try:
            itertools.islice([1], *wrong)
        except ValueError as error:
            found.append(str(error))
    return found, x


@whole
def groups_end_when_the_next_begins(x):
    late = [(k, g) for k, g in itertools.groupby("aabbc")]
    first = []
    for k, g in itertools.groupby([1, 1, 2, 3, 3], lambda n: n > 1):
        first.append((k, next(g)))
    return [(k, list(g)) for k, g in late], first, [(k, [*g]) for k, g in itertools.groupby("xxy")], x


@whole
def errors_of_builtins_that_loop(x):
    found = []
    for do in (
        lambda: functools.reduce(operator.add, []),
        lambda: sum(["a"], ""),
        lambda: min([]),
        lambda: operator.indexOf([1], 2),
        lambda: operator.concat(1, 2),
        lambda: setattr([], "name", 1),
    ):
        try:
            do()
        except (TypeError, ValueError, AttributeError) as error:
            found.append((type(error), str(error)))
    return found, x


class Counted:
    """An iterator whose end has a value, which also takes what is sent to it."""

    def __init__(self):
        self.n = 0

    def __iter__(self):
        return self

    def __next__(self):
        self.n += 1
        if self.n > 2:
            raise StopIteration("end")
        return self.n

    def send(self, value):
        if value == "stop":
            raise StopIteration("stopped")
        return "sent", value


@whole
def values_of_ends(x):
    """What a generator returns and an iterator's StopIteration carries is there once, by whatever asks for it."""

    def end_of(step, *args):
        try:
            return step(*args)
        except StopIteration as error:
            return error.args, error.value

    def returning():
        yield 1
        return 5

    def waiting():
        got = yield from Counted()
        yield "got", got

    asked = []
    for step in (lambda g: next(g), lambda g: g.__next__(), lambda g: g.send(None), lambda g: next(g, "default")):
        generator = returning()
        asked.append([end_of(step, generator) for _ in range(3)])
    counted, sent = Counted(), waiting()
    asked.append([end_of(next, counted) for _ in range(3)])
    asked.append([next(sent), sent.send("x"), sent.send("stop"), end_of(next, sent), list(waiting())])
    return x + 1, asked


@whole
def strict_zips_that_end_differently(x):
    rows = [([1], [1, 2]), ([1, 2], [1]), ([1], [1], [1, 2]), ([1, 2], [1, 2], [1]), ([1], [2])]
    return x + 1, [says(lambda: list(zip(*row, strict=True))) for row in rows]


@program
def itertools_zoo():
    def f(xs):
        pairs = list(itertools.combinations(xs, 2))
        acc = list(itertools.accumulate(xs, lambda a, b: a * b))
        groups = {k: len(list(g)) for k, g in itertools.groupby([1, 1, 2, 3, 3])}
        z = [a + b for a, b in itertools.zip_longest(xs, xs[:2], fillvalue=torch.zeros(2))]
        c = list(itertools.islice(itertools.cycle(range(3)), 5))
        return [a - b for a, b in pairs], acc, groups, z, c, list(itertools.chain.from_iterable([[1], [2, 3]]))

    return f, [([rand(2, seed=n) for n in range(3)],)] * 2
