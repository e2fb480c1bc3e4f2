"""The state around a call that a guard compares: grad mode, default dtype, autocast, modes.

global_state() == GlobalState(grad_mode=True)     # everything else is as PyTorch starts
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from .. import _native
from ..process import threads

_UNCHANGED = threads.begin(_native.global_state).result()
"""The state that nobody has changed: most of it belongs to a thread."""


class GlobalState(NamedTuple):
    """What decides an operation's meaning besides its arguments. Compared field by field. Defaults are PyTorch's."""

    grad_mode: bool = True
    inference_mode: bool = False
    default_dtype: torch.dtype = torch.float32
    autocast_cpu: torch.dtype | None = None
    autocast_cuda: torch.dtype | None = None
    deterministic: int = 0
    torch_function: int = _UNCHANGED[6]
    included_keys: int = _UNCHANGED[7]
    excluded_keys: int = _UNCHANGED[8]
    function_modes: tuple[Any, ...] = ()
    dispatch_modes: tuple[Any, ...] = ()

    def beside(self, other: GlobalState) -> str:
        """What differs from another one, as people read it: ``grad_mode=False``. Dispatch keys follow from the rest
        where that differs.
        """
        differs = [name for name in self._fields if getattr(self, name) != getattr(other, name)]
        shown = [name for name in differs if not name.endswith("_keys")] or differs
        return ", ".join(f"{name}={getattr(self, name)}" for name in shown)


def global_state() -> GlobalState:
    """The state now, as a ``global_state`` guard expects it; ``deterministic`` is 2 for "warn only"."""
    return GlobalState(*_native.global_state())
