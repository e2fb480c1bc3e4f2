"""``tg.set_stance``: what calls of compiled functions do, by what they ran and what they gave."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import torchglass as tg
from torchglass.switching.stance import STANCES

x, y = torch.ones(2, 2), torch.ones(3, 2)


@pytest.fixture(autouse=True)
def back_to_default() -> Iterator[None]:
    yield
    tg.set_stance("default")


class Told:
    """A function that tells whether it ran as Python: capture runs none of ``note``."""

    def __init__(self, **options: Any) -> None:
        self.ran = 0

        def function(a: torch.Tensor) -> torch.Tensor:
            if not tg.is_compiling():
                self.ran += 1
            return a.sin() + 1

        self.compiled = tg.compile(function, **{"backend": "eager", **options})

    def by_python(self, a: torch.Tensor) -> bool:
        before = self.ran
        torch.testing.assert_close(self.compiled(a), a.sin() + 1)
        return self.ran > before


def test_force_eager_runs_the_function_where_an_entry_fits() -> None:
    told = Told()
    assert not told.by_python(x)
    with tg.set_stance("force_eager"):
        assert told.by_python(x) and told.by_python(y)
    assert not told.by_python(x) and len(told.compiled.entries) == 1


def test_eager_on_recompile_runs_entries_and_makes_none() -> None:
    told = Told()
    told.compiled(x)
    with tg.set_stance("eager_on_recompile"):
        assert not told.by_python(x) and told.by_python(y)
    assert not told.by_python(y) and len(told.compiled.entries) == 2


def test_fail_on_recompile_says_why() -> None:
    told = Told()
    told.compiled(x)
    with tg.set_stance("fail_on_recompile"):
        assert not told.by_python(x)
        with pytest.raises(RuntimeError, match=r"(?s)fail_on_recompile.*a\.shape\[0\] was 2, is 3"):
            told.compiled(y)
    told.compiled(y)


def test_fail_on_recompile_leaves_plain_helpers_alone() -> None:
    def helper(n: int) -> int:
        return n + 1

    def function(a: torch.Tensor, n: int) -> torch.Tensor:
        tg.graph_break()
        return a + len([helper(i) for i in range(n)])

    compiled = tg.compile(function, backend="eager")
    compiled(x, 2)
    with tg.set_stance("fail_on_recompile"):
        assert compiled(x, 2).sum() == 12


@pytest.mark.parametrize("stance", ["eager_then_compile", "aot_eager_then_compile"])
def test_the_first_call_otherwise_and_the_next_compiled(stance: str) -> None:
    graphs: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        graphs.append(graph)
        return graph

    told = Told(backend=backend)
    with tg.set_stance(stance):
        assert told.by_python(x) == (stance == "eager_then_compile") and not graphs
        assert not told.by_python(x) and len(graphs) == 1
        assert not told.by_python(x) and len(graphs) == 1


def test_force_backend_compiles_by_it_and_keeps_what_was_there() -> None:
    graphs: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        graphs.append(graph)
        return graph

    told = Told()
    told.compiled(x)
    with tg.set_stance(force_backend=backend):
        for _ in range(2):
            assert not told.by_python(x) and len(graphs) == 1
    assert not told.by_python(x) and len(told.compiled.entries) == 1 and len(graphs) == 1


def test_force_backend_across_a_graph_break() -> None:
    graphs: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        graphs.append(graph)
        return graph

    @tg.compile(backend="eager")
    def function(a: torch.Tensor) -> torch.Tensor:
        a = a + 1
        tg.graph_break()
        return a * 2

    function(x)
    with tg.set_stance(force_backend=backend):
        assert function(x).sum() == function(x).sum() == 16
    assert len(graphs) == 2


def test_as_function_decorator_and_nested_manager() -> None:
    told = Told()
    told.compiled(x)

    @tg.set_stance("force_eager")
    def eager() -> bool:
        return told.by_python(x)

    assert not told.by_python(x)  # decorating changed nothing
    assert eager() and not told.by_python(x)
    with tg.set_stance("force_eager"):
        with tg.set_stance("default"):
            assert not told.by_python(x)
        assert told.by_python(x)
    tg.set_stance("force_eager")
    assert told.by_python(x)
    tg.set_stance("default")
    assert not told.by_python(x)


def test_it_holds_for_modules_training_and_all_threads() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout(0.0))
    compiled = tg.compile(model)
    compiled(x).sum().backward()
    assert model[0].weight.grad is not None
    answers: list[torch.Tensor] = []
    with tg.set_stance("force_eager"):
        thread = threading.Thread(target=lambda: answers.append(compiled(y)))
        thread.start()
        thread.join()
    torch.testing.assert_close(answers[0], model(y))
    assert len(compiled.forward.entries) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"stance": "force_eagre"}, "did you mean 'force_eager'"),
        ({"stance": "force_eager", "force_backend": "eager"}, "force_backend goes with"),
        ({"force_backend": "glas"}, "did you mean 'glass'"),
    ],
)
def test_what_is_refused_changes_nothing(arguments: dict[str, Any], message: str) -> None:
    told = Told()
    with pytest.raises(ValueError, match=message):
        tg.set_stance(**arguments)
    assert not told.by_python(x)


def test_every_stance_has_a_rule() -> None:
    from torchglass.switching.stance import RULES

    assert list(RULES) == list(STANCES)
