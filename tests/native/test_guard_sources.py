"""What guards read, as a guard table reads it: whatever is rebound, changed or raises on the way."""

from __future__ import annotations

import collections
import gc
import sys
import types
import weakref
from typing import Any

import pytest
import torch
from tests.native.guard_tables import (
    BUFFER,
    WEIGHT,
    Net,
    X,
    check_one,
    function_of,
    net_guards,
    remembering,
)
from torch import nn

from torchglass.records.guards import Guard
from torchglass.records.sources import (
    Attr,
    Cell,
    DictKey,
    Fixed,
    Global,
    InstanceDict,
    Item,
    Local,
    Module,
    Referent,
    TypeOf,
)
from torchglass.runtime.guards import (
    build_table,
    evaluate,
    scope_of,
    write,
)

pytestmark = pytest.mark.usefixtures("many_dicts")


def test_globals_that_are_rebound() -> None:
    function = function_of(g=1.0, count=0, holder=types.SimpleNamespace(v=1))
    guards = [Guard(Global("g"), "constant", 1.0), Guard(Item(InstanceDict(Global("holder")), "v"), "constant", 1)]
    table = build_table(guards, [Global("holder")], function)
    scope = function.__globals__
    for i in range(20):
        scope["count"] = i
        scope["g"] = float("1.0")
        assert table.check((0,)) == (scope["holder"],)
    for i in range(20):  # floats at reused addresses
        scope["g"] = 2.0 + i
        assert table.check((0,)) is None
        scope["g"] = float("1.0")
        assert table.check((0,)) is not None
    scope["holder"] = types.SimpleNamespace(v=2)
    assert table.check((0,)) is None
    del scope["holder"]
    assert table.check((0,)) is None


def test_globals_of_other_modules_and_modules() -> None:
    assert check_one(Guard(Global("pi", "math"), "constant", 3.141592653589793), 0)
    assert check_one(Guard(Attr(Module("math"), "pi"), "constant", 3.141592653589793), 0)
    assert check_one(Guard(Attr(Attr(Module("torch"), "nn"), "Linear"), "identity", nn.Linear), 0)
    assert check_one(Guard(Attr(Module("math"), "__name__"), "constant", "math"), 0)
    assert not check_one(Guard(Attr(Module("math"), "missing"), "constant", 1), 0)
    with pytest.raises(KeyError):
        build_table([Guard(Global("x", "no.such.module"), "constant", 1)], [], function_of())
    with pytest.raises(KeyError):
        build_table([Guard(Local("no_such_parameter"), "constant", 1)], [], function_of())


@remembering
def test_attributes_of_modules_that_change() -> None:
    module = types.ModuleType("a_module_of_tests")
    module.value = 1
    sys.modules[module.__name__] = module
    function = function_of()
    table = build_table([Guard(Attr(Module(module.__name__), "value"), "constant", 1)], [], function)
    for _ in range(4):
        module.other = object()
        assert table.check((0,)) == ()
    assert table.evaluations <= 2
    module.value = 2
    assert table.check((0,)) is None
    del module.value
    assert table.check((0,)) is None
    del sys.modules[module.__name__]
    assert table.check((0,)) is None


def test_cells() -> None:
    def outer(v):
        def f(a):
            return v

        def rebind(new):
            nonlocal v
            v = new

        def unbind():
            nonlocal v
            del v

        return f, rebind, unbind

    f, rebind, unbind = outer([1])
    table = build_table([Guard(Item(Cell("v"), 0), "constant", 1)], [Cell("v")], f)
    for _ in range(3):
        assert table.check((0,)) == ([1],)
    rebind([2])
    assert table.check((0,)) is None
    rebind([1, 2])
    assert table.check((0,)) == ([1, 2],)
    unbind()
    assert table.check((0,)) is None


def test_items() -> None:
    default = collections.defaultdict(int, {"k": 1})
    assert check_one(Guard(Item(Local("a"), "k"), "constant", 1), default)
    assert not check_one(Guard(Item(Local("a"), "new"), "constant", 0), default)
    assert list(default) == ["k"]
    assert check_one(Guard(Item(Local("a"), -1), "constant", 3), (1, 2, 3))
    assert not check_one(Guard(Item(Local("a"), 3), "constant", 3), [1, 2, 3])
    assert not check_one(Guard(Item(Local("a"), -4), "constant", 3), [1, 2, 3])
    assert check_one(Guard(Item(Local("a"), (1, 2)), "constant", 3), {(1, 2): 3})
    assert check_one(Guard(Item(Local("a"), 0), "constant", "x"), collections.deque("xy"))
    assert check_one(Guard(DictKey(Local("a"), 1), "constant", "y"), dict.fromkeys("xyz"))
    ordered = collections.OrderedDict.fromkeys("xyz")
    table = build_table([Guard(DictKey(Local("a"), 0), "constant", "x")], [], function_of())
    assert all(table.check((ordered,)) == () for _ in range(3))
    ordered.move_to_end("x")
    assert table.check((ordered,)) is None


