"""Programs over Python's own objects: containers, classes, descriptors, functools, itertools, strings, ..."""

# ruff: noqa
from __future__ import annotations

import collections, collections.abc, contextlib, copy, dataclasses, enum, functools, inspect, itertools, logging, math, operator, types, typing, warnings, weakref, abc, string, textwrap, json, re, random, sys, time, os, bisect, heapq, numbers, statistics, fractions, decimal, datetime, uuid, hashlib, string
from typing import Any, Dict, Generic, List, NamedTuple, Optional, Tuple, TypeVar, Union
import numpy as np
import torch, torch.nn.functional as F
from torch import nn

from .tables import tables

WHOLE, BREAKING, whole, breaking = tables()


# containers
@whole
def counter(x):
    c = collections.Counter("abracadabra")
    c.update("abc")
    c["z"] += 2
    d = collections.Counter(a=1)
    return c.most_common(2), c["q"], sorted((c + d).items()), sum(c.values()), x + c["a"], c


@whole
def counter_subtract(x):
    c = collections.Counter([1, 1, 2])
    c.subtract([1])
    return list(c.elements()), dict(c), x * 1, c - collections.Counter([2]), c & c, c | c


@whole
def chainmap(x):
    c = collections.ChainMap({"a": 1}, {"b": x})
    return c["a"], c["b"] + 1, len(c)


@whole
def userdict(x):
    class D(collections.UserDict):
        pass

    d = D(a=1)
    d["b"] = x
    return sorted(d), d["b"] + 1


class UD(collections.UserDict):
    pass


@whole
def userdict2(x):
    d = UD(a=1)
    d["b"] = x
    return sorted(d), d["b"] + 1


@whole
def singledispatch_(x):
    return show(1), show("s"), show(x), show([1])


@functools.singledispatch
def show(a):
    return ("other", a)


@show.register
def _(a: int):
    return ("int", a + 1)


@show.register(str)
def _(a):
    return ("str", a)


@show.register(torch.Tensor)
def _(a):
    return ("tensor", a + 1)


class SDM:
    @functools.singledispatchmethod
    def f(self, a):
        return ("any", a)

    @f.register
    def _(self, a: int):
        return ("int", a)


@whole
def singledispatchmethod_(x):
    s = SDM()
    return s.f(1), s.f("a"), x + 1


class Thing:
    def __init__(self, v=1):
        self.v = v


THING = Thing(3)
THING_REF = weakref.ref(THING)
THING_PROXY = weakref.proxy(THING)


@whole
def weak_ref_global(x):
    return x + THING_REF().v


@whole
def weak_ref_made(x):
    t = Thing()
    r = weakref.ref(t)
    return x + r().v, r() is t


@breaking
def weak_proxy(x):
    return x + THING_PROXY.v


WKD = weakref.WeakKeyDictionary()
WKD[THING] = 5
WVD = weakref.WeakValueDictionary()
WVD["a"] = THING


@whole
def weak_key_dict(x):
    return x + WKD[THING], THING in WKD


@whole
def weak_value_dict(x):
    return x + WVD["a"].v


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
def dataclass_inside(x):
    @dataclasses.dataclass
    class Q:
        a: int
        b: float = 2.0

    q = Q(1)
    return x + q.a + q.b


@breaking
def namedtuple_inside(x):
    T = collections.namedtuple("T", "a b")
    t = T(1, x)
    return t.a, t.b + 1


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


class Left:
    def __add__(self, other):
        return "left"

    __radd__ = __mul__ = __add__

    def __eq__(self, other):
        return False

    def __lt__(self, other):
        return True

    __hash__ = object.__hash__


class Right(Left):
    def __radd__(self, other):
        return "right"

    def __eq__(self, other):
        return True

    def __gt__(self, other):
        return "greater"

    __hash__ = object.__hash__


class OnlyReflected:
    def __radd__(self, other):
        return "reflected"


@whole
def operands_of_derived_classes_answer_first(x):
    left, right = Left(), Right()
    return left + right, right + left, left * right, left == right, right == left, left < right, 1 + left, x + 1


@breaking
def operands_of_one_class_are_not_asked_the_other_way_round(x):
    try:
        return OnlyReflected() + OnlyReflected(), x + 1
    except TypeError as error:
        return str(error), x + 2


@whole
def descriptors(x):
    h = HasDesc()
    a = h.d
    h.d = 4
    b = h.d
    del h.d
    return a, b, h.d, x + b, type(HasDesc.d).__name__


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


class HE:
    def __init__(self, k):
        self.k = k

    def __hash__(self):
        return hash(self.k)

    def __eq__(self, o):
        return isinstance(o, HE) and o.k == self.k

    def __repr__(self):
        return f"HE({self.k})"


@breaking
def user_hash_dict(x):
    d = {HE(1): x, HE(2): x + 1}
    d[HE(1)] = x * 3
    return d[HE(1)], len(d), HE(2) in d, HE(3) in d, len({HE(1), HE(1), HE(2)})


HED = {HE(1): 5}


@breaking
def user_hash_global(x):
    return x + HED[HE(1)]


@breaking
def user_hash_frozen_dataclass(x):
    d = {Frozen(1, 2): x}
    return d[Frozen(1, 2)] + 1, Frozen(1, 2) == Frozen(1, 2), hash(Frozen(1, 2)) == hash(Frozen(1, 2))


@dataclasses.dataclass(frozen=True)
class Frozen:
    a: int
    b: int = 3


