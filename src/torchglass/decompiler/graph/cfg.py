"""Simplified instructions in, a graph of basic blocks with explicit ``try`` nodes out.

A ``Node`` is a run of instructions that one handler protects.  Entering a protected region from outside goes through
a node of kind ``try`` with two successors, the region and its handler, so that dominance sees handlers as branches.
"""

from __future__ import annotations

from typing import Any

from ..errors import DecompileError
from ..instructions.finally_copies import chain
from ..instructions.flow import Ins, branch_ways, skip, with_after
from ..instructions.minimize import reachable_instructions, returning


class Node:
    """A basic block: ``code`` plus how it ends.

    ``kind``: jump, cond, for, return, raise, try, end.  ``succ``: cond → (when true, when false), for → (body, exit),
    try → (region, handler or the place after a with).  The other fields are filled by later stages.
    """

    __slots__ = (
        "base",
        "code",
        "cond",
        "copy",
        "depth",
        "eh",
        "end",
        "entry",
        "fall",
        "handler",
        "id",
        "idom",
        "iterator",
        "keep",
        "kids",
        "kind",
        "loop",
        "order",
        "out",
        "pos",
        "preds",
        "stack",
        "stmts",
        "succ",
        "try_kind",
    )  # fmt: skip

    def __init__(self, ident: int, kind: str, eh: int) -> None:
        self.id = ident
        self.kind = kind
        self.eh = eh
        self.code: list[Ins] = []
        self.succ: list[Node] = []
        self.preds: list[Node] = []
        self.handler = -1
        self.try_kind = ""
        self.stmts: list[Any] = []
        self.cond: Any = None
        self.keep: bool | None = None
        self.stack: list[Any] | None = None
        self.base: list[Any] = []
        self.out: list[list[Any]] = []
        self.order = -1
        self.pos = 1 << 30
        self.idom: Node | None = None
        self.kids: list[Node] = []
        self.loop: Any = None
        self.iterator: Any = None
        self.entry = False
        self.copy = False
        self.depth = 0
        self.fall = 0
        self.end: Node | None = None

    def __repr__(self) -> str:
        return f"<{self.id} {self.kind} {[i.op for i in self.code][:4]} -> {[s.id for s in self.succ]}>"


_ENDS = {"RETURN_VALUE": "return", "RAISE": "raise", "RERAISE": "raise", "UNREACHABLE": "end"}
_STACK_ONLY = frozenset({"POP_TOP", "SWAP", "ROT", "POP_BLOCK"})


