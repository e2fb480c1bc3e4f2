"""The guard table: what it must notice once it remembers, and what it must not keep alive."""

from __future__ import annotations

import copy
import gc
import sys
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.native.guard_tables import (
    BUFFER,
    DICT,
    SELF,
    WEIGHT,
    Net,
    X,
    net_guards,
    remembered,
    remembering,
)
from torch import nn

from torchglass.records.guards import Guard, TensorMeta
from torchglass.records.sources import (
    Item,
    Local,
)
from torchglass.runtime.guards import (
    build_table,
    explain_failure,
    scope_of,
)

pytestmark = pytest.mark.usefixtures("many_dicts")


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
