"""Rules and strategies whose loops divide by, are bound by or compare with sizes that change."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.sweep.stand_in import standing_in

import torchglass as tg

SIZES = ((3, 8), (2, 12), (4, 20), (5, 10))


def images(b: int, t: int) -> list[torch.Tensor]:
    return [torch.randn(b, 16, t, t + 2)]


def rows(b: int, t: int) -> list[torch.Tensor]:
    return [torch.randn(b, t, 16)]


def indexed(b: int, t: int) -> list[torch.Tensor]:
    return [torch.randn(b, t, 16), torch.randint(0, t, (b, t)), torch.randint(0, b * t, (7,))]


Case = tuple[Callable[..., Any], Callable[[int, int], list[torch.Tensor]], tuple[str, ...]]
WEIGHT, SCALE = torch.randn(16, 16, 3, 3) / 12, torch.rand(16)


def convolved(x: torch.Tensor) -> torch.Tensor:
    return F.group_norm(F.conv2d(x, WEIGHT.to(x.device), padding=1), 4, SCALE.to(x.device))


CASES: dict[str, Case] = {
    "mean": (lambda x: x.mean(1) + x.mean(), rows, ("mean",)),
    "var": (lambda x: x.var(1) + x.std(0, correction=0).sum(0), rows, ("var", "std")),
    "mse_loss": (lambda x: F.mse_loss(x, x.roll(1, -1).detach()), rows, ("mse_loss",)),
    "smooth_l1_loss": (lambda x: F.smooth_l1_loss(x, x.roll(1, -1).detach(), beta=0.5), rows, ("smooth_l1_loss",)),
    "cross_entropy": (lambda x, i, j: F.cross_entropy(x.flatten(0, 1), i.flatten() % 16), indexed, ("nll_loss",)),
    "batch_norm": (lambda x: F.batch_norm(x, None, None, training=True), images, ("batch_norm",)),
    "group_norm": (lambda x: F.group_norm(x, 4, SCALE.to(x.device)), images, ("group_norm",)),
    "channels_last": (lambda x: convolved(x).relu(), images, ("group_norm",)),
    "max_pool2d": (lambda x: F.max_pool2d(x, 2), images, ("max_pool2d",)),
    "max_pool2d_padded": (lambda x: F.max_pool2d(x, 3, 2, 1), images, ()),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, 2), images, ("avg_pool2d",)),
    "adaptive_avg_pool2d": (lambda x: F.adaptive_avg_pool2d(x, 1), images, ("adaptive_avg_pool2d",)),
    "nearest": (lambda x: F.interpolate(x, scale_factor=2.0), images, ("upsample",)),
    "bilinear": (lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"), images, ()),
    "reflection_pad2d": (lambda x: F.pad(x, (1, 2, 1, 2), mode="reflect").relu(), images, ()),
    "constant_pad": (lambda x: F.pad(x, (1, 2), value=3.0).tanh(), rows, ("pad",)),
    "pad_rows": (lambda x: F.pad(x, (0, 0, 1, 2)).tanh(), rows, ("pad",)),
    "cat": (lambda x: torch.cat([x, x[:, 1:] * 2], 1).tanh(), rows, ("cat",)),
    "narrow": (lambda x: x[:, 2:].tanh() * x[:, -1:], rows, ()),
    "select": (lambda x: x[:, -1].tanh() + x[:, 0], rows, ()),
    "gather": (lambda x, i, j: x.gather(1, i[..., None].expand(-1, -1, 16)).tanh(), indexed, ("gather",)),
    "index": (lambda x, i, j: x.flatten(0, 1)[j].tanh(), indexed, ("index",)),
    "argmax": (lambda x: x.detach().argmax(1) + x.detach().argmin(1), rows, ("argmax", "argmin")),
    "max": (lambda x: x.max(1).values, rows, ()),
}  # fmt: skip


def at_other_sizes(name: str, trains: bool, device: str = "cpu") -> Any:
    """The compiled function, after it was like eager at each of the sizes."""
    function, make, _ = CASES[name]
    compiled = tg.compile(lambda *args: function(*args), dynamic=True)
    for number, size in enumerate(SIZES):
        torch.manual_seed(number)
        args = [a.to(device).requires_grad_(trains and a.is_floating_point()) for a in make(*size)]
        same = [a.detach().clone().requires_grad_(a.requires_grad) for a in args]
        found, wanted = compiled(*args), function(*same)
        torch.testing.assert_close(found, wanted)
        if trains and wanted.requires_grad:
            found.cos().sum().backward()
            wanted.cos().sum().backward()
            torch.testing.assert_close(args[0].grad, same[0].grad)
    assert len(list(tg.explain(compiled).all_entries())) == 1
    return compiled


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("trains", (False, True), ids=("inference", "training"))
def test_loops_at_other_sizes(name: str, trains: bool, tmp_path: Any) -> None:
    with tg.prepare_debug(str(tmp_path)):
        at_other_sizes(name, trains)
    (wrapper,) = tmp_path.rglob("forward_wrapper.py")
    called = re.findall(r"(?:aten_|torch\.)(\w+)\(", wrapper.read_text())
    assert not [call for call in called for loop in CASES[name][2] if loop in call]


@pytest.mark.parametrize("causal", (False, True))
def test_attention_of_any_length(causal: bool) -> None:
    """By our loops, by PyTorch's where there are too few queries or too many keys."""
    compiled = tg.compile(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal), dynamic=True)
    for batch, length in ((2, 48), (1, 64), (3, 7), (2, 3000)):
        q, k, v = (torch.randn(batch, 2, length, 64) for _ in range(3))
        wanted = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        torch.testing.assert_close(compiled(q, k, v), wanted)


