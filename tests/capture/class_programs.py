"""Programs that make classes: methods, inheritance, descriptors, metaclasses, dataclasses, enumerations, exceptions."""

# ruff: noqa
from __future__ import annotations

import abc, collections, contextlib, dataclasses, enum, functools, typing
from typing import Generic, NamedTuple, TypeVar

import torch
from torch import nn

from .tables import tables

WHOLE, BREAKING, whole, breaking = tables()


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


@whole
def dataclass_made_inside(x):
    @dataclasses.dataclass
    class Config:
        t: object
        n: int = 3
        names: list = dataclasses.field(default_factory=list)

        def run(self):
            return self.t * self.n

    c = Config(x, n=4)
    c.names.append("a")
    d = dataclasses.replace(c, n=5)
    return c.run() + d.run(), c.names, [f.name for f in dataclasses.fields(c)], d.names is c.names


@whole
def dataclass_with_options(x):
    @dataclasses.dataclass(frozen=True, order=True)
    class K:
        a: int
        b: int = 2

    k = K(1)
    try:
        k.a = 3
    except dataclasses.FrozenInstanceError:
        x = x + 1
    return x * k.b, K(1) < K(2), K(1) == K(1), hash(K(1)) == hash(K(1))


@whole
def dataclass_with_tensor_default(x):
    y = x * 2

    @dataclasses.dataclass(eq=False)
    class D:
        a: object = y

    return D().a + 1


@whole
def dataclass_inherits(x):
    @dataclasses.dataclass
    class A:
        a: int = 1

        def __post_init__(self):
            self.c = self.a + 1

    @dataclasses.dataclass
    class B(A):
        b: int = 2

    o = B(b=5)
    return x * (o.a + o.b + o.c), dataclasses.asdict(o)


@whole
def dataclass_with_slots(x):
    @dataclasses.dataclass(slots=True)
    class A:
        a: int = 1
        b: object = None

    return A(2, x).b * A(3).a


@whole
def named_tuple_made_inside(x):
    class P(NamedTuple):
        a: object
        b: int = 2

    p = P(x)
    q = p._replace(b=4)
    a, b = q
    return a * b + p.a, p._fields


@whole
def namedtuple_function_inside(x):
    P = collections.namedtuple("P", "a b")
    p = P(x, b=3)
    return p.a * p.b, P.__name__, P._fields


@whole
def enum_made_inside(x):
    class Color(enum.Enum):
        RED = 1
        BLUE = 2

        @property
        def double(self):
            return self.value * 2

    c = Color.BLUE
    if c is Color.BLUE:
        x = x * c.double
    return x, [m.name for m in Color], Color(1) is Color.RED, Color["RED"].value


@whole
def enum_with_auto_and_flags(x):
    class Kind(enum.IntEnum):
        A = enum.auto()
        B = enum.auto()

    class F(enum.Flag):
        R = enum.auto()
        W = enum.auto()

    both = F.R | F.W
    return x * Kind.B, F.R in both, len(list(Kind)), Kind.B + 1


@whole
def abstract_base_inside(x):
    class Shape(abc.ABC):
        @abc.abstractmethod
        def area(self): ...

    class Square(Shape):
        def area(self):
            return x * x

    try:
        Shape()
        made = True
    except TypeError:
        made = False
    return Square().area(), made, isinstance(Square(), Shape)


@whole
def generic_class_inside(x):
    T = TypeVar("T")

    class Holder(Generic[T]):
        def __init__(self, v):
            self.v = v

        def get(self):
            return self.v

    return Holder(x).get() + 1


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
def typed_dict_inside(x):
    class T(typing.TypedDict):
        a: int

    t: T = {"a": 3}
    return x * t["a"]


@whole
def protocol_inside(x):
    @typing.runtime_checkable
    class Runs(typing.Protocol):
        def run(self): ...

    class A:
        def run(self):
            return x + 1

    return A().run(), isinstance(A(), Runs)


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
def autograd_function_inside(x):
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, t):
            ctx.save_for_backward(t)
            return t * t

        @staticmethod
        def backward(ctx, g):
            (t,) = ctx.saved_tensors
            return 2 * t * g

    y = x.detach().requires_grad_(False)
    return Square.apply(y)


@whole
def autograd_function_inside_with_closure(x):
    factor = 3

    def times(t):
        return t * factor

    class Times(torch.autograd.Function):
        @staticmethod
        def forward(ctx, t):
            return times(t)

        @staticmethod
        def backward(ctx, g):
            return g * factor

    return Times.apply(x)


@breaking
def autograd_function_inside_reads_a_tensor(x):
    w = x * 2

    class Adds(torch.autograd.Function):
        @staticmethod
        def forward(ctx, t):
            return t + w

        @staticmethod
        def backward(ctx, g):
            return g

    return Adds.apply(x)


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
def class_with_class_getitem(x):
    class A:
        def __class_getitem__(cls, n):
            return n + 1

        def __getattr__(self, name):
            return name.upper()

    return x * A[3], A().word


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


@whole
def overrides_module_method(x):
    class Gelu(nn.Identity):
        scale = 2

        def forward(self, t):
            return super().forward(t) * self.scale

    return Gelu.__mro__[1] is nn.Identity, x + Gelu.scale


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


@breaking
def module_made_inside(x):
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.l = nn.Linear(4, 2)

        def forward(self, t):
            return self.l(t)

    return M()(x)
