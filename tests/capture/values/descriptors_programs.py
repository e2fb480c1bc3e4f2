"""Descriptors and properties."""

from __future__ import annotations

import functools
import sys

from ..shared import says
from ..tables import rand, table, tables

WHOLE, BREAKING, whole, breaking = tables()
PROGRAMS, program = table()


class Desc:
    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, obj, cls=None):
        return self if obj is None else getattr(obj, self.name, 0)

    def __set__(self, obj, v):
        setattr(obj, self.name, v * 2)

    def __delete__(self, obj):
        delattr(obj, self.name)


class HasDesc:
    d = Desc()


@whole
def descriptors(x):
    h = HasDesc()
    a = h.d
    h.d = 4
    b = h.d
    del h.d
    return a, b, h.d, x + b, type(HasDesc.d).__name__


@breaking
def property_inside(x):
    return property(lambda s: 1) is not None, x


class Doubling:
    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, instance, owner=None):
        return self if instance is None else getattr(instance, self.name) + 1

    def __set__(self, instance, value):
        setattr(instance, self.name, value * 2)


class ReprText:
    value = Doubling()

    @property
    def level(self):
        return self._level

    @level.setter
    def level(self, new):
        self._level = new


class DescribedAgain(ReprText):
    value = 5

    @property
    def level(self):
        return super().level + 1

    @level.setter
    def level(self, new):
        ReprText.level.fset(self, new + 1)


@whole
def descriptors_by_super(x):
    held = DescribedAgain()
    ReprText.value.__set__(held, x)
    held.level = 3
    first = held.level
    ReprText.level.__set__(held, 7)
    above = super(DescribedAgain, held)
    return above.value, above.level, first, held.level, ReprText.value.__get__(held), ReprText.level.__get__(held)


class Noted:
    """A class that is told of what is written to its objects."""

    def __init__(self):
        self.n = 1

    def __setattr__(self, name, value):
        self.__dict__.setdefault("log", []).append(name)
        object.__setattr__(self, name, value)

    @functools.cached_property
    def once(self):
        return self.n + 1


@whole
def cached_property_goes_past_setattr(x):
    o = Noted()
    return o.once, o.once, o.log, vars(o), x + o.once


class Named:
    names = []

    def __set_name__(self, owner, name):
        self.name = name
        self.owner_name = owner.__name__

    def __get__(self, instance, owner=None):
        return self if instance is None else instance.__dict__.get(self.name, 0) + 1

    def __set__(self, instance, value):
        instance.__dict__[self.name] = value


@whole
def descriptors_with_set_name(x):
    class A:
        f = Named()
        g = Named()

    a = A()
    a.f = x
    return a.f, a.g, A.f.name, A.g.owner_name


@whole
def cached_property_inside(x):
    class A:
        runs = 0

        @functools.cached_property
        def v(self):
            self.runs += 1
            return x * 2

    a = A()
    return a.v + a.v, a.runs


@whole
def properties_without_a_function(x):
    """They say the name that they were given first, if any."""

    class Owner:
        named = property(None)

        @property
        def read(self):
            return 1

    Owner.again, Owner.nameless = Owner.read, property()
    owner, said = Owner(), []
    for name in ("named", "again", "nameless", "read"):
        said += [says(getattr, owner, name), says(setattr, owner, name, 1), says(delattr, owner, name)]
        held = vars(Owner)[name]
        said += [says(held.__get__, owner), says(held.__set__, owner, 1), says(held.__delete__, owner)]
    return x + 1, said


@whole
def class_methods_of_properties(x):
    return x + 1, ClassProperty.name, ClassProperty().name if sys.version_info < (3, 13) else None


class ClassProperty:
    @classmethod
    @property
    def name(cls):
        return cls.__name__


@whole
def documents_of_properties(x):
    class Owner:
        kept = property(doc="kept")

        @kept.getter
        def kept(self):
            """of the getter"""
            return 1

        @property
        def read(self):
            """first"""
            return 1

        @read.getter
        def read(self):
            """second"""
            return 2

        @read.setter
        def read(self, value):
            self.value = value

    owner = Owner()
    owner.read = 3
    return x + 1, Owner.kept.__doc__, Owner.read.__doc__, owner.kept, owner.read, owner.value


class Counting:
    asked: list = []

    def __call__(self, *args):
        Counting.asked.append(len(args))


class ByCallables:
    __set__ = Counting()
    __delete__ = Counting()


class HeldByCallables:
    held = ByCallables()


@whole
def descriptors_of_callable_objects(x):
    Counting.asked = []
    owner = HeldByCallables()
    owner.held = 3
    del owner.held
    return x + 1, Counting.asked, vars(owner)


class Pretending:
    @property
    def __class__(self):
        return int

    @property
    def __name__(self):
        return "named"

    @property
    def __doc__(self):
        return "document"

    @property
    def __module__(self):
        return "module"


PRETENDING = Pretending()


@whole
def properties_under_names_that_classes_have(x):
    one = PRETENDING
    return (
        x + 1,
        one.__class__,
        one.__name__,
        one.__doc__,
        isinstance(one, int),
        type(one).__name__,
        Pretending().__name__,
    )


@program
def property_that_counts():
    class P:
        def __init__(self):
            self.reads = 0

        @property
        def v(self):
            self.reads += 1
            return self.reads

    p = P()
    return lambda x: (x * p.v + p.v, p.reads), [(rand(2),)] * 3
