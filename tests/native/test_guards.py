"""The guard table: what it must notice once it remembers, what it must not keep alive, and its Python side."""

from __future__ import annotations

import ast
import collections
import copy
import dataclasses
import gc
import itertools
import math
import operator
import sys
import types
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from torchglass import _native
from torchglass.records.guards import CHECKS, Guard, TensorMeta
from torchglass.records.origin import Origin
from torchglass.records.sources import (
    Attr,
    Cell,
    Computed,
    Constant,
    DictKey,
    Fixed,
    Global,
    InstanceDict,
    Item,
    Local,
    Module,
    Referent,
    Source,
    TypeOf,
)
from torchglass.runtime.guards import (
    build_table,
    evaluate,
    explain_failure,
    global_state,
    render,
    scope_of,
    write,
)

pytestmark = pytest.mark.usefixtures("many_dicts")


class Net(nn.Module):
    """A module in a module, with a constant, a list and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.register_buffer("b", torch.zeros(3))
        self.scale = 3
        self.sizes = [1, 2]

    def forward(self, x):
        return self.fc(x) * self.scale


SELF, X = Local("self"), Local("x")
DICT = InstanceDict(SELF)
FC = Item(Item(DICT, "_modules"), "fc")
WEIGHT = Item(Item(InstanceDict(FC), "_parameters"), "weight")
BUFFER = Item(Item(DICT, "_buffers"), "b")
SIZES = Item(DICT, "sizes")


def net_guards(net: Net, x: torch.Tensor) -> list[Guard]:
    return [
        Guard(SELF, "type", Net, "the method's object", Origin("/app/net.py", 12, "forward")),
        Guard(Item(DICT, "scale"), "constant", 3, "is a factor"),
        Guard(FC, "type", nn.Linear),
        Guard(WEIGHT, "tensor", TensorMeta.of(net.fc.weight)),
        Guard(BUFFER, "tensor", TensorMeta.of(net.b)),
        Guard(SIZES, "length", 2),
        Guard(Item(SIZES, 0), "constant", 1),
        Guard(X, "tensor", TensorMeta.of(x)),
        Guard(None, "global_state", global_state()),
    ]


@pytest.fixture
def net() -> Net:
    return Net()


@pytest.fixture
def x() -> torch.Tensor:
    return torch.zeros(2, 4)


# Python 3.13.0 does not tell of every change of a dict: there a table evaluates its guards on every call.
remembering = pytest.mark.skipif(
    not build_table([], [], Net.forward).remember, reason="this Python's dicts have no versions to remember"
)


def remembered(net: Net, x: torch.Tensor, guards: list[Guard] | None = None) -> _native.GuardTable:
    table = build_table(guards or net_guards(net, x), [WEIGHT, BUFFER], Net.forward)
    for _ in range(3):
        fetched = table.check((net, x))
        assert fetched is not None and fetched[0] is net.fc.weight and fetched[1] is net.b
    assert table.remembers == table.remember and table.evaluations == (2 if table.remember else 3)
    return table


@remembering
def test_remembers_after_two_calls_and_keeps_the_tuple(net: Net, x: torch.Tensor) -> None:
    table = remembered(net, x)
    first = table.check((net, x))
    assert table.check((net, torch.ones(2, 4))) is first
    assert table.evaluations == 2
    table.forget()
    assert not table.remembers and table.check((net, x)) == first and table.evaluations == 3


def set_class(net: Net) -> None:
    net.__class__ = type("Net2", (Net,), {})


def replace_dict(net: Net) -> None:
    net.__dict__ = {**net.__dict__, "scale": 4}


def replace_parameters(net: Net) -> None:
    net.fc._parameters = {"weight": nn.Parameter(torch.zeros(5, 4)), "bias": None}


def in_place(change: Callable[[torch.Tensor], Any]) -> Callable[[Net], Any]:
    def change_weight(net: Net) -> None:
        with torch.no_grad():
            change(net.fc.weight)

    return change_weight


def swap(net: Net) -> None:
    torch.utils.swap_tensors(net.fc.weight, nn.Parameter(torch.zeros(5, 4)))


CHANGES: dict[str, Callable[[Net], Any]] = {
    "a plain attribute": lambda net: setattr(net, "scale", 4),
    "an attribute of another type": lambda net: setattr(net, "scale", 3.0),
    "an attribute deleted": lambda net: delattr(net, "scale"),
    "a submodule of another class": lambda net: setattr(net, "fc", nn.Identity()),
    "a submodule whose weight differs": lambda net: setattr(net, "fc", nn.Linear(4, 5)),
    "a submodule deleted": lambda net: net._modules.clear(),
    "requires_grad": lambda net: net.fc.requires_grad_(False),
    "data of another shape": lambda net: setattr(net.fc.weight, "data", torch.zeros(3, 3)),
    "data of another dtype": lambda net: net.double(),
    "data with other strides": lambda net: setattr(net.fc.weight, "data", torch.zeros(4, 4).T.contiguous().T),
    "requires_grad of one": lambda net: setattr(net.fc.weight, "requires_grad", False),
    "requires_grad of one, by its class": lambda net: torch.Tensor.requires_grad.__set__(net.fc.weight, False),
    "a parameter detached in place": in_place(torch.Tensor.detach_),
    "a parameter given memory": in_place(lambda weight: weight.set_(torch.zeros(3))),
    "a parameter given a storage": in_place(lambda weight: weight.set_(torch.zeros(3).untyped_storage())),
    "a parameter of more dimensions": in_place(lambda weight: weight.unsqueeze_(0)),
    "a parameter turned": in_place(lambda weight: weight.t_()),
    "a parameter strided": in_place(lambda weight: weight.as_strided_((4, 4), (1, 4))),
    "a parameter that is swapped": swap,
    "a parameter's class": lambda net: setattr(net.fc.weight, "__class__", type("P", (nn.Parameter,), {})),
    "a buffer that comes to require a gradient": lambda net: net.b.add_(net.fc.bias[:3]),
    "set_ in place": lambda net: net.b.set_(torch.zeros(7)),
    "resize_ in place": lambda net: net.b.resize_(9),
    "a buffer replaced": lambda net: setattr(net, "b", torch.zeros(2)),
    "a parameter made None": lambda net: setattr(net.fc, "weight", None),
    "the class": set_class,
    "the submodule's class": lambda net: setattr(net.fc, "__class__", type("L", (nn.Linear,), {})),
    "the instance dict": replace_dict,
    "the submodule's instance dict": lambda net: setattr(net.fc, "__dict__", nn.Linear(4, 5).__dict__),
    "the parameter dict": replace_parameters,
    "a list grown": lambda net: net.sizes.append(3),
    "a list item": lambda net: net.sizes.__setitem__(0, 1.0),
    "a list reversed": lambda net: net.sizes.reverse(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_notices_every_change(net: Net, x: torch.Tensor, change: Callable[[Net], Any]) -> None:
    table, guards = remembered(net, x), net_guards(net, x)
    change(net)
    assert table.check((net, x)) is None
    failure = explain_failure(guards, scope_of(Net.forward, (net, x)))
    assert failure is not None and str(failure)


HARMLESS: dict[str, Callable[[Net], Any]] = {
    "an unrelated attribute": lambda net: setattr(net, "unrelated", 1),
    "the same value again": lambda net: setattr(net, "scale", 3),
    "an equal list": lambda net: setattr(net, "sizes", [1, 2]),
    "new numbers in place": lambda net: net.fc.weight.data.fill_(2.0),
    "new data of the same kind": lambda net: setattr(net.fc.weight, "data", torch.ones(4, 4)),
    "a new parameter of the same kind": lambda net: setattr(net.fc, "weight", nn.Parameter(torch.ones(4, 4))),
    "an equal submodule": lambda net: setattr(net, "fc", nn.Linear(4, 4)),
    "an equal instance dict": lambda net: setattr(net, "__dict__", dict(net.__dict__)),
    "a gradient": lambda net: setattr(net.fc.weight, "grad", torch.ones(4, 4)),
    "train and eval": lambda net: net.train(not net.training),
}


def test_an_equal_parameter_at_the_old_address_is_looked_at(net: Net, x: torch.Tensor) -> None:
    table = remembered(net, x)
    for i in range(200):
        net.fc.weight = None
        rows = 4 + i % 2
        net.fc.weight = nn.Parameter(torch.zeros(rows, 4))
        assert (table.check((net, x)) is None) == (rows != 4)


@pytest.mark.parametrize("change", HARMLESS.values(), ids=HARMLESS)
def test_bears_what_no_guard_forbids(net: Net, x: torch.Tensor, change: Callable[[Net], Any]) -> None:
    table = remembered(net, x)
    for _ in range(3):
        change(net)
        fetched = table.check((net, x))
        assert fetched is not None and fetched[0] is net.fc.weight and fetched[1] is net.b


@remembering
def test_counting_attributes_do_not_cost_an_evaluation(net: Net, x: torch.Tensor) -> None:
    table = remembered(net, x)
    for i in range(10):
        net.calls = i
        net.fc.calls = i
        assert table.check((net, x)) is not None
    assert table.evaluations == 2


def test_another_module_of_the_same_kind_is_evaluated(net: Net, x: torch.Tensor) -> None:
    table = remembered(net, x)
    other = copy.deepcopy(net)
    fetched = table.check((other, x))
    assert fetched is not None and fetched[0] is other.fc.weight
    fetched = table.check((net, x))
    assert fetched is not None and fetched[0] is net.fc.weight


@remembering
def test_a_failed_call_forgets_nothing(net: Net, x: torch.Tensor) -> None:
    table = remembered(net, x)
    assert table.check((nn.Linear(1, 1), x)) is None
    assert table.check((3, x)) is None
    assert table.check((net, torch.zeros(1))) is None
    evaluations = table.evaluations
    assert table.check((net, x)) is not None and table.evaluations == evaluations


# ------------------------------------------------------------------------------------------------ lifetimes


def test_keeps_no_module_alive(net: Net) -> None:
    other, x = Net(), torch.zeros(2, 4)
    table = remembered(other, x)
    alive = [weakref.ref(other), weakref.ref(other.fc), weakref.ref(other.fc.weight), weakref.ref(x)]
    del other
    assert [ref() is None for ref in alive[:3]] == [True] * 3
    assert table.check((net, x)) is not None
    del x
    assert alive[3]() is None


@remembering
def test_fetched_inputs_are_those_of_the_call_and_not_kept(net: Net) -> None:
    x = torch.zeros(2, 4)
    table = build_table(net_guards(net, x), [X, WEIGHT, SELF, BUFFER], Net.forward)
    for _ in range(4):
        x = torch.zeros(2, 4)
        fetched = table.check((net, x))
        assert fetched is not None
        assert [a is b for a, b in zip(fetched, (x, net.fc.weight, net, net.b))] == [True] * 4
    alive = weakref.ref(x)
    del x, fetched
    assert alive() is None and table.remembers


@remembering
def test_empty_ordered_dicts_cost_no_evaluation_and_full_ones_keep_their_order(net: Net, x: torch.Tensor) -> None:
    hooks = Item(DICT, "_forward_hooks")
    table = remembered(net, x, [*net_guards(net, x), Guard(hooks, "dict_keys", ())])
    handle = net.register_forward_hook(lambda *arguments: None)
    assert table.check((net, x)) is None
    handle.remove()
    assert table.check((net, x)) is not None and table.evaluations <= 5
    ordered = net._forward_hooks
    ordered.update({"a": 1, "b": 2})
    table = remembered(net, x, [Guard(hooks, "dict_keys", ("a", "b")), *net_guards(net, x)])
    ordered.move_to_end("a")
    assert table.check((net, x)) is None


def test_keeps_no_module_in_a_cycle_alive(x: torch.Tensor) -> None:
    net = Net()
    net.itself = [net]
    table = remembered(net, x)
    alive = weakref.ref(net.fc.weight)
    del net
    gc.collect()
    assert alive() is None and table.check((Net(), x)) is not None


def test_fresh_objects_at_old_addresses_are_seen_as_new(x: torch.Tensor) -> None:
    table = remembered(Net(), x, net_guards(Net(), x))
    for i in range(200):
        net = Net()
        if i % 2:
            net.scale = i + 100
        assert (table.check((net, x)) is None) == bool(i % 2)
        del net


def test_tables_in_cycles_are_collected() -> None:
    class Box:
        table: Any

    def function(a):
        return None

    box = Box()
    box.table = build_table([Guard(Local("a"), "identity", box)], [Local("a")], function)
    assert box.table.check((box,)) == (box,)
    alive = weakref.ref(box)
    del box
    gc.collect()
    assert alive() is None


def test_reference_counts_stay(net: Net, x: torch.Tensor) -> None:
    table = remembered(net, x)
    held = [net, x, net.fc, net.fc.weight, net.b, net.sizes, net.__dict__, net.__dict__["_modules"]]

    def work() -> None:
        for i in range(300):
            table.check((net, x))
            table.check((3, x))
            net.sizes.append(1)
            table.check((net, x))
            net.sizes.pop()
            net.calls = i
            if i % 50 == 0:
                table.forget()

    work()
    before = [sys.getrefcount(thing) for thing in held]
    work()
    assert [sys.getrefcount(thing) for thing in held] == before


# ------------------------------------------------------------------------------------------------ sources


def function_of(**globals: Any) -> Callable[..., Any]:
    scope = dict(globals)
    exec("def f(a): return None", scope)
    return scope["f"]


def check_one(guard: Guard, value: Any, function: Callable[..., Any] | None = None) -> bool:
    """One answer from Python, from a table evaluated and from a table that remembers."""
    function = function or function_of()
    table = build_table([guard], [], function)
    answers = [table.check((value,)) is not None for _ in range(4)]
    answers.append(evaluate(guard, scope_of(function, (value,))))
    assert len(set(answers)) == 1
    return answers[0]


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


# ------------------------------------------------------------------------------------------------ checks


@pytest.mark.parametrize(
    "value, expected, answer",
    [
        (1, 1, True),
        (1, True, False),
        (1, 1.0, False),
        (0.0, -0.0, False),
        (float("nan"), float("nan"), True),
        (complex(0.0, 0.0), complex(0.0, -0.0), False),
        ("a" * 2, "aa", True),
        ((1, (2.0,)), (1, (2.0,)), True),
        ((1, (2.0,)), (1, (2,)), False),
        (frozenset({1, "a"}), frozenset({"a", 1}), True),
        (frozenset({1}), frozenset({True}), False),
        (slice(0, 1), slice(0, 1, None), True),
        (range(3), range(0, 3), True),
        (2**100, 2**100, True),
        (None, None, True),
        (torch.float32, torch.float32, True),
        (torch.device("cpu"), torch.device("cpu"), True),
        (torch.device("cpu"), torch.device("meta"), False),
        (torch.Size([1, 2]), torch.Size([1, 2]), True),
        (torch.Size([1, 2]), (1, 2), False),
        ([1], [1], False),
    ],
)
def test_constants(value: Any, expected: Any, answer: bool) -> None:
    assert check_one(Guard(Local("a"), "constant", expected), value) is answer


def test_tensor_facts() -> None:
    base = torch.zeros(2, 3)
    guard = Guard(Local("a"), "tensor", TensorMeta.of(base))
    assert check_one(guard, torch.ones(2, 3))
    with torch.inference_mode():
        inference = torch.zeros(2, 3)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(base, torch.ones(2, 3))
        assert not check_one(guard, dual)
    others: list[Any] = [
        torch.zeros(2, 3, dtype=torch.float64),
        torch.zeros(2, 4),
        torch.zeros(2, 3, 1),
        torch.zeros(3, 2).T,
        torch.zeros(2, 3, requires_grad=True),
        torch.zeros(2, 3, device="meta"),
        nn.Parameter(torch.zeros(2, 3), requires_grad=False),
        torch.zeros(2, 3, dtype=torch.complex64).imag,
        torch.zeros(2, 3).to_sparse(),
        inference,
        base.view(2, 3) + torch.zeros(2, 3, requires_grad=True),
        None,
        "tensor",
        torch.Tensor,
    ]
    for other in others:
        assert not check_one(guard, other), other
    assert check_one(Guard(Local("a"), "tensor", TensorMeta.of(inference)), inference)
    conj = torch.zeros(2, dtype=torch.complex64).conj()
    assert TensorMeta.of(conj).flags == ("conj",)
    assert check_one(Guard(Local("a"), "tensor", TensorMeta.of(conj)), conj)
    assert not check_one(Guard(Local("a"), "tensor", TensorMeta.of(conj)), conj.resolve_conj())


def test_a_view_requires_grad_with_its_base(net: Net, x: torch.Tensor) -> None:
    """One made under no_grad has no gradient function and requires_grad is its base's: as Tensor.requires_grad says."""
    base = torch.zeros(4, 2, requires_grad=True)
    with torch.no_grad():
        view = base.t()
    guard = Guard(Local("a"), "tensor", TensorMeta.of(view))
    assert view.requires_grad and view.grad_fn is None and check_one(guard, view)
    assert not check_one(guard, torch.zeros(2, 4).t().contiguous().t()) and not check_one(guard, view.detach())

    with torch.no_grad():
        base = torch.zeros_like(net.b)
        net.b = base.view_as(base)
    table, guards = remembered(net, x), net_guards(net, x)
    base.requires_grad_()
    assert table.check((net, x)) is None
    assert explain_failure(guards, scope_of(Net.forward, (net, x))) is not None


