"""Eager's meaning around a compiled function: what callers set, ask and do between calls, and what functions do
inside that autograd sees. Each with and without code generation.
"""

from __future__ import annotations

import gc
import warnings

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
import torch.nn.functional as F
from autodiff_helpers import fresh, tensor
from torch import nn
from torch.autograd import Function
from torch.utils.checkpoint import checkpoint

import torchglass as tg

BACKENDS = ["aot_eager", "glass"]
CASES = {}


def case(*inputs):
    """Enter a program ``(call, *inputs) -> what is compared``: it gets the function or the compiled function."""

    def enter(program):
        CASES[program.__name__] = (program, inputs)
        return program

    return enter


def plain(*shape, seed=0):
    return tensor(*shape, grad=False, seed=seed)


def program(function, *inputs):
    """Enter ``function`` with a program that calls it twice, differentiates and returns outputs, gradients, inputs."""

    def run(call, *given):
        results = []
        for _ in range(2):
            outputs = call(*given)
            outputs = outputs if isinstance(outputs, tuple) else (outputs,)
            ends = [o for o in outputs if isinstance(o, torch.Tensor) and o.requires_grad]
            if ends:
                sum((o.abs() * torch.arange(1, o.numel() + 1).view(o.shape)).sum() for o in ends).backward()
            results += [*outputs, *(g.grad.clone() if g.grad is not None else None for g in given)]
        return results, given

    run.function = function
    CASES[function.__name__] = (run, inputs)
    return function


def compared(name, backend):
    run, inputs = CASES[name]
    function = run.function
    results = []
    for call in (function, tg.compile(function, backend=backend)):
        torch.manual_seed(5)
        results.append(run(call, *map(fresh, inputs)))
    same(*results, name)


def same(want, got, where):
    if isinstance(want, (list, tuple)):
        assert len(want) == len(got), where
        for i, (a, b) in enumerate(zip(want, got)):
            same(a, b, f"{where}[{i}]")
    elif isinstance(want, torch.Tensor):
        assert isinstance(got, torch.Tensor), (where, got)
        assert want.requires_grad == got.requires_grad, where
        rough = "autocast" in where  # eager rounds shared casts' gradients once more, as it adds them
        near = {"rtol": 1e-2, "atol": 4.0} if rough else {"rtol": 2e-5, "atol": 1e-4}
        near = near if want.is_floating_point() or want.is_complex() else {"rtol": 0, "atol": 0}
        torch.testing.assert_close(got.detach(), want.detach(), equal_nan=True, msg=lambda t: f"{where}: {t}", **near)
    else:
        assert want == got, (where, want, got)


def inside(*inputs):
    """Enter a function that is compared call by call, twice, with gradients."""
    return lambda function: program(function, *inputs)


# --- writes -----------------------------------------------------------------------------------------------------------
@inside(tensor(4), plain(6))
def write_to_views_of_an_input(x, memory):
    first, rest = memory[:3], memory[2:]
    first.mul_(2)
    rest.add_(first.sum())
    return x * memory[:4].clone()


@inside(tensor(4), plain(2, 3))
def write_to_a_transposed_input(x, memory):
    memory.t()[1].copy_(memory.t()[0])
    memory.view(-1)[2::2] += 1
    return x.sum() * memory.clone(), memory.t()


@inside(tensor(4, 4))
def write_to_views_with_gradients(x):
    y = x * 2
    y[0] = x[1]
    y[:, 1:3].mul_(x[:, :2])
    z = y.t()
    z.diagonal().add_(1)
    return y, z


@inside(tensor(4, 4), plain(4, 4))
def data_attribute(x, memory):
    memory.data.mul_(2)
    y = x.data * x
    return y + memory.clone()


@inside(plain(4, 4), plain(4, 4, seed=1))
def unsafe_and_integer_writes(a, b):
    index = a.argsort(-1)
    index[0] = 0
    b.scatter_(1, index, 0.5, reduce="add")
    b[b > 0.4] = 0.25
    return index, b.gather(1, index)


