"""Two arguments, or one object twice: what was told apart is noticed when it has become one."""

import pytest
from torch import nn

import torchglass as tg

from ..compared import in_step, make_input


@pytest.fixture(autouse=True)
def clean(tmp_path):
    tg.reset()
    with tg.prepare_debug(tmp_path):
        yield


def twice(make):
    value = make()
    return value, value


def test_two_lists_or_one():
    def f(a, b):
        a.append(5)
        return len(b), a is b

    in_step(f, lambda: ([1], [1]), lambda: twice(lambda: [1]), lambda: ([1], [1]))


class OfList(list):
    pass


class OfDict(dict):
    pass


@pytest.mark.parametrize("cls", [OfList, OfDict])
def test_two_objects_of_a_subclass_or_one(cls):
    def f(a, b):
        if isinstance(a, list):
            a.append(5)
        else:
            a["key"] = 5
        return len(b)

    in_step(f, lambda: (cls(), cls()), lambda: twice(cls), lambda: (cls(), cls()))


def test_two_objects_or_one():
    def f(a, b):
        a.weight = 2
        return b.weight

    def made():
        module = nn.Module()
        module.weight = 1
        return module

    compiled = tg.compile(f, backend="eager")
    assert compiled(made(), made()) == 1
    assert compiled(*twice(made)) == 2


def test_two_tensors_or_one():
    def f(a, b):
        a.add_(1)
        return a + b, a is b

    in_step(f, lambda: (make_input(), make_input()), lambda: twice(make_input))
