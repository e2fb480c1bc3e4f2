"""What is known where a statement is written, and what may stop the writing."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Any

from ..expressions.values import Item
from ..graph.cfg import Node


class Unstructured(Exception):
    """The control flow has no form in Python's statements (or not one this room finds)."""


@dataclass(eq=False)
class Loop:
    """A natural loop: its ``head``, its ``nodes`` and, once known, the place ``after`` that ``break`` goes to."""

    head: Node
    nodes: set[int] = field(default_factory=set)
    after: Node | None = None

    def __post_init__(self) -> None:
        self.nodes.add(self.head.id)


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """Where a piece of code stands: what follows it, the loop around it, its handler, what is still to be written.

    ``handling`` counts the exceptions that are being handled there.
    """

    follow: Node | None
    loop: Loop | None
    eh: int
    pending: frozenset[int]
    handling: int = 0

    def before(self, follow: Node | None) -> Place:
        """The place of what ``follow`` comes after."""
        return Place(follow, self.loop, self.eh, self.without(follow), self.handling)

    def without(self, *nodes: Node | None) -> frozenset[int]:
        """What is pending where ``nodes`` are still to be written elsewhere, too."""
        return self.pending.union([n.id for n in nodes if n is not None])


def takes_item(stmts: list[ast.stmt], kind: str) -> Any:
    """Remove and return the target of a leading ``target = <item>``; None if there is none."""
    if stmts and isinstance(stmts[0], ast.Assign) and isinstance(stmts[0].value, Item) and stmts[0].value.kind == kind:
        first = stmts.pop(0)
        assert isinstance(first, ast.Assign)
        if len(first.targets) == 1:
            return first.targets[0]
        raise Unstructured("an item bound to several targets")
    return None
