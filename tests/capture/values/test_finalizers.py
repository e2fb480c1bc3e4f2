"""Objects whose class has a ``__del__``: it runs once for each, for those that are made inside as well."""

import torch

import torchglass as tg

from ..compared import same


class Resource:
    freed: list[str] = []

    def __init__(self, name):
        self.name = name

    def __del__(self):
        Resource.freed.append(self.name)


def borrowed(x):
    first = Resource("first")
    y = x * len(first.name)
    del first

    def inner():
        second = Resource("second")
        return y + len(second.name)

    return inner()


def test_finalizers_of_objects_that_are_made_inside_run():
    x, compiled = torch.ones(2), tg.compile(borrowed, backend="eager")
    expected = borrowed(x)
    for _ in range(2):
        Resource.freed.clear()
        same(compiled(x), expected)
        assert sorted(Resource.freed) == ["first", "second"]
