"""Statements from dominance: what belongs inside a statement, and what comes after it.

A node that several ways of a branch reach, and that the branch dominates, comes after it.  Loops are natural loops;
``break`` goes to the one place that follows a loop, everything else a loop reaches is written inside it.  What fits no
statement raises ``Unstructured``.  Loops and ``try`` are written by the functions registered with ``@writes``.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ...bytecode.canonical import VERSION
from ...bytecode.flow import SAFE
from ...process.tables import enters
from ..expressions.conditions import case_test, negatable, negate
from ..expressions.trees import some, terminates
from ..expressions.values import Match, is_marker
from ..graph.cfg import Graph, Node
from ..graph.dominance import dominates
from .places import Loop, Place, Unstructured

Writer = Callable[["Structurer", Node, Place, "list[ast.stmt]"], "Node | None"]
WRITERS: dict[str, Writer] = {}
writes = enters(WRITERS)
"""Registers what appends a statement of a kind that begins at a node; it returns the node to go on with."""


class Structurer:
    def __init__(self, graph: Graph, nodes: list[Node], chosen: dict[int, Node | None] | None = None) -> None:
        self.graph = graph
        self.nodes = nodes
        self.chosen = chosen or {}
        #: each statement for which it was decided what follows it, with the other places that might
        self.decisions: list[tuple[Node, list[Node | None]]] = []
        self.written: set[int] = set()
        self.loops: dict[int, Loop] = {}
        self._find_loops()

    def run(self) -> list[ast.stmt]:
        return self.block(self.graph.entry, Place(None, None, self.graph.entry.eh, frozenset()))

    # -- loops ----------------------------------------------------------------------------------------------------
    def _find_loops(self) -> None:
        for node in self.nodes:
            for child in node.succ:
                if child.order <= node.order:
                    if not dominates(child, node):
                        raise Unstructured("a loop with two entries")
                    loop = self.loops.setdefault(child.id, Loop(child))
                    work = [node]
                    while work:
                        member = work.pop()
                        if member.id not in loop.nodes:
                            loop.nodes.add(member.id)
                            work.extend(member.preds)

    def follower(self, node: Node, likely: Node | None, place: Place) -> Node | None:
        """What follows the statement that begins at ``node``: ``likely``, unless something else was chosen for it."""
        if node.id in self.chosen:
            return self.chosen[node.id]
        owned = [n for n in self.nodes if dominates(node, n)]
        inside = self.loops[node.id].nodes if node.id in self.loops else {node.id}
        reached = {c.id: c for n in owned for c in n.succ if c.id not in inside and c.order > node.order}
        others: list[Node | None] = [*sorted(reached.values(), key=lambda n: n.order)]
        if place.follow is not None and place.follow.id not in reached:
            others.append(place.follow)
        self.decisions.append((node, [o for o in others if o is not likely]))
        return likely

    # -- straight code --------------------------------------------------------------------------------------------
    def block(self, node: Node | None, place: Place) -> list[ast.stmt]:
        """The statements from ``node`` up to ``place.follow``."""
        out: list[ast.stmt] = []
        while node is not None:
            loop = self.loops.get(node.id)
            if loop is None and node.kind == "for" and node.id not in self.written:
                loop = self.loops[node.id] = Loop(node)  # a body that always leaves
            if loop is not None and (place.loop is None or place.loop is not loop):
                node = WRITERS["loop"](self, node, place, out)
            else:
                node = self.one(node, place, out)
            if node is None:
                break
            short = self.shortcut(node, place)
            if short is not None:
                out.extend(short)
                break
        return out

    def one(self, node: Node, place: Place, out: list[ast.stmt]) -> Node | None:
        """Write one node and what belongs to it; the node to go on with, or None."""
        self.claim(node, place)
        out.extend(node.stmts)
        if node.kind == "jump":
            return node.succ[0]
        if node.kind == "cond":
            return self.branch(node, place, out)
        if node.kind == "try":
            return WRITERS[node.try_kind](self, node, place, out)
        if node.kind == "for":
            raise Unstructured("a for loop entered in the middle")
        return None

    def claim(self, node: Node, place: Place) -> None:
        if node.id in self.written:
            raise Unstructured("a node needed in two places")
        if node.eh != place.eh and not self.harmless(node):
            raise Unstructured("code of one protected region inside another")
        if self.left_handler(node, place):
            raise Unstructured("code behind a handler inside it")
        self.written.add(node.id)

    def left_handler(self, node: Node, place: Place) -> bool:
        """Whether ``node`` must not stand at ``place``, where an exception is handled that it no longer handles."""
        return handling(node) < place.handling and not self.harmless(node)

    def harmless(self, node: Node) -> bool:
        return node.kind != "try" and all(i.op in SAFE for i in node.code)

    def plain_exit(self, node: Node) -> bool:
        """Whether from ``node`` on the function is left without anything happening that could raise."""
        for _ in range(100):
            if node.kind not in ("jump", "return", "end") or not self.harmless(node):
                return False
            if node.kind != "jump":
                return True
            if node.stmts:
                return False
            node = node.succ[0]
        return False

    def shortcut(self, target: Node, place: Place) -> list[ast.stmt] | None:
        """What an edge to ``target`` is when it needs no code of its own: nothing, continue, break, a copied exit."""
        if target is place.follow:
            return []
        loop = place.loop
        if loop is not None:
            if target is loop.head:
                return [ast.Continue()]
            if target is loop.after:
                return [ast.Break()]
        if target.id in place.pending or target.id in self.written:
            copied = self.copy_exit(target, place)
            if copied is None:
                raise Unstructured("an edge that is no break, continue or fall-through")
            return copied
        return None

    def copy_exit(self, target: Node, place: Place) -> list[ast.stmt] | None:
        """A small piece of code that leaves the function may stand in several places."""
        stmts: list[ast.stmt] = []
        for _ in range(100):
            if target.kind not in ("return", "raise", "jump", "end") or len(target.stmts) + len(stmts) > 3:
                return None
            if (target.eh != place.eh and not self.harmless(target)) or self.left_handler(target, place):
                return None
            stmts.extend(target.stmts)
            if target.kind != "jump":
                return [copy.deepcopy(s) for s in stmts]
            target = target.succ[0]
        return None

    def go(self, target: Node, place: Place) -> list[ast.stmt]:
        short = self.shortcut(target, place)
        return short if short is not None else self.block(target, place)

    # -- branches -------------------------------------------------------------------------------------------------
    def merges(self, node: Node, place: Place) -> list[Node]:
        """The nodes that come after ``node``'s branches: dominated by it and reached in more than one way."""
        out = []
        for kid in node.kids:
            if kid.id in place.pending or sum(p.order < kid.order for p in kid.preds) < 2:
                continue
            out.append(kid)
        out.sort(key=lambda n: n.order)
        return out

    def branch(self, node: Node, place: Place, out: list[ast.stmt]) -> Node | None:
        yes, no = node.succ
        merges = self.merges(node, place)
        inner = place
        if merges and self.goes_on(node, place) and all(self.plain_exit(m) for m in merges):
            # several ways out of the function that were merged: each is written where it stands
            inner = replace(place, pending=place.without(*merges))
            merges = []
        for merge in reversed(merges):
            inner = inner.before(merge)
        a, b = self.go(yes, inner), self.go(no, inner) if no is not yes else []
        out.extend(make_if(node.cond, a, b, yes.pos, no.pos))
        return self.after_branch(merges, place, out)

    def goes_on(self, node: Node, place: Place) -> bool:
        """Whether from ``node`` on control reaches what follows its place."""
        follow = place.follow
        return follow is not None and any(dominates(node, p) for p in follow.preds)

    def after_branch(self, merges: list[Node], place: Place, out: list[ast.stmt]) -> Node | None:
        """Write the merge nodes one after the other; the last is handed back to go on with."""
        if not merges:
            return place.follow
        for n, merge in enumerate(merges[:-1]):
            inner = place
            for later in reversed(merges[n + 1 :]):
                inner = inner.before(later)
            if merge.id in self.written:
                continue
            out.extend(self.go(merge, inner))
        return merges[-1]


