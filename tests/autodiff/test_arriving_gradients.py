"""Backward is made for the gradients that arrive: their layout, and which outputs have none."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from autodiff_helpers import capture, compiled, fresh, tensor

import torchglass as tg
from torchglass import autodiff
from torchglass.records.partition import Partition
from torchglass.runtime.runtime_wrapper import runtime_wrapper

BACKENDS = ["aot_eager", "glass"]


def image():
    return tensor(2, 3, 4, 5).detach().to(memory_format=torch.channels_last).requires_grad_()


LAYOUTS = {
    "dense": lambda shape: torch.randn(shape),
    "one number for all": lambda shape: torch.randn(()).expand(shape),
    "expanded rows": lambda shape: torch.randn(shape[-1:]).expand(shape),
    "transposed": lambda shape: torch.randn(shape[::-1]).permute(*range(len(shape))[::-1]),
    "every second": lambda shape: torch.randn((*shape, 2))[..., 1],
    "backwards in memory": lambda shape: torch.randn(shape).flip(0),
    "overlapping": lambda shape: torch.randn(200).as_strided(shape, [1] * len(shape)),
    "channels last": lambda shape: torch.randn(shape).to(memory_format=torch.channels_last),
}

FUNCTIONS = {
    "pointwise": (lambda x: x.sin() * x, image),
    "output itself": (lambda x: x + 1, image),
    "convolution": (lambda x: F.conv2d(x, torch.ones(2, 3, 2, 2)).relu(), image),
    "matrix product": (lambda x: torch.tanh(x @ x.transpose(-1, -2)), image),
    "layer norm": (lambda x: F.layer_norm(x.exp(), (5,)), image),
    "softmax": (lambda x: torch.softmax(x, -1), image),
    "reshape": (lambda x: (x.contiguous().view(2, 3, 20) * 2).view(2, 3, 4, 5), image),
    "batch norm": (lambda x: F.batch_norm(x, None, None, training=True), image),
    "pooling": (lambda x: F.max_pool2d(x, 2), image),
    "indexing": (lambda x: x[:, [0, 2]].cos(), image),
    "cumulative": (lambda x: x.cumsum(-1).sigmoid(), image),
    "distance": (lambda x: torch.cdist(x, x * 2), image),
    "cat": (lambda x: torch.cat([x, x.exp()], 1), image),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_layout(name, backend):
    function, make = FUNCTIONS[name]
    call = tg.compile(function, backend=backend, fullgraph=True)
    x, y = make(), make()
    torch.manual_seed(0)
    for layout in [*LAYOUTS, *LAYOUTS]:
        want, got = function(x), call(y)
        gradient = LAYOUTS[layout](tuple(want.shape))
        x.grad = y.grad = None
        want.backward(gradient)
        got.backward(gradient)
        torch.testing.assert_close(y.grad, x.grad, msg=lambda text, at=layout: f"{at}: {text}")


@pytest.mark.parametrize("backend", BACKENDS)
def test_sums_and_means(backend):
    function = lambda x: torch.tanh(x) * 3
    call = tg.compile(function, backend=backend, fullgraph=True)
    uses = [torch.sum, torch.mean, torch.norm, lambda y: y.t().exp().sum(), lambda y: y[1:].sum(), lambda y: y.max()]
    for use in uses * 2:
        x, y = tensor(4, 6), tensor(4, 6)
        use(function(x)).backward()
        use(call(y)).backward()
        torch.testing.assert_close(y.grad, x.grad)


def recorded(function, *inputs):
    """``function`` linked, and the list of the partitions whose backward is compiled."""
    partition = autodiff.trace_training(capture(function), list(inputs))
    chosen: list[Partition] = []

    def compile_backward(partition):
        chosen.append(partition)
        return lambda tensors: partition.backward(*tensors)

    return runtime_wrapper(partition, lambda ts: partition.forward(*ts), compile_backward), chosen


def test_layouts_are_compiled_once_and_not_without_end():
    call, chosen = recorded(lambda x: x.sin(), tensor(4, 6))
    gradients = [torch.randn(4, 6), torch.ones(()).expand(4, 6), torch.randn(6, 4).t(), torch.randn(4, 12)[:, ::2]]
    gradients += [torch.randn(4, 18)[:, ::3], torch.randn(4, 24)[:, ::4]]
    for _ in range(2):
        for gradient in gradients:
            x = tensor(4, 6)
            call(x)[0].backward(gradient)
            torch.testing.assert_close(x.grad, x.detach().cos() * gradient)
    assert [p.tangents[0].strides for p in chosen] == [(6, 1), (0, 0), (1, 4), (12, 2)]


def test_strides_without_meaning_are_no_other_layout():
    call, chosen = recorded(lambda x: x.sin(), tensor(4, 1))
    for gradient in (torch.randn(4, 1), torch.randn(4, 1).as_strided((4, 1), (1, 7)), torch.randn(1, 4).t()):
        x = tensor(4, 1)
        call(x)[0].backward(gradient)
        torch.testing.assert_close(x.grad, x.detach().cos() * gradient)
    assert len(chosen) == 1


def test_unused_output_takes_no_part():
    call, chosen = recorded(lambda x, w: (x.sin().sum(), (x @ w).exp()), tensor(4, 4), tensor(4, 4, seed=1))
    x, w = tensor(4, 4), tensor(4, 4, seed=1)
    call(x, w)[0].backward()
    torch.testing.assert_close(x.grad, x.detach().cos())
    assert w.grad is None
    (backward,) = chosen
    assert [gradient.input for gradient in backward.gradients] == [0]
    assert not any("mm" in str(node.target) for node in backward.backward.graph.nodes)


@pytest.mark.parametrize("backend", BACKENDS)
def test_unused_output_does_not_spoil_gradients(backend):
    """Zero times infinity is NaN: eager never computes it."""

    def function(x):
        return x * 2, x.log(), x.sqrt() * x

    call = tg.compile(function, backend=backend, fullgraph=True)
    for used in ([0], [0, 2], [1], [0, 1, 2], [2]):
        grads = []
        for run in (function, call):
            x = torch.tensor([0.0, 1.0, 4.0], requires_grad=True)
            outputs = run(x)
            sum(outputs[i].sum() for i in used).backward()
            grads.append(x.grad)
        torch.testing.assert_close(grads[1], grads[0], equal_nan=True)


@pytest.mark.parametrize("backend", BACKENDS)
def test_each_set_of_used_outputs(backend):
    def function(x, y):
        a, b = (x * y).split(2)
        h = F.layer_norm(a + y[:2], (4,))
        return h, torch.stack([b, h]), F.dropout(y, 0.5), (a @ b.t()).relu()

    call = tg.compile(function, backend=backend, fullgraph=True)
    for mask in [*range(1, 16), *range(1, 16)]:
        found = []
        for run in (function, call):
            torch.manual_seed(3)
            x, y = tensor(4, 4), tensor(4, 4, seed=1)
            outputs = run(x, y)
            sum((o * o.detach()).sum() for i, o in enumerate(outputs) if mask >> i & 1).backward()
            found.append((x.grad, y.grad))
        for want, got in zip(*found):
            assert (want is None) == (got is None)
            if want is not None:
                torch.testing.assert_close(got, want)


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradient_undefined_on_its_way(backend):
    """A function behind ours that gives None for its input, and one that asks for no gradient."""

    class Cut(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, grad):
            return None

    def function(x):
        return x.sin(), x.log()

    call = tg.compile(function, backend=backend, fullgraph=True)
    for behind in (lambda a, b: Cut.apply(b).sum() + a.sum(), lambda a, b: Cut.apply(a).sum() + Cut.apply(b).sum()):
        grads = []
        for run in (function, call):
            x = torch.tensor([0.0, 1.0], requires_grad=True)
            behind(*run(x)).backward()
            grads.append(x.grad)
        assert (grads[0] is None) == (grads[1] is None)
        if grads[0] is not None:
            torch.testing.assert_close(grads[1], grads[0])


def test_written_input_and_random_mask():
    """What is saved is settled by the forward: a copy of an input's old value, a mask of bytes."""

    def function(x, y):
        z = F.dropout(x.sin() * y.clone(), 0.5)
        y.mul_(2)
        return z, z.exp()

    partition = autodiff.trace_training(capture(function), [tensor(4, 4), tensor(4, 4, grad=False)])
    call = compiled(partition)
    for use in (lambda a, b: a.sum(), lambda a, b: b.t().sum(), lambda a, b: (a * b).sum()):
        found = []
        for run in (function, lambda x, y: call(x, y)):
            torch.manual_seed(1)
            x, y = tensor(4, 4), fresh(tensor(4, 4, grad=False, seed=2))
            use(*run(x, y)).backward()
            found.append((x.grad, y))
        for want, got in zip(*found):
            torch.testing.assert_close(got, want)


