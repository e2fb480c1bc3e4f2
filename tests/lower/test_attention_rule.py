"""Where attention becomes our own loops, where it stays PyTorch's, and that both give eager's results."""

import pytest
import torch
import torch.nn.functional as F

import torchglass as tg
from torchglass.torch_compat import has_avx512

pytestmark = pytest.mark.skipif(not has_avx512(), reason="no AVX-512")


def heads(length, depth, count=2, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(2, length, count * depth, generator=generator).to(dtype)
    return x.view(2, length, count, depth).transpose(1, 2)


def attend(query, key, value, mask, causal, scale):
    out = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=causal, scale=scale)
    return out.transpose(1, 2).flatten(2) * 2


def compiled(tmp_path, *args):
    """The result, and the text of the forward wrapper."""
    with tg.prepare_debug(tmp_path):
        result = tg.compile(attend)(*args)
    (wrapper,) = tmp_path.rglob("forward_wrapper.py")
    return result, wrapper.read_text()


OURS = [
    (32, 40, 16, None, False, None),
    (40, 40, 16, None, True, None),
    (40, 64, 24, None, False, 0.5),
    (128, 128, 64, torch.randn(2, 2, 128, 128), False, None),
    (33, 20, 8, torch.randn(1, 20), False, None),
    (33, 20, 8, torch.randn(2, 1, 1, 20) > 0, False, None),
    (1024, 1024, 64, None, True, None),
]
THEIRS = [
    (31, 64, 16, None, False, None),  # few queries
    (64, 1024, 64, None, False, None),  # more keys than stay in cache
    (40, 0, 16, None, False, None),
]


@pytest.mark.parametrize(("queries", "keys", "depth", "mask", "causal", "scale"), OURS)
def test_our_loops(tmp_path, queries, keys, depth, mask, causal, scale):
    args = [heads(queries, depth), heads(keys, depth, seed=1), heads(keys, depth, seed=2), mask, causal, scale]
    with torch.no_grad():
        found, text = compiled(tmp_path / "inference", *args)
        torch.testing.assert_close(found, attend(*args))
    assert "attention(q" in text and ", None))" in text, text  # the sums have no reader

    args[:3] = [x.clone(memory_format=torch.preserve_format).requires_grad_() for x in args[:3]]
    found, text = compiled(tmp_path / "training", *args)
    expected = attend(*args)
    torch.testing.assert_close(found, expected)
    assert "attention(q" in text and "_logsumexp)" in text
    gradients = [torch.autograd.grad(result, args[:3], torch.ones_like(expected)) for result in (found, expected)]
    for ours, theirs in zip(*gradients):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(("queries", "keys", "depth", "mask", "causal", "scale"), THEIRS)
def test_sizes_of_pytorchs(tmp_path, queries, keys, depth, mask, causal, scale):
    args = heads(queries, depth), heads(keys, depth, seed=1), heads(keys, depth, seed=2), mask, causal, scale
    found, text = compiled(tmp_path, *args)
    torch.testing.assert_close(found, attend(*args), equal_nan=True)
    assert "import attention" not in text


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_dtypes_of_pytorchs(tmp_path, dtype):
    args = *(heads(40, 16, seed=s, dtype=dtype) for s in range(3)), None, True, None
    found, text = compiled(tmp_path, *args)
    torch.testing.assert_close(found, attend(*args))
    assert "import attention" not in text


def test_a_variable_called_attention(tmp_path):
    def fn(attention):
        return F.scaled_dot_product_attention(attention, attention, attention) + attention

    x = heads(32, 16)
    torch.testing.assert_close(tg.compile(fn)(x), fn(x))
