"""Code objects in, definitions out: signature, declarations, docstring, nested functions, classes, comprehensions.

``body_of(code, scope)`` runs the whole way of the decompiler for one code object; the builders around it dress the
statements as ``def``, ``lambda``, ``class`` or comprehension.
"""

from __future__ import annotations

import ast
import keyword
from types import CodeType
from typing import Any

from ..bytecode.canonical import VERSION, canonical
from .errors import UNEXPECTED, DecompileError
from .expressions import rules_basic as _rules_basic
from .expressions import rules_calls as _rules_calls
from .expressions import rules_control as _rules_control
from .expressions import rules_named as _rules_named
from .expressions import rules_values as _rules_values
from .expressions.assign import unwrap_decorators
from .expressions.cases import extract_matches
from .expressions.comprehension import build_comprehension
from .expressions.machine import LOAD, STORE, Machine
from .expressions.naming import NamingMachine, store_then_load
from .expressions.reduce import Respill, execute
from .expressions.rules_generics import Alias, alias_statement, generic_definition
from .expressions.values import Class, Function
from .graph.cfg import Graph, dominators, order, split_stack_cleanups
from .instructions.entered import simplify_entered
from .instructions.finally_copies import join_finally_ends, strip_finally_copies, unify_with_exits
from .instructions.flow import simplify
from .instructions.inlined import extract_comprehensions
from .instructions.minimize import merge_copies, merge_plain_returns, reachable_instructions
from .instructions.peel import entry_jump, restored_names
from .statements.finish import finish
from .statements.states import state_machine
from .statements.structure import Unstructured, structure, terminates

__all__ = ["_rules_basic", "_rules_calls", "_rules_control", "_rules_named", "_rules_values"]
__all__ += ["body_of", "function_definition"]

CO_VARARGS, CO_VARKEYWORDS, CO_GENERATOR, CO_COROUTINE, CO_ASYNC_GENERATOR = 4, 8, 0x20, 0x80, 0x200
CO_HAS_DOCSTRING = 0x4000000


#: how instructions are taken for copies of one another (same source position, same meaning, never); then, code that
#: shuffles its values as no compiler does; then, code entered in loops whose rest of the round needs one of its own
MODES = ("copies", "alike", "apart", "named", "rounds")
_PATTERN_HINTS = frozenset({"COPY", "MATCH_SEQUENCE", "MATCH_MAPPING", "MATCH_CLASS"})


