"""Loops with graph breaks: every round runs one piece of code, compiled once, and thousands of rounds do not nest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import torchglass as tg

from ..compared import same

ROUNDS = 1500  # more than Python lets nest


def plain(x, n, log):
    for _ in range(n):
        x = x + 1
        tg.graph_break()
        x = x * 0.5
    return x


def in_with(x, n, log):
    for _ in range(n):
        with torch.no_grad():
            x = x + 1
            tg.graph_break()
            x = x * 0.5
    return x, torch.is_grad_enabled()


def in_try(x, n, log):
    try:
        for _ in range(n):
            x = x + 1
            tg.graph_break()
        raise ValueError(n)
    except ValueError as error:
        return x, error.args
    finally:
        log.append("done")


def nested(x, n, log):
    for _ in range(n // 2):
        for _ in range(2):
            x = x + 1
            tg.graph_break()
        x = x.cos()
    return x


def broken_helper(x):
    x = x + 1
    tg.graph_break()
    return x.sin()


def calling(x, n, log):
    for _ in range(n):
        x = broken_helper(x)
    return x


def until_a_value(x, n, log):
    while x.sum() < n:
        x = x + 1
    return x


def generated(x, n, log):
    return sum(_rounds(x, n, log))


def _rounds(x, n, log):
    for _ in range(n):
        tg.graph_break()
        yield x * 2


def raising(x, n, log):
    for _ in range(n):
        x = x + 1
        tg.graph_break()
    log.append("before")
    raise KeyError("after")


PROGRAMS = [plain, in_with, in_try, nested, calling, until_a_value, generated, raising]


def outcome(function: Any) -> Any:
    log: list[Any] = []
    try:
        result = function(torch.linspace(0, 1, 4), ROUNDS, log)
    except KeyError as error:
        result = repr(error)
    return result, log


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_many_rounds_are_one_piece_of_code(program: Any) -> None:
    compiled = tg.compile(program, backend="eager")
    expected = outcome(program)
    for _ in range(2):
        same(outcome(compiled), expected)
    assert sum(1 for _ in tg.explain(compiled).record.walk()) < 9


@pytest.mark.complains("64 entries")
def test_recursion_of_the_user_stays_recursion() -> None:
    def deep(x, n):
        tg.graph_break()
        return x if n == 0 else deep(x + 1, n - 1)

    compiled = tg.compile(deep, backend="eager")
    assert torch.equal(compiled(torch.ones(2), 20), torch.full((2,), 21.0))
    with pytest.raises(RecursionError):
        compiled(torch.ones(2), 5000)
    assert torch.equal(compiled(torch.ones(2), 20), torch.full((2,), 21.0))


def test_a_compiled_function_called_amid_the_rounds_of_another() -> None:
    """What it puts off is its own: it has returned its result when the round goes on."""
    inner = tg.compile(plain, backend="eager")

    class Shown:
        def __init__(self, n):
            self.n = n

        def __str__(self):
            return f"{inner(torch.ones(2), self.n, []).sum().item():.3f}"

    def outer(x, n, log):
        for _ in range(n):
            x = x + 1
            log.append(str(Shown(30)))
        return x

    log: list[str] = []
    assert torch.equal(tg.compile(outer, backend="eager")(torch.ones(2), 40, log), torch.full((2,), 41.0))
    assert log == ["2.000"] * 40


def test_the_folder_of_a_loop_is_flat(tmp_path: Path) -> None:
    with tg.prepare_debug(tmp_path):
        tg.compile(calling)(torch.ones(3), 40, [])
    folders = {p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("resume_at_*") if p.is_dir()}
    assert len(folders) <= 4 and all(folder.count("resume_at_") == 1 for folder in folders), folders
    texts = [p.read_text() for p in tmp_path.rglob("transformed.py")]
    assert any(text.count("return resume_at_") == 2 for text in texts)  # another round, or on behind the loop
