"""What the tests of guard tables share: a module, its guards, and tables that remember."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from torchglass import _native
from torchglass.records.guards import Guard, TensorMeta
from torchglass.records.origin import Origin
from torchglass.records.sources import (
    InstanceDict,
    Item,
    Local,
)
from torchglass.runtime.guards import (
    build_table,
    evaluate,
    global_state,
    scope_of,
)


class Net(nn.Module):
    """A module in a module, with a constant, a list and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.register_buffer("b", torch.zeros(3))
        self.scale = 3
        self.sizes = [1, 2]

    def forward(self, x):
        return self.fc(x) * self.scale


SELF, X = Local("self"), Local("x")
DICT = InstanceDict(SELF)
FC = Item(Item(DICT, "_modules"), "fc")
WEIGHT = Item(Item(InstanceDict(FC), "_parameters"), "weight")
BUFFER = Item(Item(DICT, "_buffers"), "b")
SIZES = Item(DICT, "sizes")


def net_guards(net: Net, x: torch.Tensor) -> list[Guard]:
    return [
        Guard(SELF, "type", Net, "the method's object", Origin("/app/net.py", 12, "forward")),
        Guard(Item(DICT, "scale"), "constant", 3, "is a factor"),
        Guard(FC, "type", nn.Linear),
        Guard(WEIGHT, "tensor", TensorMeta.of(net.fc.weight)),
        Guard(BUFFER, "tensor", TensorMeta.of(net.b)),
        Guard(SIZES, "length", 2),
        Guard(Item(SIZES, 0), "constant", 1),
        Guard(X, "tensor", TensorMeta.of(x)),
        Guard(None, "global_state", global_state()),
    ]


# Python 3.13.0 does not tell of every change of a dict: there a table evaluates its guards on every call.
remembering = pytest.mark.skipif(
    not build_table([], [], Net.forward).remember, reason="this Python's dicts have no versions to remember"
)


def remembered(net: Net, x: torch.Tensor, guards: list[Guard] | None = None) -> _native.GuardTable:
    table = build_table(guards or net_guards(net, x), [WEIGHT, BUFFER], Net.forward)
    for _ in range(3):
        fetched = table.check((net, x))
        assert fetched is not None and fetched[0] is net.fc.weight and fetched[1] is net.b
    assert table.remembers == table.remember and table.evaluations == (2 if table.remember else 3)
    return table


def function_of(**globals: Any) -> Callable[..., Any]:
    scope = dict(globals)
    exec("def f(a): return None", scope)
    return scope["f"]


def check_one(guard: Guard, value: Any, function: Callable[..., Any] | None = None) -> bool:
    """One answer from Python, from a table evaluated and from a table that remembers."""
    function = function or function_of()
    table = build_table([guard], [], function)
    answers = [table.check((value,)) is not None for _ in range(4)]
    answers.append(evaluate(guard, scope_of(function, (value,))))
    assert len(set(answers)) == 1
    return answers[0]
