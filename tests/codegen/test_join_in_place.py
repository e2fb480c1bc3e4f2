"""Parts of a concatenation written to their places by the kernels that make them."""

import pytest
import torch
import torch.nn.functional as F

import torchglass as tg


def run(program, *arguments):
    """The compiled program, compared with eager; its wrapper's text and the kernels."""
    compiled = tg.compile(program, fullgraph=True)
    for _ in range(2):
        torch.testing.assert_close(compiled(*arguments), program(*arguments), equal_nan=True)
    (graph,) = tg.explain(compiled).graphs()
    return graph.files["forward_wrapper.py"], graph.kernels


@pytest.mark.parametrize("dim", [0, 1, 2, -1])
def test_producers_write_their_parts(dim):
    def program(a, b):
        return torch.cat([a.exp(), torch.softmax(b, -1)], dim)

    wrapper, kernels = run(program, torch.randn(4, 6, 8), torch.randn(4, 6, 8))
    assert wrapper.count("# a part of it") == 2
    assert sum(kernel.calls for kernel in kernels) == 2  # no copies


def test_a_part_that_is_used_elsewhere():
    def program(a, w):
        y = a.relu()
        return torch.cat([y, y + 1, a], 1) @ w, y.sum(0)

    wrapper, _ = run(program, torch.randn(5, 4), torch.randn(12, 3))
    assert "mm" in wrapper


def test_results_of_pytorch_calls_and_other_dtypes_are_copied():
    def program(a, b, c):
        return torch.cat([a @ b, c, torch.zeros(3, 2)], 1).t()

    run(program, torch.randn(3, 3), torch.randn(3, 3), torch.arange(6).view(3, 2))


def test_a_concatenation_of_concatenations_and_of_nothing():
    def program(a, b):
        inner = torch.cat([a, b], 0)
        return torch.cat([inner, inner.neg()], 1), torch.cat([a[:0], b], 0), torch.cat([a], 0)

    run(program, torch.randn(2, 3), torch.randn(4, 3))


def test_many_parts():
    def program(*parts):
        return torch.cat([part * 2 for part in parts], -1)

    run(program, *(torch.randn(3, n) for n in range(1, 13)))


def test_channels_last_and_strided_parts():
    def program(a, b):
        return torch.cat([a, b.transpose(2, 3)], 1)

    a = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    run(program, a, torch.randn(2, 6, 5, 4))
    run(program, a, torch.randn(2, 6, 5, 4).to(memory_format=torch.channels_last))


def test_memory_is_taken_over_and_gradients_are_right():
    def program(a, b, w):
        first = torch.cat([a.sin(), b.cos()], 1) @ w
        return torch.cat([first.sin(), first.cos()], 1) @ w

    arguments = [torch.randn(6, 4, requires_grad=True), torch.randn(6, 4, requires_grad=True), torch.randn(8, 4)]
    compiled = tg.compile(program, fullgraph=True)
    ours = torch.autograd.grad(compiled(*arguments).square().sum(), arguments[:2])
    theirs = torch.autograd.grad(program(*arguments).square().sum(), arguments[:2])
    torch.testing.assert_close(ours, theirs)


def test_a_small_part_made_early_does_not_hold_the_whole():
    def program(a, w):
        early = a.sin()
        y = a
        for _ in range(16):
            y = (y @ w).relu()
        return torch.cat([torch.cat([y, y, y], 1) @ w.repeat(3, 3), early], 1)

    wrapper, _ = run(program, torch.randn(4, 4), torch.randn(4, 4))
    lines = wrapper.splitlines()
    whole = next(k for k, line in enumerate(lines) if " cat_1 = " in line)
    assert whole > max(k for k, line in enumerate(lines) if "relu" in line and "kernel" in line)


@pytest.mark.parametrize("pad", [(1, 1, 1, 1), (0, 3), (2, 0, 0, 1, 1, 0), (0, 0, 1, 2)])
def test_what_is_padded_is_written_to_its_place(pad):
    def program(x, w):
        return F.conv2d(F.pad(F.gelu(x), pad, value=0.5), w)

    wrapper, kernels = run(program, torch.randn(2, 3, 9, 8), torch.randn(4, 3 + sum(pad[4:]), 3, 3))
    assert wrapper.count("# a part of it") == 1 + sum(n > 0 for n in pad)
    assert not any(set(kernel.ops) == {"aten.constant_pad_nd"} for kernel in kernels[:1])  # gelu writes the middle


def test_a_channels_last_image_is_padded_in_place():
    def program(x):
        return F.pad(x.relu(), (1, 2, 1, 0))

    run(program, torch.randn(2, 3, 5, 4).contiguous(memory_format=torch.channels_last))


def test_what_calls_make_and_what_loops_read_is_padded_by_one_loop():
    def program(x, w):
        return F.pad(x @ w, (1, 1)).neg() + F.pad(x, (-1, 2)).sum()

    wrapper, _ = run(program, torch.randn(4, 5), torch.randn(5, 3))
    assert "# a part of it" not in wrapper
