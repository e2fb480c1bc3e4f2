"""A recompile for a size says which it was, from what to what, and what becomes of it."""

from __future__ import annotations

import logging
import runpy
from collections.abc import Callable
from typing import Any

import pytest
import torch

import torchglass as tg
from torchglass.records.guards import Guard, TensorMeta
from torchglass.records.origin import UNKNOWN
from torchglass.records.sources import Item, Local
from torchglass.runtime import guards


class Config:
    def __init__(self, n: int) -> None:
        self.n = n


def branch(x: torch.Tensor) -> torch.Tensor:
    if x.shape[0] < 11:
        return x.relu()
    return x.tanh()


def loop(x: torch.Tensor) -> torch.Tensor:
    total = x
    for i in range(x.shape[0]):
        total = total + i
    return total


def window(x: torch.Tensor) -> torch.Tensor:
    return x * torch.hann_window(x.shape[0])[:, None]


def powers(x: torch.Tensor) -> torch.Tensor:
    return torch.vander(x)


def number(x: torch.Tensor, n: int) -> torch.Tensor:
    return x.new_zeros(n).sum() + x


def length(xs: list[torch.Tensor]) -> torch.Tensor:
    return xs[0].new_zeros(len(xs))


def attribute(x: torch.Tensor, config: Config) -> torch.Tensor:
    return x.new_zeros(config.n).sum() + x


def many(n: int) -> list[torch.Tensor]:
    return [torch.ones(3)] * n


MADE: dict[Callable[..., Any], Callable[[int], tuple[Any, ...]]] = {
    branch: lambda n: (torch.ones(n),), loop: lambda n: (torch.ones(n),), window: lambda n: (torch.ones(n, 8),),
    powers: lambda n: (torch.ones(n),),
    number: lambda n: (torch.ones(3), n), length: lambda n: (many(n),), attribute: lambda n: (torch.ones(3), Config(n)),
}  # fmt: skip


def after(function: Callable[..., Any], *sizes: int, backend: Any = "aot_eager", **options: Any) -> tg.api.Explanation:
    compiled = tg.compile(function, backend=backend, **options)
    for n in sizes:
        compiled(*MADE[function](n))
    return tg.explain(compiled)


@pytest.mark.parametrize(
    ("function", "changed", "advice"),
    [
        (branch, "x.shape[0] was 10, is 8", "x.shape[0] is left open from here on (from the first call with"),
        (loop, "x.shape[0] was 10, is 8", "x.shape[0] stays a number: its value was used, for `for i in range("),
        (
            window,
            "x.shape[0] was 10, is 8",
            "x.shape[0] stays a number: `hann_window` takes a number, for `return x * ",
        ),
        (powers, "x.shape[0] was 10, is 8", "x.shape[0] stays a number: "),
        (number, "n was 10, is 8", "n is left open from here on"),
        (length, "len(xs) was 10, is 8", "len(xs) is left open from here on"),
        (attribute, "['n'] was 10, is 8", "config.n is left open from here on"),
    ],
)
def test_what_changed(function: Any, changed: str, advice: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "torchglass"):
        explained = after(function, 10, 8)
    assert changed in caplog.records[-1].getMessage()
    assert advice in caplog.records[-1].getMessage()
    (recompile,) = explained.to_dict()["recompiles"]
    assert recompile["advice"].startswith(advice)


@pytest.mark.parametrize("function", [number, length, attribute])
def test_a_third_size_is_no_recompile(function: Any) -> None:
    assert len(after(function, 10, 8, 13).to_dict()["recompiles"]) == 1


@pytest.mark.parametrize(
    ("function", "guard", "line"),
    [(branch, "x.shape[0] <= 10", "if x.shape[0] < 11:"), (loop, "x.shape[0] == 8", "for i in range(x.shape[0]):")],
)
def test_what_a_program_asked_of_a_size(function: Any, guard: str, line: str) -> None:
    explained = after(function, 10, 8, 13)
    recompile = explained.to_dict()["recompiles"][-1]
    assert (recompile["old"], recompile["new"]) == (guard, "x.shape[0] = 13")
    assert recompile["advice"].startswith(f"its value was used, for `{line}` (test_recompiles.py:")
    assert guard in {row["check"] for row in explained.to_dict()["entries"][1]["guards"]}
    assert line in str(explained).replace("\n", " ") or line.split()[0] in str(explained)


def test_dynamic_false_says_so() -> None:
    (recompile,) = after(branch, 10, 8, dynamic=False).to_dict()["recompiles"]
    assert recompile["advice"] == "x.shape[0] stays a number: dynamic=False says so"


def test_a_callable_backend_gets_numbers() -> None:
    (recompile,) = after(branch, 10, 8, backend=lambda gm, inputs: gm.forward).to_dict()["recompiles"]
    assert recompile["advice"] == "x.shape[0] stays a number: its backend is given numbers"


