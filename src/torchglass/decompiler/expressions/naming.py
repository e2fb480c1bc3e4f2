"""Execution of code that no compiler made: what is used twice, or out of order, gets a name.

Tools that assemble bytecode (torch.compile's transformed code, our own entries) shuffle the stack and pass values in
lists that they build, cut and unpack again.  ``NamingMachine`` follows such lists element by element, so that nothing
of them is left in the source, and assigns ``_value_N`` to whatever else is copied.  Before: COPY, STORE_FAST, SWAP,
BUILD_LIST, LIST_EXTEND, SWAP, CALL_FUNCTION_EX.  After: ``_value_0 = f(x)`` and ``g(_value_0, y)``.
"""

from __future__ import annotations

import ast
from collections import ChainMap
from collections.abc import Callable
from types import CodeType
from typing import Any

from ...bytecode.ins import Ins
from ...process.tables import enters
from ..names import STAND_IN
from .machine import RULES, Machine, Rule
from .trees import LOAD, assign_to, load
from .values import Fresh, is_marker, is_silent

NAMED: dict[str, Rule] = {}


def _described(value: Any) -> str:
    """What a constant is, in words that no run changes and that run no one's ``__repr__``."""
    if isinstance(value, CodeType):
        return f"the code of {value.co_name} ({value.co_filename}:{value.co_firstlineno})"
    return f"a {type(value).__qualname__}"


def named(*names: str) -> Callable[[Callable[[Any, Ins], bool]], Callable[[Any, Ins], bool]]:
    """Register what is tried before the ordinary rule for ``names``; it returns whether it did it."""

    def register(function: Callable[[Any, Ins], bool]) -> Callable[[Any, Ins], bool]:
        def rule(machine: Any, ins: Ins) -> None:
            if not function(machine, ins):
                RULES[ins.op](machine, ins)

        enters(NAMED)(*names)(rule)
        return function

    return register


