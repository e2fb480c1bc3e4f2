"""What programs say by ``torch.compiler`` and ``torch._dynamo`` holds for ours, and by the same names of ``tg``."""

import inspect
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch._dynamo
from torch import nn

import torchglass as tg

x = torch.ones(2, 2)


@pytest.fixture(autouse=True)
def default_stance() -> Iterator[None]:
    yield
    torch.compiler.set_stance("default")


def graphs_of(function: Callable[..., Any], *args: Any, calls: int = 2, **options: Any) -> list[str]:
    """The text of each graph of the compiled function, its results compared with the function's own."""
    graphs: list[str] = []

    def backend(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        graphs.append(graph.code)
        return graph

    compiled = tg.compile(function, backend=backend, **options)
    for _ in range(calls):
        torch.testing.assert_close(compiled(*args), function(*args))
    return graphs


def helper(a: torch.Tensor) -> torch.Tensor:
    return a.cos()


# --- stances and reset ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("set_stance", [torch.compiler.set_stance, torch._dynamo.set_stance])
def test_a_stance_of_torch_compiler_is_ours_too(set_stance: Any) -> None:
    ran: list[int] = []

    @tg.compile(backend="eager")
    def function(a: torch.Tensor) -> torch.Tensor:
        if not torch.compiler.is_compiling():
            ran.append(1)
        return a + 1

    function(x)
    with set_stance("force_eager"):
        function(x)
    function(x)
    assert len(ran) == 1
    set_stance("eager_on_recompile")
    function(torch.ones(3))
    assert len(ran) == 2 and len(function.entries) == 1


def test_reset_of_torch_compiler_is_ours_too() -> None:
    compiled = tg.compile(helper, backend="eager")
    compiled(x)
    torch.compiler.reset()
    assert not compiled.entries


# --- marks ------------------------------------------------------------------------------------------------------------
MARKS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "dynamic": (tg.mark_dynamic, torch._dynamo.mark_dynamic),
    "maybe": (tg.maybe_mark_dynamic, torch._dynamo.maybe_mark_dynamic),
    "unbacked": (tg.mark_unbacked, torch._dynamo.decorators.mark_unbacked),
    "static": (tg.mark_static, torch._dynamo.mark_static),
}


def marks_on(tensor: torch.Tensor) -> dict[str, Any]:
    apart = {"_dynamo_dynamic_range", "_specialize_on"}  # of a class of its own; forgotten at the next mark
    if torch.__version__ < "2.12":
        apart.add("_has_dynamo_dim_marking")  # what later versions ask first
    return {name: value for name, value in vars(tensor).items() if name not in apart}


@pytest.mark.parametrize("kind", MARKS)
@pytest.mark.parametrize("index", [0, [0, 1]])
def test_marks_are_torch_compiles_and_cost_no_entry(kind: str, index: Any) -> None:
    ours, theirs = torch.ones(2, 2), torch.ones(2, 2)
    MARKS[kind][0](ours, index)
    MARKS[kind][1](theirs, index)
    assert marks_on(ours) == marks_on(theirs) != {}
    compiled = tg.compile(helper, backend="eager")
    for tensor in (x, ours, theirs, x):
        compiled(tensor)
    assert len(compiled.entries) == 1 and marks_on(ours) == marks_on(theirs) != {}


@pytest.mark.parametrize("mark", [tg.mark_static_address, torch._dynamo.mark_static_address])
def test_addresses_of_parameters_and_buffers(mark: Any) -> None:
    model = nn.Linear(2, 2)
    compiled = tg.compile(model, backend="eager")
    compiled(x)
    mark(model.weight)
    mark(model.bias, guard=True)
    compiled(x)
    assert len(compiled.forward.entries) == 1 and model.weight._dynamo_static_input_type == "unguarded"


def test_bounds_of_marks_are_kept() -> None:
    tensor = torch.ones(4, 4)
    tg.mark_dynamic(tensor, 1, min=2, max=64)
    assert [tuple(r) for r in tensor._dynamo_dynamic_range] == [(1, 2, 64)]


def test_a_class_of_modules_is_marked_and_returned() -> None:
    class Model(nn.Module):
        pass

    assert tg.mark_static(Model) is Model
    with pytest.raises(TypeError):
        tg.mark_static(3)