def test_strides_that_no_kernel_reads() -> None:
    guard = Guard(Local("a"), "tensor", TensorMeta.of(torch.zeros(1, 3)))
    assert check_one(guard, torch.zeros(4, 6)[:1, :3])
    assert not check_one(guard, torch.zeros(4, 6)[:1, ::2])
    assert check_one(Guard(Local("a"), "tensor", TensorMeta.of(torch.zeros(0, 3))), torch.zeros(3, 0).T)


def test_sizes_of_any_number() -> None:
    from dataclasses import replace

    meta = replace(TensorMeta.of(torch.zeros(2, 3)), shape=(None, 3))
    assert check_one(Guard(Local("a"), "tensor", meta), torch.zeros(7, 3))
    assert not check_one(Guard(Local("a"), "tensor", meta), torch.zeros(7, 4))


def test_tensor_subclasses_by_exact_type() -> None:
    class Tagged(torch.Tensor):
        pass

    tagged = torch.zeros(2).as_subclass(Tagged)
    assert check_one(Guard(Local("a"), "tensor", TensorMeta.of(tagged)), tagged)
    assert not check_one(Guard(Local("a"), "tensor", TensorMeta.of(torch.zeros(2))), tagged)


def test_same_and_distinct() -> None:
    def f(a, b, c):
        return None

    a, b, c = Local("a"), Local("b"), Local("c")
    table = build_table([Guard(a, "same", b), Guard(None, "distinct", (a, c))], [], f)
    x, y = object(), object()
    for _ in range(3):
        assert table.check((x, x, y)) == ()
        assert table.check((x, y, y)) is None
        assert table.check((x, x, x)) is None


