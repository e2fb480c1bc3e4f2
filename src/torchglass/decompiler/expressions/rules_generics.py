"""Rules for type parameters (3.12): ``def f[T](x)``, ``class A[T]``, ``type B[T] = …``."""

from __future__ import annotations

import ast
from typing import Any

from ...bytecode.ins import Ins
from ..errors import DecompileError
from .definitions import as_expression
from .machine import Machine, rule
from .trees import load
from .values import Alias, Function, Parameter


def _lazy(m: Machine, value: Any) -> Any:
    """Bounds, constraints, defaults and alias values are functions that compute them."""
    if not isinstance(value, Function):
        raise DecompileError("a type parameter's bound of unknown shape")
    return as_expression(m.scope.nested(value.code).body())


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
        m.push(load(".generic_base"))
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
