"""Attributes of classes that change between calls."""

from __future__ import annotations

from ..tables import rand, table

PROGRAMS, program = table()


@program
def class_attribute_counter():
    class C:
        count = 0
        names = {}

        def __init__(self, v):
            type(self).count += 1
            self.v = v
            C.names[self.count] = v

    return lambda x: (C(x).v + C.count, C.count, sorted(C.names)), [(rand(2),)] * 3


class Base:
    level = 1


class Child(Base):
    pass


@program
def class_attributes_through_subclasses():
    def f(x):
        Base.level += 1
        a = Child().level, Child.level, Base().level
        Child.level = 10
        b = Child().level, Base.level
        del_later = Child()
        del_later.level = 3
        return x * a[0], a, b, del_later.level

    Base.level = 1
    if "level" in Child.__dict__:
        del Child.level
    return f, [(rand(2),)] * 3
