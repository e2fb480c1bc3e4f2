"""Builtins in C that CPython itself runs on proxies: the same calls in the same order, the same results and words."""

import functools
import gc
import math
import operator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import torchglass as tg
from torchglass.capture.meanings.proxies import Proxy


class Logged:
    """Says what it was asked, and does not compare with everything."""

    def __init__(self, number, log):
        self.number, self.log = number, log

    def __repr__(self):
        return f"Logged({self.number})"

    def _asked(self, name, other, function):
        number = getattr(other, "number", other)
        self.log.append((name, self.number, number))
        return function(self.number, number) if isinstance(number, int) else NotImplemented

    def __eq__(self, other):
        return self._asked("eq", other, operator.eq)

    def __lt__(self, other):
        return self._asked("lt", other, operator.lt)

    def __gt__(self, other):
        return self._asked("gt", other, operator.gt)

    def __add__(self, other):
        return self._asked("add", other, operator.add)

    def __radd__(self, other):
        return self._asked("radd", other, operator.add)

    def __mul__(self, other):
        return self._asked("mul", other, operator.mul)

    def __bool__(self):
        self.log.append(("bool", self.number))
        return self.number > 0


def given_one_by_one(values, log):
    for value in values:
        log.append(("given", type(value).__name__))
        yield value


def removed(values, value):
    values = list(values)
    values.remove(value)
    return values


def sorted_in_place(values, **options):
    values = list(values)
    values.sort(**options)
    return values


FUNCTIONS = {
    "sum": lambda values, log: sum(given_one_by_one(values, log)),
    "sum from": lambda values, log: sum(values, 1.5),
    "sum from text": lambda values, log: sum(values, ""),
    "sum of none": lambda values, log: sum(values[:0], start=values),
    "prod": lambda values, log: math.prod(values),
    "prod from": lambda values, log: math.prod(values, start=2.5),
    "min": lambda values, log: min(values),
    "max": lambda values, log: max(given_one_by_one(values, log)),
    "max of two": lambda values, log: max(*values),
    "max or": lambda values, log: max(values, default="nothing"),
    "min by": lambda values, log: min(values, key=lambda v: -getattr(v, "number", v)),
    "max by none": lambda values, log: max(values, key=None, default=values),
    "sorted": lambda values, log: sorted(values),
    "sorted by": lambda values, log: sorted(values, key=lambda v: (log.append(type(v).__name__), v)[1], reverse=True),
    "sort": lambda values, log: sorted_in_place(values, key=None),
    "sort by": lambda values, log: sorted_in_place(values, reverse=True, key=type),
    "any": lambda values, log: any(given_one_by_one(values, log)),
    "all": lambda values, log: all(given_one_by_one(values, log)),
    "reduce": lambda values, log: functools.reduce(operator.add, given_one_by_one(values, log)),
    "reduce from": lambda values, log: functools.reduce(lambda a, b: (a, b), values, "first"),
    "index": lambda values, log: values.index(2),
    "index from": lambda values, log: values.index(values[0], 1, -1),
    "tuple index": lambda values, log: tuple(values).index(2, 1),
    "count": lambda values, log: values.count(2),
    "tuple count": lambda values, log: tuple(values).count(values[-1]),
    "remove": lambda values, log: removed(values, 2),
    "remove last": lambda values, log: removed(values, values[-1]),
    "in": lambda values, log: 2 in values,
    "countOf": lambda values, log: operator.countOf(given_one_by_one(values, log), 2),
    "indexOf": lambda values, log: operator.indexOf(given_one_by_one(values, log), 2),
}
ITEMS = st.one_of(
    st.integers(-2, 3), st.sampled_from([0.1, math.nan, True, None, "text", 2j, (1, 2), [3]]),
    st.integers(0, 3).map(lambda n: ("logged", n)),
)  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
@settings(max_examples=8, deadline=None, derandomize=True, database=None)
@given(st.lists(ITEMS, max_size=5))
def test_means_what_it_means_in_python(name, items):
    def program(x):
        log = []
        logged = [Logged(i[1], log) if isinstance(i, tuple) and i[0] == "logged" else i for i in items]
        try:
            result = FUNCTIONS[name](logged, log)
        except Exception as error:
            result = type(error).__name__, [str(a) for a in error.args]
        return result, log, x + 1

    x = torch.ones(2)
    assert str(tg.compile(program, fullgraph=True, backend="eager")(x)) == str(program(x))


def breaks_in_key(x, values):
    def key(value):
        tg.graph_break()
        return -value

    return x + sorted(values, key=key)[0]


def raises_in_key(x, values):
    try:
        return max(values, key=lambda v: values[v + 100])
    except IndexError as error:
        return x * 2, error.args, error.__context__


def raises_while_handling(x, values):
    try:
        raise KeyError("first")
    except KeyError:
        try:
            values.index("absent")
        except ValueError as error:
            return x, error.args, repr(error.__context__)


def branches_on_tensors(x, values):
    return max(x.unbind()), any(t > 1 for t in x), sum(x.unbind(), x)


def generator_that_breaks(x, values):
    def numbers():
        yield 1
        tg.graph_break()
        yield 2

    return x + sum(numbers())


def ends_early(x, values):
    given = iter(values)
    return x, any(v == 2 for v in given), list(given)


PROGRAMS = [
    breaks_in_key, raises_in_key, raises_while_handling, branches_on_tensors, generator_that_breaks, ends_early,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_breaks_and_raises_through_c(program):
    x = torch.tensor([1.0, 3.0, 2.0])
    compiled = tg.compile(program, backend="eager")
    for values in ([3, 1, 2], [1, 2, 3, 4]):
        assert str(compiled(x, values)) == str(program(x, values))


def test_nothing_of_the_capture_is_left():
    for program in PROGRAMS:
        tg.compile(program, backend="eager")(torch.tensor([1.0, 3.0]), [3, 1, 2])
    gc.collect()
    assert not [o for o in gc.get_objects() if isinstance(o, Proxy)]
