"""Guards at run time: guards and the sources to fetch in, a native table out.

    table = build_table(guards, fetch, function)    # once per entry (guard_build.py)
    table.check(arguments)                          # the fetched values as a tuple, or None

The same guards in Python: ``evaluate`` answers for one guard, ``explain_failure`` names the first that fails
with the value it wants and the value it got, ``write`` (guard_text.py) writes them as guards.py. ``CHECKS``
has the templates that ``evaluate`` runs and ``write`` prints; tests hold the native table to the same
answers.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch

from .. import _native, torch_compat
from ..aten.sizes import free_strides
from ..records.compilation import ReprText
from ..records.guards import CHECKS, Guard, TensorMeta
from ..records.sources import Computed, Local, Source, StrideOf, tensor_size
from .global_state import GlobalState, global_state
from .guard_build import build_table
from .guard_sources import Scope, parameter_names, reach, scope_of
from .guard_text import GuardText, write

__all__ = [
    "Failure",
    "GlobalState",
    "GuardText",
    "Scope",
    "build_table",
    "class_has",
    "class_kind",
    "class_lacks",
    "evaluate",
    "explain_failure",
    "global_state",
    "names_are",
    "nearest_failures",
    "parameter_names",
    "reach",
    "same_constant",
    "same_keys",
    "scope_of",
    "tensor_matches",
    "value_at",
    "write",
]


# ------------------------------------------------------------------------------------------------ in Python


def tensor_matches(value: Any, meta: TensorMeta) -> bool:
    """Whether ``value`` is a tensor with these facts. Strides that no kernel can see are not compared."""
    if type(value) is not meta.type or not isinstance(value, torch.Tensor):
        return False
    now = TensorMeta.of(value)
    if len(now.shape) != len(meta.shape) or (now.flags, now.dtype, now.device, now.requires_grad) != (
        meta.flags,
        meta.dtype,
        meta.device,
        meta.requires_grad,
    ):
        return False
    if any(old is not None and old != new for old, new in zip(meta.shape, now.shape)):
        return False
    if len(meta.strides) != len(meta.shape) or 0 in meta.shape:
        return True
    shape: Any = now.shape
    compared = zip(shape, meta.strides_of(shape), now.strides)
    return all(size == 1 or old is None or old == new for size, old, new in compared)


def same_keys(value: Any, keys: Sequence[Any]) -> bool:
    """Whether these are the keys of a dict, in this order."""
    kind = next((kind for kind in (OrderedDict, dict) if isinstance(value, kind)), None)
    found = list(value if kind is None else kind.__iter__(value))
    return len(found) == len(keys) and all(map(same_constant, found, keys))


def class_has(cls: type, expected: tuple[str, Any]) -> bool:
    """Whether a class, or the first of its bases that has the name, has this object under it."""
    name, wanted = expected
    return any(found is wanted for found in on_class(cls, name))


def class_kind(cls: type, expected: tuple[str, type]) -> bool:
    """The same of the object's type."""
    name, kind = expected
    return any(type(found) is kind for found in on_class(cls, name))


def class_lacks(cls: type, name: str) -> bool:
    return not on_class(cls, name)


def on_class(cls: type, name: str) -> list[Any]:
    """What a look-up of the name through the class finds, without descriptors; empty if nothing."""
    return next(([vars(base)[name]] for base in cls.__mro__ if name in vars(base)), [])


def names_are(module: ModuleType, expected: tuple[tuple[str, Any], ...]) -> bool:
    """Whether a module has these objects under these names."""
    return not _other_names(module, expected)


def _other_names(module: ModuleType, expected: tuple[tuple[str, Any], ...]) -> list[str]:
    return [name for name, wanted in expected if vars(module).get(name, _NOTHING) is not wanted]


_NOTHING = object()
same_constant = _native.same_constant

_NAMES = {
    "tensor_matches": tensor_matches,
    "same_constant": same_constant,
    "same_keys": same_keys,
    "class_has": class_has,
    "class_kind": class_kind,
    "class_lacks": class_lacks,
    "names_are": names_are,
    "global_state": global_state,
}
_CODES = {
    name: compile(check.template.format(x="x", e="e"), f"<check {name}>", "eval") for name, check in CHECKS.items()
}


def evaluate(guard: Guard, scope: Scope) -> bool:
    """Whether the guard holds. A source that cannot be reached makes it fail, as does a check that raises."""
    try:
        names = {**_NAMES, **_operands(guard, scope)}
        return bool(eval(_CODES[guard.check], names))
    except Exception:
        return False


