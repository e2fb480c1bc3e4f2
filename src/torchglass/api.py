"""The public face: ``compile``, ``explain``, ``reset``, ``disable``, ...: thin.

compiled = tg.compile(model)
compiled(x)                        # compiles at the first call
print(tg.explain(compiled))
"""

from __future__ import annotations

import copyreg
import functools
import inspect
import sys
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FunctionType, MemberDescriptorType, MethodType
from typing import TYPE_CHECKING, Any

import torch

from . import _native, torch_compat
from .backends import registry
from .bytecode.objects import new_class
from .cache import shipped
from .inspector import reports
from .marks.markers import allow_in_graph, disable, graph_break, is_compiling
from .options import CompileOptions
from .pipeline import FunctionState
from .process import changes, fallbacks
from .process.arguments import require_flag, require_path
from .process.locks import fork_safe_lock, importing
from .runtime import store
from .switching import following

__all__ = [
    "allow_in_graph",
    "compile",
    "disable",
    "explain",
    "graph_break",
    "is_compiling",
    "list_backends",
    "load",
    "reset",
    "save",
]

if TYPE_CHECKING:
    from .inspector.explain import Explanation

_states: weakref.WeakSet[FunctionState] = weakref.WeakSet()
_states_lock = fork_safe_lock()  # a set that grows cannot be gone through


def compile(
    model: Any = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | Callable[..., Any] = "glass",
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    disable: bool = False,
) -> Any:
    """Compile a function, method or ``nn.Module``; at its first call, and again for calls no entry fits.

    The arguments are torch.compile's. ``fullgraph``: a graph break is an error. ``backend``: "glass" (ours), "eager",
    "aot_eager", a name registered with torch.compile, or a callable ``(gm, example_inputs) -> callable``. ``disable``:
    return ``model`` as it is. Without ``model`` a decorator is returned.

    ``dynamic_shapes`` says of arguments, by name, what their sizes are: ``{"x": {0: "b", 1: 16}, "n": "dynamic"}``. A
    name or a ``torch.export.Dim`` stands for a size that changes, the same wherever it stands, "auto" for one that may,
    None for one that does not; ``shapes_spec`` of torch.compile is taken as well. DeclaredSizeError for a call with
    other sizes, and where the program needs one that changes as a number.

    A class comes back itself, with a compiled ``forward``, or ``__call__`` where it is no module's: one compiled
    function for all its objects. A module comes back as an object of a subclass that shares the module's ``__dict__``:
    parameters, buffers, hooks and ``state_dict`` keys are those of the original. Raises TypeError for something that
    cannot be called and ValueError for unknown names, which list the valid ones.
    """
    require_flag("disable", disable)
    chosen = CompileOptions.make(backend, mode, dynamic, fullgraph, options, dynamic_shapes)
    if model is None:
        return functools.partial(compile_with, options=chosen, off=disable)
    return compile_with(model, chosen, disable)


def compile_with(model: Any, options: CompileOptions, off: bool = False) -> Any:
    """What ``compile`` gives, the options made."""
    if off:
        return model
    following.follow(reset)
    model = torch_compat.uncompiled(model)
    if isinstance(model, torch.jit.ScriptModule):
        fallbacks.say(f"TorchScript has compiled {type(model).__name__}: it runs as it is", key=id(type(model)))
        return model
    if isinstance(model, torch.nn.Module):
        return compile_module(model, options)
    if isinstance(model, (staticmethod, classmethod)):
        return type(model)(compile_with(model.__func__, options))
    if isinstance(model, functools.partial):
        return functools.partial(compile_with(model.func, options), *model.args, **model.keywords)
    if isinstance(model, property):
        raise TypeError("model must not be a property: decorate its getter, with @property above @tg.compile")
    if isinstance(model, type):
        return _compile_class(model, options)
    if not callable(model):
        raise TypeError(f"model must be a function, method, class, callable object or nn.Module, not {model!r}")
    return _for_its_inputs(*code_of(model), options)


def _compile_class(cls: Any, options: CompileOptions) -> Any:
    """The class itself: calls of its objects run compiled from now on."""
    name, method = _called_method(cls)
    if type(method) not in (FunctionType, _native.CompiledFunction):
        raise TypeError(f"model must be a class whose objects are called by a method in Python, not {cls!r}")
    setattr(cls, name, compile_with(method, options))
    return cls


