"""``decompile``: a function or code object in, source text out.

>>> from torchglass.decompiler import decompile
>>> print(decompile(lambda x: x + 1))   # doctest: +SKIP
lambda x: x + 1
"""

from __future__ import annotations

import ast
from types import CodeType, FunctionType, MethodType
from typing import Any

from .check import check_tree
from .errors import DecompileError
from .function import class_body, function_definition, lambda_expression, Scope
from .values import Function


def decompile(function_or_code: Any, *, verify: bool = False, name: str | None = None) -> str:
    """Source that compiles to what ``function_or_code`` does.

    Takes a function, method or code object; returns a complete ``def``, ``async def``, lambda or class body.  A
    function with free variables is wrapped in a ``def`` that binds them.  ``name`` renames the result.  With
    ``verify`` the text is compiled again and its control-flow graph compared instruction by instruction.  Raises
    TypeError for what has no bytecode and DecompileError for what cannot be turned into source that is known to be
    right.
    """
    target = function_or_code
    while isinstance(target, MethodType):
        target = target.__func__
    while not isinstance(target, (FunctionType, CodeType)) and hasattr(target, "__wrapped__"):
        target = target.__wrapped__
    code = target.__code__ if isinstance(target, FunctionType) else target
    if not isinstance(code, CodeType):
        raise TypeError(f"decompile expects a function or a code object, got {type(function_or_code).__name__}, which has no bytecode")
    try:
        text = _source(target, code, name)
    except RecursionError as error:
        raise DecompileError(f"{code.co_qualname if hasattr(code, 'co_qualname') else code.co_name}: nested too deeply") from error
    except DecompileError as error:
        raise DecompileError(f"{code.co_name} ({code.co_filename}:{code.co_firstlineno}): {error}") from error
    if verify:
        from .verify import verify_source

        verify_source(text, code, name)
    return text


def _source(target: Any, code: CodeType, name: str | None) -> str:
    tree = definition_tree(target, code, name)
    check_tree(tree)
    return ast.unparse(tree)


def definition_tree(target: Any, code: CodeType, name: str | None) -> ast.AST:
    """The definition of ``code`` as a module, wrapped in a function that binds its free variables if it has any."""
    function = Function(code)
    if isinstance(target, FunctionType):
        from .signature import fill_signature

        fill_signature(function, target)
    kind = code.co_name
    outer = _OuterScope(code)
    if not code.co_flags & 1 and "__module__" in code.co_names and "__qualname__" in code.co_names:
        stmt: ast.stmt = ast.ClassDef(name or kind, [], [], class_body(code, outer), [])
        if hasattr(ast, "TypeVar"):
            stmt.type_params = []  # type: ignore[attr-defined]
    elif kind == "<lambda>" and name is None:
        stmt = ast.Expr(lambda_expression(function, outer))
    elif kind == "<module>":
        from .function import declared_body

        return ast.Module(declared_body(code, outer), [])
    else:
        clean = "".join(c if c.isalnum() or c == "_" else "_" for c in kind)
        stmt = function_definition(function, None, name or clean, [])
    if code.co_freevars:
        stmt = _factory(stmt, code)
    return ast.Module([stmt], [])


class _OuterScope(Scope):
    """The scope around the code object that was asked for: knows nothing but its free variables."""

    def __init__(self, code: CodeType) -> None:
        super().__init__(code, None)
        self.names = set(code.co_freevars)


def _factory(stmt: ast.stmt, code: CodeType) -> ast.stmt:
    """``def`` around a closure: its parameters are the free variables."""
    args = ast.arguments([], [ast.arg(n, None) for n in code.co_freevars], None, [], [], None, [])
    if isinstance(stmt, ast.Expr):
        result: ast.stmt = ast.Return(stmt.value)
        body = [result]
    else:
        body = [stmt, ast.Return(ast.Name(stmt.name, ast.Load()))]  # type: ignore[attr-defined]
    node = ast.FunctionDef("make_closure", args, body, [], None, None, lineno=0)
    if hasattr(ast, "TypeVar"):
        node.type_params = []  # type: ignore[attr-defined]
    return node
