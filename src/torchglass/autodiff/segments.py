"""Cuts a backward graph where gradients are complete that others wait for: a graph and groups of gradients in, a
segment for each group out.

A segment computes what its gradients need and none before it has computed, and what ``segment_placement`` moves there.
What later ones read of that it returns beside them, so no kernel is fused across a cut. A gradient of which a later
segment reads the memory is a copy: its parameter's hooks, and the sum over processes, may write to it in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.fx
from torch.fx import Node
from torch.fx.node import map_arg

from ..records.partition import Partition
from ..records.render_graph import BEGINS
from ..records.segments import CutGraph, Groups, Segment
from ..records.size_places import size_places, symbols_of
from ..records.symbolic_ints import SizesUnfit
from ..torch_compat import create_node, graph_module
from .segment_placement import placed, root


def cut(partition: Partition, groups: Groups, titles: Sequence[str] = ()) -> CutGraph | None:
    """The backward of ``partition`` in a segment for each group; None where something else than a tensor would have to
    be handed from one to the next, or nothing tells a size there. ``titles`` say what begins with each.
    """
    try:
        return _Cutting(partition, groups).cut(titles)
    except SizesUnfit:
        return None


class _Cutting:
    """``home``: the segment whose result a node is, -1 for what is given; ``last``: the last one that is given it, or
    whose gradient it is.
    """

    def __init__(self, partition: Partition, groups: Groups) -> None:
        assert partition.backward is not None
        self.partition, self.whole = partition, partition.backward
        self.given = self.whole.graph.find_nodes(op="placeholder")
        (output,) = self.whole.graph.find_nodes(op="output")
        self.returned: Sequence[Node] = output.args[0]
        positions = {gradient.input: position for position, gradient in enumerate(partition.gradients)}
        self.ends = [[positions[index] for index in group if index in positions] for group in groups]
        ends = [[self.returned[p] for p in places] for places in self.ends]
        self.home, self.calls = placed(self.whole.graph, ends)
        self.last = _last_places(self.calls, ends)
        self.slots = {node: slot for slot, node in enumerate(self.given)}
        self.count = len(self.given)

    def cut(self, titles: Sequence[str]) -> CutGraph | None:
        handed = [node for node, home in self.home.items() if self.last.get(node, -1) > home >= 0]
        tensors = all(isinstance(node.meta.get("val"), torch.Tensor) for node in handed)
        if not tensors or any(node.op == "get_attr" for node in self.returned):
            return None
        found: dict[int, int] = {}  # the slot of each gradient
        segments = [self._segment(place, found) for place in range(len(self.ends))]
        gradients = tuple(found[position] for position in range(len(self.returned)))
        return CutGraph(tuple(segments), gradients, self._in_order(titles))

    def _segment(self, place: int, found: dict[int, int]) -> Segment | None:
        read_later = {node for node, home in self.home.items() if home <= place < self.last.get(node, -1)}
        memory = set(map(root, read_later))
        ends = dict.fromkeys(self.returned[position] for position in self.ends[place])
        copied = [node for node in ends if root(node) in memory]
        mine = self.calls[place]
        fresh = [node for node in mine if self.home[node] == place]
        made = [node for node in fresh if node in read_later or (node in ends and node not in copied)]
        slots = tuple(range(self.count, self.count + len(made) + len(copied)))
        self.count += len(slots)
        self.slots.update(zip(made, slots))
        own = dict(zip(copied, slots[len(made) :]))
        found.update({p: own.get(self.returned[p], self.slots[self.returned[p]]) for p in self.ends[place]})
        return self._built(place, mine, made, copied, slots) if slots else None

    def _built(
        self, place: int, mine: list[Node], made: list[Node], copied: list[Node], slots: tuple[int, ...]
    ) -> Segment:
        inputs, graph = self._read(mine, copied), torch.fx.Graph()
        nodes, held = self._filled(graph, inputs, mine)
        copies = [_copy(graph, nodes[node], node) for node in copied]
        graph.create_node("output", "output", ((*(nodes[node] for node in made), *copies),), name="output")
        takes = tuple(self.slots[node] for node in inputs)
        saved = sum(slot < len(self.partition.saved) for slot in takes)
        return Segment(graph_module(held, graph, f"segment_{place}"), takes, slots, saved)

    def _filled(
        self, graph: torch.fx.Graph, inputs: list[Node], calls: list[Node]
    ) -> tuple[dict[Node, Node], dict[str, Any]]:
        """``graph`` with copies of these, and of the constants that they read; and what the constants' names mean."""
        constants = {read for node in calls for read in node.all_input_nodes if read.op == "get_attr"}
        nodes = {node: graph.create_node("placeholder", node.name, name=node.name) for node in inputs}
        for node in (*(node for node in self.whole.graph.nodes if node in constants), *calls):
            args, kwargs = (map_arg(part, nodes.__getitem__) for part in (node.args, node.kwargs))
            nodes[node] = create_node(graph, node.op, node.target, args, kwargs, node.name)
        for node, copy in nodes.items():
            copy.meta = dict(node.meta)
        return nodes, {str(node.target): getattr(self.whole, str(node.target)) for node in constants}

    def _in_order(self, titles: Sequence[str]) -> torch.fx.GraphModule:
        graph = torch.fx.Graph()
        calls = sorted((node for node, home in self.home.items() if home >= 0), key=self.home.__getitem__)
        nodes, held = self._filled(graph, self.given, calls)
        begins = {self.home[node]: node for node in reversed(calls)}
        for place, title in enumerate(titles):
            if place in begins:
                nodes[begins[place]].meta[BEGINS] = title
        graph.create_node("output", "output", (tuple(nodes[node] for node in self.returned),), name="output")
        return graph_module(held, graph, "backward")

    def _read(self, mine: list[Node], copied: list[Node]) -> list[Node]:
        """What a segment is given, by slots: what it reads, and what tells the sizes that change in it."""
        inside = set(mine)
        read = {node for one in mine for node in one.all_input_nodes if node in self.slots and node not in inside}
        read |= {node for node in copied if node not in inside}
        wanted = symbols_of((node.meta.get("val"), node.args, *node.kwargs.values()) for node in (*mine, *read))
        wanted -= size_places([node.meta.get("val") for node in read], wanted).keys()
        tellers = self.partition.saved_sizes
        read |= {self.given[tellers[name][0]] for name in wanted & tellers.keys()}
        wanted -= tellers.keys() | size_places([node.meta.get("val") for node in mine], wanted).keys()
        if wanted:
            raise SizesUnfit(f"nothing tells a segment the sizes {', '.join(sorted(wanted))}")
        return sorted(read, key=self.slots.__getitem__)


def _last_places(calls: Sequence[Sequence[Node]], ends: Sequence[Sequence[Node]]) -> dict[Node, int]:
    """The last segment that is given each node, or whose gradient it is."""
    last: dict[Node, int] = {}
    for place, (mine, nodes) in enumerate(zip(calls, ends, strict=True)):
        inside = set(mine)
        last.update({read: place for node in mine for read in node.all_input_nodes if read not in inside})
        last.update(dict.fromkeys(nodes, place))
    return last


def _copy(graph: torch.fx.Graph, source: Node, node: Node) -> Node:
    copy = create_node(graph, "call_function", torch.ops.aten.clone.default, (source,), {}, f"{node.name}_copy")
    with torch.no_grad():
        copy.meta = {**node.meta, "val": node.meta["val"].clone()}
    return copy