class Color(enum.Enum):
    RED = 1
    BLUE = "b"

    @property
    def nice(self):
        return self.name.lower()


class Fl(enum.Flag):
    A = enum.auto()
    B = enum.auto()
    C = A | B


class IE(enum.IntEnum):
    X = 1
    Y = 2


class SE(str, enum.Enum):
    P = "p"


@whole
def enums(x):
    return (
        Color.RED.name,
        Color("b").value,
        Color["RED"] is Color.RED,
        Color.RED.nice,
        [c.name for c in Color],
        x * IE.Y,
        SE.P == "p",
        len(Color),
        Color.RED in Color,
        IE(2),
        SE("p").upper(),
    )


@whole
def flags(x):
    f = Fl.A | Fl.B
    return f == Fl.C, Fl.A in f, bool(f & Fl.A), ~Fl.A, f.value, x + f.value, list(f)


@whole
def enum_dict_keys(x):
    d = {Color.RED: x, Color.BLUE: x + 1}
    return d[Color("b")], {c: c.value for c in Color}


@whole
def enum_members(x):
    return (
        list(Color.__members__),
        Color.RED._value_,
        x + 1,
        isinstance(Color.RED, Color),
        str(Color.RED),
        f"{IE.X} {SE.P}",
        repr(Color.RED),
    )


@dataclasses.dataclass(kw_only=True)
class DC:
    a: int
    l: list = dataclasses.field(default_factory=list)
    t: Any = None
    n: int = dataclasses.field(init=False, default=9)

    def __post_init__(self):
        self.l.append(self.a)


@whole
def dataclass_kw(x):
    d = DC(a=1, t=x)
    e = dataclasses.replace(d, a=5)
    return (
        d,
        e,
        dataclasses.asdict(DC(a=3)),
        [f.name for f in dataclasses.fields(d)],
        d == d,
        dataclasses.is_dataclass(d),
    )


@whole
def dataclass_asdict_tensor(x):
    return dataclasses.asdict(DC(a=3, t=[x])), dataclasses.astuple(DC(a=2))


@whole
def dataclass_frozen(x):
    f = Frozen(1)
    try:
        f.a = 2
    except dataclasses.FrozenInstanceError as e:
        s = str(e)
    return f, s, x + f.b, repr(f), dataclasses.replace(f, b=5)


@dataclasses.dataclass(order=True)
class Ord:
    k: int
    v: Any = dataclasses.field(compare=False, default=None)


@whole
def dataclass_order(x):
    return sorted([Ord(3), Ord(1), Ord(2)]), Ord(1) < Ord(2), max(Ord(1), Ord(5)), x + 1


@dataclasses.dataclass(slots=True)
class DS:
    a: int
    b: Any = None


class NT(NamedTuple):
    a: Any
    b: int = 2

    def total(self):
        return self.a + self.b


@whole
def namedtuples(x):
    n = NT(x)
    m = n._replace(b=7)
    a, b = m
    return (
        n,
        m.total(),
        m._asdict(),
        NT._fields,
        NT._make([x, 1]),
        NT._field_defaults,
        a + b,
        n.index(2) if False else 0,
    )


@whole
def ordered_dict(x):
    d = collections.OrderedDict(a=1, b=x)
    d.move_to_end("a")
    d["c"] = 3
    k, v = d.popitem(last=False)
    return list(d), k, v + 1, d, list(reversed(d))


@whole
def default_dict(x):
    d = collections.defaultdict(list)
    d["a"].append(x)
    d["b"].append(1)
    e = collections.defaultdict(lambda: 5)
    e["q"] += 1
    return d, dict(e), "zz" in d, d.get("zz"), collections.defaultdict(int, {"a": 1})["b"]


@whole
def deques(x):
    d = collections.deque([1, 2, x], maxlen=3)
    d.append(4)
    d.appendleft(9)
    d.rotate(1)
    return d, len(d), d[0], list(reversed(d)), d.maxlen


@whole
def ranges(x):
    r = range(2, 10, 3)
    return (
        list(r),
        r[1],
        r[-1],
        len(r),
        5 in r,
        r.start,
        r.step,
        list(reversed(r)),
        r.index(5),
        x[range(2)[1]],
        r == range(2, 11, 3),
        r[1:],
    )


@whole
def slices(x):
    s = slice(1, None, 2)
    return x[s], s.start, s.indices(10), [1, 2, 3, 4][s], x[(slice(None), slice(0, 2))], s == slice(1, None, 2)


@breaking
def bytes_things(x):
    b = b"abc"
    ba = bytearray(b"xyz")
    ba[0] = 65
    ba += b"q"
    return (
        b[0],
        b.hex(),
        bytes(ba),
        len(ba),
        b.decode(),
        x + b[1],
        bytes([1, 2]),
        memoryview(b)[1],
        list(memoryview(b)),
        "é".encode(),
    )


@whole
def frozensets(x):
    f = frozenset([1, 2])
    return (
        f | {3},
        f & {1},
        {f: 1}[frozenset([2, 1])],
        sorted(f ^ {1, 9}),
        x + len(f),
        f <= {1, 2, 3},
        f.isdisjoint({4}),
    )


@whole
def set_ops(x):
    s = {1, 2, 3}
    s |= {4}
    s -= {1}
    s ^= {2, 9}
    s.add(x.shape[0])
    return sorted(s), s == {3, 4, 9}, {1, 2} < {1, 2, 3}, x + 1


