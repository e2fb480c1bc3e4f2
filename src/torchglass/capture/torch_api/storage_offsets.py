"""Where inputs begin in memory, for what asks: ``x.as_strided((3,), (2,), 1)`` counts from the storage's start.

Fake tensors begin where their own memory does. An entry relies on it that the input does too, as far as it is asked;
one that begins elsewhere ends the graph.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

import torch

from ...aten.sizes import hint_of
from ...records.sources import Computed, Constant, StrideOf
from ...records.symbolic_ints import SizesUnfit
from ...torch_compat import PLACE_QUESTIONS
from ..errors import Unsupported
from ..graph.builder import GraphBuilder
from ..graph.memory_overlap import storage
from ..protocol import Machine, Value
from ..values.constant import ConstantV
from ..values.tensor import TensorV


def answer(m: Machine, name: str, tensor: TensorV) -> Value | None:
    """What an input says to one of PLACE_QUESTIONS, which the entry relies on; None for tensors made inside."""
    if tensor.real is None:
        if name == "storage_offset":
            rely_on_starts(m, [tensor])
            rely_on_strides(m, [tensor])
        return None
    if tensor.source is None:
        raise Unsupported(f"`{name}()` of a tensor that no argument, global or closure leads to")
    question = PLACE_QUESTIONS[name]
    found = question(tensor.real)
    m.guard(Computed(question, f"{{}}.{name}()", (tensor.source,)), "constant", found, f"asked for `{name}()`")
    return ConstantV(found)


def counts_from_start(target: Any) -> bool:
    """Whether an operation takes offsets from the start of a storage."""
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    return name.startswith("as_strided")  # `as_strided.default` of torch.ops, too


def rely_on_starts(m: Machine, tensors: Iterable[Value]) -> None:
    """Rely on it that the inputs in whose memory these lie begin it."""
    asked = {storage(v.fake) for v in tensors if isinstance(v, TensorV)}
    for given in m.state(GraphBuilder).inputs:
        if storage(given.fake) in asked:
            if given.real is None or given.source is None or given.real.storage_offset():
                raise Unsupported("a place in the memory of an input that does not begin there", "clone the input")
            answer(m, "storage_offset", given)


def asks_strides(target: Any) -> bool:
    """Whether an operation gives a tensor's strides as numbers."""
    return target == "stride" or target is torch.Tensor.stride


def rely_on_strides(m: Machine, tensors: Iterable[Value]) -> None:
    """Rely on the strides of dimensions of one element, too, of the inputs in whose memory these lie: guards leave them
    out, since no address depends on them.
    """
    asked = {storage(v.fake) for v in tensors if isinstance(v, TensorV)}
    for given in m.state(GraphBuilder).inputs:
        if storage(given.fake) not in asked or given.real is None or given.source is None:
            continue
        for dim, size in enumerate(given.fake.shape):
            if bool(size != 1):  # of one that may become 1 it is assumed that it does not
                continue
            stride = given.real.stride(dim)
            if stride != hint_of(given.fake.stride(dim)):  # where sizes change it is made to lie inside the others
                raise SizesUnfit(f"`stride()` of a dimension of one element, whose stride is {stride}")
            holds = Computed(operator.eq, "{} == {}", (StrideOf(given.source, dim), Constant(str(stride), stride)))
            m.guard(holds, "constant", True, "asked for `stride()`")
