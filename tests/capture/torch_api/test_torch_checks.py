"""torch._check_tensor_all inside a graph raises when the graph runs, whatever the backend."""

import pytest
import torch

import torchglass as tg


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "glass"])
def test_a_tensors_check_raises_when_it_runs(backend):
    def small(x):
        torch._check_tensor_all(x < 3, lambda: "too large")
        return x + 1

    compiled = tg.compile(small, backend=backend, fullgraph=True)
    torch.testing.assert_close(compiled(torch.ones(4)), torch.full((4,), 2.0))
    with pytest.raises(RuntimeError, match="too large"):
        compiled(torch.full((4,), 5.0))
    torch.testing.assert_close(compiled(torch.zeros(4)), torch.ones(4))
    assert len(tg.explain(compiled).entries) == 1


def test_a_loss_that_checks_its_data_is_whole():
    loss = torch.nn.GaussianNLLLoss()
    compiled = tg.compile(lambda x, y, v: loss(x, y, v) * 2, backend="eager", fullgraph=True)
    x, y, v = torch.randn(4, 3), torch.randn(4, 3), torch.rand(4, 3)
    for k in range(2):
        torch.testing.assert_close(compiled(x + k, y, v), loss(x + k, y, v) * 2)
    with pytest.raises(ValueError, match="negative"):
        compiled(x, y, -v)
    assert len(tg.explain(compiled).entries) == 1
