"""What is told of a function is told anew once the program has changed what it is made of."""

import inspect
import typing

import pytest
import torch

import torchglass as tg

x = torch.ones(2)


def target(a, b=1, *, k=2):
    return a


def other(a, b=1, *, k=2, z=4):
    return a


class Meta(type):
    def __call__(cls, *args):
        return super().__call__(*args)


class Plain:
    field: int

    def __init__(self, a, b=1):
        pass

    def __call__(self, x, y=2):
        pass

    def method(self, q=3):
        pass


plain = Plain(0)


def looked_at(x):
    return (
        x + 1,
        [str(inspect.signature(f)) for f in (target, Plain, plain, plain.method)],
        inspect.getfullargspec(target),
        typing.get_type_hints(target),
        typing.get_type_hints(Plain),
        inspect.signature(target, follow_wrapped=False).parameters["b"].default,
    )


CHANGES = {
    "defaults": (target, "__defaults__", (5,)),
    "an object as default": (target, "__defaults__", (object(),)),
    "keyword defaults": (target, "__kwdefaults__", {"k": 9}),
    "annotations": (target, "__annotations__", {"a": int}),
    "wrapped": (target, "__wrapped__", other),
    "signature": (target, "__signature__", inspect.signature(lambda b, q=1: 0)),
    "code": (target, "__code__", other.__code__),
    "constructor": (Plain, "__init__", lambda self, first: None),
    "defaults of a constructor": (Plain.__init__, "__defaults__", (7,)),
    "call": (Plain, "__call__", lambda self, first: None),
    "method": (Plain.method, "__defaults__", (8,)),
    "annotations of a class": (Plain, "__annotations__", {"field": str}),
}


@pytest.mark.parametrize("change", CHANGES)
def test_looks_again(change, monkeypatch):
    compiled = tg.compile(looked_at, backend="eager", fullgraph=True)
    assert compiled(x)[1:] == looked_at(x)[1:]
    monkeypatch.setattr(*CHANGES[change], raising=False)
    assert compiled(x)[1:] == looked_at(x)[1:]
    monkeypatch.undo()
    assert compiled(x)[1:] == looked_at(x)[1:]


def test_contents_written_to_are_noticed():
    def documented(a: int, *, k=2):
        return a

    def f(x):
        return x + 1, str(inspect.signature(documented))

    compiled = tg.compile(f, backend="eager", fullgraph=True)
    for write in (
        lambda: None,
        lambda: documented.__kwdefaults__.update(k=10),
        lambda: documented.__annotations__.update(a=str),
        lambda: setattr(documented, "__wrapped__", target),
    ):
        write()
        assert compiled(x)[1] == f(x)[1]
