"""Lists that grow from call to call: one entry, as long as the program reads single items of them."""

import copy

import pytest
import torch

import torchglass as tg

from .test_programs import outcome, same


@pytest.fixture(autouse=True)
def clean():
    tg.reset()


def last(x, h):
    h.append(h[-1] * 0.5 + 1)
    return x * h[-1] + h[-2]


def both_ends(x, h):
    y = x * h[0] * h[1] + h[-1]
    h.append(3.0)
    return y


def inner_lists(x, h):
    end = h[-1]
    end.append(1)
    h.append([2])
    h[-2].append(3)
    return x * len(h[-1]), h[-2] is end


def after_a_break(x, h):
    h.append(x.sum().item())
    print(f"{h[-1]:.2f} {h[0]}")
    return x + 1


def read_then_walked(x, h):
    y = x * h[-1] * h[0]
    if h[0] is h[-1]:
        y = y + 1
    for v in h:
        y = y + v
    return y + h.pop()


def perhaps_empty(x, h):
    try:
        y = x * h[-1]
    except IndexError:
        y = x * 0
    h.append(2.0)
    return y


@pytest.mark.parametrize(
    ("function", "start", "most"),
    [(last, [1.0], 3), (both_ends, [1.0, 2.0], 3), (inner_lists, [[0]], 1), (after_a_break, [], 2),
     (read_then_walked, [2.0, 3.0, 4.0, 5.0, 2.0, 7.0], 6), (perhaps_empty, [], 3)],
)  # fmt: skip
def test_growing(function, start, most):
    compiled = tg.compile(function, backend="eager")
    ours, expected = copy.deepcopy(start), copy.deepcopy(start)
    for n in range(6):
        same(outcome(compiled, torch.ones(2) + n, ours), outcome(function, torch.ones(2) + n, expected))
        same(ours, expected)
    assert max(len(record.entries) for record in tg.explain(compiled).record.walk()) <= most
