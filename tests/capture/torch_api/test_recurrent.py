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


CELLS = [nn.RNNCell(4, 5), nn.LSTMCell(4, 5), nn.GRUCell(4, 5)]
LAYERS = [
    nn.RNN(4, 5), nn.GRU(4, 5, num_layers=2), nn.GRU(4, 5, bidirectional=True), nn.LSTM(4, 5, bidirectional=True),
    nn.LSTM(4, 5, num_layers=2, dropout=0.5), nn.LSTM(4, 5, proj_size=2),
]  # fmt: skip


@pytest.mark.parametrize("backend", ["aot_eager", "glass"])
@pytest.mark.parametrize("module", [*CELLS, *LAYERS], ids=str)
def test_generated(module, backend):
    """Cells split a product in parts that are views of it, though the operator does not say so; oneDNN's layer makes
    nothing for backward where autograd does not see it."""
    tg.reset()
    x = torch.randn(2, 4) if "Cell" in type(module).__name__ else torch.randn(3, 2, 4)
    compiled = tg.compile(module, backend=backend)

    def outcome(m):
        torch.manual_seed(0)
        m.zero_grad()
        outputs = torch.utils._pytree.tree_leaves(m(x))
        sum(o.sin().sum() for o in outputs).backward()
        with torch.no_grad():
            torch.manual_seed(0)
            unwatched = torch.utils._pytree.tree_leaves(m(x))
        return [*outputs, *(p.grad.clone() for p in module.parameters()), *unwatched]

    torch.testing.assert_close(outcome(compiled), outcome(module), atol=1e-5, rtol=1e-5)


def test_types_of_an_lstm_under_autocast():
    tg.reset()
    module, x = nn.LSTM(4, 5), torch.randn(3, 2, 4)
    with torch.autocast("cpu", torch.bfloat16):
        try:
            expected = module(x)
        except RuntimeError as error:
            pytest.skip(f"no LSTM in bfloat16 on this processor: {error}")
        found = tg.compile(module)(x)
    torch.testing.assert_close(found, expected, atol=0.05, rtol=0.05)
