"""The stacks with which the ways into a node arrive, and whether they are the same."""

from __future__ import annotations

from typing import Any

from ...bytecode.canonical import VERSION
from ..errors import DecompileError
from ..graph.cfg import Node
from .values import Item, Marker, is_marker


def incoming(pred: Node, node: Node) -> list[list[Any]]:
    """The stacks with which ``pred`` reaches ``node``."""
    if pred.kind != "try":
        return [pred.out[n] for n, s in enumerate(pred.succ) if s is node]
    stacks = []
    assert pred.stack is not None
    for n, s in enumerate(pred.succ):
        if s is not node:
            continue
        if n == 0:
            stacks.append(pred.stack)
        elif pred.try_kind == "with":
            stacks.append(_below_exit(pred))
        elif VERSION >= (3, 11):
            stacks.append(pred.stack[: pred.depth] + [Item("except")])
        else:
            old = [Marker("exception") for _ in range(4)]
            stacks.append(pred.stack + old + [Item("except"), Marker("exception")])
    return stacks


def _below_exit(node: Node) -> list[Any]:
    stack = node.stack or []
    for n in range(len(stack) - 1, -1, -1):
        if is_marker(stack[n], "exit"):
            return stack[:n]
    raise DecompileError("a with region entered without its context manager")


def _arrived(node: Node, done: set[int]) -> list[Node]:
    """The predecessors of ``node`` that have been executed, each once."""
    return [pred for pred in {p.id: p for p in node.preds}.values() if pred.id in done]


def stacks_into(node: Node, done: set[int]) -> list[list[Any]]:
    return [stack for pred in _arrived(node, done) for stack in incoming(pred, node)]


def same_values(a: list[Any], b: list[Any]) -> bool:
    return len(a) == len(b) and all(x is y for x, y in zip(a, b))


def all_same(stacks: list[list[Any]]) -> bool:
    first = stacks[0]
    return all(
        s is first or (len(s) == len(first) and all(a is b or equal_markers(a, b) for a, b in zip(s, first)))
        for s in stacks[1:]
    )


def equal_markers(a: Any, b: Any) -> bool:
    return isinstance(a, Marker) and isinstance(b, Marker) and a.kind == b.kind and a.expr is b.expr


def edges_into(node: Node, done: set[int]) -> list[tuple[Node, int]]:
    return [(pred, n) for pred in _arrived(node, done) for n, s in enumerate(pred.succ) if s is node]
