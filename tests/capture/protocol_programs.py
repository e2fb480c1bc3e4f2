"""Programs about Python's own protocols: construction, copying, descriptors and operators, down to the words of errors."""

# ruff: noqa
from __future__ import annotations

import abc, collections, copy, dataclasses, enum, functools, sys, types, typing, weakref

import torch
import torchglass as tg

from .tables import tables

WHOLE, BREAKING, whole, breaking = tables()


def says(function, *args):
    """What calling the function gives, or the words of what it raises."""
    try:
        return function(*args)
    except Exception as error:
        return type(error).__name__, str(error)


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
def copies_of_exceptions(x):
    """Fields that are given by keyword, attributes and the arguments themselves are those of the first."""
    missing = ImportError("no", name="module", path="file")
    missing.more = [2]
    one, other = copy.copy(missing), copy.deepcopy(missing)
    numbers = [1]
    wrong = ValueError("a", numbers)
    wrong.add_note("note")
    file = copy.copy(OSError(2, "none", "file"))
    return (
        x + 1, one.name, one.path, one.args, one.more is missing.more, other.name, other.more is missing.more,
        wrong.args[1] is numbers, copy.copy(wrong).args[1] is numbers, copy.deepcopy(wrong).args[1] is numbers,
        copy.copy(wrong).__notes__, type(file).__name__, file.errno, file.filename, file.args,
        copy.copy(StopIteration(3)).value, copy.copy(ExceptionGroup("group", [wrong])).exceptions,
    )  # fmt: skip


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


@breaking
def names_of_generators(x):
    def count():
        yield 1
        yield 2

    waiting, begun, done = count(), count(), count()
    count.__name__, count.__qualname__ = "counts", "that.counts"
    later = count()
    waiting.__name__, begun.__qualname__ = "first", "second.third"
    next(begun)
    list(done)
    named = [(g.__name__, g.__qualname__) for g in (waiting, begun, done)], says(setattr, done, "__name__", 3)
    tg.graph_break()
    count.__name__ = "again"
    return (
        x + 1,
        named,
        [(g.__name__, g.__qualname__) for g in (waiting, begun, done)],
        list(waiting),
        list(begun),
        later.__name__,
        later.__qualname__,
        count().__name__,
    )


@whole
def operators_by_descriptors(x):
    """Special methods that are no functions: None refuses, other descriptors are asked."""

    class Answer:
        def __call__(self, *args):
            return "answer", len(args)

    class Many:
        def named(self, name, other):
            return name

        __eq__, __add__ = functools.partialmethod(named, "eq"), functools.partialmethod(named, "add")
        __lt__, __neg__ = Answer(), Answer()
        __hash__ = None

        @staticmethod
        def __mul__(other):
            return "mul", other

        @classmethod
        def __sub__(cls, other):
            return cls.__name__, other

    class Refusing:
        __eq__ = __iadd__ = __contains__ = __iter__ = __reversed__ = __hash__ = None

        def __add__(self, other):
            return self

        def __len__(self):
            return 2

        def __getitem__(self, n):
            return (5, 6)[n]

    def in_place(value):
        value += 1
        return value

    many, no = Many(), Refusing()
    refused = [
        says(f, no) for f in (in_place, iter, reversed, lambda v: v == v, lambda v: 5 in v, lambda v: v + 1 is v)
    ]
    return x + 1, many == 1, many + 1, many < 1, -many, many * 2, many - 3, refused


@breaking
def operands_of_virtual_subclasses(x):
    asked = []

    class Base(abc.ABC):
        def __eq__(self, other):
            asked.append("base")
            return NotImplemented

    class Virtual:
        def __eq__(self, other):
            asked.append("virtual")
            return NotImplemented

    class Derived(Base):
        def __eq__(self, other):
            asked.append("derived")
            return NotImplemented

    Base.register(Virtual)
    return x + 1, Base() == Virtual(), Base() == Derived(), asked


@breaking
def abstract_classes_around_a_hook(x):
    """``__init_subclass__`` of the program's does not keep ABCMeta from what it does."""
    made = []

    class Registered:
        def __init_subclass__(cls, **keywords):
            super().__init_subclass__()
            made.append((cls.__name__, keywords))

    class Shape(Registered, abc.ABC, kind="shape"):
        @abc.abstractmethod
        def area(self): ...

    class Square(Shape):
        def area(self):
            return 4

    Shape.register(int)
    return x + Square().area(), says(Shape)[0], made, isinstance(3, Shape), issubclass(Square, Registered)


@whole
def class_methods_of_properties(x):
    return x + 1, ClassProperty.name, ClassProperty().name if sys.version_info < (3, 13) else None


