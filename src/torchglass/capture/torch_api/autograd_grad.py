"""``torch.autograd.grad`` inside a compiled function: one node, which asks the autograd graph of the nodes before it.

The fake tensors carry an autograd graph of their own, so the call runs on them as on real ones. It means the same only
where that graph is whole: a tensor that came in with a history outside the graph ends it.
"""

from __future__ import annotations

import torch

from ..errors import Unsupported, UserError
from ..graph.autograd_history import FREES_HISTORY
from ..graph.builder import GraphBuilder
from ..meanings.registry import handles
from ..protocol import Machine, Value
from ..torch_api.op_derivatives import Leaves
from ..values.constant import ConstantV
from ..values.containers import TupleV
from ..values.dicts import DictViewV
from ..values.iterators import IteratorV
from . import operations as tensor_ops


@handles(torch.autograd.grad)
def grad_(m, args, kwargs):
    """``torch.autograd.grad(outputs, inputs, ...)``."""
    for value in m.state(GraphBuilder).inputs:
        if value.real.grad_fn is not None:
            raise Unsupported("torch.autograd.grad where a tensor has a history outside the graph")
    if m.state(Leaves).break_here and not _keeps_history(m, args, kwargs):
        raise Unsupported(*FREES_HISTORY)
    # they may be any iterables, such as a module's parameters() or the values of a dictionary
    kinds = (IteratorV, DictViewV)
    args = [TupleV(m.listed(a)) if n < 2 and isinstance(a, kinds) else a for n, a in enumerate(args)]
    iterators = {k: v for k, v in kwargs.items() if k in ("outputs", "inputs") and isinstance(v, kinds)}
    kwargs = kwargs | {k: TupleV(m.listed(v)) for k, v in iterators.items()}
    try:
        return tensor_ops.call_function(m, torch.autograd.grad, args, kwargs)
    except UserError as error:
        # fakes may fail where real tensors do not
        raise Unsupported(f"torch.autograd.grad, which raises {error.value.python_type().__name__}") from None


def _keeps_history(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> bool:
    """Whether a call asks for the graph to be kept: by ``retain_graph``, else by ``create_graph``."""
    given = dict(zip(("outputs", "inputs", "grad_outputs", "retain_graph", "create_graph"), args)) | kwargs
    for name in ("retain_graph", "create_graph"):
        if name in given and not (isinstance(given[name], ConstantV) and given[name].as_constant() is None):
            return m.truth(given[name])
    return False
