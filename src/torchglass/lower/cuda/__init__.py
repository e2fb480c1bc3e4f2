"""What pays on GPUs beside loops and ATen's calls: they fill ``lower.strategies`` when this package is imported."""

from . import padded_products, parallel_reductions, patch_products, saved_rows, small_products  # noqa: F401
