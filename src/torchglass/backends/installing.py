"""``torch.compile`` by torchglass, for programs and libraries that name no other compiler.

    tg.install()                    # from here on torch.compile(model) is ours; tg.uninstall() ends it
    with tg.installed(): ...        # the same for a while

Ours are calls without a backend and those that say "inductor", which transformers and others say for whoever says
nothing. Everything else runs as if nothing were installed: other backends, functions of PyTorch's that are made for its
own compiler (``NOT_OURS``), and calls whose tensors lie on a device we do not compile for (``DEVICES``), which is asked
at each call. What was compiled before stays what it is.

The *code* of ``torch.compile`` is replaced, not the attribute: whoever took the function by name, or wrapped it as
Lightning does, reaches ours too, whenever that was.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import FunctionType, MethodType
from typing import Any

import torch

from .. import options as own
from ..bytecode.objects import copy_of_function
from ..process import changes, fallbacks
from ..process.locks import fork_safe_lock
from ..records.target import DEVICES

NOT_OURS = ("torch.nn.attention.flex_attention", "torch._higher_order_ops", "torch.distributed")
"""Modules whose functions are made for PyTorch's compiler: flex_attention, create_block_mask and their kin."""

NO_EFFECT: dict[str, str] = {
    "isolate_recompiles": "entries are kept apart for each compiled function always",
}
"""Arguments of torch.compile that change nothing here."""

AS_MODES = {"max_autotune": "max-autotune", "triton.cudagraphs": "reduce-overhead"}
"""Options of Inductor's that are a mode of ours, where no mode is given."""

_lock = fork_safe_lock()
_given: dict[FunctionType, FunctionType] = {}  # torch.compile → a function with the code it had
_asked = False  # by install()
_inside = 0  # how many installed() are open


def install() -> None:
    """Make ``torch.compile`` ours. Doing it again changes nothing."""
    global _asked
    with _lock:
        _asked = True
        _switch()


def uninstall() -> None:
    """Make ``torch.compile`` PyTorch's again, but for open ``installed()``; what was compiled by ours stays so."""
    global _asked
    with _lock:
        _asked = False
        _switch()


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """``torch.compile`` is ours inside, for all threads; they may overlap and nest."""
    _count(1)
    try:
        yield
    finally:
        _count(-1)


def _count(change: int) -> None:
    global _inside
    with _lock:
        _inside += change
        _switch()


def _switch() -> None:
    wanted = _asked or _inside > 0
    if not wanted:
        for function, before in _given.items():
            function.__code__ = before.__code__
            if "__signature__" not in vars(before):
                vars(function).pop("__signature__", None)
        return
    function = _function_of_torch()
    if function not in _given:
        _given[function] = copy_of_function(function)
    function.__code__ = _code_for(function)
    changes.made(uninstall)


def _function_of_torch() -> FunctionType:
    function = inspect.unwrap(torch.compile)
    if type(function) is not FunctionType or function.__closure__:
        raise RuntimeError(f"torch.compile is {torch.compile!r}: call tg.install() before what replaced it")
    return function


def _code_for(function: FunctionType) -> Any:
    """The code that leads to :func:`compile`, with the parameters that the function has in this version of torch."""

    def replaced(model: Any = None, **wishes: Any) -> Any:
        from torchglass.backends.installing import compile

        return compile(model, **wishes)

    vars(function).setdefault("__signature__", inspect.signature(function))  # the code has other parameters
    return replaced.__code__


def of_torch(model: Any, wishes: Mapping[str, Any]) -> Any:
    """What PyTorch's own ``torch.compile`` makes of it."""
    function = _function_of_torch()
    return _given.get(function, function)(model, **wishes)


def compile(model: Any = None, **wishes: Any) -> Any:
    """``torch.compile`` while we are installed; ``wishes`` are its keyword arguments."""
    if model is None:
        return functools.partial(_decorated, **wishes)
    if not _is_ours(model, wishes):
        return of_torch(model, wishes)
    return _by_us(model, wishes)


def _decorated(model: Any, **wishes: Any) -> Any:
    if model is None:
        raise RuntimeError("Model can't be None")
    return compile(model, **wishes)


def _is_ours(model: Any, wishes: Mapping[str, Any]) -> bool:
    backend = wishes.get("backend")
    if backend is None:
        backend = _default_backend()
    if backend != "inductor" or torch.compiler.is_exporting() or (wishes.get("options") or {}).get("use_aoti"):
        return False
    while isinstance(model, functools.partial):
        model = model.func
    home = getattr(model, "__module__", None) or ""
    return not (type(model) is FunctionType and home.startswith(NOT_OURS))


