"""How to reach a value from a call: a chain that renders as a Python expression.

``Attr(Local("self"), "weight")`` renders as ``self.weight``. The native guard table evaluates the same chain.
Sources are hashable, so equal chains are one node of the table.
"""

from __future__ import annotations

import enum
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .literals import identifier, is_name

STACK, SHARED = "stack_", "cell_of_"
"""How parameters of resume functions begin that no variable is: values on the interpreter's stack, shared cells."""

_UNNAMED = re.compile(rf"{STACK}\d+")
_IN_DICT = re.compile(r"\.__dict__(?:\['_(?:modules|parameters|buffers)'\])?\['(\w+)'\]")


def _hash_once(self: Source) -> int:
    fields = self.__dict__
    known = fields.get("_hash")
    if known is None:
        known = hash((type(self), *fields.values()))
        object.__setattr__(self, "_hash", known)
    return known


@dataclass(frozen=True)
class Source:
    """Base of all sources. ``base`` is the source this one is reached through, None for a root."""

    def __init_subclass__(cls) -> None:
        # The hash of a chain is that of all its links: computed anew for every look-up it was a third of capture.
        if "__hash__" not in cls.__dict__:
            cls.__hash__ = _hash_once  # type: ignore[assignment]

    @property
    def base(self) -> Source | None:
        return None

    def is_local(self) -> bool:
        """Whether the chain begins at a parameter or closure cell, not at what modules hold."""
        root = self
        while root.base is not None:
            root = root.base
        return isinstance(root, (Local, Cell))

    def render(self) -> str:
        """The Python expression; names of parameters and globals appear as the user wrote them."""
        raise NotImplementedError

    def written(self) -> str:
        """The expression as the user's code has it, for messages; '' for a value that has no name there."""
        root = self
        while root.base is not None:
            root = root.base
        text, name = root.render(), str(getattr(root, "name", ""))
        if isinstance(root, Local) and _UNNAMED.fullmatch(name):
            return ""
        if isinstance(root, Local) and name.startswith(SHARED):
            text, name = f"{text}.cell_contents", name.removeprefix(SHARED)
        elif isinstance(root, Global) and root.module:
            name = f"{root.module}.{name}"
        return _IN_DICT.sub(r".\1", self.render().replace(text, name, 1))

    def __str__(self) -> str:
        return self.render()


@dataclass(frozen=True)
class Local(Source):
    """A parameter of the compiled function (``*args`` and ``**kwargs`` under their own names)."""

    name: str

    def render(self) -> str:
        return identifier(self.name)


@dataclass(frozen=True)
class Global(Source):
    """A name in a module's globals. ``module`` is '' for the compiled function's own globals."""

    name: str
    module: str = ""

    def render(self) -> str:
        return f"vars(sys.modules[{self.module!r}])[{self.name!r}]" if self.module else f"G[{self.name!r}]"


@dataclass(frozen=True)
class Cell(Source):
    """The content of a closure cell of the compiled function, by its free-variable name."""

    name: str

    def render(self) -> str:
        return f"C[{self.name!r}].cell_contents"


@dataclass(frozen=True)
class Module(Source):
    """An imported module, ``sys.modules[name]``."""

    name: str

    def render(self) -> str:
        return f"sys.modules[{self.name!r}]"


@dataclass(frozen=True, eq=False)
class Fixed(Source):
    """One object for good, which the entry holds: a function that a class or PyTorch leads to and other guards hold to
    be the same.
    """

    object: Any

    def __hash__(self) -> int:
        return id(self.object)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fixed) and other.object is self.object

    def render(self) -> str:
        if type(self.object) is dict and isinstance(self.object.get("__name__"), str):
            return f"vars(sys.modules[{self.object['__name__']!r}])"
        return str(getattr(self.object, "__qualname__", None) or f"a_{type(self.object).__name__}")


@dataclass(frozen=True)
class Derived(Source):
    """Base of sources reached through another one."""

    of: Source

    @property
    def base(self) -> Source | None:
        return self.of

    def render(self) -> str:
        return self.after(self.of.render())

    def after(self, base: str) -> str:
        """The expression, ``base`` being that of what it is reached through."""
        raise NotImplementedError


