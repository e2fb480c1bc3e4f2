"""What an entry relies on, as data: a source, a check, the expected value, why, and who needed it.

``check`` names a row of ``CHECKS``; the row holds the Python template that guards.py files show. The native
table implements the same names (runtime/guards.py builds it) and a fuzz test holds the two to one answer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from .._native import tensor_flags
from .origin import UNKNOWN, Origin
from .sources import Computed, Source


@dataclass(frozen=True)
class Guard:
    """One condition of an entry.

    ``source`` is None for conditions on global state and for ``distinct``. ``expected`` is what the check
    compares with: a type, an object, a constant, a TensorMeta, a Source for ``same``, a tuple of Sources for
    ``distinct``, a tuple of keys, a length, a name and what a class has under it, what
    ``runtime.guards.global_state()`` returned. ``why`` is a short clause: what in the user's code relied on it.
    """

    source: Source | None
    check: str
    expected: Any
    why: str = ""
    origin: Origin = UNKNOWN

    def is_relation(self) -> bool:
        """Whether it holds a comparison of numbers to be true, or false, as that of a size: ``x.shape[0] < 11``."""
        compares = isinstance(self.source, Computed) and self.source.is_relation()
        return compares and self.check == "constant" and type(self.expected) is bool

    def relation(self, text: str) -> str:
        """A condition that says what such a guard wants of the comparison ``text``."""
        return text if self.expected else f"not ({text})"


Stride: TypeAlias = "int | tuple[int, ...] | None"


@dataclass(frozen=True)
class TensorMeta:
    """The static facts of a tensor: what one compiled graph may rely on.

    A None in ``shape`` or ``strides`` fits every number; ``strides`` is () for a tensor that has none. A stride
    that follows from sizes that are None is a tuple: a factor, and the dimensions whose sizes it is multiplied by.
    ``flags`` names traits out of the ordinary, as ``_native.tensor_flags`` does: ("conj",), ("inference",).
    """

    type: type
    dtype: Any
    device: Any
    shape: tuple[int | None, ...]
    strides: tuple[Stride, ...]
    requires_grad: bool
    flags: tuple[str, ...] = ()

    @classmethod
    def of(cls, tensor: torch.Tensor) -> TensorMeta:
        """What a ``tensor`` guard on this tensor expects."""
        strides = tuple(tensor.stride()) if tensor.layout is torch.strided else ()
        facts = type(tensor), tensor.dtype, tensor.device, tuple(tensor.shape), strides, tensor.requires_grad
        return cls(*facts, tensor_flags(tensor))

    def strides_of(self, shape: Sequence[int]) -> tuple[int | None, ...]:
        """The strides that a tensor of this shape has; None for any."""
        return tuple(
            stride[0] * math.prod(shape[dim] for dim in stride[1:]) if isinstance(stride, tuple) else stride
            for stride in self.strides
        )


@dataclass(frozen=True)
class Check:
    """One kind of guard: the Python template; {x} is the source's expression, {e} the expected value."""

    name: str
    template: str
    meaning: str


CHECKS: dict[str, Check] = {
    c.name: c
    for c in (
        Check("type", "type({x}) is {e}", "exact type"),
        Check("identity", "{x} is {e}", "the same object"),
        Check("constant", "same_constant({x}, {e})", "equal constant of equal type (0.0 is not -0.0)"),
        Check("tensor", "tensor_matches({x}, {e})", "type, dtype, device, layout, requires_grad of a tensor"),
        Check("length", "len({x}) == {e}", "length of a list, tuple, dict, set or deque"),
        Check("dict_keys", "same_keys({x}, {e})", "the keys of a dict, in order"),
        Check("dict_has", "{e} in {x}", "a dict contains the key"),
        Check("dict_lacks", "{e} not in {x}", "a dict does not contain the key"),
        Check("has_attr", "hasattr({x}, {e})", "an attribute exists"),
        Check("lacks_attr", "not hasattr({x}, {e})", "an attribute does not exist"),
        Check("class_has", "class_has({x}, {e})", "what a class or its bases have under a name, as it is"),
        Check("class_kind", "class_kind({x}, {e})", "the type of what a class or its bases have under a name"),
        Check("class_lacks", "class_lacks({x}, {e})", "neither a class nor its bases have the name"),
        Check("mro", "{x}.__mro__ == {e}", "a class and its bases"),
        Check("names", "names_are({x}, {e})", "what stands under names in a module of a library"),
        Check("same", "{x} is {e}", "two sources reach the same object (expected is a Source)"),
        Check("distinct", "len({{id(o) for o in {e}}}) == len({e})", "the sources are all different objects"),
        Check("global_state", "global_state() == {e}", "grad mode, default dtype, autocast, modes, ..."),
    )
}


def guard_key(source: Source, check: str, expected: Any) -> tuple[Any, ...]:
    """What two guards of the same condition have in common."""
    try:
        key: tuple[Any, ...] = (source, check, expected, type(expected))
        hash(key)
    except TypeError:
        key = (
            source,
            check,
            id(expected) if check == "identity" else repr(expected),
        )  # which may be the program's code
    return key
