"""Operators: which side answers first, reflected and in-place forms, those of the module ``operator``."""

# ruff: noqa: B024, UP006
from __future__ import annotations

import abc
import functools
import operator
import typing

from ..polyfills.copies_programs import Slotted
from ..shared import THING, says
from ..tables import rand, table, tables

WHOLE, BREAKING, whole, breaking = tables()
PROGRAMS, program = table()


class Left:
    def __add__(self, other):
        return "left"

    __radd__ = __mul__ = __add__

    def __eq__(self, other):
        return False

    def __lt__(self, other):
        return True

    __hash__ = object.__hash__


class Right(Left):
    def __radd__(self, other):
        return "right"

    def __eq__(self, other):
        return True

    def __gt__(self, other):
        return "greater"

    __hash__ = object.__hash__


class OnlyReflected:
    def __radd__(self, other):
        return "reflected"


@whole
def operands_of_derived_classes_answer_first(x):
    left, right = Left(), Right()
    return left + right, right + left, left * right, left == right, right == left, left < right, 1 + left, x + 1


@breaking
def operands_of_one_class_are_not_asked_the_other_way_round(x):
    try:
        return OnlyReflected() + OnlyReflected(), x + 1
    except TypeError as error:
        return str(error), x + 2


@functools.total_ordering
class TO:
    def __init__(self, v):
        self.v = v

    def __lt__(self, o):
        return self.v < o.v

    def __eq__(self, o):
        return self.v == o.v


@whole
def total_order(x):
    return (
        TO(1) <= TO(2),
        TO(3) > TO(1),
        TO(2) >= TO(2),
        [t.v for t in sorted([TO(3), TO(1)])],
        max(TO(1), TO(4)).v,
        x + 1,
    )


@whole
def operators_all(x):
    o = operator
    return (
        o.itemgetter(1)([1, 2]),
        o.itemgetter(0, 1)([x, 2]),
        o.attrgetter("v")(THING),
        o.methodcaller("sum", 0)(x),
        o.concat([1], [2]),
        o.countOf([1, 1], 1),
        o.indexOf([1, 2], 2),
        o.length_hint([1, 2]),
        o.index(3),
        o.truth([]),
        o.not_(1),
        o.is_(x, x),
        o.neg(x),
        o.matmul(x, x.T),
        o.abs(-3),
        o.floordiv(7, 2),
        o.contains([1], 1),
        o.getitem(x, 0),
        o.iadd(3, 4),
        o.inv(3),
        o.xor(1, 3),
    )


@breaking
def bool_len_objs(x):
    class B:
        def __bool__(self):
            return False

    return not B(), x


@whole
def operators_that_write(x):
    rows = [1, 2, x]
    operator.delitem(rows, 0)
    same = operator.iconcat(rows, [3])
    return rows, same is rows, operator.abs(-x), typing.get_type_hints(Slotted.__init__), issubclass(dict, typing.Dict)


@whole
def operators_by_descriptors(x):
    """Special methods that are no functions: None refuses, other descriptors are asked."""

    class Answer:
        def __call__(self, *args):
            return "answer", len(args)

    class Many:
        def named(self, name, other):
            return name

        __eq__, __add__ = functools.partialmethod(named, "eq"), functools.partialmethod(named, "add")
        __lt__, __neg__ = Answer(), Answer()
        __hash__ = None

        @staticmethod
        def __mul__(other):
            return "mul", other

        @classmethod
        def __sub__(cls, other):
            return cls.__name__, other

    class Refusing:
        __eq__ = __iadd__ = __contains__ = __iter__ = __reversed__ = __hash__ = None

        def __add__(self, other):
            return self

        def __len__(self):
            return 2

        def __getitem__(self, n):
            return (5, 6)[n]

    def in_place(value):
        value += 1
        return value

    many, no = Many(), Refusing()
    refused = [
        says(f, no) for f in (in_place, iter, reversed, lambda v: v == v, lambda v: 5 in v, lambda v: v + 1 is v)
    ]
    return x + 1, many == 1, many + 1, many < 1, -many, many * 2, many - 3, refused


@breaking
def operands_of_virtual_subclasses(x):
    asked = []

    class Base(abc.ABC):
        def __eq__(self, other):
            asked.append("base")
            return NotImplemented

    class Virtual:
        def __eq__(self, other):
            asked.append("virtual")
            return NotImplemented

    class Derived(Base):
        def __eq__(self, other):
            asked.append("derived")
            return NotImplemented

    Base.register(Virtual)
    return x + 1, Base() == Virtual(), Base() == Derived(), asked


@program
def operators_on_tensors():
    def f(x, y):
        a = operator.matmul(x, y.T)
        a += 1
        b = a // 2 % 3
        c = ~(a > 0) | (b < 1) ^ (a == b)
        d = (-x) ** 2 - abs(y) / 3
        e = operator.itemgetter(0, 1)(d)
        return a, b, c, d, e, divmod(7, 2), x.__add__(1), 2 ** x[0], 1 - x

    return f, [(rand(2, 3), rand(2, 3, seed=1))] * 2
