"""Operators that add where other tensors say, as calls that are faster than their own.

PyTorch's ``index_put(x, [i], rows, accumulate=True)``, the derivative of ``x[i]``, visits number by number; whole rows
are added by ``index_add`` (1,024 rows of 256: 0.14 ms instead of 1.6). A loop over the indices raises what
``index_put`` does and counts negative ones from the end, which ``index_add`` refuses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import fx

from ..records.loops import View
from .context import Lowering
from .gathering import INDEX_DIM, wrapped
from .table import NotLowered, rule


@rule("index_put")
def _index_put(
    low: Lowering, node: fx.Node, x: Any, indices: Sequence[Any], rows: Any, accumulate: bool = False
) -> View:
    given = [d for d, index in enumerate(indices) if index is not None]
    if not accumulate or len(given) != 1 or low.dtype(x) not in ("float32", "float64"):
        raise NotLowered("no sum of rows")
    (dim,), x, index = given, low.view(x), indices[given[0]]
    if not isinstance(index, View) or len(index.shape) != 1 or low.dtype(index) not in ("int64", "int32"):
        raise NotLowered("indices of another kind")
    shape = (*x.shape[:dim], *index.shape, *x.shape[dim + 1 :])
    if rows.shape != shape or low.dtype(rows) != low.dtype(x) or 0 in (*shape, *x.shape):
        raise NotLowered("rows of another shape")
    places = low.map(
        lambda i: wrapped(i, x.shape[dim], INDEX_DIM, dim), [index], dtype="int64", name=f"{node.name}_places"
    )
    result = low.result(node)
    low.extern("torch.ops.aten.index_add.default", [x, dim, places, low.view(rows)], {}, [result.buffer])
    return result
