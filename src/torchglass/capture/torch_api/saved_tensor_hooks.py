"""Hooks for the tensors that autograd saves, entered inside: what runs within is eager's, for they see what is saved.

    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):   # the graph breaks here
        y = x.exp() * x                                            # the user's bytecode, to the end of the function

A graph saves other tensors than eager. ``save_on_cpu`` is known to give back what it gets: it is entered at a break and
what follows is compiled.
"""

from __future__ import annotations

import torch

from ... import torch_compat
from ..errors import EntersHooks, Unsupported
from ..meanings.registry import handles
from ..protocol import Machine, Value

REASON = "hooks for saved tensors, which see what eager saves"
HINT = "move what is to be compiled out of the `with`"


@handles(torch.autograd.graph.saved_tensors_hooks.__enter__)
def enter(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if args and args[0].python_type() is torch.autograd.graph.save_on_cpu:
        raise Unsupported("torch.autograd.graph.save_on_cpu", "enter it around the compiled function")
    raise EntersHooks(REASON, HINT)


@handles(torch_compat.push_saved_tensor_hooks)
def push(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    raise EntersHooks(REASON, HINT)
