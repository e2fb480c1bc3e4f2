"""``torch.inference_mode`` inside the function: two nodes of the graph, around what runs in it.

    with torch.inference_mode():     enter = enter_inference_mode(True)
        y = x * 2                    mul = x * 2                        # an inference tensor, as in eager
                                     exit = exit_inference_mode(enter)

The mode is entered for real while capturing, so the fakes made in it are inference tensors, and PyTorch's own rules say
what may be done with them. A graph that ends inside leaves the mode, and the entry enters it again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from ... import torch_compat
from ..errors import Unsupported
from ..graph.builder import GraphBuilder
from ..meanings.registry import handles
from ..protocol import Machine, Value
from ..values.constant import NONE
from ..values.methods import CallableV

if TYPE_CHECKING:
    import torch.fx


class InferenceV(Value):
    """The guard that ``torch.inference_mode`` enters: making it enters the mode, its ``__exit__`` leaves it."""

    cls = torch_compat.InferenceMode

    def __init__(self, mode: bool) -> None:
        self.mode = mode
        self.guard: Any = None
        self.node: torch.fx.Node | None = None
        self.before = self.after = torch_compat.Modes()

    def get_attr(self, m: Machine, name: str) -> Value:
        if name in ("__enter__", "__exit__"):
            return GuardMethodV(self, name)
        raise Unsupported(f"attribute `{name}` of torch.inference_mode's guard")

    def enter(self, m: Machine) -> None:
        if (
            type(m.state(GraphBuilder)) is not GraphBuilder
            or m.state(GraphBuilder).region is not None
            or self.node is not None
        ):
            raise Unsupported("torch.inference_mode in a function that is transformed or checkpointed")
        self.before = torch_compat.Modes()
        self.node = m.state(GraphBuilder).mark_mode(torch_compat.enter_inference_mode, (self.mode,), m.origin())
        self.guard = torch_compat.InferenceMode(self.mode)
        self.after = torch_compat.Modes()
        m.state(EnteredInference).guards.append(self)

    def leave(self, m: Machine) -> None:
        entered = m.state(EnteredInference).guards
        if not entered or entered[-1] is not self:
            raise Unsupported("leaving torch.inference_mode, which was not entered last")
        entered.pop()
        m.state(GraphBuilder).mark_mode(torch_compat.exit_inference_mode, (self.node,), m.origin())
        self.guard.__exit__(None, None, None)


@dataclass
class EnteredInference:
    guards: list[InferenceV] = field(default_factory=list)  # innermost last


class GuardMethodV(CallableV):
    def __init__(self, owner: InferenceV, name: str) -> None:
        self.owner = owner
        self.name = name

    def call(self, m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        (self.owner.enter if self.name == "__enter__" else self.owner.leave)(m)
        return NONE


@handles(torch_compat.InferenceMode)
def inference_guard(m, args, kwargs):
    return InferenceV(bool(args[0].as_constant()))


def left_for_real(m: Machine) -> None:
    """The capture is over: the modes that its program is still in are left."""
    entered = m.state(EnteredInference).guards
    while entered:
        entered.pop().guard.__exit__(None, None, None)
