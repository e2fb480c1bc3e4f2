"""Operators that autograd cannot be asked about ahead of time: they break the graph.

    x // 2                        # has no derivative, which eager's backward says: where the result leaves the graph
    torch.ops.mine.scaled(x)      # Library.define and a kernel, no more: eager differentiates what the kernel does
    torch.ops.mine.grouped(x, n)  # the backward given to register_autograd reads ``n.tolist()``

Input: a call that ran on fake tensors, and its result there. Output: nothing, or Unsupported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ... import torch_compat
from ...aten.nested import tensors_in
from ...records.tensor_spec import is_continuous
from ..errors import Unsupported
from ..graph.arguments import fake_of
from ..graph.autograd_history import no_derivative
from ..graph.builder import GraphBuilder
from ..protocol import Machine, Value

OF_PYTORCH = frozenset(["aten", "prim", "prims"])
"""Namespaces of operators that have derivatives which read no data, or cannot be differentiated."""


@dataclass
class Leaves:
    break_here: bool = False  # whether what must not leave the graph ends it: see LeafLeaves


def check(m: Machine, target: Any, args: list[Value], kwargs: dict[str, Value], result: Any) -> None:
    """Raises Unsupported where a graph with this call in it cannot be differentiated as eager does it."""
    if not torch.is_grad_enabled():  # nothing has a new history, and views that were written to refuse to tell theirs
        return
    _note_missing(m, target, result)
    operators = _of_the_program(target)
    if not operators:
        return
    given = [t for t in tensors_in(tuple(map(fake_of, (*args, *kwargs.values())))) if t.requires_grad]
    if not given:
        return
    if not all(map(torch_compat.has_derivative, operators)):
        if result is None or any(is_continuous(tensor.dtype) for tensor in tensors_in(result)):
            raise Unsupported(
                f"`{target}`, which has no derivative of its own: eager differentiates what its kernel does",
                "give it one by torch.library.register_autograd",
            )
    elif _reads_data(m, given, [t for t in tensors_in(result) if t.grad_fn is not None]):
        raise Unsupported(
            f"`{target}`, whose derivative needs the data of a tensor",
            "make what its backward does an operator too, with a fake that does without",
        )


def _note_missing(m: Machine, target: Any, result: Any) -> None:
    for tensor in tensors_in(result):
        if tensor.grad_fn is not None and torch_compat.lacks_derivative(tensor.grad_fn):
            name = getattr(target, "__name__", str(target))
            if m.state(Leaves).break_here:
                raise Unsupported(*no_derivative(name))
            m.state(GraphBuilder).without_derivative[tensor.grad_fn] = name


def _of_the_program(target: Any) -> list[Any]:
    overloads = [target]
    if isinstance(target, torch_compat.OpOverloadPacket):
        overloads = [getattr(target, overload) for overload in target.overloads()]
    operators = [one for one in overloads if isinstance(one, torch_compat.OpOverload)]
    return operators if any(one.namespace not in OF_PYTORCH for one in operators) else []


def _reads_data(m: Machine, given: Sequence[torch.Tensor], results: Sequence[torch.Tensor]) -> bool:
    """Whether the formula that is registered for the operator fails on tensors without data. What else it raises is
    eager's to raise in backward.
    """
    if not results:
        return False
    try:
        with m.state(GraphBuilder).fake_mode, torch.autograd.set_multithreading_enabled(False):
            gradients = [torch.empty_like(result) for result in results]
            torch.autograd.grad(results, given, gradients, retain_graph=True, allow_unused=True)
    except Exception as error:
        return torch_compat.needs_data(error)
    return False
