"""Which of its arguments an operator writes to, which one gives the same in a new tensor, and whether it moves a random
generator on.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

# These write to running statistics without saying so.
NORMALIZE = frozenset(getattr(torch.ops.aten, f"{name}_batch_norm").default for name in ("native", "cudnn", "miopen"))
STATISTICS, TRAINING = slice(3, 5), 5  # of their arguments


def written_by(operator: Any, args: Any, kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """The tensors among an operator's arguments that it writes to."""
    if operator in NORMALIZE:
        return [t for t in args[STATISTICS] if t is not None] if args[TRAINING] else []
    found: list[torch.Tensor] = []
    if operator._schema.is_mutable:
        for n, parameter in enumerate(operator._schema.arguments):
            if parameter.alias_info is not None and parameter.alias_info.is_write:
                value = args[n] if n < len(args) else kwargs.get(parameter.name)
                values = value if isinstance(value, (tuple, list)) else [value]
                found += [t for t in values if isinstance(t, torch.Tensor)]
    return found


@functools.cache
def functional(operator: Any) -> Any:
    """The operator that gives in a new tensor what this one writes to its first argument, None where there is none. It
    is found by its arguments, since its overload may be called otherwise: ``pow_.Scalar`` is ``pow.Tensor_Scalar``.
    """
    namespace, _, name = operator._schema.name.partition("::")
    packet = getattr(getattr(torch.ops, namespace), name.removesuffix("_"), None) if name.endswith("_") else None
    overloads = [] if packet is None else [getattr(packet, name) for name in packet.overloads()]
    return next((one for one in overloads if _parameters(one) == _parameters(operator)), None)


def _parameters(operator: Any) -> list[tuple[str, str]]:
    return [(parameter.name, str(parameter.type)) for parameter in operator._schema.arguments]


@functools.cache
def is_random(operator: Any) -> bool:
    """Whether the operator draws random numbers, for some arguments at least."""
    return (
        torch.Tag.nondeterministic_seeded in operator.tags and operator is not torch.ops.aten._fused_sdp_choice.default
    )
