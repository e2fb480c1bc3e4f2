"""``TorchFunctionMode`` and ``torch.device`` as modes."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from ..tables import rand, table, tables

WHOLE, BREAKING, whole, breaking = tables()
ONLY_TENSORS = True  # what they do with numbers says nothing
PROGRAMS, program = table()
LINEAR = torch.nn.Linear(4, 4)


class Logs(TorchFunctionMode):
    """Notes what PyTorch asks it."""

    def __init__(self):
        self.log = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.log.append((func.__name__, types))
        return func(*args, **(kwargs or {}))


class Adds(TorchFunctionMode):
    """Addition is multiplication; a sine is a word."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.Tensor.add:
            return torch.mul(*args)
        return "sine" if func is torch.sin else func(*args, **(kwargs or {}))


class Plain(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


KEPT = Logs()


@whole
def mode_is_asked_as_in_eager(x):
    with Logs() as mode:
        z = (x.sin() + 1) @ x.T
        z += 1
        facts = x.shape, x.dtype, len(x), x.size(0)
        with torch.no_grad():
            x = x * 2
        z[0] = 3
        found = F.relu(x), F.softmax(x, -1), torch.stack([x, x]), x[0], torch.zeros(3)
        loss = F.cross_entropy(x, torch.tensor([1, 2, 0])) + torch.einsum("ij,kj->ik", x, x).sum()
    return mode.log, z, facts, found, loss


@whole
def mode_changes_meanings(x):
    with Logs() as mode, Adds():
        y = x + 3
        word = torch.sin(x)
    return y, word, mode.log, x + 3


@whole
def mode_sees_parameters_and_questions(x):
    with Logs() as mode:
        y = LINEAR(x)
        LINEAR.weight.detach()
        with torch.autocast("cpu"):
            y = LINEAR(y)
        asked = torch.overrides.has_torch_function((x,))
    return y, asked, mode.log, torch.overrides.has_torch_function((x,))


@whole
def mode_that_calls_the_plain_function(x):
    with Plain():
        return x.sin() + x


@whole
def mode_over_vmap(x):
    with Logs() as mode:
        y = torch.func.vmap(lambda row: row * 2 + row.sum())(x)
    return y, mode.log


@whole
def mode_that_was_there_before(x):
    KEPT.log.clear()
    with KEPT:
        x = x * 2
    return x, list(KEPT.log)


@whole
def mode_in_a_helper_with_an_exception(x):
    mode = Logs()
    try:
        with mode:
            x = x.cos()
            raise ValueError("out")
    except ValueError:
        return x * 2, mode.log


@breaking
def mode_around_a_break(x):
    with Logs() as mode, Adds():
        x = x + 3
        if x.sum() > 0:
            x = x + x
        x = x.exp()
    return x + x, mode.log


@breaking
def mode_with_autograd_function(x):
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x + x

        @staticmethod
        def backward(ctx, g):
            return 2 * g

    with Adds():
        return Twice.apply(x)


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factors):
        ctx.factors = [f.detach() for f in factors]
        return x * factors[0] * factors[1][0]

    @staticmethod
    def backward(ctx, g):
        return g * ctx.factors[0] * ctx.factors[1], None


@whole
def autograd_function_with_tensors_in_lists(x):
    return Scaled.apply(x, [x.abs(), (x + 1)[0:1]])


@whole
def device_block(x):
    with torch.device("meta"):
        y, d = torch.zeros(3), torch.get_default_device()
        with torch.device("cpu"):
            z = torch.ones(4)
        w = torch.ones(1)
    return y.device, z.device, w.device, d, torch.zeros(2).device


@whole
def device_under_a_mode(x):
    with Logs() as mode, torch.device("meta"):
        y = torch.zeros(3)
    return y.device, mode.log, torch.zeros(1).device


@breaking
def device_around_a_break(x):
    with torch.device("meta"):
        if x.sum() > 0:
            x = x * 2
        y = torch.zeros(3)
    return x, y.device, torch.zeros(1).device


class Doubling(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        return out * 2 if func is torch.sin else out


@program
def torch_function_mode():
    def f(x):
        with Doubling():
            y = torch.sin(x) + 1
        return y, torch.sin(x)

    return f, [(rand(2),)] * 2


class Tagged:
    def __init__(self, t):
        self.t = t

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        args = [a.t if isinstance(a, Tagged) else a for a in args]
        return func(*args, **(kwargs or {})) + 100


@program
def torch_function_of_a_class():
    return lambda x: (torch.add(Tagged(x), 1), torch.sin(x)), [(rand(2),)] * 2