class Graph:
    """The nodes of one code object, ``entry`` first."""

    def __init__(self, code: list[Ins], kinds: dict[int, str], start: int = 0) -> None:
        self.code = code
        self.kinds = kinds
        self.nodes: list[Node] = []
        self._chains: dict[int, list[int]] = {-1: []}
        self._tails: dict[tuple[int, int], Node] = {}
        self._tries: dict[tuple[int, int], Node] = {}
        self._leaders = self._find_leaders(start)
        self._region_starts = self._find_region_starts()
        self._blocks: dict[int, Node] = {}
        self._inner = start != 0
        self.entry = self._make("jump", code[skip(code, start)].eh)
        self.entry.entry = True
        if not self._inner:
            self.entry.eh = -1
        self._fill(self.entry, start)

    def chain(self, handler: int) -> list[int]:
        known = self._chains.get(handler)
        if known is None:
            known = self._chains[handler] = chain(self.code, handler)
        return known

    def _find_region_starts(self) -> set[int]:
        """The first instruction of each protected region: a jump there from outside enters it anew (``continue``)."""
        starts: dict[int, int] = {}
        for ins in self.code:
            if ins.eh >= 0 and ins.op not in ("NOP", "JUMP"):
                for handler in self.chain(ins.eh):
                    starts.setdefault(handler, ins.index)
        return set(starts.values())

    def _find_leaders(self, start: int) -> set[int]:
        leaders = {start}
        for at in reachable_instructions(self.code, start):
            ins = self.code[at]
            if ins.to >= 0:
                leaders.add(skip(self.code, ins.to))
            if ins.nxt >= 0 and ins.nxt != ins.index + 1:
                leaders.add(skip(self.code, ins.nxt))
            if ins.op.startswith("BRANCH") or ins.op == "FOR_ITER":
                leaders.add(skip(self.code, ins.nxt))
        return leaders

    def _make(self, kind: str, eh: int) -> Node:
        node = Node(len(self.nodes), kind, eh)
        self.nodes.append(node)
        return node

    def _fill(self, node: Node, at: int) -> None:
        """Build everything reachable with an explicit work list (deep functions must not recurse)."""
        work: list[tuple[Node, int, int]] = []
        node.succ = [self._edge(self.chain(node.eh) if self._inner else [], at, work)]
        while work:
            block, position, _ = work.pop()
            self._read_block(block, position, work)

    def _edge(self, from_chain: list[int], at: int, work: list[Any]) -> Node:
        """The node an edge to instruction ``at`` leads to, through a try node for each region it enters."""
        source = from_chain[0] if from_chain else -1
        place = skip(self.code, at)
        if source >= 0 and source not in self.chain(self.code[place].eh):
            tail = self._returning(place)
            if tail is not None:
                return self._tail(place, source, tail)
        for _ in range(10000):
            ins = self.code[at]
            if ins.op == "JUMP":
                if len(self.chain(ins.eh)) < len(from_chain) and place in self._region_starts:
                    allowed = self.chain(ins.eh)
                    from_chain = [h for h in from_chain if h in allowed or self.kinds.get(h) == "with"]
                at = ins.to
            elif ins.op == "NOP":
                at = ins.nxt
            else:
                break
        ins = self.code[at]
        target_chain = self.chain(ins.eh)
        entering = [h for h in target_chain if h not in from_chain]
        block = self._block(at, work)
        for handler in entering:  # innermost first: wrap outwards
            block = self._try(handler, block, ins.depth, work)
            ins = self.code[handler]
        return block

    def _block(self, at: int, work: list[Any]) -> Node:
        block = self._blocks.get(at)
        if block is None:
            block = self._blocks[at] = self._make("jump", self.code[at].eh)
            block.pos = at
            work.append((block, at, 0))
        return block

    def _try(self, handler: int, inner: Node, depth: int, work: list[Any]) -> Node:
        key = (handler, inner.id)
        node = self._tries.get(key)
        if node is None:
            outer = self.code[handler].eh
            node = self._tries[key] = self._make("try", outer)
            node.handler = handler
            node.depth = depth
            node.pos = inner.pos
            node.try_kind = self.kinds[handler]
            node.succ = [inner]
            if node.try_kind == "with":
                after = with_after(self.code, handler)
                if after is None:
                    raise DecompileError("a with statement's handler has an unknown shape")
                node.succ.append(self._edge(self.chain(outer), after, work))
            else:
                node.succ.append(self._edge(self.chain(outer), handler, work))
        return node

    def _read_block(self, block: Node, at: int, work: list[Any]) -> None:
        code = self.code
        here = self.chain(block.eh)
        first = True
        while True:
            ins = code[at]
            if not first and (at in self._leaders or ins.eh != block.eh) and ins.op not in ("NOP", "JUMP"):
                block.succ = [self._edge(here, at, work)]
                return
            first = False
            if ins.op.startswith("BRANCH"):
                block.code.append(ins)
                block.kind = "cond"
                block.fall = 1 if ins.jump_if else 0
                yes, no = branch_ways(ins)
                block.succ = [self._edge(here, yes, work), self._edge(here, no, work)]
                return
            if ins.op == "FOR_ITER":
                block.code.append(ins)
                block.kind = "for"
                block.succ = [self._edge(here, ins.nxt, work), self._edge(here, ins.to, work)]
                return
            if ins.op in _ENDS:
                block.code.append(ins)
                block.kind = _ENDS[ins.op]
                return
            if ins.op == "JUMP":
                block.succ = [self._edge(here, at, work)]
                return
            if ins.op != "NOP":
                block.code.append(ins)
            at = ins.nxt
            if self._ends_statement(block, ins) and self._returning(at) is None:
                block.succ = [self._edge(here, at, work)]
                return
            if at in self._leaders and block.code and skip(code, at) != at:
                block.succ = [self._edge(here, at, work)]
                return

    def _tail(self, at: int, handler: int, code: list[Ins]) -> Node:
        """One node for the rest of a ``return``, shared by all ways to it from the region of ``handler``."""
        node = self._tails.get((at, handler))
        if node is None:
            node = self._tails[at, handler] = self._make("return", handler)
            node.code = code
            node.pos = at
        return node

    def _ends_statement(self, block: Node, ins: Ins) -> bool:
        """After POP_EXCEPT an except clause is over; a leading POP_TOP may drop the iterator of a loop that is left."""
        return ins.op == "POP_EXCEPT" or (ins.op == "POP_TOP" and len(block.code) == 1)

    def _returning(self, at: int) -> list[Ins] | None:
        return returning(self.code, at)


