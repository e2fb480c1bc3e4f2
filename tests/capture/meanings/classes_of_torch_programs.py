"""Modules and autograd functions whose classes are made inside."""

from __future__ import annotations

import torch
from torch import nn

from ..tables import tables

WHOLE, BREAKING, whole, breaking = tables()


@whole
def autograd_function_inside(x):
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, t):
            ctx.save_for_backward(t)
            return t * t

        @staticmethod
        def backward(ctx, g):
            (t,) = ctx.saved_tensors
            return 2 * t * g

    y = x.detach().requires_grad_(False)
    return Square.apply(y)


@whole
def autograd_function_inside_with_closure(x):
    factor = 3

    def times(t):
        return t * factor

    class Times(torch.autograd.Function):
        @staticmethod
        def forward(ctx, t):
            return times(t)

        @staticmethod
        def backward(ctx, g):
            return g * factor

    return Times.apply(x)


@breaking
def autograd_function_inside_reads_a_tensor(x):
    w = x * 2

    class Adds(torch.autograd.Function):
        @staticmethod
        def forward(ctx, t):
            return t + w

        @staticmethod
        def backward(ctx, g):
            return g

    return Adds.apply(x)


@whole
def overrides_module_method(x):
    class Gelu(nn.Identity):
        scale = 2

        def forward(self, t):
            return super().forward(t) * self.scale

    return Gelu.__mro__[1] is nn.Identity, x + Gelu.scale


@breaking
def module_made_inside(x):
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.l = nn.Linear(4, 2)

        def forward(self, t):
            return self.l(t)

    return M()(x)
