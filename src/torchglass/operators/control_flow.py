"""Operators that call sub-graphs, as generated files run them: Python's own control flow around the graphs' functions.

    cond(gt, cond_true_0, cond_false_0, (x, y))      one of the two graphs
    while_loop(cond_fn_0, body_fn_0, (i, x), (w,))   as often as the first graph says
    map_impl(map_body_0, (xs,), (w,))                for each row
    scan(scan_combine_fn_0, (init,), (xs,), (w,))    for each row, carrying on what comes first

And ``functionalized(operator, x)`` is a custom operator that writes to ``x``, on a copy.

Each returns a flat tuple of tensors. To autograd a call is one node, as in PyTorch: every floating-point result depends
on every operand, which gets zeros where the part that ran did not read it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..records.tensor_spec import is_continuous

Graph = Callable[..., Sequence[Any]]
Tensors = tuple[torch.Tensor, ...]


def cond(pred: Any, true_graph: Graph, false_graph: Graph, operands: Sequence[torch.Tensor]) -> Tensors:
    return _as_one_node(true_graph if pred else false_graph, operands)


def while_loop(
    cond_graph: Graph, body_graph: Graph, carried: Sequence[torch.Tensor], others: Sequence[torch.Tensor]
) -> Tensors:
    count = len(carried)

    def loop(*operands: torch.Tensor) -> Sequence[torch.Tensor]:
        values, rest = operands[:count], operands[count:]
        if not cond_graph(*values, *rest)[0]:
            return [value.clone() for value in values]
        values = tuple(body_graph(*values, *rest))
        while cond_graph(*values, *rest)[0]:
            values = tuple(body_graph(*values, *rest))
        return values

    return _as_one_node(loop, (*carried, *others))


def while_loop_backward(
    cond_graph: Graph,
    body_graph: Graph,
    backward_graph: Graph,
    carried: Sequence[torch.Tensor],
    others: Sequence[torch.Tensor],
    summed: Sequence[torch.Tensor],
    gradients: Sequence[torch.Tensor],
) -> Tensors:
    """Gradients of what is carried, then of ``summed``: those of the others that have one. The loop runs once more, to
    know what each round began with; ``backward_graph`` takes that, ``others`` and the gradients of what the round gave.
    """
    values, rounds = tuple(carried), []
    tangents, count = tuple(gradient.clone() for gradient in gradients), len(gradients)
    while cond_graph(*values, *others)[0]:
        rounds.append(values)
        values = tuple(body_graph(*values, *others))
    totals = tuple(torch.zeros_like(other, memory_format=torch.contiguous_format) for other in summed)
    for began in reversed(rounds):
        found = tuple(backward_graph(*began, *others, *tangents))
        tangents = found[:count]
        totals = tuple(total + one for total, one in zip(totals, found[count:]))
    return (*tangents, *totals)


def map_impl(graph: Graph, rows: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> Tensors:
    count = len(rows)

    def each(*operands: torch.Tensor) -> Sequence[torch.Tensor]:
        rest = operands[count:]
        return _stacked([graph(*row, *rest) for row in zip(*operands[:count])])

    return _as_one_node(each, (*rows, *others))


def scan(
    graph: Graph, init: Sequence[torch.Tensor], rows: Sequence[torch.Tensor], others: Sequence[torch.Tensor]
) -> Tensors:
    count, ends = len(init), len(init) + len(rows)

    def steps(*operands: torch.Tensor) -> Sequence[torch.Tensor]:
        carried, rest, given = operands[:count], operands[ends:], []
        for row in zip(*operands[count:ends]):
            results = tuple(graph(*carried, *row, *rest))
            carried = results[:count]
            given.append(results[count:])
        return [*carried, *_stacked(given)]

    return _as_one_node(steps, (*init, *rows, *others))


def _stacked(results: Sequence[Sequence[torch.Tensor]]) -> list[torch.Tensor]:
    return [torch.stack(parts) for parts in zip(*results)]


def functionalized(operator: Any, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
    """An operator that writes to arguments, on copies of these: its results, then the copies."""
    copies: list[torch.Tensor] = []

    def copied(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            copies.append(value.clone())
            return copies[-1]
        return [copied(item) for item in value] if isinstance(value, (list, tuple)) else value

    names = written_names(operator)
    parameters = [parameter.name for parameter in operator._schema.arguments]
    given = [copied(value) if name in names else value for name, value in zip(parameters, args)]
    named = {name: copied(value) if name in names else value for name, value in kwargs.items()}
    results = operator(*given, **named)
    return (*(() if results is None else results if isinstance(results, tuple) else (results,)), *copies)


def written_names(operator: Any) -> frozenset[str]:
    """Names of the parameters that an operator writes to."""
    written = (p for p in operator._schema.arguments if p.alias_info is not None and p.alias_info.is_write)
    return frozenset(parameter.name for parameter in written)


# --- one node to autograd ---------------------------------------------------------------------------------------------
def _as_one_node(graph: Graph, operands: Sequence[torch.Tensor]) -> Tensors:
    if not torch.is_grad_enabled() or not any(operand.requires_grad for operand in operands):
        return tuple(graph(*operands))
    held = _Together.apply(*operands)
    return tuple(
        result if result.requires_grad or not is_continuous(result.dtype) else _Depending.apply(result, *held)
        for result in graph(*held)
    )


class _Together(torch.autograd.Function):
    """The tensors themselves. Once one of them gets a gradient all do: zeros, where nothing read them."""

    @staticmethod
    def forward(ctx: Any, *tensors: torch.Tensor) -> Tensors:
        ctx.mark_non_differentiable(*(tensor for tensor in tensors if not is_continuous(tensor.dtype)))
        return tensors

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Tensors:
        return gradients


class _Depending(torch.autograd.Function):
    """A tensor that depends on others by name only."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(*others)
        return tensor.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        zeros = (torch.zeros_like(other) if is_continuous(other.dtype) else None for other in ctx.saved_tensors)
        return None, *zeros
