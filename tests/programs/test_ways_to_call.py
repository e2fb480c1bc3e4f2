"""Program 7: function, decorator, method, module; modes and flags."""

import copy
import functools
import inspect
import pickle
import warnings

import pytest
import torch
from tests.complaints import complains

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


def test_compiled_modules_of_pytorch_inside_compiled_functions():
    layers = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    layers[0] = tg.compile(layers[0])
    model = tg.compile(layers)
    step = tg.compile(lambda x: model(x).sum(), fullgraph=True, backend="eager")
    for value in (1.0, 2.0):
        torch.nn.init.constant_(layers[0].weight, value)
        layers[0].bias = torch.nn.Parameter(torch.full((4,), value))
        x = torch.randn(2, 4)
        torch.testing.assert_close(step(x), layers(x).sum())
    assert len(tg.explain(step).entries) == 1


def test_a_forward_that_its_class_is_given_later():
    class Doubled(torch.nn.Module):
        def forward(self, x):
            return x * 2

    class Heir(Doubled):
        pass

    x = torch.ones(2)
    models = [Doubled(), Heir()]
    compiled = [tg.compile(model, backend="eager") for model in models]
    around = tg.compile(lambda x: [model(x) for model in compiled], fullgraph=True, backend="eager")

    def agree():
        for model, its in zip(models, compiled, strict=True):
            torch.testing.assert_close(its(x), model(x))
        torch.testing.assert_close(around(x), [model(x) for model in models])

    agree()
    doubled, Doubled.forward = Doubled.forward, lambda self, x: x * 3
    agree()
    Heir.forward = lambda self, x: x * 4
    agree()
    models[0].forward = lambda x: x * 5
    agree()
    del Heir.forward, models[0].forward
    Doubled.forward = doubled
    agree()


def test_a_graph_module_that_is_recompiled():
    model = torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU()))
    compiled, x = tg.compile(model, backend="eager"), torch.randn(3, 2)
    torch.testing.assert_close(compiled(x), model(x))
    node = next(n for n in model.graph.nodes if n.target == "1")
    with model.graph.inserting_after(node):
        node.replace_all_uses_with(model.graph.call_function(torch.sigmoid, node.args))
    model.graph.erase_node(node)
    model.recompile()
    torch.testing.assert_close(compiled(x), model(x))


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


def plus(x):
    return x + 1


class Twice:
    def __call__(self, x):
        return x * 2


@torch.jit.script
def scripted(x):
    return x - 1


class Cubed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 3 * ctx.saved_tensors[0] ** 2


CALLABLE = {
    "builtin": torch.sin,
    "function of torch": torch.nn.functional.gelu,
    "method of tensors": torch.Tensor.cos,
    "operator": torch.ops.aten.sin.default,
    "operator of any overload": torch.ops.aten.sin,
    "TorchScript": scripted,
    "object": Twice(),
    "partial": functools.partial(foo, y=torch.ones(1)),
    "cached": functools.lru_cache(plus),
    "autograd.Function": Cubed.apply,
    "vmap": torch.vmap(plus),
    "bound method": torch.nn.Linear(10, 3).forward,
    "torch.compile's": torch.compile(plus, backend="eager"),
    "torch.compile's module": torch.compile(torch.nn.Linear(10, 3), backend="eager"),
    "nested region": torch.compiler.nested_compile_region(plus),
    "ours": tg.compile(plus),
    "ours, bound": tg.compile(Twice()),
}


@pytest.mark.parametrize("what", CALLABLE)
def test_whatever_can_be_called(what, pair):
    compiled = tg.compile(CALLABLE[what])
    torch.testing.assert_close(compiled(pair[0]), CALLABLE[what](pair[0]))
    assert not tg.explain(compiled).record.fallbacks


