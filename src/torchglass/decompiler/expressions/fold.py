"""Branches that belong to one expression, folded back into it: ``and``, ``or``, ``not``, conditionals, chains.

Before: three nodes for ``x = a and b or c``.  After: one node with the statement.  Every fold is local: a node that
branches, a successor that does nothing but compute, a place where both meet.
"""

from __future__ import annotations

import ast
from typing import Any

from ..graph.cfg import Node
from .conditions import case_test, join_bool, negatable, negate
from .machine import Machine
from .stacks import all_same, same_values, stacks_into
from .values import CaseTest, Match, is_silent


class Folding:
    """The fold rules. ``dead`` collects the nodes that were folded away."""

    def __init__(self, dead: set[int], machine: Machine) -> None:
        self.dead = dead
        self.machine = machine

    def region(self, meet: Node, done: set[int]) -> None:
        """Fold whatever ends at ``meet`` until nothing changes or all ways bring the same stack."""
        changed = True
        while changed:
            changed = False
            for node in self._behind(meet, done):
                if node.id not in self.dead and node.kind == "cond" and (self.value(node) or self.condition(node)):
                    changed = True
                    if all_same(stacks_into(meet, done)):
                        return

    def _behind(self, meet: Node, done: set[int]) -> list[Node]:
        found: dict[int, Node] = {}
        work = [p for p in meet.preds if p.id in done]
        while work:
            node = work.pop()
            if node.id in found or node.id in self.dead:
                continue
            found[node.id] = node
            if not node.stmts and node.kind in ("cond", "jump"):
                work.extend(p for p in node.preds if p.id in done and p.order < node.order)
        return sorted(found.values(), key=lambda n: -n.order)

    # -- following an edge ---------------------------------------------------------------------------------------
    def follow(self, node: Node, side: int) -> tuple[list[Any], Node, list[Node]]:
        """``(stack, place, passed)``: where the edge leads once nodes that only compute are passed."""
        stack, place = node.out[side], node.succ[side]
        passed: list[Node] = []
        while (
            place.kind == "jump"
            and place.out
            and not place.stmts
            and len(place.preds) == 1
            and place.order > node.order
            and place.eh == node.eh
            and place.succ[0] is not place
        ):
            passed.append(place)
            stack, place = place.out[0], place.succ[0]
        return stack, place, passed

    def value(self, node: Node) -> bool:
        """A branch whose two ways only push one value each: ``and``, ``or``, a conditional, a chained comparison."""
        if isinstance(node.cond, (Match, CaseTest)):
            return False
        a, to_a, passed_a = self.follow(node, 0)
        b, to_b, passed_b = self.follow(node, 1)
        if to_a is not to_b or not a or not b or to_a.order <= node.order:
            return False
        keep = len(a) - 1
        if not same_values(a[:-1], b[:-1]) or not same_values(a[:-1], node.base[:keep]):
            return False
        if a[-1] is b[-1] or is_silent(a[-1]) or is_silent(b[-1]):
            return False
        yes, no = (v if v is node.cond else self.machine.as_expr(v) for v in (a[-1], b[-1]))
        expr = _join(node, yes, no, len(node.base) - keep)
        if expr is None:
            return False
        expr.when = getattr(node.cond, "when", 0)
        expr.home = node.id
        node.kind = "jump"
        node.cond = None
        node.out = [a[:-1] + [expr]]
        node.base = node.out[0]
        self._drop(passed_a + passed_b)
        self._relink(node, [to_a])
        return True

    def condition(self, node: Node) -> bool:
        """Two branches that share a target become one: ``a and b``, ``a or b``, ``a < b < c``, ``a if b else c``."""
        if isinstance(node.cond, Match) or _continues_chain(node):
            return False
        return self._shared(node, 0) or self._shared(node, 1) or self._conditional(node)

    def _pure(self, node: Node, first: Node) -> bool:
        return (
            node.kind == "cond"
            and bool(node.out)
            and not node.stmts
            and len(node.preds) == 1
            and node.eh == first.eh
            and node.order > first.order
            and not isinstance(node.cond, Match)
            and case_test(node.cond) is None
        )

    def _shared(self, node: Node, side: int) -> bool:
        stack, second, passed = self.follow(node, side)
        if not self._pure(second, node):
            return False
        other_stack, other, other_passed = self.follow(node, 1 - side)
        for k in (0, 1):
            out, place, more = self.follow(second, k)
            if place is not other:
                continue
            kept = _kept(node, second, other_stack, out)
            if kept is None:
                continue
            chained = _is_chain(node.cond, second.cond) and len(second.base) == len(node.base) - 1
            if not chained and not same_values(second.base, stack):
                continue
            if (chained or isinstance(node.cond, CaseTest)) and not (side == 0 and k == 1):
                continue
            negated = side == k
            if kept and negated:
                continue
            if negated and not kept and not (negatable(node.cond) or negatable(second.cond)):
                continue  # no ``not`` of either compiles to a jump: these are two statements
            self._combine(node, second, side, k, kept, chained, other)
            self._drop(passed + other_passed + more + [second])
            self._relink(node, node.succ)
            return True
        return False

    def _combine(self, node: Node, second: Node, side: int, k: int, kept: bool, chained: bool, shared: Node) -> None:
        first, then = node.cond, second.cond
        free = second.succ[1 - k]
        free_kept = second.keep is not None and second.keep == (k == 1)
        if chained:
            cond: Any = _chain(first, then)
        elif side == k and not free_kept and self._flip(side, first, second):
            # the same decision seen from the shared target: one "not" at the other end
            cond = join_bool(ast.And() if side == 0 else ast.Or(), first, negate(then))
            k = 1 - k
            second.fall = 1 - second.fall
        else:
            cond = join_bool(ast.Or() if k == 0 else ast.And(), negate(first) if side == k else first, then)
        node.fall = second.fall
        cond.when = getattr(node.cond, "when", 0)
        base = second.base
        outs = [[*base, cond] if keeps else base for keeps in ((kept, free_kept) if k == 0 else (free_kept, kept))]
        node.cond, node.base, node.out = cond, base, outs
        node.succ = [shared, free] if k == 0 else [free, shared]
        node.keep = (k == 0) if kept else ((k == 1) if free_kept else None)

    @staticmethod
    def _flip(side: int, first: Any, second: Node) -> bool:
        """Whether ``first and not second`` (``first or not second``) says it better than its mirror image."""
        if not negatable(second.cond):
            return False
        if not negatable(first):
            return True
        return second.fall == 1

    def _conditional(self, node: Node) -> bool:
        if isinstance(node.cond, CaseTest):
            return False
        (_, yes, passed_a), (_, no, passed_b) = self.follow(node, 0), self.follow(node, 1)
        if yes is no or not (self._pure(yes, node) and self._pure(no, node)):
            return False
        if yes.keep is not None or no.keep is not None:
            return False
        if not (same_values(yes.base, no.base) and same_values(yes.base, node.base)):
            return False
        ways_a = [self.follow(yes, 0), self.follow(yes, 1)]
        ways_b = [self.follow(no, 0), self.follow(no, 1)]
        places_a, places_b = [w[1] for w in ways_a], [w[1] for w in ways_b]
        stacks_same = all(len(w[0]) == len(node.base) for w in ways_a + ways_b)
        if not stacks_same or places_a[0] is places_a[1]:
            return False
        if places_a[0] is places_b[0] and places_a[1] is places_b[1]:
            other = no.cond
        elif places_a[0] is places_b[1] and places_a[1] is places_b[0]:
            other = negate(no.cond)
        else:
            return False
        cond = ast.IfExp(node.cond, yes.cond, other)
        cond.when = getattr(node.cond, "when", 0)  # type: ignore[attr-defined]
        node.cond = cond
        node.out = [node.base, node.base]
        node.keep = None
        gone = passed_a + passed_b + [yes, no]
        for way in ways_a + ways_b:
            gone += way[2]
        self._drop(gone)
        self._relink(node, places_a)
        return True

    # -- graph surgery -------------------------------------------------------------------------------------------
    def _drop(self, nodes: list[Node]) -> None:
        for node in nodes:
            self.dead.add(node.id)
            for child in node.succ:
                child.preds = [p for p in child.preds if p is not node]

    def _relink(self, node: Node, succ: list[Node]) -> None:
        for child in {id(c): c for c in node.succ + succ}.values():
            child.preds = [p for p in child.preds if p is not node]
        node.succ = list(succ)
        for child in succ:
            child.preds.append(node)