@whole
def partials(x):
    f = functools.partial(torch.add, alpha=2)
    g = functools.partial(lambda a, b, c=1: a * b + c, x)
    return f(x, x), g(2), g(2, c=3), f.func is torch.add, f.keywords


class PM:
    def base(self, a, b):
        return a + b

    inc = functools.partialmethod(base, 1)

    @functools.cached_property
    def cp(self):
        self.n = getattr(self, "n", 0) + 1
        return self.n

    @functools.lru_cache(maxsize=None)
    def cached(self, a):
        return a * 2


@whole
def partialmethods(x):
    o = PM()
    return o.inc(5), o.cp, o.cp, o.n, x + o.inc(x)


@whole
def lru_method(x):
    o = PM()
    return o.cached(3), x + 1


@functools.lru_cache
def lru(a, b=1):
    return a + b


@whole
def lru_caches(x):
    return lru(1), lru(1, b=2), lru(2.5), x + lru(1)


@breaking
def lru_of_itself(x):
    seen = []

    @functools.lru_cache(None)
    def fibonacci(n):
        seen.append(n)
        return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)

    return x * fibonacci(6), seen, fibonacci.cache_info()


@functools.cache
def cached_tensor(n):
    return torch.arange(n)


@whole
def lru_tensor(x):
    return x[0, :3] + cached_tensor(3)


@functools.total_ordering
class TO:
    def __init__(self, v):
        self.v = v

    def __lt__(self, o):
        return self.v < o.v

    def __eq__(self, o):
        return self.v == o.v


@whole
def total_order(x):
    return (
        TO(1) <= TO(2),
        TO(3) > TO(1),
        TO(2) >= TO(2),
        [t.v for t in sorted([TO(3), TO(1)])],
        max(TO(1), TO(4)).v,
        x + 1,
    )


def deco(f):
    @functools.wraps(f)
    def g(*a, **k):
        return f(*a, **k) + 1

    return g


@whole
def wraps_inside(x):
    @deco
    def h(a):
        "doc"
        return a * 2

    return h(x), h.__name__, h.__wrapped__(x), h.__doc__


@whole
def reduces(x):
    return (
        functools.reduce(operator.add, [x, x, x]),
        functools.reduce(lambda a, b: a * b, [1, 2, 3], 1),
        functools.cmp_to_key(lambda a, b: b - a) is not None,
        sorted([1, 3, 2], key=functools.cmp_to_key(lambda a, b: b - a)),
    )


@whole
def itertools_all(x):
    I = itertools
    return (
        list(I.chain([1], [2])),
        list(I.islice(I.count(3, 2), 3)),
        list(I.zip_longest([1, 2], [3])),
        list(I.product([1, 2], "ab")),
        list(I.permutations([1, 2, 3], 2)),
        list(I.combinations([1, 2, 3], 2)),
        list(I.combinations_with_replacement("ab", 2)),
        list(I.accumulate([1, 2, 3])),
        list(I.accumulate([1, 2, 3], operator.mul, initial=2)),
        list(I.starmap(pow, [(2, 3)])),
        list(I.takewhile(lambda a: a < 3, [1, 2, 3])),
        list(I.dropwhile(lambda a: a < 3, [1, 2, 3, 1])),
        list(I.compress("abc", [1, 0, 1])),
        list(I.filterfalse(None, [0, 1])),
        [(k, list(g)) for k, g in I.groupby("aabb")],
        list(I.pairwise([1, 2, 3])),
        list(I.repeat(x, 2)),
        [list(t) for t in I.tee([1, 2], 2)],
        list(I.islice(I.cycle([1, 2]), 5)),
        list(I.chain.from_iterable([[1], [2]])),
    )


@whole
def operators_all(x):
    o = operator
    return (
        o.itemgetter(1)([1, 2]),
        o.itemgetter(0, 1)([x, 2]),
        o.attrgetter("v")(THING),
        o.methodcaller("sum", 0)(x),
        o.concat([1], [2]),
        o.countOf([1, 1], 1),
        o.indexOf([1, 2], 2),
        o.length_hint([1, 2]),
        o.index(3),
        o.truth([]),
        o.not_(1),
        o.is_(x, x),
        o.neg(x),
        o.matmul(x, x.T),
        o.abs(-3),
        o.floordiv(7, 2),
        o.contains([1], 1),
        o.getitem(x, 0),
        o.iadd(3, 4),
        o.inv(3),
        o.xor(1, 3),
    )


@whole
def copies(x):
    l = [1, [x, 2]]
    c = copy.copy(l)
    d = copy.deepcopy([1, [2, {"a": 3}]])
    t = copy.copy(THING)
    return c[1] is l[1], c, d, t.v, copy.copy((1, 2)), copy.copy({1, 2}), copy.deepcopy({"a": (1, [2])})


@whole
def deepcopy_instances(x):
    t = Thing([1, 2])
    d = copy.deepcopy(t)
    d.v.append(3)
    return t.v, d.v, x + 1


@breaking
def deepcopy_tensor(x):
    return copy.deepcopy(x), copy.copy(x), copy.deepcopy({"a": x})


T_ = TypeVar("T_")


class Gen(Generic[T_]):
    def __init__(self, v):
        self.v = v

    def get(self) -> T_:
        return self.v


def delegated_to(first, log):
    try:
        yield first
        yield first + 1
    except KeyError:
        log.append("key")
        return "returned"
    except ValueError:
        raise TypeError("from within")
    finally:
        log.append("done")


