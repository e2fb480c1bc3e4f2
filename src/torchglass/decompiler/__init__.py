"""Bytecode back to Python that means the same.  Imports no torch."""

from .api import decompile
from .errors import DecompileError

__all__ = ["DecompileError", "decompile"]
