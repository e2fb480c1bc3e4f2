"""A branch on a value breaks the graph: three graphs, two resume functions, and a folder to read and step
through.

    python examples/toy_example.py
"""

import torch

import torchglass as tg


@tg.compile
def toy_example(a, b):
    x = a / (torch.abs(a) + 1)
    if b.sum() < 0:
        b = b * -1
    return x * b


def main(folder: str = "glass") -> None:
    with tg.prepare_debug(folder):
        for _ in range(100):
            toy_example(torch.randn(10), torch.randn(10))
    print(tg.explain(toy_example))
    print(f"Read {folder}/toy_example/full_code.py from top to bottom. Set a breakpoint in any file of")
    print(f"{folder}/ and call again: it stops there. Edit one and start again: your edit runs.")


if __name__ == "__main__":
    main()