def delegating(first, log):
    try:
        log.append((yield from delegated_to(first, log)))
        yield "after"
    except TypeError as error:
        yield str(error)
    yield from [7, 8]


@whole
def exceptions_thrown_into_generators_that_delegate(x):
    log, out = [], []
    for kind in (KeyError, ValueError, RuntimeError, GeneratorExit):
        generator = delegating(1, log)
        out.append(next(generator))
        try:
            out.append(generator.throw(kind))
            out.append(list(generator))
        except (RuntimeError, GeneratorExit) as error:
            out.append(type(error).__name__)
    closed = delegating(2, log)
    next(closed)
    closed.close()
    return x + 1, out, log, list(closed)


@whole
def membership_in_generators(x):
    seen = []
    numbers = (seen.append(n) or n for n in range(5))
    return 2 in numbers, list(numbers), seen, 9 in map(abs, [-1, -2]), (1, "a") in zip([1], "a"), x + 1


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
def arguments_of_an_exception_written(x):
    error = ValueError(1, 2)
    error.args = (9,)
    try:
        raise error
    except ValueError as caught:
        return str(caught), caught.args, caught, x + 1


@whole
def types_of_builtins_and_abstract_classes(x):
    callables = collections.abc.Callable[[T], bool], collections.abc.Callable[..., int]
    others = collections.abc.Sequence[T], dict[str, T], tuple[int, ...], type[T]
    return callables, others, list[int]([1]), dict[str, int](a=x + 1)


@whole
def versions_compared(x):
    old = sys.version_info < (3, 8), (3, 8) > sys.version_info, sys.version_info[:2] >= (3, 8)
    return old, (sys.version_info.major, *sys.version_info[3:]), x + 1


@whole
def typing_things(x):
    g = Gen[int](3)
    h = Gen(4)
    a: Optional[int] = typing.cast(int, 3)
    return (
        g.get() + h.get() + a + x,
        typing.get_origin(list[int]) is list,
        typing.get_args(dict[str, int]),
        isinstance(g, Gen),
    )


def sig_target(a, b=2, *args, c, **kw):
    pass


@whole
def signatures(x):
    s = inspect.signature(sig_target)
    b = s.bind(1, c=3)
    b.apply_defaults()
    return list(s.parameters), s.parameters["b"].default, x + 1, dict(b.arguments), "c" in s.parameters


@whole
def inspect_more(x):
    return (
        inspect.isfunction(deco),
        inspect.isclass(Thing),
        inspect.ismethod(THING.__init__),
        inspect.getfullargspec(sig_target).args,
        x + 1,
    )


@contextlib.contextmanager
def cm(log, v):
    log.append("in")
    try:
        yield v
    finally:
        log.append("out")


@whole
def contexts(x):
    log = []
    with cm(log, x) as y:
        z = y + 1
    with contextlib.ExitStack() as st:
        st.enter_context(cm(log, 1))
        st.callback(log.append, "cb")
        z = z + 1
    with contextlib.nullcontext(3) as n:
        z = z + n
    with contextlib.suppress(ValueError):
        raise ValueError("a")
    with cm(log, 1), cm(log, 2) as two:
        z = z + two
    try:
        with cm(log, 1):
            raise KeyError("k")
    except KeyError:
        log.append("caught")
    return z, log


class CD(contextlib.ContextDecorator):
    def __enter__(self):
        LOGL.append(1)
        return self

    def __exit__(self, *a):
        LOGL.append(2)


LOGL = []


@CD()
def cd_fn(x):
    return x + 1


@whole
def context_decorator(x):
    n = len(LOGL)
    r = cd_fn(x)
    m = len(LOGL) - n
    del LOGL[:]
    return r, m


@breaking
def closing_redirect(x):
    class R:
        closed = False

        def close(self):
            self.closed = True

    r = R()
    with contextlib.closing(r):
        pass
    return r.closed, x


@whole
def warn(x):
    warnings.warn("careful")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        y = x + 1
    return y


logger = logging.getLogger(__name__)


@whole
def logs(x):
    logger.info("a %s", 1)
    logger.info("bb")
    logger.debug("x")
    logging.getLogger("q").debug("y")
    if logger.isEnabledFor(logging.DEBUG):
        x = x + 100
    return x + 1


@whole
def except_star(x):
    log = []
    try:
        raise ExceptionGroup("g", [ValueError(1), TypeError(2)])
    except* ValueError as e:
        log.append(len(e.exceptions))
    except* TypeError as e:
        log.append("t")
    return x + 1, log


@whole
def except_star_none(x):
    try:
        y = x + 1
    except* ValueError:
        y = x
    return y


@whole
def strings(x):
    s = "Hello World"
    return (
        s.lower(),
        s.split(),
        s.replace("l", "L"),
        s.find("W"),
        s[::-1],
        "-".join(["a", "b"]),
        s.startswith(("H", "x")),
        s.title(),
        s.center(20, "*"),
        "%s %d %.2f" % ("a", 1, 2.5),
        "{:>5}|{a!r}".format(3, a="z"),
        f"{3.14159:.2f} {s!r:>15} {x.shape} {x.shape[0]=}",
        s.partition(" "),
        s.encode(),
        "a,b".rsplit(",", 1),
        s.count("l"),
        s.isalpha(),
        "abc".translate({97: "z"}),
        str.maketrans("a", "b"),
        s.zfill(15),
        "x".ljust(3) + "|",
        s.casefold(),
        s.removeprefix("He"),
        "a\nb".splitlines(),
        s.format_map({}),
        s * 2,
        "lo" in s,
        ord("a"),
        chr(98),
        s.index("o"),
        x.sum(),
    )


