"""Tracing below autograd: dispatch modes, functionalization, and what names a graph's nodes."""

from __future__ import annotations

import _thread
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import FrameType
from typing import Any

import torch

# Tried: 2.11, 2.13. TorchDispatchMode: a mode that sees every ATen call. Without it autodiff has no graph to write.
# torch._to_functional_tensor, _from_functional_tensor, _is_functional_tensor, _enable/_disable_functionalization,
# _sync, _functionalize_*: torch's C++ functionalization, which turns in-place operations into pure ones below autograd.
# Without it writes and views would stay in the graphs. _ExcludeDispatchKeyGuard: leave it inside a kernel of ours.
# torch._C._current_autograd_node, torch._C._autograd._get_sequence_nr: which forward operation a backward operation
# belongs to. Without them backward nodes lose the user's file and line. torch._C._AutoDispatchBelowADInplaceOrView:
# run a compiled graph without autograd's bookkeeping. Without it an operation   takes 1 µs longer, and results that
# are views inside would be views outside, which must not be written to.
# torch._C._autograd._top_saved_tensors_default_hooks: whether the user's saved-tensor hooks are active, which must
# not   see the tensors of a trace. torch._C._set_view_replay_enabled: gradients of writes to views are views again,
# not as_strided. torch.fx._lazy_graph_module: a GraphModule that generates its own code when first asked. We run our
# rendering of the   graph, so that code is rarely needed and costs 30 ms for 700 nodes.
# torch._C._DisableTorchDispatch: read a number out of a real tensor while fake tensors are on.
from torch.fx._lazy_graph_module import _LazyGraphModule
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes


class DispatchMode(TorchDispatchMode):
    """A dispatch mode that torch does not wrap in ``torch._disable_dynamo``, which would import torch._dynamo."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


@contextmanager
def warnings_heard(hear: Callable[[Any, Any, FrameType, int], None]) -> Iterator[None]:
    """What Python code of PyTorch's warns of on this thread goes to ``hear``: message, category, frame, stacklevel."""
    real, thread = warnings.warn, _thread.get_ident()

    def warn(message: Any, category: Any = None, stacklevel: int = 1, source: Any = None, **more: Any) -> None:
        frame = sys._getframe(1)
        if _thread.get_ident() == thread and frame.f_globals.get("__name__", "").partition(".")[0] == "torch":
            hear(message, category, frame, stacklevel)
        else:
            real(message, category, stacklevel + 1, source, **more)

    warnings.warn = warn
    try:
        yield
    finally:
        warnings.warn = real


below_autograd: Callable[[], Any] = torch._C._AutoDispatchBelowADInplaceOrView
current_autograd_node: Callable[[], Any] = torch._C._current_autograd_node
autograd_sequence_number: Callable[[], int] = torch._C._autograd._get_sequence_nr
wrap_functional: Callable[[torch.Tensor], torch.Tensor] = torch._to_functional_tensor


@contextmanager
def functionalization() -> Iterator[None]:
    """Functionalize everything inside, tensor factories included; views stay views."""
    torch._enable_functionalization(reapply_views=True)
    try:
        yield
    finally:
        torch._disable_functionalization()


@contextmanager
def without_functionalization() -> Iterator[None]:
    """Inside ``functionalization()``: make plain (fake) tensors for a moment."""
    torch._disable_functionalization()
    try:
        yield
    finally:
        torch._enable_functionalization(reapply_views=True)


# Tried: 2.13. For a moment no dispatch mode is active. Without it a graph within a graph could not be traced while the
# outer one is.
without_dispatch_modes: Callable[[], Any] = _disable_current_modes


@contextmanager
def view_replay() -> Iterator[None]:
    """Autograd undoes writes to views through the views' own functions."""
    before = torch._C._is_view_replay_enabled()
    torch._C._set_view_replay_enabled(True)
    try:
        yield
    finally:
        torch._C._set_view_replay_enabled(before)


def graph_module(root: dict[str, Any], graph: torch.fx.Graph, name: str) -> torch.fx.GraphModule:
    """A ``torch.fx.GraphModule`` that generates its Python code when it is first needed."""
    return _LazyGraphModule(root, graph, name)