def test_computed_numbers(net: Net, x: torch.Tensor) -> None:
    """``(self.scale + 1) % x``: of an attribute that the table remembers, and of an argument."""
    scale = Item(InstanceDict(SELF), "scale")
    sum_ = Computed(operator.add, "{} + {}", (scale, Constant("1", 1)))
    remainder = Guard(Computed(operator.mod, "{} % {}", (sum_, X)), "constant", 1)
    root = Guard(Computed(math.sqrt, "math.sqrt({})", (scale,)), "constant", 2.0)
    least = Guard(Computed(min, "min({}, {})", (scale, X)), "constant", 3)
    smaller = Computed(operator.le, "{} <= {}", (sum_, X))
    guards = [Guard(SELF, "identity", net), *(Guard(s, "type", int) for s in (scale, X)), remainder]
    relations = [[*guards[:3], Guard(smaller, "constant", answer)] for answer in (True, False)]
    for checked in (guards, [*guards, root], [*guards, least], *relations):
        table = build_table(checked, [scale], Net.forward)
        text = write(checked, [scale], ("self", "x"))
        module = {"text": text.expected}
        exec(text.text.replace("G, C, E = names_of(__file__)", "E = text"), module)
        answers = set()
        for net.scale, divisor in (
            (4, 2),
            (4, 4),
            (4, 0),
            (-1, 2),
            (3, 3),
            (4, 2),
            (4, 2),
            (4, 2),
            (6, 2),
            (4, 0),
            (4, 5),
            (4, 2),
        ):
            scope = scope_of(Net.forward, (net, divisor))
            holds = all(evaluate(guard, scope) for guard in checked)
            assert table.check((net, divisor)) == ((net.scale,) if holds else None)
            if divisor:
                assert module["check"](net, divisor) == table.check((net, divisor))
            assert (explain_failure(checked, scope) is None) is holds
            answers.add(holds)
        assert answers == {True, False}
    text = render(guards, [scale], ("self", "x"))
    assert "(scale + 1) % x" in text and str(remainder.source) == "(self.__dict__['scale'] + 1) % x"
    assert "import math\n" in render([root], [])