@pytest.mark.parametrize(("function", "taken"), [(branch, [{10}, {8, 10}, {13}]), (loop, [{10}, {8}, {13}])])
def test_the_guards_as_text_hold_for_the_call(function: Any, taken: list[set[int]]) -> None:
    """A comparison is written as one: ``s < 11 is True`` would be ``s < 11 and 11 is True``."""
    explained = after(function, 10, 8, 13)
    for entry, sizes in zip(explained.all_entries(), taken, strict=True):
        check = runpy.run_path(str(explained.record.folder / f"entry_{entry.index}" / "guards.py"))["check"]
        assert {n for n in (10, 8, 13) if check(torch.ones(n)) is not None} == sizes


def in_turn(x: torch.Tensor, room: Config | None) -> torch.Tensor:
    return x.cos() if room is None else x.new_zeros(room.n).sum() + x


def test_what_changed_since_the_entry_that_comes_nearest() -> None:
    """The newest entry reads nothing of what the call brings."""
    compiled = tg.compile(in_turn, backend="aot_eager")
    for n in (10, None, 8, 13, None):
        compiled(torch.ones(3), None if n is None else Config(n))
    assert [row["old"] for row in tg.explain(compiled).to_dict()["recompiles"]][1:] == ["10"]


def met(x: torch.Tensor, n: int) -> torch.Tensor:
    return x + x.new_zeros(n) if n else x * 2


def compared(x: torch.Tensor, n: int) -> torch.Tensor:
    return x.tan() if x.shape[0] == 8 else x.sin()


def added(x: torch.Tensor, n: int) -> torch.Tensor:
    return x.new_zeros(n + x.shape[0]) + 1


@pytest.mark.parametrize(
    ("function", "calls"),
    [
        (met, [(8, 0), (8, 8), (9, 9), (10, 10), (11, 11)]),  # a size that did not change yet is a number
        (compared, [(10, 0), (8, 0), (9, 0), (11, 0), (12, 0)]),
        (added, [(4, 3), (5, 0), (6, 0), (7, 0), (8, 1), (9, 2)]),
    ],
)
def test_a_number_that_was_met_once(function: Any, calls: list[tuple[int, int]]) -> None:
    compiled = tg.compile(function, backend="aot_eager")
    for size, n in calls:
        assert torch.equal(compiled(torch.ones(size), n), function(torch.ones(size), n))
    assert len(tg.explain(compiled).entries) == 3


def test_a_call_with_another_keyword_is_compared_with_its_like() -> None:
    """An entry without the mask misses it alone; one with a mask misses its size and a number."""

    def f(**inputs: Any) -> None: ...

    inputs = Local("inputs")
    told = "", UNKNOWN
    without = (Guard(inputs, "dict_keys", ["x", "n"], *told),)
    like = (
        Guard(Item(inputs, "n"), "constant", 7, *told),
        Guard(Item(inputs, "mask"), "tensor", TensorMeta.of(torch.ones(12)), *told),
    )
    scope = guards.scope_of(f, ({"x": 1, "n": 8, "mask": torch.ones(13)},))
    for entries, nearest in (([without, like], 1), ([like, without], 0)):
        failures, newest = guards.nearest_failures(entries, scope)
        assert (failures[0][0], newest) == (nearest, nearest)


def test_a_dictionary_that_grows_is_of_the_same_kind() -> None:
    """What a program keeps grows at every call: only the keywords of the call itself tell kinds of calls apart."""

    def f(memory: dict[str, int]) -> None: ...

    memory = Local("memory")
    told = "", UNKNOWN
    short = (Guard(Item(memory, "n"), "constant", "none", *told), Guard(Item(memory, "n"), "type", str, *told))
    grown = (Guard(memory, "dict_keys", ["n"], *told),)
    failures, newest = guards.nearest_failures([grown, short], guards.scope_of(f, ({"n": 1, "m": 2},)))
    assert (failures[0][0], newest) == (0, 0)


def test_which_mode_changed() -> None:
    compiled, x = tg.compile(lambda x: x + 1), torch.ones(3)
    compiled(x)
    with torch.no_grad():
        compiled(x)
    (recompile,) = compiled.function_state.record.recompiles
    assert (str(recompile.old), str(recompile.new)) == ("grad_mode=True", "grad_mode=False")


def test_calls_that_raise_are_no_sign_of_a_size_that_grows() -> None:
    def serve(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (x @ w).relu()

    compiled = tg.compile(serve, backend="aot_eager")
    w = torch.randn(5, 4)
    compiled(torch.randn(3, 5), w)
    for columns in range(6, 14):
        with pytest.raises(RuntimeError):
            compiled(torch.randn(3, columns), w)
    for rows in (4, 6, 8):
        x = torch.randn(rows, 5)
        torch.testing.assert_close(compiled(x, w), serve(x, w))
    assert len(list(tg.explain(compiled).all_entries())) == 10
