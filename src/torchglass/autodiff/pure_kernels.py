"""Kernels that functional tensors need and torch lacks: operators that write to operands though their schema denies it.

Input and output are functional tensors. ``native_batch_norm`` in training overwrites the running statistics inside the
kernel; torch's own functionalization lets that write through to the fake tensor and loses it, and so with cuDNN's.
``polygamma_`` writes as it says, but has no kernel. ``bernoulli_`` has one, which draws in another order.

The kernels run only where functionalization is on and are registered at the first trace, for the process. So is what
views of zero tensors (the second derivative of ``abs``) do: torch's make a plain tensor that says it is a functional
one, and the next look at it is a segmentation fault.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..process import changes
from ..process.tables import enters
from ..process.warning_filters import ignored
from ..torch_compat import (
    below_functionalization,
    mark_hidden_write,
    replace_functional,
    unwrap_functional,
    wrap_functional,
)

aten = torch.ops.aten
KERNELS: dict[str, Callable[..., Any]] = {}
_kernel = enters(KERNELS)
_library: list[torch.library.Library] = []

VIEWS_OF_ZEROS = ("view", "as_strided", "_reshape_alias")
"""The views with a kernel for zero tensors, which is that of other tensors: where it is passed by, that one runs."""


def register() -> None:
    """Hand the kernels to torch's dispatcher; does nothing the second time."""
    if not _library:
        library = torch.library.Library("aten", "IMPL")
        with ignored():  # that bernoulli_ and view have a kernel
            for operator, function in KERNELS.items():
                library.impl(operator, function, "Functionalize")
            for operator in VIEWS_OF_ZEROS:
                library.impl(operator, torch.library.fallthrough_kernel, "ZeroTensor")
        _library.append(library)
        changes.made(unregister)


def unregister() -> None:
    """Torch's dispatcher is as it was: a library takes its kernels along."""
    _library.clear()


def _plain(value: Any) -> Any:
    return unwrap_functional(value) if isinstance(value, torch.Tensor) else value


@_kernel("native_batch_norm")
def _batch_norm(x: Any, weight: Any, bias: Any, mean: Any, variance: Any, training: bool, *rest: float) -> Any:
    """In training the operator that says what it writes: functionalization knows that one."""
    if training and mean is not None:
        results = aten._native_batch_norm_legit.default(x, weight, bias, mean, variance, training, *rest)
        mark_hidden_write(mean)
        mark_hidden_write(variance)
        return results
    plain = [_plain(value) for value in (x, weight, bias, mean, variance)]
    with below_functionalization():
        results = aten.native_batch_norm.default(*plain, training, *rest)
    return tuple(map(wrap_functional, results))


@_kernel("cudnn_batch_norm")
def _cudnn_batch_norm(
    x: Any, weight: Any, bias: Any, mean: Any, variance: Any, training: bool, momentum: float, eps: float
) -> Any:
    """There is no pure variant of cuDNN's: leave the running statistics out and update them from what it saves."""
    updates = training and mean is not None
    plain = [_plain(value) for value in (x, weight, bias, *((None, None) if updates else (mean, variance)))]
    with below_functionalization():
        results = aten.cudnn_batch_norm.default(*plain, training, momentum, eps)
    results = tuple(map(wrap_functional, results))
    if updates:
        count = x.numel() // x.shape[1]
        unbiased = (results[2].pow(-2) - eps) * (count / max(count - 1, 1))
        mean.mul_(1 - momentum).add_(results[1], alpha=momentum)
        variance.mul_(1 - momentum).add_(unbiased, alpha=momentum)
        mark_hidden_write(mean)
        mark_hidden_write(variance)
    return results


@_kernel("polygamma_")
def _polygamma(x: torch.Tensor, n: int) -> torch.Tensor:
    return x.copy_(aten.polygamma.default(n, x))


@_kernel("bernoulli_.float")
def _bernoulli(x: torch.Tensor, p: float = 0.5, generator: Any = None) -> torch.Tensor:
    """The write draws a number for each element as ``x`` lies in memory, the pure operator row by row. Dropout on
    channels-last images would be given other zeros than in eager.
    """
    plain = unwrap_functional(x)
    with below_functionalization():
        if plain.is_contiguous():
            drawn = aten.bernoulli.p(plain, p, generator=generator)
        else:
            order = sorted(range(plain.dim()), key=plain.stride, reverse=True)
            drawn = aten.bernoulli.p(plain.permute(order), p, generator=generator)
            drawn = drawn.permute([order.index(dim) for dim in range(plain.dim())])
    replace_functional(x, drawn)
    return x
