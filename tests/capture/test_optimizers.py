"""``opt.step`` compiled: whole, eager's parameters, no recompile after the second step whatever a scheduler changes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import torchglass as tg

STEPS = 8
Schedules = torch.optim.lr_scheduler


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3))


def entries(step: Any) -> int:
    return len(tg.explain(step).record.entries)


class Pair:
    """Two equal models: one whose optimizer is compiled, one as eager trains it."""

    def __init__(self, name: str, **options: Any) -> None:
        self.models = model(), model()
        cls = getattr(torch.optim, name)
        self.ours, self.eager = (cls(m.parameters(), **options) for m in self.models)

    def compiled(self) -> Any:
        """To be asked for after schedules have put their wrapper around ``step``."""
        return tg.compile(self.ours.step, fullgraph=True)

    def gradients(self) -> None:
        for ours, eager in zip(*(m.parameters() for m in self.models)):
            ours.grad = torch.randn_like(ours)
            eager.grad = ours.grad.clone()

    def take(self, step: Any, schedules: Any, *metrics: float) -> None:
        """One step of both sides and of their schedules, which must agree."""
        self.gradients()
        step()
        self.eager.step()
        for schedule in schedules:
            schedule.step(*metrics)
        self.compare()

    def compare(self) -> None:
        for ours, eager in zip(*(m.parameters() for m in self.models)):
            torch.testing.assert_close(ours, eager, rtol=2e-5, atol=1e-6)
            for key, value in self.eager.state[eager].items():
                if isinstance(value, torch.Tensor):
                    torch.testing.assert_close(self.ours.state[ours][key], value, rtol=2e-5, atol=1e-6)


OPTIMIZERS = [
    ("Adam", {"amsgrad": True, "weight_decay": 0.1}),
    ("AdamW", {"foreach": True}),
    ("AdamW", {"maximize": True, "foreach": False}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.1, "foreach": True, "weight_decay": 0.1}),
    ("RMSprop", {"centered": True, "momentum": 0.9}),
    ("Adagrad", {"lr_decay": 0.1}),
    ("Adadelta", {"foreach": True}),
    ("Adamax", {}),
    ("NAdam", {"foreach": True}),
    ("Rprop", {}),
]


@pytest.mark.parametrize(("name", "options"), OPTIMIZERS, ids=lambda v: v if isinstance(v, str) else "-".join(v))
def test_steps_agree_with_eager(name: str, options: dict[str, Any]) -> None:
    pair = Pair(name, **options)
    schedules = [Schedules.ExponentialLR(o, 0.9) for o in (pair.ours, pair.eager)]
    step = pair.compiled()
    for _ in range(STEPS):
        pair.take(step, schedules)
    assert entries(step) <= 3


SCHEDULES: dict[str, Any] = {
    "step": lambda o: Schedules.StepLR(o, 2, 0.5),
    "cosine": lambda o: Schedules.CosineAnnealingLR(o, 10),
    "one cycle": lambda o: Schedules.OneCycleLR(o, 0.1, total_steps=20),
    "plateau": lambda o: Schedules.ReduceLROnPlateau(o, patience=0),
    "lambda": lambda o: Schedules.LambdaLR(o, lambda n: 1 / (n + 1)),
}


@pytest.mark.parametrize("kind", SCHEDULES)
@pytest.mark.parametrize("name", ["AdamW", "SGD"])
def test_no_schedule_recompiles(kind: str, name: str) -> None:
    pair = Pair(name, lr=0.1, **({"momentum": 0.9} if name == "SGD" else {}))
    schedules = [SCHEDULES[kind](o) for o in (pair.ours, pair.eager)]
    counts = []
    step = pair.compiled()
    for _ in range(STEPS):
        pair.take(step, schedules, *([1.0] if kind == "plateau" else []))
        counts.append(entries(step))
    assert counts[2] == counts[-1] <= 3
