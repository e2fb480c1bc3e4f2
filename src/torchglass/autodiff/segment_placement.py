"""Which segment of a backward computes what: the graph and each segment's gradients in, the calls of each segment out.

A call stands in the first segment whose gradients need it. Kernels are not fused across a cut, so two rules bring
together again what reads the same memory, which costs more than what is computed of it::

    segment 0   h = silu(gate) * up; w_down' = h.T @ g; dh = g @ w_down; dup = dh * silu(gate); w_up' = dup.T @ x
    segment 1   dgate = silu_backward(dh * up, gate)     # moved to segment 0, whose kernel reads dh, up and gate anyway

Calls of later segments move where they take at least ``WORTH`` times as many bytes from these as they add, so that the
gradients of the segment that they move to are hardly later. A cheap result that a later segment reads beside its
operands is computed there again rather than handed on.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
import torch.fx
from torch.fx import Node

from ..aten.sizes import bytes_of_elements, elements
from ..torch_compat import OpOverload
from .ops import HIDDEN_VIEWS, is_random_call
from .recompute import NEVER, Family, family_of

WORTH = 2
"""Chosen, not measured: what moves makes a bucket later by at most the time that it makes the whole sooner."""

Ends = Sequence[Sequence[Node]]
"""The gradients that each segment completes."""


class Placement(NamedTuple):
    """The segment whose result each value is, -1 for what is given; and each segment's calls in the graph's order."""

    home: dict[Node, int]
    calls: list[list[Node]]


def placed(graph: torch.fx.Graph, ends: Ends) -> Placement:
    """The calls of ``graph`` in segments."""
    placing = _Placing(graph, ends)
    for place in range(len(ends) - 1):
        placing.hoist(place)
    again = placing.repeated()
    calls = [
        [node for node in placing.calls if placing.home[node] == place or node in again[place]]
        for place in range(len(ends))
    ]
    return Placement(placing.home, calls)


def root(node: Node) -> Node:
    """The node whose memory this one shows."""
    while is_view(node):
        node = node.args[0]
    return node


def is_view(node: Node) -> bool:
    """Whether the value shares memory with the first operand."""
    if node.op != "call_function" or not node.args or not isinstance(node.args[0], Node):
        return False
    if node.target is operator.getitem:
        return is_view(node.args[0])
    return node.target in HIDDEN_VIEWS or (isinstance(node.target, OpOverload) and node.target.is_view)


class _Placing:
    """``fused``: the calls that kernels can take in. ``touched``: for each segment how many of these read or make what
    lies in a node's memory.
    """

    def __init__(self, graph: torch.fx.Graph, ends: Ends) -> None:
        self.home = _first_homes(graph, ends)
        self.ends = [set(nodes) for nodes in ends]
        self.given = {root(node) for nodes in ends for node in nodes}
        self.calls = [node for node in graph.nodes if node.op == "call_function"]
        self.fused = {node for node in self.calls if _family(node).fuses}
        self.touched: list[Counter[Node]] = [Counter() for _ in ends]
        for node in self.fused:
            self.touched[self.home[node]].update(_touches(node))

    # --- earlier ---------------------------------------------------------------------------------------------------
    def hoist(self, place: int) -> None:
        """Move what later segments compute of tensors that this one touches."""
        for group in _connected(self._movable(place)):
            moved = self._pruned(group, place)
            added, saved = self._bytes_moved(moved, place)
            if saved > 0 and saved >= WORTH * added:
                for node in moved:
                    self.touched[self.home[node]].subtract(_touches(node))
                    self.touched[place].update(_touches(node))
                    self.home[node] = place

    def _movable(self, place: int) -> dict[Node, None]:
        """Calls of later segments whose operands are there: the largest of each are touched here, or such calls'."""
        found: dict[Node, None] = {}
        for node in self.calls:
            if node not in self.fused or self.home[node] <= place:
                continue
            reads = node.all_input_nodes
            if not all(read in found or self.home.get(read, -1) <= place for read in reads):
                continue
            most = max((_numel(one) for one in (node, *reads)), default=0)
            large = [root(read) for read in reads if _numel(read) == most]
            if not reads or (large and all(one in found or self.touched[place][one] > 0 for one in large)):
                found[node] = None
        return found

    def _pruned(self, group: set[Node], place: int) -> set[Node]:
        """Without the last calls that nothing is gained by."""

        def gain(nodes: set[Node]) -> int:
            added, saved = self._bytes_moved(nodes, place)
            return saved - added

        best, before = gain(group), None
        while group != before:
            before = group
            last = [node for node in self.calls if node in group and not any(user in group for user in node.users)]
            for node in reversed(last):
                fewer = group - {node}
                if (without := gain(fewer)) >= best:
                    group, best = fewer, without
        return group

    def _bytes_moved(self, group: set[Node], place: int) -> tuple[int, int]:
        """The bytes that kernels of this segment move more if the group moves to it, and those of later ones less."""
        added = saved = 0
        own: dict[int, Counter[Node]] = {}
        for node in group:
            own.setdefault(self.home[node], Counter()).update(_touches(node))
        read = {root(one) for node in group for one in node.all_input_nodes} - group
        added += sum(_bytes(one) for one in read if not self.touched[place][one])
        for home, counts in own.items():
            saved += sum(_bytes(one) for one, n in counts.items() if one in read and self.touched[home][one] == n)
        for node in group - {node for node in group if is_view(node)}:
            readers = set(_readers(node))
            outside, beside = readers - group, {reader for reader in readers if self.home[reader] == self.home[node]}
            handed = node in self.given
            added += _bytes(node) if handed or outside else 0
            saved += _bytes(node) if handed or readers - beside or readers - self.fused else 0
            saved -= _bytes(node) if (outside & beside) & self.fused else 0
        return added, saved

    # --- again -----------------------------------------------------------------------------------------------------
    def repeated(self) -> list[set[Node]]:
        """For each segment the results of earlier ones that it computes again, beside what it reads anyway."""
        found: list[set[Node]] = [set() for _ in self.ends]
        for node in reversed(self.calls):
            if node not in self.fused or _family(node).price == NEVER:
                continue
            for place in range(self.home[node] + 1, len(found)):
                readers = [user for user in node.users if self.home.get(user) == place or user in found[place]]
                beside = readers and self.fused.issuperset(readers) and node not in self.ends[place]
                if beside and self._is_cheap(node, place):
                    found[place].add(node)
        return found

    def _is_cheap(self, node: Node, place: int) -> bool:
        untouched = [one for one in map(root, node.all_input_nodes) if not self.touched[place][one]]
        if any(self.home.get(one, -1) >= 0 for one in untouched):  # these would have to be handed on instead
            return False
        return is_view(node) or sum(map(_bytes, untouched)) + _family(node).price * _bytes(node) < _bytes(node)


