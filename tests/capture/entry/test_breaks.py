"""Graph breaks inside blocks: results, side effects, exceptions and where they were raised are eager's.

Each program takes a tensor and a log; none may fall back to running eagerly as a whole.
"""

from __future__ import annotations

import sys
import traceback
from typing import Any

import pytest
import torch

import torchglass as tg

from ..compared import same
from . import broken_blocks, broken_loops
from .broken_blocks import Manager
from .broken_loops import broken

PROGRAMS = [*broken_blocks.PROGRAMS.values(), *broken_loops.PROGRAMS.values()]


INPUTS = [torch.tensor([1.0, 2.0, 3.0]), torch.tensor([-1.0, -2.0, 0.5]), torch.tensor([4.0, 0.0, 9.0])]


def run(function, x):
    log: list[Any] = []
    x = x.clone().requires_grad_()
    try:
        result = function(x, log)
    except Exception as error:
        result = type(error), str(error), repr(error.__context__)
    assert torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")
    assert sys.exc_info() == (None, None, None)
    return result, log


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_break(function):
    compiled = tg.compile(function, backend="eager")
    for x in [*INPUTS, *INPUTS]:
        same(run(compiled, x), run(function, x))
    for record in tg.explain(compiled).record.walk():
        assert not record.fallbacks, record.fallbacks


def set_that_changes_while_iterated(x, log):
    members = {1, 2}
    for member in members:
        log.append(member)
        broken(members.add(member + 10))


def test_a_set_that_changes_while_iterated_around_a_break():
    compiled = tg.compile(set_that_changes_while_iterated, backend="eager")
    for _ in range(2):
        same(run(compiled, INPUTS[0]), run(set_that_changes_while_iterated, INPUTS[0]))


def raises_in_the_middle(x, log):
    y = x * 2
    if x.sum() > 0:
        try:
            y = y + 1
            raise ValueError("positive")
        finally:
            log.append("finally")
    return y


def raises_in_a_call(x, log):
    def check(value):
        if value.shape[0] == 3:
            raise TypeError("three")

    with Manager(log):
        y = x * 2
        check(y)
    return y


def raises_from(x, log):
    try:
        {}["k"]
    except KeyError as error:
        raise RuntimeError("later") from error


def raises_in_an_operation(x, log):
    log.append("before")
    return x @ torch.ones(7)


@pytest.mark.parametrize(
    "function", [raises_in_the_middle, raises_in_a_call, raises_from, raises_in_an_operation], ids=lambda f: f.__name__
)
def test_exceptions_keep_their_lines(function):
    compiled = tg.compile(function, backend="eager")
    for x in [INPUTS[0], INPUTS[0]]:
        seen = []
        for f in (function, compiled):
            log: list[Any] = []
            with pytest.raises(Exception) as caught:
                f(x.clone(), log)
            error = caught.value
            frames = [(t.filename, t.lineno, t.name) for t in traceback.extract_tb(error.__traceback__)]
            own = [f for f in frames if f[0] == __file__ and "test_exceptions" not in f[2]]
            seen.append((type(error), str(error), repr(error.__cause__), repr(error.__context__), own, log))
        assert seen[0] == seen[1]


@pytest.mark.slow
@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_break_and_gradients(function):
    """The same with the default backend, and the gradient that arrives at the input."""
    compiled = tg.compile(function)
    for x in INPUTS:
        gradients = []
        for f in (function, compiled):
            leaf = x.clone().requires_grad_()
            for tensor in tensors_in(f(leaf, [])):
                if tensor.requires_grad:
                    tensor.sum().backward(retain_graph=True)
            gradients.append(leaf.grad)
        same(gradients[1], gradients[0])


def tensors_in(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [t for item in value for t in tensors_in(item)] if isinstance(value, (list, tuple)) else []
