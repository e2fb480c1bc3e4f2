"""Models of the tests of data parallelism, with buckets of a few kilobytes."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Layers(nn.Module):
    """Linear layers, each with a tanh."""

    def __init__(self, count: int = 4, width: int = 32) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(count))

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x


class Shared(nn.Module):
    """Two layers with one weight, first and last."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.inner, self.last = (nn.Linear(32, 32) for _ in range(3))
        self.last.weight = self.first.weight

    def forward(self, x):
        return self.last(torch.relu(self.inner(torch.relu(self.first(x)))))


class Added(nn.Module):
    """Biases with equal gradients, in two buckets."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Parameter(torch.randn(8, 32)), nn.Parameter(torch.randn(8, 32))
        self.layers = Layers(2)

    def forward(self, x):
        return self.layers(x) + self.a + self.b


class Breaking(Layers):
    """A graph break in the middle."""

    def forward(self, x):
        for index, layer in enumerate(self.layers):
            x = torch.tanh(layer(x))
            if index == 1:
                print(end="")
        return x


class Normed(nn.Module):
    """Batch norm: buffers, which DDP broadcasts."""

    def __init__(self) -> None:
        super().__init__()
        layers = (layer for _ in range(4) for layer in (nn.Linear(32, 32), nn.BatchNorm1d(32), nn.ReLU()))
        self.body = nn.Sequential(*layers)

    def forward(self, x):
        return self.body(x)


class Checkpointed(Layers):
    """Each layer is computed again in backward."""

    def forward(self, x):
        for layer in self.layers:
            x = checkpoint(lambda x, layer=layer: torch.tanh(layer(x)), x, use_reentrant=False)
        return x


class Unused(Layers):
    """The layers behind the second are used on one rank alone."""

    def forward(self, x, all_of_them: bool):
        for layer in self.layers if all_of_them else self.layers[:2]:
            x = torch.tanh(layer(x))
        return x


class Pair(Layers):
    """Two results."""

    def forward(self, x):
        return super().forward(x), self.layers[0](x)
