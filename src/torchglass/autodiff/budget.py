"""Keeps less for backward than pays, as ``options={"memory_budget": share}`` asks, and computes more again.

Input: a cut, and the share of its bytes that may be kept. Output: another cut within that share, or the smallest there
is. Matrix products and all else but random numbers may be computed again here::

    smallest cut: everything may be computed again, bytes alone count
    what the first cut keeps beyond it  ->  knapsack: worth = effort of computing it again, weight = bytes

The effort of an item counts what lies between it and the nearest tensors that either cut keeps.
"""

from __future__ import annotations

import math

import numpy

from .min_cut import Choice, Problem
from .ops import CONSTANT, INPUT, Op, bytes_of, operands
from .recompute import effort, family

STEPS = 20_000  # weights are counted in this many parts of the capacity, rounded up, where they cannot be exact


def within(problem: Problem, first: Choice, share: float) -> Choice:
    """A cut that keeps at most ``share`` of the bytes that ``first`` keeps, or the smallest there is."""
    kept = [op for op in first.saved if op.kind is not INPUT]
    capacity = share * sum(map(bytes_of, kept))
    least = _smallest(problem)
    base = sum(bytes_of(op) for op in least if op.kind is not INPUT)
    items = [op for op in kept if op not in set(least)]
    alive = {*least, *first.saved}
    worth = [_effort_again(op, alive) for op in items]
    chosen = knapsack([bytes_of(op) for op in items], worth, capacity - base)
    return problem.schedule(_needed(problem, [*least, *(items[i] for i in chosen)]))


def _smallest(problem: Problem) -> list[Op]:
    """The fewest bytes: all but random numbers and exact values can be computed again, at a price that breaks ties."""
    prices = {op: p if op in problem.exact else _tie_breaker(op, p) for op, p in problem.prices().items()}
    keeps = {op: 1.0 if op.kind is INPUT and op not in problem.written else k for op, k in problem.keeps().items()}
    return problem.solve(prices, keeps)


def _tie_breaker(op: Op, price: float) -> float:
    """A millionth of its effort: a megabyte moved weighs as much as one byte saved. Chosen, not measured."""
    if price == 0.0 or op.kind is INPUT or op.region is not None or family(op).name == "random":
        return price
    return 1e-6 * max(effort(op), 1.0)


def _effort_again(op: Op, alive: set[Op]) -> float:
    """The effort of computing ``op`` from what is alive."""
    seen: set[Op] = set()
    waiting = [op]
    while waiting:
        current = waiting.pop()
        if current not in seen and (current is op or current not in alive) and current.kind not in (INPUT, CONSTANT):
            seen.add(current)
            waiting.extend(operands(current))
    return sum(map(effort, seen))


def _needed(problem: Problem, saved: list[Op]) -> list[Op]:
    """``saved`` and the inputs backward reads beyond it, in execution order, without what it does not read."""
    waiting, stop = list(problem.gradients), set(saved)
    seen: set[Op] = set()
    while waiting:
        op = waiting.pop()
        if op not in seen:
            seen.add(op)
            if op not in stop:
                waiting.extend(operands(op))
    return [op for op in problem.known if op in seen and (op in stop or op.kind is INPUT)]


def knapsack(weights: list[int], worth: list[float], capacity: float) -> list[int]:
    """Which items to take for the greatest worth within the capacity: dynamic programming over weights."""
    exact = max(math.gcd(*weights), 1)
    unit = exact if capacity <= exact * STEPS else math.ceil(capacity / STEPS)
    limit = int(capacity // unit)
    if limit <= 0 or not weights:
        return []
    units = [-(-weight // unit) for weight in weights]
    best = numpy.zeros(limit + 1)
    taken = numpy.zeros((len(units), limit + 1), dtype=bool)
    for item, (size, value) in enumerate(zip(units, worth)):
        if size <= limit:
            with_item = numpy.full(limit + 1, -1.0)
            with_item[size:] = best[: limit + 1 - size] + value
            taken[item] = with_item > best
            best = numpy.maximum(best, with_item)
    chosen, left = [], limit
    for item in reversed(range(len(units))):
        if taken[item, left]:
            chosen.append(item)
            left -= units[item]
    return chosen[::-1]
