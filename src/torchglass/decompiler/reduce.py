"""Executes the graph and folds branches that belong to one expression back into it.

Input: a graph; output: the nodes that remain, each with statements and, where it branches, one condition.  Before:
three nodes for ``x = a and b or c``.  After: one node with the statement.  Every fold is local: a node that branches,
a successor that does nothing but compute, a place where both meet.
"""

from __future__ import annotations

import ast
from typing import Any

from ..bytecode.canonical import VERSION
from .cfg import Node
from .errors import DecompileError
from .machine import LOAD, STORE, Machine
from .match import CaseTest, case_test
from .values import Item, Marker, Match, is_silent


def execute(nodes: list[Node], machine: Machine, stack: list[Any]) -> list[Node]:
    """Run every node in reverse postorder, folding at each meeting point; returns the nodes left over."""
    done: set[int] = set()
    dead: set[int] = set()
    fold = Folding(dead, machine)
    for node in nodes:
        if node.id in dead:
            continue
        node.stack = list(stack) if node.entry else _entry_stack(node, done, fold, machine)
        if node.kind == "try":
            if node.try_kind == "with":
                _enter_with(node)
            _hold(node, node.stack, done, machine)
        machine.run(node)
        if node.kind == "jump" and node.succ and node.succ[0].eh != node.eh and node.succ[0].kind != "try":
            machine.settle(node)
        done.add(node.id)
    for node in nodes:
        if node.id in dead:
            continue
        for n, child in enumerate(node.succ):
            if child.order <= node.order and node.kind != "try":
                _check_back_edge(node.out[n], child)
    alive = [n for n in nodes if n.id not in dead]
    changed = True
    while changed:
        changed = False
        for node in reversed(alive):
            if node.kind == "cond" and node.id not in dead and fold.condition(node):
                changed = True
    alive = [n for n in alive if n.id not in dead]
    _check_order(alive, machine)
    return alive


class Respill(Exception):
    """Values computed in the nodes ``homes`` are still waiting when a branch is taken: they need temporaries there."""

    def __init__(self, homes: set[int]) -> None:
        super().__init__("values wait across a branch")
        self.homes = homes


def _check_order(alive: list[Node], machine: Machine) -> None:
    """A value that waits on the stack while a statement-level test runs would be evaluated after it: not allowed."""
    homes: set[int] = set()
    for node in alive:
        if node.kind != "cond":
            continue
        for value in node.base:
            if not is_silent(value) and not machine.harmless(value):
                homes.add(getattr(value, "home", -1))
    if homes:
        if homes <= machine.scope.spills or -1 in homes:
            raise DecompileError("a value waits across a branch")
        raise Respill(homes)


def _check_back_edge(out: list[Any], head: Node) -> None:
    assert head.stack is not None
    if len(out) != len(head.stack) or any(a is not b for a, b in zip(out, head.stack)):
        raise DecompileError("the stack changes around a loop")


def incoming(pred: Node, node: Node) -> list[list[Any]]:
    """The stacks with which ``pred`` reaches ``node``."""
    if pred.kind != "try":
        return [pred.out[n] for n, s in enumerate(pred.succ) if s is node]
    stacks = []
    assert pred.stack is not None
    for n, s in enumerate(pred.succ):
        if s is not node:
            continue
        if n == 0:
            stacks.append(pred.stack)
        elif pred.try_kind == "with":
            stacks.append(_below_exit(pred))
        elif VERSION >= (3, 11):
            stacks.append(pred.stack[: pred.depth] + [Item("except")])
        else:
            old = [Marker("exception") for _ in range(4)]
            stacks.append(pred.stack + old + [Item("except"), Marker("exception")])
    return stacks


def _below_exit(node: Node) -> list[Any]:
    stack = node.stack or []
    for n in range(len(stack) - 1, -1, -1):
        if isinstance(stack[n], Marker) and stack[n].kind == "exit":
            return stack[:n]
    raise DecompileError("a with region entered without its context manager")


