"""A dictionary comes in, and a branch asks for a value: two graphs, gradients through both, whole again
afterwards.

    TORCHGLASS_DIR=glass python examples/dictionary_in.py
"""

import torch

import torchglass as tg


@tg.compile
def function(inputs):
    x, y = inputs["x"], inputs["y"]
    x = x.cos().cos()
    if x.mean() > 0.5:
        x = x / 1.1
    return x * y


def main() -> None:
    for turn in range(100):
        size = 10 if turn % 2 == 0 else 8
        inputs = {name: torch.randn(size, requires_grad=True) for name in ("x", "y")}
        function(inputs).sum().backward()
        assert inputs["x"].grad is not None
    print(tg.explain(function))


if __name__ == "__main__":
    main()
