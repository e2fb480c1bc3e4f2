"""Types written in functions: generics, aliases, annotations."""

# ruff: noqa: UP006, UP007, UP035, UP037, UP045
from __future__ import annotations

import typing
from typing import Dict, Generic, List, Optional, Tuple, TypeVar, Union

import torch

from ..tables import tables

WHOLE, BREAKING, whole, breaking = tables()
T_ = TypeVar("T_")


class Gen(Generic[T_]):
    def __init__(self, v):
        self.v = v

    def get(self) -> T_:
        return self.v


@whole
def typing_things(x):
    g = Gen[int](3)
    h = Gen(4)
    a: Optional[int] = typing.cast(int, 3)
    return (
        g.get() + h.get() + a + x,
        typing.get_origin(list[int]) is list,
        typing.get_args(dict[str, int]),
        isinstance(g, Gen),
    )


@whole
def annotated(x):
    def g(a: int, b: "str" = "q") -> float:
        return a

    return g(x), g.__defaults__, g.__code__.co_name


T = TypeVar("T")


class Boxed(Generic[T]):
    def __init__(self, value):
        self.value = value


@whole
def types_written_inside(x):
    def inner(y: Tuple[int, T], z: Optional[List[int]] = None) -> List[T]:
        return y

    made = List[torch.Tensor], Dict[str, Union[int, None]], List[T][int], list[int]
    return inner(x), [str(t) for t in made], sorted(inner.__annotations__), made[0] is List[torch.Tensor]


@whole
def generic_class_called(x):
    return Boxed[int](x + 1).value, isinstance(Boxed[int](3), Boxed)


@whole
def annotated_for_torchscript(x):
    return torch.jit.annotate(List[torch.Tensor], [x])[0]


@breaking
def type_of_a_number_of_the_data(x):
    return x, str(Tuple[(int,) * int(x.sum().item() > 0)])


@whole
def generic_class_inside(x):
    T = TypeVar("T")

    class Holder(Generic[T]):
        def __init__(self, v):
            self.v = v

        def get(self):
            return self.v

    return Holder(x).get() + 1


@whole
def class_with_class_getitem(x):
    class A:
        def __class_getitem__(cls, n):
            return n + 1

        def __getattr__(self, name):
            return name.upper()

    return x * A[3], A().word
