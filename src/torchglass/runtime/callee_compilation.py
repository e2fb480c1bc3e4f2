"""Functions called from plain Python inside compiled code: which of them become compiled functions of their own.

    def f(x):                      # entry code of f, where capture could not look into `helper`:
        y = helper(x)              #     with compiled_calls:
        return y * 2               #         result = helper(x)

``compiled_calls`` is a native region (csrc/frame_hook.cpp): inside, the frame of ``helper`` is answered by an entry of
its own, so that what breaks in it costs no more than that. ``Callees`` says what the region asks: compile this one?
"""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

import torch

from .. import _native, torch_compat
from ..marks.markers import DISABLED
from .guards import global_state

Entry = tuple[Callable[..., Any], tuple[Any, ...]]  # what to call, and what its guards fetched

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_native.forget_other_threads)

# A function that was called so often without a tensor among its arguments is left alone.
CALLS_WITHOUT_TENSORS = 8

_COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>")  # functions of their own before 3.12


class Callees:
    """The functions called from the regions of one compiled function and of what continues it.

    ``make`` returns a new compiled function for a function, ``entry_for`` an entry for a call of one, or None where it
    cannot be compiled, ``is_idle`` whether compiling it has been of no use.
    """

    def __init__(
        self,
        make: Callable[[FunctionType], _native.CompiledFunction | None],
        entry_for: Callable[[_native.CompiledFunction, tuple[Any, ...]], Entry | None],
        is_idle: Callable[[_native.CompiledFunction], bool],
    ) -> None:
        self.make, self.entry_for, self.is_idle = make, entry_for, is_idle
        self.without_tensors: dict[CodeType, int] = {}
        self.region = _native.Region(self.answer)

    def clear(self) -> None:
        """Forget all functions."""
        self.region.clear()
        self.without_tensors.clear()

    def answer(
        self, function: FunctionType, parameters: tuple[Any, ...], compiled: _native.CompiledFunction | None
    ) -> Entry | None:
        """What runs in place of this call's frame; None: the frame."""
        code = function.__code__
        if compiled is None and (DISABLED in function.__dict__ or not self._is_wanted(code, parameters)):
            return None
        if not can_compile_now():
            return None
        if compiled is None:
            compiled = self.make(function)
            if compiled is None:  # nobody has the function any more from which it is called
                return None
            self.region.add(function, compiled)
        entry = self.entry_for(compiled, parameters)
        if compiled.disabled or self.is_idle(compiled):
            self.region.skip(code)
        return entry

    def _is_wanted(self, code: CodeType, parameters: tuple[Any, ...]) -> bool:
        is_user = not is_library(code.co_filename) or _is_container_forward(code, parameters)
        if not is_user or code.co_name in _COMPREHENSIONS:
            self.region.skip(code)
            return False
        if any(map(_leads_to_tensors, parameters)):
            return True
        calls = self.without_tensors[code] = self.without_tensors.get(code, 0) + 1
        if calls >= CALLS_WITHOUT_TENSORS:
            del self.without_tensors[code]
            self.region.skip(code)
        return False


def watched() -> bool:
    """Whether a mode, a function transform or a tracer wants to see each operation as it happens, and none of the
    compiler's; or is at work on one, so that PyTorch is half switched off.
    """
    state = global_state()
    functions = any(not isinstance(key, torch.device) for key in state.function_modes)
    modes = functions or bool(state.dispatch_modes)
    return (
        modes
        or torch_compat.in_dispatch()
        or torch_compat.in_function_transform()
        or torch_compat.tracing_state() is not None
    )


def can_compile_now() -> bool:
    """No mode, function transform, tracer or backward pass sees the operations: capture would hide them from it."""
    state = _native.global_state()
    return not (state[-1] or state[-2]) and not torch_compat.is_watched_by_tracer()


# Their own code is not the user's, and most of it works on Python objects.
_LIBRARIES = tuple(
    os.path.join(path, "")
    for path in (
        *{sysconfig.get_path(name) for name in ("stdlib", "platstdlib")},
        os.path.dirname(torch.__file__),
        os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
    )
)
_SITE_PACKAGES = tuple(os.path.join(sysconfig.get_path(name), "") for name in ("purelib", "platlib"))
_TORCH = os.path.join(os.path.dirname(torch.__file__), "")


def is_library(filename: str) -> bool:
    """Whether code is the standard library's, PyTorch's or ours; "<frozen ...>" and generated methods count."""
    if filename.startswith(_SITE_PACKAGES):
        return filename.startswith(_LIBRARIES[-2:])
    return filename.startswith(_LIBRARIES) or filename.startswith(("<frozen", "<string>", "<attrs", "<__array"))


def _is_container_forward(code: CodeType, parameters: tuple[Any, ...]) -> bool:
    """Whether this is ``forward`` of one of PyTorch's modules that calls other modules: Sequential, Transformer."""
    return (
        code.co_name == "forward"
        and code.co_filename.startswith(_TORCH)
        and bool(parameters)
        and isinstance(parameters[0], torch.nn.Module)
        and bool(parameters[0]._modules)
    )


def _leads_to_tensors(value: Any, depth: int = 3) -> bool:
    """Whether a value is or plainly holds tensors or modules; looks at the first items of large containers only."""
    if isinstance(value, (torch.Tensor, torch.nn.Module)):
        return True
    if depth == 0:
        return False
    if type(value) in (tuple, list):
        return any(_leads_to_tensors(item, depth - 1) for item in value[:8])
    if isinstance(value, dict):
        return any(_leads_to_tensors(item, depth - 1) for _, item in zip(range(8), dict.values(value)))
    attributes = getattr(value, "__dict__", None) if not isinstance(value, type) else None
    if type(attributes) is dict:
        return any(_leads_to_tensors(item, depth - 1) for _, item in zip(range(16), attributes.values()))
    return False
