"""Whether an operation of the graph is run even if nothing reads its result.

``noise = F.dropout(x)`` that is never used still moves eager's generator on, and with it all that is drawn later.
``x.gather(0, places)`` raises where a place is not there, and ``one_hot`` where a class is not.
"""

from __future__ import annotations

import operator
from typing import Any

import torch.fx
from torch.fx.node import map_arg

from ...aten.dtypes import looks_up
from ...aten.writes import is_random
from ...torch_compat import DispatchMode

# What looks at the numbers that it is given, and not at those of fake tensors.
_LOOKING = frozenset([torch.nn.functional.one_hot])


class Watch(DispatchMode):
    """Notes whether an operator is called that draws random numbers, or looks for places."""

    draws = looks = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.draws |= is_random(func)
        self.looks |= looks_up(func)
        return func(*args, **(kwargs or {}))


def must_run(node: torch.fx.Node, fake_mode: Any) -> bool:
    """Run the operation once more on fake tensors and look. What cannot be run so counts as one that must."""
    if node.op not in ("call_function", "call_method") or node.target is getattr:
        return False
    if node.target in _LOOKING:
        return True
    if node.target is operator.getitem and not any(isinstance(a, torch.fx.Node) for a in _flat(node.args[1])):
        return False
    watch = Watch()
    try:
        args, kwargs = map_arg((node.args, node.kwargs), lambda read: read.meta["val"])
        call = getattr(args[0], node.target) if node.op == "call_method" else node.target
        rest = args[1:] if node.op == "call_method" else args
        with fake_mode, watch, torch.no_grad():
            call(*rest, **kwargs)
    except Exception:
        return True
    return watch.draws or watch.looks


def _flat(index: Any) -> tuple[Any, ...]:
    return tuple(index) if isinstance(index, (tuple, list)) else (index,)
