"""What pays on GPUs beside loops and ATen's calls: they fill ``lower.strategies`` when this package is imported."""

from . import (  # noqa: F401
    online_softmax,
    padded_products,
    parallel_reductions,
    patch_products,
    philox_dropout,
    saved_rows,
    small_products,
)
