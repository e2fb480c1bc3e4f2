"""``torch.autograd.Function``."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from ..shared import LING
from ..tables import tables

WHOLE, BREAKING, whole, breaking = tables()
ONLY_TENSORS = True  # what they do with numbers says nothing


class Sq(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k=2):
        ctx.save_for_backward(x)
        ctx.k = k
        return x**k

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * ctx.k * x ** (ctx.k - 1), None


class Sq2(torch.autograd.Function):
    @staticmethod
    def forward(x, k):
        return x * k, x + 1

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.x, ctx.k = inputs
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx, g, g2):
        return g * ctx.k, None


@whole
def af_plain(x):
    return Sq.apply(x, 3) + 1


@whole
def af_default(x):
    return Sq.apply(x).sum()


@whole
def af_setup(x):
    a, b = Sq2.apply(x, 3.0)
    return a, b


sq = Sq.apply


@whole
def af_alias(x):
    return sq(x, 2)


class STE(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.round(x)

    @staticmethod
    def backward(ctx, g):
        return F.hardtanh(g)


@whole
def af_module(x):
    return nn.Sequential(nn.Identity())(STE.apply(x))


@whole
def af_param(x):
    return Sq.apply(LING(x), 2).sum()


@breaking
def af_grad_reverse(x):
    class _G:
        pass

    return GradRev.apply(LING(x), 0.5)


class GradRev(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, alpha):
        ctx.alpha = alpha
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return g.neg() * ctx.alpha, None


@whole
def amp_custom(x):
    return AmpFn.apply(x)


class AmpFn(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu")
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx, g):
        return g * 2