def order(graph: Graph) -> list[Node]:
    """Reverse postorder from the entry; sets ``order`` and ``preds`` and drops what cannot be reached."""
    post: list[Node] = []
    seen = {graph.entry.id}
    stack: list[tuple[Node, int]] = [(graph.entry, 0)]
    while stack:
        node, n = stack.pop()
        # visit the second successor first, so that the first comes earlier in reverse postorder
        if n < len(node.succ):
            stack.append((node, n + 1))
            child = node.succ[len(node.succ) - 1 - n]
            if child.id not in seen:
                seen.add(child.id)
                stack.append((child, 0))
        else:
            post.append(node)
    nodes = post[::-1]
    for n, node in enumerate(nodes):
        node.order = n
        node.preds = []
    for node in nodes:
        for child in node.succ:
            child.preds.append(node)
    return nodes


def split_stack_cleanups(graph: Graph, nodes: list[Node]) -> bool:
    """Give each predecessor its own copy of a block that only drops stack values (the ends of chained comparisons)."""
    changed = False
    for node in nodes:
        if node.kind != "jump" or len(node.preds) < 2 or node.entry or not node.code:
            continue
        if any(i.op not in _STACK_ONLY for i in node.code) or node.succ[0] is node:
            continue
        for pred in node.preds[1:]:
            twin = graph._make("jump", node.eh)
            twin.code = list(node.code)
            twin.succ = list(node.succ)
            twin.pos = node.pos
            pred.succ = [twin if s is node else s for s in pred.succ]
            changed = True
    return changed


def dominators(nodes: list[Node]) -> None:
    """Set ``idom`` and ``kids`` (Cooper, Harvey, Kennedy: A Simple, Fast Dominance Algorithm)."""
    for node in nodes:
        node.idom = None
        node.kids = []
    entry = nodes[0]
    entry.idom = entry
    changed = True
    while changed:
        changed = False
        for node in nodes[1:]:
            new: Node | None = None
            for pred in node.preds:
                if pred.idom is not None:
                    new = pred if new is None else _meet(pred, new)
            if new is not node.idom:
                node.idom = new
                changed = True
    for node in nodes[1:]:
        assert node.idom is not None
        node.idom.kids.append(node)


def _meet(a: Node, b: Node) -> Node:
    while a is not b:
        while a.order > b.order:
            assert a.idom is not None
            a = a.idom
        while b.order > a.order:
            assert b.idom is not None
            b = b.idom
    return a


def dominates(a: Node, b: Node) -> bool:
    while b.order > a.order:
        assert b.idom is not None
        b = b.idom
    return a is b
