"""How files call what no operator of PyTorch's does as it is: by functions of ``torchglass.operators``.

torch.ops.higher_order.cond               ->   "control_flow.cond"
torchglass.operators.control_flow.scan    ->   "control_flow.scan"
torch.ops.aten.add.Tensor                 ->   None
"""

from __future__ import annotations

from typing import Any

from ..torch_compat import HigherOrderOperator

CONTROL_FLOW = frozenset({"cond", "while_loop", "map_impl", "scan"})
"""PyTorch's operators on sub-graphs that have a function of their name in ``torchglass.operators.control_flow``."""

MODULES = ("array_calls", "control_flow")
"""Modules of ``torchglass.operators`` whose functions graphs may hold as targets."""


def path_of(target: Any) -> str | None:
    """``module.function`` of what runs a node with this target; None where the target itself does."""
    if isinstance(target, HigherOrderOperator):
        return f"control_flow.{target.name()}" if target.name() in CONTROL_FLOW else None
    package, _, module = (getattr(target, "__module__", None) or "").rpartition(".")
    return f"{module}.{target.__name__}" if package == "torchglass.operators" and module in MODULES else None


def imports(paths: list[str]) -> list[str]:
    """The imports of a file that calls ``paths``, which may be any other names too."""
    modules = sorted({path.partition(".")[0] for path in paths} & set(MODULES))
    return [f"from torchglass.operators import {module}\n" for module in modules]
