"""Objects of the user's classes: attributes, slots, subclasses of builtins, class attributes."""

from __future__ import annotations

import collections
import collections.abc
import dataclasses
import enum
import operator
import types
from typing import Any, NamedTuple

import torch
from torch import nn

from ..tables import tables

WHOLE, BREAKING, whole, breaking = tables()


class Base:
    scale = 2

    def __init__(self, value):
        self.value = value

    @property
    def doubled(self):
        return self.value * 2

    @doubled.setter
    def doubled(self, new):
        self.value = new / 2

    @classmethod
    def make(cls, value):
        return cls(value)

    @staticmethod
    def helper(value):
        return value + 1

    def apply(self, x):
        return x * self.value


class Derived(Base):
    def __init__(self, value, extra):
        super().__init__(value)
        self.extra = extra

    def apply(self, x):
        return super().apply(x) + self.extra

    def __call__(self, x):
        return self.apply(x)

    def __getitem__(self, i):
        return self.value + i

    def __len__(self):
        return 3

    def __contains__(self, item):
        return item == self.value

    def __iter__(self):
        return iter([self.value, self.extra])

    def __add__(self, other):
        return Derived(self.value + other, self.extra)

    __radd__ = __add__

    def __eq__(self, other):
        return isinstance(other, Derived) and other.value == self.value

    def __hash__(self):
        return hash(self.value)

    def __getattr__(self, name):
        if name == "dynamic":
            return 42
        raise AttributeError(name)

    def __enter__(self):
        self.entered = True
        return self

    def __exit__(self, *exc):
        self.entered = False
        return True

    def __repr__(self):
        return f"Derived({self.value})"


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self, a):
        self.a = a
        self.b = a + 1


class Point(NamedTuple):
    px: int
    py: Any = 1


@dataclasses.dataclass
class Record:
    name: str
    value: Any = 0
    items: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Frozen:
    a: int
    b: Any


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Stack(list):
    def push(self, value):
        self.append(value)
        return self


@whole
def classes(x):
    d = Derived(2, 1)
    d.doubled = 8
    e = Derived.make
    total = d(x) + d[1] + len(d) + Base.helper(1) + d.scale + d.doubled
    with d as entered:
        assert entered.entered
        raise ValueError("swallowed")
    a, b = d
    return (
        total,
        d.dynamic,
        a,
        b,
        (4 in d),
        d == Derived(4, 0),
        hasattr(d, "nothing"),
        getattr(d, "extra", 0),
        callable(e),
    )


@whole
def operators_of_classes(x):
    return (Derived(1, 2) + 3).value, (3 + Derived(1, 2)).apply(x), repr(Derived(5, 1)), f"{Derived(6, 1)}"


@whole
def slots_and_records(x):
    s = Slotted(3)
    s.b = s.a * 2
    r = Record("n", x)
    r.items.append(1)
    f = Frozen(1, x)
    p = Point(3)
    q = p._replace(py=7) if False else Point(px=1, py=2)
    try:
        f.a = 2
    except dataclasses.FrozenInstanceError:
        r.items.append("frozen")
    return s.a + s.b, r.value + f.b, r.items, p.px + q.py, dataclasses.replace(r, name="m").name


@whole
def returned_objects(x):
    return Record("made", x + 1), Point(1, x), Derived(1, x), {"c": Color.RED}, Stack([1]).push(x)


@whole
def enums(x):
    table = {Color.RED: 2, Color.BLUE: 3}
    return x * table[Color.RED], Color.BLUE.value, Color["RED"].name, Color(2) is Color.BLUE, [c.name for c in Color]


@whole
def class_checks(x):
    return (
        isinstance(x, torch.Tensor),
        isinstance([], (list, tuple)),
        issubclass(Derived, Base),
        type(x) is torch.Tensor,
        int.__name__,
        callable(len),
        Derived.__mro__[1].__name__,
        x + 0,
    )


@whole
def copies(x):
    import copy

    a = {"list": [1, x], "record": Record("n", 3, [4]), "again": None}
    a["again"] = a["list"]
    b = copy.deepcopy({"n": [1, {2, 3}], "r": a["record"], "d": Derived(1, [2])})
    b["n"].append(5)
    c = copy.copy(a["record"])
    c.name = "m"
    number = 1
    number += x
    return b, a["record"].name, c.name, a["again"] is a["list"], number


@whole
def methods_of_subclasses(x):
    return x, operator.methodcaller("upper")("a"), collections.deque([1], maxlen=3)


@whole
def namespaces_returned(x):
    made = types.SimpleNamespace()
    made.a = x + 1
    return made


class Slots:
    __slots__ = ("a", "b")

    def __init__(self, a):
        self.a = a


@whole
def slots(x):
    s = Slots(1)
    s.b = x
    s.a += 1
    had = hasattr(s, "b")
    del s.b
    return s.a, had, hasattr(s, "b"), s


SLOT = Slots(3)


@whole
def slots_global(x):
    y = x + SLOT.a
    return y


class Outer:
    class Inner:
        val = 3

    registry = {}

    @classmethod
    def reg(cls, k):
        def d(f):
            cls.registry[k] = f
            return f

        return d


@Outer.reg("relu")
def _relu(x):
    return x.relu()


@whole
def registries(x):
    return Outer.registry["relu"](x), Outer.Inner.val


ACT = {"relu": nn.ReLU, "gelu": nn.GELU}


@whole
def class_table(x):
    return ACT["relu"]()(x)


class ModuleWithSlots(nn.Module):
    __slots__ = ("scale",)

    def forward(self, x):
        return x * self.scale


SLOTS = ModuleWithSlots()


@whole
def slots_of_modules(x):
    SLOTS.scale = 3
    return SLOTS(x), SLOTS.scale
