"""Autograd's anomaly detection, which is off while anything is compiled: turning it on or off ends the graph.

with torch.autograd.set_detect_anomaly(False): ...     # off already: nothing to do, and the entry relies on that
"""

from __future__ import annotations

import torch

from ..errors import Unsupported
from ..meanings.registry import handles
from ..protocol import Machine, Value
from ..values.constant import NONE
from ..values.known import KnownV

QUESTIONS = (torch.is_anomaly_enabled, torch.is_anomaly_check_nan_enabled)


@handles(torch.set_anomaly_enabled)
def set_anomaly_enabled(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    wanted = (*(value.as_constant() if value.is_constant() else value for value in args), True)[:2]
    if kwargs or wanted != tuple(m.call(KnownV(question), [], {}).as_constant() for question in QUESTIONS):
        raise Unsupported("turning anomaly detection on or off", "turn it outside the compiled function")
    return NONE
