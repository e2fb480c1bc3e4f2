"""The table of lowering rules: one row per ATen operator, filled by decorators that check themselves.

``@rule("native_layer_norm")`` registers ``fn(low, node, *args, **kwargs) -> View | tuple``; ``args`` are the node's own
with tensors replaced by Views. A rule that meets a case it does not cover raises ``NotLowered`` and the operator stays
an ATen call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Rule = Callable[..., Any]
RULES: dict[str, Rule] = {}


class NotLowered(Exception):
    """This use of an operator has no loops; it stays an ATen call."""


def add_rule(name: str, fn: Rule) -> None:
    """Fill one row. ``name`` is a packet (``add``) or an overload (``index.Tensor``) of ``torch.ops.aten``."""
    packet, _, overload = name.partition(".")
    if not hasattr(torch.ops.aten, packet):
        raise KeyError(f"no operator aten.{packet}")
    if overload and not hasattr(getattr(torch.ops.aten, packet), overload):
        raise KeyError(f"no overload aten.{name}")
    if name in RULES:
        raise KeyError(f"aten.{name} has a rule already: {RULES[name]}")
    RULES[name] = fn


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register a rule under each operator name."""

    def register(fn: Rule) -> Rule:
        for name in names:
            add_rule(name, fn)
        return fn

    return register


def find_rule(target: Any) -> Rule | None:
    """The rule of an OpOverload: its own overload's, else its packet's."""
    namespace, _, packet = target._schema.name.partition("::")
    if namespace != "aten":
        return None
    overload = target._schema.overload_name or "default"
    return RULES.get(f"{packet}.{overload}") or (None if "out" in overload.split("_") else RULES.get(packet))
