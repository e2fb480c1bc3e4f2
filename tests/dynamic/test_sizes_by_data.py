"""Sizes that the data of tensors decide: in the graph where nothing asks for them, a break at what does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import torchglass as tg

Program = Callable[[torch.Tensor], Any]


def masked(x: torch.Tensor) -> Any:
    y = x[x > 0]
    return y * 2, y.shape[0], len(y) + 1, y.shape


def nonzero(x: torch.Tensor) -> Any:
    places = (x > 0).nonzero()
    return places + 1, places.sum(0), torch.zeros(places.shape[0], 3), torch.nonzero(x > 0, as_tuple=True)


def gathered_rows(x: torch.Tensor) -> Any:
    rows = x[x.sum(-1) > 0]
    return F.relu(rows @ torch.ones(x.shape[-1], 3)), F.softmax(rows, -1), rows.sum(0), rows.mean(1)


def between_others(x: torch.Tensor) -> Any:
    wide = torch.stack([x, x * 2])
    return wide[:, x > 0] + 1, wide[:, :, x[0] > 0] * 2, x[torch.arange(2), :][:, x[0] > 0]


def once_more(x: torch.Tensor) -> Any:
    mask = x > 0
    return x[mask] + (x * 2)[mask] + torch.masked_select(x, mask), mask.nonzero().float() * x[mask][:, None]


def masks_made_twice(x: torch.Tensor) -> Any:
    y, kinds = x * 2, x.detach().round()
    for kind in range(2):
        y[kinds == kind] = y[kinds == kind].exp() + x[kinds == kind]
    y[~(kinds == 1)] += x[~(kinds == 1)]
    best = y[y > 0]
    return y, best.topk(min(3, best.shape[0])).values


def counted(x: torch.Tensor) -> Any:
    kinds = (x.detach() * 2).round()
    values, places, counts = torch.unique(kinds, return_inverse=True, return_counts=True)
    return values.mean(), places * 2, counts.sum(), torch.unique_consecutive(kinds) + 1


def by_rows(x: torch.Tensor) -> Any:
    return torch.unique((x.detach() > 0).long(), dim=0) * 2, torch.bincount((x > 0).long().flatten()) + 1


def classes(x: torch.Tensor) -> Any:
    kinds = (x.detach() * 2).round().abs().long()
    hot = F.one_hot(kinds)
    first = F.one_hot(kinds[0]).float()
    return hot, hot.sum((0, 1)), first @ first.t(), hot.shape[-1]


def repeated(x: torch.Tensor) -> Any:
    return torch.repeat_interleave(x.flatten(), (x > 0).long().flatten()) * 3


def standardized(x: torch.Tensor) -> Any:
    y = torch.masked_select(x, x < 0.5)
    return (y - y.mean()).pow(2).sum()


def reshaped(x: torch.Tensor) -> Any:
    y = x[x > 0].view(-1, 1).expand(-1, 3)
    return y.reshape(-1), torch.cat([y, y]), y.t(), torch.stack([y, y]), y.flatten(), F.pad(y, (1, 1))


def views(x: torch.Tensor) -> Any:
    y = x[x > 0]
    z = y * 2
    return y, y.view(-1, 1), z, z.view(1, -1), z[None], y.unsqueeze(0)


def embedded(x: torch.Tensor) -> Any:
    ids = (x.detach() > 0).nonzero()[:, 1]
    table = torch.arange(40.0).view(20, 2)
    return F.embedding(ids, table), table[ids], torch.zeros(20).index_add(0, ids, torch.ones(ids.shape[0]))


def written(x: torch.Tensor) -> Any:
    mask = x > 0.2
    y = x.clone()
    y[mask] = x[mask] * 2
    mask = x.detach() > 0.2
    some = x.detach()[mask]
    mask |= x < -0.2
    return y, some, x.detach()[mask], some.sum()


def in_order(x: torch.Tensor) -> Any:
    y = x[x > 0]
    return y.take_along_dim(y.detach().argsort(0), 0)


def unread(x: torch.Tensor) -> Any:
    count = torch.unique((x.detach() > 0).long()).shape[0]
    return torch.ones(count + 2, 4) * 2


PROGRAMS: list[Program] = [
    masked, nonzero, gathered_rows, between_others, once_more, masks_made_twice, counted, by_rows, classes, repeated,
    standardized, reshaped, views, embedded, written, in_order, unread,
]  # fmt: skip


def branches(x: torch.Tensor) -> Any:
    y = x[x > 0]
    return y + 1 if y.shape[0] > 4 else y - 1


def looks_for_the_largest(x: torch.Tensor) -> Any:
    return x[x > 0].max()


def divides(x: torch.Tensor) -> Any:
    y = x[x > 0]
    return y.shape[0] / x.shape[0], f"{len(y)} of {x.numel()}", y.sum() / y.shape[0]


def adds_others(x: torch.Tensor) -> Any:
    return x[x > 0] + x[x < 0]


def loops(x: torch.Tensor) -> Any:
    return sum(k * x.sum() for k in range(x[x > 0].shape[0]))


def checkpointed(x: torch.Tensor) -> Any:
    return checkpoint(lambda x: x[x > 0].sin(), x, use_reentrant=False) * 2


BREAKS: list[Program] = [branches, looks_for_the_largest, divides, adds_others, loops, checkpointed]


def inputs() -> list[torch.Tensor]:
    torch.manual_seed(0)
    some = [torch.randn(4, 5), torch.randn(4, 5), torch.randn(4, 5), torch.randn(6, 5), torch.randn(5, 7)]
    return [*some, -torch.rand(4, 5), torch.rand(4, 5), -torch.rand(6, 5)]


def outcome(function: Program, x: torch.Tensor) -> list[Any]:
    """What a call gives and, of leaves, the gradient; of one that fails the error's type."""
    try:
        made = function(x)
    except RuntimeError as error:
        return [type(error)]
    found: list[Any] = []
    for value in made if isinstance(made, tuple) else (made,):
        found += value if isinstance(value, tuple) else [value]
    losses = [one.pow(2).sum() for one in found if isinstance(one, torch.Tensor) and one.requires_grad]
    if losses:
        sum(losses).backward()
        found.append(x.grad)
    return found


