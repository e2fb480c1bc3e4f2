"""Modules that change between two calls: parameters, submodules, hooks, methods."""

import copy

import pytest
import torch
from torch import nn

import torchglass as tg

from ..compared import make_input, outcome, same


@pytest.fixture(autouse=True)
def clean(tmp_path):
    tg.reset()
    with tg.prepare_debug(tmp_path):
        yield


class Model(nn.Module):
    factor = 2

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    @property
    def offset(self):
        return 1

    def body(self, x):
        return self.linear(x)

    def forward(self, x):
        return self.body(x) * self.factor + self.offset


CHANGES = {
    "class attribute": lambda m: setattr(type(m), "factor", 9),
    "method": lambda m: setattr(type(m), "body", lambda self, x: x * 7),
    "property": lambda m: setattr(type(m), "offset", property(lambda self: 50)),
    "method of the object": lambda m: setattr(m, "body", lambda x: x * 3),
    "parameter": lambda m: setattr(m.linear, "weight", nn.Parameter(torch.ones(4, 4))),
    "data": lambda m: setattr(m.linear.weight, "data", torch.ones(4, 4)),
    "requires_grad": lambda m: m.linear.weight.requires_grad_(False),
    "module": lambda m: setattr(m, "linear", nn.Identity()),
    "hook": lambda m: m.linear.register_forward_hook(lambda *a: a[2] + 1),
    "forward": lambda m: setattr(m.linear, "forward", lambda x: x * 5),
}


class Marked(nn.Parameter):
    pass


def swapped(m):
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        m.double()
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)


def in_place(change):
    def changed(m):
        with torch.no_grad():
            change(m.linear.weight)

    return changed


# What happens to a module after its guards were remembered: noticed, whether or not the dictionaries say so.
LATER_CHANGES = CHANGES | {
    "to dtype": lambda m: m.double(),
    "swapped to dtype": swapped,
    "data of another dtype": lambda m: setattr(m.linear.weight, "data", torch.ones(4, 4, dtype=torch.float64)),
    "data of another layout": lambda m: setattr(m.linear.weight, "data", torch.arange(16.0).view(4, 4).t()),
    "set_": in_place(lambda w: w.set_(torch.arange(34.0), 3, (4, 4), (8, 2))),
    "transposed in place": in_place(lambda w: w.t_()),
    "class of a parameter": lambda m: setattr(m.linear.weight, "__class__", Marked),
    "hook without a handle": lambda m: m.linear._forward_hooks.__setitem__(7, lambda *a: a[2] + 1),
    "pre-hook": lambda m: m.linear.register_forward_pre_hook(lambda module, args: (args[0] + 1,)),
    "global hook": None,
    "parameter in the dictionary": lambda m: m.linear._parameters.update(weight=nn.Parameter(torch.ones(4, 4))),
    "parameter removed": lambda m: setattr(m.linear, "bias", None),
    "module in the dictionary": lambda m: m._modules.update(linear=nn.Identity()),
    "dictionary of the object": lambda m: setattr(m.linear, "__dict__", nn.Identity().__dict__ | m.linear.__dict__),
    "requires_grad of the other": lambda m: m.linear.bias.requires_grad_(False),
    "grad mode of all": lambda m: m.requires_grad_(False),
    "in-place values": in_place(lambda w: w.fill_(3)),
}


def doubled(self, x):
    return nn.Linear.forward(self, x) * 2


@pytest.mark.parametrize("name", LATER_CHANGES)
def test_module_changed_after_many_calls(name):
    made = type("Model", (Model,), dict(vars(Model)) | {"__init__": lambda self: Model.__init__(self)})
    plain = made()
    compiled = tg.compile(copy.deepcopy(plain), backend="eager")
    for _ in range(4):
        same(compiled(make_input()), plain(make_input()))
    if name == "global hook":
        handle = nn.modules.module.register_module_forward_hook(lambda module, args, result: result + 1)
    else:
        LATER_CHANGES[name](plain)
        LATER_CHANGES[name](compiled)
    try:
        for _ in range(4):
            dtype = plain.linear.weight.dtype if isinstance(plain.linear, nn.Linear) else torch.float32
            expected, found = outcome(plain, make_input().to(dtype)), outcome(compiled, make_input().to(dtype))
            same(found, expected)
            if isinstance(expected[0], torch.Tensor):
                assert found[0].requires_grad == expected[0].requires_grad
    finally:
        if name == "global hook":
            handle.remove()


@pytest.mark.parametrize("name", CHANGES)
def test_module_changed(name):
    made = type("Model", (Model,), dict(vars(Model)) | {"__init__": lambda self: Model.__init__(self)})
    plain = made()
    compiled = tg.compile(copy.deepcopy(plain), backend="eager")
    same(compiled(make_input()), plain(make_input()))
    CHANGES[name](plain)
    CHANGES[name](compiled)
    same(compiled(make_input()), plain(make_input()))


def test_a_hook_for_all_modules_that_the_function_registers():
    net, seen = nn.Sequential(nn.Linear(3, 3), nn.ReLU()), []

    def f(x):
        before = net(x)
        kept = nn.modules.module.register_module_forward_hook(lambda m, args, result: seen.append(type(m).__name__))
        doubled = nn.modules.module.register_module_forward_pre_hook(lambda m, args: (args[0] * 2,))
        within = net(x)
        kept.remove()
        doubled.remove()
        return before, within, net(x)

    x = torch.randn(2, 3)
    expected, names = f(x), list(seen)
    seen.clear()
    same(tg.compile(f, backend="eager")(x), expected)
    assert seen == names == ["Linear", "ReLU", "Sequential"]


def _doubled(old):
    return lambda *args, **kwargs: old(*args, **kwargs) * 2


def _doubled_weights(old):
    return lambda self, name: old(self, name) * 2 if name == "weight" else old(self, name)


REPLACED = {"__call__": _doubled, "_call_impl": _doubled, "__getattr__": _doubled_weights}


@pytest.mark.parametrize("name", REPLACED)
@pytest.mark.parametrize("compiled_first", [True, False])
def test_methods_of_nn_module_that_somebody_replaced_run(name, compiled_first, monkeypatch):
    inner, x = nn.Sequential(Model(), nn.ReLU()), make_input()
    plain = inner(x)
    compiled = [tg.compile(inner, backend="eager"), tg.compile(lambda x: inner(x), backend="eager")]
    if compiled_first:
        for function in compiled:
            same(function(x), plain)
    monkeypatch.setattr(nn.Module, name, REPLACED[name](vars(nn.Module)[name]))
    replaced = inner(x)
    assert not torch.equal(replaced, plain)
    for function in [*compiled, tg.compile(inner, backend="eager")]:
        same(function(x), replaced)
    monkeypatch.undo()
    for function in compiled:
        same(function(x), plain)


def test_a_class_with_a_call_impl_of_its_own():
    class Tripled(Model):
        def _call_impl(self, *args):
            return super()._call_impl(*args) * 3

    model, x = Tripled(), make_input()
    same(tg.compile(model, backend="eager")(x), model(x))
    same(tg.compile(lambda x: model(x), backend="eager", fullgraph=True)(x), model(x))
