"""Fourier transforms of symbolic sizes: PyTorch's functions take numbers, the operators that they come to do not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..process.tables import enters
from ..records.sizes import Size, at_least
from ..records.symbolic_ints import size_of
from ..torch_compat import ON_SYMBOLS
from .symbolic_shapes import Layout, Sizes, gives

aten = torch.ops.aten
Along = Callable[[torch.Tensor, list[int], int], torch.Tensor]
REAL, COMPLEX = {torch.float32: torch.complex64, torch.float64: torch.complex128}, (torch.complex64, torch.complex128)
NONE, BY_ROOT, BY_COUNT = range(3)  # what sums are divided by: ``fft_norm_mode`` of ATen's SpectralOpsUtils.h
FORWARD = {None: NONE, "backward": NONE, "ortho": BY_ROOT, "forward": BY_COUNT}
BACKWARD = {None: BY_COUNT, "backward": BY_COUNT, "ortho": BY_ROOT, "forward": NONE}


@gives(aten._fft_c2c.default)
def _complex(x: Layout, *args: Any) -> list[Sizes]:
    return [x.sizes]


@gives(aten._fft_r2c.default)
def _from_real(x: Layout, dims: Sequence[int], divided: int, half: bool) -> list[Sizes]:
    return [_with(x.sizes, dims[-1], x.sizes[dims[-1]] // 2 + 1)] if half else [x.sizes]


@gives(aten._fft_c2r.default)
def _to_real(x: Layout, dims: Sequence[int], divided: int, last: Size) -> list[Sizes]:
    return [_with(x.sizes, dims[-1], last)]


def _with(sizes: Sizes, dim: int, size: Size) -> Sizes:
    """The sizes with another one, of a dimension counted from the front."""
    return (*sizes[:dim], size, *sizes[dim + 1 :])


# --- PyTorch's functions ----------------------------------------------------------------------------------------------
def _forward(x: torch.Tensor, dims: list[int], divided: int) -> torch.Tensor:
    result: torch.Tensor
    if x.dtype in REAL and len(dims) == 1:
        result = aten._fft_r2c(x, dims, divided, False)
    else:
        result = aten._fft_c2c(x.to(REAL.get(x.dtype, x.dtype)), dims, divided, True)
    return result


def _backward(x: torch.Tensor, dims: list[int], divided: int) -> torch.Tensor:
    if x.dtype in REAL and len(dims) == 1:
        return _forward(x, dims, divided).conj_physical()
    result: torch.Tensor = aten._fft_c2c(x.to(REAL.get(x.dtype, x.dtype)), dims, divided, False)
    return result


def _half(x: torch.Tensor, dims: list[int], divided: int) -> torch.Tensor:
    result: torch.Tensor = aten._fft_r2c(x, dims, divided, True)
    return result


def _transforms(name: str, along: Along, divisors: dict[Any, int], dtypes: Sequence[torch.dtype]) -> None:
    """Enter the three functions of a transform: of one dimension, of two, and of any."""

    def enter(plain: Callable[..., Any], usual: Any) -> None:
        @enters(ON_SYMBOLS)(plain)
        def transform(input: torch.Tensor, n: Any = None, dim: Any = usual, norm: str | None = None) -> torch.Tensor:
            dims = _chosen(input, dim)
            x = input if n is None else _resized(input, dims, n)
            if x is None or not dims or norm not in divisors or x.dtype not in dtypes:
                return plain(input, n, dim, norm)
            return along(x, dims, divisors[norm])

    for suffix, usual in (("", -1), ("2", (-2, -1)), ("n", None)):
        enter(getattr(torch.fft, name + suffix), usual)


def _chosen(x: torch.Tensor, dim: Any) -> list[int]:
    """The dimensions, counted from the front, where each is there once and has an element; else none."""
    dims = list(range(x.dim())) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    if not all(type(k) is int and -x.dim() <= k < x.dim() for k in dims):
        return []
    dims = [k % x.dim() for k in dims]
    fine = len({*dims}) == len(dims) and all(at_least(size_of(x.shape[k]), 1) for k in dims)
    return dims if fine else []


def _resized(x: torch.Tensor, dims: list[int], count: Any) -> torch.Tensor | None:
    """The first ``count`` of one dimension, zeros after its end; None where it is not known which."""
    if len(dims) != 1 or not isinstance(count, (int, torch.SymInt)) or not at_least(size_of(count), 1):
        return None
    (dim,), more = dims, size_of(count) - size_of(x.shape[dims[0]])
    if at_least(-more, 0):
        return x.narrow(dim, 0, count)
    after = [0, 0] * (x.dim() - 1 - dim)
    return torch.nn.functional.pad(x, [*after, 0, count - x.shape[dim]]) if at_least(more, 0) else None


_transforms("fft", _forward, FORWARD, (*REAL, *COMPLEX))
_transforms("ifft", _backward, BACKWARD, (*REAL, *COMPLEX))
_transforms("rfft", _half, FORWARD, (*REAL,))


@enters(ON_SYMBOLS)(torch.fft.irfft)
def irfft(input: torch.Tensor, n: Any = None, dim: int = -1, norm: str | None = None) -> torch.Tensor:
    """Of the half of the frequencies that tell the others."""
    dims = _chosen(input, dim)
    if not dims or norm not in BACKWARD or input.dtype not in COMPLEX:
        return torch.fft.irfft(input, n, dim, norm)
    count = 2 * (input.shape[dims[0]] - 1) if n is None else n
    x = _resized(input, dims, count // 2 + 1)
    if x is None or not at_least(size_of(count), 1):
        return torch.fft.irfft(input, n, dim, norm)
    result: torch.Tensor = aten._fft_c2r(x, dims, BACKWARD[norm], count)
    return result
