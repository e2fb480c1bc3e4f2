"""Operators of ``torch.ops.higher_order`` around one call of a function: what that call does stands in the graph.

    wrap_with_set_grad_enabled(False, f, x)   ->   f's nodes, captured without gradients

``wrap``, ``wrap_with_autocast`` and the like are Python around the call, which is interpreted (polyfill_wrappers).
Others have a rule of their own for autograd, and are called here only where it gives what autograd gives by itself.
"""

from __future__ import annotations

import torch
import torch.fx

from ..errors import Unsupported
from ..meanings.registry import Polyfill, higher_order
from ..polyfills import contexts as polyfills
from ..polyfills import wrappers as polyfill_wrappers
from ..protocol import Machine, Value
from ..values.constant import ConstantV
from ..values.containers import TupleV
from ..values.instance import InstanceV
from .checkpoint import checkpoint
from .higher_order import bound, flattened, interpreted

for _name, _function in polyfill_wrappers.OPERATORS.items():
    higher_order(_name)(Polyfill(_function))


# --- without a derivative ---------------------------------------------------------------------------------------------
@higher_order("strict_mode")
def strict_mode(m, args, kwargs):
    function, operands = bound(("callable", "operands"), args, kwargs)
    return _without_derivative(m, "strict_mode", function, m.listed(operands))


@higher_order("hints_wrapper")
def hints_wrapper(m, args, kwargs):
    """The hints tell a compiler how to make code, and change no result."""
    function, operands, named, _ = bound(("body_fn", "args", "kwargs", "hints"), args, kwargs)
    if m.truth(named):
        raise Unsupported("hints_wrapper with keyword arguments")
    return _without_derivative(m, "hints_wrapper", function, m.listed(operands))


def _without_derivative(m: Machine, what: str, function: Value, operands: list[Value]) -> Value:
    """Eager runs these below autograd, and a backward through them raises."""
    _, tensors = flattened(m, TupleV(operands), f"the operands of {what}")
    if torch.is_grad_enabled() and any(tensor.fake.requires_grad for tensor in tensors):
        raise Unsupported(f"{what} of tensors that require grad, which has no derivative")
    return m.call(m.wrap(polyfills.without_gradients), [function, *operands], {})


# --- differentiated by their operands alone ---------------------------------------------------------------------------
@higher_order("invoke_quant")
@higher_order("invoke_quant_packed")
def invoke_quant(m, args, kwargs):
    """Keyword arguments say how a compiler is to make code of it. In eager the call is one node of autograd's graph,
    and its function must read nothing besides its operands to get one.
    """
    function, *operands = args
    tree, tensors = flattened(m, TupleV(operands), "the operands of invoke_quant")
    body = interpreted(m, function, tensors, tree, "invoke_quant")
    if torch.is_grad_enabled() and body.builder.lifted:
        raise Unsupported("invoke_quant of a function that reads a tensor from outside", "pass it in")
    return m.call(function, operands, {})


@higher_order("invoke_subgraph")
def invoke_subgraph(m, args, kwargs):
    """Outside torch.compile it can only be called where nothing is differentiated."""
    function, _, *operands = args
    return _without_derivative(m, "invoke_subgraph", function, operands)


# --- checkpoints ------------------------------------------------------------------------------------------------------
@higher_order("wrap_activation_checkpoint")
@higher_order("tag_activation_checkpoint")
def activation_checkpoint(m, args, kwargs):
    """``torch.utils.checkpoint`` of a graph module."""
    function = m.forced(args[0])
    if not (isinstance(function, InstanceV) and issubclass(function.cls, torch.fx.GraphModule)):
        raise Unsupported("a checkpoint operator on something else than a graph module")
    if "_checkpoint_context_fn" in getattr(function.real, "meta", {}):
        raise Unsupported("a checkpoint operator with a context_fn")
    return checkpoint(m, args, {**kwargs, "use_reentrant": ConstantV(False)})
