"""A training loop whose every part is compiled: ours, eager and torch.compile, interleaved.

    python -m benchmarks.training_loop [--seconds 8] [--json FILE]

A step accumulates the gradients of two micro-batches under bfloat16 autocast, clips them, steps AdamW, averages the
parameters (EMA) and moves a schedule on. Compiled are the model and, as one function, clipping, step and average.
Before it is timed, 50 steps must agree with eager's, and after the third nothing may be compiled again: else the exit
status is 1.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from .common import interleaved

STEPS = 50
WARM = 3  # steps after which nothing is compiled any more
MICRO_BATCHES = 2
DECAY = 0.99


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.attend(self.before(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        attended = nn.functional.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.project(attended.transpose(1, 2).flatten(2))
        return x + self.down(nn.functional.gelu(self.up(self.between(x))))


class Transformer(nn.Module):
    def __init__(self, width: int = 64, layers: int = 4, words: int = 128) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.blocks = nn.Sequential(*(Block(width, 4) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.blocks(self.embed(x))))


def mlp() -> nn.Module:
    layers = [layer for _ in range(6) for layer in (nn.Linear(128, 128), nn.ReLU())]
    return nn.Sequential(nn.Embedding(128, 128), *layers, nn.Linear(128, 128))


MODELS: dict[str, Callable[[], nn.Module]] = {"transformer": Transformer, "mlp": mlp}


def _ours(function: Any) -> Any:
    import torchglass as tg

    return tg.compile(function)


SIDES: dict[str, Callable[[Any], Any]] = {
    "eager": lambda function: function,
    "torchglass": _ours,
    "torch.compile": lambda function: torch.compile(function),
}


class Training:
    """A model and all that trains it, by one of the sides."""

    def __init__(self, make: Callable[[], nn.Module], compile: Callable[[Any], Any]) -> None:
        torch.manual_seed(0)
        self.model = make()
        self.average = copy.deepcopy(self.model)
        self.parameters, self.averaged = list(self.model.parameters()), list(self.average.parameters())
        self.optimizer = torch.optim.AdamW(self.parameters, lr=1e-3, weight_decay=0.01)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 1000)
        self.batches = [torch.randint(0, 128, (4, 33)) for _ in range(2 * MICRO_BATCHES)]
        self.done = 0
        self.forward, self.update = compile(self._forward), compile(self._update)

    def _forward(self, words: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            logits = self.model(words[:, :-1])
            return nn.functional.cross_entropy(logits.flatten(0, 1), words[:, 1:].flatten()) / MICRO_BATCHES

    def _update(self) -> None:
        nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(self.averaged, self.parameters, 1 - DECAY)

    def step(self) -> torch.Tensor:
        total = torch.zeros(())
        for n in range(MICRO_BATCHES):
            loss = self.forward(self.batches[(self.done * MICRO_BATCHES + n) % len(self.batches)])
            loss.backward()
            total += loss.detach()
        self.update()
        self.optimizer.zero_grad()
        self.schedule.step()
        self.done += 1
        return total

    def entries(self) -> int:
        """How often ours has compiled, over both functions and what goes on behind breaks."""
        import torchglass as tg

        return sum(len(r.entries) for f in (self.forward, self.update) for r in tg.explain(f).record.walk())


def agreement(trainings: dict[str, Training]) -> dict[str, Any]:
    """Losses and parameters of ours and of torch.compile against eager's after STEPS, and recompiles of ours."""
    losses: dict[str, list[float]] = {name: [] for name in trainings}
    warm = 0
    for number in range(STEPS):
        for name, training in trainings.items():
            losses[name].append(float(training.step()))
        if number + 1 == WARM:
            warm = trainings["torchglass"].entries()
    eager = trainings["eager"]
    found: dict[str, Any] = {"recompiles": trainings["torchglass"].entries() - warm, "entries": warm}
    for name in trainings.keys() - {"eager"}:
        pairs = list(zip(eager.parameters + eager.averaged, trainings[name].parameters + trainings[name].averaged))
        found[name] = {
            "loss": max(abs(a - b) for a, b in zip(losses["eager"], losses[name])),
            "parameters": max(float((a - b).detach().abs().max()) for a, b in pairs),
        }
    return found


def measure(name: str, seconds: float) -> dict[str, Any]:
    trainings = {side: Training(MODELS[name], compile) for side, compile in SIDES.items()}
    found = agreement(trainings)
    whole = interleaved({side: t.step for side, t in trainings.items()}, seconds)
    updates = interleaved({side: _update_of(t) for side, t in trainings.items()}, seconds / 2)
    for part, timings in (("step", whole), ("update", updates)):
        ours = timings["torchglass"].median
        found[part] = {side: round(t.median, 4) for side, t in timings.items()}
        found[f"{part} ratios"] = {
            side: round(t.median / ours, 3) for side, t in timings.items() if side != "torchglass"
        }
    return found


def _update_of(training: Training) -> Callable[[], None]:
    for p in training.parameters:
        p.grad = torch.full_like(p, 1e-3)
    return lambda: training.update()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--only", nargs="*", choices=list(MODELS))
    parser.add_argument("--json")
    chosen = parser.parse_args()
    results = {}
    for name in chosen.only or MODELS:
        results[name] = measure(name, chosen.seconds)
        print(name, json.dumps(results[name], indent=1), flush=True)
    if chosen.json:
        with open(chosen.json, "w") as file:
            json.dump(
                {"threads": torch.get_num_threads(), "torch": torch.__version__, "models": results}, file, indent=1
            )
    return 1 if any(r["recompiles"] or r["torchglass"]["loss"] > 0.02 for r in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
