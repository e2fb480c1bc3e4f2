"""Functions transformed by ``torch.func`` inside the compiled function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..protocol import Machine, Value, declared
from .methods import CallableV

Transform = Callable[..., Callable[..., Any]]


def bound(transform: Any, options: dict[str, Any]) -> Transform:
    """``transform`` with its options, as a function of the function alone."""

    def apply(function: Callable[..., Any]) -> Callable[..., Any]:
        made: Callable[..., Any] = transform(function, **options)
        return made

    apply.__name__ = transform.__name__
    return apply


@declared
def call_transformed(
    m: Machine, transform: Transform, function: Value, args: list[Value], kwargs: dict[str, Value]
) -> Value:
    """Call ``transform(function)``."""
    raise NotImplementedError


class TransformedV(CallableV):
    """``torch.func.vmap(f)`` and the like, not yet called."""

    cls = type(lambda: None)

    def __init__(self, base: Any, options: dict[str, Any], function: Value) -> None:
        self.base = base
        self.options = options
        self.transform = bound(base, options)
        self.function = function

    def call(self, m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return call_transformed(m, self.transform, self.function, args, kwargs)