class ClassProperty:
    @classmethod
    @property
    def name(cls):
        return cls.__name__


class Ordered(collections.OrderedDict):
    stored = 0

    def __setitem__(self, key, value):
        self.stored += 1
        super().__setitem__(key, value)


class Defaulting(collections.defaultdict):
    pass


@whole
def derived_from_ordered(x):
    """They store by their own ``__setitem__``, and copies and unions are of their class."""
    made = Ordered([("a", 1)], b=2)
    made.update({"c": 3})
    made.setdefault("d"), made.setdefault("d")
    made |= {"e": 5}
    others = [made | {"z": 1}, {"z": 1} | made, made.copy(), copy.copy(made), copy.deepcopy(made)]
    others.append(Ordered.fromkeys("ab", value=0))
    plain = [{"q": 1} | collections.OrderedDict(a=1), collections.OrderedDict.fromkeys("ab", value=0)]
    return x + 1, made.stored, [(type(o).__name__, o.stored, list(o.items())) for o in others], plain


@whole
def derived_from_defaulting(x):
    made = Defaulting(list, a=[1])
    made["b"].append(2)
    made.noted = 3
    copied = copy.deepcopy(made)
    copied["c"].append(4)
    others = [copied, made.copy(), copy.copy(made), made | {"z": 1}]
    rows = [(type(o).__name__, o.default_factory, dict(o), hasattr(o, "noted")) for o in others]
    plain = {"q": 1} | collections.defaultdict(int)
    return x + 1, rows, says(Defaulting, 3), says(lambda: Defaulting()["a"]), plain["none"], Defaulting(None, a=1)["a"]


@whole
def copies_of_slices(x):
    made = slice([1], 2)
    copied = copy.deepcopy(made)
    return x + 1, made == copied, made.start is copied.start, copy.copy(made) is made


@breaking
def derived_from_defaulting_across_a_break(x):
    made = Defaulting(list)
    made["a"].append(x + 1)
    tg.graph_break()
    made["b"].append(2)
    return dict(made), made.default_factory, type(made).__name__


@whole
def deques_in_operators(x):
    """Sums and products keep the greatest length, and no deque is equal to a list."""
    d = collections.deque("abcd", maxlen=4)
    twice = collections.deque("ab", 3)
    twice *= 2
    others = [d + collections.deque("ef"), twice, twice * 2, 2 * twice]
    compared = [d == list(d), d != list(d), list(d) == d, d == collections.deque("abcd"), d in [list(d)]]
    return x + 1, [(list(o), o.maxlen) for o in others], compared, collections.deque(iterable="abc", maxlen=2)


@whole
def deques_that_refuse(x):
    d = collections.deque("abc", maxlen=3)

    def store(n):
        d[n] = 1

    def discard(n):
        del d[n]

    said = [says(f, 7) for f in (d.__getitem__, store, discard)] + [says(f, "a") for f in (store, discard)]
    said += [says(lambda: d[0:1]), says(d.insert, 0, 1), says(collections.deque, "a", -1), says(collections.deque, 3)]
    return x + 1, said, says(collections.deque().popleft), list(d)


@whole
def deques_that_change_meanwhile(x):
    """Who goes through a deque, or compares its items, notices that it changed; writing an item is no change."""

    class Clearing:
        def __eq__(self, other):
            self.of.clear()
            return False

    changes = {
        "append": lambda d: d.append(1), "pop": lambda d: d.pop(), "rotate": lambda d: d.rotate(1),
        "appendleft": lambda d: d.appendleft(1), "insert": lambda d: d.insert(0, 1), "store": lambda d: store(d),
    }  # fmt: skip

    def store(d):
        d[1] = 9

    said = []
    for name, change in changes.items():
        d = collections.deque("abc")
        forward, backward = iter(d), reversed(d)
        next(forward)
        change(d)
        said.append((name, says(next, forward), says(next, backward)))
    for name in ("__contains__", "count", "index", "remove"):
        clearing = Clearing()
        clearing.of = collections.deque([1, clearing, 3])
        said.append((name, says(getattr(clearing.of, name), 5)))
    return x + 1, said


KEPT = collections.deque([1, 2, 3], 3)


@whole
def deques_from_outside(x):
    KEPT.append(KEPT[0] + 1)
    KEPT.appendleft(0)
    return x + 1, list(KEPT), KEPT + collections.deque([7]), 3 in KEPT, KEPT == list(KEPT), [n for n in reversed(KEPT)]


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