class Scope:
    """What the rules need to know about the function around the code, and what they find out about it."""

    def __init__(self, code: CodeType, parent: Scope | None = None) -> None:
        self.code = code
        self.parent = parent
        self.is_class = False
        self.is_comprehension = code.co_name in _rules_calls.COMPREHENSIONS
        self.is_generic = code.co_name.startswith("<generic parameters of")
        self.is_generator_expression = code.co_name == "<genexpr>"
        self.collector: Any = None
        self.globals: set[str] = set()
        self.nonlocals: set[str] = set()
        self.constants: set[str] = {".0"}
        self.exception_width = 1 if VERSION >= (3, 11) else 3
        self.names = set(code.co_varnames) | set(code.co_cellvars) | set(code.co_freevars)
        self.taken = self.names | set(code.co_names)
        self.enclosing: set[str] = set()
        if parent is not None:
            self.enclosing = parent.enclosing | (set() if parent.is_class else parent.names)
            self.taken |= parent.taken
        self.counter = 0
        self.spills: set[int] = set()
        self.named_iterators = False
        self.notes: list[str] = []
        self.type_parameters: list[Any] = []
        self.generic_arguments: list[Any] = []
        self.modes: tuple[str, ...] = parent.modes if parent is not None else MODES
        self.reading: int = parent.reading if parent is not None else 0
        self.instructions: Any = None
        self.machine: type[Machine] = Machine

    def local(self, name: str) -> str:
        """A local's name in source; the compiler's own names (``.0``) and a tool's are made identifiers."""
        if name.isidentifier() and not keyword.iskeyword(name):
            return name
        if (self.is_comprehension and name == ".0") or self.is_generic:
            return name
        return "_" + "".join(c if c.isalnum() or c == "_" else "_" for c in name)

    def temporary(self) -> str:
        while True:
            name = f"_value_{self.counter}"
            self.counter += 1
            if name not in self.taken:
                self.taken.add(name)
                self.constants.add(name)
                return name

    def note(self, text: str) -> None:
        """Something a reader of the whole output must be told."""
        scope: Scope = self
        while scope.parent is not None:
            scope = scope.parent
        if text not in scope.notes:
            scope.notes.append(text)

    def saw_global(self, name: str) -> None:
        if name in self.enclosing or self.is_class:
            self.globals.add(name)

    def stored_free(self, name: str) -> None:
        if name in self.code.co_freevars:
            self.nonlocals.add(name)

    def annotate(self, machine: Machine, owner: Any, index: Any) -> bool:
        """``__annotations__[name] = annotation`` in a class body is an annotated assignment."""
        if not (isinstance(owner, ast.Name) and owner.id == "__annotations__" and isinstance(index, ast.Constant)):
            return False
        name, annotation = str(index.value), machine.expr()
        value = None
        stmts = machine.stmts
        last = stmts[-1] if stmts else None
        target = last.targets[0] if isinstance(last, ast.Assign) and len(last.targets) == 1 else None
        if isinstance(last, ast.Assign) and isinstance(target, ast.Name) and target.id == name:
            value = last.value
            stmts.pop()
        machine.emit(ast.AnnAssign(ast.Name(name, STORE), annotation, value, 1))
        return True

    def comprehension(self, function: Function, iterated: Any) -> Any:
        return build_comprehension(function, iterated, self)

    def generic(self, function: Function, args: list[Any]) -> Any:
        return generic_definition(function, args, self)

    def definition(self, name: str, value: Any) -> ast.stmt | None:
        """The ``def`` or ``class`` statement that ``name = value`` was, if it was one."""
        if isinstance(value, Alias):
            return alias_statement(value, name) if value.name == name else None
        decorators, inner = unwrap_decorators(value)
        if isinstance(inner, Function) and same_name(inner.code.co_name, name) and inner.code.co_name != "<lambda>":
            return function_definition(inner, getattr(inner, "owner", self), name, decorators)
        if isinstance(inner, Class) and same_name(inner.name, name):
            return class_definition(inner, getattr(inner, "owner", self), name, decorators)
        return None


def same_name(written: str, stored: str) -> bool:
    """Whether a definition called ``written`` is stored under ``stored`` (which may be mangled by a class)."""
    return written == stored or (written.startswith("__") and stored.endswith(written) and stored.startswith("_"))


class FinalError(DecompileError):
    """A body for which every way has been tried already: whoever contains it need not try again."""


def body_of(code: CodeType, scope: Scope) -> list[ast.stmt]:
    """The statements of ``code``; the returns of ``None`` at its end are left out.

    How many copies the compiler made of one statement cannot always be told; if the likeliest reading has no
    structure, others are tried (``scope.modes``).
    """
    first: DecompileError | None = None
    known = (set(scope.globals), set(scope.nonlocals), set(scope.taken))
    for mode in scope.modes or (MODES if _expression_like(code, scope) else ()):
        scope.globals, scope.nonlocals, scope.taken = (set(k) for k in known)
        scope.counter, scope.spills, scope.collector = 0, set(), None
        try:
            return _body(code, scope, mode)
        except FinalError:
            raise
        except DecompileError as error:
            first = first or error
        except UNEXPECTED as error:
            # bytecode no compiler makes must end in a refusal, not in a traceback of ours
            first = first or DecompileError(f"unexpected bytecode: {error!r}")
    scope.globals, scope.nonlocals, scope.taken = (set(k) for k in known)
    scope.counter, scope.spills, scope.collector = 0, set(), None
    if scope.reading:
        raise FinalError(str(first))  # another reading is only wanted for its structure
    try:
        stmts = _state_machine(code, scope)
    except (DecompileError, *UNEXPECTED) as error:
        raise FinalError(str(first)) from error
    why = first or "its structured form compiles to other bytecode"
    scope.note(f"control flow of {code.co_name} written as a state machine: {why}")
    return stmts


