"""Code objects in, definitions out: ``def``, ``lambda``, ``class``, ``type``, with signature and declarations.

What a nested code does is read by ``scope.body()``; here its statements are dressed as the definition that they were.
"""

from __future__ import annotations

import ast
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR, CO_VARARGS, CO_VARKEYWORDS
from types import CodeType
from typing import Any

from ...bytecode.canonical import VERSION, canonical
from ...bytecode.flow import reachable_instructions
from ...bytecode.ins import Ins
from ...bytecode.parameters import parameter_names
from ..errors import DecompileError
from ..names import same_name
from ..scope import Scope
from .trees import STORE, assign_to, some, terminates
from .values import Alias, Class, Function


class NoExpression(DecompileError):
    """The body of a lambda holds statements."""


def definition(scope: Scope, name: str, value: Any) -> ast.stmt | None:
    """The ``def``, ``class`` or ``type`` statement that ``name = value`` was, if it was one."""
    if isinstance(value, Alias):
        # 3.12 and later, where ``ast`` has it
        alias = ast.TypeAlias(ast.Name(name, STORE), value.parameters, value.value)  # type: ignore[attr-defined]
        return alias if value.name == name else None
    decorators, inner = _unwrap_decorators(value)
    if isinstance(inner, Function) and same_name(inner.code.co_name, name) and inner.code.co_name != "<lambda>":
        return function_definition(inner, inner.owner or scope, name, decorators)
    if isinstance(inner, Class) and same_name(inner.name, name):
        body = class_body((inner.owner or scope).nested(inner.function.code))
        return with_type_params(ast.ClassDef(inner.name, inner.bases, inner.keywords, body, decorators), inner)
    return None


def _unwrap_decorators(value: Any) -> tuple[list[Any], Any]:
    """``(decorators, function or class)`` of a value built by decorator calls."""
    decorators = []
    while isinstance(value, ast.Call) and len(value.args) == 1 and not value.keywords:
        inner = value.args[0]
        if not isinstance(inner, (Function, Class, ast.Call)):
            break
        decorators.append(value.func)
        value = inner
    return decorators, value


def with_type_params(node: Any, value: Any = None) -> Any:
    """``node`` with the type parameters of ``value``; without any it needs an empty list where ``ast`` knows them."""
    if VERSION >= (3, 12):
        node.type_params = getattr(value, "type_params", None) or []
    return node


# -- functions ------------------------------------------------------------------------------------------------------
def function_definition(function: Function, parent: Scope, name: str, decorators: list[Any]) -> ast.stmt:
    code = function.code
    scope = parent.nested(code)
    args = arguments(function, scope)
    body = declared_body(scope)
    kind: Any = ast.AsyncFunctionDef if code.co_flags & (CO_COROUTINE | CO_ASYNC_GENERATOR) else ast.FunctionDef
    written = code.co_name if code.co_name.isidentifier() and same_name(code.co_name, name) else name
    returns = function.annotations.get("return")
    return with_type_params(kind(written, args, body, decorators, returns, None, lineno=0), function)


def arguments(function: Function, scope: Scope) -> ast.arguments:
    code = function.code
    names = [scope.local(n) for n in parameter_names(code)]
    args = [ast.arg(n, function.annotations.get(n)) for n in names]
    count, posonly = code.co_argcount, code.co_posonlyargcount
    at = count + code.co_kwonlyargcount
    kw_defaults = [function.kwdefaults.get(n) for n in names[count:at]]
    kwarg = args.pop() if code.co_flags & CO_VARKEYWORDS else None
    vararg = args.pop() if code.co_flags & CO_VARARGS else None
    return ast.arguments(
        args[:posonly], args[posonly:count], vararg, args[count:], kw_defaults, kwarg, function.defaults
    )


def declared_body(scope: Scope) -> list[ast.stmt]:
    """The body with docstring, ``global`` and ``nonlocal``."""
    code = scope.code
    stmts = scope.body()
    outermost = scope.parent is None or scope.parent.parent is None
    scope.nonlocals |= unused_free_variables(code, outermost)
    # a module stores its own docstring
    doc = code.co_consts[0] if code.co_name != "<module>" and code.co_consts else None
    head: list[ast.stmt] = [ast.Expr(ast.Constant(doc))] if isinstance(doc, str) else []
    head += scope.declarations()
    head += [_never(assign_to(name, ast.Constant(None))) for name in _unbound_locals(code)]
    stmts = head + stmts
    if code.co_flags & (CO_GENERATOR | CO_ASYNC_GENERATOR) and not _yields(stmts):
        stmts.append(_never(ast.Expr(ast.Yield(None))))
    return some(stmts)


def _never(stmt: ast.stmt) -> ast.stmt:
    """``stmt`` for what the compiler takes from its being there: code that it leaves out."""
    return ast.If(ast.Constant(False), [stmt], [])


