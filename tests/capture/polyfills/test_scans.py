"""torch's scans: by halves where the step is associative, else one step after another."""

import pytest
import torch

import torchglass as tg

LENGTHS = (1, 2, 3, 7, 8)


def recurrence(left, right):
    """Of ``h[t] = a[t] h[t-1] + b[t]``, as state space models combine it."""
    return left[0] * right[0], right[0] * left[1] + right[1]


def expected_of(a, b):
    h, rows = torch.zeros_like(b[:, 0]), []
    for t in range(a.shape[1]):
        h = a[:, t] * h + b[:, t]
        rows.append(h)
    return torch.stack(rows, 1)


@pytest.mark.parametrize("mode", ["pointwise", "generic"])
@pytest.mark.parametrize("length", LENGTHS)
def test_associative(length, mode):
    def f(a, b):
        from torch._higher_order_ops.associative_scan import associative_scan

        forward = associative_scan(recurrence, (a, b), dim=1, combine_mode=mode)
        back = associative_scan(torch.add, a, 1, reverse=True, combine_mode=mode)
        return forward[1], back

    a, b = torch.rand(2, length, 3), torch.randn(2, length, 3)
    states, sums = tg.compile(f, backend="eager", fullgraph=True)(a, b)
    torch.testing.assert_close(states, expected_of(a, b))
    torch.testing.assert_close(sums, a.flip(1).cumsum(1).flip(1))


def test_gradients_of_an_associative_scan():
    def f(a, b):
        from torch._higher_order_ops.associative_scan import associative_scan

        return associative_scan(recurrence, (a, b), 1, combine_mode="generic")[1].square().sum()

    a, b = (torch.rand(2, 5, 3, requires_grad=True) for _ in range(2))
    found = torch.autograd.grad(tg.compile(f, backend="eager", fullgraph=True)(a, b), (a, b))
    torch.testing.assert_close(found, torch.autograd.grad(expected_of(a, b).square().sum(), (a, b)))


@pytest.mark.parametrize("reverse", [False, True])
def test_one_step_after_another(reverse):
    def f(x):
        from torch._higher_order_ops.scan import scan

        return scan(lambda total, row: (total + row, {"double": total * 2}), x[0] * 0, x, dim=0, reverse=reverse)

    x = torch.arange(12.0).reshape(4, 3)
    carried, rows = tg.compile(f, backend="eager", fullgraph=True)(x)
    order = x.flip(0) if reverse else x
    sums = (order.cumsum(0) - order) * 2
    torch.testing.assert_close(carried, x.sum(0))
    torch.testing.assert_close(rows["double"], sums.flip(0) if reverse else sums)
