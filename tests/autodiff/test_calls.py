"""Eager's meaning around a compiled function: what callers set, ask and do between calls, with and without code
generation.
"""

from __future__ import annotations

import gc
import warnings

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
from autodiff_helpers import fresh, plain, tensor
from calls_compared import BACKENDS, same
from torch import nn

import torchglass as tg

AROUND = {}


def around(program):
    AROUND[program.__name__] = program
    return program


def body(x, w):
    h = torch.tanh(x @ w)
    return h.sin(), h.sum()


@around
def requires_grad_now_and_then(call):
    found = []
    for first, second in ((True, False), (False, True), (False, False), (True, True)):
        x, w = tensor(4, 4, grad=first), tensor(4, 4, grad=second, seed=1)
        out, total = call(x, w)
        if total.requires_grad:
            (out.sum() + total).backward()
        found += [out, x.grad, w.grad]
    return found


@around
def called_without_grad(call):
    found = []
    x, w = tensor(4, 4), tensor(4, 4, seed=1)
    for mode in (torch.no_grad, torch.enable_grad, torch.inference_mode, torch.enable_grad):
        with mode():
            out, total = call(x, w)
        found += [out.clone(), out.requires_grad, out.is_inference(), total.clone()]
        if total.requires_grad:
            total.backward()
    return [*found, x.grad, w.grad]


@around
def inference_tensors_as_inputs(call):
    with torch.inference_mode():
        x, w = plain(4, 4) * 1, plain(4, 4, seed=1) * 1
        first = call(x, w)[0]
    with torch.no_grad():
        second = call(x, w)[0]
    return [first.clone(), second.clone(), first.is_inference()]


@around
def called_in_autocast(call):
    x, w = tensor(4, 4), tensor(4, 4, seed=1)
    found = []
    for on in (True, False, True):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=on):
            out, total = call(x, w)
            again = call(x, w)[0]
        (total.float() + again.float().sum()).backward()
        found += [out, total]
    return [*found, x.grad, w.grad]


@around
def backward_in_autocast(call):
    x, w = tensor(4, 4), tensor(4, 4, seed=1)
    total = call(x, w)[1]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        total.backward()
    return [x.grad.dtype, w.grad.dtype]


@around
def autograd_grad_on_outputs(call):
    x, w = tensor(4, 4), tensor(4, 4, seed=1)
    out, total = call(x, w)
    found = list(torch.autograd.grad(total, (x, w), retain_graph=True))
    found += torch.autograd.grad(out, w, torch.ones(4, 4), retain_graph=True)
    found += torch.autograd.grad([out, total], [x], [torch.eye(4), torch.tensor(2.0)])
    return [*found, x.grad]


@around
def unused_input_of_grad(call):
    x, w, z = tensor(4, 4), tensor(4, 4, seed=1), tensor(2)
    return list(torch.autograd.grad(call(x, w)[1], (x, z), allow_unused=True))


@around
def hooks_everywhere(call):
    seen = []
    x, w = tensor(4, 4), tensor(4, 4, seed=1)
    x.register_hook(lambda grad: seen.append(grad.clone()))
    w.register_hook(lambda grad: grad * 2)
    w.register_post_accumulate_grad_hook(lambda leaf: seen.append(leaf.grad.clone()))
    for _ in range(2):
        out, total = call(x, w)
        out.register_hook(lambda grad: grad * 3)
        total.retain_grad()
        (out.sum() + total * 2).backward()
        seen.append(total.grad)
    return [*seen, x.grad, w.grad]


@around
def anomaly_mode(call):
    x, w = tensor(4, 4), tensor(4, 4, seed=1)
    with torch.autograd.detect_anomaly(check_nan=False):
        call(x, w)[1].backward()
    with torch.autograd.detect_anomaly():
        call(x, w)[0].sum().backward()
    return [x.grad, w.grad]


@around
def saved_tensor_hooks_of_the_user(call):
    x, w = tensor(4, 4), tensor(4, 4, seed=1)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.numpy(force=True), torch.from_numpy):
        total = call(x, w)[1]
    total.backward()
    with torch.autograd.graph.save_on_cpu():
        call(x, w)[0].sum().backward()
    return [x.grad, w.grad]


@around
def shared_parameters_and_accumulation(call):
    x, w = tensor(4, 4), tensor(4, 4, seed=1)
    for scale in (1.0, 2.0, 3.0):
        h = call(x, w)[0]
        (call(h, w)[1] * scale + call(w, w)[1]).backward()
    return [x.grad, w.grad]


@around
def gradients_held_and_zeroed(call):
    x, w = tensor(4, 4), tensor(4, 4, seed=1)
    optimizer = torch.optim.SGD([w], lr=0.1, momentum=0.9)
    losses = []
    for step in range(4):
        optimizer.zero_grad(set_to_none=step % 2 == 0)
        loss = call(x, w)[1] ** 2
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return [*losses, w, x.grad]


@around
def leaf_written_between_forward_and_backward(call):
    x, w = tensor(4, 4), tensor(4, 4, seed=1)
    total = call(x, w)[1]
    with torch.no_grad():
        w.mul_(2)
    try:
        total.backward()
    except RuntimeError as error:
        return ["modified by an inplace operation" in str(error)]
    return [x.grad]


@around
def output_written_afterwards(call):
    x, w = tensor(4, 4), tensor(4, 4, seed=1)
    out, total = call(x, w)
    out.mul_(2)
    (out.sum() + total).backward()
    return [x.grad, w.grad, out]


@around
def backward_on_another_thread(call):
    import threading

    x, w = tensor(4, 4), tensor(4, 4, seed=1)
    total = call(x, w)[1]
    worker = threading.Thread(target=total.backward)
    worker.start()
    worker.join()
    return [x.grad, w.grad]


