"""Loops: what is the test, what comes after, what is the ``else`` clause.

A ``for`` head and a ``while`` test leave the loop by themselves; every other way out is a ``break`` if it goes to the
place after the loop.  Which place that is follows from where the ways out meet again.
"""

from __future__ import annotations

import ast
from collections import Counter
from typing import Any

from ...bytecode.flow import SAFE
from ..expressions.conditions import negatable, negate
from ..expressions.trees import some
from ..expressions.values import Iterating
from ..graph.cfg import Node
from ..graph.dominance import dominates
from .places import Loop, Place, Unstructured, takes_item
from .structurer import Structurer, writes


@writes("loop")
def write_loop(s: Structurer, head: Node, place: Place, out: list[ast.stmt]) -> Node | None:
    """Append the loop that begins at ``head`` to ``out``; returns the node after it."""
    loop = s.loops[head.id]
    body_node, exit_node, test = _test(loop, head)
    after = s.follower(head, _after(s, loop, head, exit_node, place), place)
    loop.after = after
    inner = Place(head, loop, place.eh, place.without(head, after), place.handling)
    if head.kind == "for" and not head.stmts:
        s.claim(head, place)
        body = s.go(body_node, inner)
        target = takes_item(body, "for")
        if target is None:
            raise Unstructured("a for loop that binds nothing")
        iterator = head.iterator
        source: Any = iterator.value if isinstance(iterator, Iterating) else iterator
        kind: Any = ast.AsyncFor if head.code[-1].arg == "async" else ast.For
        stmt: Any = kind(target, source, some(body), [], lineno=0)
    elif test is not None:
        s.claim(head, place)
        stmt = ast.While(test, some(s.go(body_node, inner)), [])
    else:
        exit_node = None
        stmt = ast.While(ast.Constant(True), some(s.block(head, inner)), [])
        stmt.endless = after is None
    if exit_node is not None and exit_node is not after:
        stmt.orelse = s.go(exit_node, place.before(after))
    out.append(stmt)
    return after


def _test(loop: Loop, head: Node) -> tuple[Any, Any, Any]:
    """``(first node of the body, exit node, test)``; a ``while True`` has no exit and no test."""
    if head.kind == "for" and not head.stmts:
        return head.succ[0], head.succ[1], None
    if head.kind == "cond" and not head.stmts:
        yes, no = head.succ
        if yes.id in loop.nodes and no.id not in loop.nodes:
            return yes, no, head.cond
        if no.id in loop.nodes and yes.id not in loop.nodes and negatable(head.cond):
            return no, yes, negate(head.cond)
    return None, None, None


def _after(s: Structurer, loop: Loop, head: Node, exit_node: Node | None, place: Place) -> Node | None:
    """The node ``break`` goes to."""
    owned = [n for n in s.nodes if dominates(head, n)]
    if exit_node is not None:
        own_exit = exit_node.id not in place.pending and exit_node is not place.follow and dominates(head, exit_node)
        if not own_exit or sum(p.order < exit_node.order for p in exit_node.preds) > 1:
            left = _left(loop, [n for n in owned if n is not exit_node], head)
            onward = place.loop is not None and exit_node in (place.loop.head, place.loop.after)
            return left if left is not None and (onward or _plain_exit(exit_node)) else exit_node
        behind = {n.id for n in owned if dominates(exit_node, n)}
    else:
        behind = set()
    inside = [n for n in owned if n.id not in behind]
    merges = _meeting(loop, inside, behind, owned, place)
    if exit_node is not None:
        if merges:
            return merges[0]
        onward = place.follow is not None and (place.loop is None or place.follow is not place.loop.head)
        if onward and any(child is place.follow for n in inside for child in n.succ):
            return place.follow  # past the exit: that is an ``else`` clause
        left = _left(loop, inside, head)
        if left is not None:
            return left
        direct = _outside(inside, owned, head, place)
        return direct if direct is not None else exit_node
    within = _within(loop, inside)
    direct = _outside([n for n in inside if n.id in within], owned, head, place)
    if direct is not None:
        return direct
    return _common_target(loop, inside, owned, place) or _best_exit(loop, inside)


