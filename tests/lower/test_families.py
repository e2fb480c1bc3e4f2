"""Reads by index, losses, norms of channels, pooling, places of extrema: against eager, values and errors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.codegen.harness import Compiled, check

import torchglass as tg
from torchglass.lower import table
from torchglass.lower.context import Splat

Tensor = torch.Tensor


def make(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def special(*shape: int) -> Tensor:
    x = make(*shape)
    x[3, 5], x[4, 6], x[5] = float("nan"), float("inf"), -float("inf")
    return x


def gradients(fn: Callable[..., Any], moving: int = 1) -> Callable[..., Any]:
    """``fn``'s gradients with respect to its first arguments, of outputs weighted element by element."""

    def backward(*args: Tensor) -> Any:
        leaves = [a.detach().requires_grad_(k < moving) for k, a in enumerate(args)]
        outputs = fn(*leaves)
        leaves = leaves[:moving]
        weighted = [(o * torch.linspace(0.5, 1, o.numel()).view(o.shape)).sum() for o in outputs]
        return torch.autograd.grad(weighted, leaves)

    backward.trains = True  # type: ignore[attr-defined]
    return backward


def test_places_of_extrema(tmp_path: Path) -> None:
    def fn(x: Tensor, y: Tensor) -> Any:
        return x.argmax(-1), x.argmin(0, keepdim=True), *x.max(-1), *y.min(1), *x.max(0), (y * 2).long().argmax(1)

    check(fn, (special(33, 257), make(5, 300, 7)), tmp_path, loops_only=True)


def test_moments_and_norms(tmp_path: Path) -> None:
    def fn(x: Tensor, y: Tensor, odd: Tensor) -> Any:
        return (
            *torch.var_mean(x, -1), *torch.std_mean(y, 1, keepdim=True), odd.logsumexp(-1), y.logsumexp((0, 2)),
            torch.linalg.vector_norm(x, dim=-1), x.norm(dim=0, p=1),
        )  # fmt: skip

    check(fn, (make(33, 257), make(5, 30, 7), special(33, 257)), tmp_path, loops_only=True)


def test_activations_at_special_values(tmp_path: Path) -> None:
    def fn(x: Tensor, y: Tensor) -> Any:
        return (
            F.logsigmoid(x), F.glu(y[:, :256]), F.celu(x), F.hardshrink(x), F.softshrink(x), F.threshold(x, 0.1, 3.0),
            torch.frac(y), torch.logaddexp(x, y[0]), torch.fmax(x, y), torch.isposinf(x), torch.special.entr(x),
            F.mish(x), torch.lerp(y, x, y),
        )  # fmt: skip

    check(fn, (special(33, 257), make(33, 257)), tmp_path, loops_only=True)


@pytest.mark.parametrize("scale", [1e30, 1e-30])
def test_deviations_whose_squares_are_out_of_range(scale: float) -> None:
    x = make(70, 40) * scale

    def fn(x: Tensor) -> list[Tensor]:
        return [x.std(0), x.std(1), x.std(), *torch.std_mean(x, 1)]

    for got, want in zip(tg.compile(fn)(x), fn(x.double())):
        assert torch.allclose(got.double(), want, rtol=1e-5, atol=0.01 * scale * 1e-5)


def test_signs_of_zeros() -> None:
    x = torch.tensor([0.0, -0.0] * 50)

    def fn(x: Tensor) -> list[Tensor]:
        return [F.relu(x), F.relu6(x), x.clamp(0, 6), x.clamp_min(0), x.clamp_max(0), torch.fmax(x, -x), x.round(), -x]

    for got, want in zip(tg.compile(fn)(x), fn(x)):
        assert torch.equal(got.signbit(), want.signbit())


