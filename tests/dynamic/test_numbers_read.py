"""Numbers that a program reads of tensors and uses as sizes: in the graph, and eager's results whatever they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import torchglass as tg

Program = Callable[[torch.Tensor, torch.Tensor], Any]


def sliced(x: torch.Tensor, n: torch.Tensor) -> Any:
    k = n[0].item()
    return x[:k] * 2, x[k:].sum(0), k, k + 1


def created(x: torch.Tensor, n: torch.Tensor) -> Any:
    k = int(n.max())
    return torch.zeros(k, 3) + 1, torch.arange(k), x.new_ones((2, k)).sum()


def windowed(x: torch.Tensor, n: torch.Tensor) -> Any:
    begin, length = n[0].item(), n[1].item()
    return x[begin : begin + length].exp(), x.narrow(0, begin, length) * 2


def indexed(x: torch.Tensor, n: torch.Tensor) -> Any:
    return x[n[0].item()] * 2, x.select(0, n[1].item())


def packed(x: torch.Tensor, n: torch.Tensor) -> Any:
    parts = x.split(n.tolist())
    return torch.cat([F.softmax(part, 0) for part in parts]), [part.sum(0) for part in parts]


def routed(x: torch.Tensor, n: torch.Tensor) -> Any:
    experts = x.detach().abs().sum(1).long() % 3
    order = experts.argsort(stable=True)
    counts = torch.bincount(experts, minlength=3)[:3]
    rows = x[order].split(counts.tolist())
    done = torch.cat([F.silu(part @ torch.full((x.shape[1], 2), k + 1.0)) for k, part in enumerate(rows)])
    return torch.zeros(x.shape[0], 2).index_copy(0, order, done)


def said(x: torch.Tensor, n: torch.Tensor) -> Any:
    k = n[0].item()
    torch._check(k >= 0)
    torch._check(k <= x.shape[0])
    return x[:k].exp()


def signed(x: torch.Tensor, n: torch.Tensor) -> Any:
    k = +n[0].item()
    return x[:+k] * 2, x[+k:]


def handed_out(x: torch.Tensor, n: torch.Tensor) -> Any:
    k = n[0].item()
    return x[:k], x.unsqueeze(0).expand(k + 1, -1, -1), x.t()[:, k:]


def unused(x: torch.Tensor, n: torch.Tensor) -> Any:
    return x * 2, n[0].item(), n.tolist()[1:], n.sum().item() <= 4


def of_a_mask(x: torch.Tensor, n: torch.Tensor) -> Any:
    rows = x[x.sum(1) > -9]
    k = (n[0] * 1).item()
    return rows[:k].exp(), rows[k:] * 2, torch.arange(rows.shape[0])[k:]


def padded(x: torch.Tensor, n: torch.Tensor) -> Any:
    most = n.max().item()
    inside = torch.arange(most)[None] < n[:, None]
    return inside, F.pad(x, (0, 0, 0, most)), inside.float() @ torch.ones(most, 2)


def asserted(x: torch.Tensor, n: torch.Tensor) -> Any:
    if n.max().item() > x.shape[0]:
        raise ValueError("too long")
    k = int(n[0])
    if k < 1:
        raise ValueError("too short")
    return x[:k].exp()


def as_many_as_rows(x: torch.Tensor, n: torch.Tensor) -> Any:
    k = n[0].item()
    assert k == x.shape[0]
    return torch.arange(k)[:, None] * x


def added_back(x: torch.Tensor, n: torch.Tensor) -> Any:
    parts = [part @ torch.full((4, 4), k + 1.0) for k, part in enumerate(x.split(n.tolist()))]
    order = x.detach().sum(1).argsort(stable=True)
    return torch.zeros_like(x).index_add(0, order, torch.cat(parts)), torch.cat(parts)[order] * x


def trimmed(x: torch.Tensor, n: torch.Tensor) -> Any:
    kept = x[:, : n[:2].max().item()]
    last = (n[:1] - 1).clamp(min=0)
    return kept.gather(1, last.expand(x.shape[0])[:, None])


def at_tensors(x: torch.Tensor, n: torch.Tensor) -> Any:
    i, row = n[0], x.detach()[:, 0].argmax()
    y = x * 2
    y[i] = 0
    y[row] += 1
    return y, x[i], x[:i].exp(), x[row, 1:], x[..., i.int(), :] * x[i], x.narrow(0, i, 1), x.select(0, row)


def seen_through_a_view(x: torch.Tensor, n: torch.Tensor) -> Any:
    y = x * 2
    shown = y[n[0]]
    shown.mul_(3)
    y[n[1], 1] = y[0, 0] + 1
    return y, shown + 1


def a_window_before(x: torch.Tensor, n: torch.Tensor) -> Any:
    most = n[0].item()
    return x[most // 2 : most], x[: max(n[0].item(), 2)], x[: int(n.max())] * x[: int(n.max())], x[: min(most, 4)]


def of_something(x: torch.Tensor, n: torch.Tensor) -> Any:
    rows = x[: n[0].item()]
    kernel, products = torch.ones(2, 1, 1), torch.einsum("ij,kj->ik", rows, rows)
    return rows.max(), F.conv1d(rows.t()[:, None], kernel), products, F.scaled_dot_product_attention(*[rows[None]] * 3)


def met_by_tensors(x: torch.Tensor, n: torch.Tensor) -> Any:
    k = int(n.max())
    inside = torch.arange(x.shape[0]) < k
    return inside[:, None] * x, x / n[0].item(), 2.5 - x * k, (x > 0).int() + k, x.sum() + n[:1].item()


def read_again(x: torch.Tensor, n: torch.Tensor) -> Any:
    if n[0].item() != x.shape[0]:
        raise ValueError("as many as rows")
    return x[: n[0].item()] * 2, torch.zeros(n[0].item())


def listed_again(x: torch.Tensor, n: torch.Tensor) -> Any:
    first = x.split(n.tolist())[0].exp()
    return first, x.split(n.tolist())[1].sum(0), x[n[2] :]


PROGRAMS: list[Program] = [
    read_again,
    listed_again,
    trimmed,
    met_by_tensors,
    at_tensors,
    seen_through_a_view,
    a_window_before,
    of_something,
    asserted,
    as_many_as_rows,
    added_back,
    of_a_mask,
    padded,
    sliced,
    created,
    windowed,
    indexed,
    packed,
    routed,
    said,
    signed,
    handed_out,
    unused,
]


def branches(x: torch.Tensor, n: torch.Tensor) -> Any:
    k = n[0].item()
    return x + k if k > 2 else x * k


def texts(x: torch.Tensor, n: torch.Tensor) -> Any:
    return x * 2, f"{n[0].item()}"


def adds_a_float(x: torch.Tensor, n: torch.Tensor) -> Any:
    return x * x.sum().item()


def counts_in_place(x: torch.Tensor, n: torch.Tensor) -> Any:
    n += 1
    return x[: n[0].item()] * 2


def test_a_rule_that_asks_for_the_number_leaves_the_call(caplog: pytest.LogCaptureFixture) -> None:
    def power(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        return x.pow(n[0].item())

    compiled = tg.compile(power, fullgraph=True)
    for exponent in (3, 2, 0, 5):
        x, n = torch.rand(4), torch.tensor([exponent])
        torch.testing.assert_close(compiled(x, n), power(x, n))
    assert not caplog.records


def listed(x: torch.Tensor, n: torch.Tensor) -> Any:
    k = n[0].item()
    return x[:, [k - 1, 0]] * 2


BREAKS: list[Program] = [listed, branches, texts, adds_a_float, counts_in_place]
NUMBERS = [(2, 3, 1), (1, 0, 5), (0, 6, 0), (6, 0, 0), (3, 1, 2), (-1, 4, 3), (7, -1, 0), (2, 2, 1), (9, 9, 9)]


def outcome(function: Program, x: torch.Tensor, n: torch.Tensor) -> list[Any]:
    try:
        made = function(x, n)
    except (RuntimeError, IndexError, ValueError, AssertionError) as error:
        return [type(error), str(error)]
    found: list[Any] = []
    for value in made if isinstance(made, tuple) else (made,):
        found += value if isinstance(value, list) else [value]
    losses = [one.pow(2).sum() for one in found if isinstance(one, torch.Tensor) and one.requires_grad]
    if losses:
        sum(losses).backward()
        found.append(x.grad)
    return [*found, n]


def assert_as_eager(function: Program, compiled: Program, training: bool) -> None:
    for rows in (6, 6, 8):
        x = torch.randn(rows, 4, generator=torch.Generator().manual_seed(rows))
        for numbers in NUMBERS:
            eager, ours = (
                outcome(f, x.clone().requires_grad_(training), torch.tensor(numbers)) for f in (function, compiled)
            )
            assert len(ours) == len(eager), (numbers, eager, ours)
            for one, other in zip(ours, eager):
                if isinstance(other, torch.Tensor):
                    assert one.requires_grad == other.requires_grad
                    torch.testing.assert_close(one, other)
                else:
                    assert type(one) is type(other) and one == other


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "glass"])
@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_in_one_graph(function: Program, backend: str, training: bool) -> None:
    compiled = tg.compile(function, backend=backend, fullgraph=True)
    assert_as_eager(function, compiled, training)
    assert len(list(tg.explain(compiled).all_entries())) <= 3


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("function", BREAKS, ids=lambda f: f.__name__)
def test_what_asks_breaks_the_graph(function: Program, training: bool) -> None:
    compiled = tg.compile(function, backend="aot_eager")
    assert_as_eager(function, compiled, training)
    assert any(entry.breaks for entry in tg.explain(compiled).all_entries())


@pytest.mark.parametrize("backend", ["aot_eager", "glass"])
def test_a_place_that_sizes_say(backend: str) -> None:
    compiled = tg.compile(lambda x: x[x.shape[0] - 2] * x[x.shape[0] // 2] + x[-1], backend=backend)
    for rows in (6, 5, 7, 9, 4):
        x, y = (torch.arange(rows * 3.0).view(rows, 3).requires_grad_() for _ in range(2))
        compiled(x).pow(2).sum().backward()
        (y[rows - 2] * y[rows // 2] + y[-1]).pow(2).sum().backward()
        assert torch.equal(x.grad, y.grad)
    assert len(tg.explain(compiled).entries) == 2


def test_a_number_of_what_was_written_to_since_is_another() -> None:
    def function(x: torch.Tensor, n: torch.Tensor) -> Any:
        n = n.clone()
        before = x[: n[0].item()], x[: n.max()]
        n.sub_(1)
        return before, x[: n[0].item()], x[: n.max()]

    compiled: Any = tg.compile(function, fullgraph=True)
    for numbers in ([3, 4], [1, 2], [2, 6]):
        x, n = torch.randn(6, 2), torch.tensor(numbers)
        (one, two), *after = compiled(x, n)
        assert [len(part) for part in (one, two, *after)] == [numbers[0], numbers[1], numbers[0] - 1, numbers[1] - 1]


def test_why_a_number_cannot_be_a_size_is_said() -> None:
    def products(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        part = x[:, : int(n.max())]
        return part @ part.t()

    with pytest.raises(tg.errors.GraphBreakError, match="data decide do not fit here: whether 4 == u0"):
        tg.compile(products, fullgraph=True)(torch.ones(3, 4, requires_grad=True), torch.tensor([2, 3]))
