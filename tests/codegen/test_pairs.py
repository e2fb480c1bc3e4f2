"""Loops that take two bfloat16 at a time: where they do, and that every number comes out as eager's."""

import re

import pytest
import torch
import torch.nn.functional as F

import torchglass as tg

EVERY = torch.arange(65536).to(torch.uint16).view(torch.bfloat16)
FUNCTIONS = {
    "relu": lambda x, y: F.relu(x + y),
    "third": lambda x, y: (x / 3, -y),
    "shifted": lambda x, y: x[..., 1:33] * y[..., 2:34],
    "odd": lambda x, y: x[..., :61] + y[..., 3:],
    "rows": lambda x, y: x * y[:, :1],
    "gathered": lambda x, y: F.embedding(torch.tensor([3, 0, 511]), x).abs() * 0.5,
    "column": lambda x, y: (x * y).sum(0),
    "constant": lambda x, y: (x, torch.ones_like(x)),
    "flipped": lambda x, y: x.flip(-1) + y,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_bits(name):
    """The same bits as eager, from every bfloat16 there is; any NaN for a NaN."""
    x = EVERY.view(-1, 64)
    y = EVERY[torch.randperm(65536, generator=torch.Generator().manual_seed(1))].view(-1, 64)
    if name == "column":  # sums of many numbers are rounded otherwise
        x, y = torch.ones(512, 64, dtype=torch.bfloat16), torch.full((512, 64), 0.5, dtype=torch.bfloat16)
    fn = FUNCTIONS[name]
    torch.testing.assert_close(tg.compile(fn)(x, y), fn(x, y), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_what_is_stored_is_what_is_read(dtype):
    """A result that is returned, and computed on in the same kernel."""

    def fn(x, y):
        z = x * y
        mean = z.mean(-1, dtype=torch.float32, keepdim=True).to(dtype)
        return z, z.float(), mean, z.float() - mean.float()

    x, y = (torch.randn(8, 64, generator=torch.Generator().manual_seed(seed)).to(dtype) for seed in range(2))
    z, same, mean, centered = tg.compile(fn)(x, y)
    assert torch.equal(z.float(), same)
    assert torch.equal(z.float() - mean.float(), centered)


def test_written_where_it_was_read():
    def fn(x):
        return x.add_(1).mul_(0.3)

    x, y = (torch.randn(40, 64, generator=torch.Generator().manual_seed(0)).bfloat16() for _ in range(2))
    tg.compile(fn)(x)
    torch.testing.assert_close(x, (y + 1) * 0.3, rtol=0.01, atol=0.01)


def test_a_kernel_has_them(tmp_path):
    with tg.prepare_debug(tmp_path):
        tg.compile(FUNCTIONS["relu"])(*(torch.randn(8, 64).bfloat16() for _ in range(2)))
    (kernels,) = tmp_path.rglob("forward_kernels.c")
    assert re.search(r"PAIR\(\w+\[.*\]\) = tg_pair\(t\d+, t\d+_b\);", kernels.read_text())
