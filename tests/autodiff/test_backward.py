"""How the compiled backward behaves under autograd: unused outputs, layouts, second calls, second derivatives."""

from __future__ import annotations

import pytest
import torch
from autodiff_helpers import capture, compare, compiled, tensor
from tests.complaints import complains

from torchglass import autodiff
from torchglass.runtime.runtime_wrapper import runtime_wrapper


def linked(function, *inputs):
    return compiled(autodiff.trace_training(capture(function), list(inputs)))


def test_only_some_outputs_used():
    def function(x, y):
        return x.sin(), y.cos(), x * y

    compare(function, tensor(4), tensor(4, seed=1), use=lambda outputs: outputs[:1])
    compare(function, tensor(4), tensor(4, seed=1), use=lambda outputs: outputs[1:2])
    compare(function, tensor(4), tensor(4, seed=1), use=lambda outputs: outputs[2:])


def test_inputs_without_influence_get_none():
    partition = compare(lambda x, y: x.sin() + y.detach(), tensor(4), tensor(4, seed=1))
    assert [gradient.input for gradient in partition.gradients] == [0]


def test_no_output_needs_a_gradient():
    partition = compare(lambda x: x.detach().sin(), tensor(4))
    assert not partition.training


def test_gradient_in_another_layout():
    call = linked(lambda x: x.sin(), tensor(3, 4))
    x = tensor(3, 4)
    call(x)[0].t().mul(torch.arange(12.0).view(4, 3)).sum().backward()
    torch.testing.assert_close(x.grad, x.detach().cos() * torch.arange(12.0).view(4, 3).t())
    x.grad = None
    call(x)[0].sum().backward()
    torch.testing.assert_close(x.grad, x.detach().cos())


def test_gradients_accumulate():
    call = linked(lambda x: x.sin(), tensor(4))
    x = tensor(4)
    call(x)[0].sum().backward()
    call(x)[0].sum().backward()
    torch.testing.assert_close(x.grad, 2 * x.detach().cos())


def test_second_backward_needs_retain_graph():
    call = linked(lambda x: x.sin().exp(), tensor(4))
    x = tensor(4)
    loss = call(x)[0].sum()
    loss.backward(retain_graph=True)
    loss.backward()
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


def test_saved_tensor_changed_in_place_is_an_error():
    call = linked(lambda x: x.sin(), tensor(4))
    x = tensor(4) * 1
    loss = call(x)[0].sum()
    x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_second_derivative_is_refused():
    call = linked(lambda x: x.sin(), tensor(4))
    x = tensor(4)
    with pytest.raises(RuntimeError, match="backend='eager'"):
        torch.autograd.grad(call(x)[0].sum(), x, create_graph=True)


def test_backward_compiles_once_and_late():
    partition = autodiff.trace_training(capture(lambda x: x.sin()), [tensor(4)])
    compiled_at = []

    def compile_backward(chosen):
        compiled_at.append(len(calls))
        return lambda tensors: chosen.backward(*tensors)

    calls = []
    call = runtime_wrapper(partition, lambda tensors: partition.forward(*tensors), compile_backward)
    for _ in range(3):
        calls.append(1)
        call(tensor(4))
    assert compiled_at == []
    for _ in range(2):
        call(tensor(4))[0].sum().backward()
    assert compiled_at == [3]


def test_hooks_on_leaves_and_results():
    call = linked(lambda x: x.sin(), tensor(4))
    x = tensor(4)
    seen = []
    x.register_hook(lambda grad: seen.append(grad) or grad * 2)
    y = call(x)[0]
    y.retain_grad()
    y.sum().backward()
    assert len(seen) == 1
    torch.testing.assert_close(x.grad, 2 * x.detach().cos())
    torch.testing.assert_close(y.grad, torch.ones(4))


def test_saved_tensor_hooks_see_real_tensors_only():
    seen = []
    x = tensor(4)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: seen.append(type(t)) or t, lambda t: t):
        call = linked(lambda x: x.sin().exp(), tensor(4))
        assert seen == []
        call(x)[0].sum().backward()
    assert seen and set(seen) <= {torch.Tensor}


def test_memory_is_freed_after_backward():
    import gc
    import weakref

    kept = []

    def remember(graph):
        def call(tensors):
            outs = graph(*tensors)
            kept.extend(weakref.ref(out) for out in outs[1:])
            return outs

        return call

    partition = autodiff.trace_training(capture(lambda x: (x @ x).sum(0).exp().sum()), [tensor(4, 4)])
    call = runtime_wrapper(partition, remember(partition.forward), lambda chosen: lambda ts: chosen.backward(*ts))
    loss = call(tensor(4, 4))[0]
    assert kept
    loss.backward()
    gc.collect()
    assert all(ref() is None for ref in kept)


def test_backward_that_cannot_be_generated_runs_with_aten(monkeypatch):
    import torchglass as tg
    from torchglass import fuse

    real = fuse.run

    def failing(loops, targets):
        if loops.name == "backward":
            raise AttributeError("a mistake")
        return real(loops, targets)

    monkeypatch.setattr(fuse, "run", failing)
    call = tg.compile(lambda x: x.sin() * x, fullgraph=True)
    x = tensor(4)
    out = call(x).sum()
    with complains("with ATen: AttributeError: a mistake"):
        out.backward()
    torch.testing.assert_close(x.grad, (x.cos() * x + x.sin()).detach())
