"""Compiling without torch._dynamo: a stand-in for it, and the lock around every compile."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch

from ..collector import Sheltered

# FakeTensorMode reads three settings of torch._dynamo.config, and PyTorch's reference implementations of operators wrap
# themselves with torch._dynamo.disable at their first call. Either loads all of torch._dynamo: 1.2 s of every first
# compile, for settings that have their defaults. While we compile, a stand-in answers these and loads the real package
# for anything else. Without it everything works and starts 1.2 s later. Tried: 2.13.
_DYNAMO = "torch._dynamo"


class _StandIn(ModuleType):
    """A module with a few known names. Any other name loads the real module in its place and comes from there."""

    def __init__(self, name: str, **known: Any) -> None:
        super().__init__(name)
        self.__dict__.update(known)

    def __getattr__(self, name: str) -> Any:
        if name == "__path__" or not name.startswith("__"):
            _remove_stand_in()
            return getattr(importlib.import_module(self.__name__), name)
        raise AttributeError(name)


def _disable_later(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Callable[..., Any]:
    """``torch._dynamo.disable`` by the stand-in: the function itself, until the real package is loaded.

    PyTorch keeps what this returns for good, so it must turn into the real thing by itself.
    """

    def call(*call_args: Any, **call_kwargs: Any) -> Any:
        module = sys.modules.get(_DYNAMO)
        if module is None or isinstance(module, _StandIn):
            return function(*call_args, **call_kwargs)
        real = module.disable(function, *args, **kwargs)
        function.__dynamo_disable = real  # type: ignore[attr-defined]
        return real(*call_args, **call_kwargs)

    return call


_config = _StandIn(
    f"{_DYNAMO}.config",
    fake_tensor_cache_enabled=True,
    fake_tensor_cache_crosscheck_enabled=False,
    _custom_ops_profile=None,
)
_package = _StandIn(_DYNAMO, config=_config, disable=_disable_later)
_STAND_INS = {_DYNAMO: _package, f"{_DYNAMO}.config": _config}


def _remove_stand_in() -> None:
    for name, module in _STAND_INS.items():
        if sys.modules.get(name) is module:
            del sys.modules[name]
    if torch.__dict__.get("_dynamo") is _package:
        del torch.__dict__["_dynamo"]


class Compiling:
    """A lock for compiling, one thread at a time and reentrant, that keeps torch._dynamo unloaded meanwhile, and
    autograd's anomaly detection off, which would read the data of fake tensors. The cyclic collector leaves alone what
    was there before.
    """

    anomaly = False, True
    """What the program set before: whether anomalies are detected, and whether NaN is one."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._sheltered = Sheltered()
        self._depth = 0

    def __enter__(self) -> None:
        self.lock.acquire()
        self._depth += 1
        if self._depth > 1:
            return
        self._sheltered.__enter__()
        Compiling.anomaly = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
        torch.set_anomaly_enabled(False)
        if _DYNAMO not in sys.modules:
            sys.modules.update(_STAND_INS)
            torch.__dict__["_dynamo"] = _package

    @contextmanager
    def as_before(self) -> Iterator[None]:
        """With anomaly detection as the program has it, which guards may ask for."""
        torch.set_anomaly_enabled(*Compiling.anomaly)
        try:
            yield
        finally:
            torch.set_anomaly_enabled(False)

    def __exit__(self, *exception: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            _remove_stand_in()
            torch.set_anomaly_enabled(*Compiling.anomaly)
            self._sheltered.__exit__()
        self.lock.release()
