"""Sizes of which a program says beforehand what they are: marks on tensors, and ``dynamic_shapes=``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.export import Dim

import torchglass as tg

from .test_changing_sizes import entries


def marked(*shape: int, dim: int = 0, mark: Callable[..., Any] = tg.mark_dynamic, **bounds: int) -> torch.Tensor:
    x = torch.randn(shape)
    mark(x, dim, **bounds)
    return x


def open_in_all(x: torch.Tensor) -> Any:
    return x.relu() * x.shape[0], x.shape


def loops(x: torch.Tensor) -> torch.Tensor:
    for i in range(x.shape[0]):
        x = x + i
    return x


def raises_to_powers(x: torch.Tensor) -> torch.Tensor:
    return torch.vander(x[:, 0])


def both(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x + 1, y * 2


def counts(x: torch.Tensor, n: int) -> torch.Tensor:
    for _ in range(n):
        x = x + 1
    return x


def fills(x: torch.Tensor, n: int) -> torch.Tensor:
    return x.new_ones(n).sum() + x


@pytest.mark.parametrize("mark", [tg.mark_dynamic, tg.maybe_mark_dynamic, tg.mark_unbacked])
def test_a_marked_size_is_open_from_the_first_call(mark: Callable[..., Any]) -> None:
    compiled = tg.compile(open_in_all, backend="aot_eager")
    for n in (5, 9, 2, 3):
        x = marked(n, mark=mark)
        torch.testing.assert_close(compiled(x), open_in_all(x))
    assert entries(compiled) == 1


@pytest.mark.parametrize("dynamic", [None, True])
def test_a_size_marked_static_stays_a_number(dynamic: bool | None) -> None:
    compiled = tg.compile(open_in_all, backend="aot_eager", dynamic=dynamic)
    for n in (5, 9, 2):
        compiled(marked(n, mark=tg.mark_static))
    assert entries(compiled) == 3


@pytest.mark.parametrize("function", [loops, raises_to_powers])
@pytest.mark.parametrize("mark", [tg.mark_dynamic, tg.mark_unbacked])
def test_a_program_that_needs_the_number_is_told(function: Any, mark: Callable[..., Any]) -> None:
    compiled = tg.compile(function, backend="aot_eager")
    line = "for i in range(x.shape[0]):" if function is loops else "return torch.vander("
    with pytest.raises(tg.DeclaredSizeError, match=r"(?s)needs x\.shape\[0\] as a number, but mark_\w+ says") as raised:
        compiled(marked(5, 4, mark=mark))
    assert line in str(raised.value) and "test_declared_sizes.py:" in str(raised.value)


@pytest.mark.parametrize("function", [loops, raises_to_powers])
def test_where_it_only_may_change_there_is_an_entry_for_each(function: Any) -> None:
    compiled = tg.compile(function, backend="aot_eager")
    for n in (5, 7, 5):
        x = marked(n, 4, mark=tg.maybe_mark_dynamic)
        torch.testing.assert_close(compiled(x), function(x))
    assert entries(compiled) == 2


def test_errors_of_the_program_go_first() -> None:
    def adds(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y

    compiled = tg.compile(adds, backend="aot_eager")
    y = torch.randn(3, 4)
    with pytest.raises(RuntimeError, match="must match the size of tensor b"):
        compiled(marked(4, 4), y)
    x = marked(1, 4)
    torch.testing.assert_close(compiled(x, y), adds(x, y))
    with pytest.raises(tg.DeclaredSizeError, match=r"(?s)needs x.shape\[0\] as a number.*`add` asked for sizes"):
        compiled(marked(3, 4), y)


def test_ranges_are_guarded() -> None:
    compiled = tg.compile(open_in_all, backend="aot_eager")
    for n in (2, 8, 5):
        compiled(marked(n, min=2, max=8))
    assert entries(compiled) == 1
    for n in (1, 9):
        with pytest.raises(tg.DeclaredSizeError, match=rf"x\.shape\[0\] is {n}, but mark_dynamic says at least 2 and"):
            compiled(marked(n, min=2, max=8))
    compiled(torch.randn(9))  # of which nothing is said
    assert entries(compiled) == 2


NAMED: dict[str, Any] = {
    "texts": {"x": {0: "b"}, "y": {0: "b", 1: 4}},
    "lists": {"x": ["b", "auto"], "y": ["b", None]},
    "negative": {"x": {-2: "b"}, "y": {-2: "b", -1: "static"}},
    "dimensions": {"x": {0: Dim("b", max=64), 1: Dim.DYNAMIC}, "y": (Dim("b", max=64), Dim.STATIC)},
}


@pytest.mark.parametrize("shapes", NAMED.values(), ids=NAMED)
def test_equal_names_are_equal_sizes(shapes: Any) -> None:
    compiled = tg.compile(both, backend="aot_eager", dynamic_shapes=shapes)
    for n in (3, 7, 2):
        x, y = torch.randn(n, 2), torch.randn(n, 4)
        torch.testing.assert_close(compiled(x, y), both(x, y))
    assert entries(compiled) == 1
    with pytest.raises(tg.DeclaredSizeError, match=r"x.shape\[0\] is 3 and y.shape\[0\] is 4, but .* both are 'b'"):
        compiled(torch.randn(3, 2), torch.randn(4, 4))


def test_what_is_named_needs_no_guard_of_the_program() -> None:
    def adds(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y

    compiled = tg.compile(adds, backend="aot_eager", dynamic_shapes={"x": {0: "b"}, "y": {0: "b"}})
    for n in (3, 1, 7):
        torch.testing.assert_close(compiled(torch.ones(n, 2), torch.ones(n, 2)), torch.full((n, 2), 2.0))
    (entry,) = tg.explain(compiled).to_dict()["entries"]
    sizes = [row["check"] for row in entry["guards"] if "shape[" in row["check"]]
    assert sizes == ["x.shape[0] >= 1", "y.shape[0] == x.shape[0]"]


def test_variables_of_shapes_spec() -> None:
    spec = pytest.importorskip("torch.fx.experimental.dynamic_spec")
    size = spec.ShapeVar("batch", max=64)
    tensors = {"x": spec.TensorSpec([size, None]), "y": spec.TensorSpec([size, 4])}
    for shapes in (spec.ParamsSpec(tensors), spec.ShapesSpec(spec.ParamsSpec(tensors)), tensors):
        compiled = tg.compile(both, backend="aot_eager", dynamic_shapes=shapes)
        for n in (3, 7):
            compiled(torch.randn(n, 2), torch.randn(n, 4))
        assert entries(compiled) == 1
        with pytest.raises(tg.DeclaredSizeError, match=r"x.shape\[0\] is 65, but dynamic_shapes says at most 64"):
            compiled(torch.randn(65, 2), torch.randn(65, 4))
    with tg.installed():
        compiled = torch.compile(both, shapes_spec=spec.ShapesSpec(spec.ParamsSpec(tensors)))
    for n in (3, 7):
        compiled(torch.randn(n, 2), torch.randn(n, 4))
    assert entries(compiled) == 1


def test_whole_numbers() -> None:
    compiled = tg.compile(fills, backend="aot_eager", dynamic_shapes={"n": "dynamic"})
    for n in (4, 7, 9):
        torch.testing.assert_close(compiled(torch.ones(2), n), fills(torch.ones(2), n))
    assert entries(compiled) == 1
    with pytest.raises(tg.DeclaredSizeError, match=r"needs n as a number(?s:.*)for `for _ in range\(n\):`"):
        tg.compile(counts, backend="aot_eager", dynamic_shapes={"n": "dynamic"})(torch.ones(2), 4)


def test_a_number_and_a_size_of_one_name() -> None:
    compiled = tg.compile(fills, backend="aot_eager", dynamic_shapes={"x": ["t"], "n": "t"})
    for n in (4, 7):
        torch.testing.assert_close(compiled(torch.ones(n), n), fills(torch.ones(n), n))
    assert entries(compiled) == 1
    with pytest.raises(tg.DeclaredSizeError, match=r"x.shape\[0\] is 4 and n is 5"):
        compiled(torch.ones(4), 5)


class Sums(torch.nn.Module):
    def forward(self, x: torch.Tensor, *rest: torch.Tensor, **named: torch.Tensor) -> torch.Tensor:
        return sum((one.sum() for one in (*rest, *named.values())), x.sum())


def test_modules_and_variadic_arguments() -> None:
    shapes = {"x": {0: "b"}, "*args": [{0: "b"}], "z": {0: "t"}}
    compiled = tg.compile(Sums(), backend="aot_eager", dynamic_shapes=shapes)
    for n in (3, 7):
        made = compiled(torch.ones(n), torch.ones(n), z=torch.ones(n + 1))
        assert made.item() == 3 * n + 1
    assert entries(compiled) == 1


def test_lists_and_dictionaries_of_tensors() -> None:
    def joined(xs: list[torch.Tensor], ys: dict[str, torch.Tensor]) -> torch.Tensor:
        return torch.cat([*xs, ys["a"]])

    shapes = {"xs": [{0: "s"}, {0: "t"}], "ys": {"a": {0: "s"}}}
    compiled = tg.compile(joined, backend="aot_eager", dynamic_shapes=shapes)
    for n in (3, 7):
        assert compiled([torch.ones(n), torch.ones(2 * n)], {"a": torch.ones(n)}).shape == (4 * n,)
    assert entries(compiled) == 1


WRONG: dict[str, tuple[Any, type[Exception], str]] = {
    "no such argument": ({"z": None}, ValueError, "dynamic_shapes names 'z', which `both` does not take: x, y"),
    "a float": ({"x": {0: 3.5}}, TypeError, r"dynamic_shapes\['x'\]\[0\] must be a name, .* not 3.5"),
    "what is computed of another": ({"x": {0: 2 * Dim("b")}}, TypeError, r"must be a name, .* not 2\*b"),
    "no mapping": ([{0: "b"}], TypeError, "dynamic_shapes must be a mapping of names of arguments"),
}


@pytest.mark.parametrize(("shapes", "kind", "told"), WRONG.values(), ids=WRONG)
def test_what_is_no_specification(shapes: Any, kind: type[Exception], told: str) -> None:
    with pytest.raises(kind, match=told):
        tg.compile(both, dynamic_shapes=shapes)


@pytest.mark.parametrize(
    ("shapes", "told"),
    [
        ({"x": ["b"]}, "x has 2 dimensions, but dynamic_shapes says 1"),
        ({"x": {5: "b"}}, "x has 2 dimensions, but dynamic_shapes says something of 5"),
        ({"x": {1: 7}}, r"x.shape\[1\] is 3, but dynamic_shapes says always 7"),
    ],
)
def test_what_does_not_fit_the_call(shapes: Any, told: str) -> None:
    with pytest.raises(tg.DeclaredSizeError, match=told):
        tg.compile(both, dynamic_shapes=shapes)(torch.ones(2, 3), torch.ones(2, 3))


def test_dynamic_false_contradicts() -> None:
    with pytest.raises(ValueError, match="dynamic=False that none does"):
        tg.compile(both, dynamic=False, dynamic_shapes={"x": {0: "b"}})


def test_after_a_graph_break_marks_still_count() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        tg.graph_break()
        return (x + 1).sum() + y.sum()

    compiled = tg.compile(f, backend="aot_eager")
    for n in (5, 9, 2):
        x = marked(n)
        torch.testing.assert_close(compiled(x), f(x))
    assert entries(compiled) <= 3


@pytest.mark.parametrize("said", [None, {"items": {0: {0: "b"}}}])
def test_marks_are_looked_for_in_containers_that_hold_themselves_or_are_deep(said: Any) -> None:
    compiled = tg.compile(lambda items: items[0] * 2, dynamic_shapes=said)
    for size in (4, 5, 6):
        deep: list[Any] = []
        for _ in range(2000):
            deep = [deep]
        items: list[Any] = [marked(size), deep]
        items.append(items)
        assert torch.equal(compiled(items), items[0] * 2)
    assert entries(compiled) == 1
