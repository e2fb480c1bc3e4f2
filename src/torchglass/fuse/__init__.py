"""Loops into kernels: fusion rules, schedule, memory plan. ``run(loop_graph, options) -> FusedGraph``."""

from .run import run

__all__ = ["run"]
