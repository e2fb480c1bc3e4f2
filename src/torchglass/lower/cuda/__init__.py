"""What pays on GPUs beside loops and ATen's calls: they fill ``lower.strategies`` when this package is imported."""

<<<<<<< HEAD
from . import padded_products, parallel_reductions, patch_products, saved_rows, small_products  # noqa: F401
=======
from . import padded_products, parallel_reductions, philox_dropout, saved_rows, small_products  # noqa: F401
>>>>>>> 0b6e27e (Draw dropout's numbers in the kernel that needs them, as eager draws them)
