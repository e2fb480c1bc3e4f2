"""Gradients lie in memory of their own: autograd keeps them as ``.grad`` of parameters, and programs write to that."""

import pytest
import torch

import torchglass as tg


def equal_biases(a, b, w):
    return ((w @ w + a) + (w.t() @ w + b)).sin()


def equal_weights(a, b, w):
    x = torch.ones(3, 4)
    return torch.nn.functional.linear(x, w + a) + torch.nn.functional.linear(x, w * 1 + b)


def one_in_another_shape(a, b, w):
    return (a + b.view(2, 2).view(4) + w[0]).sin()


def transposed(a, b, w):
    return ((w + w.clone().t()) * a * b).sin()


def expanded(a, b, w):
    return a.sum() + b.sum() + w.sum()


def the_gradient_that_arrives(a, b, w):
    return a + b


def what_was_saved(a, b, w):
    class Kept(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            ctx.save_for_backward(a.view(2, 2), b)
            return a * b

        @staticmethod
        def backward(ctx, gradient):
            a, b = ctx.saved_tensors
            return a.view(4), b

    return Kept.apply(a * 2, b) + w[0]


PROGRAMS = [equal_biases, equal_weights, one_in_another_shape, transposed, expanded, the_gradient_that_arrives]


def trained(function, given=None):
    """Gradients after two backwards that add up, the first scaled in place, and memory that two tensors share."""
    torch.manual_seed(0)
    leaves = [torch.randn(4, requires_grad=True), torch.randn(4, requires_grad=True)]
    leaves.append(torch.randn(4, 4, requires_grad=True))
    for _ in range(2):
        out = function(*leaves)
        out.backward(torch.ones_like(out))
        gradients = [leaf.grad for leaf in leaves if leaf.grad is not None]
        torch._foreach_mul_(gradients, 0.5)
    memory = [t.untyped_storage().data_ptr() for t in (*leaves, *gradients)]
    return gradients, len(memory) - len(set(memory))


@pytest.mark.parametrize("backend", ["aot_eager", "glass"])
@pytest.mark.parametrize("function", [*PROGRAMS, what_was_saved], ids=lambda f: f.__name__)
def test_no_gradient_shares_memory(function, backend):
    gradients, shared = trained(tg.compile(function, backend=backend))
    assert not shared
    if function is not what_was_saved:  # eager's own gradients do
        torch.testing.assert_close(gradients, trained(function)[0])


def added(a, b):
    return a + b


def added_and_scaled(a, b):
    return (a + b) * 2


def equal_but_computed_twice(a, b):
    return a * 2 + b * 2


def differences(a, b):
    return a - b, a * 1


@pytest.mark.parametrize("backend", ["aot_eager", "glass"])
@pytest.mark.parametrize("function", [added, added_and_scaled, equal_but_computed_twice, differences])
def test_gradients_are_one_tensor_where_eagers_are(function, backend):
    def of(call):
        leaves = [torch.ones(4, requires_grad=True), torch.ones(4, requires_grad=True)]
        out = call(*leaves)
        outs = out if isinstance(out, tuple) else (out,)
        first, second = torch.autograd.grad(outs, leaves, [torch.full((4,), 3.0) for _ in outs])
        return first, second, first.data_ptr() == second.data_ptr()

    want, got = of(function), of(tg.compile(function, backend=backend))
    torch.testing.assert_close(got[:2], want[:2])
    assert got[2] == want[2]
