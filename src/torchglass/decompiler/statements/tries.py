"""``try`` nodes: except, finally, with."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import Any

from ...bytecode.canonical import VERSION
from ..expressions.trees import load, some
from ..expressions.values import Marker, Match, is_marker
from ..graph.cfg import Node
from ..graph.dominance import dominates
from .places import Place, Unstructured, takes_item
from .structurer import Structurer, writes


def _inside(s: Structurer, node: Node) -> list[Node]:
    """The nodes of the region that ``node`` protects."""
    inner = node.succ[0]
    graph = s.graph
    return [n for n in s.nodes if dominates(inner, n) and node.handler in graph.chain(n.eh)]


def _exits(s: Structurer, members: list[Node], place: Place) -> list[Node]:
    """Where ``members`` go to outside of themselves, except to places that are written elsewhere."""
    ids = {n.id for n in members}
    found: dict[int, Node] = {}
    for member in members:
        for child in member.succ:
            if child.id not in ids and child.id not in place.pending:
                found[child.id] = child
    return list(found.values())


def _region_place(node: Node, place: Place, follow: Node | None) -> Place:
    return Place(follow, place.loop, node.handler, place.without(follow), place.handling)


def _choose(s: Structurer, exits: list[Node]) -> Node | None:
    """Of several ways out of a protected region the one that is no mere ``return``."""
    real = [n for n in exits if not s.plain_exit(n)]
    if len(real) == 1:
        return real[0]
    pool = real or exits
    if not pool:
        return None
    return max(pool, key=lambda n: (sum(p.order < n.order for p in n.preds), n.order))


@writes("with")
def _with(s: Structurer, node: Node, place: Place, out: list[ast.stmt]) -> Node | None:
    after = node.succ[1]
    body = s.go(node.succ[0], _region_place(node, place, after))
    marker = exit_marker(node)
    out.append(with_statement(marker, takes_item(body, "with"), some(body)))
    return after


def with_statement(marker: Marker, target: Any, body: list[ast.stmt]) -> Any:
    """``with``; of a context that has been entered already only the exit function is at hand."""
    kind: Any = ast.AsyncWith if marker.flag else ast.With
    item = ast.withitem(marker.expr, target)
    if marker.resumed:
        call = ast.Call(load("reentered"), [marker.expr], [])
        call.reenters = True  # type: ignore[attr-defined]
        item = ast.withitem(call, None)
    return kind([item], body, lineno=0)


def exit_marker(node: Node) -> Marker:
    for value in reversed(node.stack or []):
        if is_marker(value, "exit"):
            return value
    raise Unstructured("a with region without its context manager")


@writes("finally")
def _finally(s: Structurer, node: Node, place: Place, out: list[ast.stmt]) -> Node | None:
    members = _inside(s, node)
    exits = _exits(s, members, place)
    merges = [k for k in s.merges(node, place) if k in exits]
    after = merges[0] if merges else _choose(s, exits)
    if after is None or (s.plain_exit(after) and any(c is place.follow for n in members for c in n.succ)):
        after = place.follow
    after = s.follower(node, after, place)
    body = s.go(node.succ[0], _region_place(node, place, after))
    final = s.go(node.succ[1], Place(node.end, place.loop, place.eh, place.before(after).pending, place.handling))
    only: Any = body[0] if len(body) == 1 else None
    if type(only).__name__ in ("Try", "TryStar") and not only.finalbody:
        only.finalbody = some(final)
    else:
        only = ast.Try(some(body), [], [], some(final))
    out.append(only)
    return after


@writes("except")
@writes("star")
def _except(s: Structurer, node: Node, place: Place, out: list[ast.stmt]) -> Node | None:
    members = _inside(s, node)
    handler = node.succ[1]
    handler_nodes = [n for n in s.nodes if dominates(handler, n)]
    body_exits = _exits(s, members, place)
    handler_exits = _exits(s, handler_nodes, place)
    after, else_node = _after_try(s, node, place, body_exits, handler_exits, handler_nodes)
    after = s.follower(node, after, place)
    else_node = else_node if else_node is not after else None
    rest = place.before(after) if after is not None else place
    body = s.go(node.succ[0], _region_place(node, rest, else_node or after))
    inner = Place(after, place.loop, place.eh, rest.without(else_node), place.handling)
    handlers = _clauses(s, handler, inner)
    orelse = s.go(else_node, rest) if else_node is not None else []
    kind: Any = ast.TryStar if node.try_kind == "star" else ast.Try
    out.append(kind(some(body), handlers, orelse, []))
    return after


def _after_try(
    s: Structurer,
    node: Node,
    place: Place,
    body_exits: list[Node],
    handler_exits: list[Node],
    handler_nodes: list[Node],
) -> tuple[Node | None, Node | None]:
    """``(what follows the statement, its else clause)``."""
    merges = s.merges(node, place)
    shared = [m for m in merges if m in handler_exits or m in body_exits] or merges
    beyond = _beyond_handler(s, node, handler_nodes)
    if beyond is not None and (beyond.id in place.pending or not all(s.plain_exit(m) for m in shared)):
        beyond = None
    if shared and beyond is None:
        after = shared[0] if len(shared) == 1 else _choose(s, shared)
        others = [n for n in body_exits if n is not after and not s.plain_exit(n)]
        others = [n for n in others if n not in merges]
        return after, _choose(s, others)
    candidate = _choose(s, body_exits)
    falls = place.follow is not None and any(c is place.follow for n in handler_nodes for c in n.succ)
    if beyond is not None or falls:
        plain = candidate is not None and s.plain_exit(candidate)
        return beyond or place.follow, None if plain else candidate
    if candidate is not None:
        return candidate, None
    if handler_exits:
        return _choose(s, handler_exits), None
    return place.follow, None


def _beyond_handler(s: Structurer, node: Node, handler_nodes: list[Node]) -> Node | None:
    """Code that only the handlers reach, but after they have restored the exception state: it follows the statement."""
    handler = node.succ[1]
    assert handler.stack is not None
    size = len(handler.stack)
    if VERSION >= (3, 11):
        inside = handler.base if len(handler.base) >= size else (handler.out[0] if handler.out else [])
        if len(inside) < size:
            return None
        marker = inside[size - 1]
    else:
        marker = handler.stack[size - 6]
    found = []
    for member in handler_nodes:
        if member is handler or any(v is marker for v in member.stack or ()):
            continue
        if s.plain_exit(member):
            continue
        if any(p is handler or any(v is marker for v in p.stack or ()) for p in member.preds):
            found.append(member)
    return min(found, key=lambda n: n.order) if found else None


def _clauses(s: Structurer, node: Node, place: Place) -> list[ast.ExceptHandler]:
    handlers: list[ast.ExceptHandler] = []
    first = node
    for passed in _before_test(node):
        s.claim(passed, place)
        node = passed.succ[0]
    for _ in range(1000):
        if node.kind == "cond" and isinstance(node.cond, Match):
            if node.stmts:
                raise Unstructured("a statement before an except clause's test")
            s.claim(node, place)
            merges = s.merges(node, place)
            if not all(s.plain_exit(merge) for merge in merges):
                raise Unstructured("except clauses that meet before the end of their statement")
            # one ``return`` that several clauses share: each writes its own
            body = s.go(node.succ[0], replace(place, pending=place.without(*merges), handling=place.handling + 1))
            handlers.append(_clause(node.cond.type, body, takes_item(body, "except")))
            node = node.succ[1]
            continue
        unmatched = node.kind == "raise" and len(node.stmts) == 1 and getattr(node.stmts[0], "implicit", False)
        if handlers and unmatched:
            return handlers
        if node.id in place.pending or node is place.follow:
            raise Unstructured("an except clause of unknown shape")
        body = s.block(node, replace(place, handling=place.handling + (node is not first)))
        target = takes_item(body, "except")  # only a clause made for an entry names what it catches without a test
        handlers.append(_clause(load("BaseException") if target is not None else None, body, target))
        return handlers
    raise Unstructured("too many except clauses")


def _before_test(node: Node) -> list[Node]:
    """The nodes without statements between the begin of a handler and its first test (a continuation may have some)."""
    passed = []
    while node.kind == "jump" and not node.stmts and len(node.succ[0].preds) == 1:
        passed.append(node)
        node = node.succ[0]
    return passed if node.kind == "cond" and isinstance(node.cond, Match) else []


def _clause(kind: Any, body: list[ast.stmt], target: Any) -> ast.ExceptHandler:
    name = target.id if isinstance(target, ast.Name) else None
    return ast.ExceptHandler(kind, name, some(body))
