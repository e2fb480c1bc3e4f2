"""What a look-up found is relied on, also that it found nothing: special methods, bases, names of builtins."""

import abc
import contextlib
import functools
import os
import sys
import types
import typing
import weakref
from unittest import mock

import pytest
import torch

import torchglass as tg


@pytest.fixture(autouse=True)
def clean():
    tg.reset()


def world(source):
    """A module of the program's, whose functions are global names of its own."""
    module = types.ModuleType("world")
    module.__dict__.update(torch=torch, abc=abc, functools=functools, typing=typing)
    exec(source, module.__dict__)
    return module.__dict__


def outcome(function, x):
    try:
        return str(function(x))
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def entries(compiled):
    return len(list(tg.explain(compiled).all_entries()))


CLASS = "class Base: pass\nclass Thing(Base): pass\nthing, other = Thing(), Thing()\n"
META = "class Meta(type): pass\nclass Thing(metaclass=Meta): pass\n"
DESCRIPTOR = "class Plain: pass\nclass Thing:\n    d = Plain()\nthing = Thing()\n"
TRIED = "def f(x):\n    try:\n        return {}\n    except TypeError:\n        return x\n"

CHANGES = {
    "truth": (CLASS + "def f(x): return x + 1 if thing else x", "Thing.__bool__ = lambda self: False"),
    "truth_by_length": (CLASS + "def f(x): return x + 1 if thing else x", "Base.__len__ = lambda self: 0"),
    "call": (CLASS + TRIED.format("thing(x)"), "Base.__call__ = lambda self, x: x * 3"),
    "callable": (CLASS + "def f(x): return callable(thing)", "Thing.__call__ = lambda self, x: x * 3"),
    "length": (CLASS + TRIED.format("len(thing)"), "Thing.__len__ = lambda self: 3"),
    "iteration": (CLASS + TRIED.format("list(thing)"), "Thing.__iter__ = lambda self: iter((1, 2))"),
    "membership": (CLASS + TRIED.format("1 in thing"), "Thing.__contains__ = lambda self, item: True"),
    "equality": (CLASS + "def f(x): return thing == other, thing in [other]", "Base.__eq__ = lambda *_: True"),
    "order": (CLASS + TRIED.format("thing < other"), "Thing.__gt__ = lambda *_: True"),
    "hash": (CLASS + "def f(x): return len({thing: 1, other: 2})",
             "Thing.__hash__ = lambda _: 1; Thing.__eq__ = lambda *_: True"),
    "addition": (CLASS + TRIED.format("thing + 1"), "Thing.__add__ = lambda self, other: 5"),
    "reflected": (CLASS + TRIED.format("1 + thing"), "Thing.__radd__ = lambda self, other: 5"),
    "number": (CLASS + TRIED.format("int(thing)"), "Thing.__index__ = lambda self: 5"),
    "text": (CLASS + "def f(x): return str(thing) == 'a thing'", "Thing.__repr__ = lambda self: 'a thing'"),
    "with": (CLASS + "def f(x):\n    try:\n        with thing: return x + 1\n    except TypeError:\n        return x",
             "Thing.__enter__ = Thing.__exit__ = lambda *_: None"),
    "read": (CLASS + "thing.a = 1\ndef f(x): return x * thing.a", "Thing.__getattribute__ = lambda *_: 9"),
    "missing": (CLASS + "def f(x): return x * getattr(thing, 'a', 1)", "Thing.__getattr__ = lambda *_: 3"),
    "hidden": (CLASS + "thing.a = 1\ndef f(x): return x * thing.a", "Base.a = property(lambda self: 7)"),
    "written": (CLASS + "def f(x):\n    thing.a = 1\n    return vars(thing).pop('a', 0)",
                "Thing.__setattr__ = lambda self, name, value: None"),
    "made": (CLASS + "def f(x): return vars(Thing())", "Base.__init__ = lambda self: vars(self).update(a=1)"),
    "made_otherwise": (CLASS + "def f(x): return type(Thing()).__name__", "Thing.__new__ = lambda cls: 3"),
    "metaclass_call": (META + "def f(x): return Thing() is None", "Meta.__call__ = lambda cls: None"),
    "metaclass_truth": (META + "def f(x): return x + 1 if Thing else x", "Meta.__bool__ = lambda cls: False"),
    "metaclass_attribute": (META + "Meta.a = 1\ndef f(x): return x * Thing.a", "Thing.a = 2"),
    "metaclass_property": (META + "Thing.a = 1\ndef f(x): return x * Thing.a", "Meta.a = property(lambda cls: 2)"),
    "metaclass_missing": (META + "def f(x): return x * getattr(Thing, 'a', 1)", "Meta.__getattr__ = lambda *_: 2"),
    "descriptor": (DESCRIPTOR + "def f(x): return isinstance(thing.d, Plain)", "Plain.__get__ = lambda *_: 5"),
    "descriptor_replaced": ("class Get:\n    def __get__(self, *_): return 2\n" + DESCRIPTOR.replace("Plain", "Get")
                            + "def f(x): return x * thing.d", "Get.__get__ = lambda *_: 5"),
    "descriptor_set": (DESCRIPTOR + "def f(x):\n    thing.d = 1\n    return vars(thing).pop('d', 0)",
                       "Plain.__set__ = lambda *_: None"),
    "bases": (CLASS + "class New(Base): pass\ndef f(x): return isinstance(thing, New)", "Thing.__bases__ = (New,)"),
    "bases_of_an_error": ("class A(Exception): pass\nclass B(Exception): pass\nclass C(A): pass\n"
                          "def f(x):\n    try:\n        raise C\n    except B:\n        return x * 2\n    except A:\n"
                          "        return x", "C.__bases__ = (B,)"),
    "super": (CLASS + "class Sub(Thing):\n    def g(self): return getattr(super(), 'a', 1)\ns = Sub()\n"
              "def f(x): return x * s.g()", "Base.a = 2"),
    "abstract": (CLASS + "class Kind(abc.ABC): pass\ndef f(x): return isinstance(thing, Kind)",
                 "Kind.register(Thing)"),
    "abstract_class": (CLASS + "class Kind(abc.ABC): pass\ndef f(x): return issubclass(Thing, Kind)",
                       "Kind.register(Thing)"),
    "protocol": (CLASS + "@typing.runtime_checkable\nclass Kind(typing.Protocol):\n    def go(self): ...\n"
                 "def f(x): return isinstance(thing, Kind)", "thing.go = 1"),
    "instance_check": (META + "def f(x): return isinstance(3, Thing)", "Meta.__instancecheck__ = lambda *_: True"),
    "code_of_a_getter": (CLASS + "def g(self): return 2\nThing.p = property(g)\ndef f(x): return x * thing.p",
                         "g.__code__ = (lambda self: 9).__code__"),
    "dispatched_method": (CLASS + "class Kind:\n    @functools.singledispatchmethod\n    def g(self, a): return 1\n"
                          "kind = Kind()\ndef f(x): return x * kind.g(thing)",
                          "vars(Kind)['g'].register(Thing, lambda self, a: 2)"),
    "member_of_an_enumeration": ("import enum\nclass Kind(enum.Enum):\n    A = 1\nKind.A.k = 3\n"
                                 "def f(x): return x * Kind.A.k", "Kind.A.k = 5"),
    "class_made_inside": (CLASS + "Base.g = lambda self: 1\ndef f(x):\n    class Sub(Thing): pass\n"
                          "    return x * Sub().g()", "Thing.g = lambda self: 2"),
    "name": (CLASS + "def f(x): return type(thing).__name__", "Thing.__name__ = 'Other'"),
    "builtin": ("def f(x): return x * len([1, 2])", "len = lambda _: 7"),
    "builtin_of_another": ("def g(): return max(1, 2)\ndef f(x): return x * g()", "max = lambda *_: 7"),
    "no_such_name": (TRIED.replace("TypeError", "NameError").format("x * factor"), "factor = 3"),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_what_was_not_there_is_noticed(name):
    source, change = CHANGES[name]
    plain, mine = world(source), world(source)
    compiled = tg.compile(mine["f"], backend="eager")
    x = torch.arange(3.0)
    for _ in range(3):
        assert outcome(compiled, x) == outcome(plain["f"], x)
    before = outcome(compiled, x)
    for namespace in (plain, mine):
        exec(change, namespace)
    for _ in range(3):
        assert outcome(compiled, x) == outcome(plain["f"], x) != before


UNREAD = {
    "another_name": (CLASS + "def f(x): return x + 1 if thing else x", "Thing.a = 1"),
    "another_method": (CLASS + "def f(x): return thing == other", "Thing.__add__ = lambda self, other: 1"),
    "a_class_that_counts": (CLASS + "Thing.count = 0\ndef f(x): return x + 1 if thing else x", "Thing.count += 1"),
    "a_shadowed_value": (CLASS + "Thing.a = 1\nthing.a = 2\ndef f(x): return x * thing.a", "Thing.a = 3"),
    "another_global": ("def f(x): return x * len([1, 2])", "size = 3"),
}


@pytest.mark.parametrize("name", UNREAD)
def test_what_nobody_looked_for_is_not(name):
    source, change = UNREAD[name]
    namespace = world(source)
    compiled = tg.compile(namespace["f"], backend="eager")
    for _ in range(4):
        compiled(torch.ones(2))
        exec(change, namespace)
    assert entries(compiled) == 1


def asks_environment(x):
    return x * int(os.environ.get("TORCHGLASS_ASKED", "1")) + int(os.getenv("TORCHGLASS_ASKED", "2"))


def asks_arguments(x):
    return x * len(sys.argv), "--fast" in sys.argv


def asks_modules(x):
    return x * 2 if "torchglass_asked" in sys.modules else x


def asks_backends(x):
    return torch.backends.cudnn.benchmark, torch.backends.mkldnn.enabled, torch.backends.cuda.matmul.allow_tf32


def asks_precision(x):
    return torch.get_float32_matmul_precision()


def asks_threads(x):
    return torch.get_num_threads()


def asks_autocast(x):
    return torch.get_autocast_dtype("cpu"), torch.is_autocast_cache_enabled()


def asks_memory(x):
    return torch.utils.deterministic.fill_uninitialized_memory


def fill_memory(value):
    torch.utils.deterministic.fill_uninitialized_memory = value


@contextlib.contextmanager
def turned(setter, value, back):
    setter(value)
    try:
        yield
    finally:
        setter(back)


STATES = {
    asks_environment: lambda: mock.patch.dict(os.environ, TORCHGLASS_ASKED="5"),
    asks_arguments: lambda: mock.patch.object(sys, "argv", ["program", "--fast", "x"]),
    asks_modules: lambda: mock.patch.dict(sys.modules, torchglass_asked=sys),
    asks_backends: lambda: torch.backends.mkldnn.flags(enabled=False),
    asks_precision: lambda: turned(torch.set_float32_matmul_precision, "high", "highest"),
    asks_threads: lambda: turned(torch.set_num_threads, torch.get_num_threads() + 1, torch.get_num_threads()),
    asks_autocast: lambda: turned(functools.partial(torch.set_autocast_dtype, "cpu"), torch.float16, torch.bfloat16),
    asks_memory: lambda: turned(fill_memory, False, True),
}


@pytest.mark.parametrize("function", STATES)
def test_state_that_the_program_reads(function):
    compiled = tg.compile(function, backend="eager")
    x = torch.ones(2)
    before = str(compiled(x))
    assert str(compiled(x)) == before == str(function(x))
    with STATES[function]():
        assert str(compiled(x)) == str(function(x)) != before
    assert str(compiled(x)) == before


def test_state_that_the_program_turns_itself():
    def f(x):
        with torch.backends.mkldnn.flags(enabled=False):
            inside = torch.backends.mkldnn.enabled
        with torch.autocast("cpu", torch.float16):
            return x + 1, inside, torch.backends.mkldnn.enabled, torch.get_autocast_dtype("cpu")

    compiled = tg.compile(f, backend="eager")
    for _ in range(3):
        assert str(compiled(torch.ones(2))) == str(f(torch.ones(2)))
    assert entries(compiled) == 1


class Asking(type):
    def __instancecheck__(cls, value):
        return super().__instancecheck__(value)

    def __subclasscheck__(cls, other):
        return super().__subclasscheck__(other)


def test_bases_that_the_program_asks_type_for_are_relied_on():
    class Wanted:
        pass

    class Base:
        pass

    class Given(Base):
        pass

    def f(x, given):
        return x + type.__instancecheck__(Wanted, given) + 2 * type.__subclasscheck__(Wanted, Given)

    compiled, x = tg.compile(f, backend="eager", fullgraph=True), torch.zeros(2)
    assert torch.equal(compiled(x, Given()), f(x, Given()))
    Given.__bases__ = (Wanted,)
    assert torch.equal(compiled(x, Given()), f(x, Given())) and f(x, Given())[0] == 3


def test_bases_that_a_metaclass_asks_type_for_are_relied_on():
    class Wanted(metaclass=Asking):
        pass

    class Base:
        pass

    class Given(Base):
        pass

    def f(x, given):
        return x + isinstance(given, Wanted) + 2 * issubclass(Given, Wanted)

    compiled, x = tg.compile(f, backend="eager", fullgraph=True), torch.zeros(2)
    assert torch.equal(compiled(x, Given()), f(x, Given()))
    Given.__bases__ = (Wanted,)
    assert torch.equal(compiled(x, Given()), f(x, Given())) and f(x, Given())[0] == 3


def classes_of_one_base():
    """``Given``, ``Wanted``, which has nothing to do with it, and ``Below``, which derives from ``Given``."""
    base = type("Base", (), {})
    given = type("Given", (base,), {})
    return given, type("Wanted", (base,), {}), type("Below", (given,), {})


class Pretends:
    def __init__(self, cls):
        self.cls = cls

    @property
    def __class__(self):
        return self.cls


ASKED_OF_TYPE = {
    "an object made inside": lambda given, wanted, below: type.__instancecheck__(wanted, given()),
    "a class": lambda given, wanted, below: type.__subclasscheck__(wanted, given),
    "the methods of the class": lambda given, wanted, below: (
        wanted.__instancecheck__(given()) + 2 * wanted.__subclasscheck__(given)
    ),
    "a base of its base": lambda given, wanted, below: (
        type.__instancecheck__(wanted, below()) + 2 * type.__subclasscheck__(wanted, below)
    ),
    "the class that an object names": lambda given, wanted, below: (
        type.__instancecheck__(wanted, Pretends(given)) + 2 * isinstance(Pretends(given), wanted)
    ),
    "the order of its bases": lambda given, wanted, below: len(given.mro()) + len(type.mro(below)),
}


@pytest.mark.parametrize("asked", ASKED_OF_TYPE.values(), ids=ASKED_OF_TYPE)
def test_an_entry_is_not_used_after_the_bases_that_it_asked_for_have_changed(asked):
    given, wanted, below = classes_of_one_base()

    def f(x):
        return x + asked(given, wanted, below)

    compiled, x = tg.compile(f, backend="eager", fullgraph=True), torch.zeros(2)
    before = f(x)
    for _ in range(2):
        assert torch.equal(compiled(x), before)
    given.__bases__ = (wanted,)
    assert not torch.equal(f(x), before)
    for _ in range(2):
        assert torch.equal(compiled(x), f(x))
    assert entries(compiled) == 2


def test_type_knows_nothing_of_what_is_registered_with_an_abstract_class():
    class Kind(abc.ABC):  # noqa: B024
        pass

    given, _, _ = classes_of_one_base()

    def of_type(x):
        return x + type.__instancecheck__(Kind, given()) + 2 * type.__subclasscheck__(Kind, given)

    def of_kind(x):
        return x + isinstance(given(), Kind) + 2 * issubclass(given, Kind)

    def of_its_methods(x):  # these are C's, and look into a registry of their own: the graph breaks
        return x + Kind.__instancecheck__(given()) + 2 * Kind.__subclasscheck__(given)

    x = torch.zeros(2)
    compiled = [
        tg.compile(f, backend="eager", fullgraph=f is not of_its_methods) for f in (of_type, of_kind, of_its_methods)
    ]
    assert [f(x)[0].item() for f in compiled] == [0, 0, 0]
    Kind.register(given)
    assert [f(x)[0].item() for f in compiled] == [0, 3, 3]


def test_classes_that_derive_from_one_are_asked_for_at_each_call():
    given, _, _ = classes_of_one_base()
    compiled, x = tg.compile(lambda x: (x + 1, given.__subclasses__()), backend="eager"), torch.zeros(2)
    assert len(compiled(x)[1]) == 1
    later = type("Later", (given,), {})
    assert compiled(x)[1][-1] is later


def test_a_weak_proxy_is_of_the_class_that_it_stands_for():
    given, wanted, _ = classes_of_one_base()
    kept = given()

    def f(x, proxy):
        return x + isinstance(proxy, given) + 2 * isinstance(proxy, wanted) + 4 * type.__instancecheck__(given, proxy)

    compiled, x = tg.compile(f, backend="eager"), torch.zeros(2)
    assert compiled(x, weakref.proxy(kept))[0].item() == 5
    given.__bases__ = (wanted,)
    assert compiled(x, weakref.proxy(kept))[0].item() == 7
