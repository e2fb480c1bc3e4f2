"""Opcode handlers, one file per family. Importing this package fills the table in ``registry``."""

from . import containers, control, operators, stack, variables

__all__ = ["containers", "control", "operators", "stack", "variables"]
