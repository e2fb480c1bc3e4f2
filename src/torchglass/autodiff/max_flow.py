"""Maximum flow and minimum cut of a network with one source and one sink; capacities are whole numbers or infinite.

    >>> network = Network()
    >>> a, b = network.node(), network.node()
    >>> network.edge(network.SOURCE, a, 3), network.edge(a, b, 1), network.edge(b, network.SINK, 2)
    (None, None, None)
    >>> network.sink_side()[a], network.sink_side()[b]
    (0, 1)

Dinic's algorithm: as long as there is a way from the source to the sink, flow is sent along shortest ways only, until
none of that length is left. It is written in Python because the networks are small (4 ms for twelve layers of BERT)
and to load a fast solver takes longer (140 ms for scipy), when a first compile needs it.
"""

from __future__ import annotations

import math


class Network:
    """Edges with capacities. Of several edges between two nodes the largest counts."""

    SOURCE, SINK = 0, 1

    def __init__(self) -> None:
        self.size = 2
        self.edges: dict[tuple[int, int], float] = {}

    def node(self) -> int:
        self.size += 1
        return self.size - 1

    def edge(self, tail: int, head: int, capacity: float) -> None:
        if capacity > 0:
            self.edges[tail, head] = max(capacity, self.edges.get((tail, head), 0.0))

    def sink_side(self) -> bytearray:
        """1 for each node on the sink's side of the minimum cut that is nearest the sink, 0 for the others."""
        flow = Flow(self.size, self.edges)
        flow.maximize(self.SOURCE, self.SINK)
        side = bytearray(level >= 0 for level in flow.levels(self.SINK))  # what can still push flow to the sink
        if any(side[head] > side[tail] for (tail, head), c in self.edges.items() if c == math.inf):
            raise AssertionError("the cut does not separate forward from backward: all of a way there is infinite")
        return side


class Flow:
    """What is left of each edge's capacity. Edge ``e`` runs from ``heads[e ^ 1]`` to ``heads[e]``, ``e ^ 1`` back."""

    def __init__(self, size: int, edges: dict[tuple[int, int], float]) -> None:
        # more than all finite edges carry together: with whole numbers no rounding can lose a unit of flow
        infinite = 1 + sum(math.ceil(c) for c in edges.values() if c != math.inf)
        self.heads: list[int] = []
        self.left: list[int] = []
        self.of: list[list[int]] = [[] for _ in range(size)]
        for (tail, head), capacity in edges.items():
            self.of[tail].append(len(self.heads))
            self.of[head].append(len(self.heads) + 1)
            self.heads += head, tail
            self.left += infinite if capacity == math.inf else math.ceil(capacity), 0

    def levels(self, sink: int) -> list[int]:
        """How many edges with something left each node is away from the sink; -1 where there is no way."""
        level = [-1] * len(self.of)
        level[sink] = 0
        reached = [sink]
        for node in reached:
            for edge in self.of[node]:
                tail = self.heads[edge]
                if level[tail] < 0 and self.left[edge ^ 1]:
                    level[tail] = level[node] + 1
                    reached.append(tail)
        return level

    def maximize(self, source: int, sink: int) -> None:
        """Send all the flow there can be."""
        while (level := self.levels(sink))[source] >= 0:
            self._send_all(source, sink, level)

    def _send_all(self, source: int, sink: int, level: list[int]) -> None:
        """Send flow along ways on which each edge comes one nearer the sink, until there are none."""
        heads, left = self.heads, self.left
        untried = [list(edges) for edges in self.of]  # a dead end is not tried again
        way: list[int] = []
        node = source
        while True:
            if node == sink:
                sent = min(left[edge] for edge in way)
                for edge in way:
                    left[edge] -= sent
                    left[edge ^ 1] += sent
                full = next(n for n, edge in enumerate(way) if not left[edge])
                node = heads[way[full] ^ 1]
                del way[full:]
            edges = untried[node]
            nearer = level[node] - 1
            while edges and not (left[edges[-1]] and level[heads[edges[-1]]] == nearer):
                edges.pop()
            if edges:
                way.append(edges[-1])
                node = heads[edges[-1]]
            elif way:
                node = heads[way[-1] ^ 1]
                untried[node].pop()
                way.pop()
            else:
                return
