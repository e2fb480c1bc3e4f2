"""Operations on lists of tensors: their writes in place happen, whatever the backend."""

import pytest
import torch
from torch import nn

import torchglass as tg


def scaled(tensors):
    torch._foreach_mul_(tensors, torch.tensor(2.0))
    return tensors[0] + 1, torch._foreach_norm(tensors)


def limited(tensors):
    torch._foreach_clamp_max_(tensors, 1.5)


def bounded(tensors):
    torch._foreach_maximum_(tensors, [torch.tensor(1.5), torch.tensor([1.0, 2.5, torch.nan])])
    torch._foreach_minimum_(tensors, tensors[::-1])
    torch._foreach_maximum_(tensors[:1], 1.75)


def averaged(tensors):
    torch._foreach_lerp_(tensors[:1], tensors[1:], 0.25)
    torch._foreach_copy_(tensors[1:], tensors[:1])
    return [t.clone() for t in tensors]


def unscaled(tensors):
    """As GradScaler does: an operator with a list and a tensor as results, once it writes to nothing."""
    found = torch.zeros(())
    torch._amp_foreach_non_finite_check_and_unscale_(tensors, found, torch.tensor(0.5))
    return found, tensors[0] + 1, torch._foreach_norm(tensors)


def found_infinite(tensors):
    """What it writes is no constant, though it was made of some."""
    found = torch.zeros(())
    torch._amp_foreach_non_finite_check_and_unscale_(tensors, found, torch.tensor(0.5))
    return found.item()


def grouped(tensors):
    found = {}
    for (_, dtype), ([members], places) in torch.utils._foreach_utils._group_tensors_by_device_and_dtype(
        [[*tensors, tensors[0].double()]], with_indices=True
    ).items():
        torch._foreach_add_(members, len(places))
        found[str(dtype)] = places
    return found["torch.float32"], found["torch.float64"]  # which comes first is arbitrary in eager, too


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "glass"])
@pytest.mark.parametrize("function", [scaled, limited, bounded, averaged, unscaled, grouped], ids=lambda f: f.__name__)
def test_writes_happen(function, backend):
    tg.reset()
    compiled = tg.compile(function, backend=backend, fullgraph=True)
    for _ in range(2):
        mine, theirs = ([torch.ones(3), torch.full((3,), 2.0)] for _ in range(2))
        expected = function(theirs)
        assert str(compiled(mine)) == str(expected)
        torch.testing.assert_close(mine, theirs, equal_nan=True)
    assert len(tg.explain(compiled).entries) == 1


@pytest.mark.parametrize("backend", ["eager", "glass"])
def test_gradients_are_clipped_in_the_graph(backend):
    tg.reset()
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2).double())

    def clip():
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        nn.utils.clip_grad_value_(model.parameters(), 0.2)
        return norm, nn.utils.get_total_norm([p.grad for p in model.parameters()])

    def clipped(function):
        torch.manual_seed(0)
        for p in model.parameters():
            p.grad = torch.randn_like(p) * 5
        return function(), [p.grad.clone() for p in model.parameters()]

    compiled = tg.compile(clip, backend=backend, fullgraph=True)
    for _ in range(2):
        torch.testing.assert_close(clipped(compiled), clipped(clip))
    assert len(tg.explain(compiled).entries) == 1


@pytest.mark.parametrize("backend", ["eager", "glass"])
def test_what_an_operator_wrote_is_read(backend):
    """The operator counts no version of the tensor it writes to."""
    tg.reset()
    compiled = tg.compile(found_infinite, backend=backend)
    assert [compiled([torch.tensor(value)]) for value in (1.0, torch.inf, 2.0)] == [0.0, 1.0, 0.0]
