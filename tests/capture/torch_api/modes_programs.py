"""Modes of PyTorch: gradients, inference, autocast, devices, default dtypes, profiling, TorchScript."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from ..shared import LING
from ..tables import rand, table, tables

WHOLE, BREAKING, whole, breaking = tables()
ONLY_TENSORS = True  # what they do with numbers says nothing
PROGRAMS, program = table()


class LogMode(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.add:
            return torch.sub(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


@breaking
def tf_mode(x):
    with LogMode():
        return torch.add(x, 1)


@whole
def inference_val(x):
    with torch.inference_mode():
        return x * 2


@whole
def no_grad_deco(x):
    @torch.no_grad()
    def f(a):
        return a * 2

    return f(x), ng(x)


@torch.no_grad()
def ng(a):
    return LING(a)


@torch.inference_mode()
def infm(a):
    return LING(a)


@whole
def inference_deco(x):
    return infm(x)


@whole
def device_ctx(x):
    with torch.device("cpu"):
        return torch.zeros(3) + torch.ones(1), x


@whole
def device_meta(x):
    with torch.device("meta"):
        y = torch.zeros(3)
    return y.device, x


@whole
def default_dtype(x):
    return torch.get_default_dtype(), torch.zeros(1).dtype, x, torch.get_default_device()


@breaking
def set_default(x):
    torch.set_default_dtype(torch.float64)
    y = torch.zeros(2)
    torch.set_default_dtype(torch.float32)
    return y, x


@whole
def data_attr(x):
    y = x.clone()
    y.data.mul_(2)
    return y, x.data + 1


@breaking
def data_set(x):
    y = x.clone()
    y.data = torch.ones(3, 4)
    return y


@whole
def grad_reads(x):
    return LING.weight.grad is None, x.grad is None, LING(x)


@whole
def autocast(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return LING(x)


@whole
def autocast_dis(x):
    with torch.autocast(device_type="cpu", enabled=False):
        y = LING(x.float())
    return y, torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")


@whole
def grad_mode(x):
    with torch.set_grad_enabled(False):
        y = LING(x)
    with torch.no_grad():
        z = LING(x)
    with torch.enable_grad():
        w = LING(x)
    return y, z, w, torch.is_grad_enabled()


@whole
def set_grad_fn(x):
    torch.set_grad_enabled(False)
    y = LING(x)
    torch.set_grad_enabled(True)
    return y


@breaking
def requires_grad_attr(x):
    y = LING(x)
    return (
        y.requires_grad,
        x.requires_grad,
        y.is_leaf,
        y.detach().requires_grad,
        (y.grad_fn is None),
        LING.weight.requires_grad,
    )


@whole
def sdp_ctx(x):
    q = x.view(1, 1, 3, 4)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        return F.scaled_dot_product_attention(q, q, q)


@breaking
def jit_script(x):
    return JS(x)


JS = torch.jit.script(nn.ReLU())


@torch.jit.script
def js_fn(a: torch.Tensor) -> torch.Tensor:
    return a.relu() + 1


@breaking
def jit_fn(x):
    return js_fn(x)


@whole
def record_function(x):
    with torch.profiler.record_function("a"):
        y = x + 1
    with torch.autograd.profiler.record_function("b"):
        y = y + 1
    return y


@whole
def anomaly(x):
    with torch.autograd.set_detect_anomaly(False):
        return x + 1


@breaking
def compiler_disable(x):
    return torch_disabled(x)


@torch.compiler.disable
def torch_disabled(x):
    return x + 1


@whole
def assertion(x):
    assert x.dim() == 2, f"bad {x.shape}"
    torch._assert(x.shape[0] == 3, "q")
    torch._check(x.shape[0] > 1)
    return x


@whole
def amp_gradscaler(x):
    return torch.amp.autocast_mode.is_autocast_available("cpu"), x


@torch.jit.script
def scripted(x: torch.Tensor, n: int) -> torch.Tensor:
    for _ in range(n):
        x = x * 2
    return x


@program
def script_function():
    return lambda x: scripted(x + 1, 3) - 1, [(rand(2),)] * 2