def _called_method(cls: Any) -> tuple[str, Any]:
    """What calls of a class's objects run."""
    is_module = issubclass(cls, torch.nn.Module) and cls.forward is not torch.nn.Module.forward
    name = "forward" if is_module else "__call__"
    return name, getattr(cls, name, None)


def _for_its_inputs(
    function: FunctionType, bound: tuple[Any, ...], options: CompileOptions, name: str | None = None
) -> Any:
    """The function compiled by us, and by PyTorch's compiler for calls with other inputs if the options say so."""
    if name is None and bound and function.__module__ == torch.nn.Module.__module__:
        name = type(bound[0]).__name__  # nn.Module.__call__, which libraries compile, is not what it is about
    compiled = compile_function(function, bound, options, name)
    return compiled if options.elsewhere is None else options.elsewhere.beside(compiled, function, bound)


def code_of(model: Any) -> tuple[FunctionType, tuple[Any, ...]]:
    """The Python function that a call of ``model`` runs, and the arguments that it is bound to."""
    if type(model) is FunctionType:
        return _calling(model) if _is_made(model) else model, ()
    if isinstance(model, _native.CompiledFunction):
        return model.function, model.bound  # type: ignore[return-value]
    if isinstance(model, MethodType) and not _is_apply(model):
        function, bound = code_of(model.__func__)
        return function, (model.__self__, *bound)
    call = getattr(type(model), "__call__", None)  # noqa: B004  (the function is wanted, not the answer)
    if type(call) is FunctionType and not isinstance(model, torch_compat.OpOverload):
        return call, (model,)
    return _calling(model), ()


def _is_made(function: FunctionType) -> bool:
    """Whether a factory of PyTorch's or the standard library's made it, and capture knows what calling it means."""
    home = str(function.__globals__.get("__name__")).partition(".")[0]
    if "<locals>" not in function.__code__.co_qualname or not (home == "torch" or home in sys.stdlib_module_names):
        return False
    with importing:  # all of capture, for which others need not wait
        from .capture.meanings import calls  # noqa: F401  (enters the rows)
        from .capture.meanings.registry import is_made
    return is_made(function)


def _is_apply(method: MethodType) -> bool:
    """Capture knows ``Function.apply`` by its name, not by its code."""
    return isinstance(method.__self__, type) and issubclass(method.__self__, torch.autograd.Function)