@dataclass(frozen=True)
class Attr(Derived):
    """``base.name`` through ordinary attribute access (``getattr``)."""

    name: str

    def after(self, base: str) -> str:
        if is_name(self.name):
            return f"{base}.{self.name}"
        return f"getattr({base}, {self.name!r})"


@dataclass(frozen=True)
class InstanceDict(Derived):
    """``base.__dict__``: the instance dictionary, read without descriptors."""

    def after(self, base: str) -> str:
        return f"{base}.__dict__"


@dataclass(frozen=True, eq=False)
class Item(Derived):
    """``base[key]`` for a dict key, or an index of a list or tuple. ``key`` is a hashable constant, or an object that
    another guard holds to be the same.
    """

    key: Any

    __hash__ = _hash_once

    def __eq__(self, other: object) -> bool:
        if type(other) is not Item or hash(self) != hash(other) or self.of != other.of:
            return False  # by the hash first: tensors as keys are compared element by element
        return self.key is other.key or bool(self.key == other.key)

    def after(self, base: str) -> str:
        return f"{base}[{key_text(self.key)}]"


def is_plain_key(key: Any) -> bool:
    """Whether ``repr`` of a key is an expression, or at least one line and no code of the user's."""
    if type(key) is tuple:
        return all(map(is_plain_key, key))
    known = type(key).__module__ in ("builtins", "torch") and not hasattr(key, "requires_grad")
    return known or isinstance(key, enum.Enum)


def key_text(key: Any) -> str:
    return repr(key) if is_plain_key(key) else f"<{type(key).__qualname__}>"


@dataclass(frozen=True)
class DictKey(Derived):
    """The n-th key of a dictionary in insertion order (for keys that are no constants)."""

    index: int

    def after(self, base: str) -> str:
        return f"list({base})[{self.index}]"


@dataclass(frozen=True)
class TypeOf(Derived):
    """``type(base)``."""

    def after(self, base: str) -> str:
        return f"type({base})"


@dataclass(frozen=True)
class StrideOf(Derived):
    """``base.stride(dim)`` of a tensor."""

    dim: int

    def after(self, base: str) -> str:
        return f"{base}.stride({self.dim})"


@dataclass(frozen=True)
class Referent(Derived):
    """``base()`` of a weak reference: what it refers to, None once that is gone."""

    def after(self, base: str) -> str:
        return f"{base}()"


@dataclass(frozen=True)
class Constant(Source):
    """A number written in the program; ``text`` tells apart what compares equal (1, 1.0 and True, 0.0 and -0.0)."""

    text: str
    value: Any = field(compare=False)

    def __hash__(self) -> int:
        return hash(self.text)

    def render(self) -> str:
        return self.text


RELATIONS = frozenset((operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge))


@dataclass(frozen=True)
class Computed(Source):
    """What a builtin function gives for ``parts``: numbers from outside, constants, computed numbers. ``text`` is the
    expression with a hole for each part: Computed(operator.mod, "{} % {}", (Local("i"), Constant("4", 4))).
    """

    function: Callable[..., Any]
    text: str
    parts: tuple[Source, ...]

    def render(self) -> str:
        return self.filled([part.render() for part in self.parts])

    def filled(self, texts: list[str]) -> str:
        """The expression of texts of the parts; what is computed in it stands in parentheses."""
        closed = (f"({text})" if isinstance(part, Computed) else text for part, text in zip(self.parts, texts))
        return self.text.format(*closed)

    def is_relation(self) -> bool:
        """Whether it compares two numbers."""
        return self.function in RELATIONS

    def leaves(self) -> list[Source]:
        """The sources that it is computed from, each once."""
        found: dict[Source, None] = {}
        for part in self.parts:
            if isinstance(part, Computed):
                found.update(dict.fromkeys(part.leaves()))
            elif not isinstance(part, Constant):
                found[part] = None
        return list(found)


def tensor_size(tensor: Source, dim: int) -> Source:
    """``tensor.shape[dim]``."""
    return Item(Attr(tensor, "shape"), dim)


def is_tensor_size(source: Source) -> bool:
    """Whether a source is a tensor's size, or one of its strides."""
    if isinstance(source, StrideOf):
        return True
    return isinstance(source, Item) and isinstance(source.of, Attr) and source.of.name == "shape"