def _enter_with(node: Node) -> None:
    """A with block entered in the middle (a resume function): the exit function is a plain value on the stack."""
    stack = node.stack or []
    at = node.depth - 1
    if VERSION < (3, 11) or not 0 <= at < len(stack):
        return
    value = stack[at]
    if is_silent(value):
        return
    marker = Marker("exit", value)
    marker.resumed = True
    stack[at] = marker


def _entry_stack(node: Node, done: set[int], fold: Folding, machine: Machine) -> list[Any]:
    stacks = _stacks(node, done)
    if not stacks:
        raise DecompileError("a block that is only reached from behind")
    header = any(p.id not in done for p in node.preds)
    if not _all_same(stacks):
        fold.region(node, done)
        stacks = _stacks(node, done)
        if not _all_same(stacks):
            _merge_into_temporaries(node, done, machine)
            stacks = _stacks(node, done)
    stack = list(stacks[0])
    if header and any(not is_silent(v) for v in stack):
        _hold(node, stack, done, machine)
    return stack


def _stacks(node: Node, done: set[int]) -> list[list[Any]]:
    out: list[list[Any]] = []
    seen = set()
    for pred in node.preds:
        if pred.id in done and pred.id not in seen:
            seen.add(pred.id)
            out.extend(incoming(pred, node))
    return out


def _all_same(stacks: list[list[Any]]) -> bool:
    first = stacks[0]
    return all(
        s is first or (len(s) == len(first) and all(a is b or _equal(a, b) for a, b in zip(s, first)))
        for s in stacks[1:]
    )


def _equal(a: Any, b: Any) -> bool:
    return isinstance(a, Marker) and isinstance(b, Marker) and a.kind == b.kind and a.expr is b.expr


def _edges(node: Node, done: set[int]) -> list[tuple[Node, int]]:
    seen = set()
    out: list[tuple[Node, int]] = []
    for pred in node.preds:
        if pred.id in done and pred.id not in seen:
            seen.add(pred.id)
            out.extend((pred, n) for n, s in enumerate(pred.succ) if s is node)
    return out


def _merge_into_temporaries(node: Node, done: set[int], machine: Machine) -> None:
    """Values that differ between the ways into ``node`` and form no expression: each way assigns a temporary."""
    edges = _edges(node, done)
    if any(p.kind in ("try", "for") for p, _ in edges):
        raise DecompileError("different values meet in a way that is no expression")
    outs = [p.out[n] for p, n in edges]
    size = len(outs[0])
    if any(len(o) != size for o in outs):
        raise DecompileError("stacks of different depth meet")
    for slot in range(size):
        first = outs[0][slot]
        if all(o[slot] is first or _equal(o[slot], first) for o in outs):
            continue
        if any(is_silent(o[slot]) for o in outs):
            raise DecompileError("different values meet in a way that is no expression")
        name = machine.scope.temporary()
        replacement = ast.Name(name, LOAD)
        replacement.when = 0  # type: ignore[attr-defined]
        for (pred, n), out in zip(edges, outs):
            if pred.kind == "cond":
                raise DecompileError("different values meet behind a branch")
            pred.stmts.append(ast.Assign([ast.Name(name, STORE)], machine.as_expr(out[slot]), lineno=0))
            pred.out[n] = out[:slot] + [replacement] + out[slot + 1 :]
        outs = [p.out[n] for p, n in edges]