def test_sizes_are_read_anew(x: torch.Tensor) -> None:
    """A relation of sizes looks at the tensor, which may be resized in place, or be one of more dimensions."""

    def f(a: torch.Tensor, b: torch.Tensor) -> None: ...

    sizes = [Item(Attr(Local(name), "shape"), 0) for name in "ab"]
    plain = TensorMeta.of(torch.ones(4, 2))
    guards = [Guard(Local(n), "tensor", dataclasses.replace(plain, shape=(None, 2), strides=(2, 1))) for n in "ab"]
    guards.append(Guard(Computed(operator.le, "{} <= {}", tuple(sizes)), "constant", True))
    for fetch in ([], sizes):
        table = build_table(guards, fetch, f)
        a, b = torch.ones(4, 2), torch.ones(5, 2)
        for rows, holds in ((4, True), (6, False), (5, True), (1, True), (7, False)):
            a.resize_(rows, 2)
            for _ in range(3):
                found = table.check((a, b))
                assert found == ((tuple(s for s in (rows, 5)) if fetch else ()) if holds else None)
        assert table.check((torch.ones(2, 2, 2), b)) is None
        assert table.check((3, b)) is None


NUMBERS = (0, 1, -1, 7, -7, 2**31, -(2**63), 2**63 - 1, 2**63, -(2**70), True, 2.5)