def test_losses(tmp_path: Path) -> None:
    def fn(x: Tensor, y: Tensor) -> Any:
        return (
            F.mse_loss(x, y), F.mse_loss(x, y, reduction="none"), F.smooth_l1_loss(x, y), F.huber_loss(x, y),
            F.binary_cross_entropy_with_logits(x, y.sigmoid()), F.soft_margin_loss(x, y.sign()),
        )  # fmt: skip

    check(fn, (make(64, 257), make(64, 257)), tmp_path, loops_only=True)
    check(gradients(lambda x, y: fn(x, y)[:4]), (make(64, 257), make(64, 257)), tmp_path)


def test_class_numbers(tmp_path: Path) -> None:
    labels = torch.arange(64) * 3
    some = labels.clone()
    some[3] = -100

    def fn(x: Tensor, t: Tensor, s: Tensor) -> Any:
        smooth = F.cross_entropy(x, t, label_smoothing=0.1)
        return F.cross_entropy(x, t), F.cross_entropy(x, s, reduction="sum"), F.nll_loss(x, s), smooth

    check(fn, (make(64, 257), labels, some), tmp_path, loops_only=True)


def test_the_loss_of_a_row_reads_one_element(tmp_path: Path) -> None:
    compiled = Compiled(F.cross_entropy, (make(64, 257), torch.arange(64)), tmp_path)
    stored = {b for kernel in compiled.fused.kernels for b in kernel.writes}
    assert "_log_softmax" not in stored


def test_reads_by_index(tmp_path: Path) -> None:
    ids = torch.arange(36).view(4, 9)

    def fn(x: Tensor, ids: Tensor, places: Tensor) -> Any:
        return (
            F.embedding(ids, x), x.gather(1, places), x.index_select(0, ids[0]), x[ids], x[:, places[:, 0]],
            x[ids[0], ids[1]], (x * 2).gather(1, places), x[-ids - 1], x.view(8, 8, 257)[ids[0] % 8, :, ids[1] % 8],
        )  # fmt: skip

    check(fn, (make(64, 257), ids, torch.arange(320).view(64, 5) % 257), tmp_path, loops_only=True)


@pytest.mark.parametrize(
    ("fn", "bad"),
    [
        (lambda x, i: F.embedding(i, x), torch.full((4, 9), 64)),
        (lambda x, i: x.gather(1, i), torch.full((64, 5), 300)),
        (lambda x, i: x[i], torch.full((3,), -65)),
        (lambda x, i: F.cross_entropy(x, i), torch.full((64,), 257)),
    ],
    ids=["embedding", "gather", "index", "cross_entropy"],
)
def test_an_index_out_of_range_raises_as_in_eager(fn: Callable[..., Any], bad: Tensor, tmp_path: Path) -> None:
    x, good = make(64, 257), torch.zeros_like(bad)
    compiled = Compiled(fn, (x, good), tmp_path)
    with pytest.raises((IndexError, RuntimeError)) as ours:
        compiled.call([x, bad])
    with pytest.raises((IndexError, RuntimeError)) as eager:
        fn(x, bad)
    assert type(ours.value) is type(eager.value) and str(ours.value) == str(eager.value)
    torch.testing.assert_close(compiled.call([x, good])[0], fn(x, good))


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=["contiguous", "channels last"])
def test_norms_of_channels(layout: torch.memory_format, tmp_path: Path) -> None:
    x, w, b = make(3, 8, 12, 16).to(memory_format=layout), make(8) + 2, make(8)

    def fn(x: Tensor, w: Tensor, b: Tensor, m: Tensor, v: Tensor) -> Any:
        return F.batch_norm(x, m, v, w, b, False), F.batch_norm(x, None, None, w, b, True), F.group_norm(x, 4, w, b)

    check(fn, (x, w, b, make(8), make(8).abs() + 0.5), tmp_path)

    def train(x: Tensor, w: Tensor, b: Tensor) -> Any:
        return F.batch_norm(x, None, None, w, b, True), F.group_norm(x, 4, w, b)

    check(gradients(train, 3), (x, w, b), tmp_path, tol=1e-4)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=["contiguous", "channels last"])
