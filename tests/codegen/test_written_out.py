"""Short dimensions that are written out: what does not depend on them is computed once."""

import pytest
import torch
import torch.nn.functional as F

import torchglass as tg


def buckets(x, w):
    return F.embedding((x.float().log() * 2).long().clamp(0, 7), w)


def scaled(x, w):
    return x.float().log().unsqueeze(-1) * w[:4].sum(0) + w[x.clamp(max=7)]


def running(x, w):
    return (x.float().log().unsqueeze(-1) * w[0]).cumsum(0)


@pytest.mark.parametrize("columns", [1, 2, 4])
@pytest.mark.parametrize("program", [buckets, scaled, running])
def test_values_are_right_and_computed_once(program, columns):
    x, w = torch.randint(1, 40, (70, 33)), torch.randn(8, columns)
    compiled = tg.compile(program, fullgraph=True)
    torch.testing.assert_close(compiled(x, w), program(x, w))
    (graph,) = tg.explain(compiled).graphs()
    kernels = graph.files["forward_kernels.c"].partition("static void kernel_0(")[2]
    assert kernels.count("tg_log_f32(") == 1


def test_the_index_error_is_eagers():
    x, w = torch.randint(0, 8, (70, 33)), torch.randn(8, 4)
    x[3, 4] = 9
    with pytest.raises(IndexError) as eager:
        F.embedding(x, w)
    with pytest.raises(IndexError) as ours:
        tg.compile(lambda x, w: F.embedding(x, w) * 2)(x, w)
    assert str(ours.value) == str(eager.value)


def test_a_constant_without_elements_keeps_its_shape():
    def program(x):
        n = len(x)
        return x[(torch.arange(n)[:, None] - torch.arange(n)).abs()]

    compiled = tg.compile(program)
    for n in (4, 5, 0):
        x = torch.randn(n, 4)
        torch.testing.assert_close(compiled(x), program(x))
