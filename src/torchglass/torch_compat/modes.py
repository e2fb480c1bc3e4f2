"""Grad mode, autocast and backend switches: kept, told, restored."""

from __future__ import annotations

import functools
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils import _python_dispatch

from .. import _native
from .callables import BACKEND_SWITCHES, STATELESS_QUESTIONS, set_grad_mode
from .running import in_function_transform
from .tracing import without_dispatch_modes


class Anomalies:
    """Autograd's anomaly detection, which would read the data of fake tensors: off while any thread compiles."""

    def __init__(self) -> None:
        self._before: tuple[bool, bool] | None = None

    def wanted(self) -> tuple[bool, bool]:
        """What the program has set: whether anomalies are detected, and whether NaN is one."""
        return self._before or (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled())

    def off(self) -> None:
        """Not detected until ``back``."""
        self._before = self.wanted()
        torch.set_anomaly_enabled(False)

    def back(self) -> None:
        """As the program has it, which may have turned it on meanwhile; once more does nothing."""
        if self._before is not None:
            if not torch.is_anomaly_enabled():
                torch.set_anomaly_enabled(*self._before)
            self._before = None

    @contextmanager
    def as_before(self) -> Iterator[None]:
        """As the program has it, which guards may ask for."""
        before = self._before
        if before is not None:
            torch.set_anomaly_enabled(*before)
        try:
            yield
        finally:
            if before is not None and self._before is not None:
                torch.set_anomaly_enabled(False)


anomalies = Anomalies()


class Modes:
    """Grad mode, autocast and backend switches as they are when made; ``restore`` makes them so again."""

    def __init__(self) -> None:
        self.grad = torch.is_grad_enabled()
        self.inference = torch.is_inference_mode_enabled()
        devices = ["cpu", "cuda"]
        self.autocast = [(d, torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in devices]
        self.cache = torch.is_autocast_cache_enabled()
        self.nesting = _autocast_nesting()
        _settle_attention()
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
            return anomalies.wanted()[question is torch.is_anomaly_check_nan_enabled]
        return NotImplemented if question in STATELESS_QUESTIONS else question(*args)

    def restore(self, error: BaseException | None = None) -> None:
        """``error`` left functions in which a guard of ``torch.inference_mode`` is alive."""
        if error is not None and torch.is_inference_mode_enabled() != self.inference:
            traceback.clear_frames(error.__traceback__)
        self.restore_thread()
        self.restore_switches()

    def restore_switches(self) -> None:
        """Those of the whole process."""
        for (getter, setter), before in zip(BACKEND_SWITCHES, self.switches):
            if getter() != before:
                setter(before)

    def restore_thread(self) -> None:
        """Those of this thread."""
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


class ThreadState:
    """All that PyTorch keeps for this thread as it is when made; ``restore`` makes it so again, whatever modes, guards
    and transforms an exception has left entered.
    """

    def __init__(self) -> None:
        self._modes = Modes()
        self._state = _native.ThreadState()
        self._handled = id(sys.exc_info()[1])  # the program's, behind all errors from here on

    def restore(self, error: BaseException | None = None) -> None:
        """``error`` is what left them entered, and is being handled."""
        if error is not None and torch.is_inference_mode_enabled() != self._modes.inference:
            self.restore_after(error)
        else:
            self._restore()

    def restore_after(self, error: BaseException) -> None:
        """The same where ``error`` goes no further: C++ guards in its frames, and in those of the errors since this was
        made that it came of, would restore theirs when they are freed.
        """
        link: BaseException | None = error
        while link is not None and id(link) != self._handled:
            traceback.clear_frames(link.__traceback__)
            link = link.__cause__ or link.__context__
        self._restore()

    def _restore(self) -> None:
        self._modes.restore_thread()
        self._state.restore()


def has_modes() -> bool:
    """Whether a mode of the program's, or a transform of ``torch.func``, sees what this thread calls."""
    modes = torch._C._len_torch_function_stack() or torch._C._len_torch_dispatch_stack()
    return bool(modes) or in_function_transform()


# Whether a dispatch mode is active, of any thread: torch's own notes. Without them fx and torch.compile would take an
# interrupted mode for one that is still active. Tried: 2.11, 2.13.
_DISPATCH_NOTES = [
    name
    for name in (
        "_is_in_torch_dispatch_mode",
        "_is_in_non_infra_torch_dispatch_mode",
        "_is_in_any_mode_without_ignore_compile_internals",
    )
    if hasattr(_python_dispatch, name)
]
_note_in_mode: Callable[[bool], None] = getattr(
    _python_dispatch, "set_is_in_mode_without_ignore_compile_internals", lambda _: None
)


@functools.cache
def _choose_attention() -> None:
    tiny = torch.empty(1, 1, 1, 8, dtype=torch.float16, device="cuda")
    torch._fused_sdp_choice(tiny, tiny, tiny)


def _settle_attention() -> None:
    """Have PyTorch set its order of attention's kernels, as it does once, when a GPU's are first chosen between: turned
    back with the other switches it would stay turned back, for eager as well.
    """
    if torch.cuda.is_initialized():
        with without_dispatch_modes():
            _choose_attention()


class ProcessState:
    """What running a program on fake tensors switches for all threads, as it is when made."""

    def __init__(self) -> None:
        self._modes = Modes()
        self._notes = {name: getattr(_python_dispatch, name) for name in _DISPATCH_NOTES}
        self._recursion_limit = sys.getrecursionlimit()
        self._filters = warnings.filters

    def restore(self) -> None:
        """As it was."""
        self.restore_shown()
        sys.setrecursionlimit(self._recursion_limit)

    def restore_shown(self) -> None:
        """The same without the recursion limit, below which the stack may not be yet."""
        self._modes.restore_switches()
        vars(_python_dispatch).update(self._notes)
        if self._notes:
            _note_in_mode(self._notes[_DISPATCH_NOTES[-1]])
        warnings.filters = self._filters


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
