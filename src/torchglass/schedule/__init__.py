"""How fused kernels run: axes, passes, what stays in registers. ``run(fused_graph, targets) -> ScheduledGraph``."""

from .run import run

__all__ = ["run"]
