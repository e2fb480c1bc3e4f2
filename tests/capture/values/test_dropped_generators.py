"""Generators that the program leaves before their end run their ``finally`` and ``with`` when Python runs them."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

import torchglass as tg

from ..tables import tables

CAPTURED_WHOLE, BREAKING, whole, breaking = tables()
log: list[Any] = []


def closing(n):
    try:
        yield from range(n)
    finally:
        log.append(("closed", n))


class Noted:
    def __enter__(self):
        log.append("in")

    def __exit__(self, kind, *error):
        log.append(("out", kind))


def managing():
    with Noted():
        yield 1
        yield 2


def delegating():
    yield 0
    yield from closing(5)


@whole
def left_by_break(x):
    for i in closing(5):
        x = x + i
        if i == 2:
            break
    log.append("after")
    return x


@whole
def left_in_a_with(x):
    for i in managing():
        x = x + i
        break
    log.append("after")
    return x


@whole
def left_by_return(x):
    def first(wanted):
        for i in closing(4):
            if i == wanted:
                return i

    x = x + first(1)
    log.append("after")
    return x


@whole
def left_by_an_exception(x):
    try:
        for i in closing(3):
            x = x + i
            if i == 1:
                raise ValueError
    except ValueError:
        log.append("handler")
    return x


@whole
def asked_once(x):
    x = x + next(closing(3))
    log.append("after")
    return x


@whole
def delegated_to(x):
    for i in delegating():
        x = x + i
        if i == 2:
            break
    log.append("after")
    return x


@whole
def deleted(x):
    numbers = closing(3)
    x = x + next(numbers)
    log.append("before")
    del numbers
    log.append("after")
    return x


@whole
def named_by_two(x):
    numbers = same = closing(3)
    x = x + next(numbers)
    del numbers
    log.append("named still")
    del same
    log.append("after")
    return x


@whole
def alive_at_the_end(x):
    numbers = closing(3)
    x = x + next(numbers)
    log.append("end")
    return x


@whole
def returned(x):
    numbers = closing(3)
    x = x + next(numbers)
    log.append("end")
    return x, numbers


@whole
def held_by_iterators(x):
    for _, (i, _) in zip(range(2), enumerate(closing(9))):
        x = x + i
    log.append("zip")
    for i in itertools.islice(closing(8), 1, 5):
        x = x + i
        break
    log.append("islice")
    for i in map(abs, closing(7)):
        x = x + i
        break
    log.append("map")
    any(i > 2 for i in closing(6))
    3 in closing(5)  # noqa: B015
    log.append("after")
    return x


def printing():
    try:
        yield 1
        yield 2
    finally:
        log.append("begin")
        tg.graph_break()
        log.append("printed")


@breaking
def breaks_where_it_is_closed(x):
    for i in printing():
        x = x + i
        break
    log.append("after")
    return x * 2


@breaking
def asked_no_more_behind_a_break(x):
    numbers = closing(3)
    x = x + next(numbers)
    if x.sum() > 0:
        x = x * 2
    return x


def outcome(function: Any) -> Any:
    """The numbers computed, what was logged by the return, and what remains to be logged when the result is dropped."""
    log.clear()
    result = function(torch.ones(2))
    numbers = (result[0] if isinstance(result, tuple) else result).tolist()
    at_return = list(log)
    del result
    return numbers, at_return, list(log)


@pytest.mark.parametrize("name", [*CAPTURED_WHOLE, *BREAKING])
def test_closed_when_python_closes_it(name):
    function = (CAPTURED_WHOLE | BREAKING)[name]
    expected = outcome(function)
    compiled = tg.compile(function, backend="eager", fullgraph=name in CAPTURED_WHOLE)
    assert [outcome(compiled) for _ in range(2)] == [expected] * 2


def failing():
    try:
        yield 1
    finally:
        raise KeyError("from finally")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_what_closing_raises_is_not_the_callers():
    def f(x):
        for i in failing():
            x = x + i
            break
        return x * 2

    assert tg.compile(f, backend="eager")(torch.ones(2)).tolist() == [4, 4]
