"""What is saved and what is computed again."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from autodiff_helpers import compare, saved_names, targets, tensor

from torchglass.autodiff import min_cut, recompute


def test_every_operator_of_the_table_exists():
    assert [name for name in recompute.FAMILY_OF if not hasattr(torch.ops.aten, name)] == []


def test_gelu_by_hand_is_computed_again():
    def gelu(x):
        return 0.5 * x * (1.0 + torch.tanh(0.79788 * (x + 0.044715 * torch.pow(x, 3.0))))

    partition = compare(gelu, tensor(64))
    assert saved_names(partition) == ["x"]
    assert "aten.tanh.default" in targets(partition.backward)


def test_views_are_saved_as_what_they_show():
    def function(x):
        y = x @ x
        return y.t().exp() * y[0] * y.view(-1)[:4]

    partition = compare(function, tensor(4, 4))
    assert saved_names(partition) == ["x", "matmul"]


def test_matrix_products_are_not_computed_twice():
    partition = compare(lambda x, w: torch.relu(x @ w) @ w, tensor(4, 4), tensor(4, 4, seed=1))
    assert [t for t in targets(partition.backward) if "mm" in t] == ["aten.mm.default"] * 4
    assert all(saved.reason for saved in partition.saved)


def test_what_is_computed_again_is_computed_when_it_is_read():
    def function(x, w):
        for _ in range(3):
            x = torch.tanh(x @ w) * torch.sin(x @ w)
        return x

    partition = compare(function, tensor(4, 4), tensor(4, 4, seed=1))
    names = [node.name for node in partition.backward.graph.nodes]
    again = [names.index(name) for name in ("tanh", "tanh_1", "tanh_2")]
    assert again == sorted(again, reverse=True)


def test_softmax_is_saved_once():
    partition = compare(lambda x, v: F.softmax(x, -1) @ v, tensor(8, 8), tensor(8, 8, seed=1))
    assert saved_names(partition) == ["v", "softmax"]


def test_what_only_backward_needs_is_computed_there():
    partition = compare(lambda x: torch.sigmoid(x), tensor(8))
    assert saved_names(partition) in (["x"], ["sigmoid"])


def test_long_chains_are_not_computed_again_from_the_start():
    def residual(x, *weights):
        for w in weights:
            x = x + F.layer_norm(x @ w, (8,))
        return x

    def deep(x, w):
        return residual(x, *[w] * 30)

    partition = compare(deep, tensor(16, 8), tensor(8, 8))
    saved = set(saved_names(partition))
    again = {node.name for node in partition.forward.graph.nodes if node.op == "call_function"} - saved
    depth: dict[str, int] = {}
    for node in partition.backward.graph.nodes:
        if node.name in again:
            depth[node.name] = 1 + max((depth.get(read.name, 0) for read in node.all_input_nodes), default=0)
    assert 0 < max(depth.values()) <= 2 * min_cut.LONGEST


def test_saved_bytes_of_a_transformer_block_are_below_eagers():
    def block(x, w1, w2, lw):
        normed = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * lw
        return x + F.silu(normed @ w1) @ w2

    inputs = tensor(64, 16), tensor(16, 32), tensor(32, 16), tensor(16)
    partition = compare(block, *inputs)
    kept: dict[int, int] = {}

    def pack(value):
        kept[value.untyped_storage().data_ptr()] = value.untyped_storage().nbytes()
        return value

    leaves = [value.detach().requires_grad_() for value in inputs]
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda value: value):
        result = block(*leaves)
    assert result.requires_grad
    assert partition.saved_bytes < 0.9 * sum(kept.values())
