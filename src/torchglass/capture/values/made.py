"""Objects that real code makes while capturing, of what the program made: classes, properties, dataclass fields.

    class Local:          # in the compiled function
        scale = x + 1     # a tensor of the graph
    Local().scale

The machine works with a real class of *stand-ins*, so look-up, inheritance and metaclasses are Python's own: a real
function for each symbolic one, a ``Mark`` for a tensor. Whoever reads a stand-in gets the symbolic value
(``Machine.wrapped``). Entry code makes the object anew at each call, by its recipe.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..errors import Unsupported
from ..protocol import Lazy, Machine, Value, declared
from .constant import ConstantV
from .containers import CellV
from .known import KnownV


@dataclass
class StandIns:
    made: dict[int, tuple[Value, Any]] = field(default_factory=dict)  # by the id of the value
    cells: dict[int, Any] = field(default_factory=dict)  # what methods of such classes read around them


@declared
def stand_in(m: Machine, value: Value | Lazy) -> Any:
    """A real object that stands for ``value``; reading it through ``Machine.wrap`` gives the value again."""
    raise NotImplementedError


class Mark:
    """Stands for a symbolic value where no real object can."""

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value = value


@dataclass
class Recipe:
    """How to make the object at a call: ``factory(*args, **kwargs)``."""

    factory: Any
    args: list[Value]
    kwargs: dict[str, Value] = field(default_factory=dict)


@dataclass
class ClassRecipe:
    """How to make a class: ``metaclass(name, bases, namespace, **keywords)``.

    ``quiet``: the class's ``__init_subclass__`` was interpreted, and must not run again.
    """

    metaclass: type
    name: str
    bases: list[Value]
    namespace: dict[str, Value]
    keywords: dict[str, Value]
    quiet: bool
    cell: CellV | None = None  # ``__class__`` of its methods


@dataclass
class Step:
    """What happened to the object afterwards: an attribute set or (value None) deleted, or a function called on it."""

    name: str = ""
    value: Value | None = None
    call: Recipe | None = None


class MadeV(KnownV):
    """An object made inside by real code: ``real`` is what stands for it, ``recipe`` and ``steps`` make it anew."""

    def __init__(self, real: Any, recipe: Recipe | ClassRecipe) -> None:
        super().__init__(real, None)
        self.recipe = recipe
        self.steps: list[Step] = []

    def store(self, m: Machine, name: str, value: Value) -> None:
        """``type.__setattr__``: no metaclass of the user's is asked."""
        self._refuse_other(name)
        m.real(type.__setattr__, self.real, name, stand_in(m, value))
        self.steps.append(Step(name, value))

    def del_attr(self, m: Machine, name: str) -> None:
        if self.by_metaclass(m, "__delattr__", ConstantV(name)) is None:
            self.discard_attr(m, name)

    def discard_attr(self, m: Machine, name: str) -> None:
        """``type.__delattr__``."""
        self._refuse_other(name)
        m.real(type.__delattr__, self.real, name)
        self.steps.append(Step(name))

    def _refuse_other(self, name: str) -> None:
        if not isinstance(self.real, type):
            raise Unsupported(f"writing attribute `{name}` of {self.a()}")
