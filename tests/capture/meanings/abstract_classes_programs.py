"""Abstract classes and protocols: ``isinstance`` and ``issubclass`` as their hooks answer."""

from __future__ import annotations

import abc
import collections
import collections.abc
import types
import typing
from typing import TypeVar

import torch
from torch import nn

from ..shared import THING, deco, says
from ..tables import tables
from ..torch_api.module_attributes_programs import MOD

WHOLE, BREAKING, whole, breaking = tables()


@whole
def types_of_builtins_and_abstract_classes(x):
    callables = collections.abc.Callable[[T], bool], collections.abc.Callable[..., int]
    others = collections.abc.Sequence[T], dict[str, T], tuple[int, ...], type[T]
    return callables, others, list[int]([1]), dict[str, int](a=x + 1)


class Sized(abc.ABC):
    @abc.abstractmethod
    def f(self): ...
    @property
    @abc.abstractmethod
    def g(self): ...


class SizedImpl(Sized):
    def f(self):
        return 1

    @property
    def g(self):
        return 2


@whole
def abstract(x):
    s = SizedImpl()
    try:
        Sized()
    except TypeError as e:
        m = "abstract" in str(e)
    return (
        s.f() + s.g + x,
        m,
        isinstance(s, Sized),
        isinstance([], collections.abc.Sequence),
        isinstance({}, typing.Mapping),
        isinstance(x, collections.abc.Iterable),
    )


@typing.runtime_checkable
class RProto(typing.Protocol):
    def f(self): ...


@whole
def protocols(x):
    return isinstance(SizedImpl(), RProto), isinstance(THING, RProto), x


@whole
def isinstance_many(x):
    return (
        isinstance(x, nn.Parameter),
        isinstance(MOD, nn.Module),
        isinstance(MOD.lin.weight, nn.Parameter),
        isinstance(3, (int, float)),
        isinstance(True, int),
        isinstance(None, type(None)),
        isinstance(x.shape, tuple),
        isinstance(x.shape, torch.Size),
        type(x.shape).__name__,
        isinstance(x.dtype, torch.dtype),
        isinstance("a", str),
        isinstance(len, types.BuiltinFunctionType),
        isinstance(deco, types.FunctionType),
        isinstance(THING.__init__, types.MethodType),
    )


T = TypeVar("T")


@whole
def abstract_base_inside(x):
    class Shape(abc.ABC):
        @abc.abstractmethod
        def area(self): ...

    class Square(Shape):
        def area(self):
            return x * x

    try:
        Shape()
        made = True
    except TypeError:
        made = False
    return Square().area(), made, isinstance(Square(), Shape)


@whole
def protocol_inside(x):
    @typing.runtime_checkable
    class Runs(typing.Protocol):
        def run(self): ...

    class A:
        def run(self):
            return x + 1

    return A().run(), isinstance(A(), Runs)


@breaking
def abstract_classes_around_a_hook(x):
    """``__init_subclass__`` of the program's does not keep ABCMeta from what it does."""
    made = []

    class Registered:
        def __init_subclass__(cls, **keywords):
            super().__init_subclass__()
            made.append((cls.__name__, keywords))

    class Shape(Registered, abc.ABC, kind="shape"):
        @abc.abstractmethod
        def area(self): ...

    class Square(Shape):
        def area(self):
            return 4

    Shape.register(int)
    return x + Square().area(), says(Shape)[0], made, isinstance(3, Shape), issubclass(Square, Registered)
