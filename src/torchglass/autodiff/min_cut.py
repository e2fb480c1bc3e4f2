"""Chooses what to save for backward: a minimum cut between what forward computes and what backward needs.

Input: a joint trace (ops, the forward's results, the gradients). Output: the ops to save and where each op is computed.

Every op that needs no tangent is split in two nodes, *known in backward* (in) and *handed to backward* (out). Cutting
in -> out means saving it and costs its bytes; cutting source -> in means computing it again and costs its price. Edges
between ops cannot be cut, ops that need tangents hang on the sink::

    source --price--> in(op) --bytes--> out(op) --inf--> in(reader)    out(op) --inf--> sink, for readers in backward

For ``cos(cos(x))`` backward needs x and cos(x); the price of a second cos is below the bytes of its result, so x alone
is saved. A chain of more than ``LONGEST`` ops computed again is broken: its first tensors would be alive through most
of backward, which saves nothing. Among equal cuts the one nearest the sink is taken: it computes least twice.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

import torch

from .exact_values import exact_values
from .max_flow import Network
from .ops import CALL, CONSTANT, INPUT, TANGENT, Op, bytes_of, is_random, is_view, makes_sizes, must_stay, operands
from .recompute import ALONE, NEVER, family

LONGEST = 20


@dataclass
class Choice:
    """What the cut decided. ``saved`` in execution order; ``backward`` ops run in backward, the others forward."""

    saved: list[Op]
    forward: list[Op]
    backward: list[Op]


class Reading(IntEnum):
    """How backward reads an op: not at all, only in calls that no kernel is fused into, or within kernels."""

    NOT, ALONE, FUSED = 0, 1, 2


class Problem:
    """A joint trace to be cut. ``written`` are inputs that the runtime overwrites after the forward."""

    def __init__(self, ops: list[Op], written: set[Op], results: list[Op], gradients: list[Op]) -> None:
        self.ops, self.written, self.results, self.gradients = ops, written, results, gradients
        self.needs_tangent = _needs_tangent(ops)
        self.readers = _readers(ops, gradients)
        self.known = [op for op in ops if op not in self.needs_tangent]  # what forward could compute
        self.in_forward = _ancestors(results)
        self.reading = _reading(ops, self.needs_tangent, self.readers)
        self.leaving = _leaving(self.known, results, self.readers)
        read = [op for op in ops if op in self.needs_tangent or self.reading[op] is not Reading.NOT]
        self.exact = exact_values(ops, read, self.in_forward)

    def prices(self) -> dict[Op, float]:
        return {op: self._price(op) for op in self.known}

    def keeps(self) -> dict[Op, float]:
        return {op: self._keep(op) for op in self.known}

    def solve(self, prices: dict[Op, float], keeps: dict[Op, float]) -> list[Op]:
        """The ops to save, by what it costs to compute each again and to keep it."""
        network = Network()
        before = {op: network.node() for op in prices}
        after = {op: network.node() for op in prices}
        handed = {op: network.node() for op in self.leaving if not is_view(op)}  # as others than its function see it
        for op, price in prices.items():
            network.edge(network.SOURCE, before[op], price)
            network.edge(before[op], after[op], keeps[op])
            if op in handed:
                network.edge(network.SOURCE, handed[op], bytes_of(op) or 1)
            for reader in self.readers[op]:
                tail = handed[op] if op in handed and self._outside(op, reader) else after[op]
                head = network.SINK if reader is None else before.get(reader, network.SINK)
                network.edge(tail, head, math.inf)
        side = network.sink_side()
        kept = {op for op, node in handed.items() if side[node]}
        return [op for op in prices if op in kept or (not side[before[op]] and side[after[op]])]

    def _outside(self, op: Op, reader: Op | None) -> bool:
        """Whether the reader of a checkpointed function's result stands outside it, as do views that are results."""
        if reader is None or reader.region != op.region:
            return True
        return is_view(reader) and reader in self.leaving

    def schedule(self, saved: list[Op]) -> Choice:
        return _schedule(self.ops, saved, self.results, self.gradients, self.needs_tangent)

    def _price(self, op: Op) -> float:
        """What computing ``op`` in backward costs, in bytes. Nothing if forward does not compute it anyway."""
        if op.kind is INPUT or op in self.exact or makes_sizes(op):
            return math.inf
        if op.kind is CONSTANT:
            return 0.0
        kind = family(op)
        if op.region is not None and kind.name != "random":
            return 0.0
        if op not in self.in_forward and kind.name != "random":
            return 0.0
        if kind.price == NEVER or _copies_input(op):
            return math.inf
        price = kind.price * bytes_of(op)
        if price and self.reading[op] is Reading.ALONE:
            price += ALONE * bytes_of(op)  # no kernel of backward can take it in: it is written and read once more
        return price

    def _keep(self, op: Op) -> float:
        """What saving ``op`` costs. Inputs are alive anyway, so they cost little; views and tuples are never saved, nor
        what a checkpointed function computes for itself, random numbers and exact values apart.
        """
        if op.kind is CONSTANT or is_view(op) or not isinstance(op.val, torch.Tensor):
            return math.inf
        if op.region is not None and not _drawn(op) and op not in self.exact:
            return math.inf
        size = max(bytes_of(op), 1)
        if op.kind is INPUT:
            return size if op in self.written else size * 0.5  # the caller overwrites it: a copy must be saved
        return math.inf if family(op).name == "creation" else size


