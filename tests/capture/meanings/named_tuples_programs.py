"""Named tuples and typed dictionaries."""

from __future__ import annotations

import collections
import collections.abc
import enum
import typing
from typing import Any, NamedTuple

from ..shared import says
from ..tables import tables

WHOLE, BREAKING, whole, breaking = tables()


@breaking
def namedtuple_inside(x):
    T = collections.namedtuple("T", "a b")
    t = T(1, x)
    return t.a, t.b + 1


class NT(NamedTuple):
    a: Any
    b: int = 2

    def total(self):
        return self.a + self.b


@whole
def namedtuples(x):
    n = NT(x)
    m = n._replace(b=7)
    a, b = m
    return (
        n,
        m.total(),
        m._asdict(),
        NT._fields,
        NT._make([x, 1]),
        NT._field_defaults,
        a + b,
        n.index(2) if False else 0,
    )


@whole
def named_tuple_made_inside(x):
    class P(NamedTuple):
        a: object
        b: int = 2

    p = P(x)
    q = p._replace(b=4)
    a, b = q
    return a * b + p.a, p._fields


@whole
def namedtuple_function_inside(x):
    P = collections.namedtuple("P", "a b")
    p = P(x, b=3)
    return p.a * p.b, P.__name__, P._fields


@whole
def typed_dict_inside(x):
    class T(typing.TypedDict):
        a: int

    t: T = {"a": 3}
    return x * t["a"]


class Doubled(collections.namedtuple("Doubled", "once twice")):
    __slots__ = ()

    def __new__(cls, once):
        return super().__new__(cls, once, once * 2)

    def total(self):
        return self.once + self.twice


class Defaulted(typing.NamedTuple):
    first: int
    second: int = 3


@whole
def named_tuples_with_a_constructor(x):
    made = Doubled(x)
    said = says(Defaulted), says(Defaulted, 1, 2, 3), says(lambda: Defaulted(third=1)), says(Doubled, 1, 2)
    return made, made.total(), made._replace(twice=3), Defaulted(1), said


@whole
def enumerations_of_named_tuples(x):
    class Kept(enum.Enum):
        FIRST = Defaulted(1)
        SECOND = Defaulted(2, 4)

    return x + 1, repr(Kept.FIRST), Kept.SECOND.value.second, Kept(Defaulted(1)) is Kept.FIRST
