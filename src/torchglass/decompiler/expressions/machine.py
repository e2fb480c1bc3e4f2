"""A basic block in, statements out: symbolic execution of the stack machine.

``Machine.run(node)`` executes the instructions of one node on ``node.stack``.  The rules stand in the tables of
``rules_*.py``, one function per instruction, registered with ``@rule``.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any

from ...bytecode.ins import Ins
from ...process.tables import enters
from ..errors import DecompileError
from ..graph.cfg import Node
from ..scope import Scope
from . import assign
from .definitions import lambda_expression
from .trees import STORE, load
from .values import Case, CaseTest, Chained, Function, Import, Item, Marker, Match, UnpackItem, is_marker, is_silent

Rule = Callable[["Machine", Ins], None]
RULES: dict[str, Rule] = {}
rule = enters(RULES)
"""Registers a rule for canonical instructions."""


class Machine:
    """Symbolic execution of one function. ``scope`` gives what depends on the function around the code."""

    rules: Mapping[str, Rule] = RULES

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.stack: list[Any] = []
        self.stmts: list[ast.stmt] = []
        self.group: list[tuple[Any, Any]] = []
        self.clock = 0
        self.node: Any = None

    # -- running ------------------------------------------------------------------------------------------------
    def run(self, node: Node) -> None:
        """Execute ``node`` from ``node.stack``; fills ``stmts``, ``cond``, ``base``, ``out`` (one per successor)."""
        self.stack = list(node.stack or ())
        self.stmts = node.stmts
        self.node = node
        if node.kind == "try":
            return
        code = node.code
        body = code[:-1] if node.kind in ("cond", "for") else code
        rules = self.rules
        for ins in body:
            function = rules.get(ins.op)
            if function is None:
                raise DecompileError(f"no rule for {ins.op}")
            function(self, ins)
        if self.group:
            self.close_group()
        if node.kind == "cond":
            self._branch(node, code[-1])
        elif node.kind == "for":
            self._for(node)
        else:
            if node.id in self.scope.spills:
                self.spill()
            node.base = self.stack
            node.out = [self.stack]

    def _branch(self, node: Any, ins: Ins) -> None:
        if isinstance(ins.arg, Case):
            self._case(node, ins.arg)
            return
        if ins.arg == "exc":
            kind = self.expr()
            self.pop()
            test: Any = Match(kind)
        else:
            test = self.expr()
            if ins.arg == "none":
                test = ast.Compare(test, [ast.Is()], [ast.Constant(None)])
        if node.id in self.scope.spills:
            self.spill()
        if ins.op == "BRANCH_KEEP":
            test = self.kept(test)
        node.cond = test
        node.base = self.stack
        node.keep = None
        node.out = [self.stack, self.stack]
        if ins.op == "BRANCH_KEEP":
            node.keep = ins.jump_if
            kept = self.stack + [test]
            node.out = [kept, self.stack] if ins.jump_if else [self.stack, kept]

    def kept(self, test: Any) -> Any:
        """What is tested and, on one side, stays on the stack."""
        return test

    def _case(self, node: Any, case: Case) -> None:
        subject = self.pop()
        if not is_marker(subject, "subject"):
            subject = Marker("subject", self.as_expr(subject))
        for store in case.stores:
            if store.op == "STORE_GLOBAL":
                self.scope.globals.add(store.arg)
            elif store.op == "STORE_DEREF":
                self.scope.stored_free(store.arg)
        node.cond = CaseTest(subject, case.pattern)
        node.base = self.stack if case.last else [*self.stack, subject]
        node.keep = None
        node.out = [node.base, node.base]

    def _for(self, node: Node) -> None:
        if not self.stack:
            raise DecompileError("a for loop without an iterator")
        node.iterator = self.stack[-1]
        node.base = self.stack
        node.out = [[*self.stack, Item("for")], self.stack[:-1]]

    # -- the stack ----------------------------------------------------------------------------------------------
    def push(self, value: Any) -> None:
        self.clock += 1
        if not hasattr(value, "when"):
            value.when = self.clock
            value.home = self.node.id
        self.stack.append(value)

    def pop(self) -> Any:
        if not self.stack:
            raise DecompileError("stack underflow")
        return self.stack.pop()

    def expr(self) -> Any:
        """Pop a value that is used in an expression."""
        return self.as_expr(self.pop())

    def as_expr(self, value: Any) -> Any:
        if isinstance(value, Chained):
            result = value.value
            for target in value.targets:
                if not isinstance(target, ast.Name):
                    raise DecompileError("a value assigned to something other than a name inside an expression")
                result = ast.NamedExpr(target, result)
            return result
        if isinstance(value, Function) and value.code.co_name == "<lambda>":
            return lambda_expression(value, self.scope)
        if isinstance(value, (Marker, UnpackItem, Import)):
            raise DecompileError(f"{value!r} used as a value")
        return value

    def exprs(self, count: int) -> list[Any]:
        return [self.as_expr(v) for v in self.take(count)]

    def take(self, count: int) -> list[Any]:
        """Pop ``count`` values, the last of them the top."""
        self.need(count)
        at = len(self.stack) - count
        values = self.stack[at:]
        del self.stack[at:]
        return values

    def need(self, count: int) -> None:
        if len(self.stack) < count:
            raise DecompileError("stack underflow")

    # -- statements ---------------------------------------------------------------------------------------------
    def emit(self, stmt: ast.stmt) -> None:
        """Append a statement; values still on the stack were computed before it and move into temporaries."""
        if self.group:
            self.close_group()
        self.spill()
        self.stmts.append(stmt)

    def spill(self) -> None:
        for n, value in enumerate(self.stack):
            if not is_silent(value) and not self.harmless(value):
                self.spill_at(n)

    def harmless(self, value: Any) -> bool:
        return isinstance(value, ast.Constant) or (isinstance(value, ast.Name) and value.id in self.scope.constants)

    def lasting(self, value: Any) -> bool:
        """Whether ``value`` stays the same while a loop runs."""
        return self.harmless(value)

    def settle(self, node: Node) -> None:
        """Control leaves a protected region: what was computed inside must not be evaluated outside."""
        self.stack = node.out[0] = node.base = list(node.out[0])
        self.spill()

    def spill_at(self, n: int) -> None:
        value = self.stack[n]
        if getattr(value, "copied", False):
            raise DecompileError("a value used twice crosses a statement")
        name = self.temporary_name()
        targets = value.targets if isinstance(value, Chained) else []
        inner = self.as_expr(value.value if isinstance(value, Chained) else value)
        self.stmts.append(ast.Assign([ast.Name(name.id, STORE), *targets], inner, lineno=0))
        self.stack[:] = [name if other is value else other for other in self.stack]

    def temporary_name(self) -> ast.Name:
        name = load(self.scope.temporary())
        name.when = 0  # type: ignore[attr-defined]
        return name

    def store(self, target: Any) -> None:
        """The top of the stack goes to ``target``."""
        assign.store(self, target)

    def close_group(self) -> None:
        assign.close_group(self)
