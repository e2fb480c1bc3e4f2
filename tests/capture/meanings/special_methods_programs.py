"""Special methods, construction and ``super``: what Python asks, and the words in which it refuses."""

# ruff: noqa: UP008
from __future__ import annotations

import weakref

from ..shared import says
from ..tables import tables

WHOLE, BREAKING, whole, breaking = tables()


class GA:
    def __init__(self):
        self.log = []

    def __getattr__(self, n):
        if n.startswith("q"):
            return n + "!"
        raise AttributeError(n)

    def __setattr__(self, n, v):
        object.__setattr__(self, n, v)

    def __delattr__(self, n):
        object.__delattr__(self, n)


@whole
def getattr_hooks(x):
    g = GA()
    g.a = 1
    del g.a
    return g.qq, hasattr(g, "zz"), getattr(g, "zz", 3), x + 1, hasattr(g, "a")


class GAB:
    def __init__(self):
        self.v = 3

    def __getattribute__(self, n):
        if n == "w":
            return 10
        return super().__getattribute__(n)


@whole
def getattribute_hook(x):
    g = GAB()
    return g.w + g.v + x


@whole
def items_of_tuples_refuse(x):
    held, texts = ([1], 2), []
    try:
        held[0] += [2]
    except TypeError as error:
        texts.append(str(error))
    try:
        del held[0]
    except TypeError as error:
        texts.append(str(error))
    return held, texts, x + 1


@whole
def super_many(x):
    return D4().go(x)


class A4:
    def go(self, x):
        return x + 1


class B4(A4):
    def go(self, x):
        return super().go(x) * 2


class C4(A4):
    def go(self, x):
        return super().go(x) * 3


class D4(B4, C4):
    def go(self, x):
        return super().go(x) - 1


@whole
def arguments_of_object_new(x):
    class Plain:
        pass

    class Passing:
        def __new__(cls, *args):
            return super().__new__(cls, *args)

    class Taking:
        def __init__(self, n):
            self.n = n

    class Number(int):
        pass

    return (
        x + 1, says(object.__new__, Plain, 1), says(Passing, 1), says(Plain, 1), says(Number.__new__, Number, 3),
        type(object.__new__(Taking, 1)).__name__, says(object.__new__, Number), type(Passing()).__name__,
    )  # fmt: skip


@whole
def results_of_special_methods(x):
    """What Python would not take from a special method it does not take here."""

    class Wrong:
        def wrong(self, *args):
            return 2.5

        __len__ = __index__ = __repr__ = __str__ = __int__ = __float__ = __iter__ = __bool__ = __hash__ = wrong

    class Negative:
        def __len__(self):
            return -1

        def __hash__(self):
            return -1

    class Started:
        def __init__(self):
            return 1

    asked = (len, repr, str, int, iter, bool, hash, [1].__getitem__, lambda v: f"{v}")
    said = [says(f, Wrong()) for f in asked]
    return x + 1, said, says(len, Negative()), says(bool, Negative()), hash(Negative()), says(Started)


@whole
def what_objects_pretend_to_be(x):
    class Real:
        pass

    class Proxy:
        def __init__(self, of):
            self._of = of

        @property
        def __class__(self):
            return type(self._of)

    class Storing:
        def __set__(self, owner, value):
            vars(owner)["kept"] = value

    class Owner:
        kept = Storing()

    owner = Owner()
    first = type(owner.kept).__name__
    owner.kept = 3
    group = ExceptionGroup("group", [ValueError()])
    return (
        x + 1, isinstance(Proxy(Real()), Real), isinstance(Proxy(3), Real), type(Proxy(Real())) is Proxy, first,
        owner.kept, says(setattr, group, "message", ""), str(object=3), says(dict, [(1,)]), says(dict, [1]),
    )  # fmt: skip


@whole
def what_super_and_weak_references_refuse(x):
    class Bare:
        __slots__ = ()

    class Referred:
        __slots__ = ("__weakref__",)

    class Proxy:
        def __init__(self, of):
            self._of = of

        @property
        def __class__(self):
            return type(self._of)

    class Base:
        def name(self):
            return "base"

    class Derived(Base):
        def name(self):
            return super(Derived, self).name() + " derived"

    kept = Referred()
    said = says(weakref.ref, Bare()), says(weakref.ref, [1]), weakref.ref(kept)() is kept
    return x + 1, said, Derived.name(Proxy(Derived())), says(Derived.name, Base()), says(super, Derived, 3)
