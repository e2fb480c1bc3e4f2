"""Executes the graph: every node once, with the values that its predecessors leave on the stack.

Input: a graph; output: the nodes that remain, each with statements and, where it branches, one condition.  At each
meeting point branches that only make a value are folded (``fold.py``); values that still differ get temporaries.
"""

from __future__ import annotations

from typing import Any

from ...bytecode.canonical import VERSION
from ..errors import DecompileError
from ..graph.cfg import Node
from .fold import Folding
from .machine import Machine
from .stacks import all_same, edges_into, equal_markers, same_values, stacks_into
from .trees import assign_to
from .values import Marker, is_silent


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
    if not same_values(out, head.stack):
        raise DecompileError("the stack changes around a loop")


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
    stacks = stacks_into(node, done)
    if not stacks:
        raise DecompileError("a block that is only reached from behind")
    header = any(p.id not in done for p in node.preds)
    if not all_same(stacks):
        fold.region(node, done)
        stacks = stacks_into(node, done)
        if not all_same(stacks):
            _merge_into_temporaries(node, done, machine)
            stacks = stacks_into(node, done)
    stack = list(stacks[0])
    if header and any(not is_silent(v) for v in stack):
        _hold(node, stack, done, machine)
    return stack


def _merge_into_temporaries(node: Node, done: set[int], machine: Machine) -> None:
    """Values that differ between the ways into ``node`` and form no expression: each way assigns a temporary."""
    edges = edges_into(node, done)
    if any(p.kind in ("try", "for") for p, _ in edges):
        raise DecompileError("different values meet in a way that is no expression")
    outs = [p.out[n] for p, n in edges]
    size = len(outs[0])
    if any(len(o) != size for o in outs):
        raise DecompileError("stacks of different depth meet")
    for slot in range(size):
        first = outs[0][slot]
        if all(o[slot] is first or equal_markers(o[slot], first) for o in outs):
            continue
        if any(is_silent(o[slot]) for o in outs):
            raise DecompileError("different values meet in a way that is no expression")
        if any(pred.kind == "cond" for pred, _ in edges):
            raise DecompileError("different values meet behind a branch")
        _name_in(edges, slot, machine)
        outs = [p.out[n] for p, n in edges]


def _name_in(edges: list[tuple[Node, int]], slot: int, machine: Machine) -> Any:
    """A temporary, to which each way assigns what it leaves in a slot of the stack."""
    name = machine.temporary_name()
    for pred, n in edges:
        out = pred.out[n]
        pred.stmts.append(assign_to(name.id, machine.as_expr(out[slot])))
        pred.out[n] = out[:slot] + [name] + out[slot + 1 :]
    return name


def _hold(node: Node, stack: list[Any], done: set[int], machine: Machine) -> None:
    """Values that stay on the stack through a loop become temporaries before it."""
    if all(is_silent(v) or machine.lasting(v) for v in stack):
        return
    edges = edges_into(node, done)
    if any(p.kind not in ("jump",) for p, _ in edges):
        raise DecompileError("values lie on the stack throughout a loop")
    for slot, value in enumerate(stack):
        if is_silent(value) or machine.lasting(value):
            continue
        stack[slot] = _name_in(edges, slot, machine)
