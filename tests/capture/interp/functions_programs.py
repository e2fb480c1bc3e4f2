"""Functions: how they are called, closures, decorators, recursion, defaults, locals and globals."""

# ruff: noqa: B006, B023
from __future__ import annotations

import functools
import sys

import torch

from ..shared import deco
from ..tables import rand, table, tables

WHOLE, BREAKING, whole, breaking = tables()
PROGRAMS, program = table()


def many_parameters(a, /, b, c=3, *rest, d, e=5, **others):
    return a * b + c + sum(rest) + d + e + sum(others.values())


@whole
def calling(x):
    args, kwargs = (2, 4, 6), {"d": 1, "z": 9}
    return many_parameters(x, *args, **kwargs), many_parameters(x, 2, d=7)


@whole
def comprehension_with_a_name_of_a_closure(x):
    v = x + 1
    later = lambda: v
    numbers = [(lambda: v)() for v in range(3)]
    return later() * sum(numbers), v, [v + 1 for v in numbers]


@whole
def closures(x):
    count = 0

    def add(n):
        nonlocal count
        count += n
        return x + count

    adders = [lambda y, i=i: y + i for i in range(3)]
    return add(1) + add(2), count, [f(x) for f in adders]


@whole
def partials_and_lambdas(x):
    f = functools.partial(torch.add, alpha=2)
    g = functools.partial(many_parameters, 1, d=2)
    compose = lambda *fs: lambda v: functools.reduce(lambda acc, h: h(acc), fs, v)
    return f(x, x), g(x), compose(torch.sin, torch.cos)(x)


def decorate(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs) * 2

    return wrapper


@decorate
def decorated(x, y=1):
    return x + y


@whole
def decorators(x):
    return decorated(x, y=3)


def fibonacci(n):
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


@whole
def recursion(x):
    return x * fibonacci(8)


@whole
def wraps_inside(x):
    @deco
    def h(a):
        "doc"
        return a * 2

    return h(x), h.__name__, h.__wrapped__(x), h.__doc__


@whole
def global_fn_attr(x):
    return x + fn_attr.count, fn_attr.__name__


def fn_attr():
    pass


fn_attr.count = 3


@whole
def fn_attr_inside(x):
    def g():
        return 1

    g.tag = 5
    return g.tag, g.__name__, getattr(g, "no", None), x


@whole
def nested_functions_kw(x):
    def f(a, /, b, *, c=3, **k):
        return a * b + c + len(k)

    return f(x, 2), f(x, b=2, c=1, d=4), f(*[x, 1], **{"c": 0})


@whole
def global_write(x):
    global GW
    GW = GW + 1
    r = GW
    GW = 0
    return x + r


GW = 0


@whole
def locals_(x):
    a = 1
    d = locals()
    return sorted(k for k in d), x


@breaking
def globals_(x):
    return globals()["GW"], x


def mutable_default(x, acc=[]):
    acc.append(1)
    n = len(acc)
    acc.clear()
    return n


@whole
def mutable_default_global(x):
    return mutable_default(x), x


GLOBAL = {"calls": 0, "last": None}
COUNTER = 0


@program
def globals_written():
    def f(x):
        global COUNTER
        COUNTER += 1
        GLOBAL["calls"] += 1
        GLOBAL["last"] = x * COUNTER
        return GLOBAL["last"], COUNTER

    global COUNTER
    COUNTER = 0
    GLOBAL.update(calls=0, last=None)
    return f, [(rand(2),)] * 4


@program
def nonlocal_counter():
    def make():
        n, seen = 0, []

        def f(x):
            nonlocal n
            n += 1
            seen.append(n)
            return x * n, list(seen)

        return f

    return make(), [(rand(2),)] * 4


@program
def default_argument_that_grows():
    def f(x, acc=[]):
        acc.append(x)
        return sum(acc), len(acc)

    return f, [(rand(2),)] * 3


@program
def unusual_arguments():
    def f(x, /, y, *rest, k=1, **named):
        return x * y + sum(rest) + k, sorted(named), f.__name__

    def call(x):
        args, kw = [x, 2], {"k": 3, "z": 4}
        return f(*args, 5, 6, **kw), f(x, y=7)

    return call, [(rand(2),)] * 2


@program
def wrong_arguments():
    def g(a, b=1, *, c):
        return a

    def f(x, n):
        try:
            if n == 0:
                return g(x)
            if n == 1:
                return g(x, 1, 2, c=3)
            if n == 2:
                return g(x, c=1, d=2)
            return g(c=1)
        except TypeError as e:
            return str(e).replace("wrong_arguments.<locals>.", "")

    return f, [(rand(2), n) for n in range(4)]


@program
def closures_late_binding():
    def f(x):
        fns = [lambda t: t * i for i in range(3)]
        bound = [lambda t, i=i: t * i for i in range(3)]
        n = 5
        late = lambda t: t * n
        a = late(x)
        n = 7
        return [g(x) for g in fns], [g(x) for g in bound], a, late(x)

    return f, [(rand(2),)] * 2


@program
def module_attributes_and_globals():
    here = sys.modules[__name__]

    def reads():
        return COUNTER

    def f(x):
        global COUNTER
        here.COUNTER = 5
        a = reads() + COUNTER
        COUNTER = 7
        return x * a, here.COUNTER, reads()

    return f, [(rand(2),)] * 2
