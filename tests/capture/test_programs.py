"""Every program of programs.py gives eager's results, side effects and exceptions; the whole ones in one graph."""

import math

import pytest
import torch

import torchglass as tg

from .programs import BREAKING, WHOLE


def make_input():
    return torch.randn(3, 4, generator=torch.Generator().manual_seed(0))


def outcome(function, *args):
    try:
        return function(*args)
    except Exception as error:
        return type(error), str(error)


def same(a, b):
    if isinstance(a, torch.Tensor):
        torch.testing.assert_close(a, b)
        assert a.requires_grad == b.requires_grad
        return
    assert type(a) is type(b), (a, b)
    if isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        for left, right in zip(a, b):
            same(left, right)
    elif isinstance(a, dict):
        assert list(a) == list(b)
        for key in a:
            same(a[key], b[key])
    elif isinstance(a, float) and math.isnan(a):
        assert math.isnan(b)
    elif hasattr(a, "__dict__") and not isinstance(a, type):
        same(vars(a), vars(b))
    else:
        assert a == b


@pytest.fixture(autouse=True)
def clean(tmp_path):
    tg.reset()
    with tg.prepare_debug(tmp_path):
        yield


@pytest.mark.parametrize("name", WHOLE)
def test_captured_whole(name):
    compiled = tg.compile(WHOLE[name], backend="eager", fullgraph=True)
    expected = outcome(WHOLE[name], make_input())
    for _ in range(2):
        same(outcome(compiled, make_input()), expected)
    assert len(tg.explain(compiled).entries) == 1


@pytest.mark.parametrize("name", BREAKING)
def test_broken_and_right(name):
    compiled = tg.compile(BREAKING[name], backend="eager")
    for sign in (1, -1, 1):
        x = make_input() * sign
        same(outcome(compiled, x), outcome(BREAKING[name], x))
