"""Program 2: a dictionary in, a branch on a tensor's value; two shapes in turn, a hundred times."""

import warnings

import pytest
import torch

import torchglass as tg


def function(inputs):
    x, y = inputs["x"], inputs["y"]
    x = x.cos().cos()
    if x.mean() > 0.5:
        x = x / 1.1
    return x * y


RESUMED = function.__code__.co_firstlineno + 4  # the line behind the branch


def make(n, like):
    """Inputs of n elements whose cosines are large (True) or small."""
    x = torch.rand(n) * 0.1 if like else torch.rand(n) * 0.1 + torch.pi / 2
    return {"x": x.requires_grad_(), "y": torch.rand(n).requires_grad_()}


def check(compiled, inputs):
    mine = {k: v.detach().clone().requires_grad_() for k, v in inputs.items()}
    got, expected = compiled(mine), function(inputs)
    torch.testing.assert_close(got, expected)
    got.sum().backward()
    expected.sum().backward()
    for name in inputs:
        torch.testing.assert_close(mine[name].grad, inputs[name].grad)


def counts(compiled):
    """Entries by function; the side of a branch that was never taken has none."""
    return {record.name: len(record.entries) for record in tg.explain(compiled).record.walk() if record.entries}


# cos(cos(x)) lies between 0.54 and 1: the branch needs a threshold of its own to be seen from both sides
def both_sides(inputs):
    x, y = inputs["x"], inputs["y"]
    x = x.cos().cos()
    if x.mean() > 0.75:
        x = x / 1.1
    return x * y


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "glass"])
def test_a_hundred_calls_of_two_shapes(backend):
    torch.manual_seed(0)
    compiled = tg.compile(function, backend=backend)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n in range(100):
            check(compiled, make((10, 8)[n % 2], True))
    # one graph before the branch and one behind it, an entry per shape for each
    assert counts(compiled) == {"function": 2, f"resume_at_{RESUMED}": 2}
    for record in tg.explain(compiled).record.walk():
        assert all(len(entry.graphs) == 1 for entry in record.entries)
    (found,) = tg.explain(compiled).entries[0].breaks
    assert "value of a tensor" in found.reason and found.origin.line == RESUMED - 1 and found.hint


def test_the_other_side_is_captured_when_it_is_reached():
    torch.manual_seed(0)
    compiled = tg.compile(both_sides)
    compiled(make(10, False))
    assert sum(counts(compiled).values()) == 2
    compiled(make(10, False))
    assert sum(counts(compiled).values()) == 2
    for like in (True, False, True, False):
        inputs = make(10, like)
        torch.testing.assert_close(compiled(inputs), both_sides(inputs))
    assert sorted(counts(compiled).values()) == [1, 1, 1]
    folder = {record.name for record in tg.explain(compiled).record.walk()}
    assert len(folder) == 3


def test_the_dictionary_is_guarded_by_what_was_read():
    torch.manual_seed(0)
    compiled = tg.compile(function, backend="eager")
    inputs = make(10, True)
    compiled(inputs)
    compiled({**inputs, "unread": 3})
    assert set(counts(compiled).values()) == {1}
    with pytest.raises(KeyError, match="y"):
        compiled({"x": inputs["x"]})
    with torch.no_grad():
        torch.testing.assert_close(compiled(inputs), function(inputs))
    assert counts(compiled) == {"function": 3, f"resume_at_{RESUMED}": 2}  # a call that raises is an entry too
