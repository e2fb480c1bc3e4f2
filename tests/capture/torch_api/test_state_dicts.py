"""``state_dict()`` and ``load_state_dict()`` in the function, and attributes of an OrderedDict, which they live on."""

import copy
from collections import OrderedDict

import pytest
import torch
from torch import nn

import torchglass as tg

from ..tables import tables

WHOLE, _, whole, _ = tables()


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


@whole
def taken(x, net, other, state):
    return x + 1, net.state_dict(), net.state_dict()._metadata


@whole
def loaded_from_another(x, net, other, state):
    other.load_state_dict(net.state_dict())
    return other(x)


@whole
def loaded(x, net, other, state):
    result = net.load_state_dict(state)
    return net(x), result.missing_keys, result.unexpected_keys


@whole
def averaged(x, net, other, state):
    with torch.no_grad():
        mine, theirs = net.state_dict(), other.state_dict()
        for name in theirs:
            if theirs[name].dtype.is_floating_point:
                theirs[name].mul_(0.9).add_(mine[name], alpha=0.1)
    return other(x)


@whole
def best_kept(x, net, other, state):
    with torch.no_grad():
        best = copy.deepcopy(net.state_dict())
        for p in net.parameters():
            p.add_(1)
        net.load_state_dict(best)
    return net(x), best._metadata["1"]["version"]


@whole
def read(x, net, other, state):
    return x + 1, getattr(state, "_metadata", None), hasattr(state, "note"), state._metadata["1"]


@whole
def written(x, net, other, state):
    state.note = "seen"
    made = OrderedDict(state)
    made.extra = [state.note]
    return x + 1, made, copy.copy(made).extra is made.extra, copy.deepcopy(state).note, hasattr(state.copy(), "note")


def outcomes(function, compiled):
    net, other = model(), model()
    state = OrderedDict((k, v * 0.5) for k, v in model().state_dict().items())
    state._metadata = net.state_dict()._metadata
    found = []
    for n in range(3):
        result = compiled(torch.arange(6.0).view(2, 3) + n, net, other, state)
        kept = [vars(part) for part in result if isinstance(part, OrderedDict)]
        found += [copy.deepcopy([t.detach() for t in (*net.state_dict().values(), *other.state_dict().values())])]
        found += [str(result[1:]), str(kept), str(vars(state))]
        found += [result[0].detach() if isinstance(result, tuple) else result.detach()]
    return found


@pytest.mark.parametrize("name", WHOLE)
def test_as_eager_and_whole(name):
    tg.reset()
    theirs = outcomes(WHOLE[name], WHOLE[name])
    compiled = tg.compile(WHOLE[name], backend="eager", fullgraph=True)
    mine = outcomes(WHOLE[name], compiled)
    for a, b in zip(mine, theirs, strict=True):
        assert a == b if isinstance(a, str) else all(map(torch.equal, a, b))
    assert len(tg.explain(compiled).entries) <= 2


def test_an_attribute_that_comes_or_changes_is_noticed():
    def version(x, state):
        return x * getattr(state, "version", 0)

    state = OrderedDict(a=1)
    compiled = tg.compile(version, backend="eager")
    for n in (None, 2, 2, 3):
        if n is not None:
            state.version = n
        assert compiled(torch.ones(1), state).item() == (n or 0)
