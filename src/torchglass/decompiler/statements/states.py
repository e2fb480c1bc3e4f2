"""Control flow without a form in Python's statements, written as a state machine.

Every block is a state; a loop runs the block that ``_state`` names.  Protected regions are loops inside ``try`` or
``with``, left when ``_state`` names a block outside.  Before: a jump from one arm of a branch into the other.  After:

    _state = 1
    while True:
        if _state == 1: ...; _state = 3 if test else 2
        elif _state == 2: ...
"""

from __future__ import annotations

import ast
from typing import Any

from ...bytecode.canonical import VERSION
from ..errors import DecompileError
from ..expressions.trees import STORE, assign_to, load, some
from ..expressions.values import Item, Marker, Match
from ..graph.cfg import Graph, Node
from .tries import exit_marker, with_statement

Context = tuple[tuple[str, Node], ...]


def state_machine(graph: Graph, nodes: list[Node]) -> list[ast.stmt]:
    """The statements of executed ``nodes`` as a state machine."""
    return _States(graph, nodes).run()


class _States:
    def __init__(self, graph: Graph, nodes: list[Node]) -> None:
        self.graph = graph
        self.nodes = nodes
        self.number = {node.id: n for n, node in enumerate(nodes)}
        self.context: dict[int, Context] = {}

    def run(self) -> list[ast.stmt]:
        self._place(self.nodes[0], ())
        return [self.go(self.nodes[0]), *self.loop(())]

    # -- which region each node belongs to ---------------------------------------------------------------------------
    def _place(self, entry: Node, context: Context) -> None:
        work = [(entry, context)]
        while work:
            node, around = work.pop()
            known = self.context.get(node.id)
            if known is not None:
                if known != around:
                    raise DecompileError("a block reached from two regions")
                continue
            self.context[node.id] = around
            for n, child in enumerate(node.succ):
                if node.kind == "try" and n == 0:
                    work.append((child, (*around, ("try", node))))
                elif node.kind == "try" and node.try_kind != "with":
                    work.append((child, (*around, ("handler", node))))
                else:
                    work.append((child, self._kept(around, child)))

    def _kept(self, around: Context, child: Node) -> Context:
        kept: list[tuple[str, Node]] = []
        for kind, node in around:
            inside = node.handler in self.graph.chain(child.eh) if kind == "try" else self._handles(node, child)
            if not inside:
                break
            kept.append((kind, node))
        return tuple(kept)

    @staticmethod
    def _handles(node: Node, child: Node) -> bool:
        """Whether ``child`` runs while the exception that ``node``'s handler caught is still being handled."""
        handler = node.succ[1]
        size = len(handler.stack or ())
        out = handler.out[0] if handler.out else []
        if VERSION >= (3, 11):
            marker = out[size - 1] if len(out) >= size else None
        else:
            marker = (handler.stack or [None] * 6)[size - 6]
        return isinstance(marker, Marker) and any(v is marker for v in child.stack or ())

    # -- writing ---------------------------------------------------------------------------------------------------
    def go(self, node: Node) -> ast.stmt:
        return assign_to("_state", ast.Constant(self.number[node.id]))

    def loop(self, context: Context) -> list[ast.stmt]:
        """The loop over all states of one region."""
        members = [n for n in self.nodes if self.context.get(n.id) == context]
        body: list[ast.stmt] = [ast.Break()] if context else [ast.Raise(load("AssertionError"), None)]
        for node in reversed(members):
            test = ast.Compare(load("_state"), [ast.Eq()], [ast.Constant(self.number[node.id])])
            body = [ast.If(test, some(self.state(node)), body)]
        return [ast.While(ast.Constant(True), body, [])]

    def state(self, node: Node) -> list[ast.stmt]:
        out = [self._named(stmt, node) for stmt in node.stmts]
        if node.kind == "jump":
            return [*out, self.go(node.succ[0])]
        if node.kind == "cond":
            test = self._test(node)
            return [*out, ast.If(test, [self.go(node.succ[0])], [self.go(node.succ[1])])]
        if node.kind == "for":
            return [*out, *self._next(node)]
        if node.kind == "try":
            return self._with(node) if node.try_kind == "with" else self._try(node)
        return out

    def _test(self, node: Node) -> Any:
        if not isinstance(node.cond, Match):
            return node.cond
        return ast.Call(load("isinstance"), [load(self._caught(node)), node.cond.type], [])

    def _caught(self, node: Node) -> str:
        for kind, around in reversed(self.context[node.id]):
            if kind == "handler":
                return f"_caught_{self.number[around.id]}"
        raise DecompileError("an except clause outside of a handler")

    def _named(self, stmt: Any, node: Node) -> ast.stmt:
        """``target = <item>`` with the variable that holds the item."""
        if isinstance(stmt, ast.Assign) and isinstance(stmt.value, Item):
            kind = stmt.value.kind
            name = self._caught(node) if kind == "except" else "_item"
            return ast.Assign(stmt.targets, load(name), lineno=0)
        return stmt

    def _next(self, node: Node) -> list[ast.stmt]:
        iterator = node.iterator
        if not isinstance(iterator, ast.Name) or node.code[-1].arg == "async":
            raise DecompileError("a loop over something that has no name")
        call = ast.Call(load("next"), [load(iterator.id)], [])
        take = assign_to("_item", call)
        stop = ast.ExceptHandler(load("StopIteration"), None, [self.go(node.succ[1])])
        return [ast.Try([take], [stop], [self.go(node.succ[0])], [])]

    def _try(self, node: Node) -> list[ast.stmt]:
        number = self.number[node.id]
        context = self.context[node.id]
        body = [self.go(node.succ[0]), *self.loop((*context, ("try", node)))]
        handling = [self.go(node.succ[1]), *self.loop((*context, ("handler", node)))]
        clause = ast.ExceptHandler(load("BaseException"), f"_caught_{number}", handling)
        return [ast.Try(body, [clause], [], [])]

    def _with(self, node: Node) -> list[ast.stmt]:
        body = [self.go(node.succ[0]), *self.loop((*self.context[node.id], ("try", node)))]
        done = f"_done_{self.number[node.id]}"
        body.append(assign_to(done, ast.Constant(True)))
        entered = with_statement(exit_marker(node), ast.Name("_item", STORE), body)
        swallowed = ast.If(ast.UnaryOp(ast.Not(), load(done)), [self.go(node.succ[1])], [])
        return [assign_to(done, ast.Constant(False)), entered, swallowed]
