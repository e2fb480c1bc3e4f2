"""What an entry relies on of classes and libraries: what each name that was looked up stands for, and the bases.

    if net: ...                    # looks for `__bool__` and `__len__` in the class of `net`
    class_lacks(Net, '__bool__')   # so that a class which comes to have one is noticed
    y = F.relu(x)
    names_are(sys.modules['torch.nn.functional'], (('relu', torch.nn.functional.relu),))

Methods and descriptors must be the same objects. Of other attributes only the type matters to a look-up: whoever reads
one guards its value.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import torch

from ...records.guards import Guard
from ...records.sources import Computed, Fixed, Module
from ..protocol import MISSING, Machine, Value
from ..values.binding import class_lookup, is_of_compiled_module, look_up_behind, may_change, rely_on_bases
from ..values.containers import TupleV
from ..values.instance import InstanceV
from ..values.made import MadeV
from .wrap import is_python_class

WHY = {
    "class_has": "a class's `{}` was used",
    "class_kind": "a class's `{}` was looked up",
    "class_lacks": "a class was asked for `{}`",
}


@dataclass
class ReliedNames:
    of_classes: dict[type, set[str] | None] = field(default_factory=dict)
    of_libraries: dict[str, dict[str, Any]] = field(default_factory=dict)  # by module and name


def names_of(m: Machine, cls: type) -> set[str] | None:
    """The names that were looked up in a class; None for one that cannot change, or was made inside."""
    if is_made(m, cls) or not isinstance(cls, type):  # typing.Dict is asked as a class is
        return None
    known = m.state(ReliedNames).of_classes
    if cls not in known:
        known[cls] = set() if is_python_class(cls) and not is_ours(cls) else None
    return known[cls]


def is_ours(cls: type) -> bool:
    module = cls.__module__  # of a class of the program's it may be a property
    return isinstance(module, str) and module.partition(".")[0] == "torchglass" and not is_of_compiled_module(cls)


@may_change.defined
def _may_change(m: Machine, cls: type) -> bool:
    return names_of(m, cls) is not None and (not m.is_stable(cls.__module__) or is_of_compiled_module(cls))


# What libraries count in and set, which is no function of theirs; so are files (sys.stdout).
DATA = frozenset({bool, int, float, complex, str, bytes, tuple, list, dict, set, frozenset, type(None)})
_NO_MODULE = ModuleType("")


def rely_on_name(m: Machine, module: str, name: str, real: Any) -> None:
    """A function, a class or a module that a library has under a name: programs may put another object there."""
    kind = type(real)
    if vars(sys.modules.get(module, _NO_MODULE)).get(name) is not real:
        return  # a namespace that no module is reached by
    is_data = kind in DATA or isinstance(real, io.IOBase)
    if not is_data and not module.startswith("torchglass") and not is_ours(kind):
        m.state(ReliedNames).of_libraries.setdefault(module, {})[name] = real


def guards_on_names(m: Machine) -> list[Guard]:
    return [
        Guard(Module(module), "names", tuple(names.items()), "it was taken from a library")
        for module, names in m.state(ReliedNames).of_libraries.items()
    ]


def look_up(m: Machine, cls: type, name: str) -> Any:
    """What stands under a name in a class or its bases, as it is; MISSING if there is nothing."""
    if is_made(m, cls):
        return _first_of(m, cls.__mro__, name)
    found = class_lookup(cls, name)
    names = names_of(m, cls)
    if names is not None and name not in names:
        names.add(name)
        check, expected = _condition(name, found)
        if check != "class_has" and not may_change(m, cls) and not issubclass(cls, torch.Tensor):
            return found  # a library's class may get another method, but hardly one that it did without
        m.guard(Fixed(cls), check, expected, WHY[check].format(name))
    return found


def _condition(name: str, found: Any) -> tuple[str, Any]:
    if found is MISSING:
        return "class_lacks", name
    kind = type(found)
    if any(hasattr(kind, special) for special in ("__get__", "__set__", "__delete__")):
        return "class_has", (name, found)
    return "class_kind", (name, kind)


@rely_on_bases.defined
def _rely_on_bases(m: Machine, cls: type) -> None:
    if may_change(m, cls):
        m.guard(Fixed(cls), "mro", cls.__mro__, "what a class derives from was asked")


def rely_on_kind(m: Machine, value: Value | None, cls: type, wanted: type, answer: bool) -> None:
    """What an abstract base class or a protocol says of a class, or of an object of it: others may be registered."""
    if not (may_change(m, cls) or may_change(m, wanted)):
        return
    if wanted in cls.__mro__:
        return rely_on_bases(m, cls)
    if is_made(m, cls) or is_made(m, wanted):
        return
    if value is not None and value.source is not None:
        asked = Computed(isinstance, "isinstance({}, {})", (value.source, Fixed(wanted)))
    elif value is None or m.real(issubclass, cls, wanted) is answer:
        asked = Computed(issubclass, "issubclass({}, {})", (Fixed(cls), Fixed(wanted)))
    m.guard(asked, "constant", answer, f"whether it is a {wanted.__name__} was asked")


def is_subclass(m: Machine, cls: type, wanted: Value) -> bool:
    """``issubclass(cls, wanted)`` where wanted is a class or a tuple of classes."""
    if isinstance(wanted, TupleV):
        return any(is_subclass(m, cls, w) for w in wanted.all(m))
    rely_on_bases(m, cls)
    real = as_class(m, wanted)
    found = bool(m.real(issubclass, cls, real))
    if isinstance(real, type) and type(real) is not type:
        rely_on_kind(m, None, cls, real, found)
    return found


def as_class(m: Machine, wanted: Value) -> Any:
    """A class, or an object that answers for some (``typing.List``), which must stay that object."""
    real = wanted.real if isinstance(wanted, InstanceV) else None
    if real is not None and wanted.source is not None:
        m.guard(wanted.source, "identity", real, "it answered for classes")
    return wanted.as_constant() if real is None else real


@look_up_behind.defined
def _look_up_behind(m: Machine, cls: type, behind: type, name: str) -> Any:
    rely_on_bases(m, cls)
    return _first_of(m, cls.__mro__[cls.__mro__.index(behind) + 1 :], name)


def _first_of(m: Machine, classes: Sequence[type], name: str) -> Any:
    """What the first class that has the name has under it; those that were there before the call are relied on."""
    for cls in classes:
        if not is_made(m, cls):
            look_up(m, cls, name)
        if name in cls.__dict__:
            return cls.__dict__[name]
    return MISSING


def is_made(m: Machine, cls: type) -> bool:
    """Whether a class was made inside: its stand-in is another one at each capture."""
    return isinstance(m.wrapped.get(id(cls), (None, None))[1], MadeV)