def _operands(guard: Guard, scope: Scope) -> dict[str, Any]:
    names: dict[str, Any] = {"e": guard.expected}
    if guard.source is not None:
        names["x"] = reach(guard.source, scope)
    if guard.check == "same":
        names["e"] = reach(guard.expected, scope)
    elif guard.check == "distinct":
        names["e"] = [reach(source, scope) for source in guard.expected]
    return names


@dataclass(frozen=True)
class Failure:
    """A guard that does not hold: what it wanted, what it got (or the exception on the way), in words."""

    guard: Guard
    old: Any
    new: Any
    message: str

    def __str__(self) -> str:
        return self.message


def explain_failure(guards: Iterable[Guard], scope: Scope) -> Failure | None:
    """The first guard that does not hold, or None."""
    for guard in guards:
        if not evaluate(guard, scope):
            return _failure(guard, scope)
    return None


MOST_EVALUATED, LEAST_ASKED = 4000, 4
"""Guards that are evaluated in Python to tell why a call fits no entry, some 20 ms, and entries that are asked though
they have more: large programs, which take so long to compile that a hundredth of it does not matter.
"""


def nearest_failures(entries: Sequence[Sequence[Guard]], scope: Scope) -> tuple[list[tuple[int, Failure]], int]:
    """For each entry, by its index, the first guard that fails: those entries first of whose guards the fewest fail
    for more than numbers and sizes, then the fewest at all, of equal ones where the first comes last. Beside them the
    newest that comes as near as the first. The newest are asked: ``LEAST_ASKED``, and more until ``MOST_EVALUATED``.
    """
    found: list[tuple[int, int, int, int, Guard]] = []
    evaluated = 0
    for index in reversed(range(len(entries))):
        if index < len(entries) - LEAST_ASKED and evaluated + len(entries[index]) > MOST_EVALUATED:
            break
        evaluated += len(entries[index])
        failing = [place for place, guard in enumerate(entries[index]) if not evaluate(guard, scope)]
        if failing:
            guards = [entries[index][place] for place in failing]
            others = sum(_is_another_kind(one, scope) or not any(changed_values([one], scope)) for one in guards)
            found.append((others, len(failing), -failing[0], index, entries[index][failing[0]]))
    found.sort(key=lambda row: (*row[:3], -row[3]))
    newest = max((row[3] for row in found if row[:2] == found[0][:2]), default=-1)
    return [(index, _failure(guard, scope)) for *_, index, guard in found], newest


def _is_another_kind(guard: Guard, scope: Scope) -> bool:
    """Whether a call for which it fails is of another kind: by its keywords, or by a flag, such as an empty cache's,
    though other dictionaries may grow, and flags change as numbers do.
    """
    if guard.check == "dict_keys":
        return scope.keywords is not None and guard.source == Local(scope.keywords)
    return type(guard.expected) is bool and not isinstance(guard.source, Computed) and not guard.is_relation()


# What may be another one at each call, by the check that holds it to one: numbers, texts, generators, lengths.
CHANGING: dict[str, tuple[type, ...]] = {
    "constant": (int, float, str), "identity": (torch.Generator,), "length": (int,), "dict_keys": (list,)
}  # fmt: skip
SIZED: dict[str, tuple[type, ...]] = {"length": (list, deque), "dict_keys": (dict, OrderedDict, defaultdict)}


def changed_values(guards: Iterable[Guard], scope: Scope) -> Iterator[Source]:
    """Sources of numbers, texts and generators that a guard wants to be one and the same, and that are others now;
    those of a number that is computed from them.
    """
    computed: dict[Source, None] = {}
    for guard in guards:
        if isinstance(guard.source, Computed):
            if not evaluate(guard, scope):
                computed.update(dict.fromkeys(guard.source.leaves()))
        elif guard.check == "tensor" and guard.source is not None:
            yield from _changed_sizes(guard.source, guard.expected, scope)
        elif guard.source is not None and isinstance(guard.expected, CHANGING.get(guard.check, ())):
            try:
                now = reach(guard.source, scope)
            except Exception:
                continue
            kinds = SIZED.get(guard.check, (type(guard.expected),))
            if type(now) in kinds and not evaluate(guard, scope):
                yield guard.source
    yield from computed


def value_at(source: Source, scope: Scope) -> Any:
    """What stands at a source in a call; None where it cannot be reached."""
    try:
        return reach(source, scope)
    except Exception:
        return None