def _default_backend() -> Any:
    """What torch.compiler.set_default_backend said; asking would load all of torch.compile."""
    if "torch._dynamo.backends.registry" not in sys.modules:
        return "inductor"
    return getattr(torch.compiler, "get_default_backend", lambda: "inductor")()


def _by_us(model: Any, wishes: Mapping[str, Any]) -> Any:
    from .. import api

    if wishes.get("mode") is not None and wishes.get("options") is not None:
        raise RuntimeError("Either mode or options can be specified, but both can't be specified at the same time.")
    check_known(wishes.get("mode"), wishes.get("options") or {})
    mode, options = translated(wishes.get("mode"), wishes.get("options") or {}, wishes.get("recompile_limit"))
    for name in NO_EFFECT:
        if wishes.get(name):
            fallbacks.say(f"torch.compile's argument {name!r} has no effect with torchglass: {NO_EFFECT[name]}")
    fullgraph = bool(wishes.get("fullgraph"))
    dynamic, shapes = wishes.get("dynamic"), wishes.get("shapes_spec")
    chosen = own.CompileOptions.make(None, mode, dynamic, fullgraph, options, shapes)
    if _other_devices():
        chosen = replace(chosen, elsewhere=Elsewhere(wishes))
    return api.compile_with(model, chosen, bool(wishes.get("disable")))


def check_known(mode: str | None, options: Mapping[str, Any]) -> None:
    """Raise as PyTorch does for a mode or an option that it does not know. It is asked about names that
    stand in none of our tables, and only then: to answer it loads all of itself.
    """
    unlisted = {name: value for name, value in options.items() if not any(name in table for table in LISTED)}
    if unlisted or not (mode is None or mode in own.MODES):
        of_torch(_nothing, {"mode": mode} if mode is not None else {"options": unlisted})


LISTED: tuple[Mapping[str, Any], ...] = (AS_MODES, own.OPTIONS, own.INDUCTOR_OPTIONS)


def _nothing() -> None:
    """What PyTorch is asked to compile where only its complaint matters."""


def translated(
    mode: str | None, options: Mapping[str, Any], recompile_limit: int | None = None
) -> tuple[str | None, dict[str, Any]]:
    """Inductor's mode and options as ours: those we share, those that are a mode of ours; the rest is said once."""
    taken: dict[str, Any] = {} if recompile_limit is None else {"cache_limit": recompile_limit}
    for name, value in options.items():
        if name in AS_MODES:
            mode = mode or (AS_MODES[name] if value else None)
        elif name in own.OPTIONS:
            taken[name] = value
        else:
            why = own.INDUCTOR_OPTIONS.get(name, "it is Inductor's")
            fallbacks.say(f"torch.compile's option {name!r} has no effect with torchglass: {why}")
    if mode is not None and mode not in own.MODES:
        fallbacks.say(f"torch.compile's mode {mode!r} has no effect with torchglass")
        mode = None
    return mode, taken


# --- devices that we do not compile for ------------------------------------------------------------------------------
def _other_devices() -> bool:
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    return accelerator is not None and accelerator.type not in DEVICES


class Elsewhere:
    """For a compiled function: the same by PyTorch's own compiler, for calls whose tensors are not ours."""

    def __init__(self, wishes: Mapping[str, Any]) -> None:
        self.wishes = dict(wishes)

    def beside(self, ours: Any, function: FunctionType, bound: tuple[Any, ...]) -> Callable[..., Any]:
        """``ours``, but for such calls."""
        original = MethodType(function, bound[0]) if len(bound) == 1 else functools.partial(function, *bound)
        theirs: list[Any] = []  # made at the first call that needs it

        @functools.wraps(ours)
        def call(*args: Any, **kwargs: Any) -> Any:
            if all(map(is_ours, (*bound, *args, *kwargs.values()))):
                return ours(*args, **kwargs)
            if not theirs:
                theirs.append(of_torch(original if bound else function, self.wishes))
            return theirs[0](*args, **kwargs)

        return call


def is_ours(value: Any) -> bool:
    """Whether no tensor in the value lies on a device we do not compile for; of a module one parameter is asked."""
    if isinstance(value, torch.Tensor):
        return value.device.type in DEVICES
    if isinstance(value, torch.nn.Module):
        first = next(value.parameters(), None)
        return first is None or is_ours(first)
    if isinstance(value, (list, tuple)):
        return all(map(is_ours, value))
    return all(map(is_ours, value.values())) if isinstance(value, dict) else True
