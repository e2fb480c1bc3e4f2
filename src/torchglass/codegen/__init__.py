"""Printing kernels and wrappers as source text. ``run(fused_graph, options) -> KernelSources``."""

from .run import run

__all__ = ["run"]
