"""Every program of the tables gives eager's results, side effects and exceptions; the whole ones in one graph."""

import enum
import math
import warnings
from collections import deque

import numpy as np
import pytest
import torch

import torchglass as tg

from . import (
    class_programs,
    group_programs,
    mode_programs,
    object_programs,
    override_programs,
    programs,
    protocol_programs,
    tensor_programs,
)

FILES = {
    "objects": object_programs,
    "tensors": tensor_programs,
    "classes": class_programs,
    "modes": mode_programs,
    "overrides": override_programs,
    "groups": group_programs,
    "protocols": protocol_programs,
}
WHOLE = programs.WHOLE | {f"{n} of {kind}": f for kind, file in FILES.items() for n, f in file.WHOLE.items()}
BREAKING = programs.BREAKING | {f"{n} of {kind}": f for kind, file in FILES.items() for n, f in file.BREAKING.items()}


def make_input():
    return torch.randn(3, 4, generator=torch.Generator().manual_seed(0))


def outcome(function, *args):
    torch.manual_seed(0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return function(*args)
    except Exception as error:
        return type(error), str(error)


def same(a, b):
    if isinstance(a, torch.Tensor):
        torch.testing.assert_close(a, b, equal_nan=True)
        assert a.requires_grad == b.requires_grad
        return
    if type(a) is not type(b):
        # a class made inside is another one at each call
        assert "<locals>" in type(a).__qualname__, (a, b)
        assert type(a).__qualname__ == type(b).__qualname__ and type(a).__bases__ == type(b).__bases__
    if isinstance(a, (list, tuple, deque)):
        assert len(a) == len(b)
        for left, right in zip(a, b):
            same(left, right)
    elif isinstance(a, dict):
        assert list(a) == list(b)
        for key in a:
            same(a[key], b[key])
    elif isinstance(a, np.ndarray):
        np.testing.assert_allclose(a, b)
    elif isinstance(a, float) and math.isnan(a):
        assert math.isnan(b)
    elif (
        hasattr(type(a), "__slots__") and not hasattr(a, "__dict__") and type(a).__module__ == object_programs.__name__
    ):
        for name in type(a).__slots__:
            same(getattr(a, name, None), getattr(b, name, None))
    elif hasattr(a, "__dict__") and not isinstance(a, (type, enum.Enum)):
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


@pytest.mark.parametrize("name", [n for n in WHOLE if "of tensors" not in n and "of modes" not in n])
def test_without_tensors(name):
    """What the program does with a number: results, or the exception where it wanted a tensor."""
    compiled = tg.compile(WHOLE[name], backend="eager")
    for _ in range(2):
        same(outcome(compiled, 4), outcome(WHOLE[name], 4))
