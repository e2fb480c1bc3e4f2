"""How exact reductions are: the error against float64, beside eager's.

    python -m tests.lower.accuracy [LARGEST]

For sums, means, variances, norms, logsumexp and softmax of 1 to LARGEST (10**7) numbers, float32 and bfloat16, around 0
and around a large offset: prints cases where ours is more than twice eager's (and more than an ulp of the result).
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Iterator

import torch

import torchglass as tg

Tensor = torch.Tensor
FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "sum": lambda x: x.sum(), "mean": lambda x: x.mean(), "var": lambda x: x.var(), "std": lambda x: x.std(),
    "norm": lambda x: torch.linalg.vector_norm(x), "norm1": lambda x: torch.linalg.vector_norm(x, 1),
    "logsumexp": lambda x: x.logsumexp(0), "softmax": lambda x: x.softmax(0), "log_softmax": lambda x: x.log_softmax(0),
    "columns": lambda x: x.view(-1, 10 if x.numel() % 10 == 0 else 1).sum(0),
    "column_var": lambda x: x.view(-1, 10 if x.numel() % 10 == 0 else 1).var(0),
}  # fmt: skip


def error(found: Tensor, exact: Tensor) -> float:
    """The largest error in units of the result's last place."""
    scale = exact.abs().clamp_min(exact.abs().max() * 1e-2).clamp_min(1e-300)
    return float(((found.double() - exact).abs() / scale).max() / torch.finfo(found.dtype).eps)


def inputs(size: int, dtype: torch.dtype, offset: float) -> Iterator[Tensor]:
    """Several tensors of one kind: a single sum's error is luck."""
    for seed in range(16 if size <= 10**5 else 3):
        generator = torch.Generator().manual_seed(size + seed)
        yield (torch.randn(size, generator=generator) + offset).to(dtype)


def worse(largest: int) -> list[str]:
    """The cases in which the root mean square of our errors is more than twice eager's."""
    found = []
    sizes = [n for n in (1, 2, 7, 33, 1000, 1025, 10**4, 10**5, 10**6, 10**7) if n <= largest]
    for name, size, dtype, offset in itertools.product(
        FUNCTIONS, sizes, (torch.float32, torch.bfloat16), (0.0, 1000.0)
    ):
        if size < 2 and ("var" in name or name == "std"):
            continue
        fn = FUNCTIONS[name]
        tg.reset()
        compiled = tg.compile(fn)
        made = [(fn(x.double()), compiled(x), fn(x)) for x in inputs(size, dtype, offset)]
        ours, theirs = (math.sqrt(sum(error(m[k], m[0]) ** 2 for m in made) / len(made)) for k in (1, 2))
        if not ours <= max(2 * theirs, 1.0):
            found.append(f"{name} of {size} {dtype} around {offset}: {ours:.2f} ulp, eager {theirs:.2f}")
    return found


def main() -> int:
    torch.set_num_threads(1)
    largest = int(sys.argv[1]) if len(sys.argv) > 1 else 10**7
    found = worse(largest)
    print("\n".join(found) or "none worse")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
