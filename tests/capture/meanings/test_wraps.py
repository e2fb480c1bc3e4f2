"""Functions that ``functools.wraps`` gave the name and module of another: what they do is in their own code."""

import functools
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import torchglass as tg

WRAPPED = [F.relu, F.softmax, torch.cat, torch.linalg.norm, torch.nn.init.normal_, torch.utils.checkpoint.checkpoint,
           torch.optim.Adam.step, math.sqrt, np.mean, np.linalg.norm]  # fmt: skip


@pytest.mark.parametrize("library", WRAPPED, ids=lambda f: f"{f.__module__}.{f.__name__}")
@pytest.mark.parametrize("through", [lambda f: f, torch.no_grad()], ids=["alone", "within another"])
def test_a_users_function_in_the_name_of_a_librarys(library, through):
    calls, scale = [], [1.0]

    @through
    @functools.wraps(library)
    def wrapper(x):
        calls.append(scale[0])
        return F.gelu(x) * scale[0]

    def program(x):
        scale[0] += 1
        return wrapper(x)

    x, compiled = torch.randn(3), tg.compile(program, backend="glass", fullgraph=True)
    for number in range(3):
        torch.testing.assert_close(compiled(x), F.gelu(x) * (2 + number))
    assert calls == [2.0, 3.0, 4.0]


def test_functions_made_anew_in_the_name_of_a_librarys_share_an_entry():
    program = tg.compile(lambda f, x: f(x), backend="eager")
    for _ in range(4):

        @functools.wraps(F.relu)
        def doubled(y):
            return y * 2

        assert torch.equal(program(doubled, torch.ones(2)), torch.full((2,), 2.0))
    assert len(tg.explain(program).entries) <= 2


def test_a_transform_in_the_name_of_the_users_function_leaves_none_at_work():
    """``functionalize`` wraps its function; interpreting the wrapper entered a transform and never left it."""

    def program(x):
        return torch.func.functionalize(lambda y: y.clone().add_(1))(x)

    x = torch.ones(3, requires_grad=True)
    out = tg.compile(program, backend="eager")(x)
    out.sum().backward()
    assert torch.equal(out, torch.full((3,), 2.0)) and torch.equal(x.grad, torch.ones(3))
