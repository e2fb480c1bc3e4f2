"""Program 7: function, decorator, method, module; modes and flags."""

import copy
import inspect

import pytest
import torch

import torchglass as tg
from torchglass.options import MODES


def foo(x, y):
    return torch.sin(x) + torch.cos(y)


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(100, 10)
        self.title = "network"

    def forward(self, x):
        return torch.nn.functional.relu(self.linear(x))


@pytest.fixture
def pair():
    torch.manual_seed(0)
    return torch.randn(10, 10), torch.randn(10, 10)


@pytest.mark.parametrize("mode", [None, *MODES])
@pytest.mark.parametrize("dynamic", [None, False])
def test_a_function(pair, mode, dynamic):
    compiled = tg.compile(foo, mode=mode, dynamic=dynamic)
    torch.testing.assert_close(compiled(*pair), foo(*pair))


def test_decorators(pair):
    @tg.compile
    def plain(x, y):
        return foo(x, y)

    @tg.compile(fullgraph=True)
    def with_arguments(x, y=None):
        """The doc."""
        return foo(x, x if y is None else y)

    torch.testing.assert_close(plain(*pair), foo(*pair))
    torch.testing.assert_close(with_arguments(pair[0]), foo(pair[0], pair[0]))
    torch.testing.assert_close(with_arguments(y=pair[1], x=pair[0]), foo(*pair))
    assert with_arguments.__name__ == "with_arguments"
    assert with_arguments.__doc__ == "The doc."
    assert list(inspect.signature(with_arguments).parameters) == ["x", "y"]


def test_methods(pair):
    class Scaled:
        scale = 3

        @tg.compile
        def times(self, x):
            return x * self.scale

        @staticmethod
        @tg.compile
        def plus(x):
            return x + 1

    torch.testing.assert_close(Scaled().times(pair[0]), pair[0] * 3)
    torch.testing.assert_close(Scaled.plus(pair[0]), pair[0] + 1)


def test_a_module_stays_what_it_was():
    torch.manual_seed(0)
    model = Network()
    compiled = tg.compile(model)
    x = torch.randn(2, 100)
    torch.testing.assert_close(compiled(x), model(x))
    assert isinstance(compiled, Network)
    assert list(compiled.state_dict()) == list(model.state_dict()) == ["linear.weight", "linear.bias"]
    assert compiled.title == "network"
    assert dict(compiled.named_parameters()).keys() == dict(model.named_parameters()).keys()
    assert compiled.linear is model.linear


def test_a_module_trains_in_place():
    torch.manual_seed(0)
    model = Network()
    twin = copy.deepcopy(model)
    compiled = tg.compile(model)
    mine, theirs = (torch.optim.SGD(m.parameters(), lr=0.1) for m in (compiled, twin))
    for _ in range(3):
        x = torch.randn(8, 100)
        for network, optimizer in ((compiled, mine), (twin, theirs)):
            optimizer.zero_grad()
            network(x).square().sum().backward()
            optimizer.step()
    for a, b in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_state_dicts_load_into_a_compiled_module():
    compiled, other = tg.compile(Network()), Network()
    x = torch.randn(2, 100)
    compiled(x)
    compiled.load_state_dict(other.state_dict())
    torch.testing.assert_close(compiled(x), other(x))


def test_train_and_eval_are_different_entries():
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(1.0))
    compiled, x = tg.compile(model), torch.randn(2, 4)
    assert compiled(x).abs().sum() == 0
    compiled.eval()
    torch.testing.assert_close(compiled(x), model[0](x))
    compiled.train()
    assert compiled(x).abs().sum() == 0


def test_fullgraph_on_a_branch_on_values_raises_and_says_where():
    def f(x):
        if x.sum() > 0:
            return x + 1
        return x - 1

    with pytest.raises(Exception) as caught:
        tg.compile(f, fullgraph=True)(torch.ones(3))
    assert f"test_ways_to_call.py:{f.__code__.co_firstlineno + 1}" in str(caught.value)
    torch.testing.assert_close(tg.compile(f)(-torch.ones(3)), -torch.ones(3) - 1)


def test_disable(pair):
    compiled = tg.compile(foo, disable=True)
    torch.testing.assert_close(compiled(*pair), foo(*pair))

    @tg.disable
    def aside(x):
        assert not tg.is_compiling()
        return x * 2

    torch.testing.assert_close(tg.compile(lambda x: aside(x + 1) + 1)(pair[0]), (pair[0] + 1) * 2 + 1)


def test_is_compiling_is_false_outside():
    assert not tg.is_compiling()


def test_modules_made_while_running_after_torch_compile_was_used():
    """torch.compile leaves a wrapper around nn.Module.__init__ in the process, and a slice of a ModuleList is new."""

    class Stack(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList([torch.nn.Linear(3, 3) for _ in range(4)])

        def forward(self, x):
            for layer in self.layers[:2]:
                x = layer(x)
            return x

    x = torch.randn(2, 3)
    torch.compile(lambda x: x + 1, backend="eager")(x)
    model = Stack()
    torch.testing.assert_close(tg.compile(model, fullgraph=True)(x), model(x))
