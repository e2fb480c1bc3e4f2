"""Writes through masks, with a gradient for what is written: ``x[:, mask] = y``."""

import operator

import pytest
import torch

import torchglass as tg


def written(write, backend, *shape):
    """Loss and gradients, plain and compiled, and the reasons of breaks."""

    def fn(x, y):
        z = x.clone()
        write(z, x, y)
        return z.sin().sum() * 2

    compiled = tg.compile(fn, backend=backend)
    torch.manual_seed(1)
    x, y = torch.randn(3, 4, 2, requires_grad=True), torch.randn(shape, requires_grad=True)
    results = []
    for f in (fn, compiled):
        loss = f(x, y)
        results.append([loss.detach(), *torch.autograd.grad(loss, (x, y))])
    torch.testing.assert_close(*results)
    return [b.reason for b in tg.explain(compiled).breaks()]


WRITES = {
    "the middle": (lambda z, x, y: operator.setitem(z, (slice(None), x[0, :, 0] > 0), y), 3, 1, 2),
    "one number": (lambda z, x, y: operator.setitem(z, (slice(None), x[0, :, 0] > 0), y),),
    "behind an ellipsis": (lambda z, x, y: operator.setitem(z, (..., x[0, 0] > 0), y), 3, 4, 1),
    "of a row": (lambda z, x, y: operator.setitem(z, (1, x[1] > 0), y), 1),
    "before a number": (lambda z, x, y: operator.setitem(z, (x[:, :, 1] > 0, 1), y),),
    "of two dimensions": (lambda z, x, y: operator.setitem(z, x[:, :, 1] > 0, y), 2),
    "a new axis": (lambda z, x, y: operator.setitem(z, (None, slice(0, 2), x[0, :, 1] > 0), y), 1, 2, 1, 2),
    "by method": (lambda z, x, y: z.__setitem__((slice(None), x[0, :, 0] > 0), y),),
    "index_put": (lambda z, x, y: z.copy_(z.index_put((x > 0,), y)), 1),
    "index_put_ that adds": (lambda z, x, y: z.index_put_((x > 0,), y, accumulate=True),),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "glass"])
@pytest.mark.parametrize("name", WRITES)
def test_one_value_for_all_places(name, backend):
    write, *shape = WRITES[name]
    assert not written(write, backend, *shape)


@pytest.mark.parametrize("backend", ["aot_eager", "glass"])
def test_a_value_for_each_place(backend):
    everywhere = lambda z, x, y: operator.setitem(z, (slice(None), x[0, :, 0] > -99), y)
    assert any("through a mask" in reason for reason in written(everywhere, backend, 3, 4, 2))