def test_pytorchs_compiler_reads_our_marks() -> None:
    sizes: list[Any] = []

    def backend(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        sizes.extend(type(value).__name__ for value in inputs)
        return graph.forward

    tensor = torch.ones(5, 2)
    tg.mark_dynamic(tensor, 0, min=2, max=64)
    torch.compile(lambda a: a + a.shape[0], backend=backend)(tensor)
    assert "SymInt" in sizes


# --- functions used inside --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("disable", [tg.disable, torch.compiler.disable])
def test_disable_made_at_call_time(disable: Any) -> None:
    graphs = graphs_of(lambda a: disable(helper)(a.sin()) + 1, x, calls=3)
    assert len(graphs) == 2 and not any("cos" in graph for graph in graphs)


@pytest.mark.parametrize("allow", [tg.allow_in_graph, torch.compiler.allow_in_graph])
def test_allowed_functions_are_one_node(allow: Any) -> None:
    @allow
    def node(a: torch.Tensor) -> torch.Tensor:
        return a.sin() + 1

    (graph,) = graphs_of(lambda a: node(a) * 2, x, fullgraph=True)
    assert "sin" not in graph and "node" in graph


@pytest.mark.parametrize("allow", [tg.allow_in_graph, torch.compiler.allow_in_graph])
def test_allowed_functions_without_tensors_are_interpreted(allow: Any) -> None:
    """transformers marks a property that gives a dictionary."""

    @allow
    def table(n: int) -> dict[str, int]:
        return {"n": n}

    (graph,) = graphs_of(lambda a: a * table(3)["n"], x, fullgraph=True)
    assert "3" in graph


@pytest.mark.parametrize("assume", [tg.assume_constant_result, torch.compiler.assume_constant_result])
def test_assumed_constants_are_asked_once(assume: Any) -> None:
    asked: list[int] = []

    class Settings:
        @assume
        def factor(self, name: str) -> int:
            with open("/dev/null") as file:  # nothing that could be captured
                asked.append(len(file.read()))
            return len(name)

    settings = Settings()
    compiled = tg.compile(lambda a: a * settings.factor("abc"), backend="eager", fullgraph=True)
    for _ in range(3):
        assert compiled(x).sum() == 12
    assert len(asked) == 1


@pytest.mark.parametrize("region", [tg.nested_compile_region, torch.compiler.nested_compile_region])
def test_nested_regions_are_in_the_graph(region: Any) -> None:
    outside = region(helper)
    (graph,) = graphs_of(lambda a: outside(a) + region(helper)(a), x, fullgraph=True)
    assert graph.count(".cos()") == 2


def test_steps_and_static_marks_are_nothing_inside() -> None:
    def function(a: torch.Tensor) -> torch.Tensor:
        torch.compiler.cudagraph_mark_step_begin()
        tg.cudagraph_mark_step_begin()
        torch._dynamo.mark_static(a, 0)
        return a + 1

    assert len(graphs_of(function, x, fullgraph=True)) == 1


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        (tg.is_compiling, True),
        (torch.compiler.is_compiling, True),
        (torch.compiler.is_dynamo_compiling, True),
        (torch._dynamo.is_compiling, True),
        (tg.is_exporting, False),
        (torch.compiler.is_exporting, False),
    ],
)
def test_questions(question: Any, answer: bool) -> None:
    compiled = tg.compile(lambda a: a + (1 if question() else 2), backend="eager", fullgraph=True)
    assert compiled(x).sum() == (8 if answer else 12)


@pytest.mark.parametrize("substitute", [tg.substitute_in_graph, torch.compiler.substitute_in_graph])
def test_substitutes_are_interpreted(substitute: Any) -> None:
    original = {tg.substitute_in_graph: time.get_clock_info, torch.compiler.substitute_in_graph: time.clock_getres}

    @substitute(original[substitute], skip_signature_check=True)
    def instead(a: int) -> int:
        return a + 41

    real = original[substitute]
    compiled = tg.compile(lambda a: a * real(1), backend="eager", fullgraph=True)
    assert compiled(x).sum() == 168


def test_recompile_limit_is_an_option() -> None:
    with tg.installed():
        if "recompile_limit" not in inspect.signature(torch.compile).parameters:
            pytest.skip("torch 2.13")
        compiled = torch.compile(helper, recompile_limit=1)
    assert compiled.function_state.options.get("cache_limit") == 1
