"""Custom operators that write to arguments, made pure: functionalization knows those of ATen alone.

    torch.ops.mine.bump(x)   ->   functionalized(mine.bump, x): results, then the new value of x

A kernel for functionalization hands the operator a name of its own for each value that it writes to; the recorder, who
sees the call below, binds these to the new values; and the kernel lets the program's tensors stand for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from ..aten.nested import tensors_in
from ..operators.control_flow import functionalized, written_names
from ..process import changes
from ..process.warning_filters import ignored
from ..torch_compat import (
    OpOverload,
    OpOverloadPacket,
    below_functionalization,
    replace_functional,
    unwrap_functional,
    wrap_functional,
)

if TYPE_CHECKING:
    from .recorder import Recorder

_libraries: dict[str, torch.library.Library] = {}
_registered: set[str] = set()


def register(operators: Iterable[OpOverload]) -> None:
    """Give each operator that writes, and is not ATen's, a kernel for functionalization."""
    for operator in operators:
        name = operator.name()
        if name in _registered or operator.namespace in ("aten", "prim", "prims") or not operator._schema.is_mutable:
            continue
        _registered.add(name)
        library = _libraries.setdefault(operator.namespace, torch.library.Library(operator.namespace, "IMPL"))
        with ignored():
            library.impl(operator, _kernel(operator), "Functionalize")
        changes.made(unregister)


def unregister() -> None:
    """Torch's dispatcher is as it was: a library takes its kernels along."""
    _libraries.clear()
    _registered.clear()


def called_in(gm: torch.fx.GraphModule) -> Iterator[OpOverload]:
    """The operators that a graph calls."""
    for node in gm.graph.nodes:
        target: Any = node.target
        if isinstance(target, OpOverloadPacket):
            yield from (getattr(target, overload) for overload in target.overloads())
        elif isinstance(target, OpOverload):
            yield target


def _kernel(operator: OpOverload) -> Callable[..., Any]:
    names = written_names(operator)
    parameters = [parameter.name for parameter in operator._schema.arguments]

    def kernel(*args: Any, **kwargs: Any) -> Any:
        written: list[tuple[torch.Tensor, torch.Tensor]] = []  # the program's tensor, what it will stand for

        def plain(value: Any, writes: bool) -> Any:
            if isinstance(value, (list, tuple)):
                return [plain(item, writes) for item in value]
            if not isinstance(value, torch.Tensor):
                return value
            inner = unwrap_functional(value)
            if writes:
                inner = inner.detach()
                written.append((value, inner))
            return inner

        with below_functionalization():
            given = [plain(value, name in names) for name, value in zip(parameters, args)]
            named = {name: plain(value, name in names) for name, value in kwargs.items()}
            results = operator(*given, **named)
        for outer, inner in written:
            replace_functional(outer, inner)
        back = {id(inner): outer for outer, inner in written}

        def wrapped(result: Any) -> Any:
            if isinstance(result, torch.Tensor):
                return back[id(result)] if id(result) in back else wrap_functional(result)
            return type(result)(map(wrapped, result)) if isinstance(result, (list, tuple)) else result

        return wrapped(results)

    return kernel


def record(recorder: Recorder, operator: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Write down a call of an operator that writes: what it wrote to is bound to the new values."""
    names = written_names(operator)
    parameters = [parameter.name for parameter in operator._schema.arguments]
    given = {**dict(zip(parameters, args)), **kwargs}
    written = [tensor for name in parameters if name in names for tensor in tensors_in(given.get(name))]
    operands = recorder.operands((operator, *args), kwargs)
    results = operator(*args, **kwargs)
    plain = () if results is None else results if isinstance(results, tuple) else (results,)
    recorder.write_tuple(functionalized, *operands, (*plain, *written))
    return results