def test_types_and_attributes() -> None:
    class Base:
        value = 1

        @property
        def made(self) -> int:
            return 5

        def __getattr__(self, name: str) -> int:
            if name == "dynamic":
                return 7
            raise AttributeError(name)

    thing = Base()
    assert check_one(Guard(TypeOf(Local("a")), "identity", Base), thing)
    assert check_one(Guard(Attr(TypeOf(Local("a")), "value"), "constant", 1), thing)
    assert check_one(Guard(Item(InstanceDict(TypeOf(Local("a"))), "value"), "constant", 1), thing)
    for name, value in (("value", 1), ("made", 5), ("dynamic", 7)):
        assert check_one(Guard(Attr(Local("a"), name), "constant", value), thing)
        assert check_one(Guard(Local("a"), "has_attr", name), thing)
    assert check_one(Guard(Local("a"), "lacks_attr", "nothing"), thing)
    assert not check_one(Guard(Local("a"), "has_attr", "nothing"), thing)
    assert not check_one(Guard(InstanceDict(Local("a")), "length", 0), object())


def test_sources_that_raise_fail_quietly() -> None:
    class Rude:
        @property
        def value(self) -> int:
            raise SystemError("rude")

        def __len__(self) -> int:
            raise ValueError

        def __eq__(self, other: object) -> bool:
            raise AssertionError("nobody may ask")

        __hash__ = object.__hash__

    rude = Rude()
    a = Local("a")
    for guard in (
        Guard(Attr(a, "value"), "constant", 1),
        Guard(a, "has_attr", "value"),
        Guard(a, "lacks_attr", "value"),
        Guard(a, "length", 1),
        Guard(a, "constant", 1),
        Guard(a, "dict_has", 1),
        Guard(a, "dict_lacks", 1),
        Guard(a, "dict_keys", (1,)),
        Guard(Item(a, 0), "constant", 1),
    ):
        assert not check_one(guard, rude), guard
    assert check_one(Guard(a, "constant", rude), rude)
    assert not check_one(Guard(a, "constant", rude), Rude())


def test_live_values_may_change_the_world_while_guards_run(net: Net, x: torch.Tensor) -> None:
    class Trap:
        target: Any = None

        @property
        def value(self) -> int:
            if self.target is not None:
                self.target.fc = None
                self.target._buffers.clear()
                gc.collect()
            return 1

    def function(self, trap):
        return None

    guards = [g for g in net_guards(net, x) if g.source is not X]
    guards.append(Guard(Attr(Local("trap"), "value"), "constant", 1))
    table = build_table(guards, [WEIGHT, BUFFER, Attr(Local("trap"), "value")], function)
    trap = Trap()
    for _ in range(3):
        assert table.check((net, trap)) is not None
    trap.target = net
    fetched = table.check((net, trap))
    assert fetched is not None and fetched[0].shape == (4, 4) and fetched[2] == 1
    assert table.check((net, trap)) is None


def test_a_referent_is_followed_on_every_call() -> None:
    class Thing:
        pass

    first, second = Thing(), Thing()
    holder = {"r": weakref.ref(first)}
    table = build_table([Guard(Referent(Item(Local("a"), "r")), "identity", first)], [], lambda a: None)
    for _ in range(3):
        assert table.check((holder,)) is not None
    holder["r"] = weakref.ref(second)
    assert table.check((holder,)) is None
    holder["r"] = weakref.ref(first)
    assert table.check((holder,)) is not None
    holder["r"] = weakref.ref(Thing())
    assert table.check((holder,)) is None
    gone = weakref.ref(first)
    del first, holder, table
    gc.collect()
    assert check_one(Guard(Referent(Local("a")), "constant", None), gone)
    assert not check_one(Guard(Referent(Local("a")), "constant", None), 5)


def test_what_a_fixed_function_closes_over() -> None:
    count = 1

    def counting() -> int:
        return count

    cell = Attr(Item(Attr(Fixed(counting), "__closure__"), 0), "cell_contents")
    table = build_table([Guard(cell, "constant", 1)], [cell], lambda: None)
    for _ in range(3):
        assert table.check(()) == (1,)
    count = 2
    assert table.check(()) is None
    assert not evaluate(Guard(cell, "constant", 1), scope_of(lambda: None, ()))
    assert "E[0].__closure__[0].cell_contents" in write([Guard(cell, "constant", 1)], []).text
    count = 1
    assert table.check(()) == (1,)
