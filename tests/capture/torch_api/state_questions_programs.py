"""What programs ask PyTorch and check with it."""

from __future__ import annotations

import torch

from ..tables import tables

WHOLE, BREAKING, whole, breaking = tables()


@whole
def checks(x):
    torch._check(x.dim() == 2, lambda: f"two axes wanted, not {x.dim()}")
    torch._check_tensor_all(x.abs() < 100, lambda: "too large")
    caught = []
    for check in (torch._check, torch._check_index, torch._check_value, torch._check_type):
        try:
            check(x.size(0) > 10, lambda: f"only {x.size(0)} rows")
        except Exception as error:
            caught.append((type(error).__name__, str(error)))
    return x * 2, caught


@whole
def asks_whether_it_is_exported(x):
    if torch.onnx.is_in_onnx_export() or torch.jit.is_tracing() or torch.jit.is_scripting():
        return x
    return x + 1