@inside(tensor(4, 4), torch.arange(4))
def counter_and_flags(x, steps):
    steps += 1
    seen = steps > 2
    return torch.where(seen, x, x * 2), seen, steps


# --- outputs ----------------------------------------------------------------------------------------------------------
@inside(tensor(4, 4))
def outputs_twice_and_nested_views(x):
    y = x.exp()
    return y, y, y[1:][0], y.view(2, 2, 4).transpose(0, 2), x, x.unsqueeze(0), y.detach()[0]


@inside(tensor(4, 4))
def views_of_a_written_value(x):
    y = x.clone()
    v = y[1]
    y.mul_(3)
    return v, y


@inside(tensor(4, 4))
def split_and_chunk_outputs(x):
    a, b = (x * 2).chunk(2)
    return a, b, *x.split(1)


@inside(tensor(3, 4, dtype=torch.complex64))
def complex_numbers(x):
    y = x.conj() * torch.view_as_complex(torch.view_as_real(x) * 2)
    return y.real, y.imag, y.abs(), torch.fft.ifft(torch.fft.fft(y)).angle()


@inside(tensor(4, 4), tensor(4, 4, seed=1, dtype=torch.float64))
def mixed_precision(x, y):
    return x * y, x.double() @ y, (x * y).to(torch.bfloat16).float()


@inside(tensor(4, 4))
def names_of_modules(x):
    aten = x.exp()
    inf = aten.sin()
    device = inf.cumsum(0)
    operator = device * aten
    empty = operator.t().contiguous()
    return empty.tanh()


# --- random numbers ---------------------------------------------------------------------------------------------------
@inside(tensor(6, 6))
def draws_of_all_kinds(x):
    weights = x.detach().softmax(-1)
    picked = torch.multinomial(weights, 2, replacement=True)
    noise = torch.normal(0.0, 1.0, (6, 6)) + torch.empty(6, 6).uniform_(-1, 1) + torch.rand(6)
    kept = torch.bernoulli(weights)
    return (x * noise * kept).gather(1, picked), torch.randint(0, 9, (3,)), F.rrelu(x, training=True)


@inside(tensor(6, 6))
def dropouts(x):
    x = F.dropout(x.sin(), 0.4)
    x = F.alpha_dropout(x, 0.3, training=True)
    x = F.feature_dropout(x.view(1, 6, 6), 0.2, training=True) if hasattr(F, "feature_dropout") else x
    return F.dropout1d(x.view(1, 6, 6), 0.5).exp()


# --- modes inside -----------------------------------------------------------------------------------------------------
@inside(tensor(4, 4), tensor(4, 4, seed=1))
def grad_modes_nested(x, w):
    with torch.no_grad():
        a = x @ w
        with torch.enable_grad():
            b = (x * w).sum()
        torch.set_grad_enabled(True)
        c = x.cos()
        torch.set_grad_enabled(False)
        d = w.sin()
    return a, b, c, d, x.detach() * w


@torch.no_grad()
def frozen(x):
    return x * 3


@inside(tensor(4, 4))
def decorated_without_grad(x):
    return frozen(x) * x


@inside(tensor(8, 8), tensor(8, 8, seed=1))
def autocast_with_a_weight_twice(x, w):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = F.linear(x, w)
        b = F.linear(a, w)
        with torch.no_grad():
            c = F.linear(x, w)
        s = torch.softmax(b, -1)
    return a, b, c, s, F.layer_norm(x, (8,))


@inside(tensor(8, 8), tensor(8, 8, seed=1))
def autocast_in_half_precision(x, w):
    with torch.autocast("cpu", dtype=torch.float16):
        return (x @ w).float().sum(), torch.cat([x, (x @ w)])