def _hold(node: Node, stack: list[Any], done: set[int], machine: Machine) -> None:
    """Values that stay on the stack through a loop become temporaries before it."""
    if all(is_silent(v) or machine.lasting(v) for v in stack):
        return
    edges = _edges(node, done)
    if any(p.kind not in ("jump",) for p, _ in edges):
        raise DecompileError("values lie on the stack throughout a loop")
    for slot, value in enumerate(stack):
        if is_silent(value) or machine.lasting(value):
            continue
        name = machine.scope.temporary()
        replacement = ast.Name(name, LOAD)
        replacement.when = 0  # type: ignore[attr-defined]
        stack[slot] = replacement
        for pred, n in edges:
            out = pred.out[n]
            pred.stmts.append(ast.Assign([ast.Name(name, STORE)], machine.as_expr(out[slot]), lineno=0))
            pred.out[n] = out[:slot] + [replacement] + out[slot + 1 :]


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
                    if _all_same(_stacks(meet, done)):
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
        if to_a is not to_b or len(a) != len(b) or not a or to_a.order <= node.order:
            return False
        keep = len(a) - 1
        if keep > len(node.base) or any(x is not y for x, y in zip(a[:-1], b[:-1])):
            return False
        if any(x is not y for x, y in zip(a[:-1], node.base)):
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
            if not chained and (len(second.base) != len(stack) or any(x is not y for x, y in zip(second.base, stack))):
                continue
            if chained and not (side == 0 and k == 1):
                continue
            if isinstance(node.cond, CaseTest) and not (side == 0 and k == 1):
                continue
            negated = side == k
            if kept and negated:
                continue
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
            cond: Any = ast.Compare(first.left, first.ops + then.ops, first.comparators + then.comparators)
        else:
            if side == k and not free_kept and self._flip(side, first, second):
                # the same decision seen from the shared target: one "not" at the other end
                cond = join_bool(ast.And() if side == 0 else ast.Or(), first, negate(then))
                k = 1 - k
                second.fall = 1 - second.fall
            else:
                if side == k:
                    first = negate(first)
                cond = join_bool(ast.Or() if k == 0 else ast.And(), first, then)
        node.fall = second.fall
        cond.when = getattr(node.cond, "when", 0)
        base = second.base
        outs = [base, base]
        outs[k] = base + [cond] if kept else base
        outs[1 - k] = base + [cond] if free_kept else base
        succ = [free, free]
        succ[k] = shared
        node.cond, node.base, node.out, node.succ = cond, base, outs, succ
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
        _yes_stack, yes, passed_a = self.follow(node, 0)
        _no_stack, no, passed_b = self.follow(node, 1)
        if (
            yes is no
            or not (self._pure(yes, node) and self._pure(no, node))
            or yes.keep is not None
            or no.keep is not None
        ):
            return False
        if [id(x) for x in yes.base] != [id(x) for x in no.base] or [id(x) for x in yes.base] != [
            id(x) for x in node.base
        ]:
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
    if len(a) != len(b) or any(x is not y for x, y in zip(a[:-1], b[:-1])):
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
            return ast.Compare(cond.left, cond.ops + yes.ops, cond.comparators + yes.comparators)
        return join_bool(ast.And(), cond, yes) if extra == 0 else None
    if extra:
        return None
    if yes is cond:
        return join_bool(ast.Or(), cond, no)
    return ast.IfExp(cond, yes, no)


def join_bool(op: ast.boolop, first: Any, second: Any) -> Any:
    """``first op second``, flattening operands of the same kind."""
    kind = type(op)
    values: list[Any] = []
    for part in (first, second):
        values.extend(part.values if isinstance(part, ast.BoolOp) and type(part.op) is kind else [part])
    return ast.BoolOp(op, values)


def negatable(test: Any) -> bool:
    """``not (a is b)`` and ``not (a in b)`` compile to another instruction; everything else only turns the jump."""
    if case_test(test) is not None:
        return False
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return True
    if type(test.ops[0]) in (ast.Is, ast.IsNot) and VERSION >= (3, 11):
        return isinstance(test.comparators[0], ast.Constant) and test.comparators[0].value is None
    return type(test.ops[0]) not in (ast.In, ast.NotIn, ast.Is, ast.IsNot)


def _is_not(test: Any) -> bool:
    return isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)


_OPPOSITE = {ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In}


def negate(test: Any) -> Any:
    """``not test``, without doubling a ``not``; ``is`` and ``in`` have negated forms that compile alike."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return test.operand
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        op = test.ops[0]
        is_none = isinstance(test.comparators[0], ast.Constant) and test.comparators[0].value is None
        if type(op) in (ast.Is, ast.IsNot) and is_none and VERSION >= (3, 11):
            return ast.Compare(test.left, [_OPPOSITE[type(op)]()], test.comparators)
    return ast.UnaryOp(ast.Not(), test)