def is_zero_tensor(tensor: torch.Tensor) -> bool:
    """Whether a tensor is zeros without memory, as autograd makes for what cannot have a gradient.

    ``_is_zerotensor``: without it kernels would read memory that is not there. Tried: 2.11, 2.13.
    """
    return tensor._is_zerotensor()


def has_its_numbers(tensor: torch.Tensor) -> bool:
    """Whether a tensor's memory holds its numbers: not zeros without memory, nor negatives (``z.conj().imag``)."""
    return not (tensor.is_neg() or is_zero_tensor(tensor))


def number_of(tensor: torch.Tensor) -> Any:
    """The number in a real tensor of one element, whatever modes are active."""
    with torch._C._DisableTorchDispatch():  # without it a fake tensor mode refuses real tensors
        return tensor.item()


is_functional: Callable[[torch.Tensor], bool] = torch._is_functional_tensor


def unwrap_functional(wrapper: torch.Tensor) -> torch.Tensor:
    """The value a functional tensor stands for now, pending writes included."""
    torch._sync(wrapper)
    return torch._from_functional_tensor(wrapper)


def replace_functional(wrapper: torch.Tensor, value: torch.Tensor) -> None:
    """From now on a functional tensor stands for ``value``, and so do those that share its memory.

    ``_functionalize_replace``, ``_functionalize_commit_update``: without them the result of a pure operation could not
    be given the layout of the tensor that was written to. Tried: 2.11, 2.13.
    """
    torch._functionalize_replace(wrapper, value)
    torch._functionalize_commit_update(wrapper)
    torch._functionalize_sync(wrapper)


def below_functionalization() -> Any:
    """Inside a functionalization kernel: call operators on unwrapped values."""
    return torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.Functionalize))


def mark_hidden_write(wrapper: torch.Tensor) -> None:
    """The last write to a functional tensor is one that eager hides from autograd: no version counter moves."""
    torch._functionalize_mark_mutation_hidden_from_autograd(wrapper)


def functional_storage_changed(wrapper: torch.Tensor) -> bool:
    """Whether the program gave a tensor other memory in place (``set_``, ``.data = ...``)."""
    return torch._functionalize_was_storage_changed(wrapper)


def functional_written(wrapper: torch.Tensor) -> bool:
    """Whether the memory that a functional tensor shows has been written to."""
    return torch._functionalize_mutation_counter(wrapper) > 0


def functional_writes_all_hidden(wrapper: torch.Tensor) -> bool:
    """Whether every write to a functional tensor happened behind autograd's back (no version counter moved)."""
    return torch._functionalize_are_all_mutations_hidden_from_autograd(wrapper)


def saved_tensor_hooks_active() -> bool:
    """Whether the user (or ``torch.utils.checkpoint``) is told of tensors that autograd saves."""
    return saved_tensor_hooks() is not None


def saved_tensor_hooks() -> Any:
    """The hooks that were entered last, None where there are none."""
    return torch._C._autograd._top_saved_tensors_default_hooks(False)


push_saved_tensor_hooks = torch._C._autograd._push_saved_tensors_default_hooks


def shielded_saved_tensor_hooks() -> Any:
    """A context in which the user's saved-tensor hooks are not called (they would get tensors of the trace)."""
    if not saved_tensor_hooks_active():
        return nullcontext()
    return torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor)


def in_forward_mode() -> bool:
    """Whether we are within ``torch.autograd.forward_ad.dual_level``.

    ``_current_level``: PyTorch has no public question; without it compiled graphs drop the tangents. Tried: 2.11, 2.13.
    """
    return torch.autograd.forward_ad._current_level >= 0


def ambient_autocast() -> tuple[str, ...]:
    """Device types whose autocast is on right now."""
    if not torch.is_autocast_enabled("cpu") and not torch.is_autocast_enabled("cuda"):
        return ()
    return tuple(kind for kind in ("cpu", "cuda") if torch.is_autocast_enabled(kind))


# Modules in which a graph's callables are found by name. Without them captured.py would show functions written in C as
# objects of unknown origin, and would not run alone. Tried: 2.13.
PRIVATE_HOMES: tuple[tuple[str, Any], ...] = (
    ("torch._C._nn", torch._C._nn),
    ("torch._C", torch._C),
    ("torch._C._special", torch._C._special),
    ("torch._C._linalg", torch._C._linalg),
    ("torch._C._fft", torch._C._fft),
    ("torch", torch._C._VariableFunctions),
)