@around
def gradient_edges_and_graph(call):
    x, w = tensor(4, 4), tensor(4, 4, seed=1)
    out, total = call(x, w)
    (out * 0.5).sum().backward(inputs=[w])
    return [x.grad, w.grad, out.is_leaf, total.is_leaf]


@around
def parallel_backward_of_one_forward(call):
    x, w = tensor(4, 4), tensor(4, 4, seed=1)
    out, total = call(x, w)
    total.backward(retain_graph=True)
    out.sum().backward(retain_graph=True)
    (out.t() @ torch.eye(4)).sum().backward()
    return [x.grad, w.grad]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", list(AROUND))
def test_around(name, backend):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Anomaly")
        same(AROUND[name](body), AROUND[name](tg.compile(body, backend=backend, fullgraph=True)), name)


@pytest.mark.parametrize("backend", BACKENDS)
def test_modules_in_training_and_not(backend):
    def make():
        torch.manual_seed(2)
        return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.ReLU(), nn.Linear(8, 2))

    models = make(), make()
    found = []
    for model, call in zip(models, (models[0], tg.compile(models[1], backend=backend, fullgraph=True))):
        torch.manual_seed(3)
        results = []
        for training in (True, False, True, True, False):
            model.train(training)
            out = call(plain(6, 4))
            out.sum().backward()
            results.append(out)
        model[0].weight.requires_grad_(False)
        model[0].weight.grad = None
        call(plain(6, 4)).sum().backward()
        results += [p.grad for p in model.parameters()] + list(model.buffers())
        found.append(results)
    same(*found, "module")


@pytest.mark.parametrize("backend", BACKENDS)
def test_forward_mode_differentiation_is_right_or_refused(backend):
    x, w = plain(4, 4), plain(4, 4, seed=1)
    tangents = []
    for call in (body, tg.compile(body, backend=backend)):
        with forward_ad.dual_level():
            try:
                out = call(forward_ad.make_dual(x, torch.ones(4, 4)), w)[0]
            except RuntimeError as error:
                assert "forward" in str(error).lower(), error
                return
            tangents.append(forward_ad.unpack_dual(out).tangent)
    torch.testing.assert_close(tangents[1], tangents[0])


@pytest.mark.parametrize("backend", BACKENDS)
def test_forward_mode_through_an_entry_made_before(backend):
    """The entry's guards must not take tensors that carry a tangent."""
    x, w = plain(4, 4), plain(4, 4, seed=1)
    call = tg.compile(body, backend=backend)
    call(x, w)
    with forward_ad.dual_level():
        try:
            found = forward_ad.unpack_dual(call(forward_ad.make_dual(x, torch.ones(4, 4)), w)[0]).tangent
        except RuntimeError as error:
            assert "forward" in str(error).lower(), error
            return
        want = forward_ad.unpack_dual(body(forward_ad.make_dual(x, torch.ones(4, 4)), w)[0]).tangent
    torch.testing.assert_close(found, want)


@pytest.mark.parametrize("backend", BACKENDS)
def test_function_transforms_around(backend):
    call = tg.compile(body, backend=backend)
    x, w = plain(4, 4), plain(4, 4, seed=1)
    call(x, w)
    same(torch.func.grad(lambda v: body(v, w)[1])(x), torch.func.grad(lambda v: call(v, w)[1])(x), "grad")
    xs = torch.stack([x, w])
    same(torch.func.vmap(body, (0, None))(xs, w), torch.func.vmap(call, (0, None))(xs, w), "vmap")


@pytest.mark.parametrize("backend", BACKENDS)
def test_double_backward_says_how(backend):
    call = tg.compile(body, backend=backend, fullgraph=True)
    x, w = tensor(4, 4), tensor(4, 4, seed=1)
    with pytest.raises(RuntimeError, match="backend='eager'"):
        torch.autograd.grad(call(x, w)[1], x, create_graph=True)
    with pytest.raises(RuntimeError, match="backend='eager'"):
        torch.autograd.functional.hessian(lambda v: call(v, w)[1], x.detach())
    x.grad = None
    call(x, w)[1].backward()  # and nothing is left behind
    want = fresh(x)
    body(want, w)[1].backward()
    torch.testing.assert_close(x.grad, want.grad)


@pytest.mark.parametrize("backend", BACKENDS)
def test_graph_is_freed_without_backward(backend):
    call = tg.compile(body, backend=backend, fullgraph=True)
    x, w = tensor(4, 4), tensor(4, 4, seed=1)
    call(x, w)[1].backward()
    gc.collect()
    before = sum(isinstance(o, torch.Tensor) for o in gc.get_objects())
    for _ in range(5):
        call(x, w)
    gc.collect()
    assert sum(isinstance(o, torch.Tensor) for o in gc.get_objects()) <= before


@pytest.mark.parametrize("backend", ["eager", *BACKENDS])
def test_many_gradients_at_once(backend):
    """``is_grads_batched`` and ``jacobian(vectorize=True)``: gradients without memory of their own."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.GELU(), nn.Flatten(), nn.Linear(16, 3), nn.LayerNorm(3)
    )
    x = torch.randn(2, 3, 4, 4, requires_grad=True)
    compiled = tg.compile(net.eval(), backend=backend)
    expected = torch.autograd.functional.jacobian(net, x)
    torch.testing.assert_close(torch.autograd.functional.jacobian(compiled, x, vectorize=True), expected)
    vectors = torch.eye(6).view(6, 2, 3)
    (found,) = torch.autograd.grad(compiled(x), x, vectors, is_grads_batched=True)
    torch.testing.assert_close(found, expected.view(6, *x.shape))
    compiled(x).sum().backward()  # and one at a time, by the kernels
    torch.testing.assert_close(x.grad, expected.sum((0, 1)))
