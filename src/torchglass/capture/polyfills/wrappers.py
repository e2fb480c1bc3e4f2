"""Operators of ``torch.ops.higher_order`` that are Python around a call, as functions that the machine interprets."""

# mypy: ignore-errors

from __future__ import annotations

import torch


def wrap(func, *args, **kwargs):
    return func(*args, **kwargs)


def wrap_with_set_grad_enabled(enable_grad, wrapped_func, *args, **kwargs):
    """An exception leaves gradients as they were set, as in eager."""
    before = torch.is_grad_enabled()
    torch.set_grad_enabled(enable_grad)
    result = wrapped_func(*args, **kwargs)
    torch.set_grad_enabled(before)
    return result


def wrap_with_autocast(device_type, dtype, enabled, cache_enabled, wrapped_func, *args, **kwargs):
    with torch.autocast(device_type, dtype, enabled, cache_enabled):
        return wrapped_func(*args, **kwargs)


def dynamo_bypassing_wrapper(wrapper_fn_or_key, inner_fn, *args, **kwargs):
    wrapper = inner_fn.meta[wrapper_fn_or_key] if isinstance(wrapper_fn_or_key, str) else wrapper_fn_or_key
    return wrapper(inner_fn)(*args, **kwargs)


def invoke_quant(quantization, /, *args, scheme=None, **kwargs):
    """What calling an ``InvokeQuant`` does outside torch.compile."""
    return args[0](*args[1:], **kwargs)


OPERATORS = {
    function.__name__: function
    for function in (wrap, wrap_with_set_grad_enabled, wrap_with_autocast, dynamo_bypassing_wrapper)
}

# Functions of PyTorch's, by name as polyfill_scans has them.
BY_NAME = {("torch._higher_order_ops._invoke_quant", "InvokeQuant.__call__"): invoke_quant}
