"""What autograd's graph says of the tensors of a graph under construction: where gradients flow to, what was freed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch


def leaves_of(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The leaves that the gradient of ``tensor`` flows to."""
    leaves = (getattr(node, "variable", None) for node in history_of([tensor]))
    return [leaf for leaf in leaves if leaf is not None]


def history_of(tensors: Iterable[torch.Tensor]) -> Iterator[Any]:
    """The nodes of autograd's graph that the gradients of ``tensors`` flow through."""
    seen: set[Any] = set()
    waiting = [tensor.grad_fn for tensor in tensors]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        yield node
        waiting += [following for following, _ in node.next_functions]


def no_derivative(name: str) -> tuple[str, str]:
    """Why such an operator breaks the graph, and what to do instead."""
    return f"`{name}`, which has no derivative", "if none is needed, take its operand's `.detach()`"


FREES_HISTORY = (
    "torch.autograd.grad, which frees the history of what leaves the graph",
    "return what `.detach()` gives, or keep the history by `retain_graph=True`",
)
"""Why such a call breaks the graph, and what to do instead."""


def is_freed(node: Any) -> bool:
    """Whether a backward pass has freed what a node of autograd's saved."""
    for name in dir(node):
        if name.startswith("_saved_"):
            try:
                getattr(node, name)
            except RuntimeError:
                return True
    return False


def gradient_state(t: torch.Tensor) -> tuple[bool, Any]:
    """Whether a tensor wishes for a gradient, and what made it."""
    return t.requires_grad, t.grad_fn


def is_detached(t: torch.Tensor, before: tuple[bool, Any]) -> bool:
    """Whether a tensor that nothing wrote to lost its history, or its wish for a gradient."""
    required, history = before
    return (required and not t.requires_grad) or t.grad_fn is not history
