"""Products of matrices whose rows are padded to 16 bytes: which ones, how what is around them lies, their values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.codegen import triton_on_torch
from tests.codegen.harness import compare, tensors
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from torchglass import codegen, fuse, lower, schedule
from torchglass.lower.cuda.row_layout import RowLayout
from torchglass.records.kernels import Allocate, FusedGraph
from torchglass.records.loops import ExternCall, LoopGraph, View
from torchglass.records.sizes import Symbol
from torchglass.records.target import Gpu, Targets

Tensor = torch.Tensor
EAGER = replace(Gpu().lowering, loop_multiplications=0, padded_operations=1, padded_operations_per_byte=0)
SMALL = Targets(cpu=replace(Gpu(), lowering=EAGER))
"""A GPU on which every padding pays."""


def half(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).bfloat16()


def lowered(
    fn: Callable[..., Any], args: Sequence[Tensor], targets: Targets = SMALL, returned: int | None = None
) -> LoopGraph:
    return lower.run(make_fx(fn, tracing_mode="fake")(*args), targets, returned=returned)


def products(graph: LoopGraph) -> list[list[tuple[Any, Any]]]:
    """Shapes and strides of each product's result and of what it gets."""
    calls = [n for n in graph.nodes if isinstance(n, ExternCall) and n.target.startswith("torch.ops.aten.")]
    outs = [graph.buffers[call.writes[0]] for call in calls]
    return [[(v.shape, v.strides) for v in (out, *call.args)] for out, call in zip(outs, calls)]


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., FusedGraph]:
    """Lower, print, run on the stand-in for Triton, compare with eager."""

    def run(
        fn: Callable[..., Any], args: Sequence[Tensor], tol: float = 2e-2, returned: int | None = None
    ) -> FusedGraph:
        fused = fuse.run(lowered(fn, args, returned=returned), SMALL)
        sources = codegen.run(schedule.run(fused, SMALL), SMALL)
        call = triton_on_torch.loaded(sources, tmp_path, monkeypatch)
        for k, (want, got) in enumerate(zip(tensors(fn(*args)), call(list(args)), strict=True)):
            if returned is not None and k >= returned:
                got = got.contiguous()
            compare(want, got, tol)
        return fused

    return run