class NamingMachine(Machine):
    """A Machine whose stack holds, apart from values just computed, only names, constants and fresh containers."""

    rules = ChainMap(NAMED, RULES)

    # -- what may wait -------------------------------------------------------------------------------------------
    def simple(self, value: Any) -> bool:
        """Whether evaluating ``value`` later is the same: until a statement binds the local it names."""
        if isinstance(value, ast.Slice):
            return all(p is None or self.simple(p) for p in (value.lower, value.upper, value.step))
        return self.lasting(value) or isinstance(value, Fresh) or (isinstance(value, ast.Name) and is_local_name(value))

    def harmless(self, value: Any) -> bool:
        return self.simple(value)

    def lasting(self, value: Any) -> bool:
        return Machine.harmless(self, value)

    def waits(self, value: Any) -> bool:
        return not is_silent(value) and not self.simple(value)

    def emit(self, stmt: ast.stmt) -> None:
        self.spill()
        held = self._local_names(self.stack)
        if held:  # else nothing that the statement binds is waited for, which is most often so
            bound = {n.id for n in ast.walk(stmt) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
            if isinstance(stmt, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                bound = {stmt.name}
            for name in sorted(bound & {value.id for value in held}):
                waiting = [value for value in self._local_names(self.stack) if value.id == name]
                kept = self.assign(load(name))
                for value in waiting:
                    self.substitute(value, kept)
        self.stmts.append(stmt)

    def _local_names(self, values: list[Any]) -> list[ast.Name]:
        """The locals among ``values``, those in fresh containers included."""
        found: list[ast.Name] = []
        for value in values:
            if isinstance(value, Fresh):
                found += self._local_names(value.elements)
            elif isinstance(value, ast.Name) and is_local_name(value):
                found.append(value)
        return found

    def kept(self, test: Any) -> Any:
        if not self.waits(test):
            return test
        self.spill()
        return self.assign(test)

    def spill(self) -> None:
        for n, value in enumerate(self.stack):
            if self.waits(value):
                self.spill_at(n)

    def spill_at(self, n: int) -> None:
        """Give the value in slot ``n`` a name; of a display, each of its elements."""
        value = self.stack[n]
        if type(value) in (ast.List, ast.Tuple) and not any(isinstance(e, ast.Starred) for e in value.elts):
            elements = [self.assign(e) if self.waits(e) else e for e in value.elts]
            self.substitute(value, Fresh(type(value), elements))
            return
        self.substitute(value, self.assign(self.as_expr(value)))

    def assign(self, value: Any) -> ast.Name:
        if isinstance(value, ast.Slice):
            parts = [p or ast.Constant(None) for p in (value.lower, value.upper)]
            value = ast.Call(load("slice"), parts + ([value.step] if value.step else []), [])
        name = self.temporary_name()
        name.home = self.node.id  # type: ignore[attr-defined]
        self.stmts.append(assign_to(name.id, value))
        return name

    def substitute(self, old: Any, new: Any) -> None:
        """Put ``new`` where ``old`` is on the stack; containers that hold it are replaced, once each."""
        known: dict[int, Any] = {id(old): new}

        def swapped(value: Any) -> Any:
            if id(value) in known or not isinstance(value, Fresh):
                return known.get(id(value), value)
            elements = [swapped(e) for e in value.elements]
            same = all(a is b for a, b in zip(elements, value.elements))
            known[id(value)] = value if same else Fresh(value.kind, elements)
            return known[id(value)]

        self.stack[:] = [swapped(v) for v in self.stack]

    def uses(self, value: Any) -> int:
        """How often ``value`` is on the stack, containers included."""
        work, count = list(self.stack), 0
        while work:
            other = work.pop()
            count += other is value
            if isinstance(other, Fresh):
                work.extend(other.elements)
        return count

    # -- values become expressions ---------------------------------------------------------------------------------
    def as_expr(self, value: Any) -> Any:
        if is_marker(value, "cell"):
            # the cell itself, which source can only reach through a function that closes over it
            function = ast.Lambda(ast.arguments([], [], None, [], [], None, []), load(value.expr))
            closure = ast.Attribute(function, "__closure__", LOAD)
            return ast.Subscript(closure, ast.Constant(0), LOAD)
        if isinstance(value, ast.Constant) and not isinstance(value.value, _WRITABLE):
            return self.stand_in(value.value)
        if not isinstance(value, Fresh):
            return super().as_expr(value)
        if value.kind is ast.List and self.uses(value):
            name = self.assign(self.display(value))
            self.substitute(value, name)
            return name
        return self.display(value)

    def stand_in(self, value: Any) -> ast.Name:
        """A name for a constant that no source can write (tools put any object among a code's constants)."""
        at = next(n for n, const in enumerate(self.scope.code.co_consts) if const is value)
        name = STAND_IN + str(at)
        self.scope.attempt.note(f"{name} stands for {_described(value)}")
        return load(name)

    def display(self, value: Fresh) -> Any:
        return value.kind([self.as_expr(e) for e in value.elements], LOAD)

    def exprs(self, count: int) -> list[Any]:
        self.need(count)
        for value in self.stack[len(self.stack) - count :]:
            if isinstance(value, Fresh) and value.kind is ast.List and self.uses(value) > 1:
                self.substitute(value, self.assign(self.display(value)))
        return super().exprs(count)

    def store(self, target: Any) -> None:
        if self.stack and isinstance(self.stack[-1], Fresh):
            self.stack.append(self.expr())
        super().store(target)
        if self.group:
            self.close_group()

    def ends_with_call(self, ins: Ins) -> bool:
        """Whether nothing but the return of its result follows the call ``ins``."""
        last = self.node.code[-1]
        return bool(last.op == "RETURN_VALUE" and self.node.code[-2:-1] == [ins] and last.eh < 0)

    def keeps_order(self, stack: list[Any]) -> bool:
        """Whether the values of ``stack`` that are still to be computed stand in the order in which they must be."""
        times = [getattr(v, "when", 0) for v in stack if self.waits(v)]
        return times == sorted(times)


_WRITABLE = (str, bytes, int, float, complex, bool, type(None), type(...), tuple, frozenset)


def is_local_name(name: ast.Name) -> bool:
    return getattr(name, "is_local", False)


def store_then_load(code: list[Ins]) -> None:
    """COPY 1, STORE_FAST x is STORE_FAST x, LOAD_FAST x: the variable is the name of the value."""
    targets = {ins.to for ins in code if ins.to >= 0}
    for ins in code:
        if ins.op != "COPY" or ins.arg != 1 or ins.nxt < 0:
            continue
        store = code[ins.nxt]
        if store.op == "STORE_FAST" and store.index not in targets and store.eh == ins.eh:
            ins.op, ins.arg = "STORE_FAST", store.arg
            store.op = "LOAD_FAST"
