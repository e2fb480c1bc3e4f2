"""The same function under each backend in turn: how far its graph goes, and how long a call takes.

python examples/backends.py
"""

import time

import torch
from rich.console import Console
from rich.table import Table

import torchglass as tg


def f(x, w):
    return torch.nn.functional.gelu(torch.softmax(x @ w, -1) + 1).sum()


def main() -> None:
    torch.manual_seed(0)
    x, w = torch.randn(512, 256), torch.randn(256, 512, requires_grad=True)
    table = Table("backend", "first call", "later calls", "stages", "kernels")
    for backend in ("eager", "aot_eager", "glass"):
        compiled = tg.compile(f, backend=backend)
        seconds = []
        for _ in range(11):
            begin = time.perf_counter()
            compiled(x, w).backward()
            seconds.append(time.perf_counter() - begin)
        report = tg.explain(compiled)
        table.add_row(
            backend,
            f"{seconds[0] * 1e3:.0f} ms",
            f"{sorted(seconds[1:])[5] * 1e3:.2f} ms",
            ", ".join(report.seconds_by_stage()),
            str(len(report.kernels())),
        )
    Console().print(table)


if __name__ == "__main__":
    main()
