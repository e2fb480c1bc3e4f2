"""Simplified instructions in, a graph of basic blocks with explicit ``try`` nodes out.

A ``Node`` is a run of instructions that one handler protects.  Entering a protected region from outside goes through
a node of kind ``try`` with two successors, the region and its handler, so that dominance sees handlers as branches.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ...bytecode.flow import handlers_around, reachable_instructions, skip, successors
from ...bytecode.ins import Ins
from ..errors import DecompileError
from ..instructions.minimize import returning
from ..instructions.simplify import with_after


@dataclass(slots=True, eq=False, repr=False)
class Node:
    """A basic block: ``code`` plus how it ends.

    ``kind``: jump, cond, for, return, raise, try, end.  ``succ``: cond → (when true, when false), for → (body, exit),
    try → (region, handler or the place after a with).
    """

    id: int
    kind: str
    eh: int
    code: list[Ins] = field(default_factory=list)
    succ: list[Node] = field(default_factory=list)
    preds: list[Node] = field(default_factory=list)
    pos: int = 1 << 30
    entry: bool = False
    fall: int = 0  # the successor that a branch falls through to
    # of a try: where its handler begins, what that is, the stack depth below it
    handler: int = -1
    try_kind: str = ""
    depth: int = 0
    # set by dominance
    order: int = -1
    idom: Node | None = None
    kids: list[Node] = field(default_factory=list)
    end: Node | None = None  # of a finally: where all ways out of its body meet
    # set by execution: the stack on arrival, what remains below a test, what each successor finds
    stack: list[Any] | None = None
    base: list[Any] = field(default_factory=list)
    out: list[list[Any]] = field(default_factory=list)
    stmts: list[Any] = field(default_factory=list)
    cond: Any = None
    keep: bool | None = None  # of a branch that keeps what it tested: on which side
    iterator: Any = None

    def __repr__(self) -> str:
        return f"<{self.id} {self.kind} {[i.op for i in self.code][:4]} -> {[s.id for s in self.succ]}>"


_ENDS = {"RETURN_VALUE": "return", "RAISE": "raise", "RERAISE": "raise", "UNREACHABLE": "end"}


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
        self.entry = self.make("jump", code[skip(code, start)].eh)
        self.entry.entry = True
        if not self._inner:
            self.entry.eh = -1
        self._fill(self.entry, start)

    def chain(self, handler: int) -> list[int]:
        known = self._chains.get(handler)
        if known is None:
            known = self._chains[handler] = handlers_around(self.code, handler)
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

    def make(self, kind: str, eh: int) -> Node:
        node = Node(len(self.nodes), kind, eh)
        self.nodes.append(node)
        return node

    def _fill(self, node: Node, at: int) -> None:
        """Build everything reachable with an explicit work list (deep functions must not recurse)."""
        work: list[tuple[Node, int]] = []
        node.succ = [self._edge(self.chain(node.eh) if self._inner else [], at, work)]
        while work:
            block, position = work.pop()
            self._read_block(block, position, work)

    def _edge(self, from_chain: list[int], at: int, work: list[Any]) -> Node:
        """The node an edge to instruction ``at`` leads to, through a try node for each region it enters."""
        source = from_chain[0] if from_chain else -1
        place = skip(self.code, at)
        if source >= 0 and source not in self.chain(self.code[place].eh):
            tail = returning(self.code, place)
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
            block = self._blocks[at] = self.make("jump", self.code[at].eh)
            block.pos = at
            work.append((block, at))
        return block

    def _try(self, handler: int, inner: Node, depth: int, work: list[Any]) -> Node:
        key = (handler, inner.id)
        node = self._tries.get(key)
        if node is None:
            outer = self.code[handler].eh
            node = self._tries[key] = self.make("try", outer)
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
            leads = not first and (at in self._leaders or ins.eh != block.eh) and ins.op != "NOP"
            if ins.op == "JUMP" or leads:
                break
            first = False
            if ins.op != "NOP":
                block.code.append(ins)
            if ins.op.startswith("BRANCH") or ins.op == "FOR_ITER":
                block.kind = "for" if ins.op == "FOR_ITER" else "cond"
                block.fall = 1 if ins.jump_if else 0
                block.succ = [self._edge(here, way, work) for way in successors(ins)]
                return
            if ins.op in _ENDS:
                block.kind = _ENDS[ins.op]
                return
            at = ins.nxt
            if self._ends_statement(block, ins) and returning(self.code, at) is None:
                break
            if at in self._leaders and block.code and skip(code, at) != at:
                break
        block.succ = [self._edge(here, at, work)]

    def _tail(self, at: int, handler: int, code: list[Ins]) -> Node:
        """One node for the rest of a ``return``, shared by all ways to it from the region of ``handler``."""
        node = self._tails.get((at, handler))
        if node is None:
            node = self._tails[at, handler] = self.make("return", handler)
            node.code = code
            node.pos = at
        return node

    def _ends_statement(self, block: Node, ins: Ins) -> bool:
        """After POP_EXCEPT an except clause is over; a leading POP_TOP may drop the iterator of a loop that is left."""
        return ins.op == "POP_EXCEPT" or (ins.op == "POP_TOP" and len(block.code) == 1)