# -- a language model's head -----------------------------------------------------------------------------------------
def loss_of(h: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy((h @ weight.t()).float(), targets)


def training(h: Tensor, weight: Tensor, targets: Tensor) -> Sequence[Tensor]:
    h, weight = h.detach().requires_grad_(), weight.detach().requires_grad_()
    loss = loss_of(h, weight, targets)
    return (loss.detach(), *torch.autograd.grad(loss, (h, weight)))


HEAD = [half(32, 16), half(37, 16, seed=1), torch.randint(0, 37, (32,))]


def test_a_head_and_its_gradients(check: Callable[..., FusedGraph]) -> None:
    """Three products, of which the vocabulary is the columns, the rows and what is summed over."""
    graph = lowered(training, HEAD)
    assert [n for n in graph.notes if n.startswith("rows")] == [
        "rows of 16 bytes in mm: n of 37 as 40",
        "rows of 16 bytes in mm_1: m of 37 as 40",
        "rows of 16 bytes in mm_2: k of 37 as 40",
    ]
    logits, of_weight, of_h = products(graph)
    assert logits == [((32, 40), (40, 1)), ((32, 16), (16, 1)), ((16, 40), (1, 16))]
    assert of_weight == [((40, 16), (16, 1)), ((40, 32), (1, 40)), ((32, 16), (16, 1))]
    assert of_h == [((32, 16), (16, 1)), ((32, 40), (40, 1)), ((40, 16), (16, 1))]
    assert [(v.shape, v.strides) for v in graph.outputs[1:]] == [((32, 16), (16, 1)), ((37, 16), (16, 1))]
    fused = check(training, HEAD)
    allocated = [fused.buffers[s.buffer] for s in fused.steps if isinstance(s, Allocate)]
    halves = [b for b in allocated if b.dtype == "bfloat16" and b.alias_of is None]
    assert sum(b.shape == (32, 40) for b in halves) == 2  # logits and their gradient, each once
    assert not any(b.shape == (32, 37) for b in halves)
    assert sum(b.shape == (40, 16) for b in halves) == 2  # the weight, for two products, and its gradient


def test_logits_that_are_returned_are_copied_and_those_kept_for_backward_are_not(
    check: Callable[..., FusedGraph],
) -> None:
    def both(h: Tensor, weight: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        logits = h @ weight.t()
        return F.cross_entropy(logits.float(), targets), logits

    graph = lowered(both, HEAD)
    assert graph.outputs[1] == View("mm", (32, 37), (37, 1))
    assert products(graph)[0][0] == ((32, 40), (40, 1))
    check(both, HEAD)
    kept = lowered(both, HEAD, returned=1)
    assert kept.outputs[1] == View("mm_padded", (32, 37), (40, 1))
    check(both, HEAD, returned=1)


def test_what_is_returned_and_kept_is_one_tensor() -> None:
    def both(h: Tensor, weight: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        logits = h @ weight.t()
        return logits, F.cross_entropy(logits.float(), targets), logits

    graph = lowered(both, HEAD, returned=2)
    assert graph.outputs[0] == graph.outputs[2] == View("mm", (32, 37), (37, 1))


def test_logits_that_are_all_there_is_stay() -> None:
    """A padded product would be held beside the copy that the caller gets."""
    graph = lowered(lambda h, w: h @ w.t(), HEAD[:2])
    assert products(graph)[0][0] == ((32, 37), (37, 1))
    assert "no pad_products (1): the result leaves as eager's does: its memory would be held twice" in graph.notes


def test_a_bias_of_the_vocabulary(check: Callable[..., FusedGraph]) -> None:
    def head(h: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return F.linear(h, weight, bias).float().square().sum(-1)

    args = [half(8, 16), half(37, 16, seed=1), half(37, seed=2)]
    assert products(lowered(head, args))[0][1] == ((40,), (1,))
    check(head, args, tol=5e-2)


def test_a_gradient_that_others_read(check: Callable[..., FusedGraph]) -> None:
    """Column sums, and a call that takes rows as eager has them."""

    def program(g: Tensor, h: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        grad = g.tanh()
        return grad.t() @ h, grad.sum(0), torch.cumprod(grad.t(), 0).sort(0)[0][:3]

    args = [half(32, 37), half(32, 16, seed=1)]
    check(program, args, tol=5e-2)
    plain = lambda g, h: program(g, h)[:2]
    graph = lowered(plain, args)
    assert not any(b.shape == (32, 37) and b.alias_of is None and b.role == "temp" for b in graph.buffers.values())
    check(plain, args, tol=5e-2)


def test_batches_of_matrices(check: Callable[..., FusedGraph]) -> None:
    """Attention over an odd number of keys: scores are padded, and what they become is written so."""

    def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch.bmm(torch.softmax(torch.bmm(q, k.transpose(1, 2)).float(), -1).bfloat16(), v)

    args = [half(3, 9, 16), half(3, 9, 16, seed=1), half(3, 9, 16, seed=2)]
    scores, read = products(lowered(attention, args))
    assert scores[0] == ((3, 9, 16), (144, 16, 1))
    assert read[1] == ((3, 9, 16), (144, 16, 1)) and read[2] == ((3, 16, 16), (256, 16, 1))
    check(attention, args)


def test_a_matrix_by_itself(check: Callable[..., FusedGraph]) -> None:
    check(lambda x: ((x.tanh() @ x.tanh().t()).float().sum(0), x.sum()), [half(13, 11)], tol=5e-2)


def test_odd_everywhere(check: Callable[..., FusedGraph]) -> None:
    check(lambda x, y: (x @ y).float().exp().sum(), [half(13, 11) / 8, half(11, 9) / 8], tol=5e-2)
    check(lambda x, y: (x.t() @ y.t()).float().exp().sum(1), [half(11, 13) / 8, half(9, 11) / 8], tol=5e-2)


# -- what stays ------------------------------------------------------------------------------------------------------
def test_matrices_of_whole_rows_and_other_dtypes_are_left_alone() -> None:
    even = lambda x, y: (x @ y).float().sum()
    assert lowered(even, [half(32, 16), half(16, 40)]).notes == ()
    assert lowered(even, [torch.randn(32, 15), torch.randn(15, 37)]).notes == ()
    assert lowered(even, [half(32, 15), half(15, 1)]).notes == ()  # a vector


def test_small_products_are_left_alone() -> None:
    products_as_calls = replace(Gpu().lowering, loop_multiplications=0)
    graph = lowered(loss_of, HEAD, Targets(cpu=replace(Gpu(), lowering=products_as_calls)))
    assert "no pad_products (1): too little is multiplied for what padding costs" in graph.notes
    assert products(graph)[0][0] == ((32, 37), (37, 1))


def test_heads_of_measured_models_are_padded() -> None:
    """By the numbers that are tuned; a batch of attention as in a ViT, whose copies cost what it wins, is not."""
    with FakeTensorMode():
        gpt2 = [torch.empty(8192, 768, dtype=torch.bfloat16), torch.empty(50257, 768, dtype=torch.bfloat16)]
        vit = [torch.empty(768, 197, 64, dtype=torch.bfloat16), torch.empty(768, 64, 197, dtype=torch.bfloat16)]
    fn = lambda h, w: torch.logsumexp((h @ w.t()).float(), -1)
    assert any(note.startswith("rows of 16 bytes in mm") for note in lowered(fn, gpt2, Targets(cpu=Gpu())).notes)
    fn = lambda q, k: torch.bmm(q, k).float().amax(-1)
    notes = lowered(fn, vit, Targets(cpu=Gpu())).notes
    assert not any(note.startswith("rows of 16 bytes") for note in notes)


def test_on_a_gpu() -> None:
    """Of a graph on two devices those on the GPU."""
    with FakeTensorMode(), torch.no_grad():
        h, w = torch.empty(32, 16, dtype=torch.bfloat16), torch.empty(37, 16, dtype=torch.bfloat16)
        args = [h, w, *(torch.empty(x.shape, dtype=x.dtype, device="cuda") for x in (h, w))]
        both = lambda *a: ((a[0] @ a[1].t()).float().sum(), (a[2] @ a[3].t()).float().sum())
        graph = lowered(both, args, Targets(cuda=SMALL.cpu))
    assert [n for n in graph.notes if n.startswith("rows")] == ["rows of 16 bytes in mm_1: n of 37 as 40"]
    assert graph.buffers["mm_1_padded"].device == "cuda:0"


# -- rows ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("sizes", "strides", "offset", "expected"),
    [
        ((32, 37), (37, 1), 0, ((40, 1), 0)),
        ((4, 8, 37), (296, 37, 1), 37, ((320, 40, 1), 40)),
        ((37, 32), (1, 37), 0, ((1, 40), 0)),
        ((31, 36), (37, 1), 38, ((40, 1), 41)),
        ((31, 37), (37, 1), 38, None),  # from the second element of a row into the next row
        ((32 * 37,), (1,), 0, None),
        ((32, 5, 7), (37, 7, 1), 0, ((40, 7, 1), 0)),
        ((Symbol("s", 32), 37), (37, 1), 0, ((40, 1), 0)),
        ((32, Symbol("s", 3)), (37, 1), 0, None),
        ((32, 1), (37, 5), 0, ((40, 5), 0)),
        ((32, 37), (37, -1), 36, None),
    ],
)
def test_walks(sizes: Any, strides: Any, offset: int, expected: Any) -> None:
    assert RowLayout(37, 40).walk(sizes, strides, offset) == expected
