"""Runs programs and compares what they give, by value and all the way down."""

import contextlib
import copy
import enum
import io
import math
import random
import warnings
from collections import deque

import numpy as np
import torch

import torchglass as tg


def make_input():
    return torch.randn(3, 4, generator=torch.Generator().manual_seed(0))


def seed(number):
    """As torch.manual_seed, which for each kind of GPU that there might be keeps the stack in words: milliseconds."""
    torch.default_generator.manual_seed(number)


def outcome(function, *args):
    seed(0)
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
    elif hasattr(type(a), "__slots__") and not hasattr(a, "__dict__") and type(a).__module__.endswith("_programs"):
        for name in type(a).__slots__:
            same(getattr(a, name, None), getattr(b, name, None))
    elif hasattr(a, "__dict__") and not isinstance(a, (type, enum.Enum)):
        same(vars(a), vars(b))
    else:
        assert a == b


def run(function, arguments):
    """Results (or exceptions) and printed text of each call, in order."""
    results, out = [], io.StringIO()
    with contextlib.redirect_stdout(out), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for args in arguments:
            seed(1)
            random.seed(1)
            try:
                results.append(copied(function(*args)))
            except Exception as error:
                results.append((type(error), str(error), type(error.__cause__)))
    return results, out.getvalue()


def copied(result):
    """Results as they are now: a later call may write to them."""
    with torch.no_grad():
        try:
            return copy.deepcopy(result)
        except Exception:
            return result


def in_step(function, *calls):
    """Call eager and compiled with equal arguments; results and what became of the arguments are equal."""
    compiled = tg.compile(function, backend="eager")
    for make in calls:
        mine, theirs = make(), make()
        same(outcome(compiled, *mine), outcome(function, *theirs))
        same(mine, theirs)


def same_as_plain(function, *args, whole=True):
    expected = outcome(function, *args)
    compiled = tg.compile(function, backend="eager", fullgraph=whole)
    assert outcome(compiled, *args) == expected
    assert outcome(compiled, *args) == expected
    return compiled
