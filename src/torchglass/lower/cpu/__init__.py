"""What pays on CPUs beside loops and ATen's calls: they fill ``lower.strategies`` when this package is imported."""

from . import (  # noqa: F401
    attention,
    depthwise,
    layout_propagation,
    matmul_dispatch,
    packed_weights,
    summed_products,
)
