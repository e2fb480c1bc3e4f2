"""ATen to loop IR: one table of rules per family. ``run(gm, options) -> LoopGraph``."""

from .run import run

__all__ = ["run"]