def _changed_sizes(source: Source, expected: TensorMeta, scope: Scope) -> Iterator[Source]:
    """Where a tensor's sizes are read that a guard wants to be others; none where there are more or fewer of them."""
    now = value_at(source, scope)
    if type(now) is not expected.type or not isinstance(now, torch.Tensor):
        return
    tensor: torch.Tensor = now
    meta = TensorMeta.of(tensor)
    if len(meta.shape) != len(expected.shape):
        return
    for dim, (old, new) in enumerate(zip(expected.shape, meta.shape)):
        if old is not None and old != new:
            yield tensor_size(source, dim)
    if len(meta.strides) == len(expected.strides) and tensor.numel():
        wanted, strides = expected.strides_of(tensor.shape), tensor.stride()
        for dim in free_strides(tensor.shape, strides):
            if wanted[dim] not in (None, strides[dim]):
                yield StrideOf(source, dim)


def _failure(guard: Guard, scope: Scope) -> Failure:
    if guard.check == "global_state":
        return _state_failure(guard)
    place = guard.source.render() if guard.source is not None else ", ".join(map(str, guard.expected))
    try:
        operands = _operands(guard, scope)
    except Exception as error:
        # what the frames of its traceback hold, the call's arguments, would live as long as the record of this
        return Failure(guard, guard.expected, error.with_traceback(None), f"{place}: {type(error).__name__}: {error}")
    new = operands.get("x", operands["e"])
    if guard.check == "names":
        others = " and ".join(f"{new.__name__}.{name}" for name in _other_names(new, guard.expected))
        return Failure(guard, guard.expected, new, f"another object is now called {others}")
    if guard.check == "tensor" and isinstance(new, torch.Tensor):
        return _tensor_failure(guard, place, new)
    if guard.is_relation():
        return _relation_failure(guard, scope)
    try:
        new = _SHOWN.get(guard.check, lambda value: value)(new)
    except Exception as error:
        new = error.with_traceback(None)
    if guard.check == "length":
        place = f"len({place})"
    elif guard.check != "constant" or type(new) is not type(guard.expected):
        place = f"{place}: {CHECKS[guard.check].meaning}:"
    return Failure(guard, guard.expected, new, f"{place} was {_brief(guard.expected)}, is {_brief(new)}")


def _relation_failure(guard: Guard, scope: Scope) -> Failure:
    """Numbers that were compared, as they are now."""
    assert isinstance(guard.source, Computed)
    wanted = guard.relation(guard.source.render())
    new = ReprText(", ".join(f"{leaf} = {_brief(value_at(leaf, scope))}" for leaf in guard.source.leaves()))
    return Failure(guard, ReprText(wanted), new, f"`{wanted}` does not hold for {new}")


# What a failure shows of the value; the value itself for other checks.
_SHOWN: dict[str, Callable[[Any], Any]] = {"type": type, "length": len, "dict_keys": list}


def _tensor_failure(guard: Guard, place: str, tensor: torch.Tensor) -> Failure:
    with torch_compat.DisableTorchFunctionSubclass():  # a subclass of the program's is not to hear of this
        new = TensorMeta.of(tensor)
    return Failure(guard, guard.expected, new, _changes(place, guard.expected, new))


def _state_failure(guard: Guard) -> Failure:
    old, new = GlobalState(*guard.expected), global_state()
    changed = [f"{name} was {_brief(a)}, is {_brief(b)}" for name, a, b in zip(old._fields, old, new) if a != b]
    return Failure(guard, old, new, "global state: " + "; ".join(changed))


def _changes(place: str, old: TensorMeta, new: TensorMeta) -> str:
    pairs = [(f".{name}", getattr(old, name), getattr(new, name)) for name in _FACTS]
    if len(old.shape) == len(new.shape) and old.shape != new.shape:  # strides that follow from sizes are no news
        sizes = [(f".shape[{dim}]", *pair) for dim, pair in enumerate(zip(old.shape, new.shape)) if pair[0] is not None]
        pairs = [pair for pair in pairs if pair[0] not in (".shape", ".strides")] + sizes
    return "; ".join(f"{place}{name} was {_brief(a)}, is {_brief(b)}" for name, a, b in pairs if a != b)


_FACTS = ("type", "dtype", "device", "shape", "strides", "requires_grad", "flags")


def _brief(value: Any) -> str:
    if isinstance(value, type):
        return value.__qualname__
    if isinstance(value, Source):
        return value.render()
    if type(value).__module__ in ("builtins", "torch") and not isinstance(value, torch.Tensor):
        text = repr(value)
        return text if len(text) <= 80 else text[:77] + "..."
    return f"<{type(value).__qualname__} object at {id(value):#x}>"
