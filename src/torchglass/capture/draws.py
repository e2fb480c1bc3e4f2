"""Whether an operation of the graph draws random numbers: one that does is run even if nothing reads its result.

``noise = F.dropout(x)`` that is never used still moves eager's generator on, and with it all that is drawn later.
"""

from __future__ import annotations

import operator
from typing import Any

import torch.fx
from torch.fx.node import map_arg

from ..kernel_writes import is_random
from ..torch_compat import DispatchMode

_NEVER = frozenset({operator.getitem, getattr})


class Watch(DispatchMode):
    """Notes whether a random operator is called."""

    seen = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen |= is_random(func)
        return func(*args, **(kwargs or {}))


def draws(node: torch.fx.Node, fake_mode: Any) -> bool:
    """Run the operation once more on fake tensors and look. What cannot be run so counts as drawing."""
    if node.op not in ("call_function", "call_method") or node.target in _NEVER:
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
    return watch.seen