def handling(node: Node) -> int:
    """How many exceptions are being handled when ``node`` begins, as far as its stack tells (3.11 and later)."""
    if VERSION < (3, 11) or node.stack is None:
        return 1 << 30
    return sum(is_marker(v, "previous") for v in node.stack)


def make_if(test: Any, yes: list[ast.stmt], no: list[ast.stmt], yes_at: int, no_at: int) -> list[ast.stmt]:
    """``if`` with as little nesting as its branches allow; the branch that comes first in the bytecode comes first."""
    if isinstance(test, Match) or case_test(test) is not None:
        return [ast.If(test, some(yes), no)]
    if not no:
        return [ast.If(test, some(yes), [])]
    if not yes:
        return [ast.If(negate(test), no, []) if negatable(test) else ast.If(test, some(yes), no)]
    if terminates(no) and (not terminates(yes) or no_at < yes_at) and negatable(test) and not _is_elif(no):
        return [ast.If(negate(test), no, []), *yes]
    if terminates(yes):
        return [ast.If(test, yes, []), *no]
    if no_at < yes_at and negatable(test):
        return [ast.If(negate(test), no, yes)]
    return [ast.If(test, yes, no)]


def _is_elif(stmts: list[ast.stmt]) -> bool:
    return len(stmts) == 1 and isinstance(stmts[0], ast.If)