def _kept(first: Node, second: Node, a: list[Any], b: list[Any]) -> bool | None:
    """Whether the shared edge carries the tested value (True), nothing (False), or the two differ (None)."""
    if not same_values(a[:-1], b[:-1]) or len(a) != len(b):
        return None
    if not a or a[-1] is b[-1]:
        return False
    if a[-1] is first.cond and b[-1] is second.cond:
        return True
    return None


def _is_chain(first: Any, second: Any) -> bool:
    return (
        isinstance(first, ast.Compare)
        and isinstance(second, ast.Compare)
        and first.comparators[-1] is second.left
        and getattr(second.left, "copied", False)
    )


def _chain(first: ast.Compare, second: ast.Compare) -> ast.Compare:
    """``a < b < c`` of ``a < b`` and ``b < c``."""
    return ast.Compare(first.left, first.ops + second.ops, first.comparators + second.comparators)


def _continues_chain(node: Node) -> bool:
    """``g <= 255`` of ``0 <= g <= 255``: it belongs to the branch before it and to nothing else."""
    if len(node.preds) != 1 or node.stmts:
        return False
    before = node.preds[0]
    return before.kind == "cond" and _is_chain(before.cond, node.cond) and len(node.base) == len(before.base) - 1


def _join(node: Node, yes: Any, no: Any, extra: int) -> Any:
    cond = node.cond
    if no is cond:
        if _is_chain(cond, yes) and extra == 1:
            return _chain(cond, yes)
        return join_bool(ast.And(), cond, yes) if extra == 0 else None
    if extra:
        return None
    if yes is cond:
        return join_bool(ast.Or(), cond, no)
    return ast.IfExp(cond, yes, no)
