"""The only file that touches PyTorch's private modules.

Each private name says what breaks without it and which versions were tried, so that a new PyTorch release is one file to
look at.
"""

from __future__ import annotations

import torch

# --- capture: fake tensors -------------------------------------------------------------------------------------------
# FakeTensorMode, FakeTensor: tensors with metadata and no data. Without them capture cannot know shapes. Tried: 2.11, 2.13.
# The three exceptions: what a fake operation raises when it would need data; without them such operations would look like
# errors of the user's program instead of breaking the graph. Tried: 2.11, 2.13.
from torch._subclasses.fake_tensor import (  # noqa: E402
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
)

NEEDS_DATA: tuple[type[Exception], ...] = (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedOperatorException,
    UnsupportedFakeTensorException,
)


def new_fake_mode() -> FakeTensorMode:
    """One fake tensor mode, for one capture and the stages after it."""
    return FakeTensorMode(allow_non_fake_inputs=False)


def fake_of(mode: FakeTensorMode, real: torch.Tensor) -> torch.Tensor:
    """A fake tensor with the metadata of ``real``.

    Plain leaf tensors are built directly (14 µs; ``from_tensor`` takes 125); views that require grad, conjugated and
    sparse tensors go the long way.
    """
    plain = (
        real.layout is torch.strided
        and (real.is_leaf or not real.requires_grad)
        and not real.is_conj()
        and not real.is_neg()
        and not real.is_inference()
        and not real.is_quantized
    )
    if not plain:
        return mode.from_tensor(real, static_shapes=True)
    meta = torch.empty_strided(real.shape, real.stride(), dtype=real.dtype, device="meta")
    fake = FakeTensor(mode, meta, real.device)
    return fake.requires_grad_() if real.requires_grad else fake


# --- autodiff: tracing below autograd ----------------------------------------------------------------------------------
# TorchDispatchMode: a mode that sees every ATen call. Without it autodiff has no graph to write. Tried: 2.11, 2.13.
# torch._to_functional_tensor, _from_functional_tensor, _enable/_disable_functionalization, _sync, _functionalize_*:
# torch's C++ functionalization, which turns in-place operations into pure ones below autograd. Without it writes and
# views would stay in the graphs. (Its Python twin FunctionalTensorMode does the same at four times the cost.)
# torch._C._current_autograd_node, torch._C._autograd._get_sequence_nr: which forward operation a backward operation
# belongs to. Without them backward nodes lose the user's file and line.
# torch._C._AutoDispatchBelowADInplaceOrView: run a compiled graph without autograd's bookkeeping. Without it an operation
# takes 1 µs longer, and results that are views inside would be views outside, which must not be written to.
# torch._C._autograd._top_saved_tensors_default_hooks: whether the user's saved-tensor hooks are active, which must not see
# the tensors of a trace. torch._C._set_view_replay_enabled: gradients of writes to views are views again, not as_strided.
from collections.abc import Callable, Iterator  # noqa: E402
from contextlib import contextmanager, nullcontext  # noqa: E402
from typing import Any  # noqa: E402

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402


class DispatchMode(TorchDispatchMode):
    """A dispatch mode that torch does not wrap in ``torch._disable_dynamo``, which would import torch._dynamo (1.2 s)."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


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


@contextmanager
def view_replay() -> Iterator[None]:
    """Autograd undoes writes to views through the views' own functions."""
    before = torch._C._is_view_replay_enabled()
    torch._C._set_view_replay_enabled(True)
    try:
        yield
    finally:
        torch._C._set_view_replay_enabled(before)


def number_of(tensor: torch.Tensor) -> Any:
    """The number in a real tensor of one element, whatever modes are active."""
    with torch._C._DisableTorchDispatch():  # without it a fake tensor mode refuses real tensors
        return tensor.item()


def unwrap_functional(wrapper: torch.Tensor) -> torch.Tensor:
    """The value a functional tensor stands for now, pending writes included."""
    torch._sync(wrapper)
    return torch._from_functional_tensor(wrapper)


def below_functionalization() -> Any:
    """Inside a functionalization kernel: call operators on unwrapped values."""
    return torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.Functionalize))


def mark_hidden_write(wrapper: torch.Tensor) -> None:
    """The last write to a functional tensor is one that eager hides from autograd: no version counter moves."""
    torch._functionalize_mark_mutation_hidden_from_autograd(wrapper)


def functional_storage_changed(wrapper: torch.Tensor) -> bool:
    """Whether the program gave a tensor other memory in place (``set_``, ``.data = ...``)."""
    return torch._functionalize_was_storage_changed(wrapper)


def functional_writes_all_hidden(wrapper: torch.Tensor) -> bool:
    """Whether every write to a functional tensor happened behind autograd's back (no version counter moved)."""
    return torch._functionalize_are_all_mutations_hidden_from_autograd(wrapper)


def functional_writes_all_untracked(wrapper: torch.Tensor) -> bool:
    """Whether every write to a functional tensor happened under no_grad (or behind autograd's back)."""
    no_grad = torch._functionalize_are_all_mutations_under_no_grad_or_inference_mode(wrapper)
    return no_grad or functional_writes_all_hidden(wrapper)


def shielded_saved_tensor_hooks() -> Any:
    """A context in which the user's saved-tensor hooks are not called (they would get tensors of the trace)."""
    if torch._C._autograd._top_saved_tensors_default_hooks(False) is None:
        return nullcontext()
    return torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor)


def ambient_autocast() -> tuple[str, ...]:
    """Device types whose autocast is on right now."""
    if not torch.is_autocast_enabled("cpu") and not torch.is_autocast_enabled("cuda"):
        return ()
    return tuple(kind for kind in ("cpu", "cuda") if torch.is_autocast_enabled(kind))
