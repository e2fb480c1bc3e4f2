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

from collections.abc import Iterable
from html import escape
from typing import Any

import torch
import torch.fx

_CHARACTER, _HEIGHT, _GAP_X, _GAP_Y = 7.0, 34, 24, 38
_COLORS = {"placeholder": "#d8e8ff", "get_attr": "#e6e6e6", "output": "#ffe2c4"}


def svg(graph: torch.fx.Graph | torch.fx.GraphModule, title: str = "") -> str:
    """The graph as a stand-alone SVG document. Boxes show name, operation and shape; a tooltip the user's
    line.
    """
    nodes = list((graph.graph if isinstance(graph, torch.fx.GraphModule) else graph).nodes)
    boxes, width, height = _place(nodes)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="monospace" font-size="11">',
        f"<title>{escape(title)}</title>" if title else "",
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" '
        'orient="auto"><path d="M0 0L8 4L0 8z" fill="#888"/></marker></defs>',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    lines += [_edge(boxes[source], boxes[node]) for node in nodes for source in node.all_input_nodes]
    lines += [_box(node, *boxes[node]) for node in nodes]
    return "\n".join([line for line in lines if line] + ["</svg>"]) + "\n"


Box = tuple[float, float, float]


def _place(nodes: Iterable[torch.fx.Node]) -> tuple[dict[torch.fx.Node, Box], float, float]:
    """Left, top and width of every box; then the picture's width and height."""
    layers: dict[int, list[torch.fx.Node]] = {}
    depth: dict[torch.fx.Node, int] = {}
    for node in nodes:
        depth[node] = 1 + max((depth[n] for n in node.all_input_nodes), default=-1)
        layers.setdefault(depth[node], []).append(node)
    boxes: dict[torch.fx.Node, Box] = {}
    right = 0.0
    for level in sorted(layers):
        layer = sorted(layers[level], key=lambda n: _middle([boxes[i] for i in n.all_input_nodes]))
        x = float(_GAP_X)
        for node in layer:
            wide = max(len(line) for line in _label(node)) * _CHARACTER + 12
            # Below what it reads where there is room, else next to its neighbour.
            wanted = _middle([boxes[i] for i in node.all_input_nodes]) - wide / 2
            x = max(x, wanted)
            boxes[node] = (x, _GAP_Y + level * (_HEIGHT + _GAP_Y), wide)
            x += wide + _GAP_X
        right = max(right, x)
    return boxes, right, (len(layers) + 1) * (_HEIGHT + _GAP_Y)


def _middle(boxes: list[Box]) -> float:
    return sum(x + wide / 2 for x, _, wide in boxes) / len(boxes) if boxes else 0.0


def _label(node: torch.fx.Node) -> tuple[str, str]:
    target = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))
    head = node.name if node.op in ("placeholder", "output") else f"{node.name} = {target}"
    return head[:60], _shape(node)


def _shape(node: torch.fx.Node) -> str:
    value: Any = node.meta.get("val", node.meta.get("example_value"))
    if not isinstance(value, torch.Tensor):
        return ""
    return f"{str(value.dtype).removeprefix('torch.')}[{', '.join(map(str, value.shape))}]"


def _box(node: torch.fx.Node, x: float, y: float, wide: float) -> str:
    head, shape = _label(node)
    color = _COLORS.get(node.op, "#f6f6f6")
    origin = node.meta.get("origin")
    tip = f"<title>{escape(str(origin))}</title>" if origin is not None else ""
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
