"""The solver of minimum cuts, beside networkx."""

import math
import random

import networkx
import pytest

from torchglass.autodiff.max_flow import Network


def drawn(seed: int) -> Network:
    """A random network, some edges infinite or absurdly large, in which the sink may be out of reach."""
    draw = random.Random(seed)
    network = Network()
    nodes = [0, 1, *(network.node() for _ in range(draw.randrange(12)))]
    for _ in range(draw.randrange(3 * len(nodes))):
        tail, head = draw.sample(nodes, 2)
        # an infinite way would leave nothing to cut: those edges lead to higher numbers, and not to the sink
        infinite = draw.random() < 0.3 and head > tail and head != 1
        network.edge(tail, head, math.inf if infinite else draw.choice([0, 1, 1, 2, 3, 50, 2**40 + 1]))
    return network


@pytest.mark.parametrize("seed", range(200))
def test_cut(seed: int) -> None:
    network = drawn(seed)
    graph = networkx.DiGraph()
    graph.add_nodes_from(range(network.size))
    for (tail, head), capacity in network.edges.items():
        graph.add_edge(tail, head, **({} if capacity == math.inf else {"capacity": capacity}))
    side = network.sink_side()
    cut = sum(c for (tail, head), c in network.edges.items() if side[head] and not side[tail])
    assert cut == networkx.minimum_cut_value(graph, 0, 1)
    reachable = networkx.algorithms.flow.dinitz(graph, 0, 1)
    nearest = {1}
    waiting = [1]
    while waiting:
        for tail, _, edge in reachable.in_edges(waiting.pop(), data=True):
            if edge["flow"] < edge["capacity"] and tail not in nearest:
                nearest.add(tail)
                waiting.append(tail)
    assert {node for node in range(network.size) if side[node]} == nearest


def test_no_cut() -> None:
    network = Network()
    network.edge(network.SOURCE, network.SINK, math.inf)
    with pytest.raises(AssertionError, match="does not separate"):
        network.sink_side()