@breaking
def string_template(x):
    return string.Template("$a b").substitute(a=1), textwrap.dedent("  a"), x + 1


@whole
def fstring_dtype(x):
    return f"{x.dtype} {x.device} {x.shape} {list(x.shape)} {x.dim()}"


@whole
def string_of_containers(x):
    return (
        str([1, "a", {"b": 2}]),
        repr((1, 2.5)),
        f"{[1, 2]} { {'a': 1} }",
        str({1}),
        str(None),
        str(slice(1, 2)),
        str(Color.RED),
        repr(Frozen(1)),
        x,
    )


@whole
def math_all(x):
    return (
        math.sqrt(2),
        math.pi * x,
        math.ceil(2.1),
        math.gcd(4, 6),
        math.isclose(1, 1.0),
        math.log2(8),
        math.inf,
        math.prod([1, 2]),
        math.fsum([0.1, 0.2]),
        math.hypot(3, 4),
        math.comb(5, 2),
        math.floor(-1.5),
        math.isqrt(10),
    )


@whole
def re_all(x):
    m = re.match(r"(\w+)\.(\d+)", "layer.12")
    return (
        m.group(1),
        int(m[2]) + x.shape[0],
        re.sub("a", "b", "aaa"),
        re.findall(r"\d", "1a2"),
        bool(re.search("z", "abc")),
        re.compile("a+").fullmatch("aaa") is not None,
        re.split(",", "a,b"),
    )


@breaking
def json_things(x):
    return json.dumps({"a": 1}), json.loads("[1, 2]"), x + 1


@breaking
def heap(x):
    h = [3, 1, 2]
    heapq.heapify(h)
    heapq.heappush(h, 0)
    return heapq.heappop(h), h, bisect.bisect([1, 3, 5], 3), heapq.nlargest(2, [1, 5, 3]), x


@whole
def numbers_(x):
    return (
        isinstance(3, numbers.Number),
        isinstance(2.5, numbers.Real),
        fractions.Fraction(1, 3) + 1,
        decimal.Decimal("1.5") * 2,
        statistics.mean([1, 2, 3]),
        x,
    )


@whole
def os_env(x):
    return os.environ.get("NOPE_X", "d"), os.path.join("a", "b"), "HOME" in os.environ, os.getenv("NOPE_X"), x


@whole
def int_things(x):
    return (
        int("12"),
        (5).bit_length(),
        int(3.7),
        divmod(7, 2),
        round(2.567, 2),
        abs(-3),
        pow(2, 3, 5),
        float("inf"),
        bin(5),
        hex(255),
        int("ff", 16),
        7 // 2,
        -7 % 3,
        (2.5).is_integer(),
        x,
        complex(1, 2),
        True + 1,
        0.1 + 0.2,
    )


@whole
def builtin_zoo(x):
    return (
        all([1, 0]),
        any([0, x.shape[0]]),
        sum([1, 2]),
        min(3, 1),
        max([1, 5], key=lambda a: -a),
        sorted("bca", reverse=True),
        list(zip([1], [2])),
        list(map(lambda a: a + 1, [1])),
        list(filter(None, [0, 1])),
        list(enumerate("ab", 1)),
        callable(len),
        isinstance(x, torch.Tensor),
        issubclass(bool, int),
        type(x) is torch.Tensor,
        getattr(x, "ndim"),
        hasattr(x, "zork"),
        hash("a") == hash("a"),
        len({**{"a": 1}}),
        list(reversed([1, 2])),
        dict(a=1),
        dict([("a", 1)]),
        dict(zip("ab", [1, 2])),
        next(iter([3])),
        next(iter([]), 5),
        vars(THING)["v"],
        list(dict.fromkeys([1, 1, 2])),
        repr(1),
        ascii("é"),
        format(3.14159, ".2f"),
        slice(1, 2),
        isinstance(3, int | str),
        isinstance(x, (int, torch.Tensor)),
    )


@whole
def sorted_keys(x):
    return (
        sorted([("b", 1), ("a", 2)], key=lambda t: t[0]),
        sorted({"b": 1, "a": 2}.items(), key=operator.itemgetter(1)),
        sorted([3, 1], key=None),
        [1, 3, 2].sort(),
        max({"a": 1, "b": 3}.items(), key=lambda kv: kv[1]),
        min([], default=0),
        x,
    )


@whole
def dict_methods(x):
    d = {"a": 1}
    d.setdefault("b", []).append(x)
    d.update(c=3)
    d |= {"e": 4}
    v = d.pop("a")
    w = d.pop("zz", 9)
    return (
        d,
        v,
        w,
        d.keys() & {"b"},
        list(d.items())[0][0],
        {k: v for k, v in d.items() if k != "b"},
        dict(d) == d,
        d.keys() == {"b", "c", "e"},
        "b" in d.keys(),
        list(reversed(d)),
        d.get("q"),
        dict.fromkeys("ab", 0),
    )


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


class Sized(abc.ABC):
    @abc.abstractmethod
    def f(self): ...
    @property
    @abc.abstractmethod
    def g(self): ...


class SizedImpl(Sized):
    def f(self):
        return 1

    @property
    def g(self):
        return 2


