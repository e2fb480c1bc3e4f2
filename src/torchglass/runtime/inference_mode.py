"""Compiled graphs whose results eager makes in ``torch.inference_mode`` blocks (``autodiff.inference_mode``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch


def making_inference_tensors(call: Callable[..., Any], inference: Sequence[bool]) -> Callable[..., Any]:
    """``call`` with results that are inference tensors where ``inference`` says so."""

    def all_of_them(*inputs: Any) -> Any:
        with torch.inference_mode():
            return call(*inputs)

    def some_of_them(*inputs: Any) -> Any:
        results = call(*inputs)
        with torch.inference_mode():
            return tuple(r.clone() if made else r for r, made in zip(results, inference))

    return all_of_them if all(inference) else some_of_them if any(inference) else call