def _plain_exit(node: Node) -> bool:
    return node.kind == "return" and all(i.op in SAFE for i in node.code)


def _meeting(loop: Loop, inside: list[Node], behind: set[int], owned: list[Node], place: Place) -> list[Node]:
    """Nodes reached both from the loop's own exit and from a break."""
    out = []
    ids = {n.id for n in inside}
    for node in owned:
        sources = {p.id for p in node.preds if p.order < node.order}
        written = node.id in loop.nodes or node.id in behind or node.id in place.pending
        if not written and sources & behind and sources & ids:
            out.append(node)
    return sorted(out, key=lambda n: n.order)


def _left(loop: Loop, inside: list[Node], head: Node) -> Node | None:
    """Where a ``break`` of a ``for`` goes: the loop's iterator is off the stack, and it is no mere return."""
    if head.kind != "for":
        return None
    iterator = head.iterator
    found = []
    for node in inside:
        if node.id in loop.nodes or _on_stack(node, iterator) or node.kind == "end" or _plain_exit(node):
            continue
        if any(_on_stack(p, iterator) for p in node.preds if p is not head):
            found.append(node)
    return _first(found)


def _first(nodes: list[Node]) -> Node | None:
    return min(nodes, key=lambda n: n.order, default=None)


def _on_stack(node: Node, value: Any) -> bool:
    return any(v is value for v in node.stack or ())


def _outside(inside: list[Node], owned: list[Node], head: Node, place: Place) -> Node | None:
    """A place outside that the loop's body jumps to directly."""
    own = {n.id for n in owned}
    found = [child for node in inside for child in node.succ if child.id not in own and child is not head]
    return place.follow if place.follow in found else _first(found)


def _best_exit(loop: Loop, inside: list[Node]) -> Node | None:
    """``while True``: of the nodes just outside, the one where most ways meet, else the last in the bytecode."""
    within = _within(loop, inside)
    members = {n.id for n in inside}
    found: list[tuple[Any, Node]] = []
    for node in inside:
        if node.id in within:
            continue
        sources = [p for p in node.preds if p.order < node.order]
        if not any(p.id in within for p in sources) and len(sources) < 2:
            continue
        if any(p.id not in members for p in sources) or not _near(node, within):
            continue
        found.append(((len(sources) > 1, not _leaves(node), node.pos), node))
    return max(found, key=lambda pair: pair[0])[1] if found else None


def _common_target(loop: Loop, inside: list[Node], owned: list[Node], place: Place) -> Node | None:
    """A place outside that several of the loop's exits go on to: they are breaks with something before them."""
    within = _within(loop, inside)
    own = {n.id for n in owned}
    exits = [n for n in inside if n.id not in within and _near(n, within)]
    reached: Counter[Node] = Counter()
    for node in exits:
        reached.update({c for n in owned if dominates(node, n) for c in n.succ if c.id not in own})
    several = [target for target, count in reached.items() if count > 1]
    return _first(several)


def _within(loop: Loop, inside: list[Node]) -> set[int]:
    """The loop's nodes and the handlers and protected regions that begin in it: none of those comes after it."""
    head = loop.head
    depth = len(head.stack or ())
    within = set(loop.nodes)
    for node in inside:
        if len(node.stack or ()) > depth or (node.eh != head.eh and node.kind != "try"):
            within.add(node.id)
    return within


def _near(node: Node, ids: set[int]) -> bool:
    return node.idom is not None and node.idom.id in ids


def _leaves(node: Node) -> bool:
    """Whether control never goes on from here within the function (return, raise)."""
    for _ in range(8):
        if node.kind in ("return", "raise", "end"):
            return True
        if node.kind != "jump":
            return False
        node = node.succ[0]
    return False
