"""Scans of PyTorch's, which eager hands to torch.compile, as small Python functions that the machine interprets."""

# mypy: ignore-errors

from __future__ import annotations

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten


def associative_scan(combine_fn, xs, dim, reverse=False, combine_mode="pointwise"):
    """Inclusive scan along ``dim`` by halves: 2 log2(n) calls of ``combine_fn`` (Blelloch, "Prefix Sums and Their
    Applications", 1990).
    """
    leaves, structure = tree_flatten(xs)
    leaves = [leaf.movedim(dim, 0) for leaf in leaves]
    if reverse:
        leaves = [leaf.flip(0) for leaf in leaves]

    def combined(left, right):
        return tree_flatten(combine_fn(tree_unflatten(left, structure), tree_unflatten(right, structure)))[0]

    step = combined if combine_mode == "pointwise" else torch.vmap(combined)
    found = _scanned(step, leaves)
    if reverse:
        found = [leaf.flip(0) for leaf in found]
    return tree_unflatten([leaf.movedim(0, dim) for leaf in found], structure)


def _scanned(step, rows):
    count = rows[0].shape[0]
    if count < 2:
        return rows
    odd = _scanned(step, step([row[:-1:2] for row in rows], [row[1::2] for row in rows]))
    even = [row[:1] for row in rows]
    if count > 2:
        before = odd if count % 2 else [row[:-1] for row in odd]
        even = [torch.cat(pair) for pair in zip(even, step(before, [row[2::2] for row in rows]))]
    return [_interleaved(*pair) for pair in zip(even, odd)]


def _interleaved(even, odd):
    pairs = torch.stack([even[: len(odd)], odd], 1).flatten(0, 1)
    return torch.cat([pairs, even[len(odd) :]]) if len(even) > len(odd) else pairs


def scan(combine_fn, init, xs, *, dim=0, reverse=False):
    """One step after another: what is carried on, and what each step gives, stacked along the first dimension."""
    leaves, structure = tree_flatten(xs)
    rows = range(leaves[0].shape[dim])
    carried, given, results = init, [], None
    for n in reversed(rows) if reverse else rows:
        carried, out = combine_fn(carried, tree_unflatten([leaf.select(dim, n) for leaf in leaves], structure))
        parts, results = tree_flatten(out)
        given.append(parts)
    if reverse:
        given.reverse()
    return carried, tree_unflatten([torch.stack(parts) for parts in zip(*given)], results)


# By the names of the functions that they stand for, which are imported by nobody but the program.
BY_NAME = {
    "torch._higher_order_ops.associative_scan.associative_scan": associative_scan,
    "torch._higher_order_ops.scan.scan": scan,
}
