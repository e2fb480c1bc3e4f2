"""What DistributedDataParallel says of itself: whether its forward is at work, and which parameters share a bucket.

A bucket is what DDP sums over processes in one call, as soon as the gradients of all its parameters are there, and
bucket i only after bucket i - 1. The first iteration has one; DDP then rebuilds them in the order in which gradients
came::

    data_parallel_buckets(ddp)    # Buckets(of={id(w2): 0, id(b2): 0, id(w1): 1}, final=True)
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch.nn.parallel.distributed import DistributedDataParallel

# _active_ddp_module: the DDP whose forward is at work, or None. Without it no backward would be cut. Tried: 2.13.
ACTIVE_DATA_PARALLEL = (DistributedDataParallel, "_active_ddp_module")
"""An object and its attribute, which native code asks."""


class Buckets(NamedTuple):
    """The bucket of each parameter, by its ``id``. Not ``final`` until DDP has seen in which order gradients come."""

    of: Mapping[int, int]
    final: bool


_known: weakref.WeakKeyDictionary[Any, Buckets] = weakref.WeakKeyDictionary()


# require_backward_grad_sync: False within no_sync. _use_python_reducer: compiled autograd, which sees all of backward.
# _delay_all_reduce_all_params: one sum behind it. Without them a backward would be cut for nothing. Tried: 2.13.
def data_parallel_buckets(ddp: Any) -> Buckets | None:
    """Its buckets as they are in this iteration, as far as it tells; None where it sums no gradients on their way."""
    if not ddp.require_backward_grad_sync or ddp._use_python_reducer or ddp._delay_all_reduce_all_params:
        return None
    rebuilds = ddp.static_graph or not ddp.find_unused_parameters
    known = _known.get(ddp)
    if known is None or (rebuilds and known.final != ddp._has_rebuilt_buckets):
        known = _known[ddp] = _asked(ddp, rebuilds)
    return known


# _module_parameters, _get_ddp_logging_data: the reducer's parameters, and its buckets as text: "7 6, 5 4". That knows
# of a rebuild an iteration later. Without them all of a backward would run before the first sum. Tried: 2.13.
def _asked(ddp: Any, rebuilds: bool) -> Buckets:
    parameters = [p for p in ddp._module_parameters if p.requires_grad]
    data = ddp._get_ddp_logging_data() if ddp._has_rebuilt_buckets or not rebuilds else {}
    rows = data.get("rebuilt_per_bucket_param_indices")
    if not rebuilds:
        sizes = map(int, data.get("bucket_sizes", "0").split(","))
        return Buckets({id(p): bucket for bucket, p in _from_the_end(parameters, sizes)}, final=True)
    if rows is None:
        return Buckets(dict.fromkeys(map(id, parameters), 0), final=False)
    indices = [[int(index) for index in row.split()] for row in rows.split(",")]
    of = {id(parameters[i]): bucket for bucket, row in enumerate(indices) for i in row if i < len(parameters)}
    return Buckets(of, final=True)


def _from_the_end(parameters: list[torch.Tensor], sizes: Iterator[int]) -> Iterator[tuple[int, torch.Tensor]]:
    """Each parameter's bucket where none is rebuilt: of these bytes, filled from the last parameter on."""
    bucket, left = 0, next(sizes)
    for parameter in reversed(parameters):
        if left <= 0:
            bucket, left = bucket + 1, next(sizes, 1 << 62)
        yield bucket, parameter
        left -= parameter.numel() * parameter.element_size()