def assert_as_eager(function: Program, compiled: Program, training: bool) -> None:
    for x in inputs():
        eager = outcome(function, x.clone().requires_grad_(training))
        ours = outcome(compiled, x.clone().requires_grad_(training))
        assert len(ours) == len(eager)
        for one, other in zip(ours, eager):
            if isinstance(other, torch.Tensor):
                assert one.requires_grad == other.requires_grad
                torch.testing.assert_close(one, other, equal_nan=True)
            else:
                assert type(one) is type(other) and one == other


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "glass"])
@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_in_one_graph(function: Program, backend: str, training: bool) -> None:
    compiled = tg.compile(function, backend=backend, fullgraph=True)
    assert_as_eager(function, compiled, training)
    assert len(list(tg.explain(compiled).all_entries())) <= 3  # as first met, a size that changes, and both


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("function", BREAKS, ids=lambda f: f.__name__)
def test_what_asks_breaks_the_graph(function: Program, training: bool) -> None:
    compiled = tg.compile(function)
    assert_as_eager(function, compiled, training)
    assert any(entry.breaks for entry in tg.explain(compiled).all_entries())
    with pytest.raises(tg.errors.GraphBreakError):
        tg.compile(function, fullgraph=True)(
            torch.tensor([[1.0, -1.0, 2.0], [3.0, 4.0, -1.0]]).requires_grad_(training)
        )


@pytest.mark.parametrize("made", [lambda: torch.tensor([1, -2, 3]), lambda: torch.zeros(0, dtype=torch.int64)])
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "glass"])
def test_classes_that_there_are_not(made: Callable[[], torch.Tensor], backend: str) -> None:
    compiled = tg.compile(lambda x: F.one_hot(x) * 2, backend=backend)
    assert torch.equal(compiled(torch.tensor([1, 0, 2])), F.one_hot(torch.tensor([1, 0, 2])) * 2)
    with pytest.raises(RuntimeError) as eager:
        F.one_hot(made())
    with pytest.raises(RuntimeError) as ours:
        compiled(made())
    assert str(ours.value) == str(eager.value)


def test_a_mask_of_what_was_written_to_since_chooses_others() -> None:
    def function(x: torch.Tensor, kinds: torch.Tensor) -> Any:
        kinds = kinds.clone()
        before = x[kinds == 1], x[kinds == 1]
        kinds.add_(1)
        return before[0] + before[1], x[kinds == 1] * 2

    compiled: Any = tg.compile(function, fullgraph=True)
    for seed, count in enumerate((6, 9, 30)):
        generator = torch.Generator().manual_seed(seed)
        x, kinds = torch.randn(count, generator=generator), torch.randint(0, 2, (count,), generator=generator)
        for ours, eager in zip(compiled(x, kinds), function(x, kinds)):
            torch.testing.assert_close(ours, eager)


def repeated(x: torch.Tensor, n: torch.Tensor) -> Any:
    return torch.repeat_interleave(x, n, dim=0)


def unique_rows(x: torch.Tensor, n: torch.Tensor) -> Any:
    return torch.unique(x, dim=0, return_inverse=True)


def ragged(x: torch.Tensor, n: torch.Tensor) -> Any:
    return [part.sum() for part in x.split([int(n[:1].sum()), int(n[1:].sum())])]


def chunks(x: torch.Tensor, n: torch.Tensor) -> Any:
    return x.split(torch.stack([n[:1].sum(), n[1:].sum()]).tolist())


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("function", [repeated, unique_rows, ragged, chunks], ids=lambda f: f.__name__)
def test_of_no_rows(function: Callable[..., Any], dynamic: bool | None) -> None:
    compiled: Any = tg.compile(function, fullgraph=True, dynamic=dynamic)
    for rows in (5, 4, 0, 6, 0):
        x, n = torch.ones(rows, 2), torch.ones(rows, dtype=torch.int64)
        ours, eager = compiled(x, n), function(x, n)
        for one, other in zip(*((made,) if isinstance(made, torch.Tensor) else made for made in (ours, eager))):
            assert torch.equal(one, other)


def test_gradients_of_what_no_derivative_reads() -> None:
    """The backward is zeros, and its gradients arrive in a size that data decide."""

    def function(x: torch.Tensor) -> torch.Tensor:
        none = x.repeat(0, 1, 1)
        return none[none.flatten() > 0.3]

    compiled: Any = tg.compile(function, dynamic=True)
    for rows in (4, 5):
        x = torch.randn(rows, 1, requires_grad=True)
        compiled(x * 1).sum().backward()
        torch.testing.assert_close(x.grad, torch.zeros(rows, 1))


@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("function", [torch.unique, torch.unique_consecutive])
def test_unique_rows_lie_as_in_eager(function: Callable[..., torch.Tensor], dim: int) -> None:
    compiled: Any = tg.compile(lambda x: function(x, dim=dim), fullgraph=True, dynamic=True)
    for sizes in ((5, 4, 3), (2, 6, 7)):
        x = torch.randint(0, 2, sizes)
        ours, eager = compiled(x), function(x, dim=dim)
        assert torch.equal(ours, eager)
        assert ours.stride() == eager.stride()
