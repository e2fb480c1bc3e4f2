"""A backward that cannot be compiled is computed by its ATen graph: `.backward()` raises nothing of ours."""

import warnings

import pytest
import torch

import torchglass as tg
from torchglass.compilation.side_pipeline import Backward
from torchglass.runtime.store import Folder


def gradient(call):
    x = torch.linspace(-1, 1, 6).requires_grad_()
    call(x).sum().backward()
    return x.grad


def function(x):
    return x.sin() * x.exp()


@pytest.mark.complains("runs a graph with ATen")
@pytest.mark.parametrize("backend", ["aot_eager", "glass"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), SyntaxError("a typo"), KeyError("ours")])
def test_compiling_it_fails(backend, error, monkeypatch):
    tg.reset()

    def failing(self):
        raise error

    monkeypatch.setattr(Backward, "start", failing)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = gradient(tg.compile(function, backend=backend))
    torch.testing.assert_close(found, gradient(function))


@pytest.mark.complains("runs a graph with ATen")
@pytest.mark.parametrize("backend", ["aot_eager", "glass"])
def test_the_disk_is_full_after_the_forward(backend, monkeypatch):
    tg.reset()
    compiled = tg.compile(function, backend=backend)
    x = torch.linspace(-1, 1, 6).requires_grad_()
    result = compiled(x)

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Folder, "write", full)
    result.sum().backward()
    torch.testing.assert_close(x.grad, gradient(function))