@pytest.mark.parametrize("gpu", ["gpu", pytest.param("small-gpu", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", CASES)
def test_loops_of_a_gpu_at_other_sizes(name: str, gpu: str) -> None:
    with standing_in(gpu):
        at_other_sizes(name, trains=True)


def test_steps_through_a_number_repeated_no_times() -> None:
    """The memory that such a look reaches over is never of negative size."""

    def every_second(x: torch.Tensor) -> torch.Tensor:
        return torch.full((x.shape[0] // 5,), 1.0)[::2]

    compiled = tg.compile(every_second)
    for rows in (10, 4, 3, 15, 22):
        x = torch.ones(rows)
        assert compiled(x).shape == every_second(x).shape


@pytest.mark.parametrize("kernel, stride", [(2, 2), (2, 3), (3, 3), (3, 2)])
def test_windows_that_leave_a_rest(kernel: int, stride: int, tmp_path: Any) -> None:
    """Of channels last each place of the image looks at its one window; ATen is faster where there are several."""
    compiled = tg.compile(lambda x: F.max_pool2d(x.relu(), kernel, stride), dynamic=True)
    with tg.prepare_debug(str(tmp_path)):
        for b, t in SIZES:
            x = torch.randn(b, 16, t + 1, t).round(decimals=1).contiguous(memory_format=torch.channels_last)
            ours, eager = (x.clone().requires_grad_() for _ in range(2))
            compiled(ours).cos().sum().backward()
            F.max_pool2d(eager.relu(), kernel, stride).cos().sum().backward()
            torch.testing.assert_close(ours.grad, eager.grad)
    (wrapper,) = tmp_path.rglob("backward_wrapper.py")
    assert ("max_pool2d_with_indices_backward(" in wrapper.read_text()) is (kernel > stride)


PARTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "half of the rows": lambda x: x[: x.shape[0] // 2] * 2,
    "all but one": lambda x: x[: x.shape[0] - 1].exp(),
    "half of the columns": lambda x: (x[:, : x.shape[1] // 2] * 3).sin(),
    "sums of half of the columns": lambda x: x[:, : x.shape[1] // 2].sum(1, keepdim=True) + x,
}


def nothing_is_read(name: str, device: str = "cpu") -> None:
    """What is one number many times, as the gradient of a sum is, has no memory where there are no elements."""
    function = PARTS[name]
    compiled = tg.compile(lambda x: function(x), dynamic=True)
    for rows, columns in ((5, 6), (4, 3), (1, 1), (3, 1), (1, 3), (2, 2)):
        ours, eager = (torch.ones(rows, columns, device=device, requires_grad=True) for _ in range(2))
        for f, x in ((compiled, ours), (function, eager)):
            f(x).sum().backward()
        torch.testing.assert_close(ours.grad, eager.grad)


@pytest.mark.parametrize("name", PARTS)
def test_nothing_is_read_of_no_elements(name: str) -> None:
    nothing_is_read(name)


def test_names_and_quotients_in_kernels() -> None:
    """Arguments named as kernels name their own counters, and numbers of columns that are quotients."""
    named: list[Callable[[torch.Tensor], torch.Tensor]] = [lambda l: l.softmax(-1), lambda j: j.softmax(-1)]  # noqa: E741
    for function in named:
        compiled = tg.compile(function)
        for columns in (10, 8, 21):
            x = torch.rand(2, columns)
            torch.testing.assert_close(compiled(x), function(x))
    divided = tg.compile(lambda x, n: (x.view(n, -1).softmax(-1), x.view(n, -1).sum(1), x[::n].sum()))
    for n in (6, 4, 3, 2):
        x = torch.randn(12)
        torch.testing.assert_close(divided(x, n), (x.view(n, -1).softmax(-1), x.view(n, -1).sum(1), x[::n].sum()))
