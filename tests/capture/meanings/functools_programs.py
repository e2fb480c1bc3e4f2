"""``functools``: partials, caches, single dispatch."""

# ruff: noqa: B019, UP033
from __future__ import annotations

import functools

import torch
from torch import nn

from ..tables import rand, table, tables
from ..values.instances_programs import Record

WHOLE, BREAKING, whole, breaking = tables()
PROGRAMS, program = table()


@functools.lru_cache(None)
def doubled(n):
    return n * 2


@whole
def cached_functions(x):
    return x * doubled(x.shape[0]), repr(Record("n", 1))


@whole
def singledispatch_(x):
    return show(1), show("s"), show(x), show([1])


@functools.singledispatch
def show(a):
    return ("other", a)


@show.register
def _(a: int):
    return ("int", a + 1)


@show.register(str)
def _(a):
    return ("str", a)


@show.register(torch.Tensor)
def _(a):
    return ("tensor", a + 1)


class SDM:
    @functools.singledispatchmethod
    def f(self, a):
        return ("any", a)

    @f.register
    def _(self, a: int):
        return ("int", a)


@whole
def singledispatchmethod_(x):
    s = SDM()
    return s.f(1), s.f("a"), x + 1


@whole
def partials(x):
    f = functools.partial(torch.add, alpha=2)
    g = functools.partial(lambda a, b, c=1: a * b + c, x)
    return f(x, x), g(2), g(2, c=3), f.func is torch.add, f.keywords


class PM:
    def base(self, a, b):
        return a + b

    inc = functools.partialmethod(base, 1)

    @functools.cached_property
    def cp(self):
        self.n = getattr(self, "n", 0) + 1
        return self.n

    @functools.lru_cache(maxsize=None)
    def cached(self, a):
        return a * 2


@whole
def partialmethods(x):
    o = PM()
    return o.inc(5), o.cp, o.cp, o.n, x + o.inc(x)


@whole
def lru_method(x):
    o = PM()
    return o.cached(3), x + 1


@functools.lru_cache
def lru(a, b=1):
    return a + b


@whole
def lru_caches(x):
    return lru(1), lru(1, b=2), lru(2.5), x + lru(1)


@breaking
def lru_cache_before_what_it_reads(x):
    @functools.lru_cache
    def counted(n):
        calls.append(n)
        return n

    calls = []
    return x + counted(3) + counted(3), calls


@breaking
def lru_of_itself(x):
    seen = []

    @functools.lru_cache(None)
    def fibonacci(n):
        seen.append(n)
        return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)

    return x * fibonacci(6), seen, fibonacci.cache_info()


@functools.cache
def cached_tensor(n):
    return torch.arange(n)


@whole
def lru_tensor(x):
    return x[0, :3] + cached_tensor(3)


@whole
def functions_handed_to_functional(x):
    def distance(a, b):
        return (a - b).abs().sum(-1)

    loss = torch.nn.functional.triplet_margin_with_distance_loss
    return loss(x, x + 1, x + 2, distance_function=distance), loss(x, x, x, distance_function=nn.PairwiseDistance())


@program
def cached_properties():
    class Grid:
        def __init__(self, n):
            self.n = n
            self.made = 0

        @functools.cached_property
        def points(self):
            self.made += 1
            return torch.linspace(0, 1, self.n)

    grid = Grid(4)
    return lambda x: (x * grid.points + grid.points.sum(), grid.made), [(rand(4),), (rand(4, seed=1),), (rand(4),)]


@program
def functools_zoo():
    @functools.singledispatch
    def show(v):
        return "other"

    @show.register
    def _(v: int):
        return "int"

    @functools.lru_cache(maxsize=2)
    def fib(n):
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    def compose(*fns):
        return functools.reduce(lambda f, g: lambda t: g(f(t)), fns)

    return lambda x: (compose(torch.sin, torch.cos, lambda t: t * fib(6))(x), show(3), show("s")), [(rand(2),)] * 2