@whole
def enumerations_that_name_their_values(x):
    class Color(enum.Enum):
        def _generate_next_value_(name, start, count, last):
            return name

        RED = enum.auto()
        BLUE = enum.auto()

    made = enum.Enum("Made", "ONE TWO")
    return (
        x + 1,
        [c.value for c in Color],
        made.__module__,
        type("Plain", (), {}).__module__,
        says(delattr, Color, "RED"),
    )


@breaking
def enumerations_that_bind_a_name_twice(x):
    def make():
        class Twice(enum.Enum):
            RED = 1
            RED = 2

    return x + 1, says(make)


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


def called_by_two(function):
    @functools.wraps(function)
    def wrapper(a, b):
        return function(a, b)

    return wrapper


@called_by_two
def added(a, b):
    return a + b


@whole
def words_of_arguments_that_do_not_fit(x):
    """They name the function as it is called, not its code."""

    @dataclasses.dataclass
    class Point:
        across: int

    def named(a): ...

    named.__qualname__ = "given"
    return added(x, 1), says(added, 1), says(added, 1, 2, 3), says(lambda: added(c=1)), says(Point), says(named)


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


class Logged(type):
    seen: list = []

    def __new__(mcs, name, bases, namespace, **keywords):
        Logged.seen.append((name, keywords))
        return super().__new__(mcs, name, bases, namespace)

    def __init__(cls, name, bases, namespace, **keywords):
        Logged.seen.append(name)


class LoggedBase(metaclass=Logged):
    pass


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
def classes_by_type_of_bases_with_a_metaclass(x):
    Logged.seen = []
    made = type("Made", (LoggedBase,), {"level": 1}, more=2)
    return x + 1, type(made).__name__, made.level, Logged.seen


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


class Doubled(collections.namedtuple("Doubled", "once twice")):
    __slots__ = ()

    def __new__(cls, once):
        return super().__new__(cls, once, once * 2)

    def total(self):
        return self.once + self.twice


class Defaulted(typing.NamedTuple):
    first: int
    second: int = 3


@whole
def named_tuples_with_a_constructor(x):
    made = Doubled(x)
    said = says(Defaulted), says(Defaulted, 1, 2, 3), says(lambda: Defaulted(third=1)), says(Doubled, 1, 2)
    return made, made.total(), made._replace(twice=3), Defaulted(1), said


@whole
def order_of_ordered_dictionaries(x):
    one, other = collections.OrderedDict(a=1, b=2), collections.OrderedDict(b=2, a=1)
    return x + 1, one == other, one != other, one == dict(other), dict(one) == other, Ordered(a=1) == Ordered(a=1)


@breaking
def copies_of_mapping_proxies(x):
    return x + 1, types.MappingProxyType({"a": 1}).copy()


class Counted:
    """An iterator whose end has a value, which also takes what is sent to it."""

    def __init__(self):
        self.n = 0

    def __iter__(self):
        return self

    def __next__(self):
        self.n += 1
        if self.n > 2:
            raise StopIteration("end")
        return self.n

    def send(self, value):
        if value == "stop":
            raise StopIteration("stopped")
        return "sent", value


@whole
def values_of_ends(x):
    """What a generator returns and an iterator's StopIteration carries is there once, by whatever asks for it."""

    def end_of(step, *args):
        try:
            return step(*args)
        except StopIteration as error:
            return error.args, error.value

    def returning():
        yield 1
        return 5

    def waiting():
        got = yield from Counted()
        yield "got", got

    asked = []
    for step in (lambda g: next(g), lambda g: g.__next__(), lambda g: g.send(None), lambda g: next(g, "default")):
        generator = returning()
        asked.append([end_of(step, generator) for _ in range(3)])
    counted, sent = Counted(), waiting()
    asked.append([end_of(next, counted) for _ in range(3)])
    asked.append([next(sent), sent.send("x"), sent.send("stop"), end_of(next, sent), list(waiting())])
    return x + 1, asked


@whole
def strict_zips_that_end_differently(x):
    rows = [([1], [1, 2]), ([1, 2], [1]), ([1], [1], [1, 2]), ([1, 2], [1, 2], [1]), ([1], [2])]
    return x + 1, [says(lambda: list(zip(*row, strict=True))) for row in rows]


@breaking
def deques_that_change_before_a_break(x):
    d = collections.deque("abc")
    waiting = iter(d)
    next(waiting)
    d.popleft()
    tg.graph_break()
    return x + 1, says(next, waiting)


@whole
def enumerations_of_named_tuples(x):
    class Kept(enum.Enum):
        FIRST = Defaulted(1)
        SECOND = Defaulted(2, 4)

    return x + 1, repr(Kept.FIRST), Kept.SECOND.value.second, Kept(Defaulted(1)) is Kept.FIRST
