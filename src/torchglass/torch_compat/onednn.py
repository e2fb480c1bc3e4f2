"""oneDNN's kernels, and which products this processor's libraries do fast."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch


@contextmanager
def without_onednn() -> Iterator[None]:
    """Composite operators choose other kernels than oneDNN's inside.

    ``_set_mkldnn_enabled``: torch.backends.mkldnn.flags sets more, and warns where there is no Intel GPU. Tried: 2.13.
    """
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)


# torch.ops.mkldnn: oneDNN's products with packed weights, which inductor's own freezing calls. Without them
# options={"freezing": True} packs nothing. Tried on 2.11 and 2.13.
def packs_weights(dtype: torch.dtype) -> bool:
    """Whether oneDNN multiplies by packed weights of ``dtype`` on this processor."""
    if not torch.backends.mkldnn.is_available() or not torch.backends.mkldnn.enabled:
        return False
    supported = {torch.bfloat16: "_is_mkldnn_bf16_supported", torch.float16: "_is_mkldnn_fp16_supported"}.get(dtype)
    if supported is None:
        return dtype == torch.float32
    return bool(getattr(torch.ops.mkldnn, supported)())


ONEDNN_LINEAR = "torch.ops.mkldnn._linear_pointwise.default"


def has_avx512() -> bool:
    """Whether PyTorch's own kernels run with AVX-512 here."""
    return "AVX512" in torch.backends.cpu.get_cpu_capability()


def multiplies_faster() -> bool:
    """Whether oneDNN multiplies float32 faster here than what PyTorch's products call."""
    return packs_weights(torch.float32) and _mkl_is_slow()


@functools.cache
def _mkl_is_slow() -> bool:
    """Whether the processor has AVX-512 and is not Intel's: MKL does not use it there."""
    if not has_avx512() or not torch.backends.mkl.is_available():
        return False
    try:
        maker = re.search(r"vendor_id\s*: (\w+)", Path("/proc/cpuinfo").read_text())
    except OSError:
        return False
    return maker is not None and maker[1] != "GenuineIntel"


def packed_weight(x: torch.Tensor, weight: torch.Tensor, *geometry: Any) -> torch.Tensor:
    """A weight in oneDNN's layout for products with tensors like ``x``; ``geometry`` as packed_convolution takes it."""
    if not geometry:
        return torch.ops.mkldnn._reorder_linear_weight(weight, x.shape[0])
    stride, padding, dilation, groups = geometry
    return torch.ops.mkldnn._reorder_convolution_weight(weight, padding, stride, dilation, groups, list(x.shape))


def packed_linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """``x @ weight.T + bias``, the weight packed."""
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


def packed_convolution(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
) -> torch.Tensor:
    """A convolution, the weight packed."""
    return torch.ops.mkldnn._convolution_pointwise(x, weight, bias, padding, stride, dilation, groups, "none", [], "")
