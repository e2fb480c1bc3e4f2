"""Keeping less: ``memory_budget``, checkpointed functions, and what is freed when."""

from __future__ import annotations

import itertools
import tempfile
import weakref
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from autodiff_helpers import capture, compare, fresh, saved_names, targets, tensor
from torch.utils.checkpoint import checkpoint

import torchglass as tg
from torchglass import autodiff
from torchglass.autodiff import budget
from torchglass.options import CompileOptions
from torchglass.runtime.runtime_wrapper import runtime_wrapper


def mlp(x, *weights):
    for w in weights:
        x = x + F.gelu(F.layer_norm(x, (16,)) @ w) @ w.t()
    return x.sum()


def deep(x, a, b, c):
    return mlp(x, a, b, c)


def inputs():
    return tensor(32, 16), *(tensor(16, 48, seed=i) for i in range(3))


def kept(partition) -> int:
    return sum(saved.bytes for saved in partition.saved if saved.place.kind == "output")


def with_budget(share: float):
    options = CompileOptions.make(options={"memory_budget": share})
    return autodiff.trace_training(capture(deep), list(inputs()), options)


def test_an_image_made_larger_is_made_again():
    def function(x, w):
        up = F.interpolate(F.silu(x), scale_factor=2, mode="nearest").flip(-1)
        return F.conv2d(torch.cat([up, up * 2], 1), w)

    partition = compare(function, tensor(2, 3, 8, 8), tensor(4, 6, 3, 3, seed=1))
    assert kept(partition) == 0


@pytest.mark.parametrize("backend", ["aot_eager", "glass"])
def test_a_copy_of_what_is_written_before_backward(backend):
    """A queue of earlier results, of which the program takes a copy before it puts new ones in."""
    queue, x = tensor(4, 6, grad=False), tensor(3, 4)

    def function(x):
        return torch.einsum("nc,ck->nk", F.normalize(x), queue.clone().detach())

    wanted = torch.autograd.grad(function(x).sum(), x)
    result = tg.compile(function, backend=backend)(x)
    queue[:, :3] = 1
    torch.testing.assert_close(torch.autograd.grad(result.sum(), x), wanted)


# --- memory_budget ----------------------------------------------------------------------------------------------------
def test_budget_bounds_what_is_kept():
    whole = kept(with_budget(1.0))
    shares = [0.8, 0.5, 0.2, 0.0]
    sizes = [kept(with_budget(share)) for share in shares]
    assert all(size <= share * whole for size, share in zip(sizes, shares))
    assert sizes == sorted(sizes, reverse=True) and sizes[0] < whole and sizes[-1] == 0


@pytest.mark.parametrize("share", [0.7, 0.3, 0.0])
def test_budget_keeps_values(share):
    given = inputs()
    compiled = tg.compile(deep, backend="aot_eager", fullgraph=True, options={"memory_budget": share})
    results = []
    for call in (deep, compiled):
        leaves = [fresh(value) for value in given]
        call(*leaves).backward()
        results.append([leaf.grad for leaf in leaves])
    for want, got in zip(*results):
        torch.testing.assert_close(got, want)


def test_budget_draws_random_numbers_once():
    options = CompileOptions.make(options={"memory_budget": 0.0})
    gm = capture(lambda x, w: F.dropout(torch.relu(x @ w), 0.5) @ w)
    partition = autodiff.trace_training(gm, [tensor(8, 8), tensor(8, 8, seed=1)], options)
    assert not any("bernoulli" in target for target in targets(partition.backward))
    assert [saved.dtype for saved in partition.saved if saved.place.kind == "output"] == [torch.bool]


def test_knapsack_takes_the_best():
    weights, worth = [5, 4, 3, 2, 7], [10.0, 40.0, 30.0, 50.0, 90.0]

    def value(chosen):
        return sum(worth[i] for i in chosen)

    for capacity in (0, 3, 7, 9, 14, 21):
        fitting = [
            c for n in range(6) for c in itertools.combinations(range(5), n) if sum(weights[i] for i in c) <= capacity
        ]
        found = budget.knapsack(weights, worth, capacity)
        assert sum(weights[i] for i in found) <= capacity
        assert value(found) == pytest.approx(max(map(value, fitting)))


# --- checkpointed functions -------------------------------------------------------------------------------------------
def block(x, w):
    return x + F.dropout(torch.relu(x @ w), 0.1) @ w.t()


