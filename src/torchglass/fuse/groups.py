"""Groups of loops that run as one nest, and what a graph says of its buffers before any loop is fused.

A softmax over (512, 128) is four groups at first, [max], [exp], [sum], [divide], each over its loop's dimensions; in
the end it is one over (512, 128), whose rows are [512] and of which each has [128].
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ..process.cached import cached_property
from ..records.loops import Access, ExternCall, Loop, LoopGraph, Node, Value, View, item_bytes, sizes_of_calls
from ..records.sizes import Size, hint, symbols


@dataclass
class Group:
    """Loops over common ``dims``, by ``positions`` in the graph. ``members``, ``ancestors``: bit sets of positions.

    ``inner`` marks the dimensions of one row; None: no loop says which they are. ``strided``: rows lie across memory.
    """

    loops: list[Loop]
    positions: list[int]
    dims: tuple[Size, ...]
    members: int
    ancestors: int = 0
    last: int = 0
    inner: tuple[bool, ...] | None = None
    names: list[str] = field(default_factory=list)
    device: str = "cpu"
    strided: bool = False

    @cached_property
    def writes(self) -> dict[str, tuple[Loop, Access]]:
        return {s.access.buffer: (loop, s.access) for loop in self.loops for s in loop.stores}

    @cached_property
    def reads(self) -> dict[str, Access]:
        bases = {s.base: s.access for loop in self.loops for s in loop.stores if s.base is not None}
        given = {o.buffer: Access(o.buffer, (0,) * len(loop.dims)) for loop in self.loops for o in loop.scalars}
        return bases | given | {o.access.buffer: o.access for loop in self.loops for o in loop.loads}

    def shared(self, later: Group) -> list[str]:
        """The buffers that both touch, as the later one has them."""
        mine = {*self.writes, *self.reads}
        return [b for b in dict.fromkeys((*later.reads, *later.writes)) if b in mine]


class Uses:
    """Who reads what: ``readers`` of a buffer and what each node ``needs`` before it, as bit sets of positions.

    ``outputs``: what leaves the graph.
    """

    def __init__(self, graph: LoopGraph) -> None:
        self.graph = graph
        self.outputs = output_names(graph)
        self.readers: dict[str, int] = {}
        self.needs: list[int] = []
        self._told = {symbol: name for symbol, (name, _) in sizes_of_calls(graph).items()}
        makers: dict[str, int] = {}
        for position, node in enumerate(graph.nodes):
            needs = 0
            for name in self.read_by(node):
                self.readers[name] = self.readers.get(name, 0) | 1 << position
                if (made := makers.get(name)) is not None:
                    needs |= self.needs[made] | 1 << made
            self.needs.append(needs)
            makers.update(dict.fromkeys(node.writes, position))

    def read_by(self, node: Node | Group) -> Iterable[str]:
        """The buffers that a node reads, or reads its sizes off."""
        if not self._told:
            return node.reads
        if isinstance(node, ExternCall):
            sizes: Iterable[Size] = node.sizes
        else:
            loops = node.loops if isinstance(node, Group) else [node]
            sizes = (size for loop in loops for size in (*loop.dims, *loop.mentioned))
        told = (self._told[symbol] for symbol in symbols(sizes) if symbol in self._told)
        return dict.fromkeys((*node.reads, *(name for name in told if name not in node.writes)))

    def only_within(self, name: str, members: int) -> bool:
        """Whether nothing but these nodes reads a buffer."""
        return name not in self.outputs and not self.readers.get(name, 0) & ~members

    def bytes(self, name: str) -> int:
        """Memory of a buffer, by the sizes met when the program was compiled."""
        buffer = self.graph.buffers[name]
        return hint(buffer.extent) * item_bytes(buffer.dtype)


def output_names(graph: LoopGraph) -> set[str]:
    """Names of the buffers and values that leave a graph."""
    return {o.buffer if isinstance(o, View) else o.name for o in graph.outputs if isinstance(o, (View, Value))}


def device_of(graph: LoopGraph, node: Loop) -> str:
    """Where a loop runs: where what it writes lies."""
    return graph.buffers[node.writes[0]].device


def positions(members: int) -> Iterator[int]:
    """The positions in a bit set."""
    while members:
        lowest = members & -members
        yield lowest.bit_length() - 1
        members ^= lowest
