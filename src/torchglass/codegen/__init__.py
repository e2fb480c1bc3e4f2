"""Printing kernels and wrappers as source text. ``run(fused_graph, options) -> KernelSources``.

``variants(fused_graph, options)`` prints every kernel in several ways, to be measured.
"""

from .run import run
from .variants import variants
from .wrapper import sub_graphs

__all__ = ["run", "sub_graphs", "variants"]