def test_gradients_in_other_representations():
    call, _ = recorded(lambda x: (x * 2j) * x.conj(), tensor(3, dtype=torch.complex64))
    conjugate = torch.randn(3, dtype=torch.complex64).conj()
    for gradient in (conjugate, torch._efficientzerotensor(3, dtype=torch.complex64)):
        x, y = (tensor(3, dtype=torch.complex64) for _ in range(2))
        ((x * 2j) * x.conj()).backward(gradient)
        call(y)[0].backward(gradient)
        torch.testing.assert_close(y.grad, x.grad)
    call, _ = recorded(lambda x: x.sin(), tensor(3))
    x = tensor(3)
    call(x)[0].backward(torch.randn(3, dtype=torch.complex64).conj().imag)
    assert not x.grad.is_neg()


def test_backward_file_says_what_runs(tmp_path):
    def function(x, w):
        loss, logits = (x @ w).sum(), x.exp()
        return loss, logits

    with tg.prepare_debug(tmp_path):
        call = tg.compile(function, fullgraph=True)
        x, w = tensor(4, 4), tensor(4, 4, seed=1)
        call(x, w)[0].backward()
        folder = next(tmp_path.rglob("graph_0"))
        first = (folder / "backward.py").read_text()
        assert "tangent_logits" not in first and "tangent_" in first
        assert not (folder / "backward_2.py").exists()
        call(x, w)[1].sum().backward()
        assert "exp" in (folder / "backward_2.py").read_text()
        assert (folder / "backward.py").read_text() == first
