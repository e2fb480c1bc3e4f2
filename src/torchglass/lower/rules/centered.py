"""Sums about what another reduction comes to: squares about the mean, exponentials below the maximum.

Both need their numbers twice. On a GPU those of long rows are read once, in parts of one size whose results are joined:
by Chan's formula for variances, and as in online softmax, where a program holds a part in registers::

    near_p    = mean of a few numbers of part p     top_p   = max of part p
    sum_p     = sum of x - near_p                   total_p = sum of exp(x - top_p)
    squares_p = sum of (x - near_p)**2
    away_p    = near_p - near_0 + sum_p / size      top     = max of top_p
    mean      = near_0 + mean of away_p             total   = sum of total_p * exp(top_p - top)
    squares   = sum of squares_p - sum_p**2 / size
                + size * (away_p - mean of away_p)**2

The subtraction loses few digits: ``near_p`` is the mean of n numbers of the part, so that (sum_p / size)**2 is at
most size / n times the part's variance (Cauchy-Schwarz), and in usual rows about 1 / n times.

T. F. Chan, G. H. Golub, R. J. LeVeque: Updating formulae and a pairwise algorithm for computing sample variances, 1979.
M. Milakov, N. Gimelshein: Online normalizer calculation for softmax, 2018.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import prod
from typing import Any

from ...records.loops import View
from ...records.size_floats import maximum
from ...records.sizes import Size, all_known
from ...records.target import Gpu
from ..context import Lowering, count_of
from ..strides import contiguous
from ..values import V, absolute, exp, where

NEAR = 8
"""Numbers of a part whose mean its squares are summed about. """
Post = Callable[[V], V]


def moments(
    low: Lowering, x: Any, dims: Sequence[int], to: str, name: str, spread: Post, of: str, dtype: str,
    strides: Sequence[Size] | None = None,
) -> tuple[View, View]:  # fmt: skip
    """The mean over ``dims`` in ``to``, and ``spread`` of the squares about it in ``dtype``: a buffer called ``of``, of
    ``strides``. Both keep their dimensions.

    The squares are summed after the mean, of all or of each part: as accurate as Welford's, and vectorizable.
    """
    count, about = maximum(count_of(x.shape, dims), 1), squared_difference(to)
    parts = _parts(low, x, dims, walked=True)
    if parts is None:
        mean = low.reduce("sum", [x], dims, lambda v: v.cast(to), lambda s: s / count, name=f"{name}_mean", dtype=to)
        return mean, low.reduce("sum", [x, mean], dims, about, spread, name=of, dtype=dtype, strides=strides)
    part, at, size = parts.view, [parts.at], parts.size
    near = low.map(_mean_of_few(to), parts.samples(NEAR), name=f"{name}_near", dtype=to)
    sums = low.reduce("sum", [part, near], at, lambda v, n: v.cast(to) - n, name=f"{name}_sums", dtype=to)
    squares = low.reduce("sum", [part, near], at, about, name=f"{name}_squares", dtype=to)
    near, sums, squares = (parts.joined(view) for view in (near, sums, squares))
    first = replace(near, shape=(1, *near.shape[1:]))  # differences from it keep the digits that means would lose
    away = lambda n, f, s: n - f + s / size
    drift = low.reduce("sum", [near, first, sums], [0], away, lambda s: s / parts.count, name=f"{name}_drift", dtype=to)
    mean = low.map(operator.add, [first, drift], name=f"{name}_mean", dtype=to)
    total = low.reduce(
        "sum", [near, first, sums, squares, drift], [0],
        lambda n, f, s, q, d: _less(q, s, size) + about(away(n, f, s), d) * size, spread, name=of, dtype=dtype,
        strides=None if strides is None else (1, *(strides[k] for k in parts.rows)),
    )  # fmt: skip
    return parts.by_row(mean), parts.by_row(total)


def _mean_of_few(to: str) -> Callable[..., V]:
    """Of finite numbers; 0 where one is none, so that only what they are part of is not finite."""

    def mean(*few: V) -> V:
        total = reduce(operator.add, (v.cast(to) for v in few)) * (1.0 / len(few))
        return where(absolute(total).do("lt", math.inf), total, 0.0)

    return mean


def _less(squares: V, total: V, size: int) -> V:
    """Squares about a number as squares about the mean, which lies ``total / size`` from it. Past the largest number
    they stay so, which is no NaN unless the total is infinite too.
    """
    return squares - where(squares.do("isinf"), total * 0.0, total * total / size)


def top_and_total(low: Lowering, x: Any, dim: int, to: str, name: str, post: Post, of: str) -> tuple[View, View]:
    """The maximum along ``dim``, and ``post`` of the sum of exponentials of all less that, a buffer called ``of``: NaN
    where the maximum is infinite.
    """
    parts, below = _parts(low, x, [dim], walked=False), lambda v, m: exp(v.cast(to) - m)
    if parts is None:
        top = low.reduce("max", [x], [dim], lambda v: v.cast(to), name=f"{name}_max", dtype=to)
        return top, low.reduce("sum", [x, top], [dim], below, post, name=of, dtype=to)
    # a part of nothing but -inf adds nothing, where exp(-inf - -inf) would be NaN
    finite = lambda v, m: below(v, where(m.do("eq", float("-inf")), 0.0, m))
    tops = low.reduce("max", [parts.view], [parts.at], lambda v: v.cast(to), name=f"{name}_tops", dtype=to)
    totals = low.reduce("sum", [parts.view, tops], [parts.at], finite, name=f"{name}_totals", dtype=to)
    tops, totals = parts.joined(tops), parts.joined(totals)
    top = low.reduce("max", [tops], [0], name=f"{name}_max", dtype=to)
    joined = lambda s, p, m: s * below(p, m)
    return parts.by_row(top), parts.by_row(low.reduce("sum", [totals, tops, top], [0], joined, post, name=of, dtype=to))


def squared_difference(to: str) -> Callable[[V, V], V]:
    """``(v - mean)**2`` computed in ``to``."""

    def squared(v: V, m: V) -> V:
        d = v.cast(to) - m
        return d * d

    return squared


# -- parts -----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Parts:
    """``view``: a tensor as (parts..., a part's elements, what is kept...), those elements along dimension ``at``.

    ``rows``: the dimensions of the tensor, one of so many, that are kept.
    """

    view: View
    at: int
    rows: tuple[int, ...]
    rank: int
    size: int
    count: int

    def samples(self, most: int) -> list[View]:
        """Numbers of each part, evenly spread over it."""
        shape = tuple(1 if k == self.at else n for k, n in enumerate(self.view.shape))
        count, step = min(most, self.size), self.view.strides[self.at]
        places = (self.size * n // count for n in range(count))
        return [replace(self.view, shape=shape, offset=self.view.offset + step * k) for k in places]

    def joined(self, results: View) -> View:
        """A number of each part and row, as (parts, what is kept...)."""
        shape = (self.count, *results.shape[self.at + 1 :])
        return View(results.buffer, shape, contiguous(shape))

    def by_row(self, result: View) -> View:
        """A number of each row, with the dimensions that were reduced."""
        shape: list[Size] = [1] * self.rank
        strides: list[Size] = [1] * self.rank
        for n, k in enumerate(self.rows, 1):
            shape[k], strides[k] = result.shape[n], result.strides[n]
        return View(result.buffer, tuple(shape), tuple(strides))


def _parts(low: Lowering, x: Any, dims: Sequence[int], walked: bool) -> _Parts | None:
    """The parts of a reduction on a GPU, which programs walk or else hold in registers; None where a program has whole
    rows in registers, or rows have no parts of one size.
    """
    if not isinstance(low.target, Gpu) or not isinstance(x, View):
        return None
    sizes, steps = x.shape, x.strides
    if not all_known(sizes) or not all_known(steps) or 0 in sizes:
        return None
    over = {k % len(sizes) for k in dims} if sizes else set()
    kept, runs = [k for k in range(len(sizes)) if k not in over], _runs([(sizes[k], steps[k]) for k in over])
    if not runs or any(step == 0 for _, step in runs):
        return None
    *before, (length, step) = runs
    down = step != 1 and any(steps[k] == 1 and sizes[k] != 1 for k in kept)
    rows = prod(sizes[k] for k in kept)
    size = part_size(low.target, length, prod(n for n, _ in before), rows, down, walked)
    if size is None:
        return None
    parts = [*before, (length // size, step * size)]
    shape, strides = zip(*parts, (size, step), *((sizes[k], steps[k]) for k in kept))
    view = View(x.buffer, shape, strides, x.offset)
    return _Parts(view, len(parts), tuple(kept), len(sizes), size, prod(n for n, _ in parts))


def part_size(gpu: Gpu, length: int, times: int, rows: int, down: bool, walked: bool) -> int | None:
    """Elements of a part of each of ``rows``, of ``times * length``; None where a program holds or walks a row whole.

    ``down``: neighbouring rows lie side by side. Those that are ``walked`` may be longer than registers hold.
    """
    tuned = gpu.schedule
    held, columns = (tuned.column_block, tuned.column_block) if down else (tuned.long_row, 1)
    if times * length <= held:
        return None
    programs, longest = times * -(-rows // columns), min(length, held * tuned.part_blocks if walked else held)
    found = [n for n in range(longest, tuned.least_part - 1, -1) if length % n == 0 and (walked or _fills(n))]
    busy = [n for n in found if length // n * programs >= tuned.busy * gpu.multiprocessors]
    if not found:
        return None
    return max(busy, key=lambda n: (walked and n % tuned.column_block == 0, n), default=found[-1])


def _runs(dims: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Sizes and strides of dimensions, the furthest first, neighbours that are walked as one merged."""
    runs: list[tuple[int, int]] = []
    for size, step in sorted((d for d in dims if d[0] != 1), key=lambda d: -d[1]):
        if runs and runs[-1][1] == size * step:
            size *= runs.pop()[0]
        runs.append((size, step))
    return runs


def _fills(size: int) -> bool:
    """Whether at most a quarter of a block, of a power of two, would be beyond the end of a part."""
    return 4 * size >= 3 * (1 << (size - 1).bit_length())
