"""The public face: ``compile``, ``explain``, ``reset``, ``disable``, ...: thin.

compiled = tg.compile(model)
compiled(x)                        # compiles at the first call
print(tg.explain(compiled))
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

import torch

from . import _native
from .backends import registry
from .inspector import reports
from .markers import allow_in_graph, disable, graph_break, is_compiling
from .options import CompileOptions
from .pipeline import FunctionState
from .runtime import store

__all__ = [
    "allow_in_graph",
    "compile",
    "disable",
    "explain",
    "graph_break",
    "is_compiling",
    "list_backends",
    "reset",
]

if TYPE_CHECKING:
    from .inspector.explain import Explanation

_states: weakref.WeakSet[FunctionState] = weakref.WeakSet()


def compile(
    model: Any = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | Callable[..., Any] = "glass",
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    disable: bool = False,
) -> Any:
    """Compile a function, method or ``nn.Module``; at its first call, and again for calls no entry fits.

    The arguments are torch.compile's. ``fullgraph``: a graph break is an error. ``backend``: "glass" (ours), "eager",
    "aot_eager", a name registered with torch.compile, or a callable ``(gm, example_inputs) -> callable``. ``disable``:
    return ``model`` as it is. Without ``model`` a decorator is returned.

    A module comes back as an object of a subclass that shares the module's ``__dict__``: parameters, buffers, hooks and
    ``state_dict`` keys are those of the original. Raises TypeError for something that cannot be called and ValueError
    for unknown names, which list the valid ones.
    """
    chosen = CompileOptions.make(backend=backend, mode=mode, dynamic=dynamic, fullgraph=fullgraph, options=options)
    if model is None:
        return functools.partial(_compile, options=chosen, off=disable)
    return _compile(model, chosen, disable)


def _compile(model: Any, options: CompileOptions, off: bool) -> Any:
    if off:
        return model
    if isinstance(model, torch.nn.Module):
        return _compile_module(model, options)
    if isinstance(model, _native.CompiledFunction):
        return _compile_function(model.function, options)  # type: ignore[arg-type]
    if isinstance(model, FunctionType):
        return _compile_function(model, options)
    if isinstance(model, MethodType) and isinstance(function := model.__func__, FunctionType):
        return _compile_function(function, options, bound=(model.__self__,))
    if isinstance(model, functools.partial):
        return functools.partial(_compile(model.func, options, off), *model.args, **model.keywords)
    if isinstance(model, type) or not callable(model):
        raise TypeError(f"model must be a function, method, callable object or nn.Module, not {model!r}")
    call = getattr(type(model), "__call__", None)  # noqa: B004  (the function is wanted, not the answer)
    if isinstance(call, FunctionType):
        return _compile_function(call, options, bound=(model,))
    raise TypeError(f"model must have Python code to compile; {model!r} has none")


def _compile_function(function: FunctionType, options: CompileOptions, bound: tuple[Any, ...] = ()) -> Any:
    state = FunctionState(function, options, bound=bound)
    _states.add(state)
    return state.release()


def _compile_module(module: torch.nn.Module, options: CompileOptions) -> torch.nn.Module:
    """An object of a subclass with the module's own ``__dict__`` and a compiled ``forward`` of the original object.

    ``forward`` sees the original module as self, so its class, identity and ``super()`` are unchanged; hooks of the
    module run around it as ``nn.Module.__call__`` says.
    """
    if isinstance(module, CompiledModule):
        module = module._torchglass_original
    cls = type(module)
    forward = getattr(cls.forward, "function", cls.forward)
    if not isinstance(forward, FunctionType):
        raise TypeError(f"the forward of {cls.__name__} is no Python function: {forward!r}")
    state = FunctionState(forward, options, name=cls.__name__, bound=(module,))
    _states.add(state)
    members = {
        "forward": staticmethod(state.release()),
        "_torchglass_original": module,
        "_torchglass_options": options,
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "__doc__": cls.__doc__,
    }
    # The bases are set afterwards: making a subclass must not run the class's own __init_subclass__.
    made: Any = type(cls.__name__, (CompiledModule, torch.nn.Module), members)
    made.__bases__ = (CompiledModule, cls)
    compiled = object.__new__(made)
    object.__setattr__(compiled, "__dict__", module.__dict__)
    return compiled


class CompiledModule:
    """What compiled modules share beside the class of the original: copying compiles the copy."""

    _torchglass_original: torch.nn.Module
    _torchglass_options: CompileOptions

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        import copy

        return _compile_module(copy.deepcopy(self._torchglass_original, memo), self._torchglass_options)

    def __reduce_ex__(self, protocol: Any) -> Any:
        options = self._torchglass_options
        return _restore_module, (self._torchglass_original, options)


def _restore_module(module: torch.nn.Module, options: CompileOptions) -> torch.nn.Module:
    return _compile_module(module, options)


def _state_of(compiled: Any) -> FunctionState:
    if isinstance(compiled, CompiledModule):
        compiled = compiled.forward  # type: ignore[attr-defined]
    compiled = getattr(compiled, "__func__", compiled)
    state = getattr(compiled, "__dict__", {}).get("_torchglass_state")
    if not isinstance(state, FunctionState):
        raise TypeError(f"compiled must be what tg.compile returned, not {compiled!r}")
    return state


def explain(compiled: Any) -> Explanation:
    """What happened to a compiled function so far: entries, guards, graphs, breaks, recompiles, kernels.

    Print it, or call ``.to_dict()``. ``tg.explain(compiled)(*args)`` calls the function first.
    """
    from .inspector.explain import Explanation  # loads rich, which compiling does not need

    state = _state_of(compiled)
    reports.flush(state.root().record)
    return Explanation(state.record, compiled)


def reset(directory: str | Path | None = None) -> None:
    """Forget every entry of every compiled function; with ``directory``, forget the edits made in that folder too."""
    for state in list(_states):
        state.reset()
    if directory is not None:
        store.ArtifactStore(directory).forget_edits()


def list_backends() -> list[str]:
    """The names that ``backend=`` takes: ours first, then those registered with torch.compile."""
    return registry.names()