def _expression_like(code: CodeType, scope: Scope) -> bool:
    return scope.is_comprehension or scope.is_class or scope.is_generic or code.co_name in ("<lambda>", "<module>")


def _state_machine(code: CodeType, scope: Scope) -> list[ast.stmt]:
    """The body of ``code`` without structure: right, but to be read block by block."""
    if _expression_like(code, scope):
        raise DecompileError("no state machine inside an expression or class body")
    instructions = canonical(code)
    kinds = simplify(instructions, plain=True)
    store_then_load(instructions)
    if "star" in kinds.values():
        raise DecompileError("an except* clause in a state machine")
    extract_comprehensions(instructions)
    scope.instructions = (instructions, kinds)
    scope.named_iterators = True
    for _ in range(8):
        graph, nodes = _executed_candidates(instructions, kinds)
        try:
            execute(nodes, NamingMachine(scope), [])
        except Respill as waiting:
            scope.spills |= waiting.homes
            continue
        return state_machine(graph, order(graph))
    raise DecompileError("values wait across a branch")


def _executed_candidates(instructions: list[Any], kinds: dict[int, str]) -> tuple[Graph, list[Any]]:
    graph = Graph(instructions, kinds, 0)
    nodes = order(graph)
    if split_stack_cleanups(graph, nodes):
        nodes = order(graph)
    return graph, nodes


def _body(code: CodeType, scope: Scope, mode: str) -> list[ast.stmt]:
    instructions = canonical(code)
    if mode == "rounds" and entry_jump(instructions) is None:
        raise DecompileError("not entered in a loop")
    scope.constants |= restored_names(instructions)
    kinds = simplify_entered(instructions, code, mode == "rounds")
    failed = strip_finally_copies(instructions, kinds)
    if mode in ("copies", "alike", "rounds"):
        merge_copies(instructions, reachable_instructions(instructions), mode != "alike")
    merge_plain_returns(instructions)
    if failed:
        raise DecompileError("a finally body differs between its copies")
    if "with" in kinds.values():
        unify_with_exits(instructions, kinds)
    extract_comprehensions(instructions)
    if any(i.op in _PATTERN_HINTS for i in instructions):
        extract_matches(instructions, reachable_instructions(instructions))
    if mode == "named":
        store_then_load(instructions)
    scope.instructions = (instructions, kinds)
    scope.machine = NamingMachine if mode == "named" else Machine
    stmts = finish(statements_of(instructions, kinds, scope, 0, []))
    return drop_plain_return(stmts)


def statements_of(
    instructions: list[Any], kinds: dict[int, str], scope: Scope, start: int, stack: list[Any]
) -> list[ast.stmt]:
    """Graph, execution and structure of the instructions reached from ``start`` with ``stack``."""
    for _ in range(8):
        try:
            return _statements(instructions, kinds, scope, start, stack)
        except Respill as waiting:
            scope.spills |= waiting.homes
    raise DecompileError("values wait across a branch")


def _statements(
    instructions: list[Any], kinds: dict[int, str], scope: Scope, start: int, stack: list[Any]
) -> list[ast.stmt]:
    graph = Graph(instructions, kinds, start)
    nodes = order(graph)
    if split_stack_cleanups(graph, nodes):
        nodes = order(graph)
    machine = scope.machine(scope)
    execute(nodes, machine, stack)
    nodes = order(graph)
    dominators(nodes)
    if "finally" in kinds.values():
        join_finally_ends(graph, nodes)
        nodes = order(graph)
        dominators(nodes)
    try:
        return structure(graph, nodes, scope.reading)
    except Unstructured as error:
        raise DecompileError(f"control flow not structured: {error}") from error


def drop_plain_return(stmts: list[ast.stmt]) -> list[ast.stmt]:
    """Leave out ``return`` where the end of the function follows anyway."""
    while stmts:
        last = stmts[-1]
        if isinstance(last, ast.Return) and last.value is None:
            stmts.pop()
            continue
        if isinstance(last, ast.If):
            last.body = drop_plain_return(last.body) or [ast.Pass()]
            last.orelse = drop_plain_return(last.orelse)
        elif isinstance(last, (ast.With, ast.AsyncWith)):
            last.body = drop_plain_return(last.body) or [ast.Pass()]
        elif isinstance(last, ast.Try) and not last.finalbody:
            if not last.orelse:
                last.body = drop_plain_return(last.body) or [ast.Pass()]
            last.orelse = drop_plain_return(last.orelse)
            for handler in last.handlers:
                handler.body = drop_plain_return(handler.body) or [ast.Pass()]
        break
    return stmts


