"""Models of the tests of data parallelism, with buckets of a few kilobytes."""

from __future__ import annotations

from collections.abc import Callable

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


class FeedForward(nn.Module):
    """Blocks of several modules, as transformers have them."""

    class Block(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(width)
            self.wide, self.narrow = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

        def forward(self, x):
            return x + self.narrow(nn.functional.gelu(self.wide(self.norm(x))))

    def __init__(self, count: int = 3, width: int = 32) -> None:
        super().__init__()
        self.layers = nn.ModuleList(self.Block(width) for _ in range(count))
        self.head = nn.Linear(width, width)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


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


class Block(nn.Module):
    """Two convolutions with norms and a shortcut, as ResNet's are."""

    def __init__(self, inner: int, outer: int, norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(n, outer, 3, padding=1, bias=False) for n in (inner, outer))
        self.norms = nn.ModuleList(norm(outer) for _ in range(3))
        self.shortcut = nn.Conv2d(inner, outer, 1, bias=False)

    def forward(self, x):
        y = self.second(torch.relu(self.norms[0](self.first(x))))
        return torch.relu(self.norms[1](y) + self.norms[2](self.shortcut(x)))


class Residual(nn.Module):
    """A small ResNet."""

    def __init__(self, norm: Callable[[int], nn.Module] = nn.BatchNorm2d) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), norm(8), nn.ReLU(), nn.MaxPool2d(2))
        self.body = nn.Sequential(Block(8, 16, norm), Block(16, 16, norm))
        self.head = nn.Linear(16, 5)

    def forward(self, x):
        return self.head(self.body(self.stem(x)).mean((2, 3)))


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