def _calling(function: Callable[..., Any]) -> FunctionType:
    """A Python function that calls one whose code is not interpreted: a builtin, an operator, a TorchScript function,
    what ``torch.func.vmap`` makes.
    """

    @functools.wraps(function)
    def calls(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return calls  # type: ignore[return-value]


def compile_function(
    function: FunctionType, bound: tuple[Any, ...], options: CompileOptions, name: str | None = None
) -> _native.CompiledFunction:
    """``function`` compiled, its first arguments bound. A copy with copied arguments is compiled anew."""
    again = functools.partial(_compile_copy, function, options, name)
    state = FunctionState(function, options, name=name, bound=bound, rebuild=again)
    with _states_lock:
        _states.add(state)
    return state.release()


def _compile_copy(
    function: FunctionType, options: CompileOptions, name: str | None, bound: tuple[Any, ...]
) -> _native.CompiledFunction:
    return compile_function(function, bound, options, name)


def _reduced(compiled: _native.CompiledFunction) -> Any:
    """For pickle: by name where the name leads to it, else compiled anew where it is loaded."""
    found: Any = sys.modules.get(compiled.__module__)
    for name in compiled.__qualname__.split("."):
        found = getattr(found, name, None)
    if found is compiled:
        return compiled.__qualname__
    again: Any = compiled.rebuild
    return again.func, (*again.args, compiled.bound)


copyreg.pickle(_native.CompiledFunction, _reduced)


def compile_module(module: torch.nn.Module, options: CompileOptions) -> torch.nn.Module:
    """An object of a subclass with the module's own ``__dict__`` and a compiled ``forward`` of the original object.

    ``forward`` sees the original module as self, so its class, identity and ``super()`` are unchanged; hooks of the
    module run around it as ``nn.Module.__call__`` says.
    """
    if isinstance(module, CompiledModule):
        module = module._torchglass_original
    cls = type(module)
    members: dict[str, Any] = {
        "_torchglass_original": module,
        "_torchglass_options": options,
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "__doc__": cls.__doc__,
    }
    if cls.forward is torch.nn.Module.forward and cls.__call__ is not torch.nn.Module.__call__:
        members["_torchglass_runs"] = "__call__"
    elif torch_compat.is_of_module(cls.__call__) and torch_compat.is_of_module(cls._call_impl):
        members["__call__"] = _straight_call(cls)
    runs = members.get("_torchglass_runs", "forward")
    members[runs] = Forward(runs, module, options)
    # The bases are set afterwards: making a subclass must not run the class's own __init_subclass__.
    slots = _slots_of(module)
    if slots:
        made: Any = new_class(type(cls), cls.__name__, (CompiledModule, cls), members | slots, {}, quiet=True)
    else:
        made = type(cls.__name__, (CompiledModule, torch.nn.Module), members)
        made.__bases__ = (CompiledModule, cls)
    compiled = object.__new__(made)
    object.__setattr__(compiled, "__dict__", module.__dict__)
    return compiled


def _straight_call(cls: type[torch.nn.Module]) -> _native.ModuleCall:
    """``nn.Module.__call__`` for a compiled module of this class: without detours while there are no hooks."""
    standard = {name: torch.nn.Module.__dict__[name] for name in ("__call__", "_call_impl")}
    return _native.ModuleCall(
        cls, standard, torch_compat.OWN_HOOKS, vars(torch.nn.modules.module), torch_compat.SHARED_HOOKS
    )


def _slots_of(module: torch.nn.Module) -> dict[str, Any]:
    """For each slot of the module's class a property that reads and writes the module's own."""

    def shared(slot: MemberDescriptorType) -> property:
        return property(
            lambda _: slot.__get__(module),
            lambda _, value: slot.__set__(module, value),
            lambda _: slot.__delete__(module),
        )

    found: dict[str, Any] = {}
    for base in type(module).__mro__:
        for name, member in vars(base).items():
            if isinstance(member, MemberDescriptorType) and base.__module__ != "builtins":
                found.setdefault(name, shared(member))
    return found


class Forward:
    """The compiled ``forward`` of a module: of its class, or one in its ``__dict__``, where libraries put code to run
    around the class's own. Whatever is there when it is called runs compiled.
    """

    def __init__(self, name: str, module: torch.nn.Module, options: CompileOptions) -> None:
        self.name, self.module, self.options = name, module, options
        self.found: Any = None
        self.compiled: Any = None
        if name not in module.__dict__:
            self.__get__(None)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None and owner is not None:  # of the class: for whoever reads its code or its signature
            return getattr(type(self.module), self.name)
        found = self.module.__dict__.get(self.name) or getattr(type(self.module), self.name)
        if found is not self.found and found != self.found:
            self.found, self.compiled = found, self._compiled()
        return self.compiled

    def _compiled(self) -> Any:
        if self.name in self.module.__dict__:
            return compile_with(getattr(self.module, self.name), self.options)
        cls = type(self.module)
        function, bound = code_of(getattr(cls, self.name))
        return _for_its_inputs(function, (self.module, *bound), self.options, cls.__name__)

    def __set__(self, instance: Any, value: Any) -> None:
        instance.__dict__[self.name] = value

    def __delete__(self, instance: Any) -> None:
        del instance.__dict__[self.name]


class CompiledModule:
    """What compiled modules share beside the class of the original: copying compiles the copy."""

    _torchglass_original: torch.nn.Module
    _torchglass_options: CompileOptions
    _torchglass_runs = "forward"

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        import copy

        return compile_module(copy.deepcopy(self._torchglass_original, memo), self._torchglass_options)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return compile_module, (self._torchglass_original, self._torchglass_options)


def _state_of(compiled: Any) -> FunctionState:
    state = _found_state(compiled)
    if state is None:
        raise TypeError(f"compiled must be what tg.compile returned, not {compiled!r}")
    return state


def _found_state(compiled: Any) -> FunctionState | None:
    """The state of what ``tg.compile`` returned; None of anything else."""
    if isinstance(compiled, CompiledModule):
        compiled = getattr(compiled, compiled._torchglass_runs)
    elif isinstance(compiled, torch.nn.Module):  # perhaps by its own `compile()`
        compiled = compiled._compiled_call_impl
    compiled = getattr(compiled, "__func__", compiled)
    if isinstance(compiled, functools.partial):
        compiled = compiled.func
    if callable(compiled):  # perhaps wrapped by a function that asks where tensors lie
        compiled = inspect.unwrap(compiled, stop=lambda found: isinstance(found, _native.CompiledFunction))
    return compiled.function_state if isinstance(compiled, _native.CompiledFunction) else None


def explain(compiled: Any) -> Explanation:
    """What happened to a compiled function so far: entries, guards, graphs, breaks, recompiles, kernels.

    Print it, or call ``.to_dict()``. ``tg.explain(compiled)(*args)`` calls the function first. A function, method or
    module that is not compiled is compiled for it, as ``torch._dynamo.explain(f)(*args)`` does. Of a class it is the
    method that calls of its objects run.
    """
    from .inspector.explain import Explanation  # loads rich, which compiling does not need

    compiled = _of_class(compiled)
    if isinstance(compiled, (FunctionType, MethodType, torch.nn.Module)) and _found_state(compiled) is None:
        compiled = compile(compiled)
    state = _state_of(compiled)
    reports.flush(state.root().record)
    return Explanation(state.record, compiled)


def _of_class(compiled: Any) -> Any:
    """What calls of a class's objects run, in the place of a class."""
    if isinstance(compiled, type) and type(_called_method(compiled)[1]) in (FunctionType, _native.CompiledFunction):
        return _called_method(compiled)[1]
    return compiled


def save(path: str | Path, *compiled: Any) -> None:
    """Save what this process has compiled so far, or found, in a folder to ship: ``tg.load(path)`` makes it usable in
    other processes, and on other machines. ``compiled``: only of these, as ``tg.compile`` returned them.

    Saved are entries that were kept (docs/cache.md); a warning says which were not, and why. A folder that is there is
    added to. Backwards that have not run yet are compiled where they run. ValueError if nothing was kept, OSError where
    the folder cannot be written.
    """
    require_path("path", path)
    with _states_lock:
        everything = list(_states)
    states = [_state_of(_of_class(one)) for one in compiled] or everything
    records = [record for state in states for record in state.record.walk()]
    rows = [(record.name, entry.keeping) for record in records for entry in record.entries]
    kept = dict.fromkeys(keeping.path for _, keeping in rows if keeping.path is not None)
    if not kept:
        reasons = "; ".join(dict.fromkeys(f"`{name}`: {row.why_not or 'nothing is kept here'}" for name, row in rows))
        raise ValueError(f"there is nothing to save in path: {reasons or 'nothing was compiled'} (docs/cache.md)")
    for name, keeping in rows:
        if keeping.path is None:
            fallbacks.say(f"an entry of `{name}` is not saved: {keeping.why_not or 'it was not kept'}")
    shipped.save(Path(path).absolute(), kept)


def load(path: str | Path) -> None:
    """Look for what ``tg.save`` left in this folder wherever a call would compile, after the user's own cache. It is
    read only: nothing is written there.

    Where the processor has all instruction sets for which the libraries were made, they run as they are; where it has
    other ones, the C in the folder is compiled at the first use and kept in the user's cache. What needs another
    version of torch, Python or torchglass, another GPU or number of threads is not used, and a warning says so if that
    is all of it. ValueError for a folder that ``tg.save`` has not left, or that other users may write: what lies there
    is executed.
    """
    require_path("path", path)
    why_not = shipped.load(Path(path).absolute())
    if why_not:
        fallbacks.say(f"nothing of what was saved in {path} can be used here: {why_not}", key=("shipped", str(path)))


def reset(directory: str | Path | None = None, *, everything: bool = False) -> None:
    """Forget every entry of every compiled function; with ``directory``, forget the edits made in that folder too.

    With ``everything``, undo what we have changed of other people's types, functions and operators for the process, too
    (the table in docs/limits.md): the next ``compile``, ``install`` or call that needs it changes it again. Not while
    another thread compiles or runs what is compiled.

    A folder that is not there (yet) has no edits to forget. ValueError for a file, and for a folder of other things.
    """
    if directory is not None:
        require_path("directory", directory)
        if not store.may_be_artifacts(Path(directory)):
            raise ValueError(f"directory must be a folder of artifacts, as tg.prepare_debug leaves it, not {directory}")
    require_flag("everything", everything)
    fallbacks.forget()
    with _states_lock:
        states = list(_states)
    for state in states:
        with state.lock:  # what another thread compiles is entered whole, or not yet
            state.reset()
    if directory is not None:
        store.ArtifactStore(directory).forget_edits()
    if everything:
        changes.undo_all()


def list_backends() -> list[str]:
    """The names that ``backend=`` takes: ours first, then those registered with torch.compile."""
    return registry.names()


following.follow(reset)
