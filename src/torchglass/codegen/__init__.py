"""Printing kernels and wrappers as source text. ``run(scheduled_graph, targets) -> KernelSources``.

``variants(scheduled_graph, targets, threads)`` prints every kernel in several ways, to be measured.
"""

from .launch_plan import sub_graphs
from .run import run
from .triton_ops import CannotPrint
from .variants import variants

__all__ = ["CannotPrint", "run", "sub_graphs", "variants"]
