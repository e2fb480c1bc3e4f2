"""sin² + cos²: a backend of your own that looks at the captured graph, then the default one with its
gradient.

    python examples/sine_cosine.py
"""

from pathlib import Path

import torch

import torchglass as tg
from torchglass.inspector import draw


def f(x):
    return torch.sin(x) ** 2 + torch.cos(x) ** 2


def inspect_backend(gm: torch.fx.GraphModule, sample_inputs: list[torch.Tensor]):
    """Called at the first call of the compiled function, with the graph and that call's tensors."""
    print(f"captured for inputs of shapes {[tuple(t.shape) for t in sample_inputs]}")
    gm.print_readable()
    picture = Path("sine_cosine.svg")
    picture.write_text(draw.svg(gm, "sin² + cos²"))
    print(f"drawn in {picture.absolute()}")
    return gm.forward


def main() -> None:
    x = torch.randn(1, 1000, requires_grad=True)
    tg.compile(f, backend=inspect_backend)(x)

    compiled = tg.compile(f)
    y = compiled(x)
    y.sum().backward()
    from_one, from_zero = (y - 1).abs().max().item(), x.grad.abs().max().item()
    print(f"largest distance from 1: {from_one:.1e}, of the gradient from 0: {from_zero:.1e}")
    (graph,) = tg.explain(compiled).graphs()
    print(graph.files["forward.py"])
    print(graph.files["backward.py"])


if __name__ == "__main__":
    main()
