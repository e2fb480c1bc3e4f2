"""``requires_grad``, gradient modes and inference mode, inside and around."""

from __future__ import annotations

import torch

from ..shared import mlp
from ..tables import rand, table, tables

WHOLE, BREAKING, whole, breaking = tables()
PROGRAMS, program = table()


@whole
def backend_switches(x):
    from torch.nn.attention import SDPBackend, sdpa_kernel

    y = x[None, None]
    with sdpa_kernel(SDPBackend.MATH):
        attended = torch.nn.functional.scaled_dot_product_attention(y, y, y)
    with torch.backends.cudnn.flags(enabled=False):
        attended = attended + x
    return attended, torch.backends.cudnn.enabled


@program
def inference_mode_block():
    def f(x):
        with torch.inference_mode():
            y = x * 2
            z = y + 1
        return y.is_inference(), z.is_inference(), y + 0, x.is_inference()

    return f, [(rand(2),), (rand(2, seed=1),)]


@program
def inference_mode_decorator():
    net = mlp(3, 2)

    @torch.inference_mode()
    def f(x):
        return net(x)

    return lambda x: (f(x).requires_grad, f(x).is_inference()), [(rand(2, 3),)] * 2


@program
def requires_grad_inside():
    def f(x):
        y = x.detach().clone().requires_grad_()
        z = (y * 3).sum()
        z.backward()
        return y.grad

    return f, [(rand(3),), (rand(3, seed=1),)]


@program
def requires_grad_written():
    def f(x):
        y = x * 2
        y.requires_grad = True
        with torch.enable_grad():
            (g,) = torch.autograd.grad((y**2).sum(), y)
        return g, y.requires_grad

    return f, [(rand(3),), (rand(3, seed=1),)]


@program
def with_device_and_default_dtype():
    def f(x):
        with torch.device("cpu"):
            a = torch.zeros(2)
        return a.device, x + a, torch.get_default_dtype()

    return f, [(rand(2),)] * 2


@program
def grad_mode_in_all_ways():
    w = rand(2, seed=3, grad=True)

    @torch.no_grad()
    def quiet(x):
        return w * x

    def f(x):
        a = quiet(x)
        with torch.no_grad():
            b = w * 2
            with torch.enable_grad():
                c = w * 3
        with torch.set_grad_enabled(False):
            d = w + 1
        return [t.requires_grad for t in (a, b, c, d, w * x)], torch.is_grad_enabled()

    return f, [(rand(2),)] * 2


@program
def view_written_to_under_no_grad():
    w = rand(2, seed=3, grad=True)

    def f(x):
        y = w * x
        with torch.no_grad():
            y.view(-1).mul_(2)
        return y

    return f, [(rand(2),)] * 2
