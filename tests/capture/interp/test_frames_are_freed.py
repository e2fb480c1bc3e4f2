"""A compile keeps nothing of the call that it was made for alive: exceptions that it meets make no cycles of frames."""

from __future__ import annotations

import functools
import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import torchglass as tg


def index_out_of_range(x, box):
    try:
        return [x][5]
    except IndexError:
        return x + 1


def missing_attribute(x, box):
    try:
        return (1).nothing
    except AttributeError:
        return x + 1


def missing_key(x, box):
    try:
        try:
            return {}["key"]
        finally:
            x = x + 1
    except KeyError:
        return x


def reduced_nothing(x, box):
    try:
        return functools.reduce(lambda a, b: a + b, [])
    except TypeError:
        return x + 1


def no_shapes_for_a_product(x, box):
    try:
        return x @ torch.ones(77, 2)
    except RuntimeError:
        return x + 1


def inner():
    yield 1


def outer():
    yield from inner()


def thrown_into_a_delegating_generator(x, box):
    generator = outer()
    next(generator)
    try:
        generator.throw(ValueError())
    except ValueError:
        return x + 1


def leaves_the_function(x, box):
    return [x][5]


class Box:
    pass


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


PROGRAMS = [
    index_out_of_range, missing_attribute, missing_key, reduced_nothing, no_shapes_for_a_product,
    thrown_into_a_delegating_generator, leaves_the_function,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_arguments_of_a_compiled_call_are_freed(program: Callable[..., Any]) -> None:
    compiled = tg.compile(program, backend="eager")
    for rows in (3, 4):
        box = Box()
        freed = weakref.ref(box)
        try:
            compiled(torch.randn(rows), box)
        except IndexError:
            assert program is leaves_the_function
        del box
        assert freed() is None
