"""Program 3: what cos(cos(x)) saves for backward, and its joint graph."""

import re

import torch
from torch.fx.experimental.proxy_tensor import make_fx

import torchglass as tg


class SaveBoth(torch.autograd.Function):
    """By hand: keep the inputs of both cosines."""

    @staticmethod
    def forward(ctx, x):
        y = torch.cos(x)
        ctx.save_for_backward(x, y)
        return torch.cos(y)

    @staticmethod
    def backward(ctx, grad):
        x, y = ctx.saved_tensors
        return grad * -torch.sin(y) * -torch.sin(x)


class SaveOne(torch.autograd.Function):
    """By hand: keep x alone and compute the inner cosine again."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.cos(torch.cos(x))

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * -torch.sin(torch.cos(x)) * -torch.sin(x)


def two_cosines(x):
    return torch.cos(torch.cos(x))


def outcome(function, x):
    x = x.clone().requires_grad_()
    y = function(x)
    y.sum().backward()
    return y.detach(), x.grad


def saved_for_backward(function, x) -> list[torch.Tensor]:
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        function(x)
    return kept


def test_outputs_and_gradients_agree():
    x = torch.randn(20)
    eager = outcome(two_cosines, x)
    for function in (
        SaveBoth.apply,
        SaveOne.apply,
        tg.compile(two_cosines),
        tg.compile(two_cosines, backend="aot_eager"),
    ):
        torch.testing.assert_close(outcome(function, x), eager)


def test_ours_saves_x_alone():
    x = torch.randn(20, requires_grad=True)
    compiled = tg.compile(two_cosines)
    compiled(x)
    (kept,) = saved_for_backward(compiled, x)
    assert kept.data_ptr() == x.data_ptr()
    assert len(saved_for_backward(two_cosines, x)) == 2
    (graph,) = tg.explain(compiled).graphs()
    assert [s.bytes for s in graph.saved] == [x.numel() * 4]


def test_the_joint_graph_is_what_tracing_gives():
    x = torch.randn(20, requires_grad=True)
    compiled = tg.compile(two_cosines)
    compiled(x)
    (graph,) = tg.explain(compiled).graphs()

    def joint(x, tangent):
        y = two_cosines(x)
        return y, *torch.autograd.grad(y, x, tangent)

    traced = make_fx(joint, tracing_mode="fake")(x, torch.ones(20))
    expected = [str(n.target) for n in traced.graph.nodes if n.op == "call_function" and "detach" not in str(n.target)]
    ours = re.findall(r"= (aten\.\w+\.\w+)\(", graph.files["joint.py"])
    assert sorted(ours) == sorted(expected)