def _copies_input(op: Op) -> bool:
    """Whether ``op`` is a copy of an input: who asks for one may write to the input before backward."""
    if op.kind is not CALL or op.target is not torch.ops.aten.clone.default:
        return False
    (copied,) = operands(op)
    while is_view(copied):
        copied = operands(copied)[0]
    return copied.kind is INPUT


def choose(problem: Problem) -> Choice:
    """Partition a joint trace."""
    prices, keeps = problem.prices(), problem.keeps()
    for _ in range(3):
        choice = problem.schedule(problem.solve(prices, keeps))
        ends = _ends_of_long_chains(choice, prices)
        if not ends:
            break
        prices.update(dict.fromkeys(ends, math.inf))
    return choice


def _ends_of_long_chains(choice: Choice, prices: dict[Op, float]) -> list[Op]:
    """Where chains of more than ``LONGEST`` ops that are computed again are to be broken."""
    saved = set(choice.saved)
    depth: dict[Op, int] = {}
    ends = []
    for op in choice.backward:
        price = prices.get(op)
        if price is not None and op not in saved:
            depth[op] = max((depth.get(read, 0) for read in operands(op)), default=0) + (price > 0)
            if depth[op] > LONGEST and price > 0 and isinstance(op.val, torch.Tensor):
                ends.append(op)
                depth[op] = 0
    return ends


def _drawn(op: Op) -> bool:
    """Random numbers, or the mask of one byte that stands for them."""
    while op.is_item:
        op = op.args[0]
    return is_random(op) or (op.target is torch.ops.aten.ne.Scalar and is_random(op.args[0]))


def _leaving(ops: list[Op], results: list[Op], readers: dict[Op, list[Op | None]]) -> set[Op]:
    """Ops of checkpointed functions that are read outside: what such a function returns."""
    found: set[Op] = set()
    returned = set(results)
    for op in reversed(ops):
        if op.region is None:
            continue
        forward = [r for r in readers[op] if r is not None and not r.backward]
        outside = any(r.region != op.region or (is_view(r) and r in found) for r in forward)
        if op in returned or outside:
            found.add(op)
    return found


def _reading(ops: list[Op], needs_tangent: set[Op], readers: dict[Op, list[Op | None]]) -> dict[Op, Reading]:
    """How backward would read each op if it computed it again; views are looked through."""
    found: dict[Op, Reading] = {}
    for op in reversed(ops):
        ways = set()
        for reader in readers[op]:
            if reader is None:
                ways.add(Reading.ALONE)
            elif is_view(reader) and reader not in needs_tangent:
                ways.add(found[reader])
            elif reader in needs_tangent or found[reader] is not Reading.NOT:
                ways.add(Reading.FUSED if family(reader).fuses else Reading.ALONE)
        found[op] = max(ways, default=Reading.NOT)
    return found


def _needs_tangent(ops: list[Op]) -> set[Op]:
    found: set[Op] = set()
    for op in ops:
        if op.kind is TANGENT or any(operand in found for operand in operands(op)):
            found.add(op)
    return found


def _ancestors(ends: Iterable[Op], stop: Iterable[Op] = ()) -> set[Op]:
    """``ends`` and all they depend on; nothing in or behind ``stop``."""
    beyond = frozenset(stop)
    found: set[Op] = set()
    waiting = list(ends)
    while waiting:
        op = waiting.pop()
        if op not in found and op not in beyond:
            found.add(op)
            waiting.extend(operands(op))
    return found


def _readers(ops: list[Op], gradients: list[Op]) -> dict[Op, list[Op | None]]:
    """Who reads each op; None stands for the caller, who reads the gradients."""
    readers: dict[Op, list[Op | None]] = {op: [] for op in ops}
    for op in ops:
        for operand in operands(op):
            readers[operand].append(op)
    for op in gradients:
        readers[op].append(None)
    return readers


def _schedule(ops: list[Op], saved: list[Op], results: list[Op], gradients: list[Op], needs_tangent: set[Op]) -> Choice:
    """Which ops run where. Forward keeps the traced order; backward runs what the gradients need beyond the saved ops,
    and computes a forward op again just before it is read, so that few of them are alive at a time.
    """
    effects = [op for op in ops if not op.backward and must_stay(op)]
    forward = _ancestors([*results, *saved, *effects])
    return Choice(saved, [op for op in ops if op in forward], order_backward(ops, saved, gradients, needs_tangent))


def order_backward(
    ops: list[Op], saved: list[Op], gradients: list[Op], needs_tangent: set[Op] | None = None
) -> list[Op]:
    """What backward runs for the gradients, given what is saved."""
    by_tangents = _needs_tangent(ops) if needs_tangent is None else needs_tangent
    done = set(saved)
    order: list[Op] = []
    needed = _ancestors(gradients, done)
    for op in [op for op in ops if op in needed and op in by_tangents] + gradients:
        _emit(op, done, order)
    return order


def _emit(op: Op, done: set[Op], order: list[Op]) -> None:
    """Append ``op`` to ``order`` after all it reads that is not ``done`` yet."""
    waiting = [op]
    while waiting:
        current = waiting[-1]
        missing = [operand for operand in operands(current) if operand not in done] if current not in done else []
        if missing:
            waiting.extend(reversed(missing))
            continue
        waiting.pop()
        if current not in done:
            done.add(current)
            order.append(current)
