"""Grad mode, autocast and backend switches: kept, told, restored."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from .callables import BACKEND_SWITCHES, STATELESS_QUESTIONS, set_grad_mode
from .compiling import Compiling


class Modes:
    """Grad mode, autocast and backend switches as they are when made; ``restore`` makes them so again."""

    def __init__(self) -> None:
        self.grad = torch.is_grad_enabled()
        self.inference = torch.is_inference_mode_enabled()
        devices = ["cpu", "cuda"]
        self.autocast = [(d, torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in devices]
        self.cache = torch.is_autocast_cache_enabled()
        self.nesting = _autocast_nesting()
        self.switches = [getter() for getter, _ in BACKEND_SWITCHES]

    def answer(self, question: Callable[..., Any], *args: Any) -> Any:
        """What a question about the state of PyTorch got then; NotImplemented for one that other guards cover, or that
        is about its arguments.
        """
        switches = {getter: before for (getter, _), before in zip(BACKEND_SWITCHES, self.switches)}
        if question in switches:
            return switches[question]
        if question is torch.is_autocast_cache_enabled:
            return self.cache
        if question is torch.get_autocast_dtype:
            dtypes: dict[Any, Any] = {device: dtype for device, _, dtype in self.autocast}
            return dtypes.get(args[0] if args else None, NotImplemented)
        if question in (torch.is_anomaly_enabled, torch.is_anomaly_check_nan_enabled):
            return Compiling.anomaly[question is torch.is_anomaly_check_nan_enabled]
        return NotImplemented if question in STATELESS_QUESTIONS else question(*args)

    def restore(self, error: BaseException | None = None) -> None:
        """``error`` left functions in which a guard of ``torch.inference_mode`` is alive."""
        if error is not None and torch.is_inference_mode_enabled() != self.inference:
            traceback.clear_frames(error.__traceback__)
        set_grad_mode(self.grad)
        for device, enabled, dtype in self.autocast:
            torch.set_autocast_enabled(device, enabled)
            torch.set_autocast_dtype(device, dtype)
        torch.set_autocast_cache_enabled(self.cache)
        for _ in range(_autocast_nesting() - self.nesting):
            torch.autocast_decrement_nesting()
        for _ in range(self.nesting - _autocast_nesting()):
            torch.autocast_increment_nesting()
        if self.nesting == 0:
            torch.clear_autocast_cache()
        for (getter, setter), before in zip(BACKEND_SWITCHES, self.switches):
            if getter() != before:
                setter(before)


@contextmanager
def modes_kept() -> Iterator[None]:
    """Leave grad mode, autocast and backend switches as they were found."""
    modes = Modes()
    try:
        yield
    finally:
        modes.restore()


def _autocast_nesting() -> int:
    """How many autocast regions we are in: PyTorch tells only on the way in and out."""
    torch.autocast_increment_nesting()
    return int(torch.autocast_decrement_nesting())
