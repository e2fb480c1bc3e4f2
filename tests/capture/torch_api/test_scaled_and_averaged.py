"""GradScaler and AveragedModel compiled: eager's scale, parameters, state and averages, skipped steps as well."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_avg_fn, get_ema_multi_avg_fn, get_swa_multi_avg_fn

import torchglass as tg

STEPS = 9
INFINITE = (0, 4)  # steps whose gradients are


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 3))


def entries(function: Any) -> int:
    return sum(len(record.entries) for record in tg.explain(function).record.walk())


class Scaled:
    """Scaling, unscaling, clipping, a step and the new scale."""

    def __init__(self, name: str, options: dict[str, Any], compile: Any) -> None:
        self.model = network().double()  # a step divides by what may be as small as the rounding of float32
        self.optimizer = getattr(torch.optim, name)(self.model.parameters(), **options)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=3)
        self.schedule = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.9)
        self.update = compile(self._update)

    def _update(self, clips: bool) -> None:
        if clips:
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            nn.utils.clip_grad_value_(self.model.parameters(), 0.3)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()

    def step(self, number: int, clips: bool) -> list[Any]:
        torch.manual_seed(number)
        x = torch.randn(4, 6, dtype=torch.float64)
        loss = self.model(x).square().mean() * (torch.inf if number in INFINITE else 1.0)
        self.scaler.scale(loss).backward()
        self.update(clips)
        self.schedule.step()
        state = [{**self.optimizer.state[p]} for p in self.model.parameters() if p in self.optimizer.state]
        return [*self.model.parameters(), state, self.scaler.get_scale()]


@pytest.mark.parametrize("clips", [False, True])
@pytest.mark.parametrize(
    ("name", "options"),
    [("AdamW", {}), ("AdamW", {"fused": True}), ("SGD", {"lr": 0.1}), ("SGD", {"lr": 0.1, "momentum": 0.9})],
    ids=lambda v: v if isinstance(v, str) else "-".join(v),
)
def test_scaled_steps_agree_with_eager(name: str, options: dict[str, Any], clips: bool) -> None:
    tg.reset()
    ours, eager = (Scaled(name, options, compile) for compile in (tg.compile, lambda f: f))
    counts = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a schedule complains when the first step is skipped
        for number in range(STEPS):
            torch.testing.assert_close(ours.step(number, clips), eager.step(number, clips), rtol=1e-9, atol=1e-12)
            counts.append(entries(ours.update))
    assert counts[2] == counts[-1]
    assert not tg.explain(ours.update).record.entries[-1].breaks


def test_a_skipped_first_step_leaves_no_infinite_momentum() -> None:
    """Eager leaves the momentum of a fused step that it skips as the memory was."""
    training = Scaled("SGD", {"lr": 0.1, "momentum": 0.9, "fused": True}, tg.compile)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        training.step(INFINITE[0], True)
    for parameter in training.model.parameters():
        momentum = training.optimizer.state[parameter]["momentum_buffer"]
        torch.testing.assert_close(momentum, torch.zeros_like(parameter))


def test_a_skipped_step_of_an_optimizer_with_hooks_calls_none() -> None:
    tg.reset()
    trainings = [Scaled("AdamW", {}, compile) for compile in (tg.compile, lambda f: f)]
    calls: list[list[int]] = [[], []]
    for training, seen in zip(trainings, calls):
        training.optimizer.register_step_post_hook(lambda *_, seen=seen: seen.append(1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in range(STEPS):
            ours, eager = (training.step(number, True) for training in trainings)
            torch.testing.assert_close(ours, eager, rtol=2e-5, atol=1e-6)
    assert len(calls[0]) == len(calls[1]) == STEPS - len(INFINITE)


def doubled(average: torch.Tensor, value: torch.Tensor, count: Any) -> torch.Tensor:
    calls.append(1)
    return (average + value) / 2


calls: list[int] = []
AVERAGES: dict[str, dict[str, Any]] = {
    "default": {},
    "buffers": {"use_buffers": True},
    "ema": {"avg_fn": get_ema_avg_fn(0.9)},
    "ema of lists": {"multi_avg_fn": get_ema_multi_avg_fn(0.9), "use_buffers": True},
    "swa of lists": {"multi_avg_fn": get_swa_multi_avg_fn()},
    "the program's": {"avg_fn": doubled},
}


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("kind", AVERAGES)
def test_averages_agree_with_eager(kind: str, whole: bool) -> None:
    """``whole``: the update is called in what is compiled, and is no graph of its own."""
    tg.reset()
    model = network()
    ours, eager = (AveragedModel(model, **AVERAGES[kind]) for _ in range(2))
    whole = whole and kind != "the program's"
    update = tg.compile((lambda m: ours.update_parameters(m)) if whole else ours.update_parameters, fullgraph=whole)
    counts = []
    for number in range(STEPS):
        torch.manual_seed(number)
        model(torch.randn(4, 6))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(torch.randn_like(parameter))
        calls.clear()
        eager.update_parameters(model)
        called = len(calls)
        update(model)
        assert len(calls) == 2 * called
        torch.testing.assert_close(dict(ours.state_dict()), dict(eager.state_dict()), rtol=2e-5, atol=1e-6)
        counts.append(entries(update))
    assert counts[2] == counts[-1]
    assert not whole or counts[-1] == 1
