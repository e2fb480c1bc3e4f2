"""Graphs as pictures: an fx graph in, an SVG text out.

    >>> graph = torch.fx.symbolic_trace(lambda x: x.sin() + 1).graph
    >>> svg(graph, "sine").count("<rect")
    4

Operations are boxes in layers by longest path from the inputs, in each layer ordered by the mean position
of what they read (Sugiyama's barycentre rule, one sweep). It takes time linear in the graph and no program
beside: graphviz, which ``torch.fx.passes.graph_drawer.FxGraphDrawer`` draws with, is often not installed
and slow past a few hundred nodes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape
from typing import Any

import torch
import torch.fx

from ..records.compilation import NodeRow
from ..records.origin import UNKNOWN

_CHARACTER, _HEIGHT, _GAP_X, _GAP_Y = 7.0, 34, 24, 38
_CALL = re.compile(r"\w+ = [\w.]+(?=\()")
_COLORS = {"placeholder": "#d8e8ff", "get_attr": "#e6e6e6", "output": "#ffe2c4"}


Rows = tuple[NodeRow, ...]


def svg(graph: torch.fx.Graph | torch.fx.GraphModule | Rows, title: str = "") -> str:
    """The graph as a stand-alone SVG document. Boxes show name, operation and shape; a tooltip the user's line."""
    rows = graph if isinstance(graph, tuple) else rows_of(graph)
    boxes, width, height = place(rows)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="monospace" font-size="11">',
        f"<title>{escape(title)}</title>" if title else "",
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" '
        'orient="auto"><path d="M0 0L8 4L0 8z" fill="#888"/></marker></defs>',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    lines += [_edge(boxes[source], boxes[row.name]) for row in rows for source in row.inputs]
    lines += [_box(row, *boxes[row.name]) for row in rows]
    return "\n".join([line for line in lines if line] + ["</svg>"]) + "\n"


def rows_of(graph: torch.fx.Graph | torch.fx.GraphModule) -> Rows:
    """The rows of an fx graph, which the pictures are made of."""
    nodes = list((graph.graph if isinstance(graph, torch.fx.GraphModule) else graph).nodes)
    return tuple(
        NodeRow(
            node.name,
            node.op,
            f"{node.name} = {_target(node)}(",
            tuple(source.name for source in node.all_input_nodes),
            _shape(node),
            0,
            node.meta.get("origin", UNKNOWN),
        )
        for node in nodes
    )


def _target(node: torch.fx.Node) -> str:
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))


Box = tuple[float, float, float]


def place(rows: Iterable[NodeRow]) -> tuple[dict[str, Box], float, float]:
    """Left, top and width of every node's box; then the picture's width and height."""
    layers: dict[int, list[NodeRow]] = {}
    depth: dict[str, int] = {}
    for row in rows:
        depth[row.name] = 1 + max((depth[n] for n in row.inputs), default=-1)
        layers.setdefault(depth[row.name], []).append(row)
    boxes: dict[str, Box] = {}
    right = 0.0
    for level in sorted(layers):
        layer = sorted(layers[level], key=lambda row: _middle([boxes[i] for i in row.inputs]))
        x = float(_GAP_X)
        for row in layer:
            wide = max(len(line) for line in label(row)) * _CHARACTER + 12
            # Below what it reads where there is room, else next to its neighbour.
            wanted = _middle([boxes[i] for i in row.inputs]) - wide / 2
            x = max(x, wanted)
            boxes[row.name] = (x, _GAP_Y + level * (_HEIGHT + _GAP_Y), wide)
            x += wide + _GAP_X
        right = max(right, x)
    return boxes, right, (len(layers) + 1) * (_HEIGHT + _GAP_Y)


def _middle(boxes: list[Box]) -> float:
    return sum(x + wide / 2 for x, _, wide in boxes) / len(boxes) if boxes else 0.0


def label(row: NodeRow) -> tuple[str, str]:
    """The two lines of a box: ``cos_1 = aten.cos.default`` and ``float32[10]``."""
    head = row.name
    if row.op not in ("placeholder", "output"):
        call = _CALL.match(row.statement)
        head = call[0] if call else row.statement
    return head[:60], row.shape[:60]


def _shape(node: torch.fx.Node) -> str:
    value: Any = node.meta.get("val", node.meta.get("example_value"))
    if not isinstance(value, torch.Tensor):
        return ""
    return f"{str(value.dtype).removeprefix('torch.')}[{', '.join(map(str, value.shape))}]"


def _box(row: NodeRow, x: float, y: float, wide: float) -> str:
    head, shape = label(row)
    color = _COLORS.get(row.op, "#f6f6f6")
    tip = f"<title>{escape(str(row.origin))}</title>" if row.origin != UNKNOWN else ""
    return (
        f'<g>{tip}<rect x="{x:.0f}" y="{y:.0f}" width="{wide:.0f}" height="{_HEIGHT}" rx="4" fill="{color}" '
        f'stroke="#555"/><text x="{x + 6:.0f}" y="{y + 14:.0f}">{escape(head)}</text>'
        f'<text x="{x + 6:.0f}" y="{y + 28:.0f}" fill="#666">{escape(shape)}</text></g>'
    )


def _edge(source: Box, target: Box) -> str:
    x1, y1 = source[0] + source[2] / 2, source[1] + _HEIGHT
    x2, y2 = target[0] + target[2] / 2, target[1]
    bend = (y1 + y2) / 2
    path = f"M{x1:.0f} {y1:.0f}C{x1:.0f} {bend:.0f} {x2:.0f} {bend:.0f} {x2:.0f} {y2:.0f}"
    return f'<path d="{path}" fill="none" stroke="#888" marker-end="url(#arrow)"/>'
