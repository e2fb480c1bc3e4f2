"""Lists that grow from call to call: one entry, as long as the program reads single items of them."""

import collections
import copy

import pytest
import torch

import torchglass as tg

from ..compared import outcome, same


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


def at_times(x, h):
    h.append(1.0)
    return x * 2 if len(h) % 5 == 0 else x


def counted(x, h):
    before = len(h)
    h.append(1.0)
    return x * len(h), before, f"{len(h)} of {before / len(h)}", 10 // len(h), bool(h)


def until_full(x, h):
    if len(h) < 6:
        h.append(x.sum())
        return None
    total = torch.stack(list(h)).sum()
    h.clear()
    return total


def in_a_row(x, h):
    other = h
    other.extend([1, 2])
    return len(h) * x, len(other)


@pytest.mark.parametrize("function", [at_times, counted, until_full, in_a_row])
@pytest.mark.parametrize("bound", [None, 7], ids=["list", "deque"])
def test_lengths_that_are_computed_with(function, bound):
    mine, theirs = ([] if bound is None else collections.deque(maxlen=bound) for _ in range(2))
    compiled = tg.compile(function, fullgraph=True, backend="eager")
    for n in range(20):
        x = torch.full((2,), float(n))
        same(compiled(x, mine), function(x, theirs))
        assert list(map(float, mine)) == list(map(float, theirs))
    assert len(tg.explain(compiled).entries) <= 4


def test_lengths_of_what_programs_keep():
    class Memory:
        def __init__(self):
            self.steps, self.seen, self.size = collections.deque(maxlen=9), {}, 0

        def __len__(self):
            return len(self.steps)

    class Counter(Memory):
        def __len__(self):
            return self.size

    def step(x, memory):
        if len(memory) < 4 or not memory:
            return x
        return x * len(memory) / len(memory.seen), len(memory.seen) > 8

    for cls in (Memory, Counter):
        memory, compiled = cls(), tg.compile(step, fullgraph=True, backend="eager")
        for n in range(20):
            memory.steps.append(n)
            memory.seen[n] = n
            memory.size += 1
            same(compiled(torch.ones(2), memory), step(torch.ones(2), memory))
        assert len(tg.explain(compiled).entries) <= 5


def test_a_list_that_is_put_back():
    """Handing a list to ``__setattr__``, as modules do, does not read it."""

    class Meter(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.seen, self.kept = [], {}

        def forward(self, x):
            self.seen.append(x * 2)
            self.kept.__setitem__("seen", self.seen)
            self.seen = self.seen
            return x + 1

    ours, theirs = Meter(), Meter()
    compiled = tg.compile(ours, fullgraph=True, backend="eager")
    for n in range(5):
        same(compiled(torch.ones(2) + n), theirs(torch.ones(2) + n))
        same(ours.seen, theirs.seen)
        assert ours.kept["seen"] is ours.seen
    assert len(tg.explain(compiled).entries) <= 2
