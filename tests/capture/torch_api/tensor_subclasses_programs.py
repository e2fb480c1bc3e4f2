"""Subclasses of Tensor."""

from __future__ import annotations

import torch

from ..tables import rand, table, tables

WHOLE, BREAKING, whole, breaking = tables()
ONLY_TENSORS = True  # what they do with numbers says nothing
PROGRAMS, program = table()


class SubT(torch.Tensor):
    pass


@breaking
def subclass_make(x):
    return x.as_subclass(SubT) + 1


class MyTensor(torch.Tensor):
    pass


@program
def tensor_subclass():
    def f(x):
        y = x.as_subclass(MyTensor)
        z = y * 2
        return type(z).__name__, z.as_subclass(torch.Tensor)

    return f, [(rand(2),)] * 2


@program
def tensor_subclass_as_input():
    return lambda x: (type(x + 1).__name__, (x + 1).as_subclass(torch.Tensor)), [
        (rand(2).as_subclass(MyTensor),),
        (rand(2),),
    ]
