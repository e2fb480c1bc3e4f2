"""What a graph calls that is not PyTorch's own: custom operators and functions that ``allow_in_graph`` leaves whole.

Compiled code holds what they did on fake tensors and what their derivatives are. So they are described: by schema, and
by the digests of the Python that tracing runs. Kernels that run at each call are not: they are called as they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import FunctionType
from typing import Any

import torch

from ..records.kept_graph import NotKept
from ..torch_compat import OpOverload, OpOverloadPacket, definition_of, python_kernels
from .deep_digest import deep_digest
from .modules import is_versioned
from .values import encoded

_OF_DEFINITION = ("_init_fn", "_abstract_fn", "_backward_fn", "_setup_context_fn", "_vmap_fn")
_TRACED = ("Autograd", "Composite", "Functionalize", "ADInplaceOrView", "FuncTorch")
"""Dispatch keys whose kernels tracing runs; Python cannot ask which functions are registered there."""


def target_facts(target: Any) -> list[Any] | None:
    """The facts of a node's target; None for what is PyTorch's. Raises NotKept."""
    if isinstance(target, torch.library.CustomOpDef):
        return _of_definition(target)
    if isinstance(target, (OpOverload, OpOverloadPacket)):
        name = target._qualified_op_name if isinstance(target, OpOverloadPacket) else target._schema.name
        return None if name.partition("::")[0] in ("aten", "prims", "torchglass") else _of_operator(target, name)
    if isinstance(target, FunctionType) and not is_versioned(target.__module__ or ""):
        return [deep_digest(target)]
    return None


def _of_operator(target: Any, name: str) -> list[Any]:
    packet = target if isinstance(target, OpOverloadPacket) else target.overloadpacket
    schemas = [str(getattr(packet, overload)._schema) for overload in packet.overloads()]
    definition = definition_of(name)
    if definition is not None:
        return [*schemas, *_of_definition(definition)]
    keys, fake = python_kernels(name)
    traced = next((key for key in keys if key.startswith(_TRACED)), None)
    if traced is not None:
        raise NotKept(f"the operator {name} has a kernel for {traced} in Python, which cannot be compared")
    return [*schemas, *([deep_digest(fake)] if fake is not None else [])]


def _of_definition(definition: Any) -> list[Any]:
    functions = (getattr(definition, name, None) for name in _OF_DEFINITION)
    return [definition._schema, *(None if one is None else deep_digest(one) for one in functions)]


def all_facts(targets: Iterable[Any]) -> list[list[Any]]:
    """Rows of targets with their facts: what ``encoded`` gives of each is its first."""
    found = ((target, target_facts(target)) for target in dict.fromkeys(targets))
    return [[encoded(target), *facts] for target, facts in found if facts is not None]
