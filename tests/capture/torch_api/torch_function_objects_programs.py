"""Objects that are no tensors and say with ``__torch_function__`` what PyTorch's functions mean."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from ..tables import tables

WHOLE, BREAKING, whole, breaking = tables()
MEANINGS: dict[Any, Any] = {}


def means(function):
    def enter(implementation):
        MEANINGS[function] = implementation
        return implementation

    return enter


class Diagonal:
    """PyTorch's example of its protocol: a number on the diagonal of a square of zeros."""

    def __init__(self, size, value):
        self.size, self.value = size, value

    def dense(self):
        return self.value * torch.eye(self.size)

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func not in MEANINGS or not all(issubclass(t, (torch.Tensor, Diagonal)) for t in types):
            return NotImplemented
        return MEANINGS[func](*args, **(kwargs or {}))


def dense(value):
    return value.dense() if isinstance(value, Diagonal) else value


@means(torch.mean)
def mean(diagonal):
    return diagonal.value / diagonal.size


@means(torch.Tensor.add)
@means(torch.add)
def add(left, right, alpha=1):
    return dense(left) + alpha * dense(right)


@means(torch.Tensor.mul)
def times(left, right):
    return left * right.dense()


@means(torch.Tensor.__rsub__)
def subtracted(right, left):
    return left.dense() - right


@means(F.relu)
def relu(diagonal, inplace=False):
    return Diagonal(diagonal.size, diagonal.value.clamp(min=0))


@means(torch.stack)
def stack(diagonals, dim=0):
    return torch.stack([d.dense() for d in diagonals], dim)


@means(torch.Tensor.mm)
def product(left, right):
    return left @ right.dense()


class Derived(Diagonal):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return "derived", [t.__name__ for t in types], dense(args[0])


class Plain:
    """The older form, which is no class method."""

    def __init__(self, number):
        self.number = number

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return self.number


class Noted:
    """A tensor with a note, which results inherit."""

    log: list[str] = []

    def __init__(self, tensor, note):
        self.tensor, self.note = tensor, note

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        notes = [a.note for a in args if isinstance(a, cls)]
        args = [a.tensor if isinstance(a, cls) else a for a in args]
        return cls(func(*args, **(kwargs or {})), notes)


KEPT = Diagonal(4, torch.tensor(2.0))


@whole
def functions_of_an_object(x):
    diagonal = Diagonal(4, x.sum())
    return torch.mean(diagonal), torch.add(x[0], diagonal, alpha=2), torch.add(diagonal, x[0]), F.relu(diagonal).value


@whole
def operators_and_methods(x):
    diagonal = Diagonal(4, x.sum())
    return x[0] * diagonal, diagonal - x[0], x[0] + diagonal, x.mm(diagonal), x[0].add(diagonal, alpha=3)


@whole
def objects_in_a_list(x):
    return torch.stack([Diagonal(4, x[0, 0]), Diagonal(4, x[1, 1])], dim=1)


@whole
def object_of_before(x):
    return torch.add(x[0], KEPT), torch.mean(KEPT)


@whole
def derived_classes_first(x):
    base, derived = Diagonal(4, x.sum()), Derived(4, x.sum())
    return torch.add(base, derived), torch.add(derived, base), torch.add(x[0], derived)


@breaking
def not_implemented(x):
    try:
        return torch.sin(Diagonal(4, x.sum()))
    except TypeError:
        return x.sin()


@whole
def plain_method(x):
    return x + torch.sin(Plain(3)), torch.add(x, Plain(4))


@whole
def wrapped_through_layers(x):
    y = torch.matmul(Noted(x, "x"), torch.ones(4, 4))
    y = F.softmax(torch.add(y, 2), dim=-1)
    y = F.dropout(F.layer_norm(y, (4,)), 0.5, training=False)
    z = torch.where(x > 0, y, torch.zeros(()))
    return z.tensor, z.note


@breaking
def broken_inside(x):
    y = torch.add(Noted(x, "x"), 1)
    if y.tensor.sum() > 0:
        y = torch.mul(y, 2)
    return y.tensor, y.note
