"""Classes made inside: methods, inheritance, properties, slots, operators, and what lives on after the call."""

# ruff: noqa: B010, C408
from __future__ import annotations

import contextlib
import functools

from ..shared import Thing
from ..tables import tables

WHOLE, BREAKING, whole, breaking = tables()


@breaking
def class_inside(x):
    class A:
        k = 2

        def __init__(self, v):
            self.v = v

        def f(self, y):
            return y * self.v + self.k

    return A(3).f(x), A.k


@breaking
def class_inside_inherit(x):
    class A(Thing):
        def __init__(self):
            super().__init__(4)

        @property
        def w(self):
            return self.v + 1

        @staticmethod
        def s(a):
            return a + 1

        @classmethod
        def c(cls, a):
            return cls.__name__, a

    a = A()
    return x + a.w, a.s(1), a.c(2), isinstance(a, Thing)


@breaking
def class_inside_closure(x):
    n = 5

    class A:
        def f(self):
            return x + n

    return A().f()


@breaking
def type_3(x):
    C = type("C", (Thing,), {"q": 5})
    return C(2).v + C.q + x


@whole
def class_with_methods(x):
    class Scale:
        """Says what it is."""

        factor = 2

        def __init__(self, shift):
            self.shift = shift

        def __call__(self, t):
            return t * self.factor + self.shift

        @staticmethod
        def twice(t):
            return t * 2

        @classmethod
        def make(cls, n):
            return cls(n + 1)

        @property
        def doubled(self):
            return self.shift * 2

    s = Scale.make(3)
    return s(x), Scale.twice(x), s.doubled, Scale.__name__, Scale.__doc__, Scale.__qualname__, type(s) is Scale


@whole
def class_reads_tensors_around_it(x):
    y = x + 1

    class Adds:
        offset = x * 2

        def run(self, t):
            return t + y + self.offset

    return Adds().run(x), Adds.offset


@whole
def class_with_super(x):
    class Base:
        def run(self, t):
            return t + 1

    class Derived(Base):
        def run(self, t):
            return super().run(t) * 2

    class Third(Derived):
        def run(self, t):
            return super().run(t) - 1

    return Third().run(x), [c.__name__ for c in Third.__mro__], issubclass(Third, Base), isinstance(Third(), Derived)


@whole
def property_with_setter(x):
    class Box:
        def __init__(self):
            self._v = x

        @property
        def v(self):
            return self._v

        @v.setter
        def v(self, value):
            self._v = value * 2

        @v.deleter
        def v(self):
            self._v = None

    b = Box()
    b.v = x + 1
    out = b.v
    del b.v
    return out, b._v


@whole
def class_with_slots(x):
    class P:
        __slots__ = ("a", "b")

        def __init__(self, a, b):
            self.a, self.b = a, b

    p = P(x, 2)
    p.b += 1
    try:
        p.c = 1
    except AttributeError:
        p.b += 10
    return p.a * p.b


@whole
def class_with_operators(x):
    class V:
        def __init__(self, v):
            self.v = v

        def __add__(self, o):
            return V(self.v + o.v)

        def __eq__(self, o):
            return isinstance(o, V)

        def __getitem__(self, i):
            return self.v[i]

        def __len__(self):
            return 7

        def __iter__(self):
            yield self.v
            yield self.v + 1

        def __contains__(self, o):
            return o == 3

        def __enter__(self):
            return self.v

        def __exit__(self, *args):
            return False

    a, b = V(x), V(x * 2)
    with a as entered:
        z = entered * 3
    return (a + b).v, a == b, a[0], len(a), list(a), 3 in a, z


@whole
def exception_made_inside(x):
    class Failed(Exception):
        def __init__(self, code):
            super().__init__(f"code {code}")
            self.code = code

    class Worse(Failed):
        pass

    try:
        raise Worse(4)
    except Failed as e:
        return x * e.code, str(e), type(e).__name__


class Meta(type):
    made = []

    def __new__(mcs, name, bases, namespace, **kwargs):
        namespace["tag"] = name.lower()
        return super().__new__(mcs, name, bases, namespace)

    def __init__(cls, name, bases, namespace, extra=1):
        super().__init__(name, bases, namespace)
        cls.extra = extra

    def __len__(cls):
        return 5