def test_pooling(layout: torch.memory_format, tmp_path: Path) -> None:
    x = make(3, 8, 12, 16).to(memory_format=layout)

    def fn(x: Tensor) -> Any:
        return (
            F.avg_pool2d(x, 2), F.avg_pool2d(x, 3, 2, 1), *F.max_pool2d(x, 2, return_indices=True),
            F.max_pool2d(x, 3, 1, 1), F.max_pool2d(x, (2, 3), (1, 2)),
            F.interpolate(x, scale_factor=2.0, mode="nearest"), F.interpolate(x, size=(24, 48), mode="nearest"),
        )  # fmt: skip

    check(fn, (x,), tmp_path)
    check(gradients(fn_of_pools), (x,), tmp_path)


def fn_of_pools(x: Tensor) -> Any:
    nearest = F.interpolate(x, scale_factor=2.0, mode="nearest")
    return F.avg_pool2d(x, 2), F.max_pool2d(x, 2), nearest, F.max_pool2d(x, 3, 2)


def test_numbers_from_a_whole_reduction(tmp_path: Path) -> None:
    def fn(x: Tensor, y: Tensor) -> Any:
        masked = torch.where(y > 0, x, 0)
        mean = masked.sum() / (y > 0).sum()
        return -(x * y).sum() / 4, ((masked - mean) ** 2).sum() / ((y > 0).sum() - 1), x / x.sum()

    for shape in ((2, 3, 2), (5, 5, 5), (64, 300)):
        x, y = make(*shape), make(*shape) + 0.1
        check(fn, (x, y), tmp_path, loops_only=True, tol=1e-4)


def test_a_large_constant(tmp_path: Path) -> None:
    from torchglass import compile

    def fn(x: Tensor) -> Tensor:
        return x + torch.tensor(list(range(2000)), dtype=torch.float32)

    x = make(2000)
    torch.testing.assert_close(compile(fn, fullgraph=True)(x), fn(x))


@pytest.mark.parametrize(
    "made",
    [
        lambda: torch.ones(2, 3).t(),
        lambda: torch.zeros(4, 3)[1:, ::2],
        lambda: torch.full((1, 3), 2).expand(4, 3),
        lambda: torch.ones(2, 3, 4).permute(2, 0, 1)[1:],
    ],
)
def test_layout_of_repeated_numbers(made: Callable[[], Tensor]) -> None:
    """What a view of a constant tensor returns lies in memory as eager's does."""
    ours, theirs = tg.compile(made)(), made()
    assert torch.equal(ours, theirs)
    assert (ours.stride(), ours.storage_offset()) == (theirs.stride(), theirs.storage_offset())


def test_equal_constants_are_tensors_of_their_own() -> None:
    def fn(x: Tensor) -> tuple[Tensor, ...]:
        both = torch.ones(2, 2)
        return torch.zeros_like(x), torch.zeros_like(x), x * 0, both, both[1], both, torch.ones(2, 2)

    values = tg.compile(fn)(make(3, 4))
    places = [value.untyped_storage().data_ptr() for value in values]
    assert len(set(places)) == 5
    assert places[3] == places[4] and values[3] is values[5]
    values[0].add_(1)
    assert not values[1].any()


@pytest.mark.complains("the lowering rule of aten.erfc")
def test_a_rule_that_fails_leaves_an_aten_call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What it made before is forgotten, a repeated number that it put into memory too."""

    def broken(low: Any, node: Any, x: Any) -> Any:
        low.view(Splat(2.0, "float32", (3, 4)))
        raise AttributeError("a mistake")

    monkeypatch.setitem(table.RULES, "erfc", broken)
    compiled = check(lambda x: (torch.erfc(x), torch.full((3, 4), 2.0) @ x.t()), (make(3, 4),), tmp_path)
    assert compiled.externs[0] == "torch.ops.aten.erfc.default"
