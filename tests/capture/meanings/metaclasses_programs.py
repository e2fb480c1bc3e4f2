"""Metaclasses and ``__init_subclass__``."""

from __future__ import annotations

import enum

from ..shared import says
from ..tables import tables

WHOLE, BREAKING, whole, breaking = tables()


class Tagging(type):
    def __call__(cls, *args):
        made = super().__call__(*args)
        made.tag = cls.__name__
        return made


class Tagged(metaclass=Tagging):
    def __init__(self, value):
        self.value = value


@whole
def metaclass_call(x):
    made = Tagged(x)
    return made.value + 1, made.tag


class Base:
    subs = []

    def __init_subclass__(cls, **kw):
        super().__init_subclass__(**kw)
        Base.subs.append(cls.__name__)


@breaking
def init_subclass(x):
    class Sub(Base):
        pass

    return x + 1, Base.subs[-1]


class Meta(type):
    def __getitem__(cls, k):
        return (cls.__name__, k)

    def __len__(cls):
        return 7

    def __iter__(cls):
        return iter([1, 2])

    def __contains__(cls, k):
        return k == 3

    @property
    def prop(cls):
        return 11


class WithMeta(metaclass=Meta):
    pass


@whole
def metaclass_protocols(x):
    return WithMeta[3], len(WithMeta), list(WithMeta), 3 in WithMeta, WithMeta.prop, x + 1


REGISTRY: dict = {}


class Registers:
    def __init_subclass__(cls, key="none", **kwargs):
        super().__init_subclass__(**kwargs)
        REGISTRY[key] = cls.__name__
        cls.key = key


@whole
def init_subclass_runs_once(x):
    REGISTRY.clear()

    class A(Registers, key="a"):
        pass

    class B(A, key="b"):
        pass

    return x * len(REGISTRY), A.key, B.key, dict(REGISTRY)


@whole
def metaclass_made_inside(x):
    class M(type):
        def __call__(cls, *args):
            made = super().__call__(*args)
            made.seen = True
            return made

    class A(metaclass=M):
        def __init__(self, t):
            self.t = t

    a = A(x)
    return a.t + 1, a.seen


@whole
def class_cells_that_a_metaclass_loses(x):
    class Losing(type):
        def __new__(mcs, name, bases, namespace):
            namespace.pop("__classcell__")
            return super().__new__(mcs, name, bases, namespace)

    class Twice(type):
        def __new__(mcs, name, bases, namespace):
            made = super().__new__(mcs, name, bases, namespace)
            super().__new__(mcs, "Other", bases, namespace)
            return made

    class Wrong(type):
        def __new__(mcs, name, bases, namespace):
            return super().__new__(mcs, name, bases, {**namespace, "__classcell__": 5})

    def make(metaclass):
        class Made(metaclass=metaclass):
            def own(self):
                return __class__

    return x + 1, says(make, Losing), says(make, Twice), says(make, Wrong), says(make, type)


class Watching(type):
    seen: list = []

    def __setattr__(cls, name, value):
        Watching.seen.append(name)
        super().__setattr__(name, value)

    def __delattr__(cls, name):
        Watching.seen.append("-" + name)
        super().__delattr__(name)


class Watched(metaclass=Watching):
    pass


class Season(enum.Enum):
    SPRING = 1
    AUTUMN = 2


@whole
def writes_that_a_metaclass_watches(x):
    """The metaclass's own method runs once for each write, also where the write was there before the call."""
    Watching.seen = []
    Watched.level = 3
    Watched.level += 1
    type.__setattr__(Watched, "other", 5)

    class Inside(metaclass=Watching):
        pass

    Inside.kept, Inside.gone, Inside.lost = 1, 2, 3
    del Inside.gone
    type.__delattr__(Inside, "lost")
    left = hasattr(Inside, "gone"), hasattr(Inside, "lost"), Inside.kept
    return x + 1, Watched.level, Watched.other, Watching.seen, left, says(setattr, Season, "SPRING", 3)


class Logged(type):
    seen: list = []

    def __new__(mcs, name, bases, namespace, **keywords):
        Logged.seen.append((name, keywords))
        return super().__new__(mcs, name, bases, namespace)

    def __init__(cls, name, bases, namespace, **keywords):
        Logged.seen.append(name)


class LoggedBase(metaclass=Logged):
    pass


@whole
def classes_by_type_of_bases_with_a_metaclass(x):
    Logged.seen = []
    made = type("Made", (LoggedBase,), {"level": 1}, more=2)
    return x + 1, type(made).__name__, made.level, Logged.seen