@inside(tensor(4, 4), tensor(4, 4, seed=1))
def checkpointed(x, w):
    def block(x, w):
        return F.dropout(torch.tanh(x @ w), 0.5)

    y = checkpoint(block, x, w, use_reentrant=False)
    return checkpoint(block, y, w, use_reentrant=True)


# --- functions of one's own -------------------------------------------------------------------------------------------
class Scaled(Function):
    @staticmethod
    def forward(ctx, x, factor, y):
        ctx.factor = factor
        ctx.save_for_backward(x, y)
        return x * factor + y, (x > 0)

    @staticmethod
    def backward(ctx, grad, _):
        x, y = ctx.saved_tensors
        return grad * ctx.factor * (x > 0) if ctx.needs_input_grad[0] else None, None, grad * y


class Marked(Function):
    @staticmethod
    def forward(ctx, x):
        index = x.argmax(-1)
        top = x.amax(-1)
        ctx.mark_non_differentiable(top)
        ctx.save_for_backward(x)
        return x * 2, top, index

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad, *_):
        return grad * 7


class Apart(Function):
    @staticmethod
    def forward(x, power):
        return x**power

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.power = inputs
        ctx.save_for_backward(x, output)

    @staticmethod
    def backward(ctx, grad):
        x, output = ctx.saved_tensors
        return grad * ctx.power * output / x * 2, None


class Writes(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(3)

    @staticmethod
    def backward(ctx, grad):
        return grad * 11


class Two(Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.set_materialize_grads(False)
        return x.sin(), y.cos()

    @staticmethod
    def backward(ctx, a, b):
        return (None if a is None else a * 2), (None if b is None else b * 5)


@inside(tensor(4, 4), tensor(4, 4, seed=1))
def function_with_context(x, y):
    out, positive = Scaled.apply(x, 3.0, y)
    return out, positive, Scaled.apply(x.detach(), 2.0, y)[0]


@inside(tensor(4, 4))
def function_with_marks(x):
    return Marked.apply(x.exp())


@inside(tensor(4, 4))
def function_with_setup_context(x):
    return Apart.apply(x.exp(), 3)


@inside(tensor(4, 4))
def function_that_writes(x):
    y = x * 1
    Writes.apply(y)
    return y


@inside(tensor(4, 4), tensor(4, 4, seed=1))
def function_with_several_outputs(x, y):
    a, b = Two.apply(x, y)
    c, _ = Two.apply(y, x)
    return a + c, b.detach()


# --- function transforms ----------------------------------------------------------------------------------------------
@inside(tensor(4))
def grad_of_a_function(x):
    return torch.func.grad(lambda v: (v.sin() * v).sum())(x), torch.func.vmap(lambda v: v * v.cos())(x)


@inside(tensor(4))
def jacobians(x):
    def f(v):
        return v.exp() * v.sum()

    tangent = torch.func.jvp(f, (x,), (torch.ones(4),))[1]
    return torch.func.jacrev(f)(x), tangent, torch.func.jacfwd(f)(x)


@inside(tensor(3, 4), tensor(4, 4, seed=1))
def gradients_of_each_sample(x, w):
    def loss(w, row):
        return (torch.tanh(row @ w)).sum()

    return torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(w, x)


@inside(tensor(4))
def gradient_penalty(x):
    y = (x.sin() * x).sum()
    (g,) = torch.autograd.grad(y, x, create_graph=True)
    return (g**2).sum(), g


@inside(plain(4))
def made_to_require_grad_inside(x):
    w = torch.ones(4).requires_grad_()
    y = (x * w).exp().sum()
    (g,) = torch.autograd.grad(y, w)
    return g


@inside(tensor(4, 4))
def hook_on_an_inner_tensor(x):
    y = x.sin()
    y.register_hook(lambda grad: grad * 10)
    return y * 2


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", list(CASES))
def test_inside(name, backend):
    compared(name, backend)


# --- around the call --------------------------------------------------------------------------------------------------
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
