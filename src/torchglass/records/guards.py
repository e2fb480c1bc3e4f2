"""What an entry relies on, as data: a guard names a source, a check, the expected value, why, and who needed it.

``check`` names a row of ``CHECKS``; the row holds the Python template that guards.py files show. The native table
implements the same names (runtime/guards.py builds it) and a fuzz test holds the two to one answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .origin import UNKNOWN, Origin
from .sources import Source


@dataclass(frozen=True)
class Guard:
    """One condition of an entry.

    ``source`` is None for conditions on global state. ``expected`` is the value the check compares with (a type, an
    object, a constant, a TensorMeta, ...). ``why`` is a short clause: what in the user's code relied on it.
    """

    source: Source | None
    check: str
    expected: Any
    why: str = ""
    origin: Origin = UNKNOWN


@dataclass(frozen=True)
class TensorMeta:
    """The static facts of a tensor: what one compiled graph may rely on."""

    type: type
    dtype: Any
    device: Any
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    requires_grad: bool


@dataclass(frozen=True)
class Check:
    """One kind of guard: the Python template ({x} is the source's expression, {e} the expected value's name)."""

    name: str
    template: str
    meaning: str


CHECKS: dict[str, Check] = {
    c.name: c
    for c in (
        Check("type", "type({x}) is {e}", "exact type"),
        Check("identity", "{x} is {e}", "the same object"),
        Check("constant", "type({x}) is type({e}) and {x} == {e}", "equal constant of equal type (NaN equals NaN)"),
        Check("tensor", "tensor_matches({x}, {e})", "type, dtype, device, shape, strides, requires_grad of a tensor"),
        Check("length", "len({x}) == {e}", "length of a list, tuple, dict, set or deque"),
        Check("dict_keys", "list({x}) == {e}", "the keys of a dict, in order"),
        Check("dict_has", "{e} in {x}", "a dict contains the key"),
        Check("dict_lacks", "{e} not in {x}", "a dict does not contain the key"),
        Check("has_attr", "hasattr({x}, {e})", "an attribute exists"),
        Check("lacks_attr", "not hasattr({x}, {e})", "an attribute does not exist"),
        Check("same", "{x} is {e}", "two sources reach the same object (expected is a Source)"),
        Check("distinct", "len({{id(o) for o in {e}}}) == len({e})", "tensors of the listed sources are all distinct objects"),
        Check("global_state", "global_state() == {e}", "grad mode, inference mode, default dtype, autocast, deterministic"),
    )
}