def _alive(code: CodeType) -> list[Ins]:
    instructions = canonical(code)
    return [instructions[at] for at in reachable_instructions(instructions)]


def unused_free_variables(code: CodeType, outermost: bool = True) -> set[str]:
    """Free variables that no instruction mentions: the source only declared them ``nonlocal``.

    ``__class__`` is one of every method that says ``super``; only the ``outermost`` function has to declare it.
    """
    free = set(code.co_freevars) - (set() if outermost else {"__class__"})
    return free and free - {i.arg for i in _alive(code) if type(i.arg) is str}


_BINDING = frozenset({"STORE_FAST", "STORE_DEREF", "DELETE_FAST", "DELETE_DEREF", "LOAD_FAST_AND_CLEAR"})


def _unbound_locals(code: CodeType) -> list[str]:
    """Locals that are read or captured but bound nowhere: their assignment was dead code in the source."""
    count = len(parameter_names(code))
    loose = list(code.co_varnames[count:]) + [n for n in code.co_cellvars if n not in code.co_varnames]
    loose = [n for n in loose if n not in code.co_freevars]  # torch.compile lists some names twice
    if not loose:
        return []
    alive = _alive(code)
    bound = {i.arg for i in alive if i.op in _BINDING}
    used = {i.arg for i in alive if type(i.arg) is str}
    return [n for n in loose if n not in bound and n in used and n.isidentifier()]


def _yields(stmts: list[ast.stmt]) -> bool:
    work: list[Any] = list(stmts)
    while work:
        node = work.pop()
        if isinstance(node, (ast.Yield, ast.YieldFrom)):
            return True
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            work.extend(ast.iter_child_nodes(node))
    return False


def lambda_expression(function: Function, parent: Scope) -> ast.Lambda:
    scope = parent.nested(function.code)
    return ast.Lambda(arguments(function, scope), as_expression(scope.body()))


def as_expression(stmts: list[ast.stmt]) -> Any:
    """The value that statements of a lambda return."""
    if not stmts:
        return ast.Constant(None)
    first, rest = stmts[0], stmts[1:]
    if isinstance(first, ast.Return):
        return first.value if first.value is not None else ast.Constant(None)
    if not isinstance(first, ast.If):
        raise NoExpression("a lambda whose body is no expression")
    yes, no = first.body, first.orelse
    if terminates(yes):
        no = no + rest
    elif no and terminates(no):
        yes = yes + rest
    return ast.IfExp(first.test, as_expression(yes), as_expression(no))


# -- classes --------------------------------------------------------------------------------------------------------
_IMPLICIT = {"__module__", "__qualname__", "__classcell__", "__static_attributes__", "__firstlineno__",
             "__classdictcell__", "__type_params__"}  # fmt: skip


def class_body(scope: Scope) -> list[ast.stmt]:
    scope.is_class = True
    stmts = scope.body()
    doc: list[ast.stmt] = []
    out: list[ast.stmt] = []
    for n, stmt in enumerate(stmts):
        stored = stored_name(stmt)
        if isinstance(stmt, ast.Return) or (stored in _IMPLICIT and (n < 4 or n >= len(stmts) - 4)):
            continue
        text = docstring_statement(stmt) if n <= 4 and not out and not doc else None
        if text is not None:
            doc.append(text)
        else:
            out.append(stmt)
    if not doc and out and isinstance(out[0], ast.Expr) and isinstance(out[0].value, ast.Constant):
        doc.append(out.pop(0))
    return some(doc + scope.declarations() + out)


def stored_name(stmt: ast.stmt) -> str | None:
    """``name`` of a statement ``name = value``."""
    target = stmt.targets[0] if isinstance(stmt, ast.Assign) and len(stmt.targets) == 1 else None
    return target.id if isinstance(target, ast.Name) else None


def docstring_statement(stmt: ast.stmt) -> ast.stmt | None:
    """The docstring that ``__doc__ = "..."`` is at the begin of a class or module."""
    value = stmt.value if isinstance(stmt, ast.Assign) and stored_name(stmt) == "__doc__" else None
    return ast.Expr(value) if isinstance(value, ast.Constant) and isinstance(value.value, str) else None


# -- type parameters ------------------------------------------------------------------------------------------------
def generic_definition(function: Function, args: list[Any], scope: Scope) -> Any:
    """What calling ``<generic parameters of …>`` returns: a Function, Class or Alias with its parameters.

    The compiler (3.12) wraps a definition with type parameters in a function that makes these and returns it finished.
    """
    inner = scope.nested(function.code)
    stmts = inner.body()
    last = stmts[-1] if stmts else None
    value: Any = last.value if len(stmts) == 1 and isinstance(last, ast.Return) else None
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