# -- functions ------------------------------------------------------------------------------------------------------
def arguments(function: Function, scope: Scope) -> ast.arguments:
    code = function.code
    names = [scope.local(n) for n in code.co_varnames]
    count, posonly, kwonly = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount
    at = count + kwonly
    notes = function.annotations

    def arg(name: str) -> ast.arg:
        return ast.arg(name, notes.get(name))

    positional = [arg(n) for n in names[:count]]
    keywords = [arg(n) for n in names[count:at]]
    vararg = kwarg = None
    if code.co_flags & CO_VARARGS:
        vararg = arg(names[at])
        at += 1
    if code.co_flags & CO_VARKEYWORDS:
        kwarg = arg(names[at])
    kw_defaults = [function.kwdefaults.get(n) for n in names[count : count + kwonly]]
    return ast.arguments(
        positional[:posonly], positional[posonly:], vararg, keywords, kw_defaults, kwarg, function.defaults
    )


def function_definition(function: Function, parent: Scope | None, name: str, decorators: list[Any]) -> ast.stmt:
    code = function.code
    scope = Scope(code, parent)
    args = arguments(function, scope)
    body = declared_body(code, scope)
    kind: Any = ast.AsyncFunctionDef if code.co_flags & (CO_COROUTINE | CO_ASYNC_GENERATOR) else ast.FunctionDef
    written = code.co_name if code.co_name.isidentifier() and same_name(code.co_name, name) else name
    node = kind(written, args, body, decorators, function.annotations.get("return"), None, lineno=0)
    if VERSION >= (3, 12):
        node.type_params = function.type_params or []
    return node


def declared_body(code: CodeType, scope: Scope) -> list[ast.stmt]:
    """The body with docstring, ``global`` and ``nonlocal``."""
    stmts = body_of(code, scope)
    outermost = scope.parent is None or scope.parent.parent is None
    scope.nonlocals |= unused_free_variables(code, outermost)
    head: list[ast.stmt] = []
    doc = docstring(code)
    if doc is not None:
        head.append(ast.Expr(ast.Constant(doc)))
    if scope.globals:
        head.append(ast.Global(sorted(scope.globals)))
    if scope.nonlocals:
        head.append(ast.Nonlocal(sorted(scope.nonlocals)))
    missing = unbound_locals(code, scope)
    for name in missing:
        head.append(
            ast.If(ast.Constant(False), [ast.Assign([ast.Name(name, STORE)], ast.Constant(None), lineno=0)], [])
        )
    stmts = head + stmts
    if code.co_flags & (CO_GENERATOR | CO_ASYNC_GENERATOR) and not _yields(stmts):
        stmts.append(ast.If(ast.Constant(False), [ast.Expr(ast.Yield(None))], []))
    return stmts or [ast.Pass()]


def docstring(code: CodeType) -> str | None:
    if code.co_name == "<module>" or not code.co_consts or not isinstance(code.co_consts[0], str):
        return None  # a module stores its own
    if VERSION >= (3, 14) and not code.co_flags & CO_HAS_DOCSTRING:
        return None
    return code.co_consts[0]


_BINDING = frozenset({"STORE_FAST", "STORE_DEREF", "DELETE_FAST", "DELETE_DEREF", "LOAD_FAST_AND_CLEAR"})


def unused_free_variables(code: CodeType, outermost: bool = True) -> set[str]:
    """Free variables that no instruction mentions: the source only declared them ``nonlocal``.

    ``__class__`` is one of every method that says ``super``; only the ``outermost`` function has to declare it.
    """
    free = set(code.co_freevars) - (set() if outermost else {"__class__"})
    if not free:
        return free
    instructions = canonical(code)
    used = [instructions[at].arg for at in reachable_instructions(instructions)]
    return free - {arg for arg in used if type(arg) is str}