def test_torch_compiles_functions_and_ours_in_each_other(pair):
    """Neither compiler works on the other's code."""
    ours, theirs = tg.compile(foo), torch.compile(foo, backend="eager")
    for function in (lambda x, y: theirs(x, y) + 1, torch.compile(lambda x, y: ours(x, y) + 1, backend="eager")):
        compiled = tg.compile(function)
        torch.testing.assert_close(compiled(*pair), foo(*pair) + 1)
    torch.testing.assert_close(torch.compile(ours, backend="eager")(*pair), foo(*pair))
    network = tg.compile(Network())
    x = torch.randn(2, 100)
    torch.testing.assert_close(torch.compile(network, backend="eager")(x), network(x))


def test_traced_by_torch_jit(pair):
    """The tracer has to see the operations: a compiled graph would be a constant to it."""
    compiled = tg.compile(foo)
    for _ in range(2):
        traced = torch.jit.trace(compiled, pair)
        torch.testing.assert_close(traced(pair[1], pair[0]), foo(pair[1], pair[0]))
        compiled(*pair)


def test_a_script_module_runs_as_it_is():
    module = torch.jit.script(torch.nn.Linear(4, 2))
    with complains("TorchScript"):
        assert tg.compile(module) is module


class Kinds:
    scale = 3

    @tg.compile
    @staticmethod
    def static(x):
        return x + 1

    @tg.compile
    @classmethod
    def of_class(cls, x):
        return x * cls.scale

    @property
    @tg.compile
    def scaled(self):
        return torch.ones(2) * self.scale


def test_static_and_class_methods_and_properties():
    x = torch.randn(3)
    child = type("Child", (Kinds,), {"scale": 5})
    torch.testing.assert_close(Kinds.static(x), x + 1)
    torch.testing.assert_close(child().of_class(x), x * 5)
    torch.testing.assert_close(Kinds.of_class(x), x * 3)
    torch.testing.assert_close(child().scaled, torch.full((2,), 5.0))
    with pytest.raises(TypeError, match="decorate its getter"):
        tg.compile(Kinds.scaled)


def test_a_forward_that_the_module_itself_has():
    """Libraries wrap `module.forward` in place, before or after compiling."""
    model, x = Network(), torch.randn(2, 100)
    plain = model.forward
    model.forward = lambda x: plain(x) * 2
    compiled = tg.compile(model)
    torch.testing.assert_close(compiled(x), plain(x) * 2)
    assert len(tg.explain(compiled).entries) == 1
    compiled.forward = functools.partial(plain)
    torch.testing.assert_close(compiled(x), plain(x))
    assert model.forward is not plain
    del model.forward
    torch.testing.assert_close(compiled(x), plain(x))
    assert len(tg.explain(compiled).entries) == 1


def test_a_module_with_a_call_of_its_own():
    class Doubled(torch.nn.Module):
        def __call__(self, x):
            return x * 2

    compiled = tg.compile(Doubled())
    torch.testing.assert_close(compiled(torch.ones(2)), torch.full((2,), 2.0))
    assert len(tg.explain(compiled).entries) == 1


def test_copies_of_modules_with_a_compiled_forward():
    model, x = Network(), torch.randn(2, 100)
    model.forward = tg.compile(model.forward)
    expected = model(x)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert twin.linear is not model.linear
        with torch.no_grad():
            model.linear.weight += 1
        torch.testing.assert_close(twin(x), expected)
        with torch.no_grad():
            model.linear.weight -= 1
    assert pickle.loads(pickle.dumps(Kinds.static)) is Kinds.static
    torch.testing.assert_close(pickle.loads(pickle.dumps(tg.compile(plus)))(x), x + 1)


DISABLED = {
    "reason": tg.disable(reason="for a reason")(plus),
    "nothing given": tg.disable()(plus),
    "a builtin": tg.disable(torch.sin),
    "an object's method": tg.disable(Twice().__call__),
    "a module": tg.disable(torch.nn.ReLU()),
    "torch's": torch.compiler.disable(plus),
    "the function alone": tg.disable(plus, recursive=False),
}


