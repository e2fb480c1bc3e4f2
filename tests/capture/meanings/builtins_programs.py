"""Builtin functions and numbers."""

# ruff: noqa: B009, C406, C408, C417
from __future__ import annotations

import types

import torch

from ..shared import THING
from ..tables import rand, table, tables
from ..values.dictionaries_programs import MyDict

WHOLE, BREAKING, whole, breaking = tables()
PROGRAMS, program = table()


@whole
def namespaces(x):
    ns = types.SimpleNamespace(a=1, b=x)
    ns.c = ns.a + 1
    return ns.b + ns.c, vars(ns)["a"]


@whole
def int_things(x):
    return (
        int("12"),
        (5).bit_length(),
        int(3.7),
        divmod(7, 2),
        round(2.567, 2),
        abs(-3),
        pow(2, 3, 5),
        float("inf"),
        bin(5),
        hex(255),
        int("ff", 16),
        7 // 2,
        -7 % 3,
        (2.5).is_integer(),
        x,
        complex(1, 2),
        True + 1,
        0.1 + 0.2,
    )


@whole
def builtin_zoo(x):
    return (
        all([1, 0]),
        any([0, x.shape[0]]),
        sum([1, 2]),
        min(3, 1),
        max([1, 5], key=lambda a: -a),
        sorted("bca", reverse=True),
        list(zip([1], [2])),
        list(map(lambda a: a + 1, [1])),
        list(filter(None, [0, 1])),
        list(enumerate("ab", 1)),
        callable(len),
        isinstance(x, torch.Tensor),
        issubclass(bool, int),
        type(x) is torch.Tensor,
        getattr(x, "ndim"),
        hasattr(x, "zork"),
        hash("a") == hash("a"),
        len({**{"a": 1}}),
        list(reversed([1, 2])),
        dict(a=1),
        dict([("a", 1)]),
        dict(zip("ab", [1, 2])),
        next(iter([3])),
        next(iter([]), 5),
        vars(THING)["v"],
        list(dict.fromkeys([1, 1, 2])),
        repr(1),
        ascii("é"),
        format(3.14159, ".2f"),
        slice(1, 2),
        isinstance(3, int | str),
        isinstance(x, (int, torch.Tensor)),
    )


@breaking
def dir_(x):
    return "v" in dir(THING), x


@whole
def int_subclass(x):
    return MyInt(3) + 1, x * MyInt(2), MyStr("a") + "b", MyList([1, 2])[0], len(MyDict(a=1)), MyFloat(2.0) * 2


class MyInt(int):
    pass


class MyStr(str):
    pass


class MyFloat(float):
    pass


class MyList(list):
    def first(self):
        return self[0]


@program
def identity_questions():
    def f(x, y, d):
        a, b = [x], [x]
        return x is y, a is b, a == a, d["x"] is x, id(x) == id(x), x.view(-1) is x, a[0] is b[0], x.T.T is x

    t = rand(2)
    return f, [(t, t, {"x": t}), (t, rand(2), {"x": t}), (t, rand(2), {"x": rand(2)})]
