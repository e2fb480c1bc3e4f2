"""Type parameters (3.12): ``def f[T](x)``, ``class A[T]``, ``type B[T] = …``.

The compiler wraps such a definition in a function ``<generic parameters of f>`` that makes the parameters and returns
the finished function, class or alias.  Running that function symbolically gives the definition back, with its
parameters attached.
"""

from __future__ import annotations

import ast
from typing import Any

from ...bytecode.canonical import VERSION, Ins
from ..errors import DecompileError
from .machine import Machine, rule
from .values import Class, Function


class Parameter(ast.expr):
    """One type parameter on the stack."""

    _fields = ()

    def __init__(self, node: Any) -> None:
        self.node = node


class Alias(ast.expr):
    """The value of a ``type`` statement."""

    _fields = ()

    def __init__(self, name: str, parameters: list[Any], value: Any) -> None:
        self.name = name
        self.parameters = parameters
        self.value = value


def _lazy(m: Machine, value: Any) -> Any:
    """Bounds, constraints, defaults and alias values are functions that compute them."""
    from ..pipeline import Scope, as_expression, body_of

    if not isinstance(value, Function):
        raise DecompileError("a type parameter's bound of unknown shape")
    return as_expression(body_of(value.code, Scope(value.code, m.scope)))


def _text(value: Any) -> str:
    if not isinstance(value, ast.Constant) or not isinstance(value.value, str):
        raise DecompileError("a type parameter without a name")
    return value.value


@rule("INTRINSIC_1")
def intrinsic_1(m: Machine, ins: Ins) -> None:
    if ins.arg in ("TYPEVAR", "PARAMSPEC", "TYPEVARTUPLE"):
        kind = {"TYPEVAR": "TypeVar", "PARAMSPEC": "ParamSpec", "TYPEVARTUPLE": "TypeVarTuple"}[ins.arg]
        m.push(Parameter(getattr(ast, kind)(_text(m.pop()))))
    elif ins.arg == "SUBSCRIPT_GENERIC":
        m.pop()
        m.push(ast.Name(".generic_base", ast.Load()))
    elif ins.arg == "TYPEALIAS":
        parts = m.pop()
        if not isinstance(parts, ast.Tuple) or len(parts.elts) != 3:
            raise DecompileError("a type statement of unknown shape")
        name, parameters, value = parts.elts
        listed = parameters.elts if isinstance(parameters, ast.Tuple) else []
        m.push(Alias(_text(name), [_node(p) for p in listed], _lazy(m, value)))
    else:
        raise DecompileError(f"no rule for {ins.arg}")


@rule("INTRINSIC_2")
def intrinsic_2(m: Machine, ins: Ins) -> None:
    second, first = m.pop(), m.pop()
    if ins.arg in ("TYPEVAR_WITH_BOUND", "TYPEVAR_WITH_CONSTRAINTS"):
        m.push(Parameter(ast.TypeVar(_text(first), _lazy(m, second))))  # type: ignore[attr-defined]
    elif ins.arg == "SET_TYPEPARAM_DEFAULT":
        _node(first).default_value = _lazy(m, second)
        m.push(first)
    elif ins.arg == "SET_FUNCTION_TYPE_PARAMS":
        if not isinstance(first, Function) or not isinstance(second, ast.Tuple):
            raise DecompileError("type parameters of unknown shape")
        first.type_params = [_node(p) for p in second.elts]
        m.push(first)
    else:
        raise DecompileError(f"no rule for {ins.arg}")


def _node(value: Any) -> Any:
    if not isinstance(value, Parameter):
        raise DecompileError("a type parameter of unknown shape")
    return value.node


def generic_definition(function: Function, args: list[Any], scope: Any) -> Any:
    """What calling ``<generic parameters of …>`` returns: a Function, Class or Alias with its parameters."""
    from ..pipeline import Scope, body_of

    inner = Scope(function.code, scope)
    inner.generic_arguments = args
    stmts = body_of(function.code, inner)
    last = stmts[-1] if stmts else None
    if len(stmts) != 1 or not isinstance(last, ast.Return):
        raise DecompileError("a generic definition of unknown shape")
    value: Any = last.value
    if isinstance(value, Class):
        value.bases = [b for b in value.bases if not (isinstance(b, ast.Name) and b.id == ".generic_base")]
        value.type_params = inner.type_parameters
    elif isinstance(value, Function):
        _fill_defaults(value, args, function.code.co_varnames)
    elif not isinstance(value, Alias):
        raise DecompileError("a generic definition of unknown shape")
    value.owner = inner
    return value


def _fill_defaults(value: Function, args: list[Any], names: tuple[str, ...]) -> None:
    """Defaults are computed outside and handed in as ``.defaults`` and ``.kwdefaults``."""
    given = dict(zip(names, args))
    defaults, keywords = given.get(".defaults"), given.get(".kwdefaults")
    if defaults is not None:
        value.defaults = list(defaults.elts)
    if keywords is not None:
        value.kwdefaults = {k.value: v for k, v in zip(keywords.keys, keywords.values)}


def alias_statement(value: Alias, name: str) -> ast.stmt:
    """``type name[…] = …``."""
    assert VERSION >= (3, 12)
    return ast.TypeAlias(ast.Name(name, ast.Store()), value.parameters, value.value)  # type: ignore[attr-defined]
