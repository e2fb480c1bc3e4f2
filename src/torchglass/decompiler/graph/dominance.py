"""Order and dominance of the nodes of a graph, and the edits of it that stand on them."""

from __future__ import annotations

from .cfg import Graph, Node

_STACK_ONLY = frozenset({"POP_TOP", "SWAP", "ROT", "POP_BLOCK"})


def ordered(graph: Graph) -> list[Node]:
    """The nodes of a new ``graph``, as ``order`` has them, without blocks that several ways share to drop values."""
    nodes = order(graph)
    return order(graph) if _split_stack_cleanups(graph, nodes) else nodes


def order(graph: Graph) -> list[Node]:
    """Reverse postorder from the entry; sets ``order`` and ``preds`` and drops what cannot be reached."""
    post: list[Node] = []
    seen = {graph.entry.id}
    stack: list[tuple[Node, int]] = [(graph.entry, 0)]
    while stack:
        node, n = stack.pop()
        # visit the second successor first, so that the first comes earlier in reverse postorder
        if n < len(node.succ):
            stack.append((node, n + 1))
            child = node.succ[len(node.succ) - 1 - n]
            if child.id not in seen:
                seen.add(child.id)
                stack.append((child, 0))
        else:
            post.append(node)
    nodes = post[::-1]
    for n, node in enumerate(nodes):
        node.order = n
        node.preds = []
    for node in nodes:
        for child in node.succ:
            child.preds.append(node)
    return nodes


def dominators(nodes: list[Node]) -> None:
    """Set ``idom`` and ``kids`` (Cooper, Harvey, Kennedy: A Simple, Fast Dominance Algorithm)."""
    for node in nodes:
        node.idom = None
        node.kids = []
    entry = nodes[0]
    entry.idom = entry
    changed = True
    while changed:
        changed = False
        for node in nodes[1:]:
            new: Node | None = None
            for pred in node.preds:
                if pred.idom is not None:
                    new = pred if new is None else _meet(pred, new)
            if new is not node.idom:
                node.idom = new
                changed = True
    for node in nodes[1:]:
        assert node.idom is not None
        node.idom.kids.append(node)


def _meet(a: Node, b: Node) -> Node:
    while a is not b:
        while a.order > b.order:
            assert a.idom is not None
            a = a.idom
        while b.order > a.order:
            assert b.idom is not None
            b = b.idom
    return a


def dominates(a: Node, b: Node) -> bool:
    while b.order > a.order:
        assert b.idom is not None
        b = b.idom
    return a is b


def _split_stack_cleanups(graph: Graph, nodes: list[Node]) -> bool:
    """Give each predecessor its own copy of a block that only drops stack values (the ends of chained comparisons)."""
    changed = False
    for node in nodes:
        if node.kind != "jump" or len(node.preds) < 2 or node.entry or not node.code:
            continue
        if any(i.op not in _STACK_ONLY for i in node.code) or node.succ[0] is node:
            continue
        for pred in node.preds[1:]:
            twin = graph.make("jump", node.eh)
            twin.code = list(node.code)
            twin.succ = list(node.succ)
            twin.pos = node.pos
            pred.succ = [twin if s is node else s for s in pred.succ]
            changed = True
    return changed


def join_finally_ends(graph: Graph, nodes: list[Node]) -> None:
    """Every way out of a finally body reaches one end node, so that the body's own branches meet there."""
    for node in nodes:
        if node.kind != "try" or node.try_kind != "finally":
            continue
        handler = node.succ[1]
        inner = [n for n in nodes if dominates(handler, n)]
        assert handler.stack is not None
        exception = handler.stack[-1]
        end = graph.make("end", node.eh)
        for member in inner:
            last = member.stmts[-1] if member.kind == "raise" and member.stmts else None
            if last is None or getattr(last, "implicit", None) is not exception:
                continue
            member.kind = "jump"
            member.stmts.pop()
            member.succ = [end]
        node.end = end
