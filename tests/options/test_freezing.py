"""``options={"freezing": True}``: weights packed under no_grad, packed again when they change."""

import pytest
import torch
from torch import nn

import torchglass as tg
from torchglass import torch_compat

pytestmark = pytest.mark.skipif(not torch_compat.packs_weights(torch.float32), reason="this torch has no oneDNN")


def wrapper(compiled):
    (graph,) = tg.explain(compiled).graphs()
    return graph.files["forward_wrapper.py"]


@pytest.fixture
def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 8, bias=False)).eval()


@torch.no_grad()
def test_linear_weights_are_packed(model):
    x = torch.randn(64, 16)
    compiled = tg.compile(model, fullgraph=True, options={"freezing": True})
    for _ in range(2):
        torch.testing.assert_close(compiled(x), model(x))
    assert wrapper(compiled).count("packed_linear") == 4  # two weights, each with its call


@torch.no_grad()
@pytest.mark.parametrize("change", ["in place", "load_state_dict", "data", "new parameter"])
def test_a_changed_weight_is_seen(model, change):
    x = torch.randn(64, 16)
    compiled = tg.compile(model, options={"freezing": True})
    compiled(x)
    if change == "in place":
        model[0].weight.mul_(2)
    elif change == "load_state_dict":
        model.load_state_dict({k: v + 1 for k, v in model.state_dict().items()})
    elif change == "data":
        model[0].weight.data = torch.randn(32, 16)
    else:
        model[0].weight = nn.Parameter(torch.randn(32, 16))
    torch.testing.assert_close(compiled(x), model(x))


def test_training_and_the_default_pack_nothing(model):
    x = torch.randn(64, 16)
    for options, grad in (({"freezing": True}, True), ({}, False)):
        compiled = tg.compile(model, options=options)
        with torch.set_grad_enabled(grad):
            torch.testing.assert_close(compiled(x), model(x))
        assert "packed_linear" not in wrapper(compiled)


@torch.no_grad()
def test_channels_last_convolutions_are_packed():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(8, 16, 3, padding=1, stride=2, bias=False), nn.ReLU(), nn.Conv2d(16, 8, 1)).eval()
    x = torch.randn(2, 8, 12, 10).to(memory_format=torch.channels_last)
    compiled = tg.compile(model, fullgraph=True, options={"freezing": True})
    ours = compiled(x)
    torch.testing.assert_close(ours, model(x))
    assert ours.stride() == model(x).stride()
    assert "packed_convolution" in wrapper(compiled)


@torch.no_grad()
@pytest.mark.skipif(not torch_compat.packs_weights(torch.bfloat16), reason="no bfloat16 products here")
def test_bfloat16(model):
    model = model.bfloat16()
    x = torch.randn(64, 16).bfloat16()
    compiled = tg.compile(model, options={"freezing": True})
    torch.testing.assert_close(compiled(x), model(x), atol=2e-2, rtol=2e-2)
    assert "packed_linear" in wrapper(compiled)


@torch.no_grad()
def test_batch_norms_are_folded():
    """Into the convolution or linear layer before them; seen when any of their tensors changes."""
    torch.manual_seed(0)
    images = nn.Sequential(
        nn.Conv2d(8, 16, 3, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 8, 3, groups=2), nn.BatchNorm2d(8)
    )
    rows = nn.Sequential(
        nn.Linear(8, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 4), nn.BatchNorm1d(4, affine=False)
    )
    for model, x in (
        (images, torch.randn(2, 8, 12, 10).to(memory_format=torch.channels_last)),
        (rows, torch.randn(32, 8)),
    ):
        for _ in range(3):
            model.train()(x)
        compiled = tg.compile(model.eval(), fullgraph=True, options={"freezing": True})
        for change in (
            None,
            model[0].weight,
            model[1].running_mean,
            model[1].running_var,
            model[1].bias,
            model[3].bias,
        ):
            if change is not None:
                change.mul_(1.5).add_(0.1)
            torch.testing.assert_close(compiled(x), model(x))
        assert wrapper(compiled).count("= Packed('normalized_") == 2
        assert "rstd" not in wrapper(compiled)


@torch.no_grad()
def test_what_else_reads_a_product_keeps_it():
    torch.manual_seed(0)
    layer, norm = nn.Linear(8, 12), nn.BatchNorm1d(12).eval()

    def fn(x):
        y = layer(x)
        return norm(y) + y

    x = torch.randn(32, 8)
    compiled = tg.compile(fn, options={"freezing": True})
    torch.testing.assert_close(compiled(x), fn(x))
    assert "normalized" not in wrapper(compiled)