@whole
def abstract(x):
    s = SizedImpl()
    try:
        Sized()
    except TypeError as e:
        m = "abstract" in str(e)
    return (
        s.f() + s.g + x,
        m,
        isinstance(s, Sized),
        isinstance([], collections.abc.Sequence),
        isinstance({}, typing.Mapping),
        isinstance(x, collections.abc.Iterable),
    )


class Proto(typing.Protocol):
    def f(self): ...


@typing.runtime_checkable
class RProto(typing.Protocol):
    def f(self): ...


@whole
def protocols(x):
    return isinstance(SizedImpl(), RProto), isinstance(THING, RProto), x


class Ctx:
    def __enter__(self):
        self.e = 1
        return self

    def __exit__(self, t, v, tb):
        self.t = t
        return True


@whole
def exit_suppresses(x):
    with Ctx() as c:
        raise ValueError("q")
    return x + 1, c.e, c.t


@whole
def global_fn_attr(x):
    return x + fn_attr.count, fn_attr.__name__


def fn_attr():
    pass


fn_attr.count = 3


@whole
def fn_attr_inside(x):
    def g():
        return 1

    g.tag = 5
    return g.tag, g.__name__, getattr(g, "no", None), x


@whole
def annotated(x):
    def g(a: int, b: "str" = "q") -> float:
        return a

    return g(x), g.__defaults__, g.__code__.co_name


@whole
def datetime_(x):
    return datetime.timedelta(seconds=1).total_seconds(), x


@breaking
def exceptions_more(x):
    class MyErr(ValueError):
        pass

    try:
        try:
            raise MyErr("a", 1)
        finally:
            y = x + 1
    except (KeyError, ValueError) as e:
        z = e.args, type(e).__name__, isinstance(e, ValueError), repr(e)
    try:
        [][1]
    except IndexError as e:
        w = str(e)
    try:
        {}["a"]
    except LookupError as e:
        v = e.args
    try:
        int("a")
    except Exception as e:
        u = str(e)
    try:
        x.foo
    except AttributeError as e:
        t = str(e)
    try:
        assert False, "msg"
    except AssertionError as e:
        s = str(e)
    try:
        raise ValueError("a") from KeyError("b")
    except ValueError as e:
        r = type(e.__cause__).__name__, e.__suppress_context__
    try:
        1 / 0
    except ZeroDivisionError as e:
        q = str(e)
    return y, z, w, v, u, t, s, r, q


class Mod(nn.Module):
    def __init__(self):
        super().__init__()
        self.cfg = types.SimpleNamespace(a=1, b=[2])
        self.lin = nn.Linear(4, 4)
        self.table = {"k": nn.ReLU()}
        self.fn = torch.tanh
        self.lst = nn.ModuleList([nn.Linear(4, 4)])
        self.call = functools.partial(torch.mul, other=2) if False else None
        self.counter = collections.Counter()

    def forward(self, x):
        return self.table["k"](self.fn(self.lin(x))) + self.cfg.a + self.cfg.b[0] + sum(m(x) for m in self.lst)


MOD = Mod()


@whole
def module_attrs(x):
    return MOD(x)


@breaking
def module_methods(x):
    return (
        len(list(MOD.parameters())),
        [n for n, _ in MOD.named_modules()],
        MOD.training,
        sum(q.numel() for q in MOD.parameters()),
        next(MOD.parameters()).dtype,
        [n for n, _ in MOD.named_children()],
        MOD.get_submodule("lst.0")(x),
        MOD.lin.extra_repr(),
        isinstance(MOD.lst[0], nn.Linear),
        [type(m).__name__ for m in MOD.modules()],
        list(MOD.state_dict()),
    )


@breaking
def module_made_inside(x):
    l = nn.LayerNorm(4)
    return l(x)


@whole
def moduledict(x):
    return (
        MD["a"](x),
        "a" in MD,
        list(MD.keys()),
        [m(x) for m in MD.values()],
        len(MD),
        PL[0] + x,
        [q.shape for q in PL],
        PD["w"] * x,
    )


MD = nn.ModuleDict({"a": nn.ReLU(), "b": nn.Tanh()})
PL = nn.ParameterList([nn.Parameter(torch.ones(4))])
PD = nn.ParameterDict({"w": nn.Parameter(torch.ones(4))})


@whole
def str_enum_dispatch(x):
    match Color.RED:
        case Color.RED:
            r = 1
        case Color.BLUE:
            r = 2
    return x + r


@whole
def nested_functions_kw(x):
    def f(a, /, b, *, c=3, **k):
        return a * b + c + len(k)

    return f(x, 2), f(x, b=2, c=1, d=4), f(*[x, 1], **{"c": 0})


@whole
def global_write(x):
    global GW
    GW = GW + 1
    r = GW
    GW = 0
    return x + r


GW = 0


@whole
def locals_(x):
    a = 1
    d = locals()
    return sorted(k for k in d), x


@breaking
def globals_(x):
    return globals()["GW"], x


@breaking
def dir_(x):
    return "v" in dir(THING), x


@breaking
def type_3(x):
    C = type("C", (Thing,), {"q": 5})
    return C(2).v + C.q + x


@breaking
def property_inside(x):
    return property(lambda s: 1) is not None, x


@breaking
def bool_len_objs(x):
    class B:
        def __bool__(self):
            return False

    return not B(), x


@breaking
def str_methods_user(x):
    class S:
        def __str__(self):
            return "S!"

        def __format__(self, spec):
            return "F" + spec

    return str(S()), f"{S()}", f"{S():>3}", x