@whole
def metaclass_of_the_users(x):
    class A(metaclass=Meta, extra=4):
        def run(self):
            return x * self.extra

    return A().run(), A.tag, len(A), type(A) is Meta


@whole
def total_ordering_inside(x):
    @functools.total_ordering
    class A:
        def __init__(self, n):
            self.n = n

        def __lt__(self, other):
            return self.n < other.n

        def __eq__(self, other):
            return self.n == other.n

    return x * (A(1) < A(2)), A(3) >= A(2), max([A(1), A(5)]).n


@whole
def type_with_three_arguments(x):
    A = type("A", (), {"n": 3, "run": lambda self, t: t * self.n})
    B = type("B", (A,), dict(n=4))
    return A().run(x) + B().run(x), B.__name__, B.__bases__[0] is A


@whole
def class_in_a_loop_and_comprehension(x):
    classes = []
    for n in range(3):

        class C:
            k = n

            def run(self, t):
                return t + self.k

        classes.append(C)
    return sum(c().run(x) for c in classes), [c.k for c in classes], classes[0] is classes[1]


@whole
def class_attributes_written_later(x):
    class A:
        n = 1

    A.n += 4
    A.fresh = x
    setattr(A, "other", 2)
    a = A()
    a.n += 1
    del A.other
    return A.fresh * a.n, A.n, hasattr(A, "other")


@whole
def nested_class(x):
    class Outer:
        class Inner:
            k = 3

        def run(self):
            return x * self.Inner.k

    return Outer().run(), Outer.Inner.__qualname__


@whole
def class_from_factory(x):
    def make(n):
        class Made:
            def run(self, t):
                return t * n

        return Made

    return make(2)().run(x) + make(3)().run(x)


@whole
def class_subclasses_builtin(x):
    class D(dict):
        def __missing__(self, key):
            return key * 2

    class L(list):
        def total(self):
            return sum(self)

    class N(int):
        def half(self):
            return self // 2

    d = D(a=1)
    return x * d["a"], d["bb"], L([x, x + 1]).total(), N(9).half()


@whole
def class_kept_and_used_by_returned_objects(x):
    class A:
        def __init__(self, v):
            self.v = v

        def run(self):
            return self.v + 1

    return A(x)


class_programs_returned = {}


@whole
def class_returned(x):
    class A:
        k = 3
        w = x + 1

        def run(self, t):
            return t + self.w

        @property
        def p(self):
            return self.k

    a = A()
    class_programs_returned["a"] = a.run(x), a.p, A.k
    return a.run(x)


@whole
def stateful_class_with_list_attribute(x):
    class A:
        seen = []

        def add(self, t):
            self.seen.append(t)
            return self

    A().add(x)
    A().add(x + 1)
    return A.seen


@whole
def contextmanager_class_inside(x):
    class Doubling(contextlib.ContextDecorator):
        def __enter__(self):
            return 2

        def __exit__(self, *error):
            return True

    with Doubling() as n:
        y = x * n
        raise ValueError
    return y


@whole
def hash_and_eq_inside(x):
    class K:
        def __init__(self, n):
            self.n = n

        def __repr__(self):
            return f"K({self.n})"

        def __str__(self):
            return "k" + str(self.n)

    k = K(2)
    table = {k: x}
    return table[k] + 1, f"{k} {k!r}"


@whole
def mixins(x):
    class AddMixin:
        def run(self, t):
            return super().run(t) + 1

    class MulMixin:
        def run(self, t):
            return super().run(t) * 2

    class Base:
        def run(self, t):
            return t

    class All(AddMixin, MulMixin, Base):
        pass

    return All().run(x)


@whole
def visitor_by_name(x):
    class Visitor:
        def visit(self, node):
            return getattr(self, f"visit_{type(node).__name__}", self.default)(node)

        def visit_int(self, n):
            return x * n

        def visit_str(self, s):
            return len(s)

        def default(self, n):
            return None

    v = Visitor()
    return [v.visit(1), v.visit("abc"), v.visit(2.0)]


@breaking
def class_across_a_break(x):
    class A:
        k = 2

        def __init__(self, t):
            self.t = t

        def run(self):
            return self.t * self.k

    a = A(x)
    if x.sum() > 0:
        return a.run()
    return A(x + 1).run()


@breaking
def class_body_with_a_break(x):
    class A:
        k = x.sum().item()

        def run(self):
            return x * self.k

    return A().run()
