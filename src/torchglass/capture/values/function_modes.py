"""The ``TorchFunctionMode``s that the program has entered, which are asked what operations on tensors mean."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..protocol import Machine, Value, declared
from .instance import InstanceV


@dataclass
class FunctionModes:
    entered: list[InstanceV] = field(default_factory=list)  # inside, innermost last
    device_contexts: list[list[InstanceV]] = field(default_factory=list)  # what stood there before each was entered
    probe: Any = None  # the real mode that PyTorch asks now: ``torch_function.Probe``


@declared
def dispatched(m: Machine, function: Callable[..., Any], args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """What ``function(*args, **kwargs)`` means under the active modes; None where no mode is asked."""
    raise NotImplementedError