@whole
def int_subclass(x):
    return MyInt(3) + 1, x * MyInt(2), MyStr("a") + "b", MyList([1, 2])[0], len(MyDict(a=1)), MyFloat(2.0) * 2


class MyInt(int):
    pass


class MyStr(str):
    pass


class MyFloat(float):
    pass


class MyList(list):
    def first(self):
        return self[0]


class MyDict(dict):
    def __getattr__(self, n):
        return self[n]

    __setattr__ = dict.__setitem__


@whole
def attr_dict(x):
    d = MyDict(a=1)
    d.b = x
    return d.a, d.b + 1, list(d), d


GD = MyDict(w=3, l=[1])


@whole
def attr_dict_global(x):
    return x + GD.w + GD["l"][0]


@whole
def config_get(x):
    return x * getattr(THING, "v", 1) + vars(THING).get("q", 0)


@breaking
def uuid_hash(x):
    return hashlib.md5(b"a").hexdigest(), x


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
def walrus_loop(x):
    it = iter([1, 2, 3])
    t = 0
    while (v := next(it, None)) is not None:
        t += v
    return x + t


@whole
def star_expr(x):
    a, (b, *c), *d = 1, (2, 3, 4), 5, 6
    return a, b, c, d, x, [*range(3), *"ab"], {**{"a": 1}, "b": 2}, (*[1],), print if False else 1


@whole
def chained_compare(x):
    return 1 < 2 < 3, 1 < x.shape[0] <= 3, not 1 == 2 != 3, x


@whole
def is_none_defaults(x):
    def f(a=None, b=[]):
        b.append(1)
        return len(b), a is None

    return f(), f(), x


def mutable_default(x, acc=[]):
    acc.append(1)
    n = len(acc)
    acc.clear()
    return n


@whole
def mutable_default_global(x):
    return mutable_default(x), x


@whole
def isinstance_many(x):
    return (
        isinstance(x, nn.Parameter),
        isinstance(MOD, nn.Module),
        isinstance(MOD.lin.weight, nn.Parameter),
        isinstance(3, (int, float)),
        isinstance(True, int),
        isinstance(None, type(None)),
        isinstance(x.shape, tuple),
        isinstance(x.shape, torch.Size),
        type(x.shape).__name__,
        isinstance(x.dtype, torch.dtype),
        isinstance("a", str),
        isinstance(len, types.BuiltinFunctionType),
        isinstance(deco, types.FunctionType),
        isinstance(THING.__init__, types.MethodType),
    )


# --- keys whose classes say what is equal ---------------------------------------------------------------------------
class Key:
    def __init__(self, a):
        self.a = a

    def __hash__(self):
        return hash(self.a)

    def __eq__(self, other):
        return isinstance(other, Key) and self.a == other.a


@dataclasses.dataclass(frozen=True)
class FrozenKey:
    a: int
    b: str


KEYED = {Key(1): 2.0, Key(2): 3.0}


@whole
def own_hash_in_new_dicts(x):
    d = {Key(1): x, Key(2): x + 1}
    d[Key(1)] = x * 2
    del d[Key(2)]
    return d[Key(1)], Key(2) in d, len(d), d.get(Key(9)), (1, Key(1)) in {(1, Key(1)): 3}, [k.a for k in d]


@whole
def own_hash_in_sets(x):
    return x + len({Key(3), Key(3), Key(4)}), Key(3) in {Key(3)}, len({FrozenKey(1, "a"), FrozenKey(1, "a")})


@whole
def own_hash_in_dicts_from_outside(x):
    return x * KEYED[Key(2)], KEYED.get(Key(5), 7), Key(1) in KEYED, len(KEYED)


@whole
def own_hash_returned(x):
    d = {FrozenKey(1, "a"): x}
    return [(k.a, k.b, v) for k, v in d.items()], d[FrozenKey(1, "a")]


@whole
def functions_handed_to_functional(x):
    def distance(a, b):
        return (a - b).abs().sum(-1)

    loss = torch.nn.functional.triplet_margin_with_distance_loss
    return loss(x, x + 1, x + 2, distance_function=distance), loss(x, x, x, distance_function=nn.PairwiseDistance())


T = TypeVar("T")


class Boxed(Generic[T]):
    def __init__(self, value):
        self.value = value


@whole
def types_written_inside(x):
    def inner(y: Tuple[int, T], z: Optional[List[int]] = None) -> List[T]:
        return y

    made = List[torch.Tensor], Dict[str, Union[int, None]], List[T][int], list[int]
    return inner(x), [str(t) for t in made], sorted(inner.__annotations__), made[0] is List[torch.Tensor]


@whole
def generic_class_called(x):
    return Boxed[int](x + 1).value, isinstance(Boxed[int](3), Boxed)


@whole
def annotated_for_torchscript(x):
    return torch.jit.annotate(List[torch.Tensor], [x])[0]


@breaking
def type_of_a_number_of_the_data(x):
    return x, str(Tuple[(int,) * int(x.sum().item() > 0)])


# --- copies -----------------------------------------------------------------------------------------------------------
class Slotted:
    __slots__ = ("a", "b", "__private")

    def __init__(self, a, b):
        self.a, self.b, self.__private = a, b, 3

    def private(self):
        return self.__private


class Stated:
    def __init__(self, value):
        self.value, self.cache = value, "never copied"

    def __getstate__(self):
        return {"value": self.value}

    def __setstate__(self, state):
        self.__dict__.update(state, cache="made anew")


