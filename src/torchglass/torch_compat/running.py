"""What is at work around a call, and what torch.compile left in the process."""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

import torch

# The dictionaries of hooks that ``nn.Module.__call__`` asks: a module's own, and those for all modules.
OWN_HOOKS = ("_backward_hooks", "_backward_pre_hooks", "_forward_hooks", "_forward_pre_hooks")
SHARED_HOOKS = tuple(f"_global{name}" for name in OWN_HOOKS if hasattr(torch.nn.modules.module, f"_global{name}"))


def is_of_module(method: Any) -> bool:
    """Whether PyTorch wrote this method of ``nn.Module``: what a library put in its place has other globals.

    ``_wrapped_call_impl``, which stands under ``__call__``, and ``_call_impl``: without the difference a library that
    replaces them for all modules would be passed by. Tried: 2.11, 2.13.
    """
    return getattr(method, "__globals__", None) is vars(torch.nn.modules.module)


# peek_interpreter_stack: whether torch.func.grad, vmap, ... are at work. _current_autograd_node: whether a backward
# pass is. _get_tracing_state: whether torch.jit.trace is. Without them a function called from one of these would be
# compiled under it, and its operations hidden from it. Tried: 2.11, 2.13.
def in_function_transform() -> bool:
    """Whether torch.func.grad, vmap, ... are at work on this thread."""
    return torch._C._functorch.peek_interpreter_stack() is not None


def in_dispatch() -> bool:
    """Whether we are inside a kernel: a ``__torch_dispatch__``, where functionalization and modes are passed by, or a
    custom operator's, where autograd is.

    ``_dispatch_tls_is_dispatch_key_excluded``: without it a function called there would be traced while parts of
    PyTorch that tracing needs are off, which is a segmentation fault at worst. Tried: 2.11, 2.13.
    """
    excluded = torch._C._dispatch_tls_is_dispatch_key_excluded
    keys = torch._C.DispatchKey
    return excluded(keys.Functionalize) or (excluded(keys.AutogradCPU) and not torch.is_inference_mode_enabled())


def is_watched_by_tracer() -> bool:
    """Whether a function transform, a backward pass or torch.jit.trace is at work on this thread."""
    return (
        in_function_transform()
        or in_dispatch()
        or torch._C._current_autograd_node() is not None
        or torch._C._get_tracing_state() is not None
    )


def untagged(function: Any) -> Any:
    """The function that torch._dynamo wrapped to note modules made in a ``forward``; others are returned as they are.

    Once torch.compile has run in a process, ``nn.Module.__init__`` and ``__setstate__`` are wrapped for good. Without
    this, slicing a ModuleList would break the graph from then on. The note matters to torch.compile's guards alone.
    Tried: 2.13.
    """
    if function.__module__ == "torch._dynamo.mutation_guard" and function.__name__.startswith("patched_"):
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or ()))
        wrapped = cells.get(function.__name__.removeprefix("patched_"))
        return function if wrapped is None else wrapped.cell_contents
    disabled = function.__dict__.get("_torchdynamo_orig_callable")
    if disabled is not None and (disabled.__module__ or "").startswith("torch.optim."):
        return disabled  # torch._dynamo disables methods of PyTorch's optimizers when it is loaded
    region = function.__dict__.get("__marked_compile_region_fn__")  # torch.compiler.nested_compile_region: inlined
    return uncompiled(function) if region is None else untagged(region)


def uncompiled(model: Any) -> Any:
    """What torch.compile was given to make ``model``; ``model`` itself if it is of no such making.

    ``_torchdynamo_orig_callable``, ``_orig_mod``: without them a function that torch.compile made would call its
    compiler from within ours. Those that torch.compiler.disable made stay: they carry ``_torchdynamo_disable``.
    ``__marked_compile_region_fn__``: the same for nested_compile_region; without it such a function breaks the graph.
    Tried: 2.13.
    """
    if type(model).__module__ == "torch._dynamo.eval_frame" and isinstance(model, torch.nn.Module):
        return model._orig_mod
    known = getattr(model, "__dict__", None) if type(model) is FunctionType else None
    if known is None or known.get("_torchdynamo_disable"):
        return model
    given = known.get("_torchdynamo_orig_callable", known.get("__marked_compile_region_fn__"))
    return model if given is None else uncompiled(given)


def hide_from_dynamo(code: CodeType) -> None:
    """Frames of ``code``, and of all that they call, are not for torch.compile: they run as they are.

    ``set_code_exec_strategy``: without it a function of ours that is called from one under torch.compile would have
    its compiler and its generated code compiled. Tried: 2.13.
    """
    frames = torch._C._dynamo.eval_frame
    frames.set_code_exec_strategy(code, frames._FrameExecStrategy(frames._FrameAction.SKIP, frames._FrameAction.SKIP))
