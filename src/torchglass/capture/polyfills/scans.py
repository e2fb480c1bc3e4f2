"""Scans of PyTorch's, which eager hands to torch.compile, as small Python functions that the machine interprets."""

# mypy: ignore-errors

from __future__ import annotations

import torch


def associative_scan(combine_fn, xs, dim, reverse=False, combine_mode="pointwise"):
    """Inclusive scan along ``dim`` by halves: 2 log2(n) calls of ``combine_fn`` (Blelloch, "Prefix Sums and Their
    Applications", 1990).
    """
    leaves = [leaf.movedim(dim, 0) for leaf in _leaves(xs)]
    if reverse:
        leaves = [leaf.flip(0) for leaf in leaves]

    def combined(left, right):
        return _leaves(combine_fn(_filled(xs, iter(left)), _filled(xs, iter(right))))

    step = combined if combine_mode == "pointwise" else torch.vmap(combined)
    found = _scanned(step, leaves)
    if reverse:
        found = [leaf.flip(0) for leaf in found]
    return _filled(xs, iter([leaf.movedim(0, dim) for leaf in found]))


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
    leaves = [leaf.movedim(dim, 0) for leaf in _leaves(xs)]
    if reverse:
        leaves = [leaf.flip(0) for leaf in leaves]
    carried, out = scan_rows(combine_fn, init, _filled(xs, iter(leaves)))
    given = _leaves(out)
    if reverse:
        given = [leaf.flip(0) for leaf in given]
    dim = dim % leaves[0].dim()
    return carried, _filled(out, iter([leaf.movedim(0, dim) if dim < leaf.dim() else leaf for leaf in given]))


def scan_rows(combine_fn, init, xs):
    """A step for each row, in order; a node of the graph with ``combine_fn`` as its sub-graph."""
    raise NotImplementedError


def _leaves(tree):
    """The tensors of nested containers, in order."""
    if isinstance(tree, torch.Tensor):
        return [tree]
    return [leaf for part in (tree.values() if isinstance(tree, dict) else tree) for leaf in _leaves(part)]


def _filled(like, leaves):
    """Containers like others, with the next tensors of an iterator."""
    if isinstance(like, torch.Tensor):
        return next(leaves)
    if isinstance(like, dict):
        return {key: _filled(part, leaves) for key, part in like.items()}
    parts = [_filled(part, leaves) for part in like]
    return like._make(parts) if hasattr(like, "_make") else type(like)(parts)


# By the names of the functions that they stand for, which are imported by nobody but the program.
BY_NAME = {
    ("torch._higher_order_ops.associative_scan", "associative_scan"): associative_scan,
    ("torch._higher_order_ops.scan", "scan"): scan,
}
