"""Objects that a graph's text names: tensors as bytes, everything else by its path."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import torch

from ..records.kept_graph import NotKept
from .values import decoded, encoded

TENSOR, ARRAY = "tensor", "array"
MOST_BYTES = 1 << 26  # of one constant: weights that a graph holds are no constants to keep


def kept_objects(objects: Mapping[str, Any], contents: dict[str, str | bytes]) -> dict[str, Any]:
    """The objects for ``json``; the bytes of tensors go to ``contents``, each under its digest. Raises NotKept."""
    return {name: _kept(value, contents) for name, value in objects.items()}


def _kept(value: Any, contents: dict[str, str | bytes]) -> Any:
    if type(value).__module__ == "numpy" and type(value).__name__ == "ndarray" and value.dtype.kind in "biufc":
        return {ARRAY: _kept(torch.from_numpy(value.copy()), contents)}
    if not isinstance(value, torch.Tensor):
        return encoded(value)
    plain = type(value) is torch.Tensor and value.layout is torch.strided and value.device.type in ("cpu", "cuda")
    if not plain or value.requires_grad or value.is_quantized or value.is_conj() or value.is_neg():
        raise NotKept(f"the graph holds a tensor of {value.dtype} on {value.device} that is no plain constant")
    reach = 1 + sum((size - 1) * stride for size, stride in zip(value.shape, value.stride())) if value.numel() else 0
    if reach * value.element_size() > MOST_BYTES:
        raise NotKept(f"the graph holds a tensor of {reach * value.element_size():,} bytes")
    flat = value.detach().as_strided((reach,), (1,)).cpu()
    content = flat.view(torch.uint8).numpy().tobytes() if reach else b""
    file = f"constant_{hashlib.sha256(content).hexdigest()[:16]}.bin"
    contents[file] = content
    return {TENSOR: [encoded(value.dtype), list(value.shape), list(value.stride()), str(value.device), file]}


def read_objects(kept: Mapping[str, Any], content: Callable[[str], bytes]) -> dict[str, Any]:
    """The objects again; ``content`` gives a file's bytes."""
    return {name: _read(value, content) for name, value in kept.items()}


def _read(value: Any, content: Callable[[str], bytes]) -> Any:
    if type(value) is dict and ARRAY in value:
        return _read(value[ARRAY], content).numpy()
    if type(value) is not dict or TENSOR not in value:
        return decoded(value)
    dtype, shape, strides, device, file = value[TENSOR]
    held = bytearray(content(file))
    if not held:
        return torch.empty_strided(shape, strides, dtype=decoded(dtype), device=device)
    return torch.frombuffer(held, dtype=decoded(dtype)).to(device).as_strided(shape, strides)