def _connected(nodes: dict[Node, None]) -> Iterator[set[Node]]:
    """Groups of nodes that read one another or the same memory."""
    sharing: dict[Node, list[Node]] = {}
    for node in nodes:
        for one in _touches(node):
            sharing.setdefault(one, []).append(node)
    left = dict(nodes)
    while left:
        group, waiting = set(), [next(iter(left))]
        while waiting:
            node = waiting.pop()
            if node in left:
                del left[node]
                group.add(node)
                waiting += [other for one in _touches(node) for other in sharing[one]]
        yield group


def _first_homes(graph: torch.fx.Graph, ends: Ends) -> dict[Node, int]:
    """The first segment whose gradients need each node. Results of one call, and calls that draw random numbers, are
    not torn apart. Constants are in all that read them.
    """
    homes: dict[Node, int] = {}
    drawn: dict[Node, Node] = {}  # before each call that draws, the one that draws before it
    draws = [node for node in graph.nodes if node.op == "call_function" and is_random_call(node.target)]
    drawn.update(zip(draws[1:], draws))
    for place, nodes in enumerate(ends):
        waiting = list(nodes)
        while waiting:
            node = waiting.pop()
            if node.op == "call_function" and node not in homes:
                homes[node] = place
                waiting += [*node.all_input_nodes, *([drawn[node]] if node in drawn else [])]
    found: dict[Node, int] = {}
    for node in graph.nodes:
        if node.op == "placeholder":
            found[node] = -1
        elif node.op == "call_function":
            item = node.target is operator.getitem
            found[node] = found[node.args[0]] if item else homes.get(node, len(ends) - 1)
    return found


# --- nodes ------------------------------------------------------------------------------------------------------------
def _family(node: Node) -> Family:
    single = isinstance(node.meta.get("val"), torch.Tensor) and node.target is not operator.getitem
    drawing = is_random_call(node.target)
    return family_of(None, ()) if drawing or not single else family_of(node.target, node.args)


def _touches(node: Node) -> set[Node]:
    return {root(one) for one in (node, *node.all_input_nodes)}


def _readers(node: Node) -> Iterator[Node]:
    """What reads a value, or views of it."""
    for user in node.users:
        if is_view(user):
            yield from _readers(user)
        elif user.op == "call_function":
            yield user


def _numel(node: Node) -> int:
    val = node.meta.get("val")
    return elements(val) if isinstance(val, torch.Tensor) else 0


def _bytes(node: Node) -> int:
    val = node.meta.get("val")
    return bytes_of_elements(val) if isinstance(val, torch.Tensor) else 0
