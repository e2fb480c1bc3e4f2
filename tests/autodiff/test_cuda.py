"""The same on a GPU, where eager takes other operators."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from autodiff_helpers import compare, targets, tensor

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def cuda(*shape: int, dtype: torch.dtype = torch.float32, grad: bool = True, seed: int = 0) -> torch.Tensor:
    return tensor(*shape, grad=False, seed=seed).to("cuda", dtype).requires_grad_(grad)


def test_mlp():
    def mlp(x, w, b, lw, lb):
        return F.layer_norm(F.gelu(F.linear(x, w, b)), (32,), lw, lb)

    compare(mlp, cuda(8, 16), cuda(32, 16), cuda(32), cuda(32, seed=1), cuda(32, seed=2), exact=False)


def test_attention_keeps_eagers_kernel():
    q, k, v = (cuda(2, 4, 64, 64, dtype=torch.bfloat16, seed=i) for i in range(3))
    partition = compare(lambda q, k, v: F.scaled_dot_product_attention(q, k, v), q, k, v, exact=False)
    assert any("_scaled_dot_product_" in target for target in targets(partition.forward))


def test_dropout():
    partition = compare(lambda x: F.dropout(x.sin(), 0.5), cuda(1000))
    assert "aten.native_dropout.default" in targets(partition.forward)


def test_random_numbers():
    compare(lambda x: torch.rand_like(x) * x, cuda(100))


def test_convolution_and_embedding():
    compare(lambda x, w: F.conv2d(x, w).relu(), cuda(4, 3, 8, 8), cuda(5, 3, 3, 3), exact=False)
    compare(lambda i, w: F.embedding(i, w), torch.randint(0, 9, (5,), device="cuda"), cuda(9, 4))


def test_batch_norm():
    def function(x, mean, variance):
        return F.batch_norm(x, mean, variance, None, None, True)

    compare(function, cuda(4, 3, 8, 8), torch.zeros(3, device="cuda"), torch.ones(3, device="cuda"), exact=False)


@pytest.mark.parametrize("training", [True, False])
def test_cudnn_batch_norm(training):
    def function(x, w, b, mean, variance):
        return F.batch_norm(x, mean, variance, w, b, training)

    statistics = torch.zeros(3, device="cuda"), torch.ones(3, device="cuda")
    partition = compare(function, cuda(4, 3, 8, 8), cuda(3), cuda(3, seed=1), *statistics, exact=False)
    assert len(partition.mutations) == (2 if training else 0)
    if training:
        assert "aten.cudnn_batch_norm.default" in targets(partition.forward)


def test_autocast():
    def function(x, w):
        return F.linear(x, w).float().exp()

    with torch.autocast("cuda", dtype=torch.bfloat16):
        partition = compare(function, cuda(4, 8), cuda(8, 8), exact=False)
    assert partition.autocast == ("cuda",)