def marked(function, regions):
    """A captured graph whose nodes are marked as a checkpoint's, by the position of the call among its kind."""
    gm = capture(function)
    for node in gm.graph.nodes:
        if node.op not in ("placeholder", "output"):
            node.meta["checkpoint_region"] = regions(node)
    return gm


def test_marked_region_is_computed_again():
    def function(x, w):
        return torch.relu(torch.tanh(x @ w) @ w).sum()

    inside = {"matmul", "tanh", "matmul_1", "relu"}
    gm = marked(function, lambda node: 0 if node.name in inside else None)
    partition = compare(function, tensor(6, 6), tensor(6, 6, seed=1), gm=gm)
    assert saved_names(partition) == ["x", "w"]
    assert sum("mm" in target for target in targets(partition.backward)) == 2 + 4


def test_neighbouring_regions_keep_what_passes_between_them():
    def function(x, w):
        y = torch.tanh(x @ w)
        return torch.tanh(y @ w).sum()

    gm = marked(function, lambda node: {"matmul": 0, "tanh": 0, "matmul_1": 1, "tanh_1": 1}.get(node.name))
    partition = compare(function, tensor(6, 6), tensor(6, 6, seed=1), gm=gm)
    assert saved_names(partition) == ["x", "w", "tanh"]


def test_region_that_returns_a_view():
    def function(x, w):
        y = torch.tanh(x @ w).t()
        return torch.tanh(y @ w).sum()

    names = {"matmul": 0, "tanh": 0, "t": 0, "matmul_1": 1, "tanh_1": 1}
    gm = marked(function, lambda node: names.get(node.name))
    partition = compare(function, tensor(6, 6), tensor(6, 6, seed=1), gm=gm)
    assert saved_names(partition) == ["x", "w", "tanh"]


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("backend", ["aot_eager", "glass"])
def test_checkpointed_blocks_through_compile(reentrant, backend):
    def function(x, w):
        for _ in range(3):
            x = checkpoint(block, x, w, use_reentrant=reentrant)
        return x.sum()

    results = []
    for call in (function, tg.compile(function, backend=backend, fullgraph=True)):
        x, w = tensor(16, 16, dtype=torch.float64), tensor(16, 32, seed=1, dtype=torch.float64)
        torch.manual_seed(3)
        loss = call(x, w)
        loss.backward()
        results.append((loss.detach(), x.grad, w.grad))
    for want, got in zip(*results):
        torch.testing.assert_close(got, want)


# --- what is freed when -----------------------------------------------------------------------------------------------
def test_saved_tensors_are_freed_while_backward_runs():
    """As in eager: what the last layer saved is gone before the first layer is differentiated."""

    def function(x, a, b, c):
        return torch.tanh(torch.tanh(torch.tanh(x @ a) @ b) @ c).sum()

    partition = autodiff.trace_training(capture(function), [tensor(4, 4, seed=i) for i in range(4)])
    alive: list[int] = []
    refs: list[weakref.ref] = []

    def forward(tensors):
        results = partition.forward(*tensors)
        refs.extend(weakref.ref(result) for result in results[1:])
        return results

    def backward(tensors):
        taken = list(tensors)
        tensors.clear()
        while taken:
            taken.pop()
            alive.append(sum(ref() is not None for ref in refs))
        return [torch.zeros(4, 4) for _ in partition.gradients]

    call = runtime_wrapper(partition, forward, lambda chosen: backward)
    call(*(tensor(4, 4, seed=i) for i in range(4)))[0].backward()
    assert len(refs) >= 3 and alive[-1] == 0 and alive == sorted(alive, reverse=True)


def test_retained_graph_keeps_saved_tensors():
    call = tg.compile(lambda x: torch.tanh(x @ x).sum(), fullgraph=True)
    x = tensor(4, 4)
    loss = call(x)
    loss.backward(retain_graph=True)
    first = x.grad.clone()
    loss.backward()
    torch.testing.assert_close(x.grad, 2 * first)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        loss.backward()


def test_wrapper_frees_its_inputs():
    """The generated wrapper empties the list it is given."""

    def function(x, w):
        return (torch.tanh(x @ w) @ w).sum()

    with tempfile.TemporaryDirectory() as folder, tg.prepare_debug(folder):
        call = tg.compile(function, fullgraph=True)
        call(tensor(4, 4), tensor(4, 4, seed=1)).backward()
        (text,) = [path.read_text() for path in Path(folder).rglob("backward_wrapper.py")]
    assert "args.clear()" in text
