"""Captured functions that do more than they need to: written in operators that do not.

Input: the arguments of a call in the captured graph. Output: its result, or None where the function itself must run.
``one_hot`` reads the smallest and the largest class to raise an error; here assertions in the graph raise the same.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..aten import masked_writes
from ..process.tables import enters
from ..torch_compat import batch_norm_legit, without_onednn

Composite = Callable[..., Any]
COMPOSITES: dict[Any, Composite] = {}
composite = enters(COMPOSITES)


@composite(torch.nn.functional.one_hot)
def _one_hot(tensor: torch.Tensor, num_classes: int = -1) -> torch.Tensor | None:
    """int64 of any shape -> int64 of one dimension more, ``num_classes`` long."""
    if tensor.dtype != torch.int64 or num_classes < 1:
        return None
    if tensor.numel():
        check = torch.ops.aten._assert_async.msg
        check((tensor >= 0).all(), "Class values must be non-negative.")
        check((tensor < num_classes).all(), "Class values must be smaller than num_classes.")
    return (tensor.unsqueeze(-1) == torch.arange(num_classes, device=tensor.device)).to(torch.int64)


@composite(torch.nn.functional.pad)
def _pad(x: torch.Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Any:
    """Around a ring: torch writes the middle and each side into an empty tensor, which is a copy of all for each."""
    sides = [(-1 - k // 2, pad[k], pad[k + 1]) for k in range(0, len(pad) - 1, 2)] if mode == "circular" else []
    if value is not None or len(pad) != 2 * (x.dim() - 2) or not sides:
        return None
    if not all(isinstance(n, int) and 0 <= n <= x.shape[d] for d, *most in sides for n in most):
        return None
    x = x.contiguous()  # as eager's result lies
    for d, before, after in sides:
        parts = [x.narrow(d, x.shape[d] - before, before), x, x.narrow(d, 0, after)]
        x = torch.cat([part for part in parts if part.shape[d]], d)
    return x


@composite(torch.where, torch.Tensor.where)
def _where(*args: Any, **kwargs: Any) -> torch.Tensor | None:
    """Masks were uint8 before there was bool, and still may be."""
    if kwargs or len(args) != 3 or getattr(args[0], "dtype", None) is not torch.uint8:
        return None
    return torch.where(args[0].bool(), *args[1:])


@composite(torch.masked_select, torch.Tensor.masked_select)
def _masked_select(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor | None:
    """Its gradient is written in C++ that takes no symbolic sizes."""
    return x[mask] if mask.dtype == torch.bool and mask.dim() and tuple(mask.shape) == tuple(x.shape) else None


@composite(torch.Tensor.fill_diagonal_)
def _fill_diagonal(tensor: torch.Tensor, fill_value: float, wrap: bool = False) -> torch.Tensor | None:
    """It writes through ``as_strided``, which cannot be functionalized where the matrix is a view itself."""
    if tensor.dim() != 2:
        return None
    height, width = tensor.shape
    for start in range(0, height, width + 1) if wrap else (0,):
        tensor[start:].diagonal().fill_(fill_value)
    return tensor


_LEGIT = torch.ops.aten._native_batch_norm_legit


@composite(batch_norm_legit, _LEGIT, _LEGIT.default)
def _batch_norm_legit(*args: Any, **kwargs: Any) -> Any:
    """Its schema says that it writes to the running statistics, and so does torch's functionalization. In evaluation
    it only reads them, and backward wants to find them unwritten.
    """
    if kwargs or len(args) != 8 or args[5]:
        return None
    return torch.native_batch_norm(*args)


@composite(torch.lstm)
def _lstm(*args: Any) -> Any:
    """oneDNN's layer keeps what its backward needs only where autograd sees the call, so training goes without it.
    Autocast casts what that layer takes, and knows nothing of the cells that it is made of here.
    """
    parts = [arg if isinstance(arg, (list, tuple)) else [arg] for arg in args]
    if not any(isinstance(t, torch.Tensor) and t.requires_grad for part in parts for t in part):
        return None
    with without_onednn():
        if not torch.is_autocast_enabled("cpu") or args[0].device.type != "cpu":
            return torch.lstm(*args)
        lower = torch.get_autocast_dtype("cpu")
        with torch.autocast("cpu", enabled=False):
            return torch.lstm(*(_cast(arg, lower) for arg in args))


def _cast(arg: Any, dtype: torch.dtype) -> Any:
    """Floating-point tensors, alone or in a list, as ``dtype``."""
    if isinstance(arg, (list, tuple)):
        return [_cast(item, dtype) for item in arg]
    floating = isinstance(arg, torch.Tensor) and arg.is_floating_point()
    return arg.to(dtype) if floating else arg


@composite(torch.index_fill, torch.Tensor.index_fill)
def _index_fill(x: torch.Tensor, dim: int, index: torch.Tensor, value: Any) -> torch.Tensor | None:
    """Its gradient by the value asks which indices there are, so as many numbers as the data say."""
    if not isinstance(dim, int) or not _differentiable(value) or value.dim():
        return None
    shape = [1] * x.dim()
    if shape:
        shape[dim] = x.shape[dim]
    filled = torch.zeros(shape, dtype=torch.bool, device=x.device).index_fill(dim, index, True)
    return _as_a_copy(x, torch.where(filled, value.to(x.dtype), x))


@composite(torch.Tensor.index_fill_)
def _index_fill_(x: torch.Tensor, dim: int, index: torch.Tensor, value: Any) -> torch.Tensor | None:
    filled = _index_fill(x, dim, index, value)
    return None if filled is None else x.copy_(filled)


@composite(torch.index_put, torch.Tensor.index_put)
def _index_put(x: torch.Tensor, indices: Any, values: Any, accumulate: bool = False) -> torch.Tensor | None:
    """The gradient by one value for all elements of a mask would gather those elements, so as many as the data say."""
    chosen = _chosen(x, indices, values) if values.dtype == x.dtype else None
    return None if chosen is None else _written(x.clone(), chosen, accumulate)


@composite(torch.Tensor.index_put_)
def _index_put_(x: torch.Tensor, indices: Any, values: Any, accumulate: bool = False) -> torch.Tensor | None:
    chosen = _chosen(x, indices, values) if values.dtype == x.dtype else None
    return None if chosen is None else _written(x, chosen, accumulate)


@composite(operator.setitem, torch.Tensor.__setitem__)
def _setitem(x: Any, indices: Any, values: Any) -> torch.Tensor | None:
    chosen = _chosen(x, indices, values) if isinstance(x, torch.Tensor) else None
    return None if chosen is None else _written(x, chosen)


def _chosen(x: torch.Tensor, indices: Any, values: Any) -> masked_writes.Choice | None:
    return masked_writes.choice(x, indices, values) if masked_writes.needs_choice(indices, values) else None


def _written(x: torch.Tensor, chosen: masked_writes.Choice, accumulate: bool = False) -> torch.Tensor:
    before, values = x[chosen.places], chosen.values.to(x.dtype)
    before.copy_(torch.where(chosen.mask, before + values if accumulate else values, before))
    return x


def _as_a_copy(x: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """``value`` laid out as a copy of ``x``."""
    return x.clone().copy_(value)


def _differentiable(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad
