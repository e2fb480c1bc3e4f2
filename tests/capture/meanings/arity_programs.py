"""Arguments that do not fit, and signatures that the program asks for."""

from __future__ import annotations

import dataclasses
import functools
import inspect

from ..shared import THING, Thing, deco, says
from ..tables import tables

WHOLE, BREAKING, whole, breaking = tables()


def sig_target(a, b=2, *args, c, **kw):
    pass


@whole
def signatures(x):
    s = inspect.signature(sig_target)
    b = s.bind(1, c=3)
    b.apply_defaults()
    return list(s.parameters), s.parameters["b"].default, x + 1, dict(b.arguments), "c" in s.parameters


@whole
def inspect_more(x):
    return (
        inspect.isfunction(deco),
        inspect.isclass(Thing),
        inspect.ismethod(THING.__init__),
        inspect.getfullargspec(sig_target).args,
        x + 1,
    )


def called_by_two(function):
    @functools.wraps(function)
    def wrapper(a, b):
        return function(a, b)

    return wrapper


@called_by_two
def added(a, b):
    return a + b


@whole
def words_of_arguments_that_do_not_fit(x):
    """They name the function as it is called, not its code."""

    @dataclasses.dataclass
    class Point:
        across: int

    def named(a): ...

    named.__qualname__ = "given"
    return added(x, 1), says(added, 1), says(added, 1, 2, 3), says(lambda: added(c=1)), says(Point), says(named)
