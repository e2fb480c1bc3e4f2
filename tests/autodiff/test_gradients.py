"""Values and gradients of whole functions, against eager."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from autodiff_helpers import compare, saved_names, targets, tensor


def test_two_cosines_save_x_alone():
    partition = compare(lambda x: torch.cos(torch.cos(x)), tensor(3, 4))
    assert saved_names(partition) == ["x"]
    assert partition.saved_bytes == 48
    assert partition.forward.graph.output_node().args[0][0].name == "cos_1"
    chain = ["cos", "cos", "sin", "neg", "mul", "sin", "neg", "mul"]  # what tracing torch.autograd.grad gives
    assert [target.split(".")[1] for target in targets(partition.joint)] == chain


def test_sin_squared_plus_cos_squared():
    partition = compare(lambda x: torch.sin(x) ** 2 + torch.cos(x) ** 2, tensor(1, 1000))
    assert saved_names(partition) == ["x"]


def test_mlp_with_gelu_and_layer_norm():
    def mlp(x, w1, b1, w2, b2, lw, lb):
        return F.layer_norm(x + F.linear(F.gelu(F.linear(x, w1, b1)), w2, b2), (8,), lw, lb)

    inputs = tensor(5, 8), tensor(16, 8), tensor(16), tensor(8, 16), tensor(8), tensor(8, seed=1), tensor(8, seed=2)
    partition = compare(mlp, *inputs)
    assert "aten.native_layer_norm.default" in targets(partition.forward)
    assert "aten.gelu_backward.default" in targets(partition.backward)
    assert len(partition.gradients) == 7


def test_eager_attention():
    def attention(q, k, v, mask):
        scores = torch.matmul(q, k.transpose(-1, -2)) * 0.5 + mask
        return torch.matmul(F.softmax(scores, dim=-1), v).transpose(1, 2).contiguous().reshape(2, 5, -1)

    mask = torch.zeros(1, 1, 5, 5).masked_fill(torch.ones(5, 5).triu(1).bool(), float("-inf"))
    compare(attention, tensor(2, 3, 5, 4), tensor(2, 3, 5, 4, seed=1), tensor(2, 3, 5, 4, seed=2), mask)


def test_fused_attention_keeps_eagers_kernel():
    q, k, v = (tensor(2, 3, 16, 8, seed=i) for i in range(3))
    partition = compare(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), q, k, v)
    assert "aten._scaled_dot_product_flash_attention_for_cpu.default" in targets(partition.forward)
    assert "aten._scaled_dot_product_flash_attention_for_cpu_backward.default" in targets(partition.backward)


def test_embedding_and_integer_inputs():
    ids = torch.randint(0, 10, (2, 6))
    partition = compare(lambda ids, w: F.embedding(ids, w, padding_idx=0).sum(1), ids, tensor(10, 4))
    assert [gradient.input for gradient in partition.gradients] == [1]


def test_convolution():
    def block(x, w, b):
        return F.max_pool2d(F.relu(F.conv2d(x, w, b, padding=1)), 2).flatten(1)

    compare(block, tensor(2, 3, 8, 8), tensor(4, 3, 3, 3), tensor(4))


def test_rms_norm_and_swiglu():
    def llama(x, w, gate, up, down):
        normed = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w
        return x + F.linear(F.silu(F.linear(normed, gate)) * F.linear(normed, up), down)

    inputs = tensor(2, 5, 8), tensor(8), tensor(12, 8), tensor(12, 8, seed=1), tensor(8, 12)
    compare(llama, *inputs)


def test_dropout_draws_eagers_numbers_once():
    partition = compare(lambda x: F.dropout(x.sin(), 0.5).cos(), tensor(64))
    drawn = [t for t in targets(partition.forward) if "bernoulli" in t]
    assert len(drawn) == 1
    assert not any("bernoulli" in t for t in targets(partition.backward))


def test_unread_random_numbers_are_still_drawn():
    def function(x):
        F.dropout(x, 0.5)
        return torch.rand_like(x) + x

    compare(function, tensor(8))


def test_tensors_made_by_the_code():
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    scaled = graph.call_function(torch.mul, (x, graph.call_function(torch.tensor, (3.0,))))
    graph.output((scaled, graph.call_function(torch.tensor, ([1.0, 2.0],)), graph.call_function(torch.arange, (3,))))

    def function(x):
        return x * torch.tensor(3.0), torch.tensor([1.0, 2.0]), torch.arange(3)

    compare(function, tensor(3, 4), gm=torch.fx.GraphModule({}, graph))


def test_constants_of_the_graph():
    compare(lambda x: x * torch.tensor(3.0) + torch.tensor([1.0, 2.0, 3.0, 4.0]), tensor(3, 4))


def test_double_precision_and_mixed_types():
    compare(lambda x, y: (x * y).to(torch.float32).relu().double(), tensor(4, dtype=torch.float64), tensor(4))


def test_half_precision_autocast_inside():
    def function(x, w):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return F.linear(x, w).float().exp()

    graph = torch.fx.Graph()
    x, w = graph.placeholder("x"), graph.placeholder("w")
    enter = torch.amp.autocast_mode._enter_autocast
    context = graph.call_function(enter, ("cpu", torch.bfloat16, True, None))
    y = graph.call_function(F.linear, (x, w))
    y = graph.call_method("float", (y,))
    y = graph.call_method("exp", (y,))
    graph.call_function(torch.amp.autocast_mode._exit_autocast, (context,))
    graph.output((y,))
    partition = compare(function, tensor(4, 8), tensor(3, 8), gm=torch.fx.GraphModule({}, graph))
    assert "aten._to_copy.default" in targets(partition.forward)


def test_autocast_around_is_not_applied_twice():
    def function(x, w):
        return (F.linear(x, w) * 2).sum()

    with torch.autocast("cpu", dtype=torch.bfloat16):
        partition = compare(function, tensor(4, 8), tensor(3, 8))
    assert partition.autocast == ("cpu",)


def test_no_grad_region():
    def function(x):
        with torch.no_grad():
            scale = x.abs().max()
        return x / scale

    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    graph.call_function(torch._C._set_grad_enabled, (False,))
    scale = graph.call_method("max", (graph.call_method("abs", (x,)),))
    graph.call_function(torch._C._set_grad_enabled, (True,))
    graph.output((graph.call_function(torch.div, (x, scale)),))
    compare(function, tensor(5), gm=torch.fx.GraphModule({}, graph))
    assert torch.is_grad_enabled()


def test_custom_autograd_function():
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.exp()

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return grad * 3 * x

    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    graph.output((graph.call_function(Twice.apply, (x,)),))
    compare(Twice.apply, tensor(5), gm=torch.fx.GraphModule({}, graph))


def test_inference_never_differentiates():
    from torchglass import autodiff
    from torchglass.runtime.runtime_wrapper import runtime_wrapper

    gm = torch.fx.symbolic_trace(lambda x, w: F.linear(x, w).relu())
    x, w = tensor(2, 3), tensor(4, 3)
    partition = autodiff.trace_inference(gm, [x, w])
    assert partition.backward is None and partition.saved == ()
    call = runtime_wrapper(partition, lambda a: partition.forward(*a), lambda chosen: None)
    (out,) = call(x, w)
    assert not out.requires_grad
    torch.testing.assert_close(out, F.linear(x, w).relu())