class Reduced:
    def __init__(self, value):
        self.value, self.log = value, ["init"]

    def __reduce__(self):
        return Reduced, (self.value,), {"extra": 5}


class Tagged(dict):
    tag = None


class Stack(list):
    pass


@whole
def copies_of_every_kind(x):
    found = []
    for do in (copy.copy, copy.deepcopy):
        for value in (
            [x, [1]], {"a": [x]}, {1, 2}, collections.deque([[1], x], maxlen=3), collections.OrderedDict(a=[1]),
            collections.defaultdict(list, a=[1]), collections.Counter("aab"), ([1], x), (1, 2),
        ):  # fmt: skip
            made = do(value)
            found.append((made, made is value, type(made) is type(value)))
    return found


@whole
def copies_of_objects(x):
    found = []
    for do in (copy.copy, copy.deepcopy):
        slotted = do(Slotted(x, [1]))
        stated, reduced = do(Stated([x])), do(Reduced([x]))
        tagged = Tagged(a=[1])
        tagged.tag = [2]
        tag = do(tagged)
        stack = do(Stack([x, [1]]))
        found.append((slotted.a, slotted.b, slotted.private(), vars(stated), vars(reduced)))
        found.append((dict(tag), tag.tag, tag["a"] is tagged["a"], tag.tag is tagged.tag, list(stack), type(stack)))
    return found


@whole
def copies_of_bound_methods_and_partials(x):
    owner = Reduced([1])
    bound = copy.deepcopy(owner.__reduce__)
    partial = copy.deepcopy(functools.partial(list.append, owner.value))
    owner.value.append(2)
    partial(3)
    return bound()[1], owner.value, x


@whole
def copies_keep_cycles_and_sharing(x):
    shared = [x]
    holder = types.SimpleNamespace()
    holder.me, holder.pair = holder, [shared, shared]
    made = copy.deepcopy(holder)
    return made.me is made, made.pair[0] is made.pair[1], made.pair[0] is shared, made.pair


# --- iterators whose users see how far they went ----------------------------------------------------------------------
@whole
def windows_take_what_python_takes(x):
    found = []
    for bounds in ((3,), (0, 5, 3), (2, 2), (4, 1), (1, None, 2), (0,)):
        numbers = iter(range(8))
        found.append((list(itertools.islice(numbers, *bounds)), list(numbers)))
    for wrong in ((-1,), (0, 3, 0), (0, "a"), (-2, 3)):
        try:
            itertools.islice([1], *wrong)
        except ValueError as error:
            found.append(str(error))
    return found, x


@whole
def groups_end_when_the_next_begins(x):
    late = [(k, g) for k, g in itertools.groupby("aabbc")]
    first = []
    for k, g in itertools.groupby([1, 1, 2, 3, 3], lambda n: n > 1):
        first.append((k, next(g)))
    return [(k, list(g)) for k, g in late], first, [(k, [*g]) for k, g in itertools.groupby("xxy")], x


@whole
def errors_of_builtins_that_loop(x):
    found = []
    for do in (
        lambda: functools.reduce(operator.add, []),
        lambda: sum(["a"], ""),
        lambda: min([]),
        lambda: operator.indexOf([1], 2),
        lambda: operator.concat(1, 2),
        lambda: setattr([], "name", 1),
    ):
        try:
            do()
        except (TypeError, ValueError, AttributeError) as error:
            found.append((type(error), str(error)))
    return found, x


@whole
def operators_that_write(x):
    rows = [1, 2, x]
    operator.delitem(rows, 0)
    same = operator.iconcat(rows, [3])
    return rows, same is rows, operator.abs(-x), typing.get_type_hints(Slotted.__init__), issubclass(dict, typing.Dict)


# --- descriptors ------------------------------------------------------------------------------------------------------
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


class ModuleWithSlots(nn.Module):
    __slots__ = ("scale",)

    def forward(self, x):
        return x * self.scale


SLOTS = ModuleWithSlots()


@whole
def slots_of_modules(x):
    SLOTS.scale = 3
    return SLOTS(x), SLOTS.scale


@whole
def sets_in_order(x):
    """Sets give their members in the order of a real set, and keep the member that was there first."""
    one, other = {3, 1, x.shape[0] + 6}, {17, 9, 1, x.shape[0]}
    return (
        list(one), list(other), list(one | other), list(one & other), list(one - other), list(one ^ other),
        list(frozenset([5, 3, 1])), [n for n in {10, 9, 2}], next(iter({4, 3, 2})), sorted(one.union([0, 5])),
        [type(n) for n in {1} | {True}], [type(n) for n in {True}.union([1])], one.pop(), list(one), x + 1,
    )  # fmt: skip


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


def returning(value=None):
    yield 1
    return value


class Ending:
    def __iter__(self):
        return self

    def __next__(self):
        raise StopIteration("over", 2)


@whole
def what_generators_return(x):
    """It is in the exception that says that the generator is over, once."""
    found = []
    for value in None, 5:
        for ask in next, lambda g: g.send(None), lambda g: g.__next__(), list:
            g = returning(value)
            next(g)
            for _ in range(2):
                try:
                    found.append(ask(g))
                except StopIteration as error:
                    found.append((error.args, error.value))
    try:
        next(Ending())
    except StopIteration as error:
        found.append(error.args)
    return x, found, next(Ending(), 3)
