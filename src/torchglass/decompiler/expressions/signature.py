"""What only the function object knows of a signature: defaults, keyword defaults, annotations."""

from __future__ import annotations

import ast
from types import FunctionType
from typing import Any

from .values import Function


def fill_signature(function: Function, source: FunctionType) -> None:
    """Copy defaults and annotations of ``source`` into ``function`` as expressions."""
    scope = source.__globals__
    function.defaults = [literal(v, scope) for v in source.__defaults__ or ()]
    function.kwdefaults = {k: literal(v, scope) for k, v in (source.__kwdefaults__ or {}).items()}
    notes = getattr(source, "__annotations__", None)
    for name, value in (notes or {}).items():
        function.annotations[name] = literal(value, scope)


def literal(value: Any, scope: dict[str, Any]) -> Any:
    """An expression for ``value``: its literal, the global name it is known by, or ``...``."""
    text = repr(value)
    try:
        node = ast.parse(text, mode="eval").body
        if ast.literal_eval(node) == value and type(ast.literal_eval(node)) is type(value):
            return node
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        pass
    name = getattr(value, "__name__", None)
    if isinstance(name, str) and name.isidentifier():
        if scope.get(name) is value:
            return ast.Name(name, ast.Load())
        builtins = scope.get("__builtins__")
        table = builtins if isinstance(builtins, dict) else vars(builtins) if builtins is not None else {}
        if table.get(name) is value:
            return ast.Name(name, ast.Load())
    for known, other in scope.items():
        if other is value and known.isidentifier():
            return ast.Name(known, ast.Load())
    return ast.Constant(...)