def unbound_locals(code: CodeType, scope: Scope) -> list[str]:
    """Locals that are read or captured but bound nowhere: their assignment was dead code in the source."""
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & CO_VARARGS) + bool(code.co_flags & CO_VARKEYWORDS)
    loose = list(code.co_varnames[count:]) + [n for n in code.co_cellvars if n not in code.co_varnames]
    loose = [n for n in loose if n not in code.co_freevars]  # torch.compile lists some names twice
    if not loose:
        return []
    instructions = canonical(code)
    alive = [instructions[at] for at in reachable_instructions(instructions)]
    bound = {i.arg for i in alive if i.op in _BINDING}
    used = {i.arg for i in alive if type(i.arg) is str}
    return [n for n in loose if n not in bound and n in used and n.isidentifier()]


def _yields(stmts: list[ast.stmt]) -> bool:
    work: list[Any] = list(stmts)
    while work:
        node = work.pop()
        if isinstance(node, (ast.Yield, ast.YieldFrom)):
            return True
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            continue
        work.extend(ast.iter_child_nodes(node))
    return False


def lambda_expression(function: Function, parent: Scope) -> ast.Lambda:
    scope = Scope(function.code, parent)
    args = arguments(function, scope)
    stmts = body_of(function.code, scope)
    return ast.Lambda(args, as_expression(stmts))


class NoExpression(DecompileError):
    """The body of a lambda holds statements."""


def as_expression(stmts: list[ast.stmt]) -> Any:
    """The value that statements of a lambda return."""
    if not stmts:
        return ast.Constant(None)
    first = stmts[0]
    if isinstance(first, ast.Return):
        return first.value if first.value is not None else ast.Constant(None)
    if isinstance(first, ast.If):
        if terminates(first.body):
            return ast.IfExp(first.test, as_expression(first.body), as_expression(first.orelse + stmts[1:]))
        if first.orelse and terminates(first.orelse):
            return ast.IfExp(first.test, as_expression(first.body + stmts[1:]), as_expression(first.orelse))
        return ast.IfExp(first.test, as_expression(first.body), as_expression(first.orelse))
    raise NoExpression("a lambda whose body is no expression")


# -- classes --------------------------------------------------------------------------------------------------------
_IMPLICIT = {"__module__", "__qualname__", "__classcell__", "__static_attributes__", "__firstlineno__",
             "__classdictcell__", "__type_params__"}  # fmt: skip


def class_definition(value: Class, parent: Scope | None, name: str, decorators: list[Any]) -> ast.stmt:
    body = class_body(value.function.code, parent)
    node = ast.ClassDef(value.name, value.bases, value.keywords, body, decorators)
    if VERSION >= (3, 12):
        node.type_params = value.type_params or []  # type: ignore[attr-defined]
    return node


def class_body(code: CodeType, parent: Scope | None) -> list[ast.stmt]:
    scope = Scope(code, parent)
    scope.is_class = True
    stmts = body_of(code, scope)
    out: list[ast.stmt] = []
    for n, stmt in enumerate(stmts):
        if isinstance(stmt, ast.Return):
            continue
        if isinstance(stmt, ast.Assign) and len(stmt.targets) == 1 and isinstance(stmt.targets[0], ast.Name):
            target = stmt.targets[0].id
            if target in _IMPLICIT and (n < 4 or n >= len(stmts) - 4):
                continue
            if (
                target == "__doc__"
                and n <= 4
                and not out
                and isinstance(stmt.value, ast.Constant)
                and isinstance(stmt.value.value, str)
            ):
                out.append(ast.Expr(stmt.value))
                continue
        out.append(stmt)
    head: list[ast.stmt] = []
    if scope.globals:
        head.append(ast.Global(sorted(scope.globals)))
    if scope.nonlocals:
        head.append(ast.Nonlocal(sorted(scope.nonlocals)))
    if out and isinstance(out[0], ast.Expr) and isinstance(out[0].value, ast.Constant):
        head, out = [out[0]] + head, out[1:]
    return head + out or [ast.Pass()]


__all__ += ["LOAD"]
