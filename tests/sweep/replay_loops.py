"""Random training loops with CUDA graphs against the same kernels launched one by one: every number must be the same.

    python -m tests.sweep.replay_loops --count 1000 --from 0

A loop is some thirty steps drawn from a seed: forwards of two models, one of another's output, backwards in any order,
some retained, optimizer steps, ``zero_grad`` in both ways, results and views of them kept, written to and dropped.
Prints the seeds that differ, and exits with 1 if there are any.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

import torchglass as tg
from torchglass.runtime import replay

ROWS, WIDTH = 16, 32


def model(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    layers = [nn.Linear(WIDTH, 48), nn.GELU(), nn.LayerNorm(48), nn.Linear(48, WIDTH), nn.Tanh()]
    return nn.Sequential(*layers).cuda()


class Side:
    """Two models in one mode, which all loops share: their graphs see every order of calls."""

    def __init__(self, mode: str) -> None:
        self.models = [model(0), model(1)]
        self.start = [{name: value.clone() for name, value in one.state_dict().items()} for one in self.models]
        self.calls = [tg.compile(one, mode=mode) for one in self.models]

    def run(self, seed: int) -> list[torch.Tensor]:
        """What the loop of a seed shows."""
        for one, start in zip(self.models, self.start):
            one.load_state_dict(start)
            one.zero_grad()
        return Loop(self, random.Random(seed), seed).run()


class Loop:
    def __init__(self, side: Side, draw: random.Random, seed: int) -> None:
        self.side, self.draw, self.seed = side, draw, seed
        self.optimizers = [torch.optim.SGD(one.parameters(), 0.05, momentum=0.9) for one in side.models]
        self.pending: list[torch.Tensor] = []  # losses
        self.kept: list[torch.Tensor] = []
        self.shown: list[torch.Tensor] = []
        self.step = 0
        self.moves: Sequence[tuple[int, Callable[[], None]]] = (
            (8, self.forward), (3, self.chained), (3, self.inference), (8, self.backward), (3, self.optimize),
            (4, self.zero), (3, self.keep_view), (2, self.drop), (2, self.write), (4, self.show), (1, self.average),
        )  # fmt: skip

    def run(self) -> list[torch.Tensor]:
        weights, moves = zip(*self.moves)
        for step in range(self.draw.randrange(20, 40)):
            self.step = step
            (move,) = self.draw.choices(moves, weights)
            move()
        self.show()
        return [*self.shown, *(p.detach().clone() for one in self.side.models for p in one.parameters())]

    def input(self) -> torch.Tensor:
        generator = torch.Generator("cuda").manual_seed(100 * self.seed + self.step)
        return torch.randn(ROWS, WIDTH, device="cuda", generator=generator)

    def which(self) -> int:
        return self.draw.randrange(2)

    def keep(self, y: torch.Tensor) -> None:
        if self.draw.random() < 0.4:
            self.kept.append(y)

    def forward(self) -> None:
        y = self.side.calls[self.which()](self.input())
        self.keep(y)
        self.pending.append(y.square().mean())

    def chained(self) -> None:
        first = self.which()
        y = self.side.calls[1 - first](self.side.calls[first](self.input()))
        self.keep(y)
        self.pending.append(y.sin().sum())

    def inference(self) -> None:
        with torch.no_grad():
            self.keep(self.side.calls[self.which()](self.input()))

    def backward(self) -> None:
        if self.pending:
            place = self.draw.randrange(len(self.pending))
            retained = self.draw.random() < 0.2
            loss = self.pending[place] if retained else self.pending.pop(place)
            try:
                loss.backward(retain_graph=retained)
            except RuntimeError as error:  # of parameters that were stepped on since: the same in both modes
                self.shown.append(torch.tensor(len(str(error)) > 0))

    def optimize(self) -> None:
        self.pending.clear()
        self.optimizers[self.which()].step()

    def zero(self) -> None:
        self.side.models[self.which()].zero_grad(set_to_none=self.draw.random() < 0.6)

    def keep_view(self) -> None:
        if self.kept:
            self.kept.append(self.draw.choice(self.kept).detach()[:7, 1:])

    def drop(self) -> None:
        if self.kept:
            self.kept.pop(self.draw.randrange(len(self.kept)))

    def write(self) -> None:
        if self.kept:
            with torch.no_grad():
                self.draw.choice(self.kept).detach().mul_(1.5)

    def show(self) -> None:
        gradients = [p.grad for one in self.side.models for p in one.parameters() if p.grad is not None]
        self.shown += [y.detach().clone() for y in (*self.kept, *self.pending, *gradients)]

    def average(self) -> None:
        with torch.no_grad():
            for a, b in zip(*(one.parameters() for one in self.side.models)):
                a.lerp_(b, 0.1)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--from", type=int, default=0, dest="first")
    chosen = parser.parse_args(arguments)
    replay.SLOWER = 1e9  # graphs stay, however busy the machine is
    launched, replayed = Side("default"), Side("reduce-overhead")
    differ = [seed for seed in range(chosen.first, chosen.first + chosen.count) if not same(launched, replayed, seed)]
    print(f"{chosen.count} loops from {chosen.first}: {len(differ)} differ {differ[:20]}")
    for call in replayed.calls:
        print(*(text for text in told(call)), sep="\n")
    return 1 if differ else 0


def same(launched: Side, replayed: Side, seed: int) -> bool:
    want, got = launched.run(seed), replayed.run(seed)
    return len(want) == len(got) and all(map(torch.equal, want, got))


def told(call: Any) -> list[str]:
    graphs = [graph for entry in tg.explain(call).to_dict()["entries"] for graph in entry["graphs"]]
    return [f"  {side}: {text}" for graph in graphs for side, text in graph["replays"].items()]


if __name__ == "__main__":
    sys.exit(main())
