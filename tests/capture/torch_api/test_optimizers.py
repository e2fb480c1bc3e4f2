"""``opt.step`` compiled: whole, eager's parameters, no recompile after the second step whatever a scheduler changes."""

from __future__ import annotations

import copy
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
            ours.grad = torch.randn_like(ours) if ours.requires_grad else None
            eager.grad = ours.grad.clone() if ours.requires_grad else None

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
    ("Adamax", {"foreach": True}),
    ("Adamax", {"foreach": True, "maximize": True, "weight_decay": 0.1}),
    ("NAdam", {"foreach": True}),
    ("NAdam", {"decoupled_weight_decay": True, "weight_decay": 0.1}),
    ("Rprop", {}),
    ("RAdam", {"lr": 0.01}),
    ("RAdam", {"lr": 0.01, "foreach": True, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("RAdam", {"lr": 0.01, "betas": (0.8, 0.9), "maximize": True, "weight_decay": 0.1}),
    ("ASGD", {"t0": 3, "lambd": 0.1}),
    ("ASGD", {"t0": 3, "lambd": 0.1, "foreach": True, "weight_decay": 0.1, "maximize": True}),
    ("Adafactor", {"weight_decay": 0.1}),
    ("Adafactor", {"foreach": True, "maximize": True, "eps": (1e-6, 0.3), "d": 1.5}),
    ("Adam", {"fused": True, "amsgrad": True, "weight_decay": 0.1}),
    ("AdamW", {"fused": True, "maximize": True}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1, "fused": True}),
    ("Adagrad", {"lr_decay": 0.1, "fused": True}),
]


@pytest.mark.parametrize(("name", "options"), OPTIMIZERS, ids=lambda v: v if isinstance(v, str) else "-".join(v))
def test_steps_agree_with_eager(name: str, options: dict[str, Any]) -> None:
    pair = Pair(name, **options)
    schedules = [Schedules.ExponentialLR(o, 0.9) for o in (pair.ours, pair.eager)]
    step = pair.compiled()
    for _ in range(STEPS):
        pair.take(step, schedules)
    assert entries(step) <= 3


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("name", ["Adam", "NAdam", "Adamax", "ASGD", "Rprop", "RMSprop", "Adadelta"])
def test_capturable_steps_are_the_others(name: str, foreach: bool) -> None:
    """Eager refuses them on a CPU."""
    pair = Pair(name, foreach=foreach)
    for group in pair.ours.param_groups:
        group["capturable"] = True
    step = pair.compiled()
    for _ in range(STEPS):
        pair.take(step, [])
    assert entries(step) <= 3


@pytest.mark.parametrize("name", ["Adam", "SGD", "RAdam", "ASGD", "RMSprop", "Adadelta", "NAdam"])
def test_differentiable_steps_have_gradients(name: str) -> None:
    def trained(compile: Any) -> list[torch.Tensor]:
        torch.manual_seed(0)
        leaves = [torch.randn(3, requires_grad=True) for _ in range(3)]
        parameter, *gradients = (leaf * 1 for leaf in leaves)
        optimizer = getattr(torch.optim, name)([parameter], lr=0.1, differentiable=True)
        step = compile(optimizer.step)
        for gradient in gradients:
            parameter.grad = gradient
            step()
        return [parameter, *torch.autograd.grad(parameter.square().sum(), leaves)]

    torch.testing.assert_close(trained(tg.compile), trained(lambda step: step), rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize(
    "name", ["AdamW", "SGD", *(pytest.param(name, marks=pytest.mark.slow) for name in ("RAdam", "Adafactor"))]
)
@pytest.mark.parametrize("kind", ["rate", "decay", "loaded", "group", "maximize", "tensor rate", "unused"])
def test_changes_between_steps_count(name: str, kind: str) -> None:
    """What programs change by hand between steps, on both sides alike."""
    pair = Pair(name, lr=torch.tensor(0.1) if kind == "tensor rate" else 0.1, foreach=False)
    step = pair.compiled()
    counts = []
    for number in range(STEPS):
        for optimizer in (pair.ours, pair.eager):
            CHANGES[kind](optimizer, number)
        pair.take(step, [])
        counts.append(entries(step))
    assert kind == "maximize" or counts[4] == counts[-1]


def _set(**values: Any) -> Any:
    return lambda o, n: [group.update({k: v(n) for k, v in values.items()}) for group in o.param_groups]


def _load(optimizer: Any, number: int) -> None:
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))


def _add_group(optimizer: Any, number: int) -> None:
    """A parameter that joins with the third step."""
    group = optimizer.param_groups[0]
    if number == 0:
        optimizer.late = group["params"].pop()
    if number == 2:
        optimizer.add_param_group({"params": [optimizer.late], "lr": 0.05})


def _rate(optimizer: Any, number: int) -> None:
    optimizer.param_groups[0]["lr"].fill_(0.1 / (number + 1))


def _unused(optimizer: Any, number: int) -> None:
    """No gradient, as layers that a step leaves out have, in the first two steps."""
    parameter = optimizer.param_groups[0]["params"][0]
    parameter.requires_grad_(number >= 2)


CHANGES: dict[str, Any] = {
    "rate": _set(lr=lambda n: 0.1 / (n + 1)),
    "decay": _set(weight_decay=lambda n: 0.01 * (n + 1)),
    "maximize": _set(maximize=lambda n: n % 2 == 1),
    "loaded": _load,
    "group": _add_group,
    "tensor rate": _rate,
    "unused": _unused,
}


def test_hooks_run_at_each_step() -> None:
    pair = Pair("AdamW", lr=0.1)
    seen: list[Any] = []
    for optimizer in (pair.ours, pair.eager):

        def before(o: Any, args: Any, kwargs: Any, mine: Any = optimizer) -> None:
            seen.append(("before", o is mine, len(args)))
            for group in o.param_groups:
                for parameter in group["params"]:
                    parameter.grad.mul_(0.5)

        def after(o: Any, args: Any, kwargs: Any) -> None:
            seen.append(("after", len(kwargs)))
            for group in o.param_groups:
                for parameter in group["params"]:
                    parameter.data.clamp_(-0.4, 0.4)

        optimizer.register_step_pre_hook(before)
        optimizer.register_step_post_hook(after)
    step = pair.compiled()
    for _ in range(STEPS):
        pair.take(step, [])
    assert seen == [("before", True, 1), ("after", 0)] * 2 * STEPS
    assert entries(step) <= 3


@pytest.mark.parametrize("name", ["AdamW", "SGD", "Adafactor"])
def test_closures_are_called(name: str) -> None:
    pair = Pair(name, lr=0.1)
    x = torch.randn(4, 6)

    def closure_of(optimizer: Any, network: Any) -> Any:
        def closure() -> Any:
            optimizer.zero_grad()
            loss = network(x).square().mean()
            loss.backward()
            return loss

        return closure

    ours, eager = (closure_of(o, m) for o, m in zip((pair.ours, pair.eager), pair.models))
    step = tg.compile(lambda: pair.ours.step(ours))
    for _ in range(STEPS):
        torch.testing.assert_close(step(), pair.eager.step(eager))
        pair.compare()
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
