"""Recurrent modules, which compare their weights with weak references: captured whole, stale weights noticed."""

import pytest
import torch
from torch import nn

import torchglass as tg

from .gradients import assert_as_eager


@pytest.mark.parametrize("module", [nn.RNN(4, 5), nn.GRU(4, 5, num_layers=2), nn.LSTM(4, 5, bidirectional=True)])
def test_as_eager(module):
    tg.reset()
    assert_as_eager(lambda m, x: m(x[None])[0], "eager", module)


def test_a_replaced_weight_is_noticed():
    tg.reset()
    module = nn.GRU(4, 5)
    compiled = tg.compile(lambda m, x: m(x)[0], backend="eager")
    x = torch.randn(2, 3, 4)
    torch.testing.assert_close(compiled(module, x), module(x)[0])
    module.weight_ih_l0 = nn.Parameter(torch.ones_like(module.weight_ih_l0))
    found = compiled(module, x)
    torch.testing.assert_close(found, module(x)[0])
    assert module._flat_weights[0] is module.weight_ih_l0
