"""A graph of statements and conditions in, nested statements out: if, while, for, try, with."""

from __future__ import annotations

import ast
import contextlib

from ..graph.cfg import Graph, Node
from . import loops, tries  # noqa: F401  (they register what they write)
from .places import Unstructured
from .structurer import Structurer

#: how many other readings of a function are tried when the likeliest has no structure
_READINGS = 40


def structure(graph: Graph, nodes: list[Node], reading: int = 0) -> list[ast.stmt]:
    """The statements of the whole graph. Needs ``order``, ``preds`` and dominators of ``nodes``.

    What follows a loop or a ``try`` cannot always be told from the graph; if the likeliest place leaves edges that are
    no statement, the others that control goes to are tried, for one statement at a time, the last decided first.
    ``reading`` counts these others, if the likeliest reading is known to be wrong.
    """
    first = Structurer(graph, nodes)
    stmts: list[ast.stmt] | None = None
    failure: Unstructured | None = None
    try:
        stmts = first.run()
    except Unstructured as error:
        failure = error
    decisions = [(node, other) for node, others in reversed(first.decisions) for other in others]
    if stmts is not None and not 0 < reading <= len(decisions):
        return stmts
    for node, other in decisions[reading - 1 : reading] if reading else decisions[:_READINGS]:
        with contextlib.suppress(Unstructured):
            return Structurer(graph, nodes, {node.id: other}).run()
    raise failure or Unstructured("no other reading")