@pytest.mark.parametrize("name", ["add", "sub", "mul", "floordiv", "mod"])
def test_computed_as_python_computes(name: str) -> None:
    """Machine integers where 64 bits hold them, else Python's."""
    function, nodes = getattr(operator, name), (("local", -1, 0), ("local", -1, 1), ("local", -1, 2))
    for relation in (operator.lt, operator.le, operator.eq, operator.ne, operator.ge, operator.gt):
        operations = ((0,), (1,), (function, 2), (2,), (relation, 2))
        table = _native.GuardTable(nodes, (), (("computed", operations, True),), None, ())
        for a, b in itertools.product(NUMBERS, NUMBERS):
            try:
                found = function(a, b)
            except ZeroDivisionError:
                assert table.check((a, b, 0)) is None
                continue
            for bound in (found, 0, 2**63 - 1):
                assert (table.check((a, b, bound)) is not None) == relation(found, bound)


@pytest.mark.parametrize("operations", [(), ((0,), (0,)), ((operator.add, 2),), ((0,), (len.__call__, 1)), ((7,),)])
def test_malformed_computations_are_refused(operations: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        _native.GuardTable((("local", -1, 0),), (), (("computed", operations, 1),), None, ())


def test_distinct_of_remembered_and_fresh(net: Net, x: torch.Tensor) -> None:
    table = remembered(net, x, [*net_guards(net, x)[:5], Guard(None, "distinct", (X, WEIGHT, BUFFER))])
    assert table.check((net, torch.ones(2))) is not None
    assert table.check((net, net.b)) is None
    assert table.check((net, x)) is not None


def test_global_state() -> None:
    guard = Guard(None, "global_state", global_state())
    table = build_table([guard], [], function_of())
    scope = scope_of(function_of(), (0,))

    class Mode(torch.overrides.TorchFunctionMode):
        pass

    def holds() -> bool:
        answer = table.check((0,)) is not None
        assert answer is evaluate(guard, scope)
        return answer

    assert holds()
    for context in (
        torch.no_grad(),
        torch.inference_mode(),
        torch.autocast("cpu", torch.bfloat16),
        torch.device("meta"),
        Mode(),
        torch._C.DisableTorchFunction(),
        torch._C.DisableTorchFunctionSubclass(),
    ):
        with context:
            assert not holds(), context
            with context if isinstance(context, (torch.device, Mode)) else torch.enable_grad():
                inner = build_table([Guard(None, "global_state", global_state())], [], function_of())
                assert inner.check((0,)) is not None
        assert holds()
    torch.set_default_dtype(torch.float64)
    assert not holds()
    torch.set_default_dtype(torch.float32)
    torch.use_deterministic_algorithms(True, warn_only=True)
    failure = explain_failure([guard], scope)
    assert not holds() and failure is not None and "deterministic was 0, is 2" in str(failure)
    torch.use_deterministic_algorithms(False)
    assert holds()
    torch.func.vmap(lambda t: (t, [None for _ in [0] if holds()])[0])(torch.zeros(2))


def test_functorch_transforms_are_another_state() -> None:
    guard = Guard(None, "global_state", global_state())
    table = build_table([guard], [], function_of())
    seen = []

    def inner(t: torch.Tensor) -> torch.Tensor:
        seen.append(table.check((0,)))
        return t.sum()

    torch.func.vmap(inner)(torch.zeros(2, 2))
    torch.func.grad(inner)(torch.zeros(2))
    assert seen == [None, None]


def test_default_device_counts_by_its_device() -> None:
    with torch.device("meta"):
        table = build_table([Guard(None, "global_state", global_state())], [], function_of())
    with torch.device("meta"):
        assert table.check((0,)) == ()
    with torch.device("cpu"):
        assert table.check((0,)) is None


def test_refuses_malformed_guards() -> None:
    with pytest.raises(ValueError, match="unknown check 'nonsense'"):
        build_table([Guard(Local("a"), "nonsense", 1)], [], function_of())
    with pytest.raises(TypeError, match="expects a type"):
        build_table([Guard(Local("a"), "type", 1)], [], function_of())
    with pytest.raises(ValueError, match="needs a source"):
        build_table([Guard(None, "type", int)], [], function_of())
    for bad in ((("item", -1, 0),), (("local", -1, -1),), (("nonsense", -1, 0),), (("local", -1, 0), ("item", 1, 0))):
        with pytest.raises(ValueError):
            _native.GuardTable(bad, (), (), None, ())
    with pytest.raises(ValueError, match="no node 3"):
        _native.GuardTable((("local", -1, 0),), (), (), None, (3,))


def test_a_short_argument_tuple_is_a_miss(net: Net, x: torch.Tensor) -> None:
    assert remembered(net, x).check((net,)) is None


# ------------------------------------------------------------------------------------------------ text


def test_rendered_text_is_python_and_names_what_it_checks(net: Net, x: torch.Tensor) -> None:
    text = render(net_guards(net, x), [WEIGHT, BUFFER], ("self", "x"))
    tree = ast.parse(text)
    function = next(node for node in tree.body if isinstance(node, ast.FunctionDef))
    assert [argument.arg for argument in function.args.args] == ["self", "x"]
    assert "# the method's object  (net.py:12)" in text
    assert "type(self) is" in text and "['scale'] == 3" in text
    assert "return (weight, b,)" in text


def test_every_check_renders(net: Net) -> None:
    a = Local("a")
    expected: dict[str, Any] = {
        "type": int,
        "identity": net,
        "constant": (1, float("inf"), torch.float32, torch.device("cpu"), torch.Size([1]), slice(1), len),
        "tensor": TensorMeta.of(torch.zeros(2)),
        "length": 3,
        "dict_keys": ("a", 1),
        "dict_has": "class",
        "dict_lacks": net,
        "has_attr": "x",
        "lacks_attr": "y",
        "class_has": ("forward", Net.forward),
        "class_kind": ("scale", int),
        "class_lacks": "__bool__",
        "mro": Net.__mro__,
        "names": (("relu", torch.nn.functional.relu),),
        "same": Attr(a, "class"),
        "distinct": (a, Item(a, "not an identifier"), Item(a, 0), DictKey(a, 2), TypeOf(a), Cell("c"), Global("g")),
        "global_state": global_state(),
    }
    assert set(expected) == set(CHECKS)
    sources: list[Source | None] = [None if name in ("distinct", "global_state") else a for name in expected]
    guards = [Guard(source, name, value) for source, (name, value) in zip(sources, expected.items())]
    ast.parse(render(guards, [Item(a, 0), Module("torch.nn"), Attr(a, "class")]))


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
    assert "E[0].__closure__[0].cell_contents" in render([Guard(cell, "constant", 1)], [])
    count = 1
    assert table.check(()) == (1,)


def test_sets_are_compared_by_members_and_their_types() -> None:
    guard = Guard(Local("a"), "constant", {1, 2})
    assert check_one(guard, {1, 2})
    for other in ({1.0, 2}, {1}, {1, 2, 3}, {True, 2}, frozenset({1, 2}), [1, 2]):
        assert not check_one(guard, other)
    table = build_table([guard], [], lambda a: None)
    value = {1, 2}
    for _ in range(3):
        assert table.check((value,)) is not None
    value.add(3)
    assert table.check((value,)) is None


def test_numpy_scalars_are_compared_by_value() -> None:
    numpy = pytest.importorskip("numpy")
    assert check_one(Guard(Local("a"), "constant", numpy.float32(2)), numpy.float32(2))
    assert check_one(Guard(Local("a"), "constant", numpy.float32("nan")), numpy.float32("nan"))
    for other in (numpy.float32(3), numpy.float64(2), 2.0):
        assert not check_one(Guard(Local("a"), "constant", numpy.float32(2)), other)
    assert not check_one(Guard(Local("a"), "constant", numpy.float32(0.0)), numpy.float32(-0.0))


def test_a_remembered_tensor_that_gets_a_forward_gradient_is_noticed() -> None:
    from torch.autograd import forward_ad

    def f(holder: dict[str, torch.Tensor]) -> None: ...

    source = Item(Local("holder"), "x")
    x = torch.zeros(2)
    table = build_table([Guard(source, "tensor", TensorMeta.of(x))], [source], f)
    for _ in range(3):
        assert table.check(({"x": x},)) == (x,)
    holder = {"x": x}
    for _ in range(3):
        assert table.check((holder,)) == (x,)
    with forward_ad.dual_level():
        assert table.check((holder,)) == (x,)
        x.copy_(forward_ad.make_dual(torch.ones(2), torch.ones(2)))
        assert table.check((holder,)) is None
    assert table.check((holder,)) == (x,)