@pytest.mark.parametrize("what", DISABLED)
def test_ways_to_disable(what, pair):
    aside = DISABLED[what]
    compiled = tg.compile(lambda x: aside(x + 1) + 1)
    torch.testing.assert_close(compiled(pair[0]), aside(pair[0] + 1) + 1)
    (found,) = tg.explain(compiled).entries[0].breaks
    assert "disabled" in found.reason and ("for a reason" in found.reason) == (what == "reason")
    torch.testing.assert_close(tg.compile(plus, fullgraph=True)(pair[0]), pair[0] + 1)  # which is not marked itself


def test_what_a_disabled_function_calls():
    def inner(x):
        return x * 2, tg.is_compiling()

    for recursive in (True, False):
        outer = tg.disable(lambda x: (*inner(x), tg.is_compiling()), recursive=recursive)
        assert tg.compile(lambda x: outer(x + 1))(torch.ones(2))[1:] == (not recursive, False)  # noqa: B023


def test_anomaly_detection_around_a_compile():
    compiled, x = tg.compile(lambda x: (x.sqrt() * 0).sum()), torch.zeros(3, requires_grad=True)
    with torch.autograd.detect_anomaly(), pytest.raises(RuntimeError, match="nan values"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled(x).backward()
    assert not tg.explain(compiled).record.fallbacks


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


def test_a_module_with_slots():
    class Counting(torch.nn.Module):
        __slots__ = ("calls", "scale")

        def __init__(self):
            super().__init__()
            self.calls, self.scale = 0, 2.0
            self.linear = torch.nn.Linear(3, 3)

        def forward(self, x):
            self.calls += 1
            return self.linear(x) * self.scale

    module = Counting()
    compiled = tg.compile(module, backend="eager")
    x = torch.ones(2, 3)
    for scale in (2.0, 3.0):
        compiled.scale = scale
        torch.testing.assert_close(compiled(x), module.linear(x) * scale)
    assert module.scale == 3.0 and compiled.calls == module.calls == 2
    assert isinstance(compiled, Counting) and list(compiled.state_dict()) == list(module.state_dict())
    del compiled.calls
    assert not hasattr(module, "calls")
    copied = copy.deepcopy(compiled)
    torch.testing.assert_close(copied.linear(x), module.linear(x))


def test_programs_that_ask_take_a_compiled_function_for_a_function(pair):
    compiled = tg.compile(foo)
    assert inspect.isfunction(compiled) and inspect.isroutine(compiled)
    assert compiled.__code__ is foo.__code__ and compiled.__globals__ is foo.__globals__
    assert str(inspect.signature(compiled)) == "(x, y)" and inspect.getsource(compiled) == inspect.getsource(foo)
    torch.testing.assert_close(compiled(*pair), foo(*pair))


def test_fx_traces_through_compiled_functions_and_modules():
    x, network = torch.randn(3, 100), Network()
    for traced in (torch.fx.symbolic_trace(tg.compile(foo)), torch.fx.symbolic_trace(foo)):
        torch.testing.assert_close(traced(x, x), foo(x, x))
    torch.testing.assert_close(torch.fx.symbolic_trace(tg.compile(network))(x), network(x))


def test_a_class_is_compiled_for_its_objects():
    class Scaled(Network):
        def forward(self, x):
            return self.linear(x) * 2

    class Adds:
        def __init__(self, number):
            self.number = number

        def __call__(self, x):
            return x + self.number

    assert tg.compile(Scaled) is Scaled and tg.compile(Adds) is Adds
    x = torch.randn(4, 100)
    for module in (Scaled(), Scaled()):
        torch.testing.assert_close(module(x), module.linear(x) * 2)
    for number in (1, 2):
        torch.testing.assert_close(Adds(number)(x), x + number)
    assert tg.explain(Scaled.forward).to_dict()["entries"] and tg.explain(Adds.__call__).to_dict()["entries"]


@pytest.mark.parametrize("cls", [bool, list, torch.Size])
def test_classes_that_cannot_be_compiled(cls):
    with pytest.raises(TypeError, match="model must be a class whose objects are called by a method in Python"):
        tg.compile(cls)
