"""Sizes that change are left open from the second compile on, and what comes out is eager's for all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import torchglass as tg
from torchglass.records.symbolic_ints import SizesUnfit

from .changing_programs import PROGRAMS, Program

SIZES = [(4, 6), (3, 5), (2, 9), (7, 3), (5, 12), (8, 8), (3, 33)]


def results(value: Any) -> list[Any]:
    return list(value) if isinstance(value, tuple) and not isinstance(value, torch.Size) else [value]


def assert_equal(ours: Any, eager: Any) -> None:
    for one, other in zip(results(ours), results(eager), strict=True):
        if isinstance(other, torch.Tensor):
            assert one.shape == other.shape and one.dtype == other.dtype
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
        else:
            assert type(one) is type(other) and one == other


def entries(function: Any) -> int:
    return len(list(tg.explain(function).all_entries()))


@pytest.mark.parametrize(
    ("backend", "mode"),
    [
        ("eager", torch.no_grad),
        ("aot_eager", torch.inference_mode),
        ("glass", torch.inference_mode),
        ("glass", torch.no_grad),
    ],
)
@pytest.mark.parametrize("name", PROGRAMS)
def test_inference(name: str, backend: str, mode: Any) -> None:
    row: Program = PROGRAMS[name]
    compiled = tg.compile(row.function, backend=backend)
    with mode():
        for seed, (b, t) in enumerate(SIZES):
            ours, eager = row.made(b, t, seed), row.made(b, t, seed)
            assert_equal(compiled(*ours), row.function(*eager))
            assert_equal(tuple(ours), tuple(eager))  # what is written
    assert entries(compiled) <= row.most_entries


@pytest.mark.parametrize("backend", [pytest.param("aot_eager", marks=pytest.mark.slow), "glass"])
@pytest.mark.parametrize("name", [name for name, row in PROGRAMS.items() if row.trains])
def test_training(name: str, backend: str) -> None:
    row: Program = PROGRAMS[name]
    compiled = tg.compile(row.function, backend=backend)
    for seed, (b, t) in enumerate(SIZES):
        ours, eager = row.made(b, t, seed), row.made(b, t, seed)
        for function, inputs in ((compiled, ours), (row.function, eager)):
            for tensor in inputs:
                tensor.requires_grad_(tensor.is_floating_point())
            made = [value for value in results(function(*inputs)) if isinstance(value, torch.Tensor)]
            sum(value.float().pow(2).sum() for value in made if value.requires_grad).backward()
        for one, other in zip(ours, eager):
            assert (one.grad is None) == (other.grad is None)
            if other.grad is not None:
                cancelled = 1e-6 * float(other.grad.abs().max()) if other.grad.numel() else 0.0
                torch.testing.assert_close(one.grad, other.grad, rtol=1e-3, atol=1e-3 + cancelled)
    assert entries(compiled) <= row.most_entries


@pytest.mark.parametrize("backend", ["eager", pytest.param("aot_eager", marks=pytest.mark.slow), "glass"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_sizes_of_one_and_none(name: str, backend: str) -> None:
    row: Program = PROGRAMS[name]
    compiled = tg.compile(row.function, backend=backend)
    with torch.no_grad():
        for seed, (b, t) in enumerate([(4, 6), (3, 5), (1, 7), (5, 4), (2, 4), (1, 4)]):
            assert_equal(compiled(*row.made(b, t, seed)), row.function(*row.made(b, t, seed)))


ONES = [
    "attention_to_another", "attention_with_masks",
    "batch_norm_of_images", "batch_norm_of_known_spread", "biased_by_position", "convolution", "mask_of_rows",
    "packed_attention", "patches", "places_of_maxima", "shifted_by_position", "transposed_convolution",
    "written_to_in_steps",
]  # fmt: skip


@pytest.mark.parametrize("name", ONES)
def test_a_batch_of_one_is_no_entry_of_its_own(name: str) -> None:
    row: Program = PROGRAMS[name]
    compiled = tg.compile(row.function, backend="glass")
    with torch.no_grad():
        for seed, (b, t) in enumerate([(4, 6), (3, 8), (1, 6), (2, 12)]):
            assert_equal(compiled(*row.made(b, t, seed)), row.function(*row.made(b, t, seed)))
    assert entries(compiled) == 2


def causal(x: torch.Tensor) -> torch.Tensor:
    place = torch.arange(x.shape[1])
    mask = (place[None] <= place[:, None])[None, None].expand(x.shape[0], -1, -1, -1)
    heads = x.view(*x.shape[:2], 4, 4).transpose(1, 2)
    return torch.nn.functional.scaled_dot_product_attention(heads, heads, heads, attn_mask=mask)


def hides_nothing(x: torch.Tensor) -> torch.Tensor:
    mask = torch.ones(x.shape[0], x.shape[1], dtype=torch.bool)[:, None, None].expand(-1, -1, x.shape[1], -1)
    heads = x.view(*x.shape[:2], 4, 4).transpose(1, 2)
    return torch.nn.functional.scaled_dot_product_attention(heads, heads, heads, attn_mask=mask)


def near(x: torch.Tensor) -> torch.Tensor:
    """Causal up to 600 places, and another mask beyond."""
    place = torch.arange(x.shape[1])
    apart = place[:, None] - place[None]
    heads = x.view(*x.shape[:2], 4, 4).transpose(1, 2)
    return torch.nn.functional.scaled_dot_product_attention(
        heads, heads, heads, attn_mask=((apart >= 0) & (apart < 600))[None, None]
    )


@pytest.mark.parametrize(("function", "dropped"), [(causal, True), (hides_nothing, True), (near, True)])
def test_masks_of_counters_are_seen_through(function: Any, dropped: bool) -> None:
    """For all sizes that were looked at, and no others."""
    compiled = tg.compile(function, backend="aot_eager")
    with torch.no_grad():
        for t in (20, 24, 30, 511, 700, 640):
            x = torch.randn(2, t, 16)
            torch.testing.assert_close(compiled(x), function(x), rtol=1e-4, atol=1e-4)
    second = list(tg.explain(compiled).all_entries())[1].graphs[0].files["forward.py"]
    code = "\n".join(line.partition("#")[0] for line in second.splitlines())
    assert ("attn_mask=" not in code) is dropped


def from_the_end(place: torch.Tensor) -> torch.Tensor:
    """Of a few places the first is hidden, of many none: its neighbour on the left is the last."""
    return (place[place - 1] > 40) | (place > 0)


def filled_by_a_size(place: torch.Tensor) -> torch.Tensor:
    return place < torch.full_like(place, 2 * place.shape[0] - 40)


@pytest.mark.parametrize("mask_of", [from_the_end, filled_by_a_size])
def test_masks_that_are_no_corner_of_a_larger_one_stay(mask_of: Callable[[torch.Tensor], torch.Tensor]) -> None:
    def attend(x: torch.Tensor) -> torch.Tensor:
        t = x.shape[1]
        mask = mask_of(torch.arange(t))[None].expand(t, t)
        return torch.nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=mask)

    compiled = tg.compile(attend, backend="aot_eager")
    with torch.no_grad():
        for t in (100, 90, 60, 25, 30, 33):
            x = torch.randn(2, t, 16)
            torch.testing.assert_close(compiled(x), attend(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("backend", ["aot_eager", "glass"])
@pytest.mark.parametrize("function", [lambda x: x[:3] * 2, lambda x: x[x > 0]])
def test_what_tells_sizes_alone_may_be_written_to(function: Callable[..., Any], backend: str) -> None:
    compiled = tg.compile(function, backend=backend)
    for rows in (4, 5, 6):
        leaf, gradients = torch.randn(rows, 5, requires_grad=True), []
        for called in (compiled, function):
            x = leaf * 1
            result = called(x)
            x.add_(1)
            result.add_(1)
            gradients.append(*torch.autograd.grad(result.sum(), leaf))
        assert_equal(*gradients)


@pytest.mark.complains("runs a graph with ATen")
def test_a_part_whose_backward_runs_with_aten_is_not_given_what_others_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(sizes: Any) -> Any:
        if any(isinstance(size, torch.SymInt) for size in sizes):
            raise SizesUnfit("a size that changes")
        return tuple(sizes)

    monkeypatch.setattr("torchglass.lower.rules.indexing.sizes_of", refused)
    compiled = tg.compile(lambda x, y: (x.amax(0), F.pad(y, (2, 1))), backend="glass")
    for rows in (4, 5, 6):
        x, y = torch.randn(rows, requires_grad=True), torch.randn(rows + 2, 4, requires_grad=True)
        first, second = compiled(x, y)
        gradients = torch.autograd.grad(first.sum() + second.sum(), (x, y))
        assert_equal(gradients, ((x == first).float(), torch.ones_like(y)))


def test_borders_may_change() -> None:
    compiled = tg.compile(lambda x: F.pad(x, (x.numel(), 1)), backend="glass", fullgraph=True)
    for rows in (4, 5, 6):
        x = torch.randn(rows, 4)
        assert_equal(compiled(x), F.pad(x, (x.numel(), 1)))


def test_a_size_that_a_later_line_takes_for_a_number() -> None:
    """Floats made of it are numbers to the stages that come after, which C++ would take for NaN."""

    def last_of_many(x: torch.Tensor) -> torch.Tensor:
        places = torch.linspace(0, 1, x.shape[0] * 2)
        return places + places.unbind(0)[-1]

    for backend in ("aot_eager", "glass"):
        compiled: Any = tg.compile(last_of_many, dynamic=True, backend=backend)
        for n in (6, 7, 2):
            assert torch.equal(compiled(torch.ones(n)), last_of_many(torch.ones(n)))


class Batch:
    def __init__(self, x: torch.Tensor) -> None:
        self.x, self.more = x, {"y": [x * 2]}


class Scaled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.randn(4))
        self.kept = torch.randn(6, 4)

    def forward(self, batch: Batch) -> torch.Tensor:
        return (batch.x + batch.more["y"][0]) * self.scale + self.kept.sum(0)


def test_tensors_in_objects_are_open_and_those_of_modules_are_not() -> None:
    module = Scaled()
    compiled: Any = tg.compile(module, dynamic=True, fullgraph=True)
    for n in (3, 5, 7):
        batch = Batch(torch.randn(n, 4))
        torch.testing.assert_close(compiled(batch), module(batch))
    (entry,) = tg.explain(compiled).all_entries()
    shapes = {guard.expected.shape for guard in entry.guards if guard.check == "tensor"}
    assert shapes == {(None, None), (4,), (6, 4)}


OF_FLOATS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "linspace": lambda x: torch.linspace(0.5, x.shape[0] - 0.5, x.shape[0]),
    "linspace of as many": lambda x: torch.linspace(-x.shape[0] / 3, x.shape[0] * 1.7, 7, dtype=torch.float64),
    "linspace, downwards": lambda x: torch.linspace(x.shape[0] / 7, 0, x.shape[0] // 2 + 1, dtype=x.dtype),
    "linspace, of whole numbers": lambda x: torch.linspace(0, x.shape[0] - 1, x.shape[0] + 1),
    "where": lambda x: torch.where(x > 0, x, x.shape[0] / 3),
    "where first": lambda x: torch.where(x > 0, x.shape[0] / 3, x.half()),
}


@pytest.mark.parametrize("function", OF_FLOATS.values(), ids=OF_FLOATS)
def test_floats_made_of_sizes_stay_open(function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    compiled: Any = tg.compile(function, dynamic=True, fullgraph=True)
    for n in (4, 5, 7, 1, 50):
        x = torch.randn(n)
        torch.testing.assert_close(compiled(x), function(x))
    assert entries(compiled) == 1


def test_linspace_is_bitwise_eagers() -> None:
    compiled: Any = tg.compile(lambda x: torch.linspace(-1, 1, x.shape[0]), dynamic=True)
    assert all(torch.equal(compiled(torch.ones(n)), torch.linspace(-1, 1, n)) for n in (7, 8, 11, 100))


def test_a_short_time_fourier_transform_of_one_signal() -> None:
    compiled: Any = tg.compile(lambda x: torch.stft(x, 16, 4, window=torch.ones(16), return_complex=True).abs())
    for n in (64, 70, 81):
        x = torch.randn(n)
        torch.testing.assert_close(compiled(x), torch.stft(x, 16, 4, window=torch.ones(16), return_complex=True).abs())
    assert entries(compiled) == 2
