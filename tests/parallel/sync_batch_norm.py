"""SyncBatchNorm on CPUs: PyTorch's own autograd function, with kernels for operators that PyTorch has on GPUs alone.

``DistributedDataParallel`` refuses ``nn.SyncBatchNorm`` itself there.
"""

from __future__ import annotations

import functools
import warnings

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules._functions import SyncBatchNorm as SyncFunction


class SyncBatchNorm(nn.BatchNorm2d):
    """Normalizes by the mean and variance of all ranks' batches: a collective in forward and one in backward."""

    def __init__(self, features: int) -> None:
        super().__init__(features)
        register_kernels()

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return super().forward(x)
        self.num_batches_tracked.add_(1)
        buffers = self.running_mean, self.running_var
        group = dist.group.WORLD
        return SyncFunction.apply(
            x, self.weight, self.bias, *buffers, self.eps, self.momentum, group, dist.get_world_size()
        )


def _dims(x: Tensor) -> list[int]:
    return [0, *range(2, x.dim())]


def _wide(row: Tensor, x: Tensor) -> Tensor:
    return row.view(1, -1, *[1] * (x.dim() - 2))


def _stats(x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    return x.mean(_dims(x)), (x.var(_dims(x), unbiased=False) + eps).rsqrt()


def _gather(x, mean, invstd, running_mean, running_var, momentum, eps, counts):  # type: ignore[no-untyped-def]
    rows, total = counts[:, None], counts.sum()
    whole = (mean * rows).sum(0) / total
    variance = ((invstd**-2 - eps + (mean - whole) ** 2) * rows).sum(0) / total
    running_mean.lerp_(whole, momentum)
    running_var.lerp_(variance * total / (total - 1), momentum)
    return whole, (variance + eps).rsqrt()


def _normalized(x, weight, bias, mean, invstd, eps):  # type: ignore[no-untyped-def]
    return (x - _wide(mean, x)) * _wide(invstd * weight, x) + _wide(bias, x)


def _reduced(grad, x, mean, invstd, weight, *wanted):  # type: ignore[no-untyped-def]
    total, product = grad.sum(_dims(x)), (grad * (x - _wide(mean, x))).sum(_dims(x))
    return total, product, product * invstd, total.clone()


def _input_gradient(grad, x, mean, invstd, weight, total, product, counts):  # type: ignore[no-untyped-def]
    every = counts.sum()
    centred = grad - _wide(total / every, x) - (x - _wide(mean, x)) * _wide(invstd**2 * product / every, x)
    return centred * _wide(invstd * weight, x)


KERNELS = {
    "batch_norm_stats": _stats,
    "batch_norm_gather_stats_with_counts": _gather,
    "batch_norm_elemt": _normalized,
    "batch_norm_backward_reduce": _reduced,
    "batch_norm_backward_elemt": _input_gradient,
}


@functools.cache
def register_kernels() -> torch.library.Library:
    """Once for a process."""
    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a kernel that is there already: that of the tracing JIT
        for name, kernel in KERNELS.items():
            library.impl(name, kernel, "CPU")
    return library
